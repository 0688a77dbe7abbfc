# SPDX-License-Identifier: Apache-2.0
"""Tests of tuning: search for the best worst case among stable settings."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from command_fixtures import RunCommand
from messages import mentions, naming
from programs import settings

import rths_nodes
from rths_nodes.app.studies import tuning
from rths_nodes.app.studies.engine import Where
from rths_nodes.app.studies.runs import to_json
from rths_nodes.app.studies.study import plants
from rths_nodes.app.studies.tuning import BROKEN, UNSTABLE, Parameter, Search, judged, parameters, ran, tunable
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.files import from_text, load
from rths_nodes.loop.scenario.schema import Scenario

ALPHA, ACTUATOR = "compensator.alpha", "axes.story_1.actuator.alpha"
ONE = [f"{ALPHA}=10:60"]
LEAD = "compensator.lead"
TWO = [*ONE, f"{LEAD}=0:0.02"]
INVERSE = ["compensator.type=inverse", "compensator.alpha=20", "duration=0.6"]
TUNE = ["tune", "chen_ricles_2010", "--jobs", "1"]


def paper(*overrides: str) -> Scenario:
    return load("chen_ricles_2010", overrides)


def error_of(scenario: Scenario, index: str = "J2") -> float:
    return ran(to_json(scenario.data()), index, False, lambda share: None)


Replace = Callable[..., None]


@pytest.fixture
def replace_evaluation(monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Replace the run, and the judgement of stability, of a candidate by functions of its scenario."""

    def replace(run: Callable[[str], float], growing: Callable[[str], int | None] = lambda text: None) -> None:
        monkeypatch.setattr(tuning, "ran", lambda text, index, preferred, tell: run(text))
        monkeypatch.setattr(tuning, "judged", lambda texts, tell: (growing(texts[0]), ""))

    return replace


def compensator_of(text: str) -> Any:
    return from_text(text, "candidate").compensator


def test_search_finds_alpha_of_actuator() -> None:
    """The inverse compensator is exact for the alpha of the actuator."""
    scenario = paper(*INVERSE)
    result = Search([scenario], parameters(scenario, [f"{ALPHA}=10:60"]), "J2", Where()).tune(40, 1)
    assert result.values[ALPHA] == pytest.approx(29.0, abs=0.6)
    assert result.worst < 0.4 < 1.0 < result.before
    assert result.evaluations <= 40
    assert result.usable


@pytest.mark.soak
def test_search_minimises_worst_plant() -> None:
    """The optimum is between actuators with alpha = 20 and alpha = 40."""
    scenarios = [paper(*INVERSE, f"{ACTUATOR}={alpha}") for alpha in (20, 40)]
    result = Search(scenarios, parameters(scenarios[0], [f"{ALPHA}=15:60"]), "J2", Where()).tune(24, 1)
    assert 25.0 < result.values[ALPHA] < 35.0


@pytest.mark.soak
def test_result_does_not_depend_on_number_of_processes() -> None:
    scenario = paper(*INVERSE)
    one, two = (Search([scenario], parameters(scenario, []), "J2", Where(n)).tune(6, 3) for n in (1, 2))
    assert one == two


