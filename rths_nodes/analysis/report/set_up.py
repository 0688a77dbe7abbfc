# SPDX-License-Identifier: Apache-2.0
"""Tables of the set-up of a test: computed and tested parts, and sensors with their calibration."""

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
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.titles import axis_names, simulation

MODES = 8
"""Largest number of listed modes of the whole structure."""
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


def parts(of: Evaluation, measured: Mapping[str, float]) -> list[Part]:
    """Return partition, natural frequencies and sensors; ``measured`` are known stiffnesses of axes (N/m)."""
    if of.scenario.structure is None:
        none = Part("Partition", words=("No structure is computed here: the displacements are prescribed.",))
        return [none, _sensors(of.scenario), _cautions(of)]
    found: Partition | None = of.or_left_out(
        "partition of the structure", lambda: partition(of.assembly, measured), None
    )
    listed = [] if found is None else [_partition(found), _modes(found)]
    return [*listed, _sensors(of.scenario), _cautions(of)]


def _cautions(of: Evaluation) -> Part:
    when = of.run.information.get("started", "")[:10]
    try:
        today = date.fromisoformat(when)
    except ValueError:
        today = date.today()
    simulated = bool(simulation(of.scenario))
    nothing: list[Judgement] = []
    found = of.or_left_out("cautions", lambda: cautions(of.scenario, simulated, today), nothing)
    return Part("Cautions", words=() if found else ("None.",), items=tuple(map(str, found)))


def _partition(found: Partition) -> Part:
    rows = []
    for index, name in enumerate(found.names):
        numbers = []
        for own, tested, (_, factor) in zip(found.numerical, found.experimental, _COLUMNS, strict=True):
            lab = rounded(tested[index, index], factor) if found.source else DASH
            numbers += [rounded(own[index, index], factor), lab]
        rows.append([name, *numbers])
    heads = [f"{title}: {which}" for title, _ in _COLUMNS for which in ("numerical", "experimental")]
    whence = (
        f"The experimental part is taken {found.source}."
        if found.source
        else "The experimental part is not stated: neither the structure nor a model of the specimen has it."
    )
    words = (f"Diagonals of the matrices of the degrees of freedom. {whence}",)
    return Part("Partition: numerical and experimental", words=words, grid=grid(("", *heads), rows))


def _modes(found: Partition) -> Part:
    title = "Natural frequencies and damping of the whole structure"
    if not len(found.frequencies):
        return Part(title, words=("Not known: the experimental part of the structure is not stated.",))
    rows = [
        [str(mode), rounded(f), rounded(1.0 / f if f > 0.0 else math.nan), rounded(ratio, PERCENT)]
        for mode, (f, ratio) in enumerate(zip(found.frequencies[:MODES], found.ratios, strict=False), 1)
    ]
    left = len(found.frequencies) - len(rows)
    words = ("At small motion, both substructures together, without actuators.",)
    more = (f"{left} further modes up to {found.frequencies[-1]:.4g}\u00a0Hz.",) if left else ()
    heads = ("Mode", "frequency, Hz", "period, s", "damping, %")
    return Part(title, words=(*words, *more), grid=grid(heads, rows))


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
        keys = [f"{what}: {key}" for what in ("displ.", "force") for key in ("range", "resolution", "noise")]
        none = "No rig file: the sensors are those that the scenario simulates, without a calibration."
        told = grid(("Axis", *keys), simulated)
        ideal = () if told else ("They have neither range nor resolution nor noise.",)
        return Part("Sensors", words=(none, *ideal), grid=told)
    dated = all(row[8] != DASH for row in rows if not row[0].endswith(": command"))
    undated = () if dated else ("A channel without a date has no calibration that the rig file tells of.",)
    words = (*undated, *_altered(scenario))
    return Part("Sensors and channels, of the rig file", words=words, grid=grid(_CHANNEL, rows))


def _altered(scenario: Scenario) -> Iterator[str]:
    simulated = scenario.port.builds_axes
    for name, axis in scenario.axes.items():
        if axis.rig_axis and (told := corrections_in_words(axis.rig_axis, simulated)):
            yield f"{axis_names(scenario)[name]}: {'; '.join(told)}."


def _axis(name: str, axis: RigAxis) -> Iterator[list[str]]:
    for what in ("displacement", "force", "command"):
        yield _channel(f"{name}: {what}", getattr(axis, what))


def _channel(title: str, channel: Channel) -> list[str]:
    numbers = (channel.range, channel.scale, channel.sign, channel.resolution, channel.noise_rms)
    words = [f"{value:g}" if value else DASH for value in numbers]
    about = (channel.calibrated or DASH, channel.certificate or DASH)
    return [title, channel.sensor or DASH, channel.unit, *words, *about]


def _simulated(sensors: object, what: str, factor: float, unit: str) -> list[str]:
    values = (getattr(sensors, f"{what}_{key}") for key in ("range", "resolution", "noise_rms"))
    return [quantity(value, factor, unit, 3) if value else DASH for value in values]


def floors(scenario: Scenario) -> dict[str, float]:
    """Return the smallest rms error (m) that each sensor can show: sqrt(noise^2 + resolution^2 / 12)."""
    found = {}
    for name, axis in scenario.axes.items():
        if axis.rig_axis is not None:
            channel = axis.rig_axis.displacement
            noise, step = (value * channel.unit_si for value in (channel.noise_rms, channel.resolution))
        else:
            noise, step = axis.sensors.displacement_noise_rms, axis.sensors.displacement_resolution or 0.0
        found[name] = float(np.hypot(noise, step / math.sqrt(12.0)))
    return found
