# SPDX-License-Identifier: Apache-2.0
"""Emulated rig for the port ``udp``: the receiver of a laboratory rig, connected to the scenario's simulated rig.

The receiver is the C code that also runs in the laboratory. In lockstep, each tick waits for its command, and
the results are bit-identical to the results with the port ``simulator``.

Misbehaviour of the rig or its network is specified as KIND@SAMPLE or KIND@SAMPLE:N (``MISBEHAVIOURS``). Planted
faults are not reported by the emulator: commissioning must detect them.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import random
import re
import select
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.control.force_controllers import ServoValve
from rths_nodes.core import registry, samples
from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.limits import Limits
from rths_nodes.core.parameters import AnyParams
from rths_nodes.core.samples import (
    MODE_DISPLACEMENT,
    MODE_FORCE,
    Array,
    Command,
    Measurement,
)
from rths_nodes.laboratory import calibration
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.session import load_of
from rths_nodes.laboratory.ports.udp import UdpPort
from rths_nodes.laboratory.receiver import Receiver, ReceiverLimits, ReceiverLoad
from rths_nodes.loop.pacing import Pacer
from rths_nodes.loop.realtime import real_time
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.schema import Axis, Scenario
from rths_nodes.mechanics.axial_load import lengths_of

# Faults

LOSE, MUTE, DUPLICATE, REORDER, DELAY, DIE, FREEZE, SESSION, GARBAGE, INTERLOCK, HYDRAULICS = (
    *("lose", "mute", "duplicate", "reorder", "delay", "die", "freeze", "session", "garbage", "interlock"),
    "hydraulics",
)
PRESSURES = ("off", "low", "high")
MISBEHAVIOURS = {
    LOSE: (1, "N commands are lost on the way to the rig"),
    MUTE: (1, "N states are lost on the way to the test computer"),
    DUPLICATE: (1, "N datagrams arrive twice, in both directions"),
    REORDER: (2, "N datagrams arrive in pairs in reverse order, in both directions"),
    DELAY: (1, "from this sample on, commands arrive N ticks late"),
    DIE: (0, "the process exits without a message"),
    FREEZE: (0, "the rig and the receiver freeze for N ticks; 0: for ever"),
    SESSION: (1, "N states have the number of another session"),
    GARBAGE: (1, "N datagrams of random bytes are inserted, in both directions"),
    INTERLOCK: (0, "the interlock of the rig opens"),
    HYDRAULICS: (0, "the pressure is switched to N (0: off, 1: low, 2: high)"),
}
"""Default N and description of each kind of misbehaviour."""
_LONGEST = 1_000_000
_MISBEHAVIOUR = re.compile(r"(\w+)@(\d{1,9})(?::(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True)
class Misbehaviour:
    kind: str
    sample: int
    count: int


def parse(text: str) -> Misbehaviour:
    match = _MISBEHAVIOUR.fullmatch(text)
    if not match:
        raise ConfigError(f"--misbehave = {show(text)}: must be KIND@SAMPLE or KIND@SAMPLE:N, e.g. lose@100:3")
    kind, sample, count = match.groups()
    if kind not in MISBEHAVIOURS:
        raise unknown("--misbehave", "kind", kind, MISBEHAVIOURS)
    number = MISBEHAVIOURS[kind][0] if count is None else int(count)
    if kind == HYDRAULICS and number >= len(PRESSURES):
        raise ConfigError(f"--misbehave = {show(text)}: N must be <= {len(PRESSURES) - 1}")
    if number > _LONGEST:
        raise ConfigError(f"--misbehave = {show(text)}: N must be <= {_LONGEST}")
    return Misbehaviour(kind, int(sample), number)


Came = tuple[bytes, int]
"""Datagram, and the sender's address and port encoded as one number."""


