# SPDX-License-Identifier: Apache-2.0
"""Fixtures of several test files: shared data, components, runs in memory, ROS domains, recorded durations."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from time import monotonic, sleep  # the originals, even if a test has replaced those of the module
from typing import Any

# Before numpy, whose linear algebra would use all processors: parallel tests would wait for each other's threads
# in each product of matrices.
import rths_nodes  # noqa: F401  # isort: skip

import numpy as np
import pytest
from hypothesis import settings

sys.path.append(str(Path(__file__).with_name("helpers")))  # colcon runs the tests without reading pyproject.toml
import durations
import forked as forked_programs
from fmus import skip_without_fmi
from generic_client import models_left, skip_without_opensees

from rths_nodes.core import registry
from rths_nodes.core.fmu import PROGRAM
from rths_nodes.core.samples import FLAG_SLIPPED
from rths_nodes.recording.run import Run
from rths_nodes.ros.transport.line import address

settings.register_profile("repeatable", deadline=None, max_examples=50, derandomize=True, database=None)
settings.load_profile("repeatable")

Register = Callable[..., None]

TESTS = Path(__file__).resolve().parent
SHARED = TESTS.parents[1] / "shared" / "data"


@pytest.fixture(scope="session")
def patience() -> list[str]:
    """Overrides for a run in real time on a busy machine.

    The motion is so small that it stays within the limits whatever is bridged.
    """
    return ["bridge.max_bridge=1", "heartbeat.monitor=5", "heartbeat.recorder=5", "ground_motion.scale=0.005"]


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Return the path of a shared data file; skip the test if it is not installed."""

    def find(name: str) -> Path:
        if not (SHARED / name).is_file():
            pytest.skip(f"shared data not there: {name}")
        return SHARED / name

    return find


@pytest.fixture(scope="session")
def canoga_park(shared_data: Callable[[str], Path]) -> list[str]:
    """Overrides that put the record of Chen & Ricles (2010) into a scenario."""
    path = shared_data("ground_motions/northridge_1994_canoga_park_196_dt0.01_g.txt")
    motion = {"file": path, "step": 0.01, "unit": "g", "scale": 0.322}
    return [f"ground_motion.{key}={value}" for key, value in motion.items()]


@pytest.fixture(scope="session")
def different() -> Callable[..., list[str]]:
    """Return the names of the histories that differ in any bit; in real time a tick ``may_slip``."""

    def different(a: Run, b: Run, may_slip: bool = False) -> list[str]:
        histories, expected = a.arrays(), b.arrays()
        for arrays in (histories, expected) if may_slip else ():
            arrays["flags"] = arrays["flags"] & ~np.uint32(FLAG_SLIPPED)
        both = [name for name in histories if name in expected]
        return sorted(histories.keys() ^ expected.keys()) + [
            name
            for name in both
            if histories[name].shape != expected[name].shape
            or histories[name].tobytes() != expected[name].tobytes()
        ]

    return different


def pytest_configure() -> None:
    """Enable SIGHUP, which nohup ignores: closing a terminal is one of the ends under test."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable the garbage collector, which would take a fifth of the time of collecting."""
    gc.disable()
    yield
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files whose tests are all excluded by the mark ``nodes``."""
    expression, with_nodes = config.option.markexpr, TESTS / "ros" in collection_path.parents
    if collection_path.suffix != ".py" or not expression.startswith(("nodes and ", "not nodes and ")):
        return None
    if expression.startswith("not "):
        return with_nodes or None
    return None if with_nodes or "mark.nodes" in collection_path.read_text() else True


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options on recorded durations."""
    group = parser.getgroup("durations of tests (test/durations.json)")
    group.addoption(
        "--longest",
        type=float,
        metavar="S",
        help="leave out tests of more than S seconds, and cases beyond S in total",
    )
    group.addoption("--share", default="", metavar="K/N", help="run share K, from 0, of N of these long tests")
    group.addoption(
        "--record-durations", action="store_true", help="store the durations of the tests that are run"
    )


LEFT_OUT = pytest.StashKey[Counter[str]]()
_measured: Counter[str] = Counter()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Leave out tests that are marked soak or recorded as long; run long files first."""
    soaks = [item for item in items if item.get_closest_marker("soak")]
    yield
    left_out = config.stash[LEFT_OUT] = Counter({"marked soak (make soak)": len(soaks) - len({*soaks} & {*items})})
    recorded = durations.recorded()
    if (longest := config.option.longest) is not None:
        long = durations.longer_than(longest, items, recorded, config.option.share)
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
        left_out[f"recorded as longer than {longest:g} s (make test LONGEST=inf)"] = len(long)
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        items[:] = durations.dealt(items, workers, recorded)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the phases of a test."""
    _measured[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report the tests left out to the controller, or store the durations."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = dict(config.stash.get(LEFT_OUT, Counter()))
    elif config.option.record_durations:
        durations.record(_measured)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the counts of a worker: all workers collect the same tests."""
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the number of tests left out, and how to run them."""
    for reason, count in config.stash.get(LEFT_OUT, Counter()).items():
        if count:
            terminalreporter.write_line(f"left out: {count} tests {reason}")


def pytest_collection_finish() -> None:
    """Exclude the collected tests, which are permanent, from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts of the components built: ``setup identity``."""
    counts: Counter[str] = Counter()
    load, seen = registry.load, set()

    def counting(family: str, name: object, path: str = "") -> Any:
        cls = load(family, name, path)
        if cls not in seen:
            seen.add(cls)
            construct = cls.__init__

            def count(self: Any, *arguments: Any, **named: Any) -> None:
                counts[f"{family} {name}"] += type(self) is cls
                construct(self, *arguments, **named)

            monkeypatch.setattr(cls, "__init__", count)
        return cls

    monkeypatch.setattr(registry, "load", counting)
    return counts


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Register]:
    """Register a class as another package would: ``register("compensator", cls)``, by the name ``mine``."""

    def forget() -> None:
        registry._table.cache_clear()
        registry._load.cache_clear()

    def register(family: str, cls: type, reference: str = "some_laboratory:Mine") -> None:
        module = types.ModuleType("some_laboratory")
        module.Mine = cls  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "some_laboratory", module)
        points = EntryPoints([EntryPoint("mine", reference, f"rths_nodes.{family}")])
        monkeypatch.setattr(registry, "_entry_points", lambda: points)
        forget()

    yield register
    monkeypatch.undo()
    forget()


