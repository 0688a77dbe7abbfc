# SPDX-License-Identifier: Apache-2.0
"""A numerical substructure in OpenSees, or in another client of the same protocol. The client drives the rig.

The client sends a greeting of eleven int32, then vectors of little-endian doubles that begin with the action. The
first five int32 count the displacements, velocities, accelerations, forces and times that the client sends. The
next five count the same quantities that it requests. The last int32 is the length of every vector.
"""

from __future__ import annotations

import logging
import math
import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.addresses import check_address
from rths_nodes.core.arithmetic import matvec
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ClientLeft, ConfigError, IntegratorError
from rths_nodes.core.parameters import AnyParams, TestContext, integer, matrix, number, params, text
from rths_nodes.core.protocols import Integrator, Structure
from rths_nodes.core.samples import EMPTY, Array

WHOLE_S = 2.0
"""Longest time to receive a message from its first to its last byte, or to send an answer, s."""

LOOK_S = 0.2
"""Interval at which the timeout is checked while waiting, s."""

QUICKACK = socket.TCP_QUICKACK if sys.platform == "linux" else None
"""Socket option that acknowledges segments immediately. Without it Nagle's algorithm adds 44 ms per step."""


class ConnectionEnded(IntegratorError):
    """The client has closed the connection. ``missing`` is the number of outstanding bytes of a message, or 0."""

    def __init__(self, missing: int) -> None:
        super().__init__("the client has closed the connection" + (" within a message" if missing else ""))
        self.missing = missing


class Connection:
    """Listens on ``address`` and ``port`` (0: chosen by the system), and accepts a single client."""

    def __init__(self, address: str, port: int) -> None:
        self._address, self.port = address, port
        self._listener: socket.socket | None = None
        self._client: socket.socket | None = None
        self._buffer = bytearray()
        self._began = 0.0

    @property
    def endpoint(self) -> str:
        return f"{self._address} port {self.port}"

    def listen(self) -> None:
        address, port = self._address, self.port
        try:
            self._listener = socket.create_server((address, port), backlog=1)
            self._listener.setblocking(False)
            self.port = self._listener.getsockname()[1]
        except OSError as error:
            raise ConfigError(
                f"integrator.address = {address!r}, integrator.port = {port}: cannot listen on this address "
                f"({error.strerror or error})"
            ) from error

    def accept(self) -> bool:
        if self._client is None and self._listener is not None:
            try:
                self._client, _ = self._listener.accept()
            except BlockingIOError:
                return False
            self._client.setblocking(False)
            self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._listener.close()
        return self._client is not None

    def receive(self, size: int) -> bytes | None:
        """Return the next ``size`` bytes, or None if they have not arrived.

        Raises ConnectionEnded if the client has closed the connection, or IntegratorError if the connection is
        lost or the message is not complete in time.
        """
        assert self._client is not None
        buffer = self._buffer
        while (missing := size - len(buffer)) > 0:
            part = self._read(missing)
            if part is None:
                if buffer and time.monotonic() > self._began + WHOLE_S:
                    raise IntegratorError(
                        f"the client sent only {len(buffer)} of {size} bytes of a message within {WHOLE_S:g} s"
                    )
                return None
            if not part:
                raise ConnectionEnded(missing if buffer else 0)
            if not buffer:
                self._began = time.monotonic()
            buffer += part
        message = bytes(buffer)
        buffer.clear()
        return message

    def _read(self, most: int) -> bytes | None:
        assert self._client is not None
        if QUICKACK is not None:
            self._client.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
        try:
            return self._client.recv(most)
        except BlockingIOError:
            return None
        except OSError as error:
            raise IntegratorError(f"the connection to the client was lost ({error.strerror})") from error

    def wait(self) -> None:
        assert self._client is not None
        select.select([self._client], [], [], LOOK_S)

    def send(self, data: bytes) -> None:
        assert self._client is not None
        until, rest = time.monotonic() + WHOLE_S, memoryview(data)
        while rest:
            try:
                rest = rest[self._client.send(rest) :]
            except BlockingIOError:
                if time.monotonic() > until:
                    raise IntegratorError(f"the client has not received an answer within {WHOLE_S:g} s") from None
                select.select([], [self._client], [], LOOK_S)
            except OSError as error:
                raise IntegratorError(f"the connection to the client was lost ({error.strerror})") from error

    def close(self) -> None:
        for connection in (self._listener, self._client):
            if connection is not None:
                with suppress(OSError):
                    connection.close()
        self._listener = self._client = None