class Saboteur:
    def __init__(self, plans: Sequence[Misbehaviour]) -> None:
        self._plans = plans
        self._late: deque[tuple[int, Came]] = deque()
        self._kept: dict[str, Came] = {}
        self._done: Counter[tuple[str, Misbehaviour]] = Counter()
        self._random = random.Random(1)

    def _happens(self, kind: str, sample: int, way: str) -> bool:
        for plan in self._plans:
            if plan.kind == kind and sample >= plan.sample and self._done[way, plan] < plan.count:
                self._done[way, plan] += 1
                return True
        return False

    def incoming(self, sample: int, received: Iterable[Came]) -> list[Came]:
        passed = [datagram for came in received for datagram in self._way("in", sample, came, LOSE)]
        delays = [plan.count for plan in self._plans if plan.kind == DELAY and sample >= plan.sample]
        if not delays and not self._late:
            return passed
        self._late.extend((sample + max(delays, default=0), came) for came in passed)
        due = [came for at, came in self._late if at <= sample]
        self._late = deque((at, came) for at, came in self._late if at > sample)
        return due

    def outgoing(self, sample: int, data: bytes) -> list[bytes]:
        if self._happens(SESSION, sample, "out"):
            head = datagrams.head_of(data)
            head.session ^= 1
            data = datagrams.packed(head, data[datagrams.HEAD.size : -datagrams.CHECKSUM.size])
        return [sent for sent, _ in self._way("out", sample, (data, 0), MUTE)]

    def _way(self, way: str, sample: int, came: Came, loss: str) -> list[Came]:
        if self._happens(loss, sample, way):
            return []
        kept = self._kept.pop(way, None)
        if kept is not None:
            return [came, kept]
        if self._happens(REORDER, sample, way):
            self._kept[way] = came
            return []
        more = [came] if self._happens(DUPLICATE, sample, way) else []
        if self._happens(GARBAGE, sample, way):
            more.append((self._random.randbytes(self._random.randrange(2 * datagrams.LARGEST)), came[1]))
        return [came, *more]

    def frozen(self, sample: int) -> float:
        """Return for how many ticks the rig freezes at ``sample``. Exit the process if ``DIE`` is due."""
        for plan in self._plans:
            if plan.sample == sample and plan.kind == DIE:
                os._exit(1)
            if plan.sample == sample and plan.kind == FREEZE:
                return plan.count or math.inf
        return 0.0

    def interlock_open(self, sample: int) -> bool:
        return any(plan.kind == INTERLOCK and sample >= plan.sample for plan in self._plans)

    def pressure(self, sample: int) -> str:
        levels = [plan.count for plan in self._plans if plan.kind == HYDRAULICS and plan.sample == sample]
        return PRESSURES[levels[-1]] if levels else ""


BRAKING, HARD, STROKE, VELOCITY, WATCHDOG, ENDLESS, BRIDGE, SWAPPED, SIGN, DEAD_INTERLOCK, JUMP = (
    *("longer_braking", "hard_braking", "wider_stroke", "wider_velocity", "dead_watchdog", "endless_bridge"),
    *("longer_bridge", "swapped_axes", "wrong_sign", "dead_interlock", "jump_on_pressure"),
)
PLANTED = {
    BRAKING: "the receiver brakes with half of the deceleration that it states",
    HARD: "the receiver brakes with twice the deceleration that it states",
    STROKE: "the stroke limit of the receiver is a fifth wider than stated",
    VELOCITY: "the velocity limit of the receiver is twice the stated limit",
    WATCHDOG: "the receiver brakes if a command is missing, but continues with the next command, however late",
    ENDLESS: "the receiver continues for ever with constant velocity if commands are missing",
    BRIDGE: "the receiver bridges twice as many samples as it states",
    SWAPPED: "the displacement sensors of the first two axes are swapped",
    SIGN: "the displacement sensor of the first axis has the wrong sign",
    DEAD_INTERLOCK: "the receiver ignores the interlock",
    JUMP: "after pressure returns, the actuators are 1 mm away from their commands",
}
FACTORS = {BRAKING: ("acceleration", 0.5), HARD: ("acceleration", 2.0), STROKE: ("stroke", 1.2)}
FACTORS |= {VELOCITY: ("velocity", 2.0)}
JUMP_M = 1e-3
LONGEST_S = 9.9
"""Longest timeout of a receiver's watchdog, s. ``rths_init`` refuses 10 s or more."""


