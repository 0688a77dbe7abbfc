# SPDX-License-Identifier: Apache-2.0
"""Files of ground motions in formats of seismology."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest

N, RATE = 300, 100
VALUES = np.exp(-np.arange(N) / 120.0) * np.sin(0.21 * np.arange(N))
"""m/s^2."""
SCALE, COUNTED = "2000(gal)/8388608", 20.0 / 8388608.0
"""Scale factor of K-NET, as text and in m/s^2."""
OFFSET = -12345


def knet(duration: float = N / RATE, peak: float | None = None, points: int = N) -> bytes:
    """Return a file of K-NET: counts with an offset, eight per line."""
    counts = np.rint(VALUES / COUNTED).astype(int) + OFFSET
    stated = 100.0 * np.abs(VALUES - VALUES.mean()).max() if peak is None else peak
    head = {
        "Origin Time": "2018/09/06 03:07:59",
        "Lat.": "42.686",
        "Long.": "142.001",
        "Depth. (km)": "37",
        "Mag.": "6.7",
        "Station Code": "HKD127",
        "Station Lat.": "42.9241",
        "Station Long.": "141.9503",
        "Station Height(m)": "145",
        "Record Time": "2018/09/06 03:08:04",
        "Sampling Freq(Hz)": f"{RATE}Hz",
        "Duration Time(s)": f"{duration:g}",
        "Dir.": "N-S",
        "Scale Factor": SCALE,
        "Max. Acc. (gal)": f"{stated:.3f}",
        "Last Correction": "2018/09/06 03:08:00",
        "Memo.": "",
    }
    lines = [f"{key:<18}{value}" for key, value in head.items()]
    lines += ["".join(f"{count:9d}" for count in counts[at : at + 8]) for at in range(0, points, 8)]
    return ("\n".join(lines) + "\n").encode()


def waveform(kind: str, values: np.ndarray = VALUES, **stats: Any) -> bytes:
    """Return a file that obspy has written."""
    obspy = pytest.importorskip("obspy", reason="needs obspy: pip install obspy")
    header = {"network": "XX", "station": "ABC", "channel": "HNE", "sampling_rate": RATE, **stats}
    written = BytesIO()
    obspy.Stream([obspy.Trace(np.array(values), header)]).write(written, format=kind)
    return written.getvalue()


def samples(kind: str, unit: str) -> bytes:
    """Return a file of SLIST or TSPAIR."""
    text = (
        f"TIMESERIES XX_ABC__HNE_D, {N} samples, {RATE} sps, 2018-01-01T00:00:00.000000, {kind}, FLOAT, {unit}\n"
    )
    times = [f"2018-01-01T00:00:{i / RATE:09.6f}  " if kind == "TSPAIR" else "" for i in range(N)]
    return (text + "".join(f"{time}{value:+.8f}\n" for time, value in zip(times, VALUES, strict=True))).encode()
