"""A test by services: whoever calls them is the operator, and the terminal only looks on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rths_nodes.app.procedure import walk
from rths_nodes.app.procedure.acts import ACTS
from rths_nodes.app.procedure.conduct import Conductor
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.samples import Measurement
from rths_nodes.loop.interrupts import stop_signals_handled
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision.states import State

if TYPE_CHECKING:
    from rths_nodes.ros.nodes.operator import Situation

INTERRUPTED = "the test was interrupted at the terminal"
LOOK_S = 0.05
"""Between two looks whether the test is over."""
SILENT = (State.IDLE, State.RUNNING, State.STOPPING, State.FINISHED)
"""States in which the rig does not report by itself: its port is closed, or a run has topics of its own."""
NEEDED = {
    "take_offsets": ("seconds",),
    "confirm_offsets": ("hash", "unloaded"),
    "sign_for": ("what",),
    "arm": ("rung", "scenario_hash", "offsets_hash"),
    "note": ("text",),
}
"""Arguments without which an act has no meaning: nobody is asked for them here."""
_TRUE, _FALSE = ("true", "yes"), ("false", "no")


class Served:
    """A ``conductor`` as the operator node has it: arguments are texts."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        scenario, record = conductor.ladder.scenario, conductor.record
        self.constants: Mapping[str, Any] = {
            "scenario": record.scenario,
            "scenario_hash": record.scenario_hash,
            "run_id": record.test_id,
            "servo_rate": scenario.servo_rate,
            "substeps": scenario.samples_per_step,
            "samples": scenario.samples,
            "transport_samples": scenario.port.transport_samples,
            "axis_names": list(scenario.axes),
        }

    @property
    def state(self) -> State:
        """That of the session."""
        return self._conductor.state

    @property
    def reason(self) -> str:
        """Why it was entered."""
        return self._conductor.session.reason

    @property
    def resting(self) -> Measurement | None:
        """What the rig measures outside of runs; None during one, and without an open port."""
        return None if self.state in SILENT else self._conductor.session.measured

    def situation(self) -> Situation:
        """What is possible now, and what arming has to name."""
        from rths_nodes.ros.nodes.operator import Situation

        conductor = self._conductor
        rung, taken = conductor.next_rung, conductor.taken or conductor.session.offsets
        try:
            scenario_hash = conductor.ladder.step(rung).hash if rung else ""
        except ConfigError:  # its level is not known yet, or it cannot be had: arming it tells
            scenario_hash = ""
        return Situation(conductor.possible(), rung, scenario_hash, taken.hash if taken is not None else "")

    def act(self, name: str, arguments: Mapping[str, str], by: str) -> str:
        """Do an act; what came of it. Raises ConfigError where it is refused."""
        if name not in ACTS:
            raise unknown("act", "act", name, ACTS)
        if lacking := [each for each in NEEDED.get(name, ()) if each not in arguments]:
            raise ConfigError(f"{name}: lacks {', '.join(lacking)}")
        return self._conductor.do(name, by, **{key: _value(name, key, arguments[key]) for key in arguments})


def _value(act: str, name: str, given: str) -> Any:
    """What the text of an argument means. Raises ConfigError."""
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

    ``say`` gets what happens, in words. Raises ConfigError where there is an operator node already.
    """

    def __init__(self, conductor: Conductor, namespace: str, say: Callable[[str], None]) -> None:
        from rths_nodes.ros.nodes.operator import OperatorNode

        self._conductor, self._say = conductor, say
        self._node = OperatorNode(Served(conductor), namespace)
        self._stopped = ""
        conductor.watch.changed = self._changed

    def run(self) -> ExitCode:
        """Until an operator has finished the test; however that ends, the rig is left safe, and all is written."""
        failed = ""
        with stop_signals_handled(self._signal):
            try:
                self._node.start()
                self._say(
                    f"the operator is whoever calls {self._node.service}; Ctrl-C stops the rig, and the test"
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
        conductor = self._conductor
        return conductor.state is State.FINISHED or (conductor.state is State.IDLE and not conductor.next_rung)

    def _leave(self, failed: str) -> ExitCode:
        conductor = self._conductor
        tripped = conductor.session.reason if conductor.state is State.TRIPPED else ""
        try:
            if self._stopped:
                conductor.do("stop", reason=self._stopped) if not conductor.possible()["stop"] else None
            self._node.close()  # whatever is under way is over then, and answered
            if not conductor.possible()["finish"]:
                conductor.do("finish")
        except ConfigError as error:
            self._say(str(error))
        finally:
            self._node.close()
            conductor.session.close()
        return walk.ended(conductor, "", failed, self._stopped, tripped)

    def _changed(self, state: State, reason: str) -> None:
        self._node.tell_state(state, reason)
        self._say(f"{state.name.lower()}{f': {reason}' if reason else ''}")

    def _signal(self, number: int) -> None:
        self._stopped = self._stopped or INTERRUPTED
