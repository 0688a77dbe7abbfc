# SPDX-License-Identifier: Apache-2.0
"""Tests of files of answers at a real rig, which is armed and moved by a person only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from messages import each_mentions, mentions
from rig_runner import NAMED

from rths_nodes.app.cli import main
from rths_nodes.loop.scenario import files
from rths_nodes.recording import procedure

ANSWERS = {
    "test_id": "first",
    "operator": "A. Tester",
    "specimen": "D-17",
    "rungs": ["a"],
    "arm": ["d", "g"],
    "notes": ["bolts tightened"],
}
RunTest = Callable[..., int]


@pytest.fixture
def run_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTest:
    """Runs ``rths test`` by a file of answers, up to rung a, on a bench with the port udp and these ``keys``."""
    monkeypatch.chdir(tmp_path)

    def run_test(*options: str, emulator: bool = False, answers: object = ANSWERS, **keys: object) -> int:
        rig = yaml.safe_load(files.locate("bench_udp", files.RIG).read_text()) | keys
        rig["port"]["emulator"] = emulator
        rig["axes"]["bench"]["limits"]["tracking_error"] = 0.02
        Path("bench.yaml").write_text(yaml.safe_dump(rig))
        Path("answers.yaml").write_text(yaml.safe_dump(answers))
        inputs = ("--rig", "bench.yaml", "--set=duration=0.1", "--answers", "answers.yaml")
        return main(["test", "chen_ricles_2010", *inputs, "--no-report", *options])

    return run_test


def test_file_cannot_arm_or_move_a_real_rig(run_test: RunTest, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_test(answers=ANSWERS | NAMED) == 2
    motions = (f"{act}.moves = y" for act in NAMED)
    assert mentions(capsys.readouterr().err, "answers.yaml", *motions, "arm = d, g", "port.emulator = false")
    assert not Path("runs").exists()


@pytest.mark.parametrize("value", [True, False])
def test_removed_key_unattended_is_refused(
    run_test: RunTest, value: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_test(unattended=value) == 2
    reason = capsys.readouterr().err
    for part in ("bench.yaml", "unattended", "a person clears each motion", "Delete"):
        assert part in reason


@pytest.mark.parametrize(
    "changed", [{"emulator": True}, {"answers": ANSWERS | {"arm": [], "unload": {"moves": "n"}}}], ids=str
)
def test_file_is_accepted_if_it_arms_no_real_rig(run_test: RunTest, changed: dict[str, object]) -> None:
    Path("bench.signed.yaml").touch()  # a damaged file, which is read only for a caution on a real rig
    assert "emulator" in changed or run_test("--set=port.silence=5", **changed) == 2
    assert not Path("runs").exists()
    assert run_test(**changed) == 0


def test_all_removed_options_are_named_at_once(run_test: RunTest, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_test("--services", "--key=key") == 2
    assert each_mentions(capsys.readouterr().err.splitlines(), ["--services: was"], ["--key: was"])


def test_answer_to_unknown_checklist_item_is_refused(
    run_test: RunTest, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = ANSWERS | {"checklist": {"bolts tight": "y", "doors closed": "y"}}
    assert run_test(emulator=True, answers=answers, checklist=["bolts tightened", "doors closed"]) == 2
    assert mentions(capsys.readouterr().err, "answers.yaml: checklist", "'bolts tight'", "'bolts tightened'")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("option", "instead"),
    [("--services", ("--socket",)), ("--key=key", ("not signed",)), ("--operator=root", ("as the user",))],
)
def test_removed_options_are_refused_with_their_replacement(
    run_test: RunTest, option: str, instead: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_test(option, emulator=True) == 2
    assert mentions(reason := capsys.readouterr().err, *instead)
    assert f"{option.partition('=')[0]}: was removed" in reason
    assert not Path("runs").exists()


def test_acts_of_the_file_are_recorded_as_such(run_test: RunTest) -> None:
    assert run_test(emulator=True) == 0
    acts = procedure.read(Path("runs/first")).acts
    source = ("A. Tester", "answers")
    assert [(act.act, act.by, act.way) for act in acts] == [("note", *source), ("rehearse", *source)]
