# SPDX-License-Identifier: Apache-2.0
"""Acts of a session under a mandate: arming it, and letting its runs go, one by one."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from rths_nodes.core.errors import Problems
from rths_nodes.core.samples import Array
from rths_nodes.loop.pacing import Clock
from rths_nodes.loop.provenance import Code
from rths_nodes.loop.scenario.rehearsal import elastic_limits
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acting import Acting, as_act
from rths_nodes.procedure.acts import ActRefused
from rths_nodes.procedure.arming import Armed
from rths_nodes.procedure.consents import mandate_of, rung_of
from rths_nodes.procedure.mandate import FIRST, RUNG, Mandate, Planned, Terms, Told
from rths_nodes.procedure.offsets import Offsets
from rths_nodes.procedure.records import MandateRecord, ProcedureRecord, RungRecord

_AT_START = (State.POSITIONED, State.ARMED)


class Mandated(Acting):
    """Acts of a session with the mandate that is armed, if one is."""

    scenario: Scenario
    record: ProcedureRecord
    offsets: Offsets | None
    code: Code
    _mandate: Mandate | None = None

    @property
    def mandate_armed(self) -> Mandate | None:
        """The mandate that is good now."""
        with self._machine.lock:
            self._leave_start()
            self._look()
            return self._good

    @property
    def _good(self) -> Mandate | None:
        return None if self._mandate is None or self._mandate.ended else self._mandate

    def first_run(self) -> RungRecord | None:
        """The rung after which a mandate may be armed; None where there is none.

        It is the last of its kind, ran to its end with the offsets of now, and no run under a mandate came behind.
        """
        hashed = self.offsets.hash if self.offsets is not None else ""
        done = [rung for rung in self.record.rungs if rung.name in (FIRST, RUNG)]
        last = done[-1] if done and done[-1].name == FIRST else None
        if last is None or last.outcome != "finished" or last.not_valid or not last.recording:
            return None
        return last if last.offsets_hash == hashed else None

    @as_act
    def mandate(self, terms: Terms, told: Told, mandate_hash: str, offsets_hash: str) -> str:
        """Arm further runs on these ``terms``, after what the first run has ``told``; who has consented, in words.

        Raises ConfigError where something differs from a hash, or the terms are not of this rig and that run.
        """
        self._check_terms(terms, mandate_hash, offsets_hash)
        with self._machine.lock:
            self._begin("mandate")
            found = Mandate(terms, told, self._now_ns, self._machine.history, len(self._machine.stops))
            if found.ended:
                raise ActRefused(f"mandate: nothing is to be iterated: {found.ended}")
            signed = self.consents.signed(self.consents.use(mandate_of(mandate_hash, offsets_hash)))
            self._mandate = found
            written = MandateRecord(mandate_hash, _written(self._clock), signed or self.record.operator)
            written.mode, written.first = terms.mode, terms.first.scenario_hash
            written.bounds = {axis: vars(bound).copy() for axis, bound in terms.bounds.items()}
            self.record.mandates.append(written)
        return signed

    def _check_terms(self, terms: Terms, mandate_hash: str, offsets_hash: str) -> None:
        offsets, first, problems = self.offsets, self.first_run(), Problems()
        assert offsets is not None  # the state says so
        if terms.hash != mandate_hash:
            problems.append(
                f"the terms have changed: the hash to be armed is {mandate_hash or 'empty'}, theirs {terms.hash}"
            )
        if not offsets.hash == offsets_hash == terms.first.offsets_hash:
            problems.append(
                f"the offsets have changed: the hash to be armed is {offsets_hash or 'empty'}, that of the first "
                f"run {terms.first.offsets_hash}, that of the confirmed ones {offsets.hash}"
            )
        if first is None or (first.scenario_hash, first.code) != (terms.first.scenario_hash, terms.first.code):
            problems.append(f"the terms are not of the last rung {FIRST} of this test")
        changed = self.code.changed(self.drive.port.build)
        if changed or self.code.hash != terms.first.code:
            words = "; ".join(changed) or f"{terms.first.code} then, {self.code.hash} now"
            problems.append(f"what computes the test has changed since the first run: {words}")
        with problems.gathered():
            mine = Terms.of(terms.first, terms.mode, self.scenario.limits, elastic_limits(self.scenario))
            if mine.hash != terms.hash:
                problems.append("the terms are not those of this rig")
        problems.refuse()

    # -- its runs -----------------------------------------------------------------------------------------

    def plan_run(self, planned: Planned) -> None:
        """Take in a run that was rehearsed. Raises ActRefused where it does not stay within the terms."""
        with self._machine.lock:
            self._look()
            if self._good is None:
                raise ActRefused("no mandate is armed")
            if self.state is not State.HELD:
                raise ActRefused("a run is planned while the rig is held")
            try:
                self._good.plan(planned)
            finally:
                self._look()

    def tell_run(self, told: Told) -> str:
        """Take in what a run has told; why the mandate is over, in words; empty where it is not."""
        with self._machine.lock:
            assert self._mandate is not None
            self._mandate.tell(told)
            self._look()
            return self._mandate.ended

    def end_mandate(self, reason: str) -> None:
        """No further run follows."""
        with self._machine.lock:
            if self._mandate is not None:
                self._mandate.end(reason)
                self._look()

    def _offer(self) -> None:
        """The rig stands at the start."""
        if self._good is not None:
            self._good.offer(self._now_ns)

    def _check_mandate(self, rung: str, scenario_hash: str) -> None:
        """Raises ActRefused for a run that is not under a mandate, and for another rung under one."""
        self._look()
        if (good := self._good) is not None:
            good.check(rung, scenario_hash)
        elif rung == RUNG:
            over = f": the last one is over: {self._mandate.ended}" if self._mandate is not None else ""
            raise ActRefused(f"rung {RUNG} runs under a mandate alone, and none is armed{over}")

    def _loads(self, rung: str) -> Array | None:
        """Force of each axis (N) up to which a run under the mandate may go; None on other rungs."""
        good = self._good
        if rung != RUNG or good is None:
            return None
        return np.array([good.terms.bounds[axis].force for axis in self.scenario.axes])

    def _consented(self, rung: str, scenario_hash: str, offsets_hash: str) -> str:
        """Use the consents to a rung; who has given them, in words. Raises ActRefused where one is missing."""
        if not self.consents.needed(rung):
            return ""
        thing = rung_of(rung, scenario_hash, offsets_hash)
        return self.consents.signed(self.consents.use(thing, one=rung == RUNG), rung != RUNG)

    def _begin_run(self, armed: Armed, written: RungRecord) -> None:
        """The run that is armed begins under the mandate. Raises ActRefused where it must not."""
        if armed.rung != RUNG:
            return
        self._check_mandate(armed.rung, armed.scenario_hash)
        assert self._mandate is not None
        written.run = self._mandate.begin(armed.scenario_hash)
        written.mandate = self._mandate.terms.hash

    # -- the way between the acts -------------------------------------------------------------------------

    def _why_not(self, act: str) -> str:
        self._look()
        if reason := super()._why_not(act):
            return reason
        if act == "consent" and self.state is State.HELD:
            return self._why_not("mandate")
        good = self._good
        if act == "position" and good is not None and good.planned is None:
            return f"run {good.next_number} of the mandate is not rehearsed"
        if act == "mandate":
            if good is not None:
                return "a mandate is armed"
            if self.first_run() is None:
                return f"no rung {FIRST} has finished, valid and recorded, since offsets and the last mandate"
        return ""

    def _look(self) -> None:
        """End the mandate by what has happened meanwhile, and write that down.

        Where the rig is at the start it is held then: see :meth:`_displaced`.
        """
        mandate = self._mandate
        if mandate is None:
            return
        if self.state not in _AT_START:
            mandate.look(self._now_ns, self._machine.history, self._machine.stops)
        last = self.record.mandates[-1]
        last.ended, last.converged = mandate.ended, mandate.converged

    def _displaced(self) -> tuple[State, str] | None:
        then = super()._displaced()
        if then is not None or (good := self._good) is None:
            return then
        if not (reason := good.look(self._now_ns, self._machine.history, self._machine.stops)):
            return None
        self._rung = None
        return State.HELD, f"{reason}: the mandate is over"

    @property
    def _now_ns(self) -> int:
        return self._clock.monotonic_ns()


def _written(clock: Clock) -> str:
    return datetime.fromtimestamp(clock.time_ns() * 1e-9).astimezone().isoformat(timespec="milliseconds")
