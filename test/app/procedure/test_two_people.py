# SPDX-License-Identifier: Apache-2.0
"""Two people by every front: terminal, file of answers, socket, signed service; and what is kept of it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rig_walk
import yaml
from terminal import Terminal
from two_people import KEYS, NAMES, ROLES_OF_BENCH, TEXT, consent_to

from rths_nodes.analysis.report.procedure import acts, head
from rths_nodes.app.cli import main
from rths_nodes.app.procedure import signatures
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console
from rths_nodes.app.procedure.dialogue import Dialogue
from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.operator_socket import Answer, Request
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.app.procedure.served import Served
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.roles import ROLES
from rths_nodes.procedure.acts import ACTS
from rths_nodes.procedure.records import ProcedureRecord
from rths_nodes.recording import procedure

pytest.importorskip("rclpy")

from rths_nodes.ros.transport.greeting import Credentials

pytestmark = pytest.mark.usefixtures("keys_hashed_once")

NAME = "chen_ricles_2010"
BENCH = files.locate("bench_simulated", files.RIG).read_text()
UNKNOWN = "".join(line for line in BENCH.splitlines(keepends=True) if "stiffness_known_to" not in line)
"""A bench whose scales have to be signed for."""
BOTH = "A. Tester (operator) and R. Sponsible (responsible), both needed by roles in the rig file bench_simulated"
PEER = Credentials(1, os.getuid())
ANSWERS: dict[str, Any] = {
    "test_id": "first",
    "operator": NAMES["operator"],
    "specimen": "D-17",
    "rungs": ["g"],
    "arm": ["g"],
    "offsets_seconds": 0.2,
    "confirm_offsets": True,
    "unloaded": True,
    "unload": False,
}


def runner_of(folder: Path, rig: str = BENCH, rungs: tuple[str, ...] = ("g",)) -> ProcedureRunner:
    """A test on a rig whose file has roles."""
    (folder / "bench.yaml").write_text(rig + TEXT)
    scenario = files.load(NAME, ["duration=0.2"], rig=str(folder / "bench.yaml"))
    record = ProcedureRecord("test", NAME, "", operator=NAMES["operator"], planned=list(rungs))
    roles = files.load_rig(folder / "bench.yaml").roles
    return ProcedureRunner(Ladder(scenario, rungs, 0.2, 2, False), record, folder / "test", roles=roles)


class Program:
    """A program at the socket."""

    def __init__(self, served: Served) -> None:
        self.served = served

    def ask(self, act: str = "", **given: str) -> Answer:
        seen = self.served.situation()
        request = Request(act, tuple(given), tuple(given.values()), "Ada", seen.stops, seen.state)
        return self.served.answer(request, PEER)

    def does(self, act: str, **given: str) -> Answer:
        told = self.ask(act, **given)
        assert told.done, told.reason
        return told

    def checked(self) -> Answer:
        self.does("connect")
        told = self.does("take_offsets", seconds="0.1")
        self.does("confirm_offsets", hash=told.offsets_hash, unloaded="true")
        return self.does("check")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    made: list[ProcedureRunner] = []

    def serve(**further: Any) -> Program:
        made.append(runner_of(tmp_path, **further))
        return Program(Served(made[-1], print))

    yield serve
    for each in made:
        each.session.close()


def keys_in(folder: Path) -> list[str]:
    """Files of ``folder`` in which a key stands."""
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and any(key.encode() in path.read_bytes() for key in KEYS.values())
    ]


@pytest.mark.long
def test_by_the_socket_both_consent_and_the_test_runs(served, tmp_path: Path) -> None:
    program = served(rig=UNKNOWN)
    told = program.checked()
    words = [each.words for each in program.served._runner.session.clearance.wanting()]
    assert list(told.to_sign) == words, "all the words, which a consent is to"
    for what in words:
        assert "needs the consent of the operator" in program.ask("sign_for", what=what).reason
        for role in ROLES:
            program.does("consent", role=role, key=KEYS[role], what=what)
        told = program.does("sign_for", what=what)
        assert told.result == BOTH
    told = program.does("position")
    hashes = {"rung": "g", "scenario_hash": told.scenario_hash, "offsets_hash": told.offsets_hash}
    program.does("consent", role="operator", key=KEYS["operator"], **hashes)
    assert program.ask("arm", **hashes).reason == (
        "rung g needs the consent of the responsible (roles.responsible in the rig file bench_simulated)"
    )
    wrong = program.ask("consent", role="responsible", key=KEYS["operator"], **hashes)
    assert wrong.reason.endswith("not the key of the responsible, but that of the operator: it counts for nothing")
    program.does("consent", role="responsible", key=KEYS["responsible"], **hashes)
    told = program.does("arm", **hashes)
    assert told.result.endswith(f"by {BOTH}")
    program.does("run")
    program.does("finish")
    record = procedure.read(tmp_path / "test")
    consents = [act for act in record.acts if act.act == "consent" and not act.refused]
    assert {name for act in consents for name in act.arguments} == {"role", "what", *hashes}
    assert consents[-1].result.startswith("R. Sponsible (responsible) consents to rung g, scenario ")
    assert all(act.way.startswith("socket, user") for act in consents)
    shown = acts(record)[0].grid
    assert shown is not None
    assert [row[3] for row in shown.rows if row[1] == "sign_for" and "REFUSED" not in row[3]] == [BOTH] * 2
    deviations = next(part for part in head(record, None) if part.title.startswith("Deviations"))
    assert [words.endswith(f"signed for by {BOTH}") for words in deviations.items] == [True] * 2
    assert record.rungs[-1].remarks[0].startswith("armed by A. Tester (operator) and R. Sponsible (responsible)")
    assert keys_in(tmp_path) == []


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("role", ROLES)
def test_no_act_but_a_consent_has_a_role(served, act: str, role: str) -> None:
    """Whoever says that he has one, in any other act, says so with an argument that it does not have."""
    program = served()
    told = program.ask(act, role=role, name=NAMES[role], key=KEYS[role])
    if ACTS[act].anybody:  # which are refused for nothing that is said with them
        assert told.done == (act == "stop")
        assert "argument" not in told.reason
    elif act == "consent":
        assert told.reason == "consent: the rig is not connected"
    else:
        assert not told.done
        assert re.search(rf"^{act}: (lacks|has no argument)", told.reason)
    assert not any(key in str(program.served._runner.record.acts) for key in KEYS.values())


def test_a_signature_of_one_person_counts_no_more_once_there_are_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulator, "simulated", False)
    rig = tmp_path / "bench.yaml"
    bounded = rig_walk.RIG.replace("deceleration: 20.0}", "deceleration: 20.0, tracking_error: 0.02}")
    noise = ["axes.story_1.sensors.displacement_noise_rms=2e-6", "axes.story_1.sensors.force_noise_rms=50"]

    def unsigned(number: int, roles: Any) -> list[str]:
        """What is to be signed for, and is then."""
        scenario = files.load(NAME, ["duration=0.3", *noise], rig=str(rig))
        record = ProcedureRecord("test", NAME, "", operator=NAMES["operator"])
        runner = ProcedureRunner(
            Ladder(scenario, ("g",), 0.3, 2, False), record, tmp_path / str(number), roles=roles
        )
        with signatures.kept(runner, str(rig), lambda words: pytest.fail(str(words))):
            runner.do("connect")
            runner.do("take_offsets", seconds=0.1)
            runner.do("confirm_offsets", hash=runner.taken.hash, unloaded=True)
            wanting = runner.session.clearance.wanting()
            for each in wanting:
                for role in ROLES if roles else ():
                    consent_to(runner.session, role, what=each.words)
                runner.do("sign_for", what=each.words)
        runner.session.close()
        return [each.name for each in wanting]

    rig.write_text(bounded)
    first = unsigned(1, None)
    kept = rig.with_suffix(signatures.SUFFIX)
    assert len(first) == 3
    assert "responsible" not in kept.read_text()
    assert unsigned(2, None) == []
    assert unsigned(3, ROLES_OF_BENCH) == first, "the operator alone has signed for them"
    assert kept.read_text().count("responsible: R. Sponsible") == 3
    assert unsigned(4, ROLES_OF_BENCH) == []
    assert unsigned(5, None) == []


class Person:
    """Answers of people at a terminal: lines that are shown, and keys that are not."""

    def __init__(self, keys: dict[str, list[str]]) -> None:
        self.keys, self.asked = keys, []

    def line(self, question: str) -> str:
        raise AssertionError(question)

    def unseen(self, question: str) -> str:
        self.asked.append(question)
        return self.keys[question.split()[3].rstrip(",")].pop(0)


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A terminal at which nobody types while something moves."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as quiet:
        monkeypatch.setattr(sys, "stdin", quiet)
        yield
    os.close(writer)


def by_answers(
    folder: Path, person: Person | None, rig: str = BENCH, **changed: Any
) -> tuple[int, ProcedureRecord]:
    """A test by a file of answers, with a person at the terminal or nobody."""
    runner = runner_of(folder, rig)
    said: list[Any] = []
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in (ANSWERS | changed).items()}
    ask = person.line if person is not None else None
    dialogue = Dialogue(Answers(**given), ask, said.append, person.unseen if person is not None else ask)

    class Bar:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

        def __call__(self, *_: object) -> None: ...

        def starting(self, _: str) -> None: ...

    code = Console(runner, dialogue, lambda name: Bar(), leads=False).run()
    return code, runner.record


def test_a_file_of_answers_signs_for_nobody_else(tmp_path: Path, stdin: None) -> None:
    """It has the word of the operator, and no key: both are typed at the terminal, once for all signatures."""
    person = Person({"operator": [KEYS["operator"]] * 2, "responsible": [KEYS["responsible"]] * 2})
    code, record = by_answers(tmp_path, person, UNKNOWN, sign_for=["story_1"])
    assert (code, record.outcome) == (0, "finished")
    assert person.asked == ["key of the operator, A. Tester: ", "key of the responsible, R. Sponsible: "] * 2
    assert [act.act for act in record.acts if act.act in ("consent", "sign_for", "arm")] == [
        *["consent", "consent", "sign_for"] * 2,
        *["consent", "consent", "arm"],
    ]
    assert {act.way for act in record.acts if act.act in ("consent", "arm")} == {"terminal"}


def test_without_a_terminal_a_file_of_answers_neither_signs_nor_arms(tmp_path: Path) -> None:
    for place, rig, last in (("one", UNKNOWN, "check"), ("two", BENCH, "position")):
        (tmp_path / place).mkdir()
        code, record = by_answers(tmp_path / place, None, rig, sign_for=["story_1"])
        assert (code, record.outcome) == (130, "held")
        assert "nobody can be asked: key of the operator" in record.reason
        assert [act.act for act in record.acts][-2:] == [last, "finish"]


def test_a_key_that_does_not_fit_arms_nothing(tmp_path: Path, stdin: None) -> None:
    person = Person({"operator": [KEYS["operator"]], "responsible": ["", "guess", KEYS["operator"], "never"]})
    code, record = by_answers(tmp_path, person)
    assert (code, record.outcome) == (2, "refused")
    assert record.reason.endswith(
        "not the key of the responsible, but that of the operator: it counts for nothing"
    )
    assert record.rungs == []
    assert person.keys["responsible"] == ["never"]


def test_a_key_that_was_mistyped_is_typed_again(tmp_path: Path, stdin: None) -> None:
    person = Person({"operator": ["correct horse batery", KEYS["operator"]], "responsible": [KEYS["responsible"]]})
    code, record = by_answers(tmp_path, person)
    assert (code, record.outcome) == (0, "finished")
    assert [bool(act.refused) for act in record.acts if act.act == "consent"] == [True, False, False]


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    """Starts ``rths`` at a terminal."""
    made: list[Terminal] = []

    def start(*words: str) -> Terminal:
        made.append(Terminal([sys.executable, "-m", "rths_nodes.app.cli", *words], tmp_path, environment))
        return made[-1]

    yield start
    for terminal in made:
        terminal.close()


def refused_at_start(folder: Path, capsys: pytest.CaptureFixture[str], **changed: Any) -> str:
    (folder / "bench.yaml").write_text(BENCH + TEXT)
    (folder / "answers.yaml").write_text(yaml.safe_dump(ANSWERS | changed))
    words = ["--rig", str(folder / "bench.yaml"), "--answers", str(folder / "answers.yaml")]
    assert main(["test", NAME, "--set=duration=0.1", *words, "--record", str(folder / "test")]) == 2
    assert not (folder / "test").exists()
    return " ".join(capsys.readouterr().err.split())


def test_what_nobody_could_consent_to_is_refused_before_anything_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused_at_start(tmp_path, capsys)
    assert "rung g: needs the consents of operator (A. Tester) and responsible (R. Sponsible): their keys" in told
    told = refused_at_start(tmp_path, capsys, operator="E. Lse")
    assert "operator = 'E. Lse': must be of roles.operator: A. Tester" in told


@pytest.mark.long
@pytest.mark.nodes
def test_a_rig_gets_its_roles_and_two_people_at_one_terminal_run_a_test(start, tmp_path: Path) -> None:
    """From ``rths roles`` to the report, by real processes; the operator alone tries the other role before."""
    made = start("roles", "--operator", "A. Tester", "--operator", "B. Tester", "--responsible", "R. Sponsible")
    for role, key in KEYS.items():
        for typed in ("short", key, "another one, not the same", key, key):
            made.wait_for(f"key of the {role}, at least 12 characters: |the same again: ")
            made.type(typed)
    assert made.end() == 0, made.shown
    assert "5 characters: must be >= 12" in made.shown
    section = made.shown[made.shown.index("roles:") : made.shown.index("note: into the rig file")].replace(
        "\r", ""
    )
    (tmp_path / "bench.yaml").write_text(BENCH + section)
    assert files.load_rig(tmp_path / "bench.yaml").roles is not None

    head = {key: ANSWERS[key] for key in ("operator", "specimen", "rungs", "test_id")}
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(head))
    shell = start("test", NAME, "--rig", "bench.yaml", "--set=duration=0.3", "--answers", "answers.yaml")
    shell.wait_for("offsets_seconds.*: ")
    shell.type("0.2")
    shell.wait_for("confirm these offsets.*: ")
    shell.type("y")
    shell.wait_for("carry nothing now.*: ")
    shell.type("y")
    shown = shell.wait_for("type the first 6 characters of the scenario's hash: ")
    found = re.search(r"scenario\s+│ (\w{16})", shown)
    assert found
    shell.type(found[1][:6])
    shell.wait_for(r"name of the operator \(A. Tester, B. Tester\): ")
    shell.type("A. Tester")
    shell.wait_for("key of the operator, A. Tester: ")
    shell.type(KEYS["operator"])
    shell.wait_for("key of the responsible, R. Sponsible: ")
    shell.type(KEYS["responsible"])
    shell.wait_for("rung g is armed.*by A. Tester .operator. and R. Sponsible .responsible.")
    shell.wait_for("unload|finished")
    shell.type("n")
    assert shell.end() == 0, shell.shown
    folder = tmp_path / "runs" / "first"
    assert procedure.read(folder).outcome == "finished"
    report = (folder / "report.html").read_text()
    assert (
        "armed by A. Tester (operator) and R. Sponsible (responsible), both needed by roles in the rig file"
        in report
    )
    assert "R. Sponsible (responsible) consents to rung g" in report
    assert not any(key in made.shown + shell.shown for key in KEYS.values())
    assert keys_in(tmp_path) == []


@pytest.mark.long
@pytest.mark.nodes
def test_an_operator_who_leads_alone_gets_no_further_than_the_start(start, tmp_path: Path) -> None:
    (tmp_path / "bench.yaml").write_text(BENCH + TEXT)
    alone = start("test", NAME, "--rig", "bench.yaml", "--set=duration=0.3", "--no-report")
    alone.wait_for("operator: .*: ")
    alone.type("A. Tester")
    alone.wait_for("specimen: .*: ")
    alone.type("D-17")
    proposed = r"act \(Enter: (\w+)[^:]*(: all)?.*\): "
    alone.wait_for(proposed)
    alone.type("consent responsible")
    alone.wait_for("refused: consent: the rig is not connected")
    for act in ("rehearse", "rehearse", "connect", "take_offsets"):
        alone.wait_for(proposed)
        alone.type(act)
    alone.wait_for("offsets_seconds.*: ")
    alone.type("0.2")
    alone.wait_for(proposed)
    alone.type("confirm_offsets")
    for _ in range(2):
        alone.wait_for(r"\[y/N\]: ")
        alone.type("y")
    for act in ("check", "position", "arm g"):
        alone.wait_for(proposed)
        alone.type(act)
    shown = alone.wait_for("type the first 6 characters of the scenario's hash: ")
    found = re.search(r"scenario\s+│ (\w{16})", shown)
    assert found
    alone.type(found[1][:6])
    for _ in range(4):
        alone.wait_for(r"key of the \w+, \w\. \w+: ")
        alone.type(KEYS["operator"])
    alone.wait_for("refused: consent: this is not the key of the responsible, but that of the operator")
    alone.wait_for(proposed)
    alone.type("consent director")
    alone.wait_for("refused: role: unknown role 'director'")
    alone.wait_for(proposed)
    alone.type("consent responsible")
    for _ in range(3):
        alone.wait_for("key of the responsible, R. Sponsible: ")
        alone.type("")
    alone.wait_for("refused: consent: .*")
    alone.wait_for(proposed)
    alone.type("finish")
    assert alone.end() == 130, alone.shown
    (folder,) = (tmp_path / "runs").iterdir()
    assert "arm" not in [act.act for act in procedure.read(folder).acts if not act.refused]
    assert not any(key in alone.shown for key in KEYS.values())
