# SPDX-License-Identifier: Apache-2.0
"""Recordings that a page shows: those of its folder, and nothing beside them."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed here")
pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from page_of_test import page

from rths_nodes.app.page.server import MOST, Shelf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with a report, a test with one, a run without, and what is none."""
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


def test_the_newest_stands_first(folder: Path) -> None:
    told = Shelf(folder).situation()
    assert [(each["name"], each["report"]) for each in told["recordings"]] == [
        ("new", False),
        ("test", True),
        ("old", True),
    ]
    assert Shelf(folder).report("old") == b"<p>old</p>"
    assert Shelf(folder).report("test") == b"<p>test</p>"


@pytest.mark.parametrize(
    "name", ["new", "notes", "../outside", "outside", "", ".", "old/../../outside", "/etc/passwd", "a" * 300]
)
def test_nothing_else_is_given_out(name: str, folder: Path) -> None:
    assert Shelf(folder).report(name) is None


def test_no_link_is_followed(folder: Path) -> None:
    """A link in the folder of recordings gave out any file that its user may read."""
    secret = folder / "notes" / "secret.txt"
    (folder / "new.html").symlink_to(secret)
    (folder / "test" / "report.html").unlink()
    (folder / "test" / "report.html").symlink_to(secret)
    (folder / "linked").symlink_to(folder / "old")
    (folder / "linked.html").write_text("beside a link")
    shelf = Shelf(folder)
    assert {each["name"]: each["report"] for each in shelf.situation()["recordings"]} == {
        "new": False,
        "test": False,
        "old": True,
    }
    assert [shelf.report(name) for name in ("new", "test", "linked")] == [None] * 3


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert Shelf(tmp_path / "none").situation()["recordings"] == []


def test_of_many_the_newest_are_shown(tmp_path: Path) -> None:
    for number in range(MOST + 5):
        (tmp_path / f"run_{number}").mkdir()
        (tmp_path / f"run_{number}" / "metadata.yaml").write_text("")
        os.utime(tmp_path / f"run_{number}", (number, number))
    names = [each["name"] for each in Shelf(tmp_path).situation()["recordings"]]
    assert names == [f"run_{number}" for number in range(MOST + 4, 4, -1)]


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    with page("--recordings", str(folder), "--namespace", "shelf") as found:
        yield found


@pytest.mark.nodes
def test_a_report_is_shown_in_a_box_of_its_own(address: str) -> None:
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
