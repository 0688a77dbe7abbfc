# SPDX-License-Identifier: Apache-2.0
"""Simulated rigs for tests of slow motions: their scenarios, and the connected drive with its offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rths_nodes.core.samples import Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rig_file import RigFile, on_rig
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.clearance import Offsets
from rths_nodes.procedure.drive import RigDrive

Axes = Mapping[str, Mapping[str, Any]]
WAVE = {"type": "sine", "amplitude": 0.01, "frequency": 1.0}


def independent(axes: Axes, rig_axes: Axes) -> Scenario:
    """Return a scenario of ``axes``, with ``rig_axes`` in its rig file."""
    actuator = {"type": "first_order", "alpha": 29.0}
    data = {
        "version": 1,
        "name": "slow",
        "servo_rate": 256.0,
        "substeps": 1,
        "duration": 1.0,
        "integrator": {"type": "prescribed", "displacement": WAVE},
        "compensator": {"type": "none"},
        "axes": {name: {"actuator": actuator, **axis} for name, axis in axes.items()},
    }
    return _on_rig(data, rig_axes)


def coupled(changes: Sequence[str], **rig_axis: Any) -> Scenario:
    """Return marths_2023, whose frame couples its actuators; ``rig_axis``: more keys of axes of the rig file."""
    data = files.load("marths_2023", changes).data()
    rig_axis |= {
        "displacement": {"unit": "m", "range": 0.03},
        "force": {"unit": "N", "range": 60e3},
        "command": {"unit": "m", "range": 0.02847},
        "limits": {"stroke": 0.0281, "velocity": 10.0, "force": 60e3},
    }
    return _on_rig(data, dict.fromkeys(data["axes"], rig_axis))


def _on_rig(data: dict[str, Any], axes: Axes) -> Scenario:
    port = {"type": "simulator", "transport_samples": 1}
    file = from_data(RigFile, {"version": 1, "name": "bench", "port": port, "axes": axes})
    return from_data(Scenario, on_rig(data, file))


def connected(scenario: Scenario, unloaded: bool = True) -> tuple[RigDrive, Offsets, list[Measurement]]:
    """Return the held rig, its offsets, and the list of its measurements."""
    measurements: list[Measurement] = []
    drive = RigDrive(Assembly(scenario).port, scenario, False, receivers=[measurements.append])
    drive.connect()
    for _ in range(128):
        drive.tick()
    command = drive.port.active_command
    offsets = Offsets.of(tuple(scenario.axes), measurements, command, drive.command, "", 0.5)
    return drive, replace(offsets, unloaded=unloaded, confirmed=True), measurements
