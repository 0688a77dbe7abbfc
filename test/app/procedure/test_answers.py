# SPDX-License-Identifier: Apache-2.0
"""Tests of the operator's answers: from a file, or at the terminal with the same checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from messages import each_mentions, mentions, naming
from rig_runner import NAMED

from rths_nodes.app.procedure import answers
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console, arms
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data

COMPLETE = {
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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "answers.yaml"


def test_complete_answers_lack_nothing(file: Path) -> None:
    file.write_text(yaml.safe_dump(COMPLETE))
    result = answers.read(file)
    assert answers.missing(result) == []
    assert (result.operator, result.level, result.arm) == ("A. Tester", 0.2, ("d", "e", "f", "g"))


@pytest.mark.parametrize("key", COMPLETE)
def test_missing_answer_is_reported(key: str) -> None:
    reasons = answers.missing(from_data(Answers, {name: COMPLETE[name] for name in COMPLETE if name != key}))
    assert [reason.split(":")[0] for reason in reasons] == [key]


def test_needed_answers_depend_on_planned_rungs() -> None:
    assert answers.needed(["a", "b"]) == ["operator", "specimen", "largest_difference"]
    assert answers.needed(["g"]) == [
        *("operator", "specimen", "offsets_seconds", "confirm_offsets", "unloaded"),
        *("check", "position", "arm", "run", "unload"),
    ]


def test_rungs_without_permission_or_bound_are_reported() -> None:
    partial = COMPLETE | {"arm": ["d"], "largest_difference": {"b": 0.0, "c": 0.0, "d": 0.0, "e": 1.0, "f": 1.0}}
    reasons = answers.missing(from_data(Answers, partial))
    assert mentions(reasons[0], "arm", "e", "f", "g", "planned")
    assert reasons[1].startswith("largest_difference.g: ")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("operater: A", ("operater", "unknown", "operator")),
        ("level: 1.2", ("level", "1.2", "> 0", "<= 1")),
        ("level: a fifth", ("level", "a fifth")),
        ("checklist: {bolts: yes}", ("checklist.bolts", "'yes'", "y or n")),
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
def test_invalid_answer_is_refused_by_key(file: Path, text: str, parts: tuple[str, ...]) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=naming(*parts)) as refused:
        answers.read(file)
    assert "answers.yaml" in str(refused.value)


def test_all_invalid_answers_are_reported_at_once(file: Path) -> None:
    file.write_text("level: 2\ntime_ratio: 1\noperater: A")
    with pytest.raises(ConfigError) as refused:
        answers.read(file)
    assert len(refused.value.problems) == 3
    invalid = {"test_id": "a/b", "operator": " ", "specimen": "", "arm": ["g", "c"]}
    file.write_text(yaml.safe_dump(invalid | {"largest_difference": {"x": 1.0, "g": -2.0}}))
    with pytest.raises(ConfigError) as refused:
        answers.read(file)
    assert len(refused.value.problems) == 7
    for key in (*invalid, "arm = c", "largest_difference.x", "largest_difference.g = -2"):
        assert mentions(str(refused.value), key)


def test_missing_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("answers", "nowhere.yaml")):
        answers.read("nowhere.yaml")


def test_template_is_a_file_without_answers(file: Path) -> None:
    file.write_text(answers.template())
    result = answers.read(file)
    assert result == from_data(Answers, {"rungs": list("abcdefg")})
    assert len(answers.missing(result)) == len(COMPLETE)
    assert "level" not in answers.template(["a", "b"])


def dialogue(typed: list[str] | None = None, **answers: Any) -> tuple[Console, list[str], list[Any]]:
    """Return a console, its questions and its output; ``typed`` lines answer them, None is without a terminal."""
    questions: list[str] = []
    output: list[Any] = []
    lines: Iterator[str] = iter(typed or ())

    def ask(question: str) -> str:
        questions.append(question)
        return next(lines)

    return Console(from_data(Answers, answers), None if typed is None else ask, output.append), questions, output


def test_console_does_not_ask_for_answers_of_the_file() -> None:
    console, questions, _ = dialogue([], operator="A", level=0.2, unloaded=False)
    assert console.value("operator") == "A"
    assert console.value("level") == 0.2
    assert console.agreed("unloaded", "unloaded?") is False
    assert questions == []


def test_console_asks_again_after_an_invalid_line() -> None:
    console, questions, output = dialogue(["much", "1.5", "0.3"])
    assert console.value("level") == 0.3
    assert len(questions) == 3
    assert each_mentions(output, ("level", "much"), ("level", "1.5", "> 0", "<= 1"))


def test_empty_line_takes_the_default() -> None:
    console, questions, _ = dialogue(["", "17"])
    assert (console.value("time_ratio", 10), console.value("specimen")) == (10, "17")
    assert "(10)" in questions[0]


def test_yes_must_be_typed() -> None:
    console, _, output = dialogue(["maybe", "Y", ""])
    assert [console.yes("sure?"), console.yes("sure?"), output] == [True, False, ["y or n"]]


def test_rung_is_armed_by_first_characters_of_its_hash() -> None:
    console, questions, _ = dialogue(["y", "", "d 0123AB"])
    assert [arms(console, "d", "0123abcdef", "9876543210") for _ in range(3)] == [False, False, True]
    assert mentions(questions[0], "d", "6")
    console, _, _ = dialogue(None, arm=["d"])
    assert arms(console, "d", "0123abcdef", "")
    assert not arms(console, "g", "0123abcdef", "")


def test_hash_of_offsets_is_recognised_and_asked_again() -> None:
    console, questions, output = dialogue(["987654", "d 987654", "d0123ab"])
    assert arms(console, "d", "0123abcdef", "9876543210")
    assert each_mentions(output, *[("hash", "offsets")] * 2)
    assert len(questions) == 3
    assert not arms(dialogue([""])[0], "d", "0123abcdef", "")


def test_rung_is_not_armed_by_another_name_or_hash_alone() -> None:
    console, _, output = dialogue(["0123ab", "f0123ab", "f 0123ab"])
    assert not arms(console, "d", "0123abcdef", "")
    assert mentions(output[0], "d 0123ab")
    assert arms(console, "f", "0123abcdef", "")


def test_question_without_terminal_or_at_a_closed_one_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt, match=naming("operator", "test")):
        dialogue(None)[0].value("operator")

    def ask(question: str) -> str:
        raise EOFError

    console = Console(from_data(Answers, {}), ask, print)
    with pytest.raises(KeyboardInterrupt, match=naming("terminal", "closed")):
        console.line("?")
    assert not console.asking
