# SPDX-License-Identifier: Apache-2.0
"""A page with a synthetic situation, served without ROS and without a rig."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from aiohttp import web

from rths_nodes.app.page.operator import Operating
from rths_nodes.app.page.server import PageServer
from rths_nodes.app.procedure.operator_socket import Answer
from rths_nodes.loop.indices.live_columns import OF_AXIS, PER_CURVE
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.session import ACTS, barred_by_state

AXES = ("north", "south")
UNITS = {"force": "N", "tracking_indicator": "m^2"}
LIMITS = {"measured": ("stroke", 0.25), "force": ("force", 1.8e6), "error": ("tracking_error", 5e-3)}
COLUMNS, PER_COLUMN, RATE = 200, 10, 1024.0


class SyntheticSource:
    """A rig in ``state`` whose axes have moved to ``shares`` of their limits; ``changes`` replace keys."""

    def __init__(self, state: State, shares: tuple[float, ...] = (0.14, 0.85), **changes: Any) -> None:
        self._state, self._shares, self._changes = state, shares, changes

    def situation(self) -> dict[str, object]:
        names = [f"{axis}/{name}" for name in OF_AXIS for axis in AXES]
        limits = [
            {"curve": names.index(f"{axis}/{curve}"), "name": name, "low": -bound, "high": bound}
            for axis in AXES
            for curve, (name, bound) in LIMITS.items()
        ]
        shown = {
            **{"state": self._state.name, "over": self._state is State.FINISHED, "reason": "", "sample": 2000},
            **{"samples": 20000, "scenario": "made_up", "servo_rate": RATE, "axes": list(AXES), "heard": 0.0},
        }
        curves = {"run": "1", "servo_rate": RATE, "names": names, "limits": limits}
        return {
            "namespace": "rths",
            "age": 0.0,
            "events": [{"time": 0.0, "what": "procedure", "words": self._state.name, "sample": 0}],
            "stop_reaches": True,
            "run": shown | {"state": "RUNNING", "over": False},
            "procedure": shown,
            "rig_kinds": {"run": "EMULATED", "procedure": "EMULATED"},
            "curves": curves | {"units": [UNITS.get(name.split("/")[1], "m") for name in names]},
            "nodes": {"monitor": {"level": 0, "words": "", "values": {}}},
        } | self._changes

    def since(self, number: int) -> tuple[dict[str, object], int, list[tuple[int, int, bytes]]]:
        columns = np.zeros((COLUMNS, len(OF_AXIS), len(AXES), PER_CURVE), np.float32)
        swing = np.sin(np.arange(COLUMNS) / 10.0)[:, None]
        for curve, (_, bound) in LIMITS.items():
            for axis, share in enumerate(self._shares):
                columns[:, OF_AXIS.index(curve), axis] = bound * share * swing
        return self.situation(), 1, [(0, PER_COLUMN, columns.tobytes())] if number < 0 else []


def procedure_in(state: State, next_act: str, **changes: Any) -> Answer:
    """Answer of a procedure of five rungs in ``state``, after rungs a to c."""
    why_not = tuple(barred_by_state(act, state) for act in ACTS)
    return Answer(
        **{"done": True, "state": int(state), "stops": 0, "test_id": "first", "next_rung": "d"}
        | {"acts": tuple(ACTS), "why_not": why_not, "next_act": next_act, "motions": ("",) * len(ACTS)}
        | {"scenario_hash": "0123456789abcdef", "planned": ("a", "b", "c", "d", "g")}
        | {"verdicts": ("ok", "ok", "differs", "", "")}
        | changes
    )


@contextmanager
def served(source: SyntheticSource, answer: Answer) -> Iterator[str]:
    """Serve the page of ``source``, led by "Ada"; its address."""
    operating = Operating(lambda _: answer, print, arms=True)
    operating.name = "Ada"
    application = PageServer(source, "127.0.0.1", operating=operating).application()

    async def reaches(_: web.Request) -> web.Response:
        return web.json_response({"reaches": True})

    application.router.add_get("/stop", reaches)
    loop, started, ports = asyncio.new_event_loop(), threading.Event(), list[int]()

    async def serve() -> None:
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.append(runner.addresses[0][1])
        started.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.create_task(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(10.0)
    try:
        yield f"http://127.0.0.1:{ports[0]}/"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10.0)
