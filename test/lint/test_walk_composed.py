# SPDX-License-Identifier: Apache-2.0
"""The way of a sample through the nodes of one process: how many functions of the package it calls."""

from __future__ import annotations

import statistics
import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rths_nodes
from rths_nodes.app.cli import main

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
pytestmark = pytest.mark.nodes

PACKAGE = str(Path(rths_nodes.__file__).parent)
MOST = 90
"""Calls from one Measurement to the next."""


def test_a_sample_takes_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one Measurement to the next, without a step of the integrator; nine samples in ten are so."""
    monkeypatch.chdir(tmp_path)
    count, measured = 0, []

    def look(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            count += 1
            if frame.f_code.co_qualname == "ActuatorNode._complete":
                measured.append(count)

    sys.setprofile(look)
    try:
        code = main(["run", "chen_ricles_2010", "--host", "composed", "--set", "duration=0.3"])
    finally:
        sys.setprofile(None)
    assert code == 0
    assert len(measured) > 300
    assert statistics.median(after - before for before, after in pairwise(measured)) <= MOST
