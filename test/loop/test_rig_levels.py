# SPDX-License-Identifier: Apache-2.0
"""Tests of levels of the whole rig: bridges, parameters at their bounds, expressions over measured values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from loop_parts import simulate
from messages import each_mentions, mentions, naming

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report.tables import limits as limits_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.expressions import unit_of
from rths_nodes.core.limits import WHOLE, Limits, WholeLevels
from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_BRIDGED, Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.loop.embedded import Loop, checked_loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.levels import WHOLE_RIG, LevelWatch, level_notes
from rths_nodes.loop.supervision.quantities import Integral, MovingRms
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Run

DT = 1e-3
NONE = ("", "")
LIMITS = {name: from_data(Limits, {"stroke": 1.0, "velocity": 1.0, "force": 1e6}) for name in ("a", "b")}
CHANNELS = ("oil [bar]", "count", "light [lx]")


def watch_levels(data: dict[str, Any], simulated: bool = True, limits: dict[str, Limits] = LIMITS) -> Any:
    levels = from_data(WholeLevels, data)
    in_effect = levels.in_effect(simulated, 1.0 / DT)
    return LevelWatch(limits, DT, CHANNELS, whole=in_effect, quantities=levels.quantities)


def watch(quantities: Any = None, **expressions: Any) -> LevelWatch:
    return watch_levels({"expressions": expressions, "quantities": quantities or {}})


def sample(
    k: int, displacements: Sequence[float] = (0.0, 0.0), forces: Sequence[float] = (0.0, 0.0), oil: float = 0.0
) -> Measurement:
    channels = np.array([oil, 0.0, 0.0])
    return Measurement(k, np.array(displacements), np.array(forces), np.zeros(2), auxiliary=channels)


def command(k: int, target: float = 0.0, value: float = 0.0) -> Command:
    return Command(k, np.array([target, 0.0]), np.array([value, 0.0]))


def test_names_in_expressions() -> None:
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
    data = [{"of": name, "unit": units.get(name, "m"), "warn_maximum": 1e9} for name in names]
    levels = watch(**{f"x{n}": level for n, level in enumerate(data)})
    levels.judge(command(1), sample(1, (0.0, 0.01), (1.0, 0.0)))
    levels.judge(command(2, 0.0035, 0.004), sample(2, (0.001, 0.02), (3.0, 0.0)))
    numbers = levels.numbers()[WHOLE_RIG]
    for n, (name, value) in enumerate(names.items()):
        assert numbers[f"x{n}"]["highest"] == pytest.approx(value, rel=1e-12), name


def test_expression_level_has_unit_and_persistence() -> None:
    level = {"of": "abs(force.a * piston_velocity.a)", "unit": "kW", "maximum": 2.0, "warn_maximum": 1.0}
    levels = watch(power=level | {"persistence": 3, "action": "hold"})
    acted = []
    for k in range(1, 7):
        breach, action = levels.judge(command(k), sample(k, (1e-3 * k, 0.0), (2.5e3, 0.0)))
        acted.append(f"{action}: {breach}" if breach else "")
    reason = "hold: levels.expressions.power: 2.5 kW for 3 samples: must be <= 2 kW"
    assert acted[:4] == ["", "", "", reason]
    assert mentions(levels.told[0], "sample 2", "levels.expressions.power", "2.5 kW", "<= 2 kW")


def test_channel_is_named_without_unit() -> None:
    levels = watch(oil={"of": "channel.oil", "unit": "MPa", "minimum": 20.0, "action": "stop"})
    assert levels.judge(command(1), sample(1, oil=210.0)) == NONE
    breach, _ = levels.judge(command(2), sample(2, oil=190.0))
    assert mentions(breach, "levels.expressions.oil", "19 MPa", ">= 20 MPa")


@pytest.mark.parametrize(
    ("level", "why"),
    [
        ({"of": "force.c", "unit": "N", "maximum": 1.0}, ("expressions.x.of", "force.c")),
        ({"of": "force.a", "unit": "m", "maximum": 1.0}, ("expressions.x.unit", "m", "N", "force.a")),
        ({"of": "force.a", "unit": "q", "maximum": 1.0}, ("expressions.x.unit", "q", "1", "m")),
        ({"of": "channel.light", "unit": "1", "maximum": 1.0}, ("oil", "count")),
        ({"of": "force.a", "unit": "N"}, ("has no level",)),
        ({"of": "force.a", "unit": "N", "minimum": 5.0}, ("0 N", "zero")),
        ({"of": "force.a / displacement.a", "unit": "N/m", "maximum": 1.0}, ("number", "rig")),
    ],
)
def test_invalid_expression_is_refused(level: dict[str, Any], why: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*why)):
        watch(x=level)


def extremes(quantity: dict[str, Any], forces: Sequence[float], unit: str = "N") -> list[float]:
    """Lowest and highest value of a quantity of force.a, for a history of ``forces``."""
    level = {"of": "quantity.x", "unit": unit, "warn_maximum": 1e9}
    levels = watch({"x": {"of": ["force.a"]} | quantity}, x=level)
    for k, force in enumerate(forces, 1):
        levels.judge(command(k), sample(k, forces=(force, 0.0)))
    return [levels.numbers()[WHOLE_RIG]["x"][end] for end in ("lowest", "highest")]


def test_integral_uses_trapezoidal_rule() -> None:
    t = DT * np.arange(1001)
    force = 100.0 * np.sin(2.0 * np.pi * t)
    low, high = extremes({"type": "integral"}, force.tolist(), "N*s")
    assert low == pytest.approx(0.0, abs=1e-12)
    assert high == pytest.approx(100.0 / np.pi, rel=1e-5)


def test_low_pass_step_response() -> None:
    frequency = 1.0 / (2.0 * np.pi * 100.0 * DT)  # 100 samples
    low, high = extremes({"type": "low_pass", "frequency": frequency}, [0.0] + [1.0] * 100)
    assert (low, high) == (0.0, pytest.approx(1.0 - np.exp(-1.0), rel=1e-12))


def test_moving_rms_of_sine() -> None:
    force = 3.0 * np.sin(2.0 * np.pi * np.arange(1000) / 50.0)
    low, high = extremes({"type": "moving_rms", "duration": 50 * DT}, force.tolist())
    assert low == 0.0
    assert high == pytest.approx(3.0 / np.sqrt(2.0), rel=1e-9)


def test_moving_rms_equals_rms_of_window() -> None:
    """Values that differ by decades, over several windows; a value that is not finite affects one window."""
    n, rng = 20, np.random.default_rng(3)
    x = rng.normal(size=200) * 10.0 ** rng.uniform(-3.0, 3.0, 200)
    x[50], x[131] = np.nan, np.inf
    rms = MovingRms(MovingRms.Params(of=("x",), duration=n * DT), DT)
    result = np.array([rms.step([value]) for value in x.tolist()])
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([np.zeros(n - 1), x]), n)
    expected = np.sqrt(np.mean(windows**2, axis=1))
    assert np.array_equal(np.isfinite(result), np.isfinite(expected))
    finite = np.isfinite(expected)
    assert result[finite] == pytest.approx(expected[finite], rel=1e-6)


def test_quantity_of_quantity() -> None:
    levels = watch(
        {
            "power": {"type": "low_pass", "of": ["force.a * piston_velocity.a"], "frequency": 400.0},
            "energy": {"type": "integral", "of": ["quantity.power"]},
        },
        energy={"of": "quantity.energy", "unit": "kJ", "maximum": 1.0},
    )
    k = 1
    while levels.judge(command(k), sample(k, (1e-3 * k, 0.0), (1e4, 0.0))) == NONE:
        k += 1
    assert k == pytest.approx(101, abs=3), "10 kW for 0.1 s"


@pytest.mark.parametrize(
    ("quantities", "why"),
    [
        ({"x": {"type": "integral", "of": ["force.c"]}}, ("levels.quantities.x.of", "force.c")),
        ({"x": {"type": "integral", "of": []}}, ("0", "expressions")),
        ({"x": {"type": "integral", "of": ["quantity.x"]}}, ("quantity.x", "quantity")),
        ({"x": {"type": "integrals", "of": ["force.a"]}}, ("known", "integral", "low_pass", "moving_rms")),
    ],
)
def test_invalid_quantity_is_refused(quantities: dict[str, Any], why: tuple[str, ...]) -> None:
    for levels in ({"x": {"of": "force.a", "unit": "N", "maximum": 1.0}}, {}):  # with and without a level on it
        with pytest.raises(ConfigError, match=naming(*why)):
            watch(quantities, **levels)


def fails(quantity: Any, values: Sequence[float]) -> float:
    raise KeyError("broken")


def gives_nothing(quantity: Any, values: Sequence[float]) -> Any:
    return None


@pytest.mark.parametrize(("step", "why"), [(fails, "KeyError: 'broken'"), (gives_nothing, "TypeError: float()")])
def test_failing_quantity_breaks_its_level(step: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quantity of another package may raise any exception; the reason names it."""
    monkeypatch.setattr(Integral, "step", step)
    levels = watch(
        {"heat": {"type": "integral", "of": ["force.a"]}},
        heat={"of": "quantity.heat", "unit": "N*s", "maximum": 1.0, "action": "hold"},
    )
    breach, action = levels.judge(command(1), sample(1))
    assert action == "hold"
    assert mentions(breach, "levels.expressions.heat", "nan N*s", "<= 1 N*s", "levels.quantities.heat", why)


