"""Readers of ground-motion files: text -> accelerations, with what the file says of its step and unit.

Four layouts are told apart by content, never by the file's name:

- PEER AT2: ``NPTS=  5372, DT=  .0100 SEC`` (or the older ``5372  .0100  NPTS, DT``) ends the header, then
  numbers in rows; the unit stands in ``ACCELERATION TIME SERIES IN UNITS OF G``.
- COSMOS V1/V2 (COSMOS Strong Motion Data Format, v1.20): text, integer and real headers, comments, then
  ``12725 acceleration pts, approx 63 secs, units=cm/s^2,Format=(8F10.5)`` and numbers in fixed columns, which
  may touch each other. The step stands in the real header.
- CSMIP V2: ``15200 points of accel data equally spaced at  .005 sec, in cm/sec2. (8f10.6)``, fixed columns.
- Columns of text: time (s) and acceleration, or acceleration alone, divided by blanks, tabs, commas or
  semicolons; a header above and comment lines are allowed; ``acc (g)`` in the header states the unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.samples import Array

G = 9.80665
"""Standard gravity, m/s^2 (CGPM 1901)."""

UNITS: dict[str, float] = {"g": G, "m/s^2": 1.0, "cm/s^2": 0.01, "gal": 0.01, "mm/s^2": 0.001}
"""Known units of acceleration, in m/s^2."""

AT2_HEADER_LINES = 10
"""PEER headers have four lines; some downloads put a few more above them."""
COSMOS_RECORDER_STEP = 34
"""Entry of the COSMOS real header (counted from 1) with the recorder's sampling interval, s."""
COSMOS_SERIES_STEP = 62
"""Entry with the sampling interval of the series in this file, ms; processing may have changed it."""
COMMENT_MARKS = ("#", "%", "!", "//", "|")
MOST_POINTS, WIDEST_COLUMN = 10_000_000, 1000
"""Bounds of the numbers in headers: of points, and of characters in a column."""
UNIFORM = 0.01
"""Largest deviation from a uniform time column, in steps, beyond what rounded printing explains."""
UNIFORM_ROUNDED = 0.15
"""The same, in steps, however coarsely the times are printed: one missing line makes at least 0.16."""

_NUMBER = r"([\d.]+(?:E[-+]?\d+)?)"
_COLUMNS = r"\(\s*\d*\s*[A-Z]+\s*(\d+)"
_AT2 = re.compile(rf"NPTS\s*=\s*(\d+)\D+?DT\s*=\s*{_NUMBER}", re.I)
_AT2_OLD = re.compile(rf"^\s*(\d+)\s+{_NUMBER}\s+NPTS\s*,?\s*DT", re.I)
_AT2_QUANTITY = re.compile(r"(\w+)\s+TIME\s+(?:SERIES|HISTORY)", re.I)
_AT2_UNIT = re.compile(r"UNITS\s+OF\s+([^\s,]+)", re.I)
_V2_MARK = re.compile(r"^\s*\d+\s+(?:Real[- ]header values follow|points of (?:accel|veloc|displ))", re.I)
_V2_END = re.compile(r"\s*(?:/&|End[- ]of[- ]data)", re.I)
_COSMOS_REAL = re.compile(rf"^\s*(\d+)\s+Real[- ]header values follow.*?{_COLUMNS}", re.I)
_COSMOS = re.compile(
    rf"^\s*(\d+)\s[^,]*accel[^,]*\b(?:pts|points)\b.*?units\s*=\s*([^,(]+)[^,]*,\s*Format\s*=\s*{_COLUMNS}",
    re.I,
)
_CSMIP = re.compile(
    rf"^\s*(\d+)\s+points of accel\w* data equally spaced at\s*{_NUMBER}\s*sec\w*,?"
    rf"\s*in\s+([^\s(,]+)[^(]*{_COLUMNS}",
    re.I,
)
_LIKE_NUMBER = re.compile(r"[-+]?(?:\.?\d|nan$|inf$)", re.I)
_PLAIN_UNIT = re.compile(r"[(\[]([^)\]]*)[)\]]|\bunits?\s*[:=]\s*([^\s,;]+)", re.I)


class FormatError(ValueError):
    """What is wrong inside a file; the caller puts the file's name in front."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Accelerations ``(n,)`` in the file's unit; the first is at t = 0. None: the file does not say."""

    values: Array
    step: float | None
    unit: str | None


