# SPDX-License-Identifier: Apache-2.0
"""Run of a test by the executive: build and start the program, read its rows, end the program.

The program owns the loop, and this process can only request a stop. If this process is late, suspended or dead,
the program brakes by itself (``executive.c``).
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from rths_nodes.codegen.building import PROGRAM, Library, Unbuilt, built, check_elementary, key_of, toolchain
from rths_nodes.codegen.calling import EntryPoint, position_of
from rths_nodes.codegen.values import Tup, Untranslatable, leaves
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import WITHOUT_PRESSURE
from rths_nodes.laboratory.ports.udp import UdpPort
from rths_nodes.loop.compiled.history import given, room
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.compiled.running import function_of, in_arrays, values_of
from rths_nodes.loop.embedded import Loop, Outcome, Sink
from rths_nodes.loop.executive import memory, near
from rths_nodes.loop.options import EXECUTIVE
from rths_nodes.loop.realtime import PRIORITY, not_locked, not_scheduled
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.supervision.safe_stop import SafeStop, begin, braking_time, command_after
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW, State
from rths_nodes.loop.timing import LateData, timing

SOURCE = Path(__file__).with_name("executive.c")
OPERATOR, TRIP, SILENT, FULL, PARENT, RIG, PRESSURE = range(1, 8)
"""Stop words (causes of a stop), as in executive.c."""
READY, ENDED = 1, 3  # states of the program
SILENCE_S = 1.0
"""Time without a sign of life from this process after which the program brakes, s."""
RING_S = 4.0
"""Duration of the samples that the ring can hold in real time, s."""
SPIN_S = 6e-5  # busy waiting before a tick, s
NODES_ROWS, BATCH = 8, 256
"""Number of rows in the ring in lockstep with nodes; largest number of rows that one call reads."""
NEVER = 2**62  # sample of the trip while no trip is requested
LOOK_S, LOOK_LOCKSTEP_S = 0.005, 0.0002
"""Polling intervals while the ring is empty, in real time and in lockstep, s."""
START_S, END_S = 10.0, 2.0
"""Timeouts for the start of the program, and for its exit after braking, s."""
REASONS = {
    OPERATOR: "interrupted",
    TRIP: "trip requested",
    SILENT: f"the process of the test gave no sign of life for {SILENCE_S:g} s",
    FULL: "the ring of rows is full, because the process of the test reads too slowly",
    PARENT: "the process of the test has ended",
    PRESSURE: WITHOUT_PRESSURE,
}
PROBLEMS = {
    64: "wrong arguments",
    65: "the shared memory is missing or has another layout",
    66: "the floating-point unit does not round to nearest with subnormal numbers",
    67: "the system has no monotonic clock",
}


OF_RIG = re.compile(
    r"(of_actuator|of_sensors|of_rig|resolution|range|actuator|sense|sensed|rig)(_.*)?|driven|line|at|inputs"
)
"""Pattern of the names of kernels, constants and states of a simulated rig."""


class ExecutiveLoop:
    """Runs a scenario in a native process, built from the embedded ``loop``; in real time if ``paced``.

    With ``nodes``, a node monitors the loop. In lockstep the program is at most ``ahead`` samples ahead of the
    nodes. Raises ConfigError if the executive cannot run the scenario or the program cannot be built.
    """

    engine = EXECUTIVE

    def __init__(self, loop: Loop, paced: bool, bare: bool = False, nodes: bool = False) -> None:
        parts = live_parts(loop.assembly)
        if isinstance(parts, str):
            raise ConfigError(f"engine = {EXECUTIVE!r}: {parts}. Use engine python")
        self.assembly, self.scenario = loop.assembly, loop.scenario
        self._parts, self._paced, self._bare, self._judges = parts, paced, bare, not nodes
        self._window = NODES_ROWS if nodes else LOCKSTEP_WINDOW
        self.ahead, self.over, self.reasons = 3 * self._window, False, dict(REASONS)
        self._layout, self._memory = memory.RowLayout(parts), memory.Memory()
        try:
            self._program = self._build()
        except (Unbuilt, Untranslatable) as error:
            self._memory.close()
            raise ConfigError(f"engine = {EXECUTIVE!r}: {error}. Use engine python") from error
        self.notes, self.library = self._program.notes, self._program.digest
        self.program = f"{self._key[:16]}-{self.library[:16]}"
        """Identity of the program: a hash of text, compiler, processor and flags, then a hash of the binary."""
        self.stops_at = b""
        """Name of the socket on which the program receives stop requests from other processes, or empty."""
        self._breach = ""  # reason for a breach that the monitor detected
        self.late: list[float] = []
        self.taken: list[float] = []
        """Time from the tick to the row, for each row, ns. ``late`` is the lateness of these ticks, ns."""

    def _build(self) -> Library:
        scenario, parts, shared = self.scenario, self._parts, self._memory
        tools = toolchain()
        check_elementary(tools)
        stop = int(braking_time(scenario.limits.values()) * scenario.servo_rate) + 3
        out = room(parts, 1, 1)
        draws = parts.kind.channel_noise or any(parts.kind.noise)
        inputs = given(parts, scenario.samples + stop if draws else 1, (in_arrays(parts.excitation),), False)
        constants = in_arrays(tuple(parts.constants.values()), tables=True)
        felt = np.zeros(3 * parts.kind.axes + 1)
        asked = (0, 0, felt) if parts.kind.remote else (0,)
        arguments = 0, 1, constants, in_arrays(tuple(parts.states.values())), (*inputs, *asked), out
        values = values_of(arguments, parts)
        entry = EntryPoint(function_of(parts), values)
        numbers, arrays = entry.memory(arguments)
        assert isinstance(entry.result, Tup)
        *results, states = entry.result.items
        links = memory.links_of(values[3], states, arrays)
        widths = [2 * parts.kind.axes] * any(parts.kind.noise) + [parts.kind.channels] * parts.kind.channel_noise
        streams = dict(zip(map(id, inputs[len(inputs) - len(widths) :]), widths, strict=True))
        rows, _, shown, marks, steps = out
        by_slot = dict(zip(map(id, (rows, shown, marks, steps)), self._layout.begins(), strict=True))
        fields: dict[str, int] = {"trip_at": NEVER, "samples": scenario.samples, "bare": self._bare}
        pointers: list[tuple[int, int, int]] = []
        for array in arrays:
            if id(array) in by_slot:
                pointers.append((by_slot[id(array)], 0, 1))
            else:
                pointers.append((shared.add_array(array), streams.get(id(array), 0), 0))
                if array is felt:
                    fields["felt"] = pointers[-1][0]
        tables: list[Sequence[tuple[object, ...]]] = [pointers, *links]
        for name, table in zip(("pointers", "copies", "fixed", "moves"), tables, strict=True):
            fields |= {name: shared.rows(table), f"n_{name}": len(table)}
        slots = max(self._window, int(RING_S * scenario.servo_rate) if self._paced else 0)
        fields |= {"numbers": shared.add(numbers), "results": shared.add(b"", len(entry.results))}
        fields |= {"slots": slots, "slot_words": self._layout.words, "at_marks": self._layout.at_marks}
        fields["ring"] = shared.add(b"", (slots + 1) * self._layout.words)
        if parts.kind.remote:
            fields["terms"] = shared.add(bytes(near.terms_of(*self._udp, not self._paced)))
            fields["report"] = shared.add(bytes(near.Report()))
        positions = [position_of(value) for value in leaves(values[4])[-len(asked) :]]
        fields |= {"asked": positions[0], "half": positions[len(asked) // 2]}
        at = zip(("stopped", "made", "driven", "stopping", "resting"), results, strict=True)
        fields |= {f"at_{name}": position_of(number) for name, number in at}
        if self._paced:
            fields |= {"period": round(1e9 * scenario.dt), "spin": round(1e9 * SPIN_S), "priority": PRIORITY}
            fields |= {"silence": round(1e9 * SILENCE_S), "lock": 1, "reserve": min(2 * stop, slots // 2)}
        self._control = shared.open(fields)
        source = SOURCE.read_text(encoding="utf-8")
        side = near.text() if parts.kind.remote else ""
        text = f"#define _GNU_SOURCE\n#define RTHS_LOOP\n{side}\n{entry.text}\n{source}"
        self._key = key_of(text, tools)
        return built(text, tools, PROGRAM)

    def close(self) -> None:
        self._memory.close()
        os.close(self._program.handle)

    @property
    def _udp(self) -> tuple[UdpPort, UdpPort.Params]:
        port, params = self.assembly.port, self.scenario.port
        assert isinstance(port, UdpPort)
        assert isinstance(params, UdpPort.Params)
        return port, params

    @property
    def _report(self) -> near.Report:
        return near.Report.from_buffer_copy(self._memory.map, memory.WORD * self._control.report)

    def run(
        self,
        sinks: Sequence[Sink] = (),
        progress: Callable[[int], None] | None = None,
        interrupted: Callable[[], bool] | None = None,
    ) -> Outcome:
        """Run the test once, like :meth:`Loop.run`."""
        with self.started(sinks):
            self.begin()
            while not self.over:
                taken = self.take()
                if progress and taken:
                    progress(min(self._messages.sample, self.scenario.samples))
                if interrupted and interrupted():
                    self.hold()
                if not taken and not self.over:
                    time.sleep(LOOK_S if self._paced else LOOK_LOCKSTEP_S)
        return self._outcome()

    def begin(self) -> None:
        self._messages.begin()
        self._heed_monitor()
        self._control.go = 1

    def hold(self, reason: str = REASONS[OPERATOR]) -> None:
        if not self._control.word:
            self.reasons[OPERATOR], self._control.word = reason, OPERATOR

    def trip(self, reason: str, sample: int = 0) -> None:
        """Request a trip, in lockstep at ``sample``, otherwise immediately. The earliest request counts."""
        at = 0 if self._paced else sample
        if at < self._control.trip_at and not self._control.stopped_at:
            self._breach = self.reasons[TRIP] = reason
            self._control.trip_at = at

    @contextmanager
    def started(self, sinks: Sequence[Sink]) -> Iterator[None]:
        """Run the program during the ``with`` block. Raises ConfigError if the program does not start."""
        with ExitStack() as leaving:
            leaving.callback(self.close)
            self._messages = memory.Messages(self._parts, self.assembly, sinks, self._judges)
            signals = self._start(leaving)
            leaving.callback(self._end)
            leaving.enter_context(signals_written(signals))
            self._await_ready()
            self.notes = (*self.notes, *refusals(self._control))
            if self._parts.kind.remote:
                near.agree(*self._udp, self._control.opened, self._report)
            yield

    def _start(self, leaving: ExitStack) -> int:
        """Start the program. Return the writing end of a pipe for signal numbers; ``leaving`` closes this end."""
        theirs, ours = os.pipe()
        leaving.callback(os.close, ours)
        os.set_blocking(ours, False)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stops:
                if self.stops_at:
                    stops.bind(self.stops_at)
                files = self._program.handle, self._memory.descriptor, theirs, stops.fileno()
                command = [f"/proc/self/fd/{files[0]}", *map(str, files[1:])]
                self._process = subprocess.Popen(command, pass_fds=files, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise ConfigError(f"engine = {EXECUTIVE!r}: the program does not start ({error})") from error
        finally:
            os.close(theirs)
        return ours

    def _end(self) -> None:
        if self._control.state != ENDED and not self._control.word:
            self._control.word = OPERATOR
        try:
            self._process.wait(END_S + braking_time(self.scenario.limits.values()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _await_ready(self) -> None:
        timeout = START_S + (self._udp[1].connect_within if self._parts.kind.remote else 0.0)
        until = time.monotonic() + timeout
        while self._control.state != READY:
            if (code := self._process.poll()) is not None or time.monotonic() > until:
                reason = f"no sign of readiness for {timeout:g} s" if code is None else f"exit code {code}"
                raise ConfigError(
                    f"engine = {EXECUTIVE!r}: the program does not start ({PROBLEMS.get(code or 0, reason)})"
                )
            time.sleep(LOOK_LOCKSTEP_S)

    def take(self) -> int:
        """Convert at most BATCH rows of the ring and return their number. ``over`` is true after the last row."""
        control, slots = self._control, self._control.slots
        ended = control.state == ENDED
        control.alive += 1
        tail = control.tail
        if control.head == tail and not ended:
            ended = self._process.poll() is not None  # the program may have added rows before its exit
        first = tail % slots
        count = min(control.head - tail, BATCH, slots - first)
        if count:
            rows = self._memory.table(control.ring, slots, self._layout.words)[first : first + count].copy()
            integers = rows.view(np.int64)
            for _, kind, _, late, taken in integers[:, :5].tolist():
                if kind not in (memory.REFUSED, memory.LAST):  # these rows end no tick
                    self.late.append(late)
                    self.taken.append(taken)
            for pair in () if self._bare else zip(rows, integers, strict=True):
                self._messages.take(*pair)
                self._heed_monitor()
            control.tail = tail + count
        self.over = ended and not count
        return int(count)

    def _heed_monitor(self) -> None:
        if breach := self._parts.monitor.monitor.breach:
            self.trip(breach[1], breach[0] + LOCKSTEP_WINDOW)

    def ending(self) -> tuple[State, str, bool]:
        """Return the final state, the reason for it, and whether a component has failed."""
        control, sample, failed = self._control, self._messages.sample, self._messages.failed
        if self.over and control.state != ENDED:
            code = self._process.poll()
            return State.TRIPPED, f"sample {sample}: the executive has ended (code {code})", True
        if not control.stopped_at:
            reason = f"sample {sample}: {self._breach}" if self._breach else ""
            return State.TRIPPED if reason else State.FINISHED, reason, failed
        by = control.stopped_by
        reason = self.reasons.get(by, self._messages.reason)
        if by == RIG:
            report = self._report
            report.stopped, report.reason = divmod(control.fault, 256)
            reason = near.stopped(*self._udp, report)
        return State.HELD if by == OPERATOR else State.TRIPPED, f"sample {control.stopped_at}: {reason}", failed

    def timing(self) -> Data:
        control, scenario = self._control, self.scenario
        late = 1e-9 * np.array(self.late if self._paced else ())
        running, taken = 1e-9 * (control.ended - control.began), 1e-9 * np.array(self.taken)
        lost = LateData.of_bridged(self._messages.bridged, scenario.dt, scenario.bridge.max_bridge)
        gap = max(lost.gap, control.longest * scenario.dt)
        period = scenario.dt if self._paced else None
        times = timing(running, taken, late, control.missed, lost.bridged, period, gap)
        if control.lost:
            times["lost_rows"] = control.lost
        if self._parts.kind.remote:
            times["port"] = near.numbers(self._udp[0], self._report)
        return times

    def _outcome(self) -> Outcome:
        messages, monitor = self._messages, self._parts.monitor
        monitor.work()
        self._heed_monitor()
        shown = dict(zip(self.assembly.names.state, messages.shown, strict=True)) if messages.shown else {}
        state, reason, failed = self.ending()
        return Outcome(state, reason, messages.sample, monitor.metrics(), shown, self.timing(), failed)


def refusals(control: memory.Control) -> Iterator[str]:
    if control.no_lock:
        yield not_locked(os.strerror(control.no_lock))
    if control.no_priority:
        yield not_scheduled(os.strerror(control.no_priority))
    if control.period and len(os.sched_getaffinity(0)) == 1:
        yield "executive and Python share one processor, so the ring of rows may become full at a high servo rate"


@contextmanager
def signals_written(pipe: int) -> Iterator[None]:
    """Make Python's C signal handler write signal numbers to ``pipe`` during the ``with`` block.

    Does nothing outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)


