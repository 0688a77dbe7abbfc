# SPDX-License-Identifier: Apache-2.0
"""``rths replay``: show a recording in the browser (--page)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from rths_nodes.analysis.histories import Evaluation, live_columns
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.commands.page import LOOK_S, LOOPBACK
from rths_nodes.app.page.process import PORT, listening_at, url_of
from rths_nodes.core.addresses import check_port
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.indices.live_columns import curve_limits, curve_names, curve_units, per_column
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.scenario.schema import rig_kind
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run
from rths_nodes.ros import environment

AT_ONCE = 200


def add_arguments(add: arguments.Arguments) -> None:
    add.recording()
    add.flags(page="show the recording in the browser, with a slider (required)")
    add("--port", "TCP port of the page (0: any free port)", PORT)
    add.hidden("--rate")  # refused with a message that names its replacement


def run(options: arguments.Options) -> None:
    if options.rate is not None or not options.page:
        option, rate = ("without --page", "") if options.rate is None else ("--rate", f" --rate {options.rate}")
        raise ConfigError(
            f"replay {option}: rths replay publishes nothing; use `ros2 bag play {options.recording} "
            f"--clock{rate}`, or --page for the browser"
        )
    check_port(options.port, "--port")
    environment.check_page()
    from rths_nodes.app.page.server import PageServer

    run = read_run(options.recording)
    terminal.tell(run.notes)
    application = PageServer(RecordedTest(run, Path(options.recording)), LOOPBACK).application()
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


class RecordedTest:
    """Provides the page with the ``run`` recorded at ``path``, instead of a running test."""

    def __init__(self, run: Run, path: Path) -> None:
        axes = {name: run.scenario.limits[name] for name in run.axes}
        about = run.information
        names, per = curve_names(list(axes)), per_column(run.scenario.servo_rate)
        columns = live_columns(Evaluation(run)).astype("f4")
        self._messages = [
            (first * per, per, columns[first : first + AT_ONCE].tobytes())
            for first in range(0, len(columns), AT_ONCE)
        ]
        self._told = {
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

    def situation(self) -> dict[str, object]:
        return self._told

    def since(self, number: int) -> tuple[dict[str, object], int, list[tuple[int, int, bytes]]]:
        return self._told, len(self._messages), self._messages[max(0, number) :]
