# SPDX-License-Identifier: Apache-2.0
"""Copies of the specimen on the rungs: in shadow up to f, used on g; frozen by the operator at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import numpy as np
import pytest
from absorber import learning, section
from messages import each_mentions, mentions, naming
from rig_walk import Walk

from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_FROZEN
from rths_nodes.loop.scenario import files, judgement
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.rehearsal import in_shadow
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import ActRefused

USED = [*learning(mode="used"), "compensator.alpha_es=29.0", "duration=1.3"]
RELEASED = slice(4, 6)
"""Columns of the recorded knowledge."""
FROZEN_AT = 700


def at_start(walk: Callable[..., Walk], *more: str, shadow: bool = True) -> Walk:
    """Before rung g of a test whose copies follow; they have learnt in ``shadow`` on rung e."""
    found = walk(*USED, *more, rig=("stiffness: 7.6e6", "stiffness: 9.9e6"))
    found.to_start()
    if shadow:
        assert found.climb("e", override(in_shadow(found.scenario), ["duration=0.1"])).outcome == "finished"
        found.session.position()
    return found


def test_the_ladder_uses_copies_on_rung_g_alone() -> None:
    scenario = files.load("chen_ricles_2010", USED, rig="bench_simulated")
    ladder = Ladder(scenario, ("a", "b", "c", "d", "e", "f", "g"), 0.3, 2, False)
    modes = {}
    for name in ladder.planned:
        updating = ladder.step(name).scenario.updating
        assert updating is not None
        modes[name] = updating.mode
    assert modes == dict.fromkeys("cdef", "shadow") | dict.fromkeys("abg", "used")


def test_a_ladder_with_an_unstable_corner_is_refused_before_the_rig_is_connected() -> None:
    wide = section(mode="used")
    wide["parameters"]["stiffness"]["bounds"] = [5e6, 3e10]
    changes = [*USED, *learning(**wide), "integrator.type=explicit_newmark"]
    scenario = files.load("chen_ricles_2010", changes, rig="bench_simulated")
    Ladder(scenario, ("d", "e", "f"), 0.3, 2, False).check()
    with pytest.raises(ConfigError, match=naming("unstable", "corner", "bounds")):
        Ladder(scenario, ("d", "g"), 0.3, 2, False).check()


def test_copies_are_used_behind_a_rung_on_which_they_learnt_in_shadow(walk: Callable[..., Walk]) -> None:
    w = at_start(walk, shadow=False)
    with pytest.raises(ActRefused, match=naming("updating.mode", "used", "comes")):
        w.arm("g")
    w.arm("g", in_shadow(w.scenario))
    w.session.stop()
    w.session.position()
    assert w.climb("e", override(in_shadow(w.scenario), ["duration=0.1"])).outcome == "finished"
    w.session.position()
    assert w.climb("g").outcome == "finished"
    assert w.run is not None
    assert np.ptp(w.run.updating[:, RELEASED], axis=0).min() > 0.0


def test_who_uses_copies_on_a_real_rig_signs_for_it() -> None:
    scenario = files.load("chen_ricles_2010", USED, rig="bench_simulated")
    (asked,) = [each for each in judgement.cautions(scenario, False) if each.name.startswith("copies_that")]
    assert asked.name == "copies_that_follow: updating.mode"
    assert mentions(asked.words, "updating.mode", "story_1")
    names = [each.name for each in judgement.cautions(in_shadow(scenario), False, date.today())]
    assert asked.name not in names
    assert asked.name not in [each.name for each in judgement.cautions(scenario, True)]


def test_copies_that_are_frozen_stay_as_they_are_from_the_next_sample_on(walk: Callable[..., Walk]) -> None:
    w = at_start(walk)
    assert w.climb("g").outcome == "finished"
    free = w.run
    w = at_start(walk)

    def freeze(sample: int) -> None:
        if sample == FROZEN_AT:
            assert w.session.possible()["freeze"] == ""
            w.session.freeze()
            with pytest.raises(ActRefused, match=naming("freeze", "frozen")):
                w.session.freeze()

    w.progress = freeze
    written = w.climb("g")
    assert written.outcome == "finished"
    frozen = w.run
    assert free is not None
    assert frozen is not None
    begins = int(np.flatnonzero(frozen.flags & FLAG_FROZEN)[0])
    assert FROZEN_AT < begins <= FROZEN_AT + 1
    assert (frozen.flags[begins:] & FLAG_FROZEN).all()
    assert mentions(written.remarks, "frozen", f"sample {begins}")
    before = frozen.updating_time * w.scenario.servo_rate < begins
    np.testing.assert_array_equal(frozen.updating[before], free.updating[: before.sum()])
    assert np.ptp(frozen.updating[~before][1:, RELEASED], axis=0).max() == 0.0
    assert np.ptp(free.updating[before.sum() + 1 :, RELEASED], axis=0).min() > 0.0
    np.testing.assert_array_equal(frozen.dof_displacement[: begins // 10], free.dof_displacement[: begins // 10])


def test_what_is_held_can_be_frozen_and_goes_on(walk: Callable[..., Walk]) -> None:
    w = at_start(walk, "time_ratio=2", "duration=1", shadow=False)
    asked = []

    def held(state: State) -> None:
        if state is State.HELD and not w.session.possible()["resume"]:
            w.session.freeze()
            asked.append(w.session.possible()["freeze"])
            w.session.resume()

    w.on_state = held
    w.progress = lambda sample: w.session.hold("coffee") if sample == 300 else None
    written = w.climb("e", in_shadow(w.scenario))
    assert written.outcome == "finished"
    assert each_mentions(asked, ("copies", "frozen", "already"))
    assert mentions(written.remarks[0], "frozen")
    assert "sample 3" in written.remarks[0]


def test_without_copies_there_is_nothing_to_freeze(walk: Callable[..., Walk]) -> None:
    w = walk()
    w.to_start()
    told = []
    w.progress = lambda sample: told.append(w.session.possible()["freeze"])
    w.climb("g")
    assert len(set(told)) == 1
    assert mentions(told[0], "section updating")
    assert mentions(w.session.possible()["freeze"], "learns", "rung")
    with pytest.raises(ActRefused, match=naming("freeze", "learns")):
        w.session.freeze()
