"""Rehearsals: a twin that stands still goes the way of the real step, and the test does not notice it."""

from __future__ import annotations

import numpy as np
import pytest

from rths_nodes import scenario
from rths_nodes.rehearsal import CommandRehearsal, StepRehearsal
from rths_nodes.scenario import Scenario
from rths_nodes.wire import Codec

BRIEF = ("duration=0.5", "soft_start=null")


def codec_of(rig: Scenario) -> Codec:
    port = rig.build_port()
    sizes = len(port.auxiliary_names), len(port.auxiliary_inputs)
    return Codec(len(rig.dof_names()), len(rig.axes), len(rig.state_names()), *sizes)


@pytest.mark.parametrize("name", scenario.shipped())
def test_a_twin_stands_still_through_the_whole_test(name: str) -> None:
    rig = scenario.load(name, BRIEF)
    codec = codec_of(rig)
    step, command = StepRehearsal(rig), CommandRehearsal(rig)
    prescribed = rig.structure is None
    for number in range(1, rig.steps + 1):
        target = step(codec)
        assert target is not None
        assert target.step == number
        for motion in (target.displacement, target.velocity, target.acceleration):
            assert np.isfinite(motion).all() if prescribed else not motion.any()
        command(codec)
    assert step(codec) is None
    command(codec)
