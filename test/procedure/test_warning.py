# SPDX-License-Identifier: Apache-2.0
"""The warning output of a rig: on for its seconds before each motion, by its counter; a stop cancels."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from messages import naming
from rig_walk import Walk

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Command
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.scenario.rehearsal import slower
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import ActRefused

SECONDS = 3.0
HORN = ("axes:\n", "warning: {output: horn, seconds: 3.0}\naxes:\n")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, float]]:
    """State of the output and command of each sample of the rig, from its first one on."""
    rows: list[tuple[bool, float]] = []
    write = Simulator.write

    def spy(self: Simulator, command: Command) -> None:
        if self is rows_of[0]:
            rows.append((self.warning, float(command.command[0])))
        write(self, command)

    rows_of: list[Any] = [None]
    monkeypatch.setattr(Simulator, "write", spy)
    begin = Simulator.open

    def opened(self: Simulator, pacer: Any = None) -> None:
        rows_of[0] = rows_of[0] or self
        begin(self, pacer)

    monkeypatch.setattr(Simulator, "open", opened)
    return rows


@pytest.fixture
def made(walk: Callable[..., Walk], sent: list[tuple[bool, float]]) -> Walk:
    return walk(rig=HORN)


def warned(rows: list[tuple[bool, float]]) -> int:
    """Samples with the output on, which are all up to the first command of the motion."""
    on = [state for state, _ in rows]
    moved = next(i for i, (_, place) in enumerate(rows) if place != rows[0][1])
    first = on.index(True)
    assert all(on[first : moved + 1]), "off before the motion"
    assert not any(on[moved + 1 :]), "on after its begin"
    return moved - first


def ready_for(act: str, made: Walk) -> None:
    """Do what comes before ``act``; the rig is away from its start where that leads to it, or unloads."""
    made.refer()
    if act == "check":
        return
    made.session.check()
    made.session.position()
    if act == "run":
        made.arm("g")
    else:
        made.climb("g")


def done(act: str, made: Walk) -> None:
    if act == "run":
        made.session.run(made._embedded)
    else:
        {"check": made.session.check, "position": made.session.position, "unload": made.session.unload}[act]()


ACTS = ("check", "position", "run", "unload")


@pytest.mark.parametrize("act", ACTS)
def test_the_output_is_on_for_its_seconds_before_a_motion(
    made: Walk, sent: list[tuple[bool, float]], act: str
) -> None:
    ready_for(act, made)
    sent.clear()
    done(act, made)
    count = sum(on for on, _ in sent) if act == "run" else warned(sent)
    assert count * made.scenario.dt >= SECONDS
    assert not sent[-1][0]
    assert made.session.warning.text == ""


def test_nothing_moves_while_the_output_is_on_before_a_rung(made: Walk, sent: list[tuple[bool, float]]) -> None:
    ready_for("run", made)
    sent.clear()
    done("run", made)
    assert {place for on, place in sent if on} == {sent[0][1]}
    assert len({place for on, place in sent if not on}) > 100


def test_a_rung_that_moves_nothing_is_not_warned_of(made: Walk, sent: list[tuple[bool, float]]) -> None:
    made.to_start()
    sent.clear()
    made.climb("c")
    assert sent
    assert not any(on for on, _ in sent)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("seed", range(5))
def test_a_stop_while_the_output_is_on_cancels(
    made: Walk, sent: list[tuple[bool, float]], act: str, seed: int
) -> None:
    ready_for(act, made)
    session, tick = made.session, made.session.drive.tick
    state, after = session.state, random.Random(seed).randrange(1, round(SECONDS / made.scenario.dt))
    sent.clear()

    def stopped() -> None:
        tick()
        if sum(on for on, _ in sent) == after:
            session.stop("entered")

    session.drive.tick = stopped  # type: ignore[method-assign]
    with pytest.raises(ActRefused, match=naming("entered")):
        done(act, made)
    session.drive.tick()
    on, places = zip(*sent, strict=True)
    assert len(set(places)) == 1
    assert sum(on) in (after, after + 1)
    assert not sent[-1][0]
    assert session.state is (State.HELD if act == "run" else state)
    assert session.warning.text == ""


def test_the_seconds_left_are_shown(made: Walk, sent: list[tuple[bool, float]]) -> None:
    made.refer()
    shown: list[str] = []
    tick = made.session.drive.tick

    def looked() -> None:
        tick()
        shown.append(made.session.warning.text)

    made.session.drive.tick = looked  # type: ignore[method-assign]
    made.session.check()
    texts = [text for text in dict.fromkeys(shown) if text]
    assert [(text.split()[0], text.split()[-2:]) for text in texts] == [("horn", [left, "s"]) for left in "321"]


class SetClock:
    """A clock that goes on while it sleeps."""

    def __init__(self) -> None:
        self.now = 0
        self.look: Callable[[], None] = lambda: None

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.look()
        self.now += round(1e9 * seconds)


@pytest.mark.parametrize("stops", [False, True])
def test_a_held_rung_is_warned_of_before_it_goes_on(
    walk: Callable[..., Walk], sent: list[tuple[bool, float]], stops: bool
) -> None:
    clock = SetClock()
    made = walk("ground_motion.scale=0.05", rig=HORN, clock=clock)
    made.to_start()
    session, slow = made.session, slower(made.scenario, 2)
    refused: list[str] = []
    looks: list[float] = []

    def look() -> None:
        looks.append(session.warning.left)
        if stops and len(looks) == 100:
            session.stop("entered")

    def resumed(state: State) -> None:
        if state is State.HELD and not session.possible()["resume"]:
            begun = clock.now
            try:
                session.resume()
            except ActRefused as error:
                refused.append(str(error))
            waited.append(1e-9 * (clock.now - begun))

    waited: list[float] = []
    clock.look = look
    made.on_state = resumed
    made.progress = lambda sample: session.hold("coffee") if sample == 200 else None
    written = made.climb("e", slow)
    assert bool(refused) == stops
    assert written.outcome == ("held" if stops else "finished")
    assert waited == ([pytest.approx(1.0)] if stops else [pytest.approx(SECONDS, abs=0.011)])
    assert looks[0] == SECONDS
    assert not sent[-1][0]


def test_a_port_without_an_output_is_refused_by_name(
    walk: Callable[..., Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulator, "can_warn", False)
    with pytest.raises(ConfigError, match=naming("warning.output", "horn", "simulator")):
        walk(rig=HORN)


def test_a_recording_of_a_rig_with_a_port_without_an_output_is_read(
    made: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulator, "can_warn", False)
    read = from_data(Scenario, made.scenario.data())
    assert read.rig_file is not None
    assert read.rig_file.warning is not None
    assert (read.rig_file.warning.output, read.rig_file.warning.seconds) == ("horn", SECONDS)


@pytest.mark.parametrize(
    "section", ["{}", "{output: ''}", "{output: horn, seconds: 2.9}", "{output: h, seconds: 31}"]
)
def test_a_section_without_a_name_or_out_of_bounds_is_refused(walk: Callable[..., Walk], section: str) -> None:
    with pytest.raises(ConfigError, match="warning"):
        walk(rig=("axes:\n", f"warning: {section}\naxes:\n"))
