# SPDX-License-Identifier: Apache-2.0
"""Recorded test for the page: all of its curves at once, with a slider."""

from __future__ import annotations

from pathlib import Path

from rths_nodes.analysis.histories import Evaluation, live_columns
from rths_nodes.loop.scenario.titles import rig_kind
from rths_nodes.loop.supervision.live import curve_limits, curve_names, curve_units, per_column
from rths_nodes.recording.run import Run

AT_ONCE = 200
"""Columns per message."""


class RecordedTest:
    """Replaces an onlooker: an ended ``run``, with the recording at ``path``."""

    def __init__(self, run: Run, path: Path) -> None:
        axes = {name: run.scenario.limits[name] for name in run.axes}
        about = run.information
        names, per = curve_names(list(axes)), per_column(run.scenario.servo_rate)
        columns = live_columns(Evaluation(run)).astype("f4")
        self._messages = [
            (first * per, per, columns[first : first + AT_ONCE].tobytes())
            for first in range(0, len(columns), AT_ONCE)
        ]
        self._told = {
            "recorded": str(path),
            "namespace": path.name,
            "age": 0.0,
            "port": type(run.scenario.port).type_name,
            "rig_kinds": {"run": rig_kind(run.scenario)},
            "events": [],
            "run": {
                "state": run.outcome.upper(),
                "over": True,
                "reason": about.get("reason", ""),
                "sample": len(run.time) - 1,
                "samples": run.scenario.samples,
                "scenario": run.scenario.name,
                "hash": about.get("scenario_hash", ""),
                "run_id": about.get("run_id", ""),
                "servo_rate": run.scenario.servo_rate,
                "axes": list(axes),
            },
            "curves": {
                "run": str(path),
                "servo_rate": run.scenario.servo_rate,
                "names": names,
                "units": curve_units(axes),
                "limits": [
                    {"curve": names.index(curve), "name": name, "low": -bound, "high": bound}
                    for curve, name, bound in curve_limits(axes)
                ],
            },
        }

    def situation(self) -> dict[str, object]:
        return self._told

    def since(self, number: int) -> tuple[dict[str, object], int, list[tuple[int, int, bytes]]]:
        return self._told, len(self._messages), self._messages[max(0, number) :]
