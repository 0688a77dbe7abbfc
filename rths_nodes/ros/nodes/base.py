# SPDX-License-Identifier: Apache-2.0
"""Base class of all nodes: lifecycle, polling, and handling of unexpected errors.

A node connects a stage (``loop/stages``) to topics. It polls for messages of the loop and the handshake, as bytes.
"""

from __future__ import annotations

import importlib
import itertools
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.context import Context
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.serialization import deserialize_message, serialize_message

from rths_nodes.core.durations import SECOND, Durations
from rths_nodes.core.errors import ComponentError, ConfigError, IntegratorError, PortError
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import MODE_DISPLACEMENT, Command, Measurement, Target
from rths_nodes.core.wire import Codec, decode, stamp_of
from rths_nodes.loop.faults import STREAMS
from rths_nodes.loop.options import BEST_EFFORT, EXECUTIVE
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario, rig_kind
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.loop.stages.rig import RigStage, takes_force
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import LateData
from rths_nodes.ros import names
from rths_nodes.ros.nodes import participation
from rths_nodes.ros.nodes.participation import Phase, WarmUp
from rths_nodes.ros.nodes.settings import NodeSettings
from rths_nodes.ros.transport.rclpy_private import remove_from_graph
from rths_nodes.ros.transport.service_thread import FewRequests
from rths_nodes.ros.transport.topics import DeferredSends, Interposer, NodeTopics, OnHeard

msg = importlib.import_module("rths_nodes.msg")


def check_serialization(codec: Codec) -> None:
    """Raise RuntimeError if the middleware and ``codec`` serialize messages differently, except in padding."""
    n_dof, n_axes, n_state, n_auxiliary, n_inputs = codec.sizes
    numbers = itertools.count(0.1, 0.1)

    def some(count: int) -> Any:
        return np.array([next(numbers) for _ in range(count)])

    stamp, modes = 3 * SECOND + 7, bytes([MODE_DISPLACEMENT]) * n_axes
    target: Any = Target(5, *[some(n_dof) for _ in range(6)], some(n_inputs), 1, some(4))  # type: ignore[misc,call-arg]
    command = Command(6, some(n_axes), some(n_axes), some(n_inputs), 2, modes)
    measured = Measurement(7, some(n_axes), some(n_axes), some(n_axes), some(n_auxiliary), 4, modes, 3, 1)
    for kind, sample in {"target": target, "command": command, "measurement": measured}.items():
        pack, unpack = getattr(codec, f"pack_{kind}"), getattr(codec, f"unpack_{kind}")
        data = pack(sample, stamp)
        if pack(*unpack(_serialized_again(kind.capitalize(), data))) != data:
            raise RuntimeError(_DIFFERS.format(kind.capitalize()))
    _serialized_again("CompensatorState", codec.pack_state(some(n_state).tolist(), 8, 0, stamp))


_DIFFERS = "{0}: the installed message differs from msg/{0}.msg. Build the package again"


def _serialized_again(kind: str, data: bytes) -> bytes:
    typed, values = deserialize_message(data, getattr(msg, kind)), decode(kind, data)
    header = typed.header
    result = {"stamp": header.stamp.sec * SECOND + header.stamp.nanosec, "frame_id": header.frame_id}
    for name in (values.keys() - result.keys()) & typed.get_fields_and_field_types().keys():
        value = getattr(typed, name)
        result[name] = value.tolist() if hasattr(value, "tolist") else value
    if result != values:
        raise RuntimeError(_DIFFERS.format(kind))
    return bytes(serialize_message(typed))


@dataclass(frozen=True)
class Host:
    interpose: Callable[[RthsNode], Interposer]
    """Called when a node is configured, to insert faults. Raises ConfigError for impossible faults."""
    clock: Clock = SYSTEM_CLOCK
    own_process: bool = False
    prepare: Callable[[], None] = lambda: None
    """Called when all peers are discovered, before the node reports ready."""
    on_ended: Callable[[], None] = lambda: None
    scenario: Scenario | None = None
    """Scenario to run, or None if the parameters define the scenario."""
    handed: Port | None = None
    """Open port that replaces the scenario's port."""
    numerical: Callable[[Assembly], NumericalStage] = NumericalStage
    commands: Callable[[Assembly], CommandStage] = CommandStage
    rig: Callable[[Scenario, Port], RigStage] = RigStage
    """Stage factories for integrator (``numerical``), compensator (``commands``) and actuator node (``rig``)."""
    follows: bool = False
    """True if the stages return the messages of the executive."""


class Writer(Protocol):
    def add(self, topic: str, kind: str, reliable: bool, latched: bool) -> None: ...

    def write(self, topic: str, data: bytes, stamp_ns: int) -> None: ...

    def flush_if_due(self) -> None: ...

    def flush(self) -> None: ...

    def fileno(self) -> int: ...

    def close(self, information: dict[str, str]) -> None: ...


