# SPDX-License-Identifier: Apache-2.0
"""Tests of mutated input files of every kind: no traceback, crash or hang, and no other file is read."""

from __future__ import annotations

import gzip
import shutil
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import fmus
import numpy as np
import pytest
import yaml
from commissioned import commissioned
from foreign_tables import BY_INDEX, BY_NAME, READ, TABLE, content_of, hdf5, lines, mapped, saved, text
from motion_file import GIVEN, TIMES, VALUES, at2, channel, column, cosmos, esm, make, table
from mutated import mutated, trouble
from scipy import io, sparse
from waveform_files import knet, samples, waveform
from written_history import history_of

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.commands import exchange
from rths_nodes.app.procedure import answers
from rths_nodes.app.studies import study
from rths_nodes.control.compensators import linear
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.fmu import described, unpack
from rths_nodes.core.resources import resource
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision import monitor
from rths_nodes.mechanics import history, loading_model
from rths_nodes.numerical.structures import matrices
from rths_nodes.recording import bag, commissioning, procedure

SECRET = 7.0
"""Value of the numbers in a file that must not be read."""
N = 200
"""Samples of the files of other programs."""


class Kind(NamedTuple):
    """Functions that make and read a file, and its name."""

    make: Callable[[Path], object]
    read: Callable[[Path], object]
    name: str = "file"


