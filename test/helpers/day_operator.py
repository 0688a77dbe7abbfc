# SPDX-License-Identifier: Apache-2.0
"""One test of a day in the laboratory: the acts of an operator, mistakes and faults.

The acts, their order, the record, recordings and history are those of ``rths test``. Command and motion are
checked at every sample (``watched_port.py``, ``motion_watch.py``), the cause at every transition.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from day_rig import Column, LoggedPort, watched
from ends import largest_file
from loop_parts import Hours
from rig_model import CAUSES, LYING, LYING_FORCE, VAGUE
from stop_at import elsewhere
from watched_port import PHASES

from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner, next_act
from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import ProcedureRecord, SpecimenRecord
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.session import CLEAR, MOTIONS

SECOND = 10**9
OPERATOR, SECOND_PERSON = "A. Tester", "R. Sponsible"
SETTLES = 128
"""Ticks until the actuator rests and the rig follows again."""
HELD_FOR = 40
"""Ticks for which a rung in slow time is held."""
SMALL_DISK = 150_000
"""Size of a disk on which the record of a test fits, and the recording of a rung does not, bytes."""
MOST_ACTS, RUNAWAY = 80, 40_000
"""Limits of the acts of a test, and of the ticks of an act."""
LASTS = {"take_offsets": 512, "check": 900, "position": 300, "unload": 300, "finish": 512}
"""Ticks of an act in which an event may occur; a run has its samples."""
PRESSURES = {"no_pressure": "off", "low_pressure": "low"}
FAULTS = (*sorted(VAGUE - PRESSURES.keys()), *PRESSURES, "interlock", "silent", "cable")
HAPPENS = (*FAULTS, "disk", "hold", "hold", "stop", "stop", "stop")
IN_A_RUN = ("disk", "hold")
AT_REST = tuple(fault for fault in FAULTS if fault not in ("cable", "silent"))
"""Faults in a pause, repaired there."""


class Draws(random.Random):
    """All draws of a day: numbers, and cards of decks that are shuffled again when they are empty."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._decks: dict[str, list[str]] = {}

    def deal(self, deck: str, cards: tuple[str, ...], fits: Callable[[str], bool]) -> str:
        """Draw the next card of the ``deck`` that fits; empty if no card fits."""
        if not any(map(fits, cards)):
            return ""
        left = self._decks.setdefault(deck, [])
        if not any(map(fits, left)):
            left += self.sample(cards, len(cards))
        card = next(filter(fits, left))
        left.remove(card)
        return card


