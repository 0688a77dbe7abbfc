# SPDX-License-Identifier: Apache-2.0
"""Addresses of a rig by UDP: a name with two of them, a computer that answers from another one, no way there."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_bench import free_port
from messages import mentions

from rths_nodes.app import hosts
from rths_nodes.app.emulation.emulator import Emulator
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)

ROOT = Path(__file__).parents[2]
HOSTS = "::1 rig localhost\n127.0.0.1 rig localhost\n"
NAME, BRIEF = "chen_ricles_2010", "duration=0.2"


def port_at(address: str, number: int) -> str:
    return f"port={{type: udp, emulator: true, address: {address}, port: {number}, connect_within: 2.0}}"


@pytest.fixture
def everywhere() -> Iterator[int]:
    """The port of an emulated rig that listens on all addresses."""
    number, ended = free_port(), threading.Event()
    emulator = Emulator(files.load(NAME, [port_at("0.0.0.0", number), BRIEF]), None, False, [])
    thread = threading.Thread(target=emulator.serve, args=[ended.is_set], daemon=True)
    thread.start()
    yield number
    ended.set()
    thread.join(20.0)
    emulator.close()


def test_a_name_with_an_address_of_each_kind_reaches_the_rig(everywhere: int, tmp_path: Path) -> None:
    """The receivers listen on IPv4; the file of hosts has ::1 first."""
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a file (unshare -Urm)")
    (tmp_path / "hosts").write_text(HOSTS)
    program = f'mount --bind {tmp_path}/hosts /etc/hosts && exec "$@"'
    run = [sys.executable, "-m", "rths_nodes.app.cli", "run", NAME, "--no-record", "--set", BRIEF]
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", program, "sh", *run, "--set", port_at("localhost", everywhere)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60.0,
    )
    assert done.returncode == 0, done.stderr


def test_an_answer_from_another_address_names_it(everywhere: int) -> None:
    with pytest.raises(ConfigError) as refusal:
        hosts.run(NAME, [port_at("127.0.0.2", everywhere), BRIEF])
    assert mentions(str(refusal.value), f"127.0.0.2:{everywhere}", "127.0.0.1", "port.address")


def test_an_address_that_cannot_be_sent_to_is_named_with_the_reason() -> None:
    """A broadcast address, for which the socket has no permission."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried, pytest.raises(PermissionError):
        tried.sendto(b"", ("127.255.255.255", 9))
    with pytest.raises(ConfigError) as refusal:
        hosts.run(NAME, [port_at("127.255.255.255", free_port()), BRIEF])
    assert mentions(str(refusal.value), "127.255.255.255", "Permission denied")


def test_a_rig_that_does_not_run_is_not_blamed_on_the_address() -> None:
    with pytest.raises(ConfigError) as refusal:
        hosts.run(NAME, [port_at("127.0.0.1", free_port()), BRIEF])
    assert mentions(str(refusal.value), "127.0.0.1", "2 s", "rths emulate")
    assert not mentions(str(refusal.value), "port.address")
