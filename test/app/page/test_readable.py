# SPDX-License-Identifier: Apache-2.0
"""Tests of contrast (WCAG 2.1, 1.4.3), the proposed act, the wall view, and the printed operator's card."""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from messages import mentions
from page_of_test import CHROMIUM, Browser, needs_chromium

pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

from aiohttp import web

from rths_nodes.app.page.operator import Operating
from rths_nodes.app.page.server import PageServer
from rths_nodes.app.procedure.operator_socket import Answer
from rths_nodes.core.resources import PACKAGE
from rths_nodes.loop.indices.live_columns import OF_AXIS, PER_CURVE
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.session import ACTS, barred_by_state

AXES = ("north", "south")
UNITS = {"force": "N", "tracking_indicator": "m^2"}
LIMITS = {"measured": ("stroke", 0.25), "force": ("force", 1.8e6), "error": ("tracking_error", 5e-3)}
COLUMNS, PER_COLUMN, RATE = 200, 10, 1024.0


class SyntheticSource:
    """A rig in ``state`` whose axes have moved to ``shares`` of their limits; ``changes`` replace keys."""

    def __init__(self, state: State, shares: tuple[float, ...] = (0.14, 0.85), **changes: Any) -> None:
        self.state, self._shares, self._changes = state, shares, changes

    def situation(self) -> dict[str, object]:
        names = [f"{axis}/{name}" for name in OF_AXIS for axis in AXES]
        limits = [
            {"curve": names.index(f"{axis}/{curve}"), "name": name, "low": -bound, "high": bound}
            for axis in AXES
            for curve, (name, bound) in LIMITS.items()
        ]
        shown = {
            **{"state": self.state.name, "over": self.state is State.FINISHED, "reason": "", "sample": 2000},
            **{"samples": 20000, "scenario": "made_up", "servo_rate": RATE, "axes": list(AXES), "heard": 0.0},
        }
        curves = {"run": "1", "servo_rate": RATE, "names": names, "limits": limits}
        return {
            "namespace": "rths",
            "age": 0.0,
            "events": [{"time": 0.0, "what": "procedure", "words": self.state.name, "sample": 0}],
            "stop_reaches": True,
            "run": shown | {"state": "RUNNING", "over": False},
            "procedure": shown,
            "rig_kinds": {"run": "EMULATED", "procedure": "EMULATED"},
            "curves": curves | {"units": [UNITS.get(name.split("/")[1], "m") for name in names]},
            "nodes": {"monitor": {"level": 0, "words": "", "values": {}}},
        } | self._changes

    def since(self, number: int) -> tuple[dict[str, object], int, list[tuple[int, int, bytes]]]:
        columns = np.zeros((COLUMNS, len(OF_AXIS), len(AXES), PER_CURVE), np.float32)
        swing = np.sin(np.arange(COLUMNS) / 10.0)[:, None]
        for curve, (_, bound) in LIMITS.items():
            for axis, share in enumerate(self._shares):
                columns[:, OF_AXIS.index(curve), axis] = bound * share * swing
        return self.situation(), 1, [(0, PER_COLUMN, columns.tobytes())] if number < 0 else []


def procedure_in(state: State, next_act: str, **changes: Any) -> Answer:
    """Answer of a procedure of five rungs in ``state``, after rungs a to c."""
    possible = {act: barred_by_state(act, state) for act in ACTS}
    return Answer(
        **{"done": True, "state": int(state), "stops": 0, "test_id": "first", "next_rung": "d"}
        | {"possible": possible, "next_act": next_act, "motions": dict.fromkeys(ACTS, "")}
        | {"scenario_hash": "0123456789abcdef"}
        | {"verdicts": {"a": "ok", "b": "ok", "c": "differs", "d": "", "g": ""}}
        | changes
    )


@contextmanager
def served(source: SyntheticSource, answer: Answer) -> Iterator[str]:
    """Serve the page of ``source``, led by "Ada"; its address."""
    operating = Operating(lambda _: answer, print, arms=True)
    operating.name = "Ada"
    application = PageServer(source.since, "127.0.0.1", operating=operating).application()

    async def reaches(_: web.Request) -> web.Response:
        return web.json_response({"reaches": True})

    application.router.add_get("/stop", reaches)
    loop, started, ports = asyncio.new_event_loop(), threading.Event(), list[int]()

    async def serve() -> None:
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.append(runner.addresses[0][1])
        started.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.create_task(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(10.0)
    try:
        yield f"http://127.0.0.1:{ports[0]}/"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10.0)


