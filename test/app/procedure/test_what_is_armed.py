# SPDX-License-Identifier: Apache-2.0
"""What is armed is what runs, whatever becomes of the files and the code that a test names in the meantime."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import pytest
from messages import mentions, naming
from rig_runner import referenced
from rig_walk import RIG

from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.procedure_record import ProcedureRecord, RungRecord
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rehearsal import hash_of
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.corridor import Corridor
from rths_nodes.mechanics.models.file import LoadingModel, save
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run

NAME, SECONDS = "chen_ricles_2010", 0.5
TIMES = np.arange(0.0, 2.0, 0.01)


def motion(file: Path, scale: float) -> None:
    """A ground motion of 1.2 Hz, scale times 0.35 m/s^2."""
    values = scale * 0.35 * np.sin(2.0 * np.pi * 1.2 * TIMES)
    file.write_text("\n".join(f"{time:.2f} {value:.6f}" for time, value in zip(TIMES, values, strict=True)))


def matrix(file: Path, scale: float) -> None:
    """The mass of the structure as a Matrix Market file."""
    head = "%%MatrixMarket matrix coordinate real symmetric\n1 1 1\n"
    file.write_text(f"{head}1 1 {scale * 503.4e3}\n")


def model(file: Path, scale: float) -> None:
    """An identified rig that is late by 15 ms times scale."""
    rows = np.array([1.0, 0.015 * scale, 0.0, 0.0]).reshape(4, 1, 1)
    save(LoadingModel(("story_1",), rows, None, 1024.0, lead=-1.0 / 1024.0), file)


def corridor(file: Path, scale: float) -> None:
    """Bands that a test does not leave; a hundredth of them it does."""
    upper = np.full((3, 2000, 1), 1e9 if scale == 1.0 else 1e-9)
    Corridor(("story_1",), 1024.0, "by hand", -upper, upper, np.zeros_like(upper)).save(file)


KINDS: dict[str, tuple[str, Callable[[Path, float], None], list[str]]] = {
    "ground motion": ("motion.txt", motion, ["ground_motion.file={file}", "ground_motion.unit=m/s^2"]),
    "matrix": (
        "mass.mtx",
        matrix,
        ["structure={{type: matrices, mass: {file}, stiffness: [[2.0e7]], experimental_stiffness: [[7.6e6]]}}"],
    ),
    "corridor": ("corridor.npz", corridor, ["monitor.corridor={file}", "monitor.corridor_action=trip"]),
    "model of the rig": ("model.yaml", model, ["compensator={{type: identified_inverse, model: {file}}}"]),
}


def runner(folder: Path, sets: list[str], rungs: str = "g") -> ProcedureRunner:
    """A test on the bench; its folder is test."""
    rig = folder / "bench.yaml"
    rig.write_text(RIG)
    scenario = files.load(NAME, [f"duration={SECONDS}", *sets], rig=str(rig))
    return conducted(folder, scenario, Ladder(scenario, tuple(rungs), 0.3, 2, realtime=False))


def conducted(folder: Path, scenario: Scenario, ladder: Ladder) -> ProcedureRunner:
    record = ProcedureRecord("test", scenario.name, hash_of(scenario), operator="A. Tester")
    return ProcedureRunner(ladder, record, folder / "test")


def to_start(test: ProcedureRunner) -> None:
    """Everything before the rung is armed."""
    referenced(test, 0.05)
    test.do("check", clear="CLEAR")
    test.do("position", clear="CLEAR")


def arm(test: ProcedureRunner, rung: str = "g") -> None:
    assert test.session.offsets is not None
    test.do("arm", rung=rung, scenario_hash=test.ladder.step(rung).hash, offsets_hash=test.session.offsets.hash)


def armed(folder: Path, sets: list[str]) -> ProcedureRunner:
    test = runner(folder, sets)
    to_start(test)
    arm(test)
    return test


def result(test: ProcedureRunner) -> tuple[RungRecord, Run]:
    rung = test.record.rungs[-1]
    return rung, read_run(test.folder / rung.recording)


def given(kind: str, folder: Path) -> tuple[Path, Callable[[Path, float], None], list[str]]:
    name, put, sets = KINDS[kind]
    put(folder / name, 1.0)
    return folder / name, put, [words.format(file=folder / name) for words in sets]


@pytest.mark.parametrize("when", ["armed", "positioned", "before"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_replaced_changes_nothing_of_what_runs(
    kind: str, when: str, tmp_path: Path, left: Callable[[str], Run]
) -> None:
    """Rungs, bit for bit; a file of three times the values was 40.5 mm in place of 16.4."""
    replaced = run_with(kind, tmp_path, when)
    assert np.array_equal(left(kind).displacement, replaced.displacement)


def run_with(kind: str, folder: Path, when: str) -> Run:
    """Rung g, with a file that is replaced at the moment ``when``."""
    file, put, sets = given(kind, folder)
    test = runner(folder, sets)
    runs = "armed", lambda test: test.do("run", clear="CLEAR")
    for moment, act in (("before", to_start), ("positioned", arm), runs):
        if moment == when:
            put(file, 3.0)
        act(test)
    rung, run = result(test)
    assert rung.outcome == "finished", rung.reason
    assert len(rung.inputs) == 1
    return run


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """The same with a file that stays what it is."""
    return cache(lambda kind: run_with(kind, tmp_path_factory.mktemp("left"), "never"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_test_needs_nothing_but_its_folder(kind: str, tmp_path: Path) -> None:
    """Its recordings name the copies, which are there wherever the folder was moved to."""
    file, _, sets = given(kind, tmp_path)
    test = armed(tmp_path, sets)
    file.unlink()
    test.do("run", clear="CLEAR")
    rung, run = result(test)
    assert run.outcome == rung.outcome == "finished"
    (known,) = rung.inputs.values()
    (copy,) = (test.folder / "inputs" / known).iterdir()
    assert copy.name == file.name
    moved = tmp_path / "archive"
    test.folder.rename(moved)
    again = read_run(moved / rung.recording)
    assert str(moved / "inputs" / known / file.name) in str(again.scenario.data())
    assert hash_of(again.scenario) == rung.scenario_hash


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_is_changed_is_refused(kind: str, tmp_path: Path) -> None:
    _, put, sets = given(kind, tmp_path)
    test = armed(tmp_path, sets)
    (copy,) = (test.folder / "inputs").glob("*/*")
    copy.chmod(0o644)
    put(copy, 3.0)
    before = test.state
    with pytest.raises(ConfigError, match=naming("run", "changed", "since", "armed")):
        test.do("run", clear="CLEAR")
    assert test.state is before
    put(copy, 1.0)
    test.do("run", clear="CLEAR")
    assert test.record.rungs[-1].outcome == "finished"


def test_a_copy_that_is_changed_cannot_be_armed(tmp_path: Path) -> None:
    _, put, sets = given("ground motion", tmp_path)
    test = runner(tmp_path, sets)
    to_start(test)
    (copy,) = (test.folder / "inputs").glob("*/*")
    copy.chmod(0o644)
    put(copy, 3.0)
    with pytest.raises(ConfigError, match=naming("ground_motion.file", "tested")):
        arm(test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_replaced_before_the_test_begins_is_refused(kind: str, tmp_path: Path) -> None:
    """The operator has seen what the first one gives."""
    file, put, sets = given(kind, tmp_path)
    rig = tmp_path / "bench.yaml"
    rig.write_text(RIG)
    scenario = files.load(NAME, [f"duration={SECONDS}", *sets], rig=str(rig))
    ladder = Ladder(scenario, ("g",), None, None, realtime=False)
    put(file, 3.0)
    with pytest.raises(ConfigError, match=naming("file", "changed", "read")):
        conducted(tmp_path, scenario, ladder)


@pytest.mark.parametrize("words", ["motion.txt", "~/motion.txt", "./motion.txt"])
def test_a_path_of_set_counts_by_what_it_contains(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = []
    for scale in (1.0, 3.0):
        motion(tmp_path / "motion.txt", scale)
        found.append(hash_of(files.load(NAME, [f"ground_motion.file={words}", "ground_motion.unit=m/s^2"])))
    assert found[0] != found[1]


def test_a_model_of_set_counts_by_what_it_contains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = []
    for scale in (1.0, 2.0):
        model(tmp_path / "model.yaml", scale)
        loaded = files.load(NAME, ["compensator={type: identified_inverse, model: model.yaml}"])
        assert loaded.compensator.model == str(tmp_path / "model.yaml")
        found.append(hash_of(loaded))
    assert found[0] != found[1]


def test_a_case_has_its_files_beside_the_scenario(tmp_path: Path) -> None:
    source = files.locate(NAME).read_text()
    more = "cases:\n  other:\n    set: {ground_motion.file: m.txt, ground_motion.unit: m/s^2}\n"
    (tmp_path / "mine.yaml").write_text(source.replace("cases:\n", more))
    motion(tmp_path / "m.txt", 1.0)
    assert files.load(tmp_path / "mine.yaml", case="other").ground_motion.file == str(tmp_path / "m.txt")


def test_the_rehearsal_reads_the_copies(tmp_path: Path) -> None:
    file, _, sets = given("ground motion", tmp_path)
    test = runner(tmp_path, sets, "fg")
    file.unlink()
    assert test.ladder.expected("g")["story_1"]["displacement"] > 0.0
    to_start(test)
    arm(test, "f")
    test.do("run", clear="CLEAR")
    assert mentions(str(test.record.acts[-1].result), "from its rehearsal")


def test_what_was_armed_stands_in_the_record(tmp_path: Path) -> None:
    _, _, sets = given("ground motion", tmp_path)
    test = armed(tmp_path, sets)
    test.do("run", clear="CLEAR")
    read = procedure.read(test.folder)
    assert list(read.rungs[-1].inputs) == ["ground_motion.file"]
    assert read.rungs[-1].code == test.session.code.hash
    assert {"rths_nodes", "rths_nodes, files"} <= read.code.keys()


# -- code --------------------------------------------------------------------------------------------------------

PLUGIN = '''
"""A compensator of another package."""

from rths_nodes.control.compensators.inverse import Inverse
from their_laws import helper


class Mine(Inverse):
    """As the inverse."""
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package with a compensator, as it would be installed."""
    package = tmp_path / "their_laws"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("GAIN = 1.0\n")
    (package / "law.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    points = EntryPoints([EntryPoint("mine", "their_laws.law:Mine", "rths_nodes.compensator")])
    monkeypatch.setattr(registry, "_entry_points", lambda: points)
    registry._table.cache_clear()
    registry._load.cache_clear()
    type_name = registry.load("compensator", "inverse").Params
    yield package
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.partition(".")[0] == "their_laws"]:
        del sys.modules[name]
    registry._table.cache_clear()
    registry._load.cache_clear()
    type_name.type_name = "inverse"


