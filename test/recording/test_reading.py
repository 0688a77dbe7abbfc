# SPDX-License-Identifier: Apache-2.0
"""Tests of reading: other layouts, missing components, and files that other tools have rewritten."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from mcap.reader import make_reader
from mcap.writer import IndexType, Writer
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.report.document import render
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core import registry, wire
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording import bag
from rths_nodes.recording.bag import index
from rths_nodes.recording.reading import streams_of
from rths_nodes.recording.run import Run

Changed = Callable[[Callable[[bag.Bag], dict[str, Any]]], Run]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> hosts.RunResult:
    return hosts.run("chen_ricles_2010", ["duration=1"], record=tmp_path_factory.mktemp("recorded") / "run")


@pytest.fixture
def changed(result: hosts.RunResult, monkeypatch: pytest.MonkeyPatch) -> Changed:
    """Reads the recording with the attributes that a function of it returns."""
    original = bag.read(result.recording)

    def read(change: Callable[[bag.Bag], dict[str, Any]]) -> Run:
        monkeypatch.setattr(bag, "read", lambda path: attrs.evolve(original, **change(original)))
        return rths_nodes.read(result.recording)

    return read


def with_scenario(old: str, new: str) -> Callable[[bag.Bag], dict[str, Any]]:
    def change(recording: bag.Bag) -> dict[str, Any]:
        text = recording.information["scenario"]
        assert old in text
        return {"information": recording.information | {"scenario": text.replace(old, new)}}

    return change


def with_target(change: Callable[[str], str]) -> Callable[[bag.Bag], dict[str, Any]]:
    """Change the definition of the message Target."""

    def changed(recording: bag.Bag) -> dict[str, Any]:
        (topic,) = (name for name in recording.definitions if name.endswith("/target"))
        return {"definitions": recording.definitions | {topic: change(recording.definitions[topic])}}

    return changed


def assert_same(run: Run, expected: Run) -> None:
    for name, values in expected.arrays().items():
        np.testing.assert_array_equal(getattr(run, name), values, err_msg=name, strict=True)
    assert (run.dof_names, run.compensator_names) == (expected.dof_names, expected.compensator_names)


def test_recording_equals_run(result: hosts.RunResult) -> None:
    run = rths_nodes.read(result.recording)
    assert_same(run, result.run)
    assert run.dof_names == ("x",)
    assert run.metrics == result.metrics


def test_recording_without_measurements_is_refused(changed: Changed) -> None:
    def remapped(recording: bag.Bag) -> dict[str, Any]:
        return {"topics": {name.replace("/measurement", "/strain"): row for name, row in recording.topics.items()}}

    with pytest.raises(ConfigError, match=naming("measurement", "remapped")):
        changed(remapped)


def test_reading_builds_no_component(result: hosts.RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "class_of", lambda family, component: pytest.fail(f"builds {family}"))
    assert_same(rths_nodes.read(result.recording), result.run)


@pytest.mark.parametrize(
    ("family", "kind"), [("compensator", "adaptive_inverse"), ("structure", "sdof"), ("specimen", "kelvin_voigt")]
)
def test_missing_component_keeps_its_parameters(
    family: str, kind: str, result: hosts.RunResult, changed: Changed
) -> None:
    run = changed(with_scenario(f"type: {kind}", "type: of_another_lab"))
    assert_same(run, result.run)
    stored, original = (
        data["axes"]["story_1"][family] if family == "specimen" else data[family]
        for data in (run.scenario.data(), result.scenario.data())
    )
    assert stored == original | {"type": "of_another_lab"}
    section = run.scenario.axes["story_1"] if family == "specimen" else run.scenario
    with pytest.raises(ConfigError, match=naming(family, "of_another_lab")):
        registry.class_of(family, getattr(section, family))


def test_component_with_unknown_parameters_is_kept(result: hosts.RunResult, changed: Changed) -> None:
    run = changed(with_scenario("alpha_es:", "alpha_of_another_version:"))
    assert_same(run, result.run)
    with pytest.raises(ConfigError, match="unknown key 'alpha_of_another_version'"):
        _ = Assembly(run.scenario).compensator


def test_report_names_sections_without_missing_component(changed: Changed) -> None:
    page = render(changed(with_scenario("type: sdof", "type: of_another_lab")))
    left_out = ("partition", "peak", "HSEM", "energy", "equilibrium", "response", "spectrum")
    assert mentions(page, "Left out", *left_out, "of_another_lab")
    assert page.count("<h3>") == 10
    page = render(changed(with_scenario("type: adaptive_inverse", "type: of_another_lab")))
    quantities = "of the compensator&#39;s quantities"
    assert mentions(page, f"units {quantities}", f"limits {quantities}")
    assert page.count("<h3>") == 16


def test_layout_is_read_from_file(result: hosts.RunResult, changed: Changed) -> None:
    """Fields with other names are other fields."""
    run = changed(with_target(lambda definition: definition.replace("] velocity ", "] pace ")))
    np.testing.assert_array_equal(run.dof_displacement, result.run.dof_displacement)
    assert run.dof_velocity.shape == result.run.dof_velocity.shape
    assert np.isnan(run.dof_velocity).all()


def test_message_of_other_layout_is_refused(changed: Changed) -> None:
    with pytest.raises(ConfigError, match=naming("/rths/target", "8 bytes")):
        changed(with_target(lambda definition: "uint32 step\n"))


def test_streams_of_two_rigs_are_refused(result: hosts.RunResult, tmp_path: Path) -> None:
    original = bag.read(result.recording)
    two = [attrs.evolve(topic, name=f"/two{name}") for name, topic in original.topics.items()]
    writer = bag.Writer(tmp_path / "both", [*original.topics.values(), *two], original.information)
    for name, data, stamp in original.messages():
        writer.write(name, data, stamp)
        if name.endswith("/measurement"):
            measured = wire.decode("Measurement", data)
            wider = {key: value * 2 for key, value in measured.items() if isinstance(value, (list, tuple))}
            writer.write(f"/two{name}", wire.encode("Measurement", measured | wider), stamp)
    writer.close({})
    with pytest.raises(ConfigError, match=naming("both", "dimension")):
        streams_of(tmp_path / "both", ("measurement",))


def test_recording_without_scenario_is_refused(changed: Changed) -> None:
    with pytest.raises(ConfigError, match=naming("scenario")):
        changed(lambda recording: {"information": {}})
    with pytest.raises(ConfigError, match=naming("mapping", "sections")):
        changed(lambda recording: {"information": {"scenario": "3"}})


STAMP = "builtin_interfaces/Time stamp\n"
VERSION_1 = {
    "Target": STAMP
    + "uint32 step\nuint32 flags\nfloat64[<=64] displacement\nfloat64[<=64] velocity\nfloat64[<=64] acceleration\n"
    "float64[<=64] exact_acceleration\nfloat64[<=64] external_force\nfloat64[<=64] restoring_force\n"
    "float64[<=16] auxiliary\n",
    "Command": STAMP
    + "uint32 sample\nuint32 flags\nuint8[<=16] control_mode\nfloat64[<=16] target\nfloat64[<=16] command\n"
    "float64[<=16] auxiliary\n",
    "Measurement": STAMP
    + "uint32 sample\nuint32 flags\nuint8[<=16] control_mode\nfloat64[<=16] displacement\nfloat64[<=16] force\n"
    "float64[<=16] command\nfloat64[<=64] auxiliary\n",
    "CompensatorState": STAMP + "uint32 sample\nuint32 flags\nfloat64[<=512] values\n",
    "NodeStatus": STAMP
    + "string node\nbool ready\nstring problem\nstring scenario_hash\nstring parameters\nstring[] state_names\n"
    "string version\n",
    "Summary": STAMP + "string node\nuint32 sample\nstring[] names\nfloat64[] values\n",
    "TestState": STAMP
    + "uint8 state\nuint32 sample\nstring reason\nstring scenario\nstring scenario_hash\nstring run_id\n"
    "float64 servo_rate\nuint32 substeps\nuint32 samples\nuint32 transport_samples\nstring[] axis_names\n"
    "string[] degree_of_freedom_names\nstring[] auxiliary_names\n",
}
"""Definitions of the messages without a header."""
VERSION_2 = {kind: wire.definition(kind).replace("string run ", "# ") for kind in (*VERSION_1, "SyncStatus")}
"""Definitions of the messages with the mark of the run in ``frame_id``."""


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2], ids=["1", "2"])
def test_earlier_message_versions_are_read(
    version: dict[str, str], result: hosts.RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = bag.read(result.recording)
    kinds = {name: topic.type.rpartition("/")[2] for name, topic in original.topics.items()}
    messages = [(name, wire.decode(kinds[name], data), stamp) for name, data, stamp in original.messages()]
    monkeypatch.setattr(bag, "definition", lambda kind: version[kind.rpartition("/")[2]])
    monkeypatch.setattr(wire, "definition", version.__getitem__)
    topics = [topic for topic in original.topics.values() if topic.type.rpartition("/")[2] in version]
    writer = bag.Writer(tmp_path / "old", topics, original.information)
    for name, values, stamp in messages:
        writer.write(name, wire.encode(kinds[name], values | {"frame_id": values["run"]}), stamp)
    writer.close({})
    monkeypatch.undo()
    run = rths_nodes.read(tmp_path / "old")
    assert_same(run, result.run)
    assert (run.metrics, run.information) == (rths_nodes.read(result.recording).metrics, original.information)


# -- Recordings that other tools have rewritten: without schema, summary or metadata, or compressed

SAMPLES, MESSAGES = 2051, 8415


@pytest.fixture
def copied(shared_data: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Returns the folder of a copy of an input."""

    def copied(name: str) -> Path:
        source = shared_data(f"../inputs/turn4/{name}/a_0.mcap")
        folder = tmp_path / name
        folder.mkdir()
        shutil.copyfile(source, folder / "a_0.mcap")
        return folder

    return copied


