# SPDX-License-Identifier: Apache-2.0
"""Tests of the page of a test: a real server and a real test, watched, stopped and attacked."""

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
    MARK,
    RTHS,
    Browser,
    asked_until,
    get,
    needs_chromium,
    page,
    page_and_terminal,
    post,
    test_beside,
    until,
    viewer,
)
from programs import begun

from rths_nodes.app.page import process
from rths_nodes.app.page.process import PATIENCE_S, page_beside
from rths_nodes.recording.reading import read_run

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
aiohttp = pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(240)]

STOP = json.dumps({"kind": "stop"}).encode()


async def watch(address: str, seconds: float) -> tuple[dict[str, object], dict[int, np.ndarray]]:
    """Return the situation, and columns by their first sample, that a watcher receives within ``seconds``."""
    situation: dict[str, object] = {}
    columns: dict[int, np.ndarray] = {}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{address}live".replace("http", "ws"), max_msg_size=0) as live,
    ):
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            message = await live.receive(timeout=20.0)
            if message.type is aiohttp.WSMsgType.TEXT:
                situation = json.loads(message.data)
                continue
            first, samples = np.frombuffer(message.data[:8], "<u4").tolist()
            values = np.frombuffer(message.data[8:], "<f4").reshape(-1, len(situation["curves"]["names"]), 4)
            columns |= {first + number * samples: column for number, column in enumerate(values)}
    return situation, columns


def test_watcher_receives_recorded_values_and_can_stop(tmp_path: Path) -> None:
    with page() as address, test_beside(tmp_path / "run", "--set", "duration=40") as running:
        assert until(address, "RUNNING")["port"] == "simulator"
        situation = asked_until(address, lambda situation: "rig_kinds" in situation)
        assert situation["rig_kinds"] == {"run": "SIMULATED"}
        assert situation["run"]["scenario"] == "chen_ricles_2010"
        asked_until(address, lambda situation: situation["stop_reaches"])  # DDS discovers the service later
        watched, columns = asyncio.run(watch(address, 2.0))
        status, answer = post(address, STOP)
        assert (status, answer["confirmed"]) == (200, True)
        situation = until(address, "HELD")
        assert situation["run"]["reason"].endswith("stop service")
        assert any(event["what"] == "stop" for event in situation["events"])
        running.communicate(timeout=60.0)
    run = read_run(tmp_path / "run")
    assert run.outcome == "held"
    assert len(columns) > 50
    names = watched["curves"]["names"]
    for name, values in (("target", run.target), ("measured", run.displacement), ("force", run.force)):
        curve = names.index(f"story_1/{name}")
        for first, column in columns.items():
            part = values[first : first + 10, 0].astype(np.float32)
            if len(part) == 10:
                np.testing.assert_array_equal(column[curve], [part[0], part.min(), part.max(), part[-1]])


def test_stop_without_rig_is_not_confirmed() -> None:
    with page() as address:
        assert get(address)["age"] is None
        assert not asked_until(address, lambda situation: "stop_reaches" in situation)["stop_reaches"]
        status, answer = post(address, STOP)
        assert status == 503
        assert answer.keys() == {"confirmed", "why"}
        assert not answer["confirmed"]
        assert mentions(answer["why"], "node", "rig")


