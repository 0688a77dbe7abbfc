# SPDX-License-Identifier: Apache-2.0
"""Formats with a stated number of points: PEER AT2, COSMOS V1/V2 and CSMIP V2.

- PEER AT2: a header with a line that states NPTS and DT, then rows of numbers.
- COSMOS (COSMOS Strong Motion Data Format, v1.20): text, integer and real headers, comments, then
  ``12725 acceleration pts, approx 63 secs, units=cm/s^2,Format=(8F10.5)``. The real header contains the step.
- CSMIP: ``15200 points of accel data equally spaced at  .005 sec, in cm/sec2. (8f10.6)``; the older
  ``160 POINTS OF ACCEL DATA EQUALLY SPACED AT  .020 SEC.  (UNITS: CM/SEC/SEC)`` states no columns.

A file with an unreadable start line is refused, because another channel would otherwise be read.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

from rths_nodes.numerical.ground_motions.readers.columns import (
    COMMENT_MARKS,
    MOST_POINTS,
    FormatError,
    Series,
    canonical_unit,
    complete,
    is_plain,
    number,
    positive_step,
    short,
    shown,
    split_at_signs,
    stated_unit,
    whole,
)

HEADER_LINES = 30
"""Largest number of header lines. PEER's header has four lines; some downloads have more lines above it."""

_MARK = re.compile(r"(?=.*\bNPTS\b)(?=.*\bDT\b)", re.I)
_COUNTS = re.compile(r"NPTS\s*=\s*([^\s,;]+)[\s,;]*DT\s*=\s*([^\s,;]+)\s*([a-z]*)", re.I)
_OLD_COUNTS = re.compile(r"^\s*([^\s,]+)[\s,]+([^\s,]+)\s+NPTS\s*,?\s*DT", re.I)
_SERIES = re.compile(r"TIME\s+(?:SERIES|HISTORY)\s+IN\s+UNITS", re.I)
_ONE_COUNT = re.compile(r"NPTS|\bDT\s*=", re.I)
_AT2_QUANTITY = re.compile(r"(\w+)\s+TIME\s+(?:SERIES|HISTORY)", re.I)
_ANOTHER = re.compile(r"\b(VELOCITY|DISPLACEMENT)\b", re.I)
_AT2_UNIT = re.compile(r"UNITS?\s+OF\s+([^\s,]+)|UNITS?\s*[:=]\s*([^\s,]+)", re.I)


def is_at2(lines: Sequence[str]) -> bool:
    head = "\n".join(lines[:HEADER_LINES])
    return _counts_line(lines) is not None or bool(_SERIES.search(head) and _ONE_COUNT.search(head))


def read_at2(lines: Sequence[str]) -> Series:
    last = _counts_line(lines)
    if last is None:
        raise FormatError("the file is PEER AT2, but the header has no readable line with NPTS and DT")
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


def _counts_line(lines: Sequence[str]) -> int | None:
    head = enumerate(lines[:HEADER_LINES])
    return next((index for index, line in head if _MARK.match(line) and line.lstrip()[:1] not in "#%!|"), None)


def _at2_unit(header: str) -> str | None:
    quantity, another = _AT2_QUANTITY.search(header), _ANOTHER.search(header)
    if quantity is None and another is not None and "ACC" not in header.upper():
        quantity = another
    if quantity and not quantity[1].upper().startswith("ACC"):
        raise FormatError(f"the series must be acceleration, but the header states {quantity[1].lower()}")
    unit = _AT2_UNIT.search(header)
    return stated_unit(unit[1] or unit[2]) if unit else None


RECORDER_STEP = 34
"""Entry (from 1) of the COSMOS real header that holds the recorder's sampling interval, s."""
SERIES_STEP = 62
"""Entry of the same header that holds the sampling interval of the processed series, ms."""
WIDEST_COLUMN = 1000
MARKS_ABOVE_NUMBERS, MARKS_ALONE = 2, 4
"""Fewest marks in a start line: ``MARKS_ABOVE_NUMBERS`` directly above numbers, ``MARKS_ALONE`` elsewhere."""

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


def has_start(lines: Sequence[str]) -> bool:
    """Return whether a line resembles the start of a block, readable or not."""
    return any(
        _is_start(lines, index) and (_SPACED.search(line) is not None or _FORMAT.search(line) is not None)
        for index, line in enumerate(lines)
    )


def has_frame(lines: Sequence[str]) -> bool:
    """Return whether a line ends a channel or starts the integer or real header of COSMOS."""
    return any(_END.match(line) or _FOLLOW.match(line) for line in lines)


def read_v2(lines: Sequence[str]) -> Series:
    starts = [index for index in range(len(lines)) if _is_start(lines, index)]
    blocks = [index for index in starts if _quantity(lines, index) == "acc"]
    _check_channels(lines, starts, blocks)
    if not blocks:
        hint = f" (line {starts[0] + 1} begins with {shown(lines[starts[0]])})" if starts else ""
        raise FormatError(f"the file is a V2 file without a readable acceleration block{hint}")
    if len(blocks) > 1:
        numbers = ", ".join(str(index + 1) for index in blocks)
        raise FormatError(
            f"the file contains {len(blocks)} acceleration blocks (lines {numbers}), but must contain one; split "
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
                f"start line of its {noun}; correct the start line, or remove the channel"
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
            f"line {below + 1}: {shown(rest)} follows the last of the {stated} numbers that line {number} states"
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
    """Return the step of the series from its channel's real header, s; None if the step is not stated (-999)."""
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
