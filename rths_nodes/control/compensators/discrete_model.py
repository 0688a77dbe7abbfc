# SPDX-License-Identifier: Apache-2.0
"""Adaptive compensation by a discrete model of the loading system (SADC; Wang et al., TADC, Eqs. 3-5).

The law compensates the loading system's delay and amplitude error:

    y_ac(j) = theta . [y_m(j), y_m(j - s), y_m(j - 2 s)]           Eq. (3), least squares with forgetting, Eq. (5)
    y_ac(k) = theta^ . [y_a(k), y_a(k - s), y_a(k - 2 s)]          Eq. (4)

with the target y_a, the measured displacement y_m, the output y_ac of this compensator and the estimate theta^ of
theta. At sample k the newest pair is from sample k - 1, so the model contains the transport delay. The spacing s
is not published; 5 samples at 1024 Hz give parameters similar to the published values.

If updates begin during the motion (initial covariance 1000 1/mm^2, updates from 0.5 s on, no soft start), the
published law bursts. Parameters identified from the first few samples cause forces of the order of MN. With
``guarded``,

- the parameters in use follow the identified parameters along a straight line, no faster than ``parameter_rate``;
- parameters are not adopted if the sum of their magnitudes exceeds ``largest_gain``;
- updates pause while all measured displacements in the model are below ``quiet_amplitude``.

``guarded: false`` is the published law. Use it with a soft start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rths_nodes.control.compensators.per_axis import PerAxis, lead_parameter
from rths_nodes.core.arithmetic import INF, sqrt
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import AnyParams, TestContext, flag, integer, number, params, text, vector
from rths_nodes.core.samples import Array

TAPS = 3
PER_MM2 = 1e6
BURSTING_PER_MM2 = 100.0
"""Smallest initial covariance with which the law bursts in a closed loop with motions of a few millimetres.

