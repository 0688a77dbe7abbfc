# SPDX-License-Identifier: Apache-2.0
"""Bounds for moving an axis of a real rig outside of a test, in SI units and axis coordinates.

A rig file can declare them. An act is refused if its bounds are missing.
"""

from __future__ import annotations

from typing import Any

from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.parameters import flag, number, params

VERIFYING = 0.03
"""Largest uncertainty of a stiffness that verifies a scale; a larger one would hide an error of 10 %."""


@params
class SmallMove:
    """Bounds of the small move that checks the signs and scales of an axis."""

    displacement: float = number("largest displacement, to one side", "m", more_than=0.0)
    velocity: float = number("largest velocity", "m/s", more_than=0.0)
    force: float = number("the move is aborted if a force changes by more", "N", more_than=0.0)
    press: float | None = number(
        "small force that is applied and released, if the controller of the rig closes a force loop",
        "N",
        None,
        more_than=0.0,
    )


@params
class Unloading:
    """Bounds of the motion with which the operator unloads the specimen."""

    travel: float = number("largest distance from the start", "m", more_than=0.0)
    velocity: float = number("largest velocity", "m/s", more_than=0.0)
    tolerance: float = number(
        "fraction of the load cell's range that counts as zero force", "1", 0.01, at_least=1e-4, at_most=0.1
    )
    carries_gravity: bool = flag("the axis carries weight: it is unloaded last", False)


def check_handling(axis: Any, limits: Any, path: str) -> None:
    """Raise ConfigError if a bound of ``axis`` exceeds ``limits``, or if only one of a pair of bounds is set."""
    if axis.stiffness_known_to is not None and axis.stiffness is None:
        raise ConfigError(f"{join(path, 'stiffness_known_to')}: has no effect without stiffness")
    _check_characterised(axis, path)
    bounds = [
        ("elastic_limit", axis.elastic_limit, "m", limits.stroke, "limits.stroke"),
        ("slow_error", axis.slow_error, "m", limits.stroke, "limits.stroke"),
    ]
    if axis.small_move is not None:
        far = (
            (limits.stroke, "limits.stroke")
            if axis.elastic_limit is None
            else (axis.elastic_limit, "elastic_limit")
        )
        bounds += [
            ("small_move.displacement", axis.small_move.displacement, "m", *far),
            ("small_move.velocity", axis.small_move.velocity, "m/s", limits.velocity, "limits.velocity"),
            ("small_move.force", axis.small_move.force, "N", limits.force, "limits.force"),
            ("small_move.press", axis.small_move.press, "N", axis.small_move.force, "small_move.force"),
        ]
        step = axis.displacement.step_si
        if axis.small_move.displacement < STEPS * step:
            raise ConfigError(
                f"{join(path, 'small_move')}.displacement = {axis.small_move.displacement:g} m: must be >= "
                f"{STEPS * step:g} m, {STEPS} steps of the resolution of displacement"
            )
    if axis.unloading is not None:
        bounds += [
            ("unloading.travel", axis.unloading.travel, "m", 2.0 * limits.stroke, "2 limits.stroke"),
            ("unloading.velocity", axis.unloading.velocity, "m/s", limits.velocity, "limits.velocity"),
        ]
    for key, value, unit, bound, meaning in bounds:
        if value is not None and value > bound:
            raise ConfigError(f"{join(path, key)} = {value:g} {unit}: must be <= {bound:g} {unit}, {meaning}")


def _check_characterised(axis: Any, path: str) -> None:
    characterised, accuracy = axis.characterised, axis.stiffness_known_to
    if characterised is None or axis.stiffness is None or accuracy is None:
        return
    off, may = (
        abs(characterised.stiffness - axis.stiffness),
        accuracy * axis.stiffness + characterised.known_to * characterised.stiffness,
    )
    if off > may:
        raise ConfigError(
            f"{join(path, 'characterised.stiffness')} = {characterised.stiffness:g} N/m "
            f"(to {characterised.known_to:.1%}): must be within {may:.4g} N/m of stiffness = "
            f"{axis.stiffness:g} N/m (to {accuracy:.1%}): wrong scale, or another specimen in the rig"
        )


STEPS = 20
"""Smallest displacement of a small move, in multiples of the sensor's resolution."""
