# SPDX-License-Identifier: Apache-2.0
"""Setting up of a line: a node listens at its name, another calls, says hello, and is welcomed or refused."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from rths_nodes.core.durations import SECOND
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.ros.transport.greeting import LONGEST_GREETING, WELCOME, Credentials, Greeting

ANSWER_NS = 2 * SECOND
"""Time that a caller may be silent, or not be known yet, before it is refused."""
PATIENCE_NS = 3 * SECOND
"""Time that a caller waits to be answered."""
WAITING = 64
"""Callers that wait to be accepted, and that may be silent at a time."""
AT_A_TIME = 64
"""Callers that are accepted at one look."""
MOST_UNKNOWN = 512
"""Callers that may wait until it is known who they are: two for each axis of a large rig, and more."""
MOST_STRANGERS = 64
"""Strangers that are told apart; those beyond are counted together."""
BEYOND = "others"

Judge = Callable[[Greeting], str | None]
"""Judges whether who says this may speak: empty; the reason why not; None while that is not known yet."""


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setblocking(False)
    return made


class Acceptor:
    """Listens at the abstract name ``address``. ``problem``: why it does not; empty when it does.

    ``strangers`` counts those who called and were turned away, by what the kernel tells of them.
    """

    def __init__(self, address: bytes, clock: Clock = SYSTEM_CLOCK) -> None:
        self._now = clock.monotonic_ns
        self.problem = ""
        self.strangers: dict[str, int] = {}
        self._silent: dict[socket.socket, int] = {}
        """Callers who have not said hello yet, and when they called."""
        self._unknown: dict[socket.socket, tuple[Greeting, int]] = {}
        """Callers who have, of whom is not known yet whether they may speak."""
        self._socket: socket.socket | None = _socket()
        try:
            self._socket.bind(address)
            self._socket.listen(WAITING)
        except OSError as error:
            self.problem = _holder(address) or error.strerror or str(error)
            self._socket.close()
            self._socket = None

    def look(self, judge: Judge) -> list[tuple[Greeting, socket.socket]]:
        """Return the peers welcomed since the last look, with the socket that it speaks on."""
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
            else:  # it has given up
                caller.close()
        return found

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_A_TIME):
            try:
                caller, _ = listening.accept()
            except OSError:  # nobody there, or no file left for it
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
        """Listen no more; the name is free again. Who still waits is not answered any more."""
        for caller in (*self._silent, *self._unknown):
            caller.close()
        self._silent.clear()
        self._unknown.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Connector:
    """A call to the node that listens at ``address``, to say ``hello``.

    ``answered`` once it was welcomed, refused, or has waited too long; ``socket`` is then the one to speak on, or
    None, and ``problem`` says why there is none. It is empty where nobody listens, as on another machine.
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
        """Go on with the call, and return whether it was answered."""
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
