# SPDX-License-Identifier: Apache-2.0
"""What a node process leaves for the launch that has started it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from messages import mentions

from rths_nodes.loop import outcomes
from rths_nodes.loop.outcomes import LastWords


def test_what_is_left_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = LastWords(0, "", 3, "the test was tripped after 7 samples: too far", {"metrics.hsem_percent": 0.1})
    monkeypatch.setenv(outcomes.REPORT_FILE, str(tmp_path / "monitor"))
    assert outcomes.report_to_launch(words)
    assert outcomes.read_report(tmp_path / "monitor") == words


def test_where_nothing_can_be_left_the_exit_code_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(outcomes.REPORT_FILE, raising=False)
    assert not outcomes.report_to_launch(LastWords(3)), "no launch has started the process"
    monkeypatch.setenv(outcomes.REPORT_FILE, str(tmp_path / "gone" / "monitor"))
    assert not outcomes.report_to_launch(LastWords(3)), "as on a full disk"


@pytest.mark.parametrize("text", ["", '{"exit_code": 3, "prob', "[3]", '{"of": 1}'])
def test_what_is_not_whole_counts_as_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "monitor").write_text(text)
    assert outcomes.read_report(tmp_path / "monitor") is None
    assert outcomes.read_report(tmp_path / "other") is None


def test_who_has_died_is_known_to_those_of_the_same_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(outcomes.REPORT_FILE, raising=False)
    assert outcomes.reported_death() == "", "no launch has started the process"
    monkeypatch.setenv(outcomes.REPORT_FILE, str(tmp_path / "recorder.json"))
    assert outcomes.reported_death() == ""
    (tmp_path / outcomes.DIED).write_text("the monitor node died (SIGKILL)")
    assert mentions(outcomes.reported_death(), "died", "SIGKILL")


INTERRUPTED = """
import signal
from rths_nodes.loop.interrupts import exit_at_once
from rths_nodes.loop.outcomes import LastWords, report_to_launch
with exit_at_once(130, lambda: report_to_launch(LastWords(130, "interrupted"))):
    signal.raise_signal(signal.{name})
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_still_loads_its_modules_has_last_words_too(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = [sys.executable, "-c", INTERRUPTED.format(name=number.name)]
    monkeypatch.delenv(outcomes.REPORT_FILE, raising=False)
    alone = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (alone.returncode, alone.stderr) == (130, "rths: interrupted\n")
    monkeypatch.setenv(outcomes.REPORT_FILE, str(tmp_path / "monitor"))
    launched = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (launched.returncode, launched.stderr) == (0, "")
    assert outcomes.read_report(tmp_path / "monitor") == LastWords(130, "interrupted")