def written(content: str | bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def imported(content: Any, columns: dict[str, Any]) -> Kind:
    def read(path: Path) -> None:
        columns_file = path.with_name("cols.yaml")
        columns_file.write_text(yaml.safe_dump(columns))
        assert not (exchange.read(path, columns_file).displacement == SECRET * 1e-3).all()

    return Kind(content if callable(content) else written(content), read)


def table_kind(name: str) -> Kind:
    content, columns = READ[name]
    return imported(content_of(content), columns)


def linked(make_dataset: Callable[[Any, str], None]) -> Kind:
    """HDF5 with a dataset that is stored in another file."""

    def content(file: Any) -> None:
        secret = str(Path(file.filename).with_name("secret"))
        Path(secret).write_bytes(np.full(N, SECRET).tobytes())
        for index, name in enumerate("txuf"):
            file[name] = TABLE[:N, index]
        make_dataset(file, secret)

    return imported(hdf5(content), BY_NAME)


def external(file: Any, secret: str) -> None:
    file.create_dataset("m", (N,), "<f8", external=[(secret, 0, 8 * N)])


def virtual(file: Any, secret: str) -> None:
    import h5py

    with h5py.File(f"{secret}.h5", "w") as source:
        source["m"] = np.full(N, SECRET)
    layout = h5py.VirtualLayout((N,), "<f8")
    layout[:] = h5py.VirtualSource(f"{secret}.h5", "m", (N,))
    file.create_virtual_dataset("m", layout)


def chunked(file: Any) -> None:
    for index, name in enumerate("txumf"):
        file.create_dataset(name, data=TABLE[:N, index], chunks=(64,), compression="gzip", shuffle=True)


def motion(content: str | bytes | Callable[[], bytes], **data: Any) -> Kind:
    def make_file(path: Path) -> None:
        written(content() if callable(content) else content)(path)

    return Kind(make_file, lambda path: make(path.parent, path.read_bytes(), **data))


def law(path: Path) -> None:
    params = registry.load("compensator", "linear").Params
    from_data(params, {"inputs": ["target"], "file": str(path)}, "compensator")
    linear.law_of(params(file=str(path), inputs=("target",)))


def matrix(make_file: Callable[[Path], object], name: str) -> Kind:
    return Kind(make_file, lambda path: matrices._read(str(path), "structure.mass", "kg"), name)


def stiffness() -> Any:
    return np.diag([2.0, 2.0, 1.0]) - np.diag([1.0, 1.0], 1) - np.diag([1.0, 1.0], -1)


def packed_matrix(path: Path) -> None:
    io.mmwrite(path.with_suffix(".mtx"), sparse.csr_array(stiffness()))
    path.write_bytes(gzip.compress(path.with_suffix(".mtx").read_bytes()))


def made_corridor(path: Path) -> None:
    bands = np.ones((3, 50, 1))
    monitor.Corridor(("a",), 100.0, "by hand", -bands, bands, 0.0 * bands).save(path)


def as_yaml(data: dict[str, Any]) -> Callable[[Path], object]:
    return lambda path: path.write_text(yaml.safe_dump(data))


def fmu(path: Path) -> None:
    described(str(path))
    folder = path.with_name("unpacked")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    unpack(str(path), folder, "binaries/linux64")


def recording(unfinished: bool) -> Callable[[Path], object]:
    def make_recording(path: Path) -> None:
        folder = path.with_name("run")

        def progress(sample: int, samples: int) -> None:
            if unfinished and sample == 150:
                shutil.copy(next(folder.glob("*.mcap")), path)

        hosts.run("chen_ricles_2010", ["duration=0.2"], record=folder, progress=progress)
        if not unfinished:
            shutil.copy(next(folder.glob("*.mcap")), path)
        shutil.rmtree(folder)

    return make_recording


def recorded(path: Path) -> None:
    for read in (rths_nodes.read, lambda source: bag.recover(source, path.with_name("recovered"))):
        shutil.rmtree(path.with_name("recovered"), ignore_errors=True)
        with suppress(ConfigError, bag.RecordingError):
            read(path)


def metadata(path: Path) -> None:
    folder = path.with_name("run")
    recording(False)(path.with_name("run.mcap"))
    folder.mkdir()
    path.with_name("run.mcap").rename(folder / "run_0.mcap")
    hosts.run("chen_ricles_2010", ["duration=0.1"], record=path.with_name("other"))
    shutil.copy(path.with_name("other") / "metadata.yaml", path)


def with_metadata(path: Path) -> None:
    shutil.copy(path, path.with_name("run") / "metadata.yaml")
    recorded(path.with_name("run"))


def procedure_record(path: Path) -> None:
    shutil.unpack_archive(Path(__file__).with_name("procedure_0_9_0.tar.xz"), path.parent)
    shutil.copy(path.with_name("test_of_0.9.0") / procedure.FILE, path)


def shipped(*parts: str) -> Callable[[Path], object]:
    return lambda path: shutil.copy(resource("config", *parts), path)


def scenario(path: Path) -> None:
    files.load(str(path))


def columns_map(path: Path) -> None:
    path.with_name("table.csv").write_bytes(lines(rows=text(TABLE[:N])))
    exchange.read(path.with_name("table.csv"), path)


def measured_motion(path: Path) -> None:
    column = {"axis_1": {"column": "x", "unit": "mm"}}
    integrator = {"type": "predefined", "history": str(path), "columns": column, "relative": True}
    rths_nodes.run("predefined_sine", integrator=integrator | {"resample": True}, duration=0.1)


MODEL = {
    "version": 1,
    "axes": ["a"],
    "servo_rate": 1e3,
    "feedforward": {"displacement": [[1.0]], "velocity": [[1e-2]], "acceleration": [[1e-4]], "jerk": [[0.0]]},
    "plant": {"system": [[-50.0]], "inputs": [[50.0]], "outputs": [[1.0]]},
}
ANSWERS = {"operator": "A. Tester", "specimen": "D-17", "level": 0.2, "time_ratio": 10, "arm": ["d"]}
STUDY = {
    "version": 1,
    "name": "leads",
    "scenario": "chen_ricles_2010",
    "factors": {"compensator.alpha_es": {"list": [10.0, 15.0]}},
    "indices": ["hsem_percent"],
}
LAW = {"A": [[0.5]], "B": [[1.0]], "C": [[0.5]], "D": [[0.0]]}
SHORT = TABLE[:N]

KINDS: dict[str, Kind] = {
    "csv": imported(lines(rows=text(SHORT)), BY_NAME),
    "csv_semicolons": imported(lines("t;x;u;m;f", text(SHORT, between=";")), BY_NAME),
    "tsv": imported(lines("t\tx\tu\tm\tf", text(SHORT, between="\t")), BY_NAME),
    "blanks": imported(lines("", text(SHORT, between=" ")), mapped(list("12345"))),
    "csv_of_windows": imported(lines(rows=text(SHORT)).replace(b"\n", b"\r\n"), BY_NAME),
    "bom": imported(b"\xef\xbb\xbf" + lines(rows=text(SHORT)), BY_NAME),
    "utf16": imported(lines(rows=text(SHORT)).decode().encode("utf-16"), BY_NAME),
    "recorder": imported(lines("", text(SHORT, "%.6g", " ")), mapped(list("12345"))),
    "mat_4": imported(lambda path: io.savemat(path, {"data": SHORT}, appendmat=False, format="4"), BY_INDEX),
    "mat_5": imported(saved(data=SHORT), BY_INDEX),
    "mat_5_packed": imported(
        lambda path: io.savemat(path, {"data": SHORT}, appendmat=False, do_compression=True), BY_INDEX
    ),
    "mat_structs": table_kind("structs"),
    "mat_cells": table_kind("cells"),
    "mat_7_3": table_kind("cells_7_3"),
    "hdf5_chunks": imported(hdf5(chunked), BY_NAME),
    "hdf5_compound": table_kind("compound"),
    "hdf5_external": linked(external),
    "hdf5_virtual": linked(virtual),
    "netcdf_3": table_kind("packed_netcdf3"),
    "netcdf_4": table_kind("packed_netcdf4"),
    "at2": motion(at2("\n".join(map(str, VALUES)))),
    "cosmos": motion(cosmos(VALUES)),
    "csmip_v2": motion(channel(VALUES)),
    "columns": motion(column(), **GIVEN),
    "two_columns": motion(table(TIMES), unit="gal"),
    "esm": motion(esm()),
    "knet": motion(knet),
    "sac": motion(lambda: waveform("SAC"), unit="m/s^2"),
    "miniseed": motion(lambda: waveform("MSEED"), unit="m/s^2"),
    "slist": motion(samples("SLIST", "CM/S^2")),
    "tspair": motion(samples("TSPAIR", "CM/S^2")),
    "mcap": Kind(recording(False), recorded, "file.mcap"),
    "mcap_journal": Kind(recording(True), recorded, "file.mcap"),
    "metadata": Kind(metadata, with_metadata),
    "procedure": Kind(procedure_record, lambda path: procedure.read(path.parent), procedure.FILE),
    "commissioning": Kind(
        lambda path: commissioning.write(commissioned(files.load("chen_ricles_2010", rig="bench_udp")), path),
        commissioning.read,
    ),
    "scenario": Kind(shipped("scenarios", "chen_ricles_2010.yaml"), scenario, "file.yaml"),
    "rig": Kind(shipped("rigs", "bench_udp.yaml"), files.load_rig, "file.yaml"),
    "settings": Kind(shipped("settings", "rths_benchmark_2020.yaml"), files.load_settings, "file.yaml"),
    "columns_map": Kind(as_yaml(BY_NAME), columns_map),
    "answers": Kind(as_yaml(ANSWERS), answers.read),
    "study": Kind(as_yaml(STUDY), study.load),
    "law": Kind(as_yaml(LAW), law, "file.yaml"),
    "law_of_matlab": Kind(
        lambda path: io.savemat(path, {key: np.array(rows) for key, rows in LAW.items()}), law, "f.mat"
    ),
    "model": Kind(as_yaml(MODEL), loading_model.load),
    "fmu": Kind(lambda path: shutil.copy(fmus.frame(), path), fmu, "file.fmu"),
    "matrix": matrix(lambda path: np.savetxt(path, stiffness(), delimiter=","), "file.csv"),
    "matrix_market": matrix(packed_matrix, "file.mtx.gz"),
    "matrix_npz": matrix(lambda path: sparse.save_npz(path, sparse.csr_array(stiffness())), "file.npz"),
    "motion": Kind(written(lines(rows=text(SHORT))), measured_motion),
    "history": Kind(lambda path: history_of(1, 0.01).save(path), lambda path: history.load(str(path))),
    "corridor": Kind(made_corridor, lambda path: monitor.load_corridor(str(path), ("a",), 100.0, 49)),
}
REFUSED = ("hdf5_external", "hdf5_virtual")
"""Kinds whose original is refused."""
ALLOWED = [Path(sys.prefix), Path(sys.base_prefix), *map(Path, sys.path)]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    """Returns the content of a file, which is made once."""

    @cache
    def content(name: str) -> bytes:
        path = tmp_path_factory.mktemp(name) / KINDS[name].name
        KINDS[name].make(path)
        if name not in REFUSED:
            KINDS[name].read(path)
        return path.read_bytes()

    return content


def test_there_are_at_least_forty_kinds() -> None:
    assert len(KINDS) >= 40


@pytest.mark.parametrize(
    "numbers",
    [range(5), pytest.param(range(5, 400), marks=[pytest.mark.soak, pytest.mark.timeout(1200)])],
    ids=["5", "400"],
)
@pytest.mark.parametrize("name", KINDS)
def test_mutated_file_is_read_or_refused(
    name: str, numbers: range, originals: Callable[[str], bytes], tmp_path: Path
) -> None:
    original, kind = originals(name), KINDS[name]
    path = tmp_path / kind.name
    kind.make(path)  # also makes the files next to it
    problems = []
    for number in numbers:
        rng = np.random.default_rng([zlib.crc32(name.encode()), number])
        path.write_bytes(mutated(original, rng))
        if problem := trouble(lambda: kind.read(path), [tmp_path, *ALLOWED]):
            problems.append(f"{number}: {problem}")
    assert not problems, "\n".join(problems)
