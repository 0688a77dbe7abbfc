# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over kernels: the same bits, their place on the disk, and what becomes of a run without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from messages import each_mentions, mentions
from shipped_cases import WITHOUT_KERNELS, cases

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.compiling import folder, kernels, loops
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Run

Different = Callable[..., list[str]]
SHORT = ["duration=5"]


def parts(name: str = "chen_ricles_2010", *overrides: str, case: str = "") -> Parts:
    found = parts_of(Assembly(files.load(name, [*SHORT, *overrides], case)))
    assert isinstance(found, Parts), found
    return found


def run(engine: str, name: str = "chen_ricles_2010", case: str = "") -> tuple[Any, Run]:
    result = hosts.run(name, SHORT, case=case, engine=engine)
    return result, result.read()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of its own, with what was compiled first."""
    pytest.importorskip("numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(loops, "_ways", {})
        loops.way_of(parts())
        yield folder.place()


@pytest.fixture
def anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As in a new process."""
    monkeypatch.setattr(loops, "_ways", {})
    monkeypatch.setattr(loops, "_told", set())
    return cache


def test_it_gives_the_bits_of_the_embedded_loop(anew: Path, different: Different) -> None:
    plain, expected = run("python")
    compiled, found = run("compiled")
    assert different(found, expected) == []
    assert repr((compiled.metrics, compiled.compensator)) == repr((plain.metrics, plain.compensator))
    assert (plain.engine, compiled.engine) == ("python", "compiled")
    assert (expected.information["engine"], found.information["engine"]) == ("python", "compiled")
    assert compiled.notes == []


@pytest.mark.long
@pytest.mark.parametrize("case", ["rths_benchmark_2020 case_1", "phillips_spencer_2012 d"])
def test_larger_loops_give_their_bits(case: str, anew: Path, different: Different) -> None:
    _, expected = run("python", *case.split())
    compiled, found = run("compiled", *case.split())
    assert compiled.engine == "compiled"
    assert compiled.notes == []
    assert different(found, expected) == []


@pytest.mark.soak
@pytest.mark.parametrize("words", sorted(cases()))
def test_every_shipped_case_has_the_same_bits(words: str, anew: Path, different: Different) -> None:
    if words in WITHOUT_KERNELS:
        pytest.skip(WITHOUT_KERNELS[words])
    name, _, case = words.partition(" ")
    plain, expected = run("python", name, case)
    compiled, found = run("compiled", name, case)
    assert different(found, expected) == []
    if plain.outcome == "finished":
        assert (compiled.engine, compiled.notes) == ("compiled", [])


def test_a_second_process_compiles_nothing(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "compiled", None)
    way = loops.way_of(parts("chen_ricles_2010", "compensator.alpha_es=20"))
    assert (way.compiled, way.notes) == (True, ())


def test_scenarios_of_a_kind_share_what_is_compiled(anew: Path) -> None:
    ways = [loops.way_of(parts("chen_ricles_2010", f"compensator.alpha_es={alpha}")) for alpha in (15, 20, 25)]
    assert len({id(way.run) for way in ways}) == 1


@pytest.mark.long
def test_what_has_other_types_is_compiled_beside(anew: Path) -> None:
    """Texts are the same; the compensator has a coefficient more."""
    words = "compensator={type: polynomial, delay: 0.02, order: %d}"
    found = [parts("chen_ricles_2010", words % order) for order in (2, 3)]
    assert found[0].text == found[1].text
    for _ in range(2):
        ways = [loops.way_of(each) for each in found]
        assert [(way.compiled, way.notes) for way in ways] == [(True, ()), (True, ())]
        assert ways[0].run is not ways[1].run
        loops._ways.clear()


