# SPDX-License-Identifier: Apache-2.0
"""Tests of recordings: bit-exact round trips, independent readers, recovery of journals."""

import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from mcap.reader import make_reader
from mcap.stream_reader import StreamReader
from mcap_ros2.decoder import DecoderFactory
from messages import each_mentions, mentions, naming
from rosbags.highlevel import AnyReader
from rosbags.interfaces import QosDurability
from rosbags.typesys import Stores, get_typestore

from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Command, Measurement, Target
from rths_nodes.core.wire import Codec, RunMark, encode, mark_of
from rths_nodes.recording.bag import RecordingError, Topic, Writer, offered_qos, read, recover, type_hash

START = 1_700_000_000_000_000_000
LATCHED = offered_qos("reliable", "transient_local", 1)
TYPES = ("Target", "Command", "Measurement", "CompensatorState", "TestState", "NodeStatus", "Summary")
TOPICS = [
    Topic(f"/rths/{name.lower()}", f"rths_nodes/msg/{name}", LATCHED if name == "TestState" else offered_qos())
    for name in TYPES
]
RUN = RunMark(mark_of("r1"))
MARK = {"run": RUN.mark}
INFORMATION = {"scenario": "dt: 0.01  # s\nname: Prüfstand\n", "run_id": "r1", "servo_rate": "1000"}


def samples(index):
    """Return one message of each type: name, values, bytes, stamp."""
    numbers = np.random.default_rng(index).standard_normal
    codec = Codec(n_dof=3, n_axes=2, n_state=5, n_auxiliary=1, run=RUN)
    stamp = START + index * 1_000_000
    target = Target(index, *(numbers(3) for _ in range(6)), flags=1)
    command = Command(index, numbers(2), numbers(2), control_mode=b"\1\1")
    measured = Measurement(index, numbers(2), numbers(2), numbers(2), numbers(1), 6, b"\1\2", 3, 1)
    inner = numbers(5)
    state = {"state": 5, "sample": index, "reason": "läuft", "servo_rate": 1000.0, "substeps": 10}
    state |= {"stamp": stamp, "axis_names": ["story_1", "story_2"], "run_id": "r1"}
    status = {"stamp": stamp, "node": "integrator", "ready": True, "state_names": ["a", "b"]}
    summary = {"stamp": stamp, "sample": index, "names": ["x", "yy"], "values": [0.1, float("inf")]}
    compensator = {"sample": index, "flags": 0, "values": inner}
    messages = [
        ("Target", values_of(target), codec.pack_target(target, stamp)),
        ("Command", values_of(command), codec.pack_command(command, stamp)),
        ("Measurement", values_of(measured), codec.pack_measurement(measured, stamp)),
        ("CompensatorState", compensator | MARK, codec.pack_state(inner.tolist(), index, 0, stamp)),
        ("TestState", state, encode("TestState", state)),
        ("NodeStatus", status, encode("NodeStatus", status)),
        ("Summary", summary, encode("Summary", summary)),
    ]
    return [(name, values | {"stamp": stamp}, data, stamp) for name, values, data in messages]


def values_of(sample):
    return {name: getattr(sample, name) for name in sample.__dataclass_fields__ if name != "energies"} | MARK


def write(writer, messages):
    for name, _, data, stamp in messages:
        writer.write(f"/rths/{name.lower()}", data, stamp)


def assert_same(message, values):
    """The message has the ``values`` when decoded by another library."""
    header = message.header
    assert header.stamp.sec * SECOND + header.stamp.nanosec == values["stamp"]
    assert header.frame_id == ""
    for name in values.keys() - {"stamp"}:
        value, expected = getattr(message, name), values[name]
        if isinstance(expected, (np.ndarray, list, bytes)):
            assert list(value) == list(expected), name
        else:
            assert value == expected, name


@pytest.fixture
def recorded(tmp_path):
    """A finished recording of 50 messages of each type, and these messages."""
    directory = tmp_path / "run"
    writer = Writer(directory, TOPICS, INFORMATION)
    messages = [message for index in range(50) for message in samples(index)]
    write(writer, messages)
    writer.close({"outcome": "finished", "run_id": "r2"})
    return directory, messages


def test_round_trip_is_bit_exact(recorded):
    directory, messages = recorded
    for path in (directory, directory / "run_0.mcap", str(directory)):
        expected = [(f"/rths/{name.lower()}", data, stamp) for name, _, data, stamp in messages]
        assert list(read(path).messages()) == expected
    bag = read(directory)
    assert bag.information == INFORMATION | {"outcome": "finished", "run_id": "r2"}
    assert bag.topics == {topic.name: topic for topic in TOPICS}
    assert bag.counts == {topic.name: 50 for topic in TOPICS}


