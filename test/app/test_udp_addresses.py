# SPDX-License-Identifier: Apache-2.0
"""Addresses of a rig: names with two addresses, answers from another address, and unreachable addresses."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_bench import free_port
from emulated_rig import EmulatedRig
from messages import mentions
from programs import RTHS, child_environment

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files

NAME, BRIEF = "chen_ricles_2010", "duration=0.2"


def port_at(address: str, number: int) -> str:
    return f"port={{type: udp, emulator: true, address: {address}, port: {number}, connect_within: 2.0}}"


@pytest.fixture
def port() -> Iterator[int]:
    """Port of an emulated rig that listens on all addresses."""
    port = free_port()
    with EmulatedRig(files.load(NAME, [port_at("0.0.0.0", port), BRIEF])):
        yield port


def refusal(address: str, port: int) -> str:
    with pytest.raises(ConfigError) as refused:
        hosts.run(NAME, [port_at(address, port), BRIEF])
    return str(refused.value)


def test_name_with_ipv6_and_ipv4_address_reaches_the_rig(port: int, tmp_path: Path) -> None:
    """The receivers listen on IPv4; the file of hosts has ::1 first."""
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a file (unshare -Urm)")
    (tmp_path / "hosts").write_text("::1 rig localhost\n127.0.0.1 rig localhost\n")
    program = f'mount --bind {tmp_path}/hosts /etc/hosts && exec "$@"'
    run = [*RTHS, "run", NAME, "--no-record", "--set", BRIEF, "--set", port_at("localhost", port)]
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", program, "sh", *run],
        env=child_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60.0,
    )
    assert done.returncode == 0, done.stderr


def test_answer_from_another_address_is_reported(port: int) -> None:
    assert mentions(refusal("127.0.0.2", port), f"127.0.0.2:{port}", "127.0.0.1", "port.address")


def test_unreachable_address_is_reported_with_reason() -> None:
    """A broadcast address, for which the socket has no permission."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, pytest.raises(PermissionError):
        sender.sendto(b"", ("127.255.255.255", 9))
    assert mentions(refusal("127.255.255.255", free_port()), "127.255.255.255", "Permission denied")


def test_stopped_rig_is_not_blamed_on_the_address() -> None:
    reason = refusal("127.0.0.1", free_port())
    assert mentions(reason, "127.0.0.1", "2 s", "rths emulate")
    assert not mentions(reason, "port.address")
