"""What the middleware is told before the first node of a process is there."""

from __future__ import annotations

import os
from functools import cache

from rcl_interfaces.msg import ParameterEvent
from rclpy.utilities import get_rmw_implementation_identifier

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import prefixes, resource

SETTINGS = {
    "libfastrtps.so": ("FASTRTPS_DEFAULT_PROFILES_FILE", ("fast_dds_2.xml", "fast_dds_2_local.xml")),
    "libfastdds.so": ("FASTDDS_DEFAULT_PROFILES_FILE", ("fast_dds_3.xml", "fast_dds_3_local.xml")),
}
"""Fast DDS 2 and 3 by their libraries: the environment variable that names their settings, and ours, the second of
which keep to this machine."""
RANGE = "ROS_AUTOMATIC_DISCOVERY_RANGE"
"""The environment variable of ROS 2 that says how far nodes look for each other."""
RANGES = ("LOCALHOST", "OFF", "SUBNET", "SYSTEM_DEFAULT")
"""What it can say. ROS 2 takes anything else for LOCALHOST, which is not what was meant."""
PEERS = "ROS_STATIC_PEERS"
"""The environment variable of ROS 2 that names machines, separated by ``;``, on which nodes are looked for."""
DOMAIN = "ROS_DOMAIN_ID"
"""The environment variable of ROS 2 that keeps apart those who have different numbers."""
HIGHEST_DOMAIN = 232
"""The ports of a higher one would be above 65535: Fast DDS ends the process."""


@cache
def unused() -> bool:
    """True where no node had been in this process when this was first asked: settings are read with the first.

    Every node publishes what becomes of its parameters, and what is needed for that stays.
    """
    return type(ParameterEvent)._TYPE_SUPPORT is None


def settle() -> None:
    """Nodes find each other on this machine only, share no locks and get lost messages again soon.

    What the user has set stays: how far nodes look, and settings of his own for the middleware. In a process that
    has had nodes before, how far they look is all that can be settled. Raises ConfigError for values of the user's
    that ROS 2 would misunderstand, and for other machines where our settings, which keep to this one, find nobody.
    """
    wanted = os.environ[RANGE] = os.environ.get(RANGE) or "LOCALHOST"
    if wanted not in RANGES:
        raise ConfigError(f"{RANGE}: {wanted!r} is unknown; known: {', '.join(RANGES)}")
    domain = os.environ.get(DOMAIN) or "0"
    if not (domain.isdecimal() and int(domain) <= HIGHEST_DOMAIN):
        raise ConfigError(f"{DOMAIN}: {domain!r} must be a whole number from 0 to {HIGHEST_DOMAIN}")
    if not unused() or "fastrtps" not in get_rmw_implementation_identifier():
        return
    for library, (variable, names) in SETTINGS.items():
        if any((prefix / "lib" / library).exists() for prefix in prefixes()):
            wide, local = ours = [str(resource("config", "middleware", name)) for name in names]
            given = os.environ.get(variable)
            if given and given not in ours:
                return
            if wanted == "LOCALHOST":
                _refuse_other_machines(os.environ.get(PEERS, ""))
                # ROS 2 itself would add the transport by shared memory
                os.environ |= {variable: local, RANGE: "SYSTEM_DEFAULT"}
            elif not (given and wanted == "SYSTEM_DEFAULT"):  # else who has started us has settled it
                os.environ[variable] = wide
            return


def check_reaches_others() -> None:
    """Refuse, with ConfigError, a test with nodes on other machines where nodes look for each other here only."""
    wanted = os.environ.get(RANGE) or "LOCALHOST"
    if wanted in ("LOCALHOST", "OFF"):
        raise ConfigError(
            f"{RANGE}: {wanted!r}: nodes are left to other machines, but nodes look for each other on this one "
            f"only; say {RANGE}=SUBNET on all of them"
        )


def _refuse_other_machines(peers: str) -> None:
    if {*peers.split(";")} - {"", "localhost", "127.0.0.1"}:
        raise ConfigError(
            f"{PEERS}: {peers!r} names other machines, but nodes look for each other on this one only; "
            f"say {RANGE}=SUBNET, too, or leave {PEERS} out"
        )
