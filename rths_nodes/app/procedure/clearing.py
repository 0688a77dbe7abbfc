# SPDX-License-Identifier: Apache-2.0
"""Guards of every act that moves the rig: a person on a real rig, and the word CLEAR for a stated motion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property

from rths_nodes.app.procedure.ladder import Ladder, Step
from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.loop.scenario.axis import Axis
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ACTS, CLEAR, MOTIONS, ActRefused
from rths_nodes.procedure.arming import start_of
from rths_nodes.procedure.motions import positioning_velocities
from rths_nodes.procedure.placing import places
from rths_nodes.procedure.records import PAGE, TERMINAL, ChecklistAnswer, ProcedureRecord
from rths_nodes.procedure.session import RigSession

CHECKLIST = "checklist"
YES, NO = "y", "n"
BY_A_PERSON = (TERMINAL, PAGE)
"""Ways of the acts that may move a real rig."""


class Clearing:
    """States the motion of each act of ``session``, and refuses it unless it is cleared."""

    def __init__(self, ladder: Ladder, session: RigSession, record: ProcedureRecord) -> None:
        self._ladder, self._session, self._record = ladder, session, record
        self._axes = {record.called(name): axis for name, axis in ladder.scenario.axes.items()}
        self._armed: Step | None = None
        self._peaks: dict[str, dict[str, float]] = {}

    def arm(self, step: Step) -> None:
        """Predict the motion of the rung to be armed."""
        self._armed, self._peaks = step, {}
        if step.rung.moves:
            with suppress(ConfigError):  # stated without a prediction
                self._peaks = self._ladder.expected(step.rung.name)

    def check(self, act: str, way: str, arguments: dict[str, object]) -> str:
        """Return the motion of ``act``, and take ``clear`` out of its ``arguments``; empty if nothing moves.

        Raises ActRefused for a program that would move a real rig, and for a motion without the word CLEAR.
        """
        clear = str(arguments.pop("clear", ""))
        if not (ACTS[act].moves or act in (*MOTIONS, CHECKLIST)):
            return ""
        port = self._session.drive.port
        if not port.simulated and way not in BY_A_PERSON:
            raise ActRefused(
                f"{act}: refused by {way or 'a program'}: on a real rig ({port.label}) a person does it, at "
                f"the {TERMINAL} or at the {PAGE}"
            )
        motion = self.motion(act, arguments)
        if motion and clear != CLEAR:
            raise ActRefused(f"{act}: clear = {show(clear)}: must be {CLEAR}: nothing has moved")
        return motion

    @property
    def _items(self) -> list[str]:
        head = self._ladder.scenario.rig_file
        return list(head.checklist) if head is not None else []

    @property
    def unconfirmed(self) -> list[str]:
        """Items of the checklist whose last answer is not y."""
        answers = {row.item: row.answer for row in self._record.checklist}
        return [item for item in self._items if answers.get(item) != YES]

    @property
    def to_answer(self) -> list[str]:
        """Unconfirmed items; if there are none, all items, which may be taken back before the first motion."""
        return self.unconfirmed or (self._items if self._session.state is State.REFERENCED else [])

    def barred(self, act: str) -> str:
        """Return why the checklist prevents ``act``, or empty."""
        items = self.unconfirmed
        if act == CHECKLIST:
            return "" if self.to_answer else "no item of a checklist is left to confirm"
        if act not in MOTIONS or not items:
            return ""
        return f"checklist of the rig file: not confirmed: {'; '.join(items)}"

    def confirm(self, item: str, answer: str, by: str, time: str) -> None:
        """Record the answer to an ``item``. Raises ConfigError for an unknown item, and for another answer."""
        if item not in (items := self._items):
            raise unknown("checklist.item", "item", item, items)
        if answer not in (YES, NO):
            raise ActRefused(f"checklist: answer = {show(answer)}: must be {YES} or {NO}")
        self._record.checklist.append(ChecklistAnswer(time, item, answer, by))

    def motion(self, act: str, arguments: Mapping[str, object] | None = None) -> str:
        """Return the motion of ``act`` with distance, speed and force; empty if nothing moves."""
        if act == "unload":
            return self._unload(str((arguments or {}).get("to", "")))
        stated = {"check": self._check, "position": self._position, "run": self._run, "resume": self._run}
        return stated[act]() if act in stated else ""

    def _check(self) -> str:
        return "the small move, one axis after another: " + "; ".join(map(_small, self._axes, self._axes.values()))

    @cached_property
    def _start(self) -> list[float]:
        return [float(start) for start in start_of(self._ladder.scenario, self._session.drive.port)]

    def _position(self) -> str:
        session = self._session
        offsets = session.offsets
        if offsets is None:
            return ""
        here = session.drive.command - offsets.held
        velocities = positioning_velocities(self._ladder.scenario)
        rows = zip(self._axes.items(), here.tolist(), self._start, velocities.tolist(), strict=True)
        return "to the start of the test: " + "; ".join(
            f"{name} by {_mm(there - at)}, to {_mm(there)}, at up to {_mm(velocity)}/s; {_trips(axis)}"
            for (name, axis), at, there, velocity in rows
        )

    def _run(self) -> str:
        step, peaks = self._armed, self._peaks
        if step is None or not step.rung.moves:
            return ""
        stops, rows = self._ladder.stops(step), []
        for name, limits in step.scenario.limits.items():
            expected = "no prediction"
            if name in peaks:
                far, fast = peaks[name]["displacement"], peaks[name]["velocity"]
                expected = f"expected up to {_mm(far)} at up to {_mm(fast)}/s"
            rows.append(
                f"{self._record.called(name)}: {expected}; trips at {_mm(stops[name]['displacement'])}, "
                f"{_mm(limits.velocity)}/s and {_kn(stops[name]['force'])}"
            )
        return f"rung {step.rung.name} ({step.rung.title}), from the zero of the test: " + "; ".join(rows)

    def _unload(self, to: str) -> str:
        goal = places(to, tuple(self._ladder.scenario.axes)) if to else {}
        rows = []
        for name, axis in self._ladder.scenario.axes.items():
            bounds = axis.rig_axis.unloading if axis.rig_axis is not None else None
            if bounds is None or (to and name not in goal):
                continue
            where = f"to {_mm(goal[name])} from the zero of the test" if to else "until its force is zero"
            rows.append(
                f"{self._record.called(name)} {where}, by at most {_mm(bounds.travel)}, at up to "
                f"{_mm(bounds.velocity)}/s; {_trips(axis)}"
            )
        return "unloading by " + ("displacement: " if to else "force: ") + "; ".join(rows)


def _small(name: str, axis: Axis) -> str:
    small = axis.rig_axis.small_move if axis.rig_axis is not None else None
    if small is None:
        return f"{name}: no small_move in the rig file"
    pressed = f", then a force of {_kn(small.press)}" if small.press is not None else ""
    return (
        f"{name} by {_mm(small.displacement)} and back, at up to {_mm(small.velocity)}/s{pressed}; ends if the "
        f"force changes by {_kn(small.force)}"
    )


def _trips(axis: Axis) -> str:
    return f"trips at {_kn(axis.limits.force)}"


def _mm(value: float) -> str:
    return "any distance" if math.isinf(value) else f"{1e3 * value:.4g} mm"


def _kn(value: float) -> str:
    return f"{1e-3 * value:.4g} kN"
