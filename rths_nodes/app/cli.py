# SPDX-License-Identifier: Apache-2.0
# PYTHON_ARGCOMPLETE_OK: enables completion if argcomplete is activated globally
"""The command line ``rths``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import NoReturn

from rths_nodes.app.node import find_ros
from rths_nodes.app.streams import unfailing_output
from rths_nodes.core.version import __version__
from rths_nodes.loop.interrupts import exit_at_once
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros.hosting.exit_guard import leave

GROUPS: dict[str, dict[str, str]] = {
    "run tests": {
        "run": "run a scenario",
        "test": "conduct a test from the cold rig to its report, rung by rung",
        "iterate": "repeat a test, corrected after each run, until it converges",
        "commission": "accept a rig before any specimen: every stop and limit of it, measured",
        "page": "show a test that runs in the browser, with a stop always in reach",
        "watch": "watch a test from another computer with separate sensors, and pulse to an interlock",
        "emulate": "emulate the rig at the other end of the port udp",
    },
    "judge before a test": {
        "check": "check a scenario without running it, or a file of another kind",
        "stability": "judge whether the loop of a test is stable, without running it",
        "corridor": "predict the bands in which a test is expected to stay, from plants that differ",
        "test-node": "feed a recording to a node, and compare its messages bit for bit",
        "doctor": "measure which servo rates this computer keeps",
    },
    "look at recordings": {
        "report": "make a report (HTML) of a recording",
        "replay": "show a recording in the browser (--page)",
        "recover": "complete the recording of a recorder that was killed, or the record of a test",
        "export": "write recordings as text, for MATLAB, as HDF5, or as an archive keeps them",
        "import": "make a recording of the record of a test that was made elsewhere",
        "estimate": "estimate a loading system or a specimen, or predict other settings, from a recording",
    },
    "measure a rig": {
        "identify": "identify the loading system of a rig, or the specimens in it, and write a file",
    },
    "run many variants": {
        "compare": "run variants of a scenario side by side, and print one table",
        "study": "run many variants of a scenario, as a study file describes them",
        "tune": "tune parameters of a scenario, so that the worst case of an ensemble is best",
        "scoreboard": "compare every compensator on the same cases, plants and noise",
    },
    "look things up": {
        "new": "write a component in a package of its own, a scenario or a rig file, to start from",
        "schema": "print the JSON Schema of scenarios or rig files, for editors",
        "list": "list scenarios and components, with descriptions",
        "params": "show the parameters of a component, a section or a key",
        "layouts": "write files by which PlotJuggler, Foxglove, RViz, ros2 bag and SROS 2 know a rig",
        "cite": "print BibTeX of every method in a scenario",
    },
}
"""Sub-commands and their uses, by purpose."""
MODULES = {
    "export": "exporting",
    "import": "importing",
    "list": "listing",
    "params": "parameters",
    "test-node": "node_test",
}
"""Modules of ``commands`` whose names differ from their commands. Each module has ``add_arguments(parser)`` and
``run(options)`` -> exit code.
"""

REPLACED = {
    "characterise": "rths identify --for rig_file",
    "completion": "register-python-argcomplete rths",
    "what-if": "rths estimate --for prediction",
}
"""Commands of earlier versions, and their replacements."""

COMMANDS = {name: purpose for group in GROUPS.values() for name, purpose in group.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sub-command; return an ``ExitCode``, even if output fails."""
    with unfailing_output():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    """Run a sub-command. Modules are imported here, so that Ctrl-C during imports ends the program without a
    traceback.
    """
    typed = sys.argv[1:] if arguments is None else list(arguments)
    with exit_at_once(ExitCode.HELD):
        find_ros()
        from rths_nodes.app.commands import completion
        from rths_nodes.core.errors import ComponentError, ConfigError, PortError, Stopped
        from rths_nodes.recording.records import RecordingError

        parser = _parser(() if completion.ASKED in os.environ else typed[:1])
    completion.answer(parser)
    try:
        _check_name(typed)
        options = parser.parse_args(typed)
        code: int = options.run(options)
    except ConfigError as error:
        return _complain(str(error), ExitCode.REFUSED)
    except Stopped as stop:
        return _complain(str(stop), stop.exit_code)
    except (RecordingError, PortError, ComponentError) as error:
        return _complain(str(error), ExitCode.FAILED)
    except OSError as error:
        return _complain(
            ": ".join(map(str, filter(None, (error.filename, error.strerror or error)))), ExitCode.FAILED
        )
    except KeyboardInterrupt:
        return _complain("interrupted", ExitCode.HELD)
    return code


def _complain(message: str, code: int) -> int:
    for line in message.splitlines():
        print(f"rths: {line}", file=sys.stderr)
    return code


def _check_name(typed: Sequence[str]) -> None:
    from rths_nodes.core.errors import ConfigError, unknown

    if typed and typed[0] in REPLACED:
        raise ConfigError(f"{typed[0]}: was removed; use {REPLACED[typed[0]]}")
    if typed and not typed[0].startswith("-") and typed[0] not in COMMANDS:
        raise unknown("", "command", typed[0], COMMANDS)


def _groups() -> str:
    columns, indent = shutil.get_terminal_size().columns - 2, max(map(len, COMMANDS)) + 4
    lines = []
    for title, group in GROUPS.items():
        lines += ["", f"{title}:"]
        for name, purpose in group.items():
            head = f"  {name}".ljust(indent)
            lines += textwrap.wrap(head + purpose, columns, subsequent_indent=" " * indent, drop_whitespace=True)
    return "\n".join(["commands (rths COMMAND --help):", *lines])


def _parser(names: Iterable[str] = ()) -> argparse.ArgumentParser:
    wanted = [name for name in names if name in COMMANDS] or list(COMMANDS)
    parser = argparse.ArgumentParser(
        prog="rths",
        description="Real-time hybrid simulation with ROS 2.",
        epilog=_groups(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rths {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in wanted:
        purpose = COMMANDS[name]
        module = MODULES.get(name, name.replace("-", "_"))
        command = import_module(f"rths_nodes.app.commands.{module}")
        sub = commands.add_parser(name, description=f"{purpose[0].upper()}{purpose[1:]}.")
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


def program() -> NoReturn:
    """Run ``rths`` as a process; exit with the code of :func:`main`."""
    code = main()
    if "rclpy" in sys.modules:
        leave(code)
    sys.exit(code)


if __name__ == "__main__":
    program()