@pytest.fixture(scope="module")
def fmi() -> Iterator[None]:
    """Skip without fmpy or a compiler; afterwards no process of an FMU is left."""
    skip_without_fmi()
    yield
    assert models_left(PROGRAM) == []


@pytest.fixture(scope="module")
def opensees() -> Iterator[None]:
    """Skip without OpenSees; afterwards no process of a model is left."""
    skip_without_opensees()
    yield
    assert models_left() == []


@pytest.fixture(scope="session")
def _forks() -> Iterator[str]:
    """Socket of a process that forks programs of this package."""
    server, path = forked_programs.started()
    yield path
    server.kill()
    server.communicate()
    shutil.rmtree(Path(path).parent)


@pytest.fixture(scope="session")
def fresh_programs() -> None:
    """Let Python start each program, for tests of the start and of the parents of programs."""


@pytest.fixture(scope="module", autouse=True)
def _forked_of_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """As ``_forked``, for fixtures of a module, which are created earlier."""
    with pytest.MonkeyPatch.context() as patch:
        _fork(request, patch)
        yield


@pytest.fixture(autouse=True)
def _forked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork programs of this package, and those that they start, from a process that has loaded it."""
    _fork(request, monkeypatch)


def _fork(request: pytest.FixtureRequest, patch: pytest.MonkeyPatch) -> None:
    if any(mark.kwargs.get("ros") for mark in request.node.iter_markers("nodes")):
        pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    if any("fresh_programs" in mark.args for mark in request.node.iter_markers("usefixtures")):
        patch.delenv(forked_programs.SERVER, raising=False)
        forked_programs.uninstall(patch.setattr)
    elif request.node.get_closest_marker("nodes"):
        patch.setenv(forked_programs.SERVER, request.getfixturevalue("_forks"))
        forked_programs.install(patch.setattr)


_domains = itertools.count(os.getpid() * 7)


def lock_of_free_domain() -> tuple[int, int]:
    """Return the next unused ROS domain of this machine, and its lock against other suites, an open file."""
    for _ in range(100):
        number = 1 + next(_domains) % 100
        file = Path(tempfile.gettempdir(), f"rths_domain_{number}.lock")
        try:
            lock = os.open(file, os.O_RDONLY | os.O_CREAT, 0o666)
        except PermissionError:  # of another user
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        if not left_in(number):
            return number, lock
        os.close(lock)  # used by a rig or a benchmark, which take no lock
    raise RuntimeError("no free ROS domain: each of a hundred is in use")


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Environment, with a separate ROS domain, of programs that several tests of a module share."""
    number, lock = lock_of_free_domain()
    path = os.pathsep.join(sys.path)
    yield os.environ | {
        "ROS_DOMAIN_ID": str(number),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "PYTHONPATH": path,
    }
    os.close(lock)


LAST_MOMENTS_S = 30.0
PYTHONS_OWN = "multiprocessing.resource_tracker"
"""Process that Python itself starts and keeps."""
FIRST_PORT, PORTS = 7400, 250
"""UDP ports of DDS: the first port of domain 0, and the number of ports per domain (DDSI-RTPS 2.2, 9.6.1.1)."""


def left_in(number: int) -> list[str]:
    """Return the remaining processes, sockets and nodes in the ROS domain ``number``.

    A node whose context has ended publishes its latched messages until it is destroyed, also in this process.
    """
    variable, remaining = f"ROS_DOMAIN_ID={number}".encode(), forked_programs.left_in(number)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if variable in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if PYTHONS_OWN not in command:
                    remaining.append(f"process {folder.name}: {command}")
    prefix = address("/", number).replace(b"\0", b"@").decode()
    sockets = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    remaining += [line for line in sockets if prefix in line]
    addresses = [line.split()[1] for line in Path("/proc/net/udp").read_text(encoding="ascii").splitlines()[1:]]
    ports = [int(address.rpartition(":")[2], 16) - FIRST_PORT for address in addresses]
    return remaining + [f"a node at the UDP port {port + FIRST_PORT}" for port in ports if port // PORTS == number]


@pytest.fixture(scope="session")
def _domain_of_worker() -> Iterator[int]:
    """ROS domain of all tests that start no node."""
    number, lock = lock_of_free_domain()
    yield number
    os.close(lock)


@pytest.fixture(autouse=True)
def domain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Separate ROS domain of each test with nodes: two runs in one domain disturb each other silently.

    Nodes whose runner was killed end a moment later: the domain is free once the last has ended.
    """
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    if not request.node.get_closest_marker("nodes"):
        monkeypatch.setenv("ROS_DOMAIN_ID", str(request.getfixturevalue("_domain_of_worker")))
        yield
        return
    number, lock = lock_of_free_domain()
    monkeypatch.setenv("ROS_DOMAIN_ID", str(number))
    yield
    left = left_in(number)
    if left:
        gc.collect()  # nodes in this process may wait for that
    deadline = monotonic() + LAST_MOMENTS_S
    while left and monotonic() < deadline:
        sleep(0.05)
        left = left_in(number)
    os.close(lock)
    assert not left, f"left behind: {left}"
