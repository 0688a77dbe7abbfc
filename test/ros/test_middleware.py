# SPDX-License-Identifier: Apache-2.0
"""Tests of the settings of the middleware: profiles of Fast DDS, discovery range, domain and peers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

from rths_nodes.ros.environment import DOMAIN, PEERS, RANGE
from rths_nodes.ros.transport import middleware
from rths_nodes.ros.transport.middleware import SETTINGS, settle

JOIN = "import rclpy; rclpy.init(); rclpy.create_node('node'); rclpy.shutdown()"
NAMESPACE = "{http://www.eprosima.com}"
VARIABLES = {variable for variable, _ in SETTINGS.values()}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "unused", lambda: True)  # as if no earlier test had started a node
    for variable in (*VARIABLES, RANGE, PEERS):
        monkeypatch.setenv(variable, "")  # so that a value set during the test is removed after it
        monkeypatch.delenv(variable)


def python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)


def texts(root: ElementTree.Element) -> list[str]:
    """Return the text of each element."""
    return [(element.text or "").strip() for element in root.iter()]


def profiles(names: Sequence[str]) -> list[ElementTree.Element]:
    return [ElementTree.parse(resource("config", "middleware", name)).getroot() for name in names]


def test_profiles_are_equal_for_both_versions() -> None:
    first, second = ([texts(root) for root in profiles(names)] for _, names in SETTINGS.values())
    assert first == second
    for _, names in SETTINGS.values():
        wide, local = profiles(names)
        for profile in ("participant", "data_writer"):
            assert [tag.get("is_default_profile") for tag in wide.iter(NAMESPACE + profile)] == ["true"]
        for parent, name in (
            ("transport_descriptor", "interfaceWhiteList"),
            ("builtin", "metatrafficUnicastLocatorList"),
            ("builtin", "initialPeersList"),
        ):
            (outer,) = local.iter(NAMESPACE + parent)
            (inner,) = outer.findall(NAMESPACE + name)
            outer.remove(inner)
        assert [tag.tag for tag in wide.iter()] == [tag.tag for tag in local.iter()]
        assert texts(wide) == texts(local)


def test_profile_is_parsed_by_middleware(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settle()
    (variable,) = VARIABLES & os.environ.keys()
    valid = python(JOIN)
    assert "XML" not in valid.stdout + valid.stderr  # Fast DDS 2 reports errors on stdout, 3 on stderr
    profile = tmp_path / "invalid.xml"
    profile.write_text(Path(os.environ[variable]).read_text().replace("heartbeat", "hartbeat"))
    monkeypatch.setenv(variable, str(profile))
    invalid = python(JOIN)
    assert "XML" in invalid.stdout + invalid.stderr


def test_type_lookup_is_switched_off() -> None:
    """Fast DDS 3 has threads that request type descriptions from others."""
    node = JOIN.replace("rclpy.create_node", "node = rclpy.create_node")  # keeps its threads alive
    threads = "import pathlib; print(*(f.read_text() for f in pathlib.Path('/proc/self/task').glob('*/comm')))"
    script = node.replace("rclpy.shutdown()", threads)
    by_default = "dds.tls" in python(script).stdout
    settle()
    assert "dds.tls" not in python(script).stdout
    assert by_default == any("FASTDDS" in variable for variable in VARIABLES & os.environ.keys())


def test_settings_of_user_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profile = tmp_path / "mine.xml"
    profile.write_text("<dds/>", encoding="utf-8")
    for variable in VARIABLES:
        monkeypatch.setenv(variable, str(profile))
    settle()
    assert {os.environ[variable] for variable in VARIABLES} == {str(profile)}
    assert os.environ[RANGE] == "LOCALHOST"


PUBLISH = """
import time
from rths_nodes.ros.hosting.composed import ros_context
with ros_context() as context:
    import rclpy, std_msgs.msg
    node = rclpy.create_node("publisher", context=context)
    publisher = node.create_publisher(std_msgs.msg.String, "words", 10)
    print("up", flush=True)
    while True:
        publisher.publish(std_msgs.msg.String(data="word"))
        time.sleep(0.02)
