# SPDX-License-Identifier: Apache-2.0
"""Readers of ground-motion files: convert bytes to accelerations, with the file's step and unit.

The content, not the file's name, determines the format. If a file does not follow its format, the error names the
faulty line.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

from rths_nodes.core.text_files import encoding_of
from rths_nodes.numerical.ground_motions.readers import waveforms
from rths_nodes.numerical.ground_motions.readers.columns import read_columns
from rths_nodes.numerical.ground_motions.readers.series import (
    MOST_POINTS,
    UNITS,
    FormatError,
    Lines,
    Series,
    canonical_unit,
    complete,
    number,
    positive_step,
    shown,
    split_at_signs,
    stated_unit,
    whole,
)
from rths_nodes.numerical.ground_motions.readers.v2 import has_frame, has_start, read_v2
from rths_nodes.numerical.ground_motions.readers.waveforms import read_waveform

HEADER_LINES = 30
"""Largest number of header lines. PEER's header has four lines; some downloads have more lines above it."""

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
    unit = _unit(" ".join(lines[:last]))
    values = array("d")
    for index in range(last + 1, len(lines)):
        values.extend(number(word, index + 1) for word in split_at_signs(lines[index]))
    return Series(complete(values, count), step, unit)


def _counts_line(lines: Sequence[str]) -> int | None:
    head = enumerate(lines[:HEADER_LINES])
    return next((index for index, line in head if _MARK.match(line) and line.lstrip()[:1] not in "#%!|"), None)


def _unit(header: str) -> str | None:
    quantity, another = _QUANTITY.search(header), _ANOTHER.search(header)
    if quantity is None and another is not None and "ACC" not in header.upper():
        quantity = another
    if quantity and not quantity[1].upper().startswith("ACC"):
        raise FormatError(f"the series must be acceleration, but the header states {quantity[1].lower()}")
    unit = _UNIT.search(header)
    return stated_unit(unit[1] or unit[2]) if unit else None


__all__ = ["UNITS", "FormatError", "Series", "canonical_unit", "read"]

READ = (
    "Supported formats are PEER AT2, COSMOS, CSMIP V2 and columns of text; K-NET, SAC, miniSEED, SLIST and TSPAIR "
    "require obspy"
)


def read(data: bytes) -> Series:
    """Return the acceleration series in a file's bytes.

    Raises FormatError if the content is faulty or the format is not supported.
    """
    waveform_format = waveforms.waveform(data)
    if waveform_format is not None:
        return read_waveform(data, waveform_format)
    name = waveforms.other(data)
    if name is not None:
        raise _unread(name)
    return _read_text(_text(data))


def _read_text(text: str) -> Series:
    lines = Lines(text)
    if not text.strip():
        raise FormatError("the file is empty")
    if is_at2(lines):
        return read_at2(lines)
    if has_start(lines):
        return read_v2(lines)
    name = waveforms.in_text(lines)
    if name is not None:
        raise _unread(name)
    return read_v2(lines) if has_frame(lines) else read_columns(lines)


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
