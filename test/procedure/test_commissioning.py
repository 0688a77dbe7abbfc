# SPDX-License-Identifier: Apache-2.0
"""Behind a real port no rung that moves is armed before its rig is commissioned; a simulator needs none."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import rig_walk
from commissioned import NOW, commissioned
from messages import mentions, naming

from rths_nodes.loop.commissioning import (
    EMERGENCY,
    FAILED,
    NOT_TRIED,
    PASSED,
    PRESSURE,
    STOPPED,
    WITNESSED,
    CommissioningRow,
    barred,
    rig_hash,
)
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.commissioning.rig import Bench
from rths_nodes.procedure.commissioning.trials import TRIALS, operator_row, proofs, scenario_of
from rths_nodes.procedure.machine import ActRefused

DATE = "2029-12-01T12:00:00+01:00"


@pytest.fixture(scope="module")
def scenario():
    return files.load("chen_ricles_2010", rig="bench_udp")


def change(found, **keys):
    return replace(found, **keys)


def failed(found):
    return replace(found, rows=[*found.rows[:-1], replace(found.rows[-1], verdict=FAILED)])


def stated(verdict):
    return CommissioningRow(EMERGENCY, "rig", "pressed", "", verdict)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda found: found, ()),
        (
            lambda found: None,
            ("commission", "RIG.commissioned.yaml"),
        ),
        (lambda found: change(found, build="b2"), ("b2", "b1")),
        (lambda found: change(found, rig_hash="0123"), ("channels", "0123")),
        (lambda found: change(found, date="2029-05-31T12:00:00+02:00"), ("12", "months")),
        (lambda found: change(found, date="2030-06-03T12:00:00+02:00"), ("future",)),
        (lambda found: change(found, date="yesterday"), ("date", "yesterday")),
        (lambda found: change(found, date="2029-12-01"), ("offset", "UTC")),
        (lambda found: change(found, rows=found.rows[:-1]), ("tried", PRESSURE)),
        (
            lambda found: change(found, rows=[*found.rows[:-1], replace(found.rows[-1], verdict=NOT_TRIED)]),
            ("tried", PRESSURE),
        ),
        (failed, ("pressure", "north", "0.9 mm", "1 mm")),
        (lambda found: change(found, rows=[*found.rows, stated(WITNESSED)]), ()),
        (lambda found: change(found, rows=[*found.rows, stated(NOT_TRIED)]), ("witnessed", EMERGENCY)),
        (lambda found: change(found, second_person=" "), ("signed", "persons")),
        (lambda found: change(found, second_person="a. tester"), ("signed", "persons")),
    ],
)
def test_what_is_missing_is_told(scenario, wrong, words):
    found = barred(wrong(commissioned(scenario, date=DATE)), scenario, "b1", NOW)
    assert mentions(found, *words)
    assert bool(words) == bool(found)
    assert not found or mentions(found, "rungs", "commissioned")


def test_it_holds_for_twelve_months(scenario):
    first = commissioned(scenario, date=(NOW - timedelta(days=365)).isoformat())
    assert barred(first, scenario, "b1", NOW) == ""
    assert barred(first, scenario, "b1", NOW + timedelta(days=2)) != ""


def test_before_the_receiver_has_told_its_build_none_is_compared(scenario):
    assert barred(commissioned(scenario, "b7", DATE), scenario, None, NOW) == ""


@pytest.mark.parametrize(
    ("sets", "same"),
    [
        (["axes.story_1.limits.stroke=0.2"], True),
        (["ground_motion.scale=0.1", "duration=3"], True),
        (["axes.story_1.limits.stroke=0.251"], False),
        (["axes.story_1.limits.deceleration=21.0"], False),
        (["axes.story_1.rig_axis.limits.velocity=1.21"], False),
        (["axes.story_1.rig_axis.command.sign=1"], False),
        (["port.silence=0.2"], False),
    ],
)
def test_a_rig_is_another_one_where_port_channels_or_wider_limits_differ(scenario, sets, same):
    changed = override(scenario, sets)  # as another rig file would have it
    assert (rig_hash(changed) == rig_hash(scenario)) is same


def test_what_a_scenario_calls_the_axes_does_not_matter(scenario):
    assert rig_hash(files.load("predefined_sine", rig="bench_udp")) == rig_hash(scenario)


def test_a_real_rig_runs_rung_c_only_until_it_is_commissioned(walk):
    w = walk()
    w.to_start()
    w.session.drive.port.simulated = False
    with pytest.raises(ActRefused, match=naming("arm", "commissioned")):
        w.arm("d")
    assert w.session.state is State.POSITIONED
    w.arm("c")
    w.session.stop()
    w.session.position()
    w.session.commissioned = commissioned(w.scenario, build="another")
    with pytest.raises(ActRefused, match=naming("receiver", "build")):
        w.arm("g")
    w.session.commissioned = commissioned(w.scenario, build="")
    w.arm("g")
    assert w.session.state is State.ARMED


def test_a_simulator_needs_no_commissioning(walk):
    w = walk()
    w.to_start()
    w.arm("g")


@pytest.mark.parametrize(
    "change",
    [
        ("valve", "displacement: {unit", "valve: no. 7\n    displacement: {unit"),
        ("expires", "force: {unit", "force: {expires: 2027-03-02, unit"),
        ("controller", "name: bench", "name: bench\ncontroller: firmware 5"),
    ],
)
def test_another_valve_certificate_or_firmware_is_another_rig(tmp_path, change):
    file, (_, old, new) = tmp_path / "bench.yaml", change
    file.write_text(rig_walk.RIG)
    before = rig_hash(files.load("chen_ricles_2010", rig=str(file)))
    assert old in rig_walk.RIG
    file.write_text(rig_walk.RIG.replace(old, new, 1))
    assert rig_hash(files.load("chen_ricles_2010", rig=str(file))) != before


def test_keys_that_came_later_change_no_rig_that_leaves_them_out(tmp_path: Path) -> None:
    """Of a rig file as it was, hashed before there were channels for commands in N."""
    file = tmp_path / "bench.yaml"
    file.write_text(rig_walk.RIG)
    assert rig_hash(files.load("chen_ricles_2010", rig=str(file))) == "4e3fd16b44c80896"
    file.write_text(rig_walk.RIG.replace("force: 30.0e3}", "force: 30.0e3, press: 1.0e3}"))
    assert rig_hash(files.load("chen_ricles_2010", rig=str(file))) != "4e3fd16b44c80896"


@pytest.mark.parametrize(
    ("samples", "then", "verdict"),
    [(26, State.HELD, PASSED), (52, State.HELD, FAILED), (26, State.TRIPPED, FAILED), (0, State.HELD, FAILED)],
)
def test_the_stop_of_an_operator_is_judged_by_time_way_and_state(samples, then, verdict):
    """At the limit of deceleration the stop takes 27 samples."""
    bench = Bench(scenario_of(files.load_rig("bench_udp")), False, None)  # it asks nothing
    dt, limit = bench.dt, next(iter(bench.scenario.limits.values())).deceleration
    v = 26.5 * limit * dt
    braking = [v * (1.0 - done / samples) * dt for done in range(1, samples + 1)]
    steps = [v * dt] + braking + [0.0] * 8 if samples else [v * dt] * 60
    commands = np.cumsum([0.0, *steps])[:, np.newaxis] * np.ones(len(bench.names))
    row = operator_row(bench, "fast", then, commands)
    assert (row.cause, row.what, row.verdict) == (STOPPED, "fast", verdict)
    assert mentions(row.speed, f"{v:.3g} m/s")


def test_the_sheet_has_the_proofs_of_all_trials_of_a_cause():
    causes = {cause for trial in TRIALS.values() for cause in trial.causes}
    assert proofs().keys() == causes
    for trial in TRIALS.values():
        assert all(trial.proves in proofs()[cause] for cause in trial.causes)