def live_parts(assembly: Assembly) -> Parts | str:
    """Return the parts of a loop for the executive, or the reason why the executive cannot run the scenario."""
    scenario = assembly.scenario
    port: object = assembly.port
    parts = remote_parts(assembly) if type(port) is UdpPort else parts_of(assembly)
    if isinstance(parts, str):
        return parts
    if scenario.bridge.pauses:
        return "bridge.when_late = pause requires an actuator node"
    if scenario.bridge.overruns is not None:
        return "bridge.overruns requires an actuator node, which counts late periods"
    if scenario.hops.depth:
        return f"hops.depth = {scenario.hops.depth} requires nodes that exchange messages"
    stop = SafeStop(scenario.limits, scenario.dt, None, scenario.stop_groups)
    kernels = dict(parts.kernels) | {"stop_begin": begin, "stop_command": command_after}
    states = {name: part for name, part in parts.states.items() if name != "work"}
    states |= {"stopping": 0, "stop": stop.state, "stop_done": 0.0, "stop_samples": 0.0}
    sent = {f"before_{axis}": parts.states[f"sent_{axis}"] for axis in range(parts.kind.axes)}
    return parts._replace(
        kind=parts.kind._replace(live=True),
        kernels=kernels,
        constants=dict(parts.constants) | {"of_stop": stop.groups},
        states=states | sent,
    )


