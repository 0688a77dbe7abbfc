# SPDX-License-Identifier: Apache-2.0
"""The scoreboard: every compensator takes part, with settings from one identification; the best stand first."""

from __future__ import annotations

import csv
import json
import math
import sys
import types
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.analysis.published_indices import heading
from rths_nodes.analysis.response_errors import whole_response
from rths_nodes.analysis.stability.impulses import Impulses
from rths_nodes.analysis.stability.judgement import is_stable
from rths_nodes.analysis.study_table import StudyTable
from rths_nodes.app.cli import main
from rths_nodes.app.commands import terminal
from rths_nodes.app.studies import candidates, runs, scoreboard
from rths_nodes.app.studies.candidates import Candidate
from rths_nodes.app.studies.engine import Where
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number, params
from rths_nodes.core.validation import from_data
from rths_nodes.core.version import __version__
from rths_nodes.core.yaml_text import parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import load
from rths_nodes.loop.scenario.schema import Scenario

PAPER = "chen_ricles_2010"
BENCHMARK = "rths_benchmark_2020"
BRIEF = ["--set", "duration=1", "--set", "servo_rate=512"]
"""At half of its rate the rig is identified in half of the samples."""
ALPHA = 29.0
"""Of the actuator of the scenario, in samples: late by 28."""


@pytest.fixture(scope="module")
def identified(tmp_path_factory: pytest.TempPathFactory) -> candidates.Identified:
    return candidates.identify(
        load(PAPER, ["duration=3"]), tmp_path_factory.mktemp("identified"), terminal.progress
    )


class Ahead:
    """Sends the target as it will be: x + delay v."""

    @params
    class Params:
        delay: float = number("delay to make up for", "s", at_least=0.0)

    state_names = ()

    def __init__(self, given: Any, dt: float, n_axes: int) -> None:
        self._delay = given.delay

    def step(self, target: Any, measured: Any) -> Any:
        return target.displacement + self._delay * target.velocity

    def state(self) -> Any:
        return np.zeros(0)

    def reset(self) -> None:
        pass


@pytest.fixture
def of_another_package(monkeypatch: pytest.MonkeyPatch) -> str:
    """A compensator that is found by its entry point."""
    module = types.ModuleType("some_laboratory_s_law")
    module.Ahead = Ahead  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    points = EntryPoints([EntryPoint("ahead", f"{module.__name__}:Ahead", "rths_nodes.compensator")])
    monkeypatch.setattr(registry, "_entry_points", lambda: points)
    registry._table.cache_clear()
    yield "ahead"
    registry._table.cache_clear()


def table(**columns: Any) -> StudyTable:
    given: dict[str, Any] = {
        "name": list("abcdef"),
        "outcome": ["finished"] * 5 + ["tripped"],
        "reason": [""] * 5 + ["limits.force"],
        "law": ["good", "good", "fair", "fair", "bad", "bad"],
        "J2": [1.0, -2.0, 3.0, 1.5, 0.1, 99.0],
    }
    return StudyTable("board", "", PAPER, given | columns, ("law",), ("J2",))


def test_the_identified_delay_is_that_of_the_actuator(identified: candidates.Identified) -> None:
    """Of slow motions 28 samples; up to 5 Hz, near the corner of the actuator, a little less."""
    dt = 1.0 / 1024.0
    assert 0.8 * (ALPHA - 1.0) * dt < identified.delay < (ALPHA - 1.0) * dt
    assert identified.alpha == pytest.approx(1.0 + identified.delay / dt)


def test_the_rig_is_driven_with_a_tenth_of_the_expected_motion(identified: candidates.Identified) -> None:
    scenario = load(PAPER, ["duration=3"])
    displacement = whole_response(scenario)[0]
    assert identified.rms == pytest.approx(0.1 * np.std(displacement), rel=0.02)


