# SPDX-License-Identifier: Apache-2.0
"""Tests of procedures on a healthy rig: no shipped scenario raises a remark or trip from connect to finish."""

from __future__ import annotations

import random
from itertools import product

import pytest
from healthy_rig import on_healthy_rig, short
from messages import mentions
from rig_walk import Walk

from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.small_move import SCENARIO

SHIPPED = tuple(files.shipped())
RATIOS, RESOLUTIONS, SEEDS = (1, 10, 50), (1e-6, 5e-6, 20e-6), range(1, 21)
CHOSEN = random.Random(605).sample([*product(SHIPPED, RATIOS, RESOLUTIONS, SEEDS)], 5)
"""Five of all combinations; soak runs all."""
TRUE_REMARKS = {
    "marths_2023": ("its command. The control loop has a static error",),  # 8 and 14 % of the published plant
    "three_independent_axes": ("the force exists only in motion",),  # two dampers
}
SIGNED_REMARKS = ("of the force not verified", "of the displacement not verified", "times the scenario's, ")
"""Remarks on items to be signed."""
WITH_RUNG_D = {name for name in SHIPPED if files.load(name).rig is None} - {"rths_benchmark_2020"}
"""Scenarios without a coupled rig, and without a mass in the specimen, whose force would amplify noise."""
LEFT_OUT = {
    ("horiuchi_1996_verification", "no_compensation"),  # published as unstable
    ("phillips_spencer_2012", "b"),  # published as unstable
    ("horiuchi_1996_frp_column", "level_40"),  # reaches its stroke with one sample of transport
}
CASES = [(name, case) for name in SHIPPED for case in files.load(name).cases if (name, case) not in LEFT_OUT]
COUPLED = ("phillips_spencer_2012", "d")
"""Unloading moves its three axes such that their forces nearly cancel on one of them."""


def run_procedure(name: str, ratio: int, resolution: float, seed: int = 1, case: str = "") -> None:
    """Run a procedure with rungs d and g, the latter held once if possible; any remark is an error."""
    w = Walk(on_healthy_rig(short(name, ratio, seed, case), resolution), [])
    try:
        check(w, name)
        for rung in ("d", "g") if name in WITH_RUNG_D else ("g",):
            w.session.position()
            climb(w, rung)
        assert w.session.unload().given_up == "", w.record.unloading
        w.session.finish()
    finally:
        w.session.close()
    assert (w.record.outcome, w.session.reason) == ("finished", "")
    assert w.record.notes == []
    assert w.record.offsets_after is not None


def check(w: Walk, name: str) -> None:
    w.refer()
    allowed = (*SIGNED_REMARKS, *TRUE_REMARKS.get(name, ()))
    for axis, result in w.session.check().items():
        assert result.findings == result.unlike == [], axis
        assert [remark for remark in result.remarks if not any(text in remark for text in allowed)] == [], axis
        assert result.ratios.get(SCENARIO, 1.0) == pytest.approx(1.0, abs=0.1), axis
    assert all(item.startswith("scale of ") for item in w.session.clearance.unsigned())
    w.sign_all("A. Nyone")


def climb(w: Walk, rung: str) -> None:
    slow = w.scenario.time_ratio > 1 and rung == "g"
    held, resumed = [], []

    def on_state(state: State) -> None:
        if state is State.HELD and w.session.possible()["resume"] == "":
            w.session.resume()
            resumed.append(state)

    def progress(sample: int) -> None:
        if slow and not held and sample > w.scenario.samples // 3:
            held.append(sample)
            w.session.hold()

    w.on_state, w.progress = on_state, progress
    result = w.climb(rung)
    assert (result.outcome, result.reason) == ("finished", ""), result
    assert [remark for remark in result.remarks if not mentions(remark, "held", "sample")] == []
    assert len(resumed) == slow


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "ratio", "resolution", "seed"), CHOSEN)
def test_sampled_procedure_raises_no_remark(name: str, ratio: int, resolution: float, seed: int) -> None:
    run_procedure(name, ratio, resolution, seed)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("resolution", RESOLUTIONS)
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenario_raises_no_remark(name: str, ratio: int, resolution: float) -> None:
    """3060 procedures take about three hours on one processor."""
    for seed in SEEDS:
        run_procedure(name, ratio, resolution, seed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "case"), [pytest.param(*case, marks=[pytest.mark.soak] * (case != COUPLED)) for case in CASES]
)
def test_case_raises_no_remark(name: str, case: str) -> None:
    run_procedure(name, 1, 5e-6, case=case)


@pytest.mark.parametrize("name", SHIPPED)
def test_check_finds_stiffness_of_shipped_scenario(name: str) -> None:
    w = Walk(on_healthy_rig(short(name, 1), 5e-6), [])
    check(w, name)
    w.session.close()
