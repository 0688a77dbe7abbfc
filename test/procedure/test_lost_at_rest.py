# SPDX-License-Identifier: Apache-2.0
"""A rig that is lost while nothing moves: it is reported within one silence, in every state at rest.

A real process leads the procedure, another one emulates the rig; one of them is suspended or killed.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
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
from emulated_bench import free_port
from messages import mentions

from rths_nodes.core.resources import resource
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import AT_REST
from rths_nodes.recording import procedure

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)
pytestmark = pytest.mark.usefixtures("fresh_programs")

SILENCE_S = 0.5
SUSPENDED_S = 2.0
BUSY_S = 1.0
"""Time that a busy machine may take until a process that was woken has its turn."""
STATES = [state.name for state in AT_REST]
RTHS = (sys.executable, "-m", "rths_nodes.app.cli")
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class Told:
    """Lines of JSON that a process prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError):  # it was closed
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put("")

    def next(self, seconds: float) -> dict[str, Any]:
        """The next line. Raises queue.Empty if none is there in time."""
        line = self._lines.get(timeout=seconds)
        assert line, "the process has ended"
        return dict(json.loads(line))

    def until(self, state: str, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while (found := self.next(max(end - time.monotonic(), 0.0)))["state"] != state:
            pass
        return found


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, bufsize=1
    ) as running:
        try:
            yield running
        finally:
            running.send_signal(signal.SIGCONT)
            running.kill()


@contextmanager
def at_rest(state: str, folder: Path) -> Iterator[tuple[Told, subprocess.Popen[str]]]:
    """A procedure in ``state``, and the process of its emulated rig."""
    port, rig = free_port(), folder / "rig.yaml"
    text = resource("config", "rigs", "bench_udp.yaml").read_text(encoding="utf-8")
    calm = f"transport_samples: 16, silence: {SILENCE_S}}}\nbridge: {{max_bridge: 0.3}}"
    text = text.replace("servo_rate: 1024.0\n", "").replace("transport_samples: 1}", calm)
    rig.write_text(text, encoding="utf-8")
    sets = [word for each in (*rig_at_rest.SLOW, f"port.port={port}") for word in ("--set", each)]
    with process(*RTHS, "emulate", rig_at_rest.SCENARIO, "--rig", str(rig), "--own-clock", "--json", *sets) as far:
        Told(far).next(60.0)
        helper = str(Path(rig_at_rest.__file__))
        with process(sys.executable, helper, str(rig), str(port), state, str(folder / "rest")) as near:
            told = Told(near)
            told.until(f"at rest: {state}", 120.0)
            yield told, far


def reported(told: Told, folder: Path, state: str, since: float, reason: str) -> None:
    """The loss is a state and an event, and nothing but the end is possible then."""
    found = told.until(State.TRIPPED.name, 20.0)
    assert found["at"] - since <= SILENCE_S + BUSY_S
    assert reason in found["reason"]
    time.sleep(0.2)
    written = procedure.read(folder / "rest")
    assert mentions([note.text for note in written.notes if "lost" in note.text][-1], state, found["reason"])
    assert told.process.stdin is not None
    told.process.stdin.close()
    possible = told.until("possible", 10.0)["reason"]
    assert possible.pop("rehearse")  # no rung on the simulator is planned
    refused = {name: why for name, why in possible.items() if why}
    assert possible.keys() - refused.keys() == {"finish", "note", "stop"}
    for why in refused.values():
        assert mentions(why, found["reason"], "finish")
        assert "acknowledge" not in why
    assert told.until(State.FINISHED.name, 30.0)


@pytest.mark.parametrize("state", STATES)
def test_a_test_computer_that_was_suspended_reports_the_loss_when_it_resumes(state: str, tmp_path: Path) -> None:
    with at_rest(state, tmp_path) as (told, _):
        told.process.send_signal(signal.SIGSTOP)
        time.sleep(SUSPENDED_S)
        resumed = time.monotonic()
        told.process.send_signal(signal.SIGCONT)
        reported(told, tmp_path, state, resumed, "port")


@pytest.mark.parametrize("state", STATES)
def test_a_rig_that_falls_silent_is_reported(state: str, tmp_path: Path) -> None:
    with at_rest(state, tmp_path) as (told, far):
        far.kill()
        reported(told, tmp_path, state, time.monotonic(), "port.silence")
