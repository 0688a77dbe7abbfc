# SPDX-License-Identifier: Apache-2.0
"""Tests of the processes of nodes: started together, watched, and all ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from messages import each_mentions, mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.options import run_options
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting import node_processes
from rths_nodes.ros.hosting import processes as runner

pytestmark = pytest.mark.usefixtures("fresh_programs")
ROOT = Path(__file__).resolve().parents[2]

REPORT = "from rths_nodes.ros.hosting.node_processes import report_to_runner; report_to_runner('the disk is full')"
SLEEPS = "import time; time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"


def started(role, program):
    return node_processes._started(role, [sys.executable, "-c", program], os.environ)


@pytest.fixture
def processes():
    with node_processes.Processes(()) as processes:
        yield processes


@pytest.fixture
def recording(processes, tmp_path):
    """Path that the recorder among the ``processes`` writes to."""
    processes.descriptions = [node_processes.NodeDescription("recorder", "rths", {"record": str(tmp_path)})]
    return tmp_path


@pytest.mark.parametrize(("code", "parts"), [(-9, ("SIGKILL",)), (-40, ("signal 40",)), (2, ("code 2",))])
def test_death_is_described_by_signal_or_code(code, parts):
    assert mentions(node_processes.death("monitor", code), "monitor", "died", *parts)


def test_runner_receives_reason_of_node(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    reporting = started("recorder", f"{REPORT}; raise SystemExit(2)")
    killed = started("monitor", "import os; os.kill(os.getpid(), 9)")
    assert (reporting.popen.wait(60), killed.popen.wait(60)) == (2, -9)
    assert mentions(reporting.death, "disk")
    assert mentions(killed.death, "monitor", "SIGKILL")
    for process in (reporting, killed):
        process.file.close()


def test_reason_of_refusal_is_of_actuator_not_of_node_that_follows(processes):
    """The actuator node exits last, because it announces its refusal to all peers."""
    follower = started("integrator", "raise SystemExit(2)")
    leader = started("actuator", f"{REPORT}; raise SystemExit(1)")
    killed = started("monitor", "import os; os.kill(os.getpid(), 9)")
    processes.running += [follower, leader, killed]
    for process in processes.running:
        process.popen.wait(60)
    assert mentions(processes.why(follower), "disk")
    assert mentions(processes.why(killed), "monitor", "SIGKILL")


def test_nodes_of_the_rig_are_not_killed_after_the_death_of_another_node(processes, monkeypatch):
    """A safe stop of more than 0.8 s was cut off: the actuator node was killed while the axes still moved."""
    monkeypatch.setattr(runner, "GRACE_S", 0.0)
    died = started("compensator", "raise SystemExit(1)")
    died.popen.wait(60)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited: the nodes are busy
    processes.running += [started(role, SLEEPS) for role in ("actuator", "story_1/axis", "recorder", "monitor")]
    signal.signal(signal.SIGTERM, before)
    console = SimpleNamespace(trip=lambda _: None, result=runner.Result(State.RUNNING))
    runner._end_after(died, processes, console, lambda: time.sleep(0.01))
    died.file.close()
    assert [process.role for process in processes.running if signal.SIGKILL in process.sent] == ["monitor"]


def test_node_that_hangs_after_summary_is_noted(processes, recording, monkeypatch):
    """The middleware may hang in a node while its peers leave; by then the test has ended."""
    monkeypatch.setattr(node_processes, "LEAVING_S", 0.2)
    monkeypatch.setattr(node_processes, "INDEXING_S", 0.2)
    processes.running += [started(role, STUBBORN) for role in ("integrator", "monitor", "recorder")]
    notes = processes.see_out(lambda: time.sleep(0.01))
    counted = [process.role for process in processes.counted({"integrator", "recorder"})]
    assert counted == ["monitor", "recorder"]
    assert each_mentions(notes, ("integrator",), ("monitor",), ("recorder",), (f"rths recover {recording}",))


@pytest.mark.parametrize(
    ("program", "recoverable"),
    [
        ("import os; os.kill(os.getpid(), 9)", True),
        ("import os; os._exit(1)", True),
        (f"{REPORT}; raise SystemExit(1)", False),
        ("raise SystemExit(2)", False),
        ("pass", False),
    ],
)
def test_silent_death_of_recorder_suggests_recovery(program, recoverable, processes, recording, monkeypatch):
    """A failed recorder reports by itself what to do, and a refused one has recorded nothing."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    processes.running += [started("recorder", program)]
    notes = processes.see_out(lambda: time.sleep(0.01))
    assert each_mentions(notes, *([(f"rths recover {recording}",)] if recoverable else []))


