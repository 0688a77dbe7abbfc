"""Acts of a conductor that are stopped while something is computed for them: on the rig nothing follows."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from rig_conductor import conducted, positioned

from rths_nodes.app.procedure.conduct import Conductor
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.supervision.states import State


@pytest.fixture
def conductor(tmp_path: Path) -> Conductor:
    return conducted(tmp_path / "test")


def elsewhere(conductor: Conductor, act: str, **arguments: str) -> None:
    """Another operator, who has the answer before the test goes on."""
    told: list[str] = []

    def ask() -> None:
        try:
            told.append(conductor.do(act, **arguments))
        except ConfigError as error:
            told.append(f"refused: {error}")

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert told == [""]


def test_a_stop_in_the_rehearsal_of_arm_arms_nothing(
    conductor: Conductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes half a second: three stops were refused in that time, and the rig was armed."""
    positioned(conductor)
    rehearsed = conductor.ladder.rehearsed

    def stopped(name: str, progress: object = None) -> object:
        elsewhere(conductor, "stop", reason="wait")
        return rehearsed(name)

    monkeypatch.setattr(conductor.ladder, "rehearsed", stopped)
    step, offsets = conductor.ladder.step("d"), conductor.session.offsets
    assert offsets is not None
    with pytest.raises(ConfigError, match="arm: stopped by the operator: wait"):
        conductor.do("arm", rung="d", scenario_hash=step.hash, offsets_hash=offsets.hash)
    assert conductor.state is State.POSITIONED
    assert conductor.record.acts[-1].refused == "arm: stopped by the operator: wait"
    monkeypatch.undo()
    conductor.do("arm", rung="d", scenario_hash=step.hash, offsets_hash=offsets.hash)
    assert conductor.state is State.ARMED


def test_a_stop_ends_a_rehearsal_before_the_rig_is_connected(conductor: Conductor) -> None:
    asked: list[bool] = []

    def progress(sample: int, samples: int) -> None:
        if not asked:
            asked.append(True)
            elsewhere(conductor, "stop", reason="wait")

    conductor.watch.progress = progress
    assert "rung a: held" in conductor.do("rehearse")


def test_a_stop_between_two_parts_of_what_the_operator_does_ends_the_second(conductor: Conductor) -> None:
    """As a console computes a rehearsal, asks for a hash, and arms then."""
    positioned(conductor)
    step, offsets = conductor.ladder.step("g"), conductor.session.offsets
    assert offsets is not None
    with conductor.session.act():
        elsewhere(conductor, "stop", reason="wait")
        with pytest.raises(ConfigError, match="arm: stopped by the operator: wait"):
            conductor.do("arm", rung="g", scenario_hash=step.hash, offsets_hash=offsets.hash)
    assert conductor.state is State.POSITIONED