class Planted:
    """Applies planted faults. Raises ConfigError if a fault is unknown, or needs two axes and the rig has one."""

    def __init__(self, kinds: Sequence[str], n_axes: int) -> None:
        for kind in kinds:
            if kind not in PLANTED:
                raise unknown("--plant", "fault", kind, PLANTED)
        if SWAPPED in kinds and n_axes < 2:
            raise ConfigError(f"--plant = {SWAPPED!r}: requires a rig with at least two axes")
        self._kinds = frozenset(kinds)
        self._pressure = samples.HYDRAULICS_NOT_TOLD
        self._off = 0.0

    def limits(self, stated: Sequence[ReceiverLimits]) -> list[ReceiverLimits]:
        limits = list(stated)
        for kind, (name, factor) in FACTORS.items():
            if kind in self._kinds:
                limits = [row._replace(**{name: factor * getattr(row, name)}) for row in limits]
        return limits

    def waits(self, bridged: int, watchdog: int, dt: float) -> tuple[int, int]:
        """Return the limits ``bridged`` and ``watchdog`` of missing samples, as changed by the planted faults."""
        longest = int(LONGEST_S / dt)
        if ENDLESS in self._kinds:
            return longest, longest + 1
        if WATCHDOG in self._kinds:
            return bridged, longest
        return (2 * bridged, watchdog + bridged) if BRIDGE in self._kinds else (bridged, watchdog)

    def answer(self, data: bytes, stated: Sequence[ReceiverLimits], bridged: int, watchdog: int) -> bytes:
        if not self._kinds & {*FACTORS, WATCHDOG, ENDLESS, BRIDGE}:
            return data
        head, start = datagrams.head_of(data), datagrams.HEAD.size
        rows = b""
        for index, limits in enumerate(stated):
            active = datagrams.ANSWER_ROW.unpack_from(data, start + index * datagrams.ANSWER_ROW.size)[:2]
            shown = (limits.stroke, limits.velocity, limits.acceleration, limits.force, limits.error)
            rows += datagrams.ANSWER_ROW.pack(*active, *shown)
        end = datagrams.ANSWER_END.unpack_from(data, start + len(rows))
        behind = data[start + len(rows) + datagrams.ANSWER_END.size : -datagrams.CHECKSUM.size]
        return datagrams.packed(head, rows + datagrams.ANSWER_END.pack(bridged, watchdog, *end[2:]) + behind)

    def shows(self, sensors: ctypes.Structure) -> None:
        shown = sensors.displacement
        if SIGN in self._kinds:
            shown[0] = -shown[0]
        if SWAPPED in self._kinds:
            shown[0], shown[1] = shown[1], shown[0]
        if DEAD_INTERLOCK in self._kinds:
            sensors.interlock = samples.INTERLOCK_CLOSED

    def leads(self, command: Array, hydraulics: int) -> Array:
        if JUMP not in self._kinds:
            return command
        if self._pressure == samples.HYDRAULICS_OFF != hydraulics:
            self._off = JUMP_M
        self._pressure = hydraulics
        return np.asarray(command + self._off)


# Rig

LOOK_S = 0.05
QUIET_S = 0.5
"""Time without datagrams after which a session ends if the rig is at rest, s. In lockstep, ``port.longest_wait``
applies instead until the test computer closes the session."""
LAG_S = 0.1
"""Allowed lag of an actuator, s: three times the largest lag of the package's actuators."""
PERSISTENCE_S = 0.005
"""Time above the limit of force or tracking error after which the receiver stops the rig, s."""
SLIPPED = "ticks missed by its clock"
"""Name of the counter of ticks that this process missed. The rig does not move during a missed tick."""
IN_ORDER = 2
"""Reason code of a session that the test computer has closed."""

PRESSURE, CABLE = "pressure", "cable"
POSITIONS = {INTERLOCK: ("closed", "open"), PRESSURE: PRESSURES, CABLE: ("in", "out")}
_SWITCHED = re.compile(r"(\w+) +(\w+)(?: *@ *(\+?)(\d{1,9}))?", re.ASCII)

SWITCHING_S = 0.02
"""Time until a controller reports a new mode, s."""
FROZEN_S = 0.05
"""Time without change after which the reading of a noisy load cell counts as frozen, s."""


def receiver_limits(limits: Limits, away: float, gains: calibration.Gains) -> ReceiverLimits:
    """Return the limits of an axis in port units.

    The tracking-error limit is the distance covered in ``away`` (s) at the velocity limit, but at most the stroke.
    """
    command, force = abs(gains.command), abs(gains.force)
    error = min(limits.velocity * away, limits.stroke)
    return ReceiverLimits(
        limits.stroke / command,
        limits.velocity / command,
        limits.deceleration / command,
        math.inf,
        limits.force / force,
        error / command,
    )


