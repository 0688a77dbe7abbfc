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
from messages import each_mentions, mentions, naming

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report.tables import limits as limits_of
from rths_nodes.core.dimensions import unit_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import WHOLE, Limits, WholeLevels
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.levels import WHOLE_RIG, LevelWatch, level_notes, level_numbers
from rths_nodes.loop.supervision.quantities import Integral, MovingRms
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Collector

DT = 1e-3
LIMITS = {name: from_data(Limits, {"stroke": 1.0, "velocity": 1.0, "force": 1e6}) for name in ("a", "b")}
CHANNELS = ("oil [bar]", "count", "light [lx]")


def watch(quantities: Any = None, **levels: Any) -> LevelWatch:
    given = from_data(WholeLevels, {"expressions": levels, "quantities": quantities or {}})
    whole = given.in_effect(True, 1.0 / DT)
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
    assert mentions(of.told[0], "sample 2", "levels.expressions.power", "2.5 kW", "<= 2 kW")


def test_a_channel_is_named_without_its_unit() -> None:
    of = watch(oil={"of": "channel.oil", "unit": "MPa", "minimum": 20.0, "action": "stop"})
    assert of.judge(command(1, 0.0, 0.0), sample(1, (0.0, 0.0), (0.0, 0.0), 210.0)) is None
    breach = of.judge(command(2, 0.0, 0.0), sample(2, (0.0, 0.0), (0.0, 0.0), 190.0))
    assert breach is not None
    assert mentions(breach.reason, "levels.expressions.oil", "19 MPa", ">= 20 MPa")


@pytest.mark.parametrize(
    ("level", "why"),
    [
        ({"of": "force.c", "unit": "N", "maximum": 1.0}, ("expressions.x.of", "force.c")),
        (
            {"of": "force.a", "unit": "m", "maximum": 1.0},
            ("expressions.x.unit", "m", "N", "force.a"),
        ),
        ({"of": "force.a", "unit": "q", "maximum": 1.0}, ("expressions.x.unit", "q", "1", "m")),
        ({"of": "channel.light", "unit": "1", "maximum": 1.0}, ("oil", "count")),
        ({"of": "force.a", "unit": "N"}, ("has no level",)),
        (
            {"of": "force.a", "unit": "N", "minimum": 5.0},
            ("0 N", "zero"),
        ),
        (
            {"of": "force.a / displacement.a", "unit": "N/m", "maximum": 1.0},
            ("number", "rig"),
        ),
    ],
)
def test_what_cannot_be_watched_is_refused(level: dict[str, Any], why: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        watch(x=level)
    assert mentions(str(refused.value), *why)


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


def test_a_moving_rms_is_that_of_its_window_at_every_sample() -> None:
    """Over several windows, of numbers that differ by decades; what is not finite is in it for one window."""
    n, rng = 20, np.random.default_rng(3)
    x = rng.normal(size=200) * 10.0 ** rng.uniform(-3.0, 3.0, 200)
    x[50], x[131] = np.nan, np.inf
    rms = MovingRms(MovingRms.Params(of=("x",), duration=n * DT), DT)
    found = np.array([rms.step([value]) for value in x.tolist()])
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([np.zeros(n - 1), x]), n)
    expected = np.sqrt(np.mean(windows**2, axis=1))
    assert np.array_equal(np.isfinite(found), np.isfinite(expected))
    fine = np.isfinite(expected)
    assert found[fine] == pytest.approx(expected[fine], rel=1e-6)


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
            ("levels.quantities.x.of", "force.c"),
        ),
        ({"x": {"type": "integral", "of": []}}, ("0", "expressions")),
        ({"x": {"type": "integral", "of": ["quantity.x"]}}, ("quantity.x", "quantity")),
        ({"x": {"type": "integrals", "of": ["force.a"]}}, ("known", "integral", "low_pass", "moving_rms")),
    ],
)
def test_a_quantity_that_cannot_be_made_is_refused(quantities: dict[str, Any], why: tuple[str, ...]) -> None:
    for levels in ({"x": {"of": "force.a", "unit": "N", "maximum": 1.0}}, {}):  # also where no level is of it
        with pytest.raises(ConfigError) as refused:
            watch(quantities, **levels)
        assert mentions(str(refused.value), *why)


def fails(quantity: Any, values: Sequence[float]) -> float:
    raise KeyError("broken")


def gives_nothing(quantity: Any, values: Sequence[float]) -> Any:
    return None


