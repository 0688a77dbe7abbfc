# SPDX-License-Identifier: Apache-2.0
"""Tests of the receiver of a rig, in C: following, bridging, braking, limits, sessions, refusals."""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_compiler import require_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import EMPTY
from rths_nodes.laboratory import receiver as module
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head
from rths_nodes.laboratory.receiver import Receiver, ReceiverLimits, ReceiverLoad

require_compiler()

TARGET = Path(__file__).resolve().parents[2] / "examples" / "udp_target"
RATE = 1000.0
DT = 1.0 / RATE
STROKE, VELOCITY, ACCELERATION = 0.1, 0.5, 20.0
LIMITS = ReceiverLimits(STROKE, VELOCITY, ACCELERATION)
BRIDGED, WATCHDOG = 10, 60
SESSION = 77
CLOSE = 1e-9


class Bench:
    """A receiver, and a test computer whose datagrams a test sends explicitly."""

    def __init__(
        self,
        transport: int = 1,
        flags: int = 0,
        axes: int = 1,
        begin: bool = True,
        limits: ReceiverLimits | list[ReceiverLimits] = LIMITS,
        watchdog: int = WATCHDOG,
        bridged: int = BRIDGED,
        **options: Any,
    ) -> None:
        rows = limits if isinstance(limits, list) else [limits] * axes
        self.receiver = Receiver(rows, DT, bridged, watchdog, flags, **options)
        self.axes, self.transport, self.flags = axes, transport, flags
        self.commands = [self.receiver.command]
        if begin:
            self.begin()
            self.tick()

    def begin(self) -> None:
        assert self.send(self.head(datagrams.OPEN)) == "taken"
        assert datagrams.head_of(self.receiver.reply()).reason == 0
        assert self.send(self.head(datagrams.BEGIN)) == "taken"

    def head(self, kind: int, counter: int = 0, session: int = SESSION) -> Head:
        period = round(DT * 1e9)
        return Head(kind, self.axes, session, counter, period=period, flags=self.flags, transport=self.transport)

    def send(self, head: Head, rows: bytes = b"", sender: int = 0) -> str:
        return self.receiver.receive(datagrams.packed(head, rows), sender)

    def points(self, counter: int, points: list[float], slopes: list[float], sender: int = 0) -> str:
        """Send a Command of points, m, and slopes, m/s."""
        rows = datagrams.command_rows(points, slopes, EMPTY)
        return self.send(self.head(datagrams.COMMAND, counter), rows, sender)

    def command(self, counter: int, path: Callable[[int], float], session: int = SESSION) -> str:
        now, before = path(counter), path(counter - 1)
        rows = datagrams.command_rows([now] * self.axes, [(now - before) * RATE] * self.axes, EMPTY)
        return self.send(self.head(datagrams.COMMAND, counter, session), rows)

    def tick(self) -> Head | None:
        data = self.receiver.state()
        self.receiver.drive()
        self.commands.append(self.receiver.command)
        return datagrams.head_of(data) if data else None

    def wait(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()

    def run(self, samples: Iterable[int], path: Callable[[int], float], lost: Container[int] = ()) -> list[Head]:
        """Send the Command of each sample, unless it is lost, and tick; return the states."""
        heads = []
        for k in samples:
            if k not in lost:
                self.command(k, path)
            heads.append(self.tick())
        return heads  # type: ignore[return-value]

    def refused(self, head: Head, sender: int = 0) -> int:
        """Send a head that must be refused, and return the reason in the answer."""
        assert self.send(head, sender=sender) == "refused"
        return datagrams.head_of(self.receiver.reply()).reason

    def history(self) -> np.ndarray:
        """The command of the first axis after each tick, m."""
        return np.array(self.commands)[:, 0]


def wave(k: int) -> float:
    """1.5 Hz, 30 mm: 0.28 m/s and 2.7 m/s^2."""
    return 0.03 * (1.0 - math.cos(2.0 * math.pi * 1.5 * k * DT))


def within_limits(history: np.ndarray) -> None:
    assert (np.abs(np.diff(history, axis=0)) <= VELOCITY * DT * (1.0 + 2e-6)).all()
    assert (np.abs(history) <= STROKE).all()


@pytest.mark.parametrize("transport", [1, 2, 7, 31])
def test_commands_act_exactly_after_transport(transport: int) -> None:
    bench = Bench(transport)
    bench.run(range(1, 200), wave)
    # history[j] follows drive j - 1, which ends at state j, where Command j - transport acts
    history = bench.history()[transport + 1 :]
    np.testing.assert_array_equal(history, [wave(k) for k in range(1, len(history) + 1)])
    assert bench.receiver.counts()["bridged"] == 0


def test_lag_within_transport_loses_no_command() -> None:
    bench = Bench(transport=4)
    bench.wait(2)
    for k in range(1, 60, 3):
        for number in range(k, k + 3):  # three states are answered together
            bench.command(number, wave)
        bench.wait(3)
    history = bench.history()[5:]
    np.testing.assert_array_equal(history, [wave(k) for k in range(1, len(history) + 1)])
    assert bench.receiver.counts()["bridged"] == 0


def test_gap_is_bridged_along_slope() -> None:
    bench, lost = Bench(), range(100, 107)
    heads = bench.run(range(1, 300), wave, lost)
    history = bench.history()
    within_limits(history)
    flagged = [head.counter for head in heads if head.flags & datagrams.BRIDGED]
    assert flagged == [k + 1 for k in lost]
    slope = wave(99) - wave(98)
    np.testing.assert_allclose(history[101:108], wave(99) + slope * np.arange(1, 8), atol=1e-12)
    assert np.abs(np.diff(history[95:130], 2)).max() <= ACCELERATION * DT**2 * 1.001
    np.testing.assert_array_equal(history[150:], [wave(k) for k in range(149, 149 + len(history) - 150)])
    assert bench.receiver.counts()["bridged"] == len(lost)


def test_receiver_brakes_after_bridge_and_rejoins() -> None:
    bench = Bench()
    bench.run(range(1, 400), wave, range(100, 150))
    history = bench.history()
    within_limits(history)
    speed = np.abs(np.diff(history)) * RATE
    assert speed[100 + BRIDGED + math.ceil(VELOCITY / (ACCELERATION * DT)) : 150].max() == 0.0
    assert np.abs(np.diff(history[95:], 2)).max() <= ACCELERATION * DT**2 * 1.001
    assert history[-1] == wave(399)


def test_lost_test_computer_stops_rig_in_stated_time() -> None:
    bench = Bench(transport=3)
    last = 120
    bench.run(range(1, last + 1), wave)
    rest = bench.receiver.rest_samples
    assert rest == 3 + BRIDGED + math.ceil(VELOCITY * (1.0 + 1e-6) / (ACCELERATION * DT)) + 1
    heads = bench.run(range(last + 1, last + 200), wave, range(last + 1, last + 200))
    history = bench.history()
    within_limits(history)
    assert np.ptp(history[last + rest :]) == 0.0
    assert (heads[-1].state, heads[-1].reason) == (datagrams.STOPPED, 1)
    assert bench.receiver.at_rest
    assert bench.command(last + 200, wave) == "late"
    bench.tick()
    assert np.ptp(bench.history()[last + rest :]) == 0.0


def test_initial_position_is_held_until_first_command() -> None:
    bench = Bench(position=[0.04])
    bench.wait(2 * WATCHDOG)
    np.testing.assert_array_equal(bench.history(), 0.04)
    assert bench.receiver.counts()["bridged"] > BRIDGED


def test_bridge_continues_from_late_command() -> None:
    bench = Bench()
    bench.run(range(1, 100), wave)
    bench.tick()  # Command 100 is missing
    assert bench.command(100, wave) == "late"
    bench.tick()  # so is 101: the bridge continues from 100
    slope = wave(100) - wave(99)
    assert bench.commands[-1][0] == pytest.approx(wave(100) + slope, abs=1e-12)


def test_repeated_early_and_foreign_datagrams_are_ignored() -> None:
    bench, undisturbed = Bench(), Bench()
    for k in range(1, 200):
        assert bench.command(k, lambda k: -wave(k), session=SESSION + 1) == "foreign"
        assert bench.command(k + 5, wave) == "early"
        assert bench.send(bench.head(datagrams.CLOSE, session=SESSION + 1)) == "foreign"
        assert bench.receiver.receive(bytes(50)) == "garbage"
        assert bench.command(k, wave) == "taken"
        assert bench.command(k, lambda k: 2.0 * wave(k)) == "repeated"
        assert bench.send(bench.head(datagrams.BEGIN)) == "repeated"
        undisturbed.command(k, wave)
        bench.tick()
        undisturbed.tick()
    assert bench.commands == undisturbed.commands
    counts = bench.receiver.counts()
    assert (counts["foreign"], counts["garbage"], counts["early"], counts["repeated"]) == (398, 199, 199, 398)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_command_that_is_not_finite_is_garbage(value: float) -> None:
    bench = Bench()
    for pair in ([value, 0.0], [0.0, value]):
        assert bench.points(1, pair[:1], pair[1:]) == "garbage"


def test_jump_is_approached_within_limits() -> None:
    bench = Bench()
    heads = bench.run(range(1, 400), lambda k: 0.05 if k > 50 else 0.0)
    history = bench.history()
    within_limits(history)
    assert np.abs(np.diff(history, 2)).max() <= ACCELERATION * DT**2 * 1.001
    assert history[-1] == 0.05
    assert history.max() <= 0.05 + 1e-6
    assert any(head.flags & datagrams.LIMITED for head in heads)


def test_open_interlock_stops_rig() -> None:
    bench = Bench()
    bench.run(range(1, 100), wave)
    bench.receiver.sensors.interlock = 2
    heads = bench.run(range(100, 200), wave)
    assert (heads[-1].state, heads[-1].reason, heads[-1].interlock) == (datagrams.STOPPED, 3, 2)
    within_limits(bench.history())
    assert np.ptp(bench.history()[-60:]) == 0.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"axes": 2}, 6),
        ({"period": 1}, 7),
        ({"transport": 0}, 8),
        ({"transport": 32}, 8),
        ({"auxiliary": 1}, 9),
        ({"flags": datagrams.RAMP}, 10),
        ({"flags": datagrams.LOCKSTEP}, 11),
        ({"flags": datagrams.EMULATOR}, 12),
        ({"session": 0}, 4),
    ],
)
def test_incompatible_session_is_refused(change: dict[str, int], reason: int) -> None:
    bench = Bench(begin=False)
    head = bench.head(datagrams.OPEN)
    for name, value in change.items():
        setattr(head, name, value)
    assert bench.refused(head) == reason
    assert bench.receiver.state_number == datagrams.IDLE


