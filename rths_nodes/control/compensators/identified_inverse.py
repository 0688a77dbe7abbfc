# SPDX-License-Identifier: Apache-2.0
"""Third-order inverse, identified before and updated during the test, with the target as instrumental variable.

    u = C_0 d + C_1 d' + C_2 d'' + C_3 d'''         u: command, d: target extrapolated by ``lead``

Every ``decimation`` samples the coefficients are updated (:mod:`rths_nodes.control.compensators.coupled_inverse`).

The third derivative is the slope of a straight line fitted to the accelerations of the last ``jerk_window``. This
slope is late by half the window, but its term is only half a per cent of the command. A difference of two samples
would amplify the noise of the force.

The coefficients include all delay between command and measured displacement, including transport, but not the
delay after the measurement (``lead``). doc/identified_inverse.md contains the derivation, the bounds and the modes
of failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import numpy as np

from rths_nodes.control.compensators import coupled_inverse, single_inverse
from rths_nodes.control.compensators.coupled_inverse import Law, law_of, renewed
from rths_nodes.control.compensators.per_axis import (
    CoupledKernel,
    PerAxis,
    acceleration_cautions,
    lead_parameter,
    ramp_seen,
)
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import (
    AnyParams,
    TestContext,
    check_one_of,
    flag,
    integer,
    number,
    params,
    path,
    section,
    vector,
)
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.mechanics import loading_model

ORDER = 3


def constants_in_arrays(
    params: IdentifiedInverse.Params, dt: float
) -> tuple[float, Array, Array, Law | tuple[()]]:
    """Return the lead (s), the weights of accelerations for the jerk (oldest first), the coefficients and the law.

    Coefficients are ``(order + 1, n_axes, n_axes)``. The law is an empty tuple if learning is off.
    """
    ages = dt * np.arange(max(1, round(params.jerk_window / dt)), -1, -1.0)
    middle = ages.mean() - ages
    identified = identified_by(params)
    law = law_of(params, identified, dt) if params.learning else ()
    return params.lead, middle / (middle @ middle), identified, law


class IdentifiedInverse(PerAxis):
    """Identified inverse of one axis or of coupled axes, with or without learning during the test."""

    @params
    class Params:
        model: str | None = path(
            "model file, written by rths identify --for identified_inverse; the path is relative to the "
            "working directory",
            None,
        )
        inverse: loading_model.Feedforward | None = section(
            loading_model.Feedforward,
            "coefficients in place of a model file, with a row and a column for each axis",
            None,
        )
        order: int = integer(
            "order of the highest derivative that is used and learned", default=3, at_least=0, at_most=ORDER
        )
        learning: bool = flag("learn during the test; with false the coefficients stay as identified", True)
        relative_deviation: tuple[float, ...] = vector(
            "standard deviations of the expected changes of C_0, C_1, C_2, C_3 between identification and "
            "test, relative to the identified values",
            "1",
            (0.02, 0.10, 0.15, 0.30),
            more_than=0.0,
        )
        deviations: float = number(
            "largest distance of a coefficient from its identified value, in standard deviations",
            "1",
            3.0,
            more_than=0.0,
        )
        memory: float = number("time constant with which past samples are forgotten", "s", 10.0, more_than=0.0)
        decimation: int = integer("number of samples per learning step", "samples", 16, at_least=1, at_most=1000)
        cutoff_frequency: float = number(
            "cut-off frequency of the low-pass filter for all signals", "Hz", 20.0, more_than=0.0
        )
        displacement_noise_rms: float = number(
            "smallest noise of the displacement sensors that the law assumes; larger noise is estimated from "
            "the measurement",
            "m",
            1.6e-5,
            more_than=0.0,
        )
        jerk_window: float = number(
            "time over which the third derivative is fitted; a longer time reduces its noise and increases its "
            "delay",
            "s",
            2e-3,
            more_than=0.0,
            at_most=0.1,
        )
        lead: float = lead_parameter()

        def validate(self, path: str) -> None:
            check_one_of(path, self, "model", "inverse")
            if len(self.relative_deviation) <= self.order:
                raise ConfigError(
                    f"{path}.relative_deviation = {show(list(self.relative_deviation))}: must be {self.order + 1} "
                    "numbers, one for each derivative from 0 to order"
                )
            if self.inverse is not None:
                loading_model.check_static(self.inverse.coefficients(f"{path}.inverse"), f"{path}.inverse")

        def spans(self) -> dict[str, float]:
            return {"lead": self.lead}

        def fits(self, test: TestContext) -> None:
            if self.model is None:
                return
            left_out = loading_model.load(self.model, inverse_only=True).lead + test.transport
            if abs(left_out) > 0.5 * test.dt:
                raise ConfigError(
                    f"model = {show(self.model)}: the model omits {left_out:.4g} s of the transport, which "
                    "this law does not add. Identify the rig with rths identify --for identified_inverse"
                )

        def cautions(self, test: TestContext) -> list[str]:
            cautions = acceleration_cautions(test)
            if ramp_seen(test) not in ("linear", "hermite", ""):
                cautions.append("the third derivative of the target jumps with this ramp. Set ramp.type = hermite")
            if self.model is not None:
                cautions += loading_model.load(self.model, inverse_only=True).cautions(test.axes, test.servo_rate)
            return cautions

        def remarks(self, state: Mapping[str, float]) -> list[str]:
            return [
                f"{name.removesuffix('.prior_distance')}: a coefficient reached its limit, "
                f"{self.deviations:g} standard deviations from the identified value. Either the rig has changed, "
                "or the motion does not separate the coefficients. Check the rig, or identify it again"
                for name, value in state.items()
                if name.endswith("prior_distance") and value >= self.deviations * (1.0 - ROUNDING)
            ]

    reads_ahead = True
    inherited = ("commands",)

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._identified = identified_by(params)
        count, n, _ = self._identified.shape
        if n != n_axes:
            raise ConfigError(
                f"{params.model or 'compensator.inverse'}: the number of axes is {n}, but must be {n_axes}, as "
                "in the test"
            )
        self._text = text_of(n)
        super().__init__(params, dt, n_axes)
        places = np.ndindex(count, n, n)
        names = [f"c{power}[{i}]" if n == 1 else f"c{power}_of_{j + 1}[{i}]" for power, i, j in places]
        self.state_units: Mapping[str, str] = {
            name.partition("[")[0]: loading_model.UNITS[index // n**2] for index, name in enumerate(names)
        }
        if params.learning:
            self.state_units |= {f"sigma_{name}": unit for name, unit in self.state_units.items()}
            names += [f"sigma_{name}" for name in names] + [f"prior_distance[{axis}]" for axis in range(n)]
        self.state_names = tuple(names)
        self._shown = self._text.shown_of(count, params.learning)
        self.renewed = renewed if params.learning else None

    @classmethod
    def own_kernel(cls, params: Params) -> Kernel | CoupledKernel:
        n = identified_by(params).shape[1]
        text = text_of(n)
        return (Kernel if n == 1 else CoupledKernel)(
            lambda params, dt: text.constants_of(*constants_in_arrays(params, dt)),
            text.rest,
            text.learning if params.learning else text.as_identified,
        )

    def reset(self) -> None:
        super().reset()
        self._recorded: tuple[int | None, list[float]] = None, []

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Return the identified ratio of command to target at ``omega`` (rad/s), assuming exact derivatives.

        The shape is ``(n,)`` for one axis and ``(n, n_axes, n_axes)`` for several axes.
        """
        count, n, _ = self._identified.shape
        nothing = np.zeros((ORDER + 1 - count, n, n))  # room for the products of lead and coefficients
        ahead = loading_model.ahead(np.concatenate([self._identified, nothing]), self._p.lead)
        response = loading_model.inverse_response(ahead, 1j * np.asarray(omega))
        return response[:, 0, 0] if n == 1 else response

    def state(self) -> list[float]:
        # the recorded numbers change once per block
        blocks = self._text.blocks(self.states[0][-1]) if self._p.learning else 0
        if blocks != self._recorded[0]:
            self._recorded = blocks, [float(number) for number in super().state()]
        return self._recorded[1]


def text_of(n_axes: int) -> ModuleType:
    return single_inverse if n_axes == 1 else coupled_inverse


def identified_by(params: AnyParams) -> Array:
    if params.inverse is not None:
        coefficients: Array = params.inverse.coefficients("compensator.inverse")
    else:
        coefficients = loading_model.load(params.model, inverse_only=True).feedforward
    return coefficients[: params.order + 1]
