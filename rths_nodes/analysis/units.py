# SPDX-License-Identifier: Apache-2.0
"""Numbers as they are shown: rounded, grouped, with the unit that an engineer expects; one place for all of them.

The report and the figures write in type (:func:`rounded`, :func:`quantity`, :func:`exact`), tables of the terminal
in ASCII (:func:`plain`, :func:`shown`, :func:`duration`, :func:`span`). All of it is text: a page escapes it.
"""

from __future__ import annotations

import math
import re

MM, MM2, KN, MS, US, PERCENT = 1e3, 1e6, 1e-3, 1e3, 1e6, 100.0
"""Factors from SI to what is shown; ``PERCENT`` is that of a share."""

CLOCKS = (
    ("loop", "Computing time of one sample"),
    ("lateness", "Lateness of a tick"),
    ("period", "Time between ticks"),
)
"""Times that are measured, as they are recorded and as they are called."""
LOOP = "Loop: Measurement to Command"
"""Name of the first of them on the hosts with nodes."""
HOPS = (
    ("integrator", "Integrator, once a step: Measurement to Target"),
    ("compensator", "Compensator: Target to Command"),
    ("transport", "Transport between them, and waiting"),
    ("actuator", "Actuator: tick to Measurement"),
)
"""The ways of the loop, in its order; each is the node's own work, the mean of ``transport`` is what remains."""


def clocks(host: str) -> tuple[tuple[str, str], ...]:
    """``CLOCKS`` as they are called in a run on ``host``: where there are no nodes, the loop only computes."""
    (loop, computing), *others = CLOCKS
    return (loop, computing if host == "embedded" else LOOP), *others


def number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def grouped(value: float, form: str = "") -> str:
    return f"{value:,{form}}".replace(",", THIN)


def rounded(value: object, factor: float = 1.0, digits: int = 3) -> str:
    """``digits`` significant figures but at most as many decimals; a dash where there is no finite number."""
    found = number(value)
    if found is None:
        return DASH
    found *= factor
    size = abs(found)
    if size < 10.0**-digits:
        least = f"{10.0**-digits:.{digits}f}"
        return f"< {least}" if found > 0.0 else f"> −{least}" if found < 0.0 else "0"
    decimals = digits if size < 1.0 else max(0, digits - 1 - math.floor(math.log10(size)))
    return grouped(found, f".{decimals}f").replace("-", "−")


def quantity(value: object, factor: float, unit: str, digits: int = 2) -> str:
    return f"{rounded(value, factor, digits)}\u00a0{unit}"


def early_or_late(seconds: float) -> str:
    """A delay in words: ``0.58 ms late``; early where it is negative."""
    return f"{quantity(abs(seconds), MS, 'ms')} {'early' if seconds < 0.0 else 'late'}"


def exact(value: object) -> str:
    """A value as it was given, to its last digit: lists with commas, a row of a matrix on a line of its own.

    A dash stands for what was not given.
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
    """Four significant figures and the unit, in ASCII; ``-`` where there is no finite number."""
    found = number(value)
    return "-" if found is None else f"{found * factor:.4g} {unit}"


def duration(seconds: float) -> str:
    return shown(seconds, US, "µs") if not seconds >= 1e-3 else shown(seconds, MS, "ms")


def span(seconds: float) -> str:
    """A time to wait, as precise as one cares: ``40 s``, ``12 min``, ``3 h``."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


THIN, DASH = "\u202f", "–"
"""Between thousands; in the place of what is not there."""
_ASCII = {ord(DASH): "-", ord("−"): "-", ord(THIN): ""}
