# SPDX-License-Identifier: Apache-2.0
"""Two people: what the full test and signatures need where the rig file has roles, and what counts for nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hours import Hours
from two_people import KEYS, NAMES, ROLES_OF_BENCH, consent_to

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.rehearsal import hash_of
from rths_nodes.loop.scenario.roles import ROLES
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ACTS, ActRefused
from rths_nodes.procedure.consents import OF_BOTH
from rths_nodes.procedure.records import LADDER, RUNGS
from rths_nodes.procedure.session import RunOutcome

NEEDS_BOTH = r"needs the consent of the operator.*\n.*consent of the responsible"
pytestmark = pytest.mark.usefixtures("keys_hashed_once")

UNKNOWN = ("    stiffness_known_to: 0.03\n", "")
"""A rig whose scales have to be signed for."""


@pytest.fixture
def both(walk: Callable[..., Any]) -> Callable[..., Any]:
    """A walk on a bench whose file has roles, by a ``clock`` that stands still."""

    def make(*sets: str, **further: Any) -> Any:
        clock = Hours()
        found = walk("servo_rate=256", *sets, roles=ROLES_OF_BENCH, clock=clock, **further)
        found.clock = clock
        return found

    return make


def armed_by_both(w: Any) -> None:
    """Lead ``w`` to the start, and arm the full test with the consents of both."""
    w.to_start()
    for role in ROLES:
        consent_to(w.session, role, **rung_g(w))
    w.arm("g")


def rung_g(w: Any, **changed: str) -> dict[str, str]:
    offsets = w.session.offsets.hash
    return {"rung": "g", "scenario_hash": hash_of(w.scenario), "offsets_hash": offsets} | changed


def test_the_full_test_needs_both(both):
    w = both()
    w.to_start()
    words = (
        r"rung g needs the consent of the operator \(roles.operator in the rig file bench\)\n"
        r"rung g needs the consent of the responsible \(roles.responsible in the rig file bench\)$"
    )
    with pytest.raises(ActRefused, match=words):
        w.arm("g")
    for first, second in (ROLES, ROLES[::-1]):
        said = consent_to(w.session, first, **rung_g(w))
        assert said.startswith(f"{NAMES[first]} ({first}) consents to rung g, scenario {hash_of(w.scenario)}, ")
        with pytest.raises(ActRefused, match=rf"^rung g needs the consent of the {second} \(roles.{second} in"):
            w.arm("g")
        w.session.withdraw()
    for role in ROLES:
        consent_to(w.session, role, **rung_g(w))
    rung = w.climb("g")
    assert rung.outcome == "finished"
    assert rung.remarks[0] == (
        "armed by A. Tester (operator) and R. Sponsible (responsible), both needed by roles in the rig file bench"
    )


@pytest.mark.parametrize("rung", [name for name in LADDER if RUNGS[name].on_rig and name not in OF_BOTH])
def test_other_rungs_need_the_operator_alone(both, rung):
    w = both()
    w.to_start()
    with pytest.raises(ActRefused, match=f"consent: rung {rung}: needs none now; rungs that do: g, h"):
        consent_to(w.session, "responsible", **rung_g(w, rung=rung))
    w.arm(rung)
    assert w.session.state is State.ARMED


@pytest.mark.parametrize(
    ("role", "name", "key", "words"),
    [
        ("responsible", "R. Sponsible", "", "not the key of the responsible, but another one"),
        (
            "responsible",
            "R. Sponsible",
            KEYS["operator"],
            "the key of the responsible, but that of the operator",
        ),
        ("responsible", "R. Sponsible", KEYS["responsible"] + " ", "but another one: it counts for nothing"),
        ("operator", "A. Tester", KEYS["responsible"], "the key of the operator, but that of the responsible"),
        (
            "responsible",
            "A. Tester",
            KEYS["responsible"],
            "A. Tester: is not responsible of this rig; known: R",
        ),
        ("director", "R. Sponsible", KEYS["responsible"], "unknown role 'director'"),
        ("", "", "", "unknown role ''"),
    ],
)
def test_who_has_not_the_key_of_the_role_consents_to_nothing(both, role, name, key, words):
    w = both()
    w.to_start()
    consent_to(w.session, "operator", **rung_g(w))
    with pytest.raises(ConfigError, match=words) as refused:
        w.session.consent(role, name, key, **rung_g(w))
    assert not key or key not in str(refused.value)
    with pytest.raises(ActRefused, match="rung g needs the consent of the responsible"):
        w.arm("g")


def test_a_consent_is_to_these_hashes_alone(both):
    w = both()
    w.to_start()
    for role in ROLES:
        consent_to(w.session, role, **rung_g(w, scenario_hash="another"))
    with pytest.raises(ActRefused, match="the one that was given is to something else"):
        w.arm("g")
    with pytest.raises(ActRefused, match="must be the hashes that are to be armed; that of the confirmed"):
        consent_to(w.session, "responsible", **rung_g(w, offsets_hash="another"))
    assert w.session.state is State.POSITIONED


def test_a_consent_before_the_ramp_changes_is_to_another_test(both):
    from rths_nodes.loop.scenario.overrides import override

    w = both()
    w.to_start()
    for role in ROLES:
        consent_to(w.session, role, **rung_g(w))
    changed = override(w.scenario, ["ramp.type=quadratic"])
    with pytest.raises(ActRefused, match="the one that was given is to something else"):
        w.arm("g", changed)
    w.arm("g")  # what they have consented to


def test_a_consent_is_good_once_and_for_a_minute(both):
    w = both()
    w.to_start()
    for role in ROLES:
        consent_to(w.session, role, **rung_g(w))
    w.clock.now += 60_000_000_000
    w.arm("g")
    w.session.stop()
    w.session.position()
    with pytest.raises(ActRefused, match=NEEDS_BOTH):
        w.arm("g")
    for role in ROLES:
        consent_to(w.session, role, **rung_g(w))
        w.clock.now += 30_000_000_001
    with pytest.raises(ActRefused, match=r"the operator .*: the one that was given is older than 60 s$"):
        w.arm("g")


ENDS: dict[str, Callable[[Any], object]] = {
    "a stop": lambda w: w.session.stop(),
    "a rig that moves away": lambda w: _lost(w),
    "another rung": lambda w: (w.arm("d"), w.session.stop(), w.session.position()),
    "a withdrawal": lambda w: w.session.withdraw(),
}


def _lost(w: Any) -> None:
    w.session.drive.loss.count += 1
    w.session.drive.loss.last = "no pressure"
    w.session.drive.tick()
    assert w.session.state is State.HELD
    w.session.position()


@pytest.mark.parametrize("end", ENDS)
def test_a_consent_survives_nothing_that_ends_the_state(both, end):
    w = both()
    w.to_start()
    for role in ROLES:
        consent_to(w.session, role, **rung_g(w))
    ENDS[end](w)
    with pytest.raises(ActRefused, match=NEEDS_BOTH):
        w.arm("g")
    assert "no consent is good now" in w.session.possible()["withdraw"]


def test_a_trip_ends_every_consent(both):
    w = both()
    armed_by_both(w)
    assert w.session.run(lambda scenario, port: RunOutcome("tripped", "a limit")).outcome == "tripped"
    assert w.session.state is State.TRIPPED
    w.session.acknowledge()
    w.session.position()
    with pytest.raises(ActRefused, match=NEEDS_BOTH):
        w.arm("g")


def test_what_is_withdrawn_is_armed_no_more(both):
    w = both()
    armed_by_both(w)
    w.session.withdraw("R. Sponsible")
    assert (w.session.state, w.session.reason) == (State.HELD, "R. Sponsible has withdrawn the consent")
    with pytest.raises(ActRefused, match="run: the rig is held"):
        w.session.run(lambda scenario, port: pytest.fail("it runs"))
    w.session.position()
    w.arm("d")  # to which nobody had to consent
    with pytest.raises(ActRefused, match="withdraw: no consent is good now"):
        w.session.withdraw()
    assert w.session.state is State.ARMED


def test_a_consent_that_is_withdrawn_while_its_key_is_tried_is_none(both, monkeypatch):
    w = both()
    w.to_start()
    consent_to(w.session, "operator", **rung_g(w))
    owner_of = type(ROLES_OF_BENCH).owner_of

    def slowly(roles: Any, key: str) -> str:
        w.session.withdraw()
        return owner_of(roles, key)

    monkeypatch.setattr(type(ROLES_OF_BENCH), "owner_of", slowly)
    with pytest.raises(ActRefused, match="the procedure has gone on meanwhile"):
        consent_to(w.session, "responsible", **rung_g(w))


def test_every_signature_needs_both_by_all_its_words(both):
    w = both(rig=UNKNOWN)
    w.refer()
    w.session.check()
    first, second = w.session.clearance.wanting()
    words = rf"^the signature for {first.name} needs the consent of the operator .*\n.*consent of the responsible"
    for what in (first.name, first.words):
        with pytest.raises(ActRefused, match=words):
            w.session.sign_for(what, "A. Tester")
    with pytest.raises(ActRefused, match=f"in its whole words that is: {first.words}; {second.words}"):
        consent_to(w.session, "responsible", what=first.name)
    for role in ROLES:
        consent_to(w.session, role, what=first.words)
    with pytest.raises(ActRefused, match="the one that was given is to something else"):
        w.session.sign_for(second.name)
    w.session.sign_for(first.name)
    assert w.session.clearance.unsigned() == [second.name]
    assert w.record.deviations == [
        f"{first.words}: signed for by A. Tester (operator) and R. Sponsible (responsible), both needed by roles "
        "in the rig file bench"
    ]
    with pytest.raises(ActRefused, match=f"{second.words}: verify it, or sign for it"):
        w.session.position()


def test_a_consent_to_a_signature_is_good_once(both):
    """The same words come again, of offsets that are confirmed anew: somebody has to look again."""
    w = both("axes.story_1.sensors.force_offset=20e3")
    w.refer(unloaded=False)
    (load,) = w.session.clearance.wanting()
    for role in ROLES:
        consent_to(w.session, role, what=load.words)
    w.session.sign_for(load.name)
    w.session.confirm_offsets(w.session.take_offsets(0.05).hash, False)
    assert w.session.clearance.wanting() == [load]
    with pytest.raises(ActRefused, match=NEEDS_BOTH):
        w.session.sign_for(load.name)


def test_a_new_check_ends_a_consent_to_a_signature(both):
    w = both(rig=UNKNOWN)
    w.refer()
    w.session.check()
    first = w.session.clearance.wanting()[0]
    for role in ROLES:
        consent_to(w.session, role, what=first.words)
    w.session.check()
    with pytest.raises(ActRefused, match="the one that was given ended with the state of that time"):
        w.session.sign_for(first.name)


def test_without_roles_nothing_needs_a_consent(walk):
    w = walk()
    w.to_start()
    assert w.session.possible()["consent"] == w.session.possible()["withdraw"]
    with pytest.raises(ActRefused, match="consent: the rig file has no roles: nothing needs a consent"):
        consent_to(w.session, "responsible", **rung_g(w))
    assert w.climb("g").remarks == []


def test_stop_hold_and_trip_need_no_role(both):
    w = both()
    armed_by_both(w)
    w.session.stop()
    assert w.session.state is State.HELD


seeds = pytest.mark.parametrize(
    "seed",
    [1, pytest.param(2, marks=pytest.mark.long), *(pytest.param(n, marks=pytest.mark.soak) for n in (0, 3, 4, 5))],
)
"""One in make test, one more in make test-long, and all in make soak."""


def alone(chance: random.Random, w: Any, acts: int) -> list[str]:
    """So many acts of an operator with his own key, and everything else that he may know; what was refused."""
    session, refused = w.session, []
    for _ in range(acts):
        words = [each.words for each in session.clearance.wanting()]
        offsets = session.offsets.hash if session.offsets else ""
        arming = {"rung": chance.choice("ggd"), "scenario_hash": hash_of(w.scenario), "offsets_hash": offsets}
        mine = "operator", NAMES["operator"], KEYS["operator"]
        role, name, key = chance.choice(
            (
                mine,
                mine,
                ("responsible", NAMES["responsible"], KEYS["operator"]),
                ("responsible", NAMES["responsible"], ROLES_OF_BENCH.responsible.key),
                ("responsible", NAMES["operator"], KEYS["operator"]),
                (chance.choice(ROLES), "", chance.choice(("", KEYS["operator"], ROLES_OF_BENCH.salt))),
            )
        )
        to = arming if session.state is State.POSITIONED else {"what": chance.choice([*words, "all"])}
        does: dict[str, Callable[[], object]] = {
            "consent": lambda role=role, name=name, key=key, to=to: session.consent(role, name, key, **to),
            "sign_for": lambda words=words: session.sign_for(chance.choice([*words, "all"])),
            "arm": lambda: w.arm("g"),
            "arm d": lambda: w.arm("d"),
            "check": session.check,
            "position": session.position,
            "stop": session.stop,
            "withdraw": session.withdraw,
            "acknowledge": session.acknowledge,
            "take_offsets": lambda: session.confirm_offsets(session.take_offsets(0.02).hash, True),
        }
        may = session.possible()
        leads = [act for act in does if not may[act.split()[0]] and act != "take_offsets"]
        often = [act for act in ("consent", "consent", "consent", "sign_for", "arm") if act in leads]
        try:
            does[chance.choice([*leads, *often, *often] if chance.random() < 0.9 else list(does))]()
        except ConfigError as error:
            refused.append(str(error))
    return refused


@seeds
def test_no_sequence_of_acts_by_the_operator_alone_signs_for_anything(both, seed):
    w = both(rig=UNKNOWN)
    w.refer()
    w.session.check()
    refused = alone(random.Random(seed), w, 100)
    assert any(re.match("the signature for .* needs the consent of the responsible", words) for words in refused)
    assert not [each for each in w.record.deviations if "signed for" in each]
    assert State.POSITIONED not in w.states


@seeds
def test_no_sequence_of_acts_by_the_operator_alone_arms_the_full_test(both, seed):
    w = both()
    armed = []
    w.on_state = lambda state: armed.append(w.session.reason) if state is State.ARMED else None
    w.to_start()
    refused = alone(random.Random(seed), w, 100)
    assert any(words.startswith("rung g needs the consent of the responsible") for words in refused)
    assert "rung g" not in armed
    if w.session.state is State.POSITIONED:  # and both together do
        for role in ROLES:
            consent_to(w.session, role, **rung_g(w))
        w.arm("g")


def test_the_table_has_the_consent_once():
    assert ACTS["consent"].secret == ("key",)
    assert [name for name, act in ACTS.items() if act.secret] == ["consent"]
    assert not ACTS["consent"].anybody