def test_every_registered_law_gets_the_same_identification(identified: candidates.Identified) -> None:
    found = {
        law.name: law for law in candidates.chosen(load(PAPER), identified, registry.names("compensator"), {})
    }
    assert set(found) == set(registry.names("compensator"))
    for name in ("polynomial", "linear_acceleration", "derivative_feedforward", "adaptive_time_series"):
        assert found[name].settings["delay"] == identified.delay
    assert found["adaptive_inverse"].settings["alpha_es"] == found["inverse"].settings["alpha"] == identified.alpha
    assert found["chain"].settings["second"]["delay"] == identified.delay
    for law in found.values():
        assert not mentions(law.reason, "model", "identification")


def test_the_identified_inverse_is_identified_with_all_others(tmp_path: Path) -> None:
    """On the benchmark, at a fourth of its rate: what ``rths identify`` finds for it at the full one."""
    scenario = load("rths_benchmark_2020", ["servo_rate=1024", "port.transport_samples=0"])
    identified = candidates.identify(scenario, tmp_path, terminal.progress)
    found = {law.name: law for law in candidates.chosen(scenario, identified, registry.names("compensator"), {})}
    own = [name for name, law in found.items() if law.reason]
    assert own == ["fmu", "linear", "predefined"], "a law of one's own has to be given"
    for name, (value, known) in {"displacement": (0.9948, 5e-3), "velocity": (0.02497, 3e-2)}.items():
        assert found["identified_inverse"].settings["inverse"][name][0][0] == pytest.approx(value, rel=known)
    assert found["model_based"].settings["model"] == identified.model != identified.whole_model


def test_a_law_of_another_package_takes_part(identified: candidates.Identified, of_another_package: str) -> None:
    assert of_another_package in registry.names("compensator")
    (law,) = candidates.chosen(load(PAPER), identified, [of_another_package], {})
    assert law == Candidate("ahead", {"type": "ahead", "delay": identified.delay})


def test_given_settings_come_first_and_may_bring_further_rows(identified: candidates.Identified) -> None:
    given = {
        "inverse": {"alpha": 12.0},
        "mine": {"type": "inverse", "alpha": 31.0},
        "wrong": {"type": "inverse", "x": 1},
    }
    inverse, mine, wrong = candidates.chosen(load(PAPER), identified, list(given), given)
    assert (inverse.settings["alpha"], mine.settings["alpha"]) == (12.0, 31.0)
    assert "unknown key 'x'" in wrong.reason


def test_what_given_settings_leave_out_is_identified(identified: candidates.Identified) -> None:
    given = {
        "adaptive_inverse": {"k_p_per_mm2": 0.1},
        "slow": {"type": "adaptive_time_series", "window": 2.0},
        "mine": {"type": "model_based", "model": "mine.yaml"},
    }
    adaptive, slow, mine = candidates.chosen(load(PAPER), identified, list(given), given)
    assert (adaptive.settings["alpha_es"], adaptive.settings["k_p_per_mm2"]) == (identified.alpha, 0.1)
    assert (slow.settings["delay"], slow.settings["window"]) == (identified.delay, 2.0)
    assert "mine.yaml" in mine.reason  # another rig than the identified one is not mixed with it


def test_a_given_model_takes_the_place_of_the_scenario_s_own(identified: candidates.Identified) -> None:
    inverse = "{displacement: [[1.0]], velocity: [[0.02]], acceleration: [[0.0]], jerk: [[0.0]]}"
    own = f"compensator={{type: identified_inverse, inverse: {inverse}, memory: 5.0}}"
    given = {"identified_inverse": {"model": identified.whole_model}}
    (law,) = candidates.chosen(load(PAPER, [own]), identified, list(given), given)
    assert law.settings["model"] == identified.whole_model
    assert law.settings.get("inverse") is None
    assert law.settings["memory"] == 5.0


def test_files_in_settings_stand_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("model_based: {model: model.yaml}\nmine: {type: inverse, alpha: 31}\n")
    found = files.load_settings(path)
    assert found["model_based"] == {"type": "model_based", "model": str(tmp_path / "model.yaml")}
    assert found["mine"] == {"type": "inverse", "alpha": 31}