def test_second_session_needs_operator() -> None:
    bench = Bench()
    for _ in range(2):  # during a session and after it
        assert bench.send(bench.head(datagrams.OPEN, session=SESSION + 1)) == "refused"
        answer = datagrams.head_of(bench.receiver.reply())
        assert answer.session == SESSION + 1
        assert answer.reason == 4
        bench.send(bench.head(datagrams.CLOSE))
        bench.tick()
    assert bench.receiver.at_rest


def refusal(axes: int = 1, **changes: Any) -> str:
    """Return the reason for refusing a configuration with ``changes``; limits change in the last axis."""
    limits = [LIMITS] * (axes - 1) + [LIMITS._replace(**changes.pop("limits", {}))]
    options = {"dt": DT, "bridged": BRIDGED, "watchdog": WATCHDOG} | changes
    with pytest.raises(ConfigError) as refused:
        Receiver(limits, **options)
    return str(refused.value)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("field", ReceiverLimits._fields)
def test_invalid_limit_is_refused(field: str, value: float) -> None:
    assert f"receiver.limits[2].{field} = {value:g}: must be > 0" in refusal(3, limits={field: value})


@pytest.mark.parametrize(
    ("field", "value", "bound"),
    [("stroke", 10.001, "10 m"), ("velocity", 100.1, "100 m/s"), ("acceleration", 10_001.0, "10 000 m/s^2")],
)
def test_implausible_limit_is_refused(field: str, value: float, bound: str) -> None:
    """A stroke of 250 is in mm, and would allow any motion."""
    reason = refusal(2, limits={field: value})
    for part in (f"limits[1].{field} = {value:g}", f"at most {bound}"):
        assert part in reason
    Receiver([LIMITS._replace(**{field: value})], DT, BRIDGED, WATCHDOG, metres=[1000.0])
    assert field in refusal(limits={field: 1000.0 * value}, metres=[1000.0])


