# SPDX-License-Identifier: Apache-2.0
"""Tests of compiled loops: same bits as the embedded loop, folder of libraries, runs without a compiler."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driven_kernels import functions_of, without_purpose
from in_c import forget
from shipped_cases import WITHOUT_KERNELS, cases, loaded

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.codegen import building, calling
from rths_nodes.core import arithmetic
from rths_nodes.loop.compiled import running
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run

Different = Callable[..., list[str]]
ENGINES = ("python", "compiled")
SHORT = ["duration=5"]
RUN = [sys.executable, "-m", "rths_nodes.app.cli", "run", "chen_ricles_2010", "--set", "duration=2"]
RUN += ["--engine", "compiled", "--no-record", "--json"]
LEARNING = (
    "rths_benchmark_2020",
    "marths_2023",
    "chen_ricles_2010|compensator={type: adaptive_time_series, delay: 0.01}",
)
"""Scenarios with compensators that learn from filtered signals."""


def parts(name: str = "chen_ricles_2010", *overrides: str, case: str = "") -> Parts:
    parts = parts_of(Assembly(files.load(name, [*SHORT, *overrides], case)))
    assert isinstance(parts, Parts), parts
    return parts


def text_of(name: str = "chen_ricles_2010", *overrides: str) -> str:
    """Return the C text of a loop."""
    loop = parts(name, *overrides)
    return calling.EntryPoint(running.function_of(loop), running.values_of(running.arguments_of(loop), loop)).text


def run(engine: str, name: str = "chen_ricles_2010", case: str = "") -> tuple[Any, Run]:
    result = hosts.run(name, SHORT, case=case, engine=engine)
    return result, result.read()


def test_long_constant_tables_are_not_copied() -> None:
    """The filter of a block of 16 samples copied 64 numbers in each sample."""
    inputs, *_ = parts("rths_benchmark_2020").constants["of_law"].learning  # type: ignore[attr-defined]
    assert np.shape(inputs) == (16, 4)
    assert "_15_3" not in text_of("rths_benchmark_2020")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder with the library of one loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(running, "_ways", {})
        running.way_of(parts())
        yield building.folder()


@pytest.fixture
def process(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of libraries, for a process that has not loaded any."""
    forget(monkeypatch)
    return cache


def digests(folder: Path) -> set[str]:
    """Return the hashes of the libraries in a folder, which are part of their names."""
    return {path.stem.partition("-")[2] for path in folder.glob("*.so")}


# Same bits


def test_compiled_loop_has_bits_of_embedded_loop(process: Path, different: Different) -> None:
    plain, expected = run("python")
    compiled, computed = run("compiled")
    assert different(computed, expected) == []
    assert repr((compiled.metrics, compiled.compensator)) == repr((plain.metrics, plain.compensator))
    assert (plain.engine, compiled.engine) == ("python", "compiled")
    assert (expected.information["engine"], computed.information["engine"]) == ("python", "compiled")
    assert compiled.notes == []
    assert computed.information["library"] in digests(process)
    assert "library" not in expected.information


@pytest.mark.parametrize("shipped", sorted(cases()))
def test_every_shipped_case_has_same_bits(shipped: str, process: Path, different: Different) -> None:
    if shipped in WITHOUT_KERNELS:
        pytest.skip(WITHOUT_KERNELS[shipped])
    plain, compiled = (hosts.run(loaded(shipped, "duration=2"), engine=engine) for engine in ENGINES)
    assert different(compiled.read(), plain.read()) == []
    if plain.outcome == "finished":
        assert (compiled.engine, compiled.notes) == ("compiled", [])


def test_functions_of_compiled_loops_have_docstrings() -> None:
    """The comments in C are the first paragraphs of docstrings."""
    functions = {name: function for name, function in vars(arithmetic).items() if inspect.isfunction(function)}
    for shipped in sorted(set(cases()).difference(WITHOUT_KERNELS)):
        name, _, case = shipped.partition(" ")
        for kernel in parts(name, case=case).kernels.values():
            functions_of(kernel, functions)
    assert sorted({location for function in functions.values() if (location := without_purpose(function))}) == []


