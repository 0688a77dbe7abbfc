# SPDX-License-Identifier: Apache-2.0
"""What an operator sees: the axis of the rig first, units of the laboratory, three digits, within 100 columns."""

from __future__ import annotations

import pytest
from messages import mentions
from rich.console import Console

from rths_nodes.app.procedure import screens
from rths_nodes.app.procedure.ladder import Ladder
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
    """On a rig whose axis is called north."""
    rig = tmp_path_factory.mktemp("rig") / "rig.yaml"
    lines = files.locate("bench_simulated", files.RIG).read_text()
    rig.write_text(lines.replace("  bench:\n", "  north:\n"))
    return files.load("chen_ricles_2010", ["duration=1"], rig=str(rig))


def shown(table: object) -> list[str]:
    """The lines of a terminal of 100 columns, without frames."""
    console = Console(width=100)
    with console.capture() as capture:
        console.print(table)
    return [" ".join(line.replace("│", " ").split()) for line in capture.get().splitlines()]


@pytest.fixture
def record(scenario: Scenario) -> ProcedureRecord:
    peaks = {"story_1": {"displacement": 0.02781, "force": 2.5512e5, "velocity": 0.2}}
    stops = {"story_1": {"displacement": 0.25, "force": 1.8e6}}
    common = {"samples": 3080, "outcome": "finished", "peaks": peaks, "limits": stops}
    own = "displacement of story_1 to its rehearsal"
    rungs = [
        RungRecord("d", WHEN, level=0.3, differences={own: 0.02, "force of story_1": 0.4}, **common),
        RungRecord("f", WHEN, level=0.3, differences={own: 0.2}, **common),
        RungRecord("g", WHEN, bridged=1705, **common),
    ]
    checks = {"story_1": AxisChecks(VERIFIED, VERIFIED, SIGNED, VERIFIED, 7.594e6, 7.6e6, 7.372e6, 7.828e6)}
    return ProcedureRecord(
        "t", "s", "", rungs=rungs, checks=checks, axis_names=axis_names(scenario), planned=["d", "f", "g"]
    )


def test_an_axis_is_called_as_the_rig_calls_it(scenario: Scenario, record: ProcedureRecord) -> None:
    assert axis_names(scenario) == {"story_1": "north (story_1)"}
    assert axis_names(files.load("chen_ricles_2010")) == {"story_1": "story_1"}
    assert mentions(record.named("scale of force of story_1 not verified"), "north (story_1)")
    assert record.named("axes.story_1: wrong sign") == "north (story_1): wrong sign"
    for kept in ("axes.story_1.limits.force: 2 N", "story_1 alone", "axes.story_12: no", "of story_1.x"):
        assert record.named(kept) == kept


def test_the_ladder_has_units_limits_and_a_verdict(record: ProcedureRecord) -> None:
    lines = shown(screens.rungs(record))
    assert "mm (stop) kN (stop)" in lines[1]
    assert mentions(lines[2], "30 %", "story_1", "27.8", "250", "255", "1800", "0.4", "0.02")
    assert mentions(lines[4], "30 %", "story_1", "27.8", "250", "255", "1800", "0.2")
    assert "g full 100 % north (story_1) 27.8 (250) 255 (1800) - - not valid:" in lines[5]
    assert "55 % bridged" in " ".join(lines[5:])


def test_the_checks_are_in_kn_per_mm(record: ProcedureRecord) -> None:
    words = " ".join(shown(screens.checks(record)))
    assert mentions(words, "north (story_1)", "7.59 kN/mm", "7.37 to 7.83")
    assert "e+06" not in words


def test_offsets_have_three_digits(scenario: Scenario) -> None:
    found = OffsetsRecord(WHEN, 2.0, {"story_1": AxisOffsets(1.23456e-4, 2.4e-6, -5371.2, 99.9, 0.0)}, "ab")
    words = " ".join(shown(screens.offsets(found, scenario)))
    assert "north (story_1) displacement 0.123 mm 0.002 mm" in words
    assert "north (story_1) force -5.37 kN 0.100 kN" in words


def test_what_is_armed_stands_beside_where_it_stops(scenario: Scenario) -> None:
    ladder = Ladder(scenario, ("f", "g"), 0.3, None, realtime=False)
    words = " ".join(shown(screens.armed(ladder.step("f"), ladder, "ab")))
    assert "level 30 %" in words
    assert "north (story_1) expected" in words
    assert mentions(words, "stops", "40.0 mm")
    assert mentions(words, "stops", "1800 kN")
