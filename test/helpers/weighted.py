# SPDX-License-Identifier: Apache-2.0
"""A fourth axis in force control for ``three_independent_axes``."""

from __future__ import annotations

LAWS = {
    "nodes": "{type: feed_forward_pi, stiffness: 20.0e6, lead: 0.0137}",
    "controller": "{type: servo_valve, stiffness: 20.0e6}",
}


def weight(closed_by: str) -> str:
    """Return an override: 20 kN on a spring of 20 kN/mm, applied within 0.1 s, with noise."""
    return (
        "axes.weight={mode: force, "
        "actuator: {type: second_order, natural_frequency: 15.0, damping_ratio: 0.64}, "
        "specimen: {type: kelvin_voigt, stiffness: 20.0e6, damping: 0.0}, "
        "sensors: {displacement_noise_rms: 1.0e-6, force_noise_rms: 20.0}, "
        "load: {value: 20.0e3, ramp_time: 0.1, held_for: 0.05}, "
        f"force_control: {{closed_by: {closed_by}, largest_correction: 1.0e-3, law: {LAWS[closed_by]}}}, "
        "limits: {stroke: 0.01, velocity: 0.2, force: 60.0e3, force_rate: 800.0e3, force_error: 30.0e3}}"
    )
