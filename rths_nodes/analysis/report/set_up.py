# SPDX-License-Identifier: Apache-2.0
"""Tables of the set-up of a test: numerical and experimental parts, and sensors with their calibrations."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import date

import numpy as np

from rths_nodes.analysis.cautions import cautions
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report.procedure import Part, grid
from rths_nodes.analysis.share_of_structure import Partition, partition
from rths_nodes.analysis.units import DASH, KN, MM, PERCENT, quantity, rounded
from rths_nodes.laboratory.calibration import Channel
from rths_nodes.laboratory.corrections import corrections_in_words
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario.judgement import Judgement
from rths_nodes.loop.scenario.schema import Scenario, axis_names, simulation

MODES = 8
_CHANNELS = ("displacement", "force", "command")
_HEADS = (
    *("Channel", "Sensor", "Unit", "± range", "scale", "sign", "resolution", "noise"),
    *("Calibrated", "Certificate"),
)
_COLUMNS = (("mass, t", 1e-3), ("damping, kN s/m", KN), ("stiffness, kN/mm", KN / MM))


def parts(evaluation: Evaluation, record: ProcedureRecord | None) -> list[Part]:
    """Return the parts about the set-up; ``record`` has measured stiffnesses."""
    rest = [_sensors(evaluation.scenario), _cautions(evaluation)]
    if evaluation.scenario.structure is None:
        none = Part("Partition", words=("No structure is computed, because the displacements are prescribed.",))
        return [none, *rest]
    checks = record.checks.items() if record else ()
    measured = {axis: row.stiffness for axis, row in checks if row.stiffness is not None}
    split: Partition | None = evaluation.or_left_out(
        "partition of the structure", lambda: partition(evaluation.assembly, measured), None
    )
    return [*([] if split is None else [_partition(split), _modes(split)]), *rest]


def _cautions(evaluation: Evaluation) -> Part:
    day, simulated = date.today(), bool(simulation(evaluation.scenario))
    with suppress(ValueError):
        day = date.fromisoformat(evaluation.run.information.get("started", "")[:10])
    nothing: list[Judgement] = []
    result = evaluation.or_left_out("cautions", lambda: cautions(evaluation.scenario, simulated, day), nothing)
    return Part("Cautions", words=() if result else ("None.",), items=tuple(map(str, result)))


def _partition(partition: Partition) -> Part:
    rows = []
    for index, name in enumerate(partition.names):
        row = [name]
        for numerical, tested, (_, factor) in zip(
            partition.numerical, partition.experimental, _COLUMNS, strict=True
        ):
            lab = rounded(tested[index, index], factor) if partition.source else DASH
            row += [rounded(numerical[index, index], factor), lab]
        rows.append(row)
    heads = [f"{title}: {part}" for title, _ in _COLUMNS for part in ("numerical", "experimental")]
    unknown = "is unknown, because neither the structure nor a model of the specimen states it"
    whence = f"is taken {partition.source}" if partition.source else unknown
    notes = (
        "The values are the diagonal elements of the matrices, by degree of freedom. The experimental part "
        f"{whence}.",
    )
    return Part("Partition: numerical and experimental", words=notes, grid=grid(("", *heads), rows))


def _modes(partition: Partition) -> Part:
    title = "Natural frequencies and damping of the whole structure"
    unknown = "The modes are unknown, because the experimental part of the structure is not stated."
    if not len(partition.frequencies):
        return Part(title, words=(unknown,))
    rows = [
        [str(mode), rounded(f), rounded(1.0 / f if f > 0.0 else math.nan), rounded(ratio, PERCENT)]
        for mode, (f, ratio) in enumerate(zip(partition.frequencies[:MODES], partition.ratios, strict=False), 1)
    ]
    notes = ["The modes belong to both substructures together, at small motion and without actuators."]
    if left := len(partition.frequencies) - len(rows):
        notes.append(f"Number of further modes up to {partition.frequencies[-1]:.4g}\u00a0Hz: {left}.")
    heads = ("Mode", "frequency, Hz", "period, s", "damping, %")
    return Part(title, words=tuple(notes), grid=grid(heads, rows))


def _sensors(scenario: Scenario) -> Part:
    called, rows, corrected = axis_names(scenario), [], []
    for name, axis in scenario.axes.items():
        if rig := axis.rig_axis:
            rows += [_channel(f"{called[name]}: {noun}", getattr(rig, noun)) for noun in _CHANNELS]
            if corrections := corrections_in_words(rig, scenario.port.builds_axes):
                corrected.append(f"{called[name]}: {'; '.join(corrections)}.")
    auxiliary = scenario.rig_file.auxiliary if scenario.rig_file else {}
    rows += [_channel(name, channel) for name, channel in auxiliary.items()]
    if not rows:
        simulated = [
            [
                name,
                *_simulated(axis.sensors, "displacement", MM, "mm"),
                *_simulated(axis.sensors, "force", KN, "kN"),
            ]
            for name, axis in scenario.axes.items()
        ]
        keys = [f"{noun}: {key}" for noun in ("displ.", "force") for key in ("range", "resolution", "noise")]
        none = "The test has no rig file, so the sensors are simulated and have no calibration."
        table = grid(("Axis", *keys), simulated)
        ideal = () if table else ("The sensors have neither range nor resolution nor noise.",)
        return Part("Sensors", words=(none, *ideal), grid=table)
    dated = all(row[8] != DASH for row in rows if not row[0].endswith(": command"))
    undated = [] if dated else ["A channel without a date has no calibration in the rig file."]
    return Part("Sensors and channels of the rig file", words=(*undated, *corrected), grid=grid(_HEADS, rows))


def _channel(title: str, channel: Channel) -> list[str]:
    numbers = (channel.range, channel.scale, channel.sign, channel.resolution, channel.noise_rms)
    cells = [f"{value:g}" if value else DASH for value in numbers]
    about = (channel.calibrated or DASH, channel.certificate or DASH)
    return [title, channel.sensor or DASH, channel.unit, *cells, *about]


def _simulated(sensors: object, noun: str, factor: float, unit: str) -> list[str]:
    values = (getattr(sensors, f"{noun}_{key}") for key in ("range", "resolution", "noise_rms"))
    return [quantity(value, factor, unit, 3) if value else DASH for value in values]


def floors(scenario: Scenario) -> dict[str, float]:
    """Return the smallest detectable rms error (m) by axis: sqrt(noise^2 + resolution^2 / 12) of the sensor."""
    result = {}
    for name, axis in scenario.axes.items():
        if axis.rig_axis is not None:
            channel = axis.rig_axis.displacement
            noise, step = (value * channel.unit_si for value in (channel.noise_rms, channel.resolution))
        else:
            noise, step = axis.sensors.displacement_noise_rms, axis.sensors.displacement_resolution or 0.0
        result[name] = float(np.hypot(noise, step / math.sqrt(12.0)))
    return result


def floor(evaluation: Evaluation, record: ProcedureRecord | None) -> Part:
    title = "Error and floor of the sensor"
    if len(evaluation.counted) < 2:
        return Part(title)
    run, floors_of_axes, called = evaluation.run, floors(evaluation.scenario), axis_names(evaluation.scenario)
    before = record.offsets_before.axes if record and record.offsets_before else {}
    rows = []
    for index, axis in enumerate(run.axes):
        target = run.target[evaluation.counted, index]
        error = target - run.displacement[evaluation.counted, index]
        seen = before[axis].displacement_scatter if axis in before else math.nan
        noise = floors_of_axes[axis] or math.nan
        sizes = [[float(np.abs(x).max()), float(np.sqrt(np.mean(x**2)))] for x in (error, target)]
        row = [called[axis]]
        for of_error, of_target in zip(*sizes, strict=True):
            row += [rounded(of_error, MM), rounded(of_error / of_target if of_target else math.nan, PERCENT)]
        most = np.fmax(noise, seen if seen > 0.0 else math.nan)
        rows.append([*row, rounded(noise, MM), rounded(seen, MM), rounded(sizes[0][1] / most)])
    if all(row[-1] == DASH for row in rows):
        return Part(
            title, words=("No displacement sensor has a stated noise or resolution, so no floor is known.",)
        )
    heads = (
        *(
            "Axis",
            "largest error, mm",
            "largest error, % of target",
            "rms error, mm",
            "rms error, % of rms target",
        ),
        *("floor of the sensor, mm", "scatter at rest, mm", "rms error divided by floor"),
    )
    notes = (
        "The floor of a sensor is the rms of its noise and resolution, √(noise² + resolution²/12), from the rig "
        "file or the simulated sensor. The scatter at rest is the rms while the offsets were taken.",
    )
    return Part(title, words=notes, grid=grid(heads, rows))
