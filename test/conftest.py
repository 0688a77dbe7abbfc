# SPDX-License-Identifier: Apache-2.0
"""What several test files need: the shared data, components built as a scenario builds them, runs in memory."""

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
from time import monotonic, sleep  # as they are where a test has replaced those of the module
from typing import Any

# Before numpy, whose linear algebra would take all processors: processes of tests that run beside each other would
# wait for each other's threads in each product of matrices.
import rths_nodes  # noqa: F401  # isort: skip

import numpy as np
import pytest
from hypothesis import settings

sys.path.append(str(Path(__file__).with_name("helpers")))  # where colcon runs the tests no pyproject.toml is read
import durations
import forked as forked_programs

from rths_nodes.core import registry
from rths_nodes.core.samples import FLAG_SLIPPED
from rths_nodes.core.validation import from_data, walk_declared
from rths_nodes.loop.embedded import Loop, Outcome
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.run import Collector, Run
from rths_nodes.ros.transport.greeting import address

settings.register_profile("repeatable", deadline=None, max_examples=50, derandomize=True, database=None)
settings.load_profile("repeatable")

Register = Callable[..., None]

TESTS = Path(__file__).resolve().parent
SHARED = TESTS.parents[1] / "shared" / "data"


@pytest.fixture(scope="session")
def patience() -> list[str]:
    """Overrides for a run in real time to which a machine that is busy with something else is no fault.

    So small a motion stays within the limits wherever the bridges take it.
    """
    return ["bridge.max_bridge=1", "heartbeat.monitor=5", "heartbeat.recorder=5", "ground_motion.scale=0.005"]


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """The path of a shared data file; skips where the shared data are not there."""

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
    """Names of the histories of two runs that differ in any bit; in real time a tick ``may_slip``."""

    def different(a: Run, b: Run, may_slip: bool = False) -> list[str]:
        found, expected = a.arrays(), b.arrays()
        for arrays in (found, expected) if may_slip else ():
            arrays["flags"] = arrays["flags"] & ~np.uint32(FLAG_SLIPPED)
        unlike = found.keys() ^ expected.keys()
        return sorted(unlike) + [
            name
            for name, values in found.items()
            if name not in unlike
            and (values.shape != expected[name].shape or values.tobytes() != expected[name].tobytes())
        ]

    return different


def pytest_configure() -> None:
    """A closed terminal is one of the ways in which a test ends; under nohup the signal would be ignored."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """A fifth of the time of collecting would go into looking through thousands of tests, all of which stay."""
    gc.disable()
    yield
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files whose tests all are without nodes, or all with them, where these are not asked for."""
    asked, with_nodes = config.option.markexpr, TESTS / "ros" in collection_path.parents
    if collection_path.suffix != ".py" or not asked.startswith(("nodes and ", "not nodes and ")):
        return None
    if asked.startswith("not "):
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
    """Leave out what is marked soak, or recorded as long; of the others, long files begin first."""
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
    """Tell the controller what was left out, or store the durations."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = dict(config.stash.get(LEFT_OUT, Counter()))
    elif config.option.record_durations:
        durations.record(_measured)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker has left out: each collects the same."""
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how many tests were left out, and how they are run."""
    for reason, count in config.stash.get(LEFT_OUT, Counter()).items():
        if count:
            terminalreporter.write_line(f"left out: {count} tests {reason}")


def pytest_collection_finish() -> None:
    """What thousands of collected tests consist of stays, and need not be looked through again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def make() -> Callable[..., Any]:
    """Builds a component: ``make("ramp", "linear", dt, 10, 1)``; parameters by keyword."""

    def make(family: str, name: str, *arguments: Any, **data: Any) -> Any:
        cls = registry.load(family, name)
        return cls(from_data(cls.Params, data, family), *arguments)

    return make


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the components that are built: ``setup identity``."""
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
    """Adds a class as another package would: ``register("compensator", cls)``, by the name ``mine``."""

    def forget() -> None:
        registry._table.cache_clear()
        registry._load.cache_clear()

    def register(family: str, cls: type, place: str = "some_laboratory:Mine") -> None:
        module = types.ModuleType("some_laboratory")
        module.Mine = cls  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "some_laboratory", module)
        points = EntryPoints([EntryPoint("mine", place, f"rths_nodes.{family}")])
        monkeypatch.setattr(registry, "_entry_points", lambda: points)
        forget()

    yield register
    monkeypatch.undo()
    forget()


@pytest.fixture(scope="session")
def declared() -> Callable[[Scenario], Counter[str]]:
    """Counts the components that a scenario names, as ``built`` does."""

    def declared(scenario: Scenario) -> Counter[str]:
        parts = ((part, specs[-1].family) for _, part, specs in walk_declared(scenario) if specs)
        return Counter(f"{family} {type(part).type_name}" for part, family in parts if family)

    return declared


@pytest.fixture(scope="session")
def simulate() -> Callable[..., tuple[Outcome, Run]]:
    """Runs a scenario in the reference loop: how it ended, and its histories."""

    def simulate(name: str, *overrides: str) -> tuple[Outcome, Run]:
        loop = Loop(Assembly(files.load(name, overrides)))
        collector = Collector(loop.scenario, loop.assembly.names)
        outcome = loop.run([collector])
        return outcome, collector.run(metrics=outcome.metrics)

    return simulate


@pytest.fixture(scope="session")
def _forks() -> Iterator[str]:
    """The socket of a process that forks programs of this package."""
    server, path = forked_programs.started()
    yield path
    server.kill()
    server.communicate()
    shutil.rmtree(Path(path).parent)


@pytest.fixture(scope="session")
def fresh_programs() -> None:
    """For tests of how programs of this package start, or whose children they are: Python starts each."""


@pytest.fixture(scope="module", autouse=True)
def _forked_of_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """As ``_forked``, for what tests of a module share, which is there before it."""
    with pytest.MonkeyPatch.context() as patch:
        _fork(request, patch)
        yield


@pytest.fixture(autouse=True)
def _forked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this package, and those that they start, are forked from one that has loaded it."""
    _fork(request, monkeypatch)


