# SPDX-License-Identifier: Apache-2.0
"""Entry point of the nodes of a rig, for ``ros2 run``, launch and this package's runner.

The module imports little, because a rig of many processes must start quickly.
"""

from __future__ import annotations

from rths_nodes.loop.interrupts import exit_at_once

with exit_at_once(130):  # Ctrl-C during an import must not cause a traceback
    import os
    import sys
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any, NoReturn

    from rths_nodes.app.streams import show_log, unfailing_output
    from rths_nodes.core.errors import ConfigError
    from rths_nodes.loop.outcomes import ExitCode, LastWords, report_to_launch
    from rths_nodes.ros import environment
    from rths_nodes.ros.hosting.exit_guard import leave


def node_main(role: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the node ``role`` with ROS ``arguments``, then exit. The role ``rig`` runs several nodes."""
    held = LastWords(ExitCode.HELD, "interrupted before the test began")
    with unfailing_output():
        with exit_at_once(ExitCode.HELD, lambda: report_to_launch(held)):
            find_ros()
            try:
                environment.check()
                from rths_nodes.ros.hosting import composed
            except ConfigError as error:
                from rths_nodes.ros.hosting.node_processes import refused

                leave(refused(error))
            except ImportError as error:
                print(f"rths: ROS 2 is not installed here ({error})", file=sys.stderr)
                leave(ExitCode.FAILED)
        show_log()
        typed = sys.argv[1:] if arguments is None else arguments
        composed.run_process(role, typed, _open_writer)


def find_ros() -> None:
    """Set AMENT_PREFIX_PATH to the prefix of a pip installation, unless the variable is set."""
    if (Path(sys.prefix) / "share" / "ament_index").is_dir():
        os.environ.setdefault("AMENT_PREFIX_PATH", sys.prefix)


def _open_writer(*arguments: Any) -> Any:
    from rths_nodes.app import hosts

    return hosts.open_writer(*arguments)


if __name__ == "__main__":
    node_main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])
