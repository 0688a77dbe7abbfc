# SPDX-License-Identifier: Apache-2.0
"""The record of a procedure while it is under way: many threads, full disks, deleted folders, a console killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from ends import largest_file
from messages import each_mentions, mentions, naming
from rig_runner import conducted, positioned

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import ProcedureRecord, RungRecord
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError


def armed(runner: ProcedureRunner) -> None:
    step, offsets = runner.ladder.step("g"), runner.session.offsets
    assert offsets is not None
    runner.do("arm", rung="g", scenario_hash=step.hash, offsets_hash=offsets.hash)


def test_two_threads_write_one_record(tmp_path: Path) -> None:
    """They wrote through one temporary name: one of them was told that the record cannot be written."""
    runner = conducted(tmp_path / "test")
    failed: list[str] = []

    def notes(number: int) -> None:
        try:
            for each in range(20):
                runner.do("note", text=f"{number}.{each}")
        except (ConfigError, RecordingError) as error:
            failed.append(str(error))

    threads = [threading.Thread(target=notes, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(procedure.read(tmp_path / "test").notes) == 80
    assert sorted(each.name for each in (tmp_path / "test").iterdir()) == [procedure.ROOM, procedure.FILE]


def test_no_act_fails_because_of_notes_beside_it(tmp_path: Path) -> None:
    """With notes every 20 ms 22 of 108 acts failed."""
    runner = conducted(tmp_path / "test")
    over, failed = threading.Event(), []

    def notes() -> None:
        while not over.is_set():
            try:
                runner.do("note", text="here")
            except (ConfigError, RecordingError) as error:
                failed.append(str(error))

    beside = threading.Thread(target=notes)
    beside.start()
    try:
        positioned(runner)
        armed(runner)
        runner.do("run", clear="CLEAR")
        runner.do("unload", clear="CLEAR")
        runner.do("finish")
    finally:
        over.set()
        beside.join()
    assert failed == []
    assert [act.refused for act in runner.record.acts if act.refused] == []
    assert len(procedure.read(tmp_path / "test").acts) == len(runner.record.acts)


def of_steel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a simulator does is no load of a specimen; here it is one."""
    monkeypatch.setattr(ProcedureRecord, "simulation", "")


def test_a_rung_and_its_act_are_written_before_anything_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_steel(monkeypatch)
    runner = conducted(tmp_path / "test")
    positioned(runner)
    armed(runner)
    found: list[ProcedureRecord] = []
    host = runner._host

    def hosted(*given: Any) -> Any:
        found.append(procedure.read(tmp_path / "test"))
        return host(*given)

    monkeypatch.setattr(runner, "_host", hosted)
    runner.do("run", clear="CLEAR")
    (then,) = found
    assert (then.acts[-1].act, then.acts[-1].under_way, then.acts[-1].result) == ("run", True, "")
    rung = then.rungs[-1]
    assert (rung.name, rung.outcome, rung.recording, rung.level) == ("g", "", "rung_g", 1.0)
    assert then.specimen.history[-1]["rung"] == "g"
    now = procedure.read(tmp_path / "test")
    assert not now.acts[-1].under_way
    assert now.rungs[-1].outcome == "finished"
    assert [row["rung"] for row in now.specimen.history] == ["g"]
    assert now.specimen.history[-1]["displacement"]["story_1"] > 0.0


def broken_off(runner: ProcedureRunner, folder: Path) -> RungRecord:
    """Record of a rung g that broke off; the history of the specimen has the peaks of its recording."""
    assert runner.state is State.TRIPPED
    (rung,) = [entry for entry in procedure.read(folder).rungs if entry.name == "g"]
    run = read_run(folder / rung.recording)
    assert rung.outcome == "failed"
    assert rung.samples == len(run.time) - 1
    (row,) = procedure.read(folder).specimen.history
    assert row["displacement"]["story_1"] == pytest.approx(abs(run.displacement).max())
    assert row["displacement"]["story_1"] > 0.0
    return rung


