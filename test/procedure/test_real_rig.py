# SPDX-License-Identifier: Apache-2.0
"""Tests of the requirements that only a real rig has: commissioning, signed cautions, noise, tracking error."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from commissioned import NOW, commissioned
from messages import mentions, naming
from rig_walk import RIG

from rths_nodes.core.errors import ConfigError
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
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.commissioning.rig import Bench
from rths_nodes.procedure.commissioning.trials import TRIALS, operator_row, proofs, scenario_of
from rths_nodes.procedure.machine import ActRefused

DATE = "2029-12-01T12:00:00+01:00"
BOUNDED = ("deceleration: 20.0}", "deceleration: 20.0, tracking_error: 0.02}")
NOISE = {"displacement": 2e-6, "force": 50.0}
NAMES = [
    "never_calibrated: axes.story_1.rig_axis.displacement.calibrated",
    "never_calibrated: axes.story_1.rig_axis.force.calibrated",
    "no_servo_rate: servo_rate of the rig file bench",
]


@pytest.fixture(scope="module")
def scenario():
    return files.load("chen_ricles_2010", rig="bench_udp")


@pytest.fixture
def real(walk, monkeypatch):
    """Makes a walk on a rig whose port is no simulator, with channel ``noise`` and ``rig`` as for walk."""

    def make(noise=NOISE, rig=BOUNDED):
        monkeypatch.setattr("rths_nodes.laboratory.ports.simulator.Simulator.simulated", False)
        return walk(*(f"axes.story_1.sensors.{name}_noise_rms={value}" for name, value in noise.items()), rig=rig)

    return make


# -- Commissioning


def last_row(commissioning, verdict):
    rows = commissioning.rows
    return replace(commissioning, rows=[*rows[:-1], replace(rows[-1], verdict=verdict)])


def emergency_stop(commissioning, verdict):
    row = CommissioningRow(EMERGENCY, "rig", "pressed", "", verdict)
    return replace(commissioning, rows=[*commissioning.rows, row])


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda right: right, ()),
        (lambda right: None, ("commission", "RIG.commissioned.yaml")),
        (lambda right: replace(right, build="b2"), ("b2", "b1")),
        (lambda right: replace(right, rig_hash="0123"), ("channels", "0123")),
        (lambda right: replace(right, date="2029-05-31T12:00:00+02:00"), ("12", "months")),
        (lambda right: replace(right, date="2030-06-03T12:00:00+02:00"), ("future",)),
        (lambda right: replace(right, date="9999-06-03T12:00:00+02:00"), ("future",)),
        (lambda right: replace(right, date="yesterday"), ("date", "yesterday")),
        (lambda right: replace(right, date="2029-12-01"), ("offset", "UTC")),
        (lambda right: replace(right, rows=right.rows[:-1]), ("tried", PRESSURE)),
        (lambda right: last_row(right, NOT_TRIED), ("tried", PRESSURE)),
        (lambda right: last_row(right, FAILED), ("pressure", "north", "0.9 mm", "1 mm")),
        (lambda right: emergency_stop(right, WITNESSED), ()),
        (lambda right: emergency_stop(right, NOT_TRIED), ("witnessed", EMERGENCY)),
        (lambda right: replace(right, second_person=" "), ("signed", "persons")),
        (lambda right: replace(right, second_person="a.tester"), ("signed", "persons")),
    ],
)
def test_missing_part_of_commissioning_is_reported(scenario, change, parts):
    changed = change(commissioned(scenario, date=DATE))
    assert changed is None or "valid until" in changed.reference
    reason = barred(changed, scenario, "b1", NOW)
    assert mentions(reason, *parts)
    assert bool(parts) == bool(reason)
    assert not reason or mentions(reason, "rungs", "commissioned")


def test_commissioning_is_valid_for_twelve_months(scenario):
    commissioning = commissioned(scenario, date=(NOW - timedelta(days=365)).isoformat())
    assert barred(commissioning, scenario, "b1", NOW) == ""
    assert barred(commissioning, scenario, "b1", NOW + timedelta(days=2)) != ""


def test_unknown_build_of_receiver_is_not_compared(scenario):
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
def test_rig_hash_depends_on_port_channels_and_wider_limits(scenario, sets, same):
    changed = override(scenario, sets)  # as with another rig file
    assert (rig_hash(changed) == rig_hash(scenario)) is same


def test_rig_hash_is_independent_of_axis_names(scenario):
    assert rig_hash(files.load("predefined_sine", rig="bench_udp")) == rig_hash(scenario)


@pytest.mark.parametrize(
    "change",
    [
        ("valve", "displacement: {unit", "valve: no. 7\n    displacement: {unit"),
        ("expires", "force: {unit", "force: {expires: 2027-03-02, unit"),
        ("controller", "name: bench", "name: bench\ncontroller: firmware 5"),
        ("press", "force: 30.0e3}", "force: 30.0e3, press: 1.0e3}"),
    ],
)
def test_rig_hash_depends_on_hardware_and_settings(tmp_path, change):
    """The hash of the unchanged file is from before channels for commands in N: new keys do not change it."""
    file, (_, old, new) = tmp_path / "bench.yaml", change
    file.write_text(RIG)
    assert rig_hash(files.load("chen_ricles_2010", rig=str(file))) == "4e3fd16b44c80896"
    assert old in RIG
    file.write_text(RIG.replace(old, new, 1))
    assert rig_hash(files.load("chen_ricles_2010", rig=str(file))) != "4e3fd16b44c80896"


def test_real_rig_without_commissioning_runs_only_rung_c(walk):
    w = walk().to_start()
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


def test_simulator_needs_no_commissioning(walk):
    w = walk().to_start()
    w.arm("g")


@pytest.mark.parametrize(
    ("samples", "then", "verdict"),
    [(26, State.HELD, PASSED), (52, State.HELD, FAILED), (26, State.TRIPPED, FAILED), (0, State.HELD, FAILED)],
)
def test_operator_stop_is_judged_by_time_distance_and_state(samples, then, verdict):
    """At the limit of deceleration the stop takes 27 samples."""
    bench = Bench(scenario_of(files.load_rig("bench_udp")), False, None)
    dt, limit = bench.dt, next(iter(bench.scenario.limits.values())).deceleration
    v = 26.5 * limit * dt
    braking = [v * (1.0 - done / samples) * dt for done in range(1, samples + 1)]
    steps = [v * dt] + braking + [0.0] * 8 if samples else [v * dt] * 60
    commands = np.cumsum([0.0, *steps])[:, np.newaxis] * np.ones(len(bench.names))
    row = operator_row(bench, "fast", then, commands)
    assert (TRIALS["stops"].causes, row.what, row.verdict) == ((STOPPED,), "fast", verdict)
    assert mentions(row.speed, f"{v:.3g} m/s")


def test_sheet_has_proofs_of_all_trials():
    assert proofs().keys() == {cause for trial in TRIALS.values() for cause in trial.causes}
    for trial in TRIALS.values():
        assert all(trial.proves in proofs()[cause] for cause in trial.causes)


# -- Signed cautions


def test_simulator_needs_no_signature(walk):
    w = walk(*(f"axes.story_1.sensors.{name}_noise_rms={value}" for name, value in NOISE.items())).refer()
    assert w.session.clearance.unsigned() == []


def test_each_caution_is_signed_by_its_full_name(real):
    w = real().refer()
    session = w.session
    assert session.clearance.unsigned() == NAMES
    session.check()
    with pytest.raises(ActRefused, match=naming("displacement.calibrated", "date")):
        session.position()
    assert session.state is State.REFERENCED
    with pytest.raises(ConfigError, match=naming("sign_for", "never_calibrated")):
        session.sign_for("never_calibrated")
    w.sign_all("A. Tester")
    assert session.clearance.unsigned() == []
    assert len([text for text in w.record.deviations if mentions(text, "A. Tester")]) == len(NAMES)
    session.position()
    assert session.state is State.POSITIONED


def test_new_offsets_keep_signatures(real):
    w = real().refer()
    w.sign_all()
    w.session.confirm_offsets(w.session.take_offsets(0.05).hash, True)
    w.session.check()
    assert w.session.clearance.unsigned() == []


def test_record_states_signatures_of_earlier_test(real):
    first = real()
    first.refer()
    for name in NAMES[:2]:
        first.session.sign_for(name)
    signed = first.session.clearance.signed_cautions
    assert len(signed) == 2
    w = real().refer()
    w.session.clearance.signed_before(dict.fromkeys(signed, "by A. Tester on 2026-06-01"))
    assert w.session.clearance.unsigned() == NAMES[2:]
    assert mentions(w.record.deviations, "A. Tester", "2026-06-01")


def test_real_rig_needs_bound_of_tracking_error(real):
    with pytest.raises(ConfigError, match=naming("axes.bench.limits.tracking_error", "bench", "missing")):
        real(noise={}, rig=("", ""))
    assert real(noise={}).session.state is State.IDLE


@pytest.mark.parametrize("still", ["displacement", "force"])
def test_channel_without_noise_is_refused_on_real_rig(real, still):
    w = real(NOISE | {still: 0.0})
    with pytest.raises(ConfigError, match=naming(f"axes.bench.{still}", "0.05 s")) as refused:
        w.refer()
    assert len(refused.value.problems) == 1
    assert w.session.state is State.CONNECTED
