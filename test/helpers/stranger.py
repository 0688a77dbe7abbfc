# SPDX-License-Identifier: Apache-2.0
"""A program of no test, in a process of its own, that calls services of the nodes in /rths.

It reads a JSON list of lifecycle requests per line, ``[node, transition id, label]``, one per node, and prints the
list of ``[success, state of the node afterwards]``; the line ``"NODE/stop"`` calls that service. With the words
``flood REQUESTS`` it sends so many requests to services that read, and leaves without waiting for answers. The
words ``trip DURABILITY TIMES`` make it publish trip requests by that many new publishers, each at once if it is
latched and when it is matched if not, and keep the publishers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FOUND_S, ANSWERED_S, TRIES = 30.0, 2.0, 5


class Stranger:
    """The program, as its starter sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def change(self, *requests: tuple[str, int, str]) -> list[tuple[bool, str]]:
        """Send lifecycle requests at the same time; success of each, and the state of its node afterwards."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(requests), file=self._process.stdin, flush=True)
        return [(bool(success), str(state)) for success, state in json.loads(self._process.stdout.readline())]

    def stop(self, node: str = "actuator") -> bool:
        """Call ``NODE/stop``; its success."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(f"{node}/stop"), file=self._process.stdin, flush=True)
        return bool(json.loads(self._process.stdout.readline()))

    def go(self) -> None:
        """Send an empty line."""
        assert self._process.stdin
        print(file=self._process.stdin, flush=True)

    def ready(self) -> None:
        """Wait until the program prints a line."""
        assert self._process.stdout
        assert self._process.stdout.readline()

    def wait(self) -> None:
        """Wait until the program has ended by itself."""
        assert self._process.wait(60.0) == 0


@contextmanager
def stranger(*words: str) -> Iterator[Stranger]:
    """The program with these ``words``, while inside."""
    command = [sys.executable, __file__, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Stranger(process)
        finally:
            process.kill()


class Caller:
    """Calls services in a context of its own."""

    def __init__(self) -> None:
        import rclpy
        from rclpy.context import Context
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.node import Node

        self._context = Context()
        rclpy.init(context=self._context)
        self.node = Node("stranger", context=self._context, start_parameter_services=False)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._clients: dict[str, Any] = {}

    def client(self, kind: Any, name: str) -> Any:
        """Client of a service that is there; the middleware has found it."""
        if name not in self._clients:
            self._clients[name] = self.node.create_client(kind, name)
            assert self._clients[name].wait_for_service(timeout_sec=FOUND_S), name
        return self._clients[name]

    def ask(self, kind: Any, requests: dict[str, Any]) -> dict[str, Any]:
        """Answers by service name; a lost answer is asked for again, a missing one is None."""
        answers: dict[str, Any] = dict.fromkeys(requests)
        for _ in range(TRIES):
            waiting = {
                name: self.client(kind, name).call_async(request)
                for name, request in requests.items()
                if answers[name] is None
            }
            end = time.monotonic() + ANSWERED_S
            while time.monotonic() < end and not all(each.done() for each in waiting.values()):
                self._executor.spin_once(timeout_sec=0.05)
            answers |= {name: each.result() for name, each in waiting.items() if each.done()}
        return answers


def _transitions() -> None:
    from lifecycle_msgs.msg import Transition
    from lifecycle_msgs.srv import ChangeState, GetState
    from std_srvs.srv import Trigger

    caller = Caller()
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, str):
            (answer,) = caller.ask(Trigger, {f"/rths/{asked}": Trigger.Request()}).values()
            print(json.dumps(bool(answer and answer.success)), flush=True)
            continue
        changes = {
            f"/rths/{node}/change_state": ChangeState.Request(transition=Transition(id=number, label=label))
            for node, number, label in asked
        }
        done = caller.ask(ChangeState, changes).values()
        states = caller.ask(
            GetState, {f"/rths/{node}/get_state": GetState.Request() for node, *_ in asked}
        ).values()
        told = [
            (bool(change and change.success), state.current_state.label if state else "")
            for change, state in zip(done, states, strict=True)
        ]
        print(json.dumps(told), flush=True)


def _flood(requests: int) -> None:
    from rcl_interfaces.srv import DescribeParameters, GetParameters, ListParameters

    caller = Caller()
    kinds = {"get_parameters": GetParameters, "list_parameters": ListParameters}
    kinds["describe_parameters"] = DescribeParameters
    clients = [
        (caller.client(kind, f"/rths/{node}/{service}").handle, kind.Request())
        for node in ("integrator", "compensator", "actuator", "monitor")
        for service, kind in kinds.items()
    ]
    print("found", flush=True)
    sys.stdin.readline()
    for number in range(requests):
        client, request = clients[number % len(clients)]
        client.send_request(request)


def _trip(durability: str, times: int) -> None:
    from rclpy.qos import DurabilityPolicy, QoSProfile

    from rths_nodes.msg import Trip

    caller, policy = Caller(), DurabilityPolicy[durability]
    for number in range(times):
        publisher = caller.node.create_publisher(Trip, "/rths/trip", QoSProfile(depth=1, durability=policy))
        while policy is DurabilityPolicy.VOLATILE and not publisher.get_subscription_count():
            time.sleep(0.001)
        publisher.publish(Trip(source=f"camera {number}"))
    sys.stdin.readline()


if __name__ == "__main__":
    if sys.argv[1:2] == ["trip"]:
        _trip(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["flood"]:
        _flood(int(sys.argv[2]))
    else:
        _transitions()
