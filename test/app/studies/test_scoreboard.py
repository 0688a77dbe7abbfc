# SPDX-License-Identifier: Apache-2.0
"""Tests of the scoreboard: identified candidates, scores, ranking, tuning, entries of other groups."""

from __future__ import annotations

import csv
import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import fmus
import numpy as np
import pytest
from command_fixtures import RunCommand
from messages import mentions, naming
from minimal_components import ConstantDelay

from rths_nodes.analysis.published_indices import heading
from rths_nodes.analysis.response_errors import whole_response
from rths_nodes.analysis.stability.judgement import is_stable
from rths_nodes.analysis.stability.loops import Impulses
from rths_nodes.analysis.study_table import StudyTable
from rths_nodes.app.cli import main
from rths_nodes.app.commands import terminal
from rths_nodes.app.commands.studies import DEFAULTS
from rths_nodes.app.studies import competition, runs, scoreboard
from rths_nodes.app.studies.engine import Where, silent
from rths_nodes.app.studies.scoreboard import Candidate, Conditions, Score
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.core.version import __version__
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import load
from rths_nodes.loop.scenario.schema import Scenario

PAPER = "chen_ricles_2010"
BENCHMARK = "rths_benchmark_2020"
SCOREBOARD = ["scoreboard", PAPER, "--set", "duration=1", "--set", "servo_rate=512", "--jobs", "1"]
"""Half of the rate needs half of the samples for the identification."""
ALPHA = 29.0
"""Constant of the scenario's actuator, samples; its delay is 28 samples."""


@pytest.fixture(scope="module")
def identified(tmp_path_factory: pytest.TempPathFactory) -> scoreboard.Identified:
    return scoreboard.identify(
        load(PAPER, ["duration=3"]), tmp_path_factory.mktemp("identified"), terminal.progress
    )


def table(**columns: Any) -> StudyTable:
    defaults: dict[str, Any] = {
        "name": list("abcdef"),
        "outcome": ["finished"] * 5 + ["tripped"],
        "reason": [""] * 5 + ["limits.force"],
        "law": ["good", "good", "fair", "fair", "bad", "bad"],
        "J2": [1.0, -2.0, 3.0, 1.5, 0.1, 99.0],
    }
    return StudyTable("board", "", PAPER, defaults | columns, ("law",), ("J2",))


def test_identified_delay_equals_delay_of_actuator(identified: scoreboard.Identified) -> None:
    """28 samples for slow motions; slightly less up to 5 Hz, near the corner frequency of the actuator."""
    dt = 1.0 / 1024.0
    assert 0.8 * (ALPHA - 1.0) * dt < identified.delay < (ALPHA - 1.0) * dt
    assert identified.alpha == pytest.approx(1.0 + identified.delay / dt)


def test_identification_uses_tenth_of_expected_motion(identified: scoreboard.Identified) -> None:
    scenario = load(PAPER, ["duration=3"])
    assert identified.rms == pytest.approx(0.1 * np.std(whole_response(scenario)[0]), rel=0.02)


def test_all_compensators_get_the_same_identification(identified: scoreboard.Identified) -> None:
    names = registry.names("compensator")
    laws = {law.name: law for law in scoreboard.chosen(load(PAPER), identified, names, {})}
    assert set(laws) == set(names)
    for name in ("polynomial", "linear_acceleration", "derivative_feedforward", "adaptive_time_series"):
        assert laws[name].settings["delay"] == identified.delay
    assert laws["adaptive_inverse"].settings["alpha_es"] == laws["inverse"].settings["alpha"] == identified.alpha
    assert laws["chain"].settings["second"]["delay"] == identified.delay
    assert not any(mentions(law.reason, "model", "identification") for law in laws.values())


def test_identified_inverse_is_identified_on_benchmark(tmp_path: Path) -> None:
    """The coefficients at a fourth of the rate agree with the result of ``rths identify`` at the full rate."""
    scenario = load("rths_benchmark_2020", ["servo_rate=1024", "port.transport_samples=0"])
    identified = scoreboard.identify(scenario, tmp_path, terminal.progress)
    laws = {law.name: law for law in scoreboard.chosen(scenario, identified, registry.names("compensator"), {})}
    incomplete = [name for name, law in laws.items() if law.reason]
    assert incomplete == ["fmu", "linear", "predefined"], "these need settings"
    inverse = laws["identified_inverse"].settings["inverse"]
    assert inverse["displacement"][0][0] == pytest.approx(0.9948, rel=5e-3)
    assert inverse["velocity"][0][0] == pytest.approx(0.02497, rel=3e-2)
    assert laws["model_based"].settings["model"] == identified.model != identified.whole_model


