# SPDX-License-Identifier: Apache-2.0
"""Acceleration series in text files: reader for columns; units and parsing of numbers for all formats.

Columns are time and acceleration, or acceleration alone. Values are separated by blanks, tabs, commas or
semicolons, and follow the header. The header can contain prose, ``KEY: value`` lines (ESM:
``SAMPLING_INTERVAL_S: 0.005``, ``NDATA: 4000``, ``UNITS: cm/s^2``), comments, and titles of the columns (``time
(ms), acc (g)``). Several spellings of a key are recognised. A number of points above the values, or a time column
in samples or ms, is refused unless the header states its meaning.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.errors import ConfigError, counted
from rths_nodes.core.expressions import ACCELERATIONS, plain_unit
from rths_nodes.core.samples import Array
from rths_nodes.core.tables import UNIFORM_ROUNDED, even_step
from rths_nodes.core.text_files import number_of

UNITS: dict[str, float] = {"g": ACCELERATIONS["g"], "m/s^2": 1.0, "cm/s^2": 0.01, "gal": 0.01, "mm/s^2": 0.001}
"""Units of acceleration, and their values in m/s^2."""

TIME_UNITS: dict[str, float] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millisec", "millisecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "μs", "usec", "microsec", "microsecs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
}
"""Units of time, and their values in s."""

COMMENT_MARKS = ("#", "%", "!", "//", "|")
MOST_POINTS = 10_000_000

_FORTRAN = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+))[DdQq]([-+]?\d+)")
_OTHER_UNIT = re.compile(r"counts?|volts?|m?v|(?:[cmkn]?m|in|inch|ft)(?:/\S*)?")


class FormatError(ValueError):
    """Error in the content of a file. The caller adds the file's name."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Accelerations ``(n,)`` in the unit of the file. The first value is at t = 0.

    If the file has no ``step`` (s), ``note`` can state the reason.
    """

    values: Array
    step: float | None
    unit: str | None
    note: str = ""


def canonical_unit(text: str) -> str | None:
    """Return the standard name of a unit in a file's notation (``CM/SEC/SEC``, ``cm/sec2.``), or None."""
    word = plain_unit(text.strip().strip(".").lower().replace("sec", "s"))
    word = {"gals": "gal", "g's": "g"}.get(word, word)
    return word if word in UNITS else None


def stated_unit(text: str, line: int | None = None) -> str:
    """Return the standard name of the unit in ``text``. Raises FormatError if the unit is unknown."""
    unit = canonical_unit(text)
    if unit is None:
        where = "the header" if line is None else f"line {line}"
        raise FormatError(f"{where} states the unknown unit {text.strip()!r}; known units are {', '.join(UNITS)}")
    return unit


def is_other_unit(text: str) -> bool:
    """Return whether ``text`` is a unit of a quantity other than acceleration, such as ``cm/s`` or ``counts``."""
    return canonical_unit(text) is None and bool(_OTHER_UNIT.fullmatch(text.strip().strip(".").lower()))


def number(word: str, line: int) -> float:
    """Return ``word`` as a finite number, or raise FormatError. Fortran exponents (``1.5D-03``) are allowed."""
    try:
        value = number_of(word)
    except ValueError:
        if not _FORTRAN.fullmatch(word):
            comma = " (use a decimal point instead of a comma)" if re.fullmatch(r"[-+]?\d*,\d+\S*", word) else ""
            raise FormatError(f"line {line}: {word!r} is not a number{comma}") from None
        value = float(_FORTRAN.sub(r"\1e\2", word))
    if not math.isfinite(value):
        raise FormatError(f"line {line}: {word!r} is not a finite number")
    return value


