# SPDX-License-Identifier: Apache-2.0
"""A test that is led by the page: one operator at a time, known by a code; the acts are the procedure's."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from emulated_bench import free_port
from messages import mentions, naming
from page_of_test import CHROMIUM, MARK, RTHS, Browser, asked_until, get, page_and_terminal, procedure_beside
from served_test import MOVES, arguments_of

from rths_nodes.app.page.operator import CODE_S, GONE_S, LENGTH, SYMBOLS, Operating, TooManyCodes
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


CODE = re.compile(rf"\b[{SYMBOLS}]{{4}}-[{SYMBOLS}]{{4}}$")


class Asked:
    """A procedure that does what it is asked for, and keeps it."""

    def __init__(self, state: State = State.ARMED) -> None:
        self.state, self.acts = state, []

    def __call__(self, request: Request) -> Answer:
        if request.act:
            self.acts.append((request.act, request.by, dict(zip(request.names, request.values, strict=True))))
            self.seen = request.stops, request.state
        return Answer(done=True, state=int(self.state), stops=7)


def operating(arms: bool = True) -> tuple[Operating, Asked, list[str], list[float]]:
    asked, said, now = Asked(), [], [0.0]
    return Operating(asked, said.append, arms, lambda: now[0]), asked, said, now


def code_of(said: list[str]) -> str:
    return next(found[0] for line in reversed(said) if (found := CODE.search(line)))


def test_who_types_the_code_leads_and_nobody_else() -> None:
    page, asked, said, _ = operating()
    asked.state = State.HELD
    with pytest.raises(ConfigError, match=naming("code", "valid")):
        page.lead("", "Ada")
    page.offer()
    token = page.lead(code_of(said), " Ada ")
    assert page.act(token, "check", {}).done
    assert asked.acts == [("check", "Ada", {})]
    for other in ("", "0" * 32):
        with pytest.raises(ConfigError, match=naming("lead")):
            page.act(other, "run", {})
    with pytest.raises(ConfigError, match=naming("code", "valid")):
        page.lead(code_of(said[:1]), "Eve")  # each is good once
    page.offer()
    assert page.act(token, "check", {}).done  # the first one leads until another has typed the new code
    second = page.lead(code_of(said), "Bob")
    with pytest.raises(ConfigError, match=naming("lead")):
        page.act(token, "run", {})
    assert page.act(second, "run", {}).done


def test_an_act_is_for_the_stops_and_the_state_that_the_browser_has_shown() -> None:
    page, asked, said, _ = operating()
    page.offer()
    token = page.lead(code_of(said), "Ada")
    situation = page.situation()
    assert situation is not None
    assert situation["seen"] == {"stops": 7, "state": int(State.ARMED), "test_id": ""}
    page.act(token, "run", {}, {"stops": 5, "state": 3})
    assert asked.seen == (5, 3), "not what the procedure says by now"
    for seen in (None, {}, {"stops": "5", "state": 3}, {"stops": 5}):
        page.act(token, "run", {}, seen)
        assert asked.seen == (UNSEEN, UNSEEN)


def test_a_code_expires_after_a_minute() -> None:
    page, _, said, now = operating()
    page.offer()
    now[0] = CODE_S + 1.0
    with pytest.raises(ConfigError, match=naming("code", "valid")):
        page.lead(code_of(said), "Ada")


def test_a_code_cannot_be_guessed() -> None:
    assert len(set(SYMBOLS)) ** LENGTH >= 2**40
    assert not set("ILOU") & set(SYMBOLS), "letters that look like digits"
    page, _, said, now = operating()
    codes = set()
    for number in range(50):
        now[0] = number * (CODE_S + 1.0)
        page.offer()
        codes.add(code_of(said))
    assert len(codes) == 50


def test_what_strangers_ask_for_does_not_keep_the_operator_from_leading() -> None:
    """A new offer voided the code, three wrong codes did, too, and each offer was a line at the terminal."""
    page, _, said, now = operating()
    page.offer()
    code, refused = code_of(said), []
    for number in range(3000):
        now[0] = number / 100.0
        page.offer()
        with pytest.raises(ConfigError) as error:
            page.lead("wrong", "Eve")
        refused.append(error.type)
    assert len(said) <= 7, "a line in 5 s"
    assert {code_of([line]) for line in said} == {code}
    assert refused.count(ConfigError) <= 301, "ten wrong codes in a second are judged"
    assert refused.count(TooManyCodes) == 3000 - refused.count(ConfigError)
    assert page.lead(f" {code.lower().replace('0', 'o').replace('1', 'l')} ", "Ada"), "never delayed"


def test_a_takeover_disarms_and_so_does_the_loss_of_the_leading_page() -> None:
    page, asked, said, now = operating()
    page.offer()
    token = page.lead(code_of(said), "Ada")
    assert [(act, by) for act, by, _ in asked.acts] == [("stop", "Ada")]
    for _ in range(100):
        now[0] += 0.5
        assert page.alive(token)
        page.disarm_if_lost()
    assert len(asked.acts) == 1, "its page gives signs of life"
    now[0] += GONE_S - 0.1
    page.alive("0" * 32)
    page.disarm_if_lost()
    assert len(asked.acts) == 1
    now[0] += 0.2
    for _ in range(3):
        page.disarm_if_lost()
    assert [act for act, *_ in asked.acts] == ["stop", "stop"]
    assert page.act(token, "arm", {}).done
    now[0] += GONE_S + 0.1
    page.disarm_if_lost()
    assert [act for act, *_ in asked.acts][2:] == ["arm", "stop"], "an act is a sign of life, too"
    page.offer()
    page.lead(code_of(said), "Bob")
    assert asked.acts[-1][:2] == ("stop", "Bob")


def test_what_a_page_may_not_is_refused_before_the_procedure_is_asked() -> None:
    page, asked, said, _ = operating(arms=False)
    asked.state = State.HELD
    page.offer()
    assert not page.alive("\udcff")
    with pytest.raises(ConfigError, match=naming("not the code")):
        page.lead("\udcff", "Eve")
    with pytest.raises(ConfigError, match=naming("name", "must have", "characters")):
        page.lead(code_of(said), " ")
    token = page.lead(code_of(said), "Ada")
    for act, arguments, words in (
        ("arm", {"rung": "g"}, "arm: this page cannot arm a rung. Start the page with --arm-from-page"),
        ("fly", {}, "unknown act 'fly'"),
        ("note", {"text": "x" * 3000}, "note.text: must have at most 2000"),
    ):
        with pytest.raises(ConfigError, match=words):
            page.act(token, act, arguments)
    assert asked.acts == []


@pytest.mark.parametrize(("state", "acts"), [(State.ARMED, ["stop"]), (State.RUNNING, []), (State.HELD, [])])
def test_without_its_page_nothing_stays_armed(state: State, acts: list[str]) -> None:
    page, asked, _, _ = operating()
    asked.state = state
    page.disarm("lost")
    assert [act for act, *_ in asked.acts] == acts


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
def test_a_stranger_gets_no_act_by_the_page(tmp_path: Path) -> None:
    with page_and_terminal() as (address, _, _), procedure_beside(tmp_path, "g", "--set=duration=0.2"):
        while not get(address).get("acts"):
            time.sleep(0.1)
        for headers in (MARK, MARK | {"X-Rths-Operator": "0" * 32}):
            status, told = post(address, "act", {"act": "connect", "arguments": {}}, headers)
            assert (status, mentions(told["error"], "lead")) == (403, True)
        for headers in ({}, MARK | {"Origin": "http://evil.example"}):
            for path, fields in (("code", {}), ("lead", {"code": "1", "name": "Eve"}), ("act", {})):
                assert post(address, path, fields, headers)[0] == 403
        assert post(address, "lead", [])[0] == 400
        assert get(address)["acts"]["state"] == "IDLE"


@pytest.mark.nodes
@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.timeout(240)
def test_the_page_that_the_test_has_started_is_its_own_way_and_an_act_shown_before_a_stop_is_refused(
    tmp_path: Path,
) -> None:
    words = ("--set=duration=0.2", "--no-report", "--page", "--page-port=0")
    with procedure_beside(tmp_path, "g", *words) as testing:
        assert testing.stdout is not None
        lines = iter(testing.stdout)
        address = next(found[0] for line in lines if (found := re.search(r"http://\S+", line)))
        asked_until(address, lambda told: bool(told.get("acts")))
        assert post(address, "code", {})[0] == 200
        code = next(line for line in lines if "code to be typed at the page" in line).split()[-1]
        token = post(address, "lead", {"code": code, "name": "Ada\x1b[2J\r\n\u202e"})[1]["token"]
        assert next(line for line in lines if "leads the test" in line).startswith(f"{ADA} leads")
        headers = MARK | {"X-Rths-Operator": token}

        def act(name: str, seen: object) -> dict[str, str]:
            status, answer = post(address, "act", {"act": name, "arguments": {}, "seen": seen}, headers)
            assert status == 200, answer
            return answer

        shown = get(address)["acts"]["seen"]
        assert post(address, "stop", {"kind": "stop"})[1]["confirmed"]
        refused = act("connect", shown)
        assert not refused["done"]
        assert mentions(refused["reason"], "state", "IDLE", "0", "1")
        told = asked_until(address, lambda told: told["acts"]["seen"]["stops"] == 1)
        assert act("connect", told["acts"]["seen"])["done"]
        told = asked_until(address, lambda told: told["acts"]["state"] == "CONNECTED")
        assert act("finish", told["acts"]["seen"])["done"]
        testing.communicate(timeout=60.0)
    acts = procedure.read(tmp_path / "runs" / "first").acts
    assert [(done.act, done.by, done.way, bool(done.refused)) for done in acts] == [
        ("connect", ADA, PAGE, True),
        ("connect", ADA, PAGE, False),
        ("finish", ADA, PAGE, False),
    ]


def of_the_page(testing: int) -> list[int]:
    """Processes that descend from the process ``testing``."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            parents[int(status.parent.name)] = int(re.findall(r"PPid:\s*(\d+)", status.read_text())[0])
    found = [testing]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.nodes
