# SPDX-License-Identifier: Apache-2.0
# PYTHON_ARGCOMPLETE_OK: enables completion if argcomplete is activated globally
"""Command line ``rths``."""

from __future__ import annotations

from rths_nodes.loop.interrupts import exit_at_once, raised_at_once

with exit_at_once(130):  # Ctrl-C during an import must not cause a traceback
    import argparse
    import inspect
    import os
    import shutil
    import sys
    import textwrap
    from collections.abc import Sequence
    from importlib import import_module
    from typing import Any, NoReturn

    from rths_nodes.app.node import find_ros
    from rths_nodes.app.streams import unfailing_output
    from rths_nodes.core.errors import ComponentError, ConfigError, PortError, Stopped, printable, unknown
    from rths_nodes.core.version import __version__
    from rths_nodes.loop.outcomes import ExitCode
    from rths_nodes.ros.hosting.exit_guard import leave

GROUPS = {
    "run tests": ("run", "test", "iterate", "commission", "page", "watch", "emulate"),
    "prepare tests": ("check", "stability", "corridor", "test-node", "doctor"),
    "use recordings": ("report", "replay", "recover", "export", "import", "estimate"),
    "measure a rig": ("identify",),
    "run many variants": ("compare", "study", "tune", "scoreboard"),
    "create and look up": ("new", "schema", "list", "params", "layouts", "cite"),
}
"""Sub-commands by purpose. The module of the command NAME defines ``NAME_arguments(add)`` and
``NAME_command(options)``, which returns the exit code (None: 0)."""
COMMANDS = [name for group in GROUPS.values() for name in group]
MODULES = {
    "procedures": ("test", "commission"),
    "page": ("page", "replay"),
    "predictions": ("stability", "corridor"),
    "node_test": ("test-node",),
    "recordings": ("report", "recover"),
    "exchange": ("export", "import"),
    "studies": ("compare", "study", "tune", "scoreboard"),
    "lookup": ("schema", "list", "params", "cite"),
}
"""Commands by module. Every other command has a module of the same name."""
MODULE_OF = {name: module for module, names in MODULES.items() for name in names}
REPLACED = {
    "characterise": "rths identify --for rig_file",
    "completion": "register-python-argcomplete rths",
    "what-if": "rths estimate --for prediction",
}


def main(arguments: Sequence[str] | None = None) -> int:
    with unfailing_output():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    """Run a sub-command and return its exit code. Ctrl-C during the imports exits without a traceback."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    with exit_at_once(ExitCode.HELD):
        find_ros()
        from rths_nodes.app.commands.arguments import ASKED, complete_line
        from rths_nodes.recording.records import RecordingError

        parser = _parser(() if ASKED in os.environ else typed)
    try:
        complete_line(parser)
        _check_name(typed)
        options, excess = parser.parse_known_args(typed)
        if excess:
            options.error(f"unrecognized arguments: {' '.join(excess)}")
        with raised_at_once():
            return int(options.run(options) or ExitCode.FINISHED)
    except ConfigError as error:
        return _complain(str(error), ExitCode.REFUSED)
    except Stopped as stop:
        return _complain(str(stop), stop.exit_code)
    except (RecordingError, PortError, ComponentError) as error:
        return _complain(str(error), ExitCode.FAILED)
    except ImportError as error:  # also raised if ROS 2 is built for another Python version
        remedy = f"install the package, or source a ROS 2 for Python {sys.version_info[0]}.{sys.version_info[1]}"
        return _complain(f"import: {error}; {remedy}", ExitCode.FAILED)
    except OSError as error:
        return _complain(
            ": ".join(map(str, filter(None, (error.filename, error.strerror or error)))), ExitCode.FAILED
        )
    except KeyboardInterrupt as left:
        return _complain(str(left) or "interrupted", ExitCode.HELD)


def _complain(message: str, code: int) -> int:
    for line in message.splitlines():
        print(f"rths: {printable(line)}", file=sys.stderr)
    return code


def _check_name(typed: Sequence[str]) -> None:
    name = typed[0] if typed else "-"
    if name in REPLACED:
        raise ConfigError(f"{name}: was removed; use {REPLACED[name]}")
    if not name.startswith("-") and name not in COMMANDS:
        raise unknown("", "command", name, COMMANDS)


def _module(name: str) -> Any:
    return import_module(f"rths_nodes.app.commands.{MODULE_OF.get(name, name)}")


def purpose(name: str) -> str:
    """Return the description of a command from the docstring of its module."""
    text = inspect.cleandoc(_module(name).__doc__ or "").partition(f"``rths {name}``: ")[2]
    return " ".join(text.partition("\n\n")[0].split()).removesuffix(".")


def _groups() -> str:
    indent = max(map(len, COMMANDS)) + 4
    columns = max(2 * indent, shutil.get_terminal_size().columns - 2)
    lines = ["commands (rths COMMAND --help):"]
    for title, group in GROUPS.items():
        lines += ["", f"{title}:"]
        for name in group:
            head = f"  {name}".ljust(indent)
            lines += textwrap.wrap(head + purpose(name), columns, subsequent_indent=" " * indent)
    return "\n".join(lines)


def _parser(typed: Sequence[str] = ()) -> argparse.ArgumentParser:
    from rths_nodes.app.commands.arguments import Arguments

    wanted = [name for name in typed[:1] if name in COMMANDS]
    parser = argparse.ArgumentParser(
        prog="rths",
        description="Real-time hybrid simulation with ROS 2.",
        epilog=None if wanted else _groups(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rths {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in wanted or COMMANDS:
        text, members, prefix = purpose(name), vars(_module(name)), name.replace("-", "_")
        sub = commands.add_parser(name, description=f"{text[:1].upper()}{text[1:]}.")
        members[f"{prefix}_arguments"](Arguments(sub))
        sub.set_defaults(run=members[f"{prefix}_command"], error=sub.error, typed=typed)
    return parser


def program() -> NoReturn:
    code = main()
    if "rclpy" in sys.modules:
        leave(code)
    sys.exit(code)


if __name__ == "__main__":
    program()
