# SPDX-License-Identifier: Apache-2.0
"""Files of ground motions, read as in a scenario: layouts of PEER, CSMIP, COSMOS and ESM, and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data

Content = str | bytes


def make(folder: Path, content: Content, **data: Any) -> Any:
    """Write a file and build the record of it."""
    path = folder / "record.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    cls = registry.load("ground_motion", "record")
    return cls(from_data(cls.Params, {"file": str(path), **data}, "ground_motion"), 1)


def refusal(folder: Path, content: Content, **data: Any) -> str:
    """Return the error message of a refused file."""
    with pytest.raises(ConfigError) as caught:
        make(folder, content, **data)
    return str(caught.value)


N, STEP = 60, 0.02
VALUES = [round(120.0 * float(np.exp(-i / 40) * np.sin(0.31 * i)), 3) for i in range(N)]
"""Accelerations, cm/s^2, with three decimals, which fit every layout below."""
OTHER = [round(0.3 * value + 2.0, 3) for value in VALUES]
"""Another channel."""


def rows(values: list[float], columns: int = 8, width: int = 10) -> str:
    parts = [values[at : at + columns] for at in range(0, len(values), columns)]
    return "\n".join("".join(f"{value:{width}.3f}" for value in part) for part in parts) + "\n"


ACC_START = f"   {N} points of accel data equally spaced at  .020 sec, in cm/sec2. (8f10.3)"
OLD_START = f"   {N} POINTS OF ACCEL DATA EQUALLY SPACED AT  .020 SEC.  (UNITS: CM/SEC/SEC)"
VEL_START = f"   {N} points of veloc data equally spaced at  .020 sec, in cm/sec. (8f10.3)"
END = "/&  ----------  End of data for channel  1  ----------\n"


def channel(values: list[float], start: str = ACC_START) -> str:
    """Return a channel of CSMIP V2: text, integer and real headers without start lines, acceleration, velocity."""
    head = "".join(f"Corrected accelerogram, header line {number}\n" for number in range(20))
    head += "Accelerogram bandpass filtered with 3 dB pts at   .07 and 40.00 cyc/sec\n"
    head += f"  {N} points of instrument- and baseline-corrected accel, veloc and displ data\n"
    head += "At equally-spaced intervals of    .020  sec.\n"
    head += "Initial velocity =  -.106 cm/sec;  Initial displacement =  .041 cm\n"
    head += "    1    2    3    4    5    6    7    8\n" * 7 + rows([0.5] * 100)
    return f"{head}{start}\n{rows(values)}{VEL_START}\n{rows([value / 10.0 for value in values])}{END}"


COSMOS_START = f"      {N} acceleration pts, approx  1 secs, units=cm/s^2,Format=(8F10.3)"
COSMOS_VELOCITY = COSMOS_START.replace("acceleration", "velocity").replace("cm/s^2", "cm/s")
REAL_HEADER = " 100 Real-header values follow on  17 lines, Format= (6F13.6)"


def cosmos(values: list[float], start: str = COSMOS_START, real: str = REAL_HEADER, data: str = "") -> str:
    entries = [-999.0] * 100
    entries[33], entries[61] = STEP, 1000.0 * STEP
    text = "Corrected acceleration  (Format v01.20 with 13 text lines)\n" + "text, 1.0 2.0\n" * 12
    text += " 100 Integer-header values follow on  10 lines, Format= (10I8)\n" + ("    -999" * 10 + "\n") * 10
    parts = [entries[at : at + 6] for at in range(0, 100, 6)]
    text += f"{real}\n" + "".join("".join(f"{value:13.6f}" for value in part) + "\n" for part in parts)
    text += '   2 Comment line(s) follow, each starting with a "|":\n'
    text += "| 12 points, equally spaced\n | a real record, all values\n"
    return f"{text}{start}\n{data or rows(values)}End-of-data for Chan  1 acceleration\n"


def at2(body: str, counts: str = f"NPTS= {N}, DT= .0200 SEC,", unit: str = "CM/S/S") -> str:
    return (
        f"PEER STRONG MOTION\nSomewhere, 1/2/2003\nACCELERATION TIME SERIES IN UNITS OF {unit}\n{counts}\n{body}"
    )


def column(values: list[float] = VALUES) -> str:
    return "".join(f"{value:.3f}\n" for value in values)


def table(times: list[float] | np.ndarray, comma: str = " ", digits: int = 2) -> str:
    return "".join(f"{time:.{digits}f}{comma}{value:.3f}\n" for time, value in zip(times, VALUES, strict=True))


def esm(body: str = "", **changes: str) -> str:
    """Return a file of ESM (DYNA 1.2) with changes of its header."""
    lines = {
        "EVENT_NAME": "MADE",
        "EVENT_DATE_YYYYMMDD": "20161030",
        "VS30_M/S": "498",
        "SAMPLING_INTERVAL_S": f"{STEP:.6f}",
        "NDATA": f"{N}",
        "DURATION_S": f"{N * STEP:.6f}",
        "STREAM": "HNE",
        "UNITS": "cm/s^2",
        "INSTRUMENTAL_FREQUENCY_HZ": "",
        "FULL_SCALE_G": "2",
        "PGA_CM/S^2": "82.1",
        "HIGH_CUT_FREQUENCY_HZ": "40.000",
        "DATA_TYPE": "ACCELERATION",
        "USER1": "",
    }
    lines |= changes
    return "".join(f"{key}: {value}\n" for key, value in lines.items()) + (body or column())


TIMES = STEP * np.arange(N)
GIVEN = {"step": STEP, "unit": "gal"}
WORDS = "time (s), acceleration (cm/s^2)\n"