Indices = NDArray[np.intp]

GREETING = struct.Struct("<11i")

TRIAL, COMMIT, FORCE, INITIAL_STIFFNESS, TANGENT_STIFFNESS, DAMPING, MASS, DIE = 3, 5, 10, 12, 13, 14, 15, 99
ACTIONS = {
    TRIAL: "setTrialResponse",
    COMMIT: "commitState",
    FORCE: "getForce",
    INITIAL_STIFFNESS: "getInitialStiff",
    TANGENT_STIFFNESS: "getTangentStiff",
    DAMPING: "getDamp",
    MASS: "getMass",
    DIE: "die",
}
"""Actions of a client. The first two and the last receive no answer."""

LONGEST_VECTOR = 65_536

FARTHEST = 1e6
"""Largest plausible value, m, m/s, m/s^2 or s. Derivatives of larger values could overflow."""


class Request(NamedTuple):
    """Request from the client: action; for a TRIAL also displacement (m), velocity (m/s) and time (s)."""

    action: int
    displacement: Array = EMPTY
    velocity: Array = EMPTY
    time: float = 0.0


def vector_length(greeting: bytes, n: int) -> int:
    """Return the length of the client's vectors, in doubles.

    Raises IntegratorError if ``greeting`` does not match ``n`` degrees of freedom.
    """
    *sizes, length = GREETING.unpack(greeting)
    expected = [n, n, n, 0, 1, 0, 0, 0, n, 0]
    if sizes != expected:
        raise IntegratorError(
            "the client states the sizes [disp, vel, accel, force, time] of sent and of requested vectors as "
            f"{sizes[:5]} and {sizes[5:]}, but a genericClient for n = {n} degrees of freedom must state "
            f"{expected[:5]} and {expected[5:]}"
        )
    least = max(3 * n + 2, n * n)
    if not least <= length <= LONGEST_VECTOR:
        raise IntegratorError(
            f"the client states vectors of {length} doubles (-dataSize), but their length must be >= {least} and "
            f"<= {LONGEST_VECTOR}"
        )
    return int(length)


def request(vector: bytes, columns: Indices) -> Request:
    n = len(columns)
    values = np.frombuffer(vector, "<f8")
    action = float(values[0])
    if action not in ACTIONS:
        actions = ", ".join(f"{number} {name}" for number, name in ACTIONS.items())
        raise IntegratorError(f"the client requests the unknown action {action:g}; known actions are {actions}")
    if action != TRIAL:
        return Request(int(action))
    numbers = values[1 : 3 * n + 2].astype(float)
    if not (np.abs(numbers) <= FARTHEST).all():  # also refuses NaN
        worst = numbers[np.argmin(np.abs(numbers) <= FARTHEST)]
        raise IntegratorError(
            f"the client sent the value {worst:g} (SI units) in a trial response, but must send values "
            f"between -{FARTHEST:g} and {FARTHEST:g}"
        )
    return Request(TRIAL, numbers[columns], numbers[n + columns], float(numbers[3 * n]))


def answer(values: Array, length: int, columns: Indices) -> bytes:
    """Return a vector of ``length`` doubles that begins with ``values`` in column-major order.

    ``columns`` are the positions of the degrees of freedom in the client's order.
    """
    vector, theirs = np.zeros(length, "<f8"), np.zeros_like(values)
    theirs[np.ix_(*[columns] * values.ndim)] = values
    vector[: values.size] = theirs.ravel("F")
    return vector.tobytes()


ROUNDING = 1e-6
"""Tolerance of times, in steps, for the rounding errors of a client that adds many steps."""

LONGEST_TALK = 10_000
"""Largest number of requests in a static step, or between two displacements for the rig."""