def test_external_compensator_is_a_candidate(identified: scoreboard.Identified, register: Any) -> None:
    register("compensator", ConstantDelay)
    assert "mine" in registry.names("compensator")
    (law,) = scoreboard.chosen(load(PAPER), identified, ["mine"], {})
    assert law == Candidate("mine", {"type": "mine", "delay": identified.delay})


def test_settings_override_identification_and_add_rows(identified: scoreboard.Identified) -> None:
    settings = {
        "inverse": {"alpha": 12.0},
        "mine": {"type": "inverse", "alpha": 31.0},
        "invalid": {"type": "inverse", "x": 1},
    }
    inverse, mine, invalid = scoreboard.chosen(load(PAPER), identified, list(settings), settings)
    assert (inverse.settings["alpha"], mine.settings["alpha"]) == (12.0, 31.0)
    assert "unknown key 'x'" in invalid.reason


def test_missing_settings_are_identified(identified: scoreboard.Identified) -> None:
    settings = {
        "adaptive_inverse": {"k_p_per_mm2": 0.1},
        "slow": {"type": "adaptive_time_series", "window": 2.0},
        "mine": {"type": "model_based", "model": "mine.yaml"},
    }
    adaptive, slow, mine = scoreboard.chosen(load(PAPER), identified, list(settings), settings)
    assert (adaptive.settings["alpha_es"], adaptive.settings["k_p_per_mm2"]) == (identified.alpha, 0.1)
    assert (slow.settings["delay"], slow.settings["window"]) == (identified.delay, 2.0)
    assert "mine.yaml" in mine.reason  # a model of another rig is not combined with the identification


def test_model_in_settings_replaces_inverse_of_scenario(identified: scoreboard.Identified) -> None:
    inverse = "{displacement: [[1.0]], velocity: [[0.02]], acceleration: [[0.0]], jerk: [[0.0]]}"
    scenario = load(PAPER, [f"compensator={{type: identified_inverse, inverse: {inverse}, memory: 5.0}}"])
    settings = {"identified_inverse": {"model": identified.whole_model}}
    (law,) = scoreboard.chosen(scenario, identified, list(settings), settings)
    assert law.settings["model"] == identified.whole_model
    assert law.settings.get("inverse") is None
    assert law.settings["memory"] == 5.0


def test_paths_in_settings_are_relative_to_settings_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("model_based: {model: model.yaml}\nmine: {type: inverse, alpha: 31}\n")
    assert files.load_settings(path) == {
        "model_based": {"type": "model_based", "model": str(tmp_path / "model.yaml")},
        "mine": {"type": "inverse", "alpha": 31},
    }


@pytest.mark.parametrize("name", files.shipped(files.SETTINGS))
def test_shipped_settings_are_valid_without_model_files(name: str, identified: scoreboard.Identified) -> None:
    """All compensators can be built without a model file."""
    settings = files.load_settings(name)
    laws = scoreboard.chosen(load(name), identified, list(settings), settings)
    assert [(law.name, law.reason) for law in laws if law.reason] == []
    assert not [entry for entry in settings.values() if scoreboard.MODELS & entry.keys()]


@pytest.mark.parametrize("name", files.shipped(files.SETTINGS))
def test_shipped_settings_are_stable_in_every_case(name: str) -> None:
    impulses: dict[str, Impulses] = {}
    for law, settings in files.load_settings(name).items():
        for case in scoreboard.cases(load(name)):
            assert is_stable(load(name, [f"compensator={json.dumps(settings)}"], case), impulses), (law, case)


