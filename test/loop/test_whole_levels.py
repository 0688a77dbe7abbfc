# SPDX-License-Identifier: Apache-2.0
"""Levels of the whole rig: bridged samples in a row, and adaptive parameters at their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import each_mentions, mentions, naming

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report.tables import limits as limits_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import WHOLE, Limits, WholeLevels
from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_BRIDGED, Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.levels import WHOLE_RIG, LevelWatch, level_notes, level_numbers

DT = 1e-3
LIMITS = {"a": from_data(Limits, {"stroke": 1.0, "velocity": 1.0, "force": 1.0})}


def watch(simulated: bool = True, **levels: Any) -> LevelWatch | None:
    whole = from_data(WholeLevels, levels).in_effect(simulated, 1.0 / DT)
    return LevelWatch.of(LIMITS, DT, whole=whole)


def actions(of: LevelWatch | None, flags: Sequence[int], of_port: Sequence[int] = ()) -> list[str]:
    """What is to be done at each sample, whose Command and Measurement have these flags."""
    assert of is not None
    nothing, found = np.zeros(1), []
    for k, flag in enumerate(flags):
        measured = Measurement(k + 1, nothing, nothing, nothing, flags=of_port[k] if of_port else 0)
        breach = of.judge(Command(k + 1, nothing, nothing, flags=flag), measured)
        found.append("" if breach is None else breach.action)
    return found


def test_bridges_count_in_a_row_wherever_they_were_made() -> None:
    level = {"maximum": 2, "warn_maximum": 1, "action": "hold"}
    of = watch(bridge_length=level)
    b = FLAG_BRIDGED
    assert actions(of, [b, b, 0, b, b, 0], [0, 0, 0, 0, 0, b]) == ["", "", "", "", "", "hold"]
    assert of is not None
    assert each_mentions(of.told, ("sample 2", "2", "levels.bridge_length", "<= 1"))
    numbers = level_numbers(of)["levels"][WHOLE_RIG]["bridge_length"]
    assert (numbers["highest"], numbers["samples"], numbers["first"]) == (3.0, 3.0, 2.0)


def test_a_bridge_tells_nothing_of_a_parameter() -> None:
    at, b = FLAG_AT_BOUND, FLAG_BRIDGED
    level = {"maximum": 2, "action": "stop"}
    assert actions(watch(parameter_at_bound=level), [at, at, b, at, 0, at]) == ["", "", "", "stop", "", ""]


def test_behind_a_port_that_is_no_simulator_a_parameter_at_its_bound_is_held_by_default() -> None:
    assert watch(simulated=True) is None
    of = watch(simulated=False)
    found = actions(of, [FLAG_AT_BOUND] * 502)
    assert found.index("hold") == 500  # half a second
    assert of is not None
    assert mentions(of.told[0], "sample 1", "1", "levels.parameter_at_bound")
    off = watch(simulated=False, parameter_at_bound={"warn_maximum": 1e9, "action": "indicate"})
    assert set(actions(off, [FLAG_AT_BOUND] * 600)) == {""}


def test_the_stage_asks_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = files.load("predefined_sine", ["axes.axis_1.limits.tracking_error=0.05"])
    port = checked_loop(scenario).assembly.port
    assert RigStage(scenario, port).levels is None
    monkeypatch.setattr(port, "simulated", False)
    monkeypatch.setattr(port, "armed", True, raising=False)
    watched = RigStage(scenario, port).levels
    assert watched is not None
    assert set(watched.numbers()[WHOLE_RIG]) == {"bridged_share", "parameter_at_bound"}


def test_behind_a_port_that_is_no_simulator_a_test_that_is_mostly_bridged_is_held_by_default() -> None:
    """Told above 10 of 1000 samples of a second, held above 100, wherever they lie in it."""
    b, of = FLAG_BRIDGED, watch(simulated=False)
    found = actions(of, [b if k % 4 == 0 else 0 for k in range(500)])
    assert found.index("hold") == 400
    assert of is not None
    assert of.told[0].startswith("sample 41: levels.bridged_share: 0.011")
    assert mentions(of.told[0], "bridged", "<= 0.01")
    few = watch(simulated=False)
    assert set(actions(few, [b if k % 11 == 0 else 0 for k in range(3000)])) == {""}, "a share, not a count"
    none = watch(simulated=False)
    assert set(actions(none, [b if k % 101 == 0 else 0 for k in range(3000)])) == {""}
    assert none is not None
    assert none.told == []


def test_a_parameter_that_runs_into_its_bound_ends_the_test_and_is_told() -> None:
    """The rig is far slower than the compensator may believe: the parameter goes to its end, and stays there."""
    slow = ["axes.story_1.actuator.alpha=45", "compensator.alpha_max=40", "levels.parameter_at_bound.maximum=100"]
    found = rths_nodes.run("chen_ricles_2010", [*slow, "levels.parameter_at_bound.action=hold"])
    assert found.outcome == "held"
    assert mentions(found.information["reason"], "levels.parameter_at_bound", "101")
    at = (found.flags & FLAG_AT_BOUND) != 0
    np.testing.assert_array_equal(at[1:], found.compensator[:-1, 0] >= 40.0 * (1.0 - 1e-6))
    rows = {row.title: row for row in limits_of(Evaluation(found)).rows}
    assert rows["whole rig: level of parameter at bound"].values[-1] == "hold"
    assert any(mentions(note, "levels.parameter_at_bound", "level") for note in level_notes(found.timing))


@pytest.mark.parametrize("quantity", WHOLE)
def test_a_level_without_a_number_is_refused(quantity: str) -> None:
    with pytest.raises(ConfigError, match=naming(f"levels.{quantity}", "level")):
        files.load("predefined_sine", [f"levels.{quantity}={{action: hold}}"])


def test_a_rig_file_brings_its_levels(tmp_path: Path) -> None:
    file = tmp_path / "rig.yaml"
    shipped = files.locate("bench_simulated", files.RIG).read_text()
    file.write_text(shipped + "levels: {bridge_length: {warn_maximum: 2, maximum: 4}}\n")
    level = files.load("chen_ricles_2010", rig=file).levels.bridge_length
    assert level is not None
    assert (level.warn_maximum, level.maximum, level.action) == (2.0, 4.0, "stop")
