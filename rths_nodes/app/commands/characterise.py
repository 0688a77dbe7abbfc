# SPDX-License-Identifier: Apache-2.0
"""``rths characterise``: cyclic tests of a rig -> stiffness and damping of specimens, delay of actuators.

One axis moves at a time, at each amplitude and frequency; the others rest.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from rths_nodes.analysis.identification.characteristics import Cyclic, Equivalent, equivalent
from rths_nodes.analysis.identification.experiments import Cycles
from rths_nodes.analysis.units import KN, MM, MS, PERCENT
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import characterisation, identification, run_time
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.scenario.schema import Scenario

NUMBERS = (*(each.name for each in fields(Cyclic) if each.name not in ("displacement", "force")), "loss_factor")
"""Names of the results of a test, in SI units."""
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_scenario(parser)
    arguments.add_several(parser, "--axis", "NAME", "that moves; may be repeated; by default all")
    parser.add_argument("--amplitudes", metavar="M,...", help="of the displacement, m")
    parser.add_argument("--frequencies", metavar="HZ,...", help="of the cycles, Hz")
    parser.add_argument("--cycles", type=int, metavar="N", help="that count in each test; default: 5")
    parser.add_argument("--voltage", type=float, metavar="V", help="of a damper that has one; default: 0")
    words = "use this recording instead of running tests; may be repeated"
    arguments.add_several(parser, "--from", "RECORDING", words, dest="recordings")
    parser.add_argument("--record", metavar="DIR", help="record the tests, each into a folder of DIR")
    parser.add_argument("--csv", metavar="FILE", help="table to write, in SI units")
    parser.add_argument(
        "--figure", metavar="FILE", help="draw loops, stiffness, damping, delay (.png, .svg, .pdf)"
    )
    parser.add_argument(
        "--plan",
        metavar="DIR",
        help="write the tests as scenarios into DIR instead of running them: for rths test on a real rig",
    )
    parser.add_argument("--out", metavar="FILE", help="section for the rig file to write (YAML); takes --rig")
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    scenario, figure = arguments.scenario(options), terminal.figure_path(options.figure)
    table = Path(options.csv) if options.csv else None
    if table:
        terminal.check_writable(table)
    out = Path(options.out) if options.out else None
    if out:
        characterisation.check_section(out, options.rig)
        terminal.check_writable(out)
    if options.plan:
        return _plan(options, scenario)
    try:
        found = _found(options, scenario)
    except identification.Stopped as stop:
        print(stop)
        return stop.exit_code
    alike = {axis: equivalent(tests) for axis, tests in found.items()}
    if options.json:
        data = {"scenario": scenario.name, "axes": {axis: _data(found[axis], alike[axis]) for axis in found}}
        terminal.print_json(data)
    else:
        for axis, tests in found.items():
            _print(axis, tests, alike[axis])
    if table:
        with terminal.writing(table, "" if options.json else "table"):
            _write(found, table)
    if figure:
        from rths_nodes.analysis.figures.characteristics import write

        with terminal.writing(figure, "" if options.json else "figure"):
            write(found, alike, figure, scenario.name)
    if out:
        section = characterisation.section(found, alike, scenario, options.rig)
        with terminal.writing(out, "" if options.json else "section for the rig file"):
            out.write_text(section, encoding="utf-8")
    return 0


def _plan(options: argparse.Namespace, scenario: Scenario) -> int:
    """Write the tests as scenarios for an operator."""
    given = {
        "--from": options.recordings,
        "--record": options.record,
        "--csv": options.csv,
        "--figure": options.figure,
        "--out": options.out,
        "--json": options.json,
    }
    _refuse_idle(given, "nothing is found with --plan, which runs no test")
    folder, tests = Path(options.plan), _planned(options, scenario)
    terminal.check_makable(folder / "test.yaml")
    for test in tests:
        path = folder / f"{test.name}.yaml"
        with terminal.writing(path, "scenario"):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(dump(test.scenario.data()), encoding="utf-8")
    return 0


def _refuse_idle(given: Mapping[str, object], why: str) -> None:
    if idle := [name for name, value in given.items() if value]:
        raise ConfigError(f"{', '.join(idle)}: {why}")


def _found(options: argparse.Namespace, scenario: Scenario) -> dict[str, list[Cyclic]]:
    if options.recordings:
        given = {
            "--amplitudes": options.amplitudes,
            "--frequencies": options.frequencies,
            "--cycles": options.cycles,
            "--voltage": options.voltage,
            "--axis": options.axis,
            "--record": options.record,
            "--plan": options.plan,
        }
        _refuse_idle(given, "no tests are run with --from")
        return characterisation.read(options.recordings, scenario if options.out else None)
    tests = _planned(options, scenario)
    words = f"{len(tests)} tests: take"
    terminal.announce(words, lambda: run_time.estimated_s([test.scenario for test in tests]))
    return characterisation.run(tests, options.record, terminal.progress)


def _planned(options: argparse.Namespace, scenario: Scenario) -> list[characterisation.Planned]:
    axes = list(dict.fromkeys(options.axis)) or list(scenario.moved_axes)
    for axis in axes:
        if axis not in scenario.moved_axes:
            raise unknown("--axis", "axis", axis, scenario.moved_axes)
    more = {"cycles": options.cycles, "voltage": options.voltage}
    given = {key: value for key, value in more.items() if value is not None}
    each = [
        from_data(Cycles, {"amplitude": amplitude, "frequency": frequency} | given)
        for amplitude in _numbers("--amplitudes", options.amplitudes)
        for frequency in _numbers("--frequencies", options.frequencies)
    ]
    return characterisation.plan(scenario, axes, each)


def _numbers(name: str, words: str | None) -> list[float]:
    if not words:
        raise ConfigError(f"{name}: must be given, or recordings of such tests (--from)")
    try:
        return [float(word) for word in words.split(",")]
    except ValueError:
        raise ConfigError(f"{name} {words}: must be numbers with commas between them") from None


def _plain(test: Cyclic) -> dict[str, float]:
    return {name: getattr(test, name) for name in NUMBERS}


def _data(tests: Sequence[Cyclic], alike: Equivalent) -> dict[str, object]:
    nearest = {each.name: getattr(alike, each.name) for each in fields(alike)}
    return {"tests": [_plain(test) for test in tests], "equivalent": nearest}


def _write(found: dict[str, list[Cyclic]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("axis", *NUMBERS))
        for axis, tests in found.items():
            rows.writerows((axis, *_plain(test).values()) for test in tests)


def _print(axis: str, tests: Sequence[Cyclic], alike: Equivalent) -> None:
    console = terminal.console()
    console.print(f"{axis}: {len(tests)} cyclic tests", markup=False)
    grid = terminal.grid(numbers=[title for title, _, _ in COLUMNS])
    for test in tests:
        grid.add_row(*(f"{factor * getattr(test, name):.4g}" for _, name, factor in COLUMNS))
    terminal.show(console, grid)
    console.print(
        f"nearest spring and dashpot: {alike.stiffness:.4g} N/m ({_range(alike.stiffness_range)}), "
        f"{alike.damping:.4g} N s/m ({_range(alike.damping_range)})",
        markup=False,
        soft_wrap=True,
    )


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g}"