@pytest.mark.timeout(180)
def test_an_armed_rung_is_disarmed_when_the_process_of_its_page_is_suspended(tmp_path: Path) -> None:
    words = ("--set=duration=0.2", "--no-report", "--page", "--page-port=0", "--arm-from-page")
    with procedure_beside(tmp_path, "g", *words) as testing:
        assert testing.stdout is not None
        lines = iter(testing.stdout)
        address = next(found[0] for line in lines if (found := re.search(r"http://\S+", line)))
        asked_until(address, lambda told: bool(told.get("acts")))
        post(address, "code", {})
        code = next(line for line in lines if "code to be typed at the page" in line).split()[-1]
        headers = MARK | {"X-Rths-Operator": post(address, "lead", {"code": code, "name": "Ada"})[1]["token"]}
        operator = SocketOperator()
        for name in MOVES[: MOVES.index("arm") + 1]:
            seen = operator.ask()
            shown = {"stops": seen.stops, "state": seen.state, "test_id": seen.test_id}
            act = {"act": name, "arguments": arguments_of(name, seen), "seen": shown}
            answer = post(address, "act", act, headers)[1]
            assert answer["done"], answer
        assert operator.ask().state == State.ARMED
        page = of_the_page(testing.pid)
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


ADA = r"Ada\x1b[2J\r\n\u202e"
"""A name as terminal and record show it, with escapes in place of terminal codes."""
BANNER = 'document.getElementById("real").textContent'


