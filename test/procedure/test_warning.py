# SPDX-License-Identifier: Apache-2.0
"""Tests of the warning output of a rig, which is on for some seconds before each motion."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from loop_parts import Hours
from messages import naming
from rig_walk import Walk

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.samples import Command
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.scenario.rehearsal import slower
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import ActRefused

Rows = list[tuple[bool, float]]
SECONDS = 3.0
HORN = ("axes:\n", "warning: {output: horn, seconds: 3.0}\naxes:\n")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Rows:
    """State of the output, and command, in each sample of the rig."""
    rows: list[tuple[bool, float]] = []
    rigs: list[Simulator] = []
    write, open_port = Simulator.write, Simulator.open

    def spy(self: Simulator, command: Command) -> None:
        if self is rigs[0]:
            rows.append((self.warning, float(command.command[0])))
        write(self, command)

    def opened(self: Simulator, pacer: Any = None) -> None:
        rigs.append(self)
        open_port(self, pacer)

    monkeypatch.setattr(Simulator, "write", spy)
    monkeypatch.setattr(Simulator, "open", opened)
    return rows


@pytest.fixture
def w(walk: Callable[..., Walk], sent: Rows) -> Walk:
    return walk(rig=HORN)


def samples_on(rows: Rows) -> int:
    """Return the number of samples with the output on, which are all until the first command of the motion."""
    on = [state for state, _ in rows]
    moved = next(i for i, (_, command) in enumerate(rows) if command != rows[0][1])
    first = on.index(True)
    assert all(on[first : moved + 1]), "off before the motion"
    assert not any(on[moved + 1 :]), "on after the begin of the motion"
    return moved - first


def prepare(act: str, w: Walk) -> None:
    """Do the acts before ``act``; before position and unload the rig is away from its start."""
    w.refer()
    if act == "check":
        return
    w.session.check()
    w.session.position()
    if act == "run":
        w.arm("g")
    else:
        w.climb("g")


def do(act: str, w: Walk) -> None:
    getattr(w.session, act)(*[w._embedded] * (act == "run"))


ACTS = ("check", "position", "run", "unload")


@pytest.mark.parametrize("act", ACTS)
def test_output_is_on_for_its_seconds_before_motion(w: Walk, sent: Rows, act: str) -> None:
    prepare(act, w)
    sent.clear()
    do(act, w)
    if act == "run":
        count = sum(on for on, _ in sent)
        assert {command for on, command in sent if on} == {sent[0][1]}
        assert len({command for on, command in sent if not on}) > 100
    else:
        count = samples_on(sent)
    assert count * w.scenario.dt >= SECONDS
    assert not sent[-1][0]
    assert w.session.warning.text == ""


@pytest.mark.parametrize("act", ["check", "position", "unload", "unload_to"])
def test_motion_begins_at_present_command(w: Walk, sent: Rows, act: str) -> None:
    """The command follows a rig that is lost and returns while the output is switched on."""
    prepare(act, w)
    drive, warn = w.session.drive, w.session.drive.port.warn
    present = drive.command[0] + 1e-6

    def moved(on: bool) -> None:
        warn(on)
        if on:
            drive.command = drive.command + 1e-6
            sent.clear()

    drive.port.warn = moved  # type: ignore[method-assign]
    if act == "unload_to":
        w.session.unload({"story_1": 1e-3}, "A. B.")
    else:
        do(act, w)
    assert sent[0][1] == pytest.approx(present, abs=1e-12)
    first = next(command for _, command in sent if command != sent[0][1])
    assert first == pytest.approx(present, abs=5e-7)


def test_rung_without_motion_has_no_warning(w: Walk, sent: Rows) -> None:
    w.to_start()
    sent.clear()
    w.climb("c")
    assert sent
    assert not any(on for on, _ in sent)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("seed", range(5))
def test_stop_during_warning_cancels_motion(w: Walk, sent: Rows, act: str, seed: int) -> None:
    prepare(act, w)
    session, tick = w.session, w.session.drive.tick
    state, after = session.state, random.Random(seed).randrange(1, round(SECONDS / w.scenario.dt))
    sent.clear()

    def stopped() -> None:
        tick()
        if sum(on for on, _ in sent) == after:
            session.stop("entered")

    session.drive.tick = stopped  # type: ignore[method-assign]
    with pytest.raises(ActRefused, match=naming("entered")):
        do(act, w)
    session.drive.tick()
    on, commands = zip(*sent, strict=True)
    assert len(set(commands)) == 1
    assert sum(on) in (after, after + 1)
    assert not sent[-1][0]
    assert session.state is (State.HELD if act == "run" else state)
    assert session.warning.text == ""


@pytest.mark.parametrize("fails", [True, False], ids=["on", "off"])
def test_output_that_cannot_be_switched_prevents_only_its_motion(
    w: Walk, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    prepare("run", w)
    port = w.session.drive.port

    def warn(on: bool) -> None:
        if on is fails:
            raise PortError("the connection was reset")

    with monkeypatch.context() as patch:
        patch.setattr(port, "warn", warn)
        with pytest.raises(PortError, match="reset"):
            do("run", w)
    assert w.session.drive.hold_loop._borrowed == 0
    if not fails:
        assert w.session.state is State.TRIPPED
        w.session.acknowledge()
        w.session.position()
        w.arm("g")
    do("run", w)
    assert w.record.rungs[-1].outcome == "finished"


def test_remaining_seconds_are_shown(w: Walk) -> None:
    w.refer()
    texts: list[str] = []
    tick = w.session.drive.tick

    def watched() -> None:
        tick()
        texts.append(w.session.warning.text)

    w.session.drive.tick = watched  # type: ignore[method-assign]
    w.session.check()
    shown = [text.split() for text in dict.fromkeys(texts) if text]
    assert [(words[0], words[-2:]) for words in shown] == [("horn", [left, "s"]) for left in "321"]


class SleepingClock(Hours):
    """A clock that advances only while it sleeps; ``before_sleep`` is called first."""

    before_sleep: Callable[[], None]

    def sleep(self, seconds: float) -> None:
        self.before_sleep()
        self.now += round(1e9 * seconds)


@pytest.mark.parametrize("stops", [False, True])
def test_resuming_is_preceded_by_warning(walk: Callable[..., Walk], sent: Rows, stops: bool) -> None:
    clock = SleepingClock()
    w = walk("ground_motion.scale=0.05", rig=HORN, clock=clock).to_start()
    session = w.session
    refused: list[str] = []
    remaining: list[float] = []
    waited: list[float] = []

    def before_sleep() -> None:
        remaining.append(session.warning.left)
        if stops and len(remaining) == 100:
            session.stop("entered")

    def resume(state: State) -> None:
        if state is State.HELD and not session.possible()["resume"]:
            start = clock.now
            try:
                session.resume()
            except ActRefused as error:
                refused.append(str(error))
            waited.append(1e-9 * (clock.now - start))

    clock.before_sleep = before_sleep
    w.on_state = resume
    w.progress = lambda sample: session.hold("coffee") if sample == 200 else None
    result = w.climb("e", slower(w.scenario, 2))
    assert bool(refused) == stops
    assert result.outcome == ("held" if stops else "finished")
    assert waited == ([pytest.approx(1.0)] if stops else [pytest.approx(SECONDS, abs=0.011)])
    assert remaining[0] == SECONDS
    assert not sent[-1][0]


def test_port_without_output_is_refused(walk: Callable[..., Walk], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulator, "can_warn", False)
    with pytest.raises(ConfigError, match=naming("warning.output", "horn", "simulator")):
        walk(rig=HORN)


def test_recorded_scenario_is_read_without_output(w: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulator, "can_warn", False)
    warning = from_data(Scenario, w.scenario.data()).rig_file.warning
    assert (warning.output, warning.seconds) == ("horn", SECONDS)


@pytest.mark.parametrize(
    "section", ["{}", "{output: ''}", "{output: horn, seconds: 2.9}", "{output: h, seconds: 31}"]
)
def test_invalid_warning_section_is_refused(walk: Callable[..., Walk], section: str) -> None:
    with pytest.raises(ConfigError, match="warning"):
        walk(rig=("axes:\n", f"warning: {section}\naxes:\n"))
