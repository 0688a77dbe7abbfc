# SPDX-License-Identifier: Apache-2.0
"""A test by services: whoever is known as an operator does it by his program, and the terminal only looks on.

Everybody may look, and bring the rig to rest. Every other act needs somebody who is known: a process on this
machine, whose user the kernel names (``operator_socket.py``), or a request that is signed with the operators' key.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rths_nodes.analysis.units import KN, MM
from rths_nodes.app.procedure import act_sequence
from rths_nodes.app.procedure.operator_socket import OperatorSocket
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.core.wire.acts import PROGRAM_LEFT, Answer, Nonces, Request, answered, is_signed
from rths_nodes.loop.interrupts import stop_signals_handled
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ACTS
from rths_nodes.procedure.mandate import RUNG
from rths_nodes.procedure.records import TERMINAL, AxisOffsets
from rths_nodes.recording.records import RecordingError
from rths_nodes.ros import environment

if TYPE_CHECKING:
    from rths_nodes.ros.transport.greeting import Credentials

INTERRUPTED = "the test was interrupted at the terminal"
LOOK_S = 0.05
"""Between two looks whether the test is over."""
SILENT = (State.IDLE, State.RUNNING, State.STOPPING, State.FINISHED)
"""States in which the rig does not report by itself: its port is closed, or a run has topics of its own."""
KEY, STRANGER = "service, by the key", "service, by anybody"
"""Ways by which a request comes: with a signature of the operators' key, and without one."""
ANYBODY = "anybody"
LONGEST_REASON = 200
"""Characters that somebody who is not known writes into the record of a test."""
_TRUE, _FALSE = ("true", "yes"), ("false", "no")


