# SPDX-License-Identifier: Apache-2.0
"""Loops over kernels in C: the bits of the embedded loop, the folder of libraries, and runs without a compiler."""

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
from fresh_library import forget
from shipped_cases import WITHOUT_KERNELS, cases

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.codegen import building, calling
from rths_nodes.core import arithmetic
from rths_nodes.loop.compiled import native, running
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Run

Different = Callable[..., list[str]]
SHORT = ["duration=5"]
LEARNING = (
    "rths_benchmark_2020",
    "marths_2023",
    "chen_ricles_2010|compensator={type: adaptive_time_series, delay: 0.01}",
)
"""Scenarios and changes with compensators that learn from filtered signals."""


def parts(name: str = "chen_ricles_2010", *overrides: str, case: str = "") -> Parts:
    parts = parts_of(Assembly(files.load(name, [*SHORT, *overrides], case)))
    assert isinstance(parts, Parts), parts
    return parts


def text_of(name: str = "chen_ricles_2010", *overrides: str) -> str:
    """Return the C text of a loop."""
    loop = parts(name, *overrides)
    return calling.program_of(running.function_of(loop), native.values_of(native._arguments(loop), loop))[0]


def run(engine: str, name: str = "chen_ricles_2010", case: str = "") -> tuple[Any, Run]:
    result = hosts.run(name, SHORT, case=case, engine=engine)
    return result, result.read()


def test_long_tables_of_constants_are_read_in_place() -> None:
    """The filter of a block of 16 samples was copied from 64 numbers in each sample."""
    inputs, *_ = parts("rths_benchmark_2020").constants["of_law"].learning  # type: ignore[attr-defined]
    assert np.shape(inputs) == (16, 4)
    assert "_15_3" not in text_of("rths_benchmark_2020")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the library of one loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(native, "_ways", {})
        native.way_of(parts())
        yield building.folder()


