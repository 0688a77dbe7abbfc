# SPDX-License-Identifier: Apache-2.0
"""An FMU that crashes, hangs, refuses or tells nonsense ends the test in words, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fmus import changed, rogue, skip_without_fmi
from generic_client import models_left
from messages import mentions

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.fmu import archive, process
from rths_nodes.core.fmu.process import PROGRAM
from rths_nodes.loop.scenario import files

SCENARIO = """
version: 1
name: rogue
servo_rate: 1000.0
substeps: 5
duration: 0.2
integrator:
  type: fmu
  file: {file}
  interface: {{story_1: {{displacement: x, velocity: v, force: force}}}}
  answer_within: {answer}
compensator: {{type: none}}
axes:
  story_1:
    actuator: {{type: pure_delay}}
    specimen: {{type: kelvin_voigt, stiffness: 4.0e+5, damping: 0.0}}
    limits: {{stroke: 0.5, velocity: 10.0, force: 1.0e+6}}
"""


@pytest.fixture(autouse=True)
def _fmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Folders into which FMUs are unpacked are below that of the test, and gone after it, as their processes."""
    skip_without_fmi()
    unpacked = tmp_path / "tmp"
    unpacked.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(unpacked))
    yield
    assert models_left(PROGRAM) == []
    assert list(unpacked.iterdir()) == []


def scenario(file: Path, folder: Path, answer: float = 10.0) -> Any:
    return files.from_text(SCENARIO.format(file=file, answer=answer), "rogue.yaml", folder)


def ended(file: Path, folder: Path, answer: float = 10.0, **options: Any) -> Any:
    return hosts.run(scenario(file, folder, answer), **options)


AT = "in step 11 of 40, at 0.05 s"

WRONG: dict[str, tuple[str, str]] = {
    "crash": ("*(volatile int *)0 = 1", "the FMU was ended by SIGSEGV"),
    "abort": ("abort()", "the FMU was ended by SIGABRT"),
    "exit": ("exit(7)", "the FMU has ended with code 7"),
    "quiet exit": ("exit(0)", "the FMU has ended: the FMU process has closed the connection"),
    "killed": ("kill(getpid(), SIGKILL)", "the FMU was ended by SIGKILL"),
    "discard": ("return 2", "{prefix}Discard at 0.05 s: the model refuses a step of 0.005 s"),
    "error": ("return 3", "{prefix}DoStep has returned {prefix}Error at 0.05 s"),
    "fatal": ("return 4", "{prefix}DoStep has returned {prefix}Fatal at 0.05 s"),
    "pending": ("return 5", "{prefix}DoStep has returned {prefix}Pending at 0.05 s"),
    "no status": ("return 99", "{prefix}DoStep has returned {prefix}the unknown status 99 at 0.05 s"),
    "nan": ("v[X] = NAN", "x is nan at 0.055 s: must be a number"),
    "infinity": ("v[V] = INFINITY", "v is inf at 0.055 s: must be a number"),
    "far": ("v[X] = 1e9", "an output is 1e+09 in m and s, but must be between -1e+06 and 1e+06"),
    "words": ('fprintf(stderr, "the valve is stuck\\n"); exit(3)', "ended with code 3: the valve is stuck"),
}  # fmt: skip


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_it_does_wrong_in_a_step_stops_the_rig_in_words(wrong: str, version: int, tmp_path: Path) -> None:
    statement, says = WRONG[wrong]
    result = ended(rogue(statement, version), tmp_path)
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert says.format(prefix=f"fmi{version}") in result.reason
    assert AT in result.reason
    assert result.samples > 50, "the recording is whole up to there"


def test_a_warning_is_none_of_these(tmp_path: Path) -> None:
    assert ended(rogue("return 1"), tmp_path).outcome == "finished"


def test_an_endless_loop_is_ended(tmp_path: Path) -> None:
    result = ended(rogue("for (;;)"), tmp_path, answer=0.5)
    assert result.outcome == "failed"
    assert mentions(result.reason, "FMU", "0.5 s", AT)