class Conversation:
    """Answers the client's requests. ``matrices`` maps actions to matrices of the part under test.

    After its static steps the client makes ``steps`` steps of ``iterations * dt`` s, with a Target per iteration.
    Until the end of the static stage, forces follow from the declared stiffness and the rig does not move. In the
    dynamic stage, a request for the force of a new trial response sets ``due`` to the displacement ``(n,)`` of the
    response, in m, relative to the end of the static stage. Otherwise ``due`` is None. The rig moves to ``due``,
    and :meth:`force` returns the answer.

    New trial responses are recognised by time and displacement. Integrators request forces at t + dt or at
    t + alpha_F dt; some repeat requests or begin at t. ``offset`` (m) and ``static_force`` (N) are displacement
    and force at the end of the static stage. ``steps`` counts the time steps committed after this stage, and
    ``asked`` the requests of each action.
    """

    def __init__(self, n: int, matrices: Mapping[int, Array], params: AnyParams, steps: int, dt: float) -> None:
        self._matrices, self._p, self._all_steps = matrices, params, steps
        self._time_step = params.iterations * dt
        self.due: Array | None = None
        self.offset = self.static_force = np.zeros(n)
        self.steps = 0
        self.asked: Counter[int] = Counter()
        self.idle = True
        """True between commitState and the next trial response, when the client may disconnect."""
        self._static = params.static_steps
        self._trial = Request(TRIAL, np.zeros(n), np.zeros(n), 0.0)
        self._fresh = False
        self._index = self._iteration = self._requests = 0
        self._imposed, self._time = self.offset, params.start_time
        self._force = self.static_force

    @property
    def where(self) -> str:
        if self._static:
            return f"in static step {self._p.static_steps - self._static + 1} of {self._p.static_steps}"
        return f"after {self.steps} of {self._all_steps} steps, at model time {self._trial.time:g} s"

    def reply(self, request: Request) -> Array | None:
        """Return the answer, or None if the request has no answer or a displacement is ``due``.

        Raises ClientLeft if the client ends its analysis, and IntegratorError if the request is not permitted.
        """
        self.asked[request.action] += 1
        self._requests += 1
        if self._requests > LONGEST_TALK:
            raise IntegratorError(
                f"the client has made {LONGEST_TALK} requests without a new displacement {self.where}"
            )
        if request.action == TRIAL:
            self._try(request)
            return None
        if request.action == COMMIT:
            self._commit()
            return None
        if request.action == DIE:
            raise ClientLeft(f"the client has ended its analysis {self.where}")
        if request.action == FORCE:
            return self._ask()
        return self._matrices[request.action]

    def force(self, measured: Array) -> Array:
        self.due = None
        self._force = measured + self.static_force
        return self._force

    def _try(self, request: Request) -> None:
        if self._static and request.velocity.any():
            raise IntegratorError(
                f"the client sent velocities {self.where}, but the first static_steps commitState requests must "
                "belong to a static analysis"
            )
        self._trial, self._fresh, self.idle = request, True, False

    def _commit(self) -> None:
        self.idle = True
        if not self._static:
            self.steps += 1
            return
        self._requests = 0
        self._static -= 1
        if not self._static:
            self._imposed = self.offset = self._trial.displacement
            self._force = self.static_force = matvec(self._matrices[INITIAL_STIFFNESS], self.offset)
            self._fresh = False

    def _ask(self) -> Array | None:
        trial = self._trial
        if self._static:
            return matvec(self._matrices[INITIAL_STIFFNESS], trial.displacement)
        if not self._fresh:
            return self._force
        self._fresh = False
        index = math.ceil((trial.time - self._p.start_time) / self._time_step - ROUNDING)
        again = np.array_equal(trial.displacement, self._imposed)
        if again and index == self._index and (index == 0 or self._p.iterations == 1):
            return self._force
        self._check_time(index, trial.time)
        self._imposed, self._requests = trial.displacement, 0
        self.due = trial.displacement - self.offset
        return None

    def _check_time(self, index: int, time: float) -> None:
        params, step = self._p, self._time_step
        if index == self._index and 0 < self._iteration < params.iterations:
            self._iteration += 1
            return
        if index == self._index:
            raise IntegratorError(
                f"the client requests the force at another displacement in the same time step {self.where}. Each "
                f"step of {step:g} s must have {params.iterations} iterations"
            )
        late = self._index > 0 and abs(time - self._time - step) > ROUNDING * step + 1e-12 * abs(time)
        if index != self._index + 1 or late:
            before = params.start_time if self._index == 0 else self._time
            gravity = not (self._index or params.static_steps)
            hint = ". Set static_steps if a gravity analysis comes first" if gravity else ""
            raise IntegratorError(
                f"the client advances from time {before:g} s to {time:g} s, but the step must be {step:g} s "
                f"(iterations * substeps / servo_rate) from start_time on{hint}"
            )
        if self._index and self._iteration != params.iterations:
            raise IntegratorError(
                f"the number of iterations of the client is {self._iteration} {self.where}, but must be "
                f"{params.iterations}"
            )
        self._index, self._iteration, self._time = index, 1, time

    def summary(self) -> str:
        counts = ", ".join(f"{ACTIONS[action]} {count}" for action, count in sorted(self.asked.items()))
        return counts or "nothing"


