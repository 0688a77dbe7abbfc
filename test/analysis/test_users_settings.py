# SPDX-License-Identifier: Apache-2.0
"""A user's settings of matplotlib change no figure, and a page that fails no result of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
from messages import mentions

from rths_nodes.analysis.figures.style import STYLE, in_style
from rths_nodes.app.cli import main

ROOT = Path(__file__).parents[2]
SETTINGS = """
text.usetex: True
font.size: 20
lines.linewidth: 7
xtick.labelbottom: False
axes.prop_cycle: cycler('color', ['red'])
"""
SHORT = ["chen_ricles_2010", "--set", "duration=1"]


def page(recording: Path, out: Path, settings: str) -> bytes:
    """The page of a recording, made in a process with these settings of matplotlib."""
    words = [sys.executable, "-m", "rths_nodes.app.cli", "report", str(recording), "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MATPLOTLIBRC": settings}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out.read_bytes()


def test_a_page_is_the_same_whatever_the_users_settings_are(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text(SETTINGS)
    (tmp_path / "empty").write_text("")
    assert main(["run", *SHORT, "--record", str(tmp_path / "run")]) == 0
    pages = {
        page(tmp_path / "run", tmp_path / "page.html", str(tmp_path / name)) for name in ("matplotlibrc", "empty")
    }
    assert len(pages) == 1


def test_the_style_begins_from_the_defaults_and_leaves_the_settings() -> None:
    with matplotlib.rc_context({"text.usetex": True, "xtick.labelbottom": False, "font.size": 20.0}):
        with in_style():
            assert (matplotlib.rcParams["text.usetex"], matplotlib.rcParams["xtick.labelbottom"]) == (False, True)
            assert matplotlib.rcParams["font.size"] == STYLE["font.size"]
        assert (matplotlib.rcParams["text.usetex"], matplotlib.rcParams["font.size"]) == (True, 20.0)


def test_a_page_that_fails_changes_no_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The disk is full once the test has ended."""
    full = tmp_path / "page.html"
    full.symlink_to("/dev/full")
    assert main(["run", *SHORT, "--no-record", "--report", str(full)]) == 0
    told = capsys.readouterr()
    assert mentions(told.out, "chen_ricles_2010", "finished")
    assert mentions(told.err, "page.html", "space", "left")
    assert "report:" not in told.out
