# SPDX-License-Identifier: Apache-2.0
"""Events at any chosen line of an act, so that tests of their timing are deterministic."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rths_nodes.procedure import machine, rungs, session
from rths_nodes.procedure.rungs import RungPort
from rths_nodes.procedure.session import RigSession

WATCHED = {module.__file__ for module in (machine, rungs, session)}
EACH_TICK = ("<lambda>", "_measured", "look", "_displaced", "_leave_start", "lost")
"""Functions of the watched modules that run in each tick, and are no part of an act."""
PATIENCE_S = 20.0


def elsewhere(call: Callable[[], object]) -> BaseException | None:
    """Call from another client's thread and wait for the answer; return the raised error."""
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE_S)
    assert not asking.is_alive(), "another client got no answer"
    return raised[0] if raised else None


class AtLine:
    """Calls ``happens`` at the line with a given number of the current act of ``session``.

    Only lines outside of the lock of the machine count: at the others no thread can interfere. ``seen`` is the
    number of all lines.
    """

    def __init__(self, session: RigSession, line: int, happens: Callable[[], object]) -> None:
        self._session, self._line, self._happens = session, line, happens
        self.seen = 0

    def __enter__(self) -> AtLine:
        self._before = sys.gettrace()
        sys.settrace(self._calls)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._before)

    def _calls(self, frame: Any, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in WATCHED or code.co_name in EACH_TICK:
            return None
        return None if isinstance(frame.f_locals.get("self"), RungPort) else self._lines

    def _lines(self, frame: Any, event: str, argument: Any) -> Any:
        if event == "line" and self._session.busy and not self._session.lock._is_owned():  # type: ignore[attr-defined]
            self.seen += 1
            if self.seen == self._line:
                self._happens()
        return self._lines
