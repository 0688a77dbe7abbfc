# SPDX-License-Identifier: Apache-2.0
"""Whoever moves the rig is known: by the service only signed requests do anything, and each of them once."""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from served_test import MOVES, SECRET, Operator, Session, arguments_of, by_service, runner_of

from rths_nodes.app.procedure.services import KEY, LONGEST_REASON, STRANGER, Served
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire.acts import Answer, Request, signed
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ACTS
from rths_nodes.ros.transport.greeting import Credentials

pytestmark = [pytest.mark.nodes]
pytest.importorskip("rclpy")

OPEN_TO_ALL = {"stop", "hold"}

Opened = Callable[[int], AbstractContextManager[Session]]
"""Opens the session of this number."""


def test_the_topic_of_the_emergency_stop_stops_a_run_in_lockstep(tmp_path: Path) -> None:
    """No node of the run hears it, for there is none; before, where nothing moves, it leaves no trace."""
    import rclpy
    from rclpy.context import Context
    from rclpy.duration import Duration
    from rclpy.node import Node
    from std_msgs.msg import Empty

    context = Context()
    rclpy.init(args=[], context=context)
    somebody = Node("somebody", namespace="rths_0", context=context)
    asks = somebody.create_publisher(Empty, "emergency_stop", 10)
    with by_service(tmp_path, 0, 30.0) as session:
        operator, runner = Operator(session), session.runner
        while not asks.get_subscription_count():
            time.sleep(0.01)
        asks.publish(Empty())
        assert asks.wait_for_all_acked(Duration(seconds=20.0))  # there before the first act
        operator.climb("arm")
        running = threading.Thread(target=operator.act, args=("run",))
        running.start()
        while runner.state is not State.RUNNING:
            time.sleep(0.001)
        asks.publish(Empty())
        running.join(60.0)
        assert runner.state is State.HELD
        stops = [act for act in runner.record.acts if act.act == "stop"]
        assert [(act.way, act.refused) for act in stops] == [(STRANGER, "")]
        assert "asked for by anybody: emergency stop" in runner.session.reason
        assert runner.record.rungs[-1].samples < 30 * 1024
    somebody.destroy_node()
    rclpy.shutdown(context=context)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with directly(tmp_path, 0) as session:
        yield session


def altered(request: Request, told: Answer, chance: random.Random) -> list[Request]:
    """A request as a stranger alters it: each of its fields, the nonce by the newest one, and what is armed."""
    other = chance.choice([name for name in ACTS if name not in OPEN_TO_ALL | {request.act}])
    values = tuple(
        chance.choice((told.scenario_hash, told.offsets_hash, "g", "true", "0.1")) for _ in request.values
    )
    given = arguments_of(request.act, told)
    return [
        replace(request, nonce=told.nonce),
        replace(request, nonce=secrets.token_hex(16)),
        replace(request, act=other),
        replace(request, act=other, nonce=told.nonce),
        replace(request, by="Eve"),
        replace(request, values=values),
        replace(request, values=values, nonce=told.nonce),
        replace(request, names=tuple(given), values=tuple(given.values()), nonce=told.nonce),
        replace(request, names=request.names[::-1], values=request.values[::-1]),
        replace(request, signature="", nonce=told.nonce),
        replace(request, signature=secrets.token_hex(32), nonce=told.nonce),
        signed(request, secrets.token_bytes(32), told),
    ]


def no_act_of_a_stranger(opened: Opened, sessions: int, seed: int, of_each: int = 12) -> int:
    """Do so many tests, and before and behind each act send all that was heard, as it was and altered.

    How many requests were refused. Of earlier sessions some are drawn each time, and in the last one all are sent;
    of the twelve ways to alter a request ``of_each`` are drawn.
    """
    chance, heard, tried = random.Random(seed), [], 0
    for number in range(sessions):
        with opened(number) as session:
            operator = Operator(session)

            def attack(requests: list[Request], session: Session = session) -> int:
                told, before = session.seen(), list(session.done)
                asked = [each for each in requests if each.act]
                asked += [
                    each for request in asked for each in chance.sample(altered(request, told, chance), of_each)
                ]
                answers = [session.send(each) for each in asked]
                assert [each.result for each in answers if each.done or not each.reason] == []
                assert session.done == before
                return len(asked)

            for act in MOVES:
                everything = number == sessions - 1 and act == "arm"
                tried += attack(heard if everything else chance.sample(heard, min(len(heard), 4)))
                assert operator.act(act).done, act
                tried += attack(operator.heard[-2:])
            assert session.done == [(act, KEY) for act in MOVES]
            assert session.runner.state is State.FINISHED
            heard += operator.heard
    return tried


