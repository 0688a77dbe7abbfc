# SPDX-License-Identifier: Apache-2.0
"""The receiver at the rig, in C: it follows, bridges, brakes, holds and rejoins, and never leaves its limits."""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import EMPTY
from rths_nodes.laboratory import receiver as module
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head
from rths_nodes.laboratory.receiver import Receiver, ReceiverLimits, ReceiverLoad

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)

TARGET = Path(__file__).resolve().parents[2] / "examples" / "udp_target"
RATE = 1000.0
DT = 1.0 / RATE
STROKE, VELOCITY, ACCELERATION = 0.1, 0.5, 20.0
LIMITS = ReceiverLimits(STROKE, VELOCITY, ACCELERATION)
BRIDGED, WATCHDOG = 10, 60
SESSION = 77
CLOSE = 1e-9


class Bench:
    """A receiver, and what a test computer sends to it by hand."""

    def __init__(
        self,
        transport: int = 1,
        flags: int = 0,
        axes: int = 1,
        begin: bool = True,
        limits: ReceiverLimits = LIMITS,
        watchdog: int = WATCHDOG,
        **given: Any,
    ) -> None:
        self.receiver = Receiver([limits] * axes, DT, BRIDGED, watchdog, flags, **given)
        self.axes, self.transport = axes, transport
        self.flags = flags
        self.commands = [self.receiver.command]
        if begin:
            assert self.send(self.head(datagrams.OPEN)) == "taken"
            assert datagrams.head_of(self.receiver.reply()).reason == 0
            assert self.send(self.head(datagrams.BEGIN)) == "taken"
            self.tick()

    def head(self, kind: int, counter: int = 0, session: int = SESSION) -> Head:
        period = round(DT * 1e9)
        return Head(kind, self.axes, session, counter, period=period, flags=self.flags, transport=self.transport)

    def send(self, head: Head, rows: bytes = b"", sender: int = 0) -> str:
        return self.receiver.receive(datagrams.packed(head, rows), sender)

    def points(self, counter: int, points: list[float], slopes: list[float], sender: int = 0) -> str:
        """A Command of these points, m, and slopes, m/s."""
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

    def run(self, samples: Iterable[int], path: Callable[[int], float], lost: Iterable[int] = ()) -> list[Head]:
        """Ticks ``samples``; before each comes the Command of its number, unless that is lost."""
        gone, heads = set(lost), []
        for k in samples:
            if k not in gone:
                self.command(k, path)
            heads.append(self.tick())
        return heads  # type: ignore[return-value]

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
def test_commands_act_exactly_when_declared_and_exactly_as_they_came(transport: int) -> None:
    bench = Bench(transport)
    bench.run(range(1, 200), wave)
    # history[j] is after drive j - 1, which ends at state j: Command j - transport acts there
    found, wanted = bench.history()[transport + 1 :], [wave(k) for k in range(1, 200)]
    np.testing.assert_array_equal(found, wanted[: len(found)])
    assert bench.receiver.counts()["bridged"] == 0


def test_a_test_computer_that_lags_within_the_transport_loses_nothing() -> None:
    bench = Bench(transport=4)
    bench.tick()
    bench.tick()
    for k in range(1, 60, 3):
        for number in range(k, k + 3):  # it answers three states at once
            bench.command(number, wave)
        for _ in range(3):
            bench.tick()
    found = bench.history()[5:]
    np.testing.assert_array_equal(found, [wave(k) for k in range(1, len(found) + 1)])
    assert bench.receiver.counts()["bridged"] == 0


def test_a_gap_is_bridged_along_the_slope_and_rejoined_within_bounds() -> None:
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


def test_after_the_bridge_it_brakes_and_holds_and_a_command_that_comes_back_is_rejoined() -> None:
    bench = Bench()
    bench.run(range(1, 400), wave, range(100, 150))
    history = bench.history()
    within_limits(history)
    speed = np.abs(np.diff(history)) * RATE
    assert speed[100 + BRIDGED + math.ceil(VELOCITY / (ACCELERATION * DT)) : 150].max() == 0.0
    assert np.abs(np.diff(history[95:], 2)).max() <= ACCELERATION * DT**2 * 1.001
    assert history[-1] == wave(399)


