# SPDX-License-Identifier: Apache-2.0
"""Model-based compensation of coupled actuators: feedforward by the inverse model, feedback of the deviation.

Phillips & Spencer, Real-Time Hybrid Simulation of Complex Structures using Multi-Actuator Control, 2012:

    u = u_FF + u_FB
    u_FF = G_0 x + G_1 x' + G_2 x'' + G_3 x'''        Eq. (2.8), the inverse of the loading system
    u_FB = -K z^                                      section 2.2, LQG feedback
    z' = A z + B (u_FB + d),   y = C z + v            Eqs. (2.4) to (2.6), the loading system

with the target x; its jerk x''' is the difference quotient of the accelerations of two samples. The law needs the
integrator's own derivatives of the target (``ramp: hermite``).

y is the measured deviation from the target. K minimises the integral of q |y|^2 + r |u_FB|^2, and a Kalman filter
computes the estimate z^. The disturbance d of the command is white noise, limited to the expected frequencies by a
second-order shaping filter on each axis. The measurement noise v is white.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import numpy as np

from rths_nodes.control.compensators.per_axis import CoupledKernel, PerAxis, acceleration_cautions
from rths_nodes.core.arithmetic import Numbers, along, first, groups, interleaved, matvec, numbers, put, slopes
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.parameters import AnyParams, TestContext, check_one_of, flag, number, params, path, section
from rths_nodes.core.samples import Array
from rths_nodes.mechanics import loading_model
from rths_nodes.mechanics.coupled_rig import RigConstants, feedforward
from rths_nodes.mechanics.loading_model import DERIVATIVES, LoadingModel, StateSpace, load
from rths_nodes.mechanics.structure import transition


@params
class FeedbackParams:
    """Weights of the regulator and noise densities of the observer. Only their ratios matter."""

    displacement_weight: float = number("weight q of the deviation", "1", 14.0, more_than=0.0)
    command_weight: float = number("weight r of the feedback", "1", 1.0, more_than=0.0)
    process_noise: float = number(
        "spectral density of the white noise that the shaping filter converts to a disturbance of the command",
        "m^2/Hz",
        1e3,
        more_than=0.0,
    )
    measurement_noise: float = number("spectral density of the measurement noise", "m^2/Hz", 1.0, more_than=0.0)
    shaping_frequency: float = number("natural frequency of the shaping filter", "Hz", 5.0, more_than=0.0)
    shaping_damping: float = number("damping ratio of the shaping filter", "1", 0.7, more_than=0.0)


Controller = tuple[Array, Array, Array]
"""Matrices Phi, Gamma and K of the feedback u_k = -K z_k of the deviation y.

