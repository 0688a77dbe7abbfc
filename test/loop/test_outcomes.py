# SPDX-License-Identifier: Apache-2.0
"""Tests of the outcome of a test, its exit code, and the report of a node process to its launch."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from messages import mentions

from rths_nodes.loop import outcomes
from rths_nodes.loop.outcomes import ExitCode, LastWords, of_nodes, of_state, valid
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import LateData


def test_exit_codes_are_fixed() -> None:
    codes = {"finished": 0, "failed": 1, "refused": 2, "tripped": 3, "held": 130}
    assert {code.outcome: int(code) for code in ExitCode if code is not ExitCode.NOT_VALID} == codes
    assert (int(ExitCode.NOT_VALID), ExitCode.NOT_VALID.outcome) == (4, "not valid")
    recorded = {code.outcome: code.recorded for code in ExitCode}
    assert recorded == {name: name for name in codes} | {"not valid": "finished"}


def test_commands_page_lists_exit_codes() -> None:
    lines = (Path(__file__).resolve().parents[2] / "doc" / "commands.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("| exit code | outcome | when |") + 2
    rows = [f"| {code:d} | `{code.outcome}` | {code.meaning} |" for code in ExitCode]
    assert [*lines[start : start + len(rows)], ""] == [*rows, lines[start + len(rows)]]


@pytest.mark.parametrize(
    ("late", "samples", "parts"),
    [
        (LateData(1705), 3080, ("55 % bridged", "2 %")),
        (LateData(62), 3080, ("2.0 % bridged", "2 %")),
        (LateData(60), 3000, ()),
        (LateData(30, 30), 2970, ()),
        (LateData(31, 31), 2970, ("2.1 % missed or bridged", "2 %")),
        (LateData(0, 3329), 3080, ("52 % missed", "2 %")),
        (LateData(), 3080, ()),
        (LateData(), 0, ()),
        (LateData(), -1, ()),
        (LateData(4), 3, ("100 % bridged", "2 %")),
        (LateData(0, 11, 0.0107, 0.010), 30000, ("10.7 ms", "bridge.max_bridge = 10 ms")),
        (LateData(0, 10, 0.010, 0.010), 30000, ()),
        (LateData(0, 900, 3.25, 0.010), 3080, ("23 % missed", "3250 ms", "bridge.max_bridge = 10 ms")),
    ],
)
def test_late_periods_or_gap_beyond_bounds_are_not_valid(
    late: LateData, samples: int, parts: tuple[str, ...]
) -> None:
    reason = late.not_valid(samples)
    assert reason.startswith("not valid: ") is bool(parts)
    assert [part for part in parts if part not in reason] == []
    assert late.ending("finished", samples) == (reason or "finished")
    assert late.ending("tripped", samples) == "tripped"
    assert valid(ExitCode.FINISHED, late, samples) is (ExitCode.NOT_VALID if parts else ExitCode.FINISHED)
    assert valid(ExitCode.HELD, late, samples) is ExitCode.HELD


@pytest.mark.parametrize(
    ("bridged", "longest"), [([], 0), ([7], 1), ([1, 3, 5], 1), ([1, 2, 3, 9, 10], 3), ([1, 4, 5, 6, 7], 4)]
)
def test_longest_gap_of_bridged_samples(bridged: list[int], longest: int) -> None:
    late = LateData.of_bridged(bridged, 0.001, 0.010)
    assert (late.bridged, late.missed, late.max_bridge) == (len(bridged), 0.0, 0.010)
    assert late.gap == pytest.approx(0.001 * longest)


def test_exit_code_of_state() -> None:
    ended = {State.FINISHED: 0, State.HELD: 130, State.TRIPPED: 3}
    assert {state: int(of_state(state)) for state in State} == {state: ended.get(state, 1) for state in State}


@pytest.mark.parametrize(
    ("codes", "state", "interrupted", "expected"),
    [
        ((0, 0), State.FINISHED, False, ExitCode.FINISHED),
        ((0, 0), State.FINISHED, True, ExitCode.FINISHED),
        ((0, 0), State.HELD, False, ExitCode.HELD),
        ((0, 0), State.IDLE, True, ExitCode.HELD),
        ((0, 0), State.IDLE, False, ExitCode.FAILED),
        ((0, 3), State.TRIPPED, False, ExitCode.TRIPPED),
        ((0, 2), State.IDLE, False, ExitCode.REFUSED),
        ((3, 2), State.TRIPPED, False, ExitCode.TRIPPED),
        ((3, 1), State.TRIPPED, False, ExitCode.FAILED),
        ((0, -9), State.TRIPPED, False, ExitCode.FAILED),
        ((0, 130), State.FINISHED, False, ExitCode.HELD),
        ((130, 2), State.HELD, False, ExitCode.REFUSED),
        ((0, 4), State.FINISHED, False, ExitCode.NOT_VALID),
        ((4, 130), State.FINISHED, False, ExitCode.HELD),
        ((), State.RUNNING, False, ExitCode.FAILED),
    ],
)
def test_exit_code_of_nodes_is_the_worst(
    codes: Sequence[int], state: State, interrupted: bool, expected: ExitCode
) -> None:
    assert of_nodes(codes, state, interrupted) is expected


def test_report_to_launch_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = LastWords(0, "", 3, "the test was tripped after 7 samples: too far", {"metrics.hsem_percent": 0.1})
    monkeypatch.setenv(outcomes.REPORT_FILE, str(tmp_path / "monitor"))
    assert outcomes.report_to_launch(report)
    assert outcomes.read_report(tmp_path / "monitor") == report


def test_report_fails_without_launch_or_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(outcomes.REPORT_FILE, raising=False)
    assert not outcomes.report_to_launch(LastWords(3)), "without a launch"
    monkeypatch.setenv(outcomes.REPORT_FILE, str(tmp_path / "gone" / "monitor"))
    assert not outcomes.report_to_launch(LastWords(3)), "the folder is missing"


@pytest.mark.parametrize("text", ["", '{"exit_code": 3, "prob', "[3]", '{"of": 1}'])
def test_incomplete_report_is_ignored(text: str, tmp_path: Path) -> None:
    (tmp_path / "monitor").write_text(text)
    assert outcomes.read_report(tmp_path / "monitor") is None
    assert outcomes.read_report(tmp_path / "other") is None


def test_death_is_reported_within_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(outcomes.REPORT_FILE, raising=False)
    assert outcomes.reported_death() == "", "without a launch"
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
def test_interrupt_during_import_is_reported(
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
