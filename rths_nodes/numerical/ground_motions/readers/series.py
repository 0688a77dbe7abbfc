# SPDX-License-Identifier: Apache-2.0
"""Series of accelerations as stored in a file, and functions for units and numbers of all formats."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import number_of

G = 9.80665
"""Standard gravity, m/s^2 (CGPM 1901)."""

UNITS: dict[str, float] = {"g": G, "m/s^2": 1.0, "cm/s^2": 0.01, "gal": 0.01, "mm/s^2": 0.001}
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
    """Accelerations ``(n,)`` from t = 0 in the file's unit.

    If ``step`` (s) is None, ``note`` can state the reason.
    """

    values: Array
    step: float | None
    unit: str | None
    note: str = ""


def canonical_unit(text: str) -> str | None:
    """Return the standard name of a unit in a file's notation (``CM/SEC/SEC``, ``cm/sec2.``), or None."""
    word = text.strip().strip(".").lower().replace("sec", "s").replace("**", "^").replace("²", "^2")
    word = re.sub(r"/s/s$|/s2$|[. ]s\^?-2$", "/s^2", word)
    word = {"gals": "gal", "g's": "g", "cms^-2": "cm/s^2", "ms^-2": "m/s^2"}.get(word, word)
    return word if word in UNITS else None


def stated_unit(text: str, line: int | None = None) -> str:
    """Return the standard name of the unit in ``text``. Raises FormatError if the unit is unknown."""
    unit = canonical_unit(text)
    if unit is None:
        where = "the header" if line is None else f"line {line}"
        raise FormatError(f"{where} states the unknown unit {text.strip()!r}; known units are {', '.join(UNITS)}")
    return unit


def is_other_unit(text: str) -> bool:
    """Return whether the text is a unit of a quantity other than acceleration, such as ``cm/s`` or ``counts``."""
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
    """Return a step in s from a number in ``unit``.

    Raises FormatError if the step is not positive or the unit is unknown.
    """
    factor = TIME_UNITS.get(unit.strip(".").lower() or "s")
    if factor is None:
        raise FormatError(f"line {line}: the unit of the step {word} {unit} must be s, ms, us or min")
    step = number(word, line) * factor
    if step <= 0.0:
        raise FormatError(f"line {line}: the step {word} {unit or 's'} must be > 0 s")
    return step


def whole(word: str, line: int, noun: str, most: int) -> int:
    """Return ``word`` as a whole number from 1 to ``most``.

    Raises FormatError otherwise. Its message contains ``noun``.
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
            f"the header states {stated} points, but the file has {len(values)}; check for missing points"
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
