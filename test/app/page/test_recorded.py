# SPDX-License-Identifier: Apache-2.0
"""A recording as a page: its columns, its slider, and nothing that moves."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

from page_of_test import CHROMIUM, RTHS, Browser, get, post

import rths_nodes
from rths_nodes.app.commands.replay import RecordedTest
from rths_nodes.loop.indices.live_columns import HIGHEST, LAST, LOWEST, OF_AXIS, PER_CURVE, per_column
from rths_nodes.recording.run import Run


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    rths_nodes.run("three_independent_axes", ["duration=4.003"], record=folder)
    return folder, rths_nodes.read(folder)


@contextmanager
def shown(folder: Path) -> Iterator[str]:
    """``rths replay --page`` at any port; its address."""
    words = [*RTHS, "replay", str(folder), "--page", "--port", "0"]
    showing = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert showing.stdout is not None
        found = re.search(r"http://\S+", line := showing.stdout.readline())
        assert found, line
        yield found[0]
    finally:
        showing.send_signal(signal.SIGINT)
        assert showing.wait(30.0) == 0


def test_its_columns_are_those_of_every_sample(recording: tuple[Path, Run]) -> None:
    folder, run = recording
    told, end, messages = RecordedTest(run, folder).since(-1)
    names, per = told["curves"]["names"], per_column(run.scenario.servo_rate)
    assert messages[0][0] == 0
    assert {samples for _, samples, _ in messages} == {per}
    assert end == len(messages) > 1
    values = np.concatenate([np.frombuffer(each, np.float32) for _, _, each in messages])
    columns = values.reshape(-1, len(names), PER_CURVE)
    assert len(columns) == -(-len(run.time) // per)
    for axis, name in enumerate(run.axes):
        for curve, rows in (("target", run.target), ("measured", run.displacement), ("force", run.force)):
            its, history = columns[:, names.index(f"{name}/{curve}")], rows[:, axis].astype(np.float32)
            parts = [history[at : at + per] for at in range(0, len(history), per)]
            np.testing.assert_array_equal(its[:, LOWEST], [np.nanmin(each) for each in parts])
            np.testing.assert_array_equal(its[:, HIGHEST], [np.nanmax(each) for each in parts])
            np.testing.assert_array_equal(its[:, LAST], [each[-1] for each in parts])
    assert len(names) == len(OF_AXIS) * len(run.axes)
    assert RecordedTest(run, folder).since(end)[2] == []


def test_it_is_told_as_it_ended_and_nothing_stops_it(recording: tuple[Path, Run]) -> None:
    folder, run = recording
    with shown(folder) as address:
        told = get(address)
        assert (told["run"]["state"], told["run"]["scenario"]) == ("FINISHED", "three_independent_axes")
        assert told["run"]["sample"] == run.scenario.samples
        assert told["recorded"] == str(folder)
        assert post(address, b'{"kind": "stop"}')[0] == 404, "a recording does not move"


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    words = [*RTHS, "replay", str(tmp_path), "--page"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
def test_in_a_browser_the_slider_goes_through_its_time(recording: tuple[Path, Run], tmp_path: Path) -> None:
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

    with shown(recording[0]) as address:
        assert asyncio.run(look(address)) == []