LOAD = ReceiverLoad(rate=1.0, stiffness=1.0)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"limits": {"stroke": math.inf}}, ("limits[0].stroke", "inf", "> 0", "10 m")),
        ({"bridged": 10, "watchdog": 10}, ("watchdog", "10", "bridged")),
        ({"watchdog": 10_001}, ("watchdog", "10001", "1 000 000", "10 s")),
        ({"dt": 1e-6}, ("period_ns", "1000", "10 000 to 1 000 000 000 ns")),
        ({"dt": 2.0}, ("period_ns", "2e+09", "10 000 to 1 000 000 000 ns")),
        ({"persistence": 0}, ("persistence", "0", "1")),
        ({"inputs": 9}, ("inputs", "9", "0 to 8")),
        ({"channels": 9}, ("channels", "9", "0 to 8")),
        ({"flags": datagrams.LOCKSTEP}, ("flags", "2", "RTHS_LOCKSTEP")),
        ({"position": [0.11]}, ("position[0]", "0.11", "stroke")),
        ({"units": [0.0]}, ("unit[0]", "0")),
        ({"metres": [-1.0]}, ("metre[0]", "-1", "> 0")),
        ({"limits": {"acceleration": 1e-9}}, ("limits[0].velocity",)),
        ({"loads": [LOAD._replace(rate=-1.0)]}, ("load[0].rate", "-1")),
        ({"loads": [LOAD._replace(stiffness=0.0)]}, ("load[0].stiffness", "0")),
        ({"loads": [LOAD._replace(unit=0.0)]}, ("load[0].unit", "0")),
        ({"loads": [LOAD._replace(error=0.0)]}, ("load[0].error", "0")),
        ({"loads": [LOAD._replace(travel=-1.0)]}, ("load[0].travel", "-1")),
        ({"loads": [LOAD._replace(curvature=math.inf)]}, ("load[0].curvature", "inf")),
        ({"loads": [LOAD._replace(coupled=1)]}, ("load[0].coupled", "1")),
        ({"loads": [LOAD], "switching": 0, "limits": {"force": 1.0}}, ("switching", "0", "1")),
        ({"loads": [LOAD]}, ("limits[0].force", "inf", "finite")),
    ],
)
def test_invalid_field_is_named(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    assert mentions(refusal(**changes), *parts)


def test_result_codes_are_negative_and_named() -> None:
    """Callers may test for nonzero or negative results."""
    library = module.library()
    texts = [(library.rths_field(-field), library.rths_bound(-field)) for field in range(2, 29)]
    assert all(name and bound for name, bound in texts)
    assert library.rths_field(0) == library.rths_bound(0) == library.rths_field(-1) == b""
    assert library.rths_field(-31) == b"", "beyond the last field"
    assert [library.rths_axis(-field) for field in (3, 11, 11 + 32 * 7, 27 + 32)] == [-1, 0, 7, -1]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["taken", "lost", "late", "twice", "swapped", "wild", "garbage", "foreign"]),
        st.integers(1, 30),
        st.floats(-0.4, 0.4, allow_nan=False),
    ),
    min_size=1,
    max_size=25,
)


