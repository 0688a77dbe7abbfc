# SPDX-License-Identifier: Apache-2.0
"""Tests of acts over the operator socket, of stops over ROS, and of the curves of motions on their topics."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming
from page_of_test import procedure_beside
from rig_runner import Bar, arm, conducted, consoled, positioned
from served_test import MOVES, PEER, Operator, Session, arguments_of, directly, with_node
from stop_at import elsewhere

from rths_nodes.app.procedure import procedure_runner, served
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console, typed
from rths_nodes.app.procedure.operator_socket import UNSEEN, OperatorSocket, Request, SocketOperator
from rths_nodes.app.procedure.served import Served
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.indices.live_columns import LAST, OF_AXIS, PER_CURVE
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import ANYBODY, PAGE, SOCKET, verdict
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import UNCONDITIONAL, ActRefused
from rths_nodes.procedure.session import ACTS, CLEAR
from rths_nodes.recording import procedure
from rths_nodes.ros.transport.line import Credentials

pytest.importorskip("rclpy")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with directly(tmp_path) as session:
        yield session


def after(session: Session, last: str) -> Operator:
    """Return an operator who has done the acts up to the ``last``."""
    operator = Operator(session)
    operator.climb(last)
    return operator


AFTER = (
    ("rehearsed", "connect", "IDLE"),
    ("connect", "take_offsets", "CONNECTED"),
    ("confirm_offsets", "check", "REFERENCED"),
    ("check", "position", "REFERENCED"),
    ("position", "arm", "POSITIONED"),
    ("arm", "run", "ARMED"),
    ("run", "position", "HELD"),
    ("run", "unload", "HELD"),
)
"""The last act, the act that is prepared after it, and the state."""


@pytest.mark.parametrize(("last", "act", "state"), AFTER, ids=lambda value: str(value))
def test_act_prepared_before_a_stop_is_refused(session: Session, last: str, act: str, state: str) -> None:
    operator = after(session, last) if last in MOVES else Operator(session)
    prepared = operator.request(act)
    assert session.runner.state.name == state
    assert session.send(Request("stop")).done
    moved: list[State] = []
    session.runner.changed = lambda state, reason: moved.append(state)
    answer = session.send(prepared)
    assert not answer.done
    now = "HELD" if state == "ARMED" else state
    for part in (
        f"{act}: ",
        f"state {state}, stop count {prepared.stops}",
        f"{now}, stop count {prepared.stops + 1}",
        "Look at the procedure again",
    ):
        assert part in answer.reason
    assert not moved
    assert session.runner.record.acts[-1].refused == answer.reason
    if state != "ARMED":
        assert operator.act(act).done, "for the current situation"


def test_proposed_acts_are_possible_and_verdicts_are_shown(session: Session) -> None:
    operator, proposed, verdicts = Operator(session), [], []
    for act in (*MOVES[:-1], "unload", MOVES[-1]):
        seen = session.send(Request())
        proposed.append(seen.next_act)
        verdicts += seen.verdicts.values()
        assert [*seen.verdicts] == ["g"]
        acts = ("take_offsets", act) if act == "check" else (act,)  # the second offsets are not confirmed
        assert all(operator.act(name).done for name in acts)
    assert proposed == [*MOVES[:-1], "unload", "finish"]
    assert [*dict.fromkeys(verdicts)] == ["", verdict(session.runner.record.rungs[-1])]
    assert session.send(Request()).next_act == ""


@pytest.mark.parametrize("earlier", [False, True], ids=["first arming", "armed by the page before"])
def test_rung_armed_by_a_program_ignores_a_silent_page(
    session: Session, monkeypatch: pytest.MonkeyPatch, earlier: bool
) -> None:
    """The test checks the page after the rig is armed, and before the act is recorded."""
    operator = after(session, "position")
    if earlier:
        monkeypatch.setattr(session.served, "_page", PEER.process)
        assert operator.act("arm").done
        assert operator.act("stop").done
        monkeypatch.setattr(session.served, "_page", 0)
        assert operator.act("position").done
    arm = session.runner.session.arm

    def armed(*args: Any, **arguments: Any) -> Any:
        persons = arm(*args, **arguments)
        monkeypatch.setattr(served, "PAGE_SILENT_S", -1.0)
        session.served.disarm_if_page_silent()
        return persons

    monkeypatch.setattr(session.runner.session, "arm", armed)
    answer = operator.act("arm")
    assert answer.done, answer.reason
    assert session.runner.state is State.ARMED


def test_act_for_another_state_is_refused(session: Session) -> None:
    operator = after(session, "connect")
    prepared = operator.request("take_offsets")
    operator.act("take_offsets")
    operator.act("confirm_offsets")
    answer = session.send(prepared)
    assert mentions(answer.reason, "CONNECTED", "0", "REFERENCED")


def test_act_for_an_earlier_test_is_refused(session: Session) -> None:
    """The sender has seen an earlier test in the same namespace."""
    prepared = replace(Operator(session).request("connect"), test_id="yesterday")
    assert mentions(session.send(prepared).reason, "yesterday", "test 0")
    assert session.runner.state is State.IDLE


def test_act_without_stops_and_state_is_refused(session: Session) -> None:
    for name in ACTS.keys() - set(UNCONDITIONAL):
        assert mentions(session.send(Request(name)).reason, name, "stops", "state", "missing")
    assert "unknown act 'fly'" in session.send(Request("fly")).reason
    assert session.runner.state is State.IDLE
    assert UNCONDITIONAL == ("stop", "hold", "note")


@pytest.mark.parametrize("last", MOVES, ids=str)
def test_stop_is_never_refused(session: Session, last: str) -> None:
    after(session, last)
    before = session.runner.session.seen.stops
    requests = (
        Request("stop"),
        Request("stop", {"reason": ""}),
        Request("stop", {"reason": "smoke", "speed": "fast"}, "Ada", stops=99, state=99),
    )
    for request in requests:
        assert session.send(request).done
    session.served.stop("a service")
    assert session.runner.session.seen.stops == before + 4


def test_stop_is_answered_although_no_motion_can_be_computed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer had failed if a copied input file was deleted, as if the test had ended."""

    def start_of(*_: object) -> None:
        raise ConfigError("inputs/motion.txt: cannot be read")

    monkeypatch.setattr(procedure_runner, "start_of", start_of)
    Operator(session).climb("check")
    answer = session.send(Request("stop"))
    assert (answer.done, answer.possible["position"]) == (True, "")
    assert mentions(Operator(session).act("position").reason, "inputs/motion.txt", "read")