def positive_step(word: str, line: int, unit: str = "s") -> float:
    """Convert the step ``word`` from ``unit`` to s. Raises FormatError for a step <= 0 or an unknown unit."""
    factor = TIME_UNITS.get(unit.strip(".").lower() or "s")
    if factor is None:
        raise FormatError(f"line {line}: the unit of the step {word} {unit} must be s, ms, us or min")
    step = number(word, line) * factor
    if step <= 0.0:
        raise FormatError(f"line {line}: the step {word} {unit or 's'} must be > 0 s")
    return step


def whole(word: str, line: int, noun: str, most: int) -> int:
    """Return ``word`` as a whole number from 1 to ``most``.

    Raises FormatError for any other text. ``noun`` names the counted objects in the message.
    """
    if not (word.isascii() and word.isdigit()):
        raise FormatError(f"line {line}: {word!r} is not a valid number of {noun}")
    count = int(word) if len(word) <= len(str(most)) else most + 1
    if not 1 <= count <= most:
        shown = word if len(word) < 20 else f"{word[:20]}..."
        raise FormatError(f"line {line}: the number of {noun} is {shown}, but must be 1 to {most}")
    return count


def complete(values: Sequence[float] | Array, stated: int) -> Array:
    """Return ``values`` as an array. Raises FormatError if their number differs from ``stated``."""
    if len(values) != stated:
        raise FormatError(
            f"the header states {stated} points, but the file has {len(values)}. Check for missing points"
        )
    return np.array(values)


def short(step: float) -> float:
    """Return ``step`` without rounding errors in its last bits: 31.18 / 1559 becomes 0.02."""
    return float(f"{step:.12g}")


def split_at_signs(line: str) -> list[str]:
    """Split a row into its numbers. A sign alone can separate two numbers, as in ``-.123E-01-.456E-02``."""
    return [part for word in line.split() for part in re.split(r"(?<=[\d.])(?=[-+])", word)]


def shown(line: str) -> str:
    return repr(line.strip()[:60])


# Columns

SAME = 0.005
"""Largest relative difference between two statements of a quantity that are treated as equal."""
SAME_DURATION = 0.02
"""Largest relative difference between two durations. Some headers count points, others count intervals."""

_UNIT_OF_KEY = r"[ _]*[(\[]?\s*(?P<unit>ms|msec|s|secs?|seconds?|hz|sps)?\s*[)\]]?\s*"
_VALUE = _UNIT_OF_KEY + r"(?:[:=]\s*|\s+(?=[-+.\d]))(?P<value>.*)"

FEWEST_COUNTED = 10
"""Smallest number, on a line above the values, that is interpreted as a number of points."""
HEADER_ROWS = 5
"""Number of lines that are searched for a number of points."""
MOST_COMPONENTS = 4
"""Largest number of columns in a table of components. Wider rows are assumed to contain one component."""

_LIKE_NUMBER = re.compile(r"[-+]?(?:\.?\d|nan$|inf$)", re.I)
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?:[ed][-+]?\d+)?(?:,[-+]?\d+,\d+)?", re.I)
_WHOLE_PAIR = re.compile(r"([-+]?\d+)\s*,(?!\s*[-+]?0\d)[^,]+")
"""Two whole numbers. A leading zero in the second would indicate a decimal comma: 1,02."""
_PROSE = re.compile(r"[a-z]{5}", re.I)
_BEGIN = re.compile(r"\*+\s*begin", re.I)
_COUNTED = "the first column counts the samples (0, 1, 2 ...) and is not the time in s"

Row = tuple[int, list[str]]
Header = Sequence[tuple[int, str]]
"""Number and text of each non-blank line above the values."""
Read = Callable[[str, str, int], float]
"""Function ``read(word, unit, line)`` that returns a value. ``unit`` is the word after ``word``."""


