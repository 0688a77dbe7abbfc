# SPDX-License-Identifier: Apache-2.0
"""Commands that show a test in the browser.

``rths page``: show a running test and a stop button in the browser.

``rths replay``: show a recording in the browser (--page).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.analysis.histories import Evaluation, live_columns
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.page.process import PORT, listening_at, url_of
from rths_nodes.app.streams import Printer
from rths_nodes.core.addresses import check_address, check_port
from rths_nodes.core.errors import ComponentError, ConfigError, quoted
from rths_nodes.loop.indices.live_columns import curve_limits, curve_names, curve_units, per_column
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.options import NAMESPACE
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.schema import rig_kind
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run
from rths_nodes.ros import environment

if TYPE_CHECKING:
    from rths_nodes.app.page.connections import Behind, Front
    from rths_nodes.app.page.server import Since

LOOPBACK = "127.0.0.1"
NICE = 19
REAL_TIME = 1
"""SCHED_RR priority of the process that sends stops: above ordinary processes, below the loop."""
LOOK_S = 0.2
AT_ONCE = 200
"""Maximum number of curve columns per message, for a recorded test."""


def page_arguments(add: arguments.Arguments) -> None:
    add("--namespace NAME", "namespace of the displayed rig", NAMESPACE)
    add("--port", "TCP port (0: any free port)", PORT)
    text = (
        "address at which the page is served: 127.0.0.1 for viewers on this machine (and on others, with ssh -L); "
        "any other address shows the test to every computer that can reach that address"
    )
    add("--address", text, LOOPBACK)
    add.flags(
        arm_from_page="allow the operator at the page to arm rungs that move the rig",
        stop_from_anywhere="allow viewers on other machines to stop the rig",
    )
    add("--recordings DIR", "folder whose recordings are shown", "runs")
    add.hidden("--parent", type=int, default=0)  # the page exits when the process with this pid exits
    add.hidden("--behind", type=int, default=0)  # file descriptor of the socket to the front process
    add.hidden("--restarted", action="store_true")


def page_command(options: arguments.Options) -> int:
    check_address(options.address, "--address")
    check_port(options.port, "--port")
    environment.check_page()
    environment.check()
    return _behind(options) if options.behind else _front(options)


def _front(options: arguments.Options) -> int:
    from rths_nodes.app.page.connections import Behind, Front
    from rths_nodes.ros.hosting.listener import StopClient

    address, parent = options.address, options.parent
    typed = ["--namespace", options.namespace, "--address", address, "--recordings", options.recordings]
    typed += ["--arm-from-page"] * options.arm_from_page
    typed += ["--stop-from-anywhere"] * options.stop_from_anywhere
    with ExitStack() as stack:
        interrupted = stack.enter_context(orderly_stop())
        listening = stack.enter_context(listening_at(address, options.port))
        stopper = StopClient(options.namespace, f"page_stop_{os.getpid()}")
        stack.callback(stopper.close)
        stopper.start()
        behind = Behind(typed)
        stack.callback(behind.close)
        stop = behind.told(lambda kind, _: stopper.stop(kind))

        with suppress(PermissionError):  # later threads and processes do not inherit the policy
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(REAL_TIME))

        def going_on() -> bool:
            return not interrupted() and parent in (0, os.getppid())

        hint = "" if parent else " (Ctrl-C ends it)"
        where = f"the page of /{options.namespace.strip('/')} is at {url_of(listening)}{hint}"
        front = Front(
            listening, behind.hand_on, stop, stopper.reaches, address, open_to_others=options.stop_from_anywhere
        )
        return asyncio.run(_serve_front(front, behind, where, stopper.reaches, going_on))


async def _serve_front(
    front: Front, behind: Behind, where: str, reaches: Callable[[], bool], going_on: Callable[[], bool]
) -> int:
    serves = asyncio.ensure_future(behind.serves())
    while not serves.done():
        await asyncio.wait([serves], timeout=LOOK_S)
        if not going_on():
            return ExitCode.FINISHED
    if not serves.result():
        if (exit_code := int(behind.close())) < 0:
            raise ComponentError(f"page: its process was terminated by {signal.Signals(-exit_code).name}")
        return exit_code  # the page process has reported the reason
    serving = asyncio.ensure_future(front.serve())
    await asyncio.sleep(0)  # start accepting connections
    say = Printer().say
    say(where)
    while going_on() and not serving.done():
        await asyncio.sleep(LOOK_S)
        behind.reaches(reaches())
        if (code := behind.ended()) is not None:
            behind.restart()
            say(f"the page process ended (exit code {code}) and is restarted; stops still work")
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    return ExitCode.FINISHED


def _behind(options: arguments.Options) -> int:
    from rths_nodes.app.page.connections import serve_behind
    from rths_nodes.app.page.operator import Operating
    from rths_nodes.app.page.server import PageServer
    from rths_nodes.app.procedure.operator_socket import SocketOperator
    from rths_nodes.ros.hosting.listener import RigListener

    with suppress(OSError):
        os.nice(NICE)
    onlooker = RigListener(options.namespace, f"page_{os.getpid()}")
    try:
        operating = Operating(SocketOperator(options.namespace).send, Printer().say, options.arm_from_page)
        if options.restarted:
            operating.disarm("the process of the page had ended")
        folder = Path(options.recordings)
        server = PageServer(onlooker.since, options.address, options.stop_from_anywhere, operating, folder)
        onlooker.start()
        asyncio.run(serve_behind(server.application(), options.behind, onlooker.note))
    finally:
        onlooker.close()
    return ExitCode.FINISHED


def replay_arguments(add: arguments.Arguments) -> None:
    add.recording()
    add.flags(page="show the recording in the browser, with a slider (required)")
    add("--port", "TCP port of the page (0: any free port)", PORT)
    add.hidden("--rate")  # refused with a message that names its replacement


def replay_command(options: arguments.Options) -> None:
    if options.rate is not None or not options.page:
        option, rate = ("without --page", "") if options.rate is None else ("--rate", f" --rate {options.rate}")
        raise ConfigError(
            f"replay {option}: rths replay publishes nothing; use `ros2 bag play {quoted(options.recording)} "
            f"--clock{rate}`, or --page for the browser"
        )
    check_port(options.port, "--port")
    environment.check_page()
    from rths_nodes.app.page.server import PageServer

    run = read_run(options.recording)
    terminal.tell(run.notes)
    application = PageServer(recorded_test(run, Path(options.recording)), LOOPBACK).application()
    with orderly_stop() as interrupted, listening_at(LOOPBACK, options.port) as listening:
        where = f"the page of {options.recording} is at {url_of(listening)} (Ctrl-C ends it)"
        asyncio.run(_serve(application, listening, where, interrupted))


async def _serve(application: object, listening: object, where: str, interrupted: Callable[[], bool]) -> None:
    from aiohttp import web

    from rths_nodes.app.page.connections import quiet_runner, shut_down

    runner = quiet_runner(application)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        print(where, flush=True)
        while not interrupted():
            await asyncio.sleep(LOOK_S)
    finally:
        await shut_down(runner)


def recorded_test(run: Run, path: Path) -> Since:
    """Return the page's data source for the ``run`` recorded at ``path``."""
    axes = {name: run.scenario.limits[name] for name in run.axes}
    about = run.information
    names, per = curve_names(list(axes)), per_column(run.scenario.servo_rate)
    columns = live_columns(Evaluation(run)).astype("f4")
    messages = [
        (first * per, per, columns[first : first + AT_ONCE].tobytes()) for first in range(0, len(columns), AT_ONCE)
    ]
    situation: dict[str, object] = {
        "recorded": str(path),
        "namespace": path.name,
        "age": 0.0,
        "port": type(run.scenario.port).type_name,
        "rig_kinds": {"run": rig_kind(run.scenario)},
        "events": [],
        "run": {
            "state": run.outcome.upper(),
            "over": True,
            "reason": about.get("reason", ""),
            "sample": len(run.time) - 1,
            "samples": run.scenario.samples,
            "scenario": run.scenario.name,
            "hash": about.get("scenario_hash", ""),
            "run_id": about.get("run_id", ""),
            "servo_rate": run.scenario.servo_rate,
            "axes": list(axes),
        },
        "curves": {
            "run": str(path),
            "servo_rate": run.scenario.servo_rate,
            "names": names,
            "units": curve_units(axes),
            "limits": [
                {"curve": names.index(curve), "name": name, "low": -bound, "high": bound}
                for curve, name, bound in curve_limits(axes)
            ],
        },
    }
    return lambda number: (situation, len(messages), messages[max(0, number) :])
