# SPDX-License-Identifier: Apache-2.0
"""Who may stop a rig by its page: whoever is at this machine, by the page itself, and not too often."""

from __future__ import annotations

import hashlib
import re

import pytest
from messages import mentions

from rths_nodes.app.page import access
from rths_nodes.core.resources import PACKAGE

OWN = "127.0.0.1"
PAGE = {"Host": "127.0.0.1:8085", "Origin": "http://127.0.0.1:8085", access.MARK: "1"}


def test_the_page_itself_may_stop() -> None:
    assert access.why_not(PAGE, OWN, OWN, open_to_others=False) == ""
    assert access.why_not(PAGE | {"Host": "[::1]:8085", "Origin": "http://[::1]:8085"}, "::1", OWN, False) == ""


@pytest.mark.parametrize(
    ("changes", "remote", "words"),
    [
        ({access.MARK: ""}, OWN, ("header", "X-Rths-Page", "missing")),
        ({"Origin": "http://evil.example"}, OWN, ("page", "origin")),
        ({"Origin": "null"}, OWN, ("page", "origin")),
        ({"Host": "evil.example:8085", "Origin": "http://evil.example:8085"}, OWN, ("host other than",)),
        ({}, "192.168.1.7", ("computer", "not stop")),
    ],
)
def test_others_may_not(changes: dict[str, str], remote: str, words: tuple[str, ...]) -> None:
    assert mentions(access.why_not(PAGE | changes, remote, OWN, open_to_others=False), *words)


def test_others_may_where_it_is_said() -> None:
    given = {"Host": "10.0.0.5:8085", "Origin": "http://10.0.0.5:8085", access.MARK: "1"}
    assert access.why_not(given, "10.0.0.9", "0.0.0.0", open_to_others=True) == ""
    assert access.why_not(given, "10.0.0.9", "0.0.0.0", open_to_others=False)
    assert access.why_not(given | {"Host": "rig.example"}, "10.0.0.9", "0.0.0.0", open_to_others=True)


def test_a_hundred_requests_a_second_are_answered() -> None:
    now = [0.0]
    rate = access.Rate(lambda: now[0])
    assert sum(rate.admits("one") for _ in range(500)) == 100
    assert rate.admits("another")
    now[0] = 1.01
    assert sum(rate.admits("one") for _ in range(500)) == 100
    for number in range(10_000):
        now[0] += 0.01
        rate.admits(f"address {number}")
    assert len(rate._asked) < 300, "memory does not grow with who has asked"


def test_what_is_not_ours_is_what_it_says() -> None:
    from importlib.resources import files

    static = files(f"{PACKAGE}.app.page") / "static"
    rows = re.findall(r"`([\w.]+)` \| `([0-9a-f]{64})`", (static / "README.md").read_text(encoding="utf-8"))
    assert len(rows) == 2
    for name, told in rows:
        assert hashlib.sha256((static / name).read_bytes()).hexdigest() == told
    assert "MIT" in (static / "uPlot.LICENSE").read_text(encoding="utf-8")