class Rows:
    """Splits rows of numbers on demand, because lists of words take thirty times the memory of the text."""

    def __init__(self, lines: Sequence[str], numbers: array[int]) -> None:
        self._lines, self.numbers = lines, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Row:
        number = self.numbers[index]
        return number, _cells(self._lines[number - 1])

    def __iter__(self) -> Iterator[Row]:
        return map(self.__getitem__, range(len(self)))

    def texts(self) -> Iterator[tuple[int, str]]:
        return ((number, self._lines[number - 1]) for number in self.numbers)

    def below(self, index: int) -> Iterator[str]:
        return (self[row][1][0] for row in range(index + 1, len(self)))

    def first_column(self) -> Array:
        return np.fromiter((number(cells[0], line) for line, cells in self), float, len(self))


def read_columns(lines: Sequence[str]) -> Series:
    numbers = array("I", (number for number, line in enumerate(lines, 1) if _cells(line)))
    # resembling a number is enough: "0.0l3" in the first line is a damaged value, not a header to skip
    like = (all(map(_LIKE_NUMBER.match, cells)) for _, cells in Rows(lines, numbers))
    first = next((index for index, is_like in enumerate(like) if is_like), None)
    if first is None:
        raise FormatError(f"the file begins with {lines[0].strip()[:40]!r} and has no line of numbers")
    rows = Rows(lines, numbers[first:])
    header = [(n, line) for n, line in enumerate(lines[: numbers[first] - 1], 1) if line.strip()]
    _check_commas(rows)
    _check_header_end(header)
    width = _width(rows, header)
    titles = _titles(header[-1][1], width) if header else []
    _check_quantity(header)
    step = _agreed(header, "step", " s", (_STEP, _step_of), (_RATE, _step_of_rate))
    points = _agreed(header, "number of points", "", (_COUNT, _points_of), (_COUNT_IN_PROSE, _points_of))
    duration = _agreed(header, "duration", " s", (_DURATION, _step_of))
    unit = _unit(header, titles)
    _check_first(rows)
    values = (number(word, line) for line, cells in rows for word in cells)
    table = np.fromiter(values, float, width * len(rows)).reshape(-1, width)
    if points is not None:
        complete(table[:, -1], int(points))
    if step and duration and abs(step * len(table) - duration) > SAME_DURATION * duration + 2.0 * step:
        raise FormatError(
            f"the header states a duration of {duration:g} s, but {len(table)} points with a step of {step:g} s "
            f"last {step * len(table):g} s. Check for missing points or a wrong step"
        )
    if width == 1:
        return Series(table[:, 0], step, unit)
    return _with_time(table, rows.numbers, titles[0] if titles else "", step, unit)


def _cells(line: str) -> list[str]:
    if line.lstrip().startswith(COMMENT_MARKS):
        return []
    return line.replace('"', "").replace(",", " ").replace(";", " ").split()


def _check_commas(rows: Rows) -> None:
    if any("." in line for _, line in rows.texts()):
        return
    table = _is_table_of_whole_numbers(rows)
    for line_number, line in rows.texts():
        cells = [cell for cell in re.split(r"[;\s]+", line.replace('"', "")) if cell]
        if any(map(_DECIMAL_COMMA.fullmatch, cells)) and (len(cells) > 1 or not table):
            raise FormatError(
                f"line {line_number}: {line.strip()[:40]!r} has decimal commas. Write decimal points instead"
            )


def _is_table_of_whole_numbers(rows: Rows) -> bool:
    pairs = (_WHOLE_PAIR.fullmatch(line.strip()) for _, line in rows.texts())
    times = [float(pair[1]) if pair else math.nan for pair in pairs]
    return len(times) > 1 and bool(np.all(np.diff(times) > 0.0))


def _check_header_end(header: Header) -> None:
    """Refuse a header that ends in a number with a unit, because this line could be a row of values."""
    for line_number, line in header[-1:]:
        cells = _cells(line)
        if 2 <= len(cells) <= 4 and is_plain(cells[0]) and not any(map(_PROSE.search, cells)):
            raise FormatError(
                f"line {line_number}: {shown(line)} is directly above the numbers. Remove the units if this line "
                "is a row of numbers, or write # before a header line"
            )


