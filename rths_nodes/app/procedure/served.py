# SPDX-License-Identifier: Apache-2.0
"""Test led over the operator socket, while the terminal only observes.

Over ROS, every node may observe and bring the rig to rest. Other acts must come over the socket, from a process of
the user who runs the test (``operator_socket.py``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.analysis.units import KN, MM
from rths_nodes.app.procedure.operator_socket import UNSEEN, Answer, OperatorSocket, Request
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner, next_act
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, PortError, printable, unknown
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.loop.interrupts import REQUESTS, stop_signals_handled
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import ANYBODY, PAGE, SOCKET, TERMINAL, AxisOffsets, verdict
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import UNCONDITIONAL, Seen
from rths_nodes.procedure.session import ACTS
from rths_nodes.recording.records import RecordingError
from rths_nodes.ros import environment
from rths_nodes.ros.names import STRANGER

if TYPE_CHECKING:
    from rths_nodes.ros.transport.greeting import Credentials

INTERRUPTED = "the test was interrupted at the terminal"
PROGRAM_LEFT = "the operator's program has disconnected during its act"
PAGE_LEFT = "the page's process, which armed the rung, is silent"
PAGE_SILENT_S = 2.5
"""Time without a request from this test's page after which a rung armed by the page is disarmed, s."""
LOOK_S = 0.05
SILENT = (State.IDLE, State.RUNNING, State.STOPPING, State.FINISHED)
"""States in which the rig's state is not published, because the port is closed or a run has its own topics."""
_TRUE, _FALSE = ("true", "yes"), ("false", "no")