def receiver_loads(
    axes: Mapping[str, Axis], gains: Sequence[calibration.Gains], moved: Sequence[str], dt: float
) -> list[ReceiverLoad]:
    """Return each axis's force loop in the controller, in port units. An axis without a loop gets an empty one."""
    names, loads = list(axes), list[ReceiverLoad]()
    for axis, gain in zip(axes.values(), gains, strict=True):
        far, control = load_of(axis), axis.force_control
        if far is None or control is None:
            loads.append(ReceiverLoad())
            continue
        law: AnyParams = control.law
        column, coupled, curvature = law.column, 0, 0.0
        if column is not None:
            coupled = names.index(moved[law.coupled_to - 1])
            curvature = (
                sum(1.0 / length for length in lengths_of(column)) * gains[coupled].command ** 2 / gain.command
            )
        loads.append(
            ReceiverLoad(
                *far.times(1.0 / abs(gain.command), 1.0 / abs(gain.newtons)),
                law.stiffness * gain.command / gain.newtons,
                curvature,
                gain.force / gain.newtons,
                round(FROZEN_S / dt) if axis.sensors.force_noise_rms > axis.sensors.force_resolution else 0,
                coupled,
            )
        )
    return loads


class Controllers:
    """Controllers of the pistons. A piston without a controller follows its command.

    Raises ConfigError if a control law is not ``servo_valve``.
    """

    def __init__(self, axes: Mapping[str, Axis], dt: float) -> None:
        self._valves: list[tuple[int, ServoValve]] = []
        for index, (name, axis) in enumerate(axes.items()):
            control = axis.force_control
            if control is None or not by_controller(axis):
                continue
            law: AnyParams = control.law
            if not isinstance(law, ServoValve.Params):
                raise ConfigError(
                    f"axes.{name}.force_control.law.type = {type(law).type_name!r}: the controller of an emulated "
                    "rig must be a servo_valve"
                )
            self._valves.append((index, registry.build("force_controller", law, dt)))
        self._n = len(axes)
        self.start(np.zeros(self._n))

    def __bool__(self) -> bool:
        return bool(self._valves)

    def start(self, places: Array) -> None:
        self.modes = bytearray([MODE_DISPLACEMENT] * self._n)
        self._led = places.copy()
        for index, valve in self._valves:
            valve.stand(float(places[index]))

    def led(self, command: Array, modes: bytes, shown: Measurement, shut: bool) -> Array:
        """Return the positions to which the controllers move the pistons, ``(n_axes,)`` m.

        ``command`` is in m, or in N in force mode. ``shown`` is the last Measurement. ``shut`` closes the valves.
        """
        position = command.copy()
        for index, valve in self._valves:
            rows = command, shown.displacement, shown.force
            asked, measured, force = (float(values[index]) for values in rows)
            if shut:
                position[index] = self._led[index]
            elif modes[index] == MODE_FORCE:
                position[index] = valve.step(asked, force if math.isfinite(force) else asked, 0.0)
            else:
                position[index] = valve.hold(asked, measured if math.isfinite(measured) else asked)
            self.modes[index] = modes[index]
        self._led = position
        return position


class Switches:
    """Positions to which switches of the rig (interlock, pressure, cable) were turned. Thread-safe."""

    def __init__(self) -> None:
        self.position: dict[str, str] = {}
        self._sample = 0
        self._later: list[tuple[int, str, str]] = []
        self._lock = threading.Lock()

    def turn(self, text: str) -> None:
        """Turn a switch now or at a later sample.

        ``interlock open`` acts now, ``interlock open @300`` at sample 300, and ``interlock open @+300`` after 300
        samples. Raises ConfigError if ``text`` is invalid.
        """
        match = _SWITCHED.fullmatch(text.strip())
        if not match:
            switches = "; ".join(f"{switch} {' | '.join(positions)}" for switch, positions in POSITIONS.items())
            raise ConfigError(
                f"{show(text)}: must be SWITCH POSITION, optionally with @SAMPLE or @+SAMPLES ({switches})"
            )
        switch, position, later, sample = match.groups()
        if switch not in POSITIONS:
            raise unknown("switch", "switch", switch, POSITIONS)
        if position not in POSITIONS[switch]:
            raise unknown(switch, "position", position, POSITIONS[switch])
        with self._lock:
            if sample is None:
                self.position[switch] = position
            else:
                self._later.append((int(sample) + (self._sample if later else 0), switch, position))

    def at(self, sample: int) -> dict[str, str]:
        with self._lock:
            self._sample = sample
            for entry in [row for row in self._later if row[0] <= sample]:
                self._later.remove(entry)
                self.position[entry[1]] = entry[2]
            return dict(self.position)

    def out(self) -> bool:
        return self.position.get(CABLE) == "out"


