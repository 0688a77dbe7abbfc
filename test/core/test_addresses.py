# SPDX-License-Identifier: Apache-2.0
"""Tests of addresses and port numbers in files and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from messages import mentions, naming

from rths_nodes.app.cli import main
from rths_nodes.core.addresses import check_address, check_port
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files

SENT = "bench_udp"
WATCHED = "bench_watched"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "fe80::1%eth0", "rig", "rig-2.lab.example.org", "rig.local.", "0.0.0.0", "9.lab", "a_b"],
)
def test_valid_address_is_accepted(address: str) -> None:
    check_address(address, "port.address")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.256", ("0 to 255",)),
        ("127.0.0", ("0 to 255",)),
        ("127.0.0.01", ("leading", "zeros")),
        ("1.2.3.4.5", ("0 to 255",)),
        ("::g", ("IPv6",)),
        ("127.0.0.1:25010", ("port", "key")),
        ("", ("''",)),
        ("rig lab", ("rig lab",)),
        ("-rig", ("hyphen",)),
        ("rig..lab", ("''",)),
        ("a" * 64, ("63",)),
        (".".join(["abcdefgh"] * 40), ("253",)),
    ],
)
def test_invalid_address_is_refused(address: str, reason: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        check_address(address, "port.address")
    assert str(refused.value).startswith("port.address = ")
    assert mentions(str(refused.value), "IP", "address")
    assert mentions(str(refused.value), *reason)


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_port_number_has_bounds(port: int) -> None:
    check_port(0, "--port")
    check_port(65535, "--port")
    with pytest.raises(ConfigError, match=naming(f"--port = {port}", "0 and 65535")):
        check_port(port, "--port")


@pytest.mark.parametrize("keys", [("port",), ("watch", "sensors"), ("watch", "pulse")])
def test_addresses_of_rig_file_are_checked(tmp_path: Path, keys: tuple[str, ...]) -> None:
    data: Any = yaml.safe_load(files.locate(WATCHED, files.RIG).read_text())
    section = data
    for key in keys:
        section = section[key]
    section["address"] = "127.0.0.256"
    path = tmp_path / "rig.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ConfigError, match=naming(f"{'.'.join(keys)}.address = '127.0.0.256'", "0 to 255")):
        files.load_rig(path)


def test_address_of_remote_integrator_is_checked() -> None:
    integrator = "integrator={type: remote, address: 127.0.0.256, experimental_stiffness: [[1.0]]}"
    with pytest.raises(ConfigError) as refused:
        files.load("chen_ricles_2010", ["structure=null", "ground_motion=null", integrator])
    assert "integrator.address = '127.0.0.256'" in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["emulate", "chen_ricles_2010", "--rig", SENT, "--address", "127.0.0.256"], "--address = '127.0.0.256'"),
        (["emulate", "chen_ricles_2010", "--rig", WATCHED, "--sensors", "rig lab"], "--sensors = 'rig lab'"),
        (["emulate", "chen_ricles_2010", "--rig", SENT, "--port", "65536"], "--port = 65536"),
        (["page", "--address", "127.0.0.256"], "--address = '127.0.0.256'"),
        (["page", "--port", "65536"], "--port = 65536"),
        (["replay", "nowhere", "--page", "--port", "-2"], "--port = -2"),
    ],
)
def test_address_options_are_checked(arguments: list[str], path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == ExitCode.REFUSED
    assert path in capsys.readouterr().err
