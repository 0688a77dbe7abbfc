# SPDX-License-Identifier: Apache-2.0
"""The example in C++: its judgement compiled with our messages, its node held to the table of topics."""

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
JUDGEMENT = (EXAMPLE / "include" / "rths_example_watcher" / "watch.hpp").read_text(encoding="utf-8")
MESSAGES = ("Live", "LiveCurves", "TestState")
OBJECTS = {"live": "Live", "told": "LiveCurves", "test": "TestState"}
"""Messages in the C++ text by the names of the arguments that have them."""
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
  std::printf("%d\\n", watch.drawn(live).has_value());
  curves.names = {"story_1/target", "story_1/force"};
  watch.named(curves);
  std::printf("%d ", watch.drawn(live).has_value());
  std::printf("%g\\n", watch.largest());
  live.values = {0, 0, 0, 0, nan, nan, nan, nan, 0, -9e6, 9e6, 0, 1, -120, 50, 3};
  std::printf("%s\\n", watch.drawn(live)->c_str());
  std::printf("%d ", watch.drawn(live).has_value());
  std::printf("%g\\n", watch.largest());
  TestState test;
  for (int state : {TestState::TRIPPED, TestState::RUNNING, TestState::STOPPING, TestState::HELD}) {
    test.state = state;
    std::printf("%d", watch.over(test));
  }
}
"""


def fields(message: str) -> set[str]:
    """Fields and constants of one of our messages."""
    lines = (ROOT / "msg" / f"{message}.msg").read_text(encoding="utf-8").splitlines()
    rows = [line.partition("#")[0].split() for line in lines]
    return {row[1].partition("=")[0] for row in rows if len(row) > 1}


def test_the_judgement_is_that_of_its_messages(tmp_path: Path) -> None:
    """A peak of any column counts, of forces only; what is not known is no force; it asks once."""
    include = Path(sys.prefix) / "include"
    if not (include / "rths_nodes" / "rths_nodes" / "msg" / "live.hpp").is_file():
        pytest.skip("the messages for C++ are not installed in this environment")
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler is installed here")
    (tmp_path / "judge.cpp").write_text(PROGRAM)
    words = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{EXAMPLE / 'include'}"]
    words += [f"-isystem{path}" for path in include.iterdir() if path.is_dir()]
    subprocess.run([*words, str(tmp_path / "judge.cpp"), "-o", str(tmp_path / "judge")], check=True, timeout=100)
    told = subprocess.run([str(tmp_path / "judge")], capture_output=True, text=True, check=True, timeout=10).stdout
    lines = told.splitlines()
    assert mentions(lines.pop(2), "sample 60", "120 N", "100 N")
    assert lines == ["0", "0 50", "0 120", "0001"]


def test_every_field_that_it_names_is_in_its_message() -> None:
    found = {name: set() for name in OBJECTS}
    for text in (NODE, JUDGEMENT):
        text = re.sub(r"^#include.*$", "", text, flags=re.M)
        for name, field in re.findall(rf"\b({'|'.join(OBJECTS)})\.(\w+)", text):
            found[name].add(field)
    for name, named in found.items():
        assert named
        assert named <= fields(OBJECTS[name]), name
    assert set(re.findall(r"\bState::(\w+)", JUDGEMENT)) <= fields("TestState")
    included = set(re.findall(r"<rths_nodes/msg/(\w+)\.hpp>", JUDGEMENT))
    assert included == {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in MESSAGES}


def test_it_listens_as_the_topics_are_published() -> None:
    """Latched topics transient local, what is best effort best effort: another QoS hears nothing."""
    heard = re.findall(r'create_subscription<(\w+)>\(\s*"(\w+)", (\w+),', NODE)
    assert {kind for kind, _, _ in heard} == set(MESSAGES)
    for kind, topic, qos in heard:
        row = TOPICS[topic]
        assert row.type == f"rths_nodes/msg/{kind}"
        assert qos == ("latched" if row.latched else "lossy"), topic
        assert row.latched or row.best_effort
    assert 'create_client<Trigger>("actuator/stop")' in NODE


def test_its_package_names_what_it_is_built_of() -> None:
    needed = {str(each.text) for each in ElementTree.parse(EXAMPLE / "package.xml").getroot().iter("depend")}
    build = (EXAMPLE / "CMakeLists.txt").read_text(encoding="utf-8")
    assert set(re.findall(r"find_package\((\w+) REQUIRED\)", build)) == needed | {"ament_cmake"}
