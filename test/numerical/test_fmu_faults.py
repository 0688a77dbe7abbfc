# SPDX-License-Identifier: Apache-2.0
"""Tests of FMUs that crash, hang, refuse or return invalid values: clear reasons and complete clean-up."""

from __future__ import annotations

import os
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
from rths_nodes.core import fmu
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.fmu import PROGRAM
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
    """Unpack FMUs below ``tmp_path``; afterwards no folder and no process is left."""
    skip_without_fmi()
    unpacked = tmp_path / "tmp"
    unpacked.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(unpacked))
    yield
    assert models_left(PROGRAM) == []
    assert list(unpacked.iterdir()) == []


def scenario(file: Path, folder: Path, answer: float = 10.0) -> Any:
    return files.from_text(SCENARIO.format(file=file, answer=answer), "rogue.yaml", folder)


AT = "in step 11 of 40, at 0.05 s"
FAULTS: dict[str, tuple[str, str]] = {
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
    "far": ("v[X] = 1e9", "an output is 1e+09 (m, m/s or m/s^2), but must be between -1e+06 and 1e+06"),
    "words": ('fprintf(stderr, "the valve is stuck\\n"); exit(3)', "ended with code 3: the valve is stuck"),
}  # fmt: skip


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_step_stops_rig_with_reason(fault: str, version: int, tmp_path: Path) -> None:
    statement, reason = FAULTS[fault]
    result = hosts.run(scenario(rogue(statement, version), tmp_path))
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert mentions(result.reason, reason.format(prefix=f"fmi{version}"), AT)
    assert result.samples > 50, "the recording reaches the fault"


def test_warning_status_is_accepted(tmp_path: Path) -> None:
    assert hosts.run(scenario(rogue("return 1"), tmp_path)).outcome == "finished"


def test_endless_loop_times_out(tmp_path: Path) -> None:
    result = hosts.run(scenario(rogue("for (;;)"), tmp_path, answer=0.5))
    assert result.outcome == "failed"
    assert mentions(result.reason, "FMU", "0.5 s", AT)


def test_endless_output_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmu, "LARGEST_FILE", 1 << 20)
    result = hosts.run(scenario(rogue('for (;;) puts("and on")'), tmp_path))
    assert result.outcome == "failed"
    assert mentions(result.reason, "FMU", "SIGXFSZ", AT)


FORKED = {
    "in its group": "for (;;) pause();",
    "in a session of its own": "setsid(); for (;;) pause();",
    "as a daemon": "setsid(); if (fork()) _exit(0); for (;;) pause();",
}
"""Statements of the child process."""


def wait_for_exit(deadline: float) -> None:
    while models_left(PROGRAM) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert models_left(PROGRAM) == []


@pytest.mark.parametrize("child", FORKED)
@pytest.mark.parametrize(("then", "outcome"), [("", "finished"), ("if (v[STEPS] == 15) abort();", "failed")])
def test_child_processes_are_killed(child: str, then: str, outcome: str, tmp_path: Path) -> None:
    """Covers a finished test and a crashed model."""
    statement = f"if (v[STEPS] == 11 && fork() == 0) {{ {FORKED[child]} }} {then}"
    assert hosts.run(scenario(rogue(statement), tmp_path)).outcome == outcome
    assert models_left(PROGRAM) == []


def test_child_processes_die_with_killed_test(tmp_path: Path) -> None:
    forked = "if (v[STEPS] == 11 && fork() == 0) { setsid(); for (;;) pause(); } for (; v[STEPS] > 11;) pause()"
    (tmp_path / "rogue.yaml").write_text(SCENARIO.format(file=rogue(forked), answer=60))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "rths_nodes.app.cli", "run", str(tmp_path / "rogue.yaml")]
    deadline = time.monotonic() + 60.0
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as test:
        polls: list[set[str]] = [set(), set()]  # two equal polls: subprocess.Popen itself forks for a moment
        while time.monotonic() < deadline and not (polls[0] == polls[1] and len(polls[1]) == 3):
            time.sleep(0.01)
            polls = [polls[1], set(models_left(PROGRAM))]
        assert len(polls[1]) == 3, "the guard, the model and its child"
        test.kill()
    wait_for_exit(deadline)


def test_endless_allocation_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmu, "LARGEST_MEMORY", 1 << 30)
    allocate = "for (double *p;;) { p = malloc(1 << 22); if (!p) abort(); p[0] = 1.0; }"
    result = hosts.run(scenario(rogue(allocate), tmp_path))
    assert result.outcome == "failed"
    assert mentions(result.reason, "FMU", "SIGABRT", AT)


