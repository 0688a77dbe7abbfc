# SPDX-License-Identifier: Apache-2.0
"""The operator's stop in the states of a session, by the same acts as in a test."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import Array, Command
from rths_nodes.laboratory.ports.wrappers import PortBefore
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario.rehearsal import hash_of
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.commissioned import FAILED, PASSED, STOPPED, CommissioningRow
from rths_nodes.procedure.commissioning.bench import Bench
from rths_nodes.procedure.commissioning.braking import rest_samples
from rths_nodes.procedure.session import RigSession

OFFSETS_S = 0.5
"""Duration of the offsets, s."""
MOVED = 0.1
"""Share of the small move after which the stop comes."""
SETTLED_S = 0.2
SPARE = 2
"""Tolerance, samples: the stop takes effect with the next command."""

Rows = list[CommissioningRow]


class Watched(PortBefore):
    """``port`` that calls for a stop once an axis has moved ``far`` ``(n_axes,)`` m in ``state``."""

    def __init__(self, port: Port, session: RigSession, far: Array, state: State) -> None:
        super().__init__(port)
        self._session, self._far, self._state = session, far, state
        self._start: Array | None = None
        self._last: Array | None = None
        self.commands: list[Array] = []
        """The two commands before the stop, and all after it."""

    def write(self, command: Command) -> None:
        self._port.write(command)
        if self.commands:
            self.commands.append(command.command.copy())
        elif self._session.state is self._state:
            now = command.command.copy()
            start = self._start = now if self._start is None else self._start
            if self._last is not None and (np.abs(now - start) >= self._far).any():
                self.commands = [self._last, now]
                self._session.stop("the commissioning stops it")
            self._last = now


def stops(bench: Bench) -> Rows:
    """Stop a motion, and an armed rung."""
    rig = bench.rig()
    words = (
        f"every axis goes out and back, and is stopped by the operator's stop: {bench.ways(rig.way, rig.velocity)}"
    )
    bench.operator.ready(words, moves=True)
    rows = []
    with _session(bench) as session:
        rows.append(_stopped(bench, session, State.CHECKING, session.check))
    bench.operator.ready(f"once more, and by up to half as far to the start of a test: {words}", moves=True)
    with _session(bench) as session:
        for found in session.check().values():
            found.findings.clear()  # a load cell without a specimen looks dead; signs and cables are known
        for each in session.clearance.unsigned():
            session.sign_for(each)
        rows.append(_stopped(bench, session, State.POSITIONING, session.position))
        _settle(bench, session)
        session.position()
        rows.append(_disarmed(bench, session))
    return rows


@contextmanager
def _session(bench: Bench) -> Iterator[RigSession]:
    record = ProcedureRecord("commissioning", bench.scenario.name, hash_of(bench.scenario))
    session = bench.opening(bench.rig().port.simulated, lambda: _connected(bench, record))
    try:
        offsets = session.take_offsets(OFFSETS_S)
        session.confirm_offsets(offsets.hash, unloaded=True)
        yield session
    finally:
        session.close()


def _connected(bench: Bench, record: ProcedureRecord) -> RigSession:
    session = RigSession(bench.scenario, record, realtime=bench.realtime)
    session.connect()
    return session


def _stopped(bench: Bench, session: RigSession, state: State, act: Callable[[], object]) -> CommissioningRow:
    drive, port = session.drive, session.drive.port
    watched = Watched(port, session, MOVED * bench.rig().way, state)
    drive.port = watched
    try:
        with contextlib.suppress(ConfigError):
            act()
    finally:
        drive.port = port
    return _row(bench, state, session.state, np.array(watched.commands))


def _settle(bench: Bench, session: RigSession) -> None:
    drive = session.drive
    if bench.realtime:
        time.sleep(SETTLED_S)
        return
    drive.hold_loop.borrow()
    try:
        for _ in range(bench.transport + 1):
            drive.tick()
    finally:
        drive.hold_loop.give_back()


def _row(bench: Bench, stopped: State, then: State, commands: Array) -> CommissioningRow:
    name, dt = stopped.name.lower(), bench.dt
    limits = list(bench.scenario.limits.values())
    velocity = [each.velocity for each in limits]
    if len(commands) >= 2:
        velocity = (np.abs(np.diff(commands, axis=0)).max(axis=0) / dt).tolist()
    n = SPARE + max(rest_samples(v, each.deceleration, dt) for v, each in zip(velocity, limits, strict=True))
    most = 1e3 * max(v * n * dt for v in velocity)
    stated = f"rests after {1e3 * n * dt:.3g} ms and {most:.3g} mm, and is held"
    if len(commands) < 3:
        return CommissioningRow(STOPPED, name, stated, "nothing has moved", FAILED)
    behind = commands[1:]
    moving = np.flatnonzero((behind != behind[-1]).any(axis=1))
    rest, way = (int(moving[-1]) + 1 if len(moving) else 0), 1e3 * float(np.abs(behind[-1] - behind[0]).max())
    good = rest <= n and way <= most + 1e-6 and then is State.HELD
    measured = f"rests after {1e3 * rest * dt:.3g} ms and {way:.3g} mm, and is {then.name.lower()}"
    return CommissioningRow(STOPPED, name, stated, measured, PASSED if good else FAILED)


def _disarmed(bench: Bench, session: RigSession) -> CommissioningRow:
    assert session.offsets is not None  # confirmed before
    session.arm("c", bench.scenario, hash_of(bench.scenario), session.offsets.hash)
    session.stop("the commissioning stops it")
    runs = session.possible()["run"] == ""
    good = session.state is State.HELD and not runs
    words = "can still be run" if runs else f"is {session.state.name.lower()}"
    return CommissioningRow(STOPPED, "armed", "nothing can be run, and is held", words, PASSED if good else FAILED)
