"""The receiver at the rig, in C: it follows, bridges, brakes, holds and rejoins, and never leaves its limits."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import EMPTY
from rths_nodes.laboratory import receiver as module
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head
from rths_nodes.laboratory.receiver import Receiver, ReceiverLimits

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
        self, transport: int = 1, flags: int = 0, axes: int = 1, begin: bool = True, **given: Any
    ) -> None:
        limits = [LIMITS] * axes
        self.receiver = Receiver(limits, DT, BRIDGED, WATCHDOG, flags, **given)
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

    def send(self, head: Head, rows: bytes = b"") -> str:
        return self.receiver.receive(datagrams.packed(head, rows))

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


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("field", ReceiverLimits._fields)
def test_a_limit_that_is_none_is_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match="the receiver refuses its limits"):
        Receiver([LIMITS._replace(**{field: value})], DT, BRIDGED, WATCHDOG)


def test_a_config_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="the receiver refuses its limits"):
        Receiver([LIMITS._replace(stroke=math.inf)], DT, BRIDGED, WATCHDOG)
    with pytest.raises(ConfigError, match="longer than its bridge"):
        Receiver([LIMITS], DT, 10, 10)
    with pytest.raises(ConfigError, match=r"its persistence \(0 samples\) >= 1"):
        Receiver([LIMITS], DT, BRIDGED, WATCHDOG, persistence=0)
    with pytest.raises(ConfigError, match="within the stroke"):
        Receiver([LIMITS], DT, BRIDGED, WATCHDOG, position=[0.11])
    with pytest.raises(ConfigError, match="the receiver refuses"):
        Receiver([LIMITS], DT, BRIDGED, WATCHDOG, units=[0.0])


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
    with pytest.raises(ConfigError, match=r"no C compiler found \(no_such_compiler\).*sudo apt install gcc"):
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
    assert datagrams.REASONS[datagrams.head_of(bench.receiver.reply()).reason].startswith(
        "it has no digital output"
    )
