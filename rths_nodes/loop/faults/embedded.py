# SPDX-License-Identifier: Apache-2.0
"""Reference host with faults. Unlike in ``embedded.py``, Targets and Commands can be late or lost.

The compensator bridges a missing Target, and the rig a missing Command. Sensor faults change the Measurement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from rths_nodes.core.samples import Command, Measurement, Target
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.faults.kinds import Fault, check
from rths_nodes.loop.faults.streams import FaultyPort, FaultyStream, S, flip_bit, poison
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import outgoing_of


class FaultyLoop(Loop):
    def __init__(self, assembly: Assembly, faults: Sequence[Fault]) -> None:
        super().__init__(assembly)
        self.commands.assume_realtime()
        self._arrived: deque[Command] = deque()
        self._guard = outgoing_of(assembly)
        self._sound_port = self.rig.port
        self.put_in(faults)

    def put_in(self, faults: Sequence[Fault]) -> None:
        scenario, codec = self.scenario, self.assembly.codec()
        check(faults, scenario, "embedded", "lockstep", recorded=False)
        rate, seed = scenario.servo_rate, scenario.seed
        self._targets: FaultyStream[Target] = FaultyStream(
            "target", faults, rate, seed, _corrupter(codec.pack_target, codec.unpack_target), _poison("target")
        )
        self._commands: FaultyStream[Command] = FaultyStream(
            "command", faults, rate, seed, _corrupter(codec.pack_command, codec.unpack_command), _poison("command")
        )
        self.rig.port = FaultyPort(self._sound_port, faults, tuple(scenario.axes), rate)

    def _to_compensator(self, target: Target) -> None:
        self._targets.put(self.rig.ticks, _copied(target))

    def _command(self, measured: Measurement) -> Command | None:
        for target in self._targets.take(self.rig.ticks):
            try:
                self.commands.target(target)
            except ValueError as lost:  # in a node this error ends the node, and therefore the test
                self.rig.trip(f"compensator: {lost}")
        if measured.sample == 0:
            self._guard.start(measured)
        late = not self.commands.ready(measured.sample + 1)
        command = self.commands.bridge(measured) if late else self.commands.next(measured)
        if command is not None and (reason := self._guard.refusal(command)):
            self.rig.trip(reason)
            return None
        return command

    @property
    def _publishes(self) -> bool:
        """True, because Commands beyond a limit are refused earlier and stream faults act later."""
        return True

    def _to_rig(self, command: Command | None, before: Measurement) -> tuple[Command | None, Measurement]:
        made, measured = command, self._tick(command)
        while measured is None:  # during a pause a late Command can arrive, or an operator can hold the test
            self._await_operator()
            command = None if made is not None else self._command(before)
            made, measured = command or made, self._tick(command)
        return made, measured

    def _tick(self, command: Command | None) -> Measurement | None:
        rig, now = self.rig, self.rig.ticks
        if command is not None:
            self._commands.put(now, _copied(command))
        self._arrived += self._commands.take(now)
        in_time = self._due.kept()
        while in_time is None and self._arrived:  # as in a node, the next Command waits for the next tick
            in_time = self._due.arrived(self._arrived.popleft())
        return rig.tick(in_time, late=in_time is None)


def _copied(sample: S) -> S:
    values = ((field.name, getattr(sample, field.name)) for field in fields(sample))
    arrays: dict[str, Any] = {name: value.copy() for name, value in values if isinstance(value, np.ndarray)}
    return replace(sample, **arrays)


def _corrupter(
    pack: Callable[[S, int], bytes], unpack: Callable[[bytes], tuple[S, int]]
) -> Callable[[S, np.random.Generator], S | None]:
    def corrupt(sample: S, random: np.random.Generator) -> S | None:
        try:
            return unpack(flip_bit(pack(sample, 0), random))[0]
        except ValueError:  # an unreadable message is dropped, as in a node
            return None

    return corrupt


def _poison(stream: str) -> Callable[[S, float, str], S]:
    return lambda sample, value, field: poison(sample, stream, value, field)
