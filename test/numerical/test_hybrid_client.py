# SPDX-License-Identifier: Apache-2.0
"""Tests of the client libraries for finite element programs in C, Fortran and Python."""

from __future__ import annotations

import contextlib
import ctypes
import math
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import MASSES, STORIES, STROKE, beside, free_port, newmark, scenario, server, welcome
from messages import mentions, naming
from programs import module_of

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "examples" / "hybrid_client"
STRICT = (
    *("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow"),
    *("-Wdouble-promotion", "-Werror"),
)

OK, ARGUMENT, NOBODY, TIMEOUT, CLOSED, BROKEN, ORDER, GARBAGE, UNKNOWN, FULL = range(0, -10, -1)
FAILURES = {TIMEOUT, CLOSED, BROKEN, GARBAGE}


def compiler() -> str:
    """Return the C compiler; skip the test if none is installed."""
    names = [name for name in ("cc", "gcc", "clang") if shutil.which(name)]
    return names[0] if names else pytest.skip("no C compiler here")


def library(folder: Path) -> Any:
    """Compile and load ``rths_client.c``."""
    built = folder / "rths_client.so"
    command = [compiler(), *STRICT, "-O2", "-shared", "-fPIC", CLIENT / "rths_client.c", "-o", built]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(built))
    real = ctypes.POINTER(ctypes.c_double)
    number, double = ctypes.c_int, ctypes.c_double
    loaded.rths_client_connect.argtypes = (ctypes.c_char_p, number, number, double, double)
    loaded.rths_client_trial.argtypes = (number, real, real, real, double)
    for name in ("force", "stiffness", "damping", "mass"):
        getattr(loaded, f"rths_client_{name}").argtypes = (number, real)
    loaded.rths_client_words.restype = ctypes.c_char_p
    return loaded


def talker(folder: Path, cc: str = "", *flags: str) -> Path:
    """Compile the program ``talker.c``."""
    built = folder / "talker"
    sources = [CLIENT / "rths_client.c", Path(__file__).parents[1] / "helpers" / "talker.c"]
    command = [cc or compiler(), *STRICT, "-O1", "-g", *flags, f"-I{CLIENT}", *sources, "-o", built]
    subprocess.run(command, check=True)
    return built


def reals(*values: float) -> Any:
    return (ctypes.c_double * len(values))(*values)


# -- misbehaving laboratories