def test_failed_start_ends_all_processes(monkeypatch):
    nodes = node_processes.describe(run_options({"scenario": "chen_ricles_2010", "host": "processes"}))
    processes = node_processes.Processes(nodes)

    def fail_at_third(description):
        if len(processes.running) == 2:
            raise OSError(28, "No space left on device", "test.yaml")
        return []

    monkeypatch.setattr(processes, "_arguments", fail_at_third)
    with pytest.raises(ConfigError, match=naming("test.yaml", "space")):
        processes.__enter__()
    assert len(processes.running) == 2
    assert processes.alive() == []


def test_program_that_does_not_start_leaves_no_file_open():
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="No such file"):
        node_processes._started("monitor", ["/none"], os.environ)
    assert os.listdir("/proc/self/fd") == before


def test_stopped_process_is_killed_and_waiting_process_is_not(processes, monkeypatch):
    monkeypatch.setattr(node_processes, "HANGS_S", 1.0)
    wakes = "import time\nwhile True: time.sleep(0.02)"
    stopped, waiting = processes.running[:] = [started("actuator", wakes), started("monitor", wakes)]
    stopped.popen.send_signal(signal.SIGSTOP)
    end = time.monotonic() + 60.0
    while stopped.popen.poll() is None and time.monotonic() < end:
        for process in processes.running:
            process.check()
        time.sleep(0.05)
    assert (stopped.popen.poll(), waiting.popen.poll()) == (-signal.SIGKILL, None)
    assert mentions(stopped.death, "actuator", "node")


def test_suspended_process_has_time_to_continue_after_the_test(processes, monkeypatch):
    monkeypatch.setattr(node_processes, "STOPPED_S", 0.5)
    monkeypatch.setattr(node_processes, "LOOK_S", 0.0)
    stopped = started("actuator", SLEEPS)
    processes.running[:] = [stopped]
    stopped.popen.send_signal(signal.SIGSTOP)
    while stopped._main_thread()[0] != "T":
        time.sleep(0.01)
    for ended, silent in ((False, False), (True, False), (True, True)):
        stopped.check(ended)
        assert stopped.silent == silent
        time.sleep(0.6)


WAITS_FOR_DISK = """
import os, sys
os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, {fifo!r}, os.O_RDONLY, 0)])
"""
"""Sleeps uninterruptibly (vfork), like a process that waits for a disk, until the pipe is opened."""


def test_computing_process_and_process_waiting_for_disk_do_not_hang(processes, monkeypatch, tmp_path):
    monkeypatch.setattr(node_processes, "HANGS_S", 1.0)
    fifo = str(tmp_path / "disk")
    os.mkfifo(fifo)
    computing, waiting = processes.running[:] = [
        started("recorder", "while True: pass"),
        started("monitor", WAITS_FOR_DISK.format(fifo=fifo)),
    ]
    end = time.monotonic() + 60.0
    while waiting._main_thread()[0] != "D" and time.monotonic() < end:
        time.sleep(0.01)
    assert not processes.wait(4.0)
    assert [process.popen.poll() for process in (computing, waiting)] == [None, None]
    with open(fifo, "w"):  # the disk answers
        assert waiting.popen.wait(60) == 0


def test_stopped_process_is_killed_after_test_unless_it_continues(processes, monkeypatch):
    monkeypatch.setattr(node_processes, "STOPPED_S", 1.0)
    processes.running += [started("monitor", SLEEPS), started("recorder", "import time; time.sleep(3)")]
    stopped, continues = processes.running
    for process in processes.running:
        process.popen.send_signal(signal.SIGSTOP)
    looks = iter(range(10**6))

    def idle():
        if next(looks) == 5:
            continues.popen.send_signal(signal.SIGCONT)
        time.sleep(0.01)

    assert each_mentions(processes.see_out(idle), ("monitor", "node", "hangs"))
    assert (stopped.popen.returncode, continues.popen.returncode) == (-signal.SIGKILL, 0)