FAREWELL_S = 1.0
"""Time for a client to commit its last step and disconnect after the test, s."""

CLIENT = "the client"

SILENT = f"{CLIENT} sent nothing"

log = logging.getLogger(__name__)


class Served(Integrator):
    """Serves the element genericClient: receives trial displacements as Targets, and returns the rig's forces.

    Some integrators of the client send no velocities or accelerations. A Target's velocity and acceleration are
    therefore derived from the parabola through the last three displacements. Its curvature is the exact
    acceleration at the last step. External and restoring forces are unknown and remain zero. The element has the
    degrees of freedom of the axes, followed by observed degrees of freedom without force.
    """

    external = True

    @params
    class Params:
        observes: ClassVar[bool] = True
        who: ClassVar[str] = CLIENT
        experimental_stiffness: tuple[tuple[float, ...], ...] = matrix(
            "stiffness of the part under test, for getInitialStiff, getTangentStiff and the static stage", "N/m"
        )
        experimental_damping: tuple[tuple[float, ...], ...] | None = matrix(
            "damping of the part under test, for getDamp; default: zero", "N s/m", None
        )
        experimental_mass: tuple[tuple[float, ...], ...] | None = matrix(
            "mass of the part under test, for getMass; default: zero", "kg", None
        )
        static_steps: int = integer(
            "number of steps of the client's static analysis (gravity), during which the rig does not move",
            default=0,
            at_least=0,
        )
        start_time: float = number("time of the client's model at the beginning of the dynamic analysis", "s", 0.0)
        iterations: int = integer(
            "fixed number of iterations in a time step of the client; each iteration is one integration step",
            default=1,
            at_least=1,
            at_most=1000,
        )
        connect_within: float = number(
            "timeout for the connection of the client, and for each request before the test",
            "s",
            60.0,
            more_than=0.0,
            at_most=86_400.0,
        )
        answer_within: float = number(
            "timeout for a step of the client during the test; in real time, bridge.max_bridge trips the test "
            "sooner",
            "s",
            10.0,
            more_than=0.0,
            at_most=3_600.0,
        )

        def fits(self, test: TestContext) -> None:
            for name, there in (("structure", test.has_structure), ("ground_motion", test.has_ground_motion)):
                if there:
                    kind = type(self).type_name  # type: ignore[attr-defined]
                    raise ConfigError(f"type = {kind!r}: {name} must be left out, because {self.who} contains it")
            n = len(test.axes)
            for name in ("stiffness", "damping", "mass"):
                rows = getattr(self, f"experimental_{name}")
                if rows is not None and (np.shape(rows) != (n, n) or not np.allclose(rows, np.transpose(rows))):
                    raise ConfigError(
                        f"experimental_{name}: must be a symmetric {n} x {n} matrix, with one row for each degree "
                        "of freedom of the interface"
                    )

    def __init__(
        self,
        params: AnyParams,
        external_force: Array,
        dt: float,
        connection: Connection,
        wire: Sequence[int] | None = None,
    ) -> None:
        self._n = n = external_force.shape[1]
        self._columns = np.arange(n) if wire is None else np.array(wire)
        self._dt, self._params, self._connection = dt, params, connection
        stiffness, damping, mass = (self._matrix(name) for name in ("stiffness", "damping", "mass"))
        matrices = {INITIAL_STIFFNESS: stiffness, TANGENT_STIFFNESS: stiffness, DAMPING: damping, MASS: mass}
        steps = (len(external_force) - 1) // params.iterations
        self.talk = Conversation(n, matrices, params, steps, dt)
        self._length, self._due = 0, 0.0
        self._patience = params.connect_within
        self._begun = self._welcomed = False
        self.reset()

    def _matrix(self, name: str) -> Array:
        rows, matrix = getattr(self._params, f"experimental_{name}"), np.zeros((self._n, self._n))
        if rows is not None:
            matrix[: len(rows), : len(rows)] = rows
        return matrix

    def reset(self) -> None:
        self.displacement, self.velocity, self.acceleration = np.zeros((3, self._n))
        self.exact_acceleration, self.restoring_force, self._before = np.zeros((3, self._n))

    def open(self) -> None:
        self._connection.listen()
        self._expect(self._params.connect_within)
        log.info("waiting for a client on %s", self._connection.endpoint)

    def missing(self) -> str:
        """Answer requests, and return a description of the awaited message; empty after the first displacement.

        Raises ConfigError, before the rig moves, if the client does not connect or violates the protocol.
        """
        try:
            problem = self._welcome()
        except IntegratorError as error:
            self.close()
            raise ConfigError(f"integrator.type = {type(self._params).type_name!r}: {error}") from error
        if not (problem or self._welcomed):
            self._welcomed = True
            log.info(
                "the client is ready after a static stage with displacement %s m and force %s N; requests so "
                "far: %s",
                self.talk.offset,
                self.talk.static_force,
                self.talk.summary(),
            )
        return problem

    def _welcome(self) -> str:
        if not self._connection.accept():
            self._look_at_clock(f"no client connected to {self._connection.endpoint}")
            return f"a client on {self._connection.endpoint}"
        if not self._length:
            greeting = self._connection.receive(GREETING.size)
            if greeting is None:
                self._look_at_clock(SILENT)
                return "the greeting of the client"
            self._length = vector_length(greeting, self._n)
            self._expect(self._patience)
        return "" if self.ready() else f"the first displacement from the client ({self.talk.where})"

    def begin(self, experimental_force: Array) -> None:
        if self._begun:
            self._answer(experimental_force)
            self._expect(self._params.answer_within)
        self._begun = True

    def ready(self) -> bool:
        try:
            while self.talk.due is None:
                vector = self._connection.receive(8 * self._length)
                if vector is None:
                    self._look_at_clock(SILENT)
                    return False
                if not self._begun:  # during the test the timeout applies to a whole step
                    self._expect(self._patience)
                reply = self.talk.reply(request(vector, self._columns))
                if reply is not None:
                    self._send(reply)
        except ConnectionEnded as error:
            kind = ClientLeft if self.talk.idle and not error.missing else IntegratorError
            raise kind(f"{error} {self.talk.where}") from error
        return True

    def step(self, experimental_force: Array) -> None:
        while not self.ready():
            self._connection.wait()
        assert self.talk.due is not None
        x, dt = self.talk.due, self._dt
        slope = (x - self.displacement) / dt
        curvature = (x - 2.0 * self.displacement + self._before) / dt**2
        self._before, self.displacement = self.displacement, x
        self.velocity = slope + 0.5 * dt * curvature
        self.acceleration = self.exact_acceleration = curvature

    def finish(self, experimental_force: Array) -> None:
        try:
            self._answer(experimental_force)
            self._expect(FAREWELL_S)
            while not self.ready():
                self._connection.wait()
            log.warning("the client continues after the last step of the test (%s)", self.talk.where)
        except IntegratorError as error:
            log.info("%s", error)

    def numbers(self) -> Data:
        """Return the client's number of steps, and displacement (m) and force (N) after its static stage."""
        talk = self.talk
        static = {"displacement": talk.offset.tolist(), "force": talk.static_force.tolist()}
        return {"client_steps": talk.steps, "static_stage": static}

    def close(self) -> None:
        self._connection.close()
        if self.talk.asked:
            log.info("requests of the client: %s", self.talk.summary())

    def _answer(self, experimental_force: Array) -> None:
        self._send(self.talk.force(experimental_force))

    def _send(self, values: Array) -> None:
        self._connection.send(answer(values, self._length, self._columns))

    def _expect(self, patience: float) -> None:
        self._patience, self._due = patience, time.monotonic() + patience

    def _look_at_clock(self, text: str) -> None:
        if time.monotonic() > self._due:
            raise IntegratorError(f"{text} within {self._patience:g} s ({self.talk.where})")


class Remote(Served):
    """A client that the user starts, on this or another machine."""

    @params
    class Params(Served.Params):
        address: str = text("IP address on which the server listens for the client", "127.0.0.1")
        port: int = integer("TCP port on which the server listens", default=8090, at_least=1, at_most=65_535)

        def validate(self, path: str) -> None:
            check_address(self.address, f"{path}.address")

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        super().__init__(params, external_force, dt, Connection(params.address, params.port))
