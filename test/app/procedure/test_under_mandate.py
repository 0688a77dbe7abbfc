# SPDX-License-Identifier: Apache-2.0
"""Runs under a mandate by the acts of a test: they agree, a softer specimen is noticed, the report tells it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from emulated_bench import free_port
from hours import Hours
from terminal import Terminal

from rths_nodes.analysis.iteration.convergence import HISTORY, TRACKING
from rths_nodes.analysis.report import mandate as reported
from rths_nodes.analysis.report.document import OfProcedure, render
from rths_nodes.app.cli import main
from rths_nodes.app.procedure.act_sequence import ActSequence, ended
from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.operator_socket import Answer, Request
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.mechanics import history
from rths_nodes.procedure.mandate import WITHIN
from rths_nodes.procedure.records import ProcedureRecord
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run

NAME = "sdof_by_iteration"
RIG = files.locate("bench_small_udp", files.RIG).read_text()
SIMULATED = re.sub(r"port: .*", "port: {type: simulator, transport_samples: 1}", RIG)
WORSE = "compensator.delay=0.022"
SOFTENS = "{type: degrading_column, stiffness: 67113.0, damage_displacement: 0.008, post_damage_ratio: 0.3}"
"""Bent beyond 8 mm for the first time in run 1, it is softer from the first sample of run 2 on."""

PAGE = (Path(__file__).resolve().parents[3] / "doc" / "iterate.md").read_text()
ANSWERS: dict[str, Any] = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)[-1])
"""The answers of the page."""

Made = Callable[..., ProcedureRunner]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Makes a test behind its rung g, which is about to be iterated in a ``mode``."""

    def make(*sets: str, mode: str | None = None, rig: str = SIMULATED, name: str = NAME) -> ProcedureRunner:
        (tmp_path / "rig.yaml").write_text(rig)
        scenario = files.load(name, ["duration=6", "servo_rate=256", *sets], rig=str(tmp_path / "rig.yaml"))
        ladder = Ladder(scenario, ("g", "h"), None, None, False)
        ladder.iteration = mode
        record = ProcedureRecord("test", name, "", operator="A. Tester", planned=["g", "h"])
        runner = ProcedureRunner(ladder, record, tmp_path / "test")
        done: list[str] = []
        while (act := ActSequence(runner, lambda: False).next()) != "mandate":
            runner.do(act, **given(runner, act))
            done.append(act)
        assert done[-2:] == ["arm", "run"]
        return runner

    return make


def given(runner: ProcedureRunner, act: str) -> dict[str, Any]:
    """Arguments of an act, as an operator gives them."""
    offsets = runner.session.offsets.hash if runner.session.offsets else ""
    if act == "take_offsets":
        return {"seconds": 0.2}
    if act == "confirm_offsets":
        assert runner.taken is not None
        return {"hash": runner.taken.hash, "unloaded": True}
    if act == "arm":
        return {
            "rung": runner.next_rung,
            "scenario_hash": runner.ladder.step(runner.next_rung).hash,
            "offsets_hash": offsets,
        }
    if act == "mandate":
        return {"mandate_hash": runner.iteration.to_arm(), "offsets_hash": offsets}
    return {"rung": "h"} if act == "rehearse" else {}


def led_on(runner: ProcedureRunner) -> list[str]:
    """Do the acts to the end of the mandate; their names."""
    done: list[str] = []
    while (act := ActSequence(runner, lambda: False).next()) != "finish":
        runner.do(act, **given(runner, act))
        done.append(act)
    return done


@pytest.mark.parametrize("mode", [HISTORY, TRACKING])
def test_runs_are_corrected_until_they_agree(made: Made, mode: str) -> None:
    runner = made(WORSE, mode=mode)
    assert led_on(runner) == ["mandate", "rehearse", "position", "arm", "run"]
    (mandate,), rungs = runner.record.mandates, runner.record.rungs
    assert mandate.converged
    assert mandate.mode == mode
    first, last = mandate.rows
    assert first["error"] > 4.0
    assert last["error"] < 0.5
    assert last["answer"]["story"] == pytest.approx(1.0, abs=1e-3)
    assert (rungs[-1].name, rungs[-1].run, rungs[-1].mandate) == ("h", 2, mandate.hash)
    moved = read_run(runner.folder / rungs[-1].recording)
    assert abs(moved.command).max() <= mandate.bounds["story"]["command"]
    assert last["expected"]["story"]["force"] == pytest.approx(abs(moved.force).max(), rel=0.02)


def test_a_structure_that_yields_is_iterated_by_its_commands(made: Made) -> None:
    """Its steps are longer than a sample; both runs are compared at the steps of the test."""
    rig = files.locate("bench_simulated", files.RIG).read_text()
    runner = made(
        *("compensator.type=none", "duration=3", "servo_rate=1024"),
        mode=TRACKING,
        rig=rig,
        name="chen_ricles_2010",
    )
    led_on(runner)
    (mandate,), rung = runner.record.mandates, runner.record.rungs[-1]
    assert mandate.converged
    assert mandate.rows[0]["error"] > 5.0
    run, first = (read_run(runner.folder / name) for name in ("rung_h", "rung_g"))
    n = len(run.force)
    off = np.sqrt(np.mean((run.force - first.force[:n]) ** 2) / np.mean(first.force[:n] ** 2))
    assert rung.differences["force of story_1"] == pytest.approx(off, rel=0.05)