def is_plain(word: str) -> bool:
    return re.fullmatch(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[edq][-+]?\d+)?", word, re.I) is not None


def _width(rows: Rows, header: Header) -> int:
    top, width = rows[0][0], len(rows[0][1])
    widths = np.fromiter((len(cells) for _, cells in rows), np.uint32, len(rows))
    if len(rows) > 2 and width != widths[1] and not np.ptp(widths[1:-1]) and width <= 3:
        raise FormatError(
            f"line {top}: {' '.join(rows[0][1])} has {counted(width, 'value')}, but each line below has "
            f"{widths[1]}. If the line contains the number of points or the step, remove the line, and set step "
            "and unit"
        )
    if width > 2:
        hint = _rows_hint(rows, header)
        raise FormatError(
            f"line {top}: must have one column (acceleration) or two (time first), not {width}{hint}"
        )
    for index in np.flatnonzero(widths != width)[:1]:
        raise FormatError(
            f"line {rows.numbers[index]}: the number of columns is {widths[index]}, but must be {width}, as in "
            f"line {top}"
        )
    return width


def _rows_hint(rows: Rows, header: Header) -> str:
    marker = next((f" (below {line.strip()[:40]!r})" for _, line in header if _BEGIN.search(line)), "")
    width = len(rows[0][1])
    try:
        steps = np.diff(rows.first_column())
    except FormatError:
        return marker
    if len(steps) and steps.min() > 0.0 and np.ptp(steps) <= UNIFORM_ROUNDED * steps.mean():
        return f"{marker}. The columns are probably a time and {width - 1} series; keep the time and one series"
    if width <= MOST_COMPONENTS:
        return f"{marker}. The columns are probably {width} series; keep one series"
    return (
        f"{marker}. This is probably one series in rows of {width} numbers, which requires a PEER AT2 header; "
        "otherwise write one number per line"
    )


def _check_first(rows: Rows) -> None:
    """Refuse a number of points or a step at the top of ``rows``, because it would be read as an acceleration."""
    for index in range(min(HEADER_ROWS, len(rows))):
        line, cells = rows[index]
        if not cells[0].isdigit() or (count := int(cells[0])) < FEWEST_COUNTED:
            continue
        below, above = len(rows) - index - 1, [rows[row][1][0] for row in range(index)]
        following = rows[index + 1][1][0] if below else ""
        if len(cells) == 2 and not (index == 0 and _is_short(cells[1]) and following.strip("0.") == ""):
            continue
        step_below = index == 0 and count == below - 1 and _is_short(following)
        if count == below or step_below or (len(cells) == 1 and _is_unlike_below(rows, index)):
            removed = " and ".join([*above, cells[0], *([following] if step_below else [])])
            raise FormatError(
                f"line {line}: {' '.join(cells)} is probably the number of the following points ({below}), not an "
                f"acceleration. Remove {removed}, and set step and unit if the header does not state them. Write "
                f"{cells[0]}.0 if this is an acceleration"
            )
    _check_first_step(rows)


def _check_first_step(rows: Rows) -> None:
    """Refuse a first value of 1 / n whose number of decimals differs from the others: probably a step, s."""
    line, cells = rows[0]
    if len(cells) > 1 or len(rows) <= FEWEST_COUNTED or not _is_short(cells[0]):
        return
    digits, rate = {_decimals(word) for word in rows.below(0)}, 1.0 / float(cells[0])
    if len(digits) == 1 and _decimals(cells[0]) not in digits and abs(rate - round(rate)) < 1e-6 * rate:
        raise FormatError(
            f"line {line}: {cells[0]} has a different number of decimals from the values below. Remove {cells[0]} "
            "if this is the step in s; write the same number of decimals if this is an acceleration"
        )


def _decimals(word: str) -> int:
    return len(word.partition(".")[2])


def _is_short(word: str) -> bool:
    return re.fullmatch(r"\+?0*\.\d+", word) is not None and 0.0002 <= float(word) <= 0.2


