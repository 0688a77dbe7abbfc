# SPDX-License-Identifier: Apache-2.0
"""Tests of a test led by its page: one operator at a time, identified by a code of the terminal."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from c_compiler import needs_compiler
from emulated_bench import free_port
from messages import mentions, naming
from page_of_test import (
    MARK,
    RTHS,
    Browser,
    asked_until,
    get,
    needs_chromium,
    page_and_terminal,
    procedure_beside,
)
from rig_runner import rig_file
from served_test import MOVES, arguments_of

from rths_nodes.app.page.connections import quiet_runner, shut_down
from rths_nodes.app.page.operator import CODE_S, GONE_S, LENGTH, SYMBOLS, Operating, TooManyCodes
from rths_nodes.app.page.server import PageServer
from rths_nodes.app.procedure.operator_socket import UNSEEN, Answer, Request, SocketOperator
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.procedure_record import PAGE, SOCKET
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import procedure

pytest.importorskip("aiohttp", reason="aiohttp is not installed here")
pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

STOPPED = (
    ("run", "RUNNING", "F8"),
    ("unload", "UNLOADING", "stop"),
    ("position", "POSITIONING", "F8"),
    ("position", "POSITIONING", "stop"),
)
"""Acts that move the rig, the state in which they are stopped, and the key or button."""
ADA = r"Ada\x1b[2J\r\n\u202e"
"""A name in terminal and record, with escapes in place of terminal codes."""
CODE = re.compile(rf"\b[{SYMBOLS}]{{4}}-[{SYMBOLS}]{{4}}$")


class Procedure:
    """Accepts every request and stores its act."""

    def __init__(self) -> None:
        self.state, self.acts, self.arming = State.ARMED, [], lambda: None

    def __call__(self, request: Request) -> Answer:
        if request.act == "arm":
            self.arming()
            self.state = State.ARMED
        if request.act:
            self.acts.append((request.act, request.by, request.arguments))
            self.seen = request.stops, request.state
        return Answer(done=True, state=int(self.state), stops=7)


def operating(arms: bool = True) -> tuple[Operating, Procedure, list[str], list[float]]:
    """Return the operation by a page, its procedure, the lines of the terminal, and the time."""
    requests, lines, now = Procedure(), [], [0.0]
    return Operating(requests, lines.append, arms, lambda: now[0]), requests, lines, now


def code_of(lines: list[str]) -> str:
    return next(match[0] for line in reversed(lines) if (match := CODE.search(line)))


def led(page: Operating, lines: list[str], name: str = "Ada") -> str:
    """Lead the test by the page with a new code, and return its token."""
    page.offer()
    return page.lead(code_of(lines), name)


def test_only_the_page_with_the_newest_code_leads() -> None:
    page, requests, lines, _ = operating()
    requests.state = State.HELD
    with pytest.raises(ConfigError, match=naming("code", "valid")):
        page.lead("", "Ada")
    token = led(page, lines, " Ada ")
    assert page.act(token, "check", {}).done
    assert requests.acts == [("check", "Ada", {})]
    for other in ("", "0" * 32):
        with pytest.raises(ConfigError, match=naming("lead")):
            page.act(other, "run", {})
    with pytest.raises(ConfigError, match=naming("code", "valid")):
        page.lead(code_of(lines[:1]), "Eve")  # a code is valid once
    page.offer()
    assert page.act(token, "check", {}).done  # the first page leads until the new code is entered
    second = page.lead(code_of(lines), "Bob")
    with pytest.raises(ConfigError, match=naming("lead")):
        page.act(token, "run", {})
    assert page.act(second, "run", {}).done


def test_act_has_stops_and_state_shown_by_the_browser() -> None:
    page, requests, lines, _ = operating()
    token = led(page, lines)
    assert page.situation()["seen"] == {"stops": 7, "state": int(State.ARMED), "test_id": ""}
    page.act(token, "run", {}, {"stops": 5, "state": 3})
    assert requests.seen == (5, 3), "not the current ones"
    for seen in (None, {}, {"stops": "5", "state": 3}, {"stops": 5}):
        page.act(token, "run", {}, seen)
        assert requests.seen == (UNSEEN, UNSEEN)


def test_codes_have_40_bits_differ_and_expire_after_a_minute() -> None:
    assert len(set(SYMBOLS)) ** LENGTH >= 2**40
    assert not set("ILOU") & set(SYMBOLS), "letters that look like digits"
    page, _, lines, now = operating()
    codes = set()
    for _ in range(50):
        page.offer()
        codes.add(code_of(lines))
        now[0] += CODE_S + 1.0
        with pytest.raises(ConfigError, match=naming("code", "valid")):
            page.lead(code_of(lines), "Ada")
    assert len(codes) == 50


def test_requests_of_strangers_do_not_block_the_operator() -> None:
    """A new offer or three wrong codes voided the code, and each offer was a line at the terminal."""
    page, _, lines, now = operating()
    page.offer()
    code, refused = code_of(lines), []
    for number in range(3000):
        now[0] = number / 100.0
        page.offer()
        with pytest.raises(ConfigError) as error:
            page.lead("wrong", "Eve")
        refused.append(error.type)
    assert len(lines) <= 7, "one line in 5 s"
    assert {code_of([line]) for line in lines} == {code}
    assert refused.count(ConfigError) <= 301, "ten wrong codes per second are compared"
    assert refused.count(TooManyCodes) == 3000 - refused.count(ConfigError)
    assert page.lead(f" {code.lower().replace('0', 'o').replace('1', 'l')} ", "Ada"), "never delayed"


def test_takeover_or_loss_of_the_page_disarms() -> None:
    page, requests, lines, now = operating()
    token = led(page, lines)
    assert [(act, by) for act, by, _ in requests.acts] == [("stop", "Ada")]
    for _ in range(100):
        now[0] += 0.5
        assert page.alive(token)
        page.disarm_if_lost()
    assert len(requests.acts) == 1, "its page is alive"
    now[0] += GONE_S - 0.1
    page.alive("0" * 32)
    page.disarm_if_lost()
    assert len(requests.acts) == 1
    now[0] += 0.2
    for _ in range(3):
        page.disarm_if_lost()
    assert [act for act, *_ in requests.acts] == ["stop", "stop"]
    assert page.act(token, "arm", {}).done
    now[0] += GONE_S + 0.1
    page.disarm_if_lost()
    assert [act for act, *_ in requests.acts][2:] == ["arm", "stop"], "an act shows that the page is alive"
    led(page, lines, "Bob")
    assert requests.acts[-1][:2] == ("stop", "Bob")


def test_rung_armed_by_a_replaced_or_lost_page_is_disarmed() -> None:
    page, requests, lines, now = operating()

    def replaced() -> None:
        led(page, lines, "Bob")

    def lost() -> None:
        now[0] += GONE_S + 0.1
        page.disarm_if_lost()

    def unanswered() -> None:
        lost()
        requests.state = State.ARMED
        raise ConfigError("no answer")

    for event in (replaced, lost, page.close, unanswered):
        requests.state = State.POSITIONED
        token = led(page, lines)
        requests.arming = event
        with suppress(ConfigError):
            page.act(token, "arm", {})
        acts = [act for act, *_ in requests.acts]
        assert acts == (["stop"] if event is unanswered else ["arm", "stop"]), event
        requests.acts.clear()


def test_page_that_leads_disarms_at_its_end() -> None:
    page, requests, lines, _ = operating()
    page.close()
    assert not requests.acts
    led(page, lines)
    requests.acts.clear()

    async def serve() -> None:
        runner = quiet_runner(PageServer(lambda _: ({}, 0, []), "127.0.0.1", operating=page).application())
        await runner.setup()
        await shut_down(runner)

    asyncio.run(serve())
    assert [act for act, *_ in requests.acts] == ["stop"]


def test_blocked_terminal_does_not_delay_the_leading_page() -> None:
    """A terminal that does not read, such as after Ctrl-S, blocked the page and thus the disarming."""
    page, _, lines, _ = operating()
    token = led(page, lines)
    seen: list[bool] = []

    def say(_: str) -> None:
        thread = Thread(target=lambda: seen.append(page.alive(token)), daemon=True)
        thread.start()
        thread.join(5.0)

    page._say = say
    page.offer()
    assert seen == [True]


def test_invalid_acts_are_refused_before_the_procedure() -> None:
    page, requests, lines, _ = operating(arms=False)
    requests.state = State.HELD
    page.offer()
    assert not page.alive("\udcff")
    with pytest.raises(ConfigError, match=naming("not the code")):
        page.lead("\udcff", "Eve")
    with pytest.raises(ConfigError, match=naming("name", "must have", "characters")):
        page.lead(code_of(lines), " ")
    token = page.lead(code_of(lines), "Ada")
    for act, arguments, reason in (
        ("arm", {"rung": "g"}, "arm: this page cannot arm a rung. Start the page with --arm-from-page"),
        ("fly", {}, "unknown act 'fly'"),
        ("note", {"text": "x" * 3000}, "note.text: must have at most 2000"),
    ):
        with pytest.raises(ConfigError, match=reason):
            page.act(token, act, arguments)
    assert requests.acts == []


@pytest.mark.parametrize(("state", "acts"), [(State.ARMED, ["stop"]), (State.RUNNING, []), (State.HELD, [])])
def test_only_an_armed_rig_is_disarmed_without_page(state: State, acts: list[str]) -> None:
    page, requests, _, _ = operating()
    requests.state = state
    page.disarm("lost")
    assert [act for act, *_ in requests.acts] == acts


def post(address: str, path: str, fields: object, headers: dict[str, str] = MARK) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(f"{address}{path}", json.dumps(fields).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60.0) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


@pytest.mark.nodes
@pytest.mark.timeout(240)
def test_strangers_cannot_act_over_the_page(tmp_path: Path) -> None:
    with page_and_terminal() as (address, _, _), procedure_beside(tmp_path, "g", "--set=duration=0.2"):
        while not get(address).get("acts"):
            time.sleep(0.1)
        for headers in (MARK, MARK | {"X-Rths-Operator": "0" * 32}):
            status, answer = post(address, "act", {"act": "connect", "arguments": {}}, headers)
            assert (status, mentions(answer["error"], "lead")) == (403, True)
        for headers in ({}, MARK | {"Origin": "http://evil.example"}):
            for path, fields in (("code", {}), ("lead", {"code": "1", "name": "Eve"}), ("act", {})):
                assert post(address, path, fields, headers)[0] == 403
        for kind in ("application/json", "application/json; charset=unknown"):
            assert post(address, "lead", [], MARK | {"Content-Type": kind})[0] == 400
        assert get(address)["acts"]["state"] == "IDLE"


class PageOperator:
    """Leads a test over HTTP, by the page that the test has started."""

    def __init__(self, testing: subprocess.Popen[str], name: str) -> None:
        self.lines = iter(testing.stdout)
        self.address = next(match[0] for line in self.lines if (match := re.search(r"http://\S+", line)))
        asked_until(self.address, lambda situation: bool(situation.get("acts")))
        assert post(self.address, "code", {})[0] == 200
        code = next(line for line in self.lines if "code to enter on the page" in line).split()[-1]
        token = post(self.address, "lead", {"code": code, "name": name})[1]["token"]
        self._headers = MARK | {"X-Rths-Operator": token}

    def act(self, name: str, seen: object, arguments: dict[str, str] | None = None) -> dict[str, str]:
        fields = {"act": name, "arguments": arguments or {}, "seen": seen}
        status, answer = post(self.address, "act", fields, self._headers)
        assert status == 200, answer
        return answer


SHORT_WITH_PAGE = ("--set=duration=0.2", "--no-report", "--page", "--page-port=0")


@pytest.mark.nodes
@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.timeout(240)
def test_stale_acts_of_started_page_are_refused(tmp_path: Path) -> None:
    with procedure_beside(tmp_path, "g", *SHORT_WITH_PAGE) as testing:
        test = PageOperator(testing, "Ada\x1b[2J\r\n\u202e")
        assert next(line for line in test.lines if "leads the test" in line).startswith(f"{ADA} leads")
        before = get(test.address)["acts"]["seen"]
        assert post(test.address, "stop", {"kind": "stop"})[1]["confirmed"]
        refused = test.act("connect", before)
        assert not refused["done"]
        assert mentions(refused["reason"], "state", "IDLE", "0", "1")
        situation = asked_until(test.address, lambda situation: situation["acts"]["seen"]["stops"] == 1)
        assert test.act("connect", situation["acts"]["seen"])["done"]
        situation = asked_until(test.address, lambda situation: situation["acts"]["state"] == "CONNECTED")
        assert test.act("finish", situation["acts"]["seen"])["done"]
        testing.communicate(timeout=60.0)
    acts = procedure.read(tmp_path / "runs" / "first").acts
    assert [(act.act, act.by, act.way, bool(act.refused)) for act in acts] == [
        ("connect", ADA, PAGE, True),
        ("connect", ADA, PAGE, False),
        ("finish", ADA, PAGE, False),
    ]


def descendants(process: int) -> list[int]:
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            parents[int(status.parent.name)] = int(re.findall(r"PPid:\s*(\d+)", status.read_text())[0])
    processes = [process]
    for ancestor in processes:
        processes += [child for child, parent in parents.items() if parent == ancestor]
    return processes[1:]


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.nodes
@pytest.mark.timeout(180)
def test_suspended_page_disarms_the_rung(tmp_path: Path) -> None:
    with procedure_beside(tmp_path, "g", *SHORT_WITH_PAGE, "--arm-from-page") as testing:
        test, operator = PageOperator(testing, "Ada"), SocketOperator()
        for name in MOVES[: MOVES.index("arm") + 1]:
            seen = operator.ask()
            shown = {"stops": seen.stops, "state": seen.state, "test_id": seen.test_id}
            answer = test.act(name, shown, arguments_of(name, seen))
            assert answer["done"], answer
        assert operator.ask().state == State.ARMED
        page = descendants(testing.pid)
        for process in page:
            os.kill(process, signal.SIGSTOP)
        suspended = time.monotonic()
        while operator.ask().state == State.ARMED and time.monotonic() - suspended < 30.0:
            time.sleep(0.05)
        for process in page:
            os.kill(process, signal.SIGCONT)
        assert operator.ask().state == State.HELD
        assert operator.ask("finish").done
        testing.communicate(timeout=60.0)
    stop = next(act for act in procedure.read(tmp_path / "runs" / "first").acts if act.act == "stop")
    assert (stop.by, stop.way) == ("Ada", PAGE)
    assert mentions(stop.arguments["reason"], "page", "silent")


BANNER = 'document.getElementById("real").textContent'


@pytest.mark.nodes
@pytest.mark.timeout(300)
@needs_chromium
@needs_compiler
@pytest.mark.parametrize(("emulator", "kind"), [("true", "EMULATED"), ("false", "REAL RIG")])
def test_banner_shows_kind_of_rig_from_the_first_state(emulator: str, kind: str, tmp_path: Path) -> None:
    """The banner read PORT NOT TOLD YET until a rung ran, while check and positioning moved the rig."""

    async def look(address: str, terminal: Callable[[], str]) -> list[str]:
        async with Browser(address, tmp_path / "browser") as browser:
            await browser.until('told.acts && told.acts.state === "IDLE"')
            await browser.until(f'{BANNER} === "{kind}, NOT CONNECTED"')
            if kind == "EMULATED":
                await take_the_lead(browser, terminal)
                await browser.until('told.procedure.state !== "IDLE"')
            else:  # there is no real rig to connect to
                connected = 'told = {...told, procedure: {...told.procedure, state: "CONNECTED"}}'
                assert await browser.value(f"{connected}; show(); {BANNER}") == kind
            await browser.until(f'{BANNER}.startsWith("{kind}")')
            assert await browser.value("document.title.includes('/rths')")
            assert await browser.value("told.user") == getpass.getuser()
            return browser.complaints

    slower = ["--set=servo_rate=256", "--set=substeps=3"] if kind == "EMULATED" else []
    options = [f"--set=port.port={free_port()}", *slower]
    rig = tmp_path / "bench.yaml"
    text = files.locate("bench_udp", files.RIG).read_text().replace("emulator: true", f"emulator: {emulator}")
    rig.write_text(text.replace("deceleration: 20.0", "deceleration: 20.0, tracking_error: 0.02"))
    with (
        emulated(tmp_path, *options),
        page_and_terminal() as (address, terminal, _),
        procedure_beside(tmp_path, "g", *options, rig=str(rig)) as testing,
    ):
        assert asyncio.run(look(address, terminal)) == []
        testing.send_signal(signal.SIGINT)
        output, _ = testing.communicate(timeout=60.0)
    assert f"({kind}): " in output
    assert kind != "EMULATED" or "EMULATED: connected" in output
    assert procedure.read(tmp_path / "runs" / "first").rig_kind == kind


NEEDED = 'document.querySelector("#needs button")'
"""Button of the required confirmation, signature or arming."""


def code_at(terminal: Callable[[], str]) -> str:
    """Return the next code that the terminal shows."""
    return next(match[0] for line in iter(terminal, None) if (match := CODE.search(line.strip())))


async def type_the_code(browser: Browser, terminal: Callable[[], str]) -> None:
    """Become the operator by the code of the terminal."""
    await browser.click("code")
    code = await asyncio.to_thread(code_at, terminal)
    await browser.value('document.getElementById("name").value = "Ada"')
    await browser.value(f'document.getElementById("typed").value = "{code}"')
    await browser.value('document.getElementById("leading").requestSubmit()')
    await browser.until("Boolean(token)")


async def take_the_lead(browser: Browser, terminal: Callable[[], str], rehearse: bool = False) -> None:
    """Become the operator, ``rehearse`` rung b, connect, and confirm the offsets."""
    await browser.until('!document.getElementById("procedure").hidden')
    assert await browser.value('document.getElementById("act_connect") === null'), "no act without a leader"
    await type_the_code(browser, terminal)
    if rehearse:
        await browser.click("act_rehearse")
        await browser.until('!asked && told.acts.next_rung === "c"', 60.0)
    await browser.click("act_connect")
    boxes = 'document.querySelectorAll("#needs input[type=checkbox]")'
    for act in ("take offsets", "confirm offsets"):
        await browser.until(f'{NEEDED} && {NEEDED}.textContent === "{act}" && !asked')
        await browser.value(f"{boxes}.forEach(e => e.checked = true)")
        await browser.value(f"{NEEDED}.click()")


async def check(browser: Browser) -> None:
    """Move every axis, and sign for the items that this has not verified."""
    await browser.move("check")
    await browser.until("!asked && !told.acts.possible.sign_for || !asked && !told.acts.possible.position")
    while count := await browser.value("told.acts.to_sign.length"):
        await browser.until(f'!asked && {NEEDED} && {NEEDED}.textContent.startsWith("sign for")')
        await browser.value(f"{NEEDED}.click()")
        await browser.until(f"told.acts.to_sign.length < {count} && !asked")


async def arm(browser: Browser) -> None:
    """Arm the rung by the first characters of its hash, after another text has armed nothing."""
    await browser.until(f'!asked && {NEEDED} && {NEEDED}.textContent === "arm"')
    await browser.value('document.querySelector("#needs input").value = "wrong!"')
    await browser.value(f"{NEEDED}.click()")
    assert "not armed" in await browser.value('document.getElementById("result").textContent')
    typed = "told.acts.next_rung + told.acts.scenario_hash.slice(0, 6)"
    await browser.value(f'document.querySelector("#needs input").value = {typed}')
    await browser.value(f"{NEEDED}.click()")


async def type_half_a_name(browser: Browser) -> None:
    """Type a part of a name: it is kept until the offsets to be armed change."""
    await browser.click("act_arm")
    await browser.value('document.querySelector("#needs input").value = "R. Spons"')
    for change, kept in (('possible: {...told.acts.possible, run: "no"}', "R. Spons"), ('offsets_hash: "1"', "")):
        typed = await browser.value(
            f"heard_now = told; told = {{...told, acts: {{...told.acts, {change}}}}}; procedure();"
            'typed_now = document.querySelector("#needs input").value; told = heard_now; procedure(); typed_now'
        )
        assert typed == kept, change


async def two_persons(address: str, terminal: Callable[[], str], folder: Path) -> None:
    """Arm rung g with the operator's name for the second person, then with another name."""
    async with Browser(address, folder) as browser:
        await take_the_lead(browser, terminal)
        await browser.move("check")
        await browser.until("!asked && !told.acts.possible.position")
        await browser.move("position")
        await browser.click("act_arm")
        await type_half_a_name(browser)
        for second in (" A da", "R. Sponsible"):
            await browser.until(f'!asked && {NEEDED} && {NEEDED}.textContent === "arm"')
            await browser.value(f'document.querySelectorAll("#needs input")[1].value = "{second}"')
            await arm(browser)
            await browser.until("!asked")
        await browser.until('told.procedure.state === "ARMED"')
        await browser.move("run")
        await browser.until('!asked && told.acts.next_rung === ""', 60.0)
        await browser.click("act_finish")
        await browser.until("!asked", 60.0)


