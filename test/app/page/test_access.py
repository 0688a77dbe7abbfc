# SPDX-License-Identifier: Apache-2.0
"""Tests of the permission to stop a rig by its page, and of the limit on requests."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from importlib.resources import files

import pytest
from messages import mentions

from rths_nodes.app.page import connections
from rths_nodes.core.resources import PACKAGE

LOCAL = "127.0.0.1"
PAGE = {"Host": "127.0.0.1:8085", "Origin": "http://127.0.0.1:8085", connections.MARK: "1"}


def test_local_page_may_stop() -> None:
    assert connections.why_not(PAGE, LOCAL, LOCAL, open_to_others=False) == ""
    assert (
        connections.why_not(PAGE | {"Host": "[::1]:8085", "Origin": "http://[::1]:8085"}, "::1", LOCAL, False)
        == ""
    )


@pytest.mark.parametrize(
    ("changes", "remote", "parts"),
    [
        ({connections.MARK: ""}, LOCAL, ("header", "X-Rths-Page", "missing")),
        ({"Origin": "http://evil.example"}, LOCAL, ("page", "origin")),
        ({"Origin": "null"}, LOCAL, ("page", "origin")),
        ({"Host": "evil.example:8085", "Origin": "http://evil.example:8085"}, LOCAL, ("host other than",)),
        ({}, "192.168.1.7", ("computer", "not stop")),
    ],
)
def test_foreign_requests_may_not_stop(changes: dict[str, str], remote: str, parts: tuple[str, ...]) -> None:
    assert mentions(connections.why_not(PAGE | changes, remote, LOCAL, open_to_others=False), *parts)


def test_remote_page_may_stop_if_allowed() -> None:
    headers = {"Host": "10.0.0.5:8085", "Origin": "http://10.0.0.5:8085", connections.MARK: "1"}
    assert connections.why_not(headers, "10.0.0.9", "0.0.0.0", open_to_others=True) == ""
    assert connections.why_not(headers, "10.0.0.9", "0.0.0.0", open_to_others=False)
    assert connections.why_not(headers | {"Host": "rig.example"}, "10.0.0.9", "0.0.0.0", open_to_others=True)


def test_rate_admits_100_requests_per_second() -> None:
    sent: dict[str, deque[float]] = {}
    assert sum(connections.admits(sent, "one", 0.0) for _ in range(500)) == 100
    assert connections.admits(sent, "another", 0.0)
    assert sum(connections.admits(sent, "one", 1.01) for _ in range(500)) == 100
    for number in range(10_000):
        connections.admits(sent, f"address {number}", 1.02 + 0.01 * number)
    assert len(sent) < 300, "memory does not grow with the number of addresses"


def test_third_party_files_match_their_checksums() -> None:
    static = files(f"{PACKAGE}.app.page") / "static"
    rows = re.findall(r"`([\w.]+)` \| `([0-9a-f]{64})`", (static / "README.md").read_text(encoding="utf-8"))
    assert len(rows) == 2
    for name, checksum in rows:
        assert hashlib.sha256((static / name).read_bytes()).hexdigest() == checksum
    assert "MIT" in (static / "uPlot.LICENSE").read_text(encoding="utf-8")