def test_the_terms_are_of_the_first_run(made: Made) -> None:
    runner = made(WORSE)
    run, terms = read_run(runner.folder / "rung_g"), runner.iteration.terms
    assert terms.bounds["story"].force == pytest.approx(WITHIN * abs(run.force).max())
    assert terms.bounds["story"].command == pytest.approx(WITHIN * abs(run.command).max())
    assert terms.first.scenario_hash == runner.record.rungs[-1].scenario_hash
    assert terms.hash == runner.iteration.terms.hash


def test_the_hash_of_a_run_stands_under_that_of_the_mandate(made: Made) -> None:
    """What the run plays names the mandate; so does the hash that is armed, which counts the file's content."""
    runner = made(WORSE)
    runner.do("mandate", **given(runner, "mandate"))
    runner.do("rehearse", rung="h")
    step = runner.ladder.step("h")
    played = history.load(step.scenario.integrator.history)
    assert played.source == f"run 2 under the mandate {runner.record.mandates[0].hash}"
    assert step.hash == runner.session.mandate_armed.planned.scenario_hash  # type: ignore[union-attr]
    assert step.scenario.axes["story"].limits.velocity == runner.iteration.terms.bounds["story"].velocity


def test_a_specimen_that_softens_is_noticed_before_run_3(made: Made) -> None:
    runner = made(f"axes.story.specimen={SOFTENS}")
    led_on(runner)
    (mandate,) = runner.record.mandates
    assert re.match(r"the specimen has changed: story: \d\S* % less force for the same motion", mandate.ended)
    assert len(mandate.rows) == 2
    assert [rung.name for rung in runner.record.rungs] == ["g", "h"]
    with pytest.raises(ConfigError, match=r"^rehearse: "):
        runner.do("rehearse", rung="h")
    with pytest.raises(ConfigError, match="no mandate is armed"):
        runner.iteration.rehearse()


def test_a_run_that_would_go_further_than_the_terms_is_not_made(made: Made) -> None:
    """A compensator of 40 ms for 28 ms takes energy out: run 1 is too small, run 2 wants 1.2 of it."""
    runner = made("compensator.delay=0.04")
    done = led_on(runner)
    (mandate,) = runner.record.mandates
    assert done == ["mandate", "rehearse"], mandate
    assert re.match(r"axes.story: run 2 would have a command of \S+ m, must be within", mandate.ended)
    assert runner.state is State.HELD
    assert [rung.name for rung in runner.record.rungs] == ["g"]


def test_who_comes_too_late_finds_the_rig_held(made: Made) -> None:
    runner = made(WORSE)
    for act in ("mandate", "rehearse", "position"):
        runner.do(act, **given(runner, act))
    named, clock = given(runner, "arm"), Hours()
    clock.now = SYSTEM_CLOCK.monotonic_ns() + 61 * 10**9
    runner.session._clock = clock
    with pytest.raises(ConfigError, match="arm: the rig is held"):
        runner.do("arm", **named)
    assert runner.iteration.not_agreed == "nobody has given a key for run 2 within 60 s"
    assert ActSequence(runner, lambda: True).next() == "unload"
    assert ended(runner, "", "", "", "") == ExitCode.HELD
    assert runner.record.reason == "the mandate is over: nobody has given a key for run 2 within 60 s"


def test_programs_lead_it_by_what_the_procedure_answers(made: Made) -> None:
    """The hash that is named next is in the answer: first that of the mandate, then that of the run."""
    pytest.importorskip("rclpy")
    from rths_nodes.app.procedure.served import Served
    from rths_nodes.ros.transport.greeting import Credentials

    runner = made(WORSE)
    served, peer = Served(runner, lambda words: None), Credentials(1, os.getuid())

    def ask(act: str = "", **named: str) -> Answer:
        seen = served.situation()
        return served.answer(
            Request(act, tuple(named), tuple(named.values()), "Ada", seen.stops, seen.state), peer
        )

    told = ask()
    assert (told.next_rung, told.possible["mandate"]) == ("h", "")
    assert told.scenario_hash == runner.iteration.terms.hash
    refused = ask("mandate", mandate_hash="other", offsets_hash=told.offsets_hash)
    assert "the terms have changed: the hash to be armed is other" in refused.reason
    assert ask("mandate", mandate_hash=told.scenario_hash, offsets_hash=told.offsets_hash).done
    for act in ("rehearse", "position"):
        assert (answer := ask(act)).done, answer.reason
    told = ask()
    assert told.scenario_hash == runner.ladder.step("h").hash
    for act, named in (
        ("arm", {"rung": "h", "scenario_hash": told.scenario_hash, "offsets_hash": told.offsets_hash}),
        ("run", {}),
    ):
        assert (answer := ask(act, **named)).done, answer.reason
    assert "the mandate is over: converged" in answer.result
    assert ask().next_rung == ""