@contextmanager
def directly(folder: Path, number: int) -> Iterator[Session]:
    """A session without a middleware in between."""
    runner, said = runner_of(folder, number), []
    served = Served(runner, SECRET, said.append)
    yield Session(runner, lambda request: served.answer(request, lasting=True), said)
    runner.session.close()


@pytest.mark.long
def test_a_stranger_who_hears_whole_tests_gets_no_act(tmp_path: Path) -> None:
    """All that he may send; what comes by the middleware, of which the next test sends a part, is no other."""
    assert no_act_of_a_stranger(partial(directly, tmp_path), 3, seed=8) > 800


@pytest.mark.long
def test_a_stranger_who_hears_a_whole_test_gets_no_act_by_service_or_action(tmp_path: Path) -> None:
    assert no_act_of_a_stranger(partial(by_service, tmp_path), 2, seed=8, of_each=2) > 100


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_stranger_who_hears_whole_tests_gets_no_act_by_service_or_action(tmp_path: Path) -> None:
    assert no_act_of_a_stranger(partial(by_service, tmp_path), 3, seed=8) > 800


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_stranger_who_hears_a_hundred_whole_tests_gets_no_act(tmp_path: Path) -> None:
    assert no_act_of_a_stranger(partial(by_service, tmp_path), 100, seed=9) > 30_000


def test_the_hashes_alone_are_no_authority(session: Session) -> None:
    """Another user of the machine did a whole test with what the empty act hands out."""
    for act in MOVES:
        told = session.seen()
        given = arguments_of(act, told)
        refused = session.send(Request(act, tuple(given), tuple(given.values())))
        assert not refused.done
        assert refused.reason.startswith(f"{act}: is not signed: acts come by the socket of this machine")
    assert session.runner.state is State.IDLE
    assert session.runner.record.acts == []
    assert session.said == ["connect: refused to somebody who is not known as an operator (1 such so far)"]


def test_every_act_that_does_more_than_bring_the_rig_to_rest_needs_an_operator(session: Session) -> None:
    assert {name for name, act in ACTS.items() if act.anybody} == OPEN_TO_ALL
    for name in ACTS.keys() - OPEN_TO_ALL:
        assert "is not signed" in session.send(Request(name)).reason
    assert "unknown act 'fly'" in session.send(Request("fly")).reason


def test_everybody_may_read(session: Session) -> None:
    told = session.seen()
    assert (told.done, told.next_rung, told.test_id) == (True, "g", "test 0")
    assert told.scenario_hash == session.runner.ladder.step("g").hash
    assert not told.possible["connect"]


def climbed(session: Session, last: str) -> Operator:
    """An operator who has done the acts up to the ``last``."""
    operator = Operator(session)
    operator.climb(last)
    return operator


@pytest.mark.parametrize(
    "request_",
    [
        Request("stop"),
        Request("stop", signature="wrong", nonce="used"),
        Request("stop", ("reason",), ()),
        Request("stop", ("reason", "speed"), ("smoke\n" * 100, "fast"), "A. Tester"),
    ],
    ids=["bare", "with a signature that does not fit", "half an argument", "words"],
)
@pytest.mark.briefly(2)
def test_anybody_may_stop(session: Session, request_: Request) -> None:
    """Whatever else is wrong with the request; the record does not say that it was the operator."""
    climbed(session, "arm")
    assert session.runner.state is State.ARMED
    assert session.send(request_).done
    assert session.runner.state is State.HELD
    act = session.runner.record.acts[-1]
    assert (act.by, act.way) == ("anybody", STRANGER)
    assert len(act.arguments["reason"]) < LONGEST_REASON + 30
    assert act.arguments["reason"].startswith("asked for by anybody")
    assert act.arguments["reason"].isprintable()


