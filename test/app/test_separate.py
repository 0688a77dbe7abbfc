# SPDX-License-Identifier: Apache-2.0
"""Monitor and recorder in processes of their own beside the composed loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.options import OBSERVERS
from rths_nodes.recording import bag

SHORT = "duration=1.5"


@pytest.fixture
def with_ros() -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")


@pytest.mark.nodes
@pytest.mark.usefixtures("with_ros")
@pytest.mark.parametrize("pace", [pytest.param("lockstep", marks=pytest.mark.soak), "realtime"])
def test_the_same_bits_and_nothing_is_missing(pace: str, tmp_path: Path, patience: list[str]) -> None:
    sets = [SHORT, *patience]
    report = hosts.run(
        "chen_ricles_2010", sets, host="composed", pace=pace, separate=OBSERVERS, record=tmp_path / "run"
    )
    assert (report.outcome, report.reason) == ("finished", "")
    assert report.messages is not None
    assert report.messages["complete"]
    reference = rths_nodes.run("chen_ricles_2010", sets)
    run = rths_nodes.read(tmp_path / "run")
    for name, values in reference.arrays().items():
        if name != "flags":  # a slipped tick is flagged
            assert np.array_equal(values, run.arrays()[name], equal_nan=True), name
    assert report.metrics["axes"] == reference.metrics["axes"]


@pytest.mark.nodes
@pytest.mark.usefixtures("with_ros")
def test_a_killed_recorder_ends_the_test_and_leaves_what_it_has_written(
    tmp_path: Path, patience: list[str]
) -> None:
    report = hosts.run(
        "chen_ricles_2010",
        ["duration=20", *patience],
        host="composed",
        pace="realtime",
        separate=["recorder"],
        record=tmp_path / "run",
        faults=["kill@1:recorder"],
    )
    assert report.exit_code == 1
    assert mentions(report.reason, "died", "SIGKILL")
    assert report.samples < 10 * 1024
    bag.recover(tmp_path / "run")
    # a tenth of a second is held back, by the clock: one that a busy machine has kept waiting hears more in that
    assert len(rths_nodes.read(tmp_path / "run").time) > 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"host": "processes", "separate": ["recorder"]},
            ("separate", "processes"),
        ),
        (
            {"host": "composed", "separate": ["actuator"]},
            ("separate", "actuator", "monitor", "recorder"),
        ),
        (
            {"host": "composed", "separate": ["recorder"], "record": None},
            ("separate", "recorder", "not recorded"),
        ),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], message: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        hosts.run("chen_ricles_2010", **({"record": tmp_path / "run"} | options))  # type: ignore[arg-type]
