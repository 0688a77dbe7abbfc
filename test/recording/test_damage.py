# SPDX-License-Identifier: Apache-2.0
"""Damaged recordings: each is read, with what was lost said, or refused in one clear message."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from messages import each_mentions, mentions
from rewritten_recordings import rewritten

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.recording import bag
from rths_nodes.recording.bag import RecordingError
from rths_nodes.recording.run import Run

ROOT = Path(__file__).resolve().parents[2]
KILLED = """
import os, signal, sys, time
from rths_nodes.app import hosts

def progress(sample, samples):
    if sample == 100:
        time.sleep(0.2)  # the next message hands over all that waited
    if sample == 150:
        os.kill(os.getpid(), signal.SIGKILL)

hosts.run("chen_ricles_2010", ["duration=0.2"], record=sys.argv[1], progress=progress)
"""


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished recording, and the journal of a process that was killed: directories of real runs."""
    place = tmp_path_factory.mktemp("originals")
    hosts.run("chen_ricles_2010", ["duration=0.2"], record=place / "finished")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", KILLED, place / "killed"], env=environment, check=False)
    return {name: place / name for name in ("finished", "killed")}


def mcap_of(directory: Path) -> Path:
    (file,) = directory.glob("*.mcap")
    return file


@contextmanager
def copied(original: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copytree(original, Path(folder) / "run"))


def refused(call: Callable[[], Any]) -> str:
    """The one message of a refusal, empty where there is none; any other exception goes up."""
    try:
        call()
    except (ConfigError, RecordingError) as error:
        problems = getattr(error, "problems", (str(error),))
    else:
        return ""
    assert problems
    assert all(problem and "\n" not in problem for problem in problems)
    return "\n".join(problems)


# ----------------------------------------------------------------------- any damage at all

PLACES = st.floats(0.0, 1.0, exclude_max=True)
LENGTHS = st.integers(1, 4000)
DAMAGE = st.one_of(
    st.tuples(st.just("cut"), PLACES, LENGTHS),
    st.tuples(st.just("flip"), PLACES, st.integers(1, 255)),
    st.tuples(st.just("zero"), PLACES, LENGTHS),
    st.tuples(st.just("drop"), PLACES, LENGTHS),
    st.tuples(st.just("repeat"), PLACES, LENGTHS),
    st.tuples(st.just("insert"), PLACES, st.binary(min_size=1, max_size=40)),
)
BESIDE = st.sampled_from(
    ["", "part", "part folder", "garbage", "no metadata", "metadata folder", "two", "removed"]
)


def damaged(data: bytes, kind: str, place: float, how: Any) -> bytes:
    at = int(place * len(data))
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
    """What else may have happened to the files of a recording."""
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


def judge(directory: Path) -> None:
    """Whatever is there reads, recovers and reads again, or is refused; recovering twice changes nothing."""
    refused(lambda: rths_nodes.read(directory))
    if refused(lambda: bag.recover(directory)):
        return
    found = bag.recover(directory)
    assert found.was_complete
    if not refused(lambda: rths_nodes.read(directory)):
        run = rths_nodes.read(directory)
        assert len(run.time) <= 205 + 1024
        for name, values in run.arrays().items():
            assert values.nbytes < 1e7, name
    with mcap_of(directory).open("rb") as stream:
        messages = list(make_reader(stream, validate_crcs=True).iter_messages(log_time_order=False))
    assert len(messages) == found.messages


some_damage = given(
    which=st.sampled_from(["finished", "killed"]), damage=st.lists(DAMAGE, min_size=1, max_size=4), beside=BESIDE
)


def reads_or_is_refused(
    originals: dict[str, Path], which: str, damage: list[tuple[str, float, Any]], beside: str
) -> None:
    with copied(originals[which]) as directory:
        file = mcap_of(directory)
        for kind, place, how in damage:
            if data := file.read_bytes():
                file.write_bytes(damaged(data, kind, place, how))
        disturb(directory, beside)
        judge(directory)


@some_damage
@settings(max_examples=30)
def test_any_damage_reads_or_is_refused(originals: dict[str, Path], **drawn: Any) -> None:
    reads_or_is_refused(originals, **drawn)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@some_damage
@settings(max_examples=5000)
def test_any_damage_of_many_reads_or_is_refused(originals: dict[str, Path], **drawn: Any) -> None:
    reads_or_is_refused(originals, **drawn)


