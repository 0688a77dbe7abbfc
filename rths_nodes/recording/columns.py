# SPDX-License-Identifier: Apache-2.0
"""Conversion of a Run to columns with units, and to files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from rths_nodes.core import yaml_text
from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import write_columns
from rths_nodes.recording.run import Run

OF_AXES = {
    "target": "m",
    "command": "m",
    "displacement": "m",
    "force": "N",
    "true_displacement": "m",
    "true_force": "N",
}
OF_DOF = {
    "dof_displacement": "m",
    "dof_velocity": "m/s",
    "dof_acceleration": "m/s^2",
    "exact_acceleration": "m/s^2",
    "external_force": "N",
    "restoring_force": "N",
}

OF_LOADS = {"target": "N", "command": "N", "held": "m"} | {
    name: unit for name, unit in OF_AXES.items() if name not in ("target", "command")
}
LONGEST_FIELD = 31


class History(NamedTuple):
    """Holds the ``values`` of a quantity, ``(n,)`` or ``(n, len(columns))`` in ``unit``, and column names."""

    name: str
    values: Array
    unit: str
    columns: tuple[str, ...] = ()


def samples_of(run: Run) -> list[History]:
    histories = [History("time", run.time, "s")]
    histories += [History(name, getattr(run, name), unit, run.axes) for name, unit in OF_AXES.items()]
    histories += [History("flags", run.flags.astype(float), "1")]
    histories += [History("compensator", run.compensator, "", run.compensator_names)]
    if run.loads is not None:
        loads = run.loads
        histories += [
            History(f"load_{name}", getattr(loads, name), unit, loads.names) for name, unit in OF_LOADS.items()
        ]
    return [history for history in histories if history.values.size and np.isfinite(history.values).any()]


def steps_of(run: Run) -> list[History]:
    histories = [History("step_time", run.step_time, "s")]
    histories += [History(name, getattr(run, name), unit, run.dof_names) for name, unit in OF_DOF.items()]
    return [history for history in histories if history.values.size and np.isfinite(history.values).any()]


def groups_of(run: Run) -> list[tuple[str, list[History]]]:
    time = History("updating_time", run.updating_time, "s")
    updating = [time, History("updating", run.updating, "", run.updating_names)] if run.updating.size else []
    groups = [("samples", samples_of(run)), ("steps", steps_of(run)), ("updating", updating)]
    return [(name, histories) for name, histories in groups if histories]


def facts_of(run: Run) -> dict[str, str]:
    return dict(run.information) | {"scenario": yaml_text.dump(run.scenario.data())}


def columns_of(histories: list[History]) -> dict[str, list[float]]:
    columns = {}
    for history in histories:
        unit = f" ({history.unit})" if history.unit else ""
        rows = history.values.reshape(len(history.values), -1).T.tolist()
        for column, values in zip(history.columns or ("",), rows, strict=True):
            columns[f"{column}.{history.name}{unit}" if column else f"{history.name}{unit}"] = values
    return columns


def write_csv(histories: list[History], path: Path) -> None:
    """Write the columns, and create the folder. Missing rows and NaN become empty cells. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_columns(columns_of(histories), path)


def write_mat(run: Run, path: Path) -> None:
    from scipy.io import savemat

    histories = [history for _, group in groups_of(run) for history in group]
    values = {history.name: history.values for history in histories}
    facts = {
        "axes": np.array(run.axes, dtype=object),
        "degrees_of_freedom": np.array(run.dof_names, dtype=object),
        "compensator_names": np.array(run.compensator_names, dtype=object),
        "updating_names": np.array(run.updating_names, dtype=object),
        "units": {history.name: history.unit for history in histories},
        "test": {name[:LONGEST_FIELD]: value for name, value in facts_of(run).items()},
    }
    savemat(path, values | facts, oned_as="column", do_compression=True)
