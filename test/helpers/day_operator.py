# SPDX-License-Identifier: Apache-2.0
"""One test of a day in the laboratory: an operator leads it from act to act, errs, and things go wrong meanwhile.

The acts, their order, the record, recordings and history are those of ``rths test``. At every sample the command
and the motion are judged (``watched_port.py``, ``motion_watch.py``), at every transition its cause.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from day_rig import Column, LoggedPort, watched
from ends import largest_file
from hours import Hours
from rig_model import CAUSES, LYING, LYING_FORCE, VAGUE
from stop_at import elsewhere
from watched_port import PHASES

from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner, Watch, next_act
from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import ProcedureRecord, SpecimenRecord
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.session import CLEAR, MOTIONS

SECOND = 10**9
OPERATOR, SECOND_PERSON = "A. Tester", "R. Sponsible"
SETTLES = 128
"""Ticks until the actuator rests, and the rig is known to follow again."""
HELD_FOR = 40
"""Ticks for which a rung in slow time is held."""
SMALL_DISK = 150_000
"""Bytes: the record of a test has room there, the recording of a rung has not."""
MOST_ACTS, RUNAWAY = 80, 40_000
"""Of a test, and ticks of an act."""
LASTS = {"take_offsets": 512, "check": 900, "position": 300, "unload": 300, "finish": 512}
"""Ticks in which something may happen; of a run its samples."""
PRESSURES = {"no_pressure": "off", "low_pressure": "low"}
FAULTS = (*sorted(VAGUE - PRESSURES.keys()), *PRESSURES, "interlock", "silent", "cable")
HAPPENS = (*FAULTS, "disk", "hold", "hold", "stop", "stop", "stop")
IN_A_RUN = ("disk", "hold")
AT_REST = tuple(each for each in FAULTS if each not in ("cable", "silent"))
"""What may happen in a pause, and is mended there."""


class Draws(random.Random):
    """All draws of a day: numbers, and cards of decks that are shuffled anew when they are dealt."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._decks: dict[str, list[str]] = {}

    def deal(self, deck: str, cards: tuple[str, ...], fits: Callable[[str], bool]) -> str:
        """The next card of the ``deck`` that fits; empty where none of the ``cards`` does."""
        if not any(map(fits, cards)):
            return ""
        left = self._decks.setdefault(deck, [])
        if not any(map(fits, left)):
            left += self.sample(cards, len(cards))
        card = next(filter(fits, left))
        left.remove(card)
        return card


