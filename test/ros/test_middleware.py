# SPDX-License-Identifier: Apache-2.0
"""What the middleware is told: lost messages are to come again soon, and a reader need not answer every one."""

from __future__ import annotations

import os
import subprocess
import sys
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

JOIN = "import rclpy; rclpy.init(); rclpy.create_node('somebody'); rclpy.shutdown()"
NAMESPACE = "{http://www.eprosima.com}"
VARIABLES = {variable for variable, _ in SETTINGS.values()}


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "unused", lambda: True)  # whatever the tests before have done in this process
    for variable in (*VARIABLES, RANGE, PEERS):
        monkeypatch.setenv(variable, "")  # what is set in the test is to be gone after it
        monkeypatch.delenv(variable)


def texts(path: Path) -> list[str]:
    """What the elements of a profile say, whatever they are called."""
    return [(element.text or "").strip() for element in ElementTree.parse(path).iter()]


def test_both_versions_are_told_the_same() -> None:
    first, second = (
        [texts(resource("config", "middleware", name)) for name in names] for _, names in SETTINGS.values()
    )
    assert first == second
    for _, names in SETTINGS.values():
        wide, local = (ElementTree.parse(resource("config", "middleware", name)).getroot() for name in names)
        for profile in ("participant", "data_writer"):
            assert [found.get("is_default_profile") for found in wide.iter(NAMESPACE + profile)] == ["true"]
        for parent, name in (
            ("transport_descriptor", "interfaceWhiteList"),
            ("builtin", "metatrafficUnicastLocatorList"),
            ("builtin", "initialPeersList"),
        ):
            (around,) = local.iter(NAMESPACE + parent)
            (inside,) = around.findall(NAMESPACE + name)
            around.remove(inside)
        assert [(e.tag, (e.text or "").strip()) for e in wide.iter()] == [
            (e.tag, (e.text or "").strip()) for e in local.iter()
        ]


