# SPDX-License-Identifier: Apache-2.0
"""Loop that holds an otherwise idle rig: it answers every tick or, without ticks, sends commands regularly.

In real time the rig, or the clock, gives ticks, and each needs a command. In lockstep a rig waits for its command
for a limited time; a rig in this process needs no such loop.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from rths_nodes.loop.realtime import PRIORITY, SWITCH_S

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""Timeout of a tick when the rig is borrowed, s."""


class HoldLoop:
    """Calls ``tick`` in a thread of its own, continuously or every ``interval`` s; None: never.

    Between :meth:`borrow` and :meth:`give_back` another thread drives the rig. A tick that raises ends the loop
    and is reported to ``failed``.
    """

    def __init__(
        self, tick: Callable[[], object], interval: float | None, failed: Callable[[Exception], None]
    ) -> None:
        self._tick, self._interval, self._failed = tick, interval, failed
        self._turn = threading.Condition()
        self._borrowed = 0
        self._busy = self._over = False
        self._switch = 0.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start, also again after an end."""
        self._over = False
        if self._interval == 0.0:
            self._switch = sys.getswitchinterval()
            sys.setswitchinterval(min(self._switch, SWITCH_S))
        if self._interval is not None:
            self._thread = threading.Thread(target=self._run, name="hold loop", daemon=True)
            self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def borrow(self) -> None:
        """Pause after the current tick. Raises RuntimeError if it does not end."""
        with self._turn:
            self._borrowed += 1
            if not self._turn.wait_for(lambda: not self._busy, PATIENCE_S):
                self._borrowed -= 1
                raise RuntimeError(f"the rig has given no tick for {PATIENCE_S:g} s")

    def give_back(self) -> None:
        with self._turn:
            self._borrowed -= 1
            self._turn.notify_all()

    def end(self) -> None:
        with self._turn:
            self._over = True
            self._turn.notify_all()
        if self._switch:
            sys.setswitchinterval(self._switch)
            self._switch = 0.0
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE_S)

    def _rise(self) -> None:
        """Take real-time priority for the ticks, if permitted.

        A run that borrowed the rig leaves all threads with normal priority.
        """
        if self._interval == 0.0:
            with suppress(OSError):
                os.sched_setscheduler(threading.get_native_id(), os.SCHED_FIFO, os.sched_param(PRIORITY))

    def _run(self) -> None:
        self._rise()
        while True:
            with self._turn:
                self._busy = False
                self._turn.notify_all()
                if self._interval:
                    self._turn.wait(self._interval)
                if self._borrowed:
                    self._turn.wait_for(lambda: not self._borrowed or self._over)
                    self._rise()
                if self._over:
                    return
                self._busy = True
            try:
                self._tick()
            except Exception as error:
                log.debug("the hold loop ends", exc_info=True)
                with self._turn:
                    self._busy = False
                    self._turn.notify_all()
                self._failed(error)
                return


def to_its_end(wait: Callable[[], object], interrupted: Callable[[], object] = lambda: None) -> None:
    """Call ``wait`` until it returns. An interrupt calls ``interrupted``, and is raised at the end.

    An Exception of ``wait`` is raised at once.
    """
    first: BaseException | None = None
    while True:
        try:
            wait()
            break
        except Exception:
            raise
        except BaseException as error:
            first = first or error
            interrupted()
    if first is not None:
        raise first


def ticked(tick: Callable[[], None], fail: Callable[[Exception], None], each: Iterable[object]) -> None:
    """Call ``tick`` of a borrowed drive for each of ``each``; ``fail`` gets an error."""
    try:
        for _ in each:
            tick()
    except Exception as error:
        fail(error)
