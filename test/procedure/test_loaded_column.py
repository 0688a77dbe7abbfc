# SPDX-License-Identifier: Apache-2.0
"""A session of a column under an axial load, whose force loop the nodes close."""

from __future__ import annotations

import benches
import numpy as np
import pytest
from messages import naming
from rig_walk import Walk

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import rungs


def test_a_column_is_unloaded_after_a_rung_under_load() -> None:
    """Its loop had led it elsewhere than what is sent in m: no act moved the rig any more, with 500 kN on it."""
    w = Walk(benches.COLUMN.scenario(False), [])
    w.refer()
    w.session.check()
    for name in w.session.clearance.unsigned():
        w.session.sign_for(name)
    w.session.position()
    assert w.climb("g").outcome == "finished"
    for _ in range(benches.COLUMN.settles):
        w.session.drive.tick()
    assert {act: w.session.possible()[act] for act in ("position", "unload")} == {"position": "", "unload": ""}
    done = w.session.unload()
    assert w.session.state is State.HELD
    assert abs(done.before["load"] - 500e3) < 15e3
    assert abs(done.after["load"]) < 1e3


NO_NOISE = [
    f"axes.{axis}.sensors.{channel}_noise_rms=0"
    for axis in ("drift", "load")
    for channel in ("displacement", "force")
]
SPRING = "rig.lateral={type: computed_spring, stiffness: 1e6}"


SOON = ["duration=2", "ground_motion.delay=0.8", "axes.load.load={value: 300e3, ramp_time: 1.0, held_for: 0.2}"]


@pytest.mark.parametrize("lateral", [SPRING, "rig.lateral={type: kelvin_voigt, stiffness: 1e6, damping: 1e4}"])
def test_the_force_of_a_coupled_specimen_is_computed_from_what_is_measured(lateral: str) -> None:
    """Rung d: where the column does not push its actuators, it is the force that the load cells show."""
    w = Walk(override(benches.COLUMN.scenario(False), [*NO_NOISE, *SOON, lateral]), [])
    w.refer()
    w.session.check()
    for name in w.session.clearance.unsigned():
        w.session.sign_for(name)
    w.session.position()
    cells: dict[int, np.ndarray] = {}
    w.progress = lambda sample: cells.update({sample: w.session.drive.measured.force.copy()})
    written = w.climb("d")
    assert (written.outcome, written.reason) == ("finished", ""), written
    assert w.run is not None
    assert w.run.loads is not None
    computed = np.column_stack([w.run.force, w.run.loads.force])[list(cells)]
    shown = np.array(list(cells.values()))
    assert len(cells) > 20
    assert np.abs(w.run.force).max() > 1e3
    assert w.run.loads.force[-1, 0] == pytest.approx(300e3, rel=0.03)
    share = 1e-9 if lateral == SPRING else 0.02  # a damper feels the mean velocity of a sample
    np.testing.assert_allclose(computed, shown, atol=share * np.abs(shown).max())


def test_a_coupled_rig_whose_specimen_has_mass_has_no_rung_d() -> None:
    scenario = files.load("phillips_spencer_2012")
    with pytest.raises(ConfigError, match=naming("rig.type", "coupled_servo_hydraulic")):
        rungs._forces_of(scenario)
