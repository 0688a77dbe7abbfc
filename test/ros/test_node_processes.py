# SPDX-License-Identifier: Apache-2.0
"""Processes of nodes: started together, watched, and none is left behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from messages import each_mentions, mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.options import run_options
from rths_nodes.ros.hosting import descriptions, node_processes

pytestmark = pytest.mark.usefixtures("fresh_programs")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("code", "words"),
    [(-9, ("died", "SIGKILL")), (2, ("died", "code 2"))],
)
def test_a_death_is_told_in_words(code, words):
    assert mentions(node_processes.death("monitor", code), *words)


def started(role, program):
    return node_processes._started(role, [sys.executable, "-c", program], os.environ)


TELLS = "from rths_nodes.ros.hosting.node_processes import report_to_runner; report_to_runner('the disk is full')"
SLEEPS = "import time; time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"


def test_a_node_tells_the_runner_why_it_ends(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    spoken, killed = (
        started("recorder", f"{TELLS}; raise SystemExit(2)"),
        started("monitor", "import os; os.kill(os.getpid(), 9)"),
    )
    assert (spoken.popen.wait(60), killed.popen.wait(60)) == (2, -9)
    assert mentions(spoken.death, "disk")
    assert mentions(killed.death, "monitor", "SIGKILL")
    for process in (spoken, killed):
        process.pipe.close()


def test_a_node_that_hangs_after_its_summary_is_a_note_but_not_the_recorder(monkeypatch, tmp_path):
    """The middleware may hang in a node while its peers leave; then the test is over."""
    monkeypatch.setattr(node_processes, "LEAVING_S", 0.2)
    monkeypatch.setattr(node_processes, "INDEXING_S", 0.2)
    with node_processes.Processes(()) as processes:
        processes.descriptions = [descriptions.NodeDescription("recorder", {"record": str(tmp_path)})]
        processes.running += [started(role, STUBBORN) for role in ("integrator", "monitor", "recorder")]
        notes = processes.see_out(lambda: time.sleep(0.01))
        counted = [process.role for process in processes.counted({"integrator", "recorder"})]
    assert counted == ["monitor", "recorder"]
    assert each_mentions(notes, ("integrator",), ("monitor",), ("recorder",), (f"rths recover {tmp_path}",))


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("import os; os.kill(os.getpid(), 9)", True),
        ("import os; os._exit(1)", True),
        (f"{TELLS}; raise SystemExit(1)", False),
        ("raise SystemExit(2)", False),
        ("pass", False),
    ],
)
def test_a_recorder_that_has_said_nothing_leaves_what_can_be_completed(program, told, monkeypatch, tmp_path):
    """One that could not write says itself what to do, and one that was refused has left nothing."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with node_processes.Processes(()) as processes:
        processes.descriptions = [descriptions.NodeDescription("recorder", {"record": str(tmp_path)})]
        processes.running += [started("recorder", program)]
        notes = processes.see_out(lambda: time.sleep(0.01))
    assert each_mentions(notes, *([(f"rths recover {tmp_path}",)] if told else []))


def test_nodes_that_cannot_be_started_are_refused_and_none_is_left(monkeypatch):
    nodes = descriptions.describe(run_options({"scenario": "chen_ricles_2010", "host": "processes"}))
    processes = node_processes.Processes(nodes)

    def fail_at_the_third(description):
        if len(processes.running) == 2:
            raise OSError(28, "No space left on device", "test.yaml")
        return []

    monkeypatch.setattr(processes, "_arguments", fail_at_the_third)
    with pytest.raises(ConfigError, match=naming("test.yaml", "space")):
        processes.__enter__()
    assert len(processes.running) == 2
    assert processes.alive() == []


def test_a_process_that_stands_still_is_killed_and_one_that_waits_is_not(monkeypatch):
    monkeypatch.setattr(node_processes, "HANGS_S", 1.0)
    with node_processes.Processes(()) as processes:
        wakes = "import time\nwhile True: time.sleep(0.02)"
        stands, waits = processes.running[:] = [started("actuator", wakes), started("monitor", wakes)]
        stands.popen.send_signal(signal.SIGSTOP)
        end = time.monotonic() + 60.0
        while stands.popen.poll() is None and time.monotonic() < end:
            for each in processes.running:
                each.check_alive()
            time.sleep(0.05)
        assert (stands.popen.poll(), waits.popen.poll()) == (-signal.SIGKILL, None)
        assert mentions(stands.death, "actuator", "node")


COMPUTES = "while True: pass"
WAITS_FOR_A_DISK = """
import os, sys
os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, {fifo!r}, os.O_RDONLY, 0)])
"""
"""Sleeps as one that waits for a disk, uninterruptibly (vfork), until somebody opens the pipe."""


def test_one_that_computes_and_one_that_waits_for_a_disk_are_not_still(monkeypatch, tmp_path):
    monkeypatch.setattr(node_processes, "HANGS_S", 1.0)
    fifo = str(tmp_path / "disk")
    os.mkfifo(fifo)
    with node_processes.Processes(()) as processes:
        computes, waits = processes.running[:] = [
            started("recorder", COMPUTES),
            started("monitor", WAITS_FOR_A_DISK.format(fifo=fifo)),
        ]
        end = time.monotonic() + 60.0
        while waits._main_thread()[0] != "D" and time.monotonic() < end:
            time.sleep(0.01)
        assert not processes.wait(4.0)
        assert [each.popen.poll() for each in (computes, waits)] == [None, None]
        with open(fifo, "w"):  # the disk answers
            assert waits.popen.wait(60) == 0


def test_after_the_test_a_stopped_process_is_given_up_and_one_that_goes_on_is_waited_for(monkeypatch):
    monkeypatch.setattr(node_processes, "STOPPED_S", 1.0)
    with node_processes.Processes(()) as processes:
        leaves = "import time; time.sleep(3)"
        processes.running += [started("monitor", SLEEPS), started("recorder", leaves)]
        stopped, continues = processes.running
        for each in processes.running:
            each.popen.send_signal(signal.SIGSTOP)
        looks = iter(range(10**6))

        def idle():
            if next(looks) == 5:
                continues.popen.send_signal(signal.SIGCONT)
            time.sleep(0.01)

        assert each_mentions(processes.see_out(idle), ("monitor", "node", "hangs"))
        assert (stopped.popen.returncode, continues.popen.returncode) == (-signal.SIGKILL, 0)
