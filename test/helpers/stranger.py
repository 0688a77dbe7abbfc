# SPDX-License-Identifier: Apache-2.0
"""Foreign program, in a separate process, that calls services of the nodes in /rths.

It reads a JSON list of lifecycle requests per line, one ``[node, transition id, label]`` per node, and prints
``[success, state of the node afterwards]`` of each; the line ``"NODE/stop"`` calls that service. With
``flood REQUESTS`` it sends a number of requests to reading services, and exits without waiting for answers. With
``trip DURABILITY TIMES`` it publishes trip requests by a number of new publishers, at once if they are latched and
otherwise when they are matched, and keeps the publishers.
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
    """The program, from the side of its starter."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def change(self, *requests: tuple[str, int, str]) -> list[tuple[bool, str]]:
        """Send simultaneous lifecycle requests; return success and the state of the node afterwards for each."""
        return [(bool(success), str(state)) for success, state in self._call(requests)]

    def stop(self, node: str = "actuator") -> bool:
        """Call ``NODE/stop``; return its success."""
        return bool(self._call(f"{node}/stop"))

    def _call(self, request: object) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

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
    """Run the program with ``words`` as arguments."""
    command = [sys.executable, __file__, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Stranger(process)
        finally:
            process.kill()


class Caller:
    """Calls services in a separate context."""

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
        """Return the client of a discovered service."""
        if name not in self._clients:
            self._clients[name] = self.node.create_client(kind, name)
            assert self._clients[name].wait_for_service(timeout_sec=FOUND_S), name
        return self._clients[name]

    def ask(self, kind: Any, requests: dict[str, Any]) -> dict[str, Any]:
        """Return the answers by service name; a lost request is repeated, a missing answer is None."""
        answers: dict[str, Any] = dict.fromkeys(requests)
        for _ in range(TRIES):
            waiting = {
                name: self.client(kind, name).call_async(request)
                for name, request in requests.items()
                if answers[name] is None
            }
            end = time.monotonic() + ANSWERED_S
            while time.monotonic() < end and not all(future.done() for future in waiting.values()):
                self._executor.spin_once(timeout_sec=0.05)
            answers |= {name: future.result() for name, future in waiting.items() if future.done()}
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
        queries = {f"/rths/{node}/get_state": GetState.Request() for node, *_ in asked}
        results = [
            (bool(change and change.success), state.current_state.label if state else "")
            for change, state in zip(done, caller.ask(GetState, queries).values(), strict=True)
        ]
        print(json.dumps(results), flush=True)


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
