# SPDX-License-Identifier: Apache-2.0
"""Model-based compensation of several coupled actuators: feedforward by the inverse, feedback on the deviation.

Phillips & Spencer, Real-Time Hybrid Simulation of Complex Structures using Multi-Actuator Control, 2012:

    u = u_FF + u_FB
    u_FF = G_0 x + G_1 x' + G_2 x'' + G_3 x'''        Eq. (2.8), the inverse of the loading system
    u_FB = -K z^                                      section 2.2, LQG on the deviation x^E - x^I, Eq. (2.6)

with displacement, velocity and acceleration of the target; its jerk is the difference of the accelerations of two
samples. Eq. (2.8) scales by columns in the paper, by rows here (``mechanics/models/coupled_rig.py``).

The inverse comes from a model file written by ``rths identify``, or from the known constants of the rig. It needs
the integrator's own derivatives of the target (``ramp: hermite``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import numpy as np

from rths_nodes.control.compensators import lqg
from rths_nodes.control.compensators.lqg import FeedbackParams, deviation_controller
from rths_nodes.control.compensators.per_axis import Coupled, CoupledKernel
from rths_nodes.control.compensators.taylor_lead import acceleration_cautions
from rths_nodes.core.arithmetic import Numbers, along, first, groups, interleaved, put, slopes
from rths_nodes.core.checks import TestContext
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.parameters import flag, number, params, path, section
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.models import inverse
from rths_nodes.mechanics.models.coupled_rig import RigConstants, feedforward
from rths_nodes.mechanics.models.file import LoadingModel, load
from rths_nodes.mechanics.models.inverse import DERIVATIVES


@params
class Known(RigConstants):
    """Known constants of specimen and actuators; a list of one number holds for all axes."""

    def validate(self, path: str) -> None:
        inverse.check(self.coefficients(path), path)

    def coefficients(self, path: str) -> Array:
        """The inverse ``(4, n_axes, n_axes)``, Eq. (2.8)."""
        return feedforward(self.model(path))


class Constants(NamedTuple):
    dt: float
    matrix: Array
    """Command per displacement to jerk of all axes, read ahead ``(n_axes, 4 n_axes)``."""
    feedback: Array
    """Matrix of the feedback (``lqg.py``); empty without one."""


class State(NamedTuple):
    """Last target, shares of the command, and the observer."""

    derivatives: Array
    """Displacement, velocity, acceleration and jerk of all axes, changed in place."""
    displacement: Numbers
    """m."""
    acceleration: Numbers
    """m/s^2."""
    feedforward: Numbers
    """m."""
    feedback: Numbers
    """m."""
    observer: Array


def constants(params: ModelBased.Params, dt: float) -> Constants:
    """Raises ConfigError for a negative lead or an unstable loop."""
    model = model_of(params)
    lead = lead_of(params, model)
    feedback = np.zeros((0, 0))
    if params.feedback is not None:
        plant, coupled = model.plant(), params.coupled
        feedback = deviation_controller(plant, params.feedback, coupled, dt, lead, model.origin).constants
    matrix = np.hstack(list(inverse.ahead(feedforward_of(params, model), lead)))
    return Constants(dt, np.asfortranarray(matrix), feedback)


def rest(k: Constants) -> State:
    n = len(k.matrix)
    nothing = (0.0,) * n
    return State(np.zeros(len(DERIVATIVES) * n), nothing, nothing, nothing, nothing, lqg.rest(k.feedback))


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
        dt, matrix, of_feedback = k
        derivatives, x_before, a_before, _, u_fb, observer = s
        # the target of the sample before belongs to this measurement
        u_fb = feedback(of_feedback, observer, along(m, -1.0, x_before), u_fb)
        put(derivatives, 0, x + v + a + slopes(a, a_before, dt))
        u_ff = first(x, groups((x,), matrix, derivatives)[0])
        return (derivatives, x, a, u_ff, u_fb, observer), along(u_ff, 1.0, u_fb)

    return step


def no_feedback(k: Array, observer: Array, deviation: Numbers, feedback: Numbers) -> Numbers:
    return feedback


def shown(k: Constants, s: State) -> Numbers:
    """Feedforward and feedback of each axis, m."""
    _, _, _, u_ff, u_fb, _ = s
    return interleaved(u_ff, u_fb)


class ModelBased(Coupled):
    """Feedforward by the inverse of a model that couples the axes, and LQG feedback on the deviation."""

    SOURCES = ("phillips_spencer_2012",)

    @params
    class Params:
        """Parameters; exactly one of ``model`` and ``known``."""

        model: str | None = path("model file, as rths identify writes it; relative to the working directory", None)
        known: Known | None = section(Known, "the known constants of the rig, instead of a model file", None)
        coupled: bool = flag("false: ignore what one axis does to the others", True)
        feedback: FeedbackParams | None = section(
            FeedbackParams, "LQG on the deviation from the target; none if left out", None
        )
        lead: float = number(
            "time by which the target is read ahead, with its derivatives; the transport, and the lead in the "
            "model file, are added to it",
            "s",
            0.0,
            at_least=0.0,
            at_most=0.1,
        )

        def validate(self, path: str) -> None:
            if (self.model is None) == (self.known is None):
                given = "both are given" if self.model else "none is given"
                raise ConfigError(f"{path}: exactly one of {path}.model and {path}.known is needed, {given}")

        def spans(self) -> dict[str, float]:
            return {"lead": self.lead}

        def fits(self, test: TestContext) -> None:
            if self.model:
                load(self.model, test.axes)

        def cautions(self, test: TestContext) -> list[str]:
            found = acceleration_cautions(test)
            if self.model:
                found += load(self.model).cautions(test.axes, test.servo_rate)
            return found

    transport_in_lead: ClassVar[bool] = True
    """The scenario adds the port's transport to ``lead``: the model leaves it out."""
    shown = staticmethod(shown)
    state_units: Mapping[str, str] = {"u_ff": "m", "u_fb": "m"}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        """Raises ConfigError for a model of another number of axes, or an unstable loop."""
        model = model_of(params)
        if model.n_axes != n_axes:
            raise ConfigError(
                f"{model.origin}: {model.n_axes} axes ({', '.join(model.axes) or 'without names'}); the test has "
                f"{n_axes}"
            )
        self.feedforward = feedforward_of(params, model)
        """Coefficients ``(4, n_axes, n_axes)`` of displacement, velocity, acceleration and jerk."""
        self.lead = lead_of(params, model)
        """Time by which the target is read ahead, s."""
        self.state_names = tuple(f"{name}[{axis}]" for axis in range(n_axes) for name in self.state_units)
        self._hold(params, dt, n_axes)

    @classmethod
    def kernel_of(cls, params: Params) -> CoupledKernel:
        return CoupledKernel(constants, rest, law(no_feedback if params.feedback is None else lqg.step))

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Feedforward alone over target ``(n, n_axes, n_axes)`` at ``omega`` (rad/s), for exact derivatives."""
        return inverse.inverse_response(inverse.ahead(self.feedforward, self.lead), 1j * np.asarray(omega))


def model_of(params: AnyParams) -> LoadingModel:
    if params.known is not None:
        return LoadingModel((), params.known.coefficients("compensator.known"), origin="compensator.known")
    return load(params.model)


def feedforward_of(params: ModelBased.Params, model: LoadingModel) -> Array:
    return model.feedforward if params.coupled else inverse.diagonal(model.feedforward)


def lead_of(params: ModelBased.Params, model: LoadingModel) -> float:
    """Return the time by which the target is read ahead, s. Raises ConfigError if negative."""
    lead: float = params.lead + model.lead
    if lead < 0.0:
        raise ConfigError(
            f"{model.origin}: lead = {model.lead:g} s: with {params.lead:g} s of lead and transport the sum "
            "must be >= 0"
        )
    return lead
