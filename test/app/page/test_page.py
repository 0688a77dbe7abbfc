# SPDX-License-Identifier: Apache-2.0
"""The page of a test: a real server beside a real test, looked at, stopped, attacked, and led in a browser."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pytest
from absorber import learning
from messages import mentions
from page_of_test import (
    CHROMIUM,
    MARK,
    RTHS,
    Browser,
    asked_until,
    get,
    page,
    page_and_terminal,
    post,
    test_beside,
    until,
)

from rths_nodes.recording.reading import read_run

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
aiohttp = pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(240)]

STOP = json.dumps({"kind": "stop"}).encode()


async def columns(address: str, seconds: float) -> tuple[dict[str, object], dict[int, np.ndarray]]:
    """The situation, and columns by their first sample, that a watcher gets within ``seconds``."""
    told: dict[str, object] = {}
    found: dict[int, np.ndarray] = {}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{address}live".replace("http", "ws"), max_msg_size=0) as live,
    ):
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            message = await live.receive(timeout=20.0)
            if message.type is aiohttp.WSMsgType.TEXT:
                told = json.loads(message.data)
                continue
            first, samples = np.frombuffer(message.data[:8], "<u4").tolist()
            values = np.frombuffer(message.data[8:], "<f4").reshape(-1, len(told["curves"]["names"]), 4)  # type: ignore[index]
            found |= {first + number * samples: each for number, each in enumerate(values)}
    return told, found


def test_a_watcher_sees_what_is_recorded_and_may_stop(tmp_path: Path) -> None:
    with page() as address, test_beside(tmp_path / "run", "--set", "duration=40") as running:
        told = until(address, "RUNNING")
        assert told["port"] == "simulator"
        told = asked_until(address, lambda told: "rig_kinds" in told)
        assert told["rig_kinds"] == {"run": "SIMULATED"}
        assert told["run"]["scenario"] == "chen_ricles_2010"
        asked_until(address, lambda told: told["stop_reaches"])  # the middleware finds its service in a moment
        seen, found = asyncio.run(columns(address, 2.0))
        status, answer = post(address, STOP)
        assert (status, answer["confirmed"]) == (200, True)
        told = until(address, "HELD")
        assert told["run"]["reason"].endswith("stop service")
        assert any(each["what"] == "stop" for each in told["events"])
        running.communicate(timeout=60.0)
    run = read_run(tmp_path / "run")
    assert run.outcome == "held"
    assert len(found) > 50
    names = seen["curves"]["names"]  # type: ignore[index]
    for name, values in (("target", run.target), ("measured", run.displacement), ("force", run.force)):
        curve = names.index(f"story_1/{name}")
        for first, column in found.items():
            part = values[first : first + 10, 0].astype(np.float32)
            if len(part) == 10:
                np.testing.assert_array_equal(column[curve], [part[0], part.min(), part.max(), part[-1]])


def test_a_stop_that_nobody_can_do_is_not_confirmed() -> None:
    with page() as address:
        assert get(address)["age"] is None
        assert not asked_until(address, lambda told: "stop_reaches" in told)["stop_reaches"]
        status, answer = post(address, STOP)
        assert status == 503
        assert answer.keys() == {"confirmed", "why"}
        assert not answer["confirmed"]
        assert mentions(answer["why"], "node", "rig")


def test_strangers_get_no_stop_and_no_traceback(tmp_path: Path) -> None:
    with page() as address, test_beside(tmp_path / "run", "--set", "duration=40"):
        until(address, "RUNNING")
        own = address.rstrip("/")
        for data, headers, status in (
            (STOP, {}, 403),
            (STOP, MARK | {"Origin": "http://evil.example"}, 403),
            (STOP, MARK | {"Host": "evil.example"}, 403),
            (STOP, MARK | {"Origin": own, "Host": "evil.example"}, 403),
            (b"{", MARK, 400),
            (b"[]", MARK, 400),
            (b'"\xff"', MARK, 400),
            (b'{"kind": "reboot"}', MARK, 400),
            (b"x" * 5000, MARK, 413),
        ):
            found, answer = post(address, data, headers)
            assert found == status, (data[:40], headers, answer)
            assert not answer.get("confirmed")
        place = urlparse(address)
        with socket.create_connection((place.hostname or "", place.port or 0)) as slow:
            slow.sendall(b"POST /stop HTTP/1.1\r\nHost: x")  # and never goes on
            assert get(address)["run"]["state"] == "RUNNING"
        answers, until_then = set[bytes](), time.monotonic() + 30.0
        while b"HTTP/1.1 429" not in answers and time.monotonic() < until_then:
            with ExitStack() as flood:  # not one after another: a busy machine would never ask 100 times a second
                opened = [socket.create_connection((place.hostname or "", place.port or 0)) for _ in range(50)]
                for each in map(flood.enter_context, opened):
                    each.sendall(b"GET /page.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                answers |= {each.recv(12) for each in opened}
        assert b"HTTP/1.1 429" in answers, "a flood is dropped"


def test_a_page_of_another_origin_sees_nothing(tmp_path: Path) -> None:
    async def ask(address: str) -> int:
        async with aiohttp.ClientSession() as session:
            try:
                async with session.ws_connect(f"{address}live", headers={"Origin": "http://evil.example"}):
                    return 101
            except aiohttp.WSServerHandshakeError as refused:
                return refused.status

    with page() as address:
        assert asyncio.run(ask(address)) == 403


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
def test_in_a_browser_the_key_stops_the_rig_also_while_something_else_has_the_focus(tmp_path: Path) -> None:
    async def lead(address: str) -> tuple[str, list[str]]:
        async with Browser(address, tmp_path / "browser") as browser:
            await browser.until('document.getElementById("state")?.textContent === "RUNNING"')
            await browser.until("columns.length > 100")
            await browser.until('document.querySelectorAll("#limits .limit").length === 2')
            await browser.until("document.querySelector('#inner').textContent.includes('alpha')")
            await browser.until("document.querySelector('#timing').textContent.includes('compensator')")
            await browser.until("document.querySelector('#copies').textContent.includes('yield displacement')")
            assert await browser.value('document.getElementById("real").textContent') == "SIMULATED"
            await browser.value('document.getElementById("axis").focus()')
            for key in (" ", "Enter"):  # which press what has the focus
                await browser.press(key)
            assert await browser.value('document.getElementById("state").textContent') == "RUNNING"
            await browser.press("F8")
            await browser.until('document.getElementById("answer").textContent.startsWith("confirmed")')
            await browser.until('document.getElementById("state").textContent === "HELD"')
            return await browser.value('document.getElementById("reason").textContent'), browser.complaints

    sets = [f"--set={each}" for each in ("duration=60", *learning())]
    with page() as address, test_beside(tmp_path / "run", *sets) as running:
        reason, complaints = asyncio.run(lead(address))
        running.communicate(timeout=60.0)
    assert reason.endswith("stop service")
    assert complaints == []
    assert read_run(tmp_path / "run").outcome == "held"


BUTTONS_HIDDEN = 'document.getElementById("stop").hidden && document.getElementById("trip").hidden'
UNAVAILABLE = f'!document.getElementById("unavailable").hidden && {BUTTONS_HIDDEN}'


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
def test_a_stale_page_shows_that_its_stop_is_not_available(tmp_path: Path) -> None:
    async def look(address: str, front: int) -> None:
        async with Browser(address, tmp_path / "browser") as browser:
            await browser.until('document.getElementById("state")?.textContent === "RUNNING"')
            await browser.until(f"!({UNAVAILABLE}) && document.getElementById('unavailable').hidden")
            (behind,) = map(int, Path(f"/proc/{front}/task/{front}/children").read_text().split())
            for stopped, why in ((behind, "not up to date"), (front, "")):
                os.kill(stopped, signal.SIGSTOP)
                because = "document.getElementById('because').textContent"
                await browser.until(f"{UNAVAILABLE} && {because}.includes('{why}')")
                os.kill(stopped, signal.SIGCONT)
                await browser.until('document.getElementById("unavailable").hidden')
            os.kill(behind, signal.SIGSTOP)
            await browser.until(UNAVAILABLE)
            await browser.press("F8")  # the keys are sent all the same
            await browser.until('document.getElementById("answer").textContent.startsWith("confirmed")')
            os.kill(behind, signal.SIGCONT)

    with page_and_terminal() as (address, _, front), test_beside(tmp_path / "run", "--set", "duration=120"):
        asyncio.run(look(address, front))


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
def test_a_page_that_was_cut_off_or_loaded_again_comes_back_with_everything(tmp_path: Path) -> None:
    async def look(address: str) -> list[str]:
        async with Browser(address, tmp_path / "browser") as browser:
            await browser.until("columns.length > 150")
            first = await browser.value("starts[0]")
            for gone in ("socket.close()", "location.reload()"):
                await browser.value(f"{gone}; starts = []; columns = []")  # what is seen below has come again
                await browser.until("typeof columns !== 'undefined' && columns.length > 150", 20.0)
                assert await browser.value("starts[0]") == first
            await browser.until('document.getElementById("state").textContent === "RUNNING"')
            return browser.complaints

    with page() as address, test_beside(tmp_path / "run", "--set", "duration=60") as running:
        complaints = asyncio.run(look(address))
        assert running.poll() is None, "the test goes on"
    assert complaints == []


def test_what_cannot_be_served_is_refused_in_a_line() -> None:
    with page() as address:
        taken = urlparse(address).port
        done = subprocess.run([*RTHS, "page", "--port", str(taken)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert mentions(done.stderr, "rths", "page", "127.0.0.1", taken)
    assert f"user {pwd.getpwuid(os.getuid()).pw_name} listens" in done.stderr
    assert "(process " in done.stderr
    assert done.stderr.count("\n") == 1
    without = (
        "import sys; sys.modules['aiohttp'] = None; from rths_nodes.app.cli import main; sys.exit(main(['page']))"
    )
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert mentions(done.stderr, "installed", "python3-aiohttp")


def test_a_run_takes_no_other_port_than_the_one_it_was_given(tmp_path: Path) -> None:
    """A taken port became any other one, so that a bookmark showed the test of another user."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = [*RTHS, "run", "chen_ricles_2010", "--page", "--page-port", port, "--pace", "realtime"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert mentions(done.stderr, "page", port, f"process {os.getpid()}")
    assert not (tmp_path / "runs").exists(), "nothing has run"


