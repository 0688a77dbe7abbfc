# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths check``: kinds of files, their refusals, and the disk space of a recording."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from command_fixtures import RunCommand
from messages import mentions

import rths_nodes
from rths_nodes.app.commands.check import described_file
from rths_nodes.app.procedure import answers
from rths_nodes.app.studies import competition
from rths_nodes.core.text_files import write
from rths_nodes.loop.commissioning import Commissioning
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.recording import bag, commissioning, plain, procedure, signatures

ROOT = Path(__file__).resolve().parents[2]
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
    "feedforward": {"displacement": [[1.0]], "velocity": [[0.01]], "acceleration": [[0.0]], "jerk": [[0.0]]},
}


def write_yaml(path: Path, data: object) -> Path:
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
def test_kind_of_shipped_file(name: str, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert mentions(described_file(name)[0], *parts)


def write_entry(path: Path) -> None:
    content = dict.fromkeys(competition.PARTS, "") | {"version": competition.VERSION, "laws": {"inverse": {}}}
    competition.write_entry(content | {"digest": competition.digest(content)}, path)


@pytest.mark.parametrize(
    ("write", "parts"),
    [
        (lambda path: write_yaml(path, STUDY), ("study", "gains", "2 runs")),
        (lambda path: write_yaml(path, MAP), ("columns", "story")),
        (lambda path: write_yaml(path, MODEL), ("model", "rig", "story", "1024 Hz")),
        (lambda path: path.write_text(answers.template(("a", "b"))), ("answers", "operator")),
        (
            lambda path: commissioning.write(
                Commissioning("wall", "0" * 8, "", "udp", "A", "B", "2026-03-02"), path
            ),
            ("commissioning", "2026-03-02"),
        ),
        (
            lambda path: write(path, plain.text_of(signatures.Signatures("0" * 8), signatures.VERSION)),
            ("signatures", "0 signed cautions"),
        ),
        (write_entry, ("entry", "scoreboard", "inverse")),
    ],
)
def test_kind_of_written_file(write: Callable[[Path], object], parts: tuple[str, ...], tmp_path: Path) -> None:
    write(path := tmp_path / "a file.yaml")
    assert mentions(described_file(str(path))[0], *parts)
    assert f" {path}" not in described_file(str(path))[1]  # quoted for the shell


def test_kinds_of_test_folder_and_record(tmp_path: Path) -> None:
    procedure.write(ProcedureRecord("wall_1", "scenario", "0" * 8), tmp_path)
    for path, kind in ((tmp_path, "folder of a test"), (tmp_path / procedure.FILE, "record of a test")):
        assert mentions(described_file(str(path))[0], kind, "wall_1", "0 rungs")


@pytest.mark.parametrize("name", ["config/stack/diagnostics.yaml", "package.xml", "README.md", "doc/page.png"])
def test_unknown_file_is_refused_with_known_kinds(
    name: str, refusal: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert mentions(refusal("check", name), name, "kind", "scenario", "rig file", "study", "recording")


def test_unreadable_file_is_refused_with_path(tmp_path: Path, refusal: RunCommand) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("pipe", "binary.yaml"):
        assert mentions(refusal("check", str(tmp_path / name)), name)


def test_overrides_of_rig_file_are_refused(refusal: RunCommand) -> None:
    assert mentions(refusal("check", "bench_udp", "--set", "duration=1"), "--set", "rig file")


@pytest.mark.parametrize("broken", [{"servo_rate": -1.0}, {"ports": 1}])
def test_invalid_rig_file_is_refused_with_key(
    broken: dict[str, object], tmp_path: Path, refusal: RunCommand
) -> None:
    data = yaml.safe_load((ROOT / "config" / "rigs" / "bench_simulated.yaml").read_text(encoding="utf-8"))
    assert mentions(refusal("check", str(write_yaml(tmp_path / "rig.yaml", data | broken))), *broken)


@pytest.mark.parametrize("name", ["chen_ricles_2010", "three_independent_axes"])
def test_check_prints_the_size_of_a_recording(
    name: str, tmp_path: Path, output: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    close = bag.Writer.close

    def measure_and_close(writer: bag.Writer, information: Mapping[str, str]) -> None:
        writer.flush()
        sizes.append(writer.path.stat().st_size)
        close(writer, information)

    monkeypatch.setattr(bag.Writer, "close", measure_and_close)
    rths_nodes.run(name, ["duration=4"], record=tmp_path / "run")
    megabytes = re.search(r"recording: ([\d.]+) MB", output("check", name, "--set", "duration=4"))[1]
    assert float(megabytes) == pytest.approx(1e-6 * sizes[0], rel=0.05)
