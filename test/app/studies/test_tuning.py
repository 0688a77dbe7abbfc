# SPDX-License-Identifier: Apache-2.0
"""Tuning: it finds a known optimum, holds the worst case against it, and takes nothing that is unstable."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest
from messages import mentions

from rths_nodes.app.cli import main
from rths_nodes.app.studies import tuning
from rths_nodes.app.studies.engine import Where
from rths_nodes.app.studies.ensembles import plants
from rths_nodes.app.studies.runs import to_json
from rths_nodes.app.studies.tuning import BROKEN, UNSTABLE, Parameter, Search, judged, parameters, ran, tunable
from rths_nodes.loop.scenario.files import from_text, load
from rths_nodes.loop.scenario.schema import Scenario

ALPHA, ACTUATOR = "compensator.alpha", "axes.story_1.actuator.alpha"
ONE = [f"{ALPHA}=10:60"]
LEAD = "compensator.lead"
TWO = [*ONE, f"{LEAD}=0:0.02"]
INVERSE = ["compensator.type=inverse", "compensator.alpha=20", "duration=0.6"]


def paper(*overrides: str) -> Scenario:
    return load("chen_ricles_2010", overrides)


def of(*overrides: str) -> float:
    return ran(to_json(paper(*overrides).data()), "J2", False, lambda share: None)


def test_it_finds_the_actuator_s_own_constant() -> None:
    """An inverse with the alpha of the actuator follows exactly."""
    scenario = paper(*INVERSE)
    found = Search([scenario], parameters(scenario, [f"{ALPHA}=10:60"]), "J2", Where()).tune(40, 1)
    assert found.values[ALPHA] == pytest.approx(29.0, abs=0.6)
    assert found.worst < 0.4 < 1.0 < found.before
    assert found.evaluations <= 40
    assert found.usable


@pytest.mark.soak
def test_the_worst_plant_counts() -> None:
    """Of actuators with the constants 20 and 40 neither may be favoured."""
    chosen = [paper(*INVERSE, f"{ACTUATOR}={alpha}") for alpha in (20, 40)]
    found = Search(chosen, parameters(chosen[0], [f"{ALPHA}=15:60"]), "J2", Where()).tune(24, 1)
    assert 25.0 < found.values[ALPHA] < 35.0


@pytest.mark.soak
def test_the_same_seed_finds_the_same_on_one_process_and_on_two() -> None:
    scenario = paper(*INVERSE)
    one, two = (Search([scenario], parameters(scenario, []), "J2", Where(n)).tune(6, 3) for n in (1, 2))
    assert one == two


def test_what_decides_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that one case rules out are not run in another; what is told of the best is the worst of all."""
    done: Counter[str] = Counter()

    def run(text: str, index: str, preferred: str, tell: Any) -> float:
        done["runs"] += 1
        return ran(text, index, preferred, tell)

    def judge(texts: list[str], tell: Any) -> tuple[None, str]:
        done["judgements"] += 1
        return None, ""

    monkeypatch.setattr(tuning, "ran", run)
    monkeypatch.setattr(tuning, "judged", judge)
    words = [*INVERSE, "duration=0.2"]
    chosen = [paper(*words, f"{ACTUATOR}={alpha}") for alpha in (20, 40)]
    found = Search(chosen, parameters(chosen[0], TWO), "J2", Where()).tune(30, 1)
    assert found.evaluations == 30 < done["runs"] < 55
    assert 0 < done["judgements"] < done["runs"] - 30
    for values, value in (({ALPHA: 20.0, LEAD: 0.0}, found.before), (found.values, found.worst)):
        given = [f"{key}={each!r}" for key, each in values.items()]
        assert value == pytest.approx(max(of(*words, *given, f"{ACTUATOR}={alpha}") for alpha in (20, 40)))


