# SPDX-License-Identifier: Apache-2.0
"""Interlock and pressure, switched by the operator: motion ends, and does not resume on return."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rths_nodes.core.samples import HYDRAULICS_HIGH, HYDRAULICS_NOT_TOLD, HYDRAULICS_OFF, Array
from rths_nodes.procedure.commissioned import FAILED, INTERLOCK, PASSED, PRESSURE, CommissioningRow
from rths_nodes.procedure.commissioning.bench import REST_S, Bench
from rths_nodes.procedure.commissioning.braking import rest_samples
from rths_nodes.procedure.commissioning.free_rig import FreeRig, Row, to_and_fro
from rths_nodes.procedure.commissioning.silence import slowly

WATCHED_S = 1.0
"""Time to observe the rig after the interlock is closed, or pressure is back, s."""
STILL = 0.1
"""Share of the small move that counts as no motion."""
OFF = 0.5
"""Lag of an axis without pressure, as a share of the small move, if the rig does not report pressure."""

Rows = list[CommissioningRow]


def interlock(bench: Bench) -> Rows:
    """Let the operator open and close the interlock while all axes move slowly."""
    with bench.opened() as rig:
        bench.moving_soon(rig, slowly(bench, rig, "open the interlock while they move"))
        if not _until(bench, rig, lambda row: bool(row.stopped)):
            return [_unseen(bench, INTERLOCK, "opened", "the rig tells that it is open")]
        since, told = len(rig.rows) - 1, rig.rows[-1].stopped
        for _ in range(rig.samples(REST_S)):
            rig.tick(rig.rows[-1].active)
        rows = [_held(bench, rig, since, told)]
        bench.operator.meanwhile("close the interlock again", lambda: rig.tick(rig.rows[-1].active))
        # a displaced controller returns to its command, as instructed before
        return [*rows, _returned(bench, rig, INTERLOCK, "closed", len(rig.rows), led=True)]


def pressure(bench: Bench) -> Rows:
    """Let the operator switch the pressure off and on while all axes move slowly: the rig stays."""
    with bench.opened() as rig:
        bench.moving_soon(rig, slowly(bench, rig, "take the pressure off while they move"))
        if not _until(bench, rig, lambda row: _without(rig, row)):
            return [_unseen(bench, PRESSURE, "off", "the rig tells it, or stays behind its command")]
        lost = rig.rows[-1]
        told = "told" if lost.hydraulics == HYDRAULICS_OFF else "not told: the axes stay behind their commands"
        rig.hold(REST_S)
        rig.ramp(_place(rig), rig.velocity)
        rows = [_row(bench, PRESSURE, "off", "told, or seen", told, True)]
        since = len(rig.rows) + rig.samples(REST_S)
        rig.hold(2.0 * REST_S)
        bench.operator.meanwhile("bring the pressure back", rig.tick)
        back = _until(bench, rig, lambda row: row.hydraulics in (HYDRAULICS_HIGH, HYDRAULICS_NOT_TOLD), hold=True)
        if not back:
            return [*rows, _unseen(bench, PRESSURE, "back", "the rig tells it")]
        return [*rows, _returned(bench, rig, PRESSURE, "back", since, led=False)]


def _until(bench: Bench, rig: FreeRig, seen: Callable[[Row], bool], hold: bool = False) -> bool:
    """Move to and fro, or ``hold``, until ``seen``; return False on timeout."""
    if hold:
        return any(seen(rig.tick()) for _ in range(rig.samples(bench.patience)))
    return any(seen(row) for row in to_and_fro(rig, bench.patience))


def _without(rig: FreeRig, row: Row) -> bool:
    """Return whether pressure is missing: reported, or axes do not follow."""
    if row.hydraulics != HYDRAULICS_NOT_TOLD:
        return row.hydraulics == HYDRAULICS_OFF
    first = rig.rows[0]
    off = (row.active - first.active) - (row.displacement - first.displacement)
    return bool((np.abs(off) > OFF * rig.way).any())


def _place(rig: FreeRig) -> Array:
    """Return the positions of the axes as a command, by their travel since the session began."""
    first = rig.rows[0]
    mean = np.mean([row.displacement for row in rig.rows[-rig.samples(REST_S) :]], axis=0)
    return np.asarray(first.active + mean - first.displacement)


def _held(bench: Bench, rig: FreeRig, since: int, told: str) -> CommissioningRow:
    active = np.array([row.active for row in rig.rows[since:]])
    decelerations = rig.stated().deceleration
    n = max(rest_samples(v, a, bench.dt) for v, a in zip(rig.velocity, decelerations, strict=True))
    moving = np.flatnonzero((np.abs(active - active[-1]) > 1e-9).any(axis=1))
    rest = int(moving[-1]) + 1 if len(moving) else 0
    way = float(np.abs(active[-1] - active[0]).max())
    most = float((rig.velocity * n * bench.dt).max())
    good = rest <= n + 1 and way <= most * (1.0 + 1e-6) + float(bench.resolution.max())
    stated, measured = (_words(k, mm, bench.dt) for k, mm in ((n + 1, most), (rest, way)))
    return CommissioningRow(INTERLOCK, "opened", stated, f"{measured}: {told}", PASSED if good else FAILED)


def _returned(bench: Bench, rig: FreeRig, cause: str, what: str, since: int, led: bool) -> CommissioningRow:
    """Judge whether axes move away from row ``since``; ``led``: they may move to their commands."""
    before = rig.rows[min(since, len(rig.rows) - 1)]
    for _ in range(rig.samples(WATCHED_S)):
        rig.tick(rig.rows[-1].active if led else None)
    shown = np.array([row.displacement for row in rig.rows[since:]])
    moved = np.abs(shown - before.displacement).max(axis=0)
    first = rig.rows[0]
    off = np.abs((before.active - first.active) - (before.displacement - first.displacement)) if led else 0.0
    bound = STILL * rig.way + off
    worst = int(np.argmax(moved - bound))
    stated, measured = (f"{bench.names[worst]} moves {1e3 * far[worst]:.3g} mm" for far in (bound, moved))
    return _row(bench, cause, what, f"{stated} at most", measured, bool((moved <= bound).all()))


def _unseen(bench: Bench, cause: str, what: str, stated: str) -> CommissioningRow:
    return _row(bench, cause, what, stated, f"nothing was seen in {bench.patience:g} s", False)


def _row(bench: Bench, cause: str, what: str, stated: str, measured: str, good: bool) -> CommissioningRow:
    return CommissioningRow(cause, what, stated, measured, PASSED if good else FAILED)


def _words(samples: int, way: float, dt: float) -> str:
    return f"rests after {1e3 * samples * dt:.3g} ms and {1e3 * way:.3g} mm"