def _is_unlike_below(rows: Rows, index: int) -> bool:
    if index > 1 or not all("." in word for word in rows.below(index)):
        return False
    if index == 1:
        return _is_short(rows[0][1][0])
    changes = np.abs(np.diff(rows.first_column()))
    return len(changes) > 1 and bool(changes[0] > changes[1:].max())


def _with_time(table: Array, lines: Sequence[int], title: str, step: float | None, unit: str | None) -> Series:
    counts_samples, time_unit = _INDEX.fullmatch(title.strip()) is not None, _time_unit(title)
    times = table[:, 0] * time_unit
    whole_steps = len(times) > 1 and bool(np.all(np.diff(table[:, 0]) == 1.0))
    if counts_samples and not whole_steps:
        raise FormatError(
            "the header calls the first column a sample number, but the column does not count samples"
        )
    if counts_samples or (whole_steps and time_unit == 1.0):
        if table[0, 0] not in (0.0, 1.0):
            raise FormatError(
                f"the first column counts the samples from {table[0, 0]:g}, but must start at 0 or 1"
            )
        return Series(table[:, 1], step, unit, _COUNTED)
    values, column_step = _on_grid(times, table[:, 1], lines)
    if step is not None and column_step is not None and abs(column_step - step) > SAME * step:
        raise FormatError(
            f"the header states a step of {step:g} s, but the time column has a step of {column_step:g} s; "
            "correct one of them"
        )
    return Series(values, column_step, unit)


def _on_grid(times: Array, values: Array, lines: Sequence[int]) -> tuple[Array, float | None]:
    if len(times) < 2:
        return values, None  # too short; the caller refuses the file
    try:
        step, tolerance = even_step(times, lines)
    except ConfigError as error:
        raise FormatError(f"{error}; resample the series to equal steps{_swapped(values)}") from None
    if abs(times[0]) <= tolerance:
        return values, short(step)
    if abs(times[0] - step) <= tolerance:  # many published copies omit the zero at t = 0
        return np.concatenate(([0.0], values)), short(step)
    raise FormatError(f"the time column starts at {times[0]:g} s, but must start at 0 s or one step ({step:g} s)")


def _swapped(values: Array) -> str:
    gaps = np.diff(values)
    even = gaps.min() > 0.0 and np.ptp(gaps) <= UNIFORM_ROUNDED * gaps.mean()
    return ". The second column rises evenly; if this is the time, make it the first column" if even else ""


def _key(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z])(?:{pattern}){_VALUE}", re.I)


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
STATED_UNIT = re.compile(r"(?<![a-z])units?\s*(?:[:=]|\bof\b)\s*([^\s,;]+)", re.I)
_TYPE = re.compile(r"(?<![a-z])data[ _]*type\s*[:=]\s*([^,;]*)", re.I)
_ACCELERATION = re.compile(r"\s*acc(?:el(?:eration)?)?s?\s*(?:series|time[ _](?:series|history))?\s*", re.I)
_ANOTHER = re.compile(r"(?<![a-z])(?:vel|veloc(?:ity|ities)?|disp|displ(?:acements?)?)(?![a-z])", re.I)
_ONE = re.compile(r"(?<![a-z])acc", re.I)
_BRACKETS = re.compile(r"[(\[]([^)\]]*)[)\]]")
_CELL = re.compile(r"[^\s,;(\[]+(?:\s*[(\[][^)\]]*[)\]])?")
_INDEX = re.compile(
    r"(?:samples?|index|idx|no|nr|number|num|n|i|k|points?|count|row)\.?(?: (?:no|number|index))?\.?", re.I
)


