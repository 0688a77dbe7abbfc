# SPDX-License-Identifier: Apache-2.0
"""Any finite element program as client: its library in C, Fortran and Python, with a laboratory and without."""

from __future__ import annotations

import contextlib
import ctypes
import math
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import MASSES, STORIES, beside, free_port, newmark
from hybrid_ends import (
    ARGUMENT,
    CLIENT,
    CLOSED,
    FAILURES,
    FULL,
    GARBAGE,
    NOBODY,
    OK,
    ORDER,
    ROOT,
    TIMEOUT,
    UNKNOWN,
    laboratory,
    library,
    python_client,
    reals,
    talker,
)
from messages import mentions, naming
from remote_rig import STROKE, scenario, server, welcome

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The library in C."""
    return library(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def python() -> Any:
    """The module in Python."""
    return python_client()


def rig(port: int, *overrides: str) -> Any:
    """A rig without a static stage before its test."""
    return scenario(port, "integrator.static_steps=0", *overrides)


# -- programs that are split


def test_a_fortran_program_split_in_two_moves_as_the_whole_one(tmp_path: Path) -> None:
    """The program, the scenario and the make file as they are shipped."""
    missing = [name for name in ("gfortran", "make") if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here: apt install gfortran make")
    folder = tmp_path / "client"
    shutil.copytree(CLIENT, folder)
    built = subprocess.run(["make", "frame"], cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    subprocess.run([folder / "frame", "whole.txt"], cwd=folder, check=True)
    port = free_port()
    words = [folder / "frame", "split.txt", str(port)]
    with subprocess.Popen(words, cwd=folder) as program:
        result = hosts.run(str(folder / "frame.yaml"), [f"integrator.port={port}"])
        assert program.wait(20.0) == 0
    assert (result.outcome, result.exit_code) == ("finished", 0), result.reason
    whole, split = np.loadtxt(folder / "whole.txt"), np.loadtxt(folder / "split.txt")
    assert whole.shape == split.shape == (300, 3)
    assert np.abs(split - whole).max() <= 1e-12 * np.abs(whole).max()
    run = result.read()
    np.testing.assert_allclose(run.dof_displacement[1:, 0], whole[:, 0], rtol=0.0, atol=1e-15)


def test_a_fortran_program_says_why_it_gives_up(tmp_path: Path) -> None:
    if not shutil.which("gfortran") or not shutil.which("make"):
        pytest.skip("no gfortran or make here: apt install gfortran make")
    folder = tmp_path / "client"
    shutil.copytree(CLIENT, folder)
    subprocess.run(["make", "frame"], cwd=folder, capture_output=True, check=True)
    port = free_port()
    words = [folder / "frame", "split.txt", str(port)]
    with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True) as program:
        given = [f"integrator.port={port}", "axes.story_1.limits.stroke=0.005"]
        assert hosts.run(str(folder / "frame.yaml"), given).outcome == "tripped"
        _, said = program.communicate(timeout=20.0)
    assert program.returncode == 1
    assert mentions(said, "conversation", "terminal")


def frame_in_c(c: Any, port: int, steps: int) -> Any:
    """The frame of ``newmark``, with its lowest spring at ``port``, by the library in C."""
    client = c.rths_client_connect(b"127.0.0.1", port, 1, 20.0, 20.0)
    assert client > 0
    force = reals(0.0)

    def asked(step: int, x: Any, v: Any) -> float:
        assert step == 1 or c.rths_client_commit(client) == OK
        assert c.rths_client_trial(client, reals(x[0]), reals(v[0]), reals(0.0), step * 0.01) == OK
        assert c.rths_client_force(client, force) == OK
        return float(force[0])

    found = newmark(steps, 0.01, 0.0, asked, 0.0)
    assert c.rths_client_commit(client) == c.rths_client_close(client) == OK
    return found


def frame_in_python(python: Any, port: int, steps: int) -> Any:
    """The same by the module in Python."""
    with python.Client("127.0.0.1", port, 1, 20.0, 20.0) as client:

        def asked(step: int, x: Any, v: Any) -> float:
            if step > 1:
                client.commit()
            client.trial(x[:1], v[:1], [0.0], step * 0.01)
            return float(client.force()[0])

        found = newmark(steps, 0.01, 0.0, asked, 0.0)
        client.commit()
    return found


def test_c_and_python_move_the_same_frame(c: Any, python: Any) -> None:
    whole = newmark(100, 0.01, 0.0, lambda *_: 0.0, STORIES[0])
    assert len(MASSES) == whole.shape[1] == 3
    found = []
    for run, with_what in ((frame_in_c, c), (frame_in_python, python)):
        port = free_port()
        with beside(run, with_what, port, 100) as moved:
            result = hosts.run(rig(port))
        assert (result.outcome, result.exit_code) == ("finished", 0), result.reason
        assert not isinstance(moved[0], Exception), moved
        assert np.abs(moved[0] - whole).max() <= 1e-12 * np.abs(whole).max()
        found.append(moved[0])
    np.testing.assert_array_equal(*found)


MATRIX = [[3.0, -1.0, 0.0], [-1.0, 2.0, 7.0], [0.0, 7.0, 4.0]]


def test_matrices_are_those_that_the_scenario_declares(c: Any, python: Any) -> None:
    more = {"experimental_stiffness": MATRIX, "experimental_mass": np.diag([1.0, 2.0, 3.0]).tolist()}

    def in_c(port: int) -> Any:
        client = c.rths_client_connect(b"127.0.0.1", port, 3, 20.0, 20.0)
        found = (ctypes.c_double * 9)()
        told = []
        for name in ("stiffness", "damping", "mass"):
            assert getattr(c, f"rths_client_{name}")(client, found) == OK
            told.append(np.reshape(list(found), (3, 3), order="F").tolist())
        zero = reals(0.0, 0.0, 0.0)
        c.rths_client_trial(client, zero, zero, zero, 0.01)
        c.rths_client_force(client, zero)
        c.rths_client_close(client)
        return told

    def in_python(port: int) -> Any:
        with python.Client("127.0.0.1", port, 3) as client:
            told = [client.stiffness(), client.damping(), client.mass()]
            client.trial([0.0] * 3, [0.0] * 3, [0.0] * 3, 0.01)
            with contextlib.suppress(python.ClientError):
                client.force()
            return told

    for ask in (in_c, in_python):
        remote, port = server(more, n=3)
        with beside(ask, port) as told:
            welcome(remote)
            remote.close()
        assert told[0] == [MATRIX, np.zeros((3, 3)).tolist(), np.diag([1.0, 2.0, 3.0]).tolist()]


def recorded(talk: Callable[[int], Any]) -> bytes:
    """Bytes that a client sends to a laboratory that answers zero."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = bytearray()

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                found.extend(line.recv(44, socket.MSG_WAITALL))
                length = int.from_bytes(found[40:44], "little")
                while message := line.recv(8 * length, socket.MSG_WAITALL):
                    found.extend(message)
                    if np.frombuffer(message, "<f8")[0] in (10.0, 12.0):
                        line.sendall(bytes(8 * length))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        talk(listener.getsockname()[1])
        thread.join(20.0)
    return bytes(found)


