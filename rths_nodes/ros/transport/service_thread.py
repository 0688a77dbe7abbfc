# SPDX-License-Identifier: Apache-2.0
"""Thread that answers services outside the loop, one request at a time, with a pause after each answer.

Answers use at most the fraction ``SHARE`` of the time of a processor.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future

from rclpy.context import Context
from rclpy.qos import HistoryPolicy, QoSProfile
from rclpy.service import Service

from rths_nodes.loop.realtime import Starving, step_back
from rths_nodes.ros.transport.rclpy_private import GuardCondition, RequestQueue, WaitSet

SERVICE_QOS = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=10)
"""QoS of every service. The default of rclpy keeps 1000 requests to each parameter service."""
PAUSE_S, SHARE = 0.02, 0.05
"""``PAUSE_S``: shortest pause after an answer, s. ``SHARE``: largest fraction of a processor for answers."""

Answer = Callable[[object, object], object]
"""Function that takes a request and an empty response, and returns the completed response or another one."""


class FewRequests:
    """Mixin that limits the number of queued requests to each service of a node, including rclpy's services."""

    def create_service(self, *arguments: object, **named: object) -> Service:
        return super().create_service(*arguments, **named | {"qos_profile": SERVICE_QOS})  # type: ignore[misc]


class LoopCalls:
    """Executes calls from other threads in the thread of the loop."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[[], object], Future[object]]] = deque()
        self.closed = False

    def call(self, function: Callable[[], object]) -> object:
        """Return the result of ``function``, called by the loop. Raises CancelledError if the calls are closed."""
        future: Future[object] = Future()
        self.waiting.append((function, future))
        if self.closed:
            future.cancel()
        return future.result()

    def carry_out(self) -> bool:
        if not self.waiting:
            return False
        function, future = self.waiting.popleft()
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)
            if isinstance(error, Starving):
                raise
        return True

    def close(self) -> None:
        self.closed = True
        while self.waiting:
            self.waiting.popleft()[1].cancel()


class ServiceThread:
    """Answers requests in a thread. ``answers`` maps each service to the function that answers its requests.

    Failed requests are refused and reported through ``warn``. If ``first`` is true, the thread keeps the
    priority of the loop, for requests that must not be delayed.
    """

    def __init__(
        self,
        context: Context,
        answers: Mapping[Service, Answer],
        calls: LoopCalls,
        warn: Callable[[str], object],
        first: bool = False,
    ) -> None:
        self._context, self._calls, self._warn, self._first = context, calls, warn, first
        self._queues = {RequestQueue(service): answer for service, answer in answers.items()}
        self._wake = GuardCondition(context.handle)
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="services", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._leaving.set()
        self._calls.close()
        self._wake.trigger_guard_condition()
        self._thread.join()

    def _run(self) -> None:
        waiting = WaitSet(0, 1, 0, 0, len(self._queues), 0, self._context.handle)
        while not self._leaving.is_set():
            waiting.clear_entities()
            waiting.add_guard_condition(self._wake)
            for queue in self._queues:
                waiting.add_service(queue.service.handle)
            waiting.wait(-1)
            ready = set(waiting.get_ready_entities("service"))
            for queue in self._queues:
                if queue.service.handle.pointer in ready and not self._leaving.is_set():
                    self._serve(queue)

    def _serve(self, queue: RequestQueue) -> None:
        if not self._first:
            step_back()
        began, service = time.thread_time(), queue.service
        try:
            request = queue.take()
            if request is not None:
                try:
                    response = self._queues[queue](request, service.srv_type.Response())
                except CancelledError:
                    raise
                except Exception as error:
                    self._warn(f"{service.srv_name}: the request was refused ({error})")
                    response = service.srv_type.Response()
                queue.respond(response)
        except CancelledError:  # the loop has ended
            return
        except Exception as error:  # the request is unreadable, or its client has left
            self._warn(str(error))
        self._leaving.wait(max(PAUSE_S, (time.thread_time() - began) / SHARE))
