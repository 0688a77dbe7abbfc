# SPDX-License-Identifier: Apache-2.0
"""A commissioning that has passed all trials, for tests with a real port."""

from __future__ import annotations

from datetime import datetime

from rths_nodes.loop.commissioning import CAUSES, PASSED, Commissioning, CommissioningRow, rig_hash
from rths_nodes.loop.scenario.schema import Scenario

NOW = datetime.fromisoformat("2030-06-01T12:00:00+02:00")


def commissioned(scenario: Scenario, build: str = "b1", date: str = "") -> Commissioning:
    """Commissioning of the rig of ``scenario``; dated today by default."""
    rows = [CommissioningRow(cause, "north", "1 mm", "0.9 mm", PASSED) for cause in CAUSES]
    when = date or datetime.now().astimezone().isoformat(timespec="seconds")
    return Commissioning("bench", rig_hash(scenario), build, "udp", "A. Tester", "B. Müller", when, {}, rows)
