# SPDX-License-Identifier: Apache-2.0
"""Run of a test by the executive: build and start the program, take its rows, end it.

The program owns the loop. This process may only ask it to stop; if it is late, suspended or dead, the program
brakes by itself (``executive.c``).
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rths_nodes.codegen.building import PROGRAM, Library, Unbuilt, built, check_elementary, key_of, toolchain
from rths_nodes.codegen.calling import program_of
from rths_nodes.codegen.values import Untranslatable, leaves
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.port_readings import WITHOUT_PRESSURE
from rths_nodes.laboratory.ports.udp import UdpPort
from rths_nodes.loop.compiled.history import given, room
from rths_nodes.loop.compiled.native import values_of
from rths_nodes.loop.compiled.parts import Parts
from rths_nodes.loop.compiled.running import function_of, in_arrays
from rths_nodes.loop.embedded import Loop, Outcome, Sink
from rths_nodes.loop.executive import near
from rths_nodes.loop.executive.memory import Control, Memory, Table, links_of, noted, position_of, words_of
from rths_nodes.loop.executive.messages import LAST, REFUSED, Messages, RowLayout
from rths_nodes.loop.executive.parts import live_parts
from rths_nodes.loop.indices.late_periods import LateData
from rths_nodes.loop.options import EXECUTIVE
from rths_nodes.loop.realtime import PRIORITY
from rths_nodes.loop.supervision.safe_stop import braking_time
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW, State
from rths_nodes.loop.timing import timing

SOURCE = Path(__file__).with_name("executive.c")
OPERATOR, TRIP, SILENT, FULL, PARENT, RIG, PRESSURE = range(1, 8)
"""Stop words, as in executive.c."""
READY, ENDED = 1, 3
"""States of the program."""
SILENCE_S = 1.0
"""Time without a sign of life of this process after which the program brakes, s."""
RING_S = 4.0
"""Length of the ring of rows in real time, s."""
SPIN_S = 6e-5
"""Busy wait before a tick, s."""
BATCH = 256
"""Rows that are taken at once."""
NEVER = 2**62
"""Sample of a trip that is not due."""
LOOK_S, LOOK_LOCKSTEP_S = 0.005, 0.0002
"""Time between two looks at an empty ring, s."""
START_S, END_S = 10.0, 2.0
"""Longest time until the program is ready, and until it ends after its stop, s."""
REASONS = {
    OPERATOR: "interrupted",
    SILENT: f"the process of the test gave no sign of life for {SILENCE_S:g} s",
    FULL: "the ring of rows is full: the process of the test takes them too slowly",
    PARENT: "the process of the test has ended",
    PRESSURE: WITHOUT_PRESSURE,
}
PROBLEMS = {
    64: "its arguments are wrong",
    65: "its memory is not as expected, or there is none",
    66: "the floating-point unit does not round to nearest with subnormal numbers",
    67: "there is no monotonic clock",
}
"""Exit codes of the program before the start."""


class ExecutiveLoop:
    """The loop of a scenario in a native process; ``loop`` is the embedded one, ``paced`` by the clock or not.

    Raises ConfigError if the scenario cannot run so, or the program cannot be built.
    """

    engine = EXECUTIVE

    def __init__(self, loop: Loop, paced: bool, bare: bool = False) -> None:
        parts = live_parts(loop.assembly)
        if isinstance(parts, str):
            raise ConfigError(f"engine = {EXECUTIVE!r}: {parts}: use python")
        self.assembly, self.scenario = loop.assembly, loop.scenario
        self._parts, self._paced, self._bare = parts, paced, bare
        self._layout = RowLayout(parts)
        self._memory = Memory()
        try:
            self._program = self._build()
        except (Unbuilt, Untranslatable) as error:
            raise ConfigError(f"engine = {EXECUTIVE!r}: {error}: use python") from error
        self.notes, self.library = self._program.notes, self._program.digest
        self.program = f"{self._key[:16]}-{self.library[:16]}"
        """Identity of the program: hash of text, compiler, processor and flags, and hash of the binary."""
        self._breach = ""
        """Reason of a breach that the monitor has found."""
        self.late: list[float] = []
        self.taken: list[float] = []
        """Lateness of the ticks, and time from a tick to the row, ns."""

    def _build(self) -> Library:
        """Lay out the memory and build the program. Raises Unbuilt and Untranslatable."""
        scenario, parts, memory = self.scenario, self._parts, self._memory
        tools = toolchain()
        check_elementary(tools)
        stop = int(braking_time(scenario.limits.values()) * scenario.servo_rate) + 3
        out = room(parts, 1, 1)
        inputs = given(
            parts, scenario.samples + stop if draws(parts) else 1, (in_arrays(parts.excitation),), False
        )
        constants = in_arrays(tuple(parts.constants.values()), tables=True)
        felt = np.zeros(3 * parts.kind.axes + 1)
        asked = (0, 0, felt) if parts.kind.remote else (0,)
        arguments = 0, 1, constants, in_arrays(tuple(parts.states.values())), (*inputs, *asked), out
        values = values_of(arguments, parts)
        text, python = program_of(function_of(parts), values)
        call = noted(python, arguments)
        stopped, made, driven, stopping, resting, states = call.results
        links = links_of(values[3], call, states)
        streams = self._streams(inputs)
        rows, _, shown, marks, steps = out
        by_slot = dict(zip(map(id, (rows, shown, marks, steps)), self._layout.begins(), strict=True))
        pointers, at_felt = [], 0
        for array in call.arrays:
            if id(array) in by_slot:
                pointers.append((by_slot[id(array)], 0, 1))
            else:
                pointers.append((memory.add(laid_out(array), words_of(array)), streams.get(id(array), 0), 0))
                at_felt = pointers[-1][0] if array is felt else at_felt
        numbers, results = memory.add(call.numbers), memory.add(b"", call.n_results)
        tables = memory.rows(pointers, links.copies, links.fixed, links.moves)
        slots = max(LOCKSTEP_WINDOW, int(RING_S * scenario.servo_rate) if self._paced else 0)
        ring = memory.add(b"", (slots + 1) * self._layout.words)
        terms = report = 0
        if parts.kind.remote:
            terms = memory.add(bytes(near.terms_of(*self._udp, not self._paced)))
            report = memory.add(bytes(near.Report()))
        self._control = control = memory.open()
        control.felt, control.terms, control.report = at_felt, terms, report
        for name, table in zip(("pointers", "copies", "fixed", "moves"), tables, strict=True):
            setattr(control, name, table[0])
            setattr(control, f"n_{name}", table[1])
        control.numbers, control.results = numbers, results
        positions = [position_of(value) for value in leaves(values[4])[-len(asked) :]]
        control.asked, control.half = positions[0], positions[len(asked) // 2]
        control.at_stopped, control.at_made, control.at_driven = stopped.position, made.position, driven.position
        control.at_stopping, control.at_resting = stopping.position, resting.position
        control.slots, control.slot_words, control.ring = slots, self._layout.words, ring
        control.at_marks, control.samples, control.bare = self._layout.at_marks, scenario.samples, self._bare
        control.trip_at = NEVER
        if self._paced:
            control.period, control.spin = round(1e9 * scenario.dt), round(1e9 * SPIN_S)
            control.silence, control.priority, control.lock = round(1e9 * SILENCE_S), PRIORITY, 1
            control.reserve = min(2 * stop, slots // 2)
        source = SOURCE.read_text(encoding="utf-8")
        side = near.text() if parts.kind.remote else ""
        text = f"#define _GNU_SOURCE\n#define RTHS_LOOP\n{side}\n{text}\n{source}"
        self._key = key_of(text, tools)
        return built(text, tools, PROGRAM)

    def close(self) -> None:
        """Give back program and memory, also without a run."""
        os.close(self._memory.descriptor)
        os.close(self._program.handle)

    @property
    def _udp(self) -> tuple[UdpPort, UdpPort.Params]:
        """Port of a rig by udp, and its parameters."""
        port, params = self.assembly.port, self.scenario.port
        assert isinstance(port, UdpPort)
        assert isinstance(params, UdpPort.Params)
        return port, params

    @property
    def _report(self) -> near.Report:
        return near.Report.from_buffer_copy(self._memory.content(self._control.report, ctypes.sizeof(near.Report)))

    def _streams(self, inputs: tuple[object, ...]) -> dict[int, int]:
        """Return the words per sample of the arrays of noise, by identity."""
        kind, streams = self._parts.kind, {}
        if kind.channel_noise:
            streams[id(inputs[-1])] = kind.channels
            inputs = inputs[:-1]
        if any(kind.noise):
            streams[id(inputs[-1])] = 2 * kind.axes
        return streams

    def run(
        self,
        sinks: Sequence[Sink] = (),
        progress: Callable[[int], None] | None = None,
        interrupted: Callable[[], bool] | None = None,
    ) -> Outcome:
        """Run the test as :meth:`Loop.run`, once."""
        control, messages = self._control, Messages(self._parts, self.assembly, sinks)
        with self._started() as process:
            if self._parts.kind.remote:
                near.agree(*self._udp, control.opened, self._report)
            messages.begin()
            self._heed_monitor()
            control.go = 1
            while True:
                ended = control.state == ENDED or process.poll() is not None
                taken = self._take(messages)
                control.alive += 1
                if progress and taken:
                    progress(min(messages.sample, self.scenario.samples))
                if interrupted and interrupted() and not control.word:
                    control.word = OPERATOR
                if not taken:
                    if ended:
                        break
                    time.sleep(LOOK_S if self._paced else LOOK_LOCKSTEP_S)
        return self._outcome(messages, process.returncode)

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the program in the block; it brakes if the block ends early. Raises ConfigError without a start."""
        memory, program = self._memory, self._program.handle
        theirs, ours = os.pipe()
        os.set_blocking(ours, False)
        try:
            files = program, memory.descriptor, theirs
            command = [f"/proc/self/fd/{program}", str(memory.descriptor), str(theirs)]
            process = subprocess.Popen(command, pass_fds=files, stdin=subprocess.DEVNULL)
        except OSError as error:
            os.close(ours)
            raise ConfigError(f"engine = {EXECUTIVE!r}: the program does not start: {error}") from error
        finally:
            os.close(theirs)
        try:
            with signals_written(ours):
                self._await_ready(process)
                yield process
        finally:
            if self._control.state != ENDED and not self._control.word:
                self._control.word = OPERATOR
            end_program(process, END_S + braking_time(self.scenario.limits.values()))
            os.close(ours)
            self.close()

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_S
        until += self._udp[1].connect_within if self._parts.kind.remote else 0.0
        while self._control.state != READY:
            if process.poll() is not None or time.monotonic() > until:
                code = process.poll()
                reason = PROBLEMS.get(code or 0, f"exit code {code}")
                raise ConfigError(f"engine = {EXECUTIVE!r}: the program does not start: {reason}")
            time.sleep(LOOK_LOCKSTEP_S)

    def _take(self, messages: Messages) -> int:
        """Hand on the rows in the ring, at most BATCH; return their number."""
        control, slots = self._control, self._control.slots
        tail = control.tail
        first = tail % slots
        count = min(control.head - tail, BATCH, slots - first)
        if count:
            rows = self._memory.table(control.ring, slots, self._layout.words)[first : first + count].copy()
            integers = rows.view(np.int64)
            timed = ~np.isin(integers[:, 1], (REFUSED, LAST))
            self.late += integers[timed, 3].tolist()
            self.taken += integers[timed, 4].tolist()
            for pair in () if self._bare else zip(rows, integers, strict=True):
                messages.take(*pair)
                self._heed_monitor()
            control.tail = tail + count
        return int(count)

    def _heed_monitor(self) -> None:
        breach = self._parts.monitor.monitor.breach
        if breach and not self._breach:
            self._breach = breach[1]
            self._control.trip_at = 0 if self._paced else breach[0] + LOCKSTEP_WINDOW

    def _outcome(self, messages: Messages, code: int | None) -> Outcome:
        control, scenario, monitor = self._control, self.scenario, self._parts.monitor
        sample, late = messages.sample, 1e-9 * np.array(self.late if self._paced else ())
        monitor.work()
        self._heed_monitor()
        state, reason, failed = State.FINISHED, "", messages.failed
        if control.state != ENDED:
            state, reason, failed = State.TRIPPED, f"sample {sample}: the executive has ended (code {code})", True
        elif control.stopped_at:
            by, at = control.stopped_by, control.stopped_at
            state = State.HELD if by == OPERATOR else State.TRIPPED
            fault = self._fault() if by == RIG else messages.reason
            reason = f"sample {at}: {self._breach if by == TRIP else REASONS.get(by, fault)}"
        elif self._breach:
            state, reason = State.TRIPPED, f"sample {sample}: {self._breach}"
        period = scenario.dt if self._paced else None
        running, taken = 1e-9 * (control.ended - control.began), 1e-9 * np.array(self.taken)
        lost = LateData.of_bridged(messages.bridged, scenario.dt, scenario.bridge.max_bridge)
        gap = max(lost.gap, control.longest * scenario.dt)
        times = timing(running, taken, late, control.missed, lost.bridged, period, gap)
        if control.lost:
            times["lost_rows"] = control.lost
        if self._parts.kind.remote:
            times["port"] = near.numbers(self._udp[0], self._report)
        self.notes = (*self.notes, *refusals(control))
        shown = dict(zip(self.assembly.names.state, messages.shown, strict=True)) if messages.shown else {}
        return Outcome(state, reason, sample, monitor.metrics(), shown, times, failed)

    def _fault(self) -> str:
        """Return why the rig could not continue."""
        report = self._report
        report.stopped, report.reason = divmod(self._control.fault, 256)
        return near.stopped(*self._udp, report)