@pytest.mark.parametrize("name", files.shipped(files.SETTINGS))
def test_shipped_settings_are_those_of_a_shipped_scenario(name: str, identified: candidates.Identified) -> None:
    """Each can be built in the scenario after which they are named, and names no file."""
    given = files.load_settings(name)
    chosen = candidates.chosen(load(name), identified, list(given), given)
    assert [(law.name, law.reason) for law in chosen if law.reason] == []
    assert not [entry for entry in given.values() if candidates.MODELS & entry.keys()]


@pytest.mark.parametrize("name", files.shipped(files.SETTINGS))
def test_with_shipped_settings_every_case_is_stable(name: str) -> None:
    known: dict[str, Impulses] = {}
    for law, settings in files.load_settings(name).items():
        for case in scoreboard.cases(load(name)):
            assert is_stable(load(name, [f"compensator={json.dumps(settings)}"], case), known), (law, case)


def test_those_that_finish_stand_before_those_that_do_not() -> None:
    found = scoreboard.scores(table(), [Candidate("none", {}, "needs more")], "J2")
    assert [(score.law, score.failures, score.runs) for score in found] == [
        ("good", 0, 2),
        ("fair", 0, 2),
        ("bad", 1, 2),
        ("none", 0, 0),
    ]
    assert (found[0].median["J2"], found[0].high["J2"], found[0].worst["J2"]) == (1.5, 2.0, 2.0)
    assert (found[2].median["J2"], found[2].high["J2"], found[2].worst["J2"]) == (math.inf, math.inf, math.inf)
    assert [score.place for score in found] == ["1", "2", "3", ""]
    assert found[2].what == "tripped: limits.force"
    assert found[3].what == "needs more"


def test_what_the_seeds_do_not_tell_apart_shares_a_place() -> None:
    """High values by seed: 2 to 2.4, 2.3 to 2.5, 2.45 to 2.6 (beyond those of the first), and one that fails."""
    columns = {
        "name": list("abcdefgh"),
        "outcome": ["finished"] * 7 + ["tripped"],
        "reason": [""] * 8,
        "law": ["one", "one", "two", "two", "three", "three", "bad", "bad"],
        "seed": [1, 2] * 4,
        "J2": [2.0, 2.4, 2.5, 2.3, 2.6, 2.45, 0.1, 0.1],
    }
    found = scoreboard.scores(table(**columns), [], "J2")
    assert [(score.law, score.place) for score in found] == [
        ("one", "1="),
        ("two", "1="),
        ("three", "3"),
        ("bad", "4"),
    ]
    apart = scoreboard.scores(table(**columns | {"seed": [1] * 8}), [], "J2")
    assert [score.place for score in apart] == ["1", "2", "3", "4"]


def test_the_high_value_is_that_of_a_run_which_19_of_20_do_not_exceed() -> None:
    values = [float(each) for each in range(1, 101)]
    columns = {name: ["x"] * 100 for name in ("name", "reason", "law")} | {"outcome": ["finished"] * 100}
    (score,) = scoreboard.scores(table(**columns, J2=values), [], "J2")
    assert (score.median["J2"], score.high["J2"], score.worst["J2"]) == (50.5, 96.0, 100.0)


def test_each_record_is_scored() -> None:
    law, records = (
        Candidate("inverse", {"type": "inverse", "alpha": 29.0}),
        ("elcentro_1940_ns", "benchmark_kobe_1995"),
    )
    of = scoreboard.design(load(PAPER, ["duration=2"]), [law], scoreboard.Scored((), 2, 0, 1, ("J2",), records))
    told = [parse(row.scenario, "scenario") for row in of.rows]
    assert [(each["ground_motion"]["record"], each["seed"]) for each in told] == [
        (record, seed) for record in records for seed in (1, 2)
    ]


