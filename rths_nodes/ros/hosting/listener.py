# SPDX-License-Identifier: Apache-2.0
"""Nodes of the page and the watcher: listeners, and a client that stops a rig.

Listeners are not peers of a test. All their methods are thread-safe and return plain data.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.qos import HistoryPolicy
from rclpy.task import Future
from std_srvs.srv import Trigger

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.yaml_text import parse
from rths_nodes.loop.indices.live_columns import PER_CURVE
from rths_nodes.loop.supervision.states import ENDED, State
from rths_nodes.msg import Live, LiveCurves, Measurement, NodeStatus, SyncStatus, TestState, Trip
from rths_nodes.ros import names
from rths_nodes.ros.transport.endpoints import message_class, quality
from rths_nodes.ros.transport.line import stop_executive
from rths_nodes.ros.transport.middleware import ThreadedNode

PROCEDURE_STATE, RIG_STATE = "procedure_state", "rig_state"
KEPT = 1000
MOST_COLUMNS = 60_000
"""Maximum number of stored columns, which cover ten minutes at 10 ms per column."""
AT_ONCE = 400
MOST_EVENTS = 200
TURN_S = 0.05
BYTES_OF_CURVE = 4 * PER_CURVE
OF_RIG = ("displacement", "force", "command")
OF_STATE = ("reason", "sample", "samples", "scenario", "run_id")
OVER = {"run": ENDED, "procedure": (State.FINISHED,)}
RIG_OF = {names.ACTUATOR: "run", names.OPERATOR: "procedure"}
"""Nodes that report whether their rig is real, emulated or simulated, with their keys in ``rig_kinds``."""


class RigListener(ThreadedNode):
    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace.strip("/")
        super().__init__(name, self.namespace, 1)
        self._lock = threading.Lock()
        self._told: Data = {}
        self._run, self._size = "", BYTES_OF_CURVE
        self._columns: deque[tuple[int, int, bytes]] = deque()
        """First sample, samples per column, and columns (float32), for each message."""
        self._kept = self._gone = 0
        self._events: deque[dict[str, object]] = deque(maxlen=MOST_EVENTS)
        self._seen = 0.0
        self._of_run: list[object] = []
        self._listen(names.TOPICS["live"], self._live)
        self._listen(names.TOPICS["live_curves"], self._curves)
        self._listen(names.OPERATOR_TOPICS["procedure_state"], partial(self._state, "procedure"))
        self._listen(names.OPERATOR_TOPICS["rig_state"], self._rig_state)
        self._listen(names.DIAGNOSTICS, self._diagnostics)

    def _join(self) -> None:
        self._leave()
        # the new subscriptions receive the latched messages again
        self._of_run = [
            self._listen(names.TOPICS[names.TEST_STATE], self._test_state),
            self._listen(names.TOPICS["node_status"], self._node_status),
            self._listen(names.TOPICS["sync_status"], self._sync_status),
            self._listen(names.TOPICS["trip"], self._trip),
        ]

    def _leave(self) -> None:
        """Unsubscribe from the topics of a run, so that the nodes of the next run match only each other."""
        for subscription in self._of_run:
            self._node.destroy_subscription(subscription)
        self._of_run = []

    def _listen(self, topic: names.Topic, receive: Callable[[object], None]) -> object:
        def locked(message: object) -> None:
            with self._lock:
                self._seen = time.monotonic()
                receive(message)

        every = quality(topic, history=HistoryPolicy.KEEP_ALL)  # KEEP_ALL: each node latches its own message
        return self._node.create_subscription(message_class(topic.type), topic.name, locked, every)

    def _take_turn(self) -> None:
        before = -1.0
        while before != self._seen:
            before = self._seen
            self._executor.spin_once(timeout_sec=0.0)
        self._leaving.wait(TURN_S)

    def since(self, number: int) -> tuple[dict[str, object], int, list[tuple[int, int, bytes]]]:
        """Return the status of a run, the ``number`` for the next call, and the columns from ``number`` on."""
        with self._lock:
            age = time.monotonic() - self._seen if self._seen else None
            situation = self._told | {"namespace": self.namespace, "age": age, "events": list(self._events)}
            end = self._gone + len(self._columns)
            first = number if self._gone <= number <= end else self._gone
            last = min(first + AT_ONCE, end)
            columns = islice(self._columns, first - self._gone, last - self._gone)
            return situation, last, list(columns)

    def note(self, status: Data) -> None:
        """Store an entry of ``status``: ``stop`` (result of a stop) or ``reaches`` (true if a stop would work)."""
        with self._lock:
            if "stop" in status:
                self._event("stop", status["stop"])
            else:
                self._told["stop_reaches"] = status["reaches"]

    def _event(self, kind: str, text: str, sample: int | None = None) -> None:
        self._events.append({"time": time.time(), "what": kind, "words": text, "sample": sample})

    def _live(self, message: Live) -> None:
        if message.run == self._run:
            values = message.values.tobytes()
            self._columns.append((message.first, message.column, values))
            self._kept += len(values) // self._size
            while self._kept > MOST_COLUMNS:
                self._kept -= len(self._columns.popleft()[2]) // self._size
                self._gone += 1

    def _curves(self, message: LiveCurves) -> None:
        self._run, self._size = message.run, BYTES_OF_CURVE * len(message.names)
        if self._run.startswith(names.MOTION):
            self._leave()
        else:
            self._join()
        self._gone += len(self._columns) + 1
        self._columns.clear()
        self._kept = 0
        bounds = _numbers(message.low), _numbers(message.high)
        limits = zip(message.limited, message.limits, *bounds, strict=True)
        self._told["curves"] = {
            "run": self._run,
            "servo_rate": _numbers([message.servo_rate])[0],
            "names": list(message.names),
            "units": list(message.units),
            "limits": [dict(zip(("curve", "name", "low", "high"), limit, strict=True)) for limit in limits],
        }

    def _test_state(self, message: TestState) -> None:
        if message.run != self._run:
            return
        self._state("run", message)
        if message.state in ENDED:
            self._leave()

    def _state(self, kind: str, message: TestState) -> None:
        state = State(message.state).name
        before = self._told.get(kind, {})
        self._told[kind] = {
            "state": state,
            "over": message.state in OVER[kind],
            **{name: getattr(message, name) for name in OF_STATE},
            "servo_rate": _numbers([message.servo_rate])[0],
            "hash": message.scenario_hash,
            "axes": list(message.axis_names),
            "heard": time.time(),
        }
        if (before.get("state"), before.get("reason")) != (state, message.reason):
            self._event(kind, f"{state}{f': {message.reason}' if message.reason else ''}", message.sample)

    def _node_status(self, message: NodeStatus) -> None:
        if message.node == names.ACTUATOR and message.parameters:
            sections = parse(message.parameters, "node_status")
            port = sections.get("port") if isinstance(sections, Mapping) else None
            if isinstance(port, Mapping):
                self._told["port"] = str(port.get("type", ""))

    def _sync_status(self, message: SyncStatus) -> None:
        self._told["sync"] = {
            "sample": message.sample,
            "control_error": _numbers(message.control_error),
            "max_control_error": _numbers(message.max_control_error),
            "energy_error_percent": _numbers([message.energy_error_percent])[0],
        }

    def _trip(self, message: Trip) -> None:
        self._event("trip", f"{message.source}: {message.reason}", message.sample)

    def _rig_state(self, message: Measurement) -> None:
        self._told["rig"] = {name: _numbers(getattr(message, name)) for name in OF_RIG}

    def _diagnostics(self, message: DiagnosticArray) -> None:
        nodes = self._told.setdefault("nodes", {})
        for status in message.status:
            rig, _, node = status.name.rpartition("/")
            if rig.strip("/") == self.namespace:
                values = {entry.key: entry.value for entry in status.values}
                if node in RIG_OF and "rig" in values:
                    self._told.setdefault("rig_kinds", {})[RIG_OF[node]] = values["rig"]
                nodes[node] = {"level": ord(status.level), "words": status.message, "values": values}


def _numbers(values: Iterable[float]) -> list[float | None]:  # JSON has no NaN, and browsers refuse it
    return [value if math.isfinite(value) else None for value in values]


class WatchListener(ThreadedNode):
    """Receives states of procedure and rig. ``messages`` holds tuples (monotonic time in s, topic, message)."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(name, namespace.strip("/"), 1)
        self.messages: deque[tuple[float, str, Any]] = deque(maxlen=KEPT)
        # best effort, because late messages are useless
        rig_state = replace(names.OPERATOR_TOPICS[RIG_STATE], best_effort=True)
        for row in (names.OPERATOR_TOPICS[PROCEDURE_STATE], rig_state):
            keep = partial(self._keep, row.name)
            self._node.create_subscription(message_class(row.type), row.name, keep, quality(row))

    def _keep(self, topic: str, message: object) -> None:
        self.messages.append((time.monotonic(), topic, message))


