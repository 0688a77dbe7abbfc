# SPDX-License-Identifier: Apache-2.0
"""Tests of the record during a procedure: threads, full disks, deleted folders, and a killed console."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_fixtures import RunCommand
from ends import largest_file
from messages import each_mentions, mentions, naming
from programs import RTHS, killed, wait_for_journal
from rig_runner import OF_RUNG_G, arm, conducted, positioned

import rths_nodes
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import ProcedureRecord, RungRecord
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError


def test_threads_write_one_record(tmp_path: Path) -> None:
    """With one temporary file for all threads, one of them could not write the record."""
    runner = conducted(tmp_path / "test")
    errors: list[str] = []

    def write_notes(thread: int) -> None:
        try:
            for number in range(20):
                runner.do("note", text=f"{thread}.{number}")
        except (ConfigError, RecordingError) as error:
            errors.append(str(error))

    threads = [threading.Thread(target=write_notes, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(procedure.read(tmp_path / "test").notes) == 80
    assert sorted(file.name for file in (tmp_path / "test").iterdir()) == [procedure.ROOM, procedure.FILE]


def test_concurrent_notes_do_not_disturb_acts(tmp_path: Path) -> None:
    """22 of 108 acts failed with notes every 20 ms."""
    runner = conducted(tmp_path / "test")
    finished, errors = threading.Event(), []

    def write_notes() -> None:
        while not finished.is_set():
            try:
                runner.do("note", text="here")
            except (ConfigError, RecordingError) as error:
                errors.append(str(error))

    thread = threading.Thread(target=write_notes)
    thread.start()
    try:
        positioned(runner)
        arm(runner, "g")
        runner.do("run", clear="CLEAR")
        runner.do("unload", clear="CLEAR")
        runner.do("finish")
    finally:
        finished.set()
        thread.join()
    assert errors == []
    assert [act.refused for act in runner.record.acts if act.refused] == []
    assert len(procedure.read(tmp_path / "test").acts) == len(runner.record.acts)


@pytest.fixture
def steel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated specimen counts as a real one, whose loads are recorded."""
    monkeypatch.setattr(ProcedureRecord, "simulation", "")


@pytest.fixture
def armed(tmp_path: Path) -> ProcedureRunner:
    """Test whose rung g is armed; its folder is test."""
    runner = conducted(tmp_path / "test")
    positioned(runner)
    arm(runner, "g")
    return runner