@pytest.fixture
def process(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A process that has not loaded anything yet, and the folder."""
    forget(monkeypatch)
    return cache


def digests(folder: Path) -> set[str]:
    """Return the hashes of the libraries in a folder, which are part of their names."""
    return {path.stem.partition("-")[2] for path in folder.glob("*.so")}


# The same bits


def test_the_loop_in_c_has_the_bits_of_the_embedded_loop(process: Path, different: Different) -> None:
    plain, expected = run("python")
    compiled, computed = run("compiled")
    assert different(computed, expected) == []
    assert repr((compiled.metrics, compiled.compensator)) == repr((plain.metrics, plain.compensator))
    assert (plain.engine, compiled.engine) == ("python", "compiled")
    assert (expected.information["engine"], computed.information["engine"]) == ("python", "compiled")
    assert compiled.notes == []
    assert computed.information["library"] in digests(process)
    assert "library" not in expected.information


@pytest.mark.parametrize("words", sorted(cases()))
def test_every_shipped_case_has_the_same_bits(words: str, process: Path, different: Different) -> None:
    if words in WITHOUT_KERNELS:
        pytest.skip(WITHOUT_KERNELS[words])
    name, _, case = words.partition(" ")
    plain = hosts.run(name, ["duration=2"], case=case, engine="python")
    compiled = hosts.run(name, ["duration=2"], case=case, engine="compiled")
    assert different(compiled.read(), plain.read()) == []
    if plain.outcome == "finished":
        assert (compiled.engine, compiled.notes) == ("compiled", [])


def test_the_functions_of_a_loop_state_their_purpose() -> None:
    """Their comments in C are the first paragraphs of their docstrings."""
    functions = {name: function for name, function in vars(arithmetic).items() if inspect.isfunction(function)}
    for words in sorted(set(cases()).difference(WITHOUT_KERNELS)):
        name, _, case = words.partition(" ")
        for kernel in parts(name, case=case).kernels.values():
            functions_of(kernel, functions)
    assert sorted({where for function in functions.values() if (where := without_purpose(function))}) == []


@pytest.mark.soak
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("level", ["-O1", "-O2", "-O3"])
def test_compilers_and_levels_give_the_same_bits(
    compiler: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, different: Different
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr(building, "FLAGS", (*building.FLAGS, level))
    forget(monkeypatch)
    for words in sorted(cases()):
        if words not in WITHOUT_KERNELS:
            name, _, case = words.partition(" ")
            results = [hosts.run(name, ["duration=2"], case=case, engine=each) for each in ("python", "compiled")]
            assert different(*(result.read() for result in results)) == [], words


def test_a_limit_that_breaks_is_reported_by_the_embedded_loop(process: Path, different: Different) -> None:
    overrides = [*SHORT, "axes.story_1.limits.force=1e5"]
    expected = hosts.run("chen_ricles_2010", overrides)
    computed = hosts.run("chen_ricles_2010", overrides, engine="compiled")
    assert computed.outcome == "tripped"
    assert (computed.outcome, computed.samples) == (expected.outcome, expected.samples)
    assert different(computed.read(), expected.read()) == []
    assert (computed.engine, computed.read().information["engine"]) == ("python", "python")
    assert "library" not in computed.read().information


def test_the_text_does_not_depend_on_the_order_of_a_set() -> None:
    """So that two builds of one loop have one hash, which a recording keeps."""
    words = "from test_native import text_of\nimport hashlib\n"
    words += "print(hashlib.sha256(text_of('horiuchi_1996_verification').encode()).hexdigest())\n"
    folders = [Path(__file__).parent, Path(__file__).parents[1] / "helpers", *map(Path, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    digests = {
        subprocess.check_output([sys.executable, "-c", words], env={**environment, "PYTHONHASHSEED": seed})
        for seed in "34"
    }
    assert len(digests) == 1


def test_the_text_has_names_and_purposes_of_the_kernels() -> None:
    """Fields of named tuples, names that get the result of a call, and the first lines of docstrings."""
    text = text_of()
    assert "double k_yield_displacement" in text
    assert re.search(r"double k2__1 = bouc_wen_bouc_wen_slope\(z__1 \+ half__1 \* k1__1, move_,", text)
    assert re.search(r"/\* rths_nodes\.mechanics\.bouc_wen\.bouc_wen_slope: Slope dz/dx .*Eq\. \(14\)", text)
    assert not re.search(r":\w+:`|``", text)


# The folder of libraries


def test_a_second_process_builds_nothing(process: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_made", None)
    way = native.way_of(parts("chen_ricles_2010", "compensator.alpha_es=20", "duration=7"))
    assert (way.compiled, way.notes) == (True, ())
    assert way.library in digests(process)


def test_scenarios_of_a_kind_share_a_library(process: Path) -> None:
    ways = [native.way_of(parts("chen_ricles_2010", f"compensator.alpha_es={alpha}")) for alpha in (15, 20, 25)]
    assert len({id(way.run) for way in ways}) == 1


@pytest.mark.parametrize("words", LEARNING)
def test_cut_off_frequencies_share_a_library(words: str, process: Path) -> None:
    """A search tries another one in every run."""
    low, high = (
        native.way_of(parts(*words.split("|"), f"compensator.cutoff_frequency={cutoff}")) for cutoff in (14, 25)
    )
    assert low.run is high.run


def test_tests_of_any_duration_share_a_library(process: Path) -> None:
    changes = "integrator={type: hht_alpha, iterations: 3}"
    ways = [native.way_of(parts("chen_ricles_2010", changes, f"duration={duration}")) for duration in (3, 4)]
    assert [(way.compiled, way.notes) for way in ways] == [(True, ())] * 2
    assert ways[0].library == ways[1].library


def test_the_key_is_of_text_and_compiler() -> None:
    tools = building.toolchain()

    def key(*overrides: str) -> str:
        return building.key_of(text_of("chen_ricles_2010", *overrides), tools)

    keys = {key(), key("compensator.alpha_es=20"), key("duration=9")}
    assert len(keys) == 1
    keys |= {key("compensator.type=none"), key("axes.story_1.specimen={type: maxwell_damper}")}
    keys |= {key(f"compensator={{type: polynomial, delay: 0.02, order: {order}}}") for order in (2, 3)}
    keys.add(building.key_of(text_of(), (tools[0], "another compiler")))
    assert len(keys) == 6


def test_the_folder_belongs_to_its_user_alone(process: Path) -> None:
    assert process.stat().st_mode & 0o777 == 0o700


def test_a_damaged_library_is_built_again(process: Path, different: Different) -> None:
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
def test_a_folder_that_is_not_private_keeps_nothing(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, different: Different
) -> None:
    place = tmp_path / "rths_nodes" / "kernels"
    place.parent.mkdir(parents=True)
    if folder == "a file":
        place.write_text("", encoding="utf-8")
    elif folder == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.mkdir(mode=0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget(monkeypatch)
    compiled, computed = run("compiled")
    assert compiled.engine == "compiled"
    assert [str(place) in note for note in compiled.notes] == [True]
    assert different(computed, run("python")[1]) == []
    assert not list(tmp_path.rglob("*.so"))


def test_two_processes_build_one_library(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "rths_nodes.app.cli", "run", "chen_ricles_2010", "--set", "duration=2"]
    words += ["--engine", "compiled", "--no-record", "--json"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    pipe = {"stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    runs = [subprocess.Popen(words, env=environment, **pipe) for _ in range(2)]
    engines = [json.loads(each.communicate(timeout=110)[0])["engine"] for each in runs]
    assert engines == ["compiled", "compiled"]
    assert not list(tmp_path.rglob("*.new"))


# Without a compiler


def broken_compiler(place: Path, text: str) -> str:
    script = place / "cc"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo broken && exit 0\n{text}\n', encoding="utf-8")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("compiler", "parts_of_note"),
    [("missing", ("no C compiler", "gcc")), ("failing", ("cannot compile", "no such instruction"))],
)
def test_without_a_compiler_the_loop_runs_in_plain_python(
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


def test_another_c_library_is_refused(process: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = {**building.RESULTS, "exp": " ".join(["0x1.0p+0"] * len(building.ARGUMENTS))}
    monkeypatch.setattr(building, "RESULTS", results)
    way = native.way_of(parts())
    assert not way.compiled
    assert "exp(0.1)" in way.notes[0]


@pytest.mark.parametrize(
    ("words", "parts_of_message"),
    [
        ("chen_ricles_2010 --host composed", ("engine = 'compiled'", "embedded", "composed")),
        ("chen_ricles_2010 --fault delay@1:target,3", ("engine = 'compiled'", "faults", "python")),
        ("tall_frame", ("engine = 'compiled'", "interface", "use python")),
    ],
)
def test_an_engine_that_does_not_fit_is_refused(
    words: str, parts_of_message: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words.split(), "--engine", "compiled", "--no-record"]) == 2
    message = capsys.readouterr().err
    assert all(part in message for part in parts_of_message)


def test_a_recording_of_it_is_that_of_the_embedded_loop(
    process: Path, tmp_path: Path, different: Different
) -> None:
    runs = [
        hosts.run("chen_ricles_2010", SHORT, engine=engine, record=tmp_path / engine, keep=False).read()
        for engine in ("python", "compiled")
    ]
    assert different(*runs) == []
    assert repr(runs[0].metrics) == repr(runs[1].metrics)
    assert [each.information["engine"] for each in runs] == ["python", "compiled"]
    assert [len(each.information.get("library", "")) for each in runs] == [0, 64]


RUN = ["run", "chen_ricles_2010", "--set", "duration=2", "--engine", "compiled", "--no-record", "--json"]
MOUNTED = {
    "noexec": ("noexec,size=64m", "", "noexec", "compiled"),
    "full": ("size=64k", "", "kept", "compiled"),
    "read-only": ("size=64m", "mount -o remount,ro $XDG_CACHE_HOME;", "Read-only", "compiled"),
    "noexec everywhere": ("noexec,size=64m", "export TMPDIR=$XDG_CACHE_HOME;", "noexec", "kernels"),
}
"""Options of a mounted folder, what follows the mount, words of the note, and the engine."""


@pytest.mark.parametrize("how", MOUNTED)
def test_a_folder_that_cannot_be_used_is_named(how: str, tmp_path: Path) -> None:
    options, more, reason, engine = MOUNTED[how]
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a folder (unshare -Urm)")
    program = f'mount -t tmpfs -o {options} tmpfs "$XDG_CACHE_HOME" && {more} exec "$@"'
    words = ["unshare", "-Urm", "sh", "-c", program, "sh", sys.executable, "-m", "rths_nodes.app.cli", *RUN]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["engine"] == engine
    (note,) = result["notes"]
    assert all(part in note for part in (str(tmp_path), reason))
    assert ("plain Python" in note) == (engine == "kernels")


def test_an_interrupted_compiler_leaves_nothing_half_done(
    process: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, different: Different
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", broken_compiler(tmp_path, "kill -INT $$"))
    forget(monkeypatch)
    compiled, computed = run("compiled")
    assert ["signal 2" in note and "plain Python" in note for note in compiled.notes] == [True]
    assert different(computed, run("python")[1]) == []
    assert {path.suffix for path in tmp_path.rglob("*.*") if path.is_file()} == {".c", ".lock"}
