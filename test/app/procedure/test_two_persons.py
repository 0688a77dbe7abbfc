# SPDX-License-Identifier: Apache-2.0
"""``two_persons: true`` of a rig file: rung g takes two names, at the terminal, by answers and by the socket."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from messages import mentions
from rig_runner import positioned

from rths_nodes.analysis.report.procedure import head, ladder
from rths_nodes.app.cli import main
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console
from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import procedure

NAME = "chen_ricles_2010"
BENCH = files.locate("bench_simulated", files.RIG).read_text()
ANSWERS: dict[str, Any] = {
    "test_id": "first",
    "operator": "A. Tester",
    "specimen": "D-17",
    "rungs": ["g"],
    "arm": ["g"],
    "offsets_seconds": 0.2,
    "confirm_offsets": True,
    "unloaded": True,
    **{act: {"moves": "y"} for act in ("check", "position", "run")},
    "unload": {"moves": "n"},
}


def runner_of(folder: Path, two: bool = True) -> ProcedureRunner:
    """A test of the rungs a, d and g on a rig that asks for ``two`` persons."""
    (folder / "bench.yaml").write_text(f"{BENCH}two_persons: {str(two).lower()}\n")
    scenario = files.load(NAME, ["duration=0.2"], rig=str(folder / "bench.yaml"))
    record = ProcedureRecord("test", NAME, "", operator="A. Tester", planned=["a", "d", "g"])
    return ProcedureRunner(Ladder(scenario, ("a", "d", "g"), 0.2, 2, False), record, folder / "test")


def arms(runner: ProcedureRunner, rung: str, **second: str) -> str:
    offsets = runner.session.offsets
    assert offsets is not None
    hashes = {"scenario_hash": runner.ladder.step(rung).hash, "offsets_hash": offsets.hash}
    return runner.do("arm", "A. Tester", "terminal", rung=rung, **hashes, **second)


@pytest.mark.parametrize("second", ["", "  ", "A. Tester", " a.TESTER ", "A . T e s t e r"])
def test_rung_g_is_refused_without_the_name_of_another_person(tmp_path: Path, second: str) -> None:
    runner = runner_of(tmp_path)
    positioned(runner)
    with pytest.raises(ConfigError, match=r"second.*two_persons: true") as refused:
        arms(runner, "g", second=second)
    assert ("'A. Tester'" in str(refused.value)) == bool(second.strip())
    assert runner.state is State.POSITIONED
    assert runner.record.acts[-1].refused
    runner.session.close()


def test_both_names_are_in_record_and_report(tmp_path: Path) -> None:
    runner = runner_of(tmp_path)
    positioned(runner)
    assert mentions(arms(runner, "g", second=" R. Sponsible "), "A. Tester", "R. Sponsible")
    runner.do("run", clear="CLEAR")
    runner.do("finish")
    record = procedure.read(runner.folder)
    rung = record.rungs[-1]
    assert rung.armed_by == ["A. Tester", "R. Sponsible"]
    assert mentions(head(record, rung)[0].facts["Armed by"], "A. Tester", "R. Sponsible")
    assert mentions(ladder(record)[0].items, "g", "A. Tester", "R. Sponsible")


@pytest.mark.parametrize(("two", "rung"), [(True, "d"), (False, "g")])
def test_one_person_arms_what_needs_no_second_one(tmp_path: Path, two: bool, rung: str) -> None:
    runner = runner_of(tmp_path, two)
    positioned(runner)
    assert mentions(arms(runner, rung), "armed", "A. Tester:")
    runner.session.close()


def test_a_program_gives_the_second_name_as_an_argument(tmp_path: Path) -> None:
    pytest.importorskip("rclpy")
    from served_test import PEER

    from rths_nodes.app.procedure.operator_socket import Request
    from rths_nodes.app.procedure.served import Served

    runner = runner_of(tmp_path)
    positioned(runner)
    served = Served(runner, print)
    offsets, now = runner.session.offsets, served.answer(Request(), PEER)
    assert offsets is not None
    names = ("rung", "scenario_hash", "offsets_hash")
    values = ("g", runner.ladder.step("g").hash, offsets.hash)
    refused = served.answer(Request("arm", names, values, "Ada", now.stops, now.state, now.test_id), PEER)
    assert (refused.done, "second: must not" in refused.reason) == (False, True)
    both = Request("arm", (*names, "second"), (*values, "Grace"), "Ada", now.stops, now.state, now.test_id)
    assert served.answer(both, PEER).done
    runner.session.close()


def by_answers(folder: Path, ask: Any, **changed: Any) -> tuple[int, ProcedureRecord]:
    """A test by a file of answers; ``ask`` answers what is not in there."""
    (folder / "bench.yaml").write_text(BENCH + "two_persons: true\n")
    scenario = files.load(NAME, ["duration=0.2"], rig=str(folder / "bench.yaml"))
    record = ProcedureRecord("test", NAME, "", operator="A. Tester", planned=["g"])
    runner = ProcedureRunner(Ladder(scenario, ("g",), 0.2, 2, False), record, folder / "test")

    class Bar:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

        def __call__(self, *_: object) -> None: ...

        def starting(self, _: str) -> None: ...

    console = Console(from_data(Answers, ANSWERS | changed), ask, print)
    console.attach(runner, lambda name: Bar(), leads=False)
    return console.run(), runner.record


def test_answers_have_a_key_for_the_second_name(tmp_path: Path) -> None:
    code, record = by_answers(tmp_path, None, second="R. Sponsible")
    assert (code, record.outcome) == (0, "finished")
    assert record.rungs[-1].armed_by == ["A. Tester", "R. Sponsible"]


def test_the_terminal_asks_for_the_second_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        return "R. Sponsible"

    reader, writer = os.pipe()
    with os.fdopen(reader) as quiet:
        monkeypatch.setattr("sys.stdin", quiet)
        code, record = by_answers(tmp_path, ask)
    os.close(writer)
    assert (code, record.rungs[-1].armed_by) == (0, ["A. Tester", "R. Sponsible"])
    assert [question.partition(":")[0] for question in asked] == ["second"]


@pytest.mark.parametrize(
    ("changed", "words"), [({}, "second: must not"), ({"second": "a. tester"}, "second = 'a. tester'")]
)
def test_answers_without_another_person_are_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, str], words: str
) -> None:
    (tmp_path / "bench.yaml").write_text(BENCH + "two_persons: true\n")
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(ANSWERS | changed))
    given = ["--rig", str(tmp_path / "bench.yaml"), "--answers", str(tmp_path / "answers.yaml")]
    assert main(["test", NAME, *given, "--record", str(tmp_path / "test")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "test").exists()


@pytest.mark.parametrize("place", ["rig_file.two_persons", " rig_file.two_persons"])
@pytest.mark.parametrize("further", [(), ("--socket",)])
def test_no_set_takes_the_second_person_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, further: tuple[str, ...]
) -> None:
    (tmp_path / "bench.yaml").write_text(BENCH + "two_persons: true\n")
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(ANSWERS))
    words = ["--rig", str(tmp_path / "bench.yaml"), "--answers", str(tmp_path / "answers.yaml"), *further]
    assert main(["test", NAME, *words, f"--set={place}=false", "--record", str(tmp_path / "test")]) == 2
    assert "--set rig_file" in capsys.readouterr().err
    assert not (tmp_path / "test").exists()


@pytest.mark.parametrize("command", ["check", "run", "test"])
def test_a_rig_file_with_roles_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    rig = tmp_path / "bench.yaml"
    rig.write_text(BENCH + "roles:\n  salt: 00112233445566778899aabbccddeeff\n")
    assert main([command, NAME, "--rig", str(rig)]) == 2
    said = capsys.readouterr().err
    assert mentions(said, "roles", "removed")
    assert "two_persons: true" in said
    assert "bench.yaml" in said


@pytest.mark.parametrize(
    ("given", "words"), [({"rungs": ["g", "h"]}, ("rungs", "rung h")), ({"iteration": "history"}, ("iteration",))]
)
def test_answers_with_rung_h_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: dict[str, Any], words: tuple[str, ...]
) -> None:
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(ANSWERS | given))
    command = ["test", NAME, "--rig", "bench_simulated", "--answers", str(tmp_path / "answers.yaml")]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert mentions(said, *words)
    assert mentions(said, "iterate", "--next")