@pytest.mark.usefixtures("steel")
def test_rung_and_act_are_recorded_before_motion(armed: ProcedureRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[ProcedureRecord] = []
    host = armed._host

    def read_record(*arguments: Any) -> Any:
        records.append(procedure.read(armed.folder))
        return host(*arguments)

    monkeypatch.setattr(armed, "_host", read_record)
    armed.do("run", clear="CLEAR")
    (before,) = records
    assert (before.acts[-1].act, before.acts[-1].under_way, before.acts[-1].result) == ("run", True, "")
    rung = before.rungs[-1]
    assert (rung.name, rung.outcome, rung.recording, rung.level) == ("g", "", "rung_g", 1.0)
    assert before.specimen.history[-1]["rung"] == "g"
    after = procedure.read(armed.folder)
    assert not after.acts[-1].under_way
    assert after.rungs[-1].outcome == "finished"
    assert [row["rung"] for row in after.specimen.history] == ["g"]
    assert after.specimen.history[-1]["displacement"]["story_1"] > 0.0


def aborted_rung(runner: ProcedureRunner) -> RungRecord:
    """Return the record of the aborted rung g; the specimen's history has the peaks of its recording."""
    assert runner.state is State.TRIPPED
    record = procedure.read(runner.folder)
    (rung,) = [entry for entry in record.rungs if entry.name == "g"]
    run = read_run(runner.folder / rung.recording)
    assert (rung.outcome, rung.samples) == ("failed", len(run.time) - 1)
    (row,) = record.specimen.history
    assert row["displacement"]["story_1"] == pytest.approx(abs(run.displacement).max())
    assert row["displacement"]["story_1"] > 0.0
    return rung


@pytest.mark.usefixtures("steel")
def test_aborted_rung_is_in_the_history_of_the_specimen(armed: ProcedureRunner) -> None:
    """Its row had no numbers, although the specimen had been loaded."""
    with largest_file(100_000), pytest.raises(RuntimeError, match=naming("recording", "aborted")):
        armed.do("run", clear="CLEAR")
    assert each_mentions(aborted_rung(armed).remarks, ("peaks", "recorded"))


@pytest.mark.usefixtures("steel")
@pytest.mark.parametrize("fails_in", ["write", "read", "wait_tick"])
def test_port_error_in_a_rung_fails_the_test(
    armed: ProcedureRunner, monkeypatch: pytest.MonkeyPatch, fails_in: str
) -> None:
    """A result, not an exception: the procedure tries once to hold the rig; then only finish is possible."""
    original, started = getattr(Simulator, fails_in), armed.session.drive.measured.sample
    failures: list[int] = []

    def cut(self: Simulator, *arguments: Any) -> Any:
        if self.sample - started >= 150:
            failures.append(self.sample)
            raise PortError("the cable is cut")
        return original(self, *arguments)

    monkeypatch.setattr(Simulator, fails_in, cut)
    assert mentions(armed.do("run", clear="CLEAR"), "rung g", "failed", "cable is cut")
    rung = aborted_rung(armed)
    assert mentions(rung.reason, "cable is cut")
    assert 148 <= rung.samples <= 151
    possible = {act for act, reason in armed.session.possible().items() if not reason}
    assert possible == {"finish", "note", "stop"}
    assert "acknowledge it" not in "".join(armed.session.possible().values())
    armed.do("finish")
    assert len(failures) == 2, "one in the run, one in the attempt to hold the rig"
    assert armed.conclude("", "", "") is ExitCode.FAILED
    record = procedure.read(armed.folder)
    assert (record.outcome, mentions(record.reason, "rung g", "cable is cut")) == ("failed", True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount point of a file system of 16 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_full_disk_prevents_motion_but_not_a_stop(disk: Path) -> None:
    runner = conducted(disk / "test")
    positioned(runner)
    arm(runner, "g")
    with suppress(OSError), (disk / "others").open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass
    assert runner.do("stop", reason="enough") == ""  # it was answered as refused
    assert runner.state is State.HELD
    before = runner.session.drive.command
    with pytest.raises(RecordingError, match=naming("procedure", "space")):
        runner.do("position", clear="CLEAR")
    assert runner.state is State.HELD
    assert runner.session.drive.command is before
    runner.session.close()
    assert runner.conclude("", "", "") is ExitCode.FAILED  # was 2, "nothing has moved"
    record = procedure.read(disk / "test")
    assert record.outcome == "failed"
    assert mentions(record.reason, "space", "left")
    assert [act.act for act in record.acts][-2:] == ["stop", "position"]


def test_stop_is_answered_although_nothing_could_ever_be_written(tmp_path: Path) -> None:
    runner = conducted(tmp_path / "test")
    (tmp_path / "test" / procedure.FILE).mkdir(parents=True)
    assert runner.do("stop", reason="enough") == ""
    with pytest.raises(ConfigError, match=naming("procedure.yaml", "cannot be written")):
        runner.do("connect")
    runner.session.close()


def test_deleted_folder_fails_the_test(armed: ProcedureRunner) -> None:
    shutil.rmtree(armed.folder)
    with pytest.raises(RecordingError, match=naming("folder", "no longer exists")):
        armed.do("run", clear="CLEAR")
    armed.session.close()
    assert armed.conclude("", "", "") is ExitCode.FAILED
    assert procedure.read(armed.folder).outcome == "failed"


@pytest.mark.usefixtures("steel")
@pytest.mark.parametrize("path", ["/other/rung_g", "../other/rung_g", "rung_g/..", ".."])
def test_recording_outside_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    procedure.write(ProcedureRecord("test", "bench", "", rungs=[RungRecord("g", "", recording=path)]), tmp_path)
    with pytest.raises(ConfigError, match=naming("rungs[0].recording", path, "folder")):
        procedure.read(tmp_path)


def test_history_of_the_specimen_is_recovered_after_a_kill(
    tmp_path: Path, environment: dict[str, str], output: RunCommand, refusal: RunCommand
) -> None:
    answers = {"test_id": "killed", "offsets_seconds": 0.5, "sign_for": ["story_1"], "unload": {"moves": "n"}}
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(OF_RUNG_G | answers))
    options = ("--rig=bench_simulated", "--set=duration=60", "--answers=answers.yaml")
    started = subprocess.Popen(
        [*RTHS, "test", "chen_ricles_2010", *options],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    folder = tmp_path / "runs" / "killed"
    journal = folder / "rung_g" / "rung_g_0.mcap"
    with killed(started) as program:
        wait_for_journal(journal, program)
        assert mentions(refusal("recover", str(folder)), "still", "running")
    under_way = procedure.read(folder)
    rung = under_way.rungs[-1]
    assert (under_way.outcome, under_way.acts[-1].under_way) == ("", True)
    assert (rung.name, rung.outcome, rung.recording) == ("g", "", "rung_g")
    record_file = folder / procedure.FILE
    as_real = record_file.read_text().replace("port: simulator", "port: udp").replace("simulated: simulated", "")
    record_file.write_text(as_real)  # simulated tests do not load the specimen
    assert mentions(output("recover", str(folder)), "D-17", "rung g")
    record = procedure.read(folder)
    rung = record.rungs[-1]
    assert (record.outcome, rung.outcome, record.acts[-1].under_way) == ("interrupted", "interrupted", False)
    assert rung.samples > 0
    (row,) = record.specimen.history
    run = rths_nodes.read(folder / "rung_g")
    assert row["displacement"]["story_1"] == pytest.approx(abs(run.displacement).max())
    assert "is complete" in output("recover", str(folder))
