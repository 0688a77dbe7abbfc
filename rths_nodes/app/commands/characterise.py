# SPDX-License-Identifier: Apache-2.0
"""``rths identify --for rig_file``: measure stiffness, damping and delay of each axis in cyclic tests."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rths_nodes.analysis.identification import experiments
from rths_nodes.analysis.identification.experiments import RAMP, SETTLING, Cycles, Cyclic, Equivalent, loaded_at
from rths_nodes.analysis.units import KN, MM, MS, PERCENT
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import identification
from rths_nodes.app.studies.tasks import Shown
from rths_nodes.core.errors import ConfigError, unknown, within
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

NUMBERS = (*(entry.name for entry in fields(Cyclic) if entry.name not in ("displacement", "force")), "loss_factor")
COLUMNS = (
    ("amplitude\nmm", "amplitude", MM),
    ("frequency\nHz", "frequency", 1.0),
    ("storage\nkN/mm", "storage_stiffness", KN / MM),
    ("effective\nkN/mm", "effective_stiffness", KN / MM),
    ("loss\nfactor", "loss_factor", 1.0),
    ("damping\nkN s/m", "damping", KN),
    ("damping\nratio %", "damping_ratio", PERCENT),
    ("energy\nJ/cycle", "energy", 1.0),
    ("gain of\nactuator", "gain", 1.0),
    ("delay of\nactuator ms", "delay", MS),
)


TESTS = ("axis", "amplitudes", "frequencies", "cycles", "voltage")


def add_arguments(group: arguments.Arguments) -> None:
    group.several("--axis NAME", "axis that moves; default: all axes")
    group("--amplitudes M,...", "amplitudes of the displacement, m")
    group("--frequencies HZ,...", "frequencies of the cycles, Hz")
    group("--cycles N", "number of evaluated cycles in each test; default: 5", type=int)
    group("--voltage V", "voltage of a controllable damper, V; default: 0", type=float)
    group("--csv FILE", "write the results as a CSV table, in SI units")
    text = "write the tests as scenarios to DIR (for rths test on a real rig), instead of running the tests"
    group("--plan DIR", text)


def run(options: arguments.Options, scenario: Scenario, figure: Path | None) -> None:
    table, out = (Path(name) if name else None for name in (options.csv, options.out))
    if out:
        check_section(out, options.rig)
    for path in (table, out):
        if path:
            terminal.check_writable(path)
    if options.plan:
        _plan(options, scenario)
        return
    if options.from_:
        arguments.refuse_idle(options, (*TESTS, "record"), "has no effect, because --from runs no test")
        results = read(options.from_, scenario if out else None)
    else:
        results = conducted(_planned(options, scenario), options.record, terminal.progress)
    alike = {axis: experiments.equivalent(tests) for axis, tests in results.items()}
    axes = {
        axis: {"tests": [_plain(test) for test in tests], "equivalent": asdict(alike[axis])}
        for axis, tests in results.items()
    }
    terminal.output(options.json, {"scenario": scenario.name, "axes": axes}, _print, results, alike)
    if table:
        with terminal.writing(table, "" if options.json else "table"):
            _write(results, table)
    if figure:
        from rths_nodes.analysis.figures.analyses import characteristics

        arguments.save_figure(options, figure, characteristics, results, alike, scenario.name)
    if out:
        section = section_of(results, alike, scenario, options.rig)
        with terminal.writing(out, "" if options.json else "section for the rig file"):
            out.write_text(section, encoding="utf-8")


def _plan(options: arguments.Options, scenario: Scenario) -> None:
    results = ("from_", "record", "csv", "figure", "out", "json")
    arguments.refuse_idle(options, results, "has no effect, because --plan runs no test")
    folder, tests = Path(options.plan), _planned(options, scenario)
    terminal.check_makable(folder / "test.yaml")
    for axis, cycles, test in tests:
        path = folder / f"{name_of(axis, cycles)}.yaml"
        with terminal.writing(path, "scenario"):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(dump(test.data()), encoding="utf-8")


def _planned(options: arguments.Options, scenario: Scenario) -> Plan:
    axes = list(dict.fromkeys(options.axis)) or list(scenario.moved_axes)
    for axis in axes:
        if axis not in scenario.moved_axes:
            raise unknown("--axis", "axis", axis, scenario.moved_axes)
    more = {"cycles": options.cycles, "voltage": options.voltage}
    values = {key: value for key, value in more.items() if value is not None}
    cycles = [
        from_data(Cycles, {"amplitude": amplitude, "frequency": frequency} | values)
        for amplitude in _numbers("--amplitudes", options.amplitudes)
        for frequency in _numbers("--frequencies", options.frequencies)
    ]
    return plan(scenario, axes, cycles)


def _numbers(name: str, text: str | None) -> list[float]:
    if not text:
        raise ConfigError(f"{name}: missing; required unless recordings of cyclic tests are given with --from")
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError(f"{name} {text}: must be numbers separated by commas") from None


def _plain(test: Cyclic) -> dict[str, float]:
    return {name: getattr(test, name) for name in NUMBERS}


def _write(results: Mapping[str, Sequence[Cyclic]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, ("axis", *NUMBERS))
        rows.writeheader()
        rows.writerows({"axis": axis} | _plain(test) for axis, tests in results.items() for test in tests)


def _print(results: Mapping[str, Sequence[Cyclic]], alike: Mapping[str, Equivalent]) -> None:
    for axis, tests in results.items():
        terminal.say(f"{axis}: {len(tests)} cyclic tests")
        rows = ([f"{factor * getattr(test, name):.4g}" for _, name, factor in COLUMNS] for test in tests)
        terminal.table(rows, numbers=[title for title, _, _ in COLUMNS])
        nearest = alike[axis]
        ranges = nearest.stiffness_range, nearest.damping_range
        stiffness, damping = (f"{low:.4g} to {high:.4g}" for low, high in ranges)
        text = f"{nearest.stiffness:.4g} N/m ({stiffness}), {nearest.damping:.4g} N s/m ({damping})"
        terminal.say(f"nearest spring and dashpot: {text}")


Plan = list[tuple[str, Cycles, Scenario]]


def name_of(axis: str, cycles: Cycles) -> str:
    return f"{axis}_{1e3 * cycles.amplitude:g}mm_{cycles.frequency:g}Hz"


def plan(scenario: Scenario, axes: Sequence[str], cycle_plans: Sequence[Cycles]) -> Plan:
    moved_axes = list(scenario.moved_axes)
    cautious = sorted(cycle_plans, key=lambda cycles: (cycles.amplitude, cycles.frequency))
    return [
        (axis, cycles, experiments.cycled(scenario, moved_axes.index(axis), cycles))
        for axis in axes
        for cycles in cautious
    ]


def conducted(tests: Plan, record: str | None, progress: Shown) -> dict[str, list[Cyclic]]:
    results: dict[str, list[Cyclic]] = {}
    for axis, cycles, scenario in tests:
        name = name_of(axis, cycles)
        path = Path(record) / name if record else None
        history = identification.finished(scenario, name, path, progress, "a smaller amplitude")
        results.setdefault(axis, []).append(_evaluated(history, axis, cycles))
    return results


def read(recordings: Sequence[str], on: Scenario | None = None) -> dict[str, list[Cyclic]]:
    """Return the results of recorded cyclic tests, keyed by axis.

    Raises ConfigError if a recording is incomplete, its test is not cyclic, or its rig is not the rig of ``on``.
    """
    results: dict[str, list[Cyclic]] = {}
    for recording in recordings:
        history = read_run(recording)
        if history.notes:  # results need complete recordings
            raise ConfigError(*history.notes)
        if on is not None:
            _check_rig(recording, history.scenario, on)
        motion = to_data(history.scenario.integrator).get("displacement") or {}
        motion = motion["motion"] if motion.get("type") == "delayed" else motion  # begins after the loads
        if motion.get("type") != "harmonic" or motion.get("ramp_periods") != RAMP:
            raise ConfigError(
                f"{recording}: must be a cyclic test, recorded with rths identify --for rig_file --record DIR"
            )
        cycles = from_data(
            Cycles,
            {
                "amplitude": motion["amplitude"],
                "frequency": motion["frequency"],
                "cycles": motion["periods"] - 2 * RAMP - SETTLING,
            },
        )
        axis = history.axes[int(np.argmax(np.nanvar(history.command, axis=0)))]
        results.setdefault(axis, []).append(_evaluated(history, axis, cycles))
    return results


def _check_rig(recording: str, recorded: Scenario, on: Scenario) -> None:
    for quantity, there, here in (
        ("rig", recorded.rig_file and recorded.rig_file.name, on.rig_file and on.rig_file.name),
        ("port", type(recorded.port).type_name, type(on.port).type_name),
        ("axes", ", ".join(recorded.axes), ", ".join(on.axes)),
    ):
        if there != here:
            raise ConfigError(
                f"{recording}: {quantity} = {there or 'none'}: must be {here or 'none'}, as in --rig"
            )
    for axis in on.axes:
        channels = (_channels(scenario.axes[axis].rig_axis) for scenario in (recorded, on))
        if next(channels) != next(channels):
            raise ConfigError(f"{recording}: the channels of axes.{axis} must equal the channels in --rig")


def _channels(axis: RigAxis | None) -> tuple[object, ...]:
    return () if axis is None else (axis.name, axis.displacement, axis.force, axis.command)


def _evaluated(run: Run, axis: str, cycles: Cycles) -> Cyclic:
    column, dt = run.axes.index(axis), run.scenario.dt
    begin = loaded_at(run.scenario) + cycles.begin
    inside = (run.time >= begin) & (run.time < begin + cycles.cycles / cycles.frequency)
    low = low_pass(run.scenario.axes[axis], dt)  # all compared signals need the same filter as the force
    command, displacement = (
        filtered(values[:, column], low)[inside] for values in (run.command, run.displacement)
    )
    force = run.force[inside, column]
    try:
        return experiments.cyclic(command, displacement, force, dt, cycles.frequency, cycles.cycles)
    except ValueError as error:
        raise ConfigError(f"{axis}: {cycles.frequency:g} Hz, {cycles.amplitude:g} m: {error}") from None


def check_section(out: Path, rig: str) -> None:
    if not rig:
        raise ConfigError(f"--out {out}: requires --rig, the rig file for which the section is written")
    if out.exists() and out.samefile(files.locate(rig, files.RIG)):
        raise ConfigError(
            f"--out {out}: must not be the rig file itself; give another file, and copy the section from there"
        )


def section_of(
    results: Mapping[str, Sequence[Cyclic]], alike: Mapping[str, Equivalent], scenario: Scenario, rig: str
) -> str:
    """Return the results as YAML text, to be inserted into the rig file ``rig``.

    Raises ConfigError if the rig file would become invalid.
    """
    origin = {
        "scenario": scenario.name,
        "date": datetime.now(UTC).date().isoformat(),
        "simulated": Assembly(scenario).port.simulated,
    }
    sections = {}
    for axis, tests in results.items():
        rig_axis = scenario.axes[axis].rig_axis
        assert rig_axis is not None
        sections[rig_axis.name] = {"characterised": origin | _section_of(axis, tests, alike[axis])}
    file = to_data(files.load_rig(rig))
    for name, section in sections.items():
        file["axes"][name] |= section
    with within(f"{rig} with the results"):
        from_data(RigFile, file)
    head = "# Written by rths identify. Copy each section `characterised` to its axis in the rig file.\n"
    return head + dump({"axes": sections}, rows=True)


def _section_of(axis: str, tests: Sequence[Cyclic], alike: Equivalent) -> dict[str, object]:
    try:
        small = experiments.at_small(tests)
    except ValueError as error:
        raise ConfigError(f"--out: axes.{axis}: {error}") from None
    rows = [
        (test.wanted, test.frequency, test.storage_stiffness, test.loss_factor, test.gain, test.delay)
        for test in tests
    ]
    return {
        **{name: _rounded(value) for name, value in small.items()},
        "equivalent_stiffness": _rounded(alike.stiffness),
        "equivalent_damping": _rounded(alike.damping),
        "tests": [[_rounded(value) for value in row] for row in rows],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