class Served:
    """Connects a ``runner`` with the operator socket and the operator node.

    ``page`` is the pid of this test's page, or 0 without a page. ``told_hz`` is the rate at which a watcher
    receives the state of the rig, Hz.
    """

    def __init__(
        self, runner: ProcedureRunner, say: Callable[[str], None], page: int = 0, told_hz: float = 0.0
    ) -> None:
        self.told_hz = told_hz
        self._runner, self._say, self._page = runner, say, page
        self._page_asked = time.monotonic()
        self.ending = ""
        """Reason why no further act begins; empty during the test."""
        self._armed: dict[tuple[str, float | None, int | None], tuple[str, str]] = {}
        drive = runner.session.drive
        self._received, drive.on_measurement = drive.on_measurement, self._receive
        self._receiver: Callable[[Measurement], None] | None = None
        scenario, record = runner.ladder.scenario, runner.record
        self.constants: Data = {
            "scenario": record.scenario,
            "scenario_hash": record.scenario_hash,
            "run_id": record.test_id,
            "servo_rate": scenario.servo_rate,
            "substeps": scenario.samples_per_step,
            "samples": scenario.samples,
            "transport_samples": scenario.transport_samples,
            "axis_names": list(scenario.axes),
            "auxiliary_names": list(runner.session.drive.port.auxiliary_names),
        }

    @property
    def state(self) -> State:
        return self._runner.state

    @property
    def reason(self) -> str:
        return self._runner.session.reason

    @property
    def resting(self) -> Measurement | None:
        return None if self.state in SILENT else self._runner.session.drive.measured

    def stream_to(self, receiver: Callable[[Measurement], None] | None) -> None:
        self._receiver = receiver

    def _receive(self, measured: Measurement) -> None:
        self._received(measured)
        if (receiver := self._receiver) is not None:
            receiver(measured)

    @property
    def scenario(self) -> Scenario:
        return self._runner.session.scenario

    def curves(self) -> list[tuple[int, int, int, Array]]:
        return self._runner.session.drive.curves.take()

    def stop(self, reason: str, by: str = STRANGER) -> None:
        """Stop the rig on behalf of ``by``.

        The stop is recorded only during an act or while a rung is armed, so that the record stays small.
        """
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
        """Answer a request from ``peer``. The answer reports failures; unexpected failures are also printed."""
        done, result, reason = False, "", ""
        if self._way(peer) == PAGE:
            self._page_asked = time.monotonic()
        try:
            result, done = self._do(request, peer) if request.act else "", True
        except (ConfigError, PortError) as error:
            reason = str(error)
            if request.act == "arm":
                self._armed.clear()  # a stored hash would make every further attempt to arm fail
        except Exception as error:
            reason = f"failed: {type(error).__name__}: {error}"
            self._say(f"act {request.act!r} has failed: {type(error).__name__}: {error}")
        return replace(self.situation(), done=done, result=result, reason=reason)

    def stop_for(self, peer: Credentials) -> None:
        """Stop the act of a process that has disconnected before the end of the act."""
        with suppress(ConfigError):
            self._runner.do("stop", peer.name, self._way(peer), reason=PROGRAM_LEFT)

    def disarm_if_page_silent(self) -> None:
        """Disarm a rung that this test's page has armed, if the page's process no longer polls."""
        if self.state is not State.ARMED or time.monotonic() - self._page_asked <= PAGE_SILENT_S:
            return
        by, way = self._runner.session.armed_by
        if way == PAGE:
            self._runner.do("stop", by, PAGE, reason=PAGE_LEFT)

    def _way(self, peer: Credentials) -> str:
        return PAGE if self._page and self._page in (peer.process, _parent(peer.process)) else SOCKET

    def situation(self) -> Answer:
        runner, seen = self._runner, self._runner.session.seen
        rung, taken = runner.next_rung, runner.session.taken or runner.session.offsets
        possible, wanting = runner.session.possible(), runner.session.clearance.wanting()
        proposed = next_act(runner, lambda: True) if possible["resume"] else "resume"
        verdicts, armed_by = {row.name: verdict(row) for row in runner.record.rungs}, self._armed_by(rung)
        return Answer(
            state=seen.state,
            stops=seen.stops,
            acts=tuple(possible),
            why_not=tuple(possible.values()),
            next_rung=rung,
            scenario_hash=armed_by[0],
            engine=armed_by[1],
            offsets_hash=taken.hash if taken is not None else "",
            test_id=runner.record.test_id,
            to_sign=() if possible["sign_for"] else tuple(item.name for item in wanting),
            checklist=tuple(runner.clearing.to_answer),
            warning=runner.session.warning.text,
            motions=tuple("" if why else self._motion(act) for act, why in possible.items()),
            next_act="" if possible.get(proposed) else proposed,
            planned=runner.ladder.planned,
            verdicts=tuple(verdicts.get(name, "") for name in runner.ladder.planned),
        )

    def _motion(self, act: str) -> str:
        try:
            return self._runner.clearing.motion(act)
        except ConfigError:  # the act reports the error
            return ""

    def _armed_by(self, rung: str) -> tuple[str, str]:
        ladder = self._runner.ladder
        key = rung, ladder.level, ladder.ratio
        armed = self._armed.get(key)  # another thread may clear the stored hashes
        if rung and armed is None:
            try:
                step = ladder.step(rung)
                armed = self._armed[key] = step.hash, step.engine
            except ConfigError:  # arming reports the error
                return "", ""
        return armed or ("", "")

    def _do(self, request: Request, peer: Credentials) -> str:
        name, by = request.act, printable(request.by or peer.name)
        request = replace(request, values=tuple(map(printable, request.values)))
        if name not in ACTS:
            raise unknown("act", "act", name, ACTS)
        if ACTS[name].anybody:  # a mistake in the request must not prevent a stop
            reason = dict(zip(request.names, request.values, strict=False)).get("reason", "")
            return self._runner.do(name, by, self._way(peer), reason=reason)
        if self.ending:
            raise ConfigError(f"{name}: no act can begin, because the test is ending ({self.ending})")
        arguments = _arguments(request)
        if name not in UNCONDITIONAL and UNSEEN in (request.stops, request.state):
            raise ConfigError(f"{name}: stops and state are missing. Query both first with the empty act")
        if name not in UNCONDITIONAL and request.test_id != (test := self._runner.record.test_id):
            raise ConfigError(
                f"{name}: the request is for test {request.test_id!r}, but the current test is {test!r}. Query "
                "again"
            )
        if lacking := sorted(set(ACTS[name].needed) - set(arguments)):
            raise ConfigError(f"{name}: the request lacks {', '.join(lacking)}")
        values = {key: _value(name, key, text) for key, text in arguments.items()}
        seen = Seen(request.stops, request.state)
        done = self._runner.do(name, by, self._way(peer), seen, **values)
        return self._runner.record.named("\n".join([done, *self._findings(name)]).strip())

    def _findings(self, act: str) -> list[str]:
        runner = self._runner
        if act == "take_offsets" and runner.session.taken is not None:
            rows = runner.session.taken.record().axes
            return [
                _offsets(runner.record.called(name), row) for name, row in rows.items()
            ] + runner.loads_at_rest()
        if act == "check":
            return [finding for row in runner.record.checks.values() for finding in (*row.findings, *row.remarks)]
        return []


