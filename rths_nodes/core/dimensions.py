# SPDX-License-Identifier: Apache-2.0
"""Units as products of named units, e.g. N/m and kN*mm, and their dimensions.

A unit has a factor to SI and powers of metre, kilogram, second and volt. Expressions of a laboratory use units
(``expressions.py``); parameters of scenarios have fixed units.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

LENGTHS = {"m": 1.0, "mm": 1e-3, "cm": 1e-2, "um": 1e-6, "in": 0.0254, "ft": 0.3048}
FORCES = {"N": 1.0, "kN": 1e3, "MN": 1e6, "lbf": 4.4482216152605, "kip": 4448.2216152605}
VELOCITIES = {f"{name}/s": factor for name, factor in LENGTHS.items()}
ACCELERATIONS = {"m/s^2": 1.0, "g": 9.80665}
PRESSURES = {"Pa": 1.0, "kPa": 1e3, "bar": 1e5, "MPa": 1e6, "psi": 6894.757293168361}
OTHERS = {"V": 1.0, "1": 1.0}
"""Units that are not converted; "1" is dimensionless, e.g. for a digital input."""

_TABLES: tuple[Mapping[str, float], ...] = (LENGTHS, FORCES, ACCELERATIONS, PRESSURES)

SI: dict[str, tuple[float, str]] = {
    unit: (factor, next(iter(table))) for table in _TABLES for unit, factor in table.items()
} | {unit: (factor, unit) for unit, factor in OTHERS.items()}
"""Unit -> factor to the SI unit, and the SI unit."""


BASES = ("m", "kg", "s", "V")
LARGEST_POWER = 12
_FACTOR = re.compile(r"([A-Za-z]+|1)(?:\^(-?\d{1,2}))?")


class Unit(NamedTuple):
    factor: float
    powers: tuple[int, ...]

    def times(self, other: Unit, power: int = 1) -> Unit:
        """Return the product of this unit and ``other`` raised to ``power``.

        Raises ValueError if a power of the result exceeds LARGEST_POWER.
        """
        powers = tuple(a + power * b for a, b in zip(self.powers, other.powers, strict=True))
        if max(map(abs, powers)) > LARGEST_POWER:
            raise ValueError(f"the unit has a power above {LARGEST_POWER}")
        return Unit(self.factor * other.factor**power, powers)

    @property
    def dimension(self) -> str:
        named_unit = next((name for name, unit in _NAMED.items() if unit == (1.0, self.powers)), "")
        bases = [
            base if power == 1 else f"{base}^{power}"
            for base, power in zip(BASES, self.powers, strict=True)
            if power
        ]
        return named_unit or "*".join(bases) or "1"


def _unit(factor: float, m: int = 0, kg: int = 0, s: int = 0, volt: int = 0) -> Unit:
    return Unit(factor, (m, kg, s, volt))


NUMBER = _unit(1.0)
_NAMED = {
    "1": NUMBER,
    "m": _unit(1.0, m=1),
    "N": _unit(1.0, m=1, kg=1, s=-2),
    "W": _unit(1.0, m=2, kg=1, s=-3),
    "J": _unit(1.0, m=2, kg=1, s=-2),
    "Pa": _unit(1.0, m=-1, kg=1, s=-2),
    "s": _unit(1.0, s=1),
    "Hz": _unit(1.0, s=-1),
    "kg": _unit(1.0, kg=1),
    "V": _unit(1.0, volt=1),
}
UNITS = {
    **_NAMED,
    **{name: _unit(factor, m=1) for name, factor in LENGTHS.items()},
    **{name: _unit(factor, m=1, kg=1, s=-2) for name, factor in FORCES.items()},
    **{name: _unit(factor, m=-1, kg=1, s=-2) for name, factor in PRESSURES.items()},
    **{"kW": _unit(1e3, m=2, kg=1, s=-3), "kJ": _unit(1e3, m=2, kg=1, s=-2), "t": _unit(1e3, kg=1)},
    **{"ms": _unit(1e-3, s=1), "g": _unit(9.80665, m=1, s=-2), "samples": NUMBER},
}


def unit_of(text: str) -> Unit:
    """Parse a unit: names with optional powers, separated by ``*`` or ``/``.

    Raises ValueError if ``text`` is not a valid unit.
    """
    unit, sign = NUMBER, 1
    for part in re.split(r"([*/])", text.replace(" ", "")):
        if part in ("*", "/"):
            sign = 1 if part == "*" else -1
            continue
        factor = _FACTOR.fullmatch(part)
        if factor is None or factor[1] not in UNITS:
            raise ValueError(
                f"{part!r} is not a unit; known: {', '.join(UNITS)}, combined by * and /, with ^ for a power"
            )
        unit = unit.times(UNITS[factor[1]], sign * int(factor[2] or 1))
    return unit