def check_events(transport: int, events: list[tuple[str, int, float]]) -> None:
    """Check that steps stay within the limits and the rig is at rest in the stated time after the last command."""
    bench = Bench(transport, axes=2)
    k, position, delayed = 0, 0.0, []
    for event, count, speed in events:
        for _ in range(count):
            k += 1
            before = position
            position = min(max(position + speed * DT, -STROKE), STROKE)

            def path(n: int, now: float = position, before: float = before, k: int = k) -> float:
                return now if n == k else before

            if event in ("late", "swapped"):
                delayed.append((k, path))
                if len(delayed) > (1 if event == "swapped" else 3):
                    for number, old in reversed(delayed):
                        bench.command(number, old)
                    delayed.clear()
            elif event == "wild":
                bench.command(k, lambda n, s=speed: 1e300 * s * n)
            elif event == "garbage":
                bench.receiver.receive(bytes(np.random.default_rng(k).integers(0, 256, 100, np.uint8)))
            elif event == "foreign":
                bench.command(k, path, session=1)
            elif event != "lost":
                for _ in range(2 if event == "twice" else 1):
                    bench.command(k, path)
            bench.tick()
    end = len(bench.commands) + bench.receiver.rest_samples
    bench.wait(WATCHDOG + bench.receiver.rest_samples + 5)
    history = np.array(bench.commands)
    within_limits(history)
    assert not np.ptp(history[end:], axis=0).any()
    assert bench.receiver.at_rest
    np.testing.assert_array_equal(history[:, 0], history[:, 1])


@given(st.sampled_from([1, 2, 5]), EVENTS)
@settings(max_examples=25)
def test_random_events_keep_limits_and_end_at_rest(transport: int, events: Any) -> None:
    check_events(transport, events)


@pytest.mark.soak
@given(st.integers(1, 31), EVENTS)
@settings(max_examples=3000)
def test_many_random_events_keep_limits(transport: int, events: Any) -> None:
    check_events(transport, events)


