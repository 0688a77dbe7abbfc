# SPDX-License-Identifier: Apache-2.0
"""Tests of recordings on a page: the list of a folder with its reports, and the replay of one recording."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

from page_of_test import Browser, get, needs_chromium, page, page_of_recording, post, viewer
from programs import RTHS

import rths_nodes
from rths_nodes.app.commands.page import recorded_test
from rths_nodes.app.page.process import PATIENCE_S
from rths_nodes.app.page.server import MOST, recordings, report
from rths_nodes.loop.indices.live_columns import HIGHEST, LAST, LOWEST, OF_AXIS, PER_CURVE, per_column
from rths_nodes.recording.run import Run


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    rths_nodes.run("three_independent_axes", ["duration=4.003"], record=folder)
    return folder, rths_nodes.read(folder)


def test_columns_have_extremes_and_last_of_their_samples(recording: tuple[Path, Run]) -> None:
    folder, run = recording
    situation, end, messages = recorded_test(run, folder)(-1)
    names, per = situation["curves"]["names"], per_column(run.scenario.servo_rate)
    assert messages[0][0] == 0
    assert {samples for _, samples, _ in messages} == {per}
    assert end == len(messages) > 1
    values = np.concatenate([np.frombuffer(data, np.float32) for _, _, data in messages])
    columns = values.reshape(-1, len(names), PER_CURVE)
    assert len(columns) == -(-len(run.time) // per)
    for axis, name in enumerate(run.axes):
        for curve, rows in (("target", run.target), ("measured", run.displacement), ("force", run.force)):
            column, history = columns[:, names.index(f"{name}/{curve}")], rows[:, axis].astype(np.float32)
            parts = [history[start : start + per] for start in range(0, len(history), per)]
            np.testing.assert_array_equal(column[:, LOWEST], [np.nanmin(part) for part in parts])
            np.testing.assert_array_equal(column[:, HIGHEST], [np.nanmax(part) for part in parts])
            np.testing.assert_array_equal(column[:, LAST], [part[-1] for part in parts])
    assert len(names) == len(OF_AXIS) * len(run.axes)
    assert recorded_test(run, folder)(end)[2] == []


def test_replay_shows_the_outcome_and_has_no_stop(recording: tuple[Path, Run]) -> None:
    folder, run = recording
    with page_of_recording(folder) as (address, _):
        situation = get(address)
        assert (situation["run"]["state"], situation["run"]["scenario"]) == ("FINISHED", "three_independent_axes")
        assert (situation["run"]["sample"], situation["recorded"]) == (run.scenario.samples, str(folder))
        assert post(address, b'{"kind": "stop"}')[0] == 404


def test_replay_with_an_open_page_ends_at_once(recording: tuple[Path, Run]) -> None:
    with ExitStack() as stack:
        address, _ = stack.enter_context(page_of_recording(recording[0]))
        with viewer(address) as client:
            assert client.recv(12) == b"HTTP/1.1 101"
            start = time.monotonic()
            stack.close()
    assert time.monotonic() - start < PATIENCE_S


def test_replay_of_a_folder_without_recording_is_refused(tmp_path: Path) -> None:
    command = [*RTHS, "replay", str(tmp_path), "--page"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stderr.count("\n") == 1, process.stderr


@needs_chromium
def test_slider_moves_through_the_recording(recording: tuple[Path, Run], tmp_path: Path) -> None:
    async def look(address: str) -> list[str]:
        async with Browser(address, tmp_path / "browser") as browser:
            await browser.until("!document.getElementById('player').hidden && head === columns.length && head > 0")
            assert await browser.value("document.getElementById('real').textContent.startsWith('RECORDING')")
            assert await browser.value("document.querySelector('.stops').hidden")
            move = "h = document.getElementById('head'); h.value = 100; h.dispatchEvent(new Event('input'))"
            await browser.value(f"(() => {{ const {move}; }})()")
            await browser.until("shown().to === 100")
            time = await browser.value("document.getElementById('time').textContent")
            assert time == "0:01.0 of 0:10.5"  # with the soft start
            await browser.value("document.getElementById('play').click()")
            await browser.until("head > 150")
            return browser.complaints

    with page_of_recording(recording[0]) as (address, _):
        assert asyncio.run(look(address)) == []


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Folder of a run with a report, a test with one, a run without, and files that are no recordings."""
    runs = tmp_path / "runs"
    for age, (name, mark) in enumerate(
        (("old", "metadata.yaml"), ("test", "procedure.yaml"), ("new", "metadata.yaml"))
    ):
        (runs / name).mkdir(parents=True)
        (runs / name / mark).write_text("x: 1")
        os.utime(runs / name, (1000 + age, 1000 + age))
    (runs / "old.html").write_text("<p>old</p>")
    (runs / "test" / "report.html").write_text("<p>test</p>")
    os.utime(runs / "test", (1001, 1001))
    (runs / "notes").mkdir()
    (runs / "notes" / "secret.txt").write_text("secret")
    (runs / "notes.html").write_text("no report of a recording")
    (tmp_path / "outside.html").write_text("outside")
    return runs


