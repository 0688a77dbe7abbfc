# SPDX-License-Identifier: Apache-2.0
"""Services of our own have their place: what stands in ``srv/`` is built and installed as the messages are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
pytest.importorskip("catkin_pkg", reason="what builds messages is not installed here")

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("CMakeLists.txt", "package.xml", "pyproject.toml", "setup.py", "LICENSE", "README.md")
FOLDERS = ("config", "examples", "launch", "rths_nodes", "scripts")


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_service_is_built_beside_the_messages(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in SOURCES:
        shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for folder, name, text in (
        ("msg", "Progress", (ROOT / "msg" / "Progress.msg").read_text()),
        ("srv", "Arm", "string scenario_hash\n---\nbool armed\nProgress progress\n"),
    ):
        (source / folder).mkdir()
        (source / folder / f"{name}.{folder}").write_text(text)
    made = tmp_path / "made"
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build", "--build-lib", str(made)],
        cwd=source,
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Arm" in (made / "rths_nodes" / "srv" / "__init__.py").read_text()
    assert "Progress" in (made / "rths_nodes" / "msg" / "__init__.py").read_text()
    assert list(source.rglob("stage/share/rths_nodes/srv/Arm.srv")), "for who looks a service up"