def test_cases_that_name_a_compensator_are_published_rows_and_no_cases() -> None:
    cases = {
        "soft": {"set": {"structure.mass": 6e5}},
        "paper": {"set": {"compensator.alpha_es": 29}, "published": {"J2": 1}},
    }
    scenario = from_data(Scenario, load(PAPER).data() | {"cases": cases})
    assert scoreboard.cases(scenario) == ["soft"]
    assert [(row.case, row.values) for row in scoreboard.published(scenario)] == [("paper", {"J2": 1})]


def test_the_benchmark_has_its_own_indices_four_cases_two_blocks_and_published_rows() -> None:
    scenario = load(BENCHMARK)
    assert scoreboard.cases(scenario) == ["case_1", "case_2", "case_3", "case_4"]
    shown = runs.shown_indices(scenario)
    assert [heading(BENCHMARK, index) for index in shown] == [f"J{number}" for number in range(1, 10)]
    assert heading(BENCHMARK, runs.ranking_index(scenario)) == "J2 true"
    assert heading("none", "J2") == "J2"
    rows = scoreboard.published(scenario)
    assert [row.case for row in rows] == ["pi_1", "pi_2", "pi_3", "pi_4"]
    assert all(tuple(row.values) == shown for row in rows)
    law = Candidate("inverse", {"type": "inverse", "alpha": 90.0})
    first, second = (scoreboard.in_block(scenario, law, block) for block in scoreboard.blocks(scenario).values())
    sample = 1.0 / scenario.servo_rate
    assert (first["force_lead"], first["compensator"]["lead"]) == (None, sample)
    assert (second["force_lead"], second["compensator"]["lead"]) == (sample, 0.0)


def test_training_is_on_other_plants_and_noise_than_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    scatter = {"axes.story_1.actuator.alpha": {"normal": [29.0, 2.0]}}
    scenario = from_data(Scenario, load(PAPER, ["duration=0.25"]).data() | {"scatter": scatter})
    seen: list[Scenario] = []

    class Search(scoreboard.tuning.Search):
        def __init__(self, scenarios: Any, *further: Any) -> None:
            seen.extend(scenarios)
            super().__init__(scenarios, *further)

    monkeypatch.setattr(scoreboard.tuning, "Search", Search)
    law = Candidate("inverse", {"type": "inverse", "alpha": 20.0})
    chosen, found = scoreboard.tuned(scenario, [law, Candidate("none", {"type": "none"})], "J2", 8, 2, Where())
    assert chosen[0].settings["alpha"] == found["inverse"].values["compensator.alpha"]
    assert chosen[1] == Candidate("none", {"type": "none"})
    trained = {each.axes["story_1"].actuator.alpha for each in seen}
    assert {each.seed for each in seen} == {scenario.seed + scoreboard.TRAINING}
    of = scoreboard.design(scenario, chosen, scoreboard.Scored((), 2, 2, 1, ("J2",)))
    scored = {plant.values["axes.story_1.actuator.alpha"] for plant in of.plants[1:]}
    assert len(trained) == 3
    assert not trained & scored
    assert [level.label for level in of.factors["seed"]] == [1, 2]


def test_a_training_that_a_parameter_does_not_fit_into_is_refused() -> None:
    """The window of a second is searched up to three; without a word the law would stay as it was."""
    law = Candidate("slow", {"type": "adaptive_time_series", "delay": 0.027})
    with pytest.raises(ConfigError, match=naming("training", "slow", "3 s", "<= duration", "2 s")):
        scoreboard.tuned(load(PAPER, ["duration=10"]), [law], "J2", 8, 0, Where(), [(["duration"], 2.0)])


