# SPDX-License-Identifier: Apache-2.0
"""Contrast of every text (WCAG 2.1, 1.4.3), the act that the page leads to, and the wall view."""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from messages import mentions
from page_of_test import CHROMIUM, Browser

pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

from page_alone import MadeUp, procedure_in, served

from rths_nodes.core.resources import PACKAGE
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.session import ACTS

ROOT = Path(__file__).resolve().parents[3] / PACKAGE
PAGE, CARD = (ROOT / "app" / "page" / "static" / name for name in ("page.css", "card.css"))
REPORT = ROOT / "analysis" / "report" / "templates" / "report.css"
TEXT, LARGE = 4.5, 3.0
GROUNDS = ("#fff", "#f5f6f8")


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")[:6]
    wide = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    parts = [int(wide[at : at + 2], 16) / 255.0 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def rules(path: Path) -> dict[str, dict[str, str]]:
    """Declarations by selector; variables are replaced by their values."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
    values = dict(re.findall(r"(--\w+):\s*([^;}]+)", text))
    text = re.sub(r"var\((--\w+)\)", lambda found: values[found[1]].strip() if found[1] in values else "", text)
    found: dict[str, dict[str, str]] = {}
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", text):
        for selector in selectors.split(","):
            found.setdefault(selector.strip(), {}).update(re.findall(r"(?:^|;)\s*([\w-]+)\s*:\s*([^;]+)", body))
    return found


def colour_of(declared: dict[str, str], *names: str) -> str:
    texts = [found for name in names if (found := re.search(r"#[0-9a-fA-F]{3,8}\b", declared.get(name, "")))]
    return texts[0][0] if texts else ""


def test_the_ratio_is_that_of_the_guideline() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777", "#fff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("path", [PAGE, CARD, REPORT], ids=lambda path: path.name)
def test_every_text_of_a_style_sheet_can_be_read(path: Path) -> None:
    weak = {}
    for selector, declared in rules(path).items():
        if not (colour := colour_of(declared, "color")):
            continue
        own = colour_of(declared, "background", "background-color")
        grounds = (own,) if own else GROUNDS if colour not in GROUNDS else ()
        for ground in grounds:
            if contrast(colour, ground) < TEXT:
                weak[selector] = colour, ground, round(contrast(colour, ground), 2)
    assert weak == {}
    assert not [selector for selector, declared in rules(path).items() if "opacity" in declared]


def test_stop_and_trip_differ_and_neither_looks_like_an_emergency_stop() -> None:
    style = rules(PAGE)
    stop, trip = (colour_of(style[name], "background") for name in (".stop", ".trip"))
    assert contrast(stop, trip) >= 2 * LARGE
    assert style[".stop"]["border-radius"] != style[".trip"]["border-radius"]
    for fill in (stop, trip):
        red, green, blue = (int(each, 16) for each in re.findall("..", fill.lstrip("#").ljust(6, fill[-1])))
        assert red <= max(green, blue), "red is for the emergency stop"
    disabled = style[".stop:disabled"]
    assert contrast(colour_of(disabled, "color"), colour_of(disabled, "background")) >= TEXT


def test_curves_and_bars_can_be_seen() -> None:
    script = (PAGE.parent / "page.js").read_text(encoding="utf-8")
    found = re.search(r"const LINES = \{([^}]*)\}", script)
    assert found
    colours = re.findall(r"#\w{6}", found[1])
    assert len(colours) == 4
    style = rules(PAGE)
    bars = [colour_of(style[name], "background") for name in (".track div", ".warn .track div", ".bad .track div")]
    assert min(contrast(colour, "#fff") for colour in (*colours, *bars)) >= LARGE


MEASURED = """
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
LOADED = 'typeof columns !== "undefined" && columns.length > 10'
LED = 'token = "a token"; me = "Ada"; show()'


def look(watched: MadeUp, answer: Any, *asked: str) -> list[Any]:
    """Values of expressions in the page, after it has loaded."""

    async def evaluate(address: str, folder: Path) -> list[Any]:
        async with Browser(address, folder) as browser:
            await browser.until(LOADED)
            await browser.until("Boolean(told.acts)")
            return [await browser.value(each) for each in asked]

    with served(watched, answer) as address, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(evaluate(address, Path(folder)))


browser_only = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")


def words(name: str) -> str:
    return f"document.getElementById('{name}').textContent"


SHOWN = "['stop', 'trip'].every((name) => document.getElementById(name).checkVisibility())"
BUTTONS = "[...document.querySelectorAll('#acts button')].map((each) => [each.id, each.disabled, each.className])"
REASONS = (
    "[...document.querySelectorAll('#reasons tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
)


@browser_only
def test_the_page_leads_to_the_next_act_with_its_reason_and_shows_the_ladder() -> None:
    motions = tuple("north by 1 mm" if act == "check" else "" for act in ACTS)
    answer = procedure_in(State.REFERENCED, "check", motions=motions)
    onlooker, ladder, led, following, because, buttons, reasons, weak = look(
        MadeUp(State.REFERENCED),
        answer,
        words("acts"),
        "[...document.querySelectorAll('#ladder li')].map((each) => each.textContent)",
        LED,
        words("next"),
        words("because_next"),
        BUTTONS,
        REASONS,
        MEASURED,
    )
    del led
    assert "check" in onlooker
    assert [each[:3] for each in ladder] == ["✓ a", "✓ b", "▲ c", "▶ d", "○ g"]
    assert following == "Next: check"
    assert mentions(because, "offsets", "positioned")
    impossible = {act for act, why in zip(answer.acts, answer.why_not, strict=True) if why}
    assert {name for name, _, _ in buttons} == {f"act_{act}" for act in ACTS if act not in impossible} - {
        "act_stop"
    }
    assert not any(disabled for _, disabled, _ in buttons)
    assert [name for name, _, kind in buttons if kind == "first"] == ["act_check"]
    assert {row[0].replace(" ", "_") for row in reasons} == impossible
    assert all(row[1] for row in reasons), "each has its reason"
    assert weak == []


@browser_only
@pytest.mark.parametrize(
    ("state", "reason", "shown"),
    [(State.FINISHED, "held: rung a", "ENDED"), (State.FINISHED, "", "FINISHED")],
)
def test_only_a_test_that_finished_is_shown_in_green(state: State, reason: str, shown: str) -> None:
    watched = MadeUp(state)
    ended = watched.situation()["procedure"]
    assert isinstance(ended, dict)
    told = {"run": None, "procedure": ended | {"reason": reason}}
    name, kind, why = look(
        MadeUp(state, **told),
        procedure_in(state, "", next_rung=""),
        words("state"),
        "document.getElementById('state').className",
        words("reason"),
    )
    assert (name, "good" in kind, why) == (shown, shown == "FINISHED", reason)


@browser_only
def test_the_wall_view_has_large_digits_and_shows_thresholds_by_colour_and_shape() -> None:
    heights = (
        "[...document.querySelectorAll('.digits')].map((each) => parseFloat(getComputedStyle(each).fontSize))"
    )
    readings = "[...document.querySelectorAll('.reading')].map((each) => [each.className, each.textContent])"
    borders = "[...document.querySelectorAll('.reading')].map((each) => getComputedStyle(each).borderStyle)"
    *_, large, state, shown, styles, main, weak, stops = look(
        MadeUp(State.RUNNING, shares=(1.02, 0.85)),
        procedure_in(State.RUNNING, ""),
        "location.hash = '#wall'",
        f"new Promise((done) => {{ const look = () => {SHOWN} ? done() : setTimeout(look, 20); look(); }})",
        heights,
        "parseFloat(getComputedStyle(document.getElementById('state')).fontSize)",
        readings,
        borders,
        "getComputedStyle(document.querySelector('main')).display",
        MEASURED,
        f"new Promise((done) => {{ const look = () => {SHOWN} ? done(true) : setTimeout(look, 20); look(); }})",
    )
    assert min(*large, state) >= 48.0, "of a window of 800 x 600; 50 px of a usual screen are 13 mm"
    assert [kind for kind, _ in shown] == ["reading bad", "reading bad", "reading warn", "reading warn"]
    assert [re.search("[●▲■]", text)[0] for _, text in shown] == ["■", "■", "▲", "▲"]  # type: ignore[index]
    assert "beyond 250 mm" in shown[0][1]
    assert "37.5 mm left of 250 mm" in shown[2][1]
    assert len(set(styles)) == 2
    assert (main, stops) == ("none", True)
    assert weak == []


@browser_only
def test_who_may_not_stop_can_read_why() -> None:
    watched = MadeUp(State.HELD)
    disabled, why, weak = look(
        watched,
        procedure_in(State.HELD, ""),
        "told = {...told, may_stop: false}; socket.onmessage = null; show(); $('stop').disabled",
        words("answer"),
        MEASURED,
    )
    assert disabled
    assert "watch" in why
    assert weak == []