@pytest.mark.nodes
@pytest.mark.timeout(300)
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler here")
@pytest.mark.parametrize(("emulator", "kind"), [("true", "EMULATED"), ("false", "REAL RIG")])
def test_the_banner_says_from_the_first_state_on_whether_the_rig_is_real(
    emulator: str, kind: str, tmp_path: Path
) -> None:
    """It read PORT NOT TOLD YET, in grey, until a rung ran: while the check and the positioning moved the rig."""

    async def look(address: str, terminal: Callable[[], str]) -> list[str]:
        async with Browser(address, tmp_path / "browser") as browser:
            await browser.until('told.acts && told.acts.state === "IDLE"')
            await browser.until(f'{BANNER} === "{kind}, NOT CONNECTED"')
            if kind == "EMULATED":
                await take_the_lead(browser, terminal)
                await browser.until('told.procedure.state !== "IDLE"')
            else:  # nothing real is here to connect to
                connected = 'told = {...told, procedure: {...told.procedure, state: "CONNECTED"}}'
                assert await browser.value(f"{connected}; show(); {BANNER}") == kind
            await browser.until(f'{BANNER}.startsWith("{kind}")')
            assert await browser.value("document.title.includes('/rths')")
            assert await browser.value("told.user") == getpass.getuser()
            return browser.complaints

    words = [f"--set=port.port={free_port()}", "--set=servo_rate=256", "--set=substeps=3"]
    rig = tmp_path / "bench.yaml"
    text = files.locate("bench_udp", files.RIG).read_text().replace("emulator: true", f"emulator: {emulator}")
    rig.write_text(text.replace("deceleration: 20.0", "deceleration: 20.0, tracking_error: 0.02"))
    with (
        emulated(tmp_path, *words),
        page_and_terminal() as (address, terminal, _),
        procedure_beside(tmp_path, "g", *words, rig=str(rig)) as testing,
    ):
        assert asyncio.run(look(address, terminal)) == []
        testing.send_signal(signal.SIGINT)
        said, _ = testing.communicate(timeout=60.0)
    assert f"({kind}): " in said
    assert kind != "EMULATED" or "EMULATED: connected" in said
    assert procedure.read(tmp_path / "runs" / "first").rig_kind == kind