def remote_parts(assembly: Assembly) -> Parts | str:
    """Return the parts of a loop whose rig uses the port ``udp``, or the reason why the loop cannot run."""
    params = assembly.scenario.port
    assert isinstance(params, UdpPort.Params)
    if not params.emulator:
        return "only the nodes can drive a real rig (port.emulator = false)"
    if params.trigger:
        return "port.trigger requires an actuator node"
    simulator = f"port={{type: simulator, transport_samples: {params.transport_samples}}}"
    parts = parts_of(Assembly(override(assembly.scenario, [simulator])))
    if isinstance(parts, str):
        return parts
    kind = parts.kind
    if kind.inputs or kind.channels:
        return "auxiliary channels of a rig over UDP require an actuator node"
    if kind.lead:
        return "integrator.force_lead requires an actuator node if the rig is connected over UDP"
    no = (False,) * kind.axes
    monitor = MonitorStage.of(assembly)
    monitor.target(parts.target)
    return parts._replace(
        kind=kind._replace(remote=True, coupled_rig=False, transport=False, converts=True, sensors=no, noise=no),
        kernels={name: part for name, part in parts.kernels.items() if not OF_RIG.fullmatch(name)},
        constants={name: part for name, part in parts.constants.items() if not OF_RIG.fullmatch(name)},
        states={name: part for name, part in parts.states.items() if not OF_RIG.fullmatch(name)} | {"doubt": 0},
        noise=[None] * kind.axes,
        monitor=monitor,
    )
