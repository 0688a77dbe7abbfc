# SPDX-License-Identifier: Apache-2.0
"""Readers for ground-motion files: convert bytes to accelerations, with the file's step and unit.

The content, not the file's name, determines the format. If a file violates its format, the error names the faulty
line. ``columns.py`` reads columns of text. These formats state their number of points:

- PEER AT2: a header with a line that states NPTS and DT, then rows of numbers.
- COSMOS (COSMOS Strong Motion Data Format, v1.20): text, integer and real headers, comments, then
  ``12725 acceleration pts, approx 63 secs, units=cm/s^2,Format=(8F10.5)``. The real header contains the step.
- CSMIP: ``15200 points of accel data equally spaced at  .005 sec, in cm/sec2. (8f10.6)``; the older
  ``160 POINTS OF ACCEL DATA EQUALLY SPACED AT  .020 SEC.  (UNITS: CM/SEC/SEC)`` states no columns.

If the line above a block of numbers is unreadable, the file is refused, because another block could be read.

Seismological formats are read by obspy if it is installed (``pip install obspy``). This module detects the format,
because obspy's own detection unpickles files that resemble pickles of obspy. SAC and miniSEED files need the
parameter ``unit``; their values are raw counts unless calibrated.
"""

from __future__ import annotations

import re
import warnings
from array import array
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import encoding_of
from rths_nodes.numerical.ground_motions.columns import (
    COMMENT_MARKS,
    MOST_POINTS,
    STATED_UNIT,
    UNITS,
    FormatError,
    Series,
    canonical_unit,
    complete,
    is_plain,
    number,
    positive_step,
    read_columns,
    short,
    shown,
    split_at_signs,
    stated_unit,
    whole,
)

if TYPE_CHECKING:
    from obspy import Trace

__all__ = ["UNITS", "FormatError", "Series", "canonical_unit", "read"]

READ = (
    "Supported formats are PEER AT2, COSMOS, CSMIP V2 and columns of text; K-NET, SAC, miniSEED, SLIST and TSPAIR "
    "require obspy"
)
FIRST_LINES = 30
"""Number of lines that are searched for the name of the format, or for the counts of PEER AT2. PEER's header has
four lines; some downloads have more lines above it."""

WAVEFORMS = {
    "miniSEED": ("MSEED", rb"\d{6}[DRQM][ \0]|MS\x03"),
    # the header of 632 bytes has its version, a four-byte integer, at byte 304
    "SAC": ("SAC", rb"(?s)(?=.{632}).{304}(?:[\x06\x07]\0\0\0|\0\0\0[\x06\x07])"),
    "K-NET or KiK-net": ("KNET", rb"(?i)\s*Origin Time"),
    "TSPAIR": ("TSPAIR", rb"(?i)\s*TIMESERIES [^\r\n]*\bTSPAIR\b"),
    "SLIST": ("SLIST", rb"(?i)\s*TIMESERIES [^\r\n]*\bSLIST\b"),
}
"""Format -> name of obspy's reader, and pattern of the first bytes."""

OTHERS = {
    "a ZIP archive or an Excel workbook": rb"PK\x03\x04",
    "an old Excel workbook": rb"\xd0\xcf\x11\xe0",
    "compressed (gzip)": rb"\x1f\x8b",
    "compressed (bzip2)": rb"BZh",
    "a MATLAB MAT-file": rb"MATLAB 5\.0 MAT-file",
    "HDF5 (e.g. a MAT-file 7.3 or ASDF)": rb"\x89HDF",
    "a NumPy array": rb"\x93NUMPY",
    "PDF": rb"%PDF",
    "full SEED": rb"\d{6}V ",
    "GSE": rb"(?i)\s*(?:WID[12] |XW0\d )",
    "an HTML page (was the download refused?)": rb"(?i)\s*(?:<!doctype html|<html)",
    "XML": rb"(?i)\s*<\?xml",
    "JSON": rb"\s*(?:\{\s*\"|\[\s*[\{\[])",
    "K-NET CSV": rb"(?i)\s*#K-NET CSV",
    "a USGS SMC file": (
        rb"(?i)\s*\d (?:UNKNOWN|(?:UN)?CORRECTED ACCELEROGRAM|VELOCITY|DISPLACEMENT|RESPONSE|FOURIER)"
    ),
    "RTF": rb"\{\\rtf",
}
"""Unsupported format -> pattern of the first bytes."""