NEEDED = 'document.querySelector("#needs button")'
"""Button of what is to be confirmed, signed or armed now."""


def code_at(terminal: Callable[[], str]) -> str:
    """Return the next code that the terminal shows."""
    while not (found := CODE.search(terminal().strip())):
        pass
    return found[0]


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
    """Move every axis, and sign for what that has not verified."""
    await browser.move("check")
    await browser.until("!asked && !told.acts.possible.sign_for || !asked && !told.acts.possible.position")
    while count := await browser.value("told.acts.to_sign.length"):
        await browser.until(f'!asked && {NEEDED} && {NEEDED}.textContent.startsWith("sign for")')
        await browser.value(f"{NEEDED}.click()")
        await browser.until(f"told.acts.to_sign.length < {count} && !asked")


async def arm(browser: Browser) -> None:
    """Arm the rung by the first characters of its hash; other ones arm nothing."""
    await browser.until(f'!asked && {NEEDED} && {NEEDED}.textContent === "arm"')
    await browser.value('document.querySelector("#needs input").value = "wrong!"')
    await browser.value(f"{NEEDED}.click()")
    assert "not armed" in await browser.value('document.getElementById("result").textContent')
    typed = "told.acts.next_rung + told.acts.scenario_hash.slice(0, 6)"
    await browser.value(f'document.querySelector("#needs input").value = {typed}')
    await browser.value(f"{NEEDED}.click()")


async def half_typed(browser: Browser) -> None:
    """Type a part of a name: it stays while the form is about the same thing, and goes with it."""
    await browser.click("act_arm")
    await browser.value('document.querySelector("#needs input").value = "R. Spons"')
    for change, left in (('possible: {...told.acts.possible, run: "no"}', "R. Spons"), ('offsets_hash: "1"', "")):
        found = await browser.value(
            f"heard_now = told; told = {{...told, acts: {{...told.acts, {change}}}}}; procedure();"
            'typed_now = document.querySelector("#needs input").value; told = heard_now; procedure(); typed_now'
        )
        assert found == left, change


async def two_persons(address: str, terminal: Callable[[], str], folder: Path) -> None:
    """Arm rung g with the operator's name as that of the second person, then with another name."""
    async with Browser(address, folder) as browser:
        await take_the_lead(browser, terminal)
        await browser.move("check")
        await browser.until("!asked && !told.acts.possible.position")
        await browser.move("position")
        await browser.click("act_arm")
        await half_typed(browser)
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
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
def test_the_page_asks_for_the_second_person(tmp_path: Path) -> None:
    rig = tmp_path / "bench.yaml"
    rig.write_text(files.locate("bench_simulated", files.RIG).read_text() + "two_persons: true\n")
    with (
        page_and_terminal("--arm-from-page") as (address, terminal, _),
        procedure_beside(tmp_path, "g", "--set=duration=0.5", rig=str(rig)) as testing,
    ):
        asyncio.run(two_persons(address, terminal, tmp_path / "browser"))
        testing.communicate(timeout=120.0)
    acts = [act for act in procedure.read(tmp_path / "runs" / "first").acts if act.act == "arm"]
    assert [bool(act.refused) for act in acts] == [True, False]
    assert acts[1].arguments["second"] == "R. Sponsible"


