# SPDX-License-Identifier: Apache-2.0
"""Keeps a rig alive while nobody else drives it: it answers every tick, or now and then where nothing ticks.

In real time the rig, or the clock, gives the ticks, and each wants its command. In lockstep a rig waits for its
command, but not for ever; one that computes in this process needs no such loop at all.
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
"""Time that a tick may take before whoever wants the rig gives up."""


class HoldLoop:
    """Calls ``tick`` in a thread of its own, one after the other, or every ``interval`` s; None: never.

    Who drives the rig himself borrows it: between :meth:`borrow` and :meth:`give_back` nothing ticks here. A tick
    that raises ends the loop; ``failed`` is told of it.
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
        """From now on the rig is kept; also again, after an end."""
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
        """Wait for the end of the tick under way; none follows. Raises RuntimeError where it does not end."""
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
        """In real time the ticks come before ordinary work, where the system lets them.

        A run to which the rig was lent leaves all threads as ordinary ones.
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
    """``wait`` until it returns. An interrupt, as Ctrl-C is one, calls ``interrupted``, and is raised at the end.

    An Exception that it raises ends it at once.
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
    """A ``tick`` of a drive that is borrowed for ``each`` of these; ``fail`` is told of what went wrong."""
    try:
        for _ in each:
            tick()
    except Exception as error:
        fail(error)