# ----------------------------------------------------------------------- what is lost is said


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def test_a_journal_is_read_as_it_is(originals: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    with copied(originals["killed"]) as directory:
        before = mcap_of(directory).read_bytes()
        run, whole = rths_nodes.read(directory), rths_nodes.read(originals["finished"])
        count = len(run.time)
        assert 99 < count < 151
        np.testing.assert_array_equal(run.displacement, whole.displacement[:count])
        assert run.outcome == "unknown"
        told = (
            f"{directory}: was not finished by its recorder; only the complete part is read. "
            f"Finish the recording with rths recover {directory}"
        )
        assert run.notes == (told,)
        page = directory.parent / "page.html"
        assert said(capsys, "report", directory, "--out", page) == (0, f"{page}\n", f"note: {told}\n")
        assert mentions(page.read_text(), "complete part", "read")
        assert said(capsys, "estimate", directory)[2].startswith(f"note: {told}\n")
        assert mcap_of(directory).read_bytes() == before


def test_a_recording_under_way_can_be_looked_at(tmp_path: Path) -> None:
    seen: list[Run] = []

    def look(sample: int, samples: int) -> None:
        if sample == 150:
            seen.append(rths_nodes.read(tmp_path / "run"))

    hosts.run("chen_ricles_2010", ["duration=0.2"], record=tmp_path / "run", progress=look)
    assert mentions(seen[0].notes[0], "recovered", "now")
    assert rths_nodes.read(tmp_path / "run").outcome == "finished"


def test_recover_into_another_place_leaves_the_journal(
    originals: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with copied(originals["killed"]) as directory:
        before = {path: path.read_bytes() for path in directory.iterdir()}
        code, out, err = said(capsys, "recover", directory, "--out", tmp_path / "deep" / "whole")
        assert (code, err) == (0, "")
        assert f"messages in {tmp_path}/deep/whole, 0 bytes lost" in out
        assert {path: path.read_bytes() for path in directory.iterdir()} == before
        assert (tmp_path / "deep" / "whole" / "whole_0.mcap").is_file()
        found = rths_nodes.read(tmp_path / "deep" / "whole")
        assert found.notes == ()
        np.testing.assert_array_equal(found.force, rths_nodes.read(directory).force)
        assert said(capsys, "recover", directory, "--out", tmp_path / "deep" / "whole")[0] == 2  # taken


FULL = """
import resource, signal, sys
sys.dont_write_bytecode = True  # Python 3.11 keeps a module's file that was cut off
from rths_nodes.app.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
sys.exit(main(["recover", *sys.argv[1:]]))
"""


def test_on_a_full_disk_the_journal_stays_and_the_way_out_is_told(
    originals: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with copied(originals["killed"]) as directory:
        before = {path.name: path.read_bytes() for path in directory.iterdir()}
        for words in ([directory], [directory, "--out", tmp_path / "full"]):
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            command = [sys.executable, "-c", FULL, *map(str, words)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 1
            (line,) = done.stderr.splitlines()
            assert mentions(line, "indexed")
            assert mentions(line, directory, "--out", "DIR")
            assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
        assert not (tmp_path / "full").exists()
        assert said(capsys, "recover", directory, "--out", tmp_path / "room")[0] == 0


def long_recording(place: Path) -> Path:
    """Many chunks: the messages of a real run, several times."""
    source = hosts.run("chen_ricles_2010", ["duration=0.5"], record=place / "source", keep=False).recording
    assert source is not None
    read = bag.read(source)
    messages = list(read.messages())
    writer = bag.Writer(place / "long", list(read.topics.values()), read.information)
    for _ in range(8):
        for message in messages:
            writer.write(*message)
    writer.close({"outcome": "finished"})
    return place / "long"


@pytest.mark.parametrize("name", ["finished", "killed"])
def test_a_cut_is_said(
    name: str, originals: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = long_recording(tmp_path) if name == "finished" else tmp_path / "killed"
    if name == "killed":
        shutil.copytree(originals["killed"], directory)
    whole = sum(bag.read(directory).counts.values())
    file = mcap_of(directory)
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    code, out, _ = said(capsys, "recover", directory)
    recovered, lost = int(out.split()[2]), int(out.split()[-3])
    assert code == 0
    assert 0.2 * whole < recovered < whole
    assert lost > 0
    assert rths_nodes.read(directory).information["recovered"].startswith(f"{lost} bytes")


def test_a_damaged_chunk_is_left_out_and_the_damaged_file_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = long_recording(tmp_path)
    file = mcap_of(directory)
    count = sum(bag.read(directory).counts.values())
    content = bytearray(file.read_bytes())
    with file.open("rb") as stream:
        summary = make_reader(stream).get_summary()
    assert summary is not None
    chunk = summary.chunk_indexes[len(summary.chunk_indexes) // 2]
    content[chunk.chunk_start_offset + chunk.chunk_length // 2] ^= 0xFF
    file.write_bytes(content)
    assert "is damaged" in refused(lambda: rths_nodes.read(directory))
    code, out, err = said(capsys, "recover", directory)
    assert code == 0
    assert "is damaged" in err
    assert mentions(err, "damaged", "long_0.mcap.damaged")
    assert (directory / "long_0.mcap.damaged").read_bytes() == content
    recovered = int(out.split()[2])
    assert 0.3 * count < recovered < count
    run = rths_nodes.read(directory)
    assert run.information["outcome"] == "finished"  # what stands behind the damage
    assert "is damaged" in run.information["recovered"]
    assert mentions(said(capsys, "recover", directory)[1], "recover", recovered, "messages")


def test_the_first_chunk_may_be_the_damaged_one(tmp_path: Path) -> None:
    """It has the types and topics of all messages; the index has them, too."""
    directory = long_recording(tmp_path)
    file = mcap_of(directory)
    content = bytearray(file.read_bytes())
    content[len(content) // 20] ^= 0xFF
    file.write_bytes(content)
    assert bag.recover(directory).messages > 1000
    assert len(rths_nodes.read(directory).time) > 0


@pytest.mark.parametrize("damage", ["garbage", "no metadata"])
def test_metadata_is_written_anew(damage: str, originals: dict[str, Path]) -> None:
    with copied(originals["finished"]) as directory:
        before = (directory / "metadata.yaml").read_text()
        disturb(directory, damage)
        assert each_mentions(bag.recover(directory).notes, ("metadata.yaml", "missing", "damaged"))
        assert (directory / "metadata.yaml").read_text() == before.replace("finished_0", "finished_0")
        assert bag.recover(directory).notes == ()


# ----------------------------------------------------------------------- memory by what is there


def numbered(data: bytes, number: int) -> bytes:
    """A Measurement with another sample number: behind encapsulation and stamp."""
    at = data.index((7).to_bytes(4, "little"), 4)
    return data[:at] + number.to_bytes(4, "little") + data[at + 4 :]


@pytest.mark.parametrize("number", [4_000_000_000, 2**32 - 1, 5_000_000])
def test_a_sample_number_far_beyond_allocates_nothing(
    number: int, originals: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = 0

    def change(topic: str, data: bytes) -> list[bytes]:
        nonlocal seen
        seen += topic.endswith("/measurement")
        return [data, numbered(data, number)] if topic.endswith("/measurement") and seen == 8 else [data]

    directory = rewritten(originals["finished"], tmp_path / "far", change)
    tracemalloc.start()
    try:
        run = rths_nodes.read(directory)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()
    whole = rths_nodes.read(originals["finished"])
    np.testing.assert_array_equal(run.displacement, whole.displacement)
    (note,) = run.notes
    assert mentions(note, "1", "number", len(whole.time) - 1)
    code, _, err = said(capsys, "estimate", directory)
    assert (code, err) == (0, f"note: {note}\n")


def test_a_long_test_that_was_stopped_soon_takes_the_memory_of_its_samples(tmp_path: Path) -> None:
    at: list[int] = []
    hosts.run(
        "chen_ricles_2010",
        ["duration=5000"],
        record=tmp_path / "run",
        keep=False,
        progress=lambda sample, samples: at.append(sample),
        interrupted=lambda: at[-1] > 100,
    )
    tracemalloc.start()
    try:
        run = rths_nodes.read(tmp_path / "run")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert run.outcome == "held"
    assert 100 < len(run.time) < 2000


def test_damaged_messages_are_left_out_and_counted(originals: dict[str, Path], tmp_path: Path) -> None:
    counts: dict[str, int] = {}

    def change(topic: str, data: bytes) -> list[bytes]:
        counts[topic] = counts.get(topic, 0) + 1
        if topic.endswith("/command") and counts[topic] in (1, 10):
            return [data[:30]]
        if topic.endswith("/node_status"):
            return [data[:-3] + b"\xff\xff\xff"]
        return [data]

    directory = rewritten(originals["finished"], tmp_path / "some", change)
    run = rths_nodes.read(directory)
    lost = (directory, "1", "/rths/node_status"), (directory, "2", "/rths/command"), (directory, "1 of 211")
    assert each_mentions(run.notes, *lost)
    assert run.compensator_names == ("1", "2", "3")
    whole = rths_nodes.read(originals["finished"])
    np.testing.assert_array_equal(run.displacement, whole.displacement)