def test_end_of_a_program_disarms(session: Session) -> None:
    after(session, "arm")
    session.served.stop_for(PEER)
    assert session.runner.state is State.HELD
    assert mentions(session.runner.session.reason, "during", "act")


def test_acts_of_the_started_page_are_recorded_as_such(session: Session) -> None:
    """A page has two processes: it is identified by its process or the parent."""
    session.send(Request("note", {"text": "by a program"}))
    for page in (os.getpid(), os.getppid()):
        served = Served(session.runner, print, page)
        served.answer(Request("note", {"text": "by the page"}, "Ada"), PEER)
        served.answer(Request("note", {"text": "by no process"}, "Ada"), Credentials(2**22, os.getuid()))
    assert [(act.by, act.way) for act in session.runner.record.acts] == [
        (PEER.name, SOCKET),
        *[("Ada", PAGE), ("Ada", SOCKET)] * 2,
    ]


def test_text_that_utf8_cannot_encode_is_escaped(session: Session) -> None:
    """JSON has such texts: the report failed after a complete test."""
    assert session.send(Request("note", {"text": "a crack \ud800"}, "Ada\udfff")).done
    note = session.runner.record.notes[-1]
    assert (note.text, note.by) == (r"a crack \ud800", r"Ada\udfff")


@pytest.mark.parametrize("last", ["connect", "arm"])
def test_stops_without_effect_are_not_recorded(session: Session, last: str) -> None:
    """Every act rewrites the record, also while the rig moves."""
    after(session, last)
    acts = session.runner.record.acts
    session.served.stop("over ROS")  # disarms
    before = len(acts)
    for _ in range(100):
        session.served.stop("over ROS")
        with pytest.raises(ConfigError, match="hold: "):
            session.served.hold("over ROS")
    assert len(acts) == before
    assert session.runner.session.seen.stops >= 100