@pytest.mark.parametrize("keys", [ONE, TWO], ids=["one", "two"])
def test_the_best_one_is_judged_stable(keys: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest error, at 30 samples, is that of an unstable loop; the best stable one is at 40."""

    def alpha(text: str) -> float:
        return float(from_text(text, "candidate").compensator.alpha)

    monkeypatch.setattr(tuning, "ran", lambda text, index, preferred, tell: 1.0 + (alpha(text) - 30.0) ** 2)
    monkeypatch.setattr(tuning, "judged", lambda texts, tell: (0 if alpha(texts[0]) < 40.0 else None, ""))
    scenario = paper(*INVERSE)
    found = Search([scenario], parameters(scenario, keys), "J2", Where()).tune(200, 1)
    assert found.values[ALPHA] == pytest.approx(40.0, abs=0.1)
    assert found.values[ALPHA] >= 40.0
    assert found.before == UNSTABLE


@pytest.mark.parametrize(("keys", "at_most"), [(ONE, 40), (TWO, 400)], ids=["one", "two"])
def test_a_search_ends_where_nothing_is_left_to_be_gained(
    keys: list[str], at_most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(text: str, index: str, preferred: str, tell: Any) -> float:
        law = from_text(text, "candidate").compensator
        return float(1.0 + (law.alpha - 30.0) ** 2 + (100.0 * law.lead) ** 2)

    monkeypatch.setattr(tuning, "ran", run)
    monkeypatch.setattr(tuning, "judged", lambda texts, tell: (None, ""))
    scenario = paper(*INVERSE)
    found = Search([scenario], parameters(scenario, keys), "J2", Where()).tune(1000, 1)
    assert found.values[ALPHA] == pytest.approx(30.0, abs=0.1)
    assert found.evaluations < at_most


def test_an_unstable_loop_is_worse_than_a_test_that_ends_early_and_that_is_worse_than_any_error() -> None:
    unstable = to_json(paper("duration=2", "compensator.type=none", "port.transport_samples=150").data())
    stable = to_json(paper("duration=2").data())
    assert judged([stable, unstable, stable], lambda share: None) == (1, "")
    early, later = (of("duration=4", f"axes.story_1.limits.force={limit}") for limit in (1e4, 4e4))
    assert UNSTABLE > early > later > BROKEN > of("duration=1")


def test_the_numbers_of_a_law_are_what_is_tuned() -> None:
    assert tunable(paper()) == ["compensator.quiet_time", "compensator.alpha_es", "compensator.k_p_per_mm2"]
    (alpha,) = parameters(paper(*INVERSE), [])
    assert (alpha.key, alpha.low, alpha.high, alpha.begin) == (ALPHA, 20 / 3, 60.0, 20.0)
    assert alpha.logarithmic
    assert alpha.value(alpha.share()) == 20.0
    (whole,) = parameters(
        paper("compensator.type=polynomial", "compensator.delay=0.02"), ["compensator.order=0:3"]
    )
    assert {type(whole.value(share)) for share in (0.0, 0.4, 1.0)} == {int}
    (clipped,) = parameters(paper(*INVERSE, "compensator.alpha=1.5"), [])
    assert clipped.low == 1.0


def test_a_range_is_searched_from_end_to_end() -> None:
    for logarithmic in (False, True):
        of = Parameter("x", 2.0, 50.0, 10.0, logarithmic)
        assert (of.value(0.0), of.value(1.0)) == (2.0, 50.0)
        assert of.value(of.share()) == 10.0


@pytest.mark.parametrize(("low", "high", "digits"), [(0.2, 20.0, 4), (0.99, 0.99999, 6), (-5.0, 5.0, 3)])
def test_a_value_has_no_more_digits_than_its_range_needs(low: float, high: float, digits: int) -> None:
    for logarithmic in (False, True) if low > 0.0 else (False,):
        of = Parameter("x", low, high, 0.5 * (low + high), logarithmic)
        for share in (0.137, 0.5000001, 0.9):
            value = of.value(share)
            assert len(repr(abs(value)).replace(".", "").strip("0")) <= digits + 1
            exact = low * (high / low) ** share if logarithmic else low + share * (high - low)
            assert value == pytest.approx(exact, abs=1e-4 * (high - low))


def _valley(text: str) -> float:
    """A narrow valley over decades of three parameters, 0.05 at its bottom and 0.27 at the start."""
    law = from_text(text, "candidate").compensator
    at = [math.log10(each) for each in (law.alpha_es / 120.0, law.k_p_per_mm2 / 0.0031, law.quiet_time / 1.7)]
    return 0.05 + 0.06 * (abs(at[0]) + abs(at[1] + at[0]) + abs(at[2] - at[0]))


def test_a_default_search_of_three_parameters_comes_close_to_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "ran", lambda text, index, preferred, tell: _valley(text))
    monkeypatch.setattr(tuning, "judged", lambda texts, tell: (None, ""))
    scenario = paper("compensator.alpha_es=2", "compensator.k_p_per_mm2=0.4", "compensator.quiet_time=1")
    keys = ["compensator.alpha_es=1:1000", "compensator.k_p_per_mm2=1e-4:10", "compensator.quiet_time=0.01:100"]
    for seed in (2, 3, 4):
        found = Search([scenario], parameters(scenario, keys), "J2", Where()).tune(60, seed)
        assert found.worst < 0.06
        assert found.improved
        assert found.evaluations <= 60


def test_no_candidate_is_evaluated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local search begins at the best one, and ends at candidates that are equal once they are rounded."""
    evaluated: list[str] = []

    def run(text: str, index: str, preferred: str, tell: Any) -> float:
        evaluated.append(text)
        return _valley(text)

    monkeypatch.setattr(tuning, "ran", run)
    monkeypatch.setattr(tuning, "judged", lambda texts, tell: (None, ""))
    scenario = paper("compensator.alpha_es=2", "compensator.k_p_per_mm2=0.4", "compensator.quiet_time=1")
    found = Search([scenario], parameters(scenario, []), "J2", Where()).tune(60, 1)
    assert len(set(evaluated)) == len(evaluated) == found.evaluations == 60


def test_a_sweep_of_two_stages_is_tuned_with_the_default_budget() -> None:
    """One generation of its seven parameters leaves nothing of the budget for a second one."""
    scenario = load("tadc_sweep", ["duration=20"])
    found = Search([scenario], parameters(scenario, []), "J2", Where()).tune(60, 1)
    assert found.before == pytest.approx(0.514, abs=0.001)
    assert found.worst < 0.4


def test_a_value_at_the_end_of_its_range_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(text: str, index: str, preferred: str, tell: Any) -> float:
        return float(from_text(text, "candidate").compensator.alpha)

    monkeypatch.setattr(tuning, "ran", run)
    monkeypatch.setattr(tuning, "judged", lambda texts, tell: (None, ""))
    command = ["tune", "chen_ricles_2010", "--jobs", "1", "--evaluations", "40", "--parameter", f"{ALPHA}=10:60"]
    for words in INVERSE:
        command += ["--set", words]
    assert main(command) == 0
    assert mentions(capsys.readouterr().out, "note", ALPHA, "end", "range", "10", "60")


def test_a_start_that_is_the_best_is_reported_as_no_improvement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuning, "ran", lambda text, index, preferred, tell: 0.189)
    monkeypatch.setattr(tuning, "judged", lambda texts, tell: (None, ""))
    command = ["tune", "chen_ricles_2010", "--jobs", "1", "--evaluations", "8"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert mentions(shown.splitlines()[0], "0.189", "no improvement found", "8", "candidates")
    assert "--set" not in shown
    assert "note" not in shown
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["improved"] is False


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parameter", "compensator.alfa=1:2"], ("parameters", "compensator.alfa", "alfa", "unknown")),
        (["--parameter", "compensator.alpha_es=2:1"], ("KEY", "LOW", "HIGH", "< HIGH")),
        (["--parameter", "compensator.alpha_es=2"], ("KEY", "LOW", "HIGH")),
        (["--parameter", "compensator.alpha_es=0:2"], ("compensator.alpha_es", "0", ">= 1")),
        (["--parameter", "compensator.alpha_min"], ("compensator.alpha_min", "LOW", "HIGH")),
        (["--parameter", "name"], ("name", "number")),
        (["--index", "J77"], ("index", "unknown", "J77")),
        (["--evaluations", "7"], ("--evaluations", "7", ">= 8")),
        (["--plants", "3"], ("draw", "3", "plants")),
        (["--cases", "alpha"], ("unknown", "case", "alpha")),
        (["--set", "compensator.type=none"], ("number", "tune")),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    words: list[str], message: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "chen_ricles_2010", *words]) == 2
    assert mentions(capsys.readouterr().err, *message)


