"""The common shell of all nodes: lifecycle, parameters, endpoints, handshake, the one place of catching.

A node is a stage (``stages.py``) with a shell around it: take the messages, pair them by number, call the
stage, publish. Messages of the loop and of the handshake are taken by hand, as bytes, never by an executor;
parameters, lifecycle and other services are served in the slack (``serving.py``).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter

from rths_nodes.core import yaml_text
from rths_nodes.core.durations import Durations
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.flat_names import flatten
from rths_nodes.core.strict import as_data
from rths_nodes.core.version import __version__
from rths_nodes.core.wire.plain import decode, encode
from rths_nodes.loop.faults import kinds as faulty
from rths_nodes.loop.faults.kinds import STREAMS
from rths_nodes.loop.options import PACES, RELIABILITIES
from rths_nodes.loop.realtime import Starving
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import ENDED, State
from rths_nodes.loop.timing import of_hop
from rths_nodes.ros import names
from rths_nodes.ros.nodes import fault_injection, parameters
from rths_nodes.ros.nodes.diagnostics import Diagnostics
from rths_nodes.ros.transport import peers, serialization
from rths_nodes.ros.transport.endpoints import ByHand, Inbox, Outlet, message_class, open_inbox, quality

STATUS_PERIOD_NS = 2_000_000
"""Between two looks at the handshake topics while nothing else is to be done."""

PROGRESS_SAMPLES = 64
"""Between two words on progress in lockstep: well within the window in which the actuator may run ahead."""

BURST = 32
"""Messages that are sent together when only the recorder wants them."""

PATIENCE_NS = 500_000_000
"""An interrupted node waits this long, from the last Measurement on, to hear that the test has ended."""

SAME_REQUEST_NS = 1_000_000_000
"""Signals within this time are one request: Ctrl-C reaches a node from the terminal and from launch."""

COMPLAINT_NS = 3_000_000_000
"""Between two words about peers that a node has not found."""

TWIN_NS = 2_000_000_000
"""So long two nodes of one name are put up with before the test: those of the last one may still be leaving."""

DESERTED_NS = 1_000_000_000
"""So long after the actuator node has left its last words may still come."""

FLUSH_S = 0.5
"""Time for what was sent to arrive, before its publishers go."""


class NodeRefused(ConfigError):
    """A node that could not be configured; the message is for people."""


class RthsNode(LifecycleNode):
    """Base of all nodes. Subclasses set ``role`` and ``sections`` and implement ``build`` and ``work``.

    ``build(scenario)`` makes the stage, or raises ConfigError; ``work(limit)`` does what there is to do, at
    most ``limit`` samples of it, and tells whether it did anything; it sets ``done`` when the test is over.
    """

    role: str
    sections: tuple[str, ...] = ()
    """Sections of the scenario that this node owns, dotted where they are parts: ``axes.story_1``."""
    reads: tuple[str, ...] = ()
    """Sections of another node that the stage needs, too: they must be the same there."""

    def __init__(self, context: Any = None, values: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        overrides = [Parameter(name, value=value) for name, value in (values or {}).items()]
        super().__init__(
            self.role, context=context, namespace=names.NAMESPACE, parameter_overrides=overrides, **kwargs
        )
        self._group = ByHand()
        self.done = False
        self.exit_code = 0
        self.problem = self.note = ""
        self.active = False
        self.own_process = False
        """True when the process has no other node."""
        self.prepare: Callable[[], None] = lambda: None
        """Called when all peers are found, before the node says that it is ready."""
        self.died = False
        self.frozen_until = 0
        """By a fault; ns of the monotonic clock."""
        self.interrupted = self.left_alone = False
        self.summary: dict[str, float] = {}
        self.sent: dict[str, int] = {}
        self._counted: dict[str, int] = {}
        self._lockstep = True
        self.malformed = 0
        self._diagnostics: Diagnostics | None = None
        self._answered_at = 0
        self._expected = self._rehearsed = 0
        """Numbers of the Measurement that comes next, and of the last one that was rehearsed."""
        self._rehearsal: Callable[[Any], Any] | None = None
        self._to_record: tuple[str, Callable[..., bytes], Callable[[], tuple[Any, ...]]] | None = None
        self._burst: list[tuple[str, Callable[..., bytes], tuple[Any, ...]]] = []
        self.test: dict[str, Any] = {}
        self._ready_told = False
        self._next_look = self._next_beat = self._next_complaint = self._led_until = 0
        self._interrupted_at = self._patient_from = self._hurried_at = 0
        self.inboxes: dict[str, Inbox] = {}
        self.outlets: dict[str, Outlet] = {}
        self._handing: list[Outlet] = []
        """Those whose messages go to nodes of this process by hand."""
        self._rows: dict[str, names.Topic] = {}
        self._listeners: dict[str, set[str]] = {}
        self._doors: dict[str, peers.PublisherGuard] = {}
        self._opened: list[Inbox] = []
        """The inboxes as they were opened; a fault may stand before one of ``inboxes``."""
        self._awaited: set[str] = set()
        self._twin_since = 0
        self.out_of_step = False
        """True when a message of the loop is missing: nothing is made of what follows."""

    @property
    def identity(self) -> str:
        """The name of this node among the peers."""
        return self.role

    @property
    def rig_namespace(self) -> str:
        """The namespace of the rig."""
        return str(self.get_namespace()).rstrip("/")

    # -- configuration ------------------------------------------------------------------------------------

    def build(self, assembly: Assembly) -> None:
        """Make the stage of this node."""
        raise TypeError(f"{type(self).__name__} has no stage")

    def work(self, limit: int = 1_000_000) -> bool:
        """Do what there is to do; True when there was something."""
        raise TypeError(f"{type(self).__name__} does no work")

    @property
    def heavy(self) -> bool:
        """True when the next sample takes this node much longer than most do."""
        return False

    def rehearse_with(self, rehearsal: Callable[[Assembly], Callable[[Any], Any]]) -> None:
        """Rehearse integration steps (``rehearsal.py``) in real time, where not every sample begins one."""
        gains = not self._lockstep and self.scenario.samples_per_step > 1
        self._rehearsal, self._rehearsed = None, 0
        try:
            self._rehearsal = rehearsal(self.assembly) if gains else None
        except ConfigError as error:  # there is no second one of a component outside of this process
            self.note = f"{self.identity}: no rehearsals: {error}"

    @property
    def rehearsal_due(self) -> bool:
        """True when the next sample begins an integration step, which this node has not rehearsed yet."""
        if self._rehearsal is None or self._expected % self.scenario.samples_per_step:
            return False
        return self._expected > self._rehearsed

    def rehearse(self) -> bool:
        """Prepare for that sample. A component that cannot do it is not asked again."""
        assert self._rehearsal is not None
        self._rehearsed = self._expected
        try:
            self._rehearsal(self.codec)
        except Starving:
            raise
        except Exception as error:  # it serves the speed only: no reason to stop a rig
            self._rehearsal = None
            self.note = f"{self.identity}: no rehearsals: {type(error).__name__}: {error}"
        return True

    def start(self) -> None:
        """Configure and activate, as ``autostart`` does. Raises NodeRefused."""
        for transition in (self.trigger_configure, self.trigger_activate):
            if transition() != TransitionCallbackReturn.SUCCESS:
                raise NodeRefused(self.problem)

    @property
    def autostart(self) -> bool:
        """True unless the parameter says that somebody else walks the node through its lifecycle."""
        return bool(parameters.given(self).get("autostart", True))

    def try_to_start(self) -> None:
        """As ``start``, but a refusal only ends the node, with its reason in ``problem``."""
        try:
            self.start()
        except NodeRefused:
            self.done = True

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Check the scenario, build the stage, open the endpoints."""
        self.problem, self.exit_code = "", 0  # of an earlier attempt
        return self._guard(self._configure)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Take part."""
        self.active = True
        self._next_complaint = time.monotonic_ns() + COMPLAINT_NS
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop taking part; the actuator's rig goes safe."""
        self.active = False
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Close the endpoints; the node can be configured again."""
        self._close_endpoints()
        self._ready_told = False
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Leave; a test under way is stopped first, and heard to its end."""
        if self.under_way:
            self.stop(f"the {self.identity} node was shut down")
            self.interrupt()
        else:
            self.active = False
            self.done = True
        return TransitionCallbackReturn.SUCCESS

    def _guard(self, action: Callable[[], None]) -> TransitionCallbackReturn:
        """Run a transition; what it raises would vanish in rclpy, so it is caught and told here."""
        try:
            action()
        except ConfigError as error:
            self.problem, self.exit_code = str(error), 2
            if not self.autostart:  # otherwise who started the node tells it
                self.get_logger().error(self.problem)
            return TransitionCallbackReturn.FAILURE
        except Exception as error:
            self.surprise(error)
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS

    def _configure(self) -> None:
        given = parameters.given(self)
        values = {
            "scenario": ("", "name or path of the scenario"),
            "case": ("", "a variant that the scenario names"),
            "overrides": ([""], "section.key=value, as --set of rths run"),
            "run_id": ("", "what tells this run from others; the same for all nodes"),
            "pace": ("lockstep", "lockstep or realtime"),
            "peers": (list(names.NODES), "the nodes that take part"),
            "reliability": (
                "reliable",
                "of the loop's messages: reliable or best_effort; the same for all nodes",
            ),
            "autostart": (True, "configure and activate without being asked"),
            "faults": ([""], "put in on purpose, as --fault of rths run; the same for all nodes"),
        } | self.own_parameters()
        for name, (default, doc) in values.items():
            value = given.get(name, default)
            if type(value) is not type(default):
                raise ConfigError(f"{name} = {value!r}: must be {type(default).__name__}")
            parameters.declare(self, name, value, doc)
        self._check_choices()
        overrides = [entry for entry in self.value("overrides") if entry]
        if not self.value("scenario"):
            raise ConfigError(f"scenario: missing; known: {', '.join(files.shipped())}, or a path")
        loaded = files.load(self.value("scenario"), overrides, self.value("case"))
        self._check_scenario(loaded)
        self._lockstep = self.value("pace") == "lockstep"
        self.scenario = parameters.effective(self, loaded, self.sections)
        self.hash = self.scenario.shared_hash(self.value("run_id"))
        self._calm = round(self.scenario.dt * 1e9 / 4)
        self._beat_of = -1
        faults = self._checked_faults()
        self.assembly = Assembly(self.scenario)
        self.build(self.assembly)
        self._make_codec()
        self._open_endpoints()
        if faults:
            fault_injection.put_in(self, faults)
        self._open_diagnostics()
        self.tell_status()

    def own_parameters(self) -> dict[str, tuple[Any, str]]:
        """Further parameters of the node: default and meaning by name."""
        return {}

    def _check_scenario(self, loaded: Scenario) -> None:
        """Refuse, with ConfigError, a scenario in which this node has no part."""

    def _check_choices(self) -> None:
        for name, known in (("pace", PACES), ("reliability", RELIABILITIES)):
            if self.value(name) not in known:
                raise ConfigError(f"{name} = {self.value(name)!r}: must be one of {', '.join(known)}")
        for peer in self.value("peers"):
            if peer not in names.PEERS and not names.axis_of(peer):
                raise ConfigError(f"peers: unknown node {peer!r}; known: {', '.join(names.PEERS)}")

    def _checked_faults(self) -> list[Any]:
        faults = [faulty.parse(words) for words in self.value("faults") if words]
        host = "processes" if self.own_process else "composed"
        faulty.check(faults, self.scenario, host, self.value("pace"), names.RECORDER in self.peers)
        return faults

    def value(self, name: str) -> Any:
        """The value of a parameter."""
        return self.get_parameter(name).value

    @property
    def lockstep(self) -> bool:
        """True when the pace is lockstep."""
        return self._lockstep

    @property
    def peers(self) -> tuple[str, ...]:
        """All nodes that take part, this one included."""
        return tuple(self.value("peers"))

    def _make_codec(self) -> None:
        self.codec = self.assembly.codec()
        serialization.check(self.codec)

    def _open_endpoints(self) -> None:
        self.sent = {}
        for topic in names.published_by(self.role):
            listeners = self._partners(topic, publishing=True)
            self._publish_on(topic.name, topic, self.rig_topic(topic.name), listeners)
        for topic in names.heard_by(self.role):
            speakers = self._partners(topic, publishing=False)
            self._listen_to(topic.name, topic, self.rig_topic(topic.name), speakers)

    def _open_diagnostics(self) -> None:
        """All of it, and a first message: nothing is to be made for the first time while the rig moves."""
        topic = names.DIAGNOSTICS
        self._publish_on("diagnostics", topic, topic.name, ())
        facts = {"role": self.role, "scenario": self.scenario.name, "run_id": self.value("run_id")}
        publisher, rig = self.outlets["diagnostics"].publisher, self.rig_namespace.strip("/")
        self._diagnostics = Diagnostics(self, publisher, rig, facts)
        self._diagnostics.tell()

    def _partners(self, topic: names.Topic, publishing: bool) -> tuple[str, ...]:
        return self.full_names(names.partners(topic, self.role, self.peers, publishing))

    def full_names(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """The names of the peers ``nodes`` in the graph."""
        return tuple(f"{self.rig_namespace}/{node}" for node in nodes)

    def rig_topic(self, name: str) -> str:
        """Where a topic of the rig is, as this node names it."""
        return name

    def _publish_on(self, key: str, topic: names.Topic, name: str, listeners: Sequence[str]) -> None:
        """A publisher of the row ``topic`` on ``name``, which ``listeners`` must have found before the test."""
        qos = quality(topic, self._best_effort)
        self.outlets[key] = Outlet(self.create_publisher(message_class(topic.type), name, qos))
        self._rows[key], self._listeners[key], self.sent[key] = topic, set(listeners), 0

    def _listen_to(
        self, key: str, topic: names.Topic, name: str, speakers: Sequence[str], awaited: bool = True
    ) -> None:
        """An inbox of the row ``topic`` on ``name`` for the ``speakers``, ``awaited`` before the test or not."""
        inbox = open_inbox(self, topic, self._group, self._best_effort, name, speakers)
        self.inboxes[key], self._doors[key] = inbox, inbox.door
        self._opened.append(inbox)
        if awaited:
            self._awaited.add(key)

    @property
    def _best_effort(self) -> bool:
        return bool(self.value("reliability") == "best_effort")

    def _close_endpoints(self) -> None:
        self.publish_held()
        for outlet in self.outlets.values():
            self.destroy_publisher(outlet.publisher)
        for inbox in self._opened:
            inbox.by_hand = False
            self.destroy_subscription(inbox.subscription)
        self.outlets.clear()
        self._handing.clear()
        self._opened.clear()
        self._burst.clear()
        self._to_record = None
        self.inboxes.clear()
        self._diagnostics = None
        self._doors.clear()
        self._awaited.clear()

    # -- messages -----------------------------------------------------------------------------------------

    def send(self, topic: str, data: bytes) -> None:
        """Publish the bytes of a message, and count it: the recorder is told in the end how many there were."""
        self.outlets[topic].send(data)
        self.sent[topic] += 1

    def hand_to(self, others: Iterable[RthsNode]) -> None:
        """From now on hand what is sent on a stream to those of ``others``, in this process, who listen to it."""
        me = self.get_fully_qualified_name()
        listening = [inbox for other in others for inbox in other._opened if inbox.door.speakers == (me,)]
        self._handing.clear()
        for name, outlet in self.outlets.items():
            neighbours = [each for each in listening if each.door.topic == outlet.publisher.topic_name]
            if neighbours and self._rows[name].stream:
                outlet.hand_to(neighbours, holds=not self._lockstep)
                self._handing.append(outlet)

    @property
    def filled_by_hand(self) -> list[Inbox]:
        """The inboxes of what neighbours send."""
        return [inbox for inbox in self._opened if inbox.by_hand]

    def _drop_strangers(self) -> None:
        for inbox in self.filled_by_hand:
            inbox.drop()

    def publish_held(self) -> None:
        """Publish what only the neighbours have so far."""
        for outlet in self._handing:
            outlet.publish_held()

    def publish_for_record(
        self, topic: str, pack: Callable[..., bytes], sample: Callable[[], tuple[Any, ...]]
    ) -> None:
        """Pack and publish what only the recorder wants, in bursts: nobody in the loop waits for it.

        In lockstep a burst wakes the recorder once instead of thirty times. In real time the executor sends it as
        soon as the loop has its Command (``publish_in_slack``). Only then, or before it changes
        (``collect_for_record``), ``sample`` is asked for what is to be packed.
        """
        self.collect_for_record()
        if len(self._burst) >= BURST:
            self.publish_burst()
        self._to_record = (topic, pack, sample)

    def collect_for_record(self) -> None:
        """Keep what the recorder wants of the sample that is over."""
        if self._to_record is not None:
            topic, pack, sample = self._to_record
            self._to_record = None
            self._burst.append((topic, pack, sample()))

    def publish_in_slack(self) -> None:
        """Real time: what the recorder wants, now that the loop does not wait."""
        if not self._lockstep:
            self.publish_burst()

    def publish_burst(self) -> None:
        """Send what ``publish_for_record`` has kept back."""
        self.collect_for_record()
        for topic, pack, sample in self._burst:
            self.send(topic, pack(*sample))
        self._burst.clear()
        self.publish_held()

    def tell(self, topic: str, values: Mapping[str, Any]) -> None:
        """Publish a message at a low rate from plain values; ``stamp`` is now where it has one."""
        message = names.TOPICS[topic].message
        self.send(topic, encode(message, {"stamp": time.time_ns()} | dict(values)))

    def heard(self, topic: str) -> list[dict[str, Any]]:
        """All messages that wait in the inbox of ``topic``, as plain values."""
        found = []
        while (data := self.inboxes[topic].take()) is not None:
            try:
                found.append(decode(names.TOPICS[topic].message, data))
            except ValueError:
                self.malformed += 1
        return found

    def receive(self, topic: str, unpack: Callable[[bytes], tuple[Any, int]]) -> tuple[Any, int] | None:
        """The next well-formed sample of a stream and its stamp; malformed ones are dropped and counted."""
        inbox = self.inboxes[topic]
        while (data := inbox.take()) is not None:
            try:
                return unpack(data)
            except ValueError:
                self.malformed += 1
        return None

    def next_measurement(self, expected: int) -> tuple[Any, int] | None:
        """Measurement ``expected`` and its stamp; older ones are dropped. A gap trips, nothing comes after it."""
        while (found := self.receive("measurement", self.codec.unpack_measurement)) is not None:
            sample = found[0].sample
            if sample == expected and not self.out_of_step:
                self.be_patient()
                return found
            if sample > expected:
                self.lose(f"Measurement {sample} came where {expected} was expected")
        return None

    def beat(self, sample: int) -> None:
        """Tell now and then how far this node is: the rig waits for it, or, in real time, for a sign of life."""
        now = time.monotonic_ns()
        if sample - self._beat_of < PROGRESS_SAMPLES if self._lockstep else now < self._next_beat:
            return
        self._beat_of, self._next_beat = sample, now + round(self.scenario.heartbeat.period * 1e9)
        self.tell("progress", {"node": self.role, "sample": max(sample, 0)})

    def lose(self, reason: str) -> None:
        """A message of the loop is missing, or makes no sense: the rig trips, this node stays to the end."""
        if not self.out_of_step:
            self.out_of_step = True
            self.trip(reason)

    def trip(self, reason: str) -> None:
        """Ask the actuator to trip."""
        if "trip" in self.outlets:
            self.tell("trip", {"source": self.identity, "reason": reason})

    # -- handshake ----------------------------------------------------------------------------------------

    def waits_for(self) -> str:
        """Whom of the peers this node has not found yet, and on which topic; empty: all. Others do not count."""
        for name, outlet in self.outlets.items():
            if outlet.publisher.get_subscription_count() < len(self._listeners[name]):
                return self._missing(outlet.publisher.topic_name, self._listeners[name] - self._found_by(name))
        doors = [self._doors[name] for name in self._awaited]
        for door in doors:
            if door.subscription.get_publisher_count() < len(door.speakers):
                door.look()
                return self._missing(door.topic, door.missing, door.nameless)
        for door in self._doors.values():
            door.look()
        for door in doors:
            if missing := door.missing:
                return self._missing(door.topic, missing, door.nameless)
        for name, outlet in self.outlets.items():
            if absent := self._listeners[name] - self._found_by(name):
                return self._missing(outlet.publisher.topic_name, absent)
        return ""

    def _found_by(self, name: str) -> set[str]:
        return peers.subscribers(self, self.outlets[name].publisher.topic_name)

    def _missing(self, topic: str, absent: Iterable[str], nameless: int = 0) -> str:
        there = f" ({nameless} there without a name)" if nameless else ""
        return f"{', '.join(sorted(absent)) or 'the middleware'} on {topic}{there}"

    def close_doors(self) -> None:
        """The test begins: from now on nobody else is listened to."""
        for door in self._doors.values():
            if door.complete:
                door.close()

    def _get_ready(self) -> None:
        if not self.alone():
            return
        if missing := self.waits_for():
            if time.monotonic_ns() > self._next_complaint:
                self._next_complaint = time.monotonic_ns() + COMPLAINT_NS
                self.get_logger().info(f"waits for {missing}")
                self.tell_status(f"waits for {missing}")
            return
        self.prepare()
        self._ready_told = True
        self.tell_status()

    def alone(self) -> bool:
        """True when no peer is there twice; a node that finds one twice for long refuses to take part."""
        topic = self.outlets["node_status"].publisher.topic_name
        twin = peers.twins(self, topic, self.full_names(self.peers))
        now = time.monotonic_ns()
        self._twin_since = (self._twin_since or now) if twin else 0
        if twin and now - self._twin_since > TWIN_NS:
            self.refuse(f"{twin}; every rig needs a namespace, or a ROS_DOMAIN_ID, of its own")
        return not twin

    def refuse(self, reason: str) -> None:
        """Take no part in a test that must not begin."""
        self.problem, self.exit_code = reason, 2
        self.tell_status()
        self.done = True

    def _look_at_others(self) -> None:
        """Whose messages were kept or dropped; where no gids are told, a foreign publisher ends the test."""
        for door in self._doors.values():
            if door.unnamed or door.keeps:
                door.look()
            if self.under_way and (intruders := door.intruders()):
                self.lose(f"foreign publisher on {door.topic}: {', '.join(intruders)}")

    def _look_for_the_lead(self, now: int) -> None:
        """The actuator node may leave without a word that arrives: nobody is waited for then."""
        door = self._doors.get("test_state")
        if door is None or not self.under_way:
            self._led_until = 0
        elif door.subscription.get_publisher_count():
            self._led_until = now
        elif self._led_until and now - self._led_until > DESERTED_NS and not self.left_alone:
            self.left_alone = True
            self.problem, self.exit_code = "the actuator node has left in the middle of the test", 1

    def tell_status(self, problem: str = "") -> None:
        """Publish NodeStatus: who we are, with what, and whether we are ready, or why not."""
        sections = {name: parameters.section(self.scenario, name) for name in (*self.sections, *self.reads)}
        self.tell(
            "node_status",
            {
                "node": self.identity,
                "ready": self._ready_told,
                "problem": problem or self.problem,
                "scenario_hash": self.hash,
                "parameters": yaml_text.dump({name: as_data(section) for name, section in sections.items()}),
                "state_names": self.state_names(),
                "version": __version__,
            },
        )

    def state_names(self) -> Sequence[str]:
        """Names of what the node publishes in an unnamed array."""
        return ()

    def look(self) -> None:
        """The handshake, at most every ``STATUS_PERIOD_NS``: get ready, hear where the test stands."""
        if not self.participates:
            self.done = self.done or self.patience_over
            return
        now = time.monotonic_ns()
        if now < self._next_look:
            return
        self._next_look = now + STATUS_PERIOD_NS
        if not self._ready_told:
            self._get_ready()
        self.hear_state()
        self.publish_held()
        for outlet in self._handing:
            outlet.look()
        self._drop_strangers()
        self._look_at_others()
        self._look_for_the_lead(now)

    def hear_state(self) -> None:
        """Where the test stands."""
        if "test_state" in self.inboxes:
            for state in self.heard("test_state"):
                self.test = state
                if self.test["state"] == State.IDLE and self.test["reason"]:
                    self.exit_code, self.done = 2, True
                if self.test["state"] == State.ARMED:
                    self.close_doors()

    @property
    def deadline(self) -> int | None:
        """When there is something to do even if no message comes, ns of the monotonic clock; None: never."""
        return None

    @property
    def rests(self) -> bool:
        """True while no message of the loop wants an answer of this node."""
        return False

    @property
    def awaits_answer(self) -> bool:
        """True while another node of the loop works on what this one needs to go on in this sample."""
        return False

    @property
    def awaited_streams(self) -> Sequence[str]:
        """The inboxes whose messages give the node something to do, where it waits in a process of its own."""
        return STREAMS

    @property
    def participates(self) -> bool:
        """True while the node has work to do."""
        return self.active

    @property
    def works(self) -> bool:
        """True when the node is to be given its turn."""
        if self.done or not self.participates:
            return False
        return not self.frozen_until or time.monotonic_ns() >= self.frozen_until

    @property
    def ended(self) -> bool:
        """True when the authority has said that the test is over."""
        return bool(self.test) and self.test["state"] in ENDED

    @property
    def under_way(self) -> bool:
        """True while the rig may move."""
        return bool(self.test) and self.test["state"] in (State.ARMED, State.RUNNING, State.STOPPING)

    @property
    def abandoned(self) -> bool:
        """True when the test is over, or was given up, and the actuator node has left."""
        if self.left_alone:
            return True
        if not (self.ended or self.interrupted):
            return False
        return self._doors["test_state"].gone

    def leave(self) -> None:
        """Be done once the test is over and everybody has heard what we had to say."""
        if self.abandoned or self.hurried or (self.patience_over and not self.ended):
            if not self.spoken:
                self.last_words()
            self.hear_state()  # a finished test may have become a tripped one in the end
            self.done = True

    # -- diagnostics --------------------------------------------------------------------------------------

    def diagnose(self) -> bool:
        """Publish the diagnostics when a second is over; whether it was. Only in the slack of the loop."""
        return self._diagnostics is not None and self._diagnostics.tell_if_due()

    @property
    def unhurried(self) -> bool:
        """True when the loop needs nothing of this node now, nor, as far as it knows, for most of a sample."""
        if self._lockstep or self.role not in (*names.LOOP, names.AXIS) or not self.under_way:
            return True
        return time.monotonic_ns() - self._answered_at < self._calm

    @property
    def state_of_test(self) -> State:
        """Where the test stands, as far as this node knows."""
        return State(self.test["state"]) if self.test else State.IDLE

    @property
    def reason(self) -> str:
        """Why the test stands there; empty when it is plain."""
        return str(self.test.get("reason", ""))

    @property
    def last_sample(self) -> int:
        """The last sample that this node has worked in; -1 before the first."""
        return -1

    def counters(self) -> dict[str, int]:
        """How often happened what should not, since the node was configured."""
        return {"malformed": self.malformed}

    def clocks(self) -> dict[str, Durations]:
        """What the node times."""
        return {}

    # -- end ----------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """A signal asks to stop: the actuator stops the test in order, the others wait for that, but not long."""
        now = time.monotonic_ns()
        again = self.interrupted
        if again and now - self._interrupted_at < SAME_REQUEST_NS:
            return
        if again or self.ended:  # somebody will not come any more
            self._hurried_at = self._hurried_at or now
        self.interrupted = True
        self._interrupted_at = self._patient_from = now

    @property
    def hurried(self) -> bool:
        """True when the node was asked again, or after the end of the test, to stop."""
        return bool(self._hurried_at)

    def be_patient(self) -> None:
        """The rig still speaks: the end of the test is worth waiting for."""
        if self.interrupted:
            self._patient_from = time.monotonic_ns()

    @property
    def patience_over(self) -> bool:
        """True when an interrupted node has waited long enough for the end of the test."""
        return self.interrupted and time.monotonic_ns() - self._patient_from > PATIENCE_NS

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        """The last sample that was worked in, and the numbers of the Summary."""
        return 0, {}

    def hop_of(self, durations: Durations) -> dict[str, Any]:
        """What the Summary of a node in the loop tells of its work, below ``timing``."""
        return {"hops": {self.role: of_hop(durations)}}

    def last_words(self) -> None:
        """Tell the final numbers."""
        self.tell_summary(*self.final_numbers())

    @property
    def spoken(self) -> bool:
        """True when the last words are said and nothing was sent since."""
        return bool(self.summary) and self._counted == self._stream_counts()

    def _stream_counts(self) -> dict[str, int]:
        return {name: count for name, count in self.sent.items() if self._rows[name].stream}

    def tell_summary(self, sample: int, values: Mapping[str, float]) -> None:
        """Publish and keep the final numbers of this node, and how many messages of each stream it has sent."""
        self.publish_burst()
        self._counted = self._stream_counts()
        self.summary = dict(values) | flatten(self._counted, "sent") | self._dropped()
        numbers = [float(value) for value in self.summary.values()]
        self.tell(
            "summary",
            {"node": self.identity, "sample": max(sample, 0), "names": list(self.summary), "values": numbers},
        )
        if self._diagnostics is not None:
            self._diagnostics.tell()

    def _dropped(self) -> dict[str, float]:
        """How many messages of others, and how many that made no sense, were dropped."""
        found: dict[str, float] = {}
        self._drop_strangers()
        for topic, door in self._doors.items():
            if door.unnamed:
                door.look()
            for node, count in door.foreign().items():
                found[f"foreign.{self.identity}.{topic}.{node}"] = count
        return found | ({f"malformed.{self.identity}": self.malformed} if self.malformed else {})

    def flush_publishers(self) -> None:
        """Give what was sent time to arrive before the node leaves."""
        self.publish_held()
        end = time.monotonic() + FLUSH_S
        for outlet in self.outlets.values():
            outlet.publisher.wait_for_all_acked(Duration(seconds=max(0.0, end - time.monotonic())))

    def safely(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """The one place where a surprise of the loop is caught: tell why, make the rig safe, end non-zero."""
        try:
            return action(*arguments)
        except Exception as error:
            self.surprise(error)
            return False

    def surprise(self, error: Exception) -> None:
        """End this node, and the test, because of an error that nobody has provided for."""
        self.problem = f"{self.identity}: {type(error).__name__}: {error}"
        self.exit_code = self.exit_code or 1
        self.get_logger().debug(traceback.format_exc())
        self.go_safe(self.problem)
        if "summary" in self.outlets and not self.spoken:
            with suppress(Exception):  # the stage may be broken: only the counts
                self.tell_summary(0, {})
        if self._diagnostics is not None:
            with suppress(Exception):  # as above
                self._diagnostics.tell()
        self.done = True

    def stop(self, reason: str) -> None:
        """Stop a test under way because this node leaves it."""
        self.go_safe(reason)

    def go_safe(self, reason: str) -> None:
        """Ask the actuator to trip: this node cannot go on."""
        self.trip(reason)
