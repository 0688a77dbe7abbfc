# SPDX-License-Identifier: Apache-2.0
"""Healthy rigs for the shipped scenarios, and short tests on them that must raise no remark."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.validation import from_data, to_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rehearsal import slower
from rths_nodes.loop.scenario.rig_file import RigFile, on_rig
from rths_nodes.loop.scenario.schema import Axis, Scenario

QUIET = 2e-6
"""Smallest noise of a displacement sensor, m rms."""
FINE = 1e-5
"""Smallest noise of a load cell, relative to the limit of force, rms."""
LOAD_STEP = 5e-6
"""Coarsest resolution of the displacement of a force-controlled axis, which moves by tenths of a mm, m."""
DURATIONS = {1: 2.5, 10: 0.6, 50: 0.3}
"""Duration of a short test in time of the structure, by its time ratio, s."""
EL_CENTRO = ("ground_motion.begin=1.2",)
BENCHMARK = ("ground_motion.begin=4.5",)
STRONG = {
    "column_under_axial_load": (
        "axes.load.load={value: 100.0e3, ramp_time: 0.6, held_for: 0.1}",
        "ground_motion.delay=0.7",
        "ground_motion.motion.amplitude=0.4",  # a larger one would exceed the bound of the load
    ),
    "marths_2023": BENCHMARK,
    "rths_benchmark_2020": BENCHMARK,
} | dict.fromkeys(
    (
        *("chen_ricles_2010", "horiuchi_1996_energy_absorber", "horiuchi_1996_four_story", "learning_five_story"),
        *("phillips_spencer_2012", "tadc_el_centro", "tall_frame", "three_independent_axes"),
        *("two_actuator_coupler", "yielding_five_story"),
    ),
    EL_CENTRO,
)
"""Overrides that start a short test near the strong part of its ground motion."""
LATER = {"column_under_axial_load": 1.5, "rths_benchmark_2020": 0.5, "marths_2023": 0.5}
"""Additional duration until the strong part, s."""


def short(name: str, ratio: int, seed: int = 1, case: str = "") -> Scenario:
    """Return a shipped scenario as a short test at the time ratio, without a rig file."""
    duration = DURATIONS[ratio] + LATER.get(name, 0.0)
    return slower(files.load(name, [f"seed={seed}", f"duration={duration}", *STRONG.get(name, ())], case), ratio)


def on_healthy_rig(plain: Scenario, resolution: float) -> Scenario:
    """Return ``plain`` on a rig with its limits; displacement sensors have the resolution ``resolution``, m."""
    axes = {name: _axis(axis, resolution) for name, axis in plain.axes.items()}
    port = {"type": "simulator", "transport_samples": 1, "hydraulics": "high", "interlock": "closed"}
    rig = from_data(RigFile, {"version": 1, "name": "healthy", "port": port, "axes": axes})
    return from_data(Scenario, on_rig(plain.data(), rig))


def _axis(axis: Axis, resolution: float) -> dict[str, Any]:
    limits, by_force = axis.limits, axis.limits.of_force
    move = 0.1e-3 if by_force else 1e-3
    channel = {"unit": "m", "range": 1.2 * limits.stroke}
    noise = max(axis.sensors.displacement_noise_rms, QUIET)
    step = min(resolution, LOAD_STEP) if by_force else resolution
    force_noise = max(axis.sensors.force_noise_rms, FINE * limits.force)
    velocity = min(5e-3, limits.velocity)
    return {
        "displacement": channel | {"resolution": step, "noise_rms": noise},
        "command": channel,
        "force": {"unit": "N", "range": 1.2 * limits.force, "noise_rms": force_noise},
        "limits": to_data(limits),
        "elastic_limit": limits.stroke,
        "small_move": {"displacement": move, "velocity": 4.0 * move, "force": 0.5 * limits.force},
        "unloading": {"travel": limits.stroke, "velocity": velocity, "carries_gravity": by_force},
        "force_control": to_data(axis.force_control) if by_force else None,
    }