def test_a_stop_that_is_signed_is_the_operators(session: Session) -> None:
    operator = climbed(session, "arm")
    assert operator.act("stop").done
    act = session.runner.record.acts[-1]
    assert (act.by, act.way) == ("Ada", KEY)


def test_a_request_for_what_has_changed_meanwhile_is_refused(session: Session) -> None:
    """Offsets were taken anew after the operator had looked."""
    operator = climbed(session, "take_offsets")
    told = session.seen()
    stale = signed(Request("confirm_offsets", ("hash", "unloaded"), (told.offsets_hash, "true")), SECRET, told)
    assert operator.act("take_offsets").done
    assert "an answer that is out of date" in session.send(stale).reason


def test_strangers_who_ask_all_the_time_do_not_lock_the_operator_out(session: Session) -> None:
    told = session.seen()
    mine = signed(Request("connect"), SECRET, told)
    for _ in range(300):
        session.send(Request())
        session.send(Request("connect", nonce=told.nonce, signature=secrets.token_hex(32)))
    assert session.send(mine).done


@pytest.mark.parametrize("last", ["connect", "arm"])
def test_stops_of_a_stranger_that_end_nothing_do_not_fill_the_record(session: Session, last: str) -> None:
    """He may ask for them all day: the record is written with every act in it, also while the rig moves."""
    climbed(session, last)
    acts = session.runner.record.acts
    session.send(Request("stop"))  # it ends what is armed
    before = len(acts)
    for number in range(100):
        told = session.send(Request(("stop", "hold")[number % 2]))
        assert told.reason.endswith("nothing is under way, and nothing is armed")
    assert len(acts) == before


def test_a_stranger_fills_neither_record_nor_terminal(session: Session) -> None:
    for _ in range(1000):
        session.send(Request("arm"))
    assert session.runner.record.acts == []
    assert [words.rpartition("(")[2] for words in session.said] == [
        f"{count} such so far)" for count in (1, 10, 100, 1000)
    ]


def test_the_key_is_nowhere_but_in_its_file(session: Session) -> None:
    """Neither in the record, nor in an answer or in what is told."""
    climbed(session, "finish")
    texts = [path.read_text(errors="replace") for path in session.runner.folder.rglob("*") if path.is_file()]
    texts += [str(session.seen()), *session.said, repr(os.environ)]
    assert not any(SECRET.hex() in text or repr(SECRET)[2:-1] in text for text in texts)


def test_by_the_socket_a_process_is_known_by_its_user(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, 0)
    served = Served(runner, SECRET, print)
    peer = Credentials(1, os.getuid())
    assert served.answer_process(Request("connect"), peer).done
    assert served.answer_process(Request("stop", by="Ada"), peer).reason or runner.record.acts[-1].by == "Ada"
    act = runner.record.acts[0]
    assert (act.by, act.way) == (peer.name, f"socket, user {peer.user} ({peer.name})")
    runner.session.close()


def test_what_is_said_by_the_socket_can_be_written_into_a_report(tmp_path: Path) -> None:
    """JSON has texts of which UTF-8 knows nothing: the report failed behind a whole test."""
    runner = runner_of(tmp_path, 0)
    note = Request("note", ("text",), ("a crack \ud800",), "Ada\udfff")
    assert Served(runner, SECRET, print).answer_process(note, Credentials(1, os.getuid())).done
    told = runner.record.notes[-1]
    assert (told.text, told.by) == ("a crack ?", "Ada?")


def test_a_program_that_is_gone_leaves_nothing_armed(session: Session, tmp_path: Path) -> None:
    climbed(session, "arm")
    Served(session.runner, SECRET, print).stop_for(Credentials(1, os.getuid()))
    assert session.runner.state is State.HELD
    assert "has left while its act was under way" in session.runner.session.reason


def test_what_is_said_stands_with_the_name_of_who_has_said_it(session: Session) -> None:
    """Signatures and notes are those of who asks for them, not of the operator who has started the test."""
    runner = session.runner
    operator = climbed(session, "check")
    with pytest.raises(ConfigError):
        runner.do("sign_for", "Ada", KEY, what="nothing")
    assert runner.record.acts[-1].by == "Ada"
    runner.do("note", "Eve", KEY, text="a crack")
    assert [(note.text, note.by) for note in runner.record.notes][-1] == ("a crack", "Eve")
    assert operator.act("position").done