def test_a_run_shows_its_own_page(tmp_path: Path) -> None:
    words = [
        *RTHS,
        "run",
        "chen_ricles_2010",
        "--page",
        "--page-port",
        "0",
        "--pace",
        "realtime",
        "--set",
        "duration=60",
    ]
    running = subprocess.Popen(
        [*words, "--record", str(tmp_path / "run")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    address = running.stderr.readline().split()[-1]
    until(address, "RUNNING")
    assert post(address, STOP)[1]["confirmed"]
    said, _ = running.communicate(timeout=60.0)
    assert "composed, realtime" in said
    assert read_run(tmp_path / "run").outcome == "held"
    with pytest.raises(OSError, match="refused"):  # it has ended with its run
        get(address)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "chen_ricles_2010", "--page", "--host", "embedded"), ("--page", "embedded")),
        (("test", "chen_ricles_2010", "--rig", "bench_simulated", "--page"), ("--page", "--socket")),
    ],
)
def test_where_there_is_nothing_to_show_it_is_refused(
    words: tuple[str, ...], said: tuple[str, ...], tmp_path: Path
) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text(
        "{operator: Ada, specimen: D-17, rungs: [g], level: 0.2, arm: [g], unload: {moves: y}, "
        "check: {moves: y}, position: {moves: y}, run: {moves: y}, "
        "offsets_seconds: 1.0, confirm_offsets: true, unloaded: true, largest_difference: {g: .inf}}"
    )
    more = ("--answers", str(answers)) if words[0] == "test" else ()
    done = subprocess.run([*RTHS, *words, *more], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert mentions(done.stderr, *said)
