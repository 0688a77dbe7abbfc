# SPDX-License-Identifier: Apache-2.0
"""Tests of tables at the terminal: rig's names of axes, laboratory units, three digits, within 100 columns."""

from __future__ import annotations

import pytest
from messages import mentions
from rich.console import Console

from rths_nodes.app.procedure.console import armed_table, checks_table, offsets_table, rungs_table
from rths_nodes.app.procedure.procedure_runner import Ladder
from rths_nodes.loop.procedure_record import (
    SIGNED,
    VERIFIED,
    AxisChecks,
    AxisOffsets,
    OffsetsRecord,
    ProcedureRecord,
    RungRecord,
)
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario, axis_names

WHEN = "2030-01-02T12:00:00+00:00"


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """Scenario on a rig whose axis is named north."""
    rig = tmp_path_factory.mktemp("rig") / "rig.yaml"
    lines = files.locate("bench_simulated", files.RIG).read_text()
    rig.write_text(lines.replace("  bench:\n", "  north:\n"))
    return files.load("chen_ricles_2010", ["duration=1"], rig=str(rig))


def shown(table: object) -> list[str]:
    """Return the lines of a table at a terminal of 100 columns, without frames."""
    console = Console(width=100)
    with console.capture() as capture:
        console.print(table)
    return [" ".join(line.replace("│", " ").split()) for line in capture.get().splitlines()]


@pytest.fixture
def record(scenario: Scenario) -> ProcedureRecord:
    peaks = {"story_1": {"displacement": 0.02781, "force": 2.5512e5, "velocity": 0.2}}
    stops = {"story_1": {"displacement": 0.25, "force": 1.8e6}}
    common = {"samples": 3080, "outcome": "finished", "peaks": peaks, "limits": stops}
    to_rehearsal = "displacement of story_1 to its rehearsal"
    rungs = [
        RungRecord("d", WHEN, level=0.3, differences={to_rehearsal: 0.02, "force of story_1": 0.4}, **common),
        RungRecord("f", WHEN, level=0.3, differences={to_rehearsal: 0.2}, **common),
        RungRecord("g", WHEN, bridged=1705, **common),
    ]
    checks = {"story_1": AxisChecks(VERIFIED, VERIFIED, SIGNED, VERIFIED, 7.594e6, 7.6e6, 7.372e6, 7.828e6)}
    return ProcedureRecord(
        "t", "s", "", rungs=rungs, checks=checks, axis_names=axis_names(scenario), planned=["d", "f", "g"]
    )


def test_axes_have_the_names_of_the_rig(scenario: Scenario, record: ProcedureRecord) -> None:
    assert axis_names(scenario) == {"story_1": "north (story_1)"}
    assert axis_names(files.load("chen_ricles_2010")) == {"story_1": "story_1"}
    assert mentions(record.named("scale of force of story_1 not verified"), "north (story_1)")
    assert record.named("axes.story_1: wrong sign") == "north (story_1): wrong sign"
    for unchanged in ("axes.story_1.limits.force: 2 N", "story_1 alone", "axes.story_12: no", "of story_1.x"):
        assert record.named(unchanged) == unchanged


def test_ladder_has_units_limits_and_verdicts(record: ProcedureRecord) -> None:
    lines = shown(rungs_table(record))
    assert "mm (stop) kN (stop)" in lines[1]
    assert mentions(lines[2], "30 %", "story_1", "27.8", "250", "255", "1800", "0.4", "0.02")
    assert mentions(lines[4], "30 %", "story_1", "27.8", "250", "255", "1800", "0.2")
    assert "g full 100 % north (story_1) 27.8 (250) 255 (1800) - - not valid:" in lines[5]
    assert "55 % bridged" in " ".join(lines[5:])


def test_stiffness_is_in_kn_per_mm(record: ProcedureRecord) -> None:
    text = " ".join(shown(checks_table(record)))
    assert mentions(text, "north (story_1)", "7.59 kN/mm", "7.37 to 7.83")
    assert "e+06" not in text


def test_offsets_have_three_digits(scenario: Scenario) -> None:
    offsets = OffsetsRecord(WHEN, 2.0, {"story_1": AxisOffsets(1.23456e-4, 2.4e-6, -5371.2, 99.9, 0.0)}, "ab")
    text = " ".join(shown(offsets_table(offsets, scenario)))
    assert "north (story_1) displacement 0.123 mm 0.002 mm" in text
    assert "north (story_1) force -5.37 kN 0.100 kN" in text


def test_armed_rung_is_shown_with_its_limits(scenario: Scenario) -> None:
    ladder = Ladder(scenario, ("f", "g"), 0.3, None, realtime=False)
    text = " ".join(shown(armed_table(ladder.step("f"), ladder, "ab")))
    assert "level 30 %" in text
    assert "north (story_1) expected" in text
    assert mentions(text, "stops", "40.0 mm")
    assert mentions(text, "stops", "1800 kN")