def test_unfinished_runs_rank_last() -> None:
    scores = scoreboard.scores(table(), [Candidate("none", {}, "needs more")], "J2")
    good, _, bad, none = scores
    assert [score.law for score in scores] == ["good", "fair", "bad", "none"]
    assert [(score.failures, score.runs) for score in scores] == [(0, 2), (0, 2), (1, 2), (0, 0)]
    assert (good.median["J2"], good.high["J2"], good.worst["J2"]) == (1.5, 2.0, 2.0)
    assert (bad.median["J2"], bad.high["J2"], bad.worst["J2"]) == (math.inf, math.inf, math.inf)
    assert [score.place for score in scores] == ["1", "2", "3", ""]
    assert bad.what == "tripped: limits.force"
    assert none.what == "needs more"


def test_indistinguishable_scores_share_a_place() -> None:
    """High values by seed: 2 to 2.4, 2.3 to 2.5, 2.45 to 2.6 (above the first range), and a failed run."""
    columns: dict[str, Any] = {name: [""] * 8 for name in ("name", "reason")} | {
        "outcome": ["finished"] * 7 + ["tripped"],
        "law": ["one", "one", "two", "two", "three", "three", "bad", "bad"],
        "seed": [1, 2] * 4,
        "J2": [2.0, 2.4, 2.5, 2.3, 2.6, 2.45, 0.1, 0.1],
    }
    places = {score.law: score.place for score in scoreboard.scores(table(**columns), [], "J2")}
    assert list(places.items()) == [("one", "1="), ("two", "1="), ("three", "3"), ("bad", "4")]
    one_seed = scoreboard.scores(table(**columns | {"seed": [1] * 8}), [], "J2")
    assert [score.place for score in one_seed] == ["1", "2", "3", "4"]


def test_high_value_is_95th_percentile() -> None:
    values = list(map(float, range(1, 101)))
    columns = {name: ["x"] * 100 for name in ("name", "reason", "law")} | {"outcome": ["finished"] * 100}
    (score,) = scoreboard.scores(table(**columns, J2=values), [], "J2")
    assert (score.median["J2"], score.high["J2"], score.worst["J2"]) == (50.5, 96.0, 100.0)
    (undefined,) = scoreboard.scores(table(**columns, J2=[*values[:94], *[math.nan] * 6]), [], "J2")
    assert (undefined.median["J2"], undefined.high["J2"], undefined.failures) == (50.5, math.inf, 0)


def test_name_of_compensator_may_have_spaces() -> None:
    columns = {name: ["x"] * 3 for name in ("name", "reason")} | {
        "outcome": ["finished"] * 3,
        "J2": [1.0, 2.0, 3.0],
    }
    laws = ["my law", "my law A", "my law B"]
    rows = scoreboard.scores(table(**columns, law=laws), [], "J2")
    assert [(score.law, score.block) for score in rows] == [("my law", block) for block in "AAB"]


def test_each_record_is_scored_with_each_seed() -> None:
    law = Candidate("inverse", {"type": "inverse", "alpha": 29.0})
    records = ("elcentro_1940_ns", "benchmark_kobe_1995")
    scored = Conditions(noise_seeds=2, plants=0, indices=("J2",), records=records)
    rows = scoreboard.design(load(PAPER, ["duration=2"]), [law], scored).rows
    scenarios = [parse(row.scenario, "scenario") for row in rows]
    runs_of = [(scenario["ground_motion"]["record"], scenario["seed"]) for scenario in scenarios]
    assert runs_of == list(itertools.product(records, (1, 2)))


def test_cases_with_compensator_are_published_rows() -> None:
    cases = {
        "soft": {"set": {"structure.mass": 6e5}},
        "paper": {"set": {"compensator.alpha_es": 29}, "published": {"J2": 1}},
    }
    scenario = from_data(Scenario, load(PAPER).data() | {"cases": cases})
    assert scoreboard.cases(scenario) == ["soft"]
    published = scoreboard.published(scenario)
    assert {name: case.published for name, case in published.items()} == {"paper": {"J2": 1}}


