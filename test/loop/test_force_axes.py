"""Axes that are controlled by force: the loop, its limits and its changes of mode, on a simulated column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.strict import build
from rths_nodes.loop.embedded import Loop
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
    scenario = build(Scenario, data(**changes))
    watch = Watch()
    return Loop(Assembly(scenario)).run([watch]), watch


def errors(watch: Watch, start: float, end: float) -> float:
    """Largest share of the load that is missing, or too much, between two times."""
    return float(np.abs(watch.force()[int(start * 1024) : int(end * 1024)] / LOAD - 1.0).max())


@pytest.mark.parametrize("closed_by", ["nodes", "controller"])
def test_a_column_keeps_its_load_within_1_percent_at_rest_and_3_percent_while_it_drifts(closed_by: str) -> None:
    outcome, watch = run(axes__load__force_control__closed_by=closed_by)
    assert outcome.state is State.FINISHED, outcome.reason
    assert np.abs(watch.place(0)).max() == pytest.approx(DRIFT, rel=0.02)
    print(errors(watch, 4.5, MOVES), errors(watch, MOVES, 12.0))
    assert errors(watch, 4.5, MOVES) < 0.01
    assert errors(watch, MOVES, 12.0) < 0.03
