# SPDX-License-Identifier: Apache-2.0
"""Syntax checks of addresses and port numbers, without DNS queries."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress

from rths_nodes.core.errors import ConfigError, show

LONGEST, LONGEST_LABEL = 253, 63
"""Largest numbers of characters in a host name and in a label of a host name (RFC 1035)."""
LARGEST_PORT = 65535
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?")


def check_address(address: str, path: str) -> None:
    if reason := _wrong(address):
        raise ConfigError(f"{path} = {show(address)}: must be an IP address or a host name ({reason})")


def check_one_computer(address: str, path: str) -> None:
    """Raise ConfigError for an unspecified, multicast or broadcast IP ``address``. Host names are accepted."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return
    if ip.is_unspecified or ip.is_multicast or str(ip) == "255.255.255.255":
        raise ConfigError(f"{path} = {show(address)}: must be the address of the rig's computer")


def check_port(port: int, path: str) -> None:
    if not 0 <= port <= LARGEST_PORT:
        raise ConfigError(f"{path} = {port}: must be between 0 and {LARGEST_PORT}")


def _wrong(address: str) -> str:
    with suppress(ValueError):
        ipaddress.ip_address(address)
        return ""
    if ":" in address:
        return (
            "an IPv6 address has up to eight groups of hexadecimal digits, and the port number belongs to "
            "another key"
        )
    labels = address.removesuffix(".").split(".")
    if labels[-1].isdigit():
        return "an IPv4 address has 4 numbers from 0 to 255, without leading zeros"
    if len(address) > LONGEST:
        return f"a host name has at most {LONGEST} characters"
    for label in labels:
        if len(label) > LONGEST_LABEL or not _LABEL.fullmatch(label):
            characters = "letters, digits, hyphens and underscores, and must not begin or end with a hyphen"
            return f"the label {show(label)} must consist of 1 to {LONGEST_LABEL} {characters}"
    return ""
