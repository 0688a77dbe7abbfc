"""The reference host with faults: the same order, but Targets and Commands may come late or never.

What nodes do on their wires is done between the stages: Targets and Commands pass through a stream with faults,
the compensator bridges a Target that is not there, the rig a Command. A measurement fails in its sensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from rths_nodes.components import Command, Measurement, Target
from rths_nodes.faults import NEED_PROCESSES, NODES, NotANumber, kind_of
from rths_nodes.faulty_streams import FaultyPort, FaultyStream, flip_bit
from rths_nodes.loop import Loop
from rths_nodes.params import ConfigError, show, unknown
from rths_nodes.scenario import Scenario

_POISONED = {
    "target": ("displacement", "velocity", "acceleration", "auxiliary"),
    "command": ("command", "target", "auxiliary"),
    "measurement": ("displacement", "force", "auxiliary"),
}
"""Fields that may be no numbers, the default first."""


class FaultyLoop(Loop):
    """A Loop with ``faults`` (of ``faults.parse``). Raises ConfigError for one that needs processes."""

    def __init__(self, scenario: Scenario, faults: Sequence[Any]) -> None:
        super().__init__(scenario)
        for fault in faults:
            _check(fault, scenario)
        codec = scenario.codec()
        rate, seed = scenario.servo_rate, scenario.seed
        self._targets: FaultyStream[Target] = FaultyStream(
            "target", faults, rate, seed, _corrupter(codec.pack_target, codec.unpack_target), _poison
        )
        self._commands: FaultyStream[Command] = FaultyStream(
            "command", faults, rate, seed, _corrupter(codec.pack_command, codec.unpack_command), _poison
        )
        self.rig.port = FaultyPort(self.rig.port, faults, tuple(scenario.axes), rate)

    def _to_compensator(self, target: Target) -> None:
        self._targets.put(self.rig.sample, _copied(target))

    def _command(self, measured: Measurement) -> Command | None:
        for target in self._targets.take(measured.sample):
            try:
                self.commands.target(target)
            except ValueError as lost:  # in a node this ends the node, which ends the test
                self.rig.trip(f"compensator: {lost}")
        late = not self.commands.ready(min(measured.sample + 1, self.scenario.samples))
        return self.commands.bridge(measured) if late else self.commands.next(measured)

    def _to_rig(self, command: Command | None) -> Measurement:
        rig, now = self.rig, self.rig.sample
        if command is not None:
            self._commands.put(now, _copied(command))
        in_time = None
        for arrived in self._commands.take(now):
            if arrived.sample == now + 1:
                in_time = in_time or arrived
            elif arrived.sample <= now:
                rig.late_command(arrived)
            else:
                rig.trip(f"Command {arrived.sample} came where {now + 1} was expected")
        return rig.tick(in_time, late=in_time is None)


def _check(fault: Any, scenario: Scenario) -> None:
    kind = kind_of(fault)
    if isinstance(fault, NEED_PROCESSES):
        raise ConfigError(f"fault {kind}: needs the processes of nodes; the host embedded has none")
    end = scenario.samples * scenario.dt
    if fault.time >= end:
        raise ConfigError(f"fault {kind}: time = {show(fault.time, 's')}: must be < {end:g} s, the test's end")
    stream = getattr(fault, "stream", "") or NODES.get(getattr(fault, "node", ""), "")
    if isinstance(fault, NotANumber):
        if fault.field and fault.field not in _POISONED[stream]:
            raise unknown(f"fault {kind}", f"field of a {stream}", fault.field, _POISONED[stream])
    elif stream == "measurement":
        raise ConfigError(
            f"fault {kind}: measurements go nowhere in the host embedded; take target, command or a sensor"
        )


def _copied(sample: Any) -> Any:
    """A sample that stays as it is however long it is under way."""
    arrays = {field.name: getattr(sample, field.name) for field in fields(sample)}
    return replace(
        sample, **{name: value.copy() for name, value in arrays.items() if isinstance(value, np.ndarray)}
    )


def _corrupter(pack: Callable[..., bytes], unpack: Callable[[bytes], Any]) -> Callable[..., Any]:
    """Flips one bit on the wire."""

    def corrupt(sample: Any, random: np.random.Generator) -> Any:
        try:
            return unpack(flip_bit(pack(sample, 0), random))[0]
        except ValueError:  # cannot be read: as in a node, it is dropped
            return None

    return corrupt


def _poison(sample: Any, value: float, field: str) -> Any:
    name = field or _POISONED["target" if isinstance(sample, Target) else "command"][0]
    return replace(sample, **{name: np.full_like(getattr(sample, name), value)})