@pytest.mark.parametrize("name", ["m_noschema", "m_nosummary"])
def test_file_of_other_writer_is_read_and_needs_no_recovery(
    name: str, copied: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(name)
    run = rths_nodes.read(folder)
    assert (len(run.time), run.notes) == (SAMPLES, ())
    assert run.displacement.max() > 0.005
    before = (folder / "a_0.mcap").read_bytes()
    assert main(["recover", str(folder)]) == 0
    assert mentions(capsys.readouterr().out, "complete", MESSAGES + (name == "m_noschema"))
    assert (folder / "a_0.mcap").read_bytes() == before
    assert main(["report", str(folder), "--out", str(folder / "page.html")]) == 0
    assert (folder / "page.html").stat().st_size > 10_000


def test_channel_without_schema_is_kept(copied: Callable[[str], Path], tmp_path: Path) -> None:
    """The indexed copy has the channel with its number, and 0 as its schema."""
    folder = copied("m_noschema")
    recording = bag.read(folder)
    topic = "/lab/raw"
    assert (recording.topics[topic].type, recording.counts[topic], recording.definitions[topic]) == ("", 1, "")
    assert sum(1 for name, *_ in recording.messages() if name == topic) == 1
    index(folder / "a_0.mcap", tmp_path / "again.mcap")
    with (tmp_path / "again.mcap").open("rb") as stream:
        rows = [(schema, channel.topic) for schema, channel, _ in make_reader(stream).iter_messages([topic])]
    assert rows == [(None, topic)]


def test_damage_without_summary_is_reported(copied: Callable[[str], Path]) -> None:
    file = copied("m_nosummary") / "a_0.mcap"
    data = bytearray(file.read_bytes())
    data[20_000:20_010] = b"\xff" * 10
    file.write_bytes(bytes(data))
    with pytest.raises(ConfigError, match=naming("a_0.mcap")):
        rths_nodes.read(file)


def test_missing_metadata_are_reported(copied: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(copied("m_nometa"))]) == 2
    assert mentions(capsys.readouterr().err, "m_nometa", "metadata", "converter")


