"""Signals: a memory of past samples and least squares that runs along. In plain floats, one axis each.

With three to five numbers a list is as fast as an array for three axes at once, several times faster for one, and
axes can rest one by one.
"""

from __future__ import annotations

from collections.abc import Sequence


class Taps:
    """The newest of the samples pushed in and those ``spacing``, ``2 spacing``, ... samples before it.

    A ring that is allocated once; before the first sample the signal was zero for ever.

    >>> taps = Taps(3, spacing=2)
    >>> [taps.push(sample) for sample in (1.0, 2.0, 3.0)]
    [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [3.0, 1.0, 0.0]]
    """

    def __init__(self, count: int, spacing: int) -> None:
        if count < 1 or spacing < 1:
            raise ValueError(f"count = {count}, spacing = {spacing}: must be >= 1")
        self._lags = [tap * spacing for tap in range(count)]
        self._ring = [0.0] * ((count - 1) * spacing + 1)
        self._at = 0

    def push(self, value: float) -> list[float]:
        """The next sample; gives those at the taps ``(count,)``, newest first."""
        ring = self._ring
        self._at = at = (self._at + 1) % len(ring)
        ring[at] = value
        # an index before the first counts from the end, as a ring wants it
        return [ring[at - lag] for lag in self._lags]

    def reset(self) -> None:
        """Zero for ever before."""
        self._ring[:] = [0.0] * len(self._ring)
        self._at = 0


class RecursiveLeastSquares:
    """Recursive least squares with forgetting (Wang et al., TADC, Eq. 5): ``value`` ~ theta . ``regressors``.

        K = P f / (rho + f' P f),   theta += K (y - f' theta),   P = (I - K f') P / rho

    rho = 1 forgets nothing: theta is then that of least squares over all samples, with the ``initial`` as one more
    of weight 1 / ``covariance``. rho < 1 weights a sample n updates ago with rho^n. While nothing moves, P grows
    as rho^-n without learning anything; the caller must not update it then.

    ``covariance`` is the first P / I, in units of 1 / regressor^2.
    """

    def __init__(self, initial: Sequence[float], covariance: float, forgetting: float = 1.0) -> None:
        if not 0.0 < forgetting <= 1.0:
            raise ValueError(f"forgetting = {forgetting:g}: must be > 0 and <= 1")
        if not covariance > 0.0:
            raise ValueError(f"covariance = {covariance:g}: must be > 0")
        self._initial = [float(value) for value in initial]
        self._start = covariance
        self._forgetting = forgetting
        self.reset()

    def reset(self) -> None:
        """The initial parameters, known as badly as at first."""
        self.theta = list(self._initial)
        self.forget()

    def forget(self) -> None:
        """Keep the parameters, but as badly known as at first."""
        size = range(len(self.theta))
        self.covariance = [[self._start if row == column else 0.0 for column in size] for row in size]

    def update(self, regressors: Sequence[float], value: float) -> None:
        """Learn from one sample: ``regressors`` ``(n,)`` and the ``value`` that they should give."""
        rows, theta, rho = self.covariance, self.theta, self._forgetting
        gain = [sum([p * f for p, f in zip(row, regressors, strict=True)]) for row in rows]
        scale, error = rho, value
        for f, g, t in zip(regressors, gain, theta, strict=True):
            scale += f * g
            error -= f * t
        error /= scale
        self.theta = [t + g * error for t, g in zip(theta, gain, strict=True)]
        # g h is the same number in both orders: P stays symmetric to the bit
        self.covariance = [
            [(p - g * h / scale) / rho for p, h in zip(row, gain, strict=True)]
            for row, g in zip(rows, gain, strict=True)
        ]


class ThreeParameterLeastSquares(RecursiveLeastSquares):
    """The same for three parameters, written out: several times faster, and equal but for rounding."""

    def __init__(self, initial: Sequence[float], covariance: float, forgetting: float = 1.0) -> None:
        if len(initial) != 3:
            raise ValueError(f"{len(initial)} initial parameters: must be 3")
        super().__init__(initial, covariance, forgetting)

    def update(self, regressors: Sequence[float], value: float) -> None:
        x, y, z = regressors
        (xx, xy, xz), (_, yy, yz), (_, _, zz) = self.covariance
        a, b, c = self.theta
        rho = self._forgetting
        g, h, k = xx * x + xy * y + xz * z, xy * x + yy * y + yz * z, xz * x + yz * y + zz * z
        scale = rho + g * x + h * y + k * z
        error = (value - a * x - b * y - c * z) / scale
        self.theta = [a + g * error, b + h * error, c + k * error]
        xy, xz, yz = (xy - g * h / scale) / rho, (xz - g * k / scale) / rho, (yz - h * k / scale) / rho
        xx, yy, zz = (xx - g * g / scale) / rho, (yy - h * h / scale) / rho, (zz - k * k / scale) / rho
        self.covariance = [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]
