# SPDX-License-Identifier: Apache-2.0
"""Recordings that other tools have written again: without schema, summary or metadata, or compressed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from mcap.reader import make_reader
from messages import mentions

from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.recording import bag
from rths_nodes.recording.reading import read_run

Shared = Callable[[str], Path]
SAMPLES, MESSAGES = 2051, 8415
"""Of the test in each of them."""


@pytest.fixture
def copied(shared_data: Shared, tmp_path: Path) -> Callable[[str], Path]:
    """Returns the folder of a copy of one of the inputs."""

    def copied(name: str) -> Path:
        source = shared_data(f"../inputs/turn4/{name}/a_0.mcap")
        folder = tmp_path / name
        folder.mkdir()
        shutil.copyfile(source, folder / "a_0.mcap")
        return folder

    return copied


@pytest.mark.parametrize("name", ["m_noschema", "m_nosummary"])
def test_a_valid_file_of_another_writer_is_read(name: str, copied: Callable[[str], Path]) -> None:
    run = read_run(copied(name))
    assert (len(run.time), run.notes) == (SAMPLES, ())
    assert run.displacement.max() > 0.005


@pytest.mark.parametrize("name", ["m_noschema", "m_nosummary"])
def test_it_has_a_report_and_nothing_to_recover(
    name: str, copied: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(name)
    before = (folder / "a_0.mcap").read_bytes()
    assert main(["recover", str(folder)]) == 0
    assert mentions(capsys.readouterr().out, "complete", MESSAGES + (name == "m_noschema"))
    assert (folder / "a_0.mcap").read_bytes() == before
    assert main(["report", str(folder), "--out", str(folder / "page.html")]) == 0
    assert (folder / "page.html").stat().st_size > 10_000


def test_a_channel_without_a_schema_is_kept_in_the_index(copied: Callable[[str], Path]) -> None:
    found = bag.read(copied("m_noschema"))
    assert (found.topics["/lab/raw"].type, found.counts["/lab/raw"], found.definitions["/lab/raw"]) == ("", 1, "")
    assert sum(1 for topic, *_ in found.messages() if topic == "/lab/raw") == 1


def test_a_damaged_file_of_ours_with_such_a_channel_is_recovered(
    copied: Callable[[str], Path], tmp_path: Path
) -> None:
    """The copy has the channel with its number, 0 as its schema."""
    from rths_nodes.recording.journal import index

    index(copied("m_noschema") / "a_0.mcap", tmp_path / "again.mcap")
    with (tmp_path / "again.mcap").open("rb") as stream:
        rows = [(schema, channel.topic) for schema, channel, _ in make_reader(stream).iter_messages(["/lab/raw"])]
    assert rows == [(None, "/lab/raw")]


def test_damage_without_a_summary_is_reported(copied: Callable[[str], Path]) -> None:
    file = copied("m_nosummary") / "a_0.mcap"
    data = bytearray(file.read_bytes())
    data[20_000:20_010] = b"\xff" * 10
    file.write_bytes(bytes(data))
    with pytest.raises(ConfigError) as refusal:
        read_run(file)
    assert mentions(str(refusal.value), "a_0.mcap")


def test_dropped_metadata_are_named(copied: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(copied("m_nometa"))]) == 2
    assert mentions(capsys.readouterr().err, "m_nometa", "metadata", "converter")


def test_a_recording_of_another_package_has_no_dropped_metadata(tmp_path: Path) -> None:
    from mcap.writer import Writer

    out = BytesIO()
    writer = Writer(out)
    writer.start(profile="ros2", library="other")
    schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
    channel = writer.register_channel("/words", "cdr", schema)
    writer.add_message(channel, 0, b"\0\1\0\0\1\0\0\0\0", 0)
    writer.finish()
    (tmp_path / "other.mcap").write_bytes(out.getvalue())
    with pytest.raises(ConfigError) as refusal:
        read_run(tmp_path / "other.mcap")
    assert not mentions(str(refusal.value), "metadata")
    assert mentions(str(refusal.value), "other.mcap", "scenario")


@pytest.mark.parametrize("place", ["file", "directory"])
def test_a_compressed_file_is_named_with_its_remedy(place: str, tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    file = tmp_path / "a_0.mcap.zstd"
    file.write_bytes(zstandard.ZstdCompressor().compress(b"\x89MCAP0\r\n" + bytes(1000)))
    with pytest.raises(ConfigError) as refusal:
        read_run(file if place == "file" else tmp_path)
    assert mentions(str(refusal.value), "a_0.mcap.zstd", "unzstd")
