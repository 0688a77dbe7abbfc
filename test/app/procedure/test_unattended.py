# SPDX-License-Identifier: Apache-2.0
"""A real rig is armed and moved by a person at the terminal, never by a file of answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from messages import mentions
from named_motions import NAMED

from rths_nodes.app.cli import main
from rths_nodes.loop.scenario import files
from rths_nodes.recording import procedure

NAME = "chen_ricles_2010"
ANSWERS = {
    "test_id": "first",
    "operator": "A. Tester",
    "specimen": "D-17",
    "rungs": ["a"],
    "arm": ["d", "g"],
    "notes": ["bolts tightened"],
}

Carry = Callable[..., int]


@pytest.fixture
def carry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Carry:
    """``rths test`` by a file of answers, up to rung a, on a bench behind udp with these ``keys`` as well."""
    monkeypatch.chdir(tmp_path)

    def carry(*words: str, emulator: bool = False, answers: dict[str, object] = ANSWERS, **keys: object) -> int:
        rig = yaml.safe_load(files.locate("bench_udp", files.RIG).read_text()) | keys
        rig["port"]["emulator"] = emulator
        rig["axes"]["bench"]["limits"]["tracking_error"] = 0.02
        Path("bench.yaml").write_text(yaml.safe_dump(rig))
        Path("answers.yaml").write_text(yaml.safe_dump(answers))
        given = ["test", NAME, "--rig", "bench.yaml", "--set=duration=0.1", "--answers", "answers.yaml"]
        return main([*given, "--no-report", *words])

    return carry


def test_a_file_neither_arms_nor_moves_a_real_rig(carry: Carry, capsys: pytest.CaptureFixture[str]) -> None:
    assert carry(answers=ANSWERS | NAMED) == 2
    told = capsys.readouterr().err
    assert mentions(
        told, "answers.yaml", *(f"{act}.moves = y" for act in NAMED), "arm = d, g", "port.emulator = false"
    )
    assert not Path("runs").exists()


@pytest.mark.parametrize("value", [True, False])
def test_the_key_that_let_a_file_move_a_real_rig_is_refused_by_name(
    carry: Carry, value: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert carry(unattended=value) == 2
    told = capsys.readouterr().err
    for part in ("bench.yaml", "unattended", "a person clears each motion", "Delete"):
        assert part in told


@pytest.mark.parametrize(
    "changed", [{"emulator": True}, {"answers": ANSWERS | {"arm": [], "unload": {"moves": "n"}}}], ids=str
)
def test_nothing_is_asked_for_where_nothing_real_is_armed_by_the_file(
    carry: Carry, changed: dict[str, object]
) -> None:
    assert carry(**changed) == 0


@pytest.mark.parametrize(
    ("option", "instead"),
    [("--services", ("--socket",)), ("--key=key", ("not signed",)), ("--operator=root", ("as the user",))],
)
def test_options_of_acts_over_ros_are_refused_with_what_replaces_them(
    carry: Carry, option: str, instead: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert carry(option, emulator=True) == 2
    told = capsys.readouterr().err
    assert f"{option.partition('=')[0]}: was removed" in told
    assert mentions(told, *instead)
    assert not Path("runs").exists()


def test_an_act_of_the_file_says_that_it_came_from_there(carry: Carry) -> None:
    assert carry(emulator=True) == 0
    acts = procedure.read(Path("runs/first")).acts
    assert [(act.act, act.by, act.way) for act in acts] == [
        ("note", "A. Tester", "answers"),
        ("rehearse", "A. Tester", "answers"),
    ]