@pytest.mark.nodes
@pytest.mark.timeout(240)
@needs_chromium
def test_page_asks_for_the_second_person(tmp_path: Path) -> None:
    rig = str(rig_file(tmp_path, two_persons=True))
    with (
        page_and_terminal("--arm-from-page") as (address, terminal, _),
        procedure_beside(tmp_path, "g", "--set=duration=0.5", rig=rig) as testing,
    ):
        asyncio.run(two_persons(address, terminal, tmp_path / "browser"))
        testing.communicate(timeout=120.0)
    acts = [act for act in procedure.read(tmp_path / "runs" / "first").acts if act.act == "arm"]
    assert [bool(act.refused) for act in acts] == [True, False]
    assert acts[1].arguments["second"] == "R. Sponsible"


async def lead(address: str, terminal: Callable[[], str], folder: Path, kind: str) -> list[str]:
    """Run the rungs b, c and g by the page alone; the banner shows the ``kind`` of the rig to the end."""
    async with Browser(address, folder) as browser:
        await take_the_lead(browser, terminal, rehearse=True)
        await check(browser)
        for run in (browser.click("act_run"), browser.move("run")):  # rung c moves nothing
            await browser.move("position")
            await arm(browser)
            await browser.until('!asked && told.acts.state === "ARMED"')
            await run
            await browser.until('!asked && told.acts.state === "HELD"', 60.0)
        await browser.click("act_finish")
        await browser.until("!asked", 60.0)
        await browser.until(f'{BANNER} === "{kind}"')
        return browser.complaints