def make(folder: Path, *arguments: str) -> str:
    """Run ``make`` in a copy of the receiver's folder and return its output."""
    shutil.copytree(TARGET, folder / "target")
    command = ["make", *arguments]
    run = subprocess.run(command, cwd=folder / "target", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_strict_build_has_no_undefined_behaviour(tmp_path: Path) -> None:
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    command = ["cc", "-fsanitize=address,undefined", str(probe), "-o", str(tmp_path / "probe")]
    sanitized = subprocess.run(command, capture_output=True, check=False).returncode == 0
    make(tmp_path, "check" if sanitized else "rths_target.o")


def test_missing_compiler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no_such_compiler")
    with pytest.raises(ConfigError, match=naming("C", "no_such_compiler")):
        module.library.__wrapped__()


def test_trigger_follows_its_command() -> None:
    bench = Bench(transport=3, flags=datagrams.TRIGGER)
    flags = [0] * 10 + [datagrams.TRIGGER] * 20 + [0] * 10
    states = []
    for k, flag in enumerate(flags, 1):
        bench.flags = flag
        if k not in (15, 16):  # the trigger is held during a bridge
            bench.command(k, wave)
        head = bench.tick()
        assert head is not None
        states.append(bool(head.flags & datagrams.TRIGGER))
    assert [bool(flag) for flag in flags[:-3]] == states[3:]  # state k + q is the first after Command k
    assert not any(states[:3])


def test_trigger_falls_at_stop() -> None:
    bench = Bench(flags=datagrams.TRIGGER)
    bench.run(range(1, 20), wave)
    assert bench.receiver.trigger == 1
    assert bench.send(bench.head(datagrams.CLOSE)) == "taken"
    assert bench.receiver.trigger == 0


def test_trigger_without_output_is_refused() -> None:
    bench = Bench(begin=False)
    bench.flags = datagrams.TRIGGER
    assert mentions(datagrams.REASONS[bench.refused(bench.head(datagrams.OPEN))], "digital", "output")


# Stops and groups of axes


def accelerations(history: np.ndarray) -> np.ndarray:
    """Magnitudes of acceleration, m/s^2."""
    return np.abs(np.diff(np.asarray(history), 2, axis=0)) / DT**2


@pytest.mark.parametrize("following", [math.inf, 5.0])
def test_commands_lost_near_stroke_stop_within_it(following: float) -> None:
    """0.49 m/s, 1 mm before the stroke of 0.12 m; an abrupt stop there had 295 m/s^2."""
    bench = Bench(limits=ReceiverLimits(0.12, 0.5, 5.0, following))
    x, k = 0.0, 0
    while x < 0.119:
        k += 1
        before, x = x, x + 0.49 * DT * min(k / 150.0, 1.0)
        bench.points(k, [x], [(x - before) * RATE])
        bench.tick()
    bench.wait(300)
    history = bench.history()
    assert accelerations(history).max() <= 5.0 * (1.0 + 1e-6)
    assert 0.11 < history.max() <= 0.12
    assert history[-1] == history[-50]


def test_command_to_stroke_is_followed() -> None:
    bench = Bench()
    bench.run(range(1, 1001), lambda k: 0.5 * STROKE * (1.0 - math.cos(math.pi * min(k / 1000.0, 1.0))))
    assert bench.history().max() == STROKE
    assert bench.receiver.counts()["limited"] == 0


def test_commands_beyond_following_acceleration_are_limited() -> None:
    bench = Bench(limits=LIMITS._replace(following=ACCELERATION))
    rng = np.random.default_rng(3)
    for k in range(1, 2000):
        bench.points(k, [bench.receiver.command[0] + rng.uniform(-1.0, 1.0) * VELOCITY * DT], [0.0])
        bench.tick()
    assert accelerations(bench.history()).max() <= ACCELERATION * (1.0 + 1e-6)
    assert bench.receiver.counts()["limited"] > 1000


@pytest.mark.parametrize(("groups", "deviation"), [([0, 0], 1e-12), ([0, 1], 1e-3)])
def test_axes_of_group_stop_on_common_line(groups: list[int], deviation: float) -> None:
    """0.30 and 0.10 m/s at 10 m/s^2: separate stops leave the line by 1.0 mm."""
    bench = Bench(axes=2, limits=ReceiverLimits(0.25, 0.5, 10.0), groups=groups)
    position = np.zeros(2)
    for k in range(1, 200):
        position = position + np.array([0.3, 0.1]) * DT * min(k / 100.0, 1.0)
        bench.points(k, position.tolist(), [0.3, 0.1])
        bench.tick()
    bench.wait(100)
    history = np.array(bench.commands)
    assert np.abs(history[:, 1] - history[:, 0] / 3.0).max() == pytest.approx(deviation, rel=0.02, abs=1e-12)
    assert not np.ptp(history[-40:], axis=0).any()
    assert accelerations(history[200:]).max() <= 10.0 * (1.0 + 1e-6)


def test_common_stop_stays_within_stroke() -> None:
    """The slow axis stops in 0.5 mm alone, and in 1.5 mm with the fast axis."""
    bench = Bench(axes=2, limits=ReceiverLimits(0.25, 0.5, 10.0), groups=[4, 4], position=[0.0, 0.2])
    point, k = np.array([0.0, 0.2]), 0
    while point[1] < 0.2495:
        k += 1
        point = point + np.array([0.3, 0.1]) * DT * min(k / 100.0, 1.0)
        point[0] = min(point[0], 0.2)
        bench.points(k, point.tolist(), [0.3, 0.1])
        bench.tick()
    bench.wait(100)
    history = np.array(bench.commands)
    assert (np.abs(history) <= 0.25).all()
    assert accelerations(history).max() <= 10.0 * (1.0 + 1e-6)


def test_axes_of_group_return_without_overshoot() -> None:
    """The fast axis stops at its point; with the deceleration of the common stop it would pass it by 25 mm."""
    limits = [ReceiverLimits(0.15, 1.4, 7.0), ReceiverLimits(0.145, 1.25, 21.0)]
    bench = Bench(axes=2, limits=limits, groups=[0, 0], position=[-0.05, -0.05])
    points = np.array([0.085, 0.12])
    for k in range(1, 600):
        bench.points(k, points.tolist(), [0.0, 0.0])
        bench.tick()
    history = np.array(bench.commands)
    assert (history.max(axis=0) <= points + 1e-9).all()
    assert history[-1] == pytest.approx(points, abs=1e-12)


@given(st.lists(st.tuples(*[st.floats(-1.0, 1.0)] * 3), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_stop_from_random_state_stays_within_limits(rows: list[tuple[float, float, float]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    limits = [ReceiverLimits(*rng.uniform([0.01, 0.1, 1.0], [0.1, 1.0, 20.0])) for _ in rows]
    groups = rng.integers(0, 3, len(rows)).tolist()
    start = [0.9 * row[0] * limit.stroke for row, limit in zip(rows, limits, strict=True)]
    bench = Bench(axes=len(rows), begin=False, limits=limits, watchdog=2, bridged=1, groups=groups, position=start)
    bench.begin()
    position = np.array(start)
    for k in range(150):
        bench.tick()
        slopes = [row[1] * limit.velocity * min(k / 100.0, 1.0) for row, limit in zip(rows, limits, strict=True)]
        position = position + np.array(slopes) * DT
        bench.points(k + 1, position.tolist(), slopes)
    while not bench.receiver.at_rest:
        bench.tick()
        assert len(bench.commands) < 151 + bench.receiver.rest_samples
    history = np.array(bench.commands)
    assert (np.abs(history) <= [limit.stroke for limit in limits]).all()
    acceleration = np.array([limit.acceleration for limit in limits])
    rounding = 1e-12 / DT**2
    assert (accelerations(history[151:]) <= acceleration * (1.0 + 1e-6) + rounding).all()


@pytest.mark.parametrize(
    ("count", "seed"), [(2_000, 1), pytest.param(100_000, 2, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]
)
def test_random_stops_stay_within_acceleration(count: int, seed: int) -> None:
    """Random positions up to the stroke, velocities up to the limits, groups and causes of the stop."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.integers(1, 4))
        velocity = rng.uniform(0.1, 1.0, n)
        acceleration = velocity / (DT * 10.0 ** rng.uniform(0.0, 1.8, n))  # up to 63 samples to rest
        stroke, groups = rng.uniform(0.01, 0.1, n), rng.integers(0, 2, n)
        start = (stroke * (1.0 - 10.0 ** rng.uniform(-6, 0, n)) * rng.choice([-1.0, 1.0], n)).tolist()
        slopes = (velocity * rng.choice([-1.0, 1.0], n) * rng.uniform(0.0, 1.0, n)).tolist()
        limits = [ReceiverLimits(*row) for row in zip(stroke, velocity, acceleration, strict=True)]
        options: dict[str, Any] = {"groups": groups.tolist(), "position": start}
        bench = Bench(axes=n, limits=limits, watchdog=2, bridged=1, **options)
        bench.points(1, [x + v * DT for x, v in zip(start, slopes, strict=True)], slopes)
        bench.tick()
        cause = rng.integers(3)  # 2: commands are lost
        if cause == 0:
            bench.send(bench.head(datagrams.CLOSE, 1))
        elif cause == 1:
            bench.receiver.sensors.interlock = 2
        while not bench.receiver.at_rest:
            bench.tick()
            assert len(bench.commands) <= 3 + bench.receiver.rest_samples
        history = np.array(bench.commands[1:])
        assert (np.abs(history) <= stroke).all()
        bound = acceleration * (1.0 + 1e-6) + 1e-15 / DT**2
        assert (accelerations(history) <= bound).all(), (limits, groups, start, slopes, cause)
        steps = np.diff(history, axis=0)
        for group in (groups == 0, groups == 1):
            along = steps[:, group]
            if cause < 2 and group.sum() > 1:  # a bridge may move an axis without room away from the line
                assert np.abs(along[1:, :1] * along[:1] - along[1:] * along[:1, :1]).max(initial=0.0) < 1e-14


def test_stated_stop_time_is_correct_for_large_values() -> None:
    receiver = Receiver([ReceiverLimits(10.0, 100.0, 2e-3)], DT, BRIDGED, WATCHDOG)
    assert 5e7 <= receiver.rest_samples <= 5.01e7
    with pytest.raises(ConfigError, match=r"2\^28 samples"):
        Receiver([ReceiverLimits(10.0, 100.0, 2e-5)], DT, BRIDGED, WATCHDOG)


# Limits of force and error


@pytest.mark.parametrize(
    ("limits", "field", "value", "reason"),
    [
        (LIMITS._replace(force=1e3), "force", 1001.0, 14),
        (LIMITS._replace(force=1e3), "force", math.nan, 14),
        (LIMITS._replace(error=0.01), "displacement", 0.08, 15),
        (LIMITS._replace(error=0.01), "displacement", math.nan, 15),
        (LIMITS, "force", 1e9, 0),
        (LIMITS, "displacement", math.nan, 0),
    ],
)
def test_persistent_force_or_error_stops_rig(
    limits: ReceiverLimits, field: str, value: float, reason: int
) -> None:
    bench = Bench(limits=limits, persistence=3)
    measured = getattr(bench.receiver.sensors, field)

    def run(samples: Iterable[int], reading: float) -> Head:
        for k in samples:
            bench.receiver.sensors.displacement[0] = bench.receiver.command[0]
            measured[0] = reading if math.isnan(reading) or reading else measured[0]
            bench.command(k, wave)
            head = bench.tick()
        assert head is not None
        measured[0] = 0.0
        return head

    run(range(1, 100), 0.0)
    assert run(range(100, 102), value).state == datagrams.RUNNING  # two samples, then none
    run(range(102, 103), 0.0)
    head = run(range(103, 106), value)
    assert (head.state, head.reason) == (datagrams.BRAKING if reason else datagrams.RUNNING, reason)
    assert accelerations(bench.history()).max() <= ACCELERATION * (1.0 + 1e-6)


def test_command_and_sensor_of_different_scales_are_compared() -> None:
    """Command of 26 mm/V, sensor of -27.5 mm/V: the error of an exact rig is zero."""
    bench = Bench(limits=LIMITS._replace(error=1e-6), units=[-27.5 / 26.0])
    for k in range(1, 300):
        bench.receiver.sensors.displacement[0] = bench.receiver.command[0] * -26.0 / 27.5
        bench.command(k, wave)
        bench.tick()
    assert bench.receiver.reason == 0


def test_answer_has_limits_and_build() -> None:
    limits = ReceiverLimits(0.1, 0.5, 20.0, 7.0, math.inf, 0.02)
    bench = Bench(axes=8, begin=False, limits=limits, persistence=4)
    bench.send(bench.head(datagrams.OPEN))
    data = bench.receiver.reply()
    assert len(data) <= datagrams.LARGEST
    answer = datagrams.answer_of(data, datagrams.head_of(data))
    assert answer.limits == [datagrams.FarLimits(0.1, 0.5, 20.0, math.inf, 0.02)] * 8
    assert (answer.bridged, answer.watchdog, answer.persistence) == (BRIDGED, WATCHDOG, 4)
    assert answer.build == module.build_number() != 0


# Versions and senders


def of_version(data: bytes, version: int) -> bytes:
    """Return a datagram with another version in its head."""
    body = data[:4] + version.to_bytes(2, "little") + data[6 : -datagrams.CHECKSUM.size]
    return body + datagrams.CHECKSUM.pack(zlib.crc32(body))


def test_open_of_version_1_is_refused_in_version_1() -> None:
    bench = Bench(begin=False)
    assert bench.receiver.receive(of_version(datagrams.packed(bench.head(datagrams.OPEN)), 1)) == "refused"
    reply = bench.receiver.reply()
    with pytest.raises(datagrams.Unreadable, match="the version is 1; must be 2") as refused:
        datagrams.head_of(reply)
    assert (refused.value.version, refused.value.session) == (1, SESSION)
    assert datagrams.Head(*datagrams.HEAD.unpack_from(reply)[2:]).reason == 5
    assert bench.receiver.receive(of_version(datagrams.packed(bench.head(datagrams.BEGIN)), 1)) == "garbage"


@pytest.mark.parametrize("kind", [datagrams.OPEN, datagrams.BEGIN, datagrams.CLOSE])
@pytest.mark.parametrize("excess", [1, 8, 64, 476])
def test_session_datagram_of_wrong_length_is_garbage(kind: int, excess: int) -> None:
    bench = Bench(begin=kind == datagrams.CLOSE)
    if kind == datagrams.BEGIN:
        bench.send(bench.head(datagrams.OPEN))
    before = bench.receiver.state_number
    assert bench.send(bench.head(kind), bytes(excess)) == "garbage"
    assert bench.receiver.state_number == before


def test_other_sender_cannot_join_session() -> None:
    bench, undisturbed = Bench(), Bench()
    stranger = 2
    for k in range(1, 200):
        for session in (SESSION, SESSION + 1):
            for kind in (datagrams.BEGIN, datagrams.CLOSE):
                assert bench.send(bench.head(kind, session=session), sender=stranger) == "foreign"
        assert bench.points(k, [0.09], [0.4], stranger) == "foreign"
        assert bench.refused(bench.head(datagrams.OPEN), stranger) == 4
        assert bench.command(k, wave) == undisturbed.command(k, wave) == "taken"
        bench.tick()
        undisturbed.tick()
    assert bench.commands == undisturbed.commands
    assert bench.receiver.sender == 0


def test_other_sender_cannot_begin_waiting_session() -> None:
    bench = Bench(begin=False)
    assert bench.send(bench.head(datagrams.OPEN), sender=7) == "taken"
    assert bench.send(bench.head(datagrams.OPEN), sender=8) == "refused"
    assert bench.send(bench.head(datagrams.BEGIN), sender=8) == "foreign"
    assert bench.send(bench.head(datagrams.BEGIN), sender=7) == "taken"
    assert bench.receiver.sender == 7


@pytest.mark.parametrize("mode", [2, 255])
def test_force_command_is_garbage(mode: int) -> None:
    bench = Bench()
    head, row = bench.head(datagrams.COMMAND, 1), datagrams.COMMAND_ROW.pack(0.0, 0.0, 0)
    assert bench.send(head, datagrams.COMMAND_ROW.pack(0.0, 0.0, mode)) == "garbage"
    assert bench.send(head, row[:-1] + b"1") == "garbage"
    assert bench.send(head, row) == "taken"


def test_old_command_does_not_replace_newer_one() -> None:
    bench = Bench(transport=5, watchdog=1000)
    bench.wait(80)
    assert bench.points(80, [1e-5], [0.0]) == "taken"
    assert bench.points(16, [2e-5], [0.0]) == "late"
    bench.wait(6)
    assert bench.commands[-1] == pytest.approx([1e-5])


def test_stop_clears_queue() -> None:
    bench = Bench(transport=20)
    bench.run(range(1, 30), wave)
    bench.send(bench.head(datagrams.CLOSE))
    assert not any(command.counter for command in bench.receiver._target.queue)


def test_session_ends_before_counter_overflows() -> None:
    """The receiver stops 2^28 samples before 2^32, where it would hold and refuse commands."""
    bench = Bench(transport=5)
    target = bench.receiver._target
    last = 0xF0000000
    target.counter, target.driven, target.newest, target.base.counter = last - 50, last - 51, last - 51, last - 51
    for k in range(last - 50, last + 60):
        x = min(k - last + 50, 50) ** 2 * 1e-7
        bench.points(k, [x], [2e-3 * (k - last + 50)])
        head = bench.tick()
        assert head is not None
        assert (head.reason == 16) == (k >= last)
    assert bench.receiver.at_rest
    assert accelerations(bench.history()).max() <= ACCELERATION * (1.0 + 1e-6)
    target.counter = 2**32 - 2
    assert [head.counter for _ in range(3) if (head := bench.tick())] == [2**32 - 2, 2**32 - 1, 2**32 - 1]


# Documented loop

PRELUDE = """
#include <string.h>
#include "rths_target.h"
static struct { uint64_t sender; size_t size; uint8_t data[RTHS_MAX_BYTES]; } box[64];
static size_t waiting, taken;
uint64_t sent_to[64]; size_t sent;
DECLARED
void arrive(uint64_t sender, const uint8_t *data, size_t size) {
  box[waiting].sender = sender; box[waiting].size = size; memcpy(box[waiting++].data, data, size);
}
static size_t your_socket_read(uint8_t *into, size_t capacity, uint64_t *sender) {
  if (taken == waiting || capacity < box[taken].size) { waiting = taken = 0; return 0; }
  *sender = box[taken].sender; memcpy(into, box[taken].data, box[taken].size);
  return box[taken++].size;
}
static void your_socket_send(const uint8_t *data, size_t size, uint64_t whom) {
  if (size && data[RTHS_AT_KIND] == RTHS_STATE) sent_to[sent++ % 64] = whom;
}
static void your_sensors(rths_sensors *measured) { memset(measured, 0, sizeof *measured); }
double reached;
static void your_controller(const uint8_t *mode, const double *command, const double *velocity) {
  (void)velocity; if (mode[0] == RTHS_BY_DISPLACEMENT) reached = command[0];
}
static void your_digital_output(uint32_t high) { (void)high; }
static void your_horn(uint32_t high) { (void)high; }
int begin(void) {
  static const double position[1] = {0.0};
  static rths_config config;
  config.axes = 1; config.period_ns = 1000000u; config.bridged = 10u; config.watchdog = 60u;
  config.persistence = 1u;
  config.limits[0] = (rths_limits){0.12, 0.5, 5.0, HUGE_VAL, HUGE_VAL, HUGE_VAL}; config.unit[0] = 1.0;
  return rths_init(&target, &config, position);
}
void tick(void) {
  uint8_t in[RTHS_MAX_BYTES], out[RTHS_MAX_BYTES]; size_t size; uint64_t sender; rths_sensors measured; LOOP
}
"""


def test_documented_loop_ignores_other_senders(tmp_path: Path) -> None:
    """An earlier loop made a stranger the peer after one OPEN: 1399 states, and the command at 0.1 m."""
    page = (TARGET.parents[1] / "doc" / "receiver.md").read_text()
    (snippet,) = re.findall(r"```c\n(static rths_target target;.*?)```", page, re.DOTALL)
    declared, _, loop = snippet.partition("\n")
    source, built = tmp_path / "loop.c", tmp_path / "loop.so"
    source.write_text("#include <math.h>\n" + PRELUDE.replace("DECLARED", declared).replace("LOOP", loop))
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{TARGET}"]
    command = ["cc", *strict, str(source), str(TARGET / "rths_target.c"), "-lm", "-o", str(built)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rig = ctypes.CDLL(str(built))
    assert rig.begin() == 0

    def arrive(sender: int, kind: int, counter: int = 0, session: int = SESSION, rows: bytes = b"") -> None:
        data = datagrams.packed(Head(kind, 1, session, counter, period=1_000_000, transport=1), rows)
        rig.arrive(ctypes.c_uint64(sender), data, ctypes.c_size_t(len(data)))

    peer, stranger = 0xC0A80701_0000 + 25011, 0xC0A80799_0000 + 25011
    for kind in (datagrams.OPEN, datagrams.BEGIN):
        arrive(peer, kind)
    rig.tick()
    for k in range(1, 60):
        arrive(peer, datagrams.COMMAND, k, rows=datagrams.command_rows([1e-6 * k], [1e-3], EMPTY))
        for session in (SESSION, SESSION + 1, 0):
            for kind in (datagrams.OPEN, datagrams.BEGIN, datagrams.CLOSE):
                arrive(stranger, kind, session=session)
            row = datagrams.command_rows([1e-6 * k + 4e-4], [0.4], EMPTY)
            arrive(stranger, datagrams.COMMAND, k, session, row)
        rig.tick()
    assert ctypes.c_size_t.in_dll(rig, "sent").value == 60
    assert set((ctypes.c_uint64 * 64).in_dll(rig, "sent_to")[:60]) == {peer}
    assert ctypes.c_double.in_dll(rig, "reached").value == 1e-6 * 59


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_million_hostile_datagrams_are_handled(tmp_path: Path) -> None:
    output = make(tmp_path, "check", "ROUNDS=50000")
    assert int(re.findall(r"(\d+) datagrams", output)[0]) >= 10**7