IN_TEXT = {
    "GeoNet V1A or V2A": r"(?i)GNS Science|Geological (?:and|&) Nuclear|^Raw readings in units of",
    "BHRC V1 (VOL1DS)": r"(?i)^\* VOL1DS",
    "a response spectrum (CSMIP V3)": r"(?i)response and fourier amplitude spectra",
    "an uncorrected accelerogram (V1) with pairs of time and value": r"(?i)uncorrected accelerogram",
}
"""Unsupported format -> pattern in one of the first lines."""
LARGEST_OFFSET = 0.1
"""Largest permitted mean of a series, relative to its peak. A larger mean indicates raw values with an offset."""
SAME_PEAK, ROUNDED_PEAK = 0.01, 1e-5
"""Permitted difference from the header's peak: ``SAME_PEAK`` times this peak, plus ``ROUNDED_PEAK`` (m/s^2)."""

_SAC_QUANTITIES = {6: "displacement", 7: "velocity", 50: "volts"}
_SAMPLES = re.compile(rb",\s*(\d+) samples", re.I)


def read(data: bytes) -> Series:
    """Return the acceleration series in ``data``. Raises FormatError for faulty or unsupported content."""
    for name, (_, pattern) in WAVEFORMS.items():
        if re.match(pattern, data):
            return _read_waveform(data, name)
    for name, pattern in OTHERS.items():
        if re.match(pattern, data):
            raise _unread(name)
    return _read_text(_text(data))


def _read_text(text: str) -> Series:
    if not text.strip():
        raise FormatError("the file is empty")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = lines[:FIRST_LINES]
    marked = (index for index, line in enumerate(head) if _MARK.match(line) and line.lstrip()[:1] not in "#%!|")
    counts, joined = next(marked, None), "\n".join(head)
    if counts is not None:
        return _read_at2(lines, counts)
    if _SERIES.search(joined) and _ONE_COUNT.search(joined):
        raise FormatError("the file is PEER AT2, but the header has no readable line with NPTS and DT")
    starts = (index for index, line in enumerate(lines) if _SPACED.search(line) or _FORMAT.search(line))
    if any(_is_start(lines, index) for index in starts):
        return _read_v2(lines)
    for line in head:
        for name, pattern in IN_TEXT.items():
            if re.search(pattern, line):
                raise _unread(name)
    # a line that ends a channel, or that starts the integer or real header of COSMOS
    framed = any(_END.match(line) or _FOLLOW.match(line) for line in lines)
    return _read_v2(lines) if framed else read_columns(lines)


def _text(data: bytes) -> str:
    encoding = encoding_of(data)
    if encoding != "utf-16" and b"\0" in data:
        end = data.index(b"\0")
        raise FormatError(
            f"the file is not plain text, because it contains zero bytes ({data.count(0)}, the first in line "
            f"{data.count(10, 0, end) + 1}). {READ}"
        )
    text = data.decode(encoding, errors="replace")  # station names in headers can have any encoding
    return text.rstrip().removesuffix("\x1a")


def _unread(name: str) -> FormatError:
    return FormatError(f"the file is {name}, which is not supported. {READ}")


# Formats with a stated number of points

_MARK = re.compile(r"(?=.*\bNPTS\b)(?=.*\bDT\b)", re.I)
_COUNTS = re.compile(r"NPTS\s*=\s*([^\s,;]+)[\s,;]*DT\s*=\s*([^\s,;]+)\s*([a-z]*)", re.I)
_OLD_COUNTS = re.compile(r"^\s*([^\s,]+)[\s,]+([^\s,]+)\s+NPTS\s*,?\s*DT", re.I)
_SERIES = re.compile(r"TIME\s+(?:SERIES|HISTORY)\s+IN\s+UNITS", re.I)
_ONE_COUNT = re.compile(r"NPTS|\bDT\s*=", re.I)
_AT2_QUANTITY = re.compile(r"(\w+)\s+TIME\s+(?:SERIES|HISTORY)", re.I)
_ANOTHER = re.compile(r"\b(VELOCITY|DISPLACEMENT)\b", re.I)


