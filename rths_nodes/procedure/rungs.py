# SPDX-License-Identifier: Apache-2.0
"""One rung under way: its port, what the operator asks for meanwhile, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import type_of
from rths_nodes.laboratory.actuators.specimen_path import SpecimenPath
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rehearsal import simulated
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.arming import Armed
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.following import Following
from rths_nodes.procedure.machine import ActUnderWay, SessionMachine
from rths_nodes.procedure.offsets import Offsets
from rths_nodes.procedure.rung_port import ComputedForcePort, Forces, RungPort, UnsentPort


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of a run on the handed port: finished, held, tripped, failed, refused or interrupted, and why."""

    outcome: str
    reason: str = ""
    samples: int = 0


class RungUnderWay:
    """The rung that is ``armed`` on the rig of ``drive``; its port is handed to one run.

    ``suspended`` is true while it is held, and can be resumed, ``stopped`` why it is to end; empty while it is
    not. Raises ConfigError where the scenario lacks a model that the rung needs.
    """

    def __init__(
        self, armed: Armed, drive: RigDrive, offsets: Offsets, machine: SessionMachine, following: Following
    ) -> None:
        self.armed, self.suspended, self.stopped = armed, False, ""
        self._resumed: ActUnderWay | None = None
        self._machine, self._following = machine, following
        self.port = port = _port_of(armed, drive, offsets)
        if not isinstance(port, UnsentPort):  # there the rig is held, and follows nothing
            port.handover.following = following.test
        port.handover.stopping = machine.brake
        port.handover.at_rest, port.handover.under_way = self._at_rest, self._under_way

    def hold(self, reason: str) -> None:
        """In slow time it stands still until :meth:`resume`; in real time it ends, held."""
        requests = self.port.handover.requests
        if self.armed.scenario.time_ratio == 1:
            requests.stop(reason)
            return
        self.suspended = True
        self._machine.to(State.STOPPING, reason)
        requests.hold()

    def resume(self) -> None:
        self._machine.to(State.RESUMING)
        self.suspended, self._resumed = False, self._machine.under_way
        self.port.handover.requests.resume()

    @property
    def frozen(self) -> bool:
        """True once copies of the specimen stay as they are."""
        return bool(self.port.handover.requests.frozen)

    def freeze(self) -> None:
        self.port.handover.requests.freeze()

    def stop(self, reason: str) -> None:
        self.stopped = self.stopped or reason
        self.port.handover.requests.stop(reason)

    def over(self, outcome: RunOutcome, broken: str) -> None:
        """The run is over, and the rig held: enter the next state; ``broken`` is why the port has failed."""
        machine = self._machine
        with machine.lock:
            self.suspended = False
            reason = outcome.reason or broken
            tripped = outcome.outcome in ("tripped", "failed") or bool(broken)
            if tripped or machine.state is State.RESUMING:
                machine.brake(reason)
            if tripped:
                machine.to(State.TRIPPED, reason)
            elif machine.state is not State.HELD:
                machine.to(State.HELD, reason or "the rung is over")

    def remarks(self, names: Sequence[str], dt: float) -> list[str]:
        """Say how forces relaxed while the rig was held, what did not move with it, and what was frozen when."""
        handover, found = self.port.handover, []
        if handover.frozen_at is not None:
            found.append(f"copies of the specimen frozen by the operator from sample {handover.frozen_at} on")
        for hold in handover.holds:
            pairs = zip(names, hold.before, hold.after, strict=True)
            told = ", ".join(f"{name} from {before:.6g} N to {after:.6g} N" for name, before, after in pairs)
            found.append(f"held behind sample {hold.sample}, {hold.ticks * dt:.3g} s of ticks: force {told}")
        return found + self._following.told

    def _at_rest(self) -> None:
        with self._machine.lock:
            if self.suspended and self._machine.state is State.STOPPING:
                self._machine.to(State.HELD, self._machine.reason)

    def _under_way(self) -> None:
        with self._machine.lock:
            act = self._resumed
            if self._machine.state is State.RESUMING and act is not None and not act.stopped:
                self._machine.to(State.RUNNING, act=act)


def _port_of(armed: Armed, drive: RigDrive, offsets: Offsets) -> RungPort:
    tares, scenario = offsets.tares(armed.reach), armed.scenario
    if armed.rung == "c":
        return UnsentPort(drive, tares, Assembly(simulated(scenario)).port)
    if armed.rung != "d":
        return RungPort(drive, tares)
    return ComputedForcePort(drive, tares, _forces_of(scenario))


def _forces_of(scenario: Scenario) -> Forces:
    """Return what the scenario's own specimens, or its coupled rig, make of measured displacements."""
    dt = scenario.dt
    if scenario.rig is None:
        models = [registry.build("specimen", scenario.model_of(name, "specimen")) for name in scenario.axes]
        paths = [SpecimenPath(specimen, dt) for specimen in models]

        def of_axes(now: list[float], before: list[float]) -> list[float]:
            moves = zip(paths, now, before, strict=True)
            return [path.move(x, (x - x_before) / dt) for path, x, x_before in moves]

        return of_axes
    there = registry.class_of("rig", scenario.rig).at_commands(scenario.rig)
    if there is None:
        kind = type_of(scenario.rig)
        raise ConfigError(f"rung d: rig.type = {kind!r}: its specimen has no model that follows what is measured")
    rig, nothing = registry.build("rig", there, dt, len(scenario.axes)), np.zeros(0)

    def of_rig(now: list[float], before: list[float]) -> list[float]:
        if now is before:  # the first sample: it has stood there
            rig.follow(now, nothing)
        forces: list[float] = rig.follow(now, nothing)[1]
        return forces

    return of_rig