def _fork(request: pytest.FixtureRequest, patch: pytest.MonkeyPatch) -> None:
    if any("fresh_programs" in mark.args for mark in request.node.iter_markers("usefixtures")):
        patch.delenv(forked_programs.SERVER, raising=False)
        forked_programs.uninstall(patch.setattr)
    elif request.node.get_closest_marker("nodes"):
        patch.setenv(forked_programs.SERVER, request.getfixturevalue("_forks"))
        forked_programs.install(patch.setattr)


_domains = itertools.count(os.getpid() * 7)


def lock_of_free_domain() -> tuple[int, int]:
    """The next ROS domain that nobody on this machine uses, and its lock against other suites, an open file."""
    for _ in range(100):
        number = 1 + next(_domains) % 100
        file = Path(tempfile.gettempdir(), f"rths_domain_{number}.lock")
        try:
            lock = os.open(file, os.O_RDONLY | os.O_CREAT, 0o666)
        except PermissionError:  # another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        if not left_in(number):
            return number, lock
        os.close(lock)  # a rig or a benchmark is there, which takes no lock
    raise RuntimeError("no free ROS domain: something is under way in each of a hundred")


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """The environment of programs that several tests of a module look at: with a ROS domain of its own."""
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
"""A process that Python itself starts once, and keeps."""
FIRST_PORT, PORTS = 7400, 250
"""UDP ports of DDS: the first one of domain 0, and how many each domain has (DDSI-RTPS 2.2, 9.6.1.1)."""


def left_in(number: int) -> list[str]:
    """What is still there in the ROS domain ``number``: processes that were started in it, sockets, nodes.

    A node whose context has ended tells its latched messages until it is destroyed, also in this process.
    """
    word, found = f"ROS_DOMAIN_ID={number}".encode(), forked_programs.left_in(number)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if word in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if PYTHONS_OWN not in command:
                    found.append(f"process {folder.name}: {command}")
    prefix = address("/", number).replace(b"\0", b"@").decode()
    sockets = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    found += [words for words in sockets if prefix in words]
    addresses = [words.split()[1] for words in Path("/proc/net/udp").read_text(encoding="ascii").splitlines()[1:]]
    ports = [int(address.rpartition(":")[2], 16) - FIRST_PORT for address in addresses]
    return found + [f"a node at the UDP port {port + FIRST_PORT}" for port in ports if port // PORTS == number]


@pytest.fixture(scope="session")
def _domain_of_worker() -> Iterator[int]:
    """The ROS domain of all tests that start no node."""
    number, lock = lock_of_free_domain()
    yield number
    os.close(lock)


@pytest.fixture(autouse=True)
def domain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test with nodes has a ROS domain of its own: two runs in one domain disturb each other silently.

    Nodes whose runner was killed end by themselves, a moment later: the domain is free when the last has ended.
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
        gc.collect()  # what is left in this process may wait for that
    deadline = monotonic() + LAST_MOMENTS_S
    while left and monotonic() < deadline:
        sleep(0.05)
        left = left_in(number)
    os.close(lock)
    assert not left, f"left behind: {left}"