def test_signatures_and_notes_are_recorded_with_their_author(session: Session) -> None:
    runner, operator = session.runner, after(session, "check")
    with pytest.raises(ConfigError):
        runner.do("sign_for", "Ada", SOCKET, what="nothing")
    assert runner.record.acts[-1].by == "Ada"
    runner.do("note", "Eve", SOCKET, text="a crack")
    assert [(note.text, note.by) for note in runner.record.notes][-1] == ("a crack", "Eve")
    assert operator.act("position").done


def wait_for_answer(operator: SocketOperator, testing: subprocess.Popen[str]) -> None:
    while operator.seen.stops == UNSEEN:
        try:
            operator.ask()
        except ConfigError:
            assert testing.poll() is None
            time.sleep(0.1)


@pytest.mark.nodes
@pytest.mark.timeout(120)
def test_act_prepared_before_a_stop_of_another_program_is_refused(tmp_path: Path) -> None:
    """Two programs at the socket of ``rths test``, in each state."""
    stale, refused = SocketOperator(), []
    with procedure_beside(tmp_path, "g", "--set=duration=0.2", "--no-report") as testing:
        wait_for_answer(stale, testing)
        for act in ("connect", "take_offsets", "confirm_offsets", "check", "position", "arm", "run", "unload"):
            state = stale.seen.state
            seen = SocketOperator().ask("stop", "Bob")
            answer = stale.ask(act, "Ada", **arguments_of(act, seen))
            assert not answer.done
            assert answer.state == seen.state
            reported = f"the procedure now has state {State(seen.state).name}" in answer.reason
            refused.append((act, State(state).name, reported))
            for name in ("position", "arm", "run") if act == "run" else (act,):  # the stop has disarmed
                answer = stale.ask(name, "Ada", **arguments_of(name, answer))
                assert answer.done, answer.reason
        assert stale.ask("finish", "Ada").done
        testing.communicate(timeout=60.0)
    states = ("IDLE", *["CONNECTED"] * 2, *["REFERENCED"] * 2, "POSITIONED", "ARMED", "HELD")
    assert [(state, reported) for _, state, reported in refused] == [(state, True) for state in states]
    record = procedure.read(tmp_path / "runs" / "first")
    assert [act.act for act in record.acts if act.refused] == [act for act, _, _ in refused]


@pytest.mark.nodes
@pytest.mark.timeout(120)
def test_ctrl_c_finishes_a_connected_test(tmp_path: Path) -> None:
    """The last state was published after the node was closed: a traceback, exit code 1."""
    operator = SocketOperator()
    with procedure_beside(tmp_path, "g", "--no-report") as testing:
        wait_for_answer(operator, testing)
        assert operator.ask("connect", "Ada").done
        testing.send_signal(signal.SIGINT)
        printed, _ = testing.communicate(timeout=60.0)
    assert (testing.returncode, "Traceback" in printed) == (130, False), printed
    record = procedure.read(tmp_path / "runs" / "first")
    assert [act.act for act in record.acts] == ["connect", "stop", "finish"]
    assert record.outcome == "held"