def test_a_dead_test_computer_brings_it_to_rest_within_its_stated_time_and_ends_the_session() -> None:
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


def test_a_rig_that_stands_elsewhere_stays_there_until_the_first_command() -> None:
    bench = Bench(position=[0.04])
    for _ in range(2 * WATCHDOG):
        bench.tick()
    np.testing.assert_array_equal(bench.history(), 0.04)
    assert bench.receiver.counts()["bridged"] > BRIDGED


def test_a_late_command_is_not_sent_but_the_bridge_goes_on_from_it() -> None:
    bench = Bench()
    bench.run(range(1, 100), wave)
    bench.tick()  # Command 100 is missing
    assert bench.command(100, wave) == "late"
    bench.tick()  # and 101: the line goes on from 100
    slope = wave(100) - wave(99)
    assert bench.commands[-1][0] == pytest.approx(wave(100) + slope, abs=1e-12)


def test_what_comes_twice_early_or_from_somebody_else_changes_nothing() -> None:
    bench, other = Bench(), Bench()
    for k in range(1, 200):
        assert bench.command(k, lambda k: -wave(k), session=SESSION + 1) == "foreign"
        assert bench.command(k + 5, wave) == "early"
        assert bench.send(bench.head(datagrams.CLOSE, session=SESSION + 1)) == "foreign"
        assert bench.receiver.receive(bytes(50)) == "garbage"
        assert bench.command(k, wave) == "taken"
        assert bench.command(k, lambda k: 2.0 * wave(k)) == "repeated"
        assert bench.send(bench.head(datagrams.BEGIN)) == "repeated"
        other.command(k, wave)
        bench.tick()
        other.tick()
    assert bench.commands == other.commands
    counts = bench.receiver.counts()
    assert (counts["foreign"], counts["garbage"], counts["early"], counts["repeated"]) == (398, 199, 199, 398)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_garbage(value: float) -> None:
    bench = Bench()
    for pair in ([value, 0.0], [0.0, value]):
        assert bench.send(bench.head(datagrams.COMMAND, 1), datagrams.command_rows(pair[:1], pair[1:], EMPTY)) == (
            "garbage"
        )


def test_a_jump_is_approached_within_the_limits() -> None:
    bench = Bench()
    heads = bench.run(range(1, 400), lambda k: 0.05 if k > 50 else 0.0)
    history = bench.history()
    within_limits(history)
    assert np.abs(np.diff(history, 2)).max() <= ACCELERATION * DT**2 * 1.001
    assert history[-1] == 0.05
    assert history.max() <= 0.05 + 1e-6
    assert any(head.flags & datagrams.LIMITED for head in heads)


def test_an_open_interlock_ends_the_session_and_brakes() -> None:
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
def test_a_session_that_does_not_fit_is_refused(change: dict[str, int], reason: int) -> None:
    bench = Bench(begin=False)
    head = bench.head(datagrams.OPEN)
    for name, value in change.items():
        setattr(head, name, value)
    assert bench.send(head) == "refused"
    assert datagrams.head_of(bench.receiver.reply()).reason == reason
    assert bench.receiver.state_number == datagrams.IDLE


def test_a_second_session_needs_an_operator() -> None:
    bench = Bench()
    for _ in range(2):  # while one is under way, and after it
        assert bench.send(bench.head(datagrams.OPEN, session=SESSION + 1)) == "refused"
        answer = datagrams.head_of(bench.receiver.reply())
        assert answer.session == SESSION + 1
        assert answer.reason == 4
        bench.send(bench.head(datagrams.CLOSE))
        bench.tick()
    assert bench.receiver.at_rest


