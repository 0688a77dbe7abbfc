# SPDX-License-Identifier: Apache-2.0
"""How far a command is, how long it takes, and what is told of a test that never began."""

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
from typing import Any

import pytest
from messages import mentions

from rths_nodes.analysis.units import span
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.commands import compare, terminal
from rths_nodes.app.studies import engine, remaining
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.numerical.integrators.cr import ChenRicles

PAPER = "chen_ricles_2010"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (12.4, "12 s"), (119.0, "119 s"), (150.0, "2 min"), (9000.0, "2 h")]
)
def test_times_to_wait_are_short(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_a_trial_estimates_the_time_of_many_samples() -> None:
    scenario = files.load(PAPER)
    assert engine.expected_s(scenario, engine.WORTH - 1) is None
    expected = engine.expected_s(scenario, 1e6)
    assert expected is not None
    assert 1.0 < expected < 1e4


def test_what_stands_outside_of_this_process_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        pytest.fail("a test was run to learn its speed")

    monkeypatch.setattr(ChenRicles, "external", True, raising=False)
    monkeypatch.setattr(Loop, "run", run)
    assert engine.expected_s(files.load(PAPER), 1e6) is None


def test_without_a_terminal_a_long_test_tells_in_lines_how_far_it_is(
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

def half(told, tell):
    """Says that half of it is done, and goes on once that was heard."""
    tell(0.5)
    while not Path(told).exists():
        pass
    return "done"
'''


def test_work_in_another_process_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_done.py").write_text(HALF)
    monkeypatch.syspath_prepend(str(tmp_path))
    work = importlib.import_module("half_done").half
    heard: list[list[float]] = []

    def progress(shares: Sequence[float]) -> None:
        heard.append(list(shares))
        if shares[0] == 0.5:
            (tmp_path / "told").touch()

    jobs = [(0, (str(tmp_path / "told"),))]
    assert list(engine.as_completed(work, jobs, 1, engine.Where(2), progress)) == [(0, "done")]
    assert [0.5] in heard
    assert heard[-1] == [1.0]


def test_a_comparison_tells_how_far_it_is_within_a_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remaining, "EVERY_S", 0.0)  # at every word of a variant
    chosen = compare.variants(files.load(PAPER), ["", "compensator.type=none"])
    told: list[tuple[float, float]] = []
    compare.compare(chosen, workers=1, progress=lambda done, of: told.append((done, of)))
    done = [share for share, _ in told]
    assert done == sorted(done)
    assert len(set(done)) > 2 * len(chosen)
    assert told[-1][0] == told[-1][1]


@pytest.mark.nodes
def test_a_test_that_never_began_prints_no_table_of_dashes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rclpy")
    run = hosts.run

    def interrupted_at_once(*scenario: Any, **options: Any) -> hosts.RunResult:
        return run(*scenario, **(options | {"interrupted": lambda: True}))

    monkeypatch.setattr(hosts, "run", interrupted_at_once)
    assert main(["run", PAPER, "--host", "composed", "--no-record", "--set", "duration=0.2"]) == 130
    shown = capsys.readouterr().out
    assert mentions(shown, "test", "began")
    assert mentions(shown, "no indices", "valid samples")
    assert not re.search("max error|energy error|median", shown)


@pytest.mark.nodes
def test_while_nodes_start_a_terminal_shows_for_which_one_waits(tmp_path: Path) -> None:
    pytest.importorskip("rclpy")
    leader, follower = pty.openpty()
    words = ["run", PAPER, "--set=duration=0.2", "--host", "processes", "--no-record"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "200"}
    run = subprocess.Popen(
        [sys.executable, "-m", "rths_nodes.app.cli", *words],
        stdout=subprocess.DEVNULL,
        stderr=follower,
        env=environment,
        cwd=tmp_path,
    )
    os.close(follower)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(leader, 65536):
            shown += part
    assert run.wait(timeout=60) == 0, shown
    assert b"waits for integrator, compensator, actuator, monitor" in shown, shown
