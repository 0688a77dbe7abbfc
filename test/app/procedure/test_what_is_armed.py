# SPDX-License-Identifier: Apache-2.0
"""Tests of armed files and code: a rung runs them unchanged, or is refused."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fixtures import RunCommand
from messages import mentions, naming
from rig_runner import arm, referenced
from rig_walk import RIG

from rths_nodes.app import hosts
from rths_nodes.app.procedure.console import armed_table
from rths_nodes.app.procedure.operator_socket import Request
from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner
from rths_nodes.app.procedure.served import Served
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop import provenance
from rths_nodes.loop.commissioning import rig_hash
from rths_nodes.loop.procedure_record import ProcedureRecord, RungRecord
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.monitor import Corridor
from rths_nodes.mechanics.loading_model import LoadingModel, save
from rths_nodes.numerical.ground_motions import record as published
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run
from rths_nodes.ros.transport.line import Credentials

NAME, SHORT = "chen_ricles_2010", ["duration=0.5"]
TIMES = np.arange(0.0, 2.0, 0.01)


def motion(file: Path, scale: float) -> None:
    """Write a ground motion of 1.2 Hz and ``scale`` times 0.35 m/s^2."""
    values = scale * 0.35 * np.sin(2.0 * np.pi * 1.2 * TIMES)
    file.write_text("\n".join(f"{time:.2f} {value:.6f}" for time, value in zip(TIMES, values, strict=True)))


def matrix(file: Path, scale: float) -> None:
    """Write the mass of the structure as a Matrix Market file."""
    file.write_text(f"%%MatrixMarket matrix coordinate real symmetric\n1 1 1\n1 1 {scale * 503.4e3}\n")


def model(file: Path, scale: float) -> None:
    """Write an identified rig with a delay of ``scale`` times 15 ms."""
    rows = np.array([1.0, 0.015 * scale, 0.0, 0.0]).reshape(4, 1, 1)
    save(LoadingModel(("story_1",), rows, None, 1024.0, lead=-1.0 / 1024.0), file)


def corridor(file: Path, scale: float) -> None:
    """Write bands that a test does not leave, or narrow ones that it leaves."""
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


def rig_file(folder: Path, text: str = RIG) -> str:
    (folder / "bench.yaml").write_text(text)
    return str(folder / "bench.yaml")


def scenario_of(folder: Path, overrides: list[str]) -> Scenario:
    return files.load(NAME, [*SHORT, *overrides], rig=rig_file(folder))


def conducted(folder: Path, scenario: Scenario, ladder: Ladder) -> ProcedureRunner:
    record = ProcedureRecord("test", scenario.name, scenario.whole_hash(), operator="A. Tester")
    return ProcedureRunner(ladder, record, folder / "test")


def runner_of(folder: Path, overrides: list[str], rungs: str = "g") -> ProcedureRunner:
    """Return a test on the bench; its folder is test."""
    scenario = scenario_of(folder, overrides)
    return conducted(folder, scenario, Ladder(scenario, tuple(rungs), 0.3, 2, realtime=False))


def to_start(runner: ProcedureRunner) -> None:
    """Do the acts before arming."""
    referenced(runner, 0.05)
    runner.do("check", clear="CLEAR")
    runner.do("position", clear="CLEAR")


def armed(folder: Path, overrides: list[str]) -> ProcedureRunner:
    runner = runner_of(folder, overrides)
    to_start(runner)
    arm(runner, "g")
    return runner


def result(runner: ProcedureRunner) -> tuple[RungRecord, Run]:
    rung = runner.record.rungs[-1]
    return rung, read_run(runner.folder / rung.recording)


def write_input(kind: str, folder: Path) -> tuple[Path, Callable[[Path, float], None], list[str]]:
    """Write the file of a kind; return it, the function that writes it, and the overrides that name it."""
    name, write, overrides = KINDS[kind]
    write(folder / name, 1.0)
    return folder / name, write, [override.format(file=folder / name) for override in overrides]


@pytest.mark.parametrize("when", ["armed", "positioned", "before"])
@pytest.mark.parametrize("kind", KINDS)
def test_replaced_file_does_not_change_the_run(
    kind: str, when: str, tmp_path: Path, unchanged: Callable[[str], Run]
) -> None:
    """Equal bit for bit; a file of three times the values gave 40.5 mm instead of 16.4."""
    replaced = run_with(kind, tmp_path, when)
    assert np.array_equal(unchanged(kind).displacement, replaced.displacement)


def run_with(kind: str, folder: Path, when: str) -> Run:
    """Run rung g; its file is replaced at the moment ``when``."""
    file, write, overrides = write_input(kind, folder)
    runner = runner_of(folder, overrides)
    for moment, act in (
        ("before", to_start),
        ("positioned", lambda runner: arm(runner, "g")),
        ("armed", lambda runner: runner.do("run", clear="CLEAR")),
    ):
        if moment == when:
            write(file, 3.0)
        act(runner)
    rung, run = result(runner)
    assert rung.outcome == "finished", rung.reason
    assert len(rung.inputs) == 1
    return run


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Run with a file that is not replaced."""
    return cache(lambda kind: run_with(kind, tmp_path_factory.mktemp("unchanged"), "never"))


