# SPDX-License-Identifier: Apache-2.0
"""Tests of stop requests by real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rths_nodes.loop import interrupts
from rths_nodes.loop.interrupts import STOPPING, orderly_stop, raised_at_once, stop_signals_handled

ROOT = Path(__file__).resolve().parents[2]


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", STOPPING, ids=lambda number: number.name)
def test_stop_signals_are_handled_and_handlers_restored(number: int) -> None:
    before = signal.getsignal(number)
    with orderly_stop() as requested:
        assert not requested()
        send(number)
        assert requested()
    assert signal.getsignal(number) == before


def test_sighup_ignored_at_start_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with orderly_stop() as requested:
            send(signal.SIGHUP)
            assert not requested()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signals_in_quick_succession_are_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that loses its terminal forwards the signal that the kernel has already sent."""
    with orderly_stop() as requested:
        send(signal.SIGHUP)
        send(signal.SIGTERM)
        assert requested()
        monkeypatch.setattr(interrupts, "SAME_REQUEST_S", -1.0)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_earlier_request_is_raised_at_once() -> None:
    with orderly_stop():
        send(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), raised_at_once():
            pass
    with raised_at_once():
        pass


def test_signal_is_resent_after_orderly_stop() -> None:
    received: list[int] = []
    with stop_signals_handled(received.append):
        with orderly_stop(resend=True):
            send(signal.SIGQUIT)
            assert received == []
        assert received == [signal.SIGQUIT]


def test_orderly_stop_in_other_thread_reports_no_request() -> None:
    results: list[bool] = []

    def enter() -> None:
        with orderly_stop() as requested:
            results.append(requested())

    with ThreadPoolExecutor(1) as pool:
        pool.submit(enter).result()
    assert results == [False]


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
    [(COMMAND, "numpy", "SIGINT"), (COMMAND, "yaml", "SIGTERM"), (COMMAND, "inspect", "SIGINT")]
    + [(NODE, "numpy", "SIGINT"), (NODE, "rths_nodes.app.streams", "SIGINT")],
)
def test_interrupt_during_import_prints_one_line(program: str, module: str, number: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED.format(program=program, module=module, number=number)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (130, "rths: interrupted\n")


@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP"])
def test_other_stop_signals_end_a_command_as_interrupt_does(number: str) -> None:
    """A command that handled no signals itself was killed: without message, and temporary folders remained."""
    stopped = f"lookup.list_command = lambda _: signal.raise_signal(signal.{number})"
    program = f"import signal, sys; from rths_nodes.app.commands import lookup; {stopped}; {COMMAND}"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (130, "rths: interrupted\n")
