# SPDX-License-Identifier: Apache-2.0
"""Tests as an archive keeps them: the parts of a hybrid simulation, each with its settings and its outputs.

The folders are those of DesignSafe's project type for hybrid simulation: global model, coordinator, simulation
substructure, experimental substructures, each with what they have put out; words for people in README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rths_nodes.core import yaml_text
from rths_nodes.recording import exporting
from rths_nodes.recording.run import Run

GLOBAL, COORDINATOR = "global_model", "coordinator"
SIMULATED, TESTED = "simulation_substructure", "experimental_substructures"
OUTPUT, REPORT = "output", "report"
NUMERICAL = ("structure", "reduction", "ground_motion", "interface", "soft_start", "seed")
"""Sections of a scenario that are the simulated part, with its load."""
RIG = ("axes", "rig", "port", "rig_file")
"""Sections that are the rig."""
HEAD = ("version", "name", "description")


def write(runs: Mapping[str, Run], folder: Path, report: Callable[[Run, Path], None]) -> Iterator[Path]:
    """Write tests of one scenario, by their names, into ``folder``; each file once it is there. Raises OSError.

    ``report`` writes the page of a test.
    """
    first = next(iter(runs.values()))
    data = first.scenario.data()
    head = {name: data[name] for name in HEAD if name in data}
    coordinator = {name: value for name, value in data.items() if name not in (*HEAD, *NUMERICAL, *RIG)}
    of_rig = {name: value for name, value in data.items() if name in RIG and name != "axes"}
    yield _text(folder / GLOBAL / "scenario.yaml", yaml_text.dump(data))
    yield _text(folder / COORDINATOR / "settings.yaml", yaml_text.dump(head | coordinator))
    model = {name: data[name] for name in NUMERICAL if name in data}
    yield _text(folder / SIMULATED / "model.yaml", yaml_text.dump(head | model))
    for axis, section in data["axes"].items():
        yield _text(folder / TESTED / axis / "rig.yaml", yaml_text.dump(head | of_rig | {"axes": {axis: section}}))
    for name, run in runs.items():
        yield from _outputs(name, run, folder)
        page = folder / REPORT / f"{name}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        report(run, page)
        yield page
    yield _text(folder / "README.md", _readme(runs))


def _text(path: Path, words: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words, encoding="utf-8")
    return path


def _outputs(name: str, run: Run, folder: Path) -> Iterator[Path]:
    samples, steps = exporting.samples_of(run), exporting.steps_of(run)
    time = samples[0]
    for part, histories in ((COORDINATOR, samples), (SIMULATED, steps)):
        path = folder / part / OUTPUT / f"{name}.csv"
        exporting.write_csv(histories, path)
        yield path
    for axis in (*run.axes, *(run.loads.names if run.loads is not None else ())):
        own = [
            each._replace(values=each.values[:, [each.columns.index(axis)]], columns=(axis,))
            for each in samples
            if axis in each.columns
        ]
        path = folder / TESTED / axis / OUTPUT / f"{name}.csv"
        exporting.write_csv([time, *own], path)
        yield path
    facts = exporting.facts_of(run)
    facts.pop("scenario")
    yield _text(folder / COORDINATOR / OUTPUT / f"{name}_test.yaml", yaml_text.dump(facts))


def _readme(runs: Mapping[str, Run]) -> str:
    first = next(iter(runs.values()))
    rows = [
        f"| {name} | {run.ending} | {run.information.get('started', '')} | {len(run.time) - 1} |"
        for name, run in runs.items()
    ]
    lines: list[str] = [
        f"# {first.scenario.name}",
        "",
        first.scenario.description or "A real-time hybrid simulation.",
        "",
        "| test | outcome | started | samples |",
        "|---|---|---|---|",
        *rows,
        "",
        f"- `{GLOBAL}/scenario.yaml`: everything about the test, as it was run",
        f"- `{COORDINATOR}`: integrator, ramp, setup, compensator, monitor; `{OUTPUT}` has all samples, and what",
        "  the recording says of the test",
        f"- `{SIMULATED}`: structure and excitation; `{OUTPUT}` has the degrees of freedom at all steps",
        f"- `{TESTED}`: actuator, sensors and limits of each axis; `{OUTPUT}` has its samples",
        f"- `{REPORT}`: the page about each test",
        "",
        "Tables are CSV: the first line has names with units (SI), an empty cell is a number that is not known.",
        "Exact acceleration, external and restoring force of a row are those of its step; the last step has none.",
        "",
    ]
    return "\n".join(lines)
