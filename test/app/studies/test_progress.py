# SPDX-License-Identifier: Apache-2.0
"""Tests of progress: shares of the work, estimates of the remaining time, and their display."""

from __future__ import annotations

import importlib
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from messages import mentions

from rths_nodes.analysis.units import span
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.commands import studies, terminal
from rths_nodes.app.studies import engine, study
from rths_nodes.app.studies.engine import Where, summed
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.numerical.integrators.dynamics import ChenRicles

PAPER = "chen_ricles_2010"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (12.4, "12 s"), (119.0, "119 s"), (150.0, "2 min"), (9000.0, "2 h")]
)
def test_durations_are_printed_in_short(seconds: float, text: str) -> None:
    assert span(seconds) == text


# Expected duration of one test


def test_trial_run_estimates_duration_of_many_samples() -> None:
    scenario = files.load(PAPER)
    assert engine.expected_s(scenario, engine.WORTH - 1) is None
    expected = engine.expected_s(scenario, 1e6)
    assert expected is not None
    assert 1.0 < expected < 1e4


def test_external_components_get_no_trial_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChenRicles, "external", True, raising=False)
    monkeypatch.setattr(Loop, "run", lambda *_, **__: pytest.fail("a test was run to measure its speed"))
    assert engine.expected_s(files.load(PAPER), 1e6) is None


def test_study_runs_laws_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(
        "version: 1\nname: s\nscenario: predefined_sine\nset: {duration: 1.0}\nfactors:\n"
        "  law: {settings: {quick: {compensator: {type: none}},\n"
        "    slow: {compensator: {type: inverse, alpha: 29}}}}\n"
        "  seed: {list: [1, 2, 3]}\n"
    )
    plan = study.load(file)
    with study.Journal(tmp_path / "out") as journal:
        rows = study.undone(plan, journal)
        assert [row.levels["law"] for row in rows] == ["quick", "slow"] * 3
        assert [row.levels["seed"] for row in rows] == [1, 1, 2, 2, 3, 3]
        reports: list[tuple[float, ...]] = []
        study.run(plan, journal, Where(), summed(lambda *report: reports.append(report)))
        assert reports[-1][0] == reports[-1][1]
        assert study.undone(plan, journal) == []


# Display


def test_progress_is_printed_in_lines_without_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter([0.0, 1.0, 2.0, 31.0, 40.0, 70.0])
    monkeypatch.setattr("rths_nodes.app.commands.terminal.time.monotonic", lambda: next(now))
    with terminal.progress("mine") as progress:  # 0
        progress.starting("waits for monitor")
        progress(10, 1000)
        progress(300, 1000)  # at 31 s: 290 in 29 s
        progress(400, 1000)
        progress(690, 1000)  # at 70 s: 680 in 68 s
    assert capsys.readouterr().err == "mine: 30% done, about 70 s left\nmine: 69% done, about 31 s left\n"


HALF = '''
from pathlib import Path

def half(file, tell):
    """Report a half and wait until the report was received."""
    tell(0.5)
    while not Path(file).exists():
        pass
    return "done"
'''


def test_task_in_another_process_reports_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_done.py").write_text(HALF)
    monkeypatch.syspath_prepend(str(tmp_path))
    task = importlib.import_module("half_done").half
    reports: list[list[float]] = []

    def progress(shares: Sequence[float]) -> None:
        reports.append(list(shares))
        if shares[0] == 0.5:
            (tmp_path / "received").touch()

    jobs = [(0, (str(tmp_path / "received"),))]
    assert list(engine.as_completed(task, jobs, 1, Where(2), progress)) == [(0, "done")]
    assert [0.5] in reports
    assert reports[-1] == [1.0]


def test_comparison_reports_progress_within_variants() -> None:
    variants = studies.variants(files.load(PAPER), ["", "compensator.type=none"])
    reports: list[tuple[float, ...]] = []
    studies.compare(variants, where=Where(1), progress=lambda *report: reports.append(report))
    done = [share for share, _ in reports]
    assert done == sorted(done)
    assert len(set(done)) > 2 * len(variants)
    assert reports[-1][0] == reports[-1][1]


@pytest.mark.nodes
def test_run_stopped_before_start_prints_no_indices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rclpy")
    run = hosts.run
    monkeypatch.setattr(
        hosts, "run", lambda *scenario, **options: run(*scenario, **(options | {"interrupted": lambda: True}))
    )
    assert main(["run", PAPER, "--host", "composed", "--no-record", "--set", "duration=0.2"]) == 130
    text = capsys.readouterr().out
    assert mentions(text, "test", "began")
    assert mentions(text, "no indices", "valid samples")
    assert not re.search("max error|energy error|median", text)


@pytest.mark.nodes
def test_terminal_shows_nodes_that_have_not_started(tmp_path: Path) -> None:
    pytest.importorskip("rclpy")
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "rths_nodes.app.cli", "run", PAPER, "--set=duration=0.2", "--no-record"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "200"}
    run = subprocess.Popen(
        [*command, "--host", "processes"],
        stdout=subprocess.DEVNULL,
        stderr=follower,
        env=environment,
        cwd=tmp_path,
    )
    os.close(follower)
    text = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(leader, 65536):
            text += part
    assert run.wait(timeout=60) == 0, text
    assert b"waits for integrator, compensator, actuator, monitor" in text, text
