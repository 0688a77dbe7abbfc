# SPDX-License-Identifier: Apache-2.0
"""``rths identify --for identified_inverse``: periodic noise on each axis -> a model file with the inverse."""

from __future__ import annotations

import argparse
from pathlib import Path

from rths_nodes.analysis.identification.periodic import Fit
from rths_nodes.analysis.units import MM, PERCENT
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import identification, inverse_identification, run_time
from rths_nodes.app.studies.inverse_identification import PERIODIC
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.models.file import LoadingModel, save
from rths_nodes.mechanics.models.inverse import DERIVATIVES, UNITS


def run(options: argparse.Namespace) -> int:
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
        terminal.print_json(_data(scenario, found, model, up_to))
    else:
        _print(scenario, found, model, up_to)
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


def _data(scenario: Scenario, found: Fit, model: LoadingModel, up_to: float) -> dict[str, object]:
    return {
        "scenario": scenario.name,
        "axes": list(model.axes),
        "fitted_up_to_hz": up_to,
        "coefficients": found.coefficients.tolist(),
        "standard_deviations": found.deviation.tolist(),
        "fit_error_percent": (PERCENT * found.error).tolist(),
        "lead": model.lead,
    }


def _print(scenario: Scenario, found: Fit, model: LoadingModel, up_to: float) -> None:
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
