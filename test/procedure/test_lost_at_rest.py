# SPDX-License-Identifier: Apache-2.0
"""Tests of the loss of a rig at rest, which is reported within one silence in every state.

One process runs the procedure, another one emulates the rig; one of them is suspended or killed.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import rig_at_rest
from c_compiler import require_compiler
from emulated_bench import free_port
from messages import mentions
from programs import RTHS, child_environment, settings

from rths_nodes.core.resources import resource
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import AT_REST
from rths_nodes.recording import procedure

require_compiler()
pytestmark = pytest.mark.usefixtures("fresh_programs")

SILENCE_S = 0.5
SUSPENDED_S = 2.0
BUSY_S = 1.0
"""Largest delay until a busy machine runs a process that was woken, s."""
in_each_state = pytest.mark.parametrize("state", [state.name for state in AT_REST])


class JsonLines:
    """JSON objects that a process prints, one per line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError):  # the pipe was closed
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put("")

    def next(self, seconds: float) -> dict[str, Any]:
        """Return the next object. Raises queue.Empty after ``seconds``."""
        line = self._lines.get(timeout=seconds)
        assert line, "the process has ended"
        return json.loads(line)

    def until(self, state: str, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while (report := self.next(max(end - time.monotonic(), 0.0)))["state"] != state:
            pass
        return report


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment(), bufsize=1
    ) as running:
        try:
            yield running
        finally:
            running.send_signal(signal.SIGCONT)
            running.kill()


@contextmanager
def at_rest(state: str, folder: Path) -> Iterator[tuple[JsonLines, subprocess.Popen[str]]]:
    """Run a procedure to ``state``; yield its reports and the process of its emulated rig."""
    port, rig = free_port(), folder / "rig.yaml"
    text = resource("config", "rigs", "bench_udp.yaml").read_text(encoding="utf-8")
    patient = f"transport_samples: 16, silence: {SILENCE_S}}}\nbridge: {{max_bridge: 0.3}}"
    text = text.replace("servo_rate: 1024.0\n", "").replace("transport_samples: 1}", patient)
    rig.write_text(text, encoding="utf-8")
    sets = settings(*rig_at_rest.SLOW, f"port.port={port}")
    emulate = (*RTHS, "emulate", rig_at_rest.SCENARIO, "--rig", str(rig), "--own-clock", "--json", *sets)
    with process(*emulate) as emulator:
        JsonLines(emulator).next(60.0)
        lead = (sys.executable, rig_at_rest.__file__, str(rig), str(port), state, str(folder / "rest"))
        with process(*lead) as test:
            reports = JsonLines(test)
            reports.until(f"at rest: {state}", 120.0)
            yield reports, emulator


def assert_reported(reports: JsonLines, folder: Path, state: str, since: float, reason: str) -> None:
    """The loss is a state and a note, after which only the end is possible."""
    trip = reports.until(State.TRIPPED.name, 20.0)
    assert trip["at"] - since <= SILENCE_S + BUSY_S
    assert reason in trip["reason"]
    time.sleep(0.2)
    notes = [note.text for note in procedure.read(folder / "rest").notes if "lost" in note.text]
    assert mentions(notes[-1], state, trip["reason"])
    reports.process.stdin.close()
    possible = reports.until("possible", 10.0)["reason"]
    assert possible.pop("rehearse")  # no rung on the simulator is planned
    refusals = {act: refusal for act, refusal in possible.items() if refusal}
    assert possible.keys() - refusals.keys() == {"finish", "note", "stop"}
    for refusal in refusals.values():
        assert mentions(refusal, trip["reason"], "finish")
        assert "acknowledge" not in refusal
    assert reports.until(State.FINISHED.name, 30.0)


@in_each_state
def test_resumed_test_computer_reports_loss(state: str, tmp_path: Path) -> None:
    with at_rest(state, tmp_path) as (reports, _):
        reports.process.send_signal(signal.SIGSTOP)
        time.sleep(SUSPENDED_S)
        resumed = time.monotonic()
        reports.process.send_signal(signal.SIGCONT)
        assert_reported(reports, tmp_path, state, resumed, "port")


@in_each_state
def test_silent_rig_is_reported(state: str, tmp_path: Path) -> None:
    with at_rest(state, tmp_path) as (reports, emulator):
        emulator.kill()
        assert_reported(reports, tmp_path, state, time.monotonic(), "port.silence")