def _agreed(header: Header, quantity: str, unit: str, *keys: tuple[re.Pattern[str], Read]) -> float | None:
    """Return the value that follows the ``keys`` in the header, or None if the header has none of the keys.

    Raises FormatError if a value is unreadable or contradicts another value.
    """
    values = [
        (line_number, read(value[1], match["unit"] or value[2], line_number))
        for key, read in keys
        for line_number, line in header
        if (match := key.search(line)) and (value := re.match(r"([^\s,;]+(?:,\d+)?)\s*(\S*)", match["value"]))
    ]
    if not values:
        return None
    first_line, first = values[0]
    for line_number, other in values:
        if abs(other - first) > SAME * first:
            raise FormatError(
                f"the header states the {quantity} {first:g}{unit} in line {first_line}, but {other:g}{unit} in "
                f"line {line_number}"
            )
    return first


def _step_of(word: str, unit: str, line: int) -> float:
    match = re.fullmatch(r"([-+\d.,]+(?:[ed][-+]?\d+)?)([a-z]*)", word, re.I)
    if match is None:
        return number(word, line)  # raises FormatError
    unit = match[2] or unit.strip("()[].,;").lower()
    return positive_step(match[1], line, unit if unit in TIME_UNITS or match[2] else "s")


def _step_of_rate(word: str, unit: str, line: int) -> float:
    prefix = re.search(r"(?i)([a-z]*)(?:hz|hertz|sps)\b", f"{word} {unit}")
    factor = 1.0 if prefix is None else {"": 1.0, "k": 1e3, "kilo": 1e3}.get(prefix[1].lower())
    if factor is None:
        raise FormatError(f"line {line}: the unit of the sampling rate {word} {unit} must be Hz, kHz, sps or ksps")
    rate = number(re.sub(r"(?i)k?(hz|sps)$", "", word), line) * factor
    if rate <= 0.0:
        raise FormatError(f"line {line}: the sampling rate {word} must be > 0 Hz")
    return 1.0 / rate


def _points_of(word: str, unit: str, line: int) -> float:
    return whole(word.removesuffix("."), line, "points", MOST_POINTS)


def _check_quantity(lines: Header) -> None:
    for line_number, line in lines:
        stated = _TYPE.search(line)
        if stated and stated[1].strip() and not _ACCELERATION.fullmatch(stated[1]):
            raise FormatError(
                f"line {line_number}: the data type is {stated[1].strip()!r}, but must be acceleration"
            )
    quantities = [(line_number, match[0]) for line_number, line in lines if (match := _ANOTHER.search(line))]
    if quantities and not any(_ONE.search(line) for _, line in lines):
        raise FormatError(
            f"line {quantities[0][0]}: the header states {quantities[0][1]!r}, but the series must be an "
            "acceleration"
        )


def _unit(lines: Header, titles: Sequence[str]) -> str | None:
    explicit = [(line_number, match[1]) for line_number, line in lines if (match := STATED_UNIT.search(line))]
    for line_number, word in explicit:
        if is_other_unit(word) or "/" in word:
            stated_unit(word, line_number)  # raises FormatError for other units
    last = _BRACKETS.findall(titles[-1]) if titles else []
    if last and is_other_unit(last[-1]):
        raise FormatError(f"line {lines[-1][0]}: {last[-1].strip()!r} is not a unit of acceleration")
    cells = [word for _, word in explicit] + [word for _, line in lines for word in _BRACKETS.findall(line)]
    units = {canonical_unit(word) for word in cells} - {None}
    return units.pop() if len(units) == 1 else None


def _titles(line: str, columns: int) -> list[str]:
    line = line.strip().lstrip("".join(COMMENT_MARKS)).strip().replace('"', "")
    for cells in (re.split(r"\s*[,;\t]\s*|\s{2,}", line), _CELL.findall(line)):
        if len(cells) == columns and not any(re.search(r"[:=]", cell) for cell in cells):
            return [str(cell) for cell in cells]
    return []


def _time_unit(title: str) -> float:
    cells = [*_BRACKETS.findall(title), title.rsplit("_", 1)[-1]]
    return next((TIME_UNITS[word.strip().lower()] for word in cells if word.strip().lower() in TIME_UNITS), 1.0)
