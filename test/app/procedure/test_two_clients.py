# SPDX-License-Identifier: Apache-2.0
"""Property tests of two clients of one test, while files and code change: one act at a time, as armed.

The second client acts in its own thread, at a drawn tick, and is answered before the rig continues.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import benches
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from messages import mentions
from motion_watch import MOTION, Bounds, MotionWatch
from stop_at import elsewhere
from watched_port import PHASES, WatchedPort
from watched_session import farthest

from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.supervision.handover import OperatorRequests
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.session import ACTS, CLEAR, MOTIONS

CLEARED = {"clear": CLEAR}
ARGUMENTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(MOTIONS, CLEARED),
    "take_offsets": {"seconds": 0.05},
    "confirm_offsets": {"hash": "another", "unloaded": True},
    "sign_for": {"what": "everything"},
    "arm": {"rung": "g", "scenario_hash": "another", "offsets_hash": "another"},
    "note": {"text": "coffee"},
}
"""Arguments of the acts of the second client."""
steps = st.lists(
    st.tuples(
        st.lists(
            st.tuples(
                st.one_of(st.integers(0, 8), st.integers(0, 300)),
                st.sampled_from(PHASES),
                st.sampled_from(sorted(ACTS)),
            ),
            max_size=3,
        ),
        st.sampled_from(("", "", "", *benches.CHANGES, "restored")),
    ),
    min_size=8,
    max_size=14,
)
"""Acts of the second client during each act of the first, with tick and phase; and the change before it."""


class Clients:
    """A test in ``folder`` and its two clients."""

    def __init__(self, folder: Path) -> None:
        scenario = benches.ONE.scenario(True)
        ladder = Ladder(scenario, ("e", "g"), 0.3, 2, realtime=False)
        record = ProcedureRecord("test", scenario.name, "", operator="A. Tester")
        self.test = ProcedureRunner(ladder, record, folder)
        self.test.changed = self._changed
        limits, session = scenario.limits["story_1"], self.test.session
        bounds = Bounds(np.array([limits.deceleration]), np.array([benches.SLOW_ERROR]), scenario.dt)
        self.watch = MotionWatch(bounds)
        self.port = WatchedPort(
            session.drive.port,
            lambda: session.state,
            frozenset(State[name] for name in MOTION),
            np.array([limits.velocity * scenario.dt]),
            np.array([limits.stroke]),
            self.watch,
        )
        self.port.each_tick = self._tick
        self.port.lost = lambda: bool(session.drive.loss.reason)
        session.drive.port = self.port  # type: ignore[assignment]
        self.edited = self.busy = False

    def _changed(self, state: State, reason: str) -> None:
        if state is State.TRIPPED:
            self.watch.stopped(reason)

    def _tick(self) -> None:
        """Resume a held rung."""
        if self.busy and self.test.can_resume and self.test.session.possible()["resume"] == "":
            assert elsewhere(lambda: self.test.do("resume", clear="CLEAR")) is None

    def next(self) -> tuple[str, dict[str, Any]]:
        """Return the next act of the first client and its arguments."""
        test, state, offsets = self.test, self.test.state, self.test.session.offsets
        if state is State.IDLE:
            return "connect", {}
        if state in (State.CONNECTED, State.REFERENCED) and offsets is None:
            if (taken := test.session.taken) is None:
                return "take_offsets", {"seconds": 0.05}
            return "confirm_offsets", {"hash": taken.hash, "unloaded": True}
        if state is State.REFERENCED:
            return ("check" if test.session.clearance.barred() else "position"), CLEARED
        if state is State.POSITIONED:
            rung = test.next_rung or "g"
            hashes = {"scenario_hash": test.ladder.step(rung).hash, "offsets_hash": offsets.hash}
            return "arm", {"rung": rung} | hashes
        acts = {State.ARMED: "run", State.TRIPPED: "acknowledge"}
        if not test.session.clearance.barred():  # after a stopped check there is no other one in HELD
            acts[State.HELD] = "position"
        act = acts.get(state, "note")
        return act, {"text": "over"} if act == "note" else CLEARED if act in MOTIONS else {}

    def advance(self, interruptions: list[tuple[int, str, str]]) -> None:
        """Do the next act of the first client, interrupted by acts of the second."""
        act, arguments = self.next()
        state = self.test.state
        self.watch.begin(act)
        self.watch.reach = farthest(benches.ONE, 1) if act == "run" else None
        for ticks, phase, other in interruptions:
            self.port.after(ticks, phase, lambda other=other: self._interrupt(other))
        self.busy, self.stopped = True, False
        try:
            self.test.do(act, **arguments)
            done = True
        except ConfigError:
            done = False
        self.busy = False
        self.port.pending.clear()
        self.watch.end()
        if self.edited and act in ("arm", "run"):
            assert not done, f"{act} with another plug-in than the test began with"
            assert self.test.state is state
        elif not self.stopped:
            assert done, (act, self.test.state, self.test.session.reason)
        for _ in range(benches.ONE.settles if self.test.state not in (State.IDLE, State.FINISHED) else 0):
            self.test.session.drive.tick()
        assert not self.port.violations + self.watch.violations

    def _interrupt(self, act: str) -> None:
        raised = elsewhere(lambda: self.test.do(act, by="B. Nother", **ARGUMENTS.get(act, {})))
        if not ACTS[act].at_once:
            assert mentions(str(raised), "act", "under way"), (act, raised)
        if act == "stop":
            self.stopped = True
            assert raised is None, raised
            self.watch.stopped("a stop of the other client")
        if act == "hold" and raised is None and not self.test.can_resume:
            self.stopped = True

    def change(self, name: str) -> None:
        """Change or restore a file."""
        if name == "restored":
            benches.restored()
        elif name:
            benches.CHANGES[name]()
        self.edited = benches.LAW.read_text() != benches.SOURCE


@pytest.fixture(autouse=True)
def _plug_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(OperatorRequests, "wait", lambda self, seconds=0.0: None)
    remove = benches.install(monkeypatch.setattr)
    yield
    monkeypatch.undo()
    remove()


@pytest.mark.parametrize("examples", [3, pytest.param(120, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_two_clients_and_changes_between_acts(examples: int) -> None:
    @settings(max_examples=examples, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(steps)
    def sequence(steps: list[tuple[list[tuple[int, str, str]], str]]) -> None:
        benches.restored()
        with tempfile.TemporaryDirectory() as folder:
            clients = Clients(Path(folder, "test"))
            for interruptions, change in steps:
                clients.change(change)
                clients.advance(interruptions)
            clients.watch.begin("close")
            clients.test.session.close()

    sequence()