def read(text: str) -> Series:
    """The acceleration series in the text of a file. Raises FormatError that names the line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not text.strip():
        raise FormatError("is empty")
    if any(_at2_match(line) for line in lines[:AT2_HEADER_LINES]):
        return _read_at2(lines)
    if any(_V2_MARK.match(line) for line in lines):
        return _read_v2(lines)
    return _read_columns(lines)


def canonical_unit(text: str) -> str | None:
    """The known name of a unit as files write it (``CM/SEC/SEC``, ``cm/sec2.``), or None."""
    word = text.strip().strip(".").lower().replace("sec", "s").replace("**", "^").replace("²", "^2")
    word = re.sub(r"/s/s$|/s2$", "/s^2", word)
    return word if word in UNITS else None


def _stated_unit(text: str) -> str:
    unit = canonical_unit(text)
    if unit is None:
        raise FormatError(f"its header states the unit {text.strip()!r}; known: {', '.join(UNITS)}")
    return unit


def _number(word: str, line: int) -> float:
    try:
        if "_" in word:  # float() takes 1_000
            raise ValueError
        value = float(word)
    except ValueError:
        raise FormatError(f"line {line}: {word!r} is not a number") from None
    if not math.isfinite(value):
        raise FormatError(f"line {line}: {word!r} is not a finite number")
    return value


def _complete(values: list[float], stated: int) -> Array:
    if len(values) != stated:
        raise FormatError(f"its header states {stated} points, it holds {len(values)}: cut off or edited?")
    return np.array(values)


def _positive_step(word: str, line: int) -> float:
    step = _number(word, line)
    if step <= 0.0:
        raise FormatError(f"line {line}: the step {word} s must be > 0 s")
    return step


def _count(word: str, line: int, what: str, most: int) -> int:
    """A whole number in a header, of ``what``, from 1 to ``most``."""
    count = int(word) if len(word) <= len(str(most)) else most + 1
    if not 1 <= count <= most:
        shown = word if len(word) < 20 else f"{word[:20]}..."
        raise FormatError(f"line {line}: {shown} {what}: must be 1 to {most}")
    return count


# PEER AT2


def _at2_match(line: str) -> re.Match[str] | None:
    return _AT2.search(line) or _AT2_OLD.match(line)


def _read_at2(lines: Sequence[str]) -> Series:
    last, match = next((index, found) for index, line in enumerate(lines) if (found := _at2_match(line)))
    header = " ".join(lines[:last])
    quantity = _AT2_QUANTITY.search(header)
    if quantity and not quantity[1].upper().startswith("ACC"):
        raise FormatError(f"holds a {quantity[1].lower()} series, must be acceleration")
    unit = _AT2_UNIT.search(header)
    rows = enumerate(lines[last + 1 :], last + 2)
    values = [_number(word, line) for line, row in rows for word in row.split()]
    step, count = _positive_step(match[2], last + 1), _count(match[1], last + 1, "points", MOST_POINTS)
    return Series(_complete(values, count), step, _stated_unit(unit[1]) if unit else None)


# COSMOS and CSMIP V2


def _read_v2(lines: Sequence[str]) -> Series:
    matches = ((index, _COSMOS.match(line) or _CSMIP.match(line)) for index, line in enumerate(lines))
    found = [(index, match) for index, match in matches if match]
    if not found:
        raise FormatError("is a V2 file without an acceleration block")
    if len(found) > 1:
        places = ", ".join(str(index + 1) for index, _ in found)
        raise FormatError(f"holds {len(found)} acceleration blocks (lines {places}), must be one: split it")
    index, match = found[0]
    if match.re is _CSMIP:
        count, stated_step, unit, width = match.groups()
        step: float | None = _positive_step(stated_step, index + 1)
    else:
        count, unit, width = match.groups()
        step = _cosmos_step(lines)
    points, values = _fixed(lines, index, width, count)
    return Series(_complete(values, points), step, _stated_unit(unit))


def _fixed(lines: Sequence[str], index: int, width: str, count: str) -> tuple[int, list[float]]:
    """How many numbers line ``index`` states, and those that follow it in columns of ``width``."""
    stated = _count(count, index + 1, "numbers", MOST_POINTS)
    columns = _count(width, index + 1, "characters in a column", WIDEST_COLUMN)
    return stated, _fixed_columns(lines, index + 1, columns, stated)


def _cosmos_step(lines: Sequence[str]) -> float | None:
    """Step of the series, s; None where the real header leaves it open (-999)."""
    for index, line in enumerate(lines):
        if match := _COSMOS_REAL.match(line):
            _, entries = _fixed(lines, index, match[2], match[1])
            for entry, unit in ((COSMOS_SERIES_STEP, 1e-3), (COSMOS_RECORDER_STEP, 1.0)):
                if len(entries) >= entry and entries[entry - 1] > 0.0:
                    return _short(entries[entry - 1] * unit)
    return None


def _fixed_columns(lines: Sequence[str], first: int, width: int, count: int) -> list[float]:
    """Numbers in columns of ``width`` characters from ``lines[first]`` on, to ``count`` or the end mark."""
    values: list[float] = []
    for index in range(first, len(lines)):
        if len(values) >= count or _V2_END.match(lines[index]):
            break
        line = lines[index].rstrip()
        cells = [line[start : start + width].strip() for start in range(0, len(line), width)]
        values += [_number(cell, index + 1) for cell in cells if cell]
    return values


# Columns of text


def _words(line: str) -> list[str]:
    return [word for word in re.split(r"[,;\s]+", line) if word]


def _read_columns(lines: Sequence[str]) -> Series:
    rows = [(index + 1, _words(line)) for index, line in enumerate(lines) if not _is_comment(line)]
    # Like a number is enough: "0.0l3" on the first line is a damaged value, not a header to be passed over.
    first = next((n for n, (_, words) in enumerate(rows) if all(map(_LIKE_NUMBER.match, words))), None)
    if first is None:
        raise FormatError(f"holds no line of numbers; it begins with {lines[0].strip()[:40]!r}")
    rows, header = rows[first:], lines[: rows[first][0] - 1]
    table = _table(rows)
    if table.shape[1] == 1:
        return Series(table[:, 0], None, _header_unit(header))
    values, step = _on_grid(table[:, 0], table[:, 1], [line for line, _ in rows])
    return Series(values, step, _header_unit(header))


def _table(rows: Sequence[tuple[int, list[str]]]) -> Array:
    """The numbers of all rows, ``(n, 1)`` or ``(n, 2)``."""
    top, width = rows[0][0], len(rows[0][1])
    if width > 2:
        raise FormatError(f"line {top}: {width} columns, must be one (acceleration) or two (time first)")
    table = []
    for line, words in rows:
        table.append([_number(word, line) for word in words])
        if len(words) != width:
            raise FormatError(f"line {line}: {len(words)} columns, line {top} has {width}")
    return np.array(table)


def _is_comment(line: str) -> bool:
    return not line.strip(" \t,;") or line.lstrip().startswith(COMMENT_MARKS)


def _header_unit(header: Sequence[str]) -> str | None:
    """The unit that the header states, e.g. ``acc (g)``; None where it states none or several."""
    found = {canonical_unit(a or b) for line in header for a, b in _PLAIN_UNIT.findall(line)} - {None}
    return found.pop() if len(found) == 1 else None


def _on_grid(times: Array, values: Array, lines: Sequence[int]) -> tuple[Array, float | None]:
    """Values from t = 0 on, and the step of the time column, which must be uniform."""
    if len(times) < 2:
        return values, None  # too short in any case: refused by the caller
    index = np.arange(len(times))
    step = float(np.polyfit(index, times, 1)[0])
    tolerance = min(max(UNIFORM * step, _printed_resolution(times)), UNIFORM_ROUNDED * step)
    if not (step > 0.0 and np.ptp(times - step * index) / 2.0 <= tolerance):
        gaps = np.diff(times)
        odd = int(np.argmax(np.abs(gaps - np.median(gaps))))
        raise FormatError(
            f"the time column is not uniform: line {lines[odd + 1]} is {gaps[odd]:g} s after the line above, "
            f"most are {np.median(gaps):g} s; resample it to one step"
        )
    if abs(times[0]) <= tolerance:
        return values, _short(step)
    if abs(times[0] - step) <= tolerance:  # many published copies leave the zero at t = 0 away
        return np.concatenate(([0.0], values)), _short(step)
    raise FormatError(f"the time column starts at {times[0]:g} s: must start at 0 s or one step ({step:g} s)")


def _printed_resolution(times: Array) -> float:
    """Rounding error of the times by their last printed decimal, s; zero where they are printed in full."""
    for digits in range(8):
        scaled = times * 10.0**digits
        if np.abs(scaled - np.rint(scaled)).max() < 1e-3:
            return 0.51 / 10.0**digits  # half a unit and the fit's own error
    return 0.0


def _short(step: float) -> float:
    """Without the rounding of the last bits: 31.18 / 1559 is 0.02."""
    return float(f"{step:.12g}")
