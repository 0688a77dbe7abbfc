# SPDX-License-Identifier: Apache-2.0
"""Units in which files may give their numbers, and what they are in SI."""

from __future__ import annotations

from collections.abc import Mapping

LENGTHS = {"m": 1.0, "mm": 1e-3, "cm": 1e-2, "um": 1e-6, "in": 0.0254, "ft": 0.3048}
"""m."""
FORCES = {"N": 1.0, "kN": 1e3, "MN": 1e6, "lbf": 4.4482216152605, "kip": 4448.2216152605}
"""N."""
VELOCITIES = {f"{name}/s": factor for name, factor in LENGTHS.items()}
"""m/s."""
ACCELERATIONS = {"m/s^2": 1.0, "g": 9.80665}
"""m/s^2."""
PRESSURES = {"Pa": 1.0, "kPa": 1e3, "bar": 1e5, "MPa": 1e6, "psi": 6894.757293168361}
"""Pa."""
OTHERS = {"V": 1.0, "1": 1.0}
"""Each is its own SI unit; "1" for a number without a dimension, such as a digital input."""

_TABLES: tuple[Mapping[str, float], ...] = (LENGTHS, FORCES, ACCELERATIONS, PRESSURES)

SI: dict[str, tuple[float, str]] = {
    unit: (factor, next(iter(table))) for table in _TABLES for unit, factor in table.items()
} | {unit: (factor, unit) for unit, factor in OTHERS.items()}
"""Unit -> what it is in SI, and the name of that."""