def refusal(axes: int = 1, **given: Any) -> str:
    """What the receiver says of a config that differs by ``given`` from one that it takes, in its last axis."""
    limits = [LIMITS] * (axes - 1) + [LIMITS._replace(**given.pop("limits", {}))]
    words = {"dt": DT, "bridged": BRIDGED, "watchdog": WATCHDOG} | given
    with pytest.raises(ConfigError) as refused:
        Receiver(limits, **words)
    return str(refused.value)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("field", ReceiverLimits._fields)
def test_a_limit_that_is_none_is_refused(field: str, value: float) -> None:
    assert f"receiver.limits[2].{field} = {value:g}: must be > 0" in refusal(3, limits={field: value})


@pytest.mark.parametrize(
    ("field", "value", "bound"),
    [("stroke", 10.001, "10 m"), ("velocity", 100.1, "100 m/s"), ("acceleration", 10_001.0, "10 000 m/s^2")],
)
def test_a_limit_of_no_actuator_is_refused(field: str, value: float, bound: str) -> None:
    """A stroke of 250 is one in mm, and the receiver would let anything pass."""
    words = refusal(2, limits={field: value})
    for part in (f"limits[1].{field} = {value:g}", f"at most {bound}"):
        assert part in words
    Receiver([LIMITS._replace(**{field: value})], DT, BRIDGED, WATCHDOG, metres=[1000.0])
    assert field in refusal(limits={field: 1000.0 * value}, metres=[1000.0])


LOAD = ReceiverLoad(rate=1.0, stiffness=1.0)


