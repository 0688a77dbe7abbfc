# SPDX-License-Identifier: Apache-2.0
"""``rths identify``: identify the loading system or the specimens of a rig, and write the result to a file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rths_nodes.analysis.identification.experiments import (
    RAMP,
    SETTLING,
    Cycles,
    Cyclic,
    Equivalent,
    Noise,
    at_small,
    cycled,
    cyclic,
    equivalent,
    loaded_at,
)
from rths_nodes.analysis.identification.frequency_responses import HIGHEST, NONE, Experiment, Identified, Orders
from rths_nodes.analysis.identification.from_recording import paired
from rths_nodes.analysis.units import KN, MM, MS, PERCENT, interval, uncertain
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import identification
from rths_nodes.app.studies.identification import IDENTIFIED_INVERSE, MODEL_BASED
from rths_nodes.core.errors import ConfigError, unknown, within
from rths_nodes.core.text_files import replaced, write
from rths_nodes.core.validation import from_data, to_data
from rths_nodes.core.yaml_text import dump
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.laboratory.corrections import low_pass
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.butterworth import filtered
from rths_nodes.mechanics.loading_model import DERIVATIVES, UNITS, LoadingModel, save
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run

RIG_FILE = "rig_file"
NOISE = ("rms", "band", "duration")
TESTS = ("axis", "amplitudes", "frequencies", "cycles", "voltage")
USES = {
    MODEL_BASED: (*NOISE, "resolution", "orders", "transport", "figure"),
    IDENTIFIED_INVERSE: (*NOISE, "fit_up_to"),
    RIG_FILE: (*TESTS, "csv", "plan", "figure"),
}


def identify_arguments(add: arguments.Arguments) -> None:
    add.scenario()
    text = (
        f"use of the result: the compensator {MODEL_BASED} (the model excludes the transport delay), the "
        f"compensator {IDENTIFIED_INVERSE} (the model includes this delay and requires periodic noise), or the "
        f"{RIG_FILE} (specimens and actuators, measured in cyclic tests)"
    )
    add("--for", text, MODEL_BASED, choices=tuple(USES), dest="purpose")
    add("--out FILE", f"model file to write, or YAML file for the section of the {RIG_FILE} (requires --rig)")
    add.figure(f"responses, fit and coherence (for {RIG_FILE}: loops, stiffness, damping and delay)")
    add.removed(report="renamed; use --figure")
    text = "recording to use instead of running a test; a model requires one recording for each axis"
    add.several("--from RECORDING", text, dest="from_")
    add("--record DIR", "record each test in a separate folder in DIR")
    _add_noise(add.group(f"for {MODEL_BASED} and {IDENTIFIED_INVERSE}"))
    _add_cycles(add.group(f"for {RIG_FILE}"))
    add.json()


def _add_noise(group: arguments.Arguments) -> None:
    usual, inverse = from_data(Noise, {}), f"for {IDENTIFIED_INVERSE}"
    text = f"rms of the noise, m; default: {usual.rms:g}, {inverse} a tenth of the expected motion"
    group("--rms M", text, type=float)
    bands = (f"{lower:g} {upper:g}" for lower, upper in (usual.band, identification.BAND))
    text = f"lower and upper frequency of noise and fit, Hz; default: {f', {inverse} '.join(bands)}"
    group("--band HZ", text, type=float, nargs=2)
    periods = f"{identification.PERIODS} periods of {identification.PERIOD:g} s"
    text = f"duration of each test, s; default: {usual.duration:g}, {inverse} {periods}"
    group("--duration S", text, type=float)
    lowest = f"{identification.BEYOND_MODE:g} times the lowest natural frequency of the structure"
    group("--fit-up-to HZ", f"{inverse}: highest frequency of the fit, Hz; default: {lowest}", type=float)
    finest, lines = identification.FINEST, identification.LINES
    text = f"frequency resolution, Hz; default: {lines} spectral lines, at least {finest:g} Hz"
    group("--resolution HZ", text, type=float)
    text = "orders of the inverse, in rows separated by semicolons (-: no term); default: chosen automatically"
    group("--orders '3,1,-;...'", text)
    text = (
        "transport delay that is removed from the responses: declared (by the port) or measured (measured minus "
        "declared delay becomes the lead of the model); default: declared, or measured if the responses "
        "contradict the declaration"
    )
    group("--transport", text, choices=(identification.DECLARED, identification.MEASURED))


def _add_cycles(group: arguments.Arguments) -> None:
    group.several("--axis NAME", "axis that moves; default: all axes")
    group("--amplitudes M,...", "amplitudes of the displacement, m")
    group("--frequencies HZ,...", "frequencies of the cycles, Hz")
    group("--cycles N", "number of evaluated cycles in each test; default: 5", type=int)
    group("--voltage V", "voltage of a controllable damper, V; default: 0", type=float)
    group("--csv FILE", "write the results as a CSV table, in SI units")
    text = "write the tests as scenarios to DIR (for rths test on a real rig), instead of running the tests"
    group("--plan DIR", text)


def identify_command(options: arguments.Options) -> None:
    arguments.check_purpose(options, USES)
    scenario, figure = arguments.scenario(options), arguments.figure(options)
    if options.purpose == RIG_FILE:
        _specimens(options, scenario, figure)
        return
    if not options.out:
        raise ConfigError("--out: missing; give the model file to write")
    terminal.check_writable(Path(options.out))
    if options.purpose == IDENTIFIED_INVERSE:
        _inverse(options, scenario)
    else:
        _model_based(options, scenario, figure)


def _experiments(
    options: arguments.Options, scenario: Scenario, noise: Callable[[], Noise]
) -> tuple[list[Experiment], str]:
    if options.from_:
        unused = ("rms", "duration", "record")
        arguments.refuse_idle(options, unused, "has no effect, because --from runs no test")
        return identification.read(options.from_, scenario), ", ".join(options.from_)
    wanted = noise()
    experiments = identification.run(scenario, wanted, options.record, terminal.progress)
    return experiments, identification.description(wanted)


def _noise(options: arguments.Options, band: tuple[float, float]) -> dict[str, float]:
    named = {"rms": options.rms, "duration": options.duration}
    stated = {name: value for name, value in named.items() if value is not None}
    return stated | {"lower_frequency": band[0], "upper_frequency": band[1]}


def _write(options: arguments.Options, model: LoadingModel, replaced: str) -> None:
    with terminal.writing(Path(options.out), "" if options.json else "model"):
        save(model, options.out)
    if not options.json:
        use = f"--set compensator.type={options.purpose} --set compensator.model={options.out}{replaced}"
        print(f"to use the model: {use}")


def _print(
    title: str, axes: Sequence[str], heads: Sequence[str], cells: Callable[[int, int], Sequence[str]]
) -> None:
    terminal.say(title)
    rows = ([row, column, *cells(i, j)] for i, row in enumerate(axes) for j, column in enumerate(axes))
    terminal.table(rows, "command of axis", "motion of axis", *heads)


def _model_based(options: arguments.Options, scenario: Scenario, figure: Path | None) -> None:
    lower, upper = options.band or from_data(Noise, {}).band
    noise = _noise(options, (lower, upper))
    orders = _orders(options.orders, len(scenario.moved_axes))
    experiments, source = _experiments(options, scenario, lambda: from_data(Noise, noise))
    identified, model = identification.fit(
        scenario, experiments, (lower, upper), options.resolution, orders, options.transport, source
    )
    fit, measured = identified.fit, identified.measured
    errors, coherence = PERCENT * fit.error, measured.coherence.min(axis=0)
    poles: list[complex] = model.poles().tolist()
    if options.json:
        data = {
            "scenario": scenario.name,
            "axes": list(model.axes),
            "orders": fit.orders.tolist(),
            "fit_error_percent": errors.tolist(),
            "lowest_coherence": coherence.tolist(),
            "poles_rad_s": [[pole.real, pole.imag] for pole in poles],
            "feedforward": fit.coefficients.tolist(),
            "standard_deviations": identified.deviation.tolist(),
            "transport_samples": {
                "measured": identified.delay / scenario.dt,
                "least": identified.delay_range[0] / scenario.dt,
                "most": identified.delay_range[1] / scenario.dt,
                "declared": scenario.transport_samples,
                "certain": identified.explained,
            },
            "lead": model.lead,
        }
        terminal.print_json(data)
    else:
        band = f"{measured.frequency[0]:.3g} to {measured.frequency[-1]:.3g} Hz"
        _print(
            f"{scenario.name}: inverse model of {len(model.axes)} axes from {band}",
            model.axes,
            ("order", "fit error (%)", "lowest coherence"),
            lambda i, j: (
                "none" if fit.orders[i, j] == NONE else str(fit.orders[i, j]),
                f"{errors[i, j]:.2g}",
                f"{coherence[i, j]:.3f}",
            ),
        )
        text = (
            f"{abs(p) / (2.0 * np.pi):.3g} Hz ({-PERCENT * p.real / abs(p):.2g} %)" for p in poles if p.imag >= 0.0
        )
        terminal.say(f"poles (damping ratio): {', '.join(text)}")
        print(_about(identified, model, scenario))
    _write(options, model, " --set compensator.known=null" if scenario.compensator.known else "")
    if figure:
        from rths_nodes.analysis.figures.analyses import frequency_responses as draw

        arguments.save_figure(options, figure, draw, measured, fit, model.axes, scenario.name)


def _orders(text: str | None, n: int) -> Orders | None:
    if text is None:
        return None
    rows = [[entry.strip() for entry in row.split(",")] for row in text.split(";")]
    degrees = {"-": NONE} | {str(degree): degree for degree in range(HIGHEST + 1)}
    if len(rows) != n or any(len(row) != n or not degrees.keys() >= set(row) for row in rows):
        raise ConfigError(f"--orders {text}: must be {n} rows of {n} entries, each one of {', '.join(degrees)}")
    orders = np.array([[degrees[entry] for entry in row] for row in rows])
    if orders.diagonal().min() < 0:
        raise ConfigError(
            f"--orders {text}: the diagonal must not contain '-', because each axis must respond to its command"
        )
    return orders


def _about(identified: Identified, model: LoadingModel, scenario: Scenario) -> str:
    declared, dt = scenario.transport_samples, scenario.dt
    least, most = (value / dt for value in identified.delay_range)
    samples, times = interval(least, most), interval(MS * least * dt, MS * most * dt)
    where = "port.transport_samples" + (" + hops.depth" if scenario.hops.depth else "")
    certainty = ", 95 % interval"
    if not identified.explained:
        certainty = " if further dynamics in the responses are counted as transport (--transport measured)"
    return (
        f"transport: {samples} samples ({times} ms) according to the responses{certainty}; {where} declares "
        f"{declared}; the lead of the model is {MS * model.lead:.3g} ms"
    )


def _inverse(options: arguments.Options, scenario: Scenario) -> None:
    lower, upper = options.band or identification.BAND
    up_to = identification.end_of_fit(scenario, (lower, upper), options.fit_up_to)
    noise = _noise(options, (lower, upper))
    experiments, source = _experiments(options, scenario, lambda: identification.periodic_noise(scenario, noise))
    fit, model = identification.fit_periodic(scenario, experiments, (lower, upper), up_to, source)
    errors = PERCENT * fit.error
    if options.json:
        data = {
            "scenario": scenario.name,
            "axes": list(model.axes),
            "fitted_up_to_hz": up_to,
            "coefficients": fit.coefficients.tolist(),
            "standard_deviations": fit.deviation.tolist(),
            "fit_error_percent": errors.tolist(),
            "lead": model.lead,
        }
        terminal.print_json(data)
    else:

        def cells(i: int, j: int) -> list[str]:
            values = zip(fit.coefficients[:, i, j], fit.deviation[:, i, j], UNITS, strict=True)
            entries = [f"{uncertain(c, d)} {unit}".removesuffix(" 1") for c, d, unit in values]
            return [*entries, f"{errors[i]:.2g}" if i == j else ""]

        title = f"{scenario.name}: inverse of {len(model.axes)} axes up to {up_to:.3g} Hz"
        _print(title, model.axes, (*DERIVATIVES, "fit error (%)"), cells)
    _write(options, model, " --set compensator.inverse=null" if scenario.compensator.inverse else "")


# Specimens and actuators for the rig file, from cyclic tests

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


def _specimens(options: arguments.Options, scenario: Scenario, figure: Path | None) -> None:
    table, out = (Path(name) if name else None for name in (options.csv, options.out))
    if out:
        _check_section(out, options.rig)
    for path in (table, out):
        if path:
            terminal.check_writable(path)
    if options.plan:
        _plan(options, scenario)
        return
    results: dict[str, list[Cyclic]] = {}
    if options.from_:
        arguments.refuse_idle(options, (*TESTS, "record"), "has no effect, because --from runs no test")
        results = read_cyclic(options.from_, scenario if out else None)
    else:
        for axis, cycles, test in _planned(options, scenario):
            name = _name_of(axis, cycles)
            path = Path(options.record) / name if options.record else None
            history = identification.finished(test, name, path, terminal.progress, "a smaller amplitude")
            results.setdefault(axis, []).append(evaluated(history, axis, cycles))
    alike = {axis: equivalent(tests) for axis, tests in results.items()}
    rows = {axis: [{name: getattr(test, name) for name in NUMBERS} for test in results[axis]] for axis in results}
    axes = {axis: {"tests": rows[axis], "equivalent": asdict(alike[axis])} for axis in results}
    terminal.output(options.json, {"scenario": scenario.name, "axes": axes}, _print_cyclic, results, alike)
    if table:
        with (
            terminal.writing(table, "" if options.json else "table"),
            replaced(table) as beside,
            beside.open("w", encoding="utf-8", newline="") as file,
        ):
            writer = csv.DictWriter(file, ("axis", *NUMBERS))
            writer.writeheader()
            writer.writerows({"axis": axis} | row for axis in rows for row in rows[axis])
    if figure:
        from rths_nodes.analysis.figures.analyses import characteristics

        arguments.save_figure(options, figure, characteristics, results, alike, scenario.name)
    if out:
        section = _section(results, alike, scenario, options.rig)
        with terminal.writing(out, "" if options.json else "section for the rig file"):
            write(out, section.encode())


def _check_section(out: Path, rig: str) -> None:
    if not rig:
        raise ConfigError(f"--out {out}: requires --rig, the rig file for which the section is written")
    if out.exists() and out.samefile(files.locate(rig, files.RIG)):
        raise ConfigError(
            f"--out {out}: must not be the rig file itself; give another file, and copy the section from there"
        )


def _plan(options: arguments.Options, scenario: Scenario) -> None:
    results = ("from_", "record", "csv", "figure", "out", "json")
    arguments.refuse_idle(options, results, "has no effect, because --plan runs no test")
    folder, tests = Path(options.plan), _planned(options, scenario)
    terminal.check_makable(folder / "test.yaml")
    for axis, cycles, test in tests:
        path = folder / f"{_name_of(axis, cycles)}.yaml"
        with terminal.writing(path, "scenario"):
            folder.mkdir(parents=True, exist_ok=True)
            write(path, dump(test.data()).encode())


def _name_of(axis: str, cycles: Cycles) -> str:
    return f"{axis}_{1e3 * cycles.amplitude:g}mm_{cycles.frequency:g}Hz"


def _planned(options: arguments.Options, scenario: Scenario) -> list[tuple[str, Cycles, Scenario]]:
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
    return cyclic_tests(scenario, axes, cycles)


def _numbers(name: str, text: str | None) -> list[float]:
    if not text:
        raise ConfigError(f"{name}: missing; required unless recordings of cyclic tests are given with --from")
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError(f"{name} {text}: must be numbers separated by commas") from None


def cyclic_tests(
    scenario: Scenario, axes: Sequence[str], cycles: Sequence[Cycles]
) -> list[tuple[str, Cycles, Scenario]]:
    """Return the axis, the cycles and the scenario of each test, in order of increasing amplitude."""
    cautious = sorted(cycles, key=lambda test: (test.amplitude, test.frequency))
    numbers = {axis: scenario.moved_axes.index(axis) for axis in axes}
    return [(axis, test, cycled(scenario, numbers[axis], test)) for axis in axes for test in cautious]


def read_cyclic(recordings: Sequence[str], on: Scenario | None = None) -> dict[str, list[Cyclic]]:
    """Return the results of recorded cyclic tests, keyed by axis.

    Raises ConfigError if a recording is incomplete, its test is not cyclic, or its rig is not the rig of ``on``.
    """
    results: dict[str, list[Cyclic]] = {}
    for recording in recordings:
        history = read_run(recording)
        if history.notes:  # missing samples would falsify the results
            raise ConfigError(*history.notes)
        if on is not None:
            _check_rig(recording, history.scenario, on)
        motion = to_data(history.scenario.integrator).get("displacement") or {}
        motion = motion["motion"] if motion.get("type") == "delayed" else motion  # waits until the axes are loaded
        if motion.get("type") != "harmonic" or motion.get("ramp_periods") != RAMP:
            raise ConfigError(
                f"{recording}: must be a cyclic test, recorded with rths identify --for rig_file --record DIR"
            )
        data = {name: motion[name] for name in ("amplitude", "frequency")}
        cycles = from_data(Cycles, data | {"cycles": motion["periods"] - 2 * RAMP - SETTLING})
        axis = history.axes[int(np.argmax(np.nanvar(history.command, axis=0)))]
        results.setdefault(axis, []).append(evaluated(history, axis, cycles))
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
        if _channels(recorded.axes[axis].rig_axis) != _channels(on.axes[axis].rig_axis):
            raise ConfigError(f"{recording}: the channels of axes.{axis} must equal the channels in --rig")


def _channels(axis: RigAxis | None) -> tuple[object, ...]:
    return () if axis is None else (axis.name, axis.displacement, axis.force, axis.command)


def evaluated(run: Run, axis: str, cycles: Cycles) -> Cyclic:
    column, dt, section = run.axes.index(axis), run.scenario.dt, run.scenario.axes[axis]
    displacement, force = paired(run.displacement[:, column], run.force[:, column], section, dt)
    command = filtered(run.command[:, column], low_pass(section, dt))  # same delay as the displacements
    begin, time = loaded_at(run.scenario) + cycles.begin, run.time[: len(force)]
    inside = np.flatnonzero((time >= begin) & (time < begin + cycles.cycles / cycles.frequency))
    try:
        return cyclic(command[inside], displacement[inside], force[inside], dt, cycles.frequency, cycles.cycles)
    except ValueError as error:
        raise ConfigError(f"{axis}: {cycles.frequency:g} Hz, {cycles.amplitude:g} m: {error}") from None


def _print_cyclic(results: Mapping[str, Sequence[Cyclic]], alike: Mapping[str, Equivalent]) -> None:
    for axis, tests in results.items():
        terminal.say(f"{axis}: {len(tests)} cyclic tests")
        rows = ([f"{factor * getattr(test, name):.4g}" for _, name, factor in COLUMNS] for test in tests)
        terminal.table(rows, numbers=[title for title, _, _ in COLUMNS])
        nearest = alike[axis]
        ranges = nearest.stiffness_range, nearest.damping_range
        stiffness, damping = (f"{low:.4g} to {high:.4g}" for low, high in ranges)
        text = f"{nearest.stiffness:.4g} N/m ({stiffness}), {nearest.damping:.4g} N s/m ({damping})"
        terminal.say(f"nearest spring and dashpot: {text}")


def _section(
    results: Mapping[str, Sequence[Cyclic]], alike: Mapping[str, Equivalent], scenario: Scenario, rig: str
) -> str:
    """Return the results as YAML text for the rig file. Raises ConfigError if the text would make it invalid."""
    origin = {
        "scenario": scenario.name,
        "date": datetime.now(UTC).date().isoformat(),
        "simulated": Assembly(scenario).port.simulated,
    }
    sections, file = {}, to_data(files.load_rig(rig))
    for axis, tests in results.items():
        rig_axis = scenario.axes[axis].rig_axis
        assert rig_axis is not None
        section = {"characterised": origin | _characterised(axis, tests, alike[axis])}
        sections[rig_axis.name] = section
        file["axes"][rig_axis.name] |= section
    with within(f"{rig} with the results"):
        from_data(RigFile, file)
    head = "# Written by rths identify. Copy each section `characterised` to its axis in the rig file.\n"
    return head + dump({"axes": sections}, rows=True)


def _characterised(axis: str, tests: Sequence[Cyclic], alike: Equivalent) -> dict[str, object]:
    try:
        small = at_small(tests)
    except ValueError as error:
        raise ConfigError(f"--out: axes.{axis}: {error}") from None
    values = small | {"equivalent_stiffness": alike.stiffness, "equivalent_damping": alike.damping}
    rows = [
        (test.wanted, test.frequency, test.storage_stiffness, test.loss_factor, test.gain, test.delay)
        for test in tests
    ]
    return {
        **{name: _rounded(value) for name, value in values.items()},
        "tests": [[_rounded(value) for value in row] for row in rows],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