def test_unit_of_other_package_does_not_scale_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of quantities are in SI units, even if the declared unit has a factor."""
    monkeypatch.setattr(Integral, "unit", lambda quantity, units: unit_of("kN*s"))
    monkeypatch.setattr(Integral, "step", lambda quantity, values: 7.0)
    assert extremes({"type": "integral"}, [0.0], "N*s") == [7.0, 7.0]
    monkeypatch.setattr(Integral, "unit", lambda quantity, units: None)
    with pytest.raises(ConfigError, match=naming("levels.quantities.x", "unit")):
        extremes({"type": "integral"}, [0.0])


def test_low_pass_above_nyquist_frequency_is_refused() -> None:
    quantities = "{x: {type: low_pass, of: [force.story_1], frequency: 600}}"
    level = "{y: {of: quantity.x, unit: N, warn_maximum: 1}}"
    scenario = files.load("chen_ricles_2010", [f"levels.quantities={quantities}", f"levels.expressions={level}"])
    with pytest.raises(ConfigError, match=naming("levels.quantities.x.frequency", "600 Hz", "< 512 Hz")):
        Loop(Assembly(scenario))


def test_indicated_level_may_be_exceeded_at_rest() -> None:
    levels = watch(x={"of": "force.a", "unit": "N", "minimum": 5.0, "action": "indicate"})
    assert levels.judge(command(1), sample(1)) == NONE
    assert each_mentions(levels.told, ("sample 1", "levels.expressions.x", "0 N", ">= 5 N"))


def test_nan_of_warning_level_does_not_stop() -> None:
    levels = watch(x={"of": "force.a / displacement.a", "unit": "N/m", "warn_maximum": 5.0})
    assert levels.judge(command(1), sample(1)) == NONE
    assert each_mentions(levels.told, ("sample 1", "levels.expressions.x", "nan N/m", "<= 5 N/m"))


def test_level_notes_omit_nan_and_unit_of_other_level() -> None:
    levels = watch(
        x={"of": "force.a / channel.oil", "unit": "m^2", "maximum": 1.0},
        force={"of": "force.a", "unit": "kN", "warn_maximum": -1.0},
    )
    levels.judge(command(1), sample(1, forces=(2e3, 0.0)))
    beyond = "the level was exceeded in 1 sample, first at sample 1."
    parts = ("levels.expressions.x", beyond), ("levels.expressions.force", beyond, "2")
    assert each_mentions(level_notes({"levels": levels.numbers()}), *parts)


def test_name_of_built_in_level_is_refused() -> None:
    for name in WHOLE:
        with pytest.raises(ConfigError, match=naming("name", "level")):
            watch(**{name: {"of": "force.a", "unit": "N", "maximum": 1.0}})


def test_expressions_of_rig_file_use_its_axis_names(tmp_path: Path) -> None:
    """The name of the axis in the rig file is valid for every scenario."""
    bench = files.locate("bench_simulated", files.RIG)
    rig = parse(bench.read_text(), "rig") | {
        "levels": {"expressions": {"x": {"of": "force.bench - force.story_1", "unit": "N", "maximum": 1.0}}}
    }
    (tmp_path / "rig.yaml").write_text(dump(rig))
    loop = Loop(Assembly(files.load("chen_ricles_2010", ["duration=0.2"], rig=str(tmp_path / "rig.yaml"))))
    assert loop.run().state is State.FINISHED
    assert loop.rig.levels.numbers()[WHOLE_RIG]["x"] == {"lowest": 0.0, "highest": 0.0, "samples": 0.0}


def test_level_of_damper_power_holds_test() -> None:
    level = '{damper: {of: "abs(force.story_1 * piston_velocity.story_1)", unit: kW, maximum: 20, action: hold}}'
    scenario = files.load("chen_ricles_2010", ["duration=3", f"levels.expressions={level}"])
    outcome, run = simulate(scenario)
    assert outcome.state is State.HELD
    velocity = np.diff(run.displacement[:, 0], prepend=0.0) * scenario.servo_rate
    first = int(np.argmax(np.abs(run.force[:, 0] * velocity) > 20e3))
    assert outcome.reason.startswith(f"sample {first}: levels.expressions.damper: ")


def level_rows(run: Run) -> dict[str, Any]:
    """Rows of the levels of the whole rig in the report of a run."""
    prefix, rows = "whole rig: level of ", limits_of(Evaluation(run)).rows
    return {row.title.removeprefix(prefix): row for row in rows if row.title.startswith(prefix)}


def test_report_has_unit_of_each_level() -> None:
    levels = (
        "{power: {of: abs(force.story_1 * piston_velocity.story_1), unit: kW, maximum: 1e6},"
        " stiffness: {of: force.story_1 / displacement.story_1, unit: kN/mm, warn_maximum: 1e9},"
        " share: {of: force.story_1 / force.story_1, unit: '1', warn_maximum: 2}}"
    )
    rows = level_rows(rths_nodes.run("chen_ricles_2010", ["duration=0.3", f"levels.expressions={levels}"]))
    units = {name: rows[name].unit for name in ("power", "stiffness", "share")}
    assert units == {"power": "kW", "stiffness": "kN/mm", "share": "1"}
    assert rows["share"].values[2] == "1.00", "not 100 %"


def test_levels_of_page_are_valid() -> None:
    page = (Path(__file__).resolve().parents[2] / "doc" / "rig_file.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^    levels:\n(?:    .*\n)+", page, re.M)
    assert len(blocks) == 2
    for block in blocks:
        data = parse(dedent(block), "page")["levels"]
        assert watch_levels(data, limits={"north": LIMITS["a"], "south": LIMITS["b"]})


# Levels of the package


def actions(levels: LevelWatch, flags: Sequence[int], port_flags: Sequence[int] = ()) -> list[str]:
    """Return the action at each sample, whose Command and Measurement have these flags."""
    zeros, result = np.zeros(2), []
    for k, flag in enumerate(flags):
        measured = Measurement(k + 1, zeros, zeros, zeros, np.zeros(3), port_flags[k] if port_flags else 0)
        result.append(levels.judge(Command(k + 1, zeros, zeros, flags=flag), measured)[1])
    return result


def test_bridge_length_counts_bridges_of_rig_and_port() -> None:
    levels = watch_levels({"bridge_length": {"maximum": 2, "warn_maximum": 1, "action": "hold"}})
    b = FLAG_BRIDGED
    assert actions(levels, [b, b, 0, b, b, 0], [0, 0, 0, 0, 0, b]) == ["", "", "", "", "", "hold"]
    assert each_mentions(levels.told, ("sample 2", "2", "levels.bridge_length", "<= 1"))
    numbers = levels.numbers()[WHOLE_RIG]["bridge_length"]
    assert (numbers["highest"], numbers["samples"], numbers["first"]) == (3.0, 3.0, 2.0)


def test_bridged_samples_do_not_count_for_parameter_at_bound() -> None:
    at, b = FLAG_AT_BOUND, FLAG_BRIDGED
    levels = watch_levels({"parameter_at_bound": {"maximum": 2, "action": "stop"}})
    assert actions(levels, [at, at, b, at, 0, at]) == ["", "", "", "stop", "", ""]


def test_real_rig_holds_parameter_at_bound_by_default() -> None:
    assert not watch_levels({})
    levels = watch_levels({}, simulated=False)
    assert actions(levels, [FLAG_AT_BOUND] * 502).index("hold") == 500  # half a second
    assert mentions(levels.told[0], "sample 1", "1", "levels.parameter_at_bound")
    data = {"parameter_at_bound": {"warn_maximum": 1e9, "action": "indicate"}}
    assert set(actions(watch_levels(data, simulated=False), [FLAG_AT_BOUND] * 600)) == {""}


def test_default_levels_depend_on_port(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = files.load("predefined_sine", ["axes.axis_1.limits.tracking_error=0.05"])
    port = checked_loop(scenario).assembly.port
    assert RigStage(scenario, port).levels is None
    monkeypatch.setattr(port, "simulated", False)
    monkeypatch.setattr(port, "armed", True, raising=False)
    assert set(RigStage(scenario, port).levels.numbers()[WHOLE_RIG]) == {"bridged_share", "parameter_at_bound"}


def test_real_rig_holds_large_bridged_share_by_default() -> None:
    """A warning above 10 of the 1000 samples of a second, held above 100, wherever they are."""
    b, levels = FLAG_BRIDGED, watch_levels({}, simulated=False)
    assert actions(levels, [b if k % 4 == 0 else 0 for k in range(500)]).index("hold") == 400
    assert levels.told[0].startswith("sample 41: levels.bridged_share: 0.011")
    assert mentions(levels.told[0], "bridged", "<= 0.01")
    few = watch_levels({}, simulated=False)
    assert set(actions(few, [b if k % 11 == 0 else 0 for k in range(3000)])) == {""}, "a share, not a count"
    none = watch_levels({}, simulated=False)
    assert set(actions(none, [b if k % 101 == 0 else 0 for k in range(3000)])) == {""}
    assert none.told == []


def test_parameter_at_bound_holds_test_and_is_reported() -> None:
    """The rig is slower than the compensator allows; the parameter reaches its bound and stays there."""
    slow = ["axes.story_1.actuator.alpha=45", "compensator.alpha_max=40", "levels.parameter_at_bound.maximum=100"]
    run = rths_nodes.run("chen_ricles_2010", [*slow, "levels.parameter_at_bound.action=hold"])
    assert run.outcome == "held"
    assert mentions(run.information["reason"], "levels.parameter_at_bound", "101")
    at = (run.flags & FLAG_AT_BOUND) != 0
    np.testing.assert_array_equal(at[1:], run.compensator[:-1, 0] >= 40.0 * (1.0 - 1e-6))
    assert level_rows(run)["parameter at bound"].values[-1] == "hold"
    assert mentions(level_notes(run.timing), "levels.parameter_at_bound", "level")


@pytest.mark.parametrize("quantity", WHOLE)
def test_level_without_number_is_refused(quantity: str) -> None:
    with pytest.raises(ConfigError, match=naming(f"levels.{quantity}", "level")):
        files.load("predefined_sine", [f"levels.{quantity}={{action: hold}}"])


def test_levels_of_rig_file(tmp_path: Path) -> None:
    file = tmp_path / "rig.yaml"
    shipped = files.locate("bench_simulated", files.RIG).read_text()
    file.write_text(shipped + "levels: {bridge_length: {warn_maximum: 2, maximum: 4}}\n")
    level = files.load("chen_ricles_2010", rig=file).levels.bridge_length
    assert (level.warn_maximum, level.maximum, level.action) == (2.0, 4.0, "stop")