def test_a_rung_that_breaks_off_is_in_the_history_with_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row stayed without numbers, though the specimen had gone through it."""
    of_steel(monkeypatch)
    runner = conducted(tmp_path / "test")
    positioned(runner)
    armed(runner)
    with largest_file(100_000), pytest.raises(RuntimeError, match=naming("recording", "aborted")):
        runner.do("run", clear="CLEAR")
    assert each_mentions(broken_off(runner, tmp_path / "test").remarks, ("peaks", "recorded"))


@pytest.mark.parametrize("fails_in", ["write", "read", "wait_tick"])
def test_a_cable_that_is_cut_in_a_rung_fails_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_in: str
) -> None:
    """A result, not an exception: the procedure tries once to hold the rig; then only finish leads on."""
    of_steel(monkeypatch)
    runner = conducted(tmp_path / "test")
    positioned(runner)
    armed(runner)
    works, started = getattr(Simulator, fails_in), runner.session.measured.sample
    failures: list[int] = []

    def cut(self: Simulator, *given: Any) -> Any:
        if self.sample - started >= 150:
            failures.append(self.sample)
            raise PortError("the cable is cut")
        return works(self, *given)

    monkeypatch.setattr(Simulator, fails_in, cut)
    assert mentions(runner.do("run", clear="CLEAR"), "rung g", "failed", "cable is cut")
    rung = broken_off(runner, tmp_path / "test")
    assert mentions(rung.reason, "cable is cut")
    assert 148 <= rung.samples <= 151
    possible = {act for act, why in runner.session.possible().items() if not why}
    assert possible == {"finish", "note", "stop"}
    assert "acknowledge it" not in "".join(runner.session.possible().values())
    runner.do("finish")
    assert len(failures) == 2, "one by the run, one by the procedure, which tries to hold the rig once"
    assert runner.conclude("", "", "") is ExitCode.FAILED
    record = procedure.read(tmp_path / "test")
    assert (record.outcome, mentions(record.reason, "rung g", "cable is cut")) == ("failed", True)


class FullDisk:
    """The folder of a test on a disk of its own, a small one, which is filled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def fill(self) -> None:
        with suppress(OSError), (self.place / "others").open("wb", buffering=0) as stream:
            while stream.write(bytes(4096)):
                pass


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FullDisk]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no small disk can be mounted here")
    yield FullDisk(place)
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_on_a_full_disk_nothing_moves_a_stop_is_done_and_the_last_words_are_written(disk: FullDisk) -> None:
    runner = conducted(disk.place / "test")
    positioned(runner)
    armed(runner)
    disk.fill()
    assert runner.do("stop", reason="enough") == ""  # it was answered as refused
    assert runner.state is State.HELD
    before = runner.session.drive.command
    with pytest.raises(RecordingError, match=naming("procedure", "space")):
        runner.do("position", clear="CLEAR")
    assert runner.state is State.HELD
    assert runner.session.drive.command is before
    runner.session.close()
    assert runner.conclude("", "", "") is ExitCode.FAILED  # 2, "nothing has moved"
    record = procedure.read(disk.place / "test")
    assert record.outcome == "failed"
    assert mentions(record.reason, "space", "left")
    assert [act.act for act in record.acts][-2:] == ["stop", "position"]


def test_a_folder_that_is_deleted_under_way_is_a_failure(tmp_path: Path) -> None:
    runner = conducted(tmp_path / "test")
    positioned(runner)
    armed(runner)
    shutil.rmtree(tmp_path / "test")
    with pytest.raises(RecordingError, match=naming("folder", "no longer exists")):
        runner.do("run", clear="CLEAR")
    runner.session.close()
    assert runner.conclude("", "", "") is ExitCode.FAILED
    assert procedure.read(tmp_path / "test").outcome == "failed"


def test_a_console_that_is_killed_while_the_rig_moves_leaves_the_history_of_the_specimen(
    tmp_path: Path,
    environment: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_steel(monkeypatch)
    answers = tmp_path / "answers.yaml"
    answers.write_text(
        "{test_id: killed, operator: A. Tester, specimen: D-17, rungs: [g], arm: [g], offsets_seconds: 0.5, "
        "confirm_offsets: true, unloaded: true, check: {moves: y}, position: {moves: y}, run: {moves: y}, "
        "unload: {moves: n}, sign_for: [story_1]}"
    )
    words = [
        "test",
        "chen_ricles_2010",
        "--rig",
        "bench_simulated",
        "--set=duration=60",
        "--answers",
        str(answers),
    ]
    program = subprocess.Popen(
        [sys.executable, "-m", "rths_nodes.app.cli", *words],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    folder = tmp_path / "runs" / "killed"
    journal = folder / "rung_g" / "rung_g_0.mcap"
    try:
        while program.poll() is None and not (journal.exists() and journal.stat().st_size > 100_000):
            time.sleep(0.02)
        assert main(["recover", str(folder)]) == 2
        assert mentions(capsys.readouterr().err, "still", "running")
    finally:
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
    killed = procedure.read(folder)
    assert (killed.outcome, killed.acts[-1].under_way) == ("", True)
    assert (killed.rungs[-1].name, killed.rungs[-1].outcome, killed.rungs[-1].recording) == ("g", "", "rung_g")
    assert main(["recover", str(folder)]) == 0
    assert mentions(capsys.readouterr().out, "D-17", "rung g")
    record = procedure.read(folder)
    rung = record.rungs[-1]
    assert (record.outcome, rung.outcome, record.acts[-1].under_way) == ("interrupted", "interrupted", False)
    assert rung.samples > 0
    (row,) = record.specimen.history
    run = rths_nodes.read(folder / "rung_g")
    assert row["displacement"]["story_1"] == pytest.approx(abs(run.displacement).max())
    assert main(["recover", str(folder)]) == 0
    assert "is complete" in capsys.readouterr().out