@pytest.mark.nodes
def test_no_act_begins_after_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test had waited for the end of an act that began between the stop and the end of the socket."""
    console, answers = consoled(tmp_path / "test"), []
    runner, close = console.runner, OperatorSocket.close
    of_test = Served(runner, console.tell)

    def closing(socket: OperatorSocket) -> None:
        seen = of_test.answer(Request(), PEER)
        request = Request("rehearse", stops=seen.stops, state=seen.state, test_id=seen.test_id)
        answers.append(of_test.answer(request, PEER))
        close(socket)

    monkeypatch.setattr(OperatorSocket, "close", closing)
    console._signal(signal.SIGTERM)
    assert of_test.conduct(console, "rths_0") is ExitCode.HELD
    assert mentions(answers[0].reason, "rehearse", "ending", "SIGTERM")
    assert runner.record.rungs == []


def test_answer_to_a_prompt_before_a_stop_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator answers after the stop, and is asked again."""
    runner, output = conducted(tmp_path / "test"), list[str]()

    def ask(question: str) -> str:
        if CLEAR in question:
            return CLEAR
        if "act (" not in question:
            return "y" if "[y/N]" in question else "0.1"
        if runner.state is State.REFERENCED and not runner.record.checks:
            if not runner.session.seen.stops:
                runner.session.stop("smoke")
            return "check"
        return "finish" if runner.record.checks else ""

    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as keys, open(writing, "w", encoding="utf-8"):
        monkeypatch.setattr("sys.stdin", keys)
        console = Console(Answers(), ask, lambda line: output.append(str(line)))
        console.attach(runner, lambda name: nullcontext(Bar()), leads=True)
        states, printed = [State.IDLE], runner.changed
        runner.changed = lambda state, reason: (states.append(state), printed(state, reason))
        console.run()
    refusal = next(line for line in output if line.startswith("refused: check"))
    assert mentions(refusal, "state", "REFERENCED", "0", "1")
    acts = [act.act for act in runner.record.acts if not act.refused]
    assert acts[-2:] == ["check", "finish"], "after the operator has seen the stop"
    assert len(states) == len(set(states)) + 1, "one motion"


