# SPDX-License-Identifier: Apache-2.0
"""Rules about bridging times, timeouts and signs of life."""

from __future__ import annotations

from collections.abc import Iterator

from rths_nodes.laboratory.calibration import gains_of
from rths_nodes.loop.scenario.judgement.rule import CAUTION, Found, Seen, given, rule, rules_in

PAUSES = 10.0
"""Timeout of a rig over the longest pause."""
STEPS = 2.0
"""Distance of the first command, in steps at the velocity limit."""


@rule(
    CAUTION, "`bridge.max_bridge` up to `silence` of the port", "the rig counts as dead before the bridge is over"
)
def bridge_beyond_silence(seen: Seen) -> Iterator[Found]:
    silence, longest = given(seen.scenario.port, "silence"), seen.scenario.bridge.max_bridge
    if silence is not None and longest > silence:
        yield Found("bridge.max_bridge", f"{longest:g} s", f"port.silence is {silence:g} s")


@rule(
    CAUTION,
    "`silence` of the port < `longest_wait`, and < 10 `bridge.max_pause`",
    "a rig that is dead is commanded for longer than a rig waits for commands",
)
def silence_is_long(seen: Seen) -> Iterator[Found]:
    silence, wait = given(seen.scenario.port, "silence"), given(seen.scenario.port, "longest_wait")
    if silence is None or wait is None:
        return
    most = min(wait, PAUSES * seen.scenario.bridge.max_pause)
    if silence >= most:
        words = f"{silence * seen.scenario.servo_rate:.4g} servo periods; less than {most:g} s is usual"
        yield Found("port.silence", f"{silence:g} s", words)


@rule(
    CAUTION,
    "`longest_wait` of the port up to 10 `bridge.max_pause`",
    "a rig whose test computer is gone goes on waiting for it",
)
def wait_is_long(seen: Seen) -> Iterator[Found]:
    wait, pause = given(seen.scenario.port, "longest_wait"), seen.scenario.bridge.max_pause
    if wait is not None and wait > PAUSES * pause:
        words = f"up to {PAUSES * pause:g} s is usual, {PAUSES:g} bridge.max_pause"
        yield Found("port.longest_wait", f"{wait:g} s", words)


@rule(
    CAUTION,
    "`start_tolerance` of the port up to two samples at `limits.velocity`",
    "the first command may be so far from where the actuator stands",
)
def start_is_a_jump(seen: Seen) -> Iterator[Found]:
    tolerance = given(seen.scenario.port, "start_tolerance")
    for place, axis in seen.axes if tolerance is not None else ():
        jump = tolerance * abs(gains_of(axis.rig_axis).command)
        most = STEPS * axis.limits.velocity / seen.scenario.servo_rate
        if jump > most:
            yield Found(
                f"port.start_tolerance for {place}",
                f"{tolerance:g}",
                f"is a jump of {1e3 * jump:.3g} mm, {1e3 * most:.3g} mm is {STEPS:g} samples at limits.velocity",
            )


TIMES = rules_in(globals())