def listed(folder: Path) -> list[tuple[str, bool]]:
    """Return names of the listed recordings, and whether they have a report."""
    return [(entry["name"], entry["report"]) for entry in recordings(folder)["recordings"]]


def test_recordings_are_listed_newest_first(runs: Path) -> None:
    assert listed(runs) == [("new", False), ("test", True), ("old", True)]
    assert report(runs, "old") == b"<p>old</p>"
    assert report(runs, "test") == b"<p>test</p>"
    assert listed(runs / "none") == []


def test_list_has_only_the_newest_recordings(tmp_path: Path) -> None:
    for number in range(MOST + 5):
        (tmp_path / f"run_{number}").mkdir()
        (tmp_path / f"run_{number}" / "metadata.yaml").write_text("")
        os.utime(tmp_path / f"run_{number}", (number, number))
    assert [name for name, _ in listed(tmp_path)] == [f"run_{number}" for number in range(MOST + 4, 4, -1)]


@pytest.mark.parametrize(
    "name", ["new", "notes", "../outside", "outside", "", ".", "old/../../outside", "/etc/passwd", "a" * 300]
)
def test_only_reports_of_recordings_are_served(name: str, runs: Path) -> None:
    assert report(runs, name) is None


def test_links_are_not_followed(runs: Path) -> None:
    """A link in the folder of recordings served any file that its user may read."""
    secret = runs / "notes" / "secret.txt"
    (runs / "new.html").symlink_to(secret)
    (runs / "test" / "report.html").unlink()
    (runs / "test" / "report.html").symlink_to(secret)
    (runs / "linked").symlink_to(runs / "old")
    (runs / "linked.html").write_text("next to a link")
    assert dict(listed(runs)) == {"new": False, "test": False, "old": True}
    assert [report(runs, name) for name in ("new", "test", "linked")] == [None] * 3


@pytest.mark.nodes
def test_report_is_served_in_a_sandbox(runs: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    with page("--recordings", str(runs), "--namespace", "shelf") as address:
        with urllib.request.urlopen(f"{address}report/old", timeout=10.0) as answer:
            assert answer.read() == b"<p>old</p>"
            policy = answer.headers["Content-Security-Policy"]
            assert "sandbox" in policy
            assert "script-src" not in policy
            assert answer.headers["X-Frame-Options"] == "DENY"
        for path in ("report/new", "report/..%2Foutside", "report/%2e%2e/outside", "report/notes"):
            with (
                pytest.raises(urllib.error.HTTPError) as refused,
                urllib.request.urlopen(f"{address}{path}", timeout=10.0),
            ):
                pass
            assert refused.value.code == 404