@pytest.mark.soak
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("level", ["-O1", "-O2", "-O3"])
def test_compilers_and_optimisation_levels_give_same_bits(
    compiler: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, different: Different
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr(building, "FLAGS", (*building.FLAGS, level))
    forget(monkeypatch)
    for shipped in sorted(set(cases()).difference(WITHOUT_KERNELS)):
        runs = [hosts.run(loaded(shipped, "duration=2"), engine=engine).read() for engine in ENGINES]
        assert different(*runs) == [], shipped


def test_broken_limit_is_reported_by_embedded_loop(process: Path, tmp_path: Path, different: Different) -> None:
    scenario = files.load("chen_ricles_2010", [*SHORT, "axes.story_1.limits.force=1e5"])
    expected, computed = (hosts.run(scenario, engine=engine, record=tmp_path / engine) for engine in ENGINES)
    assert computed.outcome == "tripped"
    assert (computed.outcome, computed.samples) == (expected.outcome, expected.samples)
    assert different(computed.read(), expected.read()) == []
    assert (computed.engine, computed.read().information["engine"]) == ("python", "python")
    assert "library" not in computed.read().information
    recorded = read_run(tmp_path / "compiled").information
    assert (recorded["engine"], recorded["library"]) == ("python", "")


def test_c_text_is_independent_of_hash_seed() -> None:
    """Two builds of one loop have one hash, which a recording stores."""
    program = "from test_native import text_of\nimport hashlib\n"
    program += "print(hashlib.sha256(text_of('horiuchi_1996_verification').encode()).hexdigest())\n"
    folders = [Path(__file__).parent, Path(__file__).parents[1] / "helpers", *map(Path, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    digests = {
        subprocess.check_output([sys.executable, "-c", program], env={**environment, "PYTHONHASHSEED": seed})
        for seed in "34"
    }
    assert len(digests) == 1


def test_c_text_has_names_and_docstrings_of_kernels() -> None:
    """Fields of named tuples, names assigned from calls, and first lines of docstrings."""
    text = text_of()
    assert "double k_yield_displacement" in text
    assert re.search(r"double k2__1 = bouc_wen_bouc_wen_slope\(z__1 \+ half__1 \* k1__1, move_,", text)
    assert re.search(r"/\* rths_nodes\.mechanics\.bouc_wen\.bouc_wen_slope: Return dz/dx .*Eq\. \(14\)", text)
    assert not re.search(r":\w+:`|``", text)


# Folder of libraries


def test_second_process_uses_stored_library(process: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_made", None)
    way = running.way_of(parts("chen_ricles_2010", "compensator.alpha_es=20", "duration=7"))
    assert (way.compiled, way.notes) == (True, ())
    assert way.library in digests(process)


@pytest.mark.parametrize(
    ("scenario", "change"),
    [
        ("chen_ricles_2010", "compensator.alpha_es={}"),
        *((scenario, "compensator.cutoff_frequency={}") for scenario in LEARNING),
    ],
)
def test_parameter_values_share_library(scenario: str, change: str, process: Path) -> None:
    """A search changes these values in every run."""
    ways = [running.way_of(parts(*scenario.split("|"), change.format(value))) for value in (14, 15, 20, 25)]
    assert len({id(way.run) for way in ways}) == 1


def test_durations_share_library(process: Path) -> None:
    changes = "integrator={type: hht_alpha, iterations: 3}"
    ways = [running.way_of(parts("chen_ricles_2010", changes, f"duration={duration}")) for duration in (3, 4)]
    assert [(way.compiled, way.notes) for way in ways] == [(True, ())] * 2
    assert ways[0].library == ways[1].library


def test_library_key_depends_on_text_and_compiler() -> None:
    tools = building.toolchain()

    def key(*overrides: str) -> str:
        return building.key_of(text_of("chen_ricles_2010", *overrides), tools)

    keys = {key(), key("compensator.alpha_es=20"), key("duration=9")}
    assert len(keys) == 1
    keys |= {key("compensator.type=none"), key("axes.story_1.specimen={type: maxwell_damper}")}
    keys |= {key(f"compensator={{type: polynomial, delay: 0.02, order: {order}}}") for order in (2, 3)}
    keys.add(building.key_of(text_of(), (tools[0], "another compiler")))
    assert len(keys) == 6


def test_library_folder_is_private(process: Path) -> None:
    assert process.stat().st_mode & 0o777 == 0o700


def test_damaged_library_is_rebuilt(process: Path, different: Different) -> None:
    before = sorted(process.glob("*.so"))
    for file in before:
        damaged = file.with_suffix(".damaged")
        damaged.write_bytes(file.read_bytes()[:-30])
        damaged.replace(file)
    compiled, computed = run("compiled")
    assert {path.name for path in process.glob("*.so")} <= {path.name for path in before}
    assert [note for note in compiled.notes if str(process) in note and "damaged" in note]
    assert different(computed, run("python")[1]) == []


@pytest.mark.parametrize("folder", ["a file", "readable by others", "a link"])
def test_folder_that_is_not_private_is_not_used(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, different: Different
) -> None:
    path = tmp_path / "rths_nodes" / "kernels"
    path.parent.mkdir(parents=True)
    if folder == "a file":
        path.write_text("", encoding="utf-8")
    elif folder == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir(mode=0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget(monkeypatch)
    compiled, computed = run("compiled")
    assert compiled.engine == "compiled"
    assert [str(path) in note for note in compiled.notes] == [True]
    assert different(computed, run("python")[1]) == []
    assert not list(tmp_path.rglob("*.so"))


def test_two_processes_build_library_concurrently(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    pipe = {"stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    processes = [subprocess.Popen(RUN, env=environment, **pipe) for _ in range(2)]
    engines = [json.loads(process.communicate(timeout=110)[0])["engine"] for process in processes]
    assert engines == ["compiled", "compiled"]
    assert not list(tmp_path.rglob("*.new"))


# Without a compiler


def broken_compiler(folder: Path, text: str) -> str:
    script = folder / "cc"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo broken && exit 0\n{text}\n', encoding="utf-8")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("compiler", "parts_of_note"),
    [("missing", ("no C compiler", "gcc")), ("failing", ("cannot compile", "no such instruction"))],
)
def test_loop_runs_in_plain_python_without_compiler(
    compiler: str,
    parts_of_note: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    different: Different,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(building, "COMPILERS", ("gcc-that-is-not-there",))
    monkeypatch.delenv("CC", raising=False)
    if compiler == "failing":
        monkeypatch.setenv("CC", broken_compiler(tmp_path, "echo 'no such instruction' >&2; exit 1"))
    forget(monkeypatch)
    compiled, computed = run("compiled")
    assert len(compiled.notes) == 1
    assert all(part in compiled.notes[0] for part in (*parts_of_note, "plain Python"))
    assert different(computed, run("python")[1]) == []
    assert run("compiled")[0].notes == []  # reported once


def test_different_results_of_c_library_are_refused(process: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = {**building.RESULTS, "exp": " ".join(["0x1.0p+0"] * len(building.ARGUMENTS))}
    monkeypatch.setattr(building, "RESULTS", results)
    way = running.way_of(parts())
    assert not way.compiled
    assert "exp(0.1)" in way.notes[0]


@pytest.mark.parametrize(
    ("arguments", "parts_of_message"),
    [
        ("chen_ricles_2010 --host composed", ("engine = 'compiled'", "embedded", "composed")),
        ("chen_ricles_2010 --fault delay@1:target,3", ("engine = 'compiled'", "faults", "python")),
        ("tall_frame", ("engine = 'compiled'", "interface", "set engine = python")),
    ],
)
def test_incompatible_engine_is_refused(
    arguments: str, parts_of_message: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments.split(), "--engine", "compiled", "--no-record"]) == 2
    message = capsys.readouterr().err
    assert all(part in message for part in parts_of_message)


def test_recording_equals_recording_of_embedded_loop(process: Path, tmp_path: Path, different: Different) -> None:
    runs = [
        hosts.run("chen_ricles_2010", SHORT, engine=engine, record=tmp_path / engine, keep=False).read()
        for engine in ENGINES
    ]
    assert different(*runs) == []
    assert repr(runs[0].metrics) == repr(runs[1].metrics)
    assert [run.information["engine"] for run in runs] == ["python", "compiled"]
    assert [len(run.information.get("library", "")) for run in runs] == [0, 64]


MOUNTED = {
    "noexec": ("noexec,size=64m", "", "noexec", "compiled"),
    "full": ("size=64k", "", "stored", "compiled"),
    "read-only": ("size=64m", "mount -o remount,ro $XDG_CACHE_HOME;", "Read-only", "compiled"),
    "noexec everywhere": ("noexec,size=64m", "export TMPDIR=$XDG_CACHE_HOME;", "noexec", "kernels"),
}
"""Mount options, command after the mount, part of the note, engine."""


@pytest.mark.parametrize("how", MOUNTED)
def test_unusable_folder_is_reported(how: str, tmp_path: Path) -> None:
    options, more, reason, engine = MOUNTED[how]
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a folder (unshare -Urm)")
    program = f'mount -t tmpfs -o {options} tmpfs "$XDG_CACHE_HOME" && {more} exec "$@"'
    command = ["unshare", "-Urm", "sh", "-c", program, "sh", *RUN]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["engine"] == engine
    (note,) = result["notes"]
    assert all(part in note for part in (str(tmp_path), reason))
    assert ("plain Python" in note) == (engine == "kernels")


def test_interrupted_compiler_leaves_no_partial_files(
    process: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, different: Different
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", broken_compiler(tmp_path, "kill -INT $$"))
    forget(monkeypatch)
    compiled, computed = run("compiled")
    assert ["signal 2" in note and "plain Python" in note for note in compiled.notes] == [True]
    assert different(computed, run("python")[1]) == []
    assert {path.suffix for path in tmp_path.rglob("*.*") if path.is_file()} == {".c", ".lock"}
