# SPDX-License-Identifier: Apache-2.0
"""The environment as people have it: what ROS 2 would fall over is refused, by the name of its variable."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from messages import mentions

from rths_nodes.app import cli
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros import environment as rows
from rths_nodes.ros.environment import KEYS, check, findings

ROOT = Path(__file__).resolve().parents[2]
RTHS = [sys.executable, "-m", "rths_nodes.app.cli"]
RUN = ["run", "chen_ricles_2010", "--set", "duration=0.1", "--no-record", "--host"]
SECURE = {"ROS_SECURITY_ENABLE": "true"}
ENFORCED = SECURE | {"ROS_SECURITY_STRATEGY": "Enforce"}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing is wrong."""
    return {"HOME": str(tmp_path)}


def named(environment: dict[str, str]) -> list[str]:
    return [found.variable for found in findings(environment)]


def test_nothing_is_wrong_with_an_environment_that_says_nothing(home: dict[str, str]) -> None:
    assert named(home) == []


WRONG = [
    ({"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}, "RMW_IMPLEMENTATION", "'rmw_cyclonedds_cpp' is not installed"),
    ({"RMW_IMPLEMENTATION": "rmw_implementation"}, "RMW_IMPLEMENTATION", "is not installed"),
    ({"RMW_IMPLEMENTATION": "/usr/lib/librmw.so"}, "RMW_IMPLEMENTATION", "is not installed"),
    ({"RCL_ASSERT_RMW_ID_MATCHES": "rmw_zenoh_cpp"}, "RCL_ASSERT_RMW_ID_MATCHES", "is not installed"),
    ({"HOME": ""}, "HOME", "is not set"),
    ({"HOME": "/proc"}, "HOME", "cannot write its logs into /proc/.ros/log"),
    ({"ROS_HOME": "/proc/x"}, "ROS_HOME", "cannot write its logs into /proc/x/log"),
    ({"ROS_LOG_DIR": "/proc/x"}, "ROS_LOG_DIR", "cannot write its logs into /proc/x ("),
    ({"ROS_LOG_DIR": "/dev/null"}, "ROS_LOG_DIR", "cannot write its logs into /dev/null ("),
    ({"ROS_LOG_DIR": "~/logs", "HOME": ""}, "HOME", "is not set"),
    ({"ROS_SECURITY_ENABLE": "True"}, "ROS_SECURITY_ENABLE", "'True' must be true or false"),
    (SECURE, "ROS_SECURITY_KEYSTORE", "is not set"),
    (SECURE | {"ROS_SECURITY_KEYSTORE": "/nosuch"}, "ROS_SECURITY_KEYSTORE", "has no folder 'enclaves'"),
    (
        ENFORCED | {"ROS_SECURITY_KEYSTORE": "keys"},
        "ROS_SECURITY_KEYSTORE",
        "lacks identity_ca.cert.pem, cert.pem",
    ),
    ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "localhost"}, "ROS_AUTOMATIC_DISCOVERY_RANGE", "'localhost' is unknown"),
    ({"ROS_DOMAIN_ID": "-1"}, "ROS_DOMAIN_ID", "'-1' must be a whole number"),
    ({"FASTDDS_DEFAULT_PROFILES_FILE": "/nosuch.xml"}, "FASTDDS_DEFAULT_PROFILES_FILE", "No such file"),
    ({"FASTRTPS_DEFAULT_PROFILES_FILE": "/"}, "FASTRTPS_DEFAULT_PROFILES_FILE", "Is a directory"),
    (
        {"FASTDDS_DEFAULT_PROFILES_FILE": "damaged.xml"},
        "FASTDDS_DEFAULT_PROFILES_FILE",
        "is not valid XML (no element found",
    ),
    ({"FASTDDS_DEFAULT_PROFILES_FILE": "other.xml"}, "FASTDDS_DEFAULT_PROFILES_FILE", "root element <CycloneDDS>"),
    ({"ROS_DISCOVERY_SERVER": "no such machine"}, "ROS_DISCOVERY_SERVER", "must be machine:port"),
    ({"ROS_DISCOVERY_SERVER": "127.0.0.1:99999"}, "ROS_DISCOVERY_SERVER", "must be machine:port"),
    ({"ROS_DISCOVERY_SERVER": "nosuch.invalid"}, "ROS_DISCOVERY_SERVER", "unknown host name"),
]