ROOT = Path(__file__).resolve().parents[3] / PACKAGE
STATIC = ROOT / "app" / "page" / "static"
PAGE = STATIC / "page.css"
REPORT = ROOT / "analysis" / "report" / "templates" / "report.css"
TEXT, LARGE = 4.5, 3.0
BACKGROUNDS = ("#fff", "#f5f6f8")


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")[:6]
    long = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    parts = [int(long[start : start + 2], 16) / 255.0 for start in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(text: str, background: str) -> float:
    low, high = sorted((luminance(text), luminance(background)))
    return (high + 0.05) / (low + 0.05)


def rules(path: Path) -> dict[str, dict[str, str]]:
    """Return declarations by selector; variables are replaced by their values."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
    values = dict(re.findall(r"(--\w+):\s*([^;}]+)", text))
    text = re.sub(r"var\((--\w+)\)", lambda match: values.get(match[1], "").strip(), text)
    declarations: dict[str, dict[str, str]] = {}
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", text):
        for selector in selectors.split(","):
            pairs = re.findall(r"(?:^|;)\s*([\w-]+)\s*:\s*([^;]+)", body)
            declarations.setdefault(selector.strip(), {}).update(pairs)
    return declarations


def colour_of(declarations: dict[str, str], *names: str) -> str:
    """Return the first colour of the properties ``names``, or an empty string."""
    matches = (re.search(r"#[0-9a-fA-F]{3,8}\b", declarations.get(name, "")) for name in names)
    return next((match[0] for match in matches if match), "")


def test_contrast_ratio_agrees_with_wcag() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777", "#fff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("path", [PAGE, STATIC / "card.css", REPORT], ids=lambda path: path.name)
def test_style_sheet_texts_have_enough_contrast(path: Path) -> None:
    weak = {}
    for selector, declarations in rules(path).items():
        if not (colour := colour_of(declarations, "color")):
            continue
        background = colour_of(declarations, "background", "background-color")
        for ground in (background,) if background else BACKGROUNDS if colour not in BACKGROUNDS else ():
            if contrast(colour, ground) < TEXT:
                weak[selector] = colour, ground, round(contrast(colour, ground), 2)
    assert weak == {}
    assert not [selector for selector, declarations in rules(path).items() if "opacity" in declarations]


def test_stop_and_trip_buttons_differ_and_are_not_red() -> None:
    style = rules(PAGE)
    stop, trip = (colour_of(style[name], "background") for name in (".stop", ".trip"))
    assert contrast(stop, trip) >= 2 * LARGE
    assert style[".stop"]["border-radius"] != style[".trip"]["border-radius"]
    for fill in (stop, trip):
        red, green, blue = (int(digits, 16) for digits in re.findall("..", fill.lstrip("#").ljust(6, fill[-1])))
        assert red <= max(green, blue), "red is for the emergency stop"
    disabled = style[".stop:disabled"]
    assert contrast(colour_of(disabled, "color"), colour_of(disabled, "background")) >= TEXT


def test_curves_and_bars_have_enough_contrast() -> None:
    script = (STATIC / "page.js").read_text(encoding="utf-8")
    colours = re.findall(r"#\w{6}", re.search(r"const LINES = \{([^}]*)\}", script)[1])
    assert len(colours) == 4
    style = rules(PAGE)
    bars = [colour_of(style[name], "background") for name in (".track div", ".warn .track div", ".bad .track div")]
    assert min(contrast(colour, "#fff") for colour in (*colours, *bars)) >= LARGE


WEAK_TEXTS = """
(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (colour) => {
    const [r, g, b] = parts(colour).slice(0, 3).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor, alpha = parts(colour)[3];
      if (alpha !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const weak = [];
  for (const node of document.body.querySelectorAll("*")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.tagName === "OPTION" || !node.checkVisibility()) continue;
    const style = getComputedStyle(node), size = parseFloat(style.fontSize);
    const [low, high] = [light(style.color), light(ground(node))].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (size >= 24 ? 3 : 4.5)) weak.push([node.tagName, node.className, node.textContent, ratio]);
  }
  return weak;
})()
"""


def look(source: SyntheticSource, *expressions: str, answer: Answer | None = None) -> list[Any]:
    """Return the values of expressions in the page, after it has loaded; no act is proposed without ``answer``."""

    async def evaluate(address: str, folder: Path) -> list[Any]:
        async with Browser(address, folder) as browser:
            await browser.until('typeof columns !== "undefined" && columns.length > 10')
            await browser.until("Boolean(told.acts)")
            return [await browser.value(expression) for expression in expressions]

    answer = answer or procedure_in(source.state, "")
    with served(source, answer) as address, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(evaluate(address, Path(folder)))


def text_of(name: str) -> str:
    return f"document.getElementById('{name}').textContent"


@needs_chromium
def test_page_proposes_next_act_with_reasons_and_ladder() -> None:
    motions = tuple("north by 1 mm" if act == "check" else "" for act in ACTS)
    answer = procedure_in(State.REFERENCED, "check", motions=motions)
    onlooker, ladder, _, proposal, because, buttons, reasons, weak = look(
        SyntheticSource(State.REFERENCED),
        text_of("acts"),
        "[...document.querySelectorAll('#ladder li')].map((each) => each.textContent)",
        'token = "a token"; me = "Ada"; show()',
        text_of("next"),
        text_of("because_next"),
        "[...document.querySelectorAll('#acts button')].map((each) => [each.id, each.disabled, each.className])",
        "[...document.querySelectorAll('#reasons tr')].map((tr) => [...tr.cells].map((cell) => cell.textContent))",
        WEAK_TEXTS,
        answer=answer,
    )
    assert "check" in onlooker
    assert [rung[:3] for rung in ladder] == ["✓ a", "✓ b", "▲ c", "▶ d", "○ g"]
    assert proposal == "Next: check"
    assert mentions(because, "offsets", "positioned")
    impossible = {act for act, why in answer.possible.items() if why}
    assert {name for name, _, _ in buttons} == {f"act_{act}" for act in ACTS if act not in impossible} - {
        "act_stop"
    }
    assert not any(disabled for _, disabled, _ in buttons)
    assert [name for name, _, kind in buttons if kind == "first"] == ["act_check"]
    assert {row[0].replace(" ", "_") for row in reasons} == impossible
    assert all(row[1] for row in reasons)
    assert weak == []


@needs_chromium
@pytest.mark.parametrize(
    ("state", "reason", "shown"),
    [(State.FINISHED, "held: rung a", "ENDED"), (State.FINISHED, "", "FINISHED")],
)
def test_only_finished_tests_are_green(state: State, reason: str, shown: str) -> None:
    procedure = SyntheticSource(state).situation()["procedure"]
    name, kind, why = look(
        SyntheticSource(state, run=None, procedure=procedure | {"reason": reason}),
        text_of("state"),
        "document.getElementById('state').className",
        text_of("reason"),
        answer=procedure_in(state, "", next_rung=""),
    )
    assert (name, "good" in kind, why) == (shown, shown == "FINISHED", reason)


@needs_chromium
def test_wall_view_has_large_digits_and_marks_thresholds() -> None:
    shown = "['stop', 'trip'].every((name) => document.getElementById(name).checkVisibility())"
    both = f"new Promise((done) => {{ const look = () => {shown} ? done(true) : setTimeout(look, 20); look(); }})"
    readings = "[...document.querySelectorAll('.reading')].map((each) =>"
    *_, digits, state, shown, styles, main, weak, stops = look(
        SyntheticSource(State.RUNNING, shares=(1.02, 0.85)),
        "location.hash = '#wall'",
        both,
        "[...document.querySelectorAll('.digits')].map((each) => parseFloat(getComputedStyle(each).fontSize))",
        "parseFloat(getComputedStyle(document.getElementById('state')).fontSize)",
        f"{readings} [each.className, each.textContent])",
        f"{readings} getComputedStyle(each).borderStyle)",
        "getComputedStyle(document.querySelector('main')).display",
        WEAK_TEXTS,
        both,
    )
    assert min(*digits, state) >= 48.0, "in a window of 800 x 600 px; 50 px are 13 mm on an ordinary screen"
    assert [kind for kind, _ in shown] == ["reading bad", "reading bad", "reading warn", "reading warn"]
    assert [re.search("[●▲■]", text)[0] for _, text in shown] == ["■", "■", "▲", "▲"]
    assert "beyond 250 mm" in shown[0][1]
    assert "37.5 mm left of 250 mm" in shown[2][1]
    assert len(set(styles)) == 2
    assert (main, stops) == ("none", True)
    assert weak == []


@needs_chromium
def test_axis_without_values_is_not_shown_as_safe() -> None:
    """A dead axis had a green frame and its entire stroke left."""
    lost = "columns.forEach((column) => column.fill(NaN)); limits(); [...document.querySelectorAll('.limit')]"
    rows, times = look(
        SyntheticSource(State.RUNNING),
        f"{lost}.map((row) => [row.className, row.textContent])",
        "[0, 59.94, 59.96, 119.99, 3599.97].map(clock)",
    )
    assert all(text.endswith("no value") for _, text in rows), rows
    measured = [(kind, text[0]) for kind, text in rows if "error" not in text]
    assert measured == [("limit bad", "■")] * 4
    assert times == ["0:00.0", "0:59.9", "1:00.0", "2:00.0", "60:00.0"]


@needs_chromium
def test_curves_fill_their_frames_after_the_wall_view() -> None:
    """A change of the window, or opening the page, in the wall view left curves without a width."""
    main = "getComputedStyle(document.querySelector('main')).display"
    resized = f"window.dispatchEvent(new Event('resize')); done({main})"
    hidden, shown, width = look(
        SyntheticSource(State.RUNNING),
        f"location.hash = '#wall'; new Promise((done) => setTimeout(() => {{ {resized}; }}, 200))",
        "location.hash = ''; new Promise((done) => setTimeout(() => done(plots.error.chart.width), 200))",
        "$('error').clientWidth",
    )
    assert hidden == "none"
    assert shown == width > 200


@needs_chromium
def test_target_of_a_force_axis_is_shown_with_the_force() -> None:
    """A target in kN was drawn with the displacement, in mm."""
    curves = SyntheticSource(State.RUNNING).situation()["curves"]
    names, units = curves["names"], list(curves["units"])
    units[names.index("north/target")] = units[names.index("north/error")] = "N"
    largest = "Math.max(...plots.displacement.chart.data[1])"
    shown = f"[$('followed').textContent, $('followed_unit').textContent, {largest}]"
    north, south = look(
        SyntheticSource(State.RUNNING, curves=curves | {"units": units}),
        f"draw(); {shown}",
        f"axis = 'south'; draw(); {shown}",
    )
    assert north == ["Force", "kN", pytest.approx(252.0, rel=0.01)]
    assert south == ["Displacement", "mm", pytest.approx(212.5, rel=0.01)]


@needs_chromium
def test_stop_is_visible_on_a_telephone_with_a_long_reason(tmp_path: Path) -> None:
    source = SyntheticSource(State.HELD)
    reason = {"reason": "a long story of the operator " * 60}
    source = SyntheticSource(State.HELD, procedure=source.situation()["procedure"] | reason)

    async def bottom(address: str) -> float:
        async with Browser(address, tmp_path) as browser:
            size = {"width": 360, "height": 640, "deviceScaleFactor": 1, "mobile": True}
            await browser.call("Emulation.setDeviceMetricsOverride", **size)
            shown = "innerWidth === 360 && $('reason').textContent.length > 1000 && !$('trip').hidden"
            # one expression: text replaces the button at any time while the server answers late
            return await browser.until(f"{shown} && $('trip').getBoundingClientRect().bottom")

    with served(source, procedure_in(State.HELD, "")) as address:
        assert asyncio.run(bottom(address)) < 640.0


@needs_chromium
def test_reason_for_missing_stop_permission_is_shown() -> None:
    disabled, reason, weak = look(
        SyntheticSource(State.HELD),
        "told = {...told, may_stop: false}; socket.onmessage = null; show(); $('stop').disabled",
        text_of("answer"),
        WEAK_TEXTS,
    )
    assert disabled
    assert "watch" in reason
    assert weak == []


def test_card_lists_every_state_and_act() -> None:
    card = (STATIC / "card.html").read_text(encoding="utf-8")
    states, acts = (
        ["".join(cell.itertext()) for cell in ElementTree.fromstring(table).iter("th")]
        for name in ("states", "acts")
        for table in re.findall(rf'<table id="{name}">.*?</table>', card, re.S)
    )
    assert sorted(states) == sorted(state.name for state in State)
    assert [act for cell in acts for act in cell.split(", ")] == [act.replace("_", " ") for act in ACTS]


@needs_chromium
def test_card_is_one_printed_page(tmp_path: Path) -> None:
    card, printed = (STATIC / "card.html").as_uri(), tmp_path / "card.pdf"
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}")
    subprocess.run([CHROMIUM, *options, f"--print-to-pdf={printed}", card], check=True, timeout=60.0)
    assert len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) == 1