"""
SUBSCRIBE = """
import rclpy, std_msgs.msg
rclpy.init()
node = rclpy.create_node("subscriber")
received = rclpy.task.Future()
receive = lambda message: received.set_result(message.data)
node.create_subscription(std_msgs.msg.String, "words", receive, 10)
rclpy.spin_until_future_complete(node, received, timeout_sec=20.0)
print(received.result(), "shares" if "/dev/shm/fast" in open("/proc/self/maps").read() else "", flush=True)
"""
LOOPBACK = "0100007F"


def addresses(process: int) -> set[str]:
    """Return the addresses to which the IPv4 sockets of a process are bound, as the kernel writes them."""
    sockets = {os.readlink(entry) for entry in Path(f"/proc/{process}/fd").iterdir() if entry.is_symlink()}
    rows = [line.split() for line in Path(f"/proc/{process}/net/udp").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if f"socket:[{row[9]}]" in sockets}


@pytest.mark.parametrize("discovery", ["", "LOCALHOST", "SUBNET"])
def test_publisher_without_shared_memory_reaches_subscriber(
    discovery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process would hold its locks in shared memory for ever."""
    monkeypatch.setenv(RANGE, discovery)
    publisher = subprocess.Popen([sys.executable, "-c", PUBLISH], stdout=subprocess.PIPE, text=True)
    try:
        assert publisher.stdout.readline() == "up\n"
        monkeypatch.setenv(RANGE, discovery or "LOCALHOST")
        assert python(SUBSCRIBE).stdout == "word shares\n"
        assert "/dev/shm/fast" not in Path(f"/proc/{publisher.pid}/maps").read_text()
        assert (addresses(publisher.pid) == {LOOPBACK}) == (discovery != "SUBNET")
    finally:
        publisher.kill()
        publisher.communicate()


def test_process_with_earlier_nodes_stays_on_localhost() -> None:
    """The middleware no longer reads our settings, and would search the network."""
    script = f"""{JOIN}
from rths_nodes.ros.transport.middleware import settle
settle()
settle()
import os
print(os.environ["{RANGE}"], *({VARIABLES!r} & os.environ.keys()))
"""
    assert python(script).stdout == "LOCALHOST\n"


def test_remote_peers_need_subnet_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PEERS, "localhost;127.0.0.1;")
    settle()
    monkeypatch.setenv(PEERS, "192.0.2.7;localhost")
    for discovery in ("", "LOCALHOST"):
        monkeypatch.setenv(RANGE, discovery)
        with pytest.raises(ConfigError, match=f"{PEERS}: '192.0.2.7;localhost' .* {RANGE}=SUBNET"):
            settle()
    monkeypatch.setenv(RANGE, "SUBNET")
    settle()
    assert os.environ[RANGE] == "SUBNET"  # ROS 2 then contacts the peers


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [(RANGE, "SUBNETT", "LOCALHOST, OFF, SUBNET"), *((DOMAIN, text, "0 to 232") for text in ("233", "-1", "one"))],
)
def test_invalid_variables_of_ros_are_refused(
    variable: str, value: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"{variable}: '{value}' .* {allowed}"):
        settle()


@pytest.mark.parametrize(
    ("arguments", "domain", "parts"),
    [
        (["-r", "a::b"], "0", ("integrator", "ROS", "-r a::b")),
        (["--foo"], "0", ("integrator", "ROS", "--foo")),
        ([], "one", ("ROS_DOMAIN_ID", "one")),
    ],
)
def test_node_refuses_invalid_ros_arguments_in_one_line(
    arguments: list[str], domain: str, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DOMAIN, domain)
    command = [sys.executable, "-m", "rths_nodes.app.node", "integrator", "--ros-args", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert mentions(result.stderr, "rths", *parts)


def test_other_middleware_gets_only_discovery_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "get_rmw_implementation_identifier", lambda: "rmw_cyclonedds_cpp")
    settle()
    assert os.environ[RANGE] == "LOCALHOST"
    assert not VARIABLES & os.environ.keys()


@pytest.mark.parametrize(
    ("library", "variable"), [*((name, setting[0]) for name, setting in SETTINGS.items()), ("", "")]
)
def test_installed_version_selects_variable_and_profile(
    library: str, variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / (library or "libother.so")).touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", "")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(middleware, "resource", Path)  # the installed files are not below this prefix
    settle()
    assert {name for name in VARIABLES if name in os.environ} == ({variable} if variable else set())
    assert os.environ[RANGE] == ("SYSTEM_DEFAULT" if variable else "LOCALHOST")
    for discovery in ("", "SUBNET", "OFF", "LOCALHOST"):
        monkeypatch.setenv(RANGE, discovery)
        settle()
        settled = dict(os.environ)
        assert not variable or os.environ[variable].endswith("_local.xml") == (discovery in ("", "LOCALHOST"))
        settle()  # a node's process is started by a process that has called it already
        assert dict(os.environ) == settled
