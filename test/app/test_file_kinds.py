# SPDX-License-Identifier: Apache-2.0
"""``rths check FILE`` names the kind of a file, reads it completely, and refuses others with the known kinds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from messages import mentions

from rths_nodes.app.cli import main
from rths_nodes.app.commands.file_kinds import described
from rths_nodes.app.procedure import answers, signatures
from rths_nodes.app.studies import entries
from rths_nodes.loop.commissioning import Commissioning
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.recording import commissioning, plain, procedure

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "test" / "recording" / "version_0_1_0"
STUDY = {
    "version": 1,
    "name": "gains",
    "scenario": "chen_ricles_2010",
    "factors": {"compensator.alpha_es": {"list": [20.0, 29.0]}},
}
MM = {"column": "x", "unit": "mm"}
MAP = {"version": 1, "servo_rate": 1024.0, "axes": {"story": {"command": MM, "displacement": MM}}}
MODEL = {
    "version": 1,
    "axes": ["story"],
    "servo_rate": 1024.0,
    "feedforward": {
        "displacement": [[1.0]],
        "velocity": [[0.01]],
        "acceleration": [[0.0]],
        "jerk": [[0.0]],
    },
}


def written(path: Path, data: object) -> Path:
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("bench_udp", ("rig file", "bench_udp", "udp", "axes bench")),
        ("config/settings/rths_benchmark_2020.yaml", ("settings", "inverse")),
        ("config/ground_motions/elcentro_1940_ns.txt", ("ground motion", "1560", "0.02 s", "g")),
        ("test/recording/version_0_1_0", ("recording", "chen_ricles_2010", "samples", "finished")),
        ("test/recording/version_0_1_0/chen_ricles_0_1_0_0.mcap", ("recording", "chen_ricles_2010")),
    ],
)
def test_a_shipped_file_has_a_kind(name: str, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    described_as = described(name)
    assert described_as is not None
    assert mentions(described_as[0], *parts)


@pytest.mark.parametrize(
    ("write", "parts"),
    [
        (lambda path: written(path, STUDY), ("study", "gains", "2 runs")),
        (lambda path: written(path, MAP), ("columns", "story")),
        (lambda path: written(path, MODEL), ("model", "rig", "story", "1024 Hz")),
        (lambda path: path.write_text(answers.template(("a", "b"))), ("answers", "operator")),
        (
            lambda path: commissioning.write(
                Commissioning("wall", "0" * 8, "", "udp", "A", "B", "2026-03-02"), path
            ),
            ("commissioning", "2026-03-02"),
        ),
        (
            lambda path: plain.write(path, plain.text_of(signatures.Signatures("0" * 8), signatures.VERSION)),
            ("signatures", "0 signed cautions"),
        ),
    ],
)
def test_a_written_file_has_a_kind(
    write: Callable[[Path], object], parts: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "file.yaml"
    write(path)
    described_as = described(str(path))
    assert described_as is not None
    assert mentions(described_as[0], *parts)


def test_the_folder_of_a_test_and_its_record_have_kinds(tmp_path: Path) -> None:
    procedure.write(ProcedureRecord("wall_1", "scenario", "0" * 8), tmp_path)
    for place, kind in ((tmp_path, "folder of a test"), (tmp_path / procedure.FILE, "record of a test")):
        described_as = described(str(place))
        assert described_as is not None
        assert mentions(described_as[0], kind, "wall_1", "0 rungs")


def test_an_entry_has_a_kind_and_is_refused_if_altered(tmp_path: Path) -> None:
    content = dict.fromkeys(entries.PARTS, "") | {"version": entries.VERSION, "laws": {"inverse": {}}}
    content["digest"] = entries.digest(content)
    entries.write(content, tmp_path / "entry.yaml")
    assert mentions(str(described(str(tmp_path / "entry.yaml"))), "entry", "scoreboard", "inverse")


@pytest.mark.parametrize("name", ["config/stack/diagnostics.yaml", "package.xml", "README.md", "doc/page.png"])
def test_another_file_is_refused_with_the_known_kinds(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["check", name]) == 2
    assert mentions(capsys.readouterr().err, name, "kind", "scenario", "rig file", "study", "recording")


def test_a_file_that_cannot_be_read_is_refused_with_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("pipe", "binary.yaml"):
        assert main(["check", str(tmp_path / name)]) == 2
        assert mentions(capsys.readouterr().err, name)


def test_options_of_a_scenario_are_refused_for_another_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "bench_udp", "--set", "duration=1"]) == 2
    assert mentions(capsys.readouterr().err, "--set", "rig file")


@pytest.mark.parametrize("broken", [{"servo_rate": -1.0}, {"ports": 1}])
def test_a_broken_rig_file_is_refused_by_path(
    broken: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = yaml.safe_load((ROOT / "config" / "rigs" / "bench_simulated.yaml").read_text(encoding="utf-8"))
    assert main(["check", str(written(tmp_path / "rig.yaml", data | broken))]) == 2
    assert mentions(capsys.readouterr().err, *broken)