OpenWriter = Callable[[str, list[tuple[str, names.Topic]], dict[str, str]], Writer]
"""Function that opens a recording, given its directory, topics (name and row) and information.

Raises ConfigError if the recording cannot be opened."""
PERIOD_NS = 1_000_000_000
LOOK_NS = 2_000_000
IN_WORDS = (ComponentError, IntegratorError, PortError)
"""Errors whose messages name the failed external part. Other errors are reported with their type."""


class RthsNode(FewRequests, LifecycleNode):
    """Base of all nodes. Subclasses set ``role`` and implement ``build`` and ``work``.

    ``build(assembly)`` creates the stage, or raises ConfigError. ``work(limit)`` handles at most ``limit`` samples
    and returns True if there was work. ``outside`` holds external resources until cleanup. ``handshake``,
    ``diagnostics`` and ``interposer`` exist once the node is configured.
    """

    role: str
    handshake: participation.Handshake
    interposer: Interposer

    # Attributes that the executor reads in every turn; subclasses override them.
    heavy: bool = False
    """True if the next sample takes much longer than most samples."""
    spares: bool = False
    """True if work can wait until no sample is pending."""
    rests: bool = False
    """True while no message of the loop needs an answer."""
    awaits_answer: bool = False
    """True while another node of the loop computes the input of this node."""
    deadline: int | None = None
    """Time at which the node must work even without a message, monotonic ns, or None."""
    stops_rig: bool = False
    """True if deactivation brings the rig, or an axis, to rest."""
    missing: Callable[[], str] = str
    """Function that describes missing requirements other than peers. Returns an empty string if all are met."""
    judged: tuple[ExitCode, str] | None = None
    """Outcome and reason of the test if the node knows more than TestState contains, otherwise None."""
    late: LateData = LateData()
    awaited_streams: Sequence[str] = STREAMS
    """Inboxes whose messages wake the node if it has its own process."""

    def __init__(
        self,
        host: Host,
        context: Context | None = None,
        values: Mapping[str, object] | None = None,
        on_received: OnHeard | None = None,
        **kwargs: object,
    ) -> None:
        self.outside = ExitStack()
        overrides = [Parameter(name, value=value) for name, value in (values or {}).items()]
        super().__init__(
            self.role, context=context, namespace=names.NAMESPACE, parameter_overrides=overrides, **kwargs
        )
        self._host, self.clock, self.own_process = host, host.clock, host.own_process
        self._now = host.clock.monotonic_ns
        self.location = names.NodeLocation(self.role, self.get_namespace())
        self.identity = self.location.peer
        self.phase = participation.PhaseMachine(host.on_ended)
        self.settings = NodeSettings(
            self, self.location, lambda: self.phase.now is not Phase.UNCONFIGURED, host.scenario
        )
        self.topics = NodeTopics(self, self.clock, on_received)
        self.deferred = DeferredSends(self.topics)
        self.shared = participation.NodeContext(
            self.location, self.phase, self.topics, self.deferred, self.get_logger(), self.clock
        )
        self.diagnostics: Diagnostics | None = None

        def publish_health() -> None:
            if self.diagnostics:
                self.diagnostics.publish()

        self.shutdown = participation.Shutdown(self.shared, self.final_numbers, publish_health)
        self.measurements = participation.MeasurementSequence(self.topics, self.shutdown, self.trip)
        self.warm_up = WarmUp(self.shared, self.measurements)
        self.clocks: dict[str, Durations] = {}
        self.inner_numbers: Callable[[], Mapping[str, float]] = dict
        self.state_names: Sequence[str] = ()
        self.answered_at = self._next_look = 0

    def build(self, assembly: Assembly) -> None:
        raise TypeError(f"{type(self).__name__} must override build")

    def start(self) -> None:
        """Configure and activate the node. Raises ConfigError on failure, and KeyboardInterrupt if interrupted."""
        for transition in (self.trigger_configure, self.trigger_activate):
            if transition() != TransitionCallbackReturn.SUCCESS:
                held = self.phase.exit_code == ExitCode.HELD
                raise (KeyboardInterrupt if held else ConfigError)(self.phase.problem)

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Configure the node. Report errors here, because rclpy hides exceptions."""
        self.phase.configure()
        try:
            self._configure()
            return TransitionCallbackReturn.SUCCESS
        except ConfigError as error:
            self.phase.blame(ExitCode.REFUSED, str(error))
            if not self.settings.value("autostart"):  # otherwise the parent process reports the problem
                self.get_logger().error(self.phase.problem)
        except KeyboardInterrupt:
            self.phase.blame(ExitCode.HELD, "interrupted before the test began")
        except Exception as error:
            self.surprise(error)
        self.outside.close()
        return TransitionCallbackReturn.FAILURE

    def _configure(self) -> None:
        settings, location = self.settings, self.location
        self.scenario = settings.load()
        if self.scenario.engine == EXECUTIVE and self.role in names.LOOP and not self._host.follows:
            raise ConfigError(f"engine = {EXECUTIVE!r}: not available for nodes. Use rths run, or engine: auto")
        self.assembly = Assembly(self.scenario, self._host.handed)
        if location.axis:  # an axis node has no Targets
            codec = Codec(0, 1, 0, run=self.topics.run, n_force=int(takes_force(self.scenario, location.axis)))
        else:
            codec = self.assembly.codec(self.topics.run)
            check_serialization(codec)
        self.measurements.reset()
        self.interposer = self._host.interpose(self)
        self.build(self.assembly)

        clock, here = settings.publishes_clock, settings.here
        wanted = names.endpoints(location, settings.peers, clock, here, lambda row: row.wanted(self.scenario))
        load = settings.load_of_lines(codec.largest)
        best_effort = settings.value("reliability") == BEST_EFFORT
        self.topics.open(wanted, codec, best_effort, self.interposer, load)
        self.diagnostics = Diagnostics(self)
        self.diagnostics.publish()  # the first calls are slow and must not happen while the rig moves
        self.handshake = participation.Handshake(
            self.shared, settings, self.state_names, self._host.prepare, self.refuse, self.missing
        )
        self.phase.to(Phase.CONFIGURED)
        self.get_logger().info(f"configured: {self.scenario.name}, run {settings.value('run_id') or 'without id'}")
        self.handshake.publish()

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        if self.phase.under_way:
            return _refused(self, "activate")
        self.phase.activate(True)
        self.handshake.begin()
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        if self.under_way and not self.stops_rig:
            return _refused(self, "deactivate")
        self.phase.activate(False)
        self.handshake.publish()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        if self.under_way or self.participates:
            return _refused(self, "cleanup")
        self.topics.close()
        self.deferred.clear()
        self.diagnostics = None
        self.outside.close()  # before clean_up(), because the recording needs the state of the test
        self.phase.clean_up()
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        if self.under_way:
            self.stop(f"the {self.identity} node was shut down")
            self.shutdown.interrupt()
        else:
            self.phase.activate(False)
            self.phase.to(Phase.GONE)
        return TransitionCallbackReturn.SUCCESS

    def destroy_node(self) -> None:
        self.outside.close()
        self.topics.lines.close()
        super().destroy_node()
        remove_from_graph(self)

    def work(self, limit: int = 1_000_000) -> bool:
        raise TypeError(f"{type(self).__name__} must override work")

    @property
    def participates(self) -> bool:
        return self.phase.active

    @property
    def works(self) -> bool:
        if self.phase.gone or not (self.phase.active or self.participates):
            return False
        return not self.interposer.holds_up or self.interposer.may_work()

    @property
    def under_way(self) -> bool:
        return self.phase.under_way

    @property
    def last_sample(self) -> int:
        """Number of the last handled sample, or -1 before the first sample."""
        return -1

    def look(self) -> bool:
        """Poll the handshake, at most once per ``LOOK_NS``. Return True if polled."""
        now = self._now()
        due = now >= self._next_look
        if due:
            self._next_look = now + LOOK_NS
        if not self.participates:
            if due:
                self.topics.lines.answer()  # callers wait for an answer
            if self.shutdown.patience_over:
                self.phase.to(Phase.GONE)
            return False
        if not due:
            return False
        self.handshake.look()
        participation.answer_questions(self.shared)
        self.shutdown.look_for_leader()
        return True

    def counters(self) -> dict[str, int]:
        return {"malformed": self.topics.malformed, "overflow": sum(self.topics.lines.lost().values())}

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        return 0, {}

    def flush(self) -> None:
        self.topics.flush()

    def safely(self, action: Callable[..., object], *arguments: object) -> object:
        """Call ``action`` and return its result. On an error, stop the rig, end as failed and return False."""
        try:
            return action(*arguments)
        except Exception as error:
            self.surprise(error)
            return False

    def surprise(self, error: Exception) -> None:
        kind = "" if isinstance(error, IN_WORDS) else f"{type(error).__name__}: "
        self.phase.fail(f"{self.identity}: {kind}{error}")
        self.get_logger().debug(traceback.format_exc())
        self.go_safe(self.phase.problem)
        if "summary" in self.topics.outlets and not self.shutdown.reported:
            with suppress(Exception):  # the stage may be faulty
                self.shutdown.publish(0, {})
        if self.diagnostics is not None:
            with suppress(Exception):  # the stage may be faulty
                self.diagnostics.publish()
        self.phase.to(Phase.GONE)

    def refuse(self, reason: str) -> None:
        self.phase.blame(ExitCode.REFUSED, reason)
        self.handshake.publish()
        self.phase.to(Phase.GONE)

    def trip(self, reason: str, sample: int = 0, effective: int = 0) -> None:
        """Request a trip from the actuator node. ``sample`` is the sample of a breach, or 0.

        In lockstep, a nonzero ``effective`` is the sample at which the trip takes effect. Other trips act at once.
        """
        if "trip" in self.topics.outlets:
            effective = effective if self.settings.lockstep else 0
            request = {"sample": sample, "effective_sample": effective}
            self.topics.publish("trip", request | {"source": self.identity, "reason": reason})

    def stop(self, reason: str) -> None:
        self.go_safe(reason)

    def go_safe(self, reason: str) -> None:
        """Request a trip because this node cannot continue. The actuator node adds this node's name."""
        self.trip(reason.removeprefix(f"{self.identity}: "))


