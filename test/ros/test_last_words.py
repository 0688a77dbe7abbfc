"""What a node process leaves for the launch that has started it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros.hosting import last_words
from rths_nodes.ros.hosting.last_words import LastWords
from rths_nodes.ros.hosting.results import Result


def test_what_is_left_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = Result(exit_code=ExitCode.TRIPPED, sample=7, reason="too far")
    numbers = {"metrics.axes.a.max_error_m": 0.001, "sent.target": 3.0}
    words = last_words.of_process(0, "", test, numbers)
    assert words == LastWords(
        0, "", 3, "the test was tripped after 7 samples: too far", {"metrics.axes.a.max_error_m": 0.001}
    )
    monkeypatch.setenv(last_words.FILE, str(tmp_path / "monitor"))
    assert last_words.leave(words)
    assert last_words.read(tmp_path / "monitor") == words


def test_where_nothing_can_be_left_the_exit_code_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(last_words.FILE, raising=False)
    assert not last_words.leave(LastWords(3)), "no launch has started the process"
    monkeypatch.setenv(last_words.FILE, str(tmp_path / "gone" / "monitor"))
    assert not last_words.leave(LastWords(3)), "as on a full disk"


@pytest.mark.parametrize("text", ["", '{"exit_code": 3, "prob', "[3]", '{"of": 1}'])
def test_what_is_not_whole_counts_as_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "monitor").write_text(text)
    assert last_words.read(tmp_path / "monitor") is None
    assert last_words.read(tmp_path / "other") is None