def test_c_and_python_say_the_same_bytes(c: Any, python: Any) -> None:
    values = [[1e-3, -2.5], [3.0, 1e-300], [-7.0, 0.1]]

    def in_c(port: int) -> None:
        client = c.rths_client_connect(b"127.0.0.1", port, 2, 5.0, 5.0)
        assert c.rths_client_stiffness(client, (ctypes.c_double * 4)()) == OK
        assert c.rths_client_trial(client, *[reals(*each) for each in values], 0.25) == OK
        assert c.rths_client_force(client, reals(0.0, 0.0)) == OK
        assert c.rths_client_commit(client) == c.rths_client_close(client) == OK

    def in_python(port: int) -> None:
        with python.Client("127.0.0.1", port, 2, 5.0, 5.0) as client:
            client.stiffness()
            client.trial(*values, 0.25)
            assert client.force() == [0.0, 0.0]
            client.commit()

    said = recorded(in_c)
    assert said == recorded(in_python)
    assert len(said) == 44 + 5 * 8 * 8


def test_a_big_endian_program_drives_the_rig(tmp_path: Path) -> None:
    if not shutil.which("powerpc-linux-gnu-gcc") or not shutil.which("qemu-ppc"):
        pytest.skip("no powerpc-linux-gnu-gcc or qemu-ppc here: apt install qemu-user gcc-powerpc-linux-gnu")
    program = talker(tmp_path, "powerpc-linux-gnu-gcc", "-static")
    port = free_port()
    words = ["qemu-ppc", str(program), str(port), "1", "20", "0.01", "20"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as there:
        result = hosts.run(rig(port, "duration=0.2"))
        said = there.communicate(timeout=20.0)[0]
    assert (result.outcome, there.returncode) == ("finished", 0), (result.reason, said)
    np.testing.assert_allclose([float(line) for line in said.split()], 10.0 * np.arange(1.0, 21.0) ** 2, rtol=1e-9)


# -- what goes wrong is told


def test_nobody_there_is_told_in_time(c: Any, python: Any) -> None:
    port = free_port()
    for within in (0.0, 0.2):
        began = time.monotonic()
        assert c.rths_client_connect(b"127.0.0.1", port, 1, within, 1.0) == NOBODY
        with pytest.raises(python.NobodyListens):
            python.Client("127.0.0.1", port, 1, within, 1.0)
        assert time.monotonic() - began < 5.0


def test_a_client_is_not_connected_to_itself(c: Any) -> None:
    """A socket can be, where the system lends it the very port that it asks for: some times in 100 000 here."""
    port = free_port() // 2 * 2  # the system lends even ones to who connects, odd ones to who listens
    assert {c.rths_client_connect(b"127.0.0.1", port, 1, 1e-3, 1.0) for _ in range(200_000)} == {NOBODY}


@pytest.mark.parametrize(
    "given",
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
def test_arguments_that_make_no_sense_are_refused(c: Any, given: tuple[Any, ...]) -> None:
    """Address, port, degrees of freedom, and how long to wait for the connection and an answer."""
    assert c.rths_client_connect(*given) == ARGUMENT


@contextlib.contextmanager
def silent() -> Any:
    """The port of somebody who listens and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=20) as listener:
        yield listener.getsockname()[1]


def test_silence_has_an_end_and_a_failure_stays(c: Any, python: Any) -> None:
    with silent() as port:
        client = c.rths_client_connect(b"127.0.0.1", port, 1, 1.0, 0.1)
        assert c.rths_client_stiffness(client, reals(0.0)) == TIMEOUT
        one = reals(0.0)
        assert c.rths_client_trial(client, one, one, one, 0.0) == TIMEOUT
        assert c.rths_client_commit(client) == c.rths_client_force(client, one) == TIMEOUT
        assert c.rths_client_close(client) == OK
        other = python.Client("127.0.0.1", port, 1, 1.0, 0.1)
        with pytest.raises(python.TooLate) as first:
            other.stiffness()
        with pytest.raises(python.TooLate) as second:
            other.trial([0.0], [0.0], [0.0], 0.0)
        assert first.value is second.value
        other.close()
        other.close()


def test_calls_in_another_order_are_told_and_harm_nothing(c: Any, python: Any) -> None:
    with silent() as port:
        client = c.rths_client_connect(b"127.0.0.1", port, 1, 1.0, 0.1)
        assert c.rths_client_force(client, reals(0.0)) == c.rths_client_commit(client) == ORDER
        one = reals(0.0)
        assert c.rths_client_trial(client, one, one, one, 0.0) == OK
        assert c.rths_client_commit(client) == OK
        assert c.rths_client_force(client, None) == ARGUMENT
        assert c.rths_client_close(client) == OK
        with python.Client("127.0.0.1", port, 1, 1.0, 0.1) as other:
            for call in (other.force, other.commit):
                with pytest.raises(ValueError, match=naming("trial", "response")):
                    call()


def test_clients_that_are_not_there_or_too_many_are_told(c: Any) -> None:
    one = reals(0.0)
    for client in (0, -1, 1, 8, 9, 2**31 - 1):
        assert c.rths_client_trial(client, one, one, one, 0.0) == UNKNOWN
        assert c.rths_client_force(client, one) == c.rths_client_commit(client) == UNKNOWN
        assert c.rths_client_mass(client, one) == c.rths_client_close(client) == UNKNOWN
    with silent() as port:
        clients = [c.rths_client_connect(b"127.0.0.1", port, 1, 1.0, 0.1) for _ in range(9)]
        assert clients == [*range(1, 9), FULL]
        assert {c.rths_client_close(client) for client in clients[:-1]} == {OK}


def test_every_result_has_words(c: Any) -> None:
    said = [c.rths_client_words(number).decode() for number in range(-12, 3)]
    assert len(set(said[3:13])) == 10
    assert len(set(said[:2])) == 1
    assert said[0] not in said[3:13]


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e7])
@pytest.mark.parametrize("place", range(4))
def test_a_trial_that_is_no_number_stops_the_rig_at_once(c: Any, python: Any, value: float, place: int) -> None:
    """The laboratory learns of it as of a client that is gone, and not by waiting."""
    values = [[0.0], [0.0], [0.0], 0.02]
    values[place] = value if place == 3 else [value]

    def in_c(port: int) -> Any:
        client = c.rths_client_connect(b"127.0.0.1", port, 1, 20.0, 20.0)
        one = reals(1e-5)
        assert c.rths_client_trial(client, one, one, one, 0.01) == c.rths_client_force(client, one) == OK
        given = [each if isinstance(each, float) else reals(*each) for each in values]
        assert c.rths_client_trial(client, *given) == ARGUMENT
        assert c.rths_client_force(client, one) == ARGUMENT
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

    for run in (in_c, in_python) if place == 0 else (in_c,):
        port = free_port()
        with beside(run, port) as found:
            result = hosts.run(rig(port, "duration=0.1", "integrator.answer_within=20.0"))
        assert found[0] == OK, found
        assert result.outcome == "failed"
        assert mentions(result.reason, "client", "connection")


def test_what_the_rig_has_stopped_is_closed_for_the_program(c: Any) -> None:
    port, results = free_port(), []

    def run(port: int) -> None:
        client = c.rths_client_connect(b"127.0.0.1", port, 1, 20.0, 20.0)
        force, zero = reals(0.0), reals(0.0)
        for step in range(1, 100):
            x = reals(2e-3 * step)  # it leaves the stroke of 50 mm
            results.append(c.rths_client_trial(client, x, zero, zero, 0.01 * step))
            results.append(c.rths_client_force(client, force))
            results.append(c.rths_client_commit(client))
        c.rths_client_close(client)

    with beside(run, port):
        assert hosts.run(rig(port)).outcome == "tripped"
    first = next(each for each in results if each != OK)
    assert first == CLOSED
    assert set(results[results.index(first) :]) == {first}


# -- conversations that go wrong, from either side


def talk_in_c(c: Any, port: int) -> int:
    """A program as it should be; the first result that is not well, or OK."""
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
            now = call()
            assert now == result or result == OK, "a failure stays"
            assert math.isfinite(force[0])
            result = now
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


def check_laboratories(talk: Callable[..., int], with_what: Any, seeds: range) -> None:
    found = []
    for seed in seeds:
        with laboratory(seed) as port:
            began = time.monotonic()
            found.append(talk(with_what, port))
            assert time.monotonic() - began < 3.0
    assert set(found) <= FAILURES | {OK}
    assert {TIMEOUT, CLOSED, GARBAGE} <= set(found)


def test_a_laboratory_that_misbehaves_is_told_by_the_library(c: Any) -> None:
    check_laboratories(talk_in_c, c, range(60))


def test_a_laboratory_that_misbehaves_is_told_by_the_module(python: Any) -> None:
    check_laboratories(talk_in_python, python, range(100, 160))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("language", ["c", "python"])
def test_a_thousand_laboratories_that_misbehave_are_told(language: str, c: Any, python: Any) -> None:
    talk, with_what = (talk_in_c, c) if language == "c" else (talk_in_python, python)
    check_laboratories(talk, with_what, range(1000, 2000))


def test_nothing_is_undefined_and_no_signal_ends_a_program(tmp_path: Path) -> None:
    """Under the sanitizers, in a process of its own: a laboratory that is gone would end it by SIGPIPE."""
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    if subprocess.run(
        ["cc", *flags, probe, "-o", tmp_path / "probe"], capture_output=True, check=False
    ).returncode:
        pytest.skip("this compiler has no sanitizers")
    program = talker(tmp_path, "", *flags)
    for seed in range(200, 240):
        with laboratory(seed) as port:
            words = [program, str(port), "1", "5", "0.01", "0.1"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=20.0, check=False)
        assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: not even the greeting was taken


def confused(c: Any, port: int, rng: np.random.Generator) -> None:
    """A program that makes calls in any order, with any numbers, and leaves at any time, or stays away."""
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


def ended(port: int) -> tuple[str, str]:
    """Outcome and reason of a test that is driven from ``port``."""
    try:
        result = hosts.run(rig(port, "duration=0.1", "integrator.answer_within=0.5"))
    except ConfigError as error:
        return "refused", str(error)
    assert np.nanmax(np.abs(result.read().command)) <= STROKE
    return result.outcome, result.reason


def check_programs(c: Any, seeds: range) -> None:
    """However a program goes wrong, the test has a reason and an end, within its limits."""
    outcomes = set()
    for seed in seeds:
        port = free_port()
        with beside(confused, c, port, np.random.default_rng(seed)):
            outcome, reason = ended(port)
        outcomes.add(outcome)
        assert reason or outcome == "finished"
        assert outcome != "refused" or reason.startswith("integrator.type = 'remote': ")
    assert {"refused", "failed", "tripped"} <= outcomes <= {"refused", "failed", "tripped", "finished"}


def test_a_program_that_goes_wrong_ends_the_test_with_a_reason(c: Any) -> None:
    check_programs(c, range(40))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_thousand_programs_that_go_wrong_end_the_test_with_a_reason(c: Any) -> None:
    check_programs(c, range(1000, 2000))


# -- the page


def test_the_page_names_the_results_and_the_version() -> None:
    header, page = (CLIENT / "rths_client.h").read_text(), (ROOT / "doc" / "hybrid_client.md").read_text()
    assert "#define RTHS_CLIENT_PROTOCOL 1 " in header
    assert "rths_protocol = 1\n" in (CLIENT / "rths_client.f90").read_text()
    assert mentions(page, "version", "1", "protocol")
    for name in ("ARGUMENT", "NOBODY", "TIMEOUT", "CLOSED", "BROKEN", "ORDER", "GARBAGE", "UNKNOWN", "FULL"):
        assert f"RTHS_CLIENT_{name} = " in header
        assert f"`{name}`" in page