def test_benchmark_has_its_indices_cases_and_blocks() -> None:
    scenario = load(BENCHMARK)
    assert scoreboard.cases(scenario) == ["case_1", "case_2", "case_3", "case_4"]
    shown = runs.shown_indices(scenario)
    assert [heading(BENCHMARK, index) for index in shown] == [f"J{number}" for number in range(1, 10)]
    assert heading(BENCHMARK, runs.ranking_index(scenario)) == "J2 true"
    assert heading("none", "J2") == "J2"
    rows = scoreboard.published(scenario)
    assert list(rows) == ["pi_1", "pi_2", "pi_3", "pi_4"]
    assert all(tuple(case.published) == shown for case in rows.values())
    law = Candidate("inverse", {"type": "inverse", "alpha": 90.0})
    first, second = (scoreboard.in_block(scenario, law, block) for block in scoreboard.blocks(scenario).values())
    sample = 1.0 / scenario.servo_rate
    assert (first["force_lead"], first["compensator"]["lead"]) == (None, sample)
    assert (second["force_lead"], second["compensator"]["lead"]) == (sample, 0.0)


def test_training_differs_from_scoring_in_plants_and_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    scatter = {"axes.story_1.actuator.alpha": {"normal": [29.0, 2.0]}}
    scenario = from_data(Scenario, load(PAPER, ["duration=0.25"]).data() | {"scatter": scatter})
    seen: list[Scenario] = []

    class Search(scoreboard.tuning.Search):
        def __init__(self, scenarios: Any, *further: Any) -> None:
            seen.extend(scenarios)
            super().__init__(scenarios, *further)

    monkeypatch.setattr(scoreboard.tuning, "Search", Search)
    law = Candidate("inverse", {"type": "inverse", "alpha": 20.0})
    none = Candidate("none", {"type": "none"})
    conditions = Conditions(tune=8, training_plants=2, noise_seeds=2, plants=2, indices=("J2",))
    tuned, results = scoreboard.tuned(scenario, [law, none], conditions, Where(), silent)
    assert tuned[0].settings["alpha"] == results["inverse"].values["compensator.alpha"]
    assert tuned[1] == none
    assert {training.seed for training in seen} == {scenario.seed + scoreboard.TRAINING}
    trained = {training.axes["story_1"].actuator.alpha for training in seen}
    plan = scoreboard.design(scenario, tuned, conditions)
    assert len(trained) == 3
    assert not trained & {plant.values["axes.story_1.actuator.alpha"] for plant in plan.plants[1:]}
    assert [level.label for level in plan.factors["seed"]] == [1, 2]


def test_training_shorter_than_parameter_range_is_refused() -> None:
    """The window of 1 s is searched up to 3 s; without a refusal it would silently remain untuned."""
    law = Candidate("slow", {"type": "adaptive_time_series", "delay": 0.027})
    conditions = Conditions(tune=8, training_plants=0, training=["duration=2"], indices=("J2",))
    with pytest.raises(ConfigError, match=naming("training", "slow", "3 s", "<= duration", "2 s")):
        scoreboard.tuned(load(PAPER, ["duration=10"]), [law], conditions, Where(), silent)