@pytest.mark.parametrize(("changes", "variable", "words"), WRONG, ids=[f"{given}" for given, *_ in WRONG])
def test_a_wrong_variable_is_named(
    changes: dict[str, str],
    variable: str,
    words: str,
    home: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys" / "enclaves").mkdir(parents=True)
    (tmp_path / "damaged.xml").write_text("<dds><profiles></profiles>", encoding="utf-8")
    (tmp_path / "other.xml").write_text("<CycloneDDS/>", encoding="utf-8")
    (found,) = findings(home | changes)
    assert found.variable == variable
    assert words in found.problem
    assert found.advice


def test_range_and_localhost_only_may_not_contradict_each_other(home: dict[str, str]) -> None:
    only = home | {"ROS_LOCALHOST_ONLY": "1"}
    assert named(only) == []
    assert named(only | {"ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}) == ["ROS_LOCALHOST_ONLY"]


def test_what_is_right_is_not_refused(home: dict[str, str], tmp_path: Path) -> None:
    enclave = tmp_path / "keys" / "enclaves" / "rig"
    enclave.mkdir(parents=True)
    for name in KEYS:
        (enclave / name).touch()
    profiles = tmp_path / "mine.xml"
    profiles.write_text('<dds xmlns="http://www.eprosima.com"><profiles/></dds>', encoding="utf-8")
    keys = {"ROS_SECURITY_KEYSTORE": str(tmp_path / "keys"), "ROS_SECURITY_ENCLAVE_OVERRIDE": "/rig"}
    right = home | ENFORCED | keys | {"FASTDDS_DEFAULT_PROFILES_FILE": str(profiles), "ROS_LOG_DIR": "~/new/logs"}
    assert named(right) == []
    assert (tmp_path / "new" / "logs").is_dir()
    assert named({"ROS_LOG_DIR": str(tmp_path)}) == []  # HOME is not needed then


def test_an_installed_middleware_is_known_by_the_index_or_by_its_library(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "share" / "ament_index" / "resource_index" / "rmw_typesupport"
    index.mkdir(parents=True)
    (index / "rmw_one_cpp").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "librmw_two_cpp.so").touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    library = {"LD_LIBRARY_PATH": str(tmp_path / "elsewhere")}
    assert named(home | {"RMW_IMPLEMENTATION": "rmw_one_cpp"}) == []
    assert named(home | {"RMW_IMPLEMENTATION": "rmw_two_cpp"} | library) == []
    assert named(home | {"RMW_IMPLEMENTATION": "rmw_two_cpp"}) == ["RMW_IMPLEMENTATION"]


# discovery servers


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server that is there, and says nothing to a stranger."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
        server.bind(("127.0.0.1", 0))
        yield server.getsockname()[1]


def closed(kind: int) -> int:
    """A port at which nobody is any more."""
    with closing(socket.socket(socket.AF_INET, kind)) as once:
        once.bind(("127.0.0.1", 0))
        return int(once.getsockname()[1])


def test_a_discovery_server_that_is_there_is_not_refused(port: int, home: dict[str, str]) -> None:
    gone = closed(socket.SOCK_DGRAM)
    for given in (f"127.0.0.1:{port}", f"localhost:{port}", f"UDPv4:[127.0.0.1]:{port}", f";127.0.0.1:{port};"):
        assert named(home | {"ROS_DISCOVERY_SERVER": given}) == [], given
    assert named(home | {"ROS_DISCOVERY_SERVER": f"127.0.0.1:{gone};127.0.0.1:{port}"}) == []  # one is enough


@pytest.mark.parametrize(
    ("given", "kind"), [("127.0.0.1:{}", socket.SOCK_DGRAM), ("TCPv4:[127.0.0.1]:{}", socket.SOCK_STREAM)]
)
def test_a_discovery_server_that_is_not_there_is_named(given: str, kind: int, home: dict[str, str]) -> None:
    place = given.format(closed(kind))
    (found,) = findings(home | {"ROS_DISCOVERY_SERVER": place})
    assert mentions(found.problem, place, "listens")


def test_what_says_how_nodes_find_each_other_is_told_where_they_did_not() -> None:
    given = {"ROS_DISCOVERY_SERVER": "10.0.0.1:11811", "ROS_STATIC_PEERS": "", "HOME": "/"}
    assert rows.discovery_settings(given) == "ROS_DISCOVERY_SERVER=10.0.0.1:11811"


# real programs


def started(
    words: list[str], folder: Path, changes: dict[str, str | None], before: tuple[str, ...] = ()
) -> tuple[int, str]:
    """Exit code and standard error; a variable that is None is not set."""
    everything = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])} | changes
    kept = {name: value for name, value in everything.items() if value is not None}
    found = subprocess.run(
        [*before, *words], cwd=folder, env=kept, capture_output=True, text=True, timeout=100, check=False
    )
    return found.returncode, found.stderr