def test_the_command_writes_table_scores_settings_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["scoreboard", PAPER, *BRIEF, "--laws", "none,inverse,predefined", "--jobs", "1"]
    command += ["--out", str(tmp_path / "out"), "--noise-seeds", "2", "--response", "response_x"]
    assert main([*command, "--tune", "8"]) == 0
    shown = capsys.readouterr().out
    assert mentions(shown.splitlines()[0], PAPER, "best inverse", "J2", "2 of 3", "4 runs")
    for words in ("4 runs", "inverse", "stable", "not run: ", "published"):
        assert words in shown
    with open(tmp_path / "out" / "scoreboard.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["compensator"] for row in rows] == ["inverse", "none", "predefined"]
    assert float(rows[0]["J2_worst"]) < float(rows[1]["J2_worst"])
    page = (tmp_path / "out" / "scoreboard.html").read_text()
    for words in ("Tracking against response", "Published", "worst case in training", "not run"):
        assert words in page
    text = (tmp_path / "out" / "scoreboard.md").read_text()
    assert f"rths_nodes {__version__}; " in text
    indices = "J2 (%) | J1 (ms) | J3 (%) | max error (mm) | response x (%)"
    assert f"\n| place | compensator | block | {indices} | outcome |\n" in text
    names = [line.split(" | ")[1] for line in text.splitlines()[4:7]]
    assert names == ["inverse", "none", "predefined"]
    settings = parse((tmp_path / "out" / "settings.yaml").read_text(), "settings")
    assert set(settings) == {"none", "inverse"}
    # with the settings that were written the same scores come out, without any tuning
    again = [*command[:-4], "--settings", str(tmp_path / "out" / "settings.yaml"), "--noise-seeds", "2", "--json"]
    assert main([*again, "--response", "response_x"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["scores"][0]["worst"]["J2"] == float(rows[0]["J2_worst"])


def test_an_unstable_law_is_told_with_what_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["scoreboard", PAPER, *BRIEF, "--set", "duration=4", "--jobs", "1"]
    command += ["--set", "axes.story_1.limits.force=1e5"]
    command += ["--set", "monitor={}", "--laws", "none", "--out", str(tmp_path)]
    assert main(command) == 0
    assert "unstable: 3 of 3 runs, tripped: " in " ".join(capsys.readouterr().out.split())


def test_plants_are_scored_where_the_scenario_has_scatter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hundred unless the user says how many, and none without scatter; each with three seeds."""
    seen: list[Any] = []

    def scored(scenario: Any, laws: Any, of: Any, *others: Any) -> Any:
        seen.append(of)
        raise ConfigError("enough")

    monkeypatch.setattr(scoreboard, "design", scored)
    scatter = ["--set", "scatter={axes.story_1.actuator.alpha: {normal: [29, 3]}}"]
    command = ["scoreboard", PAPER, *BRIEF, "--laws", "none", "--jobs", "1", "--out", str(tmp_path)]
    for words in ([], scatter, [*scatter, "--plants", "7"]):
        assert main([*command, *words]) == 2
    assert [(each.plants, each.noise_seeds) for each in seen] == [(0, 3), (100, 3), (7, 3)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--laws", "invers"], ("laws", "unknown", "invers", "inverse")),
        (["--noise-seeds", "0"], ("--noise-seeds", "0", ">= 1")),
        (["--tune", "3"], ("--tune", "3", "0", ">= 8")),
        (["--settings", "nowhere.yaml"], ("settings", "nowhere.yaml")),
        (["--rank", "J99"], ("indices", "unknown", "J99")),
        (["--records", "elcentro_1940_ns,nowhere"], ("ground_motion.record", "unknown")),
        (["--plants", "2"], ("draw", "2", "plants")),
        (["--laws", "predefined"], ("predefined", "settings")),
    ],
)
def test_what_cannot_be_scored_is_refused(
    words: list[str], message: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    laws_of = [] if "--laws" in words else ["--laws", "none"]
    command = ["scoreboard", PAPER, *BRIEF, "--out", str(tmp_path), "--jobs", "1", *laws_of, *words]
    assert main(command) == 2
    assert mentions(capsys.readouterr().err, *message)
    if "predefined" not in words:  # before the rig was driven, which leaves a model
        assert not any(tmp_path.iterdir())
