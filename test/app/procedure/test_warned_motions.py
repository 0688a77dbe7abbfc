# SPDX-License-Identifier: Apache-2.0
"""Tests of the warning output of a rig before each motion, and of stops while it is on."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from c_compiler import needs_compiler
from emulated_bench import EmulatedBench
from messages import naming
from programs import RTHS
from rig_runner import conducted, referenced, rig_file
from terminal import Terminal

from rths_nodes.app.page.operator import Operating
from rths_nodes.app.procedure.operator_socket import Answer
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.app.procedure.served import Served
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.loop.procedure_record import PAGE, SOCKET, TERMINAL, ProcedureRecord
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.commissioning.trials import signs
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.procedure.session import CLEAR, RigSession

REST = 1e-6
"""Largest displacement of a piston at rest, m."""


class Horn:
    """Horn of an emulated bench."""

    def __init__(self, bench: EmulatedBench) -> None:
        self.emulator = bench.emulator
        self.on = False
        self.times: list[int] = []
        """Samples at which it was switched, on and off in turn."""
        self.places: list[float] = []
        """Displacements of the piston while it was on, m."""
        self.emulator.warned = self._switched
        self.emulator.shown_to = self._look

    def _switched(self, on: bool) -> None:
        self.on = on
        self.times.append(int(self.emulator._receiver.counter))

    def _look(self, true: Measurement) -> None:
        if self.on:
            self.places.append(float(true.displacement[0]))


def bench_with_horn(folder: Path, seconds: float) -> EmulatedBench:
    return EmulatedBench(folder, mounted=0.5e6, further=f"warning: {{output: horn, seconds: {seconds}}}\n")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[EmulatedBench]:
    with closing(bench_with_horn(tmp_path, 3.0)) as bench:
        yield bench


@pytest.fixture
def session(bench: EmulatedBench) -> Iterator[RigSession]:
    scenario = bench.bench.scenario
    record = ProcedureRecord("test", scenario.name, scenario.whole_hash())
    with closing(RigSession(scenario, record, realtime=False)) as session:
        yield session


@needs_compiler
def test_horn_sounds_before_a_motion(bench: EmulatedBench, session: RigSession) -> None:
    horn = Horn(bench)
    session.connect()
    session.confirm_offsets(session.take_offsets(0.1).hash, unloaded=True)
    assert horn.times == []
    session.check()
    session.close()
    (on, off), dt = horn.times, session.scenario.dt
    assert (off - on) * dt >= 3.0
    before = horn.places[: round(3.0 / dt)]
    assert max(before) - min(before) < REST


@needs_compiler
def test_receiver_without_warning_output_is_refused(bench: EmulatedBench, session: RigSession) -> None:
    """A receiver of version 0.9.0 answers without the flag."""
    bench.emulator._flags &= ~datagrams.WARNING
    bench.emulator._begin()
    with pytest.raises(ConfigError, match=naming("warning.output", "horn", "udp", "127.0.0.1")):
        session.connect()
    assert session.state is State.IDLE


@needs_compiler
def test_stop_of_the_receiver_switches_the_horn_off(bench: EmulatedBench, session: RigSession) -> None:
    horn = Horn(bench)
    session.connect()
    session.confirm_offsets(session.take_offsets(0.1).hash, unloaded=True)
    tick = session.drive.tick

    def open_interlock() -> None:
        tick()
        if horn.on and len(horn.places) == 500:
            bench.emulator.switches.turn("interlock open")

    session.drive.tick = open_interlock
    with pytest.raises(ActRefused, match="interlock"):
        session.check()
    session.close()
    assert not horn.on
    assert max(horn.places) - min(horn.places) < REST


@needs_compiler
def test_horn_sounds_before_motions_of_commissioning(tmp_path: Path) -> None:
    with closing(EmulatedBench(tmp_path, further="warning: {output: horn}\n")) as free:
        horn = Horn(free)
        signs(free.bench)
    (on, off), dt = horn.times, free.bench.dt
    assert (off - on) * dt == pytest.approx(3.0, abs=2 * dt)
    assert max(horn.places) - min(horn.places) < REST


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProcedureRunner]:
    """Test with confirmed offsets on a simulated rig with a horn."""
    rig = rig_file(tmp_path, warning={"output": "horn"})
    runner = conducted(tmp_path / "test", "duration=0.1", rig=rig, rungs="g")
    referenced(runner)
    yield runner
    runner.session.close()


@pytest.mark.parametrize("way", [TERMINAL, PAGE, SOCKET, ""])
def test_stop_during_the_warning_cancels_the_motion(runner: ProcedureRunner, way: str) -> None:
    session = runner.session
    command, tick = session.drive.command.copy(), session.drive.tick
    warned: list[bool] = []
    port: Any = session.drive.port

    def stop() -> None:
        tick()
        warned.append(bool(session.warning.text))
        assert (session.drive.command == command).all()
        if sum(warned) == 700:
            thread = threading.Thread(target=lambda: runner.do("stop", "Ada", way, reason="somebody is there"))
            thread.start()
            thread.join()

    session.drive.tick = stop
    with pytest.raises(ActRefused, match=naming("check", "somebody is there")):
        runner.do("check", "Ada", TERMINAL, clear=CLEAR)
    assert sum(warned) in (700, 701)
    assert (session.drive.command == command).all()
    assert runner.state is State.REFERENCED
    assert not session.warning.text
    while hasattr(port, "_port"):
        port = port._port
    assert not port.warning


def test_socket_and_page_show_the_remaining_seconds(runner: ProcedureRunner) -> None:
    served, tick = Served(runner, print), runner.session.drive.tick
    shown: list[str] = []

    def look() -> None:
        tick()
        if len(shown) < 100:
            shown.append(served.situation().warning)

    runner.session.drive.tick = look
    runner.do("check", "Ada", TERMINAL, clear=CLEAR)
    page = Operating(lambda request: Answer(done=True, state=int(State.REFERENCED), warning=shown[9]), print, True)
    assert re.match(r"horn .* 3 s$", str(page.situation()["warning"]))


@pytest.mark.timeout(300)
@needs_compiler
@pytest.mark.parametrize("stop", ["s", "signal", "ctrl-c"])
def test_stop_at_the_terminal_cancels_the_motion(tmp_path: Path, environment: dict[str, str], stop: str) -> None:
    presses: dict[str, Callable[[Terminal], object]] = {
        "s": lambda terminal: terminal.type("s"),
        "signal": lambda terminal: terminal.program.send_signal(signal.SIGINT),
        "ctrl-c": Terminal.interrupt,
    }
    command = [*RTHS, "test", "chen_ricles_2010", "--no-report", "--set=duration=0.3", "--rig"]
    with (
        closing(bench_with_horn(tmp_path, 30.0)) as bench,  # in lockstep; long enough for a loaded computer
        closing(Terminal([*command, str(bench.file)], tmp_path, environment)) as terminal,
    ):
        horn = Horn(bench)
        for question, typed in (
            *(("operator:", "A. Tester"), ("specimen:", "D-17"), ("act ", "connect"), ("act ", "take_offsets")),
            *(("offsets_seconds", "0.2"), ("act ", "confirm_offsets"), ("confirm these offsets", "y")),
            *(("unloaded now", "y"), ("act ", "check"), (f"type {CLEAR}", CLEAR)),
        ):
            terminal.answer(question + r"[^\n]*: $", typed)
        terminal.wait_for(r"horn is on: motion in \d+ s")
        presses[stop](terminal)
        terminal.wait_for("stopped by the operator")
        terminal.wait_for(r"state: referenced")
        terminal.answer(r"act [^\n]*: $", "finish")
        assert terminal.end() in (0, 130), terminal.shown[-3000:]
    assert not horn.on
    on, off = horn.times
    assert off - on < 30.0 * 1024
    assert max(horn.places) - min(horn.places) < REST
