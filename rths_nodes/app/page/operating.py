# SPDX-License-Identifier: Apache-2.0
"""The operator at a page: known by a code of the terminal, one at a time; the acts are those of the procedure.

The acts go by the socket of the operators, as this process belongs to a user who is one (``rths test --services``
says who may). What is possible, and why not, is what the procedure answers: the page adds nothing but who asks.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping

from rths_nodes.app.procedure.operator_socket import Ask
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.wire.acts import Answer
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ACTS, MEANWHILE

CODE_S = 60.0
"""A code of the terminal is good for this time, and once."""
TRIES = 3
"""Wrong codes after which a new one is needed."""
LONGEST = 2000
"""Characters of an argument."""
ARM = ("arm", "mandate")
"""Acts that let the rig move later."""

WORDS = {name: act.words for name, act in ACTS.items()}
"""What each act does."""


def _same(given: str, true: str) -> bool:
    """True where both are the same text, in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), true.encode())


class Operating:
    """Codes, the one operator, and his acts, which ``ask`` does; ``say`` prints at the terminal.

    Without ``arms`` a rung that moves is not armed from here. Everything may be called from any thread.
    """

    def __init__(
        self, ask: Ask, say: Callable[[str], None], arms: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask, self._say, self.arms, self._clock = ask, say, arms, clock
        self._lock = threading.Lock()
        self._code, self._until, self._tries = "", 0.0, 0
        self._token, self.name = "", ""

    def offer(self) -> None:
        """Print a new code; one that was offered before is good no more."""
        with self._lock:
            self._code, self._tries = f"{secrets.randbelow(10**6):06d}", 0
            self._until = self._clock() + CODE_S
            self._say(f"code for the page, to be typed there within {CODE_S:.0f} s: {self._code}")

    def lead(self, code: str, name: str) -> str:
        """Return a token for who has typed the ``code``: from now on ``name`` leads. Raises ConfigError."""
        with self._lock:
            if not self._code or self._clock() > self._until:
                raise ConfigError("no code is good now: ask for a new one")
            if not name.strip() or len(name) > LONGEST:
                raise ConfigError("the operator's name is missing: it stands in the record of the test")
            if not _same(code.strip(), self._code):
                self._tries += 1
                self._code = self._code if self._tries < TRIES else ""
                raise ConfigError("this is not the code that the terminal shows")
            self._code, self._token, self.name = "", secrets.token_hex(16), name.strip()
            self._say(f"{self.name} leads the test by the page; a new code takes it over")
            return self._token

    def is_operator(self, token: str) -> bool:
        """True for the token of the operator of this moment."""
        with self._lock:
            return bool(self._token) and _same(token, self._token)

    def act(self, token: str, act: str, arguments: Mapping[str, object]) -> Answer:
        """Do an act, and wait until it is over. Raises ConfigError where the page may not, or nobody answers."""
        if not self.is_operator(token):
            raise ConfigError(f"{act}: you do not lead this test: type a code of the terminal first")
        if act not in ACTS:
            raise unknown("act", "act", act, ACTS)
        if act in ARM and not self.arms:
            raise ConfigError(
                f"{act}: not from this page: start it with --arm-from-page, or arm by another program"
            )
        texts = {str(key): str(value) for key, value in arguments.items()}
        if long := [key for key, value in texts.items() if len(value) > LONGEST]:
            raise ConfigError(f"{act}.{long[0]}: longer than {LONGEST} characters")
        return self._ask(act, self.name, **texts)

    def situation(self) -> dict[str, object] | None:
        """Return what is possible now, as plain data; None where no procedure serves operators here."""
        try:
            told = self._ask()
            possible, state = told.possible, State(told.state).name
        except (ConfigError, ValueError):  # nobody is there, or what answers is no procedure
            return None
        return {
            "possible": possible,
            "words": WORDS,
            "at_once": MEANWHILE,
            "next_rung": told.next_rung,
            "scenario_hash": told.scenario_hash,
            "offsets_hash": told.offsets_hash,
            "to_sign": list(told.to_sign),
            "test_id": told.test_id,
            "state": state,
            "operator": self.name,
            "arms": self.arms,
        }

    def leave(self) -> None:
        """The page of the operator is gone: what is armed is disarmed."""
        try:
            if self._ask().state == State.ARMED:
                self._ask("stop", self.name, reason="the page of the operator is gone")
        except ConfigError:
            return