class Served:
    """A ``runner`` as services have it: arguments are texts, and whoever asks has to be known by the ``key``.

    ``say`` gets what strangers have asked for, in words. For a watcher the rig reports ``told_hz`` times a second;
    0 where there is none.
    """

    def __init__(
        self, runner: ProcedureRunner, key: bytes, say: Callable[[str], None], told_hz: float = 0.0
    ) -> None:
        self.told_hz = told_hz
        self._runner, self._key, self._say = runner, key, say
        self._nonces = Nonces()
        self._hashes: dict[tuple[str, float | None, int | None], str] = {}
        self._refused, self._counting = 0, threading.Lock()
        self.progress = (0, 0)
        """Sample of the rung that is under way, and its samples; zeros where none is."""
        runner.watch.progress = self._look
        drive = runner.session.drive
        self._heard, drive.heard = drive.heard, self._hear
        self._told: Callable[[Measurement], None] = _nobody
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
        """Measurement of the rig outside of runs; None during one, and without an open port."""
        return None if self.state in SILENT else self._runner.session.measured

    def tell(self, told: Callable[[Measurement], None] | None) -> None:
        """Give every Measurement of the rig to ``told``, from the thread that drives it; None: not any more."""
        self._told = told or _nobody

    def _hear(self, measured: Measurement) -> None:
        self._heard(measured)
        self._told(measured)

    @property
    def scenario(self) -> Scenario:
        return self._runner.session.scenario

    def curves(self) -> list[tuple[int, int, int, Array]]:
        """Return what :meth:`MotionCurves.take` gives."""
        return self._runner.session.drive.curves.take()

    def _look(self, sample: int, samples: int) -> None:
        self.progress = sample, samples

    def answer(self, request: Request, lasting: bool = False) -> Answer:
        """Answer a request by the service, or by the action (``lasting``): anybody may have sent it."""
        told = self._answer(request, lambda: self._of_middleware(request, lasting))
        return answered(replace(told, nonce=self._nonces.draw()), request, self._key)

    def answer_process(self, request: Request, peer: Credentials) -> Answer:
        """Answer a request by the socket, from a process whose user is an operator."""
        return self._answer(request, lambda: (request.by or peer.name, _way(peer)))

    def stop_for(self, peer: Credentials) -> None:
        """Stop what a process has begun that is gone before it is over, as a terminal that is closed does."""
        with suppress(ConfigError):  # nothing moves
            self._runner.do("stop", peer.name, _way(peer), reason=PROGRAM_LEFT)

    def _answer(self, request: Request, known: Callable[[], tuple[str, str]]) -> Answer:
        """Whatever goes wrong is answered, for nobody sees it otherwise."""
        done, result, reason = False, "", ""
        try:
            result, done = self._do(request, *known()) if request.act else "", True
        except ConfigError as error:
            reason = str(error)
        except Exception as error:
            reason = f"failed: {type(error).__name__}: {error}"
            self._say(f"act {request.act!r} has failed: {type(error).__name__}: {error}")
        return replace(self.situation(), done=done, result=result, reason=reason)

    def situation(self) -> Answer:
        """Return what is possible now, and what an operator has to name for it."""
        runner = self._runner
        rung, taken = runner.next_rung, runner.taken or runner.session.offsets
        possible, wanting = runner.possible(), runner.session.clearance.wanting()
        whole = runner.session.consents.roles is not None  # a consent is to all the words
        return Answer(
            state=int(runner.state),
            acts=tuple(possible),
            why_not=tuple(possible.values()),
            next_rung=rung,
            scenario_hash=self._hash_of(rung),
            offsets_hash=taken.hash if taken is not None else "",
            test_id=runner.record.test_id,
            to_sign=() if possible["sign_for"] else tuple(each.words if whole else each.name for each in wanting),
        )

    def _hash_of(self, rung: str) -> str:
        """The hash that arming the ``rung`` has to name, computed once; empty where it cannot be told.

        Of runs under a mandate it is that of the mandate before it is armed.
        """
        if rung == RUNG:
            try:
                return self._runner.iteration.to_arm()
            except ConfigError:  # there is no first run, or no rehearsed one
                return ""
        ladder = self._runner.ladder
        key = rung, ladder.level, ladder.ratio
        if rung and key not in self._hashes:
            try:
                self._hashes[key] = ladder.step(rung).hash
            except ConfigError:  # arming it tells
                return ""
        return self._hashes.get(key, "")

    # -- who asks -----------------------------------------------------------------------------------------

    def _of_middleware(self, request: Request, lasting: bool) -> tuple[str, str]:
        """Say who sent a request, and how that is known. Raises ConfigError for an act not his, or that lasts."""
        if request.act not in ACTS:
            raise unknown("act", "act", request.act[:LONGEST_REASON], ACTS)
        if ACTS[request.act].lasting and not lasting:
            raise ConfigError(
                f"{request.act}: takes its time: ask for it by the action of the same name "
                "(rths_nodes/action/Act), whose cancel stops the rig"
            )
        try:
            self._check_signature(request)
        except ConfigError as error:
            if ACTS[request.act].anybody:
                return ANYBODY, STRANGER
            self._count_stranger(request.act)
            raise error.within(request.act) from None
        if secret := ACTS[request.act].secret:
            raise ConfigError(
                f"{request.act}: not by the service: everybody on the domain hears its {', '.join(secret)}; it is "
                "typed at the terminal or at the page, or comes by the socket"
            )
        return request.by, KEY

    def _check_signature(self, request: Request) -> None:
        """Raises ConfigError where a request is not signed for this moment, and uses its nonce where it is."""
        if not request.signature:
            raise ConfigError(
                "is not signed: acts come by the socket of this machine, or signed with the operators' key "
                "(doc/ros.md); anybody may ask for: "
                + ", ".join(name for name, act in ACTS.items() if act.anybody)
            )
        if not is_signed(request, self._key, self.situation()):
            raise ConfigError(
                "the signature does not fit: another key, another request, or an answer that is out of date"
            )
        self._nonces.use(request.nonce)

    def _count_stranger(self, act: str) -> None:
        """Tell the first refusal, the tenth, the hundredth: a stranger fills no terminal."""
        with self._counting:
            self._refused += 1
            count = self._refused
        if str(count).strip("0") == "1":
            self._say(f"{act}: refused to somebody who is not known as an operator ({count} such so far)")

    # -- doing it -----------------------------------------------------------------------------------------

    def _do(self, request: Request, by: str, way: str) -> str:
        name, by = request.act, _written(by)
        request = replace(request, values=tuple(map(_written, request.values)))
        if name not in ACTS:
            raise unknown("act", "act", name, ACTS)
        if ACTS[name].lasting:
            self.progress = (0, 0)
        if ACTS[name].anybody:  # never refused for how it is asked for
            if way == STRANGER:
                self._check_ends_something(name)
            reason = dict(zip(request.names, request.values, strict=False)).get("reason", "")
            return self._runner.do(name, by, way, reason=_reason(reason, by, way))
        arguments = _arguments(request)
        if ACTS[name].needed and (lacking := [each for each in ACTS[name].arguments if each not in arguments]):
            raise ConfigError(f"{name}: lacks {', '.join(lacking)}")
        given = {key: _value(name, key, each) for key, each in arguments.items()}
        return "\n".join([self._runner.do(name, by, way, **given), *self._found(name)]).strip()

    def _check_ends_something(self, act: str) -> None:
        """Raises ConfigError where a stranger's ``act`` ends nothing: such ones would fill the record."""
        idle = "" if self._runner.session.at_work else "nothing is under way, and nothing is armed"
        if reason := idle or self._runner.possible()[act]:
            raise ConfigError(f"{act}: {reason}")

    def _found(self, act: str) -> list[str]:
        """Return what an operator has to see before he confirms or signs, in words."""
        runner = self._runner
        if act == "take_offsets" and runner.taken is not None:
            rows = runner.taken.record().axes
            return [_offsets(name, row) for name, row in rows.items()] + runner.loads_at_rest()
        if act == "check":
            return [words for row in runner.record.checks.values() for words in (*row.findings, *row.remarks)]
        return []


