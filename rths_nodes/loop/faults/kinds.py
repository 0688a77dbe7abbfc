# SPDX-License-Identifier: Apache-2.0
"""Injected faults, parsed from ``--fault KIND@TIME[:ARGUMENTS]`` (table: doc/faults.md).

``embedded.py`` applies faults to streams and sensors in any host. ``ros/hosting/fault_injection.py`` applies them
to nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.parameter_docs import table
from rths_nodes.core.parameters import Field, integer, number, params, text
from rths_nodes.core.samples import ROUNDING
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import number_in

if TYPE_CHECKING:
    from rths_nodes.loop.scenario.schema import Scenario

STREAMS = ("target", "command", "measurement")
NODES = {"integrator": "target", "compensator": "command", "actuator": "measurement"}
PROCESSES = (*NODES, "monitor", "recorder")
CHANNELS = ("displacement", "force")


def _count() -> Field:
    return integer("number of messages", default=1, at_least=1)


def _every() -> Field:
    return integer("length of the repeated pattern, in messages; default: no repetition", default=None, at_least=1)


@params
class Fault:
    time: float = number("time from Measurement 0 until the fault begins", "s", at_least=0.0)


@params
class OfMessages(Fault):
    stream: str = text("affected messages", choices=STREAMS)


@params
class Repeated(OfMessages):
    count: int = _count()
    every: int | None = _every()


@params
class Drop(Repeated):
    """Messages are lost."""


@params
class Delay(OfMessages):
    """Messages are late, and later messages wait for them."""

    samples: int = integer("delay of the messages", "samples", at_least=1, at_most=1_000_000)
    count: int = _count()
    every: int | None = _every()


@params
class Late(OfMessages):
    share: float = number("share of delayed messages", more_than=0.0, at_most=1.0)
    samples: int = integer("delay of the messages", "samples", 1, at_least=1, at_most=1_000_000)


@params
class Duplicate(Repeated):
    """Messages arrive twice."""


@params
class Reorder(Repeated):
    """A message arrives after the next message."""


@params
class Corrupt(Repeated):
    """One bit of a message is flipped. The scenario's seed determines which bit."""


@params
class NotANumber(OfMessages):
    value: str = text("replacement value", "nan", choices=("nan", "inf", "-inf"))
    field: str = text("affected field; default: the displacement or the command", "")


@params
class Slow(Fault):
    node: str = text("affected node", choices=NODES)
    seconds: float = number("additional time per answer", "s", more_than=0.0, at_most=60.0)
    count: int = integer("number of answers", default=1, at_least=1)


@params
class SensorStuck(Fault):
    axis: str = text("axis of the sensor")
    channel: str = text("affected quantity", choices=CHANNELS)
    seconds: float | None = number(
        "duration of the fault; default: to the end of the test", "s", None, more_than=0.0
    )


@params
class SensorSpike(Fault):
    axis: str = text("axis of the sensor")
    channel: str = text("affected quantity", choices=CHANNELS)
    size: float = number("added value", "m or N")


@params
class Hydraulics(Fault):
    """The pump operator changes the pressure."""

    pressure: str = text("new value", choices=("off", "low", "high"))


@params
class Interlock(Fault):
    """The interlock of the rig opens."""


@params
class Kill(Fault):
    """A node is killed (SIGKILL)."""

    node: str = text("affected node", choices=PROCESSES)


@params
class Freeze(Fault):
    node: str = text("affected node", choices=PROCESSES)
    seconds: float = number("duration", "s", more_than=0.0, at_most=3600.0)


@params
class DiskFull(Fault):
    """The recorder can no longer write."""


KINDS: dict[str, type] = {
    **{"drop": Drop, "delay": Delay, "late": Late, "duplicate": Duplicate, "reorder": Reorder},
    **{"corrupt": Corrupt, "nan": NotANumber, "slow": Slow},
    **{"sensor_stuck": SensorStuck, "sensor_spike": SensorSpike},
    **{"hydraulics": Hydraulics, "interlock": Interlock},
    **{"kill": Kill, "freeze": Freeze, "disk_full": DiskFull},
}
OF_NODE = (Slow, Kill, Freeze)
OF_AXIS = (SensorStuck, SensorSpike)
NEED_NODES = (Kill, Freeze, DiskFull)
NEED_REAL_TIME = (Delay, Late, Reorder, Slow)
"""Faults without effect in lockstep, where nodes wait for each other."""

