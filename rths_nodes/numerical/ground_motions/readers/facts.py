# SPDX-License-Identifier: Apache-2.0
"""Statements in the header above columns of text: step, number of points, unit, quantity.

Headers are prose, ``KEY: value`` lines (ESM: ``SAMPLING_INTERVAL_S: 0.005``, ``NDATA: 4000``, ``UNITS: cm/s^2``,
``DATA_TYPE: ACCELERATION``), comments, or titles of the columns (``time (ms), acc (g)``). A key is found by its
words; a value that cannot be read is refused by its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rths_nodes.numerical.ground_motions.readers.series import (
    COMMENT_MARKS,
    MOST_POINTS,
    TIME_UNITS,
    FormatError,
    canonical_unit,
    is_other_unit,
    number,
    positive_step,
    stated_unit,
    whole,
)

SAME = 0.005
"""Relative difference up to which two statements of a step agree."""
SAME_DURATION = 0.02
"""The same, of a duration: it may be that of the points or of the intervals between them."""

_UNIT_OF_KEY = r"[ _]*[(\[]?\s*(?P<unit>ms|msec|s|secs?|seconds?|hz|sps)?\s*[)\]]?\s*"
_VALUE = _UNIT_OF_KEY + r"(?:[:=]\s*|\s+(?=[-+.\d]))(?P<value>.*)"


def _key(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z])(?:{words}){_VALUE}", re.I)


_STEP = _key(
    r"(?:sampling|sample|time)[ _]*(?:interval|period|step|increment)|dt|delta(?:[ _]?t)?|step(?=\s*[:=(\[])"
)
_RATE = _key(r"(?:sampling|sample)[ _]*(?:rate|freq(?:uency)?)")
_COUNT = _key(
    r"ndata|npts?|n[ _]?points|(?:number|no\.?|num)[ _]*(?:of[ _]*)?(?:data[ _]*)?(?:points|samples|data|values)"
)
_COUNT_IN_PROSE = re.compile(
    r"(?<![\w.])(?P<value>\d+(?P<unit>))\s+(?:data\s+)?(?:points|pts|samples|values)\b", re.I
)
_DURATION = re.compile(
    r"(?<![a-z])(?<!significant )(?:duration|record[ _]*length)"
    rf"{_UNIT_OF_KEY}[:=]\s*(?P<value>[\d.]+\s*[a-z]*)\s*$",
    re.I,
)
_UNITS = re.compile(r"(?<![a-z])units?\s*(?:[:=]|\bof\b)\s*([^\s,;]+)", re.I)
_TYPE = re.compile(r"(?<![a-z])data[ _]*type\s*[:=]\s*([^,;]*)", re.I)
_ACCELERATION = re.compile(r"\s*acc(?:el(?:eration)?)?s?\s*(?:series|time[ _](?:series|history))?\s*", re.I)
_ANOTHER = re.compile(r"(?<![a-z])(?:vel|veloc(?:ity|ities)?|disp|displ(?:acements?)?)(?![a-z])", re.I)
_ONE = re.compile(r"(?<![a-z])acc", re.I)
_BRACKETS = re.compile(r"[(\[]([^)\]]*)[)\]]")
_CELL = re.compile(r"[^\s,;(\[]+(?:\s*[(\[][^)\]]*[)\]])?")
_INDEX = re.compile(
    r"(?:samples?|index|idx|no|nr|number|num|n|i|k|points?|count|row)\.?(?: (?:no|number|index))?\.?", re.I
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Statements of a header; None for what it does not state. ``time_unit`` s, of the first of two columns."""

    step: float | None = None
    points: int | None = None
    duration: float | None = None
    unit: str | None = None
    time_unit: float = 1.0
    counts_samples: bool = False


def facts(header: Sequence[str], columns: int) -> Facts:
    """Statements of ``header``, the lines above the numbers, on a table of one or two ``columns``.

    Raises FormatError where a stated value cannot be read, two contradict each other, or the series is none of an
    acceleration.
    """
    lines = [(place, line) for place, line in enumerate(header, 1) if line.strip()]
    titles = _titles(lines[-1][1], columns) if lines else []
    _check_quantity(lines)
    steps = [*_found(lines, _STEP, _step_of), *_found(lines, _RATE, _step_of_rate)]
    step = _agreed(steps, "step", " s")
    counts = [*_found(lines, _COUNT, _points_of), *_found(lines, _COUNT_IN_PROSE, _points_of)]
    points = _agreed(counts, "number", " of points")
    duration = _agreed(_found(lines, _DURATION, _step_of), "duration", " s")
    unit = _unit(lines, titles)
    first = titles[0] if len(titles) == 2 else ""
    is_index = _INDEX.fullmatch(first.strip()) is not None
    return Facts(step, None if points is None else int(points), duration, unit, _time_unit(first), is_index)


