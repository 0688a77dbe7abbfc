"""Model-based compensation of several coupled actuators: feedforward by the inverse, feedback on the deviation.

Phillips & Spencer, Real-Time Hybrid Simulation of Complex Structures using Multi-Actuator Control, 2012:

    u = u_FF + u_FB
    u_FF = G_0 x + G_1 x' + G_2 x'' + G_3 x'''        Eq. (2.8), the inverse of the loading system
    u_FB = -K z^                                      section 2.2, LQG on the deviation x^E - x^I, Eq. (2.6)

with displacement, velocity and acceleration of the target; its jerk is the difference of the accelerations of two
samples. What the printed Eq. (2.8) scales by columns is scaled by rows here (``rigs/coupled_model.py``).

The inverse is that of a model file, as ``rths identify`` writes it, or of the known constants of the rig. Its
derivatives are those of the target: the ramp in front must hand on the integrator's own (``ramp: hermite``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from rths_nodes.control.compensators.lqg import FeedbackParams, deviation_controller
from rths_nodes.control.compensators.ramp_cautions import acceleration_cautions
from rths_nodes.core.checks import TestContext
from rths_nodes.core.control import Compensator
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.models import inverse
from rths_nodes.core.models.coupled_rig import RigConstants, feedforward
from rths_nodes.core.models.file import LoadingModel, load
from rths_nodes.core.models.inverse import DERIVATIVES
from rths_nodes.core.parameters import flag, number, params, path, section
from rths_nodes.core.samples import Array, Motion

Rows = tuple[tuple[float, ...], ...]


@params
class Known(RigConstants):
    """Constants of specimen and actuators, as they are known; a list of one number holds for all axes."""

    def validate(self, path: str) -> None:
        """Refuses constants that do not fit together, and a rig that is not stable."""
        inverse.check(self.coefficients(path), path)

    def coefficients(self, path: str) -> Array:
        """The inverse ``(4, n_axes, n_axes)``, Eq. (2.8)."""
        return feedforward(self.model(path))


class ModelBased(Compensator):
    """Feedforward by the inverse of a model that couples the axes, and LQG feedback on the deviation."""

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
            """Refuses both or none of model and known."""
            if (self.model is None) == (self.known is None):
                given = "both are given" if self.model else "none is given"
                raise ConfigError(f"{path}: exactly one of {path}.model and {path}.known is needed, {given}")

        def spans(self) -> dict[str, float]:
            """Parameter -> seconds of history that it needs."""
            return {"lead": self.lead}

        def fits(self, test: TestContext) -> None:
            """Raises ConfigError for a model file of another rig."""
            if self.model:
                load(self.model, test.axes)

        def cautions(self, test: TestContext) -> list[str]:
            """Warns of a ramp without the target's derivatives, and of a model taken under other conditions."""
            found = acceleration_cautions(test)
            if self.model:
                found += load(self.model).cautions(test.axes, test.servo_rate)
            return found

    transport_in_lead: ClassVar[bool] = True
    """The scenario adds the port's transport to ``lead``: the model leaves it out."""
    state_units: Mapping[str, str] = {"u_ff": "m", "u_fb": "m"}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        """Raises ConfigError for a model of another number of axes, and for a loop that is not stable."""
        self._dt, self._n = dt, n_axes
        model = _model(params)
        if model.n_axes != n_axes:
            raise ConfigError(
                f"{model.origin}: {model.n_axes} axes ({', '.join(model.axes) or 'without names'}); the test has "
                f"{n_axes}"
            )
        self.feedforward = model.feedforward if params.coupled else inverse.diagonal(model.feedforward)
        """Coefficients ``(4, n_axes, n_axes)`` of displacement, velocity, acceleration and jerk."""
        self.lead = params.lead + model.lead
        """Time by which the target is read ahead, s."""
        if self.lead < 0.0:
            raise ConfigError(
                f"{model.origin}: lead = {model.lead:g} s: with {params.lead:g} s of lead and transport the sum "
                "must be >= 0"
            )
        read_ahead = inverse.ahead(self.feedforward, self.lead)
        self._matrix = np.hstack(list(read_ahead))
        self._feedback = None
        if params.feedback is not None:
            self._feedback = deviation_controller(
                model.plant(), params.feedback, params.coupled, dt, self.lead, model.origin
            )
        self._derivatives = np.zeros(len(DERIVATIVES) * n_axes)
        self._x, self._v, self._a, self._jerk = self._derivatives.reshape(len(DERIVATIVES), n_axes)
        self._u_ff, self._u_fb = np.zeros(n_axes), np.zeros(n_axes)
        self.state_names = tuple(f"{name}[{axis}]" for axis in range(n_axes) for name in self.state_units)
        self.reset()

    def reset(self) -> None:
        """The target was at rest at zero, and the rig at the target."""
        self._derivatives[:] = 0.0
        self._u_ff[:] = self._u_fb[:] = 0.0
        if self._feedback:
            self._feedback.reset()

    def step(self, target: Motion, measured: Array) -> Array:
        if self._feedback:
            # the target of the sample before belongs to this measurement
            self._feedback.step(measured - self._x, self._u_fb)
        np.subtract(target.acceleration, self._a, out=self._jerk)
        self._jerk /= self._dt
        self._x[:], self._v[:], self._a[:] = target.displacement, target.velocity, target.acceleration
        self._matrix.dot(self._derivatives, self._u_ff)
        return self._u_ff + self._u_fb

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Feedforward alone over target ``(n, n_axes, n_axes)`` at ``omega`` (rad/s), for exact derivatives."""
        coefficients = self._matrix.reshape(self._n, len(DERIVATIVES), self._n).transpose(1, 0, 2)
        return inverse.inverse_response(coefficients, 1j * np.asarray(omega))

    def state(self) -> list[float]:
        return [value for pair in zip(self._u_ff.tolist(), self._u_fb.tolist(), strict=True) for value in pair]


def _model(params: ModelBased.Params) -> LoadingModel:
    if params.known is not None:
        return LoadingModel((), params.known.coefficients("compensator.known"), origin="compensator.known")
    assert params.model is not None
    return load(params.model)
