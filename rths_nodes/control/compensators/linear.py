# SPDX-License-Identifier: Apache-2.0
"""Linear laws with fixed coefficients: a user-defined law, and PI control with a phase lead.

A user-defined law is a state-space model or a transfer function, e.g. exported from MATLAB:

    z_{k+1} = A z_k + B u_k,   command = C z_k + D u_k

where z is the state, and u contains the first of ``inputs`` for all axes, then the second, and so on. A continuous
law (Ts = 0) is discretised by Tustin's rule. By default target and command belong to the same sample. A law
designed in a simulation without delay between target and measurement, such as the RTHS benchmark (Silva et al.
2020), needs ``target_of: measurement``.

PI tracking control with a phase lead is the example controller of that benchmark:

    u = (K_p + K_i / s) (w - m),    w = (1 + T_1 s) / (1 + T_2 s) y

u is the command, y the target and m the measured displacement. y and m are values of the last sample. Both
transfer functions are discretised by Tustin's rule. Without a transport delay this law reproduces the benchmark's
simulation, in which a measurement affects the command of the same instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rths_nodes.control.compensators.per_axis import CoupledKernel, PerAxis, acceleration_cautions, lead_parameter
from rths_nodes.core.arithmetic import NAN, Numbers, along, times
from rths_nodes.core.errors import ConfigError, join, show, within
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import (
    AnyParams,
    TestContext,
    check_one_of,
    declared,
    matrix,
    number,
    params,
    path,
    section,
    text,
    texts,
    vector,
)
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.core.tables import read_binary
from rths_nodes.core.text_files import read_text, reason, version_of
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import parse

INPUTS = ("target", "velocity", "acceleration", "error", "measured", "force")
OF_TARGET = INPUTS[:3]
WHOLE_PERIOD = 1e-6
"""Largest relative difference between Ts and the servo period that counts as rounding."""
Rows = tuple[tuple[float, ...], ...]
State = tuple[Numbers, Numbers, Numbers, Numbers, Numbers]
"""State of the law; x (m), v (m/s) and a (m/s^2) of the last target, extrapolated by the lead; acceleration of
this target before the extrapolation."""


class System(NamedTuple):
    """Matrices of a law: A ``(n, n)``, B ``(n, inputs)``, C ``(n_axes, n)``, D ``(n_axes, inputs)``."""

    a: Array
    b: Array
    c: Array
    d: Array


@params
class Law:
    """Linear law, defined by a state-space model, by the matrix D alone, or by a transfer function.

    A transfer function is possible only for one input and one axis.
    """

    A: Rows | None = matrix("matrix A, with a row and a column for each state", default=None)
    B: Rows | None = matrix("matrix B, with a row for each state and a column for each input", default=None)
    C: Rows | None = matrix("matrix C, with a row for each axis and a column for each state", default=None)
    D: Rows | None = matrix(
        "matrix D, with a row for each axis and a column for each input; default: 0", default=None
    )
    numerator: tuple[float, ...] | None = vector("numerator coefficients, highest power first", default=None)
    denominator: tuple[float, ...] | None = vector("denominator coefficients, highest power first", default=None)
    Ts: float = number(
        "sample time, which must equal the servo period; 0 for a continuous law with time in s",
        "s",
        0.0,
        at_least=0.0,
    )

    def validate(self, path: str) -> None:
        prefix = f"{path}: " if path else ""
        complete = (self.A is None) == (self.B is None) == (self.C is None)
        of_states = any(matrix is not None for matrix in (self.A, self.B, self.C, self.D))
        if of_states == (self.denominator is not None) or (self.numerator is None) != (self.denominator is None):
            raise ConfigError(
                f"{prefix}the law must have one form: either matrices (A, B, C, D), or numerator and denominator"
            )
        if self.denominator is None and (not complete or (self.A is None and self.D is None)):
            raise ConfigError(f"{prefix}A, B and C must be set together; D alone defines a law without states")
        above, below = self.numerator or (), self.denominator or (1.0,)
        if len(above) > len(below) or not below[0]:
            raise ConfigError(
                f"{join(path, 'numerator')} = {show(list(above))}: must have at most as many coefficients as "
                "the denominator, and the first coefficient of the denominator must not be 0"
            )
        self.system(path)

    def system(self, path: str) -> System:
        """Return the matrices of the law. Raises ConfigError if their sizes do not match."""
        if self.denominator is not None:
            from scipy import signal  # slow import (1 s), not needed to list components

            return System(*map(np.atleast_2d, signal.tf2ss(self.numerator, self.denominator)))
        d = np.array(self.D or ())
        if self.A is None:
            return System(np.zeros((0, 0)), np.zeros((0, d.shape[1])), np.zeros((len(d), 0)), d)
        a, b, c = np.array(self.A), np.array(self.B), np.array(self.C)
        d = d if self.D is not None else np.zeros((len(c), b.shape[1]))
        n, (outputs, inputs) = len(a), d.shape
        if (a.shape, b.shape, c.shape) != ((n, n), (n, inputs), (outputs, n)):
            sizes = zip("ABCD", (a, b, c, d), strict=True)
            shapes = ", ".join(f"{name} is {' x '.join(map(str, matrix.shape))}" for name, matrix in sizes)
            raise ConfigError(
                f"{path}{': ' if path else ''}{shapes}; the sizes must be n x n, n x inputs, axes x n, axes x "
                "inputs"
            )
        return System(a, b, c, d)

    def sampled(self, dt: float, path: str) -> System:
        """Return the law for the servo period ``dt`` (s). Raises ConfigError if Ts is neither 0 nor ``dt``."""
        system = self.system(path)
        if self.Ts and abs(self.Ts - dt) > WHOLE_PERIOD * dt:
            raise ConfigError(
                f"{path}: Ts = {self.Ts:.9g} s: must be the servo period, {dt:.9g} s, or 0 for a continuous law"
            )
        if self.Ts or not len(system.a):
            return system
        from scipy import signal

        return System(*signal.cont2discrete(system, dt, "bilinear")[:4])


def law_of(params: AnyParams, path: str = "compensator") -> tuple[Law, str]:
    """Return the law of ``params`` and its location for messages. Raises ConfigError if a file is invalid."""
    if params.law is not None:
        return params.law, join(path, "law")
    file, location = Path(params.file).expanduser(), join(path, "file")
    fields = declared(Law)
    try:
        if file.suffix.lower() == ".mat":
            values = _variables(file, *version_of(file))
            content: object = {
                name: _as_written(fields[name].kind, values[name]) for name in values if name in fields
            }
        else:
            content = parse(read_text(file), str(file))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{location}: {file} cannot be read ({reason(error)})") from None
    if not isinstance(content, Mapping) or not content:
        raise ConfigError(f"{location}: {file} contains none of the variables {', '.join(fields)}")
    with within(f"{location}: {file}"):
        return from_data(Law, content), f"{location}: {file}"


@lru_cache(maxsize=1)
def _variables(file: Path, *now: int) -> dict[str, Array]:
    return read_binary(file).columns


def _as_written(kind: str, value: Array) -> object:
    """Convert a MATLAB matrix to a parameter of the given ``kind``: number, vector or matrix, as in YAML."""
    if kind == "number":
        return value.item() if value.size == 1 else value.tolist()
    return value.ravel().tolist() if kind == "vector" else np.atleast_2d(value).tolist()


class Constants(NamedTuple):
    """Matrices and options of the law.

    ``commands`` holds the rows of (C, D). ``onward`` holds the rows of (A, B). Each row has n numbers for the
    state, then 6 n_axes numbers for the possible inputs.
    """

    commands: Rows
    onward: Rows
    waits: bool
    """True if the law uses the target of the last measured sample."""
    lead: tuple[float, float, float, float, float]
    """Factors of the lead L (``per_axis.py``): L, L / 2, L / (3 dt), L / (2 dt), L / dt."""


def constants(law: Law, path: str, params: Linear.Params, dt: float) -> Constants:
    a, b, c, d = law.sampled(dt, path)
    n, per_axis = len(d), len(params.signals)
    if d.shape[1] != n * per_axis:
        raise ConfigError(
            f"{path}: the law has {d.shape[1]} inputs and {n} outputs; the number of inputs must be "
            f"{n * per_axis}, one for each axis and each of compensator.inputs ({', '.join(params.signals)})"
        )
    columns = [INPUTS.index(name) * n + axis for name in params.signals for axis in range(n)]
    onto = np.zeros((n + len(a), len(INPUTS) * n))
    onto[:, columns] = np.vstack((d, b))
    rows = tuple(map(tuple, np.hstack((np.vstack((c, a)), onto)).tolist()))
    lead = params.lead
    ahead = (lead, 0.5 * lead, lead / (3.0 * dt), lead / (2.0 * dt), lead / dt)
    return Constants(rows[:n], rows[n:], params.target_of == "measurement", ahead)


def rest(k: Constants) -> State:
    still = (0.0,) * len(k.commands)
    return (0.0,) * len(k.onward), still, still, still, (NAN,) * len(k.commands)


def step(
    k: Constants,
    s: State,
    x: Numbers,
    v: Numbers,
    a: Numbers,
    m: Numbers,
    f: Numbers,
    rests: bool,
    preparing: bool,
) -> tuple[tuple[Numbers, ...], Numbers]:
    """Return the next state and the command of the law."""
    commands, onward, waits, lead = k
    z, x_before, v_before, a_before, acceleration_before = s
    ahead, half, of_x, of_v, of_a = lead
    acceleration = a
    if ahead > 0.0:
        if acceleration_before[0] != acceleration_before[0]:  # NaN at the first sample: no change
            acceleration_before = a
        change = along(a, -1.0, acceleration_before)
        x = along(x, ahead, along(v, half, along(a, of_x, change)))
        v, a = along(v, ahead, along(a, of_v, change)), along(a, of_a, change)
    target = (x_before, v_before, a_before) if waits else (x, v, a)
    displacement, velocity, acceleration_seen = target
    seen = z + displacement + velocity + acceleration_seen + along(x_before, -1.0, m) + m + f
    return (times(onward, seen), x, v, a, acceleration), times(commands, seen)


def step_of_one(
    k: Constants, s: State, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[object, float]:
    after, (command,) = step(k, s, (x,), (v,), (a,), (m,), (f,), rests, preparing)
    return after, command


class Linear(PerAxis):
    """A user-defined linear law that maps target and measurement to the command, for one or several axes."""

    @params
    class Params:
        file: str | None = path(
            "YAML or MATLAB file (.mat) with Ts and either A, B, C, D or numerator and denominator", None
        )
        law: Law | None = section(
            Law, "Ts and either A, B, C, D or numerator and denominator, in place of a file", None
        )
        inputs: tuple[str, ...] = texts(
            "signals in the order of the inputs of the law, each for all axes (error is the target minus the "
            "measurement of the same sample); default: the target",
            INPUTS,
        )
        target_of: str = text(
            "sample whose target the law uses: sample of the command, or of the measurement (one sample earlier)",
            "command",
            ("command", "measurement"),
        )
        lead: float = lead_parameter()

        def validate(self, path: str) -> None:
            check_one_of(path, self, "file", "law")
            if twice := [name for name in self.inputs if self.inputs.count(name) > 1]:
                raise ConfigError(f"{path}.inputs: {twice[0]} is listed twice")

        def fits(self, test: TestContext) -> None:
            law, path = law_of(self, "")
            outputs = len(law.sampled(test.dt, path).d)
            if outputs != len(test.axes):
                raise ConfigError(
                    f"{path}: the number of outputs is {outputs}, but must be {len(test.axes)}, one per axis"
                )

        def cautions(self, test: TestContext) -> list[str]:
            law, path = law_of(self, "")
            fastest = np.abs(np.linalg.eigvals(law.sampled(test.dt, path).a)).max(initial=0.0)
            cautions = acceleration_cautions(test) if "acceleration" in self.signals else []
            if fastest > 1.0 + ROUNDING:
                growth = f"its state grows by the factor {fastest:.6g} per sample"
                cautions.append(f"{path}: the law is not stable, because {growth}")
            return cautions

        @property
        def signals(self) -> tuple[str, ...]:
            return self.inputs or INPUTS[:1]

    reads_ahead = True

    @classmethod
    def own_kernel(cls, params: Params) -> Kernel | CoupledKernel:
        law, path = law_of(params)  # read the file only once
        sampled = partial(constants, law, path)
        if len(law.system(path).d) == 1:
            return Kernel(sampled, rest, step_of_one)
        return CoupledKernel(sampled, rest, step)

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Return the ratio of command to target at ``omega`` (rad/s), assuming exact derivatives.

        The shape is ``(n,)`` for one axis and ``(n, n_axes, n_axes)`` for several axes. Raises ConfigError for a
        law with feedback, whose response depends on the rig.
        """
        if fed_back := [name for name in self._p.signals if name not in OF_TARGET]:
            raise ConfigError(f"compensator.inputs: {fed_back[0]} is fed back, so the response depends on the rig")
        law, path = law_of(self._p)
        a, b, c, d = law.sampled(self._dt, path)
        n, s = len(d), 1j * np.asarray(omega)
        z = np.exp(s * self._dt)[:, None, None]
        powers = [s[:, None, None] ** OF_TARGET.index(name) for name in self._p.signals]
        over = np.concatenate([power * np.eye(n) for power in powers], axis=1)
        transfer = (c @ np.linalg.solve(z * np.eye(len(a)) - a, b.astype(complex)[None]) + d) @ over
        if self._p.target_of == "measurement":
            transfer = transfer / z
        transfer = transfer * self.lead_response(omega)[:, None, None]
        return np.asarray(transfer[:, 0, 0] if n == 1 else transfer)