class Sitting:
    """A test of the ``planned`` rungs in a ``folder``, with that ``column`` in the rig, by the clock of the day.

    ``faulty`` is the share of acts in which something happens. ``done`` counts what has happened, by its name.
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
        record = ProcedureRecord(
            folder.name,
            scenario.name,
            "",
            operator=OPERATOR,
            specimen=SpecimenRecord("D-17"),
            planned=list(planned),
        )
        ladder = Ladder(scenario, planned, 0.3, 2, False)
        self.runner = ProcedureRunner(ladder, record, folder, Watch(changed=self._changed))
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
        """Something was wrong while the offsets were taken; and that was found."""
        self._resume_at: int | None = None
        self._step = round(SECOND * scenario.dt)
        self._disk = ExitStack()
        self.logs: dict[str, list[tuple[float, float]]] = {}
        """What the sensors have shown in a rung, by its recording."""
        self.doubtful = False
        """Something had to be mended behind the last run."""

    # -- looking on ---------------------------------------------------------------------------------------

    def _changed(self, state: State, reason: str) -> None:
        old, self.state = self.state, state.name
        cause = CAUSES.get((old, state.name))
        right = cause == self.act or (cause == "trouble" and bool(self.trouble))
        right = right or (self.act == "run" and (cause == "resume" or (old, state.name) == ("RUNNING", "HELD")))
        if not right:
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
            raise AssertionError(f"{self.act} comes to no end")
        if self._resume_at is None or self.port.ticks < self._resume_at:
            return
        self._resume_at = None
        if self.session.state is State.HELD and not self.session.possible()["resume"]:
            self.clock.now += 60 * SECOND  # the coffee: the test stands still, and the clock does not
            self.done.append("resume")
            self.asked += 1
            if elsewhere(lambda: self.runner.do("resume", clear="CLEAR")) is not None:
                self._happens("stop")

    def judge(self) -> None:
        """Raises AssertionError with what was wrong so far."""
        wrong = self.port.violations + self.watch.violations + self.surprises
        assert not wrong, f"{self.record.test_id}: " + "\n".join(wrong[:4])
        assert self.session.state.name == self.state

    # -- what happens -------------------------------------------------------------------------------------

    def _happens(self, what: str) -> None:
        self.done.append(what)
        self.trouble.append(what)
        port = self.port
        match what:
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
                port.set_hydraulics(PRESSURES[what])
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
        if what in LYING | LYING_FORCE:
            port.sensor(what)
        self.watch.lies = self.watch.lies or what in LYING or what == "shifted"

    def settles(self) -> None:
        """All is mended, and the rig comes to rest: every tick is played."""
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
        """So many ticks of a held rig, each after a ``jump`` of the clock (ns); False where nobody keeps it."""
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
        """Hold the rig until that time, ns: one tick a second as long as nothing can move, and every tick around
        what goes wrong there, from 10 to 40 minutes after one another."""
        while self.clock.now < until:
            quiet = min(until - self.clock.now, (600 + self.chance.randrange(1800)) * SECOND)
            if not self.moves_on(quiet // SECOND, SECOND - self._step):
                self.clock.now = until
                return
            if self.clock.now < until:
                self._happens(self.chance.deal("at rest", AT_REST, lambda each: True))
                self.moves_on(1 + self.chance.randrange(400))
                self.settles()

    # -- the operator -------------------------------------------------------------------------------------

    def ask(self, act: str, **arguments: object) -> BaseException | None:
        """Ask for an act; what was raised."""
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
        """What is to be armed next, as the operator has seen it."""
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
            thing = self.session.clearance.wanting()[0]
            return {"what": thing.name}
        if act == "arm":
            return dict(self.hashes())
        return {"clear": CLEAR} if act in MOTIONS else {}

    def do(self, act: str) -> None:
        """Do ``act``, in which something may happen; afterwards all is mended."""
        given = self._arguments(act)
        lasts = LASTS.get(act, 0)
        if act == "run":
            lasts = self.runner.ladder.step(self.runner.next_rung).scenario.samples
        if lasts and self.chance.random() < self.faulty:
            what = self.chance.deal("acts", HAPPENS, lambda each: act == "run" or each not in IN_A_RUN)
            phase = PHASES[self.chance.randrange(len(PHASES))]
            self.port.after(self.chance.randrange(lasts), phase, lambda: self._happens(what))
        self.port.logs()
        refused = self.ask(act, **given)
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
        """Every planned rung has finished, and the last one on a rig to which nothing happened."""
        return not self.runner.next_rung and not self.doubtful

    def next(self) -> str:
        """The next act of the right way; ``finish`` where that leads no further, empty where it is over."""
        act, possible = next_act(self.runner, lambda: True), self.runner.session.possible()
        if act and (possible[act] or self._gives_up or self.session.drive.broken):
            return "" if possible["finish"] else "finish"
        return act

    def conduct(self, until: int, errs: Callable[[Sitting], None]) -> None:
        """From the first act to the last words; at its end the rig is held ``until`` then. ``errs``: mistakes."""
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
            raise AssertionError(f"{self.record.test_id}: comes to no end")
        self.trouble.append("stop")
        self.session.close()
        left = "" if not self.runner.next_rung else "the operator begins anew"
        self.code = self.runner.conclude("", "", left)
        self.judge()
