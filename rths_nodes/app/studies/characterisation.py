# SPDX-License-Identifier: Apache-2.0
"""Characterisation of a rig: cyclic tests of one axis after the other, over amplitudes and frequencies.

Recorded tests are accepted as well (``rths characterise --from``). The result is a section of a rig file
(``--out``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rths_nodes.analysis.identification.characteristics import Cyclic, Equivalent, at_small, cyclic
from rths_nodes.analysis.identification.experiments import RAMP, SETTLING, Cycles, cycled, loaded_at
from rths_nodes.app.studies import identification
from rths_nodes.app.studies.identification import Progress
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data, to_data
from rths_nodes.core.yaml_text import dump
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.laboratory.corrections import low_pass
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.butterworth import filtered
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run

DIGITS = 7
"""Significant digits of numbers in a section."""


@dataclass(frozen=True)
class Planned:
    """One test of the characterisation: an axis in cycles."""

    axis: str
    cycles: Cycles
    scenario: Scenario

    @property
    def name(self) -> str:
        """Name of the test, and of its folder."""
        return f"{self.axis}_{1e3 * self.cycles.amplitude:g}mm_{self.cycles.frequency:g}Hz"


def plan(scenario: Scenario, axes: Sequence[str], each: Sequence[Cycles]) -> list[Planned]:
    """Return the tests ``each`` of the ``axes``, small and slow ones first. Raises ConfigError."""
    known = list(scenario.moved_axes)
    cautious = sorted(each, key=lambda cycles: (cycles.amplitude, cycles.frequency))
    return [
        Planned(axis, cycles, cycled(scenario, known.index(axis), cycles)) for axis in axes for cycles in cautious
    ]


def run(tests: Sequence[Planned], record: str | None, progress: Progress) -> dict[str, list[Cyclic]]:
    """Run the tests and return results by axis; record into ``record``/<name> if given.

    Raises Stopped for a test that does not finish, ConfigError for one that cannot run.
    """
    found: dict[str, list[Cyclic]] = {}
    for test in tests:
        place = Path(record) / test.name if record else None
        history = identification.finished(test.scenario, test.name, place, progress, "a smaller amplitude")
        found.setdefault(test.axis, []).append(_evaluated(history, test.axis, test.cycles))
    return found


def read(recordings: Sequence[str], on: Scenario | None = None) -> dict[str, list[Cyclic]]:
    """Read tests by axis. Raises ConfigError unless all are cyclic and, if given, from the rig of ``on``."""
    found: dict[str, list[Cyclic]] = {}
    for recording in recordings:
        history = read_run(recording)
        if history.notes:  # incomplete recordings prove nothing
            raise ConfigError(*history.notes)
        if on is not None:
            _check_rig(recording, history.scenario, on)
        motion = to_data(history.scenario.integrator).get("displacement") or {}
        motion = motion["motion"] if motion.get("type") == "delayed" else motion  # after loads
        if motion.get("type") != "harmonic" or motion.get("ramp_periods") != RAMP:
            raise ConfigError(f"{recording}: is no cyclic test, as rths characterise --record writes it")
        cycles = from_data(
            Cycles,
            {
                "amplitude": motion["amplitude"],
                "frequency": motion["frequency"],
                "cycles": motion["periods"] - 2 * RAMP - SETTLING,
            },
        )
        axis = history.axes[int(np.argmax(np.nanvar(history.command, axis=0)))]
        found.setdefault(axis, []).append(_evaluated(history, axis, cycles))
    return found


def _check_rig(recording: str, of: Scenario, on: Scenario) -> None:
    """Refuse a recording of another rig."""
    for what, there, here in (
        ("rig", of.rig_file and of.rig_file.name, on.rig_file and on.rig_file.name),
        ("port", type(of.port).type_name, type(on.port).type_name),
        ("axes", ", ".join(of.axes), ", ".join(on.axes)),
    ):
        if there != here:
            raise ConfigError(f"{recording}: {what} = {there or 'none'}: must be {here or 'none'}, that of --rig")
    for axis in on.axes:
        channels = (_channels(each.axes[axis].rig_axis) for each in (of, on))
        if next(channels) != next(channels):
            raise ConfigError(f"{recording}: axes.{axis}: its channels are not those that --rig has")


def _channels(axis: RigAxis | None) -> tuple[object, ...]:
    return () if axis is None else (axis.name, axis.displacement, axis.force, axis.command)


def _evaluated(run: Run, axis: str, cycles: Cycles) -> Cyclic:
    column, dt = run.axes.index(axis), run.scenario.dt
    begin = loaded_at(run.scenario) + cycles.begin
    inside = (run.time >= begin) & (run.time < begin + cycles.cycles / cycles.frequency)
    low = low_pass(run.scenario.axes[axis], dt)  # compared signals pass the force's filter
    command, displacement = (
        filtered(values[:, column], low)[inside] for values in (run.command, run.displacement)
    )
    force = run.force[inside, column]
    try:
        return cyclic(command, displacement, force, dt, cycles.frequency, cycles.cycles)
    except ValueError as error:
        raise ConfigError(f"{axis}: {cycles.frequency:g} Hz, {cycles.amplitude:g} m: {error}") from None


def check_section(out: Path, rig: str) -> None:
    """Raise ConfigError, before any motion, for a section without a rig file, or an existing file."""
    if not rig:
        raise ConfigError(f"--out {out}: is a section for a rig file: name that file by --rig")
    if out.exists() and out.samefile(files.locate(rig, files.RIG)):
        raise ConfigError(f"--out {out}: is the rig file itself; give another file, whose lines go into it")


def section(
    found: Mapping[str, Sequence[Cyclic]], alike: Mapping[str, Equivalent], scenario: Scenario, rig: str
) -> str:
    """Return the section for the file of ``rig``, from the tests ``found`` by axis of ``scenario``, as YAML.

    It is ``characterised`` of each tested axis, under the rig's name of it; the rig file with the section was
    built. Raises ConfigError for tests without an expected stiffness, and for an invalid section.
    """
    origin = {
        "scenario": scenario.name,
        "date": datetime.now(UTC).date().isoformat(),
        "simulated": Assembly(scenario).port.simulated,
    }
    sections = {}
    for axis, tests in found.items():
        place = scenario.axes[axis].rig_axis
        assert place is not None
        sections[place.name] = {"characterised": origin | _section_of(axis, tests, alike[axis])}
    file = to_data(files.load_rig(rig))
    for name, section in sections.items():
        file["axes"][name] |= section
    try:
        from_data(RigFile, file)
    except ConfigError as error:
        raise error.within(f"{rig} with what was found") from None
    head = "# Of rths characterise: put each `characterised` under its axis in the rig file.\n"
    return head + dump({"axes": sections}, rows=True)


def _section_of(axis: str, tests: Sequence[Cyclic], alike: Equivalent) -> dict[str, object]:
    try:
        small = at_small(tests)
    except ValueError as error:
        raise ConfigError(f"--out: axes.{axis}: {error}") from None
    rows = [
        (test.wanted, test.frequency, test.storage_stiffness, test.loss_factor, test.gain, test.delay)
        for test in tests
    ]
    return {
        **{name: _rounded(value) for name, value in small._asdict().items()},
        "equivalent_stiffness": _rounded(alike.stiffness),
        "equivalent_damping": _rounded(alike.damping),
        "tests": [[_rounded(value) for value in row] for row in rows],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
