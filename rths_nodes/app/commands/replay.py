# SPDX-License-Identifier: Apache-2.0
"""``rths replay``: publish a recording again."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.commands.page import LOOK_S, LOOPBACK
from rths_nodes.app.page.beside import PORT
from rths_nodes.app.page.ports import listening_at, url_of
from rths_nodes.core.addresses import check_port
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import PACKAGE
from rths_nodes.core.wire import layout
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros import environment

if TYPE_CHECKING:
    from rths_nodes.recording.bag import Bag


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_recording(parser)
    parser.add_argument("--rate", type=float, default=1.0, help="speed; default: %(default)s")
    parser.add_argument(
        "--page", action="store_true", help="show it in the browser, with a slider; nothing is published"
    )
    parser.add_argument("--port", type=int, default=PORT, help="TCP port of the page; default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Publish the recording on its topics, with /clock; or show it as a page."""
    if options.page:
        check_port(options.port, "--port")
        return _show(options)
    from rths_nodes.recording import bag

    recording = bag.read(options.recording)
    _check_versions(options.recording, recording)
    environment.check()
    from rths_nodes.recording.reading import recorded_scenario
    from rths_nodes.ros.hosting.replay import JointsAgain, replay

    terminal.tell(recording.notes)
    scenario = recorded_scenario(recording.information["scenario"], f"{options.recording}: scenario")
    axes = {name: axis.limits.of_force for name, axis in scenario.axes.items()}
    with orderly_stop() as interrupted:
        count = replay(
            {name: topic.type for name, topic in recording.topics.items()},
            {name: topic.qos for name, topic in recording.topics.items()},
            recording.messages(),
            rate=options.rate,
            interrupted=interrupted,
            joints=lambda node: JointsAgain(node, recording.definitions, axes, scenario.dt),
        )
    print(f"{count} messages published")
    return ExitCode.HELD if interrupted() else ExitCode.FINISHED


def _show(options: argparse.Namespace) -> int:
    """The page of the recording, until Ctrl-C."""
    environment.check_page()
    from rths_nodes.app.page.recorded import RecordedTest
    from rths_nodes.app.page.server import PageServer
    from rths_nodes.recording.reading import read_run

    run = read_run(options.recording)
    terminal.tell(run.notes)
    application = PageServer(RecordedTest(run, Path(options.recording)), LOOPBACK).application()
    with orderly_stop() as interrupted, listening_at(LOOPBACK, options.port) as listening:
        where = f"the page of {options.recording} is at {url_of(listening)} (Ctrl-C ends it)"
        asyncio.run(_serve(application, listening, where, interrupted))
    return ExitCode.FINISHED


async def _serve(application: object, listening: object, where: str, interrupted: Callable[[], bool]) -> None:
    from aiohttp import web

    from rths_nodes.app.page.answers import quiet_runner

    runner = quiet_runner(application)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        print(where, flush=True)
        while not interrupted():
            await asyncio.sleep(LOOK_S)
    finally:
        await runner.cleanup()


def _check_versions(path: str, recording: Bag) -> None:
    """Refuse, with ConfigError, messages that have other fields than those of this version."""
    for name, topic in recording.topics.items():
        package, _, message = topic.type.partition("/msg/")
        if package != PACKAGE or layout.fields_of(recording.definitions[name]) == layout.described(message):
            continue
        version = recording.information.get("version", "another version")
        raise ConfigError(
            f"{path}: {topic.type} on {name} has other fields than here; it can be replayed with the rths_nodes "
            f"that has recorded it ({version})"
        )
