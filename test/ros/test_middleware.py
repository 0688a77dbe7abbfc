"""What the middleware is told: lost messages are to come again soon, and a reader need not answer every one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rths_nodes.resources import resource

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.ros import middleware
from rths_nodes.ros.middleware import SETTINGS, settle

JOIN = "import rclpy; rclpy.init(); rclpy.create_node('somebody'); rclpy.shutdown()"
NAMESPACE = "{http://www.eprosima.com}"
VARIABLES = [variable for variable, _ in SETTINGS.values()]


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "")  # what is set in the test is to be gone after it
        monkeypatch.delenv(variable)


def texts(path: Path) -> list[str]:
    """What the elements of a profile say, whatever they are called."""
    return [(element.text or "").strip() for element in ElementTree.parse(path).iter()]


def test_both_versions_are_told_the_same() -> None:
    first, second = (texts(resource("config", "middleware", settings)) for _, settings in SETTINGS.values())
    assert first == second
    for _, settings in SETTINGS.values():
        (writer,) = ElementTree.parse(resource("config", "middleware", settings)).iter(f"{NAMESPACE}data_writer")
        assert writer.get("is_default_profile") == "true"


@pytest.mark.usefixtures("nothing_set")
def test_the_middleware_understands_what_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def join() -> str:
        done = subprocess.run([sys.executable, "-c", JOIN], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr  # Fast DDS 2 complains on the one, 3 on the other

    settle()
    (variable,) = set(VARIABLES) & set(os.environ)
    assert "XML" not in join()
    wrong = tmp_path / "wrong.xml"
    wrong.write_text(Path(os.environ[variable]).read_text().replace("heartbeat", "hartbeat"))
    monkeypatch.setenv(variable, str(wrong))
    assert "XML" in join()


@pytest.mark.usefixtures("nothing_set")
@pytest.mark.parametrize("variable", VARIABLES)
def test_what_the_user_has_set_stays(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "mine.xml")
    settle()
    assert {name: os.environ.get(name) for name in VARIABLES} == dict.fromkeys(VARIABLES) | {variable: "mine.xml"}


@pytest.mark.usefixtures("nothing_set")
@pytest.mark.parametrize(
    ("library", "variable"), [*((name, found[0]) for name, found in SETTINGS.items()), ("", "")]
)
def test_each_version_is_told_in_its_own_way(
    library: str, variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / (library or "libother.so")).touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", "")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(middleware, "resource", Path)  # what is installed is elsewhere
    settle()
    assert {name for name in VARIABLES if name in os.environ} == ({variable} if variable else set())
