# SPDX-License-Identifier: Apache-2.0
"""Host of the executive: builds and starts the native program, reads its results and terminates it.

The program runs the loop; this process can only request a stop. The program brakes by itself if this process is
late, suspended or dead (``executive.c``). Both processes share memory with a control block, the arguments of the
loop and a ring of rows, one row per sample. Offsets count words of 8 bytes. Rows are converted to messages for
monitor and sinks, in the order of the embedded loop.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rths_nodes.codegen.building import PROGRAM, Library, Unbuilt, built, check_elementary, key_of, toolchain
from rths_nodes.codegen.calling import EntryPoint, is_handed, position_of
from rths_nodes.codegen.values import Arr, Scalar, Tup, Untranslatable, Value, leaves
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import type_of
from rths_nodes.core.protocols import WITHOUT_PRESSURE
from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_BRIDGED, Array, Command, Measurement, Target
from rths_nodes.laboratory.ports.udp import UdpPort
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.compiled.running import function_of, given, in_arrays, room, values_of
from rths_nodes.loop.compiled.text import laws, sample_columns, step_columns, told, width
from rths_nodes.loop.embedded import Loop, Outcome, Sink
from rths_nodes.loop.executive import near
from rths_nodes.loop.options import EXECUTIVE
from rths_nodes.loop.realtime import PRIORITY, not_locked, not_scheduled
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.stages.command import bounds_of
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.stages.rig import check_first
from rths_nodes.loop.supervision.bridges import AT_RIG, reason_of
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import SafeStop, begin, braking_time, command_after
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW, State
from rths_nodes.loop.timing import LateData, timing

SOURCE = Path(__file__).with_name("executive.c")
OPERATOR, TRIP, SILENT, FULL, PARENT, RIG, PRESSURE, AT_START, LATE = range(1, 10)
"""Stop words (causes of a stop), as in executive.c."""
READY, ENDED = 1, 3  # states of the program
SILENCE_S = 1.0
"""Time after which the program brakes if this process has not incremented ``alive``, s."""
RING_S = 4.0
"""Capacity of the ring of rows in a test in real time, s."""
SPIN_S = 6e-5  # busy waiting before a tick, s
NODES_ROWS, BATCH = 8, 256
"""``NODES_ROWS``: capacity of the ring in lockstep with nodes. ``BATCH``: largest number of rows read per call."""
NEVER = 2**62  # sample of the trip if none is requested
LOOK_S, LOOK_LOCKSTEP_S = 0.005, 0.0002
"""Polling intervals while the ring is empty, s: ``LOOK_S`` in real time, ``LOOK_LOCKSTEP_S`` in lockstep."""
START_S, END_S, FROZEN_S = 10.0, 2.0, 10.0
"""Timeouts of the program, s: ``START_S`` for its start, ``END_S`` for its exit after braking, ``FROZEN_S`` for
the next row. ``END_S`` also applies to rows after a request to stop."""
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
    65: "the shared memory is missing or has an unexpected layout",
    66: "the floating-point unit does not round to nearest, or replaces subnormal numbers by zero",
    67: "the system has no monotonic clock",
}
OF_RIG = re.compile(
    r"(of_actuator|of_sensors|of_rig|resolution|range|actuator|sense|sensed|rig)(_.*)?|driven|line|at|inputs"
)
"""Pattern of the names of kernels, constants and states of a simulated rig."""
Integers = NDArray[np.int64]
Table = NDArray[np.generic]
LAYOUT = 2
WORD = 8
HEAD = 5
"""Number of words at the beginning of a row: sample, kind, steps, lateness (ns) and duration (ns)."""
DRIVEN, BROKEN, BRAKED, REFUSED, LAST, FIRST = range(1, 7)
"""Kinds of rows. ``DRIVEN``: sample with a Command. ``BROKEN``: sample with a Command and an exceeded limit.
``BRAKED``: sample of the safe stop. ``REFUSED``: values of a refused Command. ``LAST``: compensator values after
the last sample. ``FIRST``: Measurement 0 of a rig over UDP."""
FIELDS = (
    *("layout", "words", "period", "spin", "priority", "lock", "silence", "samples", "bare"),
    *("slots", "slot_words", "reserve", "ring", "at_marks", "numbers", "results", "asked"),
    *("pointers", "n_pointers", "copies", "n_copies", "fixed", "n_fixed", "moves", "n_moves"),
    *("at_stopped", "at_made", "at_driven", "at_stopping", "at_resting"),
    *("half", "felt", "terms", "report", "bridge"),
    *("state", "go", "word", "trip_at", "alive", "head", "tail"),
    *("sample", "missed", "longest", "lost", "stopped_at", "stopped_by", "began", "ended"),
    *("no_priority", "no_lock", "opened", "fault"),
)


class ExecutiveLoop:
    """Runs the scenario of ``loop`` in a native process, in real time if ``paced`` is true.

    A node monitors the test if ``nodes`` is true. In lockstep, the program is at most ``ahead`` samples ahead of
    the nodes. ``bare`` replaces the loop by empty ticks. Raises ConfigError if the scenario has no native loop.
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
        self._layout, self._memory = RowLayout(parts), Memory()
        try:
            self._program = self._build()
        except (Unbuilt, Untranslatable) as error:
            self._memory.close()
            raise ConfigError(f"engine = {EXECUTIVE!r}: {error}. Use engine python") from error
        self.notes, self.library = self._program.notes, self._program.digest
        self.program = f"{self._key[:16]}-{self.library[:16]}"
        """Identity of the program: hash of source text, compiler, processor and flags, and hash of the binary."""
        self.stops_at = b""
        """Name of the socket on which the program receives stop requests from other processes, or empty."""
        self._breach = self._frozen = ""  # why the monitor requested a trip; why the program was killed
        self._wait, port = self.scenario.dt, self.scenario.port
        """Longest time for which the program may wait for a tick or for the rig, s."""
        if isinstance(port, UdpPort.Params):
            self._wait += max(port.longest_wait, port.silence)
        self._looked = self._heard = -math.inf  # times of the last poll of the ring and of the last row, s
        self.late: list[float] = []
        self.taken: list[float] = []
        """``taken``: time from each tick to its Command, ns. ``late``: lateness of each tick, ns."""

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
        numbers, arrays = entry.functions()["passed"](*arguments)
        assert isinstance(entry.result, Tup)
        *results, states = entry.result.items
        links = links_of(values[3], states, arrays)
        widths = [2 * parts.kind.axes] * any(parts.kind.noise) + [parts.kind.channels] * parts.kind.channel_noise
        streams = dict(zip(map(id, inputs[len(inputs) - len(widths) :]), widths, strict=True))
        rows, _, shown, marks, steps = out
        layout = self._layout
        begins = HEAD, layout.at_shown, layout.at_marks, layout.at_steps
        by_slot = dict(zip(map(id, (rows, shown, marks, steps)), begins, strict=True))
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
        fields |= {"slots": slots, "slot_words": layout.words, "at_marks": layout.at_marks}
        fields["ring"] = shared.add(b"", (slots + 1) * layout.words)
        if parts.kind.remote:
            fields["terms"] = shared.add(bytes(near.terms_of(*self._udp, not self._paced)))
            fields["report"] = shared.add(bytes(near.Report()))
            fields["bridge"] = longest = scenario.bridge.longest(scenario.dt)
            self.reasons[LATE] = reason_of(AT_RIG, (longest + 1) * scenario.dt, scenario.bridge.max_bridge)
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
        return near.Report.from_buffer_copy(self._memory.map, WORD * self._control.report)

    def run(
        self,
        sinks: Sequence[Sink] = (),
        progress: Callable[[int], None] | None = None,
        interrupted: Callable[[], bool] | None = None,
    ) -> Outcome:
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
        """Request a trip: at ``sample`` in lockstep, otherwise immediately. The earliest request prevails."""
        at = 0 if self._paced else sample
        if at < self._control.trip_at and not self._control.stopped_at:
            self._breach = self.reasons[TRIP] = reason
            self._control.trip_at = at

    @contextmanager
    def started(self, sinks: Sequence[Sink]) -> Iterator[None]:
        """Run the program during the ``with`` block. Raises ConfigError if the program does not start."""
        with ExitStack() as leaving:
            leaving.callback(self.close)
            self._messages = Messages(self._parts, self.assembly, sinks, self._judges)
            signals = self._start(leaving)
            leaving.callback(self._end)
            leaving.enter_context(signals_written(signals))
            self._await_ready()
            self.notes = (*self.notes, *refusals(self._control))
            if self._parts.kind.remote:
                near.agree(*self._udp, self._control.opened, self._report)
            yield

    def _start(self, leaving: ExitStack) -> int:
        """Start the program. Return the write end of a pipe for signal numbers, which ``leaving`` closes."""
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
            raise ConfigError(f"engine = {EXECUTIVE!r}: cannot start the program ({error})") from error
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
                reason = f"not ready after {timeout:g} s" if code is None else f"exit code {code}"
                raise ConfigError(
                    f"engine = {EXECUTIVE!r}: the program has not started ({PROBLEMS.get(code or 0, reason)})"
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
                if kind not in (REFUSED, LAST):  # these rows do not end a tick
                    self.late.append(late)
                    self.taken.append(taken)
            for pair in () if self._bare else zip(rows, integers, strict=True):
                self._messages.take(*pair)
                self._heed_monitor()
            control.tail = tail + count
        self.over = ended and not count
        now, patience = time.monotonic(), self._wait + (END_S if control.word else FROZEN_S)
        if count or ended or not control.go or now - self._looked > SILENCE_S:  # this process may have been frozen
            self._heard = now
        self._looked, silent = now, now - self._heard
        if silent > patience:
            braked = "; the watchdog had already braked the rig" * (self._paced and self._parts.kind.remote)
            self._frozen = f"was suspended or blocked, gave no row for {silent:.1f} s, and has been killed{braked}"
            self._process.kill()
        return int(count)

    def _heed_monitor(self) -> None:
        if breach := self._parts.monitor.monitor.breach:
            self.trip(breach[1], breach[0] + LOCKSTEP_WINDOW)

    def ending(self) -> tuple[State, str, bool]:
        """Return the final state, the reason for it, and whether a component has failed."""
        control, sample, failed = self._control, self._messages.sample, self._messages.failed
        if self.over and control.state != ENDED:
            reason = self._frozen or f"has ended (code {self._process.poll()})"
            return State.TRIPPED, f"sample {sample}: the executive {reason}", True
        if not control.stopped_at:
            reason = f"sample {sample}: {self._breach}" if self._breach else ""
            return State.TRIPPED if reason else State.FINISHED, reason, failed
        by = control.stopped_by
        if by == OPERATOR and self._breach:  # a hold does not replace a pending trip
            by = TRIP
        reason = self.reasons.get(by, self._messages.reason)
        if by == AT_START:
            reason = self._messages.at_start
        if by == RIG:
            report = self._report
            report.stopped, report.reason = divmod(control.fault, 256)
            reason = near.stopped(*self._udp, report)
        if by == OPERATOR and self._messages.exceeded:
            return State.TRIPPED, self._messages.exceeded, failed
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


def refusals(control: Control) -> Iterator[str]:
    if control.no_lock:
        yield not_locked(os.strerror(control.no_lock))
    if control.no_priority:
        yield not_scheduled(os.strerror(control.no_priority))
    if control.period and len(os.sched_getaffinity(0)) == 1:
        yield "executive and Python share one processor, so the ring of rows may overflow at a high servo rate"


@contextmanager
def signals_written(pipe: int) -> Iterator[None]:
    """Make Python's C signal handler write signal numbers to ``pipe`` during the ``with`` block.

    Do nothing outside the main thread.
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


class Control(ctypes.Structure):
    """Control block in shared memory. ``executive.c`` documents each word."""

    _fields_ = tuple((name, ctypes.c_int64) for name in FIELDS)


Links = tuple[list[tuple[int, int]], list[tuple[int, object]], list[tuple[int, int, int]]]
"""Positions of results and of the arguments that they become in the next call: numbers, constants, arrays."""


def links_of(states: Value, new: Value, arrays: Sequence[Table]) -> Links:
    """Return the links that copy the resulting states ``new`` to the arguments ``states`` of the next call."""
    links: Links = [], [], []
    copies, fixed, moves = links
    for old, now in zip(leaves(states), leaves(new), strict=True):
        if isinstance(now, Scalar) and now.fixed:
            if is_handed(old):
                fixed.append((position_of(old), now.const))
        elif isinstance(now, Scalar):
            copies.append((position_of(old), position_of(now)))
        elif isinstance(now, Arr) and position_of(now) != position_of(old):
            moves.append((position_of(now), position_of(old), words_of(arrays[position_of(now)])))
    if {move[0] for move in moves} & {move[1] for move in moves}:
        raise Untranslatable("the loop swaps two arrays of its state")
    return links


def words_of(array: Table) -> int:
    return -(-int(array.nbytes) // WORD)


class Memory:
    """Shared memory, freed when the last process that uses it exits. The program inherits its ``descriptor``."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, bytes]] = []
        self._words = ctypes.sizeof(Control) // WORD
        self.descriptor = -1

    def add(self, content: bytes, length: int = 0) -> int:
        """Reserve memory for ``content``, at least ``length`` words. Return its offset, words."""
        offset = self._words
        self._parts.append((offset, content))
        self._words += max(-(-len(content) // WORD), length)
        return offset

    def add_array(self, array: Table) -> int:
        """Add a contiguous array in its memory order and return the offset, or raise Untranslatable."""
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise Untranslatable("an array of the loop is not contiguous")
        return self.add(array.tobytes("A"), words_of(array))

    def rows(self, rows: Sequence[tuple[object, ...]]) -> int:
        values = (value for row in rows for value in row)
        return self.add(b"".join(struct.pack("<d" if isinstance(v, float) else "<q", v) for v in values))

    def open(self, fields: Mapping[str, int]) -> Control:
        """Allocate the memory, store all added contents and the ``fields``, and return the control block.

        Raises ConfigError if the memory cannot be allocated.
        """
        try:
            self.descriptor = os.memfd_create("rths_executive")
            os.ftruncate(self.descriptor, self._words * WORD)
            self.map = mmap.mmap(self.descriptor, self._words * WORD)
        except (OSError, AttributeError) as error:
            raise ConfigError(
                f"engine = 'executive': cannot allocate shared memory ({error}). Use engine python"
            ) from error
        for offset, content in self._parts:
            self.map[offset * WORD : offset * WORD + len(content)] = content
        self._parts.clear()
        control = Control.from_buffer(self.map)
        for name, word in {"layout": LAYOUT, "words": self._words, **fields}.items():
            setattr(control, name, word)
        return control

    def close(self) -> None:
        with suppress(OSError):
            os.close(self.descriptor)

    def table(self, offset: int, rows: int, columns: int) -> Array:
        return np.frombuffer(self.map, np.float64, rows * columns, offset * WORD).reshape(rows, columns)


class RowLayout:
    """Positions of the numbers in a row. The unit is a word of 8 bytes."""

    def __init__(self, parts: Parts) -> None:
        kind = parts.kind
        self.samples, self.steps = sample_columns(kind), step_columns(kind)
        self.at_shown = HEAD + width(self.samples)
        self.at_marks = self.at_shown + sum(count for *_, count in told(kind))
        self.at_steps = self.at_marks + 2 + laws(kind) * kind.renewed
        self.words = self.at_steps + width(self.steps)


class Messages:
    """Converts rows to messages for the monitor and the ``sinks``.

    ``reason`` describes the refused Command or the exceeded limit that stopped the rig. ``at_start`` describes the
    limit that Measurement 0 exceeds, and ``exceeded`` a limit that the safe stop exceeds. All may be empty.
    ``failed`` is true if a component failed. ``shown`` holds the compensator's last values. The monitor of
    ``parts`` receives messages only if ``judges`` is true.
    """

    def __init__(self, parts: Parts, assembly: Assembly, sinks: Sequence[Sink], judges: bool = True) -> None:
        self._parts, self._sinks, self._layout = parts, sinks, RowLayout(parts)
        self._all: list[MonitorStage | Sink] = [*[parts.monitor] * judges, *sinks]
        scenario = assembly.scenario
        self._type = f"compensator.type = {type_of(scenario.compensator)!r}"
        self._external, self._before = assembly.external_force, scenario.soft_start_steps
        self._bounds = bounds_of(assembly.compensator)
        names = assembly.port.auxiliary_inputs, assembly.port.auxiliary_names
        self._check = LimitCheck(scenario.limits, scenario.dt, *names, None, scenario.stop_groups)
        self.sample, self._step, self._inputs = 0, 0, parts.target.auxiliary
        self._sent = parts.measured.command.tolist()
        self.shown: list[float] = []
        self.reason, self.at_start, self.exceeded, self.failed, self._stopping = "", "", "", False, False
        self.bridged: list[int] = []
        """Numbers of the samples whose Measurement was bridged, for a rig over UDP."""

    def begin(self) -> None:
        """Pass Target 0 and, if known, Measurement 0 to the sinks. The monitor already has them."""
        for sink in self._sinks:
            sink.target(self._parts.target)
            if not self._parts.kind.remote:
                sink.measurement(self._parts.measured)
                sink.truth(self._parts.true)

    def take(self, row: Array, integers: Integers) -> None:
        """Convert a row ``(words,)`` to messages for the monitor and the sinks.

        ``integers`` is a view of the row as integers.
        """
        sample, kind, made = integers[:3].tolist()
        target = self._target(row, integers) if made else None
        if kind != FIRST and (kind != BRAKED or not self._stopping):
            self._state(row, sample if kind == LAST else sample - 1)
        if kind == REFUSED:
            self._refuse(row, target)
        elif kind != LAST:
            self._sampled(row, integers, sample, kind)

    def _target(self, row: Array, integers: Integers) -> Target:
        self._step += 1
        step, numbers = self._step, row[self._layout.at_steps :]
        x, v, a, exact, restoring, inputs = (numbers[at] for at in self._layout.steps.values())
        if self._inputs.size:
            self._inputs = inputs
        flags = int(self._parts.constants["soft_flags"][step]) if step <= self._before else 0  # type: ignore[index]
        external = self._external[step - 1 - self._before] if step > self._before else np.zeros(len(x))
        target = Target(step, x, v, a, exact, external, restoring, self._inputs, flags)
        for sink in self._all:
            sink.target(target)
        return target

    def _state(self, row: Array, sample: int) -> None:
        self.shown = row[self._layout.at_shown : self._layout.at_marks].tolist()
        for sink in self._sinks:
            sink.state(sample, self.shown)

    def _refuse(self, row: Array, target: Target | None) -> None:
        self._stopping = True
        aims, commands = (row[HEAD:][self._layout.samples[name]].tolist() for name in ("target", "command"))
        if target is not None and not all(map(math.isfinite, target.displacement.tolist())):
            aims = commands = [math.nan] * len(aims)
        beyond = [value for value in commands if not math.isfinite(value)]
        if beyond and all(map(math.isfinite, aims)):
            self.reason, self.failed = f"{self._type}: command = {beyond[0]}: must be finite", True
        else:
            refused = Command(0, np.array(aims), np.array(commands), self._inputs)
            self.reason = self._check.command(refused, self._sent)

    def _sampled(self, row: Array, integers: Integers, sample: int, kind: int) -> None:
        numbers = row[HEAD:]
        values = {name: numbers[at] for name, at in self._layout.samples.items()}
        marks, sent = integers[self._layout.at_marks :], values["command"]
        flags, marked = int(marks[0]), int(marks[1])
        applied = values["applied"] if self._parts.kind.converts else sent
        moved, force, modes = values["displacement"], values["force"], self._parts.measured.control_mode
        true = "true_" if any(self._parts.kind.sensors) else ""
        if kind not in (BRAKED, FIRST):
            self.bridged += [sample] * (marked & FLAG_BRIDGED > 0)
            if any(not low < self.shown[index] < high for index, low, high in self._bounds):
                flags |= FLAG_AT_BOUND
            command = Command(sample, values["target"], sent, self._inputs, flags)
            for sink in self._all:
                sink.command(command)
        channels = values["channels"]
        true_channels = values["true_channels"] if self._parts.kind.channel_noise else channels
        measured = Measurement(sample, moved, force, applied, channels, marked, modes)
        for sink in self._all:
            sink.measurement(measured)
        moved, force = values[f"{true}displacement"], values[f"{true}force"]
        for sink in () if self._parts.kind.remote else self._sinks:
            sink.truth(Measurement(sample, moved, force, applied, true_channels, marked, modes))
        self.sample, self._sent, self._stopping = sample, sent.tolist(), kind in (BRAKED, BROKEN)
        if kind == FIRST:
            check_first(measured, "")
            self.at_start = self._check.measurement(measured, values["target"].tolist())
        if kind == BROKEN:
            self.reason = self._check.measurement(measured, values["target"].tolist())
        if kind == BRAKED and not self.exceeded and (reason := self._check.measurement(measured, moved.tolist())):
            self.exceeded = f"sample {sample}: {reason}"