STOP_S = 2.0
LOOK_S = 5e-3
THREADS = 2


class StopClient(ThreadedNode):
    """Stops a rig. It has no subscriptions, because they could delay a stop."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(name, namespace.strip("/"), THREADS)
        self._namespace = namespace
        group = ReentrantCallbackGroup()
        services = {kind: f"{names.ACTUATOR}/{kind}" for kind in names.STOPS}
        services[names.OPERATOR] = f"{names.OPERATOR}/{names.PAGE_STOP}"
        self._clients = {
            kind: self._node.create_client(Trigger, service, callback_group=group)
            for kind, service in services.items()
        }

    def reaches(self) -> bool:
        return any(client.service_is_ready() for client in self._clients.values())

    async def stop(self, kind: str) -> str:
        """Stop a run (``kind``: one of ``STOPS``) and any motion of a procedure. Return the first confirmation.

        Raises ConfigError if there is no executive and no node confirms within ``STOP_S``. The rig may then still
        move.
        """
        brakes = stop_executive(self._namespace, kind)
        waiting = [self._clients[kind], self._clients[names.OPERATOR]]
        loop, answers = asyncio.get_running_loop(), asyncio.Queue["Future"]()

        def put(future: Future) -> None:
            with suppress(RuntimeError):  # the event loop is closed: no caller waits
                loop.call_soon_threadsafe(answers.put_nowait, future)

        asked, refused, end = 0, list[str](), loop.time() + STOP_S
        while loop.time() < end and (waiting or len(refused) < asked):
            for client in [waiting_client for waiting_client in waiting if waiting_client.service_is_ready()]:
                waiting.remove(client)
                client.call_async(Trigger.Request()).add_done_callback(put)
                asked += 1
            try:
                answered = await asyncio.wait_for(answers.get(), LOOK_S if waiting else end - loop.time())
            except TimeoutError:
                continue
            answer = answered.result()
            if answer.success:
                return str(answer.message or "stopped")
            refused.append(str(answer.message or "refused"))
        if brakes:
            return "the executive brakes the rig, but the nodes have not answered"
        nobody = "no answer" if asked else "no node that can stop the rig is running"
        raise ConfigError("; ".join(refused) or nobody)