def _found(
    lines: Sequence[tuple[int, str]], key: re.Pattern[str], read: Callable[[str, str, int], float]
) -> Iterator[tuple[int, float]]:
    for place, line in lines:
        found = key.search(line)
        value = re.match(r"([^\s,;]+(?:,\d+)?)\s*(\S*)", found["value"]) if found else None
        if found and value:
            yield place, read(value[1], found["unit"] or value[2], place)


def _step_of(word: str, unit: str, place: int) -> float:
    found = re.fullmatch(r"([-+\d.,]+(?:[ed][-+]?\d+)?)([a-z]*)", word, re.I)
    if found is None:
        return number(word, place)  # refuses it
    unit = found[2] or unit.strip("()[].,;").lower()
    return positive_step(found[1], place, unit if unit in TIME_UNITS or found[2] else "s")


def _step_of_rate(word: str, unit: str, place: int) -> float:
    rate = number(re.sub(r"(?i)(hz|sps)$", "", word), place)
    if rate <= 0.0:
        raise FormatError(f"line {place}: the sampling rate {word} must be > 0 Hz")
    return 1.0 / rate


def _points_of(word: str, unit: str, place: int) -> float:
    return whole(word.removesuffix("."), place, "points", MOST_POINTS)


def _agreed(statements: Iterable[tuple[int, float]], what: str, unit: str) -> float | None:
    """The one value of all statements. Raises FormatError for two that differ."""
    found = list(statements)
    for place, value in found[1:]:
        line, first = found[0]
        if abs(value - first) > SAME * first:
            raise FormatError(
                f"its header states two {what}s: {first:g}{unit} in line {line}, {value:g}{unit} in line {place}"
            )
    return found[0][1] if found else None


def check_duration(step: float | None, points: int, duration: float | None) -> None:
    """Refuses ``points`` every ``step`` s that do not last the stated ``duration`` (s)."""
    if step and duration and abs(step * points - duration) > SAME_DURATION * duration + 2.0 * step:
        raise FormatError(
            f"its header states a duration of {duration:g} s, {points} points every {step:g} s last "
            f"{step * points:g} s: cut off, or a wrong step?"
        )


def _check_quantity(lines: Sequence[tuple[int, str]]) -> None:
    for place, line in lines:
        stated = _TYPE.search(line)
        if stated and stated[1].strip() and not _ACCELERATION.fullmatch(stated[1]):
            raise FormatError(f"line {place} states the data type {stated[1].strip()!r}, must be acceleration")
    others = [(place, found[0]) for place, line in lines if (found := _ANOTHER.search(line))]
    if others and not any(_ONE.search(line) for _, line in lines):
        raise FormatError(f"line {others[0][0]} says {others[0][1]!r}: must be an acceleration")


def _unit(lines: Sequence[tuple[int, str]], titles: Sequence[str]) -> str | None:
    """The unit that is stated, None where none or several are."""
    explicit = [(place, found[1]) for place, line in lines if (found := _UNITS.search(line))]
    for place, word in explicit:
        if is_other_unit(word) or "/" in word:
            stated_unit(word, place)  # refuses what is no unit of acceleration
    last = _BRACKETS.findall(titles[-1]) if titles else []
    if last and is_other_unit(last[-1]):
        raise FormatError(f"line {lines[-1][0]}: states {last[-1].strip()!r}, which is no unit of acceleration")
    words = [word for _, word in explicit] + [word for _, line in lines for word in _BRACKETS.findall(line)]
    known = {canonical_unit(word) for word in words} - {None}
    return known.pop() if len(known) == 1 else None


def _titles(line: str, columns: int) -> list[str]:
    line = line.strip().lstrip("".join(COMMENT_MARKS)).strip().replace('"', "")
    for cells in (re.split(r"\s*[,;\t]\s*|\s{2,}", line), _CELL.findall(line)):
        if len(cells) == columns and not any(re.search(r"[:=]", cell) for cell in cells):
            return [str(cell) for cell in cells]
    return []


def _time_unit(title: str) -> float:
    words = [*_BRACKETS.findall(title), title.rsplit("_", 1)[-1]]
    return next((TIME_UNITS[word.strip().lower()] for word in words if word.strip().lower() in TIME_UNITS), 1.0)
