# SPDX-License-Identifier: Apache-2.0
"""Interface of a node and its host: Host at construction, Configured at each configuration, and the Writer, which
is passed in because ``ros/`` knows no file formats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rths_nodes.core.protocols import Port
from rths_nodes.core.wire.codec import Codec
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.ros import names
from rths_nodes.ros.nodes.phase import PhaseMachine
from rths_nodes.ros.nodes.sequence import MeasurementSequence
from rths_nodes.ros.nodes.settings import NodeSettings
from rths_nodes.ros.transport.topics import Interposer
from rths_nodes.ros.transport.wiring import NodeLocation


@dataclass(frozen=True)
class Configured:
    location: NodeLocation
    settings: NodeSettings
    codec: Codec
    phase: PhaseMachine
    measurements: MeasurementSequence


Interpose = Callable[[Configured], Interposer]
"""Called at each configuration of a node. Raises ConfigError for impossible faults."""


@dataclass(frozen=True)
class Host:
    interpose: Interpose
    clock: Clock = SYSTEM_CLOCK
    own_process: bool = False
    prepare: Callable[[], None] = lambda: None
    """Called when all peers are discovered, before the node reports ready."""
    on_ended: Callable[[], None] = lambda: None
    scenario: Scenario | None = None
    """Scenario to run; None to build it from parameters."""
    handed: Port | None = None
    """Open port of a procedure, in place of the scenario's."""
    numerical: Callable[[Assembly], NumericalStage] = NumericalStage.of
    commands: Callable[[Assembly], CommandStage] = CommandStage.of
    rig: Callable[[Scenario, Port], RigStage] = RigStage.of
    """Makers of the stages of integrator, compensator and actuator node."""
    follows: bool = False
    """True if these stages follow the executive."""


class Writer(Protocol):
    def add(self, topic: str, kind: str, reliable: bool, latched: bool) -> None: ...

    def write(self, topic: str, data: bytes, stamp_ns: int) -> None: ...

    def flush_if_due(self) -> None: ...

    def flush(self) -> None: ...

    def fileno(self) -> int: ...

    def close(self, information: dict[str, str]) -> None: ...


class OptionalWriter:
    """A ``writer`` that may fail: ``on_lost`` gets the reason, later messages are dropped."""

    def __init__(self, writer: Writer, on_lost: Callable[[str], None]) -> None:
        self._writer: Writer | None = writer
        self._on_lost = on_lost
        self.fileno = writer.fileno

    def _do(self, name: str, *arguments: object) -> None:
        try:
            if self._writer is not None:
                getattr(self._writer, name)(*arguments)
        except RuntimeError as error:  # a recording that cannot continue
            self._writer = None
            self._on_lost(str(error))

    def add(self, topic: str, kind: str, reliable: bool, latched: bool) -> None:
        self._do("add", topic, kind, reliable, latched)

    def write(self, topic: str, data: bytes, stamp_ns: int) -> None:
        self._do("write", topic, data, stamp_ns)

    def flush_if_due(self) -> None:
        self._do("flush_if_due")

    def flush(self) -> None:
        self._do("flush")

    def close(self, information: dict[str, str]) -> None:
        if self._writer is not None:
            self._writer.close(information)


OpenWriter = Callable[[str, list[tuple[str, names.Topic]], dict[str, str]], Writer]
"""Directory, topic names with rows, information -> a recording. Raises ConfigError."""