def test_the_memory_of_the_compiler_is_not_kept(
    anew: Path, own_threads: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of this process compiles the first loop; here what it has made is read from the disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled_here = []
    forms = kernels.compiled
    monkeypatch.setattr(kernels, "compiled", lambda *given: compiled_here.append(given) or forms(*given))
    way = loops.way_of(parts())
    assert (way.compiled, way.notes, compiled_here) == (True, (), [])
    assert loops.way_of(parts("chen_ricles_2010", "compensator.type=none")).compiled
    assert compiled_here


@pytest.mark.parametrize("damage", ["made", "module"])
@pytest.mark.briefly(1)
def test_what_is_damaged_is_made_anew(damage: str, anew: Path, different: Different) -> None:
    for file in anew.glob("loop_*.py") if damage == "module" else (anew / "__pycache__").glob("*.nbc"):
        file.write_bytes(file.read_bytes()[:-100])
    compiled, found = run("compiled")
    assert [note for note in compiled.notes if mentions(note, "damaged")]
    assert different(found, run("python")[1]) == []


def test_what_was_interrupted_is_made_anew_in_silence(anew: Path) -> None:
    for file in anew.glob("loop_*.sums"):
        file.unlink()
    compiled, _ = run("compiled")
    assert (compiled.engine, compiled.notes) == ("compiled", [])
    assert list(anew.glob("loop_*.sums"))


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(
    anew: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    compiled, _ = run("compiled")
    assert each_mentions(compiled.notes, (f"{tmp_path}/file/rths_nodes/loops", "directory"))


def test_old_modules_of_the_same_text_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    modules = [folder.Module(text, key) for text, key in (("a", "1"), ("b", "1"), ("a", "2"))]
    for module in modules[:2]:
        with module.held():
            module.write()
    monkeypatch.setattr(folder, "OLD_S", -1.0)
    with modules[2].held():
        modules[2].write()
    assert sorted(folder.place().glob("*.py")) == sorted(module.path for module in modules[1:])


class NoNumba:
    __version__ = "0.60.1"


def missing() -> Any:
    raise ConfigError("numba: is not installed: pip install numba")


def broken(parts: Parts) -> Any:
    raise RuntimeError("no such instruction\nand more")


@pytest.mark.parametrize(
    ("place", "name", "value", "words"),
    [
        (
            kernels,
            "numba",
            missing,
            ("numba", "numba", "installed"),
        ),
        (kernels, "numba", NoNumba, ("numba", "0.60.1", ">= 0.61")),
        (
            loops,
            "_compiled",
            broken,
            ("compiled", "RuntimeError"),
        ),
    ],
    ids=["missing", "too old", "broken"],
)
def test_without_a_compiler_the_text_runs_in_plain_python(
    place: Any,
    name: str,
    value: Any,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    different: Different,
) -> None:
    if name == "_compiled":
        pytest.importorskip("numba")
    monkeypatch.setattr(loops, "_ways", {})
    monkeypatch.setattr(loops, "_told", set())
    monkeypatch.setattr(place, name, value)
    compiled, found = run("compiled")
    assert [note for note in compiled.notes if mentions(note, *words)] == compiled.notes
    assert len(compiled.notes) == 1
    assert different(found, run("python")[1]) == []
    assert run("compiled")[0].notes == []  # told once


def test_the_key_is_of_all_kernels_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    keys = {loops.key_of(parts()), loops.key_of(parts("chen_ricles_2010", "compensator.alpha_es=20"))}
    assert len(keys) == 1
    keys.add(loops.key_of(parts("chen_ricles_2010", "compensator.type=none")))
    keys.add(loops.key_of(parts("chen_ricles_2010", "axes.story_1.specimen={type: maxwell_damper}")))
    monkeypatch.setattr(loops, "__version__", "0.0.0")
    keys.add(loops.key_of(parts()))
    monkeypatch.setattr(kernels, "versions", lambda: ("0.0.0",))
    keys.add(loops.key_of(parts()))
    assert len(keys) == 5


def test_a_test_that_trips_is_told_stage_by_stage(anew: Path, different: Different) -> None:
    overrides = [*SHORT, "axes.story_1.limits.force=1e5"]
    expected = hosts.run("chen_ricles_2010", overrides)
    found = hosts.run("chen_ricles_2010", overrides, engine="compiled")
    assert (found.outcome, found.reason, found.samples) == (expected.outcome, expected.reason, expected.samples)
    assert found.outcome == "tripped"
    assert different(found.read(), expected.read()) == []
    assert (found.engine, found.read().information["engine"]) == ("python", "python")
    assert mentions(found.notes[-1], "run", "stage")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("chen_ricles_2010 --host composed", ("engine", "compiled", "embedded")),
        (
            "chen_ricles_2010 --fault delay@1:target,3",
            ("engine", "compiled", "faults"),
        ),
        ("tall_frame", ("engine", "compiled", "interface")),
    ],
)
def test_what_cannot_be_compiled_is_refused(
    words: str, told: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words.split(), "--engine", "compiled", "--no-record"]) == 2
    assert mentions(capsys.readouterr().err, *told)


def test_a_recording_of_it_is_that_of_the_embedded_loop(anew: Path, tmp_path: Path, different: Different) -> None:
    runs = [
        hosts.run("chen_ricles_2010", SHORT, engine=engine, record=tmp_path / engine, keep=False).read()
        for engine in ("python", "compiled")
    ]
    assert different(*runs) == []
    assert repr(runs[0].metrics) == repr(runs[1].metrics)
    assert [each.information["engine"] for each in runs] == ["python", "compiled"]
