# SPDX-License-Identifier: Apache-2.0
"""Tests of damaged recordings: each is read with a report of the loss, or refused with one message."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap.writer import Writer
from messages import each_mentions, mentions, naming
from rewritten_recordings import rewritten, without
from rosbags.rosbag2 import Reader

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire import FIELD_AT, FIELD_SIZE, RunMark, decode, encode, mark_of
from rths_nodes.recording import bag, reading
from rths_nodes.recording.bag import RecordingError
from rths_nodes.recording.run import Run

ROOT = Path(__file__).resolve().parents[2]
KILLED = """
import os, signal, sys, time
from rths_nodes.app import hosts

def progress(sample, samples):
    if sample == 100:
        time.sleep(0.2)  # the next message flushes the queue
    if sample == 150:
        os.kill(os.getpid(), signal.SIGKILL)

hosts.run("chen_ricles_2010", ["duration=0.2"], record=sys.argv[1], progress=progress)
"""


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories of real runs: a finished recording, and the journal of a process that was killed."""
    folder = tmp_path_factory.mktemp("originals")
    hosts.run("chen_ricles_2010", ["duration=0.2"], record=folder / "finished")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", KILLED, folder / "killed"], env=environment, check=False)
    return {name: folder / name for name in ("finished", "killed")}


