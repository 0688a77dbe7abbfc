# SPDX-License-Identifier: Apache-2.0
"""Test conducted by requests over the operator socket, while the terminal only observes.

Over ROS, every node may observe and bring the rig to rest. Other acts must come over the socket, from a process of
the user who runs the test (``operator_socket.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from rths_nodes.analysis.units import KN, MM
from rths_nodes.app.procedure.console import Console
from rths_nodes.app.procedure.operator_socket import LOOK_S, UNSEEN, Answer, OperatorSocket, Request
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner, next_act
from rths_nodes.core.errors import ConfigError, PortError, printable, unknown
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import ANYBODY, PAGE, SOCKET, verdict
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import UNCONDITIONAL, Seen
from rths_nodes.procedure.session import ACTS
from rths_nodes.ros import environment
from rths_nodes.ros.names import STRANGER
from rths_nodes.ros.transport.line import Credentials

PROGRAM_LEFT = "the operator's program has disconnected during its act"
PAGE_SILENT_S = 2.5
"""Time without a request from this test's page after which a rung armed by the page is disarmed, s."""
_FLAGS = {"true": True, "yes": True, "false": False, "no": False}


class Served:
    """Connects a ``runner`` with the operator socket and the operator node.

    ``page`` is the pid of this test's page, or 0 without a page. ``say`` prints a text, and must not block.
    """

    def __init__(self, runner: ProcedureRunner, say: Callable[[str], object], page: int = 0) -> None:
        self._runner, self._say, self._page = runner, say, page
        self._page_asked = time.monotonic()
        self.ending: Callable[[], str] = str
        """Function that returns the reason why no further act begins, or an empty string during the test."""
        self._step = cache(runner.ladder.step)

    def conduct(self, console: Console, namespace: str, watch_hz: float = 0.0) -> ExitCode:
        """Conduct the test by requests to the socket of ``namespace``. A signal stops the rig and ends the test.

        ``watch_hz`` is the rate at which a watcher receives the state of the rig, Hz. Raises ConfigError if the
        operator socket is taken. The test is refused if an operator node exists already.
        """
        environment.check()
        from rths_nodes.ros.nodes.operator import OperatorNode

        runner = self._runner
        node = OperatorNode(runner.session, self.stop, self.hold, namespace, watch_hz)

        def changed(state: State, reason: str) -> None:
            if state is State.FINISHED:  # the procedure has ended, but the test may not have finished
                code, why = runner.outcome(stopped=console.stopped)
                reason = f"{code.outcome}: {why}" if why else ""
            node.publish_state(state, reason)
            self._say(f"{runner.record.rig_kind}: {state.name.lower()}{f': {reason}' if reason else ''}")

        def walk() -> None:
            try:
                node.start()
                listening.start()
                self._say(
                    "programs of this user may send acts over the operator socket. Any node may observe, stop "
                    f"({node.stop_service}) and hold the rig. Ctrl-C stops the rig and ends the test"
                )
                while next_act(runner, lambda: True) and not console.stopped:
                    console.heed_signals()
                    self.disarm_if_page_silent()
                    time.sleep(LOOK_S)
            except BaseException:
                runner.session.stop("the test has failed")  # no act may continue without a stop at the terminal
                raise
            finally:
                self.ending = lambda: console.stopped or "the procedure has ended"
                listening.close()  # waits for acts under way and answers them

        with closing(node):
            listening = OperatorSocket(self.answer, self.stop_for, node.address)
            runner.changed, self.ending = changed, lambda: console.stopped
            return console.run(walk, node.close)

    def stop(self, reason: str, by: str = STRANGER) -> None:
        """Stop the rig. To keep the record small, record a stop only during an act or if a rung is armed."""
        session = self._runner.session
        if session.busy or session.state is State.ARMED:
            self._runner.do("stop", by, ANYBODY, reason=reason)
        else:
            session.stop(reason)

    def hold(self, reason: str) -> None:
        if why_not := self._runner.session.possible()["hold"]:
            raise ConfigError(f"hold: {why_not}")
        self._runner.do("hold", STRANGER, ANYBODY, reason=reason)

    def answer(self, request: Request, peer: Credentials) -> Answer:
        """Perform the request of ``peer``. Report failures in the answer, and also print unexpected failures."""
        done, result, reason = False, "", ""
        if self._way(peer) == PAGE:
            self._page_asked = time.monotonic()
        try:
            result, done = self._do(request, peer) if request.act else "", True
        except (ConfigError, PortError) as error:
            reason = str(error)
            if request.act == "arm":
                self._step.cache_clear()  # with an outdated hash, every later attempt to arm would fail
        except Exception as error:
            reason = f"failed: {type(error).__name__}: {error}"
            self._say(f"act {request.act!r} has {reason}")
        return replace(self.situation(), done=done, result=result, reason=reason)

    def stop_for(self, peer: Credentials) -> None:
        """Stop the act of a process that has disconnected before the end of the act."""
        with suppress(ConfigError):
            self._runner.do("stop", peer.name, self._way(peer), reason=PROGRAM_LEFT)

    def disarm_if_page_silent(self) -> None:
        """Disarm a rung armed by this test's page if the page's process no longer polls."""
        if self._runner.state is not State.ARMED or time.monotonic() - self._page_asked <= PAGE_SILENT_S:
            return
        by, way = self._runner.session.armed_by
        if way == PAGE:
            self._runner.do("stop", by, PAGE, reason="the page's process, which armed the rung, is silent")

    def _way(self, peer: Credentials) -> str:
        return PAGE if self._page and self._page in (peer.process, _parent(peer.process)) else SOCKET

    def situation(self) -> Answer:
        runner, session = self._runner, self._runner.session
        seen, rung = session.seen, runner.next_rung
        possible, wanting = session.possible(), session.clearance.unsigned()
        offsets = session.offsets if possible["confirm_offsets"] else session.taken
        proposed = next_act(runner, lambda: True) if possible["resume"] else "resume"
        verdicts, arming = {row.name: verdict(row) for row in runner.record.rungs}, ("", "")
        if rung:
            with suppress(ConfigError):  # arming reports the error
                step = self._step(rung)
                arming = step.hash, step.engine
        return Answer(
            state=seen.state,
            stops=seen.stops,
            possible=possible,
            next_rung=rung,
            scenario_hash=arming[0],
            engine=arming[1],
            offsets_hash=offsets.hash if offsets is not None else "",
            test_id=runner.record.test_id,
            to_sign=[] if possible["sign_for"] else wanting,
            checklist=runner.to_answer,
            warning=session.warning.text,
            motions={act: "" if why else self._motion(act) for act, why in possible.items()},
            next_act="" if possible.get(proposed) else proposed,
            verdicts={name: verdicts.get(name, "") for name in runner.ladder.planned},
        )

    def _motion(self, act: str) -> str:
        try:
            return self._runner.motion(act)
        except ConfigError:  # the act reports the error
            return ""

    def _do(self, request: Request, peer: Credentials) -> str:
        name, by, record = request.act, printable(request.by or peer.name), self._runner.record
        arguments = {key: printable(text) for key, text in request.arguments.items()}
        if name not in ACTS:
            raise unknown("act", "act", name, ACTS)
        do, act = partial(self._runner.do, name, by, self._way(peer)), ACTS[name]
        if act.anybody:  # an invalid request must not prevent a stop
            return do(reason=arguments.get("reason", ""))
        if ending := self.ending():
            raise ConfigError(f"{name}: no act can begin, because the test is ending ({ending})")
        if name not in UNCONDITIONAL and UNSEEN in (request.stops, request.state):
            raise ConfigError(f"{name}: stops and state are missing. Query both first with the empty act")
        if name not in UNCONDITIONAL and request.test_id != record.test_id:
            raise ConfigError(
                f"{name}: the request is for test {request.test_id!r}, but the current test is "
                f"{record.test_id!r}. Query again"
            )
        if lacking := sorted(set(act.needed) - set(arguments)):
            raise ConfigError(f"{name}: the request lacks {', '.join(lacking)}")
        values = {key: _value(name, key, text) for key, text in arguments.items()}
        done = do(Seen(request.stops, request.state), **values)
        return record.named("\n".join([done, *self._findings(name)]).strip())

    def _findings(self, act: str) -> list[str]:
        session, record = self._runner.session, self._runner.record
        if act == "take_offsets" and session.taken is not None:
            rows = [
                f"{record.called(name)}: displacement {MM * row.displacement:.5g} mm (scatter "
                f"{MM * row.displacement_scatter:.3g} mm), force {KN * row.force:.5g} kN (scatter "
                f"{KN * row.force_scatter:.3g} kN)"
                for name, row in session.taken.record().axes.items()
            ]
            return rows + self._runner.loads_at_rest
        if act == "check":
            return [finding for row in record.checks.values() for finding in (*row.findings, *row.remarks)]
        return []


def _parent(process: int) -> int:
    with suppress(OSError):
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[1])
    return 0


def _value(act: str, name: str, text: str) -> object:
    try:
        if name == "seconds":
            return float(text)
        return _FLAGS[text.lower()] if name == "unloaded" else text
    except (KeyError, ValueError):
        expected = "a number of seconds" if name == "seconds" else "true or false"
        raise ConfigError(f"{act}.{name} = {text!r}: must be {expected}") from None
