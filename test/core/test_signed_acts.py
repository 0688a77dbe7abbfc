# SPDX-License-Identifier: Apache-2.0
"""A signed act: good for one request, in one session, once, for a minute; whatever is altered is refused."""

from __future__ import annotations

import threading
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire.acts import (
    LIFETIME_S,
    Answer,
    Nonces,
    Request,
    Signer,
    answered,
    is_signed,
    of_message,
    signed,
)

KEY, OTHER = bytes(range(32)), bytes(32)
SEEN = Answer(
    True, "", "referenced", 2, ("arm", "run"), ("", "no"), "d", "5ca1ab1e", "0ff5e7", "first", ("scale",), "n"
)
ASKED = Request("arm", ("rung", "scenario_hash"), ("d", "5ca1ab1e"), "Ada")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_signature_is_that_of_its_key() -> None:
    assert is_signed(signed(ASKED, KEY, SEEN), KEY, SEEN)
    assert not is_signed(signed(ASKED, OTHER, SEEN), KEY, SEEN)
    assert not is_signed(replace(ASKED, nonce="n"), KEY, SEEN)
    assert not is_signed(replace(ASKED, nonce="n", signature="é\ud800"), KEY, SEEN)


@pytest.mark.parametrize(
    "altered",
    [
        {"act": "run"},
        {"names": ("scenario_hash", "rung")},
        {"values": ("e", "5ca1ab1e")},
        {"values": ("5ca1ab1e", "d")},
        {"names": ("rung",), "values": ("scenario_hash", "d", "5ca1ab1e")},
        {"names": ("rungscenario_hash",)},
        {"names": (), "values": ()},
        {"by": "Eve"},
        {"nonce": "m"},
        {"act": "armAda", "by": ""},
    ],
    ids=str,
)
def test_an_altered_request_is_not_signed(altered: dict[str, str]) -> None:
    assert not is_signed(replace(signed(ASKED, KEY, SEEN), **altered), KEY, SEEN)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["test_id", "scenario_hash", "offsets_hash"])
def test_a_request_is_signed_for_what_its_sender_has_seen(name: str) -> None:
    assert not is_signed(signed(ASKED, KEY, SEEN), KEY, replace(SEEN, **{name: "another"}))


words = st.lists(st.text(max_size=3), max_size=3).map(tuple)
requests = st.builds(Request, st.text(max_size=3), words, words, st.text(max_size=3), st.text(max_size=3))


@given(requests, requests)
def test_no_two_requests_have_one_signature(one: Request, other: Request) -> None:
    same = signed(one, KEY, SEEN).signature == signed(other, KEY, SEEN).signature
    assert same == (replace(one, nonce="") == replace(other, nonce=""))


def test_an_answer_belongs_to_its_request() -> None:
    signer = Signer(KEY)
    asked = signer.request()
    told = answered(SEEN, asked, KEY)
    assert signer.accept(asked, told) == told
    for field in fields(Answer):
        value = getattr(told, field.name)
        changed = not value if isinstance(value, bool) else value * 2 or "x"
        with pytest.raises(ConfigError, match=naming("signed", "key")):
            signer.accept(asked, replace(told, **{field.name: changed}))
    with pytest.raises(ConfigError, match=naming("signed", "key")):
        signer.accept(signer.request(), told)


def test_a_signer_signs_once_for_each_answer() -> None:
    signer = Signer(KEY)
    asked = signer.request()
    signer.accept(asked, answered(SEEN, asked, KEY))
    assert is_signed(signer.request("arm", "Ada", rung="d"), KEY, SEEN)
    assert not signer.request("run").signature


def test_requests_and_answers_come_out_of_messages() -> None:
    class Message:
        act, names, values, by, nonce, signature = "arm", ["rung"], ["d"], "Ada", "n", "s"

    assert of_message(Request, Message()) == Request("arm", ("rung",), ("d",), "Ada", "n", "s")


# -- nonces ----------------------------------------------------------------------------------------------------


def test_a_nonce_is_good_once() -> None:
    nonces = Nonces()
    nonce = nonces.draw()
    nonces.use(nonce)
    with pytest.raises(ConfigError, match="used before"):
        nonces.use(nonce)


def test_a_nonce_is_good_for_a_minute() -> None:
    clock = Clock()
    nonces = Nonces(clock)
    nonce, late = nonces.draw(), nonces.draw()
    clock.now += LIFETIME_S
    nonces.use(nonce)
    with pytest.raises(ConfigError, match="used before"):
        nonces.use(nonce)
    clock.now += 0.01
    for each in (nonce, late):
        with pytest.raises(ConfigError, match="older than 60 s"):
            nonces.use(each)


@pytest.mark.parametrize("made", ["", ".", "..", "1.2.3", "5000000.0.0", "é.é.é", "\ud800"])
def test_nobody_makes_a_nonce_himself(made: str) -> None:
    with pytest.raises(ConfigError, match=naming("session")):
        Nonces().use(made)


def test_a_nonce_is_of_one_session_and_keeps_its_time() -> None:
    one, other = Nonces(), Nonces()
    nonce = one.draw()
    with pytest.raises(ConfigError, match=naming("session")):
        other.use(nonce)
    time, rest = nonce.split(".", 1)
    with pytest.raises(ConfigError, match=naming("session")):
        one.use(f"{int(time) + 1}.{rest}")


def test_strangers_who_ask_for_nonces_displace_none() -> None:
    nonces = Nonces()
    mine = nonces.draw()
    others = {nonces.draw() for _ in range(10_000)}
    assert len(others) == 10_000
    nonces.use(mine)


def test_of_many_who_use_a_nonce_at_once_one_succeeds() -> None:
    nonces, done = Nonces(), []
    for _ in range(20):
        nonce, gate = nonces.draw(), threading.Barrier(4)

        def use(nonce: str = nonce, gate: threading.Barrier = gate) -> None:
            gate.wait()
            try:
                nonces.use(nonce)
            except ConfigError:
                return
            done.append(nonce)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(done) == len(set(done)) == 20
