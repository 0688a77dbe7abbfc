# SPDX-License-Identifier: Apache-2.0
"""``rths page``: the page of a test in the browser, of whatever runs in a namespace."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rths_nodes.app.page.beside import PORT
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.options import NAMESPACE
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros import environment

LOOPBACK = "127.0.0.1"
NICE = 19
"""A page may wait: the loop may not."""
LOOK_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--namespace", default=NAMESPACE, help="of the rig that is looked at; default: %(default)s"
    )
    parser.add_argument("--port", type=int, default=PORT, help="TCP port, 0: any; default: %(default)s")
    parser.add_argument(
        "--address",
        default=LOOPBACK,
        help="address at which the page is served; default: %(default)s, for this machine alone (from elsewhere: "
        "ssh -L). At any other address whoever reaches it sees the test",
    )
    parser.add_argument(
        "--arm-from-page",
        action="store_true",
        help="who leads a procedure by the page may arm there the rungs that move, too",
    )
    parser.add_argument(
        "--stop-from-anywhere", action="store_true", help="who looks on from another machine may stop the rig, too"
    )
    parser.add_argument(
        "--recordings",
        metavar="DIR",
        default="runs",
        help="folder whose recordings are shown; default: %(default)s",
    )
    parser.add_argument("--parent", type=int, default=0, help=argparse.SUPPRESS)  # it ends with this process


def run(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    environment.check_page()
    environment.check()
    from rths_nodes.app.page.operating import Operating
    from rths_nodes.app.page.server import PageServer
    from rths_nodes.app.page.shelf import Shelf
    from rths_nodes.app.procedure.operator_socket import by_socket
    from rths_nodes.ros.hosting.onlooker import Onlooker

    with suppress(OSError):
        os.nice(NICE)
    onlooker = Onlooker(options.namespace, f"page_{os.getpid()}")
    try:
        operating = Operating(by_socket(options.namespace), _say, options.arm_from_page)
        server = PageServer(
            onlooker, options.address, options.stop_from_anywhere, operating, Shelf(Path(options.recordings))
        )
        with orderly_stop() as interrupted:
            onlooker.start()
            rig, parent = f"the page of /{options.namespace.strip('/')}", options.parent
            asyncio.run(serve(server, (options.address, options.port), rig, interrupted, parent))
    finally:
        onlooker.close()
    return ExitCode.FINISHED


def _say(words: str) -> None:
    print(words, flush=True)


async def serve(
    server: Any, where: tuple[str, int], name: str, interrupted: Callable[[], bool], parent: int = 0
) -> None:
    """Serve a page at ``where`` until it is ``interrupted``, or its ``parent`` ends; ``name`` is what it is of."""
    from aiohttp import web

    address, wanted = where
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # it would show what strangers send
    runner = web.AppRunner(server.application(), access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, address, wanted, shutdown_timeout=0.5).start()
        except (OSError, OverflowError) as error:
            if not parent:
                raise ConfigError(f"page: cannot be served at {address}:{wanted}: {error}") from None
            # nobody has chosen the port: any will do
            await web.TCPSite(runner, address, 0, shutdown_timeout=0.5).start()
        port = runner.addresses[0][1]
        shown = f"[{address}]" if ":" in address else address
        _say(f"{name} is at http://{shown}:{port}/{'' if parent else ' (Ctrl-C ends it)'}")
        while not interrupted() and parent in (0, os.getppid()):
            await asyncio.sleep(LOOK_S)
    finally:
        await runner.cleanup()