def _received(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = line.recv(size - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


def _answer(rng: np.random.Generator, length: int) -> tuple[bytes, float]:
    """Draw the bytes of an answer, and the delay of the rest, s; -1 if it never follows."""
    good = np.zeros(length, "<f8")
    good[0] = rng.normal()
    kind = rng.integers(8)
    if kind == 0:
        good[0] = rng.choice([np.nan, np.inf, -np.inf])
    elif kind == 1:
        return good.tobytes()[: int(rng.integers(8 * length))], -1.0
    elif kind == 2:
        return good.tobytes() + rng.bytes(int(rng.integers(1, 100))), 0.0
    elif kind == 3:
        return rng.bytes(int(rng.integers(1, 16 * length))), -1.0
    elif kind == 4:
        return b"", float(rng.choice([0.0, 0.4]))
    return good.tobytes(), 0.0


def _misbehave(line: socket.socket, rng: np.random.Generator) -> None:
    if rng.random() < 0.1:
        line.sendall(rng.bytes(int(rng.integers(1, 200))))
    if rng.random() < 0.1:
        return
    *_, length = struct.unpack("<11i", _received(line, 44))
    for _ in range(int(rng.integers(0, 12))):
        action = struct.unpack_from("<d", _received(line, 8 * length))[0]
        if action in (3.0, 5.0, 99.0):
            continue
        data, then = _answer(rng, length)
        for part in (data[: len(data) // 2], data[len(data) // 2 :]):
            line.sendall(part)
        if then:
            time.sleep(abs(then) if then > 0.0 else 0.3)
            if rng.random() < 0.5:
                return


@contextlib.contextmanager
def laboratory(seed: int) -> Iterator[int]:
    """Run a laboratory that misbehaves to one client; yield its port."""
    rng = np.random.default_rng(seed)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20.0)

        def serve() -> None:
            line, _ = server.accept()
            with line:
                line.settimeout(5.0)
                if rng.random() < 0.3:  # close with a reset
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with contextlib.suppress(OSError):
                    _misbehave(line, rng)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(30.0)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Library in C."""
    return library(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def python() -> Any:
    """Module in Python."""
    return module_of(CLIENT / "rths_client.py")


SOAK = [pytest.mark.soak, pytest.mark.timeout(1800)]


def rig(port: int, *overrides: str) -> Any:
    """Rig without a static stage."""
    return scenario(port, "integrator.static_steps=0", *overrides)


def test_split_fortran_program_matches_whole_program(tmp_path: Path) -> None:
    """Build the shipped program; then end a test early, whose reason the program must print."""
    missing = [name for name in ("gfortran", "make") if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here: apt install gfortran make")
    folder = tmp_path / "client"
    shutil.copytree(CLIENT, folder)
    built = subprocess.run(["make", "frame"], cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    subprocess.run([folder / "frame", "whole.txt"], cwd=folder, check=True)
    port = free_port()
    command = [folder / "frame", "split.txt", str(port)]
    with subprocess.Popen(command, cwd=folder) as program:
        result = hosts.run(folder / "frame.yaml", [f"integrator.port={port}"])
        assert program.wait(20.0) == 0
    assert (result.outcome, result.exit_code) == ("finished", 0), result.reason
    reference, split = np.loadtxt(folder / "whole.txt"), np.loadtxt(folder / "split.txt")
    assert reference.shape == split.shape == (300, 3)
    assert np.abs(split - reference).max() <= 1e-12 * np.abs(reference).max()
    np.testing.assert_allclose(result.read().dof_displacement[1:, 0], reference[:, 0], rtol=0.0, atol=1e-15)
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as program:
        overrides = [f"integrator.port={port}", "axes.story_1.limits.stroke=0.005"]
        assert hosts.run(folder / "frame.yaml", overrides).outcome == "tripped"
        _, error = program.communicate(timeout=20.0)
    assert program.returncode == 1
    assert mentions(error, "laboratory", "terminal")


def frame_in_c(c: Any, port: int, steps: int) -> Any:
    """Run the frame of ``newmark`` with its lowest spring at ``port``, by the library in C."""
    client = c.rths_client_connect(b"127.0.0.1", port, 1, 20.0, 20.0)
    assert client > 0
    force = reals(0.0)

    def measured(step: int, x: Any, v: Any) -> float:
        assert step == 1 or c.rths_client_commit(client) == OK
        assert c.rths_client_trial(client, reals(x[0]), reals(v[0]), reals(0.0), step * 0.01) == OK
        assert c.rths_client_force(client, force) == OK
        return float(force[0])

    displacements = newmark(steps, 0.01, 0.0, measured, 0.0)
    assert c.rths_client_commit(client) == c.rths_client_close(client) == OK
    return displacements


def frame_in_python(python: Any, port: int, steps: int) -> Any:
    with python.Client("127.0.0.1", port, 1, 20.0, 20.0) as client:

        def measured(step: int, x: Any, v: Any) -> float:
            if step > 1:
                client.commit()
            client.trial(x[:1], v[:1], [0.0], step * 0.01)
            return float(client.force()[0])

        displacements = newmark(steps, 0.01, 0.0, measured, 0.0)
        client.commit()
    return displacements


def test_c_and_python_clients_match_whole_frame(c: Any, python: Any) -> None:
    reference = newmark(100, 0.01, 0.0, lambda *_: 0.0, STORIES[0])
    assert len(MASSES) == reference.shape[1] == 3
    displacements = []
    for run, client in ((frame_in_c, c), (frame_in_python, python)):
        port = free_port()
        with beside(run, client, port, 100) as results:
            result = hosts.run(rig(port))
        assert (result.outcome, result.exit_code) == ("finished", 0), result.reason
        assert not isinstance(results[0], Exception), results
        assert np.abs(results[0] - reference).max() <= 1e-12 * np.abs(reference).max()
        displacements += results
    np.testing.assert_array_equal(*displacements)


MATRIX = [[3.0, -1.0, 0.0], [-1.0, 2.0, 7.0], [0.0, 7.0, 4.0]]


def test_matrices_match_scenario(c: Any, python: Any) -> None:
    parameters = {"experimental_stiffness": MATRIX, "experimental_mass": np.diag([1.0, 2.0, 3.0]).tolist()}

    def in_c(port: int) -> Any:
        client = c.rths_client_connect(b"127.0.0.1", port, 3, 20.0, 20.0)
        numbers = (ctypes.c_double * 9)()
        matrices = []
        for name in ("stiffness", "damping", "mass"):
            assert getattr(c, f"rths_client_{name}")(client, numbers) == OK
            matrices.append(np.reshape(list(numbers), (3, 3), order="F").tolist())
        zero = reals(0.0, 0.0, 0.0)
        c.rths_client_trial(client, zero, zero, zero, 0.01)
        c.rths_client_force(client, zero)
        c.rths_client_close(client)
        return matrices

    def in_python(port: int) -> Any:
        with python.Client("127.0.0.1", port, 3) as client:
            matrices = [client.stiffness(), client.damping(), client.mass()]
            client.trial([0.0] * 3, [0.0] * 3, [0.0] * 3, 0.01)
            with contextlib.suppress(python.ClientError):
                client.force()
            return matrices

    for ask in (in_c, in_python):
        remote, port = server(parameters, n=3)
        with beside(ask, port) as results:
            welcome(remote)
            remote.close()
        assert results[0] == [MATRIX, np.zeros((3, 3)).tolist(), np.diag([1.0, 2.0, 3.0]).tolist()]


def recorded(talk: Callable[[int], Any]) -> bytes:
    """Bytes that ``talk`` sends to a laboratory that answers zero."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        received = bytearray()

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                received.extend(line.recv(44, socket.MSG_WAITALL))
                length = int.from_bytes(received[40:44], "little")
                while message := line.recv(8 * length, socket.MSG_WAITALL):
                    received.extend(message)
                    if np.frombuffer(message, "<f8")[0] in (10.0, 12.0):
                        line.sendall(bytes(8 * length))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        talk(listener.getsockname()[1])
        thread.join(20.0)
    return bytes(received)


def test_c_and_python_clients_send_equal_bytes(c: Any, python: Any) -> None:
    values = [[1e-3, -2.5], [3.0, 1e-300], [-7.0, 0.1]]

    def in_c(port: int) -> None:
        client = c.rths_client_connect(b"127.0.0.1", port, 2, 5.0, 5.0)
        assert c.rths_client_stiffness(client, (ctypes.c_double * 4)()) == OK
        assert c.rths_client_trial(client, *[reals(*row) for row in values], 0.25) == OK
        assert c.rths_client_force(client, reals(0.0, 0.0)) == OK
        assert c.rths_client_commit(client) == c.rths_client_close(client) == OK

    def in_python(port: int) -> None:
        with python.Client("127.0.0.1", port, 2, 5.0, 5.0) as client:
            client.stiffness()
            client.trial(*values, 0.25)
            assert client.force() == [0.0, 0.0]
            client.commit()

    sent = recorded(in_c)
    assert sent == recorded(in_python)
    assert len(sent) == 44 + 5 * 8 * 8


def test_big_endian_program_drives_rig(tmp_path: Path) -> None:
    if not shutil.which("powerpc-linux-gnu-gcc") or not shutil.which("qemu-ppc"):
        pytest.skip("no powerpc-linux-gnu-gcc or qemu-ppc here: apt install qemu-user gcc-powerpc-linux-gnu")
    program = talker(tmp_path, "powerpc-linux-gnu-gcc", "-static")
    port = free_port()
    command = ["qemu-ppc", str(program), str(port), "1", "20", "0.01", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        result = hosts.run(rig(port, "duration=0.2"))
        output = process.communicate(timeout=20.0)[0]
    assert (result.outcome, process.returncode) == ("finished", 0), (result.reason, output)
    forces = [float(line) for line in output.split()]
    np.testing.assert_allclose(forces, 10.0 * np.arange(1.0, 21.0) ** 2, rtol=1e-9)


def test_missing_laboratory_times_out(c: Any, python: Any) -> None:
    port = free_port()
    for within in (0.0, 0.2):
        began = time.monotonic()
        assert c.rths_client_connect(b"127.0.0.1", port, 1, within, 1.0) == NOBODY
        with pytest.raises(python.NobodyListens):
            python.Client("127.0.0.1", port, 1, within, 1.0)
        assert time.monotonic() - began < 5.0


def test_client_does_not_connect_to_itself(c: Any) -> None:
    """The system may assign the requested port to the connecting socket, a few times in 100 000."""
    port = free_port() // 2 * 2  # connecting sockets receive even ports, listening ones odd ports
    assert {c.rths_client_connect(b"127.0.0.1", port, 1, 1e-3, 1.0) for _ in range(200_000)} == {NOBODY}


@pytest.mark.parametrize(
    "arguments",
    [
        (None, 8090, 1, 0.0, 1.0),
        (b"localhost", 8090, 1, 0.0, 1.0),
        (b"127.0.0.1", 0, 1, 0.0, 1.0),
        (b"127.0.0.1", 65_536, 1, 0.0, 1.0),
        (b"127.0.0.1", 8090, 0, 0.0, 1.0),
        (b"127.0.0.1", 8090, 65, 0.0, 1.0),
        (b"127.0.0.1", 8090, 1, -1.0, 1.0),
        (b"127.0.0.1", 8090, 1, math.nan, 1.0),
        (b"127.0.0.1", 8090, 1, 0.0, 0.0),
        (b"127.0.0.1", 8090, 1, 0.0, math.inf),
    ],
)
def test_invalid_arguments_are_refused(c: Any, arguments: tuple[Any, ...]) -> None:
    """Arguments: address, port, degrees of freedom, timeouts of connection and answer."""
    assert c.rths_client_connect(*arguments) == ARGUMENT


@pytest.mark.parametrize("waits", [(math.inf, 1.0), (0.0, math.inf), (math.nan, 1.0), (0.0, 0.0)])
def test_invalid_waits_are_refused_in_python(python: Any, waits: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="out of bounds"):
        python.Client("127.0.0.1", 1, 1, *waits)


@contextlib.contextmanager
def silent() -> Any:
    """Port of a listener that sends nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=20) as listener:
        yield listener.getsockname()[1]


def test_timeout_persists_in_further_calls(c: Any, python: Any) -> None:
    with silent() as port:
        client = c.rths_client_connect(b"127.0.0.1", port, 1, 1.0, 0.1)
        assert c.rths_client_stiffness(client, reals(0.0)) == TIMEOUT
        zero = reals(0.0)
        assert c.rths_client_trial(client, zero, zero, zero, 0.0) == TIMEOUT
        assert c.rths_client_commit(client) == c.rths_client_force(client, zero) == TIMEOUT
        assert c.rths_client_close(client) == OK
        client_in_python = python.Client("127.0.0.1", port, 1, 1.0, 0.1)
        with pytest.raises(python.TooLate) as first:
            client_in_python.stiffness()
        with pytest.raises(python.TooLate) as second:
            client_in_python.trial([0.0], [0.0], [0.0], 0.0)
        assert first.value is second.value
        client_in_python.close()
        client_in_python.close()


def test_calls_in_wrong_order_are_reported(c: Any, python: Any) -> None:
    with silent() as port:
        client = c.rths_client_connect(b"127.0.0.1", port, 1, 1.0, 0.1)
        assert c.rths_client_force(client, reals(0.0)) == c.rths_client_commit(client) == ORDER
        zero = reals(0.0)
        assert c.rths_client_trial(client, zero, zero, zero, 0.0) == OK
        assert c.rths_client_commit(client) == OK
        assert c.rths_client_force(client, None) == ARGUMENT
        assert c.rths_client_close(client) == OK
        with python.Client("127.0.0.1", port, 1, 1.0, 0.1) as client_in_python:
            for call in (client_in_python.force, client_in_python.commit):
                with pytest.raises(ValueError, match=naming("trial", "response")):
                    call()


def test_unknown_and_excess_clients_are_reported(c: Any) -> None:
    zero = reals(0.0)
    for client in (0, -1, 1, 8, 9, 2**31 - 1):
        assert c.rths_client_trial(client, zero, zero, zero, 0.0) == UNKNOWN
        assert c.rths_client_force(client, zero) == c.rths_client_commit(client) == UNKNOWN
        assert c.rths_client_mass(client, zero) == c.rths_client_close(client) == UNKNOWN
    with silent() as port:
        clients = [c.rths_client_connect(b"127.0.0.1", port, 1, 1.0, 0.1) for _ in range(9)]
        assert clients == [*range(1, 9), FULL]
        assert {c.rths_client_close(client) for client in clients[:-1]} == {OK}


def test_every_result_has_a_text(c: Any) -> None:
    texts = [c.rths_client_words(number).decode() for number in range(-12, 3)]
    assert len(set(texts[3:13])) == 10
    assert len(set(texts[:2])) == 1
    assert texts[0] not in texts[3:13]


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e7])
@pytest.mark.parametrize("index", range(4))
def test_invalid_trial_stops_rig_at_once(c: Any, python: Any, value: float, index: int) -> None:
    """The laboratory sees a closed connection and does not time out."""
    values = [[0.0], [0.0], [0.0], 0.02]
    values[index] = value if index == 3 else [value]

    def in_c(port: int) -> Any:
        client = c.rths_client_connect(b"127.0.0.1", port, 1, 20.0, 20.0)
        small = reals(1e-5)
        assert c.rths_client_trial(client, small, small, small, 0.01) == c.rths_client_force(client, small) == OK
        trial = [item if isinstance(item, float) else reals(*item) for item in values]
        assert c.rths_client_trial(client, *trial) == ARGUMENT
        assert c.rths_client_force(client, small) == ARGUMENT
        return c.rths_client_close(client)

    def in_python(port: int) -> Any:
        with python.Client("127.0.0.1", port, 1, 20.0, 20.0) as client:
            client.trial([1e-5], [0.0], [0.0], 0.01)
            client.force()
            with pytest.raises(ValueError, match="trial response"):
                client.trial(*values)
            with pytest.raises(python.NoAnswer):
                client.force()
        return OK

    for run in (in_c, in_python) if index == 0 else (in_c,):
        port = free_port()
        with beside(run, port) as results:
            result = hosts.run(rig(port, "duration=0.1", "integrator.answer_within=20.0"))
        assert results[0] == OK, results
        assert result.outcome == "failed"
        assert mentions(result.reason, "client", "connection")


def test_trip_closes_connection_of_client(c: Any) -> None:
    port, results = free_port(), []

    def run(port: int) -> None:
        client = c.rths_client_connect(b"127.0.0.1", port, 1, 20.0, 20.0)
        force, zero = reals(0.0), reals(0.0)
        for step in range(1, 100):
            x = reals(2e-3 * step)  # beyond the stroke of 50 mm
            results.append(c.rths_client_trial(client, x, zero, zero, 0.01 * step))
            results.append(c.rths_client_force(client, force))
            results.append(c.rths_client_commit(client))
        c.rths_client_close(client)

    with beside(run, port):
        assert hosts.run(rig(port)).outcome == "tripped"
    first = next(result for result in results if result != OK)
    assert first == CLOSED
    assert set(results[results.index(first) :]) == {first}


def talk_in_c(c: Any, port: int) -> int:
    """Run a correct program; return its first failure, or OK."""
    client = c.rths_client_connect(b"127.0.0.1", port, 1, 5.0, 0.1)
    if client < 0:
        return int(client)
    force, zero, result = reals(0.0), reals(0.0), OK
    for step in range(1, 6):
        for call in (
            lambda step=step: c.rths_client_trial(client, zero, zero, zero, 0.01 * step),
            lambda: c.rths_client_force(client, force),
            lambda: c.rths_client_stiffness(client, force),
            lambda: c.rths_client_commit(client),
        ):
            latest = call()
            assert latest == result or result == OK, "a failure persists"
            assert math.isfinite(force[0])
            result = latest
    assert c.rths_client_close(client) == OK
    return int(result)


def talk_in_python(python: Any, port: int) -> int:
    kinds = {python.TooLate: TIMEOUT, python.LaboratoryLeft: CLOSED, python.NoAnswer: GARBAGE}
    try:
        with python.Client("127.0.0.1", port, 1, 5.0, 0.1) as client:
            for step in range(1, 6):
                client.trial([0.0], [0.0], [0.0], 0.01 * step)
                assert math.isfinite(client.force()[0])
                assert math.isfinite(client.stiffness()[0][0])
                client.commit()
    except python.ClientError as error:
        return kinds[type(error)]
    return OK


@pytest.mark.parametrize(
    ("language", "seeds"),
    [
        pytest.param("c", range(60), id="c-short"),
        pytest.param("python", range(100, 160), id="python-short"),
        pytest.param("c", range(1000, 2000), id="c", marks=SOAK),
        pytest.param("python", range(1000, 2000), id="python", marks=SOAK),
    ],
)
def test_faulty_laboratories_are_reported(language: str, seeds: range, request: pytest.FixtureRequest) -> None:
    talk = talk_in_c if language == "c" else talk_in_python
    client, results = request.getfixturevalue(language), []
    for seed in seeds:
        with laboratory(seed) as port:
            began = time.monotonic()
            results.append(talk(client, port))
            assert time.monotonic() - began < 3.0
    assert set(results) <= FAILURES | {OK}
    assert {TIMEOUT, CLOSED, GARBAGE} <= set(results)


def test_client_has_no_undefined_behaviour_or_fatal_signal(tmp_path: Path) -> None:
    """Run under sanitizers in a separate process, which SIGPIPE could end after a lost connection."""
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    compiler = ["cc", *flags, probe, "-o", tmp_path / "probe"]
    if subprocess.run(compiler, capture_output=True, check=False).returncode:
        pytest.skip("this compiler has no sanitizers")
    program = talker(tmp_path, "", *flags)
    for seed in range(200, 240):
        with laboratory(seed) as port:
            command = [program, str(port), "1", "5", "0.01", "0.1"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=20.0, check=False)
        assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: the greeting was refused


def confused(c: Any, port: int, rng: np.random.Generator) -> None:
    """Make random calls with random numbers, and disconnect at a random time."""
    client = c.rths_client_connect(b"127.0.0.1", port, int(rng.choice([1, 1, 1, 1, 2])), 5.0, 0.3)
    step = 0
    for _ in range(int(rng.integers(1, 40))):
        kind = rng.integers(12)
        x = reals(*rng.choice([0.0, 1e-5, 1e-3, 0.2, 1e9, math.nan], 2, p=[0.4, 0.3, 0.2, 0.04, 0.03, 0.03]))
        if kind < 6:
            step += int(rng.choice([0, 1, 1, 1, 1, 1, 2]))
            c.rths_client_trial(client, x, reals(0.0, 0.0), reals(0.0, 0.0), 0.01 * step)
            c.rths_client_force(client, reals(0.0, 0.0))
        elif kind < 9:
            c.rths_client_commit(client)
        elif kind < 11:
            c.rths_client_force(client, reals(0.0, 0.0))
        else:
            c.rths_client_mass(client, (ctypes.c_double * 4)())
    c.rths_client_close(client)


def outcome_and_reason(port: int) -> tuple[str, str]:
    try:
        result = hosts.run(rig(port, "duration=0.1", "integrator.answer_within=0.5"))
    except ConfigError as error:
        return "refused", str(error)
    assert np.nanmax(np.abs(result.read().command)) <= STROKE
    return result.outcome, result.reason


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(40), id="short"), pytest.param(range(1000, 2000), id="soak", marks=SOAK)]
)
def test_faulty_programs_end_test_with_reason(c: Any, seeds: range) -> None:
    """The commands stay within the limits."""
    outcomes = set()
    for seed in seeds:
        port = free_port()
        with beside(confused, c, port, np.random.default_rng(seed)):
            outcome, reason = outcome_and_reason(port)
        outcomes.add(outcome)
        assert reason or outcome == "finished"
        assert outcome != "refused" or reason.startswith("integrator.type = 'remote': ")
    assert {"refused", "failed", "tripped"} <= outcomes <= {"refused", "failed", "tripped", "finished"}


def test_page_lists_results_and_version() -> None:
    header, page = (CLIENT / "rths_client.h").read_text(), (ROOT / "doc" / "hybrid_client.md").read_text()
    assert "#define RTHS_CLIENT_PROTOCOL 1 " in header
    assert "rths_protocol = 1\n" in (CLIENT / "rths_client.f90").read_text()
    assert mentions(page, "version", "1", "protocol")
    for name in ("ARGUMENT", "NOBODY", "TIMEOUT", "CLOSED", "BROKEN", "ORDER", "GARBAGE", "UNKNOWN", "FULL"):
        assert f"RTHS_CLIENT_{name} = " in header
        assert f"`{name}`" in page