With a sine, errors of the frame of Wang et al. reach 12, 23, 92 and 549 % for 1, 10, 100 and 1000 1/mm^2."""
PEAK_TO_RMS = 4.0
"""Ratio of peak to rms of Gaussian noise within about a second."""
Theta = tuple[float, float, float]
Numbers = tuple[float, float, float, float, float, float, float, float, float]
"""Three parameters of the model, and the upper triangle of their covariance (1/m^2), row by row."""


class Constants(NamedTuple):
    """Constants of the law; a disabled limit has a value that is never reached."""

    initial: Theta
    spacing: int
    forgetting: float
    covariance: float
    resets: bool
    """True if the covariance is reset after a soft start."""
    begin: float
    dt: float
    rate: float
    """Largest change of a parameter per sample."""
    largest: float
    quiet: float
    """Displacement below which updates pause, m."""


State = tuple[Theta, Numbers, Array, Array, int, float, bool, int]
"""Parameters in use; identified model; ring buffers of targets and measurements (m); index of the newest values in
both; output (m); True in a soft start; number of samples since the test began, not counting the soft start."""


def constants(params: AnyParams, dt: float) -> Constants:
    p, guarded = params, params.guarded
    return Constants(
        initial=tuple(p.initial),
        spacing=p.spacing,
        forgetting=p.forgetting,
        covariance=p.initial_covariance_per_mm2 * PER_MM2,
        resets=p.after_soft_start == "reset",
        begin=p.update_after,
        dt=dt,
        rate=p.parameter_rate * dt if guarded else INF,
        largest=p.largest_gain if guarded else INF,
        quiet=p.quiet_amplitude if guarded else 0.0,
    )


def rest(k: Constants) -> State:
    size = (TAPS - 1) * k.spacing + 1
    model = starting(*k.initial, k.covariance)
    return k.initial, model, np.zeros(size), np.zeros(size), 0, 0.0, False, 0


def starting(a: float, b: float, c: float, covariance: float) -> Numbers:
    return a, b, c, covariance, 0.0, 0.0, covariance, 0.0, covariance


def updated(s: Numbers, rho: float, x: float, y: float, z: float, value: float) -> Numbers:
    """Return the parameters and covariance after one sample, with forgetting (Wang et al., TADC, Eq. 5).

        K = P f / (rho + f' P f),   theta += K (value - f' theta),   P = (I - K f') P / rho,   f = (x, y, z)

    With rho = 1 nothing is forgotten: theta is the least-squares solution for all samples and the initial theta,
    weighted by 1 / covariance. With rho < 1 a sample n updates ago has the weight rho^n. Without motion P grows as
    rho^-n, so the caller must pause the updates.
    """
    a, b, c, xx, xy, xz, yy, yz, zz = s
    g, h, k = xx * x + xy * y + xz * z, xy * x + yy * y + yz * z, xz * x + yz * y + zz * z
    scale = rho + g * x + h * y + k * z
    error = (value - a * x - b * y - c * z) / scale
    # g h rounds equally in both orders: P stays exactly symmetric
    return (
        a + g * error,
        b + h * error,
        c + k * error,
        (xx - g * g / scale) / rho,
        (xy - g * h / scale) / rho,
        (xz - g * k / scale) / rho,
        (yy - h * h / scale) / rho,
        (yz - h * k / scale) / rho,
        (zz - k * k / scale) / rho,
    )


def taken_over(theta: Theta, model: Numbers, rate: float, largest: float) -> Theta:
    """Return ``theta`` moved towards the identified parameters, within the limits of rate and gain."""
    a, b, c = theta
    x, y, z, _, _, _, _, _, _ = model
    distance = sqrt((x - a) * (x - a) + (y - b) * (y - b) + (z - c) * (z - c))
    wanted = (x, y, z)
    if distance > rate:
        part = rate / distance
        wanted = (a + part * (x - a), b + part * (y - b), c + part * (z - c))
    return wanted if gain(wanted) <= largest else theta


def gain(theta: tuple[float, ...]) -> float:
    """Return the largest factor by which the parameters ``theta`` can amplify a target."""
    a, b, c = theta
    return abs(a) + abs(b) + abs(c)


def step(
    k: Constants, s: State, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[object, float]:
    """Update the model from the last measurement and output. Return the output for the target ``x`` (m)."""
    _, spacing, forgetting, covariance, resets, begin, dt, rate, largest, quiet = k
    theta, model, targets, seen, now, output, prepared, sample = s
    if prepared and not preparing:  # soft start finished: the rig is at rest, and learning begins
        targets[:] = 0.0
        seen[:] = 0.0
        output = 0.0
        one, two, three, _, _, _, _, _, _ = model
        theta = taken_over(theta, model, INF, largest)
        if resets:
            model = starting(one, two, three, covariance)
    if not preparing:
        sample += 1
    now += 1
    if now == len(seen):
        now = 0
    before = now - spacing
    if before < 0:
        before += len(seen)
    earlier = before - spacing
    if earlier < 0:
        earlier += len(seen)
    seen[now] = m
    targets[now] = x
    if not rests and (preparing or sample * dt >= begin):
        m_before, m_earlier = float(seen[before]), float(seen[earlier])
        if moves(m, m_before, m_earlier, quiet):
            model = updated(model, forgetting, m, m_before, m_earlier, output)
        if not preparing:
            theta = taken_over(theta, model, rate, largest)
    one, two, three = theta
    output = one * x + two * float(targets[before]) + three * float(targets[earlier])
    return (theta, model, targets, seen, now, output, preparing, sample), output


def moves(m: float, before: float, earlier: float, quiet: float) -> bool:
    up = m >= quiet or before >= quiet or earlier >= quiet
    return up or m <= -quiet or before <= -quiet or earlier <= -quiet


def shown(k: Constants, s: State) -> Theta:
    theta, _, _, _, _, _, _, _ = s
    return theta


class DiscreteModel(PerAxis):
    """Compensation by an adaptive discrete model with three parameters for each axis (SADC)."""

    SOURCES = ("wang_2019",)

    @params
    class Params:
        spacing: int = integer(
            "spacing of the samples that the model uses", "samples", 5, at_least=1, at_most=100_000
        )
        forgetting: float = number(
            "forgetting factor rho per sample; with 1 nothing is forgotten",
            "1",
            0.9996,
            more_than=0.0,
            at_most=1.0,
        )
        initial: tuple[float, ...] = vector(
            "initial parameters, e.g. from an offline fit; with [1, 0, 0] the command equals the target",
            "1",
            (1.0, 0.0, 0.0),
        )
        initial_covariance_per_mm2: float = number(
            "initial covariance of the parameters, 1000 in the publication; with a large covariance the law "
            "learns fast and may burst",
            "1/mm^2",
            1.0,
            more_than=0.0,
            at_most=1e9,
        )
        after_soft_start: str = text("covariance after a soft start", "keep", choices=("keep", "reset"))
        update_after: float = number("test time at which learning begins", "s", 0.5, at_least=0.0)
        guarded: bool = flag(
            "apply parameter_rate, largest_gain and quiet_amplitude; false: the published law", default=True
        )
        parameter_rate: float = number(
            "largest rate of change of the vector of parameters in use", "1/s", 30.0, more_than=0.0
        )
        largest_gain: float = number(
            "largest sum of the magnitudes of the parameters in use", "1", 100.0, more_than=0.0
        )
        quiet_amplitude: float = number(
            "measured displacement below which learning pauses; at least four times the noise is recommended",
            "m",
            5e-5,
            at_least=0.0,
        )
        lead: float = lead_parameter()

        def validate(self, path: str) -> None:
            if len(self.initial) != TAPS:
                raise ConfigError(f"{path}.initial = {show(list(self.initial))}: must be {TAPS} numbers")
            if self.guarded and gain(self.initial) > self.largest_gain:
                raise ConfigError(
                    f"{path}.initial = {show(list(self.initial))}: the sum of the magnitudes must be <= "
                    f"largest_gain = {self.largest_gain:g}"
                )

        def cautions(self, test: TestContext) -> list[str]:
            noise = max(test.displacement_noise_rms, default=0.0)
            quiet = self.quiet_amplitude if self.guarded else 0.0
            cautions = []
            prepared = test.has_soft_start and self.after_soft_start == "keep"
            wild = self.initial_covariance_per_mm2 >= BURSTING_PER_MM2
            if wild and not prepared and test.has_structure:
                cautions.append(
                    f"initial_covariance_per_mm2 = {self.initial_covariance_per_mm2:g} 1/mm^2: the law may "
                    "burst when learning begins within the loop. Use a soft start with after_soft_start = keep"
                )
            if noise * PEAK_TO_RMS > quiet:
                cautions.append(
                    f"the law learns from the displacement noise of {noise:g} m rms, so its parameters and "
                    "the command decay within a few seconds without motion. Set guarded = true, and "
                    f"quiet_amplitude to {PEAK_TO_RMS:g} times the noise"
                )
            return cautions

    state_units: Mapping[str, str] = {f"theta_{tap + 1}": "1" for tap in range(TAPS)}

    KERNEL = Kernel(constants, rest, step)
    SHOWN = staticmethod(shown)

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Return the ratio of command to target at ``omega`` (rad/s) with the initial parameters."""
        spacing = self._p.spacing * self._dt
        transfer = taps(omega, self._p.initial, [tap * spacing for tap in range(TAPS)])
        return transfer * self.lead_response(omega)
