# SPDX-License-Identifier: Apache-2.0
"""Axes that are controlled by force: the loop, its limits and its changes of mode, on a simulated column."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from faulty_sensors import set_sensor
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED, MODE_FORCE, MODE_HELD, Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files, judgement
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State

LOAD, STIFFNESS, DRIFT, FREQUENCY = 500e3, 1e9, 0.020, 0.5
HELD, MOVES = 0.5, 5.0
"""s at which the load begins, and the head to move."""


def data(**changes: Any) -> dict[str, Any]:
    """A column of 3 m and 1000 kN/mm under 500 kN, its head prescribed to drift; ``changes`` by dotted key."""
    column = {"column_length": 3.0}
    law = {
        "type": "feed_forward_pi",
        "stiffness": STIFFNESS,
        "integral_gain": 5.0,
        "lead": 0.0137,
        "column": column,
    }
    sine = {"type": "harmonic", "amplitude": DRIFT, "frequency": FREQUENCY, "periods": 4, "ramp_periods": 1}
    actuator = {"type": "second_order"}
    whole: dict[str, Any] = {
        "version": 1,
        "name": "column",
        "servo_rate": 1024.0,
        "substeps": 2,
        "duration": 12.0,
        "integrator": {"type": "prescribed", "displacement": {"type": "delayed", "delay": MOVES, "motion": sine}},
        "compensator": {"type": "polynomial", "delay": 0.0137, "order": 2, "spacing": 14},
        "rig": {
            "type": "axially_loaded_column",
            **column,
            "axial_stiffness": STIFFNESS,
            "lateral": {"type": "kelvin_voigt", "stiffness": 1e6, "damping": 1e4},
            "horizontal": actuator,
            "vertical": actuator,
        },
        "axes": {
            "drift": {"limits": {"stroke": 0.1, "velocity": 0.5, "force": 300e3}},
            "load": {
                "mode": "force",
                "load": {"value": LOAD, "ramp_time": 3.0, "held_for": HELD},
                "force_control": {"closed_by": "nodes", "largest_correction": 0.2e-3, "law": law},
                "limits": {
                    "stroke": 0.01,
                    "velocity": 0.02,
                    "force": 700e3,
                    "force_rate": 400e3,
                    "force_error": 100e3,
                },
            },
        },
    }
    for dotted, value in changes.items():
        *way, last = dotted.split("__")
        place = whole
        for key in way:
            place = place[key]
        place[last] = value
    return whole


class Watch:
    """A sink that keeps what it hears, in arrays."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.measured: list[Measurement] = []
        self.true: list[Measurement] = []

    def target(self, target: Any) -> None: ...

    def command(self, command: Command) -> None:
        self.commands.append(command)

    def measurement(self, measured: Measurement) -> None:
        self.measured.append(measured)

    def truth(self, true: Measurement) -> None:
        self.true.append(true)

    def state(self, sample: int, values: Any) -> None: ...

    def force(self, axis: int = 1) -> Any:
        return np.array([each.force[axis] for each in self.true])

    def place(self, axis: int = 1) -> Any:
        return np.array([each.displacement[axis] for each in self.true])


def run(**changes: Any) -> tuple[Any, Watch]:
    scenario = from_data(Scenario, data(**changes))
    watch = Watch()
    return Loop(Assembly(scenario)).run([watch]), watch


def errors(watch: Watch, start: float, end: float) -> float:
    """Largest share of the load that is missing, or too much, between two times."""
    return float(np.abs(watch.force()[int(start * 1024) : int(end * 1024)] / LOAD - 1.0).max())


@pytest.mark.parametrize("closed_by", ["nodes", "controller"])
def test_a_column_keeps_its_load_at_rest_and_while_it_drifts(closed_by: str) -> None:
    outcome, watch = run(axes__load__force_control__closed_by=closed_by)
    assert outcome.state is State.FINISHED, outcome.reason
    assert np.abs(watch.place(0)).max() == pytest.approx(DRIFT, rel=0.02)
    assert errors(watch, 4.5, MOVES) < 0.01
    assert errors(watch, MOVES, 12.0) < 0.03, "what the field asks for"
    assert errors(watch, MOVES, 12.0) < 0.0005, "what this one does without noise"
    told = outcome.metrics["force_axes"]["load"]
    assert 0.0 < told["rms_force_error_n"] < told["max_force_error_n"] < 0.03 * LOAD


def test_without_control_the_drift_takes_67_kn() -> None:
    _, watch = run(axes__load__load__held_from=4.5)
    lost = LOAD - watch.force()[int(MOVES * 1024) :]
    drift = watch.place(0)[int(MOVES * 1024) :]
    assert lost.max() == pytest.approx(STIFFNESS * np.abs(drift).max() ** 2 / 6.0, rel=5e-3)
    assert lost.max() == pytest.approx(67e3, rel=0.02)