async def stop_while(browser: Browser, act: str, state: str, by: str) -> None:
    """Begin an ``act``, and stop it ``by`` a key or a button of the page while it moves."""
    await browser.move(act)
    await browser.until(f'told.procedure.state === "{state}"')
    if state == "RUNNING":  # its nodes may still be starting
        await browser.until('told.run && told.run.state === "RUNNING" && columns.length > 50')
        await browser.until('asked === "run" && !document.getElementById("act_hold").disabled')
    await asyncio.sleep(0.2)
    if by.startswith("F"):
        await browser.press(by)
    else:
        await browser.value(f'document.getElementById("{by}").dispatchEvent(new PointerEvent("pointerdown"))')
    await browser.until('document.getElementById("answer").textContent.startsWith("confirmed")')
    await browser.until('!asked && told.procedure.state === "HELD"')


async def stop_all(address: str, terminal: Callable[[], str], folder: Path, check_alone: bool) -> list[str]:
    """Stop every motion of a procedure by the page."""
    async with Browser(address, folder) as browser:
        await take_the_lead(browser, terminal)
        if check_alone:
            await stop_while(browser, "check", "CHECKING", "stop")
        else:
            await check(browser)
            await browser.move("position")
            await arm(browser)
            for act, state, by in STOPPED:
                await stop_while(browser, act, state, by)
        await browser.click("act_finish")
        await browser.until("!asked", 60.0)
        return browser.complaints


