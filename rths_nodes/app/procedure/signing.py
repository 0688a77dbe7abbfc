# SPDX-License-Identifier: Apache-2.0
"""Two people at one terminal: each types the own key, unseen, for what both have to consent to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rths_nodes.app.procedure.dialogue import Dialogue
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.loop.scenario.roles import ROLES
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.consents import WrongKey
from rths_nodes.procedure.mandate import RUNG
from rths_nodes.procedure.offsets import Offsets

TRIES = 3
"""A key may be typed so often for one consent: nobody sees what he types."""
Person = dict[str, str]
"""Arguments of a consent that say whose it is: role, name, key."""


class Perform(Protocol):
    """Does an act; what came of it, in words."""

    def __call__(self, act: str, /, **arguments: object) -> str: ...


class Signing:
    """The consents to the test of ``runner``, asked for by ``dialogue``; ``perform`` does the acts."""

    def __init__(self, runner: ProcedureRunner, dialogue: Dialogue, perform: Perform) -> None:
        self._runner, self._dialogue, self._perform = runner, dialogue, perform

    def people(self, asked: Iterable[str] = ROLES) -> list[Person]:
        """Ask who has each role, and for the key; nobody where the rig file has no roles."""
        roles = self._runner.session.consents.roles
        if roles is None:
            return []
        found = []
        for role in asked:
            names = roles.of(role).names
            several = f"name of the {role} ({', '.join(names)}): "
            name = names[0] if len(names) == 1 else self._dialogue.line(several)
            found.append({"role": role, "name": name, "key": self._key(role, name)})
        return found

    def one(self) -> tuple[str, ...]:
        """Ask which of the roles consents, where one is enough; an empty line: the first one."""
        roles = self._runner.session.consents.roles
        if roles is None:
            return ()
        typed = self._dialogue.line(f"who lets it go ({', '.join(ROLES)}; Enter: {ROLES[0]}): ") or ROLES[0]
        if typed not in ROLES:
            raise unknown("role", "role", typed, ROLES)
        return (typed,)

    def _key(self, role: str, name: str) -> str:
        return self._dialogue.unseen(f"key of the {role}, {name}: ")

    def consent(self, people: Iterable[Person], **to: str) -> None:
        """Give the consents of ``people`` to one thing; who has mistyped a key is asked for it again."""
        for person in people:
            for left in reversed(range(TRIES)):
                try:
                    self._dialogue.say(self._perform("consent", **person, **to))
                    break
                except WrongKey as wrong:
                    if not left:
                        raise
                    self._dialogue.say(str(wrong))
                    person["key"] = self._key(person["role"], person["name"])

    def to_all(self, role: str) -> None:
        """Consent to all that is to be signed for, or to the next rung, in a ``role``; empty: in both.

        Raises ConfigError before a key is asked for where that is not possible.
        """
        if reason := self._runner.possible()["consent"]:
            raise ConfigError(f"consent: {reason}")
        if role and role not in ROLES:
            raise unknown("role", "role", role, ROLES)
        things = self._things()
        for to in things:
            self._dialogue.say(f"consent to {', '.join(f'{name} {value}' for name, value in to.items())}")
        people = self.people((role,) if role else ROLES)
        for to in things:
            self.consent(people, **to)

    def _things(self) -> list[dict[str, str]]:
        """Return what a consent may be to now, as arguments of it."""
        runner = self._runner
        if runner.state is State.REFERENCED:
            return [{"what": each.words} for each in runner.session.clearance.wanting()]
        planned, offsets = runner.ladder.planned, runner.session.offsets
        if runner.next_rung == RUNG:
            return [{"rung": RUNG, "scenario_hash": runner.iteration.to_arm(), "offsets_hash": _hash(offsets)}]
        assert offsets is not None  # the state says so
        needed = runner.session.consents.needed
        step = runner.ladder.step(next((name for name in planned if needed(name)), runner.next_rung))
        return [{"rung": step.rung.name, "scenario_hash": step.hash, "offsets_hash": offsets.hash}]


def _hash(offsets: Offsets | None) -> str:
    return "" if offsets is None else offsets.hash
