# SPDX-License-Identifier: Apache-2.0
"""Levels of a laboratory's own on expressions over what the rig shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import WHOLE, Limits, WholeLevels
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import parse
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.levels import WHOLE_RIG, LevelWatch, level_numbers
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Collector

DT = 1e-3
LIMITS = {name: from_data(Limits, {"stroke": 1.0, "velocity": 1.0, "force": 1e6}) for name in ("a", "b")}
CHANNELS = ("oil [bar]", "count", "light [lx]")


def watch(quantities: Any = None, **levels: Any) -> LevelWatch:
    given = from_data(WholeLevels, {"expressions": levels, "quantities": quantities or {}})
    whole = given.given(True, 1.0 / DT)
    found = LevelWatch.of(LIMITS, DT, CHANNELS, whole=whole, quantities=given.quantities)
    assert found is not None
    return found


def sample(k: int, places: tuple[float, float], forces: tuple[float, float], oil: float = 0.0) -> Measurement:
    return Measurement(k, np.array(places), np.array(forces), np.zeros(2), auxiliary=np.array([oil, 0.0, 0.0]))


def command(k: int, target: float, value: float) -> Command:
    return Command(k, np.array([target, 0.0]), np.array([value, 0.0]))


def test_every_quantity_is_what_it_is_called() -> None:
    names = {
        "displacement.b": 0.02,
        "force.a": 3.0,
        "force_rate.a": 2.0 / DT,
        "command_step.a": 0.004,
        "piston_velocity.b": 0.01 / DT,
        "command_error.a": 0.0005,
        "tracking_error.a": 0.0035 - 0.001,
        "command.a": 0.004,
        "target.a": 0.0035,
    }
    units = {"force_rate.a": "N/s", "piston_velocity.b": "m/s", "force.a": "N"}
    of = watch(
        **{
            f"x{n}": {"of": name, "unit": units.get(name, "m"), "warn_maximum": 1e9}
            for n, name in enumerate(names)
        }
    )
    of.judge(command(1, 0.0, 0.0), sample(1, (0.0, 0.01), (1.0, 0.0)))
    of.judge(command(2, 0.0035, 0.004), sample(2, (0.001, 0.02), (3.0, 0.0)))
    found = level_numbers(of)["levels"][WHOLE_RIG]
    for n, (name, value) in enumerate(names.items()):
        assert found[f"x{n}"]["highest"] == pytest.approx(value, rel=1e-12), name


def test_a_level_is_in_its_unit_and_acts_where_it_lasts() -> None:
    of = watch(
        power={
            "of": "abs(force.a * piston_velocity.a)",
            "unit": "kW",
            "maximum": 2.0,
            "warn_maximum": 1.0,
            "persistence": 3,
            "action": "hold",
        }
    )
    acted = []
    for k in range(1, 7):
        breach = of.judge(command(k, 0.0, 0.0), sample(k, (1e-3 * k, 0.0), (2.5e3, 0.0)))
        acted.append("" if breach is None else f"{breach.action}: {breach.reason}")
    words = "hold: levels.expressions.power: 2.5 kW for 3 samples: must be <= 2 kW"
    assert acted[:4] == ["", "", "", words]
    assert of.told[0] == "sample 2: levels.expressions.power: 2.5 kW: must be <= 2 kW"


def test_a_channel_is_named_without_its_unit() -> None:
    of = watch(oil={"of": "channel.oil", "unit": "MPa", "minimum": 20.0, "action": "stop"})
    assert of.judge(command(1, 0.0, 0.0), sample(1, (0.0, 0.0), (0.0, 0.0), 210.0)) is None
    breach = of.judge(command(2, 0.0, 0.0), sample(2, (0.0, 0.0), (0.0, 0.0), 190.0))
    assert breach is not None
    assert breach.reason == "levels.expressions.oil: 19 MPa: must be >= 20 MPa"


@pytest.mark.parametrize(
    ("level", "why"),
    [
        ({"of": "force.c", "unit": "N", "maximum": 1.0}, "expressions.x.of = 'force.c': 'force.c': no such force"),
        (
            {"of": "force.a", "unit": "m", "maximum": 1.0},
            "expressions.x.unit = 'm': is of another quantity than N, in which force.a",
        ),
        ({"of": "force.a", "unit": "q", "maximum": 1.0}, "expressions.x.unit = 'q': 'q' is no unit; known: 1, m"),
        ({"of": "channel.light", "unit": "1", "maximum": 1.0}, "no such channel; known: oil, count"),
        ({"of": "force.a", "unit": "N"}, "has no level"),
        (
            {"of": "force.a", "unit": "N", "minimum": 5.0},
            "is 0 N where the rig stands at zero: it would act there",
        ),
        (
            {"of": "force.a / displacement.a", "unit": "N/m", "maximum": 1.0},
            "is not a number where the rig stands",
        ),
    ],
)
def test_what_cannot_be_watched_is_refused(level: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        watch(x=level)
    assert why in str(refused.value)


def remembered(quantity: dict[str, Any], forces: Sequence[float], unit: str = "N") -> list[float]:
    """Values of a quantity of force.a, where that is as ``forces`` say."""
    of = watch({"x": {"of": ["force.a"]} | quantity}, x={"of": "quantity.x", "unit": unit, "warn_maximum": 1e9})
    for k, force in enumerate(forces, 1):
        of.judge(command(k, 0.0, 0.0), sample(k, (0.0, 0.0), (force, 0.0)))
    return [level_numbers(of)["levels"][WHOLE_RIG]["x"][end] for end in ("lowest", "highest")]


def test_an_integral_is_that_of_the_trapezoids() -> None:
    t = DT * np.arange(1001)
    force = 100.0 * np.sin(2.0 * np.pi * t)
    low, high = remembered({"type": "integral"}, force.tolist(), "N*s")
    assert low == pytest.approx(0.0, abs=1e-12)
    assert high == pytest.approx(100.0 / np.pi, rel=1e-5)


def test_a_low_pass_goes_to_its_step_by_its_time_constant() -> None:
    frequency = 1.0 / (2.0 * np.pi * 100.0 * DT)  # 100 samples
    low, high = remembered({"type": "low_pass", "frequency": frequency}, [0.0] + [1.0] * 100)
    assert (low, high) == (0.0, pytest.approx(1.0 - np.exp(-1.0), rel=1e-12))


def test_a_moving_rms_is_that_of_a_sine_over_whole_periods() -> None:
    force = 3.0 * np.sin(2.0 * np.pi * np.arange(1000) / 50.0)
    low, high = remembered({"type": "moving_rms", "duration": 50 * DT}, force.tolist())
    assert low == 0.0
    assert high == pytest.approx(3.0 / np.sqrt(2.0), rel=1e-9)


def test_quantities_are_made_from_each_other() -> None:
    of = watch(
        {
            "power": {"type": "low_pass", "of": ["force.a * piston_velocity.a"], "frequency": 400.0},
            "energy": {"type": "integral", "of": ["quantity.power"]},
        },
        energy={"of": "quantity.energy", "unit": "kJ", "maximum": 1.0},
    )
    breach, k = None, 0
    while breach is None:
        k += 1
        breach = of.judge(command(k, 0.0, 0.0), sample(k, (1e-3 * k, 0.0), (1e4, 0.0)))
    assert k == pytest.approx(101, abs=3), "10 kW for 0.1 s"


@pytest.mark.parametrize(
    ("quantities", "why"),
    [
        (
            {"x": {"type": "integral", "of": ["force.c"]}},
            "levels.quantities.x.of = ['force.c']: 'force.c': no such",
        ),
        ({"x": {"type": "integral", "of": []}}, "has 0 expressions: must have one"),
        ({"x": {"type": "integral", "of": ["quantity.x"]}}, "'quantity.x': no such quantity; known: none"),
        ({"x": {"type": "integrals", "of": ["force.a"]}}, "known: integral, low_pass, moving_rms"),
    ],
)
def test_a_quantity_that_cannot_be_made_is_refused(quantities: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        watch(quantities, x={"of": "force.a", "unit": "N", "maximum": 1.0})
    assert why in str(refused.value)


def test_the_name_of_another_level_is_refused() -> None:
    for name in WHOLE:
        with pytest.raises(ConfigError, match="is the name of a level"):
            watch(**{name: {"of": "force.a", "unit": "N", "maximum": 1.0}})


def test_a_test_is_held_where_its_damper_takes_too_much_power() -> None:
    level = '{damper: {of: "abs(force.story_1 * piston_velocity.story_1)", unit: kW, maximum: 20, action: hold}}'
    scenario = files.load("chen_ricles_2010", ["duration=3", f"levels.expressions={level}"])
    loop = Loop(Assembly(scenario))
    sink = Collector(scenario, loop.assembly.names)
    outcome = loop.run([sink])
    assert outcome.state is State.HELD
    run = sink.run(metrics={})
    velocity = np.diff(run.displacement[:, 0], prepend=0.0) * scenario.servo_rate
    first = int(np.argmax(np.abs(run.force[:, 0] * velocity) > 20e3))
    assert outcome.reason.startswith(f"sample {first}: levels.expressions.damper: ")


def test_the_levels_that_the_page_shows_can_be_made() -> None:
    page = (Path(__file__).resolve().parents[2] / "doc" / "rig_file.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^    levels:\n(?:    .*\n)+", page, re.M)
    assert len(blocks) == 2
    for block in blocks:
        given = from_data(WholeLevels, parse(dedent(block), "page")["levels"])
        limits = {"north": LIMITS["a"], "south": LIMITS["b"]}
        assert LevelWatch.of(limits, DT, CHANNELS, whole=given.given(True, 1 / DT), quantities=given.quantities)