def _offsets(axis: str, row: AxisOffsets) -> str:
    return (
        f"{axis}: displacement {MM * row.displacement:.5g} mm (scatter {MM * row.displacement_scatter:.3g} mm), "
        f"force {KN * row.force:.5g} kN (scatter {KN * row.force_scatter:.3g} kN)"
    )


def _parent(process: int) -> int:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace").splitlines()
        return int(next(line for line in lines if line.startswith("PPid:")).split()[1])
    return 0


def _arguments(request: Request) -> dict[str, str]:
    act, names, values = request.act, request.names, request.values
    if len(names) != len(values):
        raise ConfigError(f"{act}: the request has {len(names)} argument names, but {len(values)} values")
    if len(set(names)) < len(names):
        raise ConfigError(f"{act}: an argument name occurs more than once in {', '.join(names)}")
    return dict(zip(names, values, strict=True))


def _value(act: str, name: str, text: str) -> object:
    if name == "seconds":
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds):
            raise ConfigError(f"{act}.{name} = {text!r}: must be a finite number of seconds")
        return seconds
    if name == "unloaded":
        if text.lower() not in (*_TRUE, *_FALSE):
            raise ConfigError(f"{act}.{name} = {text!r}: must be true or false")
        return text.lower() in _TRUE
    return text


class Attendant:
    """Provides the operator socket and node of a test in ``namespace`` until the test ends.

    A signal stops the rig and ends the test. ``page`` and ``told_hz`` are as in :class:`Served`. Raises
    ConfigError if an operator node exists already.
    """

    def __init__(
        self,
        runner: ProcedureRunner,
        namespace: str,
        say: Callable[[str], None],
        page: int = 0,
        told_hz: float = 0.0,
    ) -> None:
        environment.check()
        from rths_nodes.ros.nodes.operator import OperatorNode

        self._runner, self._say = runner, say
        self._served = served = Served(runner, say, page, told_hz)
        self._node = OperatorNode(served, namespace)
        try:
            self._socket = OperatorSocket(served.answer, served.stop_for, self._node.address)
        except ConfigError:
            self._node.close()
            raise
        self._stopped = ""
        self._printer = ThreadPoolExecutor(1, "printer")  # a stalled terminal must not delay the rig or a stop
        runner.changed = self._changed

    def run(self) -> ExitCode:
        failed = ""
        with stop_signals_handled(self._signal):
            try:
                self._node.start()
                self._socket.start()
                self._say(
                    "programs of this user act over the socket of this computer. Any node may observe, stop "
                    f"({self._node.stop_service}) and hold the rig. Ctrl-C stops the rig and ends the test"
                )
                while not (self._over or self._stopped):
                    self._served.disarm_if_page_silent()
                    time.sleep(LOOK_S)
            except Exception as error:
                failed = f"{type(error).__name__}: {error}"
                raise
            finally:
                code = self._leave(failed)
        return code

    @property
    def _over(self) -> bool:
        runner = self._runner
        return runner.state is State.FINISHED or (runner.state is State.IDLE and not runner.next_rung)

    def _leave(self, failed: str) -> ExitCode:
        runner = self._runner
        try:
            self._served.ending = self._stopped or failed or "the procedure has ended"
            if self._stopped:
                runner.do("stop", way=TERMINAL, reason=self._stopped)
            self._socket.close()  # waits for acts under way and answers them
            if not runner.session.possible()["finish"]:
                runner.do("finish", way=TERMINAL)
        except (ConfigError, RecordingError) as error:
            self._printer.submit(self._say, str(error))
        finally:
            self._close()
            runner.session.close()
        code = runner.conclude("", failed, self._stopped)
        self._printer.submit(str).result()  # all states are printed
        return code

    def _close(self) -> None:
        self._socket.close()
        self._node.close()

    def _changed(self, state: State, reason: str) -> None:
        if state is State.FINISHED:  # the procedure has ended, but the test may not have finished
            code, why = self._runner.outcome(stopped=self._stopped)
            reason = f"{code.outcome}: {why}" if why else ""
        self._node.publish_state(state, reason)
        text = f"{self._runner.record.rig_kind}: {state.name.lower()}{f': {reason}' if reason else ''}"
        self._printer.submit(self._say, text)

    def _signal(self, number: int) -> None:
        self._stopped = self._stopped or REQUESTS.get(number, INTERRUPTED)
