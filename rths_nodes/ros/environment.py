# SPDX-License-Identifier: Apache-2.0
"""Checks of environment variables, run before ROS 2 is loaded.

If a variable is invalid, ROS 2 terminates the process, raises an error that does not name the variable, or leaves
nodes waiting forever.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import prefixes

RANGE = "ROS_AUTOMATIC_DISCOVERY_RANGE"
RANGES = ("LOCALHOST", "OFF", "SUBNET", "SYSTEM_DEFAULT")
"""Valid values of ``RANGE``. ROS 2 silently treats any other value as LOCALHOST."""
PEERS = "ROS_STATIC_PEERS"
"""Environment variable that lists the hosts of other nodes, separated by ``;``."""
DOMAIN = "ROS_DOMAIN_ID"
HIGHEST_DOMAIN = 232
"""Highest valid domain ID. Higher IDs need ports above 65535, and Fast DDS then terminates the process."""
PROFILES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
"""Variables that name the settings files of Fast DDS 3 and 2. Without such a file, Fast DDS uses shared memory."""
SERVER, SERVER_PORT = "ROS_DISCOVERY_SERVER", 11811
ANSWER_S = 0.2
KEYSTORE = "ROS_SECURITY_KEYSTORE"
KEYS = (
    *("identity_ca.cert.pem", "cert.pem", "key.pem"),
    *("permissions_ca.cert.pem", "governance.p7s", "permissions.p7s"),
)
MIDDLEWARE = ("RMW_IMPLEMENTATION", "RCL_ASSERT_RMW_ID_MATCHES")
SWITCHES = ("RCUTILS_LOGGING_USE_STDOUT", "RCUTILS_LOGGING_BUFFERED_STREAM", "RCUTILS_COLORIZED_OUTPUT")
INDEX = "share/ament_index/resource_index/rmw_typesupport"

Environment = Mapping[str, str]


@dataclass(frozen=True)
class Finding:
    variable: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.variable}: {self.problem}; {self.advice}"


def check_page() -> None:
    if importlib.util.find_spec("aiohttp") is None:
        raise ConfigError("page: aiohttp is not installed. Run apt install python3-aiohttp or pip install aiohttp")


MODULES = {
    "rclpy": "ROS 2 is not installed or not sourced (no module rclpy). Only the embedded host runs without ROS 2",
    "rths_nodes.msg": "the messages of this package are not built; run make set-up, pip install or colcon build",
}


def check() -> None:
    """Raise ConfigError if nodes cannot start or be discovered in this environment."""
    if message := missing():
        raise ConfigError(message)
    if problems := findings():
        raise ConfigError(*map(str, problems))


def missing() -> str:
    return next((message for module, message in MODULES.items() if importlib.util.find_spec(module) is None), "")


def findings(environment: Environment = os.environ) -> list[Finding]:
    return [finding for rule in RULES for finding in rule(environment)]


def discovery_settings(environment: Environment = os.environ) -> str:
    return ", ".join(f"{name}={environment[name]}" for name in (SERVER, PEERS) if environment.get(name))


def _middleware(environment: Environment) -> Iterator[Finding]:
    chosen = {name: environment[name] for name in MIDDLEWARE if environment.get(name)}
    if not chosen:
        return
    listed = [file.name for prefix in prefixes() for file in prefix.glob(f"{INDEX}/*")]
    available = sorted({*listed} - {"rmw_implementation"})
    path = environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders = [*(prefix / "lib" for prefix in prefixes()), *map(Path, filter(None, path))]
    for name, wanted in chosen.items():
        library = "/" not in wanted and any((folder / f"lib{wanted}.so").exists() for folder in folders)
        if wanted not in available and not library:
            shown = f"installed: {', '.join(available)}" if available else "no middleware is installed"
            yield Finding(name, f"{wanted!r} is not installed ({shown})", "install it, or unset the variable")


def _logs(environment: Environment) -> Iterator[Finding]:
    for switch in SWITCHES:
        if environment.get(switch, "") not in ("", "0", "1"):
            problem = f"{environment[switch]!r} must be 0 or 1, otherwise ROS 2 cannot log"
            yield Finding(switch, problem, "unset the variable")
    name = next((name for name in ("ROS_LOG_DIR", "ROS_HOME") if environment.get(name)), "HOME")
    value = environment.get(name, "")
    advice = "set ROS_LOG_DIR to a writable folder"
    if not value or (value.startswith("~") and not environment.get("HOME")):
        yield Finding("HOME", "is not set, but ROS 2 writes its logs below the home folder", advice)
        return
    below = {"HOME": ".ros/log", "ROS_HOME": "log"}.get(name, "")
    folder = Path(re.sub("^~(?=/|$)", environment.get("HOME", ""), value)) / below
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield Finding(name, f"ROS 2 cannot write its logs into {folder} ({error.strerror})", advice)


def _security(environment: Environment) -> Iterator[Finding]:
    enable, strategy = "ROS_SECURITY_ENABLE", "ROS_SECURITY_STRATEGY"
    wanted, how = environment.get(enable, ""), environment.get(strategy, "")
    if wanted not in ("", "true", "false"):
        yield Finding(enable, f"{wanted!r} must be true or false", "ROS 2 treats any other value as false")
    if wanted != "true":
        return
    if how not in ("", "Enforce", "Permissive"):
        advice = "set Enforce, or Permissive to allow nodes without keys, which are unprotected"
        yield Finding(strategy, f"{how!r} is unknown", advice)
    value = environment.get(KEYSTORE, "")
    enclaves = Path(value, "enclaves")
    enclave = enclaves / environment.get("ROS_SECURITY_ENCLAVE_OVERRIDE", "").strip("/")
    enforced = how == "Enforce" and "--enclave" not in sys.argv
    lacking = [name for name in KEYS if enforced and not (enclave / name).is_file()]
    advice = "specify a folder created by ros2 security create_keystore, or set ROS_SECURITY_ENABLE=false"
    if not value:
        yield Finding(KEYSTORE, "is not set, but ROS_SECURITY_ENABLE=true", advice)
    elif not enclaves.is_dir():
        yield Finding(KEYSTORE, f"{value!r} has no folder 'enclaves' and therefore no keys", advice)
    elif lacking:
        advice = "create the missing files with ros2 security create_enclave"
        yield Finding(KEYSTORE, f"{enclave} lacks {', '.join(lacking)}", advice)


def _range(environment: Environment) -> Iterator[Finding]:
    wanted = environment.get(RANGE) or "LOCALHOST"
    if wanted not in RANGES:
        yield Finding(RANGE, f"{wanted!r} is unknown", f"known: {', '.join(RANGES)}")
    if environment.get("ROS_LOCALHOST_ONLY") == "1" and wanted == "SUBNET":
        problem = f"the value 1 restricts nodes to this machine, but {RANGE}=SUBNET does not"
        yield Finding("ROS_LOCALHOST_ONLY", problem, "unset one of these variables")
    domain = environment.get(DOMAIN) or "0"
    if not (domain.isascii() and domain.isdecimal() and int(domain) <= HIGHEST_DOMAIN):
        must = f"must be a whole number from 0 to {HIGHEST_DOMAIN}"
        yield Finding(DOMAIN, f"{domain!r} {must}", "the ports of higher domains exceed 65535")


def _profiles(environment: Environment) -> Iterator[Finding]:
    for name in PROFILES:
        value = environment.get(name)
        if not value:
            continue
        try:
            root = ElementTree.fromstring(Path(value).read_bytes()).tag.rpartition("}")[2]
            problem = "" if root in ("dds", "profiles") else f"root element <{root}>: must be <dds> or <profiles>"
        except OSError as error:
            problem = error.strerror or str(error)
        except ElementTree.ParseError as error:
            problem = f"is not valid XML ({error})"
        if problem:
            advice = "specify a valid file, or unset the variable; otherwise Fast DDS uses other settings"
            yield Finding(name, f"{value!r}: {problem}", advice)


def _loopback(environment: Environment) -> Iterator[Finding]:
    wanted = environment.get(RANGE) or "LOCALHOST"
    if wanted not in ("LOCALHOST", "OFF"):
        return
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
            ours.connect(("127.0.0.1", SERVER_PORT))
    except OSError as error:
        why = f"because the loopback interface is down ({error.strerror})"
        problem = f"{wanted}: 127.0.0.1 cannot be reached, {why}"
        yield Finding(RANGE, problem, "local nodes need this interface for discovery; run ip link set lo up")


def _discovery_server(environment: Environment) -> Iterator[Finding]:
    servers = [server.strip() for server in environment.get(SERVER, "").split(";") if server.strip()]
    why = {server: _absent(server) for server in servers}
    if servers and all(why.values()):
        message = "; ".join(f"{server}: {problem}" for server, problem in why.items())
        advice = "nodes need a discovery server; start one with fastdds discovery, or unset the variable"
        yield Finding(SERVER, message, advice)


def _absent(server: str) -> str:
    form = re.fullmatch(r"(?:(TCP|UDP)v[46]:)?\[?([\w.%:-]+?)\]?(?::(\d+))?", server)
    if not form or int(form[3] or 0) > 65535:
        return "must have the form HOST:PORT"
    try:
        addresses = socket.getaddrinfo(form[2], int(form[3] or SERVER_PORT), type=socket.SOCK_DGRAM)
        family, *_, address = addresses[0]
        kind = socket.SOCK_STREAM if form[1] == "TCP" else socket.SOCK_DGRAM
        with socket.socket(family, kind) as ours:
            ours.settimeout(ANSWER_S)
            ours.connect(address)
            if kind == socket.SOCK_DGRAM:
                ours.send(b"RTPS")  # too short to be a valid message
                ours.recv(1)
    except TimeoutError:
        return ""  # inconclusive: a server ignores invalid messages, and an unreachable host sends nothing
    except socket.gaierror as error:
        return f"unknown host name ({error.strerror})"
    except ConnectionRefusedError:
        return "no program listens at this address"
    except OSError as error:
        return error.strerror or str(error)
    return ""


RULES = (_middleware, _logs, _security, _range, _profiles, _loopback, _discovery_server)