# PI control with a phase lead

PiConstants = tuple[float, float, float, float, float]
"""K_p and K_i dt / 2; weights of this target, the last target and the last output of the phase lead."""
PiState = tuple[float, float, float, float]
"""Target, target with phase lead, error and integral (m) of the last sample."""


def pi_constants(params: ProportionalIntegralLead.Params, dt: float) -> PiConstants:
    first, second = 2.0 * params.lead_time, 2.0 * params.lag_time
    below = dt + second
    taps = (dt + first) / below, (dt - first) / below, (second - dt) / below
    return params.proportional, 0.5 * dt * params.integral, *taps


def pi_step(
    k: PiConstants, s: PiState, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[PiState, float]:
    """Return the PI command for the tracking error of the last sample."""
    proportional, half, now, before, kept = k
    x_before, led, error_before, integral = s
    error = led - m
    integral += half * (error + error_before)
    led = now * x + before * x_before + kept * led
    return (x, led, error, integral), proportional * error + integral


def shown(k: PiConstants, s: PiState) -> tuple[float]:
    _, _, _, integral = s
    return (integral,)


class ProportionalIntegralLead(PerAxis):
    """PI control of the tracking error, with a phase lead of the target."""

    SOURCES = ("silva_2020",)

    @params
    class Params:
        proportional: float = number("gain K_p on the tracking error", "1", 2.0, at_least=0.0)
        integral: float = number("gain K_i on the integral of the tracking error", "1/s", 95.0, at_least=0.0)
        lead_time: float = number(
            "time constant T_1 of the phase lead", "s", 50.83163360273612 / 8570.397339444286, at_least=0.0
        )
        lag_time: float = number(
            "time constant T_2 of the phase lead", "s", 1.0 / 8570.397339444286, more_than=0.0
        )
        lead: float = lead_parameter()

    state_units: Mapping[str, str] = {"u_integral": "m"}

    KERNEL = Kernel(pi_constants, lambda k: (0.0, 0.0, 0.0, 0.0), pi_step)
    SHOWN = staticmethod(shown)