@pytest.fixture
def killed(originals: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the journal."""
    return Path(shutil.copytree(originals["killed"], tmp_path / "a killed"))


@pytest.fixture
def rths(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the program; returns exit code, output and messages."""

    def rths(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return rths


def mcap_of(directory: Path) -> Path:
    (file,) = directory.glob("*.mcap")
    return file


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.iterdir()}


def refusal(call: Callable[[], Any]) -> str:
    """Return the message of a refusal, or an empty string."""
    try:
        call()
    except (ConfigError, RecordingError) as error:
        problems = getattr(error, "problems", (str(error),))
    else:
        return ""
    assert problems
    assert all(problem and "\n" not in problem for problem in problems)
    return "\n".join(problems)


# -- Random damage

POSITIONS = st.floats(0.0, 1.0, exclude_max=True)
LENGTHS = st.integers(1, 4000)
DAMAGE = st.one_of(
    st.tuples(st.just("cut"), POSITIONS, LENGTHS),
    st.tuples(st.just("flip"), POSITIONS, st.integers(1, 255)),
    st.tuples(st.just("zero"), POSITIONS, LENGTHS),
    st.tuples(st.just("drop"), POSITIONS, LENGTHS),
    st.tuples(st.just("repeat"), POSITIONS, LENGTHS),
    st.tuples(st.just("insert"), POSITIONS, st.binary(min_size=1, max_size=40)),
)
DISTURBANCES = ["", "part", "part folder", "garbage", "no metadata", "metadata folder", "two", "removed"]


def damaged(data: bytes, kind: str, position: float, how: Any) -> bytes:
    at = int(position * len(data))
    match kind:
        case "cut":
            return data[:at]
        case "flip":
            return data[:at] + bytes([data[at] ^ how]) + data[at + 1 :]
        case "zero":
            return data[:at] + bytes(min(how, len(data) - at)) + data[at + how :]
        case "drop":
            return data[:at] + data[at + how :]
        case "repeat":
            return data[:at] + data[at : at + how] + data[at:]
        case _:
            return data[:at] + how + data[at:]


def disturb(directory: Path, kind: str) -> None:
    """Add, remove or replace files of a recording."""
    file, metadata = mcap_of(directory), directory / "metadata.yaml"
    part = file.with_name(file.name + ".part")
    match kind:
        case "part":
            part.write_bytes(file.read_bytes()[:1000])
        case "part folder":
            part.mkdir()
        case "garbage":
            metadata.write_bytes(b"\xff\x00: [*&\n" + bytes(range(256)))
        case "no metadata":
            metadata.unlink(missing_ok=True)
        case "metadata folder":
            metadata.unlink(missing_ok=True)
            metadata.mkdir()
        case "two":
            shutil.copy(file, directory / "other.mcap")
        case "removed":
            file.unlink()


def check_reading(directory: Path) -> None:
    """A recording can be read, recovered and read again, or is refused; a second recovery changes nothing."""
    refusal(lambda: rths_nodes.read(directory))
    if refusal(lambda: bag.recover(directory)):
        return
    result = bag.recover(directory)
    assert result.was_complete
    if not refusal(lambda: rths_nodes.read(directory)):
        run = rths_nodes.read(directory)
        assert len(run.time) <= 205 + 1024
        for name, values in run.arrays().items():
            assert values.nbytes < 1e7, name
    with mcap_of(directory).open("rb") as stream:
        messages = list(make_reader(stream, validate_crcs=True).iter_messages(log_time_order=False))
    assert len(messages) == result.messages


random_damage = given(
    which=st.sampled_from(["finished", "killed"]),
    damage=st.lists(DAMAGE, min_size=1, max_size=4),
    disturbance=st.sampled_from(DISTURBANCES),
)


def check_damage(
    originals: dict[str, Path], which: str, damage: list[tuple[str, float, Any]], disturbance: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(shutil.copytree(originals[which], Path(folder) / "run"))
        file = mcap_of(directory)
        for kind, position, how in damage:
            if data := file.read_bytes():
                file.write_bytes(damaged(data, kind, position, how))
        disturb(directory, disturbance)
        check_reading(directory)


@random_damage
@settings(max_examples=30)
def test_any_damage_is_read_or_refused(originals: dict[str, Path], **drawn: Any) -> None:
    check_damage(originals, **drawn)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@random_damage
@settings(max_examples=5000)
def test_many_damages_are_read_or_refused(originals: dict[str, Path], **drawn: Any) -> None:
    check_damage(originals, **drawn)


# -- Report of the loss


def test_journal_of_killed_process_is_read_unchanged(originals: dict[str, Path], killed: Path, rths: Any) -> None:
    before = contents(killed)
    run = rths_nodes.read(killed)
    assert 99 < len(run.time) < 151
    expected = rths_nodes.read(originals["finished"]).displacement[: len(run.time)]
    np.testing.assert_array_equal(run.displacement, expected)
    assert run.outcome == "unknown"
    note = (
        f"{killed}: was not finished by its recorder; only the complete part is read. "
        f"Finish the recording with rths recover '{killed}'"
    )
    assert run.notes == (note,)
    page = killed.parent / "page.html"
    assert rths("report", killed, "--out", page) == (0, f"{page}\n", f"note: {note}\n")
    assert mentions(page.read_text(), "complete part", "read")
    assert rths("estimate", killed)[2].startswith(f"note: {note}\n")
    assert contents(killed) == before


def test_recording_in_progress_is_read(tmp_path: Path) -> None:
    runs: list[Run] = []

    def progress(sample: int, samples: int) -> None:
        if sample == 150:
            runs.append(rths_nodes.read(tmp_path / "run"))

    hosts.run("chen_ricles_2010", ["duration=0.2"], record=tmp_path / "run", progress=progress)
    assert mentions(runs[0].notes[0], "recovered", "now")
    assert rths_nodes.read(tmp_path / "run").outcome == "finished"


def test_recovery_to_other_folder_keeps_journal(killed: Path, tmp_path: Path, rths: Any) -> None:
    before, target = contents(killed), tmp_path / "deep" / "complete"
    code, out, err = rths("recover", killed, "--out", target)
    assert (code, err, f"messages in {target}, 0 bytes lost" in out) == (0, "", True)
    assert contents(killed) == before
    assert (target / "complete_0.mcap").is_file()
    run = rths_nodes.read(target)
    assert run.notes == ()
    np.testing.assert_array_equal(run.force, rths_nodes.read(killed).force)
    assert rths("recover", killed, "--out", target)[0] == 2  # exists
    assert mentions(rths("recover", target, "--out", tmp_path / "copy")[2], target, "is complete", "copy")


FULL = """
import resource, signal, sys
sys.dont_write_bytecode = True  # Python 3.11 keeps truncated files of modules
from rths_nodes.app.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
sys.exit(main(["recover", *sys.argv[1:]]))
"""


def test_recovery_on_full_disk_keeps_journal_and_names_option(killed: Path, tmp_path: Path, rths: Any) -> None:
    before = contents(killed)
    for arguments in ([killed], [killed, "--out", tmp_path / "full"]):
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", FULL, *map(str, arguments)]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert process.returncode == 1
        (line,) = process.stderr.splitlines()
        assert mentions(line, "indexed", killed, "--out", "DIR")
        assert contents(killed) == before
    assert not (tmp_path / "full").exists()
    assert rths("recover", killed, "--out", tmp_path / "room")[0] == 0


@pytest.fixture
def long_recording(tmp_path: Path) -> Path:
    """A recording of many chunks: the messages of a run, eight times."""
    source = hosts.run("chen_ricles_2010", ["duration=0.5"], record=tmp_path / "source", keep=False).recording
    original = bag.read(source)
    messages = list(original.messages())
    writer = bag.Writer(tmp_path / "long", list(original.topics.values()), original.information)
    for _ in range(8):
        for message in messages:
            writer.write(*message)
    writer.close({"outcome": "finished"})
    return tmp_path / "long"


@pytest.mark.parametrize("name", ["finished", "killed"])
def test_truncated_recording_is_recovered(name: str, request: pytest.FixtureRequest, rths: Any) -> None:
    directory = request.getfixturevalue("long_recording" if name == "finished" else "killed")
    count = sum(bag.read(directory).counts.values())
    file = mcap_of(directory)
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    code, out, _ = rths("recover", directory)
    recovered, lost = int(out.split()[-5]), int(out.split()[-3])
    assert code == 0
    assert 0.2 * count < recovered < count
    assert lost > 0
    assert rths_nodes.read(directory).information["recovered"].startswith(f"{lost} bytes")


def test_damaged_chunk_is_left_out_and_file_is_kept(long_recording: Path, rths: Any) -> None:
    file = mcap_of(long_recording)
    count = sum(bag.read(long_recording).counts.values())
    content = bytearray(file.read_bytes())
    with file.open("rb") as stream:
        chunks = make_reader(stream).get_summary().chunk_indexes
    chunk = chunks[len(chunks) // 2]
    content[chunk.chunk_start_offset + chunk.chunk_length // 2] ^= 0xFF
    file.write_bytes(content)
    assert "is damaged" in refusal(lambda: rths_nodes.read(long_recording))
    code, out, err = rths("recover", long_recording)
    assert code == 0
    assert "is damaged" in err
    assert mentions(err, "damaged", "long_0.mcap.damaged")
    assert (long_recording / "long_0.mcap.damaged").read_bytes() == content
    recovered = int(out.split()[2])
    assert 0.3 * count < recovered < count
    run = rths_nodes.read(long_recording)
    assert run.information["outcome"] == "finished"  # recorded after the damaged chunk
    assert "is damaged" in run.information["recovered"]
    assert mentions(rths("recover", long_recording)[1], "recover", recovered, "messages")


@pytest.mark.parametrize("outcome", ["finished", "tripped"])
def test_samples_lost_from_the_end_are_reported(outcome: str, originals: dict[str, Path], tmp_path: Path) -> None:
    streams = ("measurement", "command", "true_state", "compensator_state")
    run = rths_nodes.read(without(originals["finished"], tmp_path / "short", streams, range(190, 211)))
    run.information["outcome"] = outcome
    assert (len(run.time), run.scenario.samples) == (190, 210)
    assert run.incomplete == "21 of 211 samples are missing (190 to 210)"


def test_recording_with_damaged_first_chunk_is_recovered(long_recording: Path) -> None:
    """The index repeats the types and topics of the first chunk."""
    file = mcap_of(long_recording)
    content = bytearray(file.read_bytes())
    content[len(content) // 20] ^= 0xFF
    file.write_bytes(content)
    assert bag.recover(long_recording).messages > 1000
    assert len(rths_nodes.read(long_recording).time) > 0


@pytest.mark.parametrize("damage", ["garbage", "no metadata"])
def test_missing_metadata_is_restored(damage: str, originals: dict[str, Path], tmp_path: Path) -> None:
    directory = Path(shutil.copytree(originals["finished"], tmp_path / "run"))
    before = (directory / "metadata.yaml").read_text()
    disturb(directory, damage)
    assert each_mentions(bag.recover(directory).notes, ("metadata.yaml", "missing", "damaged"))
    assert (directory / "metadata.yaml").read_text() == before
    assert bag.recover(directory).notes == ()


@pytest.mark.parametrize("damage", ["", "no metadata"])
def test_restored_metadata_name_renamed_file(damage: str, originals: dict[str, Path], tmp_path: Path) -> None:
    directory = Path(shutil.copytree(originals["finished"], tmp_path / "run"))
    mcap_of(directory).rename(directory / "story.mcap")
    disturb(directory, damage)
    assert each_mentions(bag.recover(directory).notes, ("metadata.yaml", "missing", "damaged"))
    with Reader(directory) as reader:
        assert reader.message_count == sum(bag.read(directory).counts.values())


def test_metadata_of_more_messages_are_not_restored(originals: dict[str, Path], tmp_path: Path) -> None:
    """Another tool has copied some of the messages, and the metadata with their old numbers."""
    with mcap_of(originals["finished"]).open("rb") as source, (tmp_path / "part.mcap").open("wb") as out:
        reader, writer = make_reader(source), Writer(out)
        writer.start(profile="ros2", library="another")
        for record in reader.iter_metadata():
            writer.add_metadata(record.name, record.metadata)
        writer.finish()
    assert bag.recover(tmp_path).notes == ()
    assert not (tmp_path / "metadata.yaml").exists()


# -- Memory


def read_within(memory: float, directory: Path) -> Run:
    """Read a recording with at most ``memory`` bytes."""
    tracemalloc.start()
    try:
        run = rths_nodes.read(directory)
        assert tracemalloc.get_traced_memory()[1] < memory
    finally:
        tracemalloc.stop()
    return run


@pytest.mark.parametrize("number", [4_000_000_000, 2**32 - 1, 5_000_000])
def test_wrong_sample_number_allocates_no_memory(
    number: int, originals: dict[str, Path], tmp_path: Path, rths: Any
) -> None:
    measurements = itertools.count(1)

    def change(topic: str, data: bytes) -> list[bytes]:
        if not topic.endswith("/measurement") or next(measurements) != 8:
            return [data]
        at = data.index((7).to_bytes(4, "little"), 4)  # the sample number, after encapsulation and stamp
        return [data, data[:at] + number.to_bytes(4, "little") + data[at + 4 :]]

    directory = rewritten(originals["finished"], tmp_path / "far", change)
    run = read_within(10e6, directory)
    original = rths_nodes.read(originals["finished"])
    np.testing.assert_array_equal(run.displacement, original.displacement)
    (note,) = run.notes
    assert mentions(note, "1", "number", len(original.time) - 1)
    code, _, err = rths("estimate", directory)
    assert (code, err) == (0, f"note: {note}\n")


def test_memory_depends_on_recorded_samples(tmp_path: Path) -> None:
    samples: list[int] = []
    hosts.run(
        "chen_ricles_2010",
        ["duration=5000"],
        record=tmp_path / "run",
        keep=False,
        progress=lambda sample, total: samples.append(sample),
        interrupted=lambda: samples[-1] > 100,
    )
    run = read_within(20e6, tmp_path / "run")
    assert run.outcome == "held"
    assert 100 < len(run.time) < 2000


def test_damaged_messages_are_left_out_and_counted(originals: dict[str, Path], tmp_path: Path) -> None:
    counts: Counter[str] = Counter()

    def change(topic: str, data: bytes) -> list[bytes]:
        counts[topic] += 1
        if topic.endswith("/command") and counts[topic] in (1, 10):
            return [data[:30]]
        if topic.endswith("/node_status"):
            return [data[:-3] + b"\xff\xff\xff"]
        return [data]

    directory = rewritten(originals["finished"], tmp_path / "some", change)
    run = rths_nodes.read(directory)
    lost = (directory, "1", "/rths/node_status"), (directory, "2", "/rths/command"), (directory, "2 of 211")
    assert each_mentions(run.notes, *lost)
    assert run.compensator_names == ("1", "2", "3")
    np.testing.assert_array_equal(run.displacement, rths_nodes.read(originals["finished"]).displacement)


@pytest.mark.parametrize("stream", ["command", "target", "true_state", "compensator_state"])
def test_missing_stream_is_reported(stream: str, originals: dict[str, Path], tmp_path: Path) -> None:
    def change(topic: str, data: bytes) -> list[bytes]:
        if topic.endswith("/summary"):  # of a host with nodes
            numbers = {"names": [f"sent.{stream}"], "values": [211.0]}
            data = encode("Summary", decode("Summary", data) | numbers)
        return [] if topic.endswith(f"/{stream}") else [data]

    run = rths_nodes.read(rewritten(originals["finished"], tmp_path / "some", change))
    assert mentions("; ".join(run.notes), "target" if stream == "target" else "of 211", "missing")
    assert not np.isfinite(run.target[1:]).any() or stream != "command", "the applied command is no target"


def test_messages_of_two_runs_are_refused(originals: dict[str, Path], tmp_path: Path) -> None:
    def change(topic: str, data: bytes) -> list[bytes]:
        other = data[:FIELD_AT] + RunMark(mark_of("another")).field + data[FIELD_AT + FIELD_SIZE :]
        return [other if topic.endswith("/command") else data]

    directory = rewritten(originals["finished"], tmp_path / "two", change)
    with pytest.raises(ConfigError, match=naming(directory, "/rths/command", "run")):
        rths_nodes.read(directory)


def test_metadata_of_another_run_are_refused(originals: dict[str, Path], tmp_path: Path) -> None:
    """The last metadata of a merged file would replace the metadata of the other test."""

    def change(topic: str, data: bytes) -> list[bytes]:
        if not topic.endswith("/test_state"):
            return [data]
        return [encode("TestState", decode("TestState", data) | {"run_id": "another"})]

    directory = rewritten(originals["finished"], tmp_path / "merged", change)
    run_id = bag.read(directory).information["run_id"]
    with pytest.raises(ConfigError, match=naming(directory, "another", run_id)):
        rths_nodes.read(directory)


def test_batch_of_damaged_messages_is_left_out(
    originals: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(1000))

    def change(topic: str, data: bytes) -> list[bytes]:
        return [data[:-8] if topic.endswith("/true_state") and next(numbers) >= 150 else data]

    directory = rewritten(originals["finished"], tmp_path / "short", change)
    monkeypatch.setattr(reading, "BATCH", 50)
    run = rths_nodes.read(directory)
    assert np.isfinite(run.true_force[:, 0]).sum() == 150
    assert mentions(run.notes, 61, "damaged", "/true_state")