def test_archive_leaves_half_of_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary folder may be in memory."""
    usage = fmu.shutil.disk_usage
    monkeypatch.setattr(fmu.shutil, "disk_usage", lambda folder: usage(folder)._replace(free=4096))
    message = refused(rogue(), tmp_path)
    for part in ("integrator", "file", "2 KiB", "half of the free space there"):
        assert part in message


def test_early_return_fails_the_step(tmp_path: Path) -> None:
    result = hosts.run(scenario(rogue("", 3, more=("-DEARLY_AT=0.05",)), tmp_path))
    assert result.outcome == "failed"
    assert mentions(result.reason, "0.055 s", "0.05 s")


def test_files_of_model_stay_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = {*Path.cwd().iterdir()}
    statement = 'FILE *f = fopen("log.txt", "w"); if (f == NULL || fclose(f)) return 3'
    assert hosts.run(scenario(rogue(statement), tmp_path)).outcome == "finished"
    assert {*Path.cwd().iterdir()} == before


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("fault", ["crash", "discard"])
def test_fault_in_a_step_stops_nodes_with_reason(fault: str, tmp_path: Path) -> None:
    statement, reason = FAULTS[fault]
    model = scenario(rogue(statement), tmp_path)
    result = hosts.run(model, host="composed", record=tmp_path / "run", keep=False)
    assert result.outcome == "failed"
    assert reason.format(prefix="fmi2") in result.reason


@pytest.mark.nodes(ros=True)
def test_late_step_is_bridged_then_trips(tmp_path: Path) -> None:
    """The step takes half a second; bridges last at most 10 ms."""
    file = rogue("if (v[STEPS] == 11) usleep(500000)")
    options = {"host": "composed", "pace": "realtime", "record": tmp_path / "run", "keep": False}
    result = hosts.run(scenario(file, tmp_path), ["bridge.max_bridge=0.01"], **options)
    assert (result.outcome, result.exit_code) == ("tripped", 3), result.reason
    assert "max_bridge" in result.reason


def refused(file: Path, folder: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        hosts.run(scenario(file, folder), overrides)
    return str(refusal.value)


@pytest.mark.parametrize("version", [2, 3])
def test_wrong_token_is_refused(version: int, tmp_path: Path) -> None:
    token = {2: "guid", 3: "instantiationToken"}[version]
    file = changed(rogue(version=version), tmp_path / "rogue.fmu", (f'{token}="', f'{token}="not '))
    assert mentions(refused(file, tmp_path), "integrator.file", "rogue.fmu", "FMU", "1")


@pytest.mark.parametrize(
    ("at_start", "parts"),
    [
        ("return 3", ("fmi2ExitInitializationMode",)),
        ("*(volatile int *)0 = 1", ("FMU", "SIGSEGV")),
        ("v[X] = NAN", ("nan", "0 s", "number")),
        ("v[X] = 0.01", ("displacement", "0.01 m", "0")),
    ],
)
def test_failing_initialisation_is_refused(at_start: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    assert mentions(refused(rogue(at_start=at_start), tmp_path), *parts)


def test_endless_initialisation_times_out(tmp_path: Path) -> None:
    message = refused(rogue(at_start="for (;;)"), tmp_path, "integrator.start_within=1.5")
    assert mentions(message, "FMU", "1.5 s")


def test_invalid_binary_is_refused(tmp_path: Path) -> None:
    model, file = rogue("return 1"), tmp_path / "rogue.fmu"
    with zipfile.ZipFile(model) as old, zipfile.ZipFile(file, "w") as new:
        new.writestr("modelDescription.xml", old.read("modelDescription.xml"))
        new.writestr(f"binaries/linux64/{model.stem}.so", b"no library")
    assert mentions(refused(file, tmp_path), "shared", "library")


def test_model_in_endless_step_dies_with_killed_test(tmp_path: Path) -> None:
    """The unpacked files remain, because the killed test cannot remove them."""
    (tmp_path / "rogue.yaml").write_text(SCENARIO.format(file=rogue("for (;;)"), answer=60))
    program = f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}; from rths_nodes.app.cli import main; "
    program += f"main(['run', {str(tmp_path / 'rogue.yaml')!r}])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program]
    deadline = time.monotonic() + 30.0
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as test:
        # its CPU time shows that the model is in the loop; Python may restart before, with no process meanwhile
        while time.monotonic() < deadline and max(map(_processor_time, models_left(PROGRAM)), default=0.0) < 1.0:
            time.sleep(0.01)
        assert len(models_left(PROGRAM)) == 2, "the model and its guard"
        test.kill()
    wait_for_exit(deadline)


def _processor_time(process: str) -> float:
    """CPU time of a process, s."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
