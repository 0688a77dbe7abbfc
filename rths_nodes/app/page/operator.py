# SPDX-License-Identifier: Apache-2.0
"""Operator of a page: one person at a time, identified by a code from the terminal (``doc/page.md``).

An act of the operator is valid only for the situation that the browser showed. The rig is disarmed when another
operator takes over, or when the leading page sends nothing for ``GONE_S`` seconds.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from rths_nodes.app.procedure.operator_socket import Answer, Request
from rths_nodes.core.errors import ConfigError, printable, unknown
from rths_nodes.loop.procedure_record import RUNGS
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import situation
from rths_nodes.procedure.session import ACTS, MEANWHILE

CODE_S = 60.0
"""Lifetime of a code, s. Each code is valid once."""
SYMBOLS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Symbols of a code: Crockford's base 32, without letters that look like digits."""
LENGTH = 8
LOOKALIKES = str.maketrans("OIL", "011", " -")
SHOW_S = 5.0
"""Shortest interval between two printed lines with the same code, s."""
WRONG_PER_SECOND = 10
"""Maximum number of wrong codes per second, from all callers. Further wrong codes raise TooManyCodes."""
SHOWN = 8
"""Number of published digits of the token, by which a page recognises that it leads."""
GONE_S = 3.0
"""Silence of the leading page after which the rig is disarmed, s."""
LONGEST = 2000
ARM = "arm"
FIELDS = (
    *("possible", "motions", "next_act", "next_rung", "scenario_hash", "engine", "offsets_hash", "to_sign"),
    *("checklist", "warning", "test_id"),
)
"""Fields of an Answer that are passed to the page unchanged."""

WORDS = {name: act.words for name, act in ACTS.items()}


class TooManyCodes(ConfigError):
    pass


def _same(text: str, true: str) -> bool:
    return hmac.compare_digest(text.encode(errors="surrogatepass"), true.encode())