def _read_at2(lines: Sequence[str], last: int) -> Series:
    """Return the series below line ``last``, which states NPTS and DT."""
    match = _COUNTS.search(lines[last]) or _OLD_COUNTS.match(lines[last])
    if match is None:
        raise FormatError(f"line {last + 1}: NPTS and DT cannot be read in {shown(lines[last])}")
    unit_of_time = match[3] if match.re is _COUNTS else ""
    step = positive_step(match[2], last + 1, unit_of_time)
    count = whole(match[1], last + 1, "points", MOST_POINTS)
    unit = _at2_unit(" ".join(lines[:last]))
    values = array("d")
    for index in range(last + 1, len(lines)):
        values.extend(number(word, index + 1) for word in split_at_signs(lines[index]))
    return Series(complete(values, count), step, unit)


def _at2_unit(header: str) -> str | None:
    quantity, another = _AT2_QUANTITY.search(header), _ANOTHER.search(header)
    if quantity is None and another is not None and "ACC" not in header.upper():
        quantity = another
    if quantity and not quantity[1].upper().startswith("ACC"):
        raise FormatError(f"the series must be acceleration, but the header states {quantity[1].lower()}")
    unit = STATED_UNIT.search(header)
    return stated_unit(unit[1]) if unit else None


RECORDER_STEP = 34
"""Entry (from 1) of the COSMOS real header that holds the recorder's sampling interval, s."""
SERIES_STEP = 62
"""Entry of the COSMOS real header that holds the sampling interval of the processed series, ms."""
WIDEST_COLUMN = 1000
MARKS_ABOVE_NUMBERS, MARKS_ALONE = 2, 4
"""Smallest number of ``_MARKS`` that identify a start line, directly above numbers and elsewhere."""

_HEADER = re.compile(r"header|\bvalues\s+follow|\bcomment", re.I)
_FOLLOW = re.compile(r"\s*\d.*\bvalues\s+follow", re.I)
_REAL_HEADER = re.compile(r"\s*[^\s|]+\s.*\breal\b.*(?:header|values)", re.I)
_END = re.compile(r"\s*(?:/&|End[- ]of[- ]data)", re.I)
_CSMIP_END = re.compile(r"\s*/&")
_QUANTITY = re.compile(r"\b(acc|vel|dis)[a-z]*", re.I)
_MARKS = tuple(
    re.compile(mark, re.I)
    for mark in (
        r"^\s*\d+\s",
        r"\bp(?:oin)?ts\b",
        r"\b(?:acc|vel|dis)[a-z]*",
        r"equally|spaced|approx",
        r"format\s*=|\(\s*\d+[a-z]\d",
        r"units?\s*[:=]|\bin\s+[cm]?m/s",
    )
)
"""Marks of a start line: count, points, quantity, spacing, format and unit. A damaged line can lack some marks."""
_WORD = re.compile(r"[a-z]{3}", re.I)
_SPACED = re.compile(r"equally|spaced", re.I)
_NUMBERS = re.compile(r"\s*[-+]?\.?\d")
_UNIT = re.compile(r"units?\s*(?:of\b|[:=])?\s*([^\s,()=:]+)|\bin\s+(?!units)([^\s,()]+)", re.I)
_NO_UNIT = re.compile(r"\bat\s*[-+.\d]+\s*sec\w*\.?\s*", re.I)
_RATE = re.compile(r"\bat\s*([^\s,]+)\s*(?:pts|points|samples)\s*/\s*s", re.I)
_STEP = re.compile(r"\bat\s*(?=[-+.\d])([^\s,]*?\d?\.?)(?:\s*([a-z]+)\.?)?(?=[\s,]|$)", re.I)
_FORMAT = re.compile(r"\(\s*(?:\d+\s*[a-z]|[fedgi]\s*\d)[^()]*\)?|format\s*=.*", re.I)
_FIELDS = re.compile(
    r"(?:format\s*=\s*)?\(\s*(?:\d*P,?\s*)?\d*\s*(?:[FEDG]\s*(\d+)\.\d+(?:E\d*)?|I\s*(\d+))\s*\)\s*", re.I
)
_IN_BRACKETS = re.compile(r"[(\[]([^()\[\]]+)[)\]]")


def _read_v2(lines: Sequence[str]) -> Series:
    starts = [index for index in range(len(lines)) if _is_start(lines, index)]
    blocks = [index for index in starts if _quantity(lines, index) == "acc"]
    _check_channels(lines, starts, blocks)
    if not blocks:
        hint = f" (line {starts[0] + 1} begins with {shown(lines[starts[0]])})" if starts else ""
        raise FormatError(f"the file is a V2 file without a readable acceleration block{hint}")
    if len(blocks) > 1:
        numbers = ", ".join(str(index + 1) for index in blocks)
        raise FormatError(
            f"the file contains {len(blocks)} acceleration blocks (lines {numbers}), but must contain one. Split "
            "the file"
        )
    return _block(lines, blocks[0])