@contextmanager
def emulated(folder: Path, *options: str) -> Iterator[None]:
    """Run ``rths emulate`` of a bench with the port udp."""
    command = [*RTHS, "emulate", "chen_ricles_2010", "--rig", "bench_udp", "--again", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as rig:
        assert "emulated at" in rig.stdout.readline()
        try:
            yield
        finally:
            rig.send_signal(signal.SIGINT)
            rig.communicate(timeout=30.0)


@pytest.mark.nodes
@pytest.mark.timeout(300)
@needs_chromium
@pytest.mark.parametrize(
    ("rig", "kind"),
    [("bench_simulated", "SIMULATED"), pytest.param("bench_udp", "EMULATED", marks=needs_compiler)],
)
def test_page_alone_leads_a_complete_test(rig: str, kind: str, tmp_path: Path) -> None:
    options = ["--set=duration=0.5", "--set=servo_rate=256", "--set=substeps=3"]
    with ExitStack() as stack:
        if rig == "bench_udp":
            options.append(f"--set=port.port={free_port()}")
            stack.enter_context(emulated(tmp_path, *options))
        address, terminal, _ = stack.enter_context(page_and_terminal("--arm-from-page"))
        testing = stack.enter_context(procedure_beside(tmp_path, "bcg", *options, rig=rig))
        complaints = asyncio.run(lead(address, terminal, tmp_path / "browser", kind))
        output, _ = testing.communicate(timeout=120.0)
    assert testing.returncode == 0, output
    assert complaints == []
    record = procedure.read(tmp_path / "runs" / "first")
    assert record.outcome == "finished"
    assert {act.by for act in record.acts} == {"Ada"}
    assert {act.way for act in record.acts} == {SOCKET}, "the page was started by hand"
    assert (tmp_path / "runs" / "first" / "report.html").is_file()


@pytest.mark.nodes
@pytest.mark.timeout(300)
@needs_chromium
def test_closed_or_replaced_page_disarms_the_rung(tmp_path: Path) -> None:
    async def armed(browser: Browser) -> None:
        await browser.click("act_arm")
        await arm(browser)
        await browser.until('!asked && told.acts.state === "ARMED"')

    async def lead_and_leave(address: str, terminal: Callable[[], str]) -> None:
        async with Browser(address, tmp_path / "browser") as browser:
            await take_the_lead(browser, terminal)
            await check(browser)
            await browser.move("position")
            await armed(browser)
            assert post(address, "code", {})[0] == 200
            code = await asyncio.to_thread(code_at, terminal)
            assert post(address, "lead", {"code": code, "name": "Ada"})[0] == 200
            await browser.until('told.acts.state === "HELD"')
            await browser.until('token === "" && !document.getElementById("leading").hidden')
            await type_the_code(browser, terminal)
            await browser.move("position")
            await armed(browser)

    with page_and_terminal("--arm-from-page") as (address, terminal, _), procedure_beside(tmp_path, "g"):
        asyncio.run(lead_and_leave(address, terminal))
        asked_until(address, lambda situation: situation["acts"]["state"] == "HELD")
    stops = [act for act in procedure.read(tmp_path / "runs" / "first").acts if act.act == "stop"]
    assert mentions(stops[0].arguments["reason"], "Ada", "taken")
    assert mentions(stops[1].arguments["reason"], "lost", "3 s")


@pytest.mark.nodes
@pytest.mark.timeout(300)
@needs_chromium
@pytest.mark.parametrize("check_alone", [True, False], ids=["the check", "every other motion"])
def test_page_stops_every_motion(check_alone: bool, tmp_path: Path) -> None:
    options = ("--set=duration=20", "--pace=realtime")
    with page_and_terminal("--arm-from-page") as (address, terminal, _), procedure_beside(tmp_path, "g", *options):
        assert asyncio.run(stop_all(address, terminal, tmp_path / "browser", check_alone)) == []
    record = procedure.read(tmp_path / "runs" / "first")
    stopped = re.compile("by the page: service stop_by_page|held after")
    ended = [act.act for act in record.acts if stopped.search(act.refused + act.result)]
    assert ended == (["check"] if check_alone else [act for act, _, _ in STOPPED])
    assert record.outcome == "held"
