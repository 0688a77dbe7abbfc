# SPDX-License-Identifier: Apache-2.0
"""Suitability of a machine: findings, and the share of ticks that it is expected to miss at each servo rate.

A tick at time t begins L(t) late. Of ticks with the period p and the work W, those are missed whose predecessor
is not done in time: the share P(L(t) + W >= p) for t uniform in time. L is known from a paced loop with the
period p_0, which skips n = floor(L / p_0) ticks after a lateness L; these would have been late by L - p_0, ...,
L - n p_0. With them the lateness is uniform in time again, and the share follows for every period.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from rths_nodes.app.doctor.machine import Fact
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array

RATES = (256.0, 512.0, 1024.0, 2048.0, 4096.0)
"""Usual servo rates, Hz."""

WORK_S = {"composed": 300e-6, "processes": 600e-6}
"""Time within which 99 of 100 samples are done, by host: one axis, recorder and monitor on, at PYTHON_STEP_S."""
PYTHON_STEP_S = 37e-9
"""Step of a bare oscillator in plain Python where WORK_S was measured (benchmarks/latency.py)."""

GOOD, MARGINAL = 1e-4, 1e-2
"""Largest shares of missed ticks: for a rig; for simulators and slow time axes."""
LONGEST_GAP_S = 0.010
"""A longer gap stops a rig (DESIGN 4: the default of the longest bridge)."""
RULE_OF_THREE = 3.0
"""Without any event in N trials, the probability is below 3 / N with 95 % confidence."""

LONGEST_S, SHORTEST_S, HIGHEST_RATE_HZ, MOST_TICKS = 3600.0, 0.1, 100e3, 20_000_000
"""Bounds of a measurement; the rate is that of a scenario, and every tick takes 8 bytes."""


@dataclass(frozen=True)
class Forecast:
    """Expected misses and verdict at one servo rate on one host (``bare``: a loop that does nothing)."""

    rate_hz: float
    host: str
    missed_share: float
    verdict: str


@dataclass(frozen=True)
class Diagnosis:
    """Facts about the machine, the measured floors (``ping_pong``: or why there is none), and the outlook."""

    facts: Sequence[Fact]
    paced: Data
    ping_pong: Mapping[str, float] | str
    python_step_s: float
    outlook: Sequence[Forecast]
    longest_gap_s: float

    def data(self) -> Data:
        return {
            "facts": {fact.name: fact.data() for fact in self.facts},
            "paced": dict(self.paced),
            "ping_pong": self.ping_pong if isinstance(self.ping_pong, str) else dict(self.ping_pong),
            "python_step_s": self.python_step_s,
            "outlook": [asdict(entry) for entry in self.outlook],
            "summary": self.summary(),
        }

    def summary(self) -> list[str]:
        """Sum up the outlook, one sentence a host."""
        return [self._sentence(host) for host in WORK_S]

    def _sentence(self, host: str) -> str:
        rates = {
            verdict: [entry.rate_hz for entry in self.outlook if (entry.host, entry.verdict) == (host, verdict)]
            for verdict in ("good", "marginal")
        }
        words = [f"{verdict} up to {max(found):g} Hz" for verdict, found in rates.items() if found]
        return f"{host}: {', '.join(words) or 'not for a rig at any of these rates'}"


def check(rate: float, seconds: float) -> None:
    """Refuses a measurement that makes no sense. Raises ConfigError."""
    bounds = (("--rate", rate, "Hz", 1.0, HIGHEST_RATE_HZ), ("--seconds", seconds, "s", SHORTEST_S, LONGEST_S))
    for name, value, unit, least, most in bounds:
        if not least <= value <= most:  # nan is refused, too
            raise ConfigError(f"{name} = {value:g} {unit}: must be >= {least:g} and <= {most:g} {unit}")
    if not 1.0 <= rate * seconds <= MOST_TICKS:
        raise ConfigError(
            f"--seconds = {seconds:g} s at --rate = {rate:g} Hz: must be >= 1 and <= {MOST_TICKS} ticks"
        )


def missed_share(lateness: Array, period: float, wanted: float, work: float = 0.0) -> float:
    """Share of ticks with the period ``wanted`` that are expected to be missed, with ``work`` s to do in each.

    ``lateness`` ``(n,)`` s is that of a loop with the period ``period`` s, which slips by whole periods.
    1 where the work does not fit into the period.
    """
    margin = wanted - work
    if margin <= 0.0:
        return 1.0
    ticks = len(lateness) + np.floor(lateness / period).sum()
    late = lateness[lateness >= margin]
    return float((np.floor((late - margin) / period) + 1.0).sum() / ticks)


def verdict(share: float, longest_gap: float) -> str:
    """``good``, ``marginal`` or ``not for a rig`` from the share of missed ticks and the longest gap, s."""
    if share > MARGINAL or longest_gap > LONGEST_GAP_S:
        return "not for a rig"
    return "good" if share <= GOOD else "marginal"


def diagnose(
    facts: Sequence[Fact],
    paced: Data,
    lateness: Array,
    ping_pong: Mapping[str, float] | str,
    python_step_s: float,
) -> Diagnosis:
    """The outlook from the floors: ``paced`` with its ``lateness`` (s), and the step of plain Python (s)."""
    period = 1.0 / paced["rate_hz"]
    longest = float(lateness.max())
    slower = python_step_s / PYTHON_STEP_S
    works = {"bare": 0.0} | {host: work * slower for host, work in WORK_S.items()}
    outlook = []
    for rate in RATES:
        for host, work in works.items():
            share = missed_share(lateness, period, 1.0 / rate, work)
            outlook.append(Forecast(rate, host, share, verdict(share, longest)))
    return Diagnosis(facts, paced, ping_pong, python_step_s, outlook, longest)


# -- in words ---------------------------------------------------------------------------------------------

MARKS = {"good": "ok", "advice": "!", "unknown": "?"}


def text(diagnosis: Diagnosis) -> str:
    """The diagnosis for people."""
    parts = (_findings(diagnosis.facts), _floors(diagnosis), _table(diagnosis), diagnosis.summary())
    return "\n\n".join("\n".join(lines) for lines in parts)


def _findings(facts: Sequence[Fact]) -> list[str]:
    lines = []
    for fact in facts:
        lines.append(f"{MARKS[fact.verdict]:3}{fact.name:16}{fact.words}")
        if fact.advice:
            lines.append(f"{'':19}-> {fact.advice}")
    return lines


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.3g}" if seconds < 1e-3 else f"{seconds * 1e6:.0f}"


def _floors(diagnosis: Diagnosis) -> list[str]:
    paced, late = diagnosis.paced, diagnosis.paced["lateness"]
    lines = [
        f"floor, {paced['ticks']} ticks at {paced['rate_hz']:g} Hz of a loop that does nothing: {paced['missed']} "
        f"missed; lateness {_us(late['median_s'])} µs median, {_us(late['p99_s'])} p99, {_us(late['p999_s'])} "
        f"p99.9, {_us(late['max_s'])} at most"
    ]
    if paced["stolen_share"]:
        lines.append(f"  meanwhile a hypervisor took {100 * paced['stolen_share']:.2g} % of the time")
    lines += [f"  {words}" for words in paced["refused"]]
    trip = diagnosis.ping_pong
    if isinstance(trip, str):
        found = f"unknown ({trip})"
    else:
        found = f"{_us(trip['median_s'])} µs median, {_us(trip['p99_s'])} p99"
    lines.append(f"floor, there and back between two processes on one processor: {found}")
    lines.append(f"plain Python: {diagnosis.python_step_s * 1e9:.3g} ns a step of an oscillator")
    return lines


def _table(diagnosis: Diagnosis) -> list[str]:
    """Expected missed ticks by rate, and what a run without any miss does not exclude."""
    hosts = list(dict.fromkeys(entry.host for entry in diagnosis.outlook))
    lines = [f"{'expected missed':>16}{'period':>10}" + "".join(f"{host:>24}" for host in hosts)]
    for rate in RATES:
        cells = [_cell(entry) for entry in diagnosis.outlook if entry.rate_hz == rate]
        lines.append(f"{rate:13g} Hz{1e6 / rate:7.0f} µs" + "".join(f"{cell:>24}" for cell in cells))
    least = RULE_OF_THREE / diagnosis.paced["ticks"]
    lines.append(
        f"good: at most {100 * GOOD:g} % missed; marginal: at most {100 * MARGINAL:g} %, for simulators and slow "
        f"time axes; no gap above {LONGEST_GAP_S * 1e3:g} ms"
    )
    if least > GOOD:
        enough = math.ceil(RULE_OF_THREE / GOOD / diagnosis.paced["rate_hz"])
        lines.append(
            f"{diagnosis.paced['ticks']} ticks tell of no share below {100 * least:.2g} %: take --seconds "
            f"{enough}, and before a test as long as the test takes"
        )
    if diagnosis.longest_gap_s > LONGEST_GAP_S:
        lines.append(f"a gap of {diagnosis.longest_gap_s * 1e3:.3g} ms was seen: it would have stopped a rig")
    return lines


def _cell(entry: Forecast) -> str:
    share = "too slow" if entry.missed_share >= 1.0 else f"{100 * entry.missed_share:.3g} %"
    return f"{share}, {entry.verdict}"
