# SPDX-License-Identifier: Apache-2.0
"""Acts of a runner that are stopped while something is computed for them: on the rig nothing follows."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from messages import mentions, naming
from rig_runner import conducted, positioned

from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.supervision.states import State


@pytest.fixture
def runner(tmp_path: Path) -> ProcedureRunner:
    return conducted(tmp_path / "test")


def elsewhere(runner: ProcedureRunner, act: str, **arguments: str) -> None:
    """Another operator, who has the answer before the test goes on."""
    told: list[str] = []

    def ask() -> None:
        try:
            told.append(runner.do(act, **arguments))
        except ConfigError as error:
            told.append(f"refused: {error}")

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert told == [""]


def test_a_stop_in_the_rehearsal_of_arm_arms_nothing(
    runner: ProcedureRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes half a second: three stops were refused in that time, and the rig was armed."""
    positioned(runner)
    rehearsed = runner.ladder.rehearsed

    def stopped(name: str, progress: object = None) -> object:
        elsewhere(runner, "stop", reason="wait")
        return rehearsed(name)

    monkeypatch.setattr(runner.ladder, "rehearsed", stopped)
    step, offsets = runner.ladder.step("d"), runner.session.offsets
    assert offsets is not None
    with pytest.raises(ConfigError, match=naming("arm", "wait")):
        runner.do("arm", rung="d", scenario_hash=step.hash, offsets_hash=offsets.hash)
    assert runner.state is State.POSITIONED
    assert mentions(runner.record.acts[-1].refused, "arm", "wait")
    monkeypatch.undo()
    runner.do("arm", rung="d", scenario_hash=step.hash, offsets_hash=offsets.hash)
    assert runner.state is State.ARMED


def test_a_stop_ends_a_rehearsal_before_the_rig_is_connected(runner: ProcedureRunner) -> None:
    asked: list[bool] = []

    def progress(sample: int, samples: int) -> None:
        if not asked:
            asked.append(True)
            elsewhere(runner, "stop", reason="wait")

    runner.watch.progress = progress
    assert mentions(runner.do("rehearse"), "rung a", "held")


def test_a_stop_between_two_parts_of_what_the_operator_does_ends_the_second(runner: ProcedureRunner) -> None:
    """As a console computes a rehearsal, asks for a hash, and arms then."""
    positioned(runner)
    step, offsets = runner.ladder.step("g"), runner.session.offsets
    assert offsets is not None
    with runner.session.act():
        elsewhere(runner, "stop", reason="wait")
        with pytest.raises(ConfigError, match=naming("arm", "wait")):
            runner.do("arm", rung="g", scenario_hash=step.hash, offsets_hash=offsets.hash)
    assert runner.state is State.POSITIONED


def test_a_stop_abandons_the_rehearsal_of_the_act(tmp_path: Path) -> None:
    runner = conducted(tmp_path / "test")
    with runner.session.act():
        assert not runner.ladder.abandoned()
        runner.do("stop", reason="enough")
        assert runner.ladder.abandoned()
