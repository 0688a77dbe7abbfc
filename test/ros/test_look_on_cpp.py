# SPDX-License-Identifier: Apache-2.0
"""Tests of the C++ example: its force watch, compiled with our messages, and its use of topics and QoS."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from messages import mentions

from rths_nodes.ros.names import TOPICS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "look_on_cpp"
NODE = (EXAMPLE / "src" / "watcher.cpp").read_text(encoding="utf-8")
WATCH = (EXAMPLE / "include" / "rths_example_watcher" / "watch.hpp").read_text(encoding="utf-8")
OBJECTS = {"live": "Live", "curves": "LiveCurves", "test": "TestState"}
"""Message types in the C++ text by argument name."""
PROGRAM = """
#include <cmath>
#include <cstdio>
#include <limits>
#include "rths_example_watcher/watch.hpp"

int main()
{
  using rths_nodes::msg::TestState;
  rths_nodes::msg::LiveCurves curves;
  rths_nodes::msg::Live live;
  rths_example_watcher::Watch watch(100.0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  live.first = 40, live.column = 20;
  live.values = {0, -9e6, 9e6, 0, 1, -2, 50, 3};
  std::printf("%d\\n", watch.check(live).has_value());
  curves.names = {"story_1/target", "story_1/force"};
  watch.set_curves(curves);
  std::printf("%d ", watch.check(live).has_value());
  std::printf("%g\\n", watch.largest());
  live.values = {0, 0, 0, 0, nan, nan, nan, nan, 0, -9e6, 9e6, 0, 1, -120, 50, 3};
  std::printf("%s\\n", watch.check(live)->c_str());
  std::printf("%d ", watch.check(live).has_value());
  std::printf("%g\\n", watch.largest());
  TestState test;
  for (int state : {TestState::TRIPPED, TestState::RUNNING, TestState::STOPPING, TestState::HELD}) {
    test.state = state;
    std::printf("%d", watch.ended(test));
  }
}
"""


def fields(message: str) -> set[str]:
    """Return the fields and constants of a message."""
    lines = (ROOT / "msg" / f"{message}.msg").read_text(encoding="utf-8").splitlines()
    rows = [line.partition("#")[0].split() for line in lines]
    return {row[1].partition("=")[0] for row in rows if len(row) > 1}


def test_watch_reports_excessive_force_once(tmp_path: Path) -> None:
    """A peak in any column counts, but only of forces; NaN is not a force."""
    include = Path(sys.prefix) / "include"
    if not (include / "rths_nodes" / "rths_nodes" / "msg" / "live.hpp").is_file():
        pytest.skip("the messages for C++ are not installed in this environment")
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler is installed here")
    source, program = tmp_path / "watch.cpp", str(tmp_path / "watch")
    source.write_text(PROGRAM)
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{EXAMPLE / 'include'}"]
    command += [f"-isystem{path}" for path in include.iterdir() if path.is_dir()]
    subprocess.run([*command, str(source), "-o", program], check=True, timeout=100)
    lines = subprocess.run([program], capture_output=True, text=True, check=True, timeout=10).stdout.splitlines()
    assert mentions(lines.pop(2), "sample 60", "120 N", "100 N")
    assert lines == ["0", "0 50", "0 120", "0001"]


def test_named_fields_exist_in_messages() -> None:
    text = re.sub(r"^#include.*$", "", NODE + WATCH, flags=re.M)
    for name, message in OBJECTS.items():
        used = set(re.findall(rf"\b{name}\.(\w+)", text))
        assert used
        assert used <= fields(message), name
    assert set(re.findall(r"\bState::(\w+)", WATCH)) <= fields("TestState")
    included = set(re.findall(r"<rths_nodes/msg/(\w+)\.hpp>", WATCH))
    assert included == {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in OBJECTS.values()}


def test_subscriptions_match_published_qos() -> None:
    """A subscription with another QoS receives nothing."""
    subscriptions = re.findall(r'create_subscription<(\w+)>\(\s*"(\w+)", (\w+),', NODE)
    assert {message for message, _, _ in subscriptions} == set(OBJECTS.values())
    for message, topic, qos in subscriptions:
        row = TOPICS[topic]
        assert row.type == f"rths_nodes/msg/{message}"
        assert qos == ("latched" if row.latched else "lossy"), topic
        assert row.latched or row.best_effort
    assert 'create_client<Trigger>("actuator/stop")' in NODE


def test_package_dependencies_match_cmake() -> None:
    depends = {str(tag.text) for tag in ElementTree.parse(EXAMPLE / "package.xml").getroot().iter("depend")}
    build = (EXAMPLE / "CMakeLists.txt").read_text(encoding="utf-8")
    assert set(re.findall(r"find_package\((\w+) REQUIRED\)", build)) == depends | {"ament_cmake"}