class Sitting:
    """A test of the ``planned`` rungs in a ``folder``, with a ``column`` in the rig, by the clock of the day.

    ``faulty`` is the share of acts with an event. ``done`` lists the events and mistakes.
    """

    def __init__(
        self,
        scenario: Scenario,
        planned: tuple[str, ...],
        folder: Path,
        column: Column,
        clock: Hours,
        chance: Draws,
    ) -> None:
        self.clock, self.chance, self.faulty = clock, chance, 0.3
        record = ProcedureRecord(folder.name, scenario.name, "", operator=OPERATOR, planned=list(planned))
        record.specimen = SpecimenRecord("D-17")
        ladder = Ladder(scenario, planned, 0.3, 2, False)
        self.runner = ProcedureRunner(ladder, record, folder)
        self.runner.changed = self._changed
        self.session, self.record = self.runner.session, record
        self.port: LoggedPort = watched(self.session, column)
        self.watch = self.port.watch
        self.port.each_tick = self._tick
        self.act, self.state = "", "IDLE"
        self.trouble: list[str] = []
        self.surprises: list[str] = []
        self.done: list[str] = []
        self.asked = self.begun = 0
        self.code = ExitCode.FINISHED
        self.stale = "0123456789abcdef"
        self._missed: Any = None
        self._misled = self._gives_up = False
        """A fault was present while the offsets were taken; it was detected."""
        self._resume_at: int | None = None
        self._step = round(SECOND * scenario.dt)
        self._disk = ExitStack()
        self.logs: dict[str, list[tuple[float, float]]] = {}
        """Readings of the sensors in a rung, by its recording."""
        self.doubtful = False
        """A fault had to be repaired after the last run."""

    # -- checks ------------------------------------------------------------------------------------------

    def _changed(self, state: State, reason: str) -> None:
        old, self.state = self.state, state.name
        cause = CAUSES.get((old, state.name))
        expected = cause == self.act or (cause == "trouble" and bool(self.trouble))
        expected = expected or (
            self.act == "run" and (cause == "resume" or (old, state.name) == ("RUNNING", "HELD"))
        )
        if not expected:
            self.surprises.append(f"{old} -> {state.name} in {self.act or 'no act'}, {self.trouble}: {reason}")
        if state is State.TRIPPED:
            self.done.append("trip")
            if not reason:
                self.surprises.append(f"{old} -> TRIPPED without a reason")
        if state is State.HELD and self.act == "run" and "hold" in self.trouble:
            self._resume_at = self.port.ticks + HELD_FOR
        held = state is State.STOPPING and self.trouble[-1:] == ["hold"]
        if state in (State.TRIPPED, State.STOPPING) and not held:
            self.watch.stopped(f"{state.name}: {reason}")

    def _tick(self) -> None:
        self.clock.now += self._step
        if self.port.ticks - self.begun > RUNAWAY:
            raise AssertionError(f"{self.act} does not end")
        if self._resume_at is None or self.port.ticks < self._resume_at:
            return
        self._resume_at = None
        if self.session.state is State.HELD and not self.session.possible()["resume"]:
            self.clock.now += 60 * SECOND  # a pause of the test, in which the clock continues
            self.done.append("resume")
            self.asked += 1
            if elsewhere(lambda: self.runner.do("resume", clear="CLEAR")) is not None:
                self._happens("stop")

    def judge(self) -> None:
        """Raise AssertionError if there are violations so far."""
        violations = self.port.violations + self.watch.violations + self.surprises
        assert not violations, f"{self.record.test_id}: " + "\n".join(violations[:4])
        assert self.session.state.name == self.state

    # -- events -------------------------------------------------------------------------------------------

    def _happens(self, event: str) -> None:
        self.done.append(event)
        self.trouble.append(event)
        port = self.port
        match event:
            case "stop":
                self.asked += 1
                assert elsewhere(lambda: self.runner.do("stop", reason="enough")) is None
                self.watch.stopped(f"a stop at tick {port.ticks}")
            case "hold":
                self.asked += 1
                if elsewhere(lambda: self.runner.do("hold", reason="coffee")) is not None:
                    self.trouble.remove("hold")
            case "interlock":
                port.set_interlock(False)
            case "no_pressure" | "low_pressure":
                port.set_hydraulics(PRESSURES[event])
            case "silent":
                port.silent = True
            case "shifted":
                port.shift = 0.002
            case "force_shifted":
                port.force_shift = 15e3
            case "cable":
                port.failing = True
            case "disk":
                self._disk.enter_context(largest_file(SMALL_DISK))
        if event in LYING | LYING_FORCE:
            port.sensor(event)
        self.watch.lies = self.watch.lies or event in LYING or event == "shifted"

    def settles(self) -> None:
        """Repair everything and wait until the rig rests, tick by tick."""
        self.port.pending.clear()
        self._disk.close()
        self._resume_at = None
        if self.state != "FINISHED" and {"interlock", *PRESSURES} & set(self.trouble):
            self.port.set_interlock(True)
            self.port.set_hydraulics("high")
        self.port.repaired()
        if self.moves_on(SETTLES):
            self.runner.session.possible()
            self.watch.lies = False
        self.trouble.clear()
        self.judge()

    def moves_on(self, ticks: int, jump: int = 0) -> bool:
        """Hold the rig for ``ticks``, each after a ``jump`` of the clock (ns); False if no loop holds it."""
        self.begun = self.port.ticks
        drive = self.session.drive
        if self.state in ("IDLE", "FINISHED") or drive.broken:
            return False
        try:
            for _ in range(ticks):
                self.clock.now += jump
                drive.tick()
        except PortError as error:
            drive._fail(error)
        return not drive.broken

    def stands(self, until: int) -> None:
        """Hold the rig until a time (ns): one tick per second, all ticks around a fault every 10 to 40 min."""
        while self.clock.now < until:
            quiet = min(until - self.clock.now, (600 + self.chance.randrange(1800)) * SECOND)
            if not self.moves_on(quiet // SECOND, SECOND - self._step):
                self.clock.now = until
                return
            if self.clock.now < until:
                self._happens(self.chance.deal("at rest", AT_REST, lambda card: True))
                self.moves_on(1 + self.chance.randrange(400))
                self.settles()

    # -- operator -----------------------------------------------------------------------------------------

    def ask(self, act: str, **arguments: object) -> BaseException | None:
        """Request an act; return the raised error."""
        self.asked += 1
        self.act, self.begun = act, self.port.ticks
        self.watch.begin(act)
        try:
            self.runner.do(act, **arguments)
        except (ConfigError, RuntimeError) as error:
            return error
        finally:
            self.watch.end()
            self.act = ""
        return None

    def hashes(self) -> dict[str, str]:
        """Arguments of the next arming, as the operator has seen them."""
        rung, offsets = self.runner.next_rung, self.session.offsets
        assert offsets is not None
        return {
            "rung": rung,
            "scenario_hash": self.runner.ladder.step(rung).hash,
            "offsets_hash": offsets.hash,
            "second": SECOND_PERSON,
        }

    def _arguments(self, act: str) -> dict[str, Any]:
        if act == "take_offsets":
            return {"seconds": 2.0}
        if act == "confirm_offsets":
            assert self.runner.session.taken is not None
            return {"hash": self.runner.session.taken.hash, "unloaded": True}
        if act == "sign_for":
            return {"what": self.session.clearance.wanting()[0].name}
        if act == "arm":
            return dict(self.hashes())
        return {"clear": CLEAR} if act in MOTIONS else {}

    def do(self, act: str) -> None:
        """Do ``act``, possibly with an event in it; repair everything afterwards."""
        arguments = self._arguments(act)
        lasts = LASTS.get(act, 0)
        if act == "run":
            lasts = self.runner.ladder.step(self.runner.next_rung).scenario.samples
        if lasts and self.chance.random() < self.faulty:
            event = self.chance.deal("acts", HAPPENS, lambda event: act == "run" or event not in IN_A_RUN)
            phase = PHASES[self.chance.randrange(len(PHASES))]
            self.port.after(self.chance.randrange(lasts), phase, lambda: self._happens(event))
        self.port.logs()
        refused = self.ask(act, **arguments)
        self._gives_up = bool(refused and self._misled and act in ("confirm_offsets", "check"))
        if refused is not None and not (self.trouble or self._gives_up):
            raise AssertionError(f"{self.record.test_id}: {act} in {self.state}: {refused!r}")
        if act == "take_offsets":
            self._missed, self._misled = self.port.missed, bool(self.trouble)
        if act == "confirm_offsets" and refused is None:
            self.watch.zero_of_sensors = self._missed
        if act == "run" and self.record.rungs:
            self.logs[self.record.rungs[-1].recording] = self.port.rows
            self.doubtful = bool(self.trouble)
        self.settles()

    @property
    def satisfied(self) -> bool:
        """True if every planned rung has finished, the last one on a rig without faults."""
        return not self.runner.next_rung and not self.doubtful

    def next(self) -> str:
        """Next act of the procedure; ``finish`` if it cannot continue, empty if it has ended."""
        act, possible = next_act(self.runner, lambda: True), self.runner.session.possible()
        if act and (possible[act] or self._gives_up or self.session.drive.broken):
            return "" if possible["finish"] else "finish"
        return act

    def conduct(self, until: int, errs: Callable[[Sitting], None]) -> None:
        """Do the whole test, and hold the rig ``until`` a time at its end. ``errs`` makes the mistakes."""
        for _ in range(MOST_ACTS):
            act = self.next()
            if not act:
                break
            errs(self)
            act = self.next()
            if act == "finish" and self.satisfied:
                self.stands(until)
            if act:
                self.do(act)
        else:
            raise AssertionError(f"{self.record.test_id}: does not end")
        self.trouble.append("stop")
        self.session.close()
        left = "" if not self.runner.next_rung else "the operator begins again"
        self.code = self.runner.conclude("", "", left)
        self.judge()