@pytest.mark.parametrize("kind", KINDS)
def test_folder_of_a_test_is_self_contained(kind: str, tmp_path: Path) -> None:
    """Its recordings name the copies, also after the folder has been moved."""
    file, _, overrides = write_input(kind, tmp_path)
    runner = armed(tmp_path, overrides)
    file.unlink()
    runner.do("run", clear="CLEAR")
    rung, run = result(runner)
    assert run.outcome == rung.outcome == "finished"
    (digest,) = rung.inputs.values()
    (copy,) = (runner.folder / "inputs" / digest).iterdir()
    assert copy.name == file.name
    moved = tmp_path / "archive"
    runner.folder.rename(moved)
    run = read_run(moved / rung.recording)
    assert str(moved / "inputs" / digest / file.name) in str(run.scenario.data())
    assert run.scenario.whole_hash() == rung.scenario_hash


@pytest.mark.parametrize("kind", KINDS)
def test_changed_copy_is_refused(kind: str, tmp_path: Path) -> None:
    _, write, overrides = write_input(kind, tmp_path)
    runner = armed(tmp_path, overrides)
    (copy,) = (runner.folder / "inputs").glob("*/*")
    copy.chmod(0o644)
    write(copy, 3.0)
    state = runner.state
    with pytest.raises(ConfigError, match=naming("run", "changed", "since", "armed")):
        runner.do("run", clear="CLEAR")
    assert runner.state is state
    write(copy, 1.0)
    runner.do("run", clear="CLEAR")
    assert runner.record.rungs[-1].outcome == "finished"


def test_changed_copy_cannot_be_armed(tmp_path: Path) -> None:
    _, write, overrides = write_input("ground motion", tmp_path)
    runner = runner_of(tmp_path, overrides)
    to_start(runner)
    (copy,) = (runner.folder / "inputs").glob("*/*")
    copy.chmod(0o644)
    write(copy, 3.0)
    with pytest.raises(ConfigError, match=naming("ground_motion.file", "tested")):
        arm(runner, "g")


@pytest.mark.parametrize("kind", KINDS)
def test_file_replaced_before_the_test_is_refused(kind: str, tmp_path: Path) -> None:
    """The operator has seen the predictions with the first one."""
    file, write, overrides = write_input(kind, tmp_path)
    scenario = scenario_of(tmp_path, overrides)
    ladder = Ladder(scenario, ("g",), None, None, realtime=False)
    write(file, 3.0)
    with pytest.raises(ConfigError, match=naming("file", "changed", "read")):
        conducted(tmp_path, scenario, ladder)