def test_recording_of_other_package_has_no_missing_metadata(tmp_path: Path) -> None:
    with (tmp_path / "other.mcap").open("wb") as stream:
        writer = Writer(stream)
        writer.start(profile="ros2", library="other")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
        channel = writer.register_channel("/words", "cdr", schema)
        writer.add_message(channel, 0, b"\0\1\0\0\1\0\0\0\0", 0)
        writer.finish()
    with pytest.raises(ConfigError) as refused:
        rths_nodes.read(tmp_path / "other.mcap")
    assert not mentions(str(refused.value), "metadata")
    assert mentions(str(refused.value), "other.mcap", "scenario")


@pytest.mark.parametrize("ending", ["zst", "zstd"])
@pytest.mark.parametrize("target", ["file", "directory"])
def test_compressed_file_is_refused_with_remedy(target: str, ending: str, tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    file = tmp_path / f"a_0.mcap.{ending}"
    file.write_bytes(zstandard.ZstdCompressor().compress(b"\x89MCAP0\r\n" + bytes(1000)))
    with pytest.raises(ConfigError, match=naming(file.name, "unzstd")) as refused:
        streams_of(file if target == "file" else tmp_path, ("measurement",))
    assert str(refused.value).count(": ") == 1, "the path is named once"


@pytest.mark.parametrize("left_out", [{"index_types": IndexType.NONE}, {"use_statistics": False}])
def test_index_without_some_parts(left_out: dict[str, Any], result: hosts.RunResult, tmp_path: Path) -> None:
    with bag.read(result.recording).path.open("rb") as stream, (tmp_path / "a.mcap").open("wb") as out:
        reader, writer = make_reader(stream), Writer(out, **left_out)
        writer.start(profile="ros2", library="another")
        for record in reader.iter_metadata():
            writer.add_metadata(record.name, record.metadata)
        channels: dict[str, int] = {}
        for schema, channel, message in reader.iter_messages(log_time_order=False):
            if channel.topic not in channels:
                number = writer.register_schema(schema.name, schema.encoding, schema.data)
                channels[channel.topic] = writer.register_channel(channel.topic, "cdr", number)
            writer.add_message(channels[channel.topic], message.log_time, message.data, message.publish_time)
        writer.finish()
    assert_same(rths_nodes.read(tmp_path / "a.mcap"), result.run)
    assert bag.recover(tmp_path / "a.mcap").was_complete