@pytest.mark.parametrize("trips", [False, True], ids=["stop", "trip"])
def test_prompt_for_clear_ends_with_the_act(
    trips: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    runner = conducted(tmp_path / "test")
    runner.do("connect")
    terminal, keys = os.openpty()
    with open(keys, encoding="utf-8") as typed_at, runner.session.act("check", runner.session.seen):
        monkeypatch.setattr("sys.stdin", typed_at)
        console = Console(Answers(), typed, print)
        console.attach(runner, lambda name: nullcontext(Bar()), leads=True)
        session = runner.session
        trip, stop = partial(session.to, State.TRIPPED, "smoke"), partial(session.stop, "smoke")
        timer = threading.Timer(0.3, trip if trips else stop)
        timer.start()
        with pytest.raises(ActRefused, match=naming("check", "smoke")):
            console.clear("check", "by 1 mm")
        timer.join()
    os.close(terminal)
    assert "CLEAR" in capfd.readouterr().err
    runner.session.close()


@pytest.mark.nodes
@pytest.mark.parametrize("led", ["terminal", "socket"])
def test_stalled_terminal_delays_no_stop(led: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that stops the rig had printed its state, while it barred every other stop."""
    runner, printing, in_time = conducted(tmp_path / "test"), threading.Event(), list[bool]()
    console, conclude = Console(Answers(), None, lambda shown: stalled(shown)), runner.conclude

    def stalled(shown: object) -> None:
        in_time.append(printing.wait(10.0))

    def concluded(*reasons: str) -> ExitCode:
        code = conclude(*reasons)
        printing.set()
        return code

    def refused(*_: object, **__: object) -> None:
        if led == "socket":
            assert elsewhere(lambda: runner.session.stop("smoke")) is None
        console._attempt("hold")
        raise ConfigError("smoke")

    console.attach(runner, lambda name: nullcontext(Bar()), leads=False)
    positioned(runner)
    arm(runner, "d")
    monkeypatch.setattr(runner, "conclude", concluded)
    if led == "terminal":
        assert elsewhere(lambda: runner.session.stop("smoke")) is None
        monkeypatch.setattr(console, "_walk_on", refused)
        console.run()
    else:
        monkeypatch.setattr(console, "heed_signals", refused)
        Served(runner, console.tell).conduct(console, "rths_0")
    assert runner.state is State.FINISHED
    assert len(in_time) > 1
    assert all(in_time)


def test_ctrl_c_during_arm_disarms_before_the_next_act(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C had stopped the next act only, which may move the rig."""
    console = consoled(tmp_path / "test", arm=["d", "g"], run={"moves": "y"}, unload={"moves": "n"})
    runner = console.runner
    positioned(runner)
    check = runner.ladder.check_elastic

    def interrupted(name: str) -> None:
        signal.raise_signal(signal.SIGINT)
        check(name)

    monkeypatch.setattr(runner.ladder, "check_elastic", interrupted)
    console.run()
    assert [act.act for act in runner.record.acts][-3:] == ["arm", "stop", "finish"]


def test_ctrl_c_before_a_motion_ends_it_before_it_begins(tmp_path: Path) -> None:
    """The motion had begun, and was stopped after the first polling interval."""
    console = consoled(tmp_path / "test")
    console.runner.do("connect")
    console._signal(signal.SIGINT)
    begun = []
    with console.runner.session.act():
        console.meanwhile("run", lambda: begun.append(console.runner.session.stopped))
    assert begun != [""]
    console.runner.session.close()


def test_failed_output_changes_no_outcome(tmp_path: Path) -> None:
    """The error of an earlier text had been raised at the end, in place of the exit code."""
    console = consoled(tmp_path / "test")
    console.attach(console.runner, lambda name: nullcontext(Bar()), leads=False)
    console._printer._show = lambda shown: 1 / 0
    console.runner.tripped = "smoke"
    console.tell("held")
    assert console.run(lambda: None) is ExitCode.TRIPPED


@pytest.mark.nodes
def test_failed_socket_stops_the_motion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test had waited for the end of the act that was under way, and heeded no signal."""
    console, stopped = consoled(tmp_path / "test"), []
    session, close = console.runner.session, OperatorSocket.close

    def closing(socket: OperatorSocket) -> None:
        stopped.append(session.stops)
        close(socket)

    def failed() -> None:
        raise RuntimeError("smoke")

    monkeypatch.setattr(OperatorSocket, "close", closing)
    monkeypatch.setattr(console, "heed_signals", failed)
    with pytest.raises(RuntimeError, match="smoke"):
        Served(console.runner, console.tell).conduct(console, "rths_0")
    assert stopped == [1]


@pytest.mark.nodes
def test_node_ends_before_a_stalled_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node had published the last state of a closed rig until the terminal had printed everything."""
    from rths_nodes.ros.nodes.operator import OperatorNode

    console, ends, close = consoled(tmp_path / "test"), list[str](), OperatorNode.close
    console._signal(signal.SIGTERM)
    monkeypatch.setattr(console._printer, "wait", lambda: ends.append("printed"))
    monkeypatch.setattr(OperatorNode, "close", lambda node: [ends.append("node"), close(node)])
    Served(console.runner, console.tell).conduct(console, "rths_0")
    assert ends[:2] == ["node", "printed"]


def test_failed_resume_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error had been lost, while the rung stayed held."""
    console, errors = consoled(tmp_path / "test"), list[str]()
    reading, writing = os.pipe()
    os.write(writing, b"CLEAR\n")
    monkeypatch.setattr(threading, "excepthook", lambda failure: errors.append(str(failure.exc_value)))
    monkeypatch.setattr(console.runner.session, "do", lambda *_, **__: 1 / 0)
    with open(reading, encoding="utf-8") as keys:
        monkeypatch.setattr("sys.stdin", keys)
        console._listens = True
        console._attend()
        for thread in threading.enumerate():
            if thread.name == "resume":
                thread.join()
    os.close(writing)
    assert errors == ["division by zero"]


def test_interrupted_end_of_a_test_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = consoled(tmp_path / "test")
    console.runner.do("connect")

    def interrupted(act: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(console, "perform", interrupted)
    assert console.run() is ExitCode.HELD
    assert procedure.read(tmp_path / "test").outcome == "held"


@pytest.mark.nodes
@pytest.mark.parametrize("way", ["trip", "latched trip", "emergency_stop", "service", "page"])
def test_run_in_lockstep_is_stopped_over_ros(tmp_path: Path, way: str) -> None:
    """The run has no node that receives the stop; an earlier stop without motion is not recorded."""
    from rclpy.node import Node
    from rclpy.qos import DurabilityPolicy, QoSProfile
    from std_msgs.msg import Empty
    from std_srvs.srv import Trigger

    from rths_nodes.msg import Trip
    from rths_nodes.ros.hosting.composed import ros_context
    from rths_nodes.ros.hosting.listener import StopClient

    by = "page" if way == "page" else "anybody"
    latched = DurabilityPolicy.TRANSIENT_LOCAL if way == "latched trip" else DurabilityPolicy.VOLATILE
    qos = QoSProfile(depth=10, durability=latched)
    with ros_context() as context, with_node(tmp_path, 0, 30.0) as session:
        anybody, stopper = Node("anybody", namespace="rths_0", context=context), StopClient("rths_0", "stopper")
        request = Empty() if way == "emergency_stop" else Trip()
        topic = anybody.create_publisher(type(request), way if way == "emergency_stop" else "trip", qos)
        client = anybody.create_client(Trigger, "operator/stop")
        stopper.start()

        def stop() -> None:
            if way == "page":
                assert asyncio.run(stopper.stop("stop")) == "stopped"
            elif way == "service":
                client.call_async(Trigger.Request())
            else:
                topic.publish(request)

        try:
            operator, runner = Operator(session), session.runner
            while not (topic.get_subscription_count() and stopper.reaches() and client.service_is_ready()):
                time.sleep(0.01)
            stop()
            while not runner.session.seen.stops:
                time.sleep(0.01)
            operator.climb("arm")
            running = threading.Thread(target=operator.act, args=("run",))
            running.start()
            while runner.state.name != "RUNNING":
                time.sleep(0.001)
            stop()
            running.join(60.0)
            assert runner.state is State.HELD
            stops = [act for act in runner.record.acts if act.act == "stop"]
            assert [(act.by, act.way, act.refused) for act in stops] == [(by, ANYBODY, "")]
            assert mentions(runner.session.reason, "requested", by)
            assert runner.record.rungs[-1].samples < 30 * 1024
        finally:
            anybody.destroy_node()
            stopper.close()


BIT, MOVE = 1e-5, 0.9e-3
"""Resolution of the sensor, and nearly the small move of the check, m."""


def displacements(live: list[Any], curves: list[Any]) -> tuple[np.ndarray, float]:
    """Return the last measured displacements of the last motion, by axis, and the largest of all, m."""
    if not curves or not live:
        return np.full(1, np.nan), 0.0
    names = curves[-1].names
    measured = [number for number, name in enumerate(names) if name.endswith("/measured")]
    values = [np.array(message.values).reshape(-1, len(names), PER_CURVE)[:, measured] for message in live]
    last = [rows for rows, message in zip(values, live, strict=True) if message.run == curves[-1].run]
    largest = max(float(np.nanmax(np.abs(rows))) for rows in values)
    return (last[-1][-1, :, LAST] if last else np.full(len(measured), np.nan)), largest


@pytest.mark.nodes
def test_curves_of_motions_are_published(tmp_path: Path) -> None:
    """The check moves the rig a little and back; positioning ends at its present position."""
    from ear import Ear
    from rclpy.node import Node
    from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

    from rths_nodes.msg import Live, LiveCurves
    from rths_nodes.ros.hosting import composed
    from rths_nodes.ros.names import MOTION

    lossy = QoSProfile(depth=5000, reliability=ReliabilityPolicy.BEST_EFFORT)
    latched = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    with composed.ros_context() as context, with_node(tmp_path) as session:
        node = Node("page", context=context, start_parameter_services=False)
        live = Ear(node, Live, "/rths_0/live", lossy)
        curves = Ear(node, LiveCurves, "/rths_0/live_curves", latched)
        Operator(session).climb("position")
        position = session.runner.session.drive.measured.displacement
        end, shown, largest = time.monotonic() + 20.0, np.full(1, np.nan), 0.0
        # the last columns are published after the end of a motion has been detected
        while time.monotonic() < end and not (largest > MOVE and np.allclose(shown, position, rtol=0.0, atol=BIT)):
            time.sleep(0.05)
            live.listen()
            curves.listen()
            shown, largest = displacements(live.heard, curves.heard)
        node.destroy_node()
    axes = session.runner.session.scenario.axes
    assert curves.heard[-1].names == [f"{axis}/{name}" for name in OF_AXIS for axis in axes]
    runs = [message.run for message in curves.heard]
    assert all(run.startswith(MOTION) for run in runs)
    assert len({run.rpartition(" ")[0] for run in runs}) == 1, "of one procedure"
    assert sorted(set(runs)) == sorted(runs)
    assert largest > MOVE
    np.testing.assert_allclose(shown, position, atol=BIT)