def test_command_writes_tables_settings_and_page(tmp_path: Path, output: RunCommand) -> None:
    out = tmp_path / "out"
    command = [*SCOREBOARD, "--laws", "none,inverse,predefined"]
    command += ["--out", str(out), "--noise-seeds", "2", "--response", "response_x"]
    summary = output(*command, "--tune", "8")
    assert mentions(summary.splitlines()[0], PAPER, "best inverse", "J2", "2 of 3", "4 runs")
    for part in ("4 runs", "inverse", "stable", "not run: ", "published"):
        assert part in summary
    with open(out / "scoreboard.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["compensator"] for row in rows] == ["inverse", "none", "predefined"]
    assert float(rows[0]["J2_worst"]) < float(rows[1]["J2_worst"])
    page = (out / "scoreboard.html").read_text()
    for part in ("Tracking against response", "Published", "worst case in training", "not run"):
        assert part in page
    text = (out / "scoreboard.md").read_text()
    assert f"rths_nodes {__version__}; " in text
    indices = "J2 (%) | J1 (ms) | J3 (%) | max error (mm) | response x (%)"
    assert f"\n| place | compensator | block | {indices} | outcome |\n" in text
    assert [line.split(" | ")[1] for line in text.splitlines()[4:7]] == ["inverse", "none", "predefined"]
    assert set(parse((out / "settings.yaml").read_text(), "settings")) == {"none", "inverse"}
    # the written settings give the same scores without tuning
    data = json.loads(output(*command, "--settings", str(out / "settings.yaml"), "--json"))
    assert data["scores"][0]["worst"]["J2"] == float(rows[0]["J2_worst"])


def test_unstable_compensator_is_printed_with_reason(tmp_path: Path, output: RunCommand) -> None:
    command = [*SCOREBOARD, "--set", "duration=4", "--set", "axes.story_1.limits.force=1e5"]
    command += ["--set", "monitor={}", "--laws", "none", "--out", str(tmp_path)]
    assert "unstable: 3 of 3 runs, tripped: " in " ".join(output(*command).split())


def test_plants_are_scored_if_scenario_has_scatter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default is 100 plants, or none without scatter, with three seeds each."""
    numbers: list[tuple[int, int]] = []

    def design(scenario: Any, laws: Any, scored: Conditions, *arguments: Any) -> None:
        numbers.append((scored.plants, scored.noise_seeds))
        raise ConfigError("enough")

    monkeypatch.setattr(scoreboard, "design", design)
    scatter = ["--set", "scatter={axes.story_1.actuator.alpha: {normal: [29, 3]}}"]
    command = [*SCOREBOARD, "--laws", "none", "--out", str(tmp_path)]
    for options in ([], scatter, [*scatter, "--plants", "7"]):
        assert main([*command, *options]) == 2
    assert numbers == [(0, 3), (100, 3), (7, 3)]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--laws", "invers"], ("laws", "unknown", "invers", "inverse")),
        (["--noise-seeds", "0"], ("noise_seeds", "0", ">= 1")),
        (["--tune", "3"], ("tune", "3", "0", ">= 8")),
        (["--settings", "nowhere.yaml"], ("settings", "nowhere.yaml")),
        (["--rank", "J99"], ("indices", "unknown", "J99")),
        (["--records", "elcentro_1940_ns,nowhere"], ("ground_motion.record", "unknown")),
        (["--plants", "2"], ("draw", "2", "plants")),
        (["--laws", "predefined"], ("predefined", "settings")),
        (["--run-programs"], ("--run-programs", "--verify")),
        (["--training", "duration=1", "--training-plants", "3"], ("duration=1", "--training-plants", "--tune")),
        (["--entry", "no/such/entry.yaml"], ("no/such/entry.yaml", "folder")),
    ],
)
def test_invalid_arguments_are_refused(
    options: list[str], parts: tuple[str, ...], tmp_path: Path, refusal: RunCommand
) -> None:
    assert mentions(refusal(*SCOREBOARD, "--laws", "none", "--out", str(tmp_path), *options), *parts)
    if "predefined" not in options:  # refused after the identification, which writes a model
        assert not any(tmp_path.iterdir())


# Entries


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("group")
    (folder / "settings.yaml").write_text("mine: {type: linear, file: law.yaml}\ninverse: {alpha: 14.0}\n")
    (folder / "law.yaml").write_text("numerator: [0.027, 1]\ndenominator: [0.004, 1]\n")
    (folder / "shaking.txt").write_text("".join(f"{0.5 * (-1) ** (n // 9)}\n" for n in range(120)))
    motion = {"type": "record", "file": str(folder / "shaking.txt"), "step": 0.01, "unit": "m/s^2"}
    options = ["--set", f"ground_motion={motion}", "--laws", "mine,inverse", "--noise-seeds", "2"]
    options += ["--settings", str(folder / "settings.yaml"), "--out", str(folder / "out")]
    assert main([*SCOREBOARD, *options, "--entry", str(folder / "entry.yaml")]) == 0
    return folder / "entry.yaml"


def load_entry(path: Path) -> Any:
    return parse(path.read_text(), "entry")


def write_signed(content: dict[str, Any], path: Path) -> str:
    """Write an entry with a valid digest, and return its path."""
    competition.write_entry(content | {"digest": competition.digest(content)}, path)
    return str(path)


def test_entry_is_verified_in_another_folder(
    entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: RunCommand
) -> None:
    """The files of the group are not needed."""
    moved = tmp_path / "theirs.yaml"
    moved.write_text(entry.read_text())
    assert str(entry.parent) not in moved.read_text()
    monkeypatch.chdir(tmp_path)
    text = output("scoreboard", "--verify", "theirs.yaml", "--jobs", "1")
    assert mentions(text, "mine", "stated")
    assert mentions(text, "inverse", "stated")
    assert "theirs.yaml: verified" in text
    assert "code: " not in text
    assert list(tmp_path.iterdir()) == [moved]


@pytest.mark.parametrize(
    "alter",
    [
        lambda content: content["scores"][0]["high"].update({"J2": 0.1}),
        lambda content: content["laws"]["inverse"].update({"alpha": 15.0}),
        lambda content: content["scored"].update({"seed": 2}),
        lambda content: content.update({"made": "2020-01-01 00:00 UTC"}),
    ],
)
def test_altered_entry_is_refused(alter: Any, entry: Path, tmp_path: Path, refusal: RunCommand) -> None:
    content = load_entry(entry)
    alter(content)
    altered = tmp_path / "altered.yaml"
    competition.write_entry(content, altered)
    assert mentions(refusal("scoreboard", "--verify", str(altered)), "altered.yaml", "altered")


def test_wrong_scores_with_valid_digest_fail_verification(entry: Path, tmp_path: Path, output: RunCommand) -> None:
    content = load_entry(entry)
    content["laws"]["inverse"]["alpha"] = 15.0
    content["code"]["files"] = "0123456789abcdef"
    forged = write_signed(content, tmp_path / "forged.yaml")
    text = output("scoreboard", "--verify", forged, "--jobs", "1", code=3)
    assert mentions(text, "mine", "stated")
    assert mentions(text, "inverse", "median")
    assert mentions(text, "forged.yaml", "1", "2", "rows")
    assert "code: files: 0123456789abcdef in the " in text


def test_entries_are_merged_into_one_table(
    entry: Path, tmp_path: Path, output: RunCommand, refusal: RunCommand
) -> None:
    content = load_entry(entry)
    content["scores"] = [row for row in content["scores"] if row["law"] == "inverse"]
    text = output("scoreboard", "--merge", str(entry), write_signed(content, tmp_path / "other.yaml"))
    rows = [line.split()[:2] for line in text.splitlines() if " A " in line]
    assert sorted(rows) == [["entry", "inverse"], ["entry", "mine"], ["other", "inverse"]]
    (tmp_path / "theirs").mkdir()
    theirs = write_signed(content, tmp_path / "theirs" / "entry.yaml")
    text = output("scoreboard", "--merge", str(entry), theirs)
    assert [line.split()[:2] for line in text.splitlines() if "theirs/entry" in line] == [
        ["theirs/entry", "inverse"]
    ]
    content["scored"]["seed"] = 7
    another = write_signed(content, tmp_path / "another.yaml")
    assert mentions(refusal("scoreboard", "--merge", str(entry), another), "another", "scored")


def test_entry_keeps_files_of_equal_name_apart(tmp_path: Path) -> None:
    stages = {}
    for stage in ("first", "second"):
        (tmp_path / stage).mkdir()
        (tmp_path / stage / "law.yaml").write_text(f"# {stage}\n")
        stages[stage] = {"type": "linear", "file": str(tmp_path / stage / "law.yaml")}
    law = scoreboard.Candidate("mine", {"type": "chain"} | stages)
    scenario = files.load("chen_ricles_2010")
    content: Any = competition.begun_entry(
        scenario, Conditions(noise_seeds=1, plants=0, indices=("J2",)), [law], tmp_path
    )
    names = [content["laws"]["mine"][stage]["file"] for stage in ("first", "second")]
    assert [content["files"][name] for name in names] == ["# first\n", "# second\n"]


@pytest.mark.parametrize("option", ["--verify", "--merge"])
def test_options_of_runs_are_refused_with_entries(option: str, refusal: RunCommand) -> None:
    scored = ("chen_ricles_2010", "--seed=2", "--set=duration=1", "--set=servo_rate=512", "--json", "--out=folder")
    error = refusal("scoreboard", *scored, f"--noise-seeds={DEFAULTS['noise_seeds']}", f"{option}=entry.yaml")
    text = "--set duration=1 servo_rate=512, --out folder, --json, benchmark chen_ricles_2010, --seed 2: has no"
    assert text in " ".join(error.split())


def test_files_without_entry_are_refused(tmp_path: Path, refusal: RunCommand) -> None:
    (tmp_path / "none.yaml").write_text("version: 1\n")
    for name, reason in (("none.yaml", "is not a scoreboard entry"), ("nowhere.yaml", "cannot be read")):
        assert reason in refusal("scoreboard", "--verify", str(tmp_path / name))


def test_scores_of_failed_runs_are_compared_since_version_2(entry: Path, tmp_path: Path) -> None:
    """Scores of version 1 omit failed runs; a repetition cannot reproduce them."""
    values = {"median": {"J2": 2.0}, "high": {"J2": math.inf}, "worst": {"J2": math.inf}}
    score = Score("mine", "A", 20, 3, "", **values)
    stored = {"law": "mine", "block": "A", "runs": 20, "failures": 3} | values
    finished = stored | {"high": {"J2": 2.5}, "worst": {"J2": 2.6}}
    assert competition._problems(stored, score, 2) == []
    assert len(competition._problems(finished, score, 2)) == 2
    assert competition._problems(finished, score, 1) == []
    assert len(competition._problems(finished | {"failures": 0}, score, 1)) == 3
    write_signed(load_entry(entry) | {"version": 1, "scores": [stored]}, tmp_path / "first.yaml")
    assert competition.read_entry(tmp_path / "first.yaml")["scores"] == [stored]


@pytest.mark.parametrize("name", ["../law.yaml", "/tmp/law.yaml", "..", "a/b"])
def test_entry_with_path_outside_its_folder_is_refused(
    name: str, entry: Path, tmp_path: Path, refusal: RunCommand
) -> None:
    content = load_entry(entry)
    content["files"][name] = "numerator: [1]\n"
    theirs = write_signed(content, tmp_path / "theirs.yaml")
    assert mentions(refusal("scoreboard", "--verify", theirs, "--jobs", "1"), f"files.{name}", "folder")


def test_fmu_entries_are_verified_only_with_option(
    tmp_path: Path, output: RunCommand, refusal: RunCommand
) -> None:
    """An entry contains the FMU of each group. They are programs and run only with ``--run-programs``."""
    fmus.skip_without_fmi()
    build, law = fmus.example(), fmus.EXAMPLE / "controller.c"
    for group in ("group_a", "group_b"):
        (tmp_path / group).mkdir()
        build.build(law, build.OTHERS["controller"], tmp_path / group / "law.fmu")
    names = {name: name for name in ("target", "velocity", "measured", "command")}
    law_settings = {"type": "fmu", "axes": {"story_1": names}}
    rows = {
        group: law_settings | {"file": f"{group}/law.fmu", "parameters": {"delay": delay}}
        for group, delay in (("group_a", 0.02), ("group_b", 0.03))
    }
    (tmp_path / "settings.yaml").write_text(dump(rows))
    options = ["--laws", "group_a,group_b", "--settings", str(tmp_path / "settings.yaml"), "--noise-seeds", "1"]
    path = tmp_path / "entry.yaml"
    output(*SCOREBOARD, *options, "--out", str(tmp_path / "out"), "--entry", str(path))
    assert {row["law"] for row in load_entry(path)["scores"]} == {"group_a", "group_b"}
    shutil.rmtree(tmp_path / "group_a")
    verify = ["scoreboard", "--verify", str(path), "--jobs", "1"]
    error = refusal(*verify)
    assert "group_a.file = group_a_law.fmu; group_b.file = group_b_law.fmu" in error
    assert "--run-programs" in error
    assert mentions(output(*verify, "--run-programs"), "group_a", "stated")


def test_entry_stores_package_of_compensator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, register: Any
) -> None:
    (tmp_path / "rths_nodes_of_a_lab.py").write_text(
        "from rths_nodes.control.compensators.none import NoCompensation as Mine\n"
        "class Law(Mine):\n    class Params(Mine.Params):\n        pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    register("compensator", object, "rths_nodes_of_a_lab:Law")
    scenario, scored = load("chen_ricles_2010"), Conditions(noise_seeds=1, plants=0, indices=("J2",))
    entry = competition.begun_entry(scenario, scored, [Candidate("law", {"type": "mine"})], tmp_path)
    assert entry["code"].keys() >= {"rths_nodes", "files", "python", "numpy", "scipy", "rths_nodes_of_a_lab"}