def test_one_that_prints_without_an_end_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LARGEST_FILE", 1 << 20)
    result = ended(rogue('for (;;) puts("and on")'), tmp_path)
    assert result.outcome == "failed"
    assert mentions(result.reason, "FMU", "SIGXFSZ", AT)


FORKED = {
    "in its group": "for (;;) pause();",
    "in a session of its own": "setsid(); for (;;) pause();",
    "as a daemon": "setsid(); if (fork()) _exit(0); for (;;) pause();",
}
"""What a child of the model does."""


@pytest.mark.parametrize("child", FORKED)
@pytest.mark.parametrize(("then", "outcome"), [("", "finished"), ("if (v[STEPS] == 15) abort();", "failed")])
def test_no_process_of_a_model_is_left(child: str, then: str, outcome: str, tmp_path: Path) -> None:
    """Neither after a test that has finished, nor after a model that has crashed."""
    statement = f"if (v[STEPS] == 11 && fork() == 0) {{ {FORKED[child]} }} {then}"
    assert ended(rogue(statement), tmp_path).outcome == outcome
    assert models_left(PROGRAM) == []


def test_no_process_of_a_model_is_left_when_the_test_is_killed(tmp_path: Path) -> None:
    forked = "if (v[STEPS] == 11 && fork() == 0) { setsid(); for (;;) pause(); } for (; v[STEPS] > 11;) pause()"
    (tmp_path / "rogue.yaml").write_text(SCENARIO.format(file=rogue(forked), answer=60))
    modules = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "rths_nodes.app.cli", "run", str(tmp_path / "rogue.yaml")]
    until = time.monotonic() + 60.0
    with subprocess.Popen(words, cwd=tmp_path, env=modules, stdout=subprocess.DEVNULL) as test:
        twice: list[set[str]] = [set(), set()]  # a process of subprocess.Popen is there for a moment, too
        while time.monotonic() < until and not (twice[0] == twice[1] and len(twice[1]) == 3):
            time.sleep(0.01)
            twice = [twice[1], set(models_left(PROGRAM))]
        assert len(twice[1]) == 3, "the guard, the model and its child"
        test.send_signal(signal.SIGKILL)
    while models_left(PROGRAM) and time.monotonic() < until:
        time.sleep(0.01)
    assert models_left(PROGRAM) == []


def test_one_that_allocates_without_an_end_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LARGEST_MEMORY", 1 << 30)
    more = "for (double *p;;) { p = malloc(1 << 22); if (!p) abort(); p[0] = 1.0; }"
    result = ended(rogue(more), tmp_path)
    assert result.outcome == "failed"
    assert mentions(result.reason, "FMU", "SIGABRT", AT)


def test_an_archive_leaves_half_of_the_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary folder may be in memory."""
    usage = archive.shutil.disk_usage
    monkeypatch.setattr(archive.shutil, "disk_usage", lambda folder: usage(folder)._replace(free=4096))
    words = refused(rogue(), tmp_path)
    for part in ("integrator", "file", "2 KiB", "half of the free space there"):
        assert part in words


def test_an_early_return_is_no_step(tmp_path: Path) -> None:
    result = ended(rogue("", 3, more=("-DEARLY_AT=0.05",)), tmp_path)
    assert result.outcome == "failed"
    assert mentions(result.reason, "0.055 s", "0.05 s")


def test_what_it_writes_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs there, and the folder goes with it."""
    monkeypatch.chdir(tmp_path)
    before = {*Path.cwd().iterdir()}
    statement = 'FILE *f = fopen("log.txt", "w"); if (f == NULL || fclose(f)) return 3'
    assert ended(rogue(statement), tmp_path).outcome == "finished"
    assert {*Path.cwd().iterdir()} == before


