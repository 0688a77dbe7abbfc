# SPDX-License-Identifier: Apache-2.0
"""Tests of seismological formats, which obspy reads."""

from __future__ import annotations

import pickle
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions
from motion_file import make, refusal
from waveform_files import COUNTED, RATE, SCALE, VALUES, N, knet, samples, waveform


def needs_obspy() -> Any:
    return pytest.importorskip("obspy", reason="needs obspy: pip install obspy")


def several(*traces: tuple[np.ndarray, float]) -> bytes:
    """miniSEED of parts of one channel, each with its start time, s."""
    obspy = needs_obspy()
    header = {"network": "XX", "station": "ABC", "channel": "HNE", "sampling_rate": RATE}
    parts = (obspy.Trace(values, {**header, "starttime": obspy.UTCDateTime(start)}) for values, start in traces)
    written = BytesIO()
    obspy.Stream(parts).write(written, format="MSEED")
    return written.getvalue()


def test_missing_obspy_is_reported_with_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obspy", None)
    mseed = b"000001D ABC    HNE" + bytes(494)
    sac = bytearray(632)
    sac[304:308] = (6).to_bytes(4, "little")
    for name, content in {"K-NET or KiK-net": knet(), "miniSEED": mseed, "SAC": bytes(sac)}.items():
        assert mentions(refusal(tmp_path, content), name, "obspy")


def test_knet_is_scaled_and_mean_removed(tmp_path: Path) -> None:
    needs_obspy()
    record = make(tmp_path, knet())
    assert record.step == 0.01
    np.testing.assert_allclose(record.values, VALUES - VALUES.mean(), atol=COUNTED)
    assert "unit = 'g'" in refusal(tmp_path, knet(), unit="g")
    assert "step = 0.02 s" in refusal(tmp_path, knet(), step=0.02)


def test_knet_contradicting_its_header_is_refused(tmp_path: Path) -> None:
    needs_obspy()
    assert mentions(refusal(tmp_path, knet(points=200)), "300", "200")
    assert mentions(refusal(tmp_path, knet(peak=300.0)), "3 m/s^2", "0.9241 m/s^2")
    assert mentions(refusal(tmp_path, knet().replace(SCALE.encode(), b"no scale")), "NET", "KiK-net")


@pytest.mark.parametrize("kind", ["SAC", "MSEED"])
def test_sac_and_miniseed_require_unit(tmp_path: Path, kind: str) -> None:
    content = waveform(kind)
    assert "ground_motion.unit: missing" in refusal(tmp_path, content)
    record = make(tmp_path, content, unit="m/s^2")
    assert record.step == pytest.approx(0.01, rel=1e-6)
    np.testing.assert_allclose(record.values, VALUES, atol=1e-6)
    assert "states 0.01 s" in refusal(tmp_path, content, unit="m/s^2", step=0.02)


@pytest.mark.parametrize("kind", ["SLIST", "TSPAIR"])
def test_slist_and_tspair_state_their_unit(tmp_path: Path, kind: str) -> None:
    needs_obspy()
    np.testing.assert_allclose(make(tmp_path, samples(kind, "M/S**2")).values, VALUES, atol=1e-6)
    for unit in ("M/S", "COUNTS"):
        assert mentions(refusal(tmp_path, samples(kind, unit), unit="m/s^2"), "states", "unit", unit)
    cut = b"\n".join(samples(kind, "M/S**2").split(b"\n")[:-20]) + b"\n"
    assert mentions(refusal(tmp_path, cut), N, "points")


def test_other_quantities_and_implausible_values_are_refused(tmp_path: Path) -> None:
    unit = {"unit": "m/s^2"}
    assert mentions(refusal(tmp_path, waveform("SAC", sac={"idep": 7}), **unit), "acceleration", "velocity")
    assert mentions(refusal(tmp_path, waveform("SAC", sac={"idep": 6}), **unit), "acceleration", "displacement")
    assert len(make(tmp_path, waveform("SAC", sac={"idep": 8}), **unit).values) == N
    assert mentions(refusal(tmp_path, waveform("MSEED", channel="HHE"), **unit), "channel", "HHE")
    assert mentions(refusal(tmp_path, waveform("SAC", VALUES + 0.5), **unit), "of the peak")
    assert "peak 0 m/s^2 must be" in refusal(tmp_path, waveform("MSEED", 0.0 * VALUES), **unit)
    assert "must be 0.001 to 50 m/s^2" in refusal(tmp_path, waveform("MSEED", 1e5 * VALUES), **unit)
    assert "must be 0.0002 to 0.2 s" in refusal(tmp_path, waveform("MSEED", sampling_rate=1.0), **unit)
    with_nan = np.where(np.arange(N) == 9, np.nan, VALUES)
    assert "not finite" in refusal(tmp_path, waveform("MSEED", with_nan), **unit)


def test_gaps_and_truncated_files_are_refused(tmp_path: Path) -> None:
    gap = several((VALUES[:100], 0.0), (VALUES[120:], 1.2))
    assert mentions(refusal(tmp_path, gap, unit="m/s^2"), "2 series", "XX.ABC..HNE")
    for kind in ("SAC", "MSEED"):
        assert "obspy" in refusal(tmp_path, waveform(kind)[:-700], unit="m/s^2")


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    """obspy would unpickle such a file if it guessed the format; the package states the format."""

    class Canary:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return Path.touch, (Path(tmp_path / "hatched"),)  # type: ignore[return-value]

    assert "zero bytes" in refusal(tmp_path, pickle.dumps({"obspy.core.stream": Canary()}), step=0.01, unit="g")
    assert not (tmp_path / "hatched").exists()