def refusals(control: Control) -> Iterator[str]:
    """Yield a note for each request that the system has refused to the program."""
    if control.no_lock:
        problem = os.strerror(control.no_lock)
        yield f"locking of memory refused ({problem}): a page that is fetched late makes a tick late"
    if control.no_priority:
        yield f"SCHED_FIFO refused ({os.strerror(control.no_priority)}): expect a longer tail; see `ulimit -r`"
    if control.period and len(os.sched_getaffinity(0)) == 1:
        yield "one processor for the executive and Python: at a high servo rate the ring of rows may become full"


def draws(parts: Parts) -> bool:
    """Return whether sensors or channels have noise."""
    return parts.kind.channel_noise or any(parts.kind.noise)


def laid_out(array: Table) -> bytes:
    """Return the bytes of an array as they are in memory. Raises Untranslatable for one with gaps."""
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise Untranslatable("an array of the loop is part of another one")
    content: bytes = array.tobytes("A")
    return content


@contextmanager
def signals_written(pipe: int) -> Iterator[None]:
    """Let the C handlers of signals write their numbers to ``pipe`` in the block, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)


def end_program(process: subprocess.Popen[bytes], timeout: float) -> None:
    """Wait for the end of the program, which has braked; kill it after ``timeout`` s."""
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