The state of the observer is z_k = Phi z_{k-1} + Gamma y_{k-1}."""


def feedback_matrix(controller: Controller) -> Array:
    """Return the matrix that maps z_{k-1} and y_{k-1} to z_k and u_k in :func:`feedback_step`."""
    phi, gamma, gain = controller
    onward = np.hstack([phi, gamma])
    return np.asfortranarray(np.vstack([onward, -gain @ onward]))


def observer_at_rest(k: Array) -> Array:
    return np.zeros(k.shape[1])


def feedback_step(k: Array, states: Array, deviation: Numbers, feedback: Numbers) -> Numbers:
    """Update the observer ``states`` in place from the last deviations (m). Return the feedback (m)."""
    n = len(states) - len(deviation)
    put(states, n, deviation)
    derivative = matvec(k, states)
    put(states, 0, derivative[:n])
    return first(feedback, numbers(derivative[n:]))


def deviation_controller(
    plant: StateSpace, params: FeedbackParams, coupled: bool, dt: float, lead: float, path: str
) -> Controller:
    """Return the feedback for ``plant``, sampled every ``dt`` (s). Commands act ``lead`` (s) later.

    The coupling of the axes is ignored if ``coupled`` is false. Raises ConfigError, whose message begins
    with ``path``, if no feedback exists or if its sampled loop with ``plant`` is unstable.
    """
    from scipy.linalg import block_diag  # slow import (0.5 s), not needed to list components

    n = len(plant.outputs)
    groups = [list(range(n))] if coupled else [[axis] for axis in range(n)]
    plants = (StateSpace(plant.system, plant.inputs[:, axes], plant.outputs[axes]) for axes in groups)
    parts = [_continuous(part, params, path) for part in plants]
    system, inputs, gain = (block_diag(*blocks) for blocks in zip(*parts, strict=True))
    phi, before, now = transition(system, inputs, dt)
    controller = phi, before + now, gain
    radius = loop_radius(plant, controller, dt, round(lead / dt))
    if not radius < 1.0:
        raise ConfigError(
            f"{path}: the feedback is not stable with this model, because deviations grow by the factor "
            f"{radius:.4g} per sample at {1.0 / dt:g} Hz with commands that are {lead:g} s late. Use a smaller "
            "displacement_weight or process_noise"
        )
    return controller


def _continuous(plant: StateSpace, params: FeedbackParams, path: str) -> tuple[Array, Array, Array]:
    from scipy.linalg import solve_continuous_are

    speed = float(np.abs(plant.poles()).max())  # 1 / speed is the unit of time in the Riccati equations
    a, b, c = plant.system / speed, plant.inputs / speed, plant.outputs
    n, m = b.shape
    omega, one = 2.0 * math.pi * params.shaping_frequency / speed, np.eye(m)
    # shaping filter, whose second state is the rate divided by omega
    pair = omega * np.array([[0.0, 1.0], [-1.0, -2.0 * params.shaping_damping]])
    push, look = np.array([[0.0], [omega]]), np.array([[1.0, 0.0]])
    shaped = np.vstack(
        [np.hstack([a, b @ np.kron(one, look)]), np.hstack([np.zeros((2 * m, n)), np.kron(one, pair)])]
    )
    driven = np.vstack([np.zeros((n, m)), np.kron(one, push)])
    seen = np.hstack([c, np.zeros((m, 2 * m))])
    noise = params.process_noise / params.measurement_noise
    weight = params.displacement_weight / params.command_weight
    try:
        gain = b.T @ solve_continuous_are(a, b, weight * (c.T @ c), one)
        observer = solve_continuous_are(shaped.T, seen.T, noise * (driven @ driven.T), one) @ seen.T
    except (np.linalg.LinAlgError, ValueError) as error:
        raise ConfigError(f"{path}: no feedback exists for this model and these weights ({error})") from None
    gain = np.hstack([gain, np.zeros((m, 2 * m))])
    closed = shaped - observer @ seen - np.vstack([b, np.zeros((2 * m, m))]) @ gain
    return closed * speed, observer * speed, gain


def loop_radius(plant: StateSpace, controller: Controller, dt: float, late: int) -> float:
    """Return the growth factor of deviations per sample (stable below 1). Commands act ``late`` samples later."""
    phi, before, now = transition(plant.system, plant.inputs, dt)
    phi_of_observer, gamma, gain = controller
    n, m, c = len(phi), before.shape[1], len(phi_of_observer)
    line = (late + 1) * m  # earlier commands, newest first
    loop = np.zeros((n + c + line, n + c + line))
    estimate, feedback = slice(n, n + c), slice(n + c, n + c + m)
    loop[estimate, :n], loop[estimate, estimate] = gamma @ plant.outputs, phi_of_observer
    loop[feedback] = -gain @ loop[estimate]
    loop[n + c + m :, n + c : -m or None] = np.eye(line - m)
    loop[:n, :n] = phi
    loop[:n, -m:] += before
    # add the command that arrives at the end of the sample
    loop[:n] += now @ (loop[feedback] if late == 0 else np.eye(len(loop))[-2 * m : -m])
    return float(np.abs(np.linalg.eigvals(loop)).max())


@params
class Known(RigConstants):
    def validate(self, path: str) -> None:
        loading_model.check(self.coefficients(path), path)

    def coefficients(self, path: str) -> Array:
        return feedforward(self.model(path))


class Constants(NamedTuple):
    dt: float
    matrix: Array
    """Matrix ``(n_axes, 4 n_axes)`` that maps displacement, velocity, acceleration and jerk to commands, including
    the lead."""
    feedback: Array
    """Matrix of the feedback (:func:`deviation_controller`); empty if there is no feedback."""


State = tuple[Array, Numbers, Numbers, Numbers, Numbers, Array]
"""Displacement, velocity, acceleration and jerk of all targets, changed in place; displacement and acceleration of
the last target; feedforward and feedback of the last sample (m); state of the observer."""


def constants(params: ModelBased.Params, dt: float) -> Constants:
    model = model_of(params)
    lead = lead_of(params, model)
    feedback = np.zeros((0, 0))
    if params.feedback is not None:
        plant, coupled = model.plant(), params.coupled
        feedback = feedback_matrix(deviation_controller(plant, params.feedback, coupled, dt, lead, model.origin))
    matrix = np.hstack(list(loading_model.ahead(feedforward_of(params, model), lead)))
    return Constants(dt, np.asfortranarray(matrix), feedback)


def rest(k: Constants) -> State:
    n = len(k.matrix)
    nothing = (0.0,) * n
    return np.zeros(len(DERIVATIVES) * n), nothing, nothing, nothing, nothing, observer_at_rest(k.feedback)


def law(feedback: Callable[..., Numbers]) -> Callable[..., tuple[object, Numbers]]:
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
    ) -> tuple[object, Numbers]:
        """Return the command u_FF + u_FB of the inverse model and of the LQG feedback of the deviation."""
        dt, matrix, of_feedback = k
        derivatives, x_before, a_before, _, u_fb, observer = s
        # this measurement belongs to the target of the previous sample
        u_fb = feedback(of_feedback, observer, along(m, -1.0, x_before), u_fb)
        put(derivatives, 0, x + v + a + slopes(a, a_before, dt))
        u_ff = first(x, groups((x,), matrix, derivatives)[0])
        return (derivatives, x, a, u_ff, u_fb, observer), along(u_ff, 1.0, u_fb)

    return step


def no_feedback(k: Array, observer: Array, deviation: Numbers, feedback: Numbers) -> Numbers:
    return feedback


def shown(k: Constants, s: State) -> Numbers:
    _, _, _, u_ff, u_fb, _ = s
    return interleaved(u_ff, u_fb)


class ModelBased(PerAxis):
    """Feedforward by the inverse of a model that couples the axes, and LQG feedback of the deviation."""

    SOURCES = ("phillips_spencer_2012",)

    @params
    class Params:
        model: str | None = path(
            "model file, written by rths identify; the path is relative to the working directory", None
        )
        known: Known | None = section(Known, "constants of the rig, in place of a model file", None)
        coupled: bool = flag("include the coupling of the axes; with false the coupling is ignored", True)
        feedback: FeedbackParams | None = section(
            FeedbackParams, "LQG feedback of the deviation from the target; default: none", None
        )
        lead: float = number(
            "time by which the target is extrapolated; the transport delay and the lead of the model file are "
            "added",
            "s",
            0.0,
            at_least=0.0,
            at_most=0.1,
        )

        def validate(self, path: str) -> None:
            check_one_of(path, self, "model", "known")

        def spans(self) -> dict[str, float]:
            return {"lead": self.lead}

        def fits(self, test: TestContext) -> None:
            if self.model:
                load(self.model, test.axes)

        def cautions(self, test: TestContext) -> list[str]:
            cautions = acceleration_cautions(test)
            if self.model:
                cautions += load(self.model).cautions(test.axes, test.servo_rate)
            return cautions

    transport_in_lead: ClassVar[bool] = True
    reads_ahead = True
    SHOWN = staticmethod(shown)
    state_units: Mapping[str, str] = {"u_ff": "m", "u_fb": "m"}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        model = model_of(params)
        if model.n_axes != n_axes:
            raise ConfigError(
                f"{model.origin}: the number of axes is {model.n_axes} "
                f"({', '.join(model.axes) or 'without names'}), but must be {n_axes}, as in the test"
            )
        self.feedforward = feedforward_of(params, model)
        self.lead = lead_of(params, model)
        super().__init__(params, dt, n_axes)

    @classmethod
    def own_kernel(cls, params: Params) -> CoupledKernel:
        return CoupledKernel(constants, rest, law(no_feedback if params.feedback is None else feedback_step))

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Return u_FF / target ``(n, n_axes, n_axes)`` at ``omega`` (rad/s), assuming exact derivatives."""
        return loading_model.inverse_response(
            loading_model.ahead(self.feedforward, self.lead), 1j * np.asarray(omega)
        )


def model_of(params: AnyParams) -> LoadingModel:
    if params.known is not None:
        return LoadingModel((), params.known.coefficients("compensator.known"), origin="compensator.known")
    return load(params.model)


def feedforward_of(params: ModelBased.Params, model: LoadingModel) -> Array:
    return model.feedforward if params.coupled else loading_model.diagonal(model.feedforward)


def lead_of(params: ModelBased.Params, model: LoadingModel) -> float:
    lead: float = params.lead + model.lead
    if lead < 0.0:
        raise ConfigError(
            f"{model.origin}: lead = {model.lead:g} s: with the {params.lead:g} s of compensator.lead and "
            f"transport, the total is {lead:g} s, but must be >= 0 s"
        )
    return lead