POISONED = {
    "target": ("displacement", "velocity", "acceleration", "auxiliary"),
    "command": ("command", "target", "auxiliary"),
    "measurement": ("displacement", "force", "auxiliary"),
}
"""Fields, by stream, in which a fault can insert a value that is not finite. The first field is the default."""


def kind_of(fault: Fault) -> str:
    return next(name for name, cls in KINDS.items() if type(fault) is cls)


def first_sample(fault: Fault, rate: float) -> int:
    return math.ceil(fault.time * rate - ROUNDING)


def stream_of(fault: Fault | None) -> str:
    return NODES[fault.node] if isinstance(fault, Slow) else fault.stream if isinstance(fault, OfMessages) else ""


def node_of(fault: Fault) -> str:
    if isinstance(fault, DiskFull):
        return "recorder"
    return fault.node if isinstance(fault, OF_NODE) else ""


def check(faults: Iterable[Fault], scenario: Scenario, host: str, pace: str, recorded: bool) -> None:
    for fault in faults:
        kind = f"fault {kind_of(fault)}"
        _check_words(kind, fault, scenario)
        if host == "embedded":
            _check_embedded(kind, fault, scenario)
            continue
        if pace == "lockstep" and isinstance(fault, NEED_REAL_TIME):
            raise ConfigError(
                f"{kind}: this fault has no effect in lockstep, because the nodes wait for late messages. Use "
                "the pace realtime"
            )
        if node_of(fault) == "recorder" and not recorded:
            raise ConfigError(f"{kind}: the test has no recorder. Record the test")


def _check_words(kind: str, fault: Fault, scenario: Scenario) -> None:
    end = scenario.samples * scenario.dt
    if fault.time >= end:
        raise ConfigError(f"{kind}: time = {show(fault.time, 's')}: must be < {end:g} s, the test's end")
    if isinstance(fault, NotANumber) and fault.field and fault.field not in POISONED[fault.stream]:
        raise unknown(kind, f"field of a {fault.stream}", fault.field, POISONED[fault.stream])
    if isinstance(fault, (Hydraulics, Interlock)) and not scenario.port.can_be_switched:
        kind_of_port = type(scenario.port).type_name
        raise ConfigError(
            f"{kind}: the port {kind_of_port!r} cannot switch pressure and interlock. Use the port simulator"
        )
    if isinstance(fault, OF_AXIS) and fault.axis not in scenario.axes:
        raise unknown(kind, "axis", fault.axis, list(scenario.axes))


def _check_embedded(kind: str, fault: Fault, scenario: Scenario) -> None:
    if isinstance(fault, NEED_NODES):
        raise ConfigError(f"{kind}: the host embedded has no nodes. Use the host composed or processes")
    if stream_of(fault) == "measurement" and not isinstance(fault, NotANumber):
        raise ConfigError(
            f"{kind}: the host embedded sends no measurements. Use a fault of target, command or a sensor"
        )
    if stream_of(fault) == "target" and scenario.hops.depth and scenario.bridge.pauses:
        raise ConfigError(
            f"{kind}: in the host embedded no Measurement waits for a Target if hops.depth > 0 and the rig can "
            "pause. Use the host composed or processes"
        )


def parse(text: str) -> Fault:
    head, _, arguments = text.partition(":")
    kind, sign, time = head.partition("@")
    if not sign:
        raise ConfigError(f"fault {text!r}: must be KIND@TIME[:ARGUMENTS]; known: {', '.join(sorted(KINDS))}")
    if kind not in KINDS:
        raise unknown(f"fault {text!r}", "kind", kind, KINDS)
    cls = KINDS[kind]
    fields = {row.name: row.kind for row in table(cls)}
    values = [time, *(arguments.split(",") if arguments else ())]
    if len(values) > len(fields):
        arguments_known = ", ".join(list(fields)[1:]) or "no arguments"
        raise ConfigError(f"fault {text!r}: too many arguments; {kind}@TIME takes {arguments_known}")
    pairs = zip(fields.items(), values, strict=False)
    try:
        data = {name: word.strip() if kind == "text" else number_in(word) for (name, kind), word in pairs}
        return from_data(cls, data)
    except ConfigError as error:
        raise ConfigError(f"fault {text!r}: {error}") from None
