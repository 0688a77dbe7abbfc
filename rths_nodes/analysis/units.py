# SPDX-License-Identifier: Apache-2.0
"""Formatting of results: rounded numbers, grouped digits, engineering units; options of figure files.

Reports and figures use typographic symbols; tables in the terminal use ASCII. Matplotlib is not imported.
"""

from __future__ import annotations

import math
import re

from rths_nodes.core.errors import ConfigError

MM, MM2, KN, MS, US, PERCENT = 1e3, 1e6, 1e-3, 1e3, 1e6, 100.0
"""Factors from SI to displayed units. ``PERCENT`` applies to ratios."""
CLOCKS = (
    ("loop", "Computing time of one sample"),
    ("lateness", "Lateness of a tick"),
    ("period", "Time between ticks"),
)
"""Measured durations: recorded name and displayed name."""
LOOP = "Loop: Measurement to Command"
HOPS = (
    ("integrator", "Integrator, once per step: Measurement to Target"),
    ("compensator", "Compensator: Target to Command"),
    ("transport", "Transport between nodes, and waiting"),
    ("actuator", "Actuator: tick to Measurement"),
)
"""Parts of the loop, in order: recorded name and displayed name. One node performs each part except ``transport``,
the remainder of the loop's mean time after integrator and compensator."""
THIN, DASH = "\u202f", "–"
"""``THIN``: thousands separator. ``DASH``: replacement for a missing value."""
_ASCII = {ord(DASH): "-", ord("−"): "-", ord(THIN): ""}


def clocks(host: str) -> tuple[tuple[str, str], ...]:
    (loop, computing), *rest = CLOCKS
    return (loop, computing if host == "embedded" else LOOP), *rest


def number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def grouped(value: float, form: str = "") -> str:
    return f"{value:,{form}}".replace(",", THIN)


def rounded(value: object, factor: float = 1.0, digits: int = 3) -> str:
    """Format ``value * factor`` with ``digits`` significant digits or, below 1, with ``digits`` decimals.

    All digits before the decimal point are kept. Return a dash if ``value`` is not a number.
    """
    numeric = number(value)
    numeric = numeric and number(numeric * factor)  # the product may overflow
    if numeric is None:
        return DASH
    size = abs(numeric)
    if size < 10.0**-digits:
        return f"{0.0:.{digits}f}" if size else "0"
    decimals = digits if size < 1.0 else max(0, digits - 1 - math.floor(math.log10(size)))
    return grouped(numeric, f".{decimals}f").replace("-", "−")


def quantity(value: object, factor: float, unit: str, digits: int = 2) -> str:
    return f"{rounded(value, factor, digits)}\u00a0{unit}"


def early_or_late(seconds: float) -> str:
    return f"{quantity(abs(seconds), MS, 'ms')} {'early' if seconds < 0.0 else 'late'}"


def exact(value: object) -> str:
    """Return a value with all digits, or a dash for a missing value.

    Commas separate the entries of a list, and each row of a matrix is a line.
    """
    if value is None or value in ("", []):
        return DASH
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        short = f"{value:g}"
        digits = short if float(short) == value else repr(value)
        return re.sub(r"e\+?(-?)0*(?=\d)", r"e\1", digits).replace("-", "−")
    if isinstance(value, list):
        return ("\n" if isinstance(value[0], list) else ", ").join(exact(entry) for entry in value)
    return str(value)


def plain(value: object, factor: float = 1.0, digits: int = 3) -> str:
    return rounded(value, factor, digits).translate(_ASCII)


def shown(value: object, factor: float, unit: str) -> str:
    """Return ``value`` times ``factor`` with four significant digits and ``unit``, or ``-`` if not finite."""
    numeric = number(value)
    return "-" if numeric is None else f"{numeric * factor:.4g} {unit}"


def uncertain(value: float, deviation: float) -> str:
    """Return a value and its standard deviation, rounded to the first digit of the deviation: ``1.02 +- 0.03``."""
    if not deviation > 0.0:
        return f"{value:.4g}"
    last = math.floor(math.log10(deviation))
    digits = max(0, math.floor(math.log10(abs(value) or deviation)) - last) + 1
    return f"{f'{value:#.{digits}g}'.rstrip('.')} +- {deviation:.1g}"


def interval(least: float, most: float) -> str:
    """Return an interval as text, rounded to two significant digits of its width, with at most three decimals."""
    width = most - least
    decimals = min(3, max(0, 1 - math.floor(math.log10(width)))) if width > 0.0 else 3
    return f"{least:.{decimals}f} to {most:.{decimals}f}"


def duration(seconds: float) -> str:
    return shown(seconds, US, "µs") if not seconds >= 1e-3 else shown(seconds, MS, "ms")


def span(seconds: float) -> str:
    """Format a duration in whole seconds, minutes (from 2 min) or hours (from 2 h), e.g. ``12 min``."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


SCREEN, PAPER = "screen", "paper"
STYLES = (SCREEN, PAPER)
FORMATS = ("pdf", "svg")
COLUMN, NARROWEST, WIDEST = 89.0, 60.0, 400.0
"""Widths, mm. ``COLUMN``: journal column, the default on paper. ``NARROWEST``, ``WIDEST``: bounds of the width."""


def check_width(millimetres: float) -> None:
    """Raise ConfigError if the width of a figure (mm) is too small or too large."""
    if not NARROWEST <= millimetres <= WIDEST:
        raise ConfigError(f"--width = {millimetres:g} mm: must be between {NARROWEST:g} and {WIDEST:g} mm")
