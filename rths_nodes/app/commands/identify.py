# SPDX-License-Identifier: Apache-2.0
"""``rths identify``: identify the loading system or the specimens of a rig, and write the result to a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rths_nodes.analysis.identification.experiments import Noise
from rths_nodes.analysis.identification.frequency_responses import HIGHEST, NONE, Experiment, Identified, Orders
from rths_nodes.analysis.units import MS, PERCENT, interval, uncertain
from rths_nodes.app.commands import arguments, characterise, terminal
from rths_nodes.app.studies import identification
from rths_nodes.app.studies.identification import IDENTIFIED_INVERSE, MODEL_BASED, PERIODIC
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.loading_model import DERIVATIVES, UNITS, LoadingModel, save

RIG_FILE = "rig_file"
NOISE = ("rms", "band", "duration")
USES = {
    MODEL_BASED: (*NOISE, "resolution", "orders", "transport", "figure"),
    IDENTIFIED_INVERSE: (*NOISE, "fit_up_to"),
    RIG_FILE: (*characterise.TESTS, "csv", "plan", "figure"),
}


def add_arguments(add: arguments.Arguments) -> None:
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
    characterise.add_arguments(add.group(f"for {RIG_FILE}"))
    add.json()


def _add_noise(group: arguments.Arguments) -> None:
    usual, inverse = from_data(Noise, {}), f"for {IDENTIFIED_INVERSE}"
    text = f"rms of the noise, m; default: {usual.rms:g}, {inverse} a tenth of the expected motion"
    group("--rms M", text, type=float)
    bands = (f"{lower:g} {upper:g}" for lower, upper in (usual.band, PERIODIC.band))
    text = f"lower and upper frequency of noise and fit, Hz; default: {f', {inverse} '.join(bands)}"
    group("--band HZ", text, type=float, nargs=2)
    periods = f"{PERIODIC.periods} periods of {PERIODIC.period:g} s"
    text = f"duration of each test, s; default: {usual.duration:g}, {inverse} {periods}"
    group("--duration S", text, type=float)
    lowest = f"{PERIODIC.beyond_mode:g} times the lowest natural frequency of the structure"
    group("--fit-up-to HZ", f"{inverse}: highest frequency of the fit, Hz; default: {lowest}", type=float)
    finest, lines = identification.FINEST, identification.LINES
    text = f"frequency resolution, Hz; default: the larger of {finest:g} and {lines} spectral lines"
    group("--resolution HZ", text, type=float)
    text = "orders of the inverse, in rows separated by semicolons (-: no term); default: chosen automatically"
    group("--orders '3,1,-;...'", text)
    text = (
        "transport delay that is removed from the responses: declared (by the port) or measured (measured minus "
        "declared delay becomes the lead of the model); default: declared, or measured if the responses "
        "contradict the declaration"
    )
    group("--transport", text, choices=(identification.DECLARED, identification.MEASURED))


def run(options: arguments.Options) -> None:
    arguments.check_purpose(options, USES)
    scenario, figure = arguments.scenario(options), arguments.figure(options)
    if options.purpose == RIG_FILE:
        characterise.run(options, scenario, figure)
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
    if (
        len(rows) != n
        or any(len(row) != n for row in rows)
        or any(degree_text not in degrees for row in rows for degree_text in row)
    ):
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
    samples = interval(least, most)
    where = "port.transport_samples" + (" + hops.depth" if scenario.hops.depth else "")
    text = (
        f"transport: {samples} samples ({interval(MS * least * dt, MS * most * dt)} ms) according to the responses"
    )
    text += (
        ", 95 % interval"
        if identified.explained
        else " if further dynamics in the responses are counted as transport (--transport measured)"
    )
    return f"{text}; {where} declares {declared}; the lead of the model is {MS * model.lead:.3g} ms"


def _inverse(options: arguments.Options, scenario: Scenario) -> None:
    lower, upper = options.band or PERIODIC.band
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