@pytest.mark.parametrize("file", ["law.py", "helper.py"])
def test_a_plug_in_that_is_edited_is_refused_by_name(file: str, plugin: Path, tmp_path: Path) -> None:
    test = armed(tmp_path, ["compensator={type: mine, alpha: 20}"])
    assert "their_laws.law" in test.record.code
    edited = plugin / file
    before = edited.read_text()
    edited.write_text(before + "\n# edited\n")
    with pytest.raises(ConfigError, match=naming("run", edited)):
        test.do("run", clear="CLEAR")
    test.do("stop")
    test.do("position", clear="CLEAR")
    with pytest.raises(ConfigError, match=naming("test", edited, "began")):
        arm(test)


def test_an_edited_file_of_the_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rths_nodes.loop import provenance

    own = tmp_path / "part.py"
    own.write_text("a = 1\n")
    monkeypatch.setattr(provenance, "package_files", lambda: [own])
    test = armed(tmp_path, [])
    own.write_text("a = 2\n")
    with pytest.raises(ConfigError, match=naming(own, "armed")):
        test.do("run", clear="CLEAR")


def test_a_receiver_of_another_build_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulator, "build", "first")
    test = armed(tmp_path, [])
    assert test.record.code["receiver"] == "first"
    monkeypatch.setattr(Simulator, "build", "second")
    with pytest.raises(ConfigError, match=naming("receiver", "reports")):
        test.do("run", clear="CLEAR")
    monkeypatch.setattr(Simulator, "build", "first")
    test.do("run", clear="CLEAR")
    assert test.record.rungs[-1].outcome == "finished"


