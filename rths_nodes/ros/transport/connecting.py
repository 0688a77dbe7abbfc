# SPDX-License-Identifier: Apache-2.0
"""Set-up of a line: a node listens at its name, another calls, greets, and is accepted or refused."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from rths_nodes.core.durations import SECOND
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.ros.transport.greeting import LONGEST_GREETING, WELCOME, Credentials, Greeting

ANSWER_NS = 2 * SECOND
"""Timeout for the greeting, and for the identity, of a caller."""
PATIENCE_NS = 3 * SECOND
"""Timeout of a caller for the answer."""
WAITING = 64
"""Backlog of callers, and limit of callers without a greeting."""
AT_A_TIME = 64
"""Callers accepted per poll."""
MOST_UNKNOWN = 512
"""Limit of callers with an unknown identity: more than two for each axis of a large rig."""
MOST_STRANGERS = 64
"""Refused users that are counted separately."""
BEYOND = "others"

Judge = Callable[[Greeting], str | None]
"""Judges a greeting: empty to accept, a reason to refuse, None while unknown."""


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setblocking(False)
    return made


class Acceptor:
    """Listens at the abstract name ``address``; ``problem`` is the reason if it cannot.

    ``strangers`` counts refused callers by their credentials.
    """

    def __init__(self, address: bytes, clock: Clock = SYSTEM_CLOCK) -> None:
        self._now = clock.monotonic_ns
        self.problem = ""
        self.strangers: dict[str, int] = {}
        self._silent: dict[socket.socket, int] = {}
        """Callers without a greeting, and when they called."""
        self._unknown: dict[socket.socket, tuple[Greeting, int]] = {}
        """Callers with a greeting that cannot be judged yet."""
        self._socket: socket.socket | None = _socket()
        try:
            self._socket.bind(address)
            self._socket.listen(WAITING)
        except OSError as error:
            self.problem = _holder(address) or error.strerror or str(error)
            self._socket.close()
            self._socket = None

    def look(self, judge: Judge) -> list[tuple[Greeting, socket.socket]]:
        """Return the peers accepted since the last call, with their sockets."""
        if self._socket is None:
            return []
        self._accept(self._socket)
        found = []
        now = self._now()
        for caller in list(self._silent):
            self._listen_to(caller, now)
        for caller, (hello, since) in list(self._unknown.items()):
            refusal = judge(hello)
            if refusal is None and now - since < ANSWER_NS:
                continue
            del self._unknown[caller]
            if refusal != "":
                self._turn_away(caller, refusal or "it is not known here")
            elif _say(caller, WELCOME):
                found.append((hello, caller))
            else:
                caller.close()
        return found

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_A_TIME):
            try:
                caller, _ = listening.accept()
            except OSError:  # no listener, or no file descriptor is left
                return
            caller.setblocking(False)
            who = Credentials.of(caller)
            if not who.trusted:
                self._turn_away(caller, f"it is of user {who.user}")
                continue
            if len(self._silent) >= WAITING:
                self._turn_away(next(iter(self._silent)), "too many callers")
            self._silent[caller] = self._now()

    def _listen_to(self, caller: socket.socket, now: int) -> None:
        since = self._silent[caller]
        try:
            hello = Greeting.unpack(caller.recv(LONGEST_GREETING))
        except BlockingIOError:
            if now - since > ANSWER_NS:
                self._turn_away(caller, "it has not said hello")
        except (OSError, ValueError):
            self._turn_away(caller, "it has not said hello")
        else:
            if len(self._unknown) >= MOST_UNKNOWN:
                self._turn_away(caller, "too many callers")
                return
            del self._silent[caller]
            self._unknown[caller] = hello, since

    def _turn_away(self, caller: socket.socket, reason: str) -> None:
        who = str(Credentials.of(caller))
        key = who if who in self.strangers or len(self.strangers) < MOST_STRANGERS else BEYOND
        self.strangers[key] = self.strangers.get(key, 0) + 1
        self._silent.pop(caller, None)
        _say(caller, reason.encode())
        caller.close()

    def close(self) -> None:
        """Close; pending callers get no answer."""
        for caller in (*self._silent, *self._unknown):
            caller.close()
        self._silent.clear()
        self._unknown.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Connector:
    """Call to the node that listens at ``address``, with the greeting ``hello``.

    ``answered`` once accepted, refused or timed out; ``socket`` is the line or None, and ``problem`` the reason,
    empty if no node listens, as on another machine.
    """

    def __init__(self, address: bytes, hello: Greeting, clock: Clock = SYSTEM_CLOCK) -> None:
        self._address, self._hello = address, hello
        self._now = clock.monotonic_ns
        self._began = self._now()
        self._connected = False
        self.socket: socket.socket | None = _socket()
        self.answered = False
        self.problem = ""

    def look(self) -> bool:
        """Continue the call, and return whether it was answered."""
        if not self.answered:
            try:
                self._go_on()
            except BlockingIOError:
                if self._now() - self._began > PATIENCE_NS:
                    self._end("it has not answered")
            except ConnectionRefusedError:
                self._end("")
            except OSError as error:
                self._end(error.strerror or str(error))
        return self.answered

    def _go_on(self) -> None:
        assert self.socket is not None
        if not self._connected:
            self.socket.connect(self._address)
            self._connected = True
            who = Credentials.of(self.socket)
            if not who.trusted:
                self._end(f"{who} has taken its name")
                return
            self.socket.send(self._hello.pack())
        answer = self.socket.recv(LONGEST_GREETING)
        if answer == WELCOME:
            self.answered = True
        elif answer:
            self._end(f"it was refused: {answer.decode(errors='replace')}")
        else:
            self._end(f"{Credentials.of(self.socket)} has hung up")

    def _end(self, problem: str) -> None:
        self.answered, self.problem = True, problem
        self.close()

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def _say(caller: socket.socket, words: bytes) -> bool:
    with suppress(OSError):
        caller.send(words)
        return True
    return False


def _holder(address: bytes) -> str:
    with _socket() as probe:
        try:
            probe.connect(address)
            return f"{Credentials.of(probe)} has taken its name"
        except ConnectionRefusedError:
            return ""
        except OSError:
            return ""