class Operating:
    """Holds the access codes and the current operator, and performs acts through ``ask``. Thread-safe.

    The page cannot arm a rung that moves the rig unless ``arms`` is true.
    """

    def __init__(
        self,
        ask: Callable[[Request], Answer],
        say: Callable[[str], object],
        arms: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._say, self.arms, self._clock = ask, say, arms, clock
        self._lock = threading.Lock()
        self._code, self._until, self._shown = "", -CODE_S, -SHOW_S
        self._wrong: deque[float] = deque(maxlen=WRONG_PER_SECOND)
        self._token, self.name = "", ""
        self._seen: float | None = None
        """Time of the last message from the leading page; None if no page leads or the page was lost."""

    def offer(self) -> None:
        with self._lock:
            now = self._clock()
            if not self._code or now > self._until:
                self._code, self._shown = "".join(secrets.choice(SYMBOLS) for _ in range(LENGTH)), -SHOW_S
            self._until = now + CODE_S
            if now - self._shown < SHOW_S:
                return
            self._shown = now
            half = LENGTH // 2
            code = f"{self._code[:half]}-{self._code[half:]}"
        self._say(f"code to enter on the page within {CODE_S:.0f} s: {code}")  # unlocked: a terminal can block

    def lead(self, code: str, name: str) -> str:
        """Let ``name`` lead the test if ``code`` is valid. Disarm the rig and return an access token.

        Raises ConfigError if the code or the name is invalid. The code is compared before any limit applies,
        so wrong codes never delay a correct code.
        """
        typed = code.upper().translate(LOOKALIKES)
        with self._lock:
            now = self._clock()
            valid = bool(self._code) and now <= self._until
            if not (_same(typed, self._code) and valid):
                self._refuse(now, valid)
            if not name.strip() or len(name) > LONGEST:
                raise ConfigError(
                    f"the operator's name must have 1 to {LONGEST} characters, because the test record contains it"
                )
            self._code, self._token, self._seen = "", secrets.token_hex(16), now
            self.name = printable(name.strip())
            token, leader = self._token, self.name
        self.disarm(f"{leader} has taken over the lead at the page")
        self._say(f"{leader} leads the test at the page; another person can take over with a new code")
        return token

    def _refuse(self, now: float, valid: bool) -> None:
        if len(self._wrong) == WRONG_PER_SECOND and now - self._wrong[0] < 1.0:
            raise TooManyCodes(
                f"more than {WRONG_PER_SECOND} wrong codes were entered within a second. Wait before the next "
                "attempt"
            )
        self._wrong.append(now)
        raise ConfigError(
            "this is not the code that the terminal shows" if valid else "no code is valid now. Request a new code"
        )

    def alive(self, token: str) -> bool:
        with self._lock:
            if not self._token or not _same(token, self._token):
                return False
            self._seen = self._clock()
            return True

    def disarm_if_lost(self) -> None:
        """Disarm the rig if the leading page is silent for ``GONE_S`` s. Call this several times per second."""
        if self._seen is not None and self._clock() - self._seen > GONE_S:
            self._seen = None
            self.disarm(f"the page that leads the test was lost for {GONE_S:g} s")

    def close(self) -> None:
        """Disarm the rig if a page leads. Later acts are refused."""
        with self._lock:
            leads, self._token, self._seen = self._seen is not None, "", None
        if leads:
            self.disarm("the process of the page has ended")

    def act(
        self, token: str, act: str, arguments: Mapping[str, object], seen: Mapping[str, object] | None = None
    ) -> Answer:
        """Perform an act based on the situation ``seen`` in the browser. Return the answer when the act ends.

        Raises ConfigError if the page refuses the act or no test responds. The answer's ``done`` is
        false if the test refuses the act.
        """
        if not self.alive(token):
            raise ConfigError(
                f"{act}: you do not lead this test. To lead it, enter the code that the terminal shows"
            )
        if act not in ACTS:
            raise unknown("act", "act", act, ACTS)
        if act == ARM and not self.arms:
            raise ConfigError(
                f"{act}: this page cannot arm a rung. Start the page with --arm-from-page, or use another program"
            )
        texts = {str(key): str(value) for key, value in arguments.items()}
        if long := [key for key, value in texts.items() if len(value) > LONGEST]:
            raise ConfigError(f"{act}.{long[0]}: must have at most {LONGEST} characters")
        request = Request(act, texts, self.name)
        stops, state, test_id = ((seen or {}).get(name) for name in ("stops", "state", "test_id"))
        if isinstance(stops, int) and isinstance(state, int):
            request = replace(request, stops=stops, state=state, test_id=str(test_id))
        try:
            return self._ask(request)
        finally:  # the rung may be armed even if no answer was received
            if act == ARM and (token != self._token or self._seen is None):
                self.disarm("the page that armed the rung no longer leads the test")

    def situation(self) -> dict[str, object] | None:
        try:
            answer = self._ask(Request())
            state = State(answer.state)
        except (ConfigError, ValueError):  # no procedure responds
            return None
        return {
            "words": WORDS,
            "because": situation(state),
            "ladder": [
                {"name": name, "title": RUNGS[name].title, "words": RUNGS[name].words, "verdict": verdict}
                for name, verdict in answer.verdicts.items()
            ],
            "at_once": MEANWHILE,
            "state": state.name,
            "seen": {"stops": answer.stops, "state": answer.state, "test_id": answer.test_id},
            "operator": self.name,
            "leader": self._token[:SHOWN],
            "arms": self.arms,
        } | {name: getattr(answer, name) for name in FIELDS}

    def disarm(self, reason: str) -> None:
        """Disarm the rig if it is armed. A motion under way continues."""
        try:
            if self._ask(Request()).state == State.ARMED:
                self._ask(Request("stop", {"reason": reason}, self.name))
        except ConfigError:  # no procedure responds, so nothing is armed
            return