def test_the_feed_forward_of_the_coupling_is_what_holds_the_drift_within_3_percent() -> None:
    """Feedback alone is as slow as the actuator lets it be."""
    outcome, alone = upright("feedback alone")
    assert outcome.state is State.FINISHED, outcome.reason
    assert errors(alone, MOVES, 12.0) > 0.03
    _, late = upright("without lead")
    assert 0.003 < errors(late, MOVES, 12.0) < 0.01, "without compensation of the delay"


PAGE: dict[str, tuple[list[str], dict[str, Any], float, float]] = {
    "with lead": ([], {}, 0.00135, 0.00014),
    "without lead": (
        ["axes.load.force_control.law.lead=0"],
        {"axes__load__force_control__law__lead": 0.0},
        *(0.0154, 0.0047),
    ),
    "feedback alone": (
        [
            *("axes.load.force_control.law.column=null", "axes.load.force_control.largest_correction=1e-3"),
            "axes.load.limits.force_error=400e3",
        ],
        {
            "axes__load__force_control__law__column": None,
            "axes__load__force_control__largest_correction": 1e-3,
        },
        *(0.16, 0.055),
    ),
}
"""Changes of the shipped scenario and of that above, and the shares of the load that doc/force_axes.md has."""


@cache
def upright(row: str) -> tuple[Any, Watch]:
    """The run above with the changes of a ``row``, once."""
    return run(**PAGE[row][1])


@pytest.mark.parametrize("row", PAGE)
def test_the_figures_of_the_page(row: str) -> None:
    overrides, _, inclined, at_right_angles = PAGE[row]
    shipped = Watch()
    outcome = Loop(Assembly(files.load("column_under_axial_load", overrides))).run([shipped])
    assert outcome.state is State.FINISHED, outcome.reason
    assert errors(shipped, MOVES, 14.0) == pytest.approx(inclined, rel=0.03)
    assert errors(upright(row)[1], MOVES, 12.0) == pytest.approx(at_right_angles, rel=0.03)


def test_an_inclined_actuator_that_holds_its_place_loses_166_7_kn() -> None:
    """Column and actuator incline: k d^2 / 2 (1 / L + 1 / L_a), 166.7 kN at 20 mm."""
    shipped = Watch()
    Loop(Assembly(files.load("column_under_axial_load", ["axes.load.load.held_from=4.5"]))).run([shipped])
    begin = int(MOVES * 1024)
    drift, lost = np.abs(shipped.place(0)[begin:]).max(), (LOAD - shipped.force()[begin:]).max()
    assert drift == pytest.approx(DRIFT, rel=0.01)
    closed = 0.5 * STIFFNESS * (1.0 / 3.0 + 1.0 / 2.0)
    assert lost == pytest.approx(closed * drift**2, rel=2e-3)
    assert closed * DRIFT**2 == pytest.approx(166.7e3, rel=1e-3)


NOISE = {"displacement_noise_rms": 1e-6, "force_noise_rms": 200.0}


def test_a_change_of_mode_moves_nothing_by_more_than_the_noise() -> None:
    """Under load, at rest: held, controlled by force, held again."""
    watch = run(
        duration=4.0,
        axes__load__sensors=NOISE,
        axes__load__output={"start": LOAD / STIFFNESS},
        axes__load__load={"table": [[0.0, LOAD]], "held_for": 1.0, "held_from": 2.5},
    )[1]
    modes = [each.control_mode[1] for each in watch.measured]
    assert [modes[k] for k in (500, 1500, 3000)] == [MODE_HELD, MODE_FORCE, MODE_HELD]
    place = watch.place()
    for change in (1.0, 2.5):
        around = place[int(change * 1024) - 200 : int(change * 1024) + 200]
        assert np.ptp(around) < NOISE["displacement_noise_rms"]
    assert np.ptp(place) < NOISE["displacement_noise_rms"]


def stopped(watch: Watch) -> int:
    """The first sample of the safe stop."""
    return next(k for k, each in enumerate(watch.measured) if each.flags & FLAG_TRIPPED)


@pytest.mark.parametrize("closed_by", ["nodes", "controller"])
def test_a_trip_of_another_axis_keeps_the_force_until_that_rests(closed_by: str) -> None:
    """The drift trips under way, and takes long to stop: held in place the axis would lose some of its load."""
    slow = {"axes__drift__limits__force": 9e3, "axes__drift__limits__deceleration": 0.2}
    changes = slow | {"port": {"type": "simulator", "transport_samples": 3}}
    outcome, watch = run(axes__load__force_control__closed_by=closed_by, **changes)
    assert outcome.state is State.TRIPPED
    assert "axes.drift.limits.force" in outcome.reason
    first = stopped(watch)
    assert np.abs(watch.force()[first:] / LOAD - 1.0).max() <= 0.03
    assert len(watch.measured) - first > 60
    assert all(each.control_mode[1] == MODE_FORCE for each in watch.measured[first:-4])
    assert watch.measured[-1].control_mode[1] == MODE_HELD or closed_by == "controller"


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3, 4))])
def test_stops_at_random_moments_keep_the_axial_load(seed: int) -> None:
    """With 0.3 m/s^2 for the drift the column would be left with a load that is 6 % off."""
    rng = np.random.default_rng(seed)
    scenario = files.load("column_under_axial_load", ["axes.drift.limits.deceleration=0.3"])
    for at in rng.integers(6 * 1024, 12 * 1024, 2).tolist():
        loop, watch = Loop(Assembly(scenario)), Watch()
        loop.rig.trip("somebody asks", at)
        assert loop.run([watch]).state is State.TRIPPED
        assert np.abs(watch.force()[stopped(watch) :] / 500e3 - 1.0).max() <= 0.03