@pytest.mark.parametrize("path", ["motion.txt", "~/motion.txt", "./motion.txt", "model.yaml"])
def test_hash_covers_content_of_a_file_in_set(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    kind, hashes = "model of the rig" if path == "model.yaml" else "ground motion", set()
    name, write, overrides = KINDS[kind]
    for scale in (1.0, 3.0):
        write(tmp_path / name, scale)
        scenario = files.load(NAME, [override.format(file=path) for override in overrides])
        assert kind == "ground motion" or scenario.compensator.model == str(tmp_path / path)
        hashes.add(scenario.whole_hash())
    assert len(hashes) == 2


def test_files_of_a_case_are_next_to_the_scenario(tmp_path: Path) -> None:
    case = "cases:\n  other:\n    set: {ground_motion.file: m.txt, ground_motion.unit: m/s^2}\n"
    (tmp_path / "mine.yaml").write_text(files.locate(NAME).read_text().replace("cases:\n", case))
    motion(tmp_path / "m.txt", 1.0)
    assert files.load(tmp_path / "mine.yaml", case="other").ground_motion.file == str(tmp_path / "m.txt")


def test_rehearsal_reads_the_copies(tmp_path: Path) -> None:
    file, _, overrides = write_input("ground motion", tmp_path)
    runner = runner_of(tmp_path, overrides, "fg")
    file.unlink()
    assert runner.ladder.expected("g")["story_1"]["displacement"] > 0.0
    to_start(runner)
    arm(runner, "f")
    runner.do("run", clear="CLEAR")
    assert mentions(str(runner.record.acts[-1].result), "from its rehearsal")


def test_armed_inputs_and_code_are_recorded(tmp_path: Path) -> None:
    _, _, overrides = write_input("ground motion", tmp_path)
    runner = armed(tmp_path, overrides)
    runner.do("run", clear="CLEAR")
    record = procedure.read(runner.folder)
    assert list(record.rungs[-1].inputs) == ["ground_motion.file"]
    assert record.rungs[-1].code == runner.session.code.hash
    assert {"rths_nodes", "rths_nodes, files"} <= record.code.keys()


PLUGIN = '''
"""A compensator of another package."""

from rths_nodes.control.compensators.adaptive import Inverse
from their_laws import helper


class Mine(Inverse):
    """Equals the inverse."""
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of an installed package with a compensator."""
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
    inverse = registry.load("compensator", "inverse").Params
    yield package
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.partition(".")[0] == "their_laws"]:
        del sys.modules[name]
    registry._table.cache_clear()
    registry._load.cache_clear()
    inverse.type_name = "inverse"


@pytest.mark.parametrize("file", ["law.py", "helper.py"])
def test_edited_plug_in_is_refused_by_name(file: str, plugin: Path, tmp_path: Path) -> None:
    runner = armed(tmp_path, ["compensator={type: mine, alpha: 20}"])
    assert "their_laws.law" in runner.record.code
    edited = plugin / file
    edited.write_text(edited.read_text() + "\n# edited\n")
    with pytest.raises(ConfigError, match=naming("run", edited)):
        runner.do("run", clear="CLEAR")
    runner.do("stop")
    runner.do("position", clear="CLEAR")
    with pytest.raises(ConfigError, match=naming("test", edited, "began")):
        arm(runner, "g")


def test_edited_file_of_the_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "part.py"
    file.write_text("a = 1\n")
    monkeypatch.setattr(provenance, "package_files", lambda: [file])
    runner = armed(tmp_path, [])
    file.write_text("a = 2\n")
    with pytest.raises(ConfigError, match=naming(file, "armed")):
        runner.do("run", clear="CLEAR")


def test_receiver_of_another_build_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulator, "build", "first")
    runner = armed(tmp_path, [])
    assert runner.record.code["receiver"] == "first"
    monkeypatch.setattr(Simulator, "build", "second")
    with pytest.raises(ConfigError, match=naming("receiver", "reports")):
        runner.do("run", clear="CLEAR")
    monkeypatch.setattr(Simulator, "build", "first")
    runner.do("run", clear="CLEAR")
    assert runner.record.rungs[-1].outcome == "finished"


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
    """Overrides for a model that imports a module and reads a file."""
    try:
        import openseespy.opensees  # noqa: F401
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"openseespy is not installed here ({error})")
    (tmp_path / "parts").mkdir()
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "parts" / "springs.py").write_text("STIFFNESS = 2.0e7\n")
    (tmp_path / "factor.txt").write_text("1.0")
    model = f"{{type: opensees, model: {tmp_path / 'model.py'}, files: [factor.txt], interface: [[1, 1]]"
    integrator = f"integrator={model}, experimental_stiffness: [[7.6e6]]}}"
    return [integrator, "structure=null", "ground_motion={type: none}"]


@pytest.mark.parametrize(
    ("file", "text"), [("parts/springs.py", "STIFFNESS = 6.0e6\n"), ("factor.txt", "3.0"), ("model.py", "")]
)
def test_replaced_file_of_opensees_model_changes_nothing(
    file: str, text: str, opensees: list[str], tmp_path: Path
) -> None:
    first = files.load(NAME, opensees).whole_hash()
    runner = armed(tmp_path, opensees)
    (tmp_path / file).write_text(text)
    runner.do("run", clear="CLEAR")
    rung, run = result(runner)
    assert rung.outcome == "finished", rung.reason
    assert np.abs(run.displacement).max() > 1e-5
    assert files.load(NAME, opensees).whole_hash() != first


def test_edited_published_record_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is installed with the package, and no parameter has its path."""
    file = tmp_path / "published.txt"
    motion(file, 1.0)
    monkeypatch.setattr(published, "_shipped", lambda name, source: file)
    runner = armed(tmp_path, ["ground_motion={type: record, record: elcentro_1940_ns, unit: m/s^2}"])
    motion(file, 3.0)
    with pytest.raises(ConfigError, match=naming("test", file, "rung")):
        runner.do("run", clear="CLEAR")


@pytest.mark.nodes
def test_nodes_read_the_copies(tmp_path: Path) -> None:
    pytest.importorskip("rclpy")
    file, _, overrides = write_input("ground motion", tmp_path)
    runner = runner_of(tmp_path, overrides, "b")
    motion(file, 3.0)
    runner.do("rehearse", rung="b")
    rung, run = result(runner)
    assert (rung.outcome, rung.host) == ("finished", "composed")
    assert np.array_equal(run.displacement, runner.ladder.rehearsed("g").displacement)


# Engine in scenario and rig file: refused at a real rig, and part of the armed program

EXECUTIVE = "engine=executive"
REAL = RIG.replace("{type: simulator, transport_samples: 1, hydraulics: high, interlock: closed}", "{type: udp}")


def with_engine(rig: str) -> str:
    return rig.replace("port:", "engine: executive\nport:")


def runner_with_executive(folder: Path, rungs: str) -> ProcedureRunner:
    runner = runner_of(folder, [EXECUTIVE], rungs)
    runner.ladder.check()
    return runner


def arm_rung_c(runner: ProcedureRunner) -> str:
    to_start(runner)
    return arm(runner, "c")


@pytest.mark.parametrize(
    ("overrides", "options", "engine"),
    [
        ([EXECUTIVE], {}, "executive"),
        ([EXECUTIVE], {"engine": "python"}, "python"),
        ([], {"engine": "executive"}, "executive"),
    ],
)
def test_option_has_priority_over_the_scenario(overrides: list[str], options: dict[str, Any], engine: str) -> None:
    result = hosts.run(NAME, [*SHORT, *overrides], **options)
    assert result.engine == engine
    assert result.scenario.engine == ("executive" if engine == "executive" else "auto")


def test_command_prints_the_engine(output: RunCommand) -> None:
    assert mentions(output("run", NAME, "--set", SHORT[0], "--set", EXECUTIVE), "embedded, executive")


def test_study_prefers_its_own_engine() -> None:
    assert hosts.run(NAME, [*SHORT, EXECUTIVE], preferred="kernels").engine == "kernels"


def test_engine_of_a_rig_file_changes_its_hashes(tmp_path: Path) -> None:
    scenario = files.load(NAME, SHORT, rig=rig_file(tmp_path, with_engine(RIG)))
    without = files.load(NAME, SHORT, rig=rig_file(tmp_path))
    assert (scenario.engine, without.engine) == ("executive", "auto")
    assert rig_hash(scenario) != rig_hash(without)
    assert scenario.shared_hash() != without.shared_hash()


@pytest.mark.parametrize("command", ["check", "run", "test"])
@pytest.mark.parametrize("key", ["rig file", "override"])
def test_executive_is_refused_for_a_real_rig(command: str, key: str, tmp_path: Path, refusal: RunCommand) -> None:
    rig = rig_file(tmp_path, with_engine(REAL) if key == "rig file" else REAL)
    overrides = ["--set", EXECUTIVE] if key == "override" else []
    reason = refusal(command, NAME, "--rig", rig, *overrides)
    assert mentions(reason, "engine", "executive", "udp", "doc/real_time.md")


def test_option_executive_is_refused_if_unsupported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming("engine", "executive", "udp", "doc/real_time.md")):
        hosts.run(NAME, SHORT, rig=rig_file(tmp_path, REAL), engine="executive")
    with pytest.raises(ConfigError, match=naming("engine", "executive", "processes")):
        hosts.run(NAME, [*SHORT, EXECUTIVE], host="processes")


@pytest.mark.parametrize("rung", ["d", "e", "f", "g"])
def test_executive_is_refused_for_rungs_that_drive_the_rig(rung: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming("engine", f"rung {rung}")):
        runner_with_executive(tmp_path, f"c{rung}")


def test_rung_without_commands_runs_the_armed_program(tmp_path: Path) -> None:
    runner = runner_with_executive(tmp_path, "ac")
    runner.do("rehearse", rung="a")
    armed, step = arm_rung_c(runner), runner.ladder.step("c")
    assert step.hash != step.scenario.whole_hash()
    assert mentions(armed, step.hash, f"executive, program {step.program}")
    assert step.program in "".join(armed_table(step, runner.ladder, "").columns[1]._cells)
    assert Served(runner, print).situation().engine == step.engine
    runner.do("run", clear="CLEAR")
    rung = runner.record.rungs[-1]
    samples = runner.ladder.scenario.samples
    assert (rung.outcome, rung.scenario_hash, rung.samples) == ("finished", step.hash, samples)
    assert mentions(rung.remarks[0], step.program)
    run = read_run(runner.folder / rung.recording)
    assert run.information["engine"] == "executive"
    assert run.information["library"].startswith(step.program.partition("-")[2])


@pytest.mark.nodes
def test_rung_b_rehearses_the_program_with_nodes(tmp_path: Path) -> None:
    runner = runner_with_executive(tmp_path, "ab")
    for name in "ab":
        runner.do("rehearse", rung=name)
    rung = runner.record.rungs[-1]
    assert (rung.name, rung.host, rung.outcome) == ("b", "composed", "finished")
    assert read_run(runner.folder / rung.recording).information["engine"] == "executive"
    assert rung.differences["displacement of story_1"] == 0.0


def test_failed_arm_renews_the_hash(tmp_path: Path) -> None:
    runner = runner_with_executive(tmp_path, "ac")
    step, served = runner.ladder.step("a"), Served(runner, print)
    assert served.situation().scenario_hash == step.hash
    vars(served._step("a"))["hash"] = "stale"
    assert served.situation().scenario_hash == "stale"
    answer = served.answer(Request("arm"), Credentials(os.getpid(), os.getuid()))
    assert not answer.done
    assert answer.scenario_hash == step.hash


@pytest.mark.skipif(shutil.which("clang") is None, reason="no second compiler here")
def test_program_that_was_not_armed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_with_executive(tmp_path, "c")
    arm_rung_c(runner)
    monkeypatch.setenv("CC", "clang")
    with pytest.raises(ActRefused, match=naming("program", "rung c")):
        runner.do("run", clear="CLEAR")
    assert runner.record.rungs == []
