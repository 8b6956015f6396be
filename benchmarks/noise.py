"""Exact noise: samples per second on one core, next to OpenDP in the same run.

Both draw the same laws exactly, from secure entropy; OpenDP adds them to a vector of zeros.
Aim: 20 times OpenDP for Laplace and Gaussian.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import opendp.prelude as dp

from benchmarks.measure import cost, table
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace

SCALES = [1, 10, 1000, 10**6]
OURS, THEIRS = 2**20, 2**14


def opendp(kind: str, scale: int) -> Callable[[], Any]:
    dp.enable_features("contrib")
    domain, zeros = dp.vector_domain(dp.atom_domain(T="i64")), [0] * THEIRS
    if kind == "Laplace":
        measure = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=float(scale))
    else:
        measure = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=float(scale))
    return lambda: measure(zeros)


def row(kind: str, scale: int) -> list[str]:
    exact = Fraction(scale)
    law = DiscreteLaplace(exact) if kind == "Laplace" else DiscreteGaussian(exact**2)
    ours = OURS / cost(lambda: law.draw(OURS)).wall
    theirs = THEIRS / cost(opendp(kind, scale)).wall
    one = cost(lambda: law.draw(1)).wall
    return [
        f"discrete {kind}",
        f"{scale:g}",
        f"{ours / 1e6:.2f} M/s",
        f"{theirs / 1e6:.3f} M/s",
        f"{ours / theirs:.0f} x",
        f"{one * 1e6:.0f} µs",
    ]


def main() -> None:
    print(__doc__)
    rows = [row(kind, scale) for kind in ("Laplace", "Gaussian") for scale in SCALES]
    table(["noise", "scale", "psephos", "OpenDP", "ratio", "a single draw"], rows)


if __name__ == "__main__":
    main()
