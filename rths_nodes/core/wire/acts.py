# SPDX-License-Identifier: Apache-2.0
"""An act of an operator as a request, the answer to it, and the signature that says it is his.

Everybody on a ROS domain hears requests and answers, and may send any. A request counts as the operator's where it
carries HMAC-SHA256, with a key that only operators have, over all that it asks for, and over the nonce, the test
and the hashes of an answer: it is good once, for a minute, in one test, and for what its sender has seen.

A nonce is its time and a random number with a tag of the session that gave it. The session therefore keeps those
alone that a signed request has used: strangers may ask for nonces as often as they like, and displace none.

>>> signer = Signer(bytes(32))
>>> asked = signer.request()                  # the empty act: what is possible, and a nonce
>>> _ = signer.accept(asked, answered(Answer(test_id="first", nonce="n"), asked, bytes(32)))
>>> signer.request("arm", rung="d").nonce
'n'
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TypeVar

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError

LIFETIME_S = 60.0
"""A nonce is good for this time."""
_REQUEST, _ANSWER = "rths_nodes request 2", "rths_nodes answer 2"
PROGRAM_LEFT = "the operator's program has left while its act was under way"
"""Reason of the stop, whichever way the act has come."""
_RANDOM_BYTES = 16
_LENGTH = struct.Struct(">I")

Told = TypeVar("Told", "Request", "Answer")


@dataclass(frozen=True)
class Request:
    """An act with the ``names`` of its arguments and their ``values`` as texts; empty ``act``: only tell.

    ``by`` says who asks. ``nonce`` is that of an answer; in a request without a ``signature`` it is the sender's
    own, by which the answer is known to be new.
    """

    act: str = ""
    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    by: str = ""
    nonce: str = ""
    signature: str = ""

    def fields(self) -> dict[str, object]:
        """Return the fields of a message with this request: of srv/Act, of a goal of action/Act."""
        return asdict(self) | {"names": list(self.names), "values": list(self.values)}


@dataclass(frozen=True)
class Answer:
    """Outcome of a request, and what is possible now: the fields of srv/Act and of the result of action/Act."""

    done: bool = False
    reason: str = ""
    result: str = ""
    state: int = 0
    acts: tuple[str, ...] = ()
    why_not: tuple[str, ...] = ()
    next_rung: str = ""
    scenario_hash: str = ""
    offsets_hash: str = ""
    test_id: str = ""
    to_sign: tuple[str, ...] = ()
    nonce: str = ""
    signature: str = ""

    @property
    def possible(self) -> dict[str, str]:
        """Every act: empty where it is possible now, else why it is not."""
        return dict(zip(self.acts, self.why_not, strict=True))


def of_message(kind: type[Told], message: object) -> Told:
    """A Request or an Answer out of a message that has its fields, lists among them."""
    told = {field.name: getattr(message, field.name) for field in fields(kind)}
    values: Data = {name: each if isinstance(each, (str, int)) else tuple(each) for name, each in told.items()}
    return kind(**values)


def signed(request: Request, key: bytes, seen: Answer) -> Request:
    """The ``request`` with a signature for the situation that the answer ``seen`` has told."""
    request = replace(request, nonce=seen.nonce)
    return replace(request, signature=_request_signature(request, key, seen))


def is_signed(request: Request, key: bytes, now: Answer) -> bool:
    """True where the signature is that of ``key``, for the test and the hashes of the situation ``now``."""
    return _same(request.signature, _request_signature(request, key, now))


def answered(answer: Answer, request: Request, key: bytes) -> Answer:
    """The ``answer`` with a signature, which says that it belongs to this ``request``."""
    return replace(answer, signature=_answer_signature(answer, request, key))


def _request_signature(request: Request, key: bytes, seen: Answer) -> str:
    asked = [request.act, request.by, request.nonce, seen.test_id, seen.scenario_hash, seen.offsets_hash]
    return _signature(key, [_REQUEST, *asked], request.names, request.values)


def _answer_signature(answer: Answer, request: Request, key: bytes) -> str:
    told = [getattr(answer, field.name) for field in fields(Answer) if field.name != "signature"]
    asked = [request.act, request.by, request.nonce, request.signature]
    lists = [each if isinstance(each, tuple) else (str(each),) for each in told]
    return _signature(key, [_ANSWER, *asked], request.names, request.values, *lists)


def _signature(key: bytes, *lists: Sequence[str]) -> str:
    """HMAC-SHA256 over lists of texts; lengths stand in front: no two requests have the same bytes."""
    packed = bytearray()
    for texts in lists:
        packed += _LENGTH.pack(len(texts))
        for text in texts:
            data = text.encode(errors="surrogatepass")
            packed += _LENGTH.pack(len(data)) + data
    return hmac.new(key, packed, hashlib.sha256).hexdigest()


def _same(given: str, true: str) -> bool:
    """In a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), true.encode())


class Nonces:
    """Nonces of one session, by a secret that is drawn with it. May be used from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._secret = clock, secrets.token_bytes(32)
        self._used: dict[str, float] = {}
        self._one = threading.Lock()

    def draw(self) -> str:
        """A new nonce."""
        return self._tagged(f"{round(1e3 * self._clock())}.{secrets.token_hex(_RANDOM_BYTES)}")

    def use(self, nonce: str) -> None:
        """Take a nonce off. Raises ConfigError for one of another session, one that is too old, or used before."""
        head, _, _ = nonce.rpartition(".")
        if not _same(nonce, self._tagged(head)):
            raise ConfigError("the nonce is not of this session: take that of its last answer")
        now, drawn = self._clock(), 1e-3 * int(head.partition(".")[0])
        if now - drawn > LIFETIME_S:
            raise ConfigError(f"the nonce is older than {LIFETIME_S:g} s: ask for a new one by the empty act")
        with self._one:
            self._used = {each: then for each, then in self._used.items() if now - then <= LIFETIME_S}
            if nonce in self._used:
                raise ConfigError("the nonce was used before: each is good once")
            self._used[nonce] = drawn

    def _tagged(self, head: str) -> str:
        return f"{head}.{_signature(self._secret, [head])}"


class Signer:
    """The sender's side: signs requests with ``key``, and takes only answers that are signed with it."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._seen: Answer | None = None

    def request(self, act: str = "", by: str = "", **arguments: str) -> Request:
        """An act to be sent. A signature is good once: ask for the next one when this is answered."""
        asked = Request(act, tuple(arguments), tuple(arguments.values()), by, secrets.token_hex(_RANDOM_BYTES))
        seen, self._seen = self._seen, None
        return asked if not act or seen is None else signed(asked, self._key, seen)

    def accept(self, request: Request, answer: Answer) -> Answer:
        """The ``answer`` to ``request``. Raises ConfigError where it is not signed with the key."""
        if not _same(answer.signature, _answer_signature(answer, request, self._key)):
            raise ConfigError("an answer is not signed with this key: somebody else answers, or the keys differ")
        self._seen = answer
        return answer