@pytest.mark.usefixtures("nothing_set")
def test_the_middleware_understands_what_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def join() -> str:
        done = subprocess.run([sys.executable, "-c", JOIN], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr  # Fast DDS 2 complains on the one, 3 on the other

    settle()
    (variable,) = VARIABLES & os.environ.keys()
    assert "XML" not in join()
    wrong = tmp_path / "wrong.xml"
    wrong.write_text(Path(os.environ[variable]).read_text().replace("heartbeat", "hartbeat"))
    monkeypatch.setenv(variable, str(wrong))
    assert "XML" in join()


@pytest.mark.usefixtures("nothing_set")
def test_nobody_waits_for_the_description_of_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fast DDS 3 has threads that ask others for it."""
    node = JOIN.replace("rclpy.create_node", "node = rclpy.create_node")  # its threads go with it
    names = "import pathlib; print(*(f.read_text() for f in pathlib.Path('/proc/self/task').glob('*/comm')))"
    command = [sys.executable, "-c", node.replace("rclpy.shutdown()", names)]

    def asks() -> bool:
        return "dds.tls" in subprocess.run(command, capture_output=True, text=True, check=True).stdout

    by_itself = asks()
    settle()
    assert not asks()
    assert by_itself == any("FASTDDS" in variable for variable in VARIABLES & os.environ.keys())


@pytest.mark.usefixtures("nothing_set")
def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = tmp_path / "mine.xml"
    mine.write_text("<dds/>", encoding="utf-8")
    for variable in VARIABLES:
        monkeypatch.setenv(variable, str(mine))
    settle()
    assert {os.environ[variable] for variable in VARIABLES} == {str(mine)}
    assert os.environ[RANGE] == "LOCALHOST"


SPEAK = """
import time
from rths_nodes.ros.hosting.composed import ros_context
with ros_context() as context:
    import rclpy, std_msgs.msg
    node = rclpy.create_node("speaker", context=context)
    publisher = node.create_publisher(std_msgs.msg.String, "words", 10)
    print("up", flush=True)
    while True:
        publisher.publish(std_msgs.msg.String(data="word"))
        time.sleep(0.02)
"""
LISTEN = """
import rclpy, std_msgs.msg
rclpy.init()
node = rclpy.create_node("listener")
heard = rclpy.task.Future()
hear = lambda message: heard.set_result(message.data)
node.create_subscription(std_msgs.msg.String, "words", hear, 10)
rclpy.spin_until_future_complete(node, heard, timeout_sec=20.0)
print(heard.result(), "shares" if "/dev/shm/fast" in open("/proc/self/maps").read() else "", flush=True)
"""
LOOPBACK = "0100007F"


def addresses(process: int) -> set[str]:
    """To what the IPv4 sockets of a process are bound, as the kernel writes it."""
    sockets = {os.readlink(entry) for entry in Path(f"/proc/{process}/fd").iterdir() if entry.is_symlink()}
    lines = [line.split() for line in Path(f"/proc/{process}/net/udp").read_text().splitlines()[1:]]
    return {words[1].partition(":")[0] for words in lines if f"socket:[{words[9]}]" in sockets}


@pytest.mark.usefixtures("nothing_set")
@pytest.mark.parametrize("given", ["", "LOCALHOST", "SUBNET"])
def test_an_ordinary_subscriber_hears_us_without_shared_memory(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed holds a lock that is in shared memory for ever."""
    monkeypatch.setenv(RANGE, given)
    speaker = subprocess.Popen([sys.executable, "-c", SPEAK], stdout=subprocess.PIPE, text=True)
    try:
        assert speaker.stdout is not None
        assert speaker.stdout.readline() == "up\n"
        monkeypatch.setenv(RANGE, given or "LOCALHOST")
        command = [sys.executable, "-c", LISTEN]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "word shares\n"
        assert "/dev/shm/fast" not in Path(f"/proc/{speaker.pid}/maps").read_text()
        assert (addresses(speaker.pid) == {LOOPBACK}) == (given != "SUBNET")
    finally:
        speaker.kill()
        speaker.communicate()


@pytest.mark.usefixtures("nothing_set")
def test_a_process_in_which_nodes_have_been_before_stays_on_this_machine() -> None:
    """The middleware would not read our settings any more, and then look for others everywhere."""
    script = (
        JOIN
        + f"""
from rths_nodes.ros.transport.middleware import settle
settle()
settle()
import os
print(os.environ["{RANGE}"], *({VARIABLES!r} & os.environ.keys()))
"""
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "LOCALHOST\n"


@pytest.mark.usefixtures("nothing_set")
def test_other_machines_are_refused_where_nobody_would_look_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PEERS, "localhost;127.0.0.1;")
    settle()
    monkeypatch.setenv(PEERS, "192.0.2.7;localhost")
    for wanted in ("", "LOCALHOST"):
        monkeypatch.setenv(RANGE, wanted)
        with pytest.raises(ConfigError, match=f"{PEERS}: '192.0.2.7;localhost' .* {RANGE}=SUBNET"):
            settle()
    monkeypatch.setenv(RANGE, "SUBNET")
    settle()
    assert os.environ[RANGE] == "SUBNET"  # with which ROS 2 heeds them


@pytest.mark.usefixtures("nothing_set")
@pytest.mark.parametrize(
    ("variable", "value", "known"),
    [(RANGE, "SUBNETT", "LOCALHOST, OFF, SUBNET"), *((DOMAIN, each, "0 to 232") for each in ("233", "-1", "one"))],
)
def test_what_ros_would_misunderstand_is_refused(
    variable: str, value: str, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"{variable}: '{value}' .* {known}"):
        settle()


@pytest.mark.usefixtures("nothing_set")
@pytest.mark.parametrize(
    ("arguments", "domain", "words"),
    [
        (["-r", "a::b"], "0", ("integrator", "ROS", "-r a::b")),
        (["--foo"], "0", ("integrator", "ROS", "--foo")),
        ([], "one", ("ROS_DOMAIN_ID", "one")),
    ],
)
def test_a_node_refuses_what_ros_would_in_one_line(
    arguments: list[str], domain: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DOMAIN, domain)
    command = [sys.executable, "-m", "rths_nodes.app.node", "integrator", "--ros-args", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert mentions(done.stderr, "rths", *words)


@pytest.mark.usefixtures("nothing_set")
def test_another_middleware_is_told_only_how_far_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "get_rmw_implementation_identifier", lambda: "rmw_cyclonedds_cpp")
    settle()
    assert os.environ[RANGE] == "LOCALHOST"
    assert not VARIABLES & os.environ.keys()


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
    assert os.environ[RANGE] == ("SYSTEM_DEFAULT" if variable else "LOCALHOST")
    for wanted in ("", "SUBNET", "OFF", "LOCALHOST"):
        monkeypatch.setenv(RANGE, wanted)
        settle()
        once = dict(os.environ)
        assert not variable or os.environ[variable].endswith("_local.xml") == (wanted in ("", "LOCALHOST"))
        settle()  # the process of a node is started by one that has settled it
        assert dict(os.environ) == once
