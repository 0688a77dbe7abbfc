# SPDX-License-Identifier: Apache-2.0
"""The page with a situation that a test makes up, served without ROS and without a rig."""

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
from rths_nodes.app.procedure.operator_socket import Answer, Request
from rths_nodes.loop.indices.live_columns import OF_AXIS, PER_CURVE
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.session import ACTS, barred_by_state

AXES = ("north", "south")
UNITS = {"force": "N", "tracking_indicator": "m^2"}
LIMITS = {"measured": ("stroke", 0.25), "force": ("force", 1.8e6), "error": ("tracking_error", 5e-3)}
COLUMNS, PER_COLUMN, RATE = 200, 10, 1024.0


class MadeUp:
    """A rig in ``state`` whose axes have moved to these shares of their limits; ``told`` is shown, too."""

    def __init__(self, state: State, shares: tuple[float, ...] = (0.14, 0.85), **told: Any) -> None:
        self._state, self._told = state, told
        self._shares = shares

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
        } | self._told

    def since(self, number: int) -> tuple[dict[str, object], int, list[tuple[int, int, bytes]]]:
        columns = np.zeros((COLUMNS, len(OF_AXIS), len(AXES), PER_CURVE), np.float32)
        swing = np.sin(np.arange(COLUMNS) / 10.0)[:, None]
        for curve, (_, bound) in LIMITS.items():
            for axis, share in enumerate(self._shares):
                columns[:, OF_AXIS.index(curve), axis] = bound * share * swing
        found = [(0, PER_COLUMN, columns.tobytes())] if number < 0 else []
        return self.situation(), 1, found


def procedure_in(state: State, next_act: str, **more: Any) -> Answer:
    """What a procedure of five rungs answers in ``state``, after rungs a to c."""
    rungs = ("a", "b", "c", "d", "g")
    return Answer(
        **{"done": True, "state": int(state), "stops": 0, "test_id": "first", "next_rung": "d"}
        | {
            "acts": tuple(ACTS),
            "why_not": tuple(barred_by_state(act, state) for act in ACTS),
            "next_act": next_act,
        }
        | {"motions": ("",) * len(ACTS), "scenario_hash": "0123456789abcdef", "planned": rungs}
        | {"verdicts": ("ok", "ok", "differs", "", "")}
        | more
    )


@contextmanager
def served(watched: MadeUp, answer: Answer | None = None) -> Iterator[str]:
    """Serve the page of ``watched``, led by "Ada"; its address."""

    def ask(_: Request) -> Answer:
        assert answer is not None
        return answer

    operating = Operating(ask, print, arms=True) if answer is not None else None
    if operating is not None:
        operating.name = "Ada"
    application = PageServer(watched, "127.0.0.1", operating=operating).application()

    async def reaches(_: web.Request) -> web.Response:
        return web.json_response({"reaches": True})

    application.router.add_get("/stop", reaches)
    loop, started, ports = asyncio.new_event_loop(), threading.Event(), list[int]()

    async def serve() -> None:
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
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