class Session(NamedTuple):
    samples: int
    reason: str
    in_order: bool
    counts: dict[str, int]


class Emulator:
    """Emulates the rig of ``scenario`` for the port ``udp``, and serves one session after another.

    ``port`` 0 selects a free UDP port. With ``own_clock``, the rig does not wait for commands. Raises ConfigError
    if the rig cannot be emulated or the UDP port is not available.
    """

    def __init__(
        self,
        scenario: Scenario,
        port: int | None = None,
        own_clock: bool = False,
        plans: Sequence[Misbehaviour] = (),
        planted: Sequence[str] = (),
    ) -> None:
        params = scenario.port
        if not isinstance(params, UdpPort.Params):
            kind = type(params).type_name
            raise ConfigError(
                f"port.type = {kind!r}: only a rig of the port udp can be emulated; "
                "give --set 'port={type: udp, emulator: true}'"
            )
        self.scenario, self._plans, self._connect_within = scenario, plans, params.connect_within
        self._faults, self.switches = planted, Switches()
        self.true: Measurement
        """True state of the rig in SI units, in the order of the scenario's axes."""
        self.shown_to: Callable[[Measurement], None] = lambda true: None
        self._flags = datagrams.EMULATOR | (0 if own_clock else datagrams.LOCKSTEP)
        self._flags |= datagrams.RAMP if params.hold == "ramp" else 0
        self._flags |= datagrams.TRIGGER if params.trigger else 0
        head = scenario.rig_file
        self._flags |= datagrams.WARNING if head is not None and head.warning is not None else 0
        self.warned: Callable[[bool], None] = lambda on: None
        self._bridged = max(1, scenario.bridge.longest(scenario.dt))
        self._watchdog = max(self._bridged + 1, round(params.silence / scenario.dt))
        assembly = Assembly(override(scenario, ["port={type: simulator, hydraulics: high, interlock: closed}"]))
        self._rig: Any = assembly.port
        self._edge: calibration.Calibration | None = None
        if scenario.rig_file is not None:  # the datagrams use the units of the real receiver
            channels = calibration.channels_of(self._rig.auxiliary_names, scenario.rig_file.auxiliary)
            self._edge = calibration.Calibration(scenario.axes, channels)
        self._controllers = Controllers(scenario.axes, scenario.dt)
        self._limit()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((params.address, params.port if port is None else port))
        except OSError as error:
            self._socket.close()
            here = f"port.address = {params.address!r}, port.port = {params.port if port is None else port}"
            hint = "set an address of this computer with --address"
            if error.errno == errno.EADDRINUSE:
                hint = "another program uses this port; set port.port in the rig file to another number"
            raise ConfigError(f"{here}: cannot listen here ({error.strerror or error}); {hint}") from error
        self._socket.setblocking(False)
        self.address: tuple[str, int] = self._socket.getsockname()
        self._begin()

    @property
    def rest(self) -> float:
        """Longest time from the last command to rest, including the scenario's transport delay, s."""
        ticks = self._receiver.rest_samples - self._receiver.transport + self.scenario.port.transport_samples
        return float(ticks * self.scenario.dt)

    def _limit(self) -> None:
        scenario = self.scenario
        axes = calibration.in_order_of_rig(scenario.axes)
        gains = [calibration.gains_of(axis.rig_axis) for axis in axes.values()]
        away = LAG_S + (scenario.port.transport_samples + self._bridged) * scenario.dt
        self._limits = [
            receiver_limits(calibration.limits_of_rig(axis), away, gain)
            for axis, gain in zip(axes.values(), gains, strict=True)
        ]
        self._loads = receiver_loads(axes, gains, scenario.moved_axes, scenario.dt) if self._controllers else []
        groups = dict(zip(scenario.axes, scenario.stop_groups, strict=True))
        self._groups = [groups[name] for name in axes]
        self._units = [gain.displacement / gain.command for gain in gains]
        self._metres = [1.0 / abs(gain.command) for gain in gains]
        self._persistence = max(2, round(PERSISTENCE_S / scenario.dt))

    def _begin(self) -> None:
        scenario, rig = self.scenario, self._rig
        rig.open()
        active = rig.active_command
        self._planted = Planted(self._faults, len(scenario.axes))
        self._receiver = Receiver(
            self._planted.limits(self._limits),
            scenario.dt,
            *self._planted.waits(self._bridged, self._watchdog, scenario.dt),
            self._flags,
            len(rig.auxiliary_inputs),
            len(rig.auxiliary_names),
            self._persistence,
            self._groups,
            self._units,
            self._loads,
            max(1, round(SWITCHING_S / scenario.dt)),
            (active if self._edge is None else self._edge.to_port(active)).tolist(),
            self._metres,
        )
        self._controllers.start(active)
        self._saboteur = Saboteur(self._plans)
        self._last, self._warning, self._left = b"", False, False
        self._position: dict[str, str] = {}
        self._tell(rig.read())
        self._turned(self.switches.at(0))

    def serve(self, ended: Callable[[], bool]) -> Session | None:
        """Serve one session and return its outcome, or None if ``ended()`` is true before the session begins."""
        self._begin()
        while self._receiver.state_number == datagrams.IDLE:
            if ended():
                return None
            self._await()
        with ExitStack() as stack:
            pacer: Pacer | None = None
            self._received_at = self._moved_at = time.monotonic()
            while not (self._over() or ended()):
                if pacer is None and not self._receiver.in_lockstep:
                    stack.enter_context(real_time(True))
                    pacer = Pacer(self.scenario.dt, 0)
                    pacer.start()
                if pacer is not None:
                    pacer()
                    self._tick(pacer, ended)
                elif not self._step(ended):
                    pacer = Pacer(self.scenario.dt, 0)  # a stopping rig receives no commands that set its ticks
                    pacer.start()
        receiver = self._receiver
        never = "ended by the operator" if ended() else "the test never began"
        reason = datagrams.REASONS[receiver.reason] if receiver.reason else never
        counts = receiver.counts() | {SLIPPED: pacer.missed if pacer is not None else 0}
        return Session(max(receiver.counter - 1, 0), reason, receiver.reason == IN_ORDER, counts)

    def close(self) -> None:
        self._socket.close()

    def _over(self) -> bool:
        receiver = self._receiver
        if not receiver.at_rest:
            self._moved_at = time.monotonic()
        # in lockstep, samples may take long: wait up to port.longest_wait, unless the session was closed
        patience = self.scenario.port.longest_wait if receiver.in_lockstep and not self._left else QUIET_S
        quiet = time.monotonic() - max(self._received_at, self._moved_at) > patience
        waiting = receiver.state_number == datagrams.WAITING
        if waiting and time.monotonic() - self._received_at > self._connect_within + 60.0:
            return True  # the test never began
        if self.switches.out():
            return False
        return receiver.at_rest and (quiet or receiver.reason == IN_ORDER)

    def _tick(self, pacer: Pacer, ended: Callable[[], bool]) -> None:
        self._take(self._received())
        sample = self._receiver.counter
        running = self._receiver.state_number > datagrams.WAITING
        if running and (ticks := self._saboteur.frozen(sample)):
            until = time.monotonic() + ticks * self.scenario.dt
            while time.monotonic() < until and not ended():
                time.sleep(min(LOOK_S, max(until - time.monotonic(), 0.0)))
            pacer.start()
        if running:
            self._switch(sample)
        state = self._receiver.state()
        if state:
            self._send(sample, state)
            self._drive()

    def _switch(self, sample: int) -> None:
        rig, sensors = self._rig, self._receiver.sensors
        self._turned(self.switches.at(sample))
        if self._saboteur.interlock_open(sample) and sensors.interlock != samples.INTERLOCK_OPEN:
            rig.set_interlock(closed=False)
            sensors.interlock = samples.INTERLOCK_OPEN
        if pressure := self._saboteur.pressure(sample):
            rig.set_hydraulics(pressure)
            sensors.hydraulics = rig.hydraulics

    def _turned(self, position: dict[str, str]) -> None:
        rig, sensors, before = self._rig, self._receiver.sensors, self._position
        if position == before:
            return
        self._position = position
        if (now := position.get(INTERLOCK)) != before.get(INTERLOCK):
            rig.set_interlock(closed=now == "closed")
        if (pressure := position.get(PRESSURE)) not in (None, before.get(PRESSURE)):
            rig.set_hydraulics(pressure)
        if self._position.get(CABLE) != before.get(CABLE):
            self._received_at = time.monotonic()
        shown = rig.read()
        sensors.interlock, sensors.hydraulics = shown.interlock, shown.hydraulics
        self._planted.shows(sensors)

    def _step(self, ended: Callable[[], bool]) -> bool:
        receiver = self._receiver
        if receiver.state_number == datagrams.WAITING:
            self._await()
            return True
        sample = receiver.counter
        if self._saboteur.frozen(sample):
            return True
        self._switch(sample)
        state = receiver.state()
        self._send(sample, state)
        patience = time.monotonic() + self.scenario.port.longest_wait
        while receiver.newest < receiver.counter and receiver.state_number == datagrams.RUNNING and not ended():
            if time.monotonic() > patience:
                break
            self._await()
        self._drive()
        return receiver.state_number == datagrams.RUNNING and time.monotonic() <= patience

    def _drive(self) -> None:
        receiver, rig = self._receiver, self._rig
        receiver.drive()
        command, modes = np.array(receiver.command), receiver.modes
        if self._edge is not None:
            modes = self._edge.modes(modes)
            command = self._edge.driven(command, modes)
        command = self._planted.leads(command, rig.hydraulics)
        if (on := bool(receiver.warning)) != self._warning:
            self._warning = on
            self.warned(on)
        if self._controllers:
            shut = rig.hydraulics == samples.HYDRAULICS_OFF or receiver.sensors.interlock == samples.INTERLOCK_OPEN
            command = self._controllers.led(command, modes, self._shown, shut)
        rig.write(Command(rig.wait_tick(), command, command, np.array(receiver.inputs)))
        self._tell(rig.read())

    def _tell(self, measured: Measurement) -> None:
        sensors = self._receiver.sensors
        self.true = self._rig.truth() or measured
        self.shown_to(self.true)
        if self._controllers:
            measured = replace(measured, control_mode=bytes(self._controllers.modes))
        self._shown = measured
        if self._edge is not None:
            measured = self._edge.shown(measured)
        n = len(measured.displacement)
        sensors.displacement[:n] = measured.displacement.tolist()
        sensors.force[:n] = measured.force.tolist()
        sensors.channel[: len(measured.auxiliary)] = measured.auxiliary.tolist()
        sensors.mode[:n] = list(measured.control_mode)
        sensors.hydraulics, sensors.interlock = measured.hydraulics, measured.interlock
        sensors.saturated = bool(measured.flags)
        self._planted.shows(sensors)

    def _await(self) -> None:
        if select.select([self._socket], [], [], LOOK_S)[0]:
            self._take(self._received())

    def _received(self) -> list[Came]:
        received: list[Came] = []
        while True:
            try:
                data, sender = self._socket.recvfrom(2 * datagrams.LARGEST)
            except BlockingIOError:
                return received
            except OSError:
                continue  # ICMP error in response to a sent datagram
            if not self.switches.out():
                number = int.from_bytes(socket.inet_aton(sender[0]), "big") << 16 | sender[1]
                received.append((data, number))

    def _take(self, came: list[Came]) -> None:
        receiver = self._receiver
        if receiver.state_number > datagrams.WAITING:
            came = self._saboteur.incoming(receiver.counter, came)
        for data, sender in came:
            result = receiver.receive(data, sender)
            if sender == receiver.sender and result not in ("garbage", "foreign"):
                self._received_at = time.monotonic()
                self._left |= result == "taken" and datagrams.head_of(data).kind == datagrams.CLOSE
            if answer := receiver.reply():
                self._to(sender, self._planted.answer(answer, self._limits, self._bridged, self._watchdog))
            elif result == "repeated" and receiver.in_lockstep and self._last:
                self._to(sender, self._last)

    def _send(self, sample: int, state: bytes) -> None:
        self._last = state
        for data in self._saboteur.outgoing(sample, state):
            self._to(self._receiver.sender, data)

    def _to(self, sender: int, data: bytes) -> None:
        if self.switches.out():
            return
        address = socket.inet_ntoa((sender >> 16).to_bytes(4, "big")), sender & 0xFFFF
        with suppress(OSError):  # treat the datagram as lost
            self._socket.sendto(data, address)