def _is_start(lines: Sequence[str], index: int) -> bool:
    line = lines[index]
    if _row_like(line) or line.lstrip().startswith(COMMENT_MARKS) or _HEADER.search(line) or _END.match(line):
        return False
    marks = sum(mark.search(line) is not None for mark in _MARKS)
    below = next((row for row in lines[index + 1 : index + 3] if row.strip()), "")
    numbers = _NUMBERS.match(below) is not None and _row_like(below)
    return marks >= (MARKS_ABOVE_NUMBERS if numbers else MARKS_ALONE)


def _row_like(line: str) -> bool:
    return _WORD.search(line) is None


def _quantity(lines: Sequence[str], index: int) -> str:
    match = _QUANTITY.search(lines[index])
    if match is None:
        raise FormatError(
            f"line {index + 1}: {shown(lines[index])} looks like the start of a block, but the quantity (accel, "
            "veloc, displ) cannot be read"
        )
    return match[1].lower()


def _check_channels(lines: Sequence[str], starts: Sequence[int], blocks: Sequence[int]) -> None:
    begin = 0
    for index, line in enumerate(lines):
        if not _END.match(line):
            continue
        wanted, noun = (blocks, "acceleration block") if _CSMIP_END.match(line) else (starts, "block")
        if not any(begin <= start < index for start in wanted):
            raise FormatError(
                f"line {index + 1}: the channel that ends here (lines {begin + 1} to {index}) has no readable "
                f"start line of its {noun}. Correct the start line, or remove the channel"
            )
        begin = index + 1


def _block(lines: Sequence[str], index: int) -> Series:
    line, number = lines[index], index + 1
    unit = _unit(line, number)
    step = _step(line, number) if _SPACED.search(line) or _RATE.search(line) else _real_header_step(lines[:index])
    stated, values, below = _numbers(lines, index)
    rest = lines[below] if below < len(lines) else ""
    if _NUMBERS.match(rest) and _row_like(rest):
        raise FormatError(
            f"line {below + 1}: unexpected {shown(rest)} after the {stated} numbers stated in line {number}"
        )
    return Series(complete(values, stated), step, unit)


def _unit(line: str, number: int) -> str | None:
    match = _UNIT.search(line)
    if match:
        return stated_unit(match[1] or match[2], number)
    unit = next(filter(None, map(canonical_unit, _IN_BRACKETS.findall(line))), None)
    at = _NO_UNIT.search(line)
    if unit is None and not (at and at.end() == len(line)):
        raise FormatError(f"line {number}: the unit of the block cannot be read in {shown(line)}")
    return unit


def _step(line: str, number: int) -> float:
    rate = _RATE.search(line)
    if rate:
        return 1.0 / positive_step(rate[1], number)
    match = _STEP.search(line)
    if match is None:
        raise FormatError(f"line {number}: the step of the block cannot be read in {shown(line)}")
    return positive_step(match[1].rstrip("."), number, match[2] or "s")


def _real_header_step(lines: Sequence[str]) -> float | None:
    """Return the step (s) in the real header of the last channel in ``lines``; None if not stated (-999)."""
    first = max((index for index, line in enumerate(lines) if _END.match(line)), default=-1) + 1
    places = [n for n in range(first, len(lines)) if _REAL_HEADER.match(lines[n])]
    if not places:
        return None
    stated, steps, _ = _numbers(lines, places[-1])
    entries = complete(steps, stated)
    for entry, factor in ((SERIES_STEP, 1e-3), (RECORDER_STEP, 1.0)):
        if len(entries) >= entry and entries[entry - 1] > 0.0:
            return short(float(entries[entry - 1]) * factor)
    return None


def _numbers(lines: Sequence[str], index: int) -> tuple[int, Sequence[float], int]:
    below = index + 1
    stated = whole(lines[index].split()[0], below, "values", MOST_POINTS)
    width = _width(lines[index], below)
    values = array("d")
    while below < len(lines) and len(values) < stated:
        row = lines[below]
        if _END.match(row) or _is_start(lines, below):
            break
        below += 1
        values.extend(number(cell, below) for cell in _cells(row, width, below))
    return stated, values, below


