# SPDX-License-Identifier: Apache-2.0
"""Tables of the set-up of a test: numerical and experimental parts, and sensors with their calibrations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import date

import numpy as np

from rths_nodes.analysis.cautions import cautions
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report.procedure import Part, grid
from rths_nodes.analysis.share_of_structure import Partition, partition
from rths_nodes.analysis.units import DASH, KN, MM, PERCENT, quantity, rounded
from rths_nodes.laboratory.calibration import Channel, RigAxis
from rths_nodes.laboratory.corrections import corrections_in_words
from rths_nodes.loop.scenario.judgement import Judgement
from rths_nodes.loop.scenario.schema import Scenario, axis_names, simulation

MODES = 8
TONNE = 1e-3
_CHANNEL = (
    "Channel",
    "Sensor",
    "Unit",
    "± range",
    "scale",
    "sign",
    "resolution",
    "noise",
    "Calibrated",
    "Certificate",
)
_COLUMNS = (("mass, t", TONNE), ("damping, kN s/m", KN), ("stiffness, kN/mm", KN / MM))


def parts(evaluation: Evaluation, measured: Mapping[str, float]) -> list[Part]:
    if evaluation.scenario.structure is None:
        none = Part("Partition", words=("No structure is computed, because the displacements are prescribed.",))
        return [none, _sensors(evaluation.scenario), _cautions(evaluation)]
    split: Partition | None = evaluation.or_left_out(
        "partition of the structure", lambda: partition(evaluation.assembly, measured), None
    )
    listed = [] if split is None else [_partition(split), _modes(split)]
    return [*listed, _sensors(evaluation.scenario), _cautions(evaluation)]


def _cautions(evaluation: Evaluation) -> Part:
    when = evaluation.run.information.get("started", "")[:10]
    try:
        today = date.fromisoformat(when)
    except ValueError:
        today = date.today()
    simulated = bool(simulation(evaluation.scenario))
    nothing: list[Judgement] = []
    result = evaluation.or_left_out("cautions", lambda: cautions(evaluation.scenario, simulated, today), nothing)
    return Part("Cautions", words=() if result else ("None.",), items=tuple(map(str, result)))


def _partition(partition: Partition) -> Part:
    rows = []
    for index, name in enumerate(partition.names):
        numbers = []
        for numerical, tested, (_, factor) in zip(
            partition.numerical, partition.experimental, _COLUMNS, strict=True
        ):
            lab = rounded(tested[index, index], factor) if partition.source else DASH
            numbers += [rounded(numerical[index, index], factor), lab]
        rows.append([name, *numbers])
    heads = [f"{title}: {part}" for title, _ in _COLUMNS for part in ("numerical", "experimental")]
    whence = (
        f"The experimental part is taken {partition.source}."
        if partition.source
        else "The experimental part is unknown, because neither the structure nor a model of the specimen "
        "states it."
    )
    notes = (f"The values are the diagonal elements of the matrices, by degree of freedom. {whence}",)
    return Part("Partition: numerical and experimental", words=notes, grid=grid(("", *heads), rows))


def _modes(partition: Partition) -> Part:
    title = "Natural frequencies and damping of the whole structure"
    if not len(partition.frequencies):
        return Part(
            title, words=("The modes are unknown, because the experimental part of the structure is not stated.",)
        )
    rows = [
        [str(mode), rounded(f), rounded(1.0 / f if f > 0.0 else math.nan), rounded(ratio, PERCENT)]
        for mode, (f, ratio) in enumerate(zip(partition.frequencies[:MODES], partition.ratios, strict=False), 1)
    ]
    left = len(partition.frequencies) - len(rows)
    notes = ("The modes belong to both substructures together, at small motion and without actuators.",)
    more = (f"Number of further modes up to {partition.frequencies[-1]:.4g}\u00a0Hz: {left}.",) if left else ()
    heads = ("Mode", "frequency, Hz", "period, s", "damping, %")
    return Part(title, words=(*notes, *more), grid=grid(heads, rows))


def _sensors(scenario: Scenario) -> Part:
    called = axis_names(scenario)
    on_rig = {called[name]: axis.rig_axis for name, axis in scenario.axes.items() if axis.rig_axis}
    rows = [row for name, axis in on_rig.items() for row in _axis(name, axis)]
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
    undated = () if dated else ("A channel without a date has no calibration in the rig file.",)
    notes = (*undated, *_altered(scenario))
    return Part("Sensors and channels of the rig file", words=notes, grid=grid(_CHANNEL, rows))


def _altered(scenario: Scenario) -> Iterator[str]:
    simulated = scenario.port.builds_axes
    for name, axis in scenario.axes.items():
        if axis.rig_axis and (corrections := corrections_in_words(axis.rig_axis, simulated)):
            yield f"{axis_names(scenario)[name]}: {'; '.join(corrections)}."


def _axis(name: str, axis: RigAxis) -> Iterator[list[str]]:
    for noun in ("displacement", "force", "command"):
        yield _channel(f"{name}: {noun}", getattr(axis, noun))


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
