# SPDX-License-Identifier: Apache-2.0
"""Check of the environment: settings on which ROS 2 would fail are refused by the name of the variable."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from messages import mentions

from rths_nodes.app import cli
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros.environment import KEYS, MODULES, check, discovery_settings, findings

ROOT = Path(__file__).resolve().parents[2]
RTHS = [sys.executable, "-m", "rths_nodes.app.cli"]
RUN = ["run", "chen_ricles_2010", "--set", "duration=0.1", "--no-record", "--host"]
SECURE = {"ROS_SECURITY_ENABLE": "true"}
KEYSTORE, PROFILES = "ROS_SECURITY_KEYSTORE", "FASTDDS_DEFAULT_PROFILES_FILE"
ENFORCED = SECURE | {"ROS_SECURITY_STRATEGY": "Enforce"}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """A valid environment."""
    return {"HOME": str(tmp_path)}


def invalid_variables(environment: dict[str, str]) -> list[str]:
    return [finding.variable for finding in findings(environment)]


INVALID = [
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
    (SECURE, KEYSTORE, "is not set"),
    (SECURE | {KEYSTORE: "/nosuch"}, KEYSTORE, "has no folder 'enclaves'"),
    (ENFORCED | {KEYSTORE: "keys"}, KEYSTORE, "lacks identity_ca.cert.pem, cert.pem"),
    ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "localhost"}, "ROS_AUTOMATIC_DISCOVERY_RANGE", "'localhost' is unknown"),
    ({"ROS_LOCALHOST_ONLY": "1", "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}, "ROS_LOCALHOST_ONLY", "=SUBNET"),
    ({"RCUTILS_COLORIZED_OUTPUT": "yes"}, "RCUTILS_COLORIZED_OUTPUT", "'yes' must be 0 or 1"),
    ({"ROS_DOMAIN_ID": "-1"}, "ROS_DOMAIN_ID", "'-1' must be a whole number"),
    ({"ROS_DOMAIN_ID": "１"}, "ROS_DOMAIN_ID", "'１' must be a whole number"),
    ({PROFILES: "/nosuch.xml"}, PROFILES, "No such file"),
    ({"FASTRTPS_DEFAULT_PROFILES_FILE": "/"}, "FASTRTPS_DEFAULT_PROFILES_FILE", "Is a directory"),
    ({PROFILES: "damaged.xml"}, PROFILES, "is not valid XML (no element found"),
    ({PROFILES: "other.xml"}, PROFILES, "root element <CycloneDDS>"),
    ({"ROS_DISCOVERY_SERVER": "no such machine"}, "ROS_DISCOVERY_SERVER", "must have the form HOST:PORT"),
    ({"ROS_DISCOVERY_SERVER": "127.0.0.1:99999"}, "ROS_DISCOVERY_SERVER", "must have the form HOST:PORT"),
    ({"ROS_DISCOVERY_SERVER": "nosuch.invalid"}, "ROS_DISCOVERY_SERVER", "unknown host name"),
]


@pytest.mark.parametrize(("changes", "variable", "problem"), INVALID, ids=[str(row[0]) for row in INVALID])
def test_invalid_variable_is_named(changes, variable, problem, home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys" / "enclaves").mkdir(parents=True)
    (tmp_path / "damaged.xml").write_text("<dds><profiles></profiles>", encoding="utf-8")
    (tmp_path / "other.xml").write_text("<CycloneDDS/>", encoding="utf-8")
    (finding,) = findings(home | changes)
    assert finding.variable == variable
    assert problem in finding.problem
    assert finding.advice


def test_valid_variables_are_accepted(home: dict[str, str], tmp_path: Path) -> None:
    assert invalid_variables(home) == invalid_variables(home | {"ROS_LOCALHOST_ONLY": "1"}) == []
    enclave = tmp_path / "keys" / "enclaves" / "rig"
    enclave.mkdir(parents=True)
    for name in KEYS:
        (enclave / name).touch()
    profiles = tmp_path / "mine.xml"
    profiles.write_text('<dds xmlns="http://www.eprosima.com"><profiles/></dds>', encoding="utf-8")
    keys = {KEYSTORE: str(tmp_path / "keys"), "ROS_SECURITY_ENCLAVE_OVERRIDE": "/rig"}
    files = {PROFILES: str(profiles), "ROS_LOG_DIR": "~/new/logs"}
    assert invalid_variables(home | ENFORCED | keys | files) == []
    assert (tmp_path / "new" / "logs").is_dir()
    assert invalid_variables({"ROS_LOG_DIR": str(tmp_path)}) == []  # HOME is not needed then


def test_installed_middleware_is_detected_by_index_or_library(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "share" / "ament_index" / "resource_index" / "rmw_typesupport"
    index.mkdir(parents=True)
    (index / "rmw_one_cpp").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "librmw_two_cpp.so").touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    library = {"LD_LIBRARY_PATH": str(tmp_path / "elsewhere")}
    assert invalid_variables(home | {"RMW_IMPLEMENTATION": "rmw_one_cpp"}) == []
    assert invalid_variables(home | {"RMW_IMPLEMENTATION": "rmw_two_cpp"} | library) == []
    assert invalid_variables(home | {"RMW_IMPLEMENTATION": "rmw_two_cpp"}) == ["RMW_IMPLEMENTATION"]


@contextmanager
def open_port(kind: int = socket.SOCK_DGRAM) -> Iterator[int]:
    with closing(socket.socket(socket.AF_INET, kind)) as server:
        server.bind(("127.0.0.1", 0))
        yield server.getsockname()[1]


def test_running_discovery_server_is_accepted(home: dict[str, str]) -> None:
    with open_port() as port:
        with open_port() as gone:
            pass
        for servers in (
            *(f"127.0.0.1:{port}", f"localhost:{port}", f"UDPv4:[127.0.0.1]:{port}", f";127.0.0.1:{port};"),
            f"127.0.0.1:{gone};127.0.0.1:{port}",  # one is enough
        ):
            assert invalid_variables(home | {"ROS_DISCOVERY_SERVER": servers}) == [], servers


@pytest.mark.parametrize(
    ("locator", "kind"), [("127.0.0.1:{}", socket.SOCK_DGRAM), ("TCPv4:[127.0.0.1]:{}", socket.SOCK_STREAM)]
)
def test_missing_discovery_server_is_named(locator: str, kind: int, home: dict[str, str]) -> None:
    with open_port(kind) as port:
        server = locator.format(port)
    (finding,) = findings(home | {"ROS_DISCOVERY_SERVER": server})
    assert mentions(finding.problem, server, "listens")


def test_discovery_settings_list_variables_that_are_set() -> None:
    environment = {"ROS_DISCOVERY_SERVER": "10.0.0.1:11811", "ROS_STATIC_PEERS": "", "HOME": "/"}
    assert discovery_settings(environment) == "ROS_DISCOVERY_SERVER=10.0.0.1:11811"


# Programs


def run_program(
    command: list[str], folder: Path, changes: dict[str, str | None], prefix: tuple[str, ...] = ()
) -> tuple[int, str]:
    """Return exit code and standard error; a variable that is None is not set."""
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])} | changes
    environment = {name: value for name, value in variables.items() if value is not None}
    done = subprocess.run(
        [*prefix, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, done.stderr


NOT_INSTALLED: dict[str, str | None] = {"RMW_IMPLEMENTATION": "rmw_nosuch_cpp"}
MONITOR = [sys.executable, "-m", "rths_nodes.app.node", "monitor"]


@pytest.mark.parametrize(
    ("host", "changes", "variable"),
    [
        ("composed", {"HOME": None, "ROS_LOG_DIR": None, "ROS_HOME": None}, "HOME"),
        ("composed", {"ROS_LOG_DIR": "/proc/nope"}, "ROS_LOG_DIR"),
        ("composed", ENFORCED, KEYSTORE),
        ("composed", NOT_INSTALLED, "RMW_IMPLEMENTATION"),
        ("processes", {"ROS_DISCOVERY_SERVER": "127.0.0.1:9"}, "ROS_DISCOVERY_SERVER"),
        ("processes", {PROFILES: "/nosuch"}, PROFILES),
    ],
)
def test_run_is_refused_in_one_line(host, changes, variable, tmp_path):
    code, errors = run_program([*RTHS, *RUN, host], tmp_path, changes)
    assert (code, errors.count("\n")) == (ExitCode.REFUSED, 1)
    assert errors.startswith(f"rths: {variable}: ")


def test_embedded_run_ignores_the_variables_of_ros(tmp_path: Path) -> None:
    changes = {"HOME": None, **NOT_INSTALLED, "ROS_SECURITY_ENABLE": "yes"}
    assert run_program([*RTHS, *RUN, "embedded"], tmp_path, changes) == (0, "")


CALLER = """
import rths_nodes
from rths_nodes.core.errors import ConfigError
try:
    rths_nodes.run("chen_ricles_2010", ["duration=0.1"], host="composed")
