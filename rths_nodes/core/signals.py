"""Recursive least squares of three parameters, as pure functions of floats."""

from __future__ import annotations

from typing import NamedTuple


class Learned(NamedTuple):
    """Parameters a, b, c of ``value`` ~ a x + b y + c z, and their covariance P by its upper triangle.

    P is in units of 1 / regressor^2.
    """

    a: float
    b: float
    c: float
    xx: float
    xy: float
    xz: float
    yy: float
    yz: float
    zz: float


Numbers = tuple[float, float, float, float, float, float, float, float, float]
"""Those of :class:`Learned`."""


def known(a: float, b: float, c: float, covariance: float) -> Numbers:
    """The parameters, all as badly known: P = ``covariance`` I."""
    return a, b, c, covariance, 0.0, 0.0, covariance, 0.0, covariance


def updated(s: Numbers, rho: float, x: float, y: float, z: float, value: float) -> Numbers:
    """Learn from one sample, with forgetting (Wang et al., TADC, Eq. 5); f = (x, y, z).

        K = P f / (rho + f' P f),   theta += K (value - f' theta),   P = (I - K f') P / rho

    rho = 1 forgets nothing: theta is then that of least squares over all samples, with the first one as one more
    of weight 1 / covariance. rho < 1 weights a sample n updates ago with rho^n. While nothing moves, P grows
    as rho^-n without learning anything; the caller must not update it then.
    """
    a, b, c, xx, xy, xz, yy, yz, zz = s
    g, h, k = xx * x + xy * y + xz * z, xy * x + yy * y + yz * z, xz * x + yz * y + zz * z
    scale = rho + g * x + h * y + k * z
    error = (value - a * x - b * y - c * z) / scale
    # g h is the same number in both orders: P stays symmetric to the bit
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