def test_record_and_report_tell_convergence_drift_and_limits(made: Made) -> None:
    runner = made(WORSE)
    led_on(runner)
    runner.do("finish")
    record = procedure.read(runner.folder)
    assert record.mandates == runner.record.mandates
    terms, table, limits = reported.parts(record)
    assert terms.facts["Mandate"] == record.mandates[0].hash
    assert table.grid is not None
    assert [row[0] for row in table.grid.rows] == ["1 (g)", "2 (h)"]
    assert any(head.startswith("specimen of") for head in table.grid.heads)
    assert any("another one in the next run" in words for words in limits.items)
    run = read_run(runner.folder / "rung_h")
    page = render(run, test=OfProcedure(record, "rung_h"))
    assert "Limits of validity of what was iterated" in page


@pytest.mark.parametrize(
    ("sets", "rig", "words"),
    [
        (
            ["soft_start={duration: 1.0, amplitude: 0.001, rise_time: 0.5}"],
            SIMULATED,
            "soft_start: must be left out",
        ),
        ([], re.sub(r"    elastic_limit:.*\n", "", SIMULATED), "axes.story: the rig file has no elastic_limit"),
        (["time_ratio=2"], SIMULATED, "time_ratio = 2: must be 1"),
    ],
    ids=("soft_start", "elastic_limit", "time_ratio"),
)
def test_what_cannot_be_iterated_is_refused_before_anything_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sets: list[str], rig: str, words: str
) -> None:
    (tmp_path / "rig.yaml").write_text(rig)
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(ANSWERS))
    command = ["test", NAME, "--rig", str(tmp_path / "rig.yaml"), "--answers", str(tmp_path / "answers.yaml")]
    assert main([*command, *(f"--set={each}" for each in sets)]) == 2
    assert words in capsys.readouterr().err


def test_whole_histories_of_a_structure_that_yields_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(ANSWERS))
    command = ["test", "chen_ricles_2010", "--rig", "bench_simulated", "--answers", str(tmp_path / "answers.yaml")]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "structure: must be there and linear for an iteration of whole histories" in said
    assert "iteration: tracking corrects the commands alone" in said


def test_no_file_lets_a_run_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rig.yaml").write_text(SIMULATED)
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(ANSWERS))
    command = ["test", NAME, "--rig", str(tmp_path / "rig.yaml"), "--answers", str(tmp_path / "answers.yaml")]
    assert main(command) == 2
    assert "rung h: a person lets each run go, and no file does" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.nodes
@pytest.mark.first
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("sets", "code"), [([], 0), ([f"axes.story.specimen={SOFTENS}"], 130)])
def test_a_person_lets_each_run_go_behind_udp(
    tmp_path: Path, environment: dict[str, str], sets: list[str], code: int
) -> None:
    """Two processes and a person, who types the heads of the hashes that are shown."""
    pytest.importorskip("rclpy")
    (tmp_path / "rig.yaml").write_text(RIG.replace("{type: udp,", f"{{type: udp, port: {free_port()},"))
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(ANSWERS))
    rths, test = (
        [sys.executable, "-m", "rths_nodes.app.cli"],
        [NAME, "--rig", "rig.yaml", "--set=duration=6", "--set=servo_rate=256"],
    )
    emulator = subprocess.Popen(
        [*rths, "emulate", *test, *(f"--set={each}" for each in sets)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    terminal = None
    try:
        assert emulator.stdout is not None
        assert "emulated at 127.0.0.1:" in emulator.stdout.readline()
        terminal = Terminal(
            [*rths, "test", *test, f"--set={WORSE}", "--answers", "answers.yaml"], tmp_path, environment
        )
        for what in ("the mandate", "rung h"):
            shown = terminal.wait_for(rf"to arm {what}, type the first 6 characters[^\n]*: $")
            hashes = re.findall(r"(?:mandate|scenario)\s+│\s+([0-9a-f]{16})", shown)
            terminal.type(hashes[0][:6])
        assert terminal.end() == code, terminal.shown[-3000:]
    finally:
        emulator.kill()
        emulator.wait()
        if terminal is not None:
            terminal.close()
    record = procedure.read(tmp_path / "runs" / ANSWERS["test_id"])
    (mandate,) = record.mandates
    assert mandate.converged == (code == 0)
    assert [rung.name for rung in record.rungs] == ["g", "h"]
    ways = [(act.act, act.way) for act in record.acts if act.act in ("mandate", "arm")]
    assert ways == [("arm", "answers"), ("mandate", "terminal"), ("arm", "terminal")]
    assert "Runs under a mandate" in (tmp_path / "runs" / ANSWERS["test_id"] / "report.html").read_text()
