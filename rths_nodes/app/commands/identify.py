# SPDX-License-Identifier: Apache-2.0
"""``rths identify``: the loading system of a rig by frequency responses -> a model file for a compensator.

Without recordings, the axes of the scenario's rig are driven with noise in turn, while the others rest
(Phillips & Spencer 2012, section 3.1); for ``identified_inverse`` by periodic noise.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from rths_nodes.analysis.identification.experiments import Noise
from rths_nodes.analysis.identification.frequency_responses import (
    HIGHEST,
    NONE,
    FrequencyResponse,
    InverseFit,
    Orders,
    Transport,
)
from rths_nodes.analysis.identification.periodic import Fit
from rths_nodes.analysis.units import MM, MS, PERCENT
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import identification, inverse_identification, run_time
from rths_nodes.app.studies.identification import DECLARED, FINEST, LINES, MEASURED
from rths_nodes.app.studies.inverse_identification import PERIODIC
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.models.file import LoadingModel, save
from rths_nodes.mechanics.models.inverse import DERIVATIVES, UNITS

MODEL_BASED, IDENTIFIED_INVERSE = "model_based", "identified_inverse"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_scenario(parser)
    parser.add_argument(
        "--for",
        choices=(MODEL_BASED, IDENTIFIED_INVERSE),
        default=MODEL_BASED,
        dest="purpose",
        help=f"compensator that will use it: {MODEL_BASED} leaves the transport out and may choose its orders; "
        f"{IDENTIFIED_INVERSE} has it in its coefficients, from periodic noise; default: %(default)s",
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="model file to write (YAML)")
    parser.add_argument(
        "--report",
        "--figure",
        metavar="FILE",
        help="draw measured and fitted responses and the coherence (.png, .svg, .pdf)",
    )
    words = "use this recording instead of running a test; repeat, one for each axis that was driven"
    arguments.add_several(parser, "--from", "RECORDING", words, dest="recordings")
    parser.add_argument("--record", metavar="DIR", help="record the tests, each into DIR/<axis>")
    _add_tests(parser)
    parser.add_argument(
        "--resolution",
        type=float,
        metavar="HZ",
        help=f"of the responses; default: {FINEST:g}, or {LINES} spectral lines where that is more",
    )
    parser.add_argument(
        "--orders",
        metavar="'3,1,-;...'",
        help="degrees of the inverse, rows with semicolons between them, - for none; chosen by itself if left out",
    )
    parser.add_argument(
        "--transport",
        choices=(DECLARED, MEASURED),
        default=DECLARED,
        help="delay of the commands that is taken out of the responses: what the port declares, or what the "
        "responses show; the model then brings the difference as its lead; default: %(default)s",
    )
    arguments.add_json(parser)


def _add_tests(parser: argparse.ArgumentParser) -> None:
    defaults = from_data(Noise, {})
    parser.add_argument(
        "--rms",
        type=float,
        metavar="M",
        help=f"rms of the noise, m; default: {defaults.rms:g}, for {IDENTIFIED_INVERSE} a tenth of the "
        "motion that the structure would make",
    )
    parser.add_argument(
        "--band",
        type=float,
        nargs=2,
        metavar="HZ",
        help="of the noise and of the fit, lower and upper end; default: "
        f"{defaults.lower_frequency:g} {defaults.upper_frequency:g}, for {IDENTIFIED_INVERSE} "
        f"{PERIODIC.band[0]:g} {PERIODIC.band[1]:g}",
    )
    parser.add_argument(
        "--fit-up-to",
        type=float,
        metavar="HZ",
        help=f"for {IDENTIFIED_INVERSE}: highest frequency of the fit; default: {PERIODIC.beyond_mode:g} times "
        "the first natural frequency of the structure",
    )
    parser.add_argument(
        "--duration",
        type=float,
        metavar="S",
        help=f"of each test, s; default: {defaults.duration:g}, for {IDENTIFIED_INVERSE} {PERIODIC.periods} "
        f"periods of {PERIODIC.period:g} s",
    )


def run(options: argparse.Namespace) -> int:
    try:
        return _run_inverse(options) if options.purpose == IDENTIFIED_INVERSE else _run(options)
    except identification.Stopped as stop:
        print(stop)
        return stop.exit_code


def _run(options: argparse.Namespace) -> int:
    scenario, defaults = arguments.scenario(options), from_data(Noise, {})
    if options.fit_up_to is not None:
        raise ConfigError(f"--fit-up-to {options.fit_up_to:g}: is for --for {IDENTIFIED_INVERSE}")
    out, figure = Path(options.out), terminal.figure_path(options.report)
    terminal.check_writable(out)
    orders = _orders(options.orders, len(scenario.moved_axes))
    lower, upper = options.band or (defaults.lower_frequency, defaults.upper_frequency)
    rms = defaults.rms if options.rms is None else options.rms
    duration = defaults.duration if options.duration is None else options.duration
    if options.recordings:
        experiments = identification.read(options.recordings, scenario)
        names = ", ".join(options.recordings)
    else:
        noise = from_data(
            Noise,
            {
                "rms": rms,
                "lower_frequency": lower,
                "upper_frequency": upper,
                "duration": duration,
            },
        )
        names = f"{duration:g} s of noise, {rms:g} m rms, on each axis"
        terminal.announce(f"{names}: take", lambda: run_time.estimated_s(identification.tests(scenario, noise)))
        experiments = identification.run(scenario, noise, options.record, terminal.progress)
    measured, fit, late, model = identification.fit(
        scenario, experiments, (lower, upper), options.resolution, orders, options.transport, names
    )
    if options.json:
        terminal.print_json(_data(scenario, measured, fit, model, late))
    else:
        _print(scenario, measured, fit, model)
        print(_about(late, model, scenario))
    with terminal.writing(out, "" if options.json else "model"):
        save(model, out)
    if figure:
        from rths_nodes.analysis.figures import style
        from rths_nodes.analysis.figures.identification import draw

        with terminal.writing(figure, "" if options.json else "report"):
            style.save(figure, draw, measured, fit, model.axes, scenario.name)
    if not options.json:
        instead = " --set compensator.known=null" if scenario.compensator.known else ""
        print(f"use it: --set compensator.type=model_based --set compensator.model={out}{instead}")
    return 0


def _orders(words: str | None, n: int) -> Orders | None:
    if words is None:
        return None
    rows = [[entry.strip() for entry in row.split(",")] for row in words.split(";")]
    known = {"-": NONE} | {str(degree): degree for degree in range(HIGHEST + 1)}
    if (
        len(rows) != n
        or any(len(row) != n for row in rows)
        or any(each not in known for row in rows for each in row)
    ):
        raise ConfigError(f"--orders {words}: must be {n} rows of {n} out of {', '.join(known)}")
    orders = np.array([[known[entry] for entry in row] for row in rows])
    if orders.diagonal().min() < 0:
        raise ConfigError(f"--orders {words}: every axis must answer to its own command")
    return orders


def _about(late: Transport, model: LoadingModel, scenario: Scenario) -> str:
    declared, dt = scenario.transport_samples, scenario.dt
    samples = str(late.samples) if late.certain else f"{late.least} to {late.most}"
    where = "port.transport_samples" + (" + hops.depth" if scenario.hops.depth else "")
    found = f"transport: {samples} samples by the responses, {declared} declared ({where})"
    if model.lead:
        return f"{found}; the model has {MS * model.lead:g} ms of lead for the difference"
    if late.least <= declared <= late.most:
        return found
    if not late.certain:
        return f"{found}; a wider --band or a longer --duration tells more"
    rest = MS * (late.samples - declared) * dt
    return f"{found}; for the model to make up for {rest:g} ms: --transport {MEASURED}"


def _data(
    scenario: Scenario, measured: FrequencyResponse, fit: InverseFit, model: LoadingModel, late: Transport
) -> dict[str, object]:
    return {
        "scenario": scenario.name,
        "axes": list(model.axes),
        "orders": fit.orders.tolist(),
        "fit_error_percent": (PERCENT * fit.error).tolist(),
        "lowest_coherence": measured.coherence.min(axis=0).tolist(),
        "poles_rad_s": [[pole.real, pole.imag] for pole in model.poles().tolist()],
        "feedforward": fit.coefficients.tolist(),
        "transport_samples": {
            "measured": late.samples,
            "least": late.least,
            "most": late.most,
            "declared": scenario.transport_samples,
        },
        "lead": model.lead,
    }


def _print(scenario: Scenario, measured: FrequencyResponse, fit: InverseFit, model: LoadingModel) -> None:
    from rich.console import Console

    console = Console(highlight=False, width=160)
    band = f"{measured.frequency[0]:.3g} to {measured.frequency[-1]:.3g} Hz"
    console.print(f"{scenario.name}: inverse model of {len(model.axes)} axes from {band}", markup=False)
    grid = terminal.grid("command of", "of the motion of", "order", "fit error (%)", "lowest coherence")
    for i, row in enumerate(model.axes):
        for j, column in enumerate(model.axes):
            order = "none" if fit.orders[i, j] == NONE else str(fit.orders[i, j])
            seen = measured.coherence[:, i, j].min()
            grid.add_row(row, column, order, f"{PERCENT * fit.error[i, j]:.2g}", f"{seen:.3f}")
    terminal.show(console, grid)
    poles = [pole for pole in model.poles().tolist() if pole.imag >= 0.0]
    words = (f"{abs(p) / (2.0 * np.pi):.3g} Hz ({-PERCENT * p.real / abs(p):.2g} %)" for p in poles)
    console.print(f"poles, with their damping: {', '.join(words)}", markup=False, soft_wrap=True)


def _run_inverse(options: argparse.Namespace) -> int:
    """Run or read the tests, fit, write the model. Raises ConfigError, and Stopped for an unfinished test."""
    scenario = arguments.scenario(options)
    _refuse_others(options)
    out = Path(options.out)
    terminal.check_writable(out)
    band = tuple(options.band or PERIODIC.band)
    up_to = options.fit_up_to
    if up_to is None:
        up_to = inverse_identification.fitted_up_to(scenario, (band[0], band[1]))
    if not band[0] < up_to <= band[1]:
        raise ConfigError(
            f"--fit-up-to {up_to:g}: must be > {band[0]:g} and <= {band[1]:g} Hz, the band of the noise"
        )
    if options.recordings:
        experiments = identification.read(options.recordings, scenario)
        names = ", ".join(options.recordings)
    else:
        rms = options.rms
        if rms is None:
            rms = PERIODIC.share * inverse_identification.expected_rms(scenario)
        noise = inverse_identification.noise(rms, (band[0], band[1]), options.duration)
        names = f"{noise.duration:g} s of periodic noise, {MM * rms:.3g} mm rms, on each axis"
        terminal.announce(f"{names}: take", lambda: run_time.estimated_s(identification.tests(scenario, noise)))
        experiments = identification.run(scenario, noise, options.record, terminal.progress)
    _, found, model = inverse_identification.fit(scenario, experiments, (band[0], band[1]), up_to, names)
    if options.json:
        terminal.print_json(_inverse_data(scenario, found, model, up_to))
    else:
        _print_inverse(scenario, found, model, up_to)
    with terminal.writing(out, "" if options.json else "model"):
        save(model, out)
    if not options.json:
        instead = " --set compensator.inverse=null" if scenario.compensator.inverse else ""
        print(f"use it: --set compensator.type=identified_inverse --set compensator.model={out}{instead}")
    return 0


def _refuse_others(options: argparse.Namespace) -> None:
    for name, given in (
        ("--orders", options.orders),
        ("--resolution", options.resolution),
        ("--report", options.report),
    ):
        if given is not None:
            raise ConfigError(f"{name} {given}: is not for --for identified_inverse")
    if options.transport == identification.MEASURED:
        raise ConfigError("--transport measured: is not for --for identified_inverse: it has all delay in it")


def _inverse_data(scenario: Scenario, found: Fit, model: LoadingModel, up_to: float) -> dict[str, object]:
    return {
        "scenario": scenario.name,
        "axes": list(model.axes),
        "fitted_up_to_hz": up_to,
        "coefficients": found.coefficients.tolist(),
        "standard_deviations": found.deviation.tolist(),
        "fit_error_percent": (PERCENT * found.error).tolist(),
        "lead": model.lead,
    }


def _print_inverse(scenario: Scenario, found: Fit, model: LoadingModel, up_to: float) -> None:
    from rich.console import Console

    console = Console(highlight=False, width=160)
    console.print(f"{scenario.name}: inverse of {len(model.axes)} axes up to {up_to:.3g} Hz", markup=False)
    grid = terminal.grid("command of", "of the motion of", *DERIVATIVES, "fit error (%)")
    for i, row in enumerate(model.axes):
        for j, column in enumerate(model.axes):
            cells = [
                f"{c:.4g} +- {d:.1g} {unit}".removesuffix(" 1")
                for c, d, unit in zip(found.coefficients[:, i, j], found.deviation[:, i, j], UNITS, strict=True)
            ]
            grid.add_row(row, column, *cells, f"{PERCENT * found.error[i]:.2g}" if i == j else "")
    terminal.show(console, grid)
