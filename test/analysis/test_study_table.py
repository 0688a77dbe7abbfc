# SPDX-License-Identifier: Apache-2.0
"""The table of a study: effects by level, summaries, the worst runs; what did not finish counts nowhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions

from rths_nodes.analysis.report import study
from rths_nodes.analysis.study_table import StudyTable


def table(**columns: Any) -> StudyTable:
    given: dict[str, Any] = {
        "name": ["a", "b", "c", "d<script>"],
        "outcome": ["finished", "finished", "finished", "tripped"],
        "reason": ["", "", "", "limits.force"],
        "gain": [0.1, 0.1, 0.2, 0.2],
        "law": ["x", "y", "x", "y"],
        "drawn": [1.0, 2.0, 3.0, 4.0],
        "J1": [-3.0, 1.0, 2.0, 99.0],
    }
    return StudyTable("mine", "what it is", "scenario", given | columns, ("gain", "law"), ("J1",), ("drawn",))


def test_the_effect_of_a_level_is_that_of_its_finished_runs() -> None:
    first, second = table().levels("gain", "J1")
    assert (first.label, first.runs, first.median, first.worst) == ("0.1", 2, 2.0, 3.0)
    assert (second.label, second.runs, second.median, second.worst) == ("0.2", 1, 2.0, 2.0)
    of = table(outcome=["tripped", "tripped", "finished", "tripped"]).levels("gain", "J1")[0]
    assert (of.runs, math.isnan(of.median)) == (0, True)


def test_a_summary_is_one_of_magnitudes() -> None:
    found = table().summary("J1")
    assert (found["median"], found["worst"]) == (2.0, 3.0)
    assert found["low"] == pytest.approx(np.percentile([1.0, 2.0, 3.0], 5))
    assert math.isnan(table(outcome=["tripped"] * 4).summary("J1")["worst"])


def test_the_worst_runs_begin_with_those_that_did_not_finish() -> None:
    assert table().worst("J1", 3) == [3, 0, 2]


def test_what_is_drawn_is_continuous_and_a_list_of_numbers_is_not_shown() -> None:
    assert table().shown_factors == ("gain", "law", "drawn")
    assert table(drawn=["[1, 2]"] * 4).shown_factors == ("gain", "law")


def test_the_page_names_factors_worst_runs_and_reasons(tmp_path: Path) -> None:
    study.write(table(), tmp_path / "study.html")
    page = (tmp_path / "study.html").read_text()
    for words in (
        "mine",
        "3 of 4 finished",
        "what it is",
        "limits.force",
        "J1: effect of each factor",
        "gain",
        "law",
    ):
        assert words in page
    assert "<script" not in page
    assert page.count("<svg") == 2


def test_a_page_without_a_finished_run_is_written(tmp_path: Path) -> None:
    study.write(table(outcome=["tripped"] * 4), tmp_path / "study.html")
    assert mentions((tmp_path / "study.html").read_text(), "run", "finished")