def test_invalid_stops_are_refused_and_floods_limited(tmp_path: Path) -> None:
    with page() as address, test_beside(tmp_path / "run", "--set", "duration=40"):
        until(address, "RUNNING")
        for data, headers, status in (
            (STOP, {}, 403),
            (STOP, MARK | {"Origin": "http://evil.example"}, 403),
            (STOP, MARK | {"Host": "evil.example"}, 403),
            (STOP, MARK | {"Origin": address.rstrip("/"), "Host": "evil.example"}, 403),
            (b"{", MARK, 400),
            (b"[]", MARK, 400),
            (b'"\xff"', MARK, 400),
            (b'{"kind": "reboot"}', MARK, 400),
            (b"x" * 5000, MARK, 413),
        ):
            actual, answer = post(address, data, headers)
            assert actual == status, (data[:40], headers, answer)
            assert not answer.get("confirmed")
        url = urlparse(address)
        with socket.create_connection((url.hostname, url.port)) as slow:
            slow.sendall(b"POST /stop HTTP/1.1\r\nHost: x")  # and nothing more
            assert get(address)["run"]["state"] == "RUNNING"
        answers, deadline = set[bytes](), time.monotonic() + 30.0
        while b"HTTP/1.1 429" not in answers and time.monotonic() < deadline:
            with ExitStack() as flood:  # in parallel: a busy machine would never send 100 requests per second
                clients = [socket.create_connection((url.hostname, url.port)) for _ in range(50)]
                for client in map(flood.enter_context, clients):
                    client.sendall(b"GET /page.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                answers |= {client.recv(12) for client in clients}
        assert b"HTTP/1.1 429" in answers


def test_page_of_another_origin_receives_nothing() -> None:
    async def status_of_live(address: str) -> int:
        async with aiohttp.ClientSession() as session:
            try:
                async with session.ws_connect(f"{address}live", headers={"Origin": "http://evil.example"}):
                    return 101
            except aiohttp.WSServerHandshakeError as refused:
                return refused.status

    with page() as address:
        assert asyncio.run(status_of_live(address)) == 403


@needs_chromium
def test_stop_key_works_while_another_element_has_focus(tmp_path: Path) -> None:
    async def stop(address: str) -> tuple[str, list[str]]:
        async with Browser(address, tmp_path / "browser") as browser:
            await browser.until('document.getElementById("state")?.textContent === "RUNNING"')
            await browser.until("columns.length > 100")
            await browser.until('document.querySelectorAll("#limits .limit").length === 2')
            await browser.until("document.querySelector('#inner').textContent.includes('alpha')")
            await browser.until("document.querySelector('#timing').textContent.includes('compensator')")
            await browser.until("document.querySelector('#copies').textContent.includes('yield displacement')")
            assert await browser.value('document.getElementById("real").textContent') == "SIMULATED"
            await browser.value('document.getElementById("axis").focus()')
            for key in (" ", "Enter"):  # these press the focused element
                await browser.press(key)
            assert await browser.value('document.getElementById("state").textContent') == "RUNNING"
            await browser.press("F8")
            await browser.until('document.getElementById("answer").textContent.startsWith("confirmed")')
            await browser.until('document.getElementById("state").textContent === "HELD"')
            return await browser.value('document.getElementById("reason").textContent'), browser.complaints

    overrides = [f"--set={override}" for override in ("duration=60", *learning())]
    with page() as address, test_beside(tmp_path / "run", *overrides) as running:
        reason, complaints = asyncio.run(stop(address))
        running.communicate(timeout=60.0)
    assert reason.endswith("stop service")
    assert complaints == []
    assert read_run(tmp_path / "run").outcome == "held"


BUTTONS_HIDDEN = 'document.getElementById("stop").hidden && document.getElementById("trip").hidden'
UNAVAILABLE = f'!document.getElementById("unavailable").hidden && {BUTTONS_HIDDEN}'


@pytest.mark.usefixtures("fresh_programs")
@needs_chromium
def test_stale_page_shows_that_stop_is_unavailable(tmp_path: Path) -> None:
    async def look(address: str, front: int) -> None:
        async with Browser(address, tmp_path / "browser") as browser:
            await browser.until('document.getElementById("state")?.textContent === "RUNNING"')
            await browser.until(f"!({UNAVAILABLE}) && document.getElementById('unavailable').hidden")
            (page_process,) = map(int, Path(f"/proc/{front}/task/{front}/children").read_text().split())
            for process, reason in ((page_process, "not up to date"), (front, "")):
                os.kill(process, signal.SIGSTOP)
                shown = "document.getElementById('because').textContent"
                await browser.until(f"{UNAVAILABLE} && {shown}.includes('{reason}')")
                os.kill(process, signal.SIGCONT)
                await browser.until('document.getElementById("unavailable").hidden')
            os.kill(page_process, signal.SIGSTOP)
            await browser.until(UNAVAILABLE)
            await browser.press("F8")  # keys are still sent
            await browser.until('document.getElementById("answer").textContent.startsWith("confirmed")')
            os.kill(page_process, signal.SIGCONT)

    with page_and_terminal() as (address, _, front), test_beside(tmp_path / "run", "--set", "duration=120"):
        asyncio.run(look(address, front))


@needs_chromium
def test_reconnected_or_reloaded_page_shows_all_columns(tmp_path: Path) -> None:
    async def look(address: str) -> list[str]:
        async with Browser(address, tmp_path / "browser") as browser:
            await browser.until("columns.length > 150")
            first = await browser.value("starts[0]")
            for interruption in ("socket.close()", "location.reload()"):
                await browser.value(f"{interruption}; starts = []; columns = []")  # later columns are new
                await browser.until("typeof columns !== 'undefined' && columns.length > 150", 20.0)
                assert await browser.value("starts[0]") == first
            await browser.until('document.getElementById("state").textContent === "RUNNING"')
            return browser.complaints

    with page() as address, test_beside(tmp_path / "run", "--set", "duration=60") as running:
        assert asyncio.run(look(address)) == []
        assert running.poll() is None, "the test continues"


def refused(*command: str, cwd: Path | None = None) -> str:
    """Run a command that must be refused, and return its standard error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_page_command_refuses_taken_port_and_missing_aiohttp() -> None:
    with page() as address:
        port = urlparse(address).port
        error = refused(*RTHS, "page", "--port", str(port))
    assert mentions(error, "rths", "page", "127.0.0.1", port, "(process ")
    assert f"user {pwd.getpwuid(os.getuid()).pw_name} listens" in error
    assert error.count("\n") == 1
    without = (
        "import sys; sys.modules['aiohttp'] = None; from rths_nodes.app.cli import main; sys.exit(main(['page']))"
    )
    error = refused(sys.executable, "-c", without)
    assert error.count("\n") == 1
    assert mentions(error, "installed", "python3-aiohttp")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("page", "--namespace", "a b"), ("namespace", "'a b'")),
        (("watch", "bench_watched", "--namespace", "1x"), ("namespace", "'1x'")),
        (("page", "--address", "no.invalid"), ("no.invalid", "8085", "not known")),
        (("page", "--address", "192.0.2.1"), ("192.0.2.1:8085", "assign")),
        (("run", "chen_ricles_2010", "--page-port", "1"), ("--page-port 1", "requires --page")),
        (("run", "chen_ricles_2010", "--page", "--page-port=65536"), ("--page-port = 65536", "65535")),
    ],
)
def test_invalid_namespace_or_address_is_refused(
    arguments: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path
) -> None:
    error = refused(*RTHS, *arguments, cwd=tmp_path)
    assert error.count("\n") == 1, error
    assert mentions(error, *parts)


def test_run_refuses_a_taken_page_port(tmp_path: Path) -> None:
    """Another free port was used instead, so that a bookmark showed the test of another user."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [*RTHS, "run", "chen_ricles_2010", "--page", "--page-port", port, "--pace", "realtime"]
        assert mentions(refused(*command, cwd=tmp_path), "page", port, f"process {os.getpid()}")
    assert not (tmp_path / "runs").exists()


def test_page_process_is_not_blocked_by_its_error_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing read the pipe: after 64 KiB of errors the process hung that answers stops."""
    program = "import sys; print('first', flush=True); print('error ' * 20_000, file=sys.stderr); print('last')"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    started = subprocess.Popen([sys.executable, "-c", program], **pipes)
    monkeypatch.setattr(process.subprocess, "Popen", lambda *_, **__: started)
    lines: list[str] = []
    with page_beside("rths", lines.append):
        started.wait(30.0)
    assert sorted(line[:5] for line in lines) == ["error", "first", "last", "the p"]


def test_end_of_the_page_during_a_test_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that was killed took its stop along without a message."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    program = "import time; print('first', flush=True); time.sleep(30.0)"
    started = subprocess.Popen([sys.executable, "-c", program], **pipes)
    monkeypatch.setattr(process.subprocess, "Popen", lambda *_, **__: started)
    lines: list[str] = []
    with page_beside("rths", lines.append):
        started.kill()
        limit = time.monotonic() + 5.0
        while len(lines) < 2 and time.monotonic() < limit:
            time.sleep(0.01)
        assert mentions(lines[1], "page", "ended", "stop")
    assert len(lines) == 2


@pytest.mark.usefixtures("fresh_programs")
def test_all_processes_of_an_open_page_end_at_once() -> None:
    """Each test with ``--page`` ended 15 s late, and a process remained."""
    lines: list[str] = []
    with ExitStack() as stack:
        number = stack.enter_context(page_beside("rths", lines.append, ["--port", "0"]))
        (behind,) = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        with viewer(lines[0].split()[-1]) as client:
            assert client.recv(12) == b"HTTP/1.1 101"
            start = time.monotonic()
            stack.close()
    assert time.monotonic() - start < PATIENCE_S
    assert not Path(f"/proc/{behind}").exists()


def test_run_serves_its_page_until_it_ends(tmp_path: Path) -> None:
    options = ("--page", "--page-port=0", "--pace=realtime", "--set=duration=60", f"--record={tmp_path / 'run'}")
    running = begun([*RTHS, "run", "chen_ricles_2010", *options], stdin=subprocess.DEVNULL)
    address = running.stderr.readline().split()[-1]
    until(address, "RUNNING")
    assert post(address, STOP)[1]["confirmed"]
    output, _ = running.communicate(timeout=60.0)
    assert "composed, realtime" in output
    assert read_run(tmp_path / "run").outcome == "held"
    with pytest.raises(OSError, match="refused"):
        get(address)


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (("run", "chen_ricles_2010", "--page", "--host", "embedded"), ("--page", "embedded")),
        (("test", "chen_ricles_2010", "--rig", "bench_simulated", "--page"), ("--page", "--socket")),
    ],
)
def test_page_is_refused_for_unsuitable_commands(
    command: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "answers.yaml").write_text(
        "{operator: Ada, specimen: D-17, rungs: [g], level: 0.2, arm: [g], unload: {moves: y}, "
        "check: {moves: y}, position: {moves: y}, run: {moves: y}, "
        "offsets_seconds: 1.0, confirm_offsets: true, unloaded: true, largest_difference: {g: .inf}}"
    )
    answers = ("--answers", "answers.yaml") if command[0] == "test" else ()
    assert mentions(refused(*RTHS, *command, *answers, cwd=tmp_path), *parts)