async def lead(address: str, terminal: Callable[[], str], folder: Path, kind: str) -> list[str]:
    """A test of the rungs b, c and g, by the page alone; the banner shows the ``kind`` of the rig to the end."""
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
    """Begin an ``act``, and stop it ``by`` a key or a button of the page once it has moved for a while."""
    await browser.move(act)
    await browser.until(f'told.procedure.state === "{state}"')
    if state == "RUNNING":  # its nodes are still starting
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
def emulated(folder: Path, *words: str) -> Iterator[None]:
    """``rths emulate`` of the bench behind the port udp, on this machine."""
    command = [*RTHS, "emulate", "chen_ricles_2010", "--rig", "bench_udp", "--again", *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as far:
        assert far.stdout is not None
        assert "emulated at" in far.stdout.readline()
        try:
            yield
        finally:
            far.send_signal(signal.SIGINT)
            far.communicate(timeout=30.0)


@pytest.mark.nodes
@pytest.mark.timeout(300)
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
@pytest.mark.parametrize(("rig", "kind"), [("bench_simulated", "SIMULATED"), ("bench_udp", "EMULATED")])
def test_a_whole_test_is_led_by_the_page_alone(rig: str, kind: str, tmp_path: Path) -> None:
    words = ["--set=duration=0.5", "--set=servo_rate=256", "--set=substeps=3"]
    with ExitStack() as stack:
        if rig == "bench_udp":
            if not any(map(shutil.which, ("cc", "gcc", "clang"))):
                pytest.skip("no C compiler here")
            words.append(f"--set=port.port={free_port()}")
            stack.enter_context(emulated(tmp_path, *words))
        address, terminal, _ = stack.enter_context(page_and_terminal("--arm-from-page"))
        testing = stack.enter_context(procedure_beside(tmp_path, "bcg", *words, rig=rig))
        complaints = asyncio.run(lead(address, terminal, tmp_path / "browser", kind))
        said, _ = testing.communicate(timeout=120.0)
    assert testing.returncode == 0, said
    assert complaints == []
    record = procedure.read(tmp_path / "runs" / "first")
    assert record.outcome == "finished"
    assert {act.by for act in record.acts} == {"Ada"}
    assert {act.way for act in record.acts} == {SOCKET}, "the page was started by hand"
    assert (tmp_path / "runs" / "first" / "report.html").is_file()


@pytest.mark.nodes
@pytest.mark.timeout(300)
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
def test_an_armed_rung_is_disarmed_when_its_page_is_closed_or_taken_over(tmp_path: Path) -> None:
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
            assert post(address, "lead", {"code": code, "name": "Bob"})[0] == 200
            await browser.until('told.acts.state === "HELD"')
            await browser.until('token === "" && !document.getElementById("leading").hidden')
            await type_the_code(browser, terminal)
            await browser.move("position")
            await armed(browser)

    with page_and_terminal("--arm-from-page") as (address, terminal, _), procedure_beside(tmp_path, "g"):
        asyncio.run(lead_and_leave(address, terminal))
        asked_until(address, lambda told: told["acts"]["state"] == "HELD")
    stops = [act for act in procedure.read(tmp_path / "runs" / "first").acts if act.act == "stop"]
    assert mentions(stops[0].arguments["reason"], "Bob", "taken")
    assert mentions(stops[1].arguments["reason"], "lost", "3 s")


@pytest.mark.nodes
@pytest.mark.timeout(300)
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
@pytest.mark.parametrize("check_alone", [True, False], ids=["the check", "every other motion"])
def test_the_page_stops_what_a_procedure_moves(check_alone: bool, tmp_path: Path) -> None:
    words = ("--set=duration=20", "--pace=realtime")
    with page_and_terminal("--arm-from-page") as (address, terminal, _), procedure_beside(tmp_path, "g", *words):
        assert asyncio.run(stop_all(address, terminal, tmp_path / "browser", check_alone)) == []
    record = procedure.read(tmp_path / "runs" / "first")
    ended = [
        act.act
        for act in record.acts
        if re.search("by the page: service stop_by_page|held after", act.refused + act.result)
    ]
    assert ended == (["check"] if check_alone else [act for act, _, _ in STOPPED])
    assert record.outcome == "held"