def test_rosbags_decodes_every_message(recorded):
    directory, messages = recorded
    with AnyReader([directory]) as reader:  # the types come from the embedded definitions
        decoded = {name: [] for name in TYPES}
        for connection, stamp, data in reader.messages():
            message = reader.deserialize(data, connection.msgtype)
            decoded[connection.msgtype.split("/")[-1]].append((stamp, message))
        assert reader.message_count == len(messages)
        assert (reader.start_time, reader.end_time) == (START, START + 49_000_001)
        latched = next(c for c in reader.connections if c.topic == "/rths/teststate").ext.offered_qos_profiles
    assert latched[0].durability == QosDurability.TRANSIENT_LOCAL
    for name, values, _, stamp in messages:
        decoded_stamp, message = decoded[name].pop(0)
        assert decoded_stamp == stamp
        assert_same(message, values)


def test_mcap_ros2_support_decodes_every_message(recorded):
    directory, messages = recorded
    with (directory / "run_0.mcap").open("rb") as stream:
        reader = make_reader(stream, validate_crcs=True, decoder_factories=[DecoderFactory()])
        decoded = list(reader.iter_decoded_messages(log_time_order=False))
    counts = dict.fromkeys(TYPES, 0)
    for (schema, channel, record, message), (name, values, _, stamp) in zip(decoded, messages, strict=True):
        counts[name] += 1
        assert schema.name == f"rths_nodes/msg/{name}"
        assert channel.topic == f"/rths/{name.lower()}"
        assert (record.log_time, record.publish_time, record.sequence) == (stamp, stamp, counts[name])
        assert_same(message, values)


