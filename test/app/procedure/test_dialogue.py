# SPDX-License-Identifier: Apache-2.0
"""What an operator is asked: from the file first, then at the terminal, checked alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from messages import each_mentions, mentions, naming

from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console, Interrupted, arms
from rths_nodes.core.validation import from_data


def dialogue(typed: list[str] | None = None, **answers: Any) -> tuple[Console, list[str], list[Any]]:
    """With lines that an operator types, the questions that were asked, and what was said; None: no terminal."""
    questions: list[str] = []
    said: list[Any] = []
    lines: Iterator[str] = iter(typed or ())

    def ask(question: str) -> str:
        questions.append(question)
        return next(lines)

    return Console(from_data(Answers, answers), None if typed is None else ask, said.append), questions, said


def test_what_stands_in_the_file_is_not_asked() -> None:
    found, questions, _ = dialogue([], operator="A", level=0.2, unloaded=False)
    assert found.value("operator") == "A"
    assert found.value("level") == 0.2
    assert found.agreed("unloaded", "unloaded?") is False
    assert questions == []


def test_a_wrong_line_is_told_and_asked_again() -> None:
    found, questions, said = dialogue(["much", "1.5", "0.3"])
    assert found.value("level") == 0.3
    assert len(questions) == 3
    assert each_mentions(said, ("level", "much"), ("level", "1.5", "> 0", "<= 1"))


def test_an_empty_line_takes_what_is_proposed() -> None:
    found, questions, _ = dialogue([""])
    assert found.value("time_ratio", 10) == 10
    assert "(10)" in questions[0]


def test_yes_or_no_is_one_of_both_and_an_empty_line_is_no() -> None:
    found, _, said = dialogue(["maybe", "Y", ""])
    assert found.yes("sure?") is True
    assert said == ["y or n"]
    assert found.yes("sure?") is False


def test_a_rung_is_armed_by_the_head_of_its_hash() -> None:
    found, questions, _ = dialogue(["y", "", "d 0123AB"])
    assert [arms(found, "d", "0123abcdef", "9876543210") for _ in range(3)] == [False, False, True]
    assert mentions(questions[0], "d", "6")
    unseen, _, _ = dialogue(None, arm=["d"])
    assert arms(unseen, "d", "0123abcdef", "")
    assert not arms(unseen, "g", "0123abcdef", "")


def test_who_types_the_hash_of_the_offsets_is_told_so_and_asked_again() -> None:
    found, questions, said = dialogue(["987654", "d 987654", "d0123ab"])
    assert arms(found, "d", "0123abcdef", "9876543210")
    assert each_mentions(said, *[("hash", "offsets")] * 2)
    assert len(questions) == 3
    without, _, _ = dialogue([""])
    assert not arms(without, "d", "0123abcdef", "")


def test_a_rung_with_the_scenario_of_another_one_is_not_armed_in_its_place() -> None:
    found, _, said = dialogue(["0123ab", "f0123ab", "f 0123ab"])
    assert not arms(found, "d", "0123abcdef", ""), "the hash alone, then rung f"
    assert mentions(said[0], "d 0123ab")
    assert arms(found, "f", "0123abcdef", "")


def test_where_nobody_can_be_asked_it_says_what_was_asked() -> None:
    found, _, _ = dialogue(None)
    with pytest.raises(Interrupted, match=naming("operator", "test")):
        found.value("operator")


def test_a_closed_terminal_interrupts() -> None:
    def ask(question: str) -> str:
        raise EOFError

    found = Console(from_data(Answers, {}), ask, print)
    with pytest.raises(Interrupted, match=naming("terminal", "closed")):
        found.line("?")
    assert not found.asking