@pytest.mark.parametrize(
    ("host", "changes", "named"),
    [
        ("composed", {"HOME": None, "ROS_LOG_DIR": None, "ROS_HOME": None}, "HOME"),
        ("composed", {"ROS_LOG_DIR": "/proc/nope"}, "ROS_LOG_DIR"),
        ("composed", ENFORCED, "ROS_SECURITY_KEYSTORE"),
        ("composed", {"RMW_IMPLEMENTATION": "rmw_nosuch_cpp"}, "RMW_IMPLEMENTATION"),
        ("processes", {"ROS_DISCOVERY_SERVER": "127.0.0.1:9"}, "ROS_DISCOVERY_SERVER"),
        ("processes", {"FASTDDS_DEFAULT_PROFILES_FILE": "/nosuch"}, "FASTDDS_DEFAULT_PROFILES_FILE"),
    ],
)
def test_a_run_is_refused_in_one_line_before_anything_starts(
    host: str, changes: dict[str, str | None], named: str, tmp_path: Path
) -> None:
    code, told = started([*RTHS, *RUN, host], tmp_path, changes)
    assert (code, told.count("\n")) == (ExitCode.REFUSED, 1)
    assert told.startswith(f"rths: {named}: ")


def test_without_nodes_none_of_it_matters(tmp_path: Path) -> None:
    wrong = {"HOME": None, "RMW_IMPLEMENTATION": "rmw_nosuch_cpp", "ROS_SECURITY_ENABLE": "yes"}
    assert started([*RTHS, *RUN, "embedded"], tmp_path, wrong) == (0, "")


CALLER = """
import rths_nodes
from rths_nodes.core.errors import ConfigError
try:
    rths_nodes.run("chen_ricles_2010", ["duration=0.1"], host="composed")
except ConfigError as error:
    assert "rmw_nosuch_cpp" in str(error)
    raise SystemExit(77)
"""


def test_the_program_of_a_caller_goes_on_where_a_middleware_is_not_installed(tmp_path: Path) -> None:
    wrong = {"RMW_IMPLEMENTATION": "rmw_nosuch_cpp"}
    assert started([sys.executable, "-c", CALLER], tmp_path, wrong) == (77, "")


def test_a_node_by_itself_is_refused_in_one_line(tmp_path: Path) -> None:
    node = [sys.executable, "-m", "rths_nodes.app.node", "monitor"]
    code, told = started(node, tmp_path, {"RMW_IMPLEMENTATION": "rmw_nosuch_cpp"})
    assert (code, told.count("\n")) == (ExitCode.REFUSED, 1)
    assert mentions(told, "rths", "RMW_IMPLEMENTATION", "rmw_nosuch_cpp")


@pytest.mark.nodes
def test_what_only_ros_itself_finds_wrong_is_refused_with_what_is_set_for_it(tmp_path: Path) -> None:
    """Keys that are none, or a middleware that cannot use them; a parameter file whose folder is gone."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    enclaves = tmp_path / "keys" / "enclaves"
    enclaves.mkdir(parents=True)
    for name in KEYS:
        (enclaves / name).touch()
    code, told = started([*RTHS, *RUN, "composed"], tmp_path, ENFORCED | {"ROS_SECURITY_KEYSTORE": "keys"})
    assert code == ExitCode.REFUSED
    assert mentions(told, "rths", "ROS", "2")
    assert "ROS_SECURITY_KEYSTORE=keys" in told
    assert "Traceback" not in told
    node = [sys.executable, "-m", "rths_nodes.app.node", "monitor", "--ros-args", "--params-file", "gone/x.yaml"]
    code, told = started(node, tmp_path, {})
    assert code == ExitCode.REFUSED
    assert "gone/x.yaml" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("host", ["processes", "composed"])
def test_a_machine_without_loopback_is_named(host: str, tmp_path: Path) -> None:
    apart = ("unshare", "--net")
    if (
        not shutil.which("unshare")
        or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no network of its own can be made here")
    code, told = started([*RTHS, *RUN, host], tmp_path, {}, apart)
    assert (code, told.count("\n")) == (ExitCode.REFUSED, 1)
    assert mentions(told, "loopback", "interface")


def test_all_that_is_wrong_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMW_IMPLEMENTATION", "rmw_nosuch_cpp")
    monkeypatch.setenv("ROS_LOG_DIR", "/proc/nope")
    with pytest.raises(ConfigError) as refused:
        check()
    assert [words.partition(":")[0] for words in refused.value.problems] == ["RMW_IMPLEMENTATION", "ROS_LOG_DIR"]


@pytest.mark.parametrize("words", [["run", "chen_ricles_2010", "--host", "composed"], ["page"]])
@pytest.mark.parametrize("module", rows.MODULES)
def test_nodes_without_ros_are_refused_in_words(
    words: list[str], module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else found(name))
    assert cli.main(words) == 2
    assert rows.MODULES[module] in capsys.readouterr().err