def test_the_command_prints_what_set_takes(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", "chen_ricles_2010", "--jobs", "1", "--evaluations", "8"]
    for words in INVERSE:
        command += ["--set", words]
    scatter = "scatter={axes.story_1.actuator.alpha: {normal: [29, 2]}}"
    command += ["--set", scatter, "--plants", "1"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert f"--set {ALPHA}=" in shown
    assert "worst J2 of 2 runs" in shown
    assert main([*command, "--json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert data["evaluations"] == 8
    assert data["worst"] <= data["before"]
    # the settings that were found have the worst case that is told
    drawn = plants(paper(*INVERSE, scatter), 1, 1, nominal=True)
    found = [plant.of(paper(*INVERSE, scatter, *data["set"])) for plant in drawn]
    assert max(ran(to_json(one.data()), "J2", False, lambda share: None) for one in found) == data["worst"]


def test_without_stable_settings_the_exit_code_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", "chen_ricles_2010", "--jobs", "1", "--evaluations", "8", "--parameter", f"{ALPHA}=1:1.2"]
    for words in (*INVERSE, "compensator.alpha=1.1", "port.transport_samples=150"):
        command += ["--set", words]
    assert main(command) == 3
    assert mentions(capsys.readouterr().out, "judged", "unstable", "8", "candidates")
    assert tuning.UNSTABLE > tuning.BROKEN
