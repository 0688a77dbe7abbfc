# SPDX-License-Identifier: Apache-2.0
"""Something that happens at one of the lines of an act, chosen by its number: no moment is left to luck."""

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
EACH_TICK = ("leave", "<lambda>", "_measured", "look", "_displaced", "_leave_start", "lost")
"""Of these, not of the act; the port of a rung works in each tick as well."""
PATIENCE_S = 20.0


def elsewhere(call: Callable[[], object]) -> BaseException | None:
    """Done by another client, in a thread of its own, with his answer before anything goes on."""
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE_S)
    assert not asking.is_alive(), "another client has got no answer"
    return raised[0] if raised else None


class AtLine:
    """Within it something ``happens`` at the line with this number among those of the act of ``session``.

    Lines count that run outside of the lock of its machine: at others no other thread is heard. ``seen`` are all.
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