@pytest.mark.nodes
@pytest.mark.parametrize("wrong", ["crash", "discard"])
def test_so_it_is_with_nodes(wrong: str, tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    statement, says = WRONG[wrong]
    result = ended(rogue(statement), tmp_path, host="composed", record=tmp_path / "run", keep=False)
    assert result.outcome == "failed"
    assert says.format(prefix="fmi2") in result.reason


@pytest.mark.nodes
def test_a_step_that_is_late_is_bridged_and_then_trips(tmp_path: Path) -> None:
    """In real time the rig does not wait for it: half a second is longer than any bridge of 10 ms."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    file = rogue("if (v[STEPS] == 11) usleep(500000)")
    given = {"host": "composed", "pace": "realtime", "record": tmp_path / "run", "keep": False}
    result = hosts.run(files.load(scenario(file, tmp_path), ["bridge.max_bridge=0.01"]), **given)
    assert (result.outcome, result.exit_code) == ("tripped", 3), result.reason
    assert "max_bridge" in result.reason


# -- before the test ------------------------------------------------------------------------------------------


def refused(file: Path, folder: Path, **overrides: float) -> str:
    loaded = scenario(file, folder)
    if overrides:
        loaded = files.load(loaded, [f"integrator.{name}={value}" for name, value in overrides.items()])
    with pytest.raises(ConfigError) as refusal:
        hosts.run(loaded)
    return str(refusal.value)


@pytest.mark.parametrize("version", [2, 3])
def test_another_token_is_refused_by_the_fmu(version: int, tmp_path: Path) -> None:
    named = {2: "guid", 3: "instantiationToken"}[version]
    file = changed(rogue(version=version), tmp_path / "rogue.fmu", (f'{named}="', f'{named}="not '))
    words = refused(file, tmp_path)
    assert mentions(words, "integrator.file", "rogue.fmu", "FMU", "1")


@pytest.mark.parametrize(
    ("at_start", "says"),
    [
        ("return 3", ("fmi2ExitInitializationMode",)),
        ("*(volatile int *)0 = 1", ("FMU", "SIGSEGV")),
        ("v[X] = NAN", ("nan", "0 s", "number")),
        ("v[X] = 0.01", ("displacement", "0.01 m", "0")),
    ],
)
def test_a_model_that_does_not_start_is_refused(at_start: str, says: tuple[str, ...], tmp_path: Path) -> None:
    assert mentions(refused(rogue(at_start=at_start), tmp_path), *says)


def test_a_model_that_does_not_come_to_its_start_is_refused_in_time(tmp_path: Path) -> None:
    words = refused(rogue(at_start="for (;;)"), tmp_path, start_within=1.5)
    assert mentions(words, "FMU", "1.5 s")


def test_a_binary_that_is_none_is_refused(tmp_path: Path) -> None:
    other = rogue("return 1")  # of another name: its member is replaced below
    name = f"binaries/linux64/{other.stem}.so"
    with pytest.warns(UserWarning, match="Duplicate"):
        doubled = changed(other, tmp_path / "doubled.fmu", more={name: b"no library"})
    file = tmp_path / "rogue.fmu"
    with zipfile.ZipFile(doubled) as old, zipfile.ZipFile(file, "w") as new:
        new.writestr("modelDescription.xml", old.read("modelDescription.xml"))
        new.writestr(name, b"no library")
    words = refused(file, tmp_path)
    assert mentions(words, "shared", "library")


def test_it_ends_with_the_test_that_is_killed(tmp_path: Path) -> None:
    """Also in the midst of an endless step. What was unpacked stays then: nobody is left to remove it."""
    (tmp_path / "rogue.yaml").write_text(SCENARIO.format(file=rogue("for (;;)"), answer=60))
    program = f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}; from rths_nodes.app.cli import main; "
    program += f"main(['run', {str(tmp_path / 'rogue.yaml')!r}])"
    modules = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, cwd=tmp_path, env=modules, stdout=subprocess.DEVNULL) as test:
        until = time.monotonic() + 30.0
        # it is in the loop; Python may start itself anew before, and is nobody meanwhile
        while time.monotonic() < until and max(map(_processor_time, models_left(PROGRAM)), default=0.0) < 1.0:
            time.sleep(0.01)
        assert len(models_left(PROGRAM)) == 2, "the model and its guard"
        test.send_signal(signal.SIGKILL)
    while models_left(PROGRAM) and time.monotonic() < until:
        time.sleep(0.01)
    assert models_left(PROGRAM) == []


def _processor_time(process: str) -> float:
    """s, of a process by its number."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
