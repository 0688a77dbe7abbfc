# SPDX-License-Identifier: Apache-2.0
"""``rths export``: write recordings as CSV, MATLAB or HDF5 files, or as a DesignSafe archive.

Each file contains the units (SI) of its histories. The groups of histories are ``samples`` (axes), ``steps``
(degrees of freedom) and ``updating`` (quantities of updated models).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core import tables, yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run, facts_of, groups_of, samples_of, steps_of, write_csv, write_mat

GLOBAL, COORDINATOR = "global_model", "coordinator"
SIMULATED, TESTED = "simulation_substructure", "experimental_substructures"
OUTPUT, REPORT = "output", "report"
NUMERICAL = ("structure", "reduction", "ground_motion", "interface", "soft_start", "seed")
RIG = ("axes", "rig", "port", "rig_file")
HEAD = ("version", "name", "description")

FORMS = ("csv", "mat", "hdf5")
ENDINGS = {"mat": ".mat", "hdf5": ".h5"}


def write_hdf5(run: Run, path: Path) -> None:
    h5py = tables.hdf5("HDF5")
    with h5py.File(path, "w") as file:
        file.attrs.update(facts_of(run))
        for group, histories in groups_of(run):
            for history in histories:
                item = file.create_dataset(f"{group}/{history.name}", data=history.values, compression="gzip")
                item.attrs["unit"] = history.unit
                item.attrs["columns"] = list(history.columns)


def write(run: Run, stem: Path, form: str) -> Iterator[Path]:
    if form == "csv":
        for name, histories in groups_of(run):
            path = stem.with_name(f"{stem.name}_{name}.csv")
            write_csv(histories, path)
            yield path
        return
    path = stem.with_name(stem.name + ENDINGS[form])
    (write_mat if form == "mat" else write_hdf5)(run, path)
    yield path


def write_archive(runs: Mapping[str, Run], folder: Path, report: Callable[[Run, Path], None]) -> Iterator[Path]:
    """Write tests in DesignSafe's layout for hybrid simulations; yield the path of each file.

    ``report(run, path)`` writes the page of one test. Raises OSError if a file cannot be written.
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


def _text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _outputs(name: str, run: Run, folder: Path) -> Iterator[Path]:
    samples, steps = samples_of(run), steps_of(run)
    time = samples[0]
    for part, histories in ((COORDINATOR, samples), (SIMULATED, steps)):
        path = folder / part / OUTPUT / f"{name}.csv"
        write_csv(histories, path)
        yield path
    for axis in (*run.axes, *(run.loads.names if run.loads is not None else ())):
        files = [
            history._replace(values=history.values[:, [history.columns.index(axis)]], columns=(axis,))
            for history in samples
            if axis in history.columns
        ]
        path = folder / TESTED / axis / OUTPUT / f"{name}.csv"
        write_csv([time, *files], path)
        yield path
    facts = facts_of(run)
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
        f"- `{GLOBAL}/scenario.yaml`: complete description of the test",
        f"- `{COORDINATOR}`: integrator, ramp, setup, compensator, monitor; `{OUTPUT}` has samples and test facts",
        f"- `{SIMULATED}`: structure and excitation; `{OUTPUT}` has the degrees of freedom at all steps",
        f"- `{TESTED}`: actuator, sensors and limits of each axis; `{OUTPUT}` has the samples",
        f"- `{REPORT}`: the page about each test",
        "",
        "Tables are CSV. The first line has names with units (SI). An empty cell is an unknown value.",
        "The exact acceleration, external force and restoring force in a row belong to the step in that row.",
        "The last step has no such values.",
        "",
    ]
    return "\n".join(lines)


ARCHIVE = "designsafe"


def add_arguments(add: arguments.Arguments) -> None:
    text = "folder of a recording, or of a test with all its rungs; each folder is exported under its own name"
    add("recording", text, nargs="+")
    add("--out DIR", "new or empty folder", required=True)
    add.removed(to="renamed; use --out")
    text = "format: csv, mat (MATLAB), hdf5 or designsafe (hybrid simulations in the DesignSafe archive)"
    add("--form", text, FORMS[0], choices=(*FORMS, ARCHIVE))


def _recordings(path: Path) -> list[tuple[str, Path]]:
    name = path.name if path.name.strip(".") else path.resolve().name
    if not procedure.exists(path):
        return [(name, path)]
    rungs = dict.fromkeys(rung.recording for rung in procedure.read(path).rungs if rung.recording)
    if not (recorded := [(f"{name}_{rung}", path / rung) for rung in rungs if (path / rung).is_dir()]):
        raise ConfigError(f"{path}: no rung of this test was recorded")
    return recorded


def _read(path: Path) -> Run:
    run = read_run(path)
    if (test := procedure.of_recording(path)) is None:
        return run
    record = test.record
    facts = {"operator": record.operator, "specimen": record.specimen.id, "test": record.test_id}
    facts |= {"laboratory": record.laboratory, "client": record.client}
    return replace(run, information=run.information | {key: value for key, value in facts.items() if value})


def run(options: arguments.Options) -> None:
    from rths_nodes.analysis.report.document import write_report

    folder, inputs = Path(options.out), [Path(path) for path in options.recording]
    recordings = [recording for path in inputs for recording in _recordings(path)]
    if len(set(names := [name for name, _ in recordings])) < len(names):
        raise ConfigError(f"two recordings have the same name: {', '.join(names)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--out {folder}: exists and is not an empty folder")
    runs = {name: _read(path) for name, path in recordings}
    if empty := [f"{name}: has no samples to export" for name, recorded in runs.items() if not len(recorded.time)]:
        raise ConfigError(*empty)
    for recorded in runs.values():
        terminal.tell(recorded.notes)
    if options.form == ARCHIVE and len({recorded.scenario.name for recorded in runs.values()}) > 1:
        summary = ", ".join(f"{name} {recorded.scenario.name}" for name, recorded in runs.items())
        raise ConfigError(f"--form {ARCHIVE}: all recordings must have the same scenario ({summary})")
    with terminal.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in filter(procedure.exists, inputs):
            print(shutil.copy(path / procedure.FILE, folder / f"{path.resolve().name}_{procedure.FILE}"))
        if options.form == ARCHIVE:
            for path in write_archive(runs, folder, write_report):
                print(path)
            return
        for name, run_read in runs.items():
            for path in write(run_read, folder / name, options.form):
                print(path)
