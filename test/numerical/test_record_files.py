# SPDX-License-Identifier: Apache-2.0
"""Tests of ground-motion files from practice: accepted files, and refusals with their reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from motion_file import (
    ACC_START,
    COSMOS_START,
    COSMOS_VELOCITY,
    END,
    GIVEN,
    OLD_START,
    OTHER,
    REAL_HEADER,
    STEP,
    TIMES,
    VALUES,
    VEL_START,
    WORDS,
    Content,
    N,
    at2,
    channel,
    column,
    cosmos,
    esm,
    make,
    refusal,
    rows,
    table,
)

from rths_nodes.numerical.ground_motions import readers

GAL = {"unit": "gal"}


def csmip(old: str, new: str, start: str = ACC_START) -> str:
    """Return a CSMIP channel with ``new`` in place of ``old`` in its start line."""
    return channel(VALUES, start.replace(old, new))


def cosmos_block(old: str, new: str) -> str:
    return cosmos(VALUES, COSMOS_START.replace(old, new))


READ: dict[str, tuple[Content, dict[str, Any]]] = {
    "csmip": (channel(VALUES), {}),
    "csmip, older spelling": (channel(VALUES, OLD_START), {}),
    "csmip, unit in other words": (csmip("(UNITS: CM/SEC/SEC)", "IN UNITS CM/SEC/SEC", OLD_START), {}),
    "csmip, no unit": (csmip("(UNITS: CM/SEC/SEC)", "", OLD_START), GAL),
    "csmip V1 at a rate": (
        channel(VALUES, f" {N} Accelerogram points at 50 pts/sec in units of gal .      Format: (8f10.3)"),
        {},
    ),
    "csmip, lower case": (channel(VALUES, OLD_START.lower()), {}),
    "csmip, columns not stated": (csmip("(8f10.3)", ""), {}),
    "csmip, step in ms": (csmip(".020 sec", "20 msec"), {}),
    "csmip, old Mac lines": (channel(VALUES).replace("\n", "\r"), {}),
    "csmip, lines of DOS and its end mark": (channel(VALUES).replace("\n", "\r\n").encode() + b"\x1a", {}),
    "csmip, mark of byte order": (b"\xef\xbb\xbf" + channel(VALUES).encode(), {}),
    "csmip, UTF-16": (channel(VALUES).encode("utf-16"), {}),
    "cosmos": (cosmos(VALUES), {}),
    "cosmos, a velocity behind it": (cosmos(VALUES) + cosmos(VALUES, COSMOS_VELOCITY), {}),
    "cosmos, a velocity before it": (cosmos(VALUES, COSMOS_VELOCITY) + cosmos(VALUES), {}),
    "cosmos, no comma before the format": (cosmos_block("cm/s^2,Format", "cm/sec2.  (04)Format"), {}),
    "cosmos, upper case": (cosmos(VALUES, COSMOS_START.upper()), {}),
    "cosmos, one a line": (
        cosmos(
            VALUES,
            COSMOS_START.replace("(8F10.3)", "(1F15.6E)"),
            data="".join(f"{value:15.6E}\n" for value in VALUES),
        ),
        {},
    ),
    "cosmos, numbers touch": (
        cosmos(VALUES, COSMOS_START.replace("8F10.3", "10F7.3"), data=rows(VALUES, 10, 7)),
        {},
    ),
    "at2": (at2(rows(VALUES, 5, 15)), {}),
    "at2, Fortran's exponents": (at2("\n".join(f"{value:.6E}".replace("E", "D") for value in VALUES)), {}),
    "at2, numbers touch": (
        at2("\n".join("".join(f"{v / 1000:13.6E}" for v in VALUES[at : at + 5]) for at in range(0, N, 5))).replace(
            "CM/S/S", "M/S**2"
        ),
        {"scale": 10.0},
    ),
    "at2, tabs": (at2(rows(VALUES, 5, 15).replace("  ", "\t")), {}),
    "at2, lower case": (at2(rows(VALUES)).lower(), {}),
    "esm": (esm(), {}),
    "esm, agreeing step and unit": (esm(), GIVEN),
    "esm, without duration": (esm(DURATION_S=""), {}),
    "esm, commented": ("".join(f"# {line}\n" for line in esm().splitlines()[:14]) + column(), {}),
    "esm, other words": (
        esm(USER1="Duration 5-95%: 12 s", USER2="Duration: 5-95% = 12.3 s", USER3="Significant duration: 7 s"),
        {},
    ),
    "two components by title": ("N-S (gal)\n" + column(), GIVEN),
    "step in ms": ("dt = 20 ms\n" + column(), GAL),
    "step in millisec.": ("Sampling interval: 20 millisec.\n" + column(), GAL),
    "step in microsec": ("Sampling interval: 20000 microsec\n" + column(), GAL),
    "sampling rate in kHz": ("Sampling rate: 0.05 kHz\n" + column(), GAL),
    "sampling rate with kHz": ("Sampling rate: .05kHz\n" + column(), GAL),
    "sampling rate in ksps": ("Sampling rate: 0.05 ksps\n" + column(), GAL),
    "sampling rate in kilohertz": ("Sampling rate: 0.05 kilohertz\n" + column(), GAL),
    "step behind its key": (f"DT   .0200 SEC\nNPTS {N}\nUNITS: GAL\n" + column(), {}),
    "sampling rate": (f"# sampling rate: 50 Hz\n# number of points: {N}\n# units: cm/s2\n" + column(), {}),
    "points in prose": (f"{N} points, acceleration in (cm/s^2)\n" + column(), {"step": STEP}),
    "time in ms": ("time (ms),acc (cm/s^2)\n" + table(1000.0 * TIMES, ",", 0), {}),
    "time in ms by its name": ("time_ms;acc_gal\n" + table(1000.0 * TIMES, ";", 0), GAL),
    "sample number and step": ("sample,acc (gal)\n" + table(np.arange(N), ",", 0), {"step": STEP}),
    "sample number from 1": ("n acc(gal)\n" + table(np.arange(1, N + 1), " ", 0), {"step": STEP}),
    "sample number, step in the header": ("# dt: 0.02\n# index, acc (gal)\n" + table(np.arange(N), ",", 0), {}),
    "columns in quotes": (
        "".join(f'"{time:.2f}","{value}"\n' for time, value in zip(TIMES, VALUES, strict=True)),
        GAL,
    ),
    "columns of tabs and a comma at the end": (table(TIMES, "\t").replace("\n", ",\n"), GAL),
    "Fortran's exponents in a column": (
        "\n".join(f"{v / 100:.6E}".replace("E", "D") for v in VALUES),
        {"step": STEP, "unit": "m/s^2"},
    ),
    "titles": (WORDS + table(TIMES, ", "), {}),
    "title of a station": ("Northridge 1994, Station 24 Canoga\n" + column(), GIVEN),
    "numbers without a point": ("\n".join(str(round(value)) for value in VALUES), {"step": STEP, "unit": "gal"}),
    "whole numbers in two columns": (
        "t (ms),a\n" + "".join(f"{20 * i},{round(value)}\n" for i, value in enumerate(VALUES)),
        GAL,
    ),
}


@pytest.mark.parametrize("case", READ)
def test_common_files_are_read(tmp_path: Path, case: str) -> None:
    content, data = READ[case]
    record = make(tmp_path, content, **data)
    assert record.step == pytest.approx(STEP, rel=1e-9)
    assert len(record.values) == N
    error = 0.006 if "without a point" in case or "whole numbers" in case else 2e-5
    np.testing.assert_allclose(record.values, np.array(VALUES) / 100.0, atol=error)


def changed(text: str, old: str, new: str, count: int = 1) -> str:
    assert old in text
    return text.replace(old, new, count)


def dropped(text: str, line: int) -> str:
    """``text`` without one line, counted from the end."""
    lines = text.splitlines(keepends=True)
    del lines[-line]
    return "".join(lines)


BLOCKS: dict[str, tuple[Content, str]] = {
    # Start lines of blocks
    "csmip, two channels": (channel(VALUES) + channel(OTHER), "contains 2 acceleration blocks"),
    "csmip, first start line without columns": (
        csmip("(8f10.3)", "") + channel(OTHER),
        "contains 2 acceleration blocks",
    ),
    "csmip, first start line gone": (
        channel(VALUES, "# # #") + channel(OTHER),
        "channel that ends here ... no readable start line of its acceleration block",
    ),
    "csmip, quantity unreadable": (
        csmip("accel", "@@@@@") + channel(OTHER),
        "line 45:  ... looks like the start of a block, but the quantity",
    ),
    "csmip, count unreadable": (csmip(f"{N}", "6O"), "line 45: '6O' is not a valid number of"),
    "csmip, step unreadable": (
        csmip(".020", ".o2o"),
        "line 45: the unit of the step .o2 o must be s, ms, us or min",
    ),
    "csmip, unit unreadable": (csmip("in cm/sec2", "cm"), "line 45: the unit"),
    "csmip, unit of a velocity": (
        csmip("cm/sec2", "cm/sec"),
        "line 45 states the unknown unit 'cm/sec.' ... known units are g",
    ),
    "csmip, format unreadable": (
        csmip("8f10.3", "8f1o.3"),
        "line 45: the format of the numbers cannot be read ... 8f1o.3",
    ),
    "csmip, format too wide": (csmip("8f10.3", "8f11.3"), "line 46 ... columns of 11 characters"),
    "csmip, cut off": (
        "\n".join(channel(VALUES).splitlines()[:49]),
        f"states {N} points, but the file has 32 ... missing points",
    ),
    "csmip, too many": (
        csmip(f"{N}", "56"),
        "line 53: unexpected  ... after the 56 numbers stated in line 45",
    ),
    "csmip, a letter in a number": (
        changed(channel(VALUES), f"{VALUES[3]:.3f}", "1O2.33"),
        "line 46: '1O2.33' is not a number",
    ),
    "csmip, a velocity only": (
        channel(VALUES, VEL_START),
        "channel that ends here ... no readable start line of its acceleration block",
    ),
    "cosmos, real header unreadable": (
        cosmos(VALUES, real=REAL_HEADER.replace("100", "1OO")),
        "line 25: '1OO' is not a valid number of",
    ),
    "cosmos, format of the real header unreadable": (
        cosmos(VALUES, real=REAL_HEADER.replace("6F13.6", "6F1E")),
        "line 25: the format",
    ),
    "cosmos, quantity unreadable": (
        cosmos_block("acceleration", "@cceleration"),
        "the quantity (accel, veloc, displ) cannot be read",
    ),
    "cosmos, start line gone": (
        cosmos(VALUES, "") + cosmos(OTHER),
        "channel that ends here ... no readable start line of its block",
    ),
    "cosmos, first start line without unit": (
        cosmos_block("units=cm/s^2,", "") + cosmos(OTHER),
        "contains 2 acceleration blocks",
    ),
    "cosmos, counts": (cosmos_block("cm/s^2", "counts (50)"), "'counts'"),
    "cosmos, real header cut": (
        changed(cosmos(VALUES), "-999.000000" + " " * 2, ""),
        "line 43: '2 Comment' is not a number",
    ),
    "at2, keys unreadable": (at2(column(), f"NTS= {N}, DT= .0200 SEC"), "no readable line with NPTS and DT"),
    "at2, count unreadable": (
        at2(rows(VALUES), f"NPTS= {N}O, DT= .0200 SEC"),
        f"line 4: '{N}O' is not a valid number of",
    ),
    "at2, step unreadable": (at2(rows(VALUES), f"NPTS= {N}, DT= .o2 SEC"), "line 4: '.o2' is not a number"),
    "at2, no equals sign": (at2(rows(VALUES), f"NPTS {N} DT .02"), "line 4: NPTS and DT cannot be read"),
    "at2, step in ms": (
        at2(rows(VALUES), f"NPTS= {N}, DT= 20. SEC"),
        "the step of 20 s ... A step in ms would be 0.02 s",
    ),
    "at2, a number torn": (at2(changed(rows(VALUES), ".", ". ")), f"states {N} points, but the file has {N + 1}"),
    "at2, velocity without time series": (
        at2(rows(VALUES)).replace("ACCELERATION TIME SERIES IN", "VELOCITY IN"),
        "must be acceleration, but the header states velocity",
    ),
    "esm, cut off": (esm("\n".join(column().splitlines()[:30])), f"states {N} points, but the file has 30"),
    "esm, too many": (esm(column(VALUES + [0.1])), f"states {N} points, but the file has {N + 1}"),
    "esm, cut off without NDATA": (
        esm("\n".join(column().splitlines()[:30]), NDATA=""),
        "duration of 1.2 s, but 30 points with a step of 0.02 s last 0.6 s",
    ),
    "esm, step changed": (esm(SAMPLING_INTERVAL_S="0.010"), "duration of 1.2 s ... 0.01 s last 0.6 s"),
    "time column against the header": (
        "# dt: 0.01\n" + WORDS + table(TIMES, ", "),
        "header states a step of 0.01 s, but the time column has a step of 0.02 s",
    ),
}
"""Without given step and unit."""
COLUMNS: dict[str, tuple[Content, str]] = {
    "esm, velocity": (
        esm(DATA_TYPE="VELOCITY", UNITS="cm/s"),
        "data type is 'VELOCITY', but must be acceleration",
    ),
    "esm, spectrum": (esm(DATA_TYPE="ACCELERATION RESPONSE SPECTRUM"), "must be acceleration"),
    "esm, unit of a velocity": (esm(UNITS="cm/s"), "line 8 states the unknown unit 'cm/s'"),
    "sampling rate in MHz": ("Sampling rate: 50 MHz\n" + column(), "line 1:  ... 50 MHz must be Hz, kHz"),
    "esm, step unreadable": (esm(SAMPLING_INTERVAL_S="O.02"), "line 4: 'O.02' is not a number"),
    "esm, decimal comma": (esm(SAMPLING_INTERVAL_S="0,02"), "line 4: '0,02' is not a number ... comma"),
    "esm, count unreadable": (esm(NDATA="6o"), "line 5: '6o' is not a valid number of points"),
    "two counts": (
        f"npts: {N}\n{N + 5} points\n" + column(),
        f"the number of points {N} in line 1, but {N + 5} in line 2",
    ),
    "title of a station in the first column": (
        "N-S,E-W\n" + "".join(f"{v:.3f},{v:.3f}\n" for v in VALUES),
        "time column is not uniform",
    ),
    "title of a velocity": ("time (s), velocity (cm/s)\n" + table(TIMES, ","), "'velocity'"),
    "short title of a displacement": ("t disp\n" + table(TIMES), "'disp' ... must be an acceleration"),
    "unit of a velocity in the title": ("time (s), NS (cm/s)\n" + table(TIMES, ","), "'cm/s'"),
    "sample number from 100": (table(100 + np.arange(N), " ", 0), "from 100, but must"),
    "title of samples above a time": ("sample acc\n" + table(TIMES), "does not count samples"),
    "time in ms and step": (table(1000 * TIMES, " ", 0), "step = 0.02 s ... states 20 s"),
    "time is the second column": (
        "".join(f"{v:.3f} {t:.2f}\n" for t, v in zip(TIMES, VALUES, strict=True)),
        "not uniform ... if this is the time, make it the first column",
    ),
    "count": (f"{N}\n" + column(), f"line 1: {N} is probably the number of the following points"),
    "count and step below": (
        f"{N}\n0.02\n" + column(),
        f"line 1: {N} is probably the number ... Remove {N} and 0.02,",
    ),
    "count and step beside": (
        f"{N} 0.02\n" + column(),
        f"line 1: {N} 0.02 has 2 values, but each line below has 1",
    ),
    "count of a file that is cut off": ("200\n" + column(), "line 1: 200 is ... Write 200.0 if"),
    "count above two columns": (f"{N}\n" + table(TIMES), f"line 1: {N} has 1 value, but each line below has 2"),
    "count and step above two columns": (
        f"{N} 0.02\n" + table(TIMES),
        "line 1 ... number of the following points",
    ),
    "step above the values": (
        "0.02\n" + column(),
        "line 1: 0.02 has a different number of decimals ... the step in s",
    ),
    "step and count": (
        f"0.02\n{N}\n" + column(),
        f"line 2: {N} is probably the number of the following points ... 0.02 and {N}",
    ),
    "step and wrong count": (f"0.02\n{N + 1}\n" + column(), f"line 2: {N + 1} is ... ({N})"),
    "step and count, nothing below": (f"0.02\n{N}\n", f"line 2: {N} is probably ... points (0)"),
    "start, step and count": (f"0.0\n0.02\n{N}\n" + column(), f"line 3: {N} is probably the number"),
    "count below a comment": (f"# made\n\n{N}\n" + column(), f"line 3: {N} is probably the number"),
    # Rows, commas, units in rows
    "rows of eight": (rows(VALUES), "line 1:  ... not 8 ... one series in rows of 8 numbers"),
    "rows of five below a mark": (
        f"NS\n*** Begin data ***\n{rows(VALUES, 5)}",
        "line 3:  ... not 5 ... below '*** Begin data ***' ... rows of 5",
    ),
    "count above rows of eight": (
        f"{N} 0.02\n{rows(VALUES[:56])}",
        "line 1: 60 0.02 has 2 values, but each line below has 8",
    ),
    "three series": ("0.1 0.2 0.3\n-0.1 0.2 0.3\n" * 9, "not 3 ... 3 series; keep one"),
    "time and three series": (
        "".join(f"{0.02 * i:.2f} 0.1 0.2 0.3\n" for i in range(N)),
        "line 1:  ... not 4 ... a time and 3 series; keep the time and one series",
    ),
    "decimal commas": (column().replace(".", ","), "line 1: '0,000' has decimal commas"),
    "decimal commas, semicolons": (
        table(TIMES, ";").replace(".", ","),
        "line 1: '0,00;0,000' has decimal commas. Write decimal points instead",
    ),
    "decimal commas, a blank": ("1,5\n2, 05\n", "line 1: '1,5' has decimal commas"),
    "decimal commas, tabs": (table(TIMES, "\t").replace(".", ","), "has decimal commas"),
    "decimal commas, commas": (table(TIMES, ",").replace(".", ","), "has decimal commas"),
    "decimal commas below a title": (
        "Zeit;a\n" + table(TIMES, "; ").replace(".", ","),
        "line 2 ... decimal commas",
    ),
    "units in the first rows": ("0.1 g\n0.2 g\n" + column(), "line 2: '0.2 g' is directly above"),
    "unit in a row": (column() + "0.1 gal\n", f"line {N + 1}: the number of columns is 2, but must be 1, as in"),
    "line doubled": (changed(table(TIMES), "0.10 ", "0.10 1.0\n0.10 "), "not uniform"),
    "line lost": (dropped(table(TIMES), 20), "not uniform"),
    # Unsupported formats
    "zero bytes": (column().encode() + b"\0\0\n", "zero bytes (2, the first in line 61) ... PEER AT2"),
    "smc": ("2 CORRECTED ACCELEROGRAM\n*\n" + rows(VALUES), "is a USGS SMC file, which is not supported"),
    "smc, velocity": ("3 VELOCITY\n*\n" + rows(VALUES), "is a USGS SMC file"),
    "geonet": (
        f"Corrected accelerogram 2016 NBLC_20 GNS Science\nSite NBLC\nNumber of points {N}\n{rows(VALUES)}",
        "is GeoNet V1A or V2A",
    ),
    "csmip v1": (f"UNCORRECTED ACCELEROGRAM DATA\nText\n{rows(VALUES, 10, 7)}", "uncorrected accelerogram (V1)"),
    "bhrc": (f"* VOL1DS FILE:  5523/01\nUNITS ARE SECONDS AND G/10\n{rows(VALUES)}{END}", "is BHRC V1"),
    "csmip v3": (f"RESPONSE AND FOURIER AMPLITUDE SPECTRA\n{rows(VALUES)}", "a response spectrum"),
    "gse": ("WID2 2002/05/12\n" + column(), "is GSE"),
    "zip": (b"PK\x03\x04\x14\0\0", "is a ZIP archive or an Excel workbook"),
    "gzip": (b"\x1f\x8b\x08\0", "is compressed (gzip)"),
    "mat": (b"MATLAB 5.0 MAT-file, Platform\0", "is a MATLAB MAT-file"),
    "hdf5": (b"\x89HDF\r\n\x1a\n\0", "is HDF5"),
    "html": ("<!DOCTYPE html>\n<html><body>Log in</body></html>\n", "an HTML page (was the download refused?)"),
    "json": ('{"acc": [1.0, 2.0]}\n', "is JSON"),
}
REFUSED: dict[str, tuple[Content, dict[str, Any], str]] = {
    **{case: (content, {}, text) for case, (content, text) in BLOCKS.items()},
    **{case: (content, GIVEN, text) for case, (content, text) in COLUMNS.items()},
    "csmip, other step given": (channel(VALUES), {"step": 0.01}, "step = 0.01 s ... states 0.02 s"),
    "csmip, other unit given": (channel(VALUES), {"unit": "g"}, "unit = 'g' ... states cm/s^2"),
    # Headers of columns
    "esm, step given wrong": (esm(), {"step": 0.01}, "step = 0.01 s ... states 0.02 s"),
    "esm, unit given wrong": (esm(), {"unit": "g"}, "unit = 'g' ... states cm/s^2"),
    "two steps": (
        "dt = 0.01\nsampling rate = 50 Hz\n" + column(),
        {"unit": "g"},
        "the step 0.01 s in line 1, but 0.02 s in line 2",
    ),
    # Counts, steps and sample numbers among the values
    "sample number": ("sample,acc\n" + table(np.arange(N), ",", 0), GAL, "is not the time in s ... step: missing"),
    "sample number without title": (table(np.arange(N), ",", 0), GAL, "counts the samples"),
    "time in ms without title": (table(1000 * TIMES, " ", 0), GAL, "step of 20 s ... 0.02 s ... ms"),
    "time in min": (table(TIMES / 120, " ", 6), GAL, "must be 0.0002 to 0.2 s"),
    "step given in ms": (column(), {"step": 20.0, "unit": "gal"}, "step = 20 s ... A step in ms would be 0.02 s"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_files_are_refused_with_reason(tmp_path: Path, case: str) -> None:
    """Three points separate parts of the message."""
    content, data, text = REFUSED[case]
    message = refusal(tmp_path, content, **data)
    missing = [part for part in text.split(" ... ") if part not in message]
    assert not missing, f"{missing} not in: {message}"


@pytest.mark.parametrize(
    ("text", "start"),
    [(channel(VALUES) + channel(OTHER), ACC_START), (cosmos(VALUES) + cosmos(OTHER), COSMOS_START)],
    ids=["csmip", "cosmos"],
)
def test_damaged_start_line_never_selects_another_channel(text: str, start: str) -> None:
    """Replace or drop every character of the first start line, or truncate the line there."""
    damaged = [start[:at] + new + start[at + 1 :] for at in range(len(start)) for new in ("", "x", " ", "#", "7")]
    damaged += [start[:at] for at in range(len(start))] + [start[at:] for at in range(1, len(start))]
    for line in damaged:
        with pytest.raises(readers.FormatError):
            readers.read(text.replace(start, line, 1).encode())


@pytest.mark.parametrize(
    "text", [channel(VALUES), cosmos(VALUES), at2(rows(VALUES)), esm()], ids=["csmip", "cosmos", "at2", "esm"]
)
def test_lost_line_is_refused_or_harmless(text: str) -> None:
    """If a file without one line is read, its values and unit are complete."""
    lines = text.splitlines(keepends=True)
    for at in range(len(lines)):
        try:
            series = readers.read("".join(lines[:at] + lines[at + 1 :]).encode())
        except readers.FormatError:
            continue
        np.testing.assert_allclose(series.values, VALUES, atol=1e-9)
        assert series.unit in ("cm/s^2", None)
        assert series.step in (STEP, None)


def test_implausible_step_is_refused_unless_accepted(tmp_path: Path) -> None:
    message = refusal(tmp_path, column(), step=0.5, unit="gal")
    assert "ground_motion.step = 0.5 s" in message
    assert "must be 0.0002 to 0.2 s" in message
    assert make(tmp_path, column(), step=0.5, unit="gal", accept_any_step=True).step == 0.5
    assert make(tmp_path, table(1000.0 * TIMES, " ", 0), unit="gal", accept_any_step=True).step == 20.0


def test_first_value_is_not_mistaken_for_a_count(tmp_path: Path) -> None:
    """A pulse, integers only, and a value with a decimal point."""
    pulse = [120.0, *VALUES]
    for text in (column(pulse), f"{N + 1}.000\n" + column(), "\n".join(str(round(value)) for value in pulse)):
        assert len(make(tmp_path, text, **GIVEN).values) == N + 1
