# SPDX-License-Identifier: Apache-2.0
"""PEER AT2: ``NPTS=  5372, DT=  .0100 SEC`` (or the older ``5372  .0100  NPTS, DT``) ends the header.

Numbers in rows follow; the unit is in ``ACCELERATION TIME SERIES IN UNITS OF G``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rths_nodes.numerical.ground_motions.readers.series import (
    MOST_POINTS,
    FormatError,
    Series,
    complete,
    number,
    positive_step,
    shown,
    split_at_signs,
    stated_unit,
    whole,
)

HEADER_LINES = 30
"""Longest header: PEER's has four lines; some downloads put more above them."""

_MARK = re.compile(r"(?=.*\bNPTS\b)(?=.*\bDT\b)", re.I)
_COUNTS = re.compile(r"NPTS\s*=\s*([^\s,;]+)[\s,;]*DT\s*=\s*([^\s,;]+)\s*([a-z]*)", re.I)
_OLD_COUNTS = re.compile(r"^\s*([^\s,]+)[\s,]+([^\s,]+)\s+NPTS\s*,?\s*DT", re.I)
_SERIES = re.compile(r"TIME\s+(?:SERIES|HISTORY)\s+IN\s+UNITS", re.I)
_ONE_COUNT = re.compile(r"NPTS|\bDT\s*=", re.I)
_QUANTITY = re.compile(r"(\w+)\s+TIME\s+(?:SERIES|HISTORY)", re.I)
_ANOTHER = re.compile(r"\b(VELOCITY|DISPLACEMENT)\b", re.I)
_UNIT = re.compile(r"UNITS?\s+OF\s+([^\s,]+)|UNITS?\s*[:=]\s*([^\s,]+)", re.I)


def is_at2(lines: Sequence[str]) -> bool:
    head = "\n".join(lines[:HEADER_LINES])
    return _place(lines) is not None or bool(_SERIES.search(head) and _ONE_COUNT.search(head))


def read_at2(lines: Sequence[str]) -> Series:
    """Return the acceleration. Raises FormatError for an unreadable header or number, or missing points."""
    last = _place(lines)
    if last is None:
        raise FormatError("is PEER AT2, but no line with NPTS and DT can be read in its header")
    found = _COUNTS.search(lines[last]) or _OLD_COUNTS.match(lines[last])
    if found is None:
        raise FormatError(f"line {last + 1}: NPTS and DT cannot be read in {shown(lines[last])}")
    unit_of_time = found[3] if found.re is _COUNTS else ""
    step = positive_step(found[2], last + 1, unit_of_time)
    count = whole(found[1], last + 1, "points", MOST_POINTS)
    unit = _unit(" ".join(lines[:last]))
    rows = enumerate(lines[last + 1 :], last + 2)
    values = [number(word, line) for line, row in rows for word in split_at_signs(row)]
    return Series(complete(values, count), step, unit)


def _place(lines: Sequence[str]) -> int | None:
    """Return the index of the line with NPTS and DT, which is no comment of a file in columns."""
    head = enumerate(lines[:HEADER_LINES])
    return next((index for index, line in head if _MARK.match(line) and line.lstrip()[:1] not in "#%!|"), None)


def _unit(header: str) -> str | None:
    quantity, another = _QUANTITY.search(header), _ANOTHER.search(header)
    if quantity is None and another is not None and "ACC" not in header.upper():
        quantity = another
    if quantity and not quantity[1].upper().startswith("ACC"):
        raise FormatError(f"holds a {quantity[1].lower()} series, must be acceleration")
    unit = _UNIT.search(header)
    return stated_unit(unit[1] or unit[2]) if unit else None
