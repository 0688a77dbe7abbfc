"""What the middleware is told before the first node of a process is there."""

from __future__ import annotations

import os

from rths_nodes.resources import prefixes, resource

SETTINGS = {
    "libfastrtps.so": ("FASTRTPS_DEFAULT_PROFILES_FILE", "fast_dds_2.xml"),
    "libfastdds.so": ("FASTDDS_DEFAULT_PROFILES_FILE", "fast_dds_3.xml"),
}
"""Fast DDS 2 and 3 by their libraries: the environment variable that names their settings, and ours."""


def settle() -> None:
    """What the user has not set: nodes find each other on this machine only, and lost messages come again soon."""
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    if any(variable in os.environ for variable, _ in SETTINGS.values()):
        return
    for prefix in prefixes():
        for library, (variable, settings) in SETTINGS.items():
            if (prefix / "lib" / library).exists():
                os.environ[variable] = str(resource("config", "middleware", settings))
                return