@pytest.mark.parametrize(
    ("given", "words"),
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
def test_the_field_that_is_wrong_is_named(given: dict[str, Any], words: tuple[str, ...]) -> None:
    assert mentions(refusal(**given), *words)


def test_every_result_is_below_zero_and_has_a_name() -> None:
    """Callers that look for a number other than 0, or below it, need no change."""
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


def survives(transport: int, events: list[tuple[str, int, float]]) -> None:
    """Whatever comes: no step beyond the velocity limit, and at rest in the stated time after the last command."""
    bench = Bench(transport, axes=2)
    k, position, held = 0, 0.0, []
    for event, count, speed in events:
        for _ in range(count):
            k += 1
            before = position
            position = min(max(position + speed * DT, -STROKE), STROKE)

            def path(n: int, now: float = position, before: float = before, k: int = k) -> float:
                return now if n == k else before

            if event in ("late", "swapped"):
                held.append((k, path))
                if len(held) > (1 if event == "swapped" else 3):
                    for number, old in reversed(held):
                        bench.command(number, old)
                    held.clear()
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
    for _ in range(WATCHDOG + bench.receiver.rest_samples + 5):
        bench.tick()
    history = np.array(bench.commands)
    within_limits(history)
    assert not np.ptp(history[end:], axis=0).any()
    assert bench.receiver.at_rest
    np.testing.assert_array_equal(history[:, 0], history[:, 1])


@given(st.sampled_from([1, 2, 5]), EVENTS)
@settings(max_examples=25)
def test_whatever_comes_no_step_is_beyond_the_limits_and_it_comes_to_rest(transport: int, events: Any) -> None:
    survives(transport, events)


@pytest.mark.soak
@given(st.integers(1, 31), EVENTS)
@settings(max_examples=3000)
def test_whatever_comes_for_long(transport: int, events: Any) -> None:
    survives(transport, events)


def test_it_compiles_strictly_and_nothing_is_undefined_under_hostile_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    shutil.copytree(TARGET, folder)
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    built = subprocess.run(
        ["cc", "-fsanitize=address,undefined", str(probe), "-o", str(tmp_path / "probe")],
        capture_output=True,
        check=False,
    )
    goal = "check" if built.returncode == 0 else "rths_target.o"
    done = subprocess.run(["make", goal], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_machine_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no_such_compiler")
    with pytest.raises(ConfigError, match=naming("C", "no_such_compiler")):
        module.library.__wrapped__()


def test_the_trigger_is_high_from_the_sample_at_which_its_command_acts() -> None:
    bench = Bench(transport=3, flags=datagrams.TRIGGER)
    flags = [0] * 10 + [datagrams.TRIGGER] * 20 + [0] * 10
    seen = []
    for k, flag in enumerate(flags, 1):
        bench.flags = flag
        if k not in (15, 16):  # over a bridge it stays as it is
            bench.command(k, wave)
        head = bench.tick()
        assert head is not None
        seen.append(bool(head.flags & datagrams.TRIGGER))
    assert [bool(flag) for flag in flags[:-3]] == seen[3:]  # state k + q is the first that shows Command k
    assert not any(seen[:3])


def test_the_trigger_falls_where_the_receiver_stops_the_rig() -> None:
    bench = Bench(flags=datagrams.TRIGGER)
    bench.run(range(1, 20), wave)
    assert bench.receiver.trigger == 1
    assert bench.send(bench.head(datagrams.CLOSE)) == "taken"
    assert bench.receiver.trigger == 0


def test_a_receiver_without_an_output_refuses_a_session_with_a_trigger() -> None:
    bench = Bench(begin=False)
    bench.flags = datagrams.TRIGGER
    assert bench.send(bench.head(datagrams.OPEN)) == "refused"
    assert mentions(datagrams.REASONS[datagrams.head_of(bench.receiver.reply()).reason], "digital", "output")


# -- the braking way, and axes of one specimen


def accelerations(history: np.ndarray) -> np.ndarray:
    """Of all samples, m/s^2."""
    return np.abs(np.diff(np.asarray(history), 2, axis=0)) / DT**2


@pytest.mark.parametrize("following", [math.inf, 5.0])
def test_commands_that_end_just_before_the_stroke_leave_room_to_stop(following: float) -> None:
    """0.49 m/s, lost 1 mm before the stroke of 0.12 m: 295 m/s^2 and more where it stopped dead there."""
    bench = Bench(limits=ReceiverLimits(0.12, 0.5, 5.0, following))
    x, k = 0.0, 0
    while x < 0.119:
        k += 1
        before, x = x, x + 0.49 * DT * min(k / 150.0, 1.0)
        bench.points(k, [x], [(x - before) * RATE])
        bench.tick()
    for _ in range(300):
        bench.tick()
    history = bench.history()
    assert accelerations(history).max() <= 5.0 * (1.0 + 1e-6)
    assert 0.11 < history.max() <= 0.12
    assert history[-1] == history[-50]


def test_a_command_to_the_stroke_itself_is_followed_where_it_leaves_room() -> None:
    bench = Bench()
    bench.run(range(1, 1001), lambda k: 0.5 * STROKE * (1.0 - math.cos(math.pi * min(k / 1000.0, 1.0))))
    assert bench.history().max() == STROKE
    assert bench.receiver.counts()["limited"] == 0


def test_commands_beyond_the_acceleration_of_following_are_approached() -> None:
    bench = Bench(limits=LIMITS._replace(following=ACCELERATION))
    rng = np.random.default_rng(3)
    for k in range(1, 2000):
        bench.points(k, [bench.receiver.command[0] + rng.uniform(-1.0, 1.0) * VELOCITY * DT], [0.0])
        bench.tick()
    assert accelerations(bench.history()).max() <= ACCELERATION * (1.0 + 1e-6)
    assert bench.receiver.counts()["limited"] > 1000


@pytest.mark.parametrize(("groups", "off"), [([0, 0], 1e-12), ([0, 1], 1e-3)])
def test_axes_of_one_specimen_stop_on_their_common_line(groups: list[int], off: float) -> None:
    """0.30 and 0.10 m/s at 10 m/s^2: by itself each, they leave the line by 1.0 mm."""
    bench = Bench(axes=2, limits=ReceiverLimits(0.25, 0.5, 10.0), groups=groups)
    place = np.zeros(2)
    for k in range(1, 200):
        place = place + np.array([0.3, 0.1]) * DT * min(k / 100.0, 1.0)
        bench.points(k, place.tolist(), [0.3, 0.1])
        bench.tick()
    for _ in range(100):
        bench.tick()
    history = np.array(bench.commands)
    assert np.abs(history[:, 1] - history[:, 0] / 3.0).max() == pytest.approx(off, rel=0.02, abs=1e-12)
    assert not np.ptp(history[-40:], axis=0).any()
    assert accelerations(history[200:]).max() <= 10.0 * (1.0 + 1e-6)


def test_the_longer_way_of_a_common_stop_counts_as_room() -> None:
    """The slow axis is led to its stroke: alone it would stop in 0.5 mm, with the fast one it takes 1.5 mm."""
    bench = Bench(axes=2, limits=ReceiverLimits(0.25, 0.5, 10.0), groups=[4, 4], position=[0.0, 0.2])
    place, k = np.array([0.0, 0.2]), 0
    while place[1] < 0.2495:
        k += 1
        place = place + np.array([0.3, 0.1]) * DT * min(k / 100.0, 1.0)
        place[0] = min(place[0], 0.2)
        bench.points(k, place.tolist(), [0.3, 0.1])
        bench.tick()
    for _ in range(100):
        bench.tick()
    history = np.array(bench.commands)
    assert (np.abs(history) <= 0.25).all()
    assert accelerations(history).max() <= 10.0 * (1.0 + 1e-6)


@given(
    st.lists(st.tuples(*[st.floats(-1.0, 1.0)] * 3), min_size=1, max_size=8),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_a_stop_from_any_state_is_on_a_line_and_within_its_deceleration(
    rows: list[tuple[float, float, float]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    limits = [ReceiverLimits(*rng.uniform([0.01, 0.1, 1.0], [0.1, 1.0, 20.0])) for _ in rows]
    groups = rng.integers(0, 3, len(rows)).tolist()
    start = [0.9 * row[0] * limit.stroke for row, limit in zip(rows, limits, strict=True)]
    receiver = Receiver(limits, DT, 1, 2, groups=groups, position=start)
    head = Head(datagrams.OPEN, len(rows), SESSION, period=round(DT * 1e9), transport=1)
    for head.kind in (datagrams.OPEN, datagrams.BEGIN):
        receiver.receive(datagrams.packed(head))
    head.kind, place, history = datagrams.COMMAND, np.array(start), [receiver.command]
    for k in range(150):
        receiver.state()
        receiver.drive()
        history.append(receiver.command)
        speeds = [row[1] * limit.velocity * min(k / 100.0, 1.0) for row, limit in zip(rows, limits, strict=True)]
        head.counter, place = k + 1, place + np.array(speeds) * DT
        receiver.receive(datagrams.packed(head, datagrams.command_rows(place.tolist(), speeds, EMPTY)))
    while not receiver.at_rest:
        receiver.state()
        receiver.drive()
        history.append(receiver.command)
        assert len(history) < 151 + receiver.rest_samples
    found = np.array(history)
    assert (np.abs(found) <= [limit.stroke for limit in limits]).all()
    most = np.array([limit.acceleration for limit in limits])
    slack = 1e-12 / DT**2
    assert (accelerations(found[151:]) <= most * (1.0 + 1e-6) + slack).all()


def check_stops(count: int, seed: int) -> None:
    """Stops of every kind from random states: places up to the ends, velocities up to the limits, groups."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.integers(1, 4))
        velocity = rng.uniform(0.1, 1.0, n)
        declared = velocity / (DT * 10.0 ** rng.uniform(0.0, 1.8, n))  # up to 63 samples to rest
        stroke, groups = rng.uniform(0.01, 0.1, n), rng.integers(0, 2, n)
        start = (stroke * (1.0 - 10.0 ** rng.uniform(-6, 0, n)) * rng.choice([-1.0, 1.0], n)).tolist()
        speed = (velocity * rng.choice([-1.0, 1.0], n) * rng.uniform(0.0, 1.0, n)).tolist()
        limits = [ReceiverLimits(*row) for row in zip(stroke, velocity, declared, strict=True)]
        receiver = Receiver(limits, DT, 1, 2, groups=groups.tolist(), position=start)
        head = Head(datagrams.OPEN, n, SESSION, period=round(DT * 1e9), transport=1)
        for head.kind in (datagrams.OPEN, datagrams.BEGIN):
            receiver.receive(datagrams.packed(head))
        path = [start]

        def tick(receiver: Receiver = receiver, path: list[list[float]] = path) -> None:
            receiver.state()
            receiver.drive()
            path.append(receiver.command)

        tick()
        head.kind, head.counter = datagrams.COMMAND, 1
        points = [place + v * DT for place, v in zip(start, speed, strict=True)]
        receiver.receive(datagrams.packed(head, datagrams.command_rows(points, speed, EMPTY)))
        tick()
        cause = rng.integers(3)  # the third one: no command comes any more
        if cause == 0:
            head.kind = datagrams.CLOSE
            receiver.receive(datagrams.packed(head))
        elif cause == 1:
            receiver.sensors.interlock = 2
        while not receiver.at_rest:
            tick()
            assert len(path) <= 3 + receiver.rest_samples
        found = np.array(path[1:])
        assert (np.abs(found) <= stroke).all()
        noise = 1e-15 / DT**2
        assert (accelerations(found) <= declared * (1.0 + 1e-6) + noise).all(), (
            limits,
            groups,
            start,
            speed,
            cause,
        )
        steps = np.diff(found, axis=0)
        for group in (groups == 0, groups == 1):
            along = steps[:, group]
            if cause < 2 and group.sum() > 1:  # a bridge first takes an axis that has no room away from the line
                assert np.abs(along[1:, :1] * along[:1] - along[1:] * along[:1, :1]).max(initial=0.0) < 1e-14


def test_no_stop_of_the_receiver_is_above_its_acceleration() -> None:
    check_stops(2_000, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_none_of_a_hundred_thousand_stops_of_the_receiver_is_above_its_acceleration() -> None:
    check_stops(100_000, seed=2)


def test_the_stated_time_of_a_stop_is_right_for_large_numbers() -> None:
    receiver = Receiver([ReceiverLimits(10.0, 100.0, 2e-3)], DT, BRIDGED, WATCHDOG)
    assert 5e7 <= receiver.rest_samples <= 5.01e7
    with pytest.raises(ConfigError, match=r"2\^28 samples"):
        Receiver([ReceiverLimits(10.0, 100.0, 2e-5)], DT, BRIDGED, WATCHDOG)


# -- what it watches by itself


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
def test_it_stops_where_force_or_error_persist_beyond_their_limit(
    limits: ReceiverLimits, field: str, value: float, reason: int
) -> None:
    bench = Bench(limits=limits, persistence=3)
    measured = getattr(bench.receiver.sensors, field)

    def run(samples: Iterable[int], shown: float) -> Head:
        for k in samples:
            bench.receiver.sensors.displacement[0] = bench.receiver.command[0]
            measured[0] = shown if math.isnan(shown) or shown else measured[0]
            bench.command(k, wave)
            head = bench.tick()
        assert head is not None
        measured[0] = 0.0
        return head

    run(range(1, 100), 0.0)
    assert run(range(100, 102), value).state == datagrams.RUNNING  # two in a row, then none
    run(range(102, 103), 0.0)
    head = run(range(103, 106), value)
    assert (head.state, head.reason) == (datagrams.BRAKING if reason else datagrams.RUNNING, reason)
    assert accelerations(bench.history()).max() <= ACCELERATION * (1.0 + 1e-6)


def test_volts_of_two_scales_are_compared_as_one_unit() -> None:
    """A command of 26 mm/V and a sensor of -27.5 mm/V: no error where the rig is where it is led."""
    bench = Bench(limits=LIMITS._replace(error=1e-6), units=[-27.5 / 26.0])
    for k in range(1, 300):
        bench.receiver.sensors.displacement[0] = bench.receiver.command[0] * -26.0 / 27.5
        bench.command(k, wave)
        bench.tick()
    assert bench.receiver.reason == 0


def test_it_tells_its_limits_and_its_build() -> None:
    limits = ReceiverLimits(0.1, 0.5, 20.0, 7.0, math.inf, 0.02)
    bench = Bench(axes=8, begin=False, limits=limits, persistence=4)
    bench.send(bench.head(datagrams.OPEN))
    data = bench.receiver.reply()
    assert len(data) <= datagrams.LARGEST
    answer = datagrams.answer_of(data, datagrams.head_of(data))
    assert answer.limits == [datagrams.FarLimits(0.1, 0.5, 20.0, math.inf, 0.02)] * 8
    assert (answer.bridged, answer.watchdog, answer.persistence) == (BRIDGED, WATCHDOG, 4)
    assert answer.build == module.build_number() != 0


# -- who sends


def of_version(data: bytes, version: int) -> bytes:
    """The same datagram with another version in its head."""
    body = data[:4] + version.to_bytes(2, "little") + data[6 : -datagrams.CHECKSUM.size]
    return body + datagrams.CHECKSUM.pack(zlib.crc32(body))


def test_an_open_of_version_1_is_refused_in_a_head_of_version_1() -> None:
    bench = Bench(begin=False)
    asked = of_version(datagrams.packed(bench.head(datagrams.OPEN)), 1)
    assert bench.receiver.receive(asked) == "refused"
    with pytest.raises(datagrams.OtherVersion, match="the version is 1; must be 2") as told:
        datagrams.head_of(bench.receiver.reply())
    assert (told.value.version, told.value.head.reason, told.value.head.session) == (1, 5, SESSION)
    assert bench.receiver.receive(of_version(datagrams.packed(bench.head(datagrams.BEGIN)), 1)) == "garbage"


@pytest.mark.parametrize("kind", [datagrams.OPEN, datagrams.BEGIN, datagrams.CLOSE])
@pytest.mark.parametrize("more", [1, 8, 64, 476])
def test_an_act_of_another_length_than_its_own_is_garbage(kind: int, more: int) -> None:
    bench = Bench(begin=kind == datagrams.CLOSE)
    if kind == datagrams.BEGIN:
        bench.send(bench.head(datagrams.OPEN))
    before = bench.receiver.state_number
    assert bench.send(bench.head(kind), bytes(more)) == "garbage"
    assert bench.receiver.state_number == before


def test_nobody_else_takes_part_in_a_session() -> None:
    bench, alone = Bench(), Bench()
    stranger = 2
    for k in range(1, 200):
        for session, result in ((SESSION, "foreign"), (SESSION + 1, "foreign")):
            for kind in (datagrams.BEGIN, datagrams.CLOSE):
                assert bench.send(bench.head(kind, session=session), sender=stranger) == result
        assert bench.points(k, [0.09], [0.4], stranger) == "foreign"
        assert bench.send(bench.head(datagrams.OPEN), sender=stranger) == "refused"
        assert datagrams.head_of(bench.receiver.reply()).reason == 4
        assert bench.command(k, wave) == alone.command(k, wave) == "taken"
        bench.tick()
        alone.tick()
    assert bench.commands == alone.commands
    assert bench.receiver.sender == 0


def test_nobody_else_begins_a_session_that_waits() -> None:
    bench = Bench(begin=False)
    assert bench.send(bench.head(datagrams.OPEN), sender=7) == "taken"
    assert bench.send(bench.head(datagrams.OPEN), sender=8) == "refused"
    assert bench.send(bench.head(datagrams.BEGIN), sender=8) == "foreign"
    assert bench.send(bench.head(datagrams.BEGIN), sender=7) == "taken"
    assert bench.receiver.sender == 7


@pytest.mark.parametrize("mode", [2, 255])
def test_a_command_of_force_is_garbage(mode: int) -> None:
    bench = Bench()
    row = datagrams.COMMAND_ROW.pack(0.0, 0.0, mode)
    assert bench.send(bench.head(datagrams.COMMAND, 1), row) == "garbage"
    assert bench.send(bench.head(datagrams.COMMAND, 1), datagrams.COMMAND_ROW.pack(0.0, 0.0, 0)[:-1] + b"1") == (
        "garbage"
    )
    assert bench.send(bench.head(datagrams.COMMAND, 1), datagrams.COMMAND_ROW.pack(0.0, 0.0, 0)) == "taken"


def test_a_command_that_is_64_samples_old_does_not_replace_the_newer_one() -> None:
    bench = Bench(transport=5, watchdog=1000)
    for _ in range(80):
        bench.tick()
    assert bench.points(80, [1e-5], [0.0]) == "taken"
    assert bench.points(16, [2e-5], [0.0]) == "late"
    for _ in range(6):
        bench.tick()
    assert bench.commands[-1] == pytest.approx([1e-5])


def test_a_stop_forgets_what_waits() -> None:
    bench = Bench(transport=20)
    for k in range(1, 30):
        bench.command(k, wave)
        bench.tick()
    bench.send(bench.head(datagrams.CLOSE))
    assert not any(each.counter for each in bench.receiver._target.queue)


def test_a_session_ends_in_order_before_its_counter_does() -> None:
    """At 2^32 it would hold for q samples, and refuse what comes: it stops 2^28 samples before, and says why."""
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


# -- the loop on the page


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


def test_the_loop_on_the_page_gives_a_stranger_nothing(tmp_path: Path) -> None:
    """As it stood there, one open made the stranger the peer: 1399 states, and the command at 0.1 m."""
    page = (TARGET.parents[1] / "doc" / "receiver.md").read_text()
    (snippet,) = re.findall(r"```c\n(static rths_target target;.*?)```", page, re.DOTALL)
    declared, _, loop = snippet.partition("\n")
    source, built = tmp_path / "loop.c", tmp_path / "loop.so"
    source.write_text("#include <math.h>\n" + PRELUDE.replace("DECLARED", declared).replace("LOOP", loop))
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{TARGET}"]
    done = subprocess.run(
        ["cc", *strict, str(source), str(TARGET / "rths_target.c"), "-lm", "-o", str(built)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    there = ctypes.CDLL(str(built))
    assert there.begin() == 0

    def arrive(sender: int, kind: int, counter: int = 0, session: int = SESSION, rows: bytes = b"") -> None:
        data = datagrams.packed(Head(kind, 1, session, counter, period=1_000_000, transport=1), rows)
        there.arrive(ctypes.c_uint64(sender), data, ctypes.c_size_t(len(data)))

    us, stranger = 0xC0A80701_0000 + 25011, 0xC0A80799_0000 + 25011
    for kind in (datagrams.OPEN, datagrams.BEGIN):
        arrive(us, kind)
    there.tick()
    for k in range(1, 60):
        arrive(us, datagrams.COMMAND, k, rows=datagrams.command_rows([1e-6 * k], [1e-3], EMPTY))
        for session in (SESSION, SESSION + 1, 0):
            for kind in (datagrams.OPEN, datagrams.BEGIN, datagrams.CLOSE):
                arrive(stranger, kind, session=session)
            row = datagrams.command_rows([1e-6 * k + 4e-4], [0.4], EMPTY)
            arrive(stranger, datagrams.COMMAND, k, session, row)
        there.tick()
    assert ctypes.c_size_t.in_dll(there, "sent").value == 60
    assert set((ctypes.c_uint64 * 64).in_dll(there, "sent_to")[:60]) == {us}
    assert ctypes.c_double.in_dll(there, "reached").value == 1e-6 * 59


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_million_hostile_datagrams_are_within_what_is_stated(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    shutil.copytree(TARGET, folder)
    words = ["make", "check", "ROUNDS=50000"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) datagrams", done.stdout)[0]) >= 10**7
