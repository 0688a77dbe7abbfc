"""What stops a test from outside: an operator, a robot, a script.

    service  <actuator>/stop              std_srvs/srv/Trigger    the rig stops and holds; the test ends as held
    service  <actuator>/emergency_stop    std_srvs/srv/Trigger    the rig trips
    topic    emergency_stop               std_msgs/msg/Empty      the rig trips, whoever says so

They are taken every few milliseconds; other services (``serving.py``) only in the slack, of which a fast rig has
little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from std_srvs.srv import Trigger

from rths_nodes.ros.transport.endpoints import ByHand, Inbox

Act = Callable[[str], None]


class StopRequests:
    """The two services of ``node``, and its ``inbox`` of emergency stops; ``hold`` and ``trip`` get a reason."""

    def __init__(self, node: Any, group: ByHand, inbox: Inbox, hold: Act, trip: Act) -> None:
        self._node, self._inbox, self._trip = node, inbox, trip
        self._services: list[tuple[Any, Act, str, str]] = [
            (node.create_service(Trigger, f"~/{name}", _by_hand, callback_group=group), act, words, answer)
            for name, act, words, answer in (
                ("stop", hold, "stop service", "the rig stops and holds"),
                ("emergency_stop", trip, "emergency stop: service", "the rig trips"),
            )
        ]

    def hear(self) -> None:
        """Do what has been asked for since the last time."""
        if self._inbox.take() is not None:
            self._trip("emergency stop: topic")
        for service, act, words, answer in self._services:
            _, header = service.handle.service_take_request(Trigger.Request)
            if header is not None:
                act(words)
                service.send_response(Trigger.Response(success=True, message=answer), header)

    def close(self) -> None:
        """Take the services away."""
        for service, *_ in self._services:
            self._node.destroy_service(service)


def _by_hand(request: Any, response: Any) -> Any:
    """No executor serves these services."""
    return response
