# SPDX-License-Identifier: Apache-2.0
"""Tests of rungs with updated copies of the specimen, and with a column whose force loop the nodes close."""

from __future__ import annotations

from types import SimpleNamespace

import benches
import numpy as np
import pytest
from absorber import learning, section
from messages import mentions, naming
from rig_walk import Walk

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Measurement
from rths_nodes.loop.scenario import files, judgement
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.rehearsal import slower
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import rungs

USED = [*learning(mode="used"), "compensator.alpha_es=29.0", "duration=1.3"]
PARAMETERS = slice(4, 6)
"""Columns of the recorded knowledge with the parameters in use."""


def test_copies_are_used_on_simulated_rig(walk):
    w = walk(*USED, rig=("stiffness: 7.6e6", "stiffness: 9.9e6")).to_start()
    assert w.climb("g").outcome == "finished"
    assert np.ptp(w.run.updating[:, PARAMETERS], axis=0).min() > 0.0


def test_unstable_corner_of_bounds_is_refused():
    wide = section(mode="used")
    wide["parameters"]["stiffness"]["bounds"] = [5e6, 3e10]
    changes = [*USED, *learning(**wide), "integrator.type=explicit_newmark"]
    with pytest.raises(ConfigError, match=naming("unstable", "corner", "bounds")):
        hosts.run(files.load("chen_ricles_2010", changes, rig="bench_simulated"))


def test_used_copies_are_refused_on_real_rig():
    scenario = files.load("chen_ricles_2010", USED, rig="bench_simulated")
    problems = []
    for mode in ("used", "shadow"):
        with pytest.raises(ConfigError) as refused:
            judgement.refuse(override(scenario, [f"updating.mode={mode}"]), simulated=False)
        problems.append(set(refused.value.problems))
    (problem,) = problems[0] - problems[1]
    assert mentions(problem, "updating.mode = used", "must be shadow", "simulated rig")


# -- A column under axial load


def positioned_column(*changes):
    return Walk(override(benches.COLUMN.scenario(False), list(changes)), []).to_start(signs=True)


def test_column_is_unloaded_after_rung_under_load():
    """The force loop had moved it away from its command in m: no act moved the rig any more, with 500 kN on it."""
    w = positioned_column()
    assert w.climb("g").outcome == "finished"
    w.tick(benches.COLUMN.settles)
    assert {act: w.session.possible()[act] for act in ("position", "unload")} == {"position": "", "unload": ""}
    record = w.session.unload()
    assert w.session.state is State.HELD
    assert abs(record.before["load"] - 500e3) < 15e3
    assert abs(record.after["load"]) < 1e3


def test_reported_force_command_is_relative_to_the_zero_of_forces():
    """A command in N that the controller reports later than it was sent had kept the tare of the load cell."""
    tares = Tares(np.zeros(2), np.array([3.0, 4e3]), np.array([1e-3, 2e-3]), np.full(2, np.inf))
    port = rungs.RungPort(SimpleNamespace(port=None, realtime=False), tares)
    measured = Measurement(1, np.zeros(2), np.zeros(2), np.array([5e-3, 54e3]))
    measured.control_mode = bytes([MODE_DISPLACEMENT, MODE_FORCE])
    assert port._presented(measured).command[0] == 4e-3
    port._modes = b"", measured.control_mode
    assert port._presented(measured).command.tolist() == [4e-3, 50e3]


@pytest.mark.parametrize("offset", [0.0, 0.15e-3])
def test_column_returns_to_start_after_rung_under_load(offset):
    """The offset of the displacement sensor had moved the column from its start, under 150 kN."""
    w = positioned_column(f"axes.load.sensors.displacement_offset={offset}")
    assert w.climb("g").outcome == "finished"
    w.session.position()
    assert abs(w.session.drive.port.truth().displacement[1]) < 5e-6


def test_interlock_of_held_rung_moves_no_column_under_load():
    """The force command had counted as a position, so that the command ran to the end of the stroke."""
    w = positioned_column()
    drive, port, held = w.session.drive, w.session.drive.port, []

    def on_measurement(measured):
        held.extend([measured] if w.session.suspended else [])
        if len(held) == 3 * drive.loss.taken_after:
            port.set_interlock(False)

    drive.receivers.append(on_measurement)
    w.progress = lambda sample: w.session.hold() if sample == 1200 else None
    assert w.climb("e", slower(w.scenario, 2)).outcome == "tripped"
    before = port.truth()
    w.tick(20)
    assert abs(drive.command[1] - before.displacement[1]) < 10e-6
    port.set_interlock(True)
    w.tick(benches.COLUMN.settles)
    assert port.truth().force[1] == pytest.approx(before.force[1], abs=10e3)


NO_NOISE = [
    f"axes.{axis}.sensors.{channel}_noise_rms=0"
    for axis in ("drift", "load")
    for channel in ("displacement", "force")
]
SPRING = "rig.lateral={type: computed_spring, stiffness: 1e6}"
EARLY = ["duration=2", "ground_motion.delay=0.8", "axes.load.load={value: 300e3, ramp_time: 1.0, held_for: 0.2}"]


@pytest.mark.parametrize("lateral", [SPRING, "rig.lateral={type: kelvin_voigt, stiffness: 1e6, damping: 1e4}"])
def test_computed_force_of_column_equals_measured_force(lateral):
    """On rung d the column does not act back on its actuators."""
    w = positioned_column(*NO_NOISE, *EARLY, lateral)
    measured = {}
    w.progress = lambda sample: measured.update({sample: w.session.drive.measured.force.copy()})
    result = w.climb("d")
    assert (result.outcome, result.reason) == ("finished", ""), result
    computed = np.column_stack([w.run.force, w.run.loads.force])[list(measured)]
    forces = np.array(list(measured.values()))
    assert len(measured) > 20
    assert np.abs(w.run.force).max() > 1e3
    assert w.run.loads.force[-1, 0] == pytest.approx(300e3, rel=0.03)
    tolerance = 1e-9 if lateral == SPRING else 0.02  # a damper depends on the mean velocity of a sample
    np.testing.assert_allclose(computed, forces, atol=tolerance * np.abs(forces).max())


def test_coupled_specimen_with_mass_has_no_rung_d():
    with pytest.raises(ConfigError, match=naming("rig.type", "coupled_servo_hydraulic")):
        rungs._forces_of(files.load("phillips_spencer_2012"))