def _nobody(_: Measurement) -> None:
    """Nobody watches."""


def _offsets(axis: str, row: AxisOffsets) -> str:
    return (
        f"{axis}: displacement {MM * row.displacement:.5g} mm (scatter {MM * row.displacement_scatter:.3g} mm), "
        f"force {KN * row.force:.5g} kN (scatter {KN * row.force_scatter:.3g} kN)"
    )


def _way(peer: Credentials) -> str:
    return f"socket, user {peer.user} ({peer.name})"


def _reason(given: str, by: str, way: str) -> str:
    """Why the rig is brought to rest, for the record; of somebody who is not known it is short, and says so."""
    if way != STRANGER:
        return given
    words = "".join(each if each.isprintable() else " " for each in given[:LONGEST_REASON])
    return f"asked for by {by}{f': {words}' if words else ''}"


def _written(given: str) -> str:
    """A text that can be written into any file: a question mark for what is no character."""
    return given.encode(errors="replace").decode()


def _arguments(request: Request) -> dict[str, str]:
    """The arguments by name. Raises ConfigError."""
    act, names, values = request.act, request.names, request.values
    if len(names) != len(values):
        raise ConfigError(f"{act}: {len(names)} names of arguments, but {len(values)} values")
    if len(set(names)) < len(names):
        raise ConfigError(f"{act}: an argument is named twice: {', '.join(names)}")
    return dict(zip(names, values, strict=True))


def _value(act: str, name: str, given: str) -> object:
    """Convert the text of an argument to its value. Raises ConfigError."""
    if name == "seconds":
        try:
            seconds = float(given)
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds):
            raise ConfigError(f"{act}.{name} = {given!r}: must be a number (s)")
        return seconds
    if name == "unloaded":
        if given.lower() not in (*_TRUE, *_FALSE):
            raise ConfigError(f"{act}.{name} = {given!r}: must be true or false")
        return given.lower() in _TRUE
    return given


class Attendant:
    """Looks on while operators do a test by the services of ``namespace``; a signal stops the rig and ends it.

    Operators are the processes of the ``users`` (uid) on this machine, and whoever has the ``key``. ``say`` gets
    what happens, in words; ``told_hz`` is that of :class:`Served`. Raises ConfigError where there is an operator
    node already.
    """

    def __init__(
        self,
        runner: ProcedureRunner,
        namespace: str,
        say: Callable[[str], None],
        key: bytes,
        users: Collection[int],
        told_hz: float = 0.0,
    ) -> None:
        environment.check()
        from rths_nodes.ros.nodes.operator import OperatorNode

        self._runner, self._say = runner, say
        served = Served(runner, key, say, told_hz)
        self._node = OperatorNode(served, namespace)
        try:
            self._socket = OperatorSocket(served.answer_process, served.stop_for, self._node.address, users)
        except ConfigError:
            self._node.close()
            raise
        self._stopped = ""
        runner.watch.changed = self._changed

    def run(self) -> ExitCode:
        """Until an operator has finished the test; however that ends, the rig is left safe, and all is written."""
        failed = ""
        with stop_signals_handled(self._signal):
            try:
                self._node.start()
                self._socket.start()
                self._say(
                    f"operators act by the socket of this computer, or signed by {self._node.service}; "
                    "everybody may read and stop; Ctrl-C stops the rig, and the test"
                )
                while not (self._over or self._stopped):
                    time.sleep(LOOK_S)
            except Exception as error:
                failed = f"{type(error).__name__}: {error}"
                raise
            finally:
                code = self._leave(failed)
        return code

    @property
    def _over(self) -> bool:
        """Nothing more is to come: the test is finished, or had nothing to do on the rig."""
        runner = self._runner
        return runner.state is State.FINISHED or (runner.state is State.IDLE and not runner.next_rung)

    def _leave(self, failed: str) -> ExitCode:
        runner = self._runner
        tripped = runner.session.reason if runner.state is State.TRIPPED else ""
        try:
            if self._stopped and not runner.possible()["stop"]:
                runner.do("stop", way=TERMINAL, reason=self._stopped)
            self._close()  # whatever is under way is over then, and answered
            if not runner.possible()["finish"]:
                runner.do("finish", way=TERMINAL)
        except (ConfigError, RecordingError) as error:
            self._say(str(error))
        finally:
            self._close()
            runner.session.close()
        return act_sequence.ended(runner, "", failed, self._stopped, tripped)

    def _close(self) -> None:
        self._socket.close()
        self._node.close()

    def _changed(self, state: State, reason: str) -> None:
        self._node.tell_state(state, reason)
        self._say(f"{state.name.lower()}{f': {reason}' if reason else ''}")

    def _signal(self, number: int) -> None:
        self._stopped = self._stopped or INTERRUPTED