def warm_up_of(node: RthsNode, twin_of: Callable[[Assembly], Callable[[Codec], object]], external: bool) -> WarmUp:
    """Return the warm-up of the stage. It is disabled in lockstep, without substeps, or if ``external``."""
    per_step = node.scenario.samples_per_step
    gains = not (external or node.settings.lockstep) and per_step > 1
    return WarmUp(node.shared, node.measurements, twin_of(node.assembly) if gains else None, per_step)


def _refused(node: RthsNode, transition: str) -> TransitionCallbackReturn:
    message = f"{transition}: refused while a test is under way. Call {names.ACTUATOR}/stop to end the test"
    node.get_logger().error(message)
    return TransitionCallbackReturn.FAILURE


def diagnostics_of(
    name: str, hardware: str, level: bytes, message: str, values: Mapping[str, object], stamp: int
) -> DiagnosticArray:
    pairs = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
    status = DiagnosticStatus(name=name, hardware_id=hardware, level=level, message=message, values=pairs)
    diagnostics = DiagnosticArray(status=[status])
    diagnostics.header.stamp.sec, diagnostics.header.stamp.nanosec = stamp_of(stamp)
    return diagnostics


class Diagnostics:
    """Publishes the diagnostics of a configured node once per second."""

    def __init__(self, node: RthsNode) -> None:
        location = node.location
        self._node, self._clock = node, node.clock
        self._publish = node.topics.outlets["diagnostics"].publisher.publish
        self._due = 0
        self._counted = node.counters()
        self._seen = dict.fromkeys(node.clocks, 0)
        self._name, self._hardware = location.full_names([location.peer])[0].lstrip("/"), location.rig.strip("/")
        facts = {"scenario": node.scenario.name, "run_id": node.settings.value("run_id")}
        self._facts = {"role": location.role, **facts, "rig": rig_kind(node.scenario)}

    def publish_if_due(self) -> bool:
        """Publish the diagnostics if the period has elapsed. Return True if published. Call only in the slack."""
        now = self._clock.monotonic_ns()
        if now < self._due:
            return False
        self._due = now + PERIOD_NS
        self.publish()
        return True

    def publish(self) -> None:
        node, phase, counters = self._node, self._node.phase, self._node.counters()
        grown = [f"{n} {name}" for name, count in counters.items() if (n := count - self._counted[name]) > 0]
        self._counted = counters
        values: dict[str, object] = {"state": phase.test.state.name, "sample": node.last_sample}
        values["inputs"] = node.topics.lines.way
        values |= counters | {name: f"{value:.6g}" for name, value in node.inner_numbers().items()}
        for name, durations in node.clocks.items():
            values |= self._times(name, durations)
        if phase.exit_code not in (ExitCode.FINISHED, ExitCode.HELD) or phase.test.state == State.TRIPPED:
            level, message = DiagnosticStatus.ERROR, phase.problem or phase.test.reason or "failed"
        elif grown:
            level, message = DiagnosticStatus.WARN, ", ".join(grown)
        else:
            level, message = DiagnosticStatus.OK, phase.test.state.name.lower()
        now = self._clock.time_ns()
        self._publish(diagnostics_of(self._name, self._hardware, level, message, self._facts | values, now))

    def _times(self, name: str, durations: Durations) -> dict[str, str]:
        recent = 1e6 * durations.since(self._seen[name])
        self._seen[name] = len(durations)
        middle = len(recent) // 2  # the first call of numpy.median imports a module: 30 ms
        median, largest = (np.partition(recent, middle)[middle], recent.max()) if middle else (np.nan, np.nan)
        return {f"{name}_median_us": f"{median:.1f}", f"{name}_max_us": f"{largest:.1f}"}