@pytest.mark.parametrize(("step", "why"), [(fails, "KeyError: 'broken'"), (gives_nothing, "TypeError: float()")])
def test_a_quantity_that_fails_is_beyond_every_level(step: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of another package may raise what it wants: the rig stops by its level, in its name."""
    monkeypatch.setattr(Integral, "step", step)
    of = watch(
        {"heat": {"type": "integral", "of": ["force.a"]}},
        heat={"of": "quantity.heat", "unit": "N*s", "maximum": 1.0, "action": "hold"},
    )
    breach = of.judge(command(1, 0.0, 0.0), sample(1, (0.0, 0.0), (0.0, 0.0)))
    assert breach is not None
    assert breach.action == "hold"
    assert mentions(breach.reason, "levels.expressions.heat", "nan N*s", "<= 1 N*s", "levels.quantities.heat")
    assert why in breach.reason


def test_a_unit_of_another_package_does_not_scale_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of quantities are in SI units, whatever the factor of the unit that one tells."""
    monkeypatch.setattr(Integral, "unit", lambda quantity, units: unit_of("kN*s"))
    monkeypatch.setattr(Integral, "step", lambda quantity, values: 7.0)
    assert remembered({"type": "integral"}, [0.0], "N*s") == [7.0, 7.0]
    monkeypatch.setattr(Integral, "unit", lambda quantity, units: None)
    with pytest.raises(ConfigError, match=naming("levels.quantities.x", "unit")):
        remembered({"type": "integral"}, [0.0])


def test_a_low_pass_beyond_what_samples_show_is_refused() -> None:
    quantities = "{x: {type: low_pass, of: [force.story_1], frequency: 600}}"
    level = "{y: {of: quantity.x, unit: N, warn_maximum: 1}}"
    scenario = files.load("chen_ricles_2010", [f"levels.quantities={quantities}", f"levels.expressions={level}"])
    with pytest.raises(ConfigError, match=naming("levels.quantities.x.frequency", "600 Hz", "< 512 Hz")):
        Loop(Assembly(scenario))


def test_what_is_only_indicated_may_be_beyond_at_rest() -> None:
    of = watch(x={"of": "force.a", "unit": "N", "minimum": 5.0, "action": "indicate"})
    assert of.judge(command(1, 0.0, 0.0), sample(1, (0.0, 0.0), (0.0, 0.0))) is None
    assert each_mentions(of.told, ("sample 1", "levels.expressions.x", "0 N", ">= 5 N"))


def test_a_level_that_only_warns_stops_nothing_where_it_is_not_a_number() -> None:
    of = watch(x={"of": "force.a / displacement.a", "unit": "N/m", "warn_maximum": 5.0})
    assert of.judge(command(1, 0.0, 0.0), sample(1, (0.0, 0.0), (0.0, 0.0))) is None
    assert each_mentions(of.told, ("sample 1", "levels.expressions.x", "nan N/m", "<= 5 N/m"))


def test_the_notes_of_a_test_have_no_ends_of_what_never_was_a_number_and_no_unit_of_another_level() -> None:
    of = watch(
        x={"of": "force.a / channel.oil", "unit": "m^2", "maximum": 1.0},
        force={"of": "force.a", "unit": "kN", "warn_maximum": -1.0},
    )
    of.judge(command(1, 0.0, 0.0), sample(1, (0.0, 0.0), (2e3, 0.0)))
    beyond = "the level was exceeded in 1 sample, first at sample 1."
    assert each_mentions(
        level_notes(level_numbers(of)), ("levels.expressions.x", beyond), ("levels.expressions.force", beyond, "2")
    )


def test_the_name_of_another_level_is_refused() -> None:
    for name in WHOLE:
        with pytest.raises(ConfigError, match=naming("name", "level")):
            watch(**{name: {"of": "force.a", "unit": "N", "maximum": 1.0}})


def test_a_rig_file_calls_its_axes_by_their_names(tmp_path: Path) -> None:
    """An expression of a rig file holds whatever a scenario calls the axis."""
    bench = files.locate("bench_simulated", files.RIG)
    rig = parse(bench.read_text(), "rig") | {
        "levels": {"expressions": {"x": {"of": "force.bench - force.story_1", "unit": "N", "maximum": 1.0}}}
    }
    (tmp_path / "rig.yaml").write_text(dump(rig))
    loop = Loop(Assembly(files.load("chen_ricles_2010", ["duration=0.2"], rig=str(tmp_path / "rig.yaml"))))
    assert loop.run().state is State.FINISHED
    assert level_numbers(loop.rig.levels)["levels"][WHOLE_RIG]["x"] == {
        "lowest": 0.0,
        "highest": 0.0,
        "samples": 0.0,
    }


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


def test_the_report_has_each_level_in_its_own_unit() -> None:
    levels = (
        "{power: {of: abs(force.story_1 * piston_velocity.story_1), unit: kW, maximum: 1e6},"
        " stiffness: {of: force.story_1 / displacement.story_1, unit: kN/mm, warn_maximum: 1e9},"
        " share: {of: force.story_1 / force.story_1, unit: '1', warn_maximum: 2}}"
    )
    found = rths_nodes.run("chen_ricles_2010", ["duration=0.3", f"levels.expressions={levels}"])
    rows = {row.title: row for row in limits_of(Evaluation(found)).rows}
    shown = {name: rows[f"whole rig: level of {name}"].unit for name in ("power", "stiffness", "share")}
    assert shown == {"power": "kW", "stiffness": "kN/mm", "share": "1"}
    assert rows["whole rig: level of share"].values[2] == "1.00", "not 100 %"


def test_the_levels_that_the_page_shows_can_be_made() -> None:
    page = (Path(__file__).resolve().parents[2] / "doc" / "rig_file.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^    levels:\n(?:    .*\n)+", page, re.M)
    assert len(blocks) == 2
    for block in blocks:
        given = from_data(WholeLevels, parse(dedent(block), "page")["levels"])
        limits = {"north": LIMITS["a"], "south": LIMITS["b"]}
        whole = given.in_effect(True, 1 / DT)
        assert LevelWatch.of(limits, DT, CHANNELS, whole=whole, quantities=given.quantities)