# -- OpenSees ----------------------------------------------------------------------------------------------------

MODEL = """
from pathlib import Path
import openseespy.opensees as ops
from parts.springs import STIFFNESS

FACTOR = float((Path(__file__).parent / "factor.txt").read_text())


def model(rig):
    ops.model("basic", "-ndm", 1, "-ndf", 1)
    ops.node(0, 0.0)
    ops.fix(0, 1)
    ops.node(1, 0.0)
    ops.mass(1, 503.4e3)
    ops.timeSeries("Trig", 1, 0.0, 2.0, 0.8)
    ops.pattern("Plain", 1, 1)
    ops.load(1, 2.0e4 * FACTOR)
    ops.uniaxialMaterial("Elastic", 1, STIFFNESS)
    ops.element("zeroLength", 1, 0, 1, "-mat", 1, "-dir", 1)
    rig()
"""


@pytest.fixture
def opensees(tmp_path: Path) -> list[str]:
    """A scenario whose model has a module and a file of its own."""
    try:
        import openseespy.opensees  # noqa: F401
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"openseespy is not to be had here ({error})")
    (tmp_path / "parts").mkdir()
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "parts" / "springs.py").write_text("STIFFNESS = 2.0e7\n")
    (tmp_path / "factor.txt").write_text("1.0")
    model = f"{{type: opensees, model: {tmp_path / 'model.py'}, files: [factor.txt], interface: [[1, 1]]"
    return [
        f"integrator={model}, experimental_stiffness: [[7.6e6]]}}",
        "structure=null",
        "ground_motion={type: none}",
    ]