@pytest.mark.parametrize("closed_by", ["nodes", "controller"])
def test_a_column_that_crushes_is_not_followed(closed_by: str) -> None:
    """Its stiffness is lost at 400 kN of the rise: 100 kN are left, which no displacement changes any more."""
    outcome, watch = run(
        axes__load__force_control__closed_by=closed_by,
        axes__load__limits__force_error=690e3,
        rig__crushing_force=400e3,
        rig__crushed_force=100e3,
    )
    assert outcome.state is State.TRIPPED
    assert "axes.load.force_control.largest_correction" in outcome.reason
    assert mentions(outcome.reason, "does", "follow", "stiffness")
    assert watch.place().max() < (LOAD / STIFFNESS) + 0.25e-3
    assert watch.place()[-1] == pytest.approx(watch.place().max(), abs=1e-5), "it stays where it is"
    assert all(not each.control_mode for each in watch.commands[stopped(watch) :])


def test_a_force_that_is_far_off_trips_at_once() -> None:
    outcome, _ = run(rig__crushing_force=400e3, rig__crushed_force=100e3)
    assert "axes.load.limits.force_error" in outcome.reason


def test_a_loop_that_would_break_a_limit_of_the_axis_is_held() -> None:
    outcome, watch = run(axes__load__limits__stroke=0.4e-3)
    assert outcome.state is State.TRIPPED
    assert mentions(outcome.reason, "axes.load.force_control", "command", "limits.stroke")
    assert "limits.stroke" in outcome.reason
    assert watch.place().max() <= 0.4e-3
    outcome, _ = run(axes__load__limits__velocity=2e-4)
    assert mentions(outcome.reason, "limits.velocity", "0.0002 m/s")


def test_a_slow_actuator_law_needs_no_transport_of_its_own() -> None:
    """Commands that act three samples late, and forces that are measured two samples late."""
    port = {"type": "simulator", "transport_samples": 3}
    delay = 0.0137 + 3.0 / 1024.0
    law = {"axes__load__force_control__law__lead": delay, "compensator__delay": delay}
    outcome, watch = run(port=port, axes__load__sensors={"force_delay": 2}, **law)
    assert outcome.state is State.FINISHED, outcome.reason
    assert errors(watch, MOVES, 12.0) < 0.03


@pytest.mark.parametrize("how", ["drifts", "frozen", "right"])
def test_a_load_cell_that_goes_wrong_leads_the_axis_by_its_largest_correction_at_most(how: str) -> None:
    """The shipped column: 10 kN of 500 kN, where a cell that drifted by 10 kN/s took 138 kN off it unnoticed."""
    scenario = files.load("column_under_axial_load")
    loop = Loop(Assembly(scenario))
    port, begin = loop.assembly.port, round(4.6 * scenario.servo_rate)
    simulator = port._port  # type: ignore[attr-defined]
    true: list[float] = []

    def look(sample: int) -> None:
        if sample == begin:
            set_sensor(simulator, 1, "force", how, -10e3)
        if sample >= begin:
            true.append(float(port.truth().force[1]))

    outcome = loop.run([], look)
    if how == "drifts":
        assert outcome.state is State.TRIPPED
        assert "largest_correction" in outcome.reason
        assert mentions(outcome.reason, "does", "follow", "load", "cell")
    else:  # what is frozen at its target tells nothing: the feed-forward alone keeps the load
        assert outcome.state is State.FINISHED
    assert np.abs(np.array(true) - LOAD).max() <= 0.03 * LOAD


def test_a_force_loop_of_a_real_controller_is_signed_for() -> None:
    scenario = files.load("column_under_axial_load", rig="column_udp")
    assert judgement.cautions(scenario, True) == []
    (found,) = judgement.cautions(scenario, False)
    assert found.name == "force_loop_not_commissioned: axes.load.force_control.closed_by"
    assert judgement.cautions(files.load("column_under_axial_load"), False) == [], "closed by the nodes"


@pytest.mark.parametrize(("largest", "refused"), [(0.2e-3, True), (10e-6, False)])
def test_a_real_rig_corrects_a_force_by_no_more_than_its_force_error(largest: float, refused: bool) -> None:
    scenario = from_data(Scenario, data(axes__load__force_control__largest_correction=largest))
    object.__setattr__(scenario.axes["drift"].limits, "tracking_error", 0.02)
    judgement.refuse(scenario, simulated=True)
    if refused:
        with pytest.raises(ConfigError, match=naming("largest_correction", "0.0002 m", "200000 N")):
            judgement.refuse(scenario, simulated=False)
    else:
        judgement.refuse(scenario, simulated=False)