def test_rosbag2_metadata(recorded):
    directory, messages = recorded
    bag = yaml.safe_load((directory / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    assert (bag["version"], bag["storage_identifier"]) == (9, "mcap")
    assert bag["relative_file_paths"] == ["run_0.mcap"] == [bag["files"][0]["path"]]
    for part in (bag, bag["files"][0]):
        assert part["message_count"] == len(messages)
        assert part["starting_time"]["nanoseconds_since_epoch"] == START
        assert part["duration"]["nanoseconds"] == 49_000_000
    assert bag["custom_data"] == read(directory).information
    topics = {entry["topic_metadata"]["name"]: entry for entry in bag["topics_with_message_count"]}
    state = topics["/rths/teststate"]
    assert (state["message_count"], state["topic_metadata"]["type"]) == (50, "rths_nodes/msg/TestState")
    assert state["topic_metadata"]["offered_qos_profiles"] == [LATCHED]
    with (directory / "run_0.mcap").open("rb") as stream:  # rosbag2 reads the QoS by the version given there
        reader = make_reader(stream)
        inner = next(record.metadata for record in reader.iter_metadata() if record.name == "rosbag2")
        header = reader.get_header()
        chunks = reader.get_summary().chunk_indexes
    assert yaml.safe_load(inner["serialized_metadata"]) == bag
    assert header.profile == "ros2"
    assert chunks
    assert all(chunk.message_index_offsets and chunk.compression == "zstd" for chunk in chunks)


def test_metadata_name_distribution_of_recorder(tmp_path, monkeypatch):
    monkeypatch.setenv("ROS_DISTRO", "kilted")
    writer = Writer(tmp_path / "run", TOPICS, {})
    monkeypatch.setenv("ROS_DISTRO", "jazzy")
    writer.close({})
    bag = yaml.safe_load((tmp_path / "run" / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    assert bag["ros_distro"] == "kilted"


@pytest.mark.parametrize("kind", ["sensor_msgs/msg/JointState", "diagnostic_msgs/msg/DiagnosticArray"])
def test_types_of_other_packages_are_recorded(tmp_path, kind):
    if not type_hash(kind):
        pytest.skip(f"{kind} is not installed")
    types = get_typestore(Stores.ROS2_HUMBLE)
    header = types.types["std_msgs/msg/Header"](types.types["builtin_interfaces/msg/Time"](1, 2), "base")
    if kind.startswith("sensor"):
        message = types.types[kind](header, ["a"], np.ones(1), np.zeros(1), np.zeros(0))
    else:
        pair = types.types["diagnostic_msgs/msg/KeyValue"]("k", "v")
        status = types.types["diagnostic_msgs/msg/DiagnosticStatus"](0, "n", "m", "h", [pair])
        message = types.types[kind](header, [status])
    writer = Writer(tmp_path / "run", [Topic("/other", kind)], {})
    writer.write("/other", bytes(types.serialize_cdr(message, kind)), START)
    writer.close({})
    with AnyReader([tmp_path / "run"]) as reader:  # also compares its own type hash with the recorded one
        (decoded,) = [reader.deserialize(data, kind) for _, _, data in reader.messages()]
        assert reader.connections[0].digest == type_hash(kind)
    assert repr(decoded) == repr(message)


def test_type_hash_comes_from_installed_package(tmp_path, monkeypatch):
    share = tmp_path / "share" / "rths_nodes" / "msg"
    share.mkdir(parents=True)
    entry = '{"type_name": "rths_nodes/msg/Nothing", "hash_string": "RIHS01_12"}'
    (share / "Nothing.json").write_text(f'{{"type_hashes": [{entry}]}}')
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    assert type_hash("rths_nodes/msg/Nothing") == "RIHS01_12"


@pytest.mark.parametrize("kind", ["Measurement", "rths_nodes/msg/Nonsense", "no_msgs/msg/Nothing", "a/srv/B"])
def test_unknown_type_is_refused_before_writing(tmp_path, kind):
    with pytest.raises(ConfigError, match=kind):
        Writer(tmp_path / "run", [Topic("/x", kind)], {})
    assert not (tmp_path / "run").exists()


def test_chunks_and_unordered_stamps_round_trip(tmp_path):
    writer = Writer(tmp_path / "run", TOPICS[:1], {})
    data = np.random.default_rng(1).bytes(100_000)
    sent = [("/rths/target", data[index:], START - index) for index in range(60)]
    for message in sent:
        writer.write(*message)
    writer.close({})
    bag = read(tmp_path / "run")
    assert list(bag.messages()) == sent
    with bag.path.open("rb") as stream:
        summary = make_reader(stream).get_summary()
    assert summary.statistics.chunk_count > 3
    assert summary.statistics.message_start_time == START - 59


def test_empty_recording_round_trip(tmp_path):
    writer = Writer(tmp_path / "run", TOPICS, {"a": "b"})
    writer.close({})
    writer.close({"second": "call"})
    bag = read(tmp_path / "run")
    assert list(bag.messages()) == []
    assert bag.information == {"a": "b"}
    assert len(bag.topics) == len(TOPICS)
    with AnyReader([tmp_path / "run"]) as reader:
        assert reader.message_count == 0


# -- Refusals


def test_existing_recording_is_not_overwritten(recorded, tmp_path):
    directory, messages = recorded
    with pytest.raises(ConfigError, match=naming(directory, "recording")):
        Writer(directory, TOPICS, {})
    assert len(list(read(directory).messages())) == len(messages)
    Writer(tmp_path / "journal", TOPICS, {}).flush()
    with pytest.raises(ConfigError, match=naming("recording", "already")):
        Writer(tmp_path / "journal", TOPICS, {})


@pytest.mark.parametrize("below", ["", "run", "run/deep"])
def test_path_at_or_below_file_is_refused(tmp_path, below):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=naming("recording", "directory")):
        Writer(tmp_path / "file" / below, TOPICS, {})


def test_unwritable_path_is_refused():
    with pytest.raises(ConfigError, match=naming("/proc/run", "recording")):
        Writer("/proc/run", TOPICS, {})


def test_journal_is_read_while_it_grows(tmp_path):
    writer = Writer(tmp_path / "run", TOPICS, {"run_id": "r1"})
    messages = samples(1) + samples(2)
    write(writer, messages)
    writer.flush()
    bag = read(tmp_path / "run")
    assert (bag.information, bag.topics) == ({"run_id": "r1"}, {topic.name: topic for topic in TOPICS})
    assert bag.counts == {topic.name: 2 for topic in TOPICS}
    assert mentions(bag.notes[0], "is being recorded")
    writer.write("/rths/target", b"later", START)
    writer.flush()
    assert [data for _, data, _ in bag.messages()] == [data for _, _, data, _ in messages]
    assert read(writer.path).counts["/rths/target"] == 3


@pytest.mark.parametrize("action", [read, recover])
def test_path_without_recording_is_refused(tmp_path, action):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.mcap").write_text("no recording")
    (tmp_path / "two").mkdir()
    for name in ("a.mcap", "b.mcap"):
        (tmp_path / "two" / name).write_text("")
    for name, reason in {
        "missing": "No such file",
        "text.mcap": "not a recording",
        "text.mcap/below": "Not a directory",
        "empty": "no recording",
        "two": r"a\.mcap, b\.mcap",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            action(tmp_path / name)


def test_damaged_recording_is_refused(recorded):
    path = recorded[0] / "run_0.mcap"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=r"run_0\.mcap: .*damaged"):
        list(read(path).messages())


# -- Recovery

PACKED = Codec(1, 1, 1).pack_state([1.5], 7, 0, START)
SIZE = 9 + 22 + len(PACKED)
"""Length of a message in a journal, bytes."""


@pytest.fixture
def journal(tmp_path):
    """The bytes of a journal with 4 messages."""
    writer = Writer(tmp_path / "original", TOPICS[3:4], {"run_id": "r1"})
    head = writer.path.stat().st_size
    for index in range(4):
        writer.write("/rths/compensatorstate", PACKED, START + index)
    writer.flush()
    content = writer.path.read_bytes()
    assert len(content) == head + 4 * SIZE
    return content


@pytest.fixture
def store(tmp_path):
    """Stores the bytes of a recording; returns its directory."""

    def store(content):
        directory = tmp_path / "cut"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        (directory / "run_0.mcap").write_bytes(content)
        return directory

    return store


def test_truncated_journal_keeps_complete_messages(journal, store):
    head = len(journal) - 4 * SIZE
    for cut in range(head, len(journal) + 1):
        directory = store(journal[:cut])
        complete, lost = divmod(cut - head, SIZE)
        result = recover(directory)
        assert (result.messages, result.lost_bytes, result.was_complete) == (complete, lost, False)
        bag = read(directory)
        assert [stamp - START for _, _, stamp in bag.messages()] == list(range(complete))
        assert bag.information["run_id"] == "r1"
        assert bag.information["recovered"].startswith(f"{lost} bytes")


@pytest.mark.soak
def test_journal_truncated_in_its_header(journal, store):
    for cut in range(len(journal) - 4 * SIZE):
        path = store(journal[:cut]) / "run_0.mcap"
        try:
            assert recover(path).messages == 0
        except ConfigError:
            assert cut < 100  # the header is incomplete
            assert path.read_bytes() == journal[:cut]


@pytest.mark.parametrize("tail", [bytes(5000), b"\xff" * 5000, b"\x05" + bytes(4999)])
def test_garbage_at_end_is_left_out(journal, store, tail):
    directory = store(journal + tail)
    assert (recover(directory).messages, len(list(read(directory).messages()))) == (4, 4)


def test_rosbags_reads_recovered_recording(journal, store):
    directory = store(journal[:-1])
    recover(directory)
    with AnyReader([directory]) as reader:
        assert [reader.deserialize(d, c.msgtype).values[0] for c, _, d in reader.messages()] == [1.5] * 3


def test_truncated_indexed_file_is_recovered(recorded):
    path = recorded[0] / "run_0.mcap"
    path.write_bytes(path.read_bytes()[:-200])
    assert recover(path).messages == len(recorded[1])
    assert len(list(read(path).messages())) == len(recorded[1])


def test_second_recovery_changes_nothing(journal, store, recorded):
    cut = store(journal[:-1])
    recover(cut)
    for directory, count in ((recorded[0], len(recorded[1])), (cut, 3)):
        before = {path: (path.read_bytes(), path.stat()) for path in directory.iterdir()}
        result = recover(directory)
        assert (result.messages, result.lost_bytes, result.was_complete) == (count, 0, True)
        assert {path: (path.read_bytes(), path.stat()) for path in directory.iterdir()} == before


def test_recording_in_progress_is_not_recovered(tmp_path):
    writer = Writer(tmp_path / "run", TOPICS, {})
    with pytest.raises(ConfigError, match=naming("is being recorded")):
        recover(tmp_path / "run")
    writer.close({})
    assert recover(tmp_path / "run").was_complete


def test_journal_of_other_recorder_is_refused(journal, store):
    path = store(journal.replace(b"rths_nodes", b"recorder42", 1)) / "run_0.mcap"
    with pytest.raises(ConfigError, match=r"recorded by 'recorder42'.*mcap recover"):
        recover(path)


def test_failing_close_leaves_journal(tmp_path, monkeypatch):
    writer = Writer(tmp_path / "run", TOPICS, {"run_id": "r1"})
    write(writer, samples(1)[2:3])

    def no_space(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        with pytest.raises(RecordingError, match=naming("space", "recover")):
            writer.close({"outcome": "finished"})
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run_0.mcap"]
    assert recover(tmp_path / "run").messages == 1
    assert read(tmp_path / "run").information["outcome"] == "finished"


def test_flushed_message_is_in_file(tmp_path):
    writer = Writer(tmp_path / "run", TOPICS, {})
    message = samples(1)[2]
    write(writer, [message])
    size = writer.path.stat().st_size
    writer.flush_if_due()  # not due
    assert writer.path.stat().st_size == size
    writer._due -= 1.0
    writer.flush_if_due()
    assert writer.path.stat().st_size == size + 31 + len(message[2])
    with writer.path.open("rb") as stream:  # as another reader of streams does
        records = StreamReader(stream).records
        kinds = [type(next(records)).__name__ for _ in range(1 + 2 * len(TOPICS) + 3)]
    assert (kinds[0], kinds[-3:]) == ("Header", ["Metadata", "Metadata", "Message"])


def child(script, *arguments):
    root = str(Path(__file__).resolve().parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


WRITES_FOR_EVER = """
import os, struct, sys, time
from rths_nodes.recording.bag import Topic, Writer
writer = Writer(sys.argv[1], [Topic("/rths/measurement", "rths_nodes/msg/Measurement")], {"run_id": "r1"})
while True:
    stamp = time.monotonic_ns()
    writer.write("/rths/measurement", bytes(180), stamp)
    os.write(1, struct.pack("<Q", stamp))  # report the message as written
    time.sleep(0.001)
"""


def test_killed_recorder_loses_at_most_100_ms(tmp_path):
    process = child(WRITES_FOR_EVER, tmp_path / "run")
    reported = [struct.unpack("<Q", process.stdout.read(8))[0]]
    while reported[-1] < reported[0] + 750_000_000:
        reported.append(struct.unpack("<Q", process.stdout.read(8))[0])
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read()
    process.wait()
    process.stdout.close()
    reported += struct.unpack(f"<{len(rest) // 8}Q", rest)
    result = recover(tmp_path / "run")
    stamps = [stamp for _, _, stamp in read(tmp_path / "run").messages()]
    assert result.messages == len(stamps) > 0
    assert stamps[: len(reported)] == reported[: len(stamps)]
    lost = reported[len(stamps) :]  # written after the last flush, or the next write would have flushed them
    assert not lost or lost[-1] - lost[0] <= 100_000_000


FILLS_THE_DISK = """
import resource, signal, sys
sys.dont_write_bytecode = True  # Python 3.11 keeps truncated files of modules
from rths_nodes.recording.bag import RecordingError, Topic, Writer
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = Writer(sys.argv[1], [Topic("/rths/measurement", "rths_nodes/msg/Measurement")], {"run_id": "r1"})
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    for index in range(10000):
        writer.write("/rths/measurement", bytes(180), index)
        if index % 7 == 0:
            writer.flush()
except RecordingError as error:
    print(index, error)
for action in (lambda: writer.write("/rths/measurement", b"", 0), lambda: writer.close({})):
    try:
        action()
        print("no error")
    except RecordingError as error:
        print(index, error)
"""


@pytest.mark.parametrize("lose", [shutil.rmtree, lambda folder: folder.rename(folder.with_name("moved"))])
def test_deleted_recording_is_reported_by_flush(lose, tmp_path):
    writer = Writer(tmp_path / "run", TOPICS, INFORMATION)
    lose(tmp_path / "run")
    writer.write("/rths/target", b"some", START)
    with pytest.raises(RecordingError, match=naming("run_0.mcap", "recording")):
        writer.flush()


def test_full_disk_is_reported_and_messages_are_recovered(tmp_path):
    limit = 100_000
    process = child(FILLS_THE_DISK, tmp_path / "run", limit)
    output = process.communicate()[0].decode().splitlines()
    assert process.returncode == 0
    index = int(output[0].split()[0])
    assert each_mentions(output, *[(index, f"{tmp_path}/run/run_0.mcap", "File too large")] * 3)
    result = recover(tmp_path / "run")
    assert 0 < index - 7 <= result.messages <= index + 1
    assert result.lost_bytes < 31 + 180
    assert [stamp for _, _, stamp in read(tmp_path / "run").messages()] == list(range(result.messages))
