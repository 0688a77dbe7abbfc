# SPDX-License-Identifier: Apache-2.0
"""Requests of the operator to stop, as real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rths_nodes.loop import interrupts
from rths_nodes.loop.interrupts import STOPPING, orderly_stop, stop_signals_handled

ROOT = Path(__file__).resolve().parents[2]


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", STOPPING, ids=lambda number: number.name)
def test_every_request_is_heard_and_the_handlers_come_back(number: int) -> None:
    before = signal.getsignal(number)
    with orderly_stop() as asked:
        assert not asked()
        send(number)
        assert asked()
    assert signal.getsignal(number) == before


def test_a_closed_terminal_that_was_ignored_at_the_start_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with orderly_stop() as asked:
            send(signal.SIGHUP)
            assert not asked()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signals_that_follow_each_other_are_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that loses its terminal hands on what the kernel has sent already."""
    with orderly_stop() as asked:
        send(signal.SIGHUP)
        send(signal.SIGTERM)
        assert asked()
        monkeypatch.setattr(interrupts, "SAME_REQUEST_S", -1.0)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_behind_an_orderly_stop_the_signal_has_its_usual_effect() -> None:
    heard: list[int] = []
    with stop_signals_handled(heard.append):
        with orderly_stop(resend=True):
            send(signal.SIGQUIT)
            assert heard == []
        assert heard == [signal.SIGQUIT]


def test_another_thread_has_nobody_who_asks() -> None:
    found: list[bool] = []

    def ask() -> None:
        with orderly_stop() as asked:
            found.append(asked())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [False]


INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{number})

sys.meta_path.insert(0, Interrupting())
{program}
"""
COMMAND = "from rths_nodes.app.cli import main; sys.exit(main(['list']))"
NODE = "from rths_nodes.app.node import node_main; node_main('actuator', [])"


@pytest.mark.parametrize(
    ("program", "module", "number"),
    [(COMMAND, "numpy", "SIGINT"), (COMMAND, "yaml", "SIGTERM"), (NODE, "numpy", "SIGINT")],
    ids=["command", "SIGTERM", "node"],
)
def test_who_is_interrupted_while_modules_are_loaded_says_so_in_one_line(
    program: str, module: str, number: str
) -> None:
    words = INTERRUPTED.format(program=program, module=module, number=number)
    found = subprocess.run(
        [sys.executable, "-c", words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.returncode, found.stderr) == (130, "rths: interrupted\n")