def test_irrelevant_runs_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that one case excludes are not run in another; the result is the worst of all cases."""
    counts: Counter[str] = Counter()

    def run(*arguments: Any) -> float:
        counts["runs"] += 1
        return ran(*arguments)

    def judge(*arguments: Any) -> tuple[None, str]:
        counts["judgements"] += 1
        return None, ""

    monkeypatch.setattr(tuning, "ran", run)
    monkeypatch.setattr(tuning, "judged", judge)
    scenarios = [paper(*INVERSE, "duration=0.2", f"{ACTUATOR}={alpha}") for alpha in (20, 40)]
    result = Search(scenarios, parameters(scenarios[0], TWO), "J2", Where()).tune(30, 1)
    assert result.evaluations == 30 < counts["runs"] < 55
    assert 0 < counts["judgements"] < counts["runs"] - 30
    for values, error in (({ALPHA: 20.0, LEAD: 0.0}, result.before), (result.values, result.worst)):
        overrides = [f"{key}={value!r}" for key, value in values.items()]
        assert error == pytest.approx(max(error_of(load(scenario, overrides)) for scenario in scenarios))


@pytest.mark.parametrize("keys", [ONE, TWO], ids=["one", "two"])
def test_best_candidate_is_stable(keys: list[str], replace_evaluation: Replace) -> None:
    """The loop with the smallest error, at alpha = 30, is unstable; the best stable one is at 40."""
    replace_evaluation(
        lambda text: 1.0 + (compensator_of(text).alpha - 30.0) ** 2,
        lambda text: 0 if compensator_of(text).alpha < 40.0 else None,
    )
    scenario = paper(*INVERSE)
    result = Search([scenario], parameters(scenario, keys), "J2", Where()).tune(200, 1)
    assert result.values[ALPHA] == pytest.approx(40.0, abs=0.1)
    assert result.values[ALPHA] >= 40.0
    assert result.before == UNSTABLE


@pytest.mark.parametrize(("keys", "at_most"), [(ONE, 40), (TWO, 400)], ids=["one", "two"])
def test_search_ends_at_convergence(keys: list[str], at_most: int, replace_evaluation: Replace) -> None:
    def run(text: str) -> float:
        law = compensator_of(text)
        return float(1.0 + (law.alpha - 30.0) ** 2 + (100.0 * law.lead) ** 2)

    replace_evaluation(run)
    scenario = paper(*INVERSE)
    result = Search([scenario], parameters(scenario, keys), "J2", Where()).tune(1000, 1)
    assert result.values[ALPHA] == pytest.approx(30.0, abs=0.1)
    assert result.evaluations < at_most


def test_instability_ranks_below_early_end_below_any_error() -> None:
    unstable = to_json(paper("duration=2", "compensator.type=none", "port.transport_samples=150").data())
    stable = to_json(paper("duration=2").data())
    assert judged([stable, unstable, stable], lambda share: None) == (1, "")
    early, later = (error_of(paper("duration=4", f"axes.story_1.limits.force={limit}")) for limit in (1e4, 4e4))
    assert UNSTABLE > early > later > BROKEN > error_of(paper("duration=1"))
    best, low, high = (error_of(paper(*INVERSE, f"{ALPHA}={alpha}"), "fei_amplitude") for alpha in (29, 10, 60))
    assert best < min(low, high)


def test_numbers_of_compensator_are_tunable() -> None:
    assert tunable(paper()) == ["compensator.quiet_time", "compensator.alpha_es", "compensator.k_p_per_mm2"]
    (alpha,) = parameters(paper(*INVERSE), [])
    assert (alpha.key, alpha.low, alpha.high, alpha.begin) == (ALPHA, 20 / 3, 60.0, 20.0)
    assert alpha.logarithmic
    assert alpha.value(alpha.share()) == 20.0
    (order,) = parameters(
        paper("compensator.type=polynomial", "compensator.delay=0.02"), ["compensator.order=0:3"]
    )
    assert {type(order.value(share)) for share in (0.0, 0.4, 1.0)} == {int}
    (clipped,) = parameters(paper(*INVERSE, "compensator.alpha=1.5"), [])
    assert clipped.low == 1.0


def test_parameter_covers_its_range() -> None:
    for logarithmic in (False, True):
        parameter = Parameter("x", 2.0, 50.0, 10.0, logarithmic)
        assert (parameter.value(0.0), parameter.value(1.0)) == (2.0, 50.0)
        assert parameter.value(parameter.share()) == 10.0


@pytest.mark.parametrize(("low", "high", "digits"), [(0.2, 20.0, 4), (0.99, 0.99999, 6), (-5.0, 5.0, 3)])
def test_values_are_rounded_to_digits_of_range(low: float, high: float, digits: int) -> None:
    for logarithmic in (False, True) if low > 0.0 else (False,):
        parameter = Parameter("x", low, high, 0.5 * (low + high), logarithmic)
        for share in (0.137, 0.5000001, 0.9):
            value = parameter.value(share)
            assert len(repr(abs(value)).replace(".", "").strip("0")) <= digits + 1
            exact = low * (high / low) ** share if logarithmic else low + share * (high - low)
            assert value == pytest.approx(exact, abs=1e-4 * (high - low))


def _valley(text: str) -> float:
    """Error in a narrow valley over decades of three parameters: 0.05 at its bottom, 0.27 at the start."""
    law = compensator_of(text)
    x, y, z = map(math.log10, (law.alpha_es / 120.0, law.k_p_per_mm2 / 0.0031, law.quiet_time / 1.7))
    return 0.05 + 0.06 * (abs(x) + abs(y + x) + abs(z - x))


VALLEY = ["compensator.alpha_es=2", "compensator.k_p_per_mm2=0.4", "compensator.quiet_time=1"]


def test_default_search_of_three_parameters_finds_optimum(replace_evaluation: Replace) -> None:
    replace_evaluation(_valley)
    scenario = paper(*VALLEY)
    keys = ["compensator.alpha_es=1:1000", "compensator.k_p_per_mm2=1e-4:10", "compensator.quiet_time=0.01:100"]
    for seed in (2, 3, 4):
        result = Search([scenario], parameters(scenario, keys), "J2", Where()).tune(60, seed)
        assert result.worst < 0.06
        assert result.improved
        assert result.evaluations <= 60


def test_no_candidate_is_evaluated_twice(replace_evaluation: Replace) -> None:
    """The local search begins at the best candidate, and ends at candidates that are equal after rounding."""
    evaluated: list[str] = []

    def run(text: str) -> float:
        evaluated.append(text)
        return _valley(text)

    replace_evaluation(run)
    scenario = paper(*VALLEY)
    result = Search([scenario], parameters(scenario, []), "J2", Where()).tune(60, 1)
    assert len(set(evaluated)) == len(evaluated) == result.evaluations == 60


def test_two_stage_compensator_is_tuned_with_default_budget() -> None:
    """One generation of the seven parameters uses the whole budget."""
    scenario = load("tadc_sweep", ["duration=20"])
    result = Search([scenario], parameters(scenario, []), "J2", Where()).tune(60, 1)
    assert result.before == pytest.approx(0.514, abs=0.001)
    assert result.worst < 0.4


def test_value_at_end_of_range_is_reported(replace_evaluation: Replace, output: RunCommand) -> None:
    replace_evaluation(lambda text: float(compensator_of(text).alpha))
    text = output(*TUNE, "--evaluations", "40", "--parameter", f"{ALPHA}=10:60", *settings(*INVERSE))
    assert mentions(text, "note", ALPHA, "limit", "range", "10", "60")


def test_optimal_start_is_reported_as_no_improvement(replace_evaluation: Replace, output: RunCommand) -> None:
    replace_evaluation(lambda text: 0.189)
    text = output(*TUNE, "--evaluations", "8")
    assert mentions(text.splitlines()[0], "0.189", "no improvement found", "8", "candidates")
    assert not any(part in text for part in ("--set", "note"))
    assert json.loads(output(*TUNE, "--evaluations", "8", "--json"))["improved"] is False


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--parameter", "compensator.alfa=1:2"], ("parameters", "compensator.alfa", "alfa", "unknown")),
        (["--parameter", "compensator.alpha_es=2:1"], ("KEY", "LOW", "HIGH", "< HIGH")),
        (["--parameter", "compensator.alpha_es=2"], ("KEY", "LOW", "HIGH")),
        (["--parameter", "compensator.alpha_es=0:2"], ("compensator.alpha_es", "0", ">= 1")),
        (["--parameter", "compensator.alpha_min"], ("compensator.alpha_min", "LOW", "HIGH")),
        (["--parameter", "name"], ("name", "number")),
        (["--parameter", f"{ALPHA}=10:20", "--parameter", f"{ALPHA}=12:22"], ("parameters", ALPHA, "once")),
        (["--index", "J77"], ("index", "unknown", "J77")),
        (["--evaluations", "7"], ("--evaluations", "7", ">= 8")),
        (["--plants", "3"], ("draw", "3", "plants")),
        (["--cases", "alpha"], ("unknown", "case", "alpha")),
        (["--set", "compensator.type=none"], ("tunable", "numbers")),
    ],
)
def test_invalid_arguments_are_refused(options: list[str], parts: tuple[str, ...], refusal: RunCommand) -> None:
    assert mentions(refusal("tune", "chen_ricles_2010", *options), *parts)


@pytest.mark.parametrize("limits", [(40, 15), (20, 20), (15, math.inf), (math.nan, 20), (1, 2, 3), "ab", "12", 7])
def test_invalid_range_in_mapping_is_refused(limits: Any) -> None:
    with pytest.raises(ConfigError, match=naming("parameters", "compensator.alpha_es", "LOW < HIGH")):
        parameters(paper(), {"compensator.alpha_es": limits})


def test_command_prints_result_as_set_options(output: RunCommand) -> None:
    scatter = "scatter={axes.story_1.actuator.alpha: {normal: [29, 2]}}"
    command = [*TUNE, "--evaluations", "8", *settings(*INVERSE, scatter), "--plants", "1"]
    text = output(*command)
    assert all(part in text for part in (f"--set {ALPHA}=", "worst J2 of 2 runs"))
    data = json.loads(output(*command, "--json"))
    assert data["evaluations"] == 8
    assert data["worst"] <= data["before"]
    tuned = paper(*INVERSE, scatter, *data["set"])
    drawn = plants(paper(*INVERSE, scatter), 1, 1, nominal=True)
    assert max(error_of(plant.of(tuned)) for plant in drawn) == data["worst"]


def test_missing_stable_settings_set_exit_code(output: RunCommand) -> None:
    unstable = settings(*INVERSE, "compensator.alpha=1.1", "port.transport_samples=150")
    text = output(*TUNE, "--evaluations", "8", "--parameter", f"{ALPHA}=1:1.2", *unstable, code=3)
    assert mentions(text, "judged", "unstable", "8", "candidates")
    assert tuning.UNSTABLE > tuning.BROKEN


def test_undefined_index_of_finished_runs_is_reported(output: RunCommand) -> None:
    late = settings(
        "duration=0.6", "monitor.longest_delay=0.005", "compensator.type=inverse", "compensator.alpha=2"
    )
    options = ["--index", "J1", "--parameter", "compensator.alpha=1:5", "--evaluations", "8", "--jobs", "1"]
    shown = output("tune", "predefined_sine", *late, *options, code=3)
    assert mentions(shown, "worst", "J1", "undefined")


def test_result_before_is_that_of_present_settings_outside_the_range() -> None:
    scenario = paper(*INVERSE, "duration=0.2")
    result = rths_nodes.tune(scenario, parameters={ALPHA: (25.0, 40.0)}, evaluations=8, jobs=1)
    assert result.before == pytest.approx(error_of(scenario))  # alpha = 20
    assert result.improved
    assert result.evaluations <= 8
    scenario, key = paper("duration=0.2"), "compensator.k_i_per_mm2_s"
    assert rths_nodes.tune(scenario, parameters={key: (1.0, 2.0)}, evaluations=8, jobs=1).before == error_of(
        scenario
    )


def test_whole_number_without_value_begins_at_whole_number() -> None:
    scenario = paper("compensator={type: polynomial, order: 2, delay: 0.0273}")
    (spacing,) = parameters(scenario, ["compensator.spacing=3:16"])
    assert isinstance(spacing.value(spacing.share()), int)
