# SPDX-License-Identifier: Apache-2.0
"""Tests of random sequences of operator acts, faults and pressure states, compared with a model of the procedure.

Invariants: outside of the motion states the command is bit-identical; no step exceeds the limit of velocity; no
slow motion or stop exceeds the declared deceleration; a refused act changes nothing; each state is entered only by
its act. After a stop the rig moves at most the braking distance, on a straight line if its axes are coupled. Only
an armed rung moves the rig, and a rig at rest stays there whatever pressure and interlock do. Stops and acts of
other clients come from their own thread, at a drawn tick, transition or line of an act.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import benches
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from motion_watch import LOADED
from rig_model import BENIGN, FAULTS, FROM, VAGUE
from watched_port import PHASES
from watched_session import AT_TRANSITIONS, LINE, TRANSITION, Events, WatchedSession, farthest

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop import provenance
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.rehearsal import slower
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.handover import OperatorRequests
from rths_nodes.procedure import motions
from rths_nodes.procedure.rungs import RunOutcome

WRONG = ("force_scale=-1", "displacement_scale=-1", "displacement_dead=0.0")
"""Sensor faults that the small move must find."""
CHANGES = ("another", "rig", "scenario", "offsets", "simulated", "unknown")
"""Mistakes of the operator when arming a rung."""
TICKS = st.one_of(st.integers(0, 8), st.integers(0, 150), st.integers(0, 1500))
WORLD = sorted({*FAULTS, *VAGUE, *BENIGN} - {"cable", "interrupted", "host", "overload"})
AT_TICKS = sorted({*FAULTS, *VAGUE, *BENIGN, "hold", "act"})
events = st.lists(
    st.one_of(
        st.tuples(TICKS, st.sampled_from(PHASES), st.sampled_from((*["stop"] * 12, *AT_TICKS))),
        st.tuples(TICKS, st.sampled_from(PHASES), st.sampled_from((*["stop"] * 12, *AT_TICKS))),
        st.tuples(st.integers(0, 3), st.just(TRANSITION), st.sampled_from(AT_TRANSITIONS)),
        st.tuples(st.integers(0, 120), st.just(LINE), st.just("stop")),
    ),
    max_size=3,
)
"""Events in an act: number of ticks, lines or transitions after its begin, phase of the tick, and event."""
quiet = st.one_of(st.just([]), events)
MOST_ACTS = 10
"""Largest number of acts from any state to an armed rung, if nothing fails."""
RARELY = st.sampled_from((*[False] * 7, True))


class Sequences(WatchedSession):
    """Acts of the operator, and external events, in any order."""

    @initialize(
        known=st.booleans(),
        wrong=st.sampled_from((*[""] * 12, *WRONG)),
        start=st.sampled_from((0.0, 0.0, 0.004, -0.004)),
        pressure=st.sampled_from((*["high"] * 6, "low", "off")),
        closed=st.sampled_from((True, True, True, True, False)),
        way=st.integers(0, 9),
    )
    def begins(self, known: bool, wrong: str, start: float, pressure: str, closed: bool, way: int) -> None:
        """Make the rig, and do the first acts without events."""
        self._made(known, wrong, start, pressure, closed)
        for _ in range(way):
            self.leads_on((), "resume", "g")

    # -- acts ---------------------------------------------------------------------------------------------

    @rule(happens=quiet)
    def connect(self, happens: Events) -> None:
        if self.model.state == "IDLE":  # a simulator restarts
            self.model.closed, self.model.pressure = self.first
        self._do("connect", self.session.connect, happens)

    @rule(happens=quiet, seconds=st.sampled_from((0.05, 0.05, 0.05, 0.001)))
    def take_offsets(self, happens: Events, seconds: float) -> None:
        def take() -> None:
            self.taken = self.session.take_offsets(seconds).hash

        if self._do("take_offsets", take, happens, seconds == 0.05):
            self.model.taken = True
            self.model.taken_off = self.model.standing or bool(self.trouble)
            self.missed = self.port.missed

    @rule(right=st.sampled_from((True, True, False)), unloaded=st.booleans())
    def confirm_offsets(self, right: bool, unloaded: bool) -> None:
        model = self.model
        offsets = self.taken if right else "another"
        if self._do("confirm_offsets", lambda: self.session.confirm_offsets(offsets, unloaded), (), right):
            model.taken, model.confirmed, model.cleared = False, True, False
            self.watch.zero_of_sensors = self.missed
            model.loaded = not unloaded and bool(self.start)
            model.unsigned = None if model.standing else model.loaded

    @rule(happens=quiet)
    def check(self, happens: Events) -> None:
        model = self.model
        may, standing = model.allows("check"), model.standing
        done = self._do("check", self.session.check, happens)
        if not self.entered:
            return
        if may is False:  # refused; a stop at one of its lines has disarmed the rig
            assert (done, model.state, self.trouble) == (False, "HELD", ["stop"])
            return
        self._after("REFERENCED", done)
        if not done or model.wrong:
            model.cleared, model.unsigned = False, None
        elif standing or self.trouble or model.taken_off:
            model.cleared = model.unsigned = None
        else:
            good = model.known and not model.loaded
            model.cleared, model.unsigned = good, not good

    @rule(right=st.sampled_from((True, True, False)))
    def sign_for(self, right: bool) -> None:
        model = self.model
        names = self.session.clearance.unsigned()
        item = names[0] if names and right else next(iter(self.scenario.axes))  # the name of an axis is no item
        if self._do("sign_for", lambda: self.session.sign_for(item), (), right):
            if self.session.clearance.unsigned():
                return
            sure, checked = model.unsigned and not model.wrong and not model.taken_off, bool(self.record.checks)
            model.unsigned = False if sure else None
            model.cleared = checked and (True if sure else False if model.wrong else None)

    @rule(happens=quiet)
    def position(self, happens: Events) -> None:
        done = self._do("position", self.session.position, happens)
        if self.entered:
            self._after("POSITIONED", done)

    @rule(happens=quiet, rung=st.sampled_from("cdeg"), what=st.sampled_from((*["right"] * 8, *CHANGES)))
    def arm(self, happens: Events, rung: str, what: str) -> None:
        session, model = self.session, self.model
        axis = next(iter(self.scenario.axes))
        changed = {
            "another": override(self.scenario, ["ground_motion.scale=1.1"]),
            "rig": override(self.scenario, [f"axes.{axis}.limits.force=9e4"]),
        }
        rung = rung if rung in self.bench.rungs else "g"
        right = slower(self.scenario, 2) if rung == "e" else self.scenario
        if what == "scenario":
            scenario_hash = "old"
        else:
            scenario_hash = changed["rig"].whole_hash() if what == "rig" else self.hashes[right.time_ratio]
        offsets = session.offsets.hash if session.offsets and what != "offsets" else "old"
        rung = {"simulated": "b", "unknown": "z"}.get(what, rung)
        armed = changed.get(what, right)
        if self._do("arm", lambda: session.arm(rung, armed, scenario_hash, offsets), happens, what == "right"):
            assert model.state == "ARMED" or self.trouble
            model.ratio, self.rung = armed.time_ratio, rung

    @rule(happens=quiet, then=st.sampled_from(("resume", "stop")), refuses=st.sampled_from((False,) * 9 + (True,)))
    def run(self, happens: Events, then: str, refuses: bool) -> None:
        model, self.then = self.model, then

        def runner(test: Scenario, port: Any) -> RunOutcome:
            if refuses:
                model.trouble.append("refused")
                raise ConfigError("the host wants no test today")
            outcome = Loop(Assembly(test, port)).run()
            return RunOutcome(outcome.state.name.lower(), outcome.reason, outcome.samples)

        # a load that was signed instead of tared changes the response of the test
        unknown = model.standing or model.unsure or model.loaded
        sound = not (unknown or any(event in VAGUE for _, _, event in happens))
        self.watch.reach = farthest(self.bench, model.ratio, self.sets) if sound else None
        done = self._do("run", lambda: self.session.run(runner), happens, still=self.rung == "c")
        if not self.entered:
            return
        assert model.state in ("HELD", "TRIPPED")
        if not self.trouble:
            assert model.state == "HELD"
            assert done == (self.record.rungs[-1].outcome == "finished"), self.record.rungs[-1]

    @precondition(lambda self: self.model.state in ("TRIPPED", "HELD", "ARMED"))
    @rule()
    def acknowledge(self) -> None:
        self._do("acknowledge", self.session.acknowledge)

    @rule(happens=quiet)
    def unload(self, happens: Events) -> None:
        done = self._do("unload", self.session.unload, happens)
        if self.entered:
            self._after("HELD", done)

    @rule(act=st.sampled_from(("hold", "resume")))
    def nothing_runs(self, act: str) -> None:
        self._do(act, getattr(self.session, act))

    @rule()
    def stop(self) -> None:
        self.model.begin("stop")
        armed = self.model.state == "ARMED"
        self._stops()
        assert not armed or self.model.state == "HELD"
        self._idle()

    @rule(happens=quiet, meant=RARELY)
    def finish(self, happens: Events, meant: bool) -> None:
        if (meant or self.model.state not in FROM["finish"]) and self._do("finish", self.session.finish, happens):
            assert self.model.state == "FINISHED"

    # -- the world ----------------------------------------------------------------------------------------

    @rule(what=st.sampled_from((*WORLD, "overload")), after=st.integers(0, 40))
    def goes_wrong(self, what: str, after: int) -> None:
        """Let a fault happen at rest, after ``after`` ticks."""
        self.model.act = ""
        self._idle(after)
        self._happens(what)
        self._idle()

    @rule(
        off=st.sampled_from(("no_pressure", "low_pressure", "interlock")),
        ticks=st.lists(st.integers(0, 60), min_size=3, max_size=3),
    )
    def comes_and_goes(self, off: str, ticks: list[int]) -> None:
        """Lose pressure or interlock twice, with returns."""
        self.model.act = ""
        back = "interlock_back" if off == "interlock" else "pressure_back"
        for event, after in zip((off, back, off), ticks, strict=True):
            self._happens(event)
            self._idle(after)
        self._happens(back)
        self._idle()

    @rule()
    def is_mended(self) -> None:
        self._repaired()
        self._idle()

    @rule(meant=RARELY)
    def is_closed(self, meant: bool) -> None:
        if not meant:
            return
        self.model.begin("stop")
        self.model.trouble.append("stop")
        self.session.close()
        self.model.given_back = self.model.state != "IDLE"
        self.session.possible()  # reports the loss
        self._judge()

    @rule(happens=quiet, then=st.sampled_from(("resume", "stop")), rung=st.sampled_from("cdeg"))
    def leads_on(self, happens: Events, then: str, rung: str) -> None:
        """Do the next act of the procedure, after repairs; begin another procedure after the end."""
        if self.model.over:
            self.session.close()
            self._judge()
            self._made(self.model.known, "", 0.0, "high", True)
        if self.model.state != "IDLE":
            self.is_mended()
        state, model = self.model.state, self.model
        if state == "IDLE":
            self.connect(happens)
        elif state in ("CONNECTED", "REFERENCED") and not model.confirmed:
            self.confirm_offsets(True, True) if model.taken else self.take_offsets((), 0.05)
        elif state == "REFERENCED" and not model.cleared:
            self.sign_for(True) if model.unsigned else self.check(happens)
        elif state in ("REFERENCED", "HELD"):
            self.position(happens)
        elif state == "POSITIONED":
            self.arm(happens, rung, "right")
        elif state == "ARMED":
            self.run(happens, then, False)
        elif state == "TRIPPED":
            self.acknowledge()

    leads_on_2 = leads_on_3 = leads_on_4 = leads_on_5 = leads_on_6 = leads_on_7 = leads_on_8 = leads_on

    @rule(looks=st.booleans(), stops=st.sampled_from((0, 0, 1, 2)), happens=quiet)
    def sends(self, looks: bool, stops: int, happens: Events) -> None:
        """Do the next act by the socket, with the current count of stops or an older one; others stop first."""
        if looks:
            self.seen = self.session.seen
        for _ in range(stops):
            self.stop()
        self.by_socket = True
        self.leads_on(happens, "resume", "g")
        self.by_socket = False

    sends_2 = sends

    @rule(sample=st.integers(0, 400), happens=quiet, then=st.sampled_from(("resume", "resume", "stop")))
    def holds(self, sample: int, happens: Events, then: str) -> None:
        """Run a rung in slow time, and hold it."""
        self.leads_to_armed("e")
        if self.model.state == "ARMED" and self.model.ratio > 1:
            self.run([(sample, "read", "hold"), *happens], then, False)

    def leads_to_armed(self, rung: str) -> None:
        for _ in range(MOST_ACTS):
            if self.model.state == "ARMED":
                break
            self.leads_on((), "resume", rung)


class PairSequences(Sequences):
    """Sequences on two axes of one specimen."""

    bench = benches.PAIR

    @initialize(
        known=st.booleans(), pressure=st.sampled_from((*["high"] * 6, "low", "off")), way=st.integers(0, 9)
    )
    def begins(self, known: bool, pressure: str, way: int) -> None:  # type: ignore[override]
        super().begins(known, "", 0.0, pressure, True, way)


class HopsSequences(Sequences):
    """Sequences with delayed commands; most events happen in runs."""

    @initialize(depth=st.sampled_from((1, 3, 8)), way=st.integers(6, 9))
    def begins(self, depth: int, way: int) -> None:  # type: ignore[override]
        self.sets = (f"hops.depth={depth}",)
        super().begins(True, "", 0.0, "high", True, way)


class ColumnSequences(Sequences):
    """Sequences on a loaded column; most events happen on the way to its run, and in it."""

    bench = benches.COLUMN

    @initialize(way=st.integers(6, 9))
    def begins(self, way: int) -> None:  # type: ignore[override]
        super().begins(False, "", 0.0, "high", True, way)


def run_sequences(sequences: type[Sequences], examples: int, steps: int) -> None:
    """Run ``examples`` sequences, which are the same in each call."""
    run_state_machine_as_test(
        sequences,
        settings=settings(
            phases=[Phase.generate],
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )


@pytest.fixture(autouse=True)
def _benches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plug-in of the benches; no waiting for an operator, who runs in this thread; shorter rests and hashes."""
    monkeypatch.setattr(OperatorRequests, "wait", lambda self, seconds=0.0: None)
    monkeypatch.setattr(motions, "AVERAGED_S", 0.1)
    monkeypatch.setattr(provenance, "package_files", lambda: [Path(motions.__file__)])
    remove = benches.install(monkeypatch.setattr)
    yield
    monkeypatch.undo()
    remove()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))])
def test_stops_keep_load_on_column(seed: int) -> None:
    """Stops come from another thread, at random ticks of the run."""
    rng, column = np.random.default_rng(seed), ColumnSequences()
    column._made(False, "", 0.0, "high", True)
    for tick in rng.integers(700, 1500, 3).tolist():
        column.leads_to_armed("g")
        column.run([(tick, str(rng.choice(PHASES)), "stop")], "resume", False)
        assert column.model.state == "HELD"
        assert 1e-5 < column.watch.load_off < LOADED
    column.teardown()


KINDS = {"one": Sequences, "pair": PairSequences, "hops": HopsSequences, "column": ColumnSequences}
EXAMPLES = {"one": 124, "pair": 36, "hops": 36, "column": 4}
"""Number of sequences in make test, 200 in total; make soak runs five times as many, and longer ones."""
SHORT, LONG = 8, 20
"""Number of acts and events of a sequence, after its begin."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_acts_and_faults(kind: str) -> None:
    run_sequences(KINDS[kind], EXAMPLES[kind], SHORT)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_long_sequences_of_acts_and_faults(kind: str) -> None:
    run_sequences(KINDS[kind], 5 * EXAMPLES[kind], LONG)
