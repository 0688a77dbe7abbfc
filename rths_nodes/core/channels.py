# SPDX-License-Identifier: Apache-2.0
"""Names of the channels between a rig and the controller of its auxiliary inputs."""

from __future__ import annotations

DAMPER_VOLTAGE = "damper_voltage [V]"
"""Input of the damper's current driver."""
DAMPER_DISPLACEMENT = "damper_displacement [m]"
"""Measured: elongation of the damper."""
DAMPER_FORCE = "damper_force [N]"
"""Measured: positive against a positive velocity of its elongation."""


def accelerations(count: int) -> tuple[str, ...]:
    """Measured accelerations of the specimen's degrees of freedom relative to the laboratory floor."""
    return tuple(f"acceleration_{index + 1} [m/s^2]" for index in range(count))
