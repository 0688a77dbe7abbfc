# SPDX-License-Identifier: Apache-2.0
"""The answers of an operator: strict, and what is missing has a name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from messages import mentions, naming
from named_motions import NAMED

from rths_nodes.app.procedure import answers
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data

WHOLE = {
    "operator": "A. Tester",
    "specimen": "D-17",
    "level": 0.2,
    "time_ratio": 10,
    "offsets_seconds": 2.0,
    "confirm_offsets": True,
    "unloaded": True,
    "arm": ["d", "e", "f", "g"],
    "largest_difference": {"b": 0.0, "c": 0.0, "d": 0.1, "e": 1.0, "f": 1.0, "g": 1.0},
    **NAMED,
}


def written(folder: Path, text: str) -> Path:
    file = folder / "answers.yaml"
    file.write_text(text)
    return file


def test_a_whole_set_of_answers_leaves_nothing_to_ask(tmp_path: Path) -> None:
    found = answers.read(written(tmp_path, yaml.safe_dump(WHOLE)))
    assert answers.missing(found) == []
    assert (found.operator, found.level, found.arm) == ("A. Tester", 0.2, ("d", "e", "f", "g"))


@pytest.mark.parametrize("key", WHOLE)
def test_each_answer_that_is_left_out_is_named(key: str) -> None:
    found = answers.missing(from_data(Answers, {name: value for name, value in WHOLE.items() if name != key}))
    assert [words.split(":")[0] for words in found] == [key]


def test_only_what_the_planned_rungs_need_is_asked() -> None:
    assert answers.needed(["a", "b"]) == ["operator", "specimen", "largest_difference"]
    assert answers.needed(["g"]) == [
        *("operator", "specimen", "offsets_seconds", "confirm_offsets", "unloaded"),
        *("check", "position", "arm", "run", "unload"),
    ]


def test_a_rung_that_may_not_be_armed_and_one_without_a_bound_are_named() -> None:
    partly = WHOLE | {"arm": ["d"], "largest_difference": {"b": 0.0, "c": 0.0, "d": 0.0, "e": 1.0, "f": 1.0}}
    found = answers.missing(from_data(Answers, partly))
    assert mentions(found[0], "arm", "e", "f", "g", "planned")
    assert found[1].startswith("largest_difference.g: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("operater: A", ("operater", "unknown", "operator")),
        ("level: 1.2", ("level", "1.2", "> 0", "<= 1")),
        ("level: a fifth", ("level", "a fifth")),
        ("time_ratio: 2.5", ("time_ratio", "2.5")),
        ("unload: true", ("unload", "True", "{moves: y}", "{moves: n}")),
        ("check: y\nrun: all", ("run", "'all'", "{moves: y}")),
        ("run: {moves: all}", ("run.moves", "unknown", "all", "n, y")),
        ("run: {moves: true}", ("run.moves", "True")),
        ("run: {}", ("run.moves", "missing")),
        ("moves: y", ("moves", "unknown")),
        ("all: y", ("all", "unknown")),
        ("unloaded: 1", ("unloaded", "1", "true")),
        ("rungs: [a, c, b]", ("rungs", "a, b, c")),
        ("rungs: [a, z]", ("rungs", "unknown", "z")),
        ("rungs: [a, h]", ("rungs", "rung h", "--next")),
        ("arm: [g, h]", ("arm", "rung h")),
        ("iteration: newton", ("iteration", "removed")),
        ("arm: [c]", ("arm", "c", "d, e, f, g")),
        ("test_id: ../elsewhere", ("test_id", "../elsewhere", "120")),
        ("operator: ' '", ("operator", "empty")),
        ("largest_difference: {z: 1}", ("largest_difference.z", "z", "unknown")),
        ("largest_difference: {b: much}", ("largest_difference.b", "much", ">= 0")),
        ("largest_difference: {b: .nan}", ("largest_difference.b", "nan", ">= 0")),
        ("just words", ("mapping", "answers")),
        ("a: [", ("not YAML",)),
    ],
)
def test_a_wrong_answer_is_refused_with_its_key(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError, match=naming(*words)) as found:
        answers.read(file)
    assert "answers.yaml" in str(found.value)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        answers.read(written(tmp_path, "level: 2\ntime_ratio: 1\noperater: A"))
    assert len(found.value.problems) == 3


def test_all_wrong_values_are_reported_at_once(tmp_path: Path) -> None:
    wrong = {"test_id": "a/b", "operator": " ", "specimen": "", "arm": ["g", "c"]}
    file = tmp_path / "answers.yaml"
    file.write_text(yaml.safe_dump(wrong | {"largest_difference": {"x": 1.0, "g": -2.0}}))
    with pytest.raises(ConfigError) as refused:
        answers.read(file)
    assert len(refused.value.problems) == 7
    for key in (*wrong, "arm = c", "largest_difference.x", "largest_difference.g = -2"):
        assert mentions(str(refused.value), key)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("answers", "nowhere.yaml")):
        answers.read("nowhere.yaml")


def test_the_template_is_a_file_of_answers_with_nothing_answered(tmp_path: Path) -> None:
    found = answers.read(written(tmp_path, answers.template()))
    assert found == from_data(Answers, {"rungs": list("abcdefg")})
    assert len(answers.missing(found)) == len(WHOLE)
    assert "level" not in answers.template(["a", "b"])