def _width(line: str, number: int) -> int | None:
    match = _FORMAT.search(line)
    if match is None:
        return None
    fields = _FIELDS.fullmatch(match[0])
    if fields is None:
        raise FormatError(f"line {number}: the format of the numbers cannot be read in {shown(match[0])}")
    return whole(fields[1] or fields[2], number, "characters in a column", WIDEST_COLUMN)


def _cells(row: str, width: int | None, line: int) -> list[str]:
    free = split_at_signs(row)
    if width is None or "\t" in row:
        return free
    row = row.rstrip()
    cells = [cell for start in range(0, len(row), width) if (cell := row[start : start + width].strip())]
    if cells != free and all(map(is_plain, free)):
        raise FormatError(f"line {line}: the numbers in {shown(row)} are not in columns of {width} characters")
    return cells


# Formats read by obspy


def _read_waveform(data: bytes, name: str) -> Series:
    try:
        trace = _trace(data, name)
        values = np.array(trace.data, dtype=float) * trace.stats.calib
        if not (len(values) and np.isfinite(values).all()):
            raise FormatError("the series is empty, or has a value that is not finite")
        step = short(float(trace.stats.delta))
        if name == "K-NET or KiK-net":
            return Series(_knet(trace, values), step, "m/s^2")
        unit = _waveform_unit(trace, data)
        _check_offset(values)
        return Series(values, step, unit)
    except FormatError:
        raise
    except Exception as error:  # for damaged files, obspy omits headers and raises any exception
        cause = " ".join(str(error).split()) or type(error).__name__
        raise FormatError(f"the file is {name}, but obspy cannot read it ({cause})") from None


def _trace(data: bytes, name: str) -> Trace:
    try:
        import obspy
    except ImportError:
        raise FormatError(f"the file is {name}, which requires obspy. Run pip install obspy") from None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream = obspy.read(BytesIO(data), format=WAVEFORMS[name][0])
    for warning in caught:
        if not issubclass(warning.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
            raise FormatError(f"the file is {name}, and obspy reports a fault ({warning.message})")
    if len(stream) != 1:
        names = "; ".join(f"{trace.id} from {trace.stats.starttime}" for trace in stream[:6])
        raise FormatError(f"the file has {len(stream)} series or parts of a series ({names}), but must have one")
    return stream[0]


def _knet(trace: Trace, values: Array) -> Array:
    """Return the accelerations in m/s^2. The mean is subtracted to remove the recorder's offset."""
    stats = trace.stats
    expected = round(stats.knet.duration * stats.sampling_rate)
    if len(values) != expected:
        raise FormatError(
            f"the header states {stats.knet.duration:g} s at {stats.sampling_rate:g} Hz, i.e. {expected} points, "
            f"but the file has {len(values)}. Check for missing points"
        )
    centred: Array = values - values.mean()
    peak, stated = float(np.abs(centred).max()), 0.01 * stats.knet.accmax
    if abs(peak - stated) > SAME_PEAK * stated + ROUNDED_PEAK:
        raise FormatError(
            f"the header states a peak of {stated:.4g} m/s^2, but the peak of the scaled values is {peak:.4g} "
            "m/s^2"
        )
    return centred


def _waveform_unit(trace: Trace, data: bytes) -> str | None:
    """Return the unit of calibrated accelerations, or None. Only the formats SLIST and TSPAIR state it."""
    stats, unit = trace.stats, None
    if "ascii" in stats:
        if stated := _SAMPLES.search(data):
            complete(trace.data, int(stated[1]))
        unit = stated_unit(str(stats.ascii.unit))
    else:
        quantity = _SAC_QUANTITIES.get(int(stats.sac.get("idep", 0))) if "sac" in stats else None
        if quantity is None and re.fullmatch(r"[A-Z]H[A-Z0-9]", stats.channel):
            quantity = f"velocity (channel {stats.channel}, a seismometer)"
        if quantity is not None:
            raise FormatError(f"the series must be acceleration, but is {quantity}")
    if stats.calib != 1.0:
        raise FormatError(
            f"the file states a calibration factor of {stats.calib:g} without a unit. Use calibrated values"
        )
    return unit


def _check_offset(values: Array) -> None:
    mean, peak = float(values.mean()), float(np.abs(values).max())
    if abs(mean) > LARGEST_OFFSET * peak:
        raise FormatError(
            f"the mean {mean:.4g} of the series is {100.0 * abs(mean) / peak:.0f} % of the peak {peak:.4g}; "
            "subtract the offset of the recorder"
        )
