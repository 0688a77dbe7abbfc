# SPDX-License-Identifier: Apache-2.0
"""Consents of two people to one thing: to arm the full test, or to one signature, where the rig file has roles.

A consent is to one thing in all its words: the hashes that are armed, or what is signed for. It is good once, for
a minute, and only as long as the procedure stays in the state in which it was given: any other state, and any
stop, ends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rths_nodes.core.errors import unknown
from rths_nodes.loop.pacing import Clock
from rths_nodes.loop.scenario.roles import ROLES, Roles
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ActRefused, why_not
from rths_nodes.procedure.machine import SessionMachine
from rths_nodes.procedure.mandate import FIRST, RUNG

GOOD_FOR_S = 60.0
"""A consent is good for this time."""
OF_BOTH = (FIRST,)
"""Rungs that need the consents of both roles: no other one loads the specimen in full, but under a mandate."""
OF_ONE = (RUNG,)
"""Rungs that need the consent of one of the roles: both have consented to the mandate."""


class WrongKey(ActRefused):
    """A consent whose key is not that of its role."""


@dataclass(frozen=True)
class Thing:
    """Object of a consent: ``called`` in a line, and the ``words`` that have to be the same."""

    called: str = field(compare=False)
    words: str


def rung_of(rung: str, scenario_hash: str, offsets_hash: str) -> Thing:
    """Return the arming of a rung."""
    return Thing(f"rung {rung}", f"rung {rung}, scenario {scenario_hash}, offsets {offsets_hash}")


def mandate_of(mandate_hash: str, offsets_hash: str) -> Thing:
    """Return the arming of a mandate."""
    return Thing("the mandate", f"mandate {mandate_hash}, offsets {offsets_hash}")


def signature_for(words: str, name: str = "") -> Thing:
    """Return the signature for what has these ``words``, and perhaps a shorter ``name``."""
    return Thing(f"the signature for {name or words}", f"the signature for {words}")


@dataclass(frozen=True)
class _Given:
    name: str
    until: int
    moment: tuple[int, ...]


class Consents:
    """Consents on the rig with the file ``rig``, whose ``roles`` are given; without roles nothing needs any.

    May be used from any thread.
    """

    def __init__(self, roles: Roles | None, rig: str, machine: SessionMachine, clock: Clock) -> None:
        self.roles, self._rig = roles, rig
        self._machine, self._clock = machine, clock
        self._given: dict[tuple[str, Thing], _Given] = {}
        self._withdrawn = 0

    @property
    def any(self) -> bool:
        """True while one is good."""
        with self._machine.lock:
            return any(not self._why_not(role, thing) for role, thing in self._given)

    def needed(self, rung: str) -> bool:
        """True for a rung that needs them."""
        return self.roles is not None and rung in (*OF_BOTH, *OF_ONE)

    def meant(self, state: State, offsets: str, wanting: Sequence[str], to: Mapping[str, str]) -> Thing:
        """Return what somebody names, as in the arguments of ``arm`` or ``sign_for``, in this ``state``.

        ``offsets`` is the hash of the confirmed ones, ``wanting`` what is to be signed for. Raises ActRefused for
        what needs no consent now.
        """
        rung, scenario_hash, what = (to.get(key, "") for key in ("rung", "scenario_hash", "what"))
        if state is State.REFERENCED:
            if rung:
                raise ActRefused(f"consent: rung {rung}: {why_not('arm', state)}")
            if what not in wanting:
                words = "; ".join(wanting)
                raise ActRefused(
                    f"consent: {what or 'empty'}: is not to be signed for; in its whole words that is: {words}"
                )
            return signature_for(what)
        if what or not self.needed(rung) or (state is State.HELD and rung != RUNG):
            meant = what or f"rung {rung or 'empty'}"
            needing = ", ".join((*OF_BOTH, *OF_ONE))
            raise ActRefused(f"consent: {meant}: needs none now; rungs that do: {needing}")
        named = to.get("offsets_hash", "")
        if not scenario_hash or named != offsets:
            raise ActRefused(
                f"consent: rung {rung}: scenario {scenario_hash or 'empty'}, offsets {named or 'empty'}: must be "
                f"the hashes that are to be armed; that of the confirmed offsets is {offsets}"
            )
        if state is State.HELD:
            return mandate_of(scenario_hash, offsets)
        return rung_of(rung, scenario_hash, offsets)

    def give(self, role: str, name: str, key: str, thing: Thing) -> str:
        """Somebody with the ``key`` of ``role`` consents to ``thing``; what that is good for, in words.

        Without a ``name`` it is the one that the role has. Raises ActRefused, WrongKey for another key, and
        ConfigError for an unknown role.
        """
        roles, moment = self.roles, self._moment
        if roles is None:
            raise ActRefused("consent: the rig file has no roles")
        if role not in ROLES:
            raise unknown("consent.role", "role", role, ROLES)
        names = roles.of(role).names
        name = name.strip() or (names[0] if len(names) == 1 else "")
        if name not in names:
            raise ActRefused(f"consent: {name or 'nobody'}: is not {role} of this rig; known: {', '.join(names)}")
        owner = roles.owner_of(key)  # takes its time: the lock is free meanwhile
        if owner != role:
            whose = f"that of the {owner}" if owner else "another one"
            raise WrongKey(f"consent: this is not the key of the {role}, but {whose}: it counts for nothing")
        until = self._clock.monotonic_ns() + round(1e9 * GOOD_FOR_S)
        with self._machine.lock:
            if moment != self._moment:
                raise ActRefused("consent: the procedure has gone on meanwhile")
            self._given[role, thing] = _Given(name, until, moment)
        return f"{name} ({role}) consents to {thing.words}: good for {GOOD_FOR_S:g} s, once"

    def use(self, thing: Thing, one: bool = False) -> dict[str, str]:
        """Take the consents to ``thing``: who has given them, by role; nobody where there are no roles.

        ``one`` of them is enough. Raises ActRefused where one is missing; then none is used.
        """
        if self.roles is None:
            return {}
        with self._machine.lock:
            lacking = {role: words for role in ROLES if (words := self._lacking(role, thing))}
            if len(lacking) == len(ROLES) or (lacking and not one):
                raise ActRefused(*lacking.values(), *["one of both is enough"] * one)
            return {role: self._given.pop((role, thing)).name for role in ROLES if role not in lacking}

    def signed(self, names: dict[str, str], both: bool = True) -> str:
        """Return who has consented, in words, and that ``both`` had to, or one; empty where nobody had to."""
        if not names:
            return ""
        people = " and ".join(f"{name} ({role})" for role, name in names.items())
        return f"{people}, {'both' if both else 'one'} needed by roles in the rig file {self._rig}"

    def withdraw(self) -> None:
        """None is good any more."""
        with self._machine.lock:
            self._given.clear()
            self._withdrawn += 1

    @property
    def _moment(self) -> tuple[int, ...]:
        """Another one after any state that was entered, any stop, and once they were withdrawn."""
        return len(self._machine.history), len(self._machine.stops), self._withdrawn

    def _lacking(self, role: str, thing: Thing) -> str:
        why = self._why_not(role, thing)
        words = f"{thing.called} needs the consent of the {role} (roles.{role} in the rig file {self._rig})"
        return why and words + ("" if why == _NONE else f": {why}")

    def _why_not(self, role: str, thing: Thing) -> str:
        given = self._given.get((role, thing))
        if given is None:
            return _OTHER if any(each == role for each, _ in self._given) else _NONE
        if self._clock.monotonic_ns() > given.until:
            return f"the one that was given is older than {GOOD_FOR_S:g} s"
        return "" if given.moment == self._moment else "the one that was given ended with the state of that time"


_NONE = "none was given"
_OTHER = "the one that was given is to something else"