@pytest.mark.parametrize(
    ("file", "text"), [("parts/springs.py", "STIFFNESS = 6.0e6\n"), ("factor.txt", "3.0"), ("model.py", "")]
)
def test_a_module_or_file_of_a_model_that_is_replaced_changes_nothing(
    file: str, text: str, opensees: list[str], tmp_path: Path
) -> None:
    first = hash_of(files.load(NAME, opensees))
    test = armed(tmp_path, opensees)
    (tmp_path / file).write_text(text)
    test.do("run", clear="CLEAR")
    rung, run = result(test)
    assert rung.outcome == "finished", rung.reason
    assert np.abs(run.displacement).max() > 1e-5
    assert hash_of(files.load(NAME, opensees)) != first


def test_a_published_record_that_is_edited_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is installed beside the package, and no parameter names its path."""
    from rths_nodes.numerical.ground_motions import record

    file = tmp_path / "published.txt"
    motion(file, 1.0)
    monkeypatch.setattr(record, "_shipped", lambda name, source: file)
    test = armed(tmp_path, ["ground_motion={type: record, record: elcentro_1940_ns, unit: m/s^2}"])
    motion(file, 3.0)
    with pytest.raises(ConfigError, match=naming("test", file, "rung")):
        test.do("run", clear="CLEAR")


@pytest.mark.nodes
def test_nodes_read_the_copies(tmp_path: Path) -> None:
    pytest.importorskip("rclpy")
    file, _, sets = given("ground motion", tmp_path)
    test = runner(tmp_path, sets, "b")
    motion(file, 3.0)
    test.do("rehearse", rung="b")
    rung, run = result(test)
    assert (rung.outcome, rung.host) == ("finished", "composed")
    assert np.array_equal(run.displacement, test.ladder.rehearsed("g").displacement)