except ConfigError as error:
    assert "rmw_nosuch_cpp" in str(error)
    raise SystemExit(77)
"""


def test_missing_middleware_does_not_end_the_calling_program(tmp_path: Path) -> None:
    assert run_program([sys.executable, "-c", CALLER], tmp_path, NOT_INSTALLED) == (77, "")


def test_node_process_is_refused_in_one_line(tmp_path: Path) -> None:
    code, errors = run_program(MONITOR, tmp_path, NOT_INSTALLED)
    assert (code, errors.count("\n")) == (ExitCode.REFUSED, 1)
    assert mentions(errors, "rths", "RMW_IMPLEMENTATION", "rmw_nosuch_cpp")


@pytest.mark.nodes
def test_refusal_by_ros_names_the_settings(tmp_path: Path) -> None:
    """Empty keys, or a middleware that cannot use them; a missing parameter file."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    enclaves = tmp_path / "keys" / "enclaves"
    enclaves.mkdir(parents=True)
    for name in KEYS:
        (enclaves / name).touch()
    code, errors = run_program([*RTHS, *RUN, "composed"], tmp_path, ENFORCED | {KEYSTORE: "keys"})
    assert code == ExitCode.REFUSED
    assert mentions(errors, "rths", "ROS", "2", "ROS_SECURITY_KEYSTORE=keys")
    assert "Traceback" not in errors
    code, errors = run_program([*MONITOR, "--ros-args", "--params-file", "gone/x.yaml"], tmp_path, {})
    assert code == ExitCode.REFUSED
    assert "gone/x.yaml" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("host", ["processes", "composed"])
def test_machine_without_loopback_is_refused(host: str, tmp_path: Path) -> None:
    unshare = ("unshare", "--net")
    if (
        not shutil.which("unshare")
        or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("network namespaces are not available")
    code, errors = run_program([*RTHS, *RUN, host], tmp_path, {}, unshare)
    assert (code, errors.count("\n")) == (ExitCode.REFUSED, 1)
    assert mentions(errors, "loopback", "interface")


def test_all_problems_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMW_IMPLEMENTATION", "rmw_nosuch_cpp")
    monkeypatch.setenv("ROS_LOG_DIR", "/proc/nope")
    with pytest.raises(ConfigError) as refused:
        check()
    variables = [problem.partition(":")[0] for problem in refused.value.problems]
    assert variables == ["RMW_IMPLEMENTATION", "ROS_LOG_DIR"]


@pytest.mark.parametrize("command", [["run", "chen_ricles_2010", "--host", "composed"], ["page"]])
@pytest.mark.parametrize("module", MODULES)
def test_commands_with_nodes_are_refused_without_ros(command, module, monkeypatch, capsys):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else find_spec(name))
    assert cli.main(command) == 2
    assert MODULES[module] in capsys.readouterr().err
