"""Kronecker mat-vec at 10⁶, 10⁷ and 10⁸ cells: share of copy bandwidth, and peak memory.

The share is bytes read and written once (input and output) over wall time, against a copy of the
input into a new vector, in the same run. Aims: single p-Identity and total factors at 60 % or more;
six dense factors at 10⁷ cells in at most 0.3 s of processor time; at most 1.5 of the larger vector.
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.measure import Cost, cost, table
from psephos import matrix as mx

RNG = np.random.default_rng(0)


def p_identity(n: int, p: int) -> mx.PIdentity:
    return mx.PIdentity.of(RNG.random((p, n)))


def cases(cells: int) -> dict[str, tuple[mx.Matrix, ...]]:
    """Products over about `cells` cells."""
    side = round(cells ** (1 / 6))
    half = round(cells**0.5)
    rest = cells // 100
    dense = mx.Dense(RNG.random((side, side)))
    return {
        "total of all": (mx.total(side),) * 6,
        "marginal I T I T I T": (mx.Identity(side), mx.total(side)) * 3,
        "marginal T I T I T I": (mx.total(side), mx.Identity(side)) * 3,
        "p-Identity(100, p=1), last": (mx.Identity(rest), p_identity(100, 1)),
        "p-Identity(100, p=6), last": (mx.Identity(rest), p_identity(100, 6)),
        "p-Identity(100, p=6), middle": (
            mx.Identity(10),
            p_identity(100, 6),
            mx.Identity(rest // 10),
        ),
        "p-Identity(100, p=6), first": (p_identity(100, 6), mx.Identity(rest)),
        "p-Identity ⊗ total ⊗ p-Identity": (
            p_identity(100, 6),
            mx.total(rest // 100),
            p_identity(100, 6),
        ),
        "six p-Identity, p=1": (p_identity(side, 1),) * 6,
        "six dense": (dense,) * 6,
        "prefix ⊗ prefix": (mx.Prefix(half), mx.Prefix(half)),
        "six prefix": (mx.Prefix(side),) * 6,
    }


def row(name: str, matrix: mx.Kron, copied: Cost, x: np.ndarray) -> list[str]:
    spent = cost(lambda: matrix @ x)
    m, n = matrix.shape
    share = (8 * (m + n) / spent.wall) / (16 * n / copied.wall)
    return [
        name,
        f"{n:.1e}",
        f"{m:.1e}",
        f"{spent.wall * 1e3:.1f} ms",
        f"{spent.cpu * 1e3:.1f} ms",
        f"{share:.0%}",
        f"{spent.peak / (8 * max(m, n)):.2f}",
    ]


def main(sizes: list[int]) -> None:
    print(__doc__)
    for cells in sizes:
        rows = []
        for name, factors in cases(cells).items():
            matrix = mx.Kron(factors)
            x = RNG.random(matrix.shape[1])
            rows.append(row(name, matrix, cost(x.copy), x))
        table(
            ["factors", "cells", "answers", "wall", "cpu", "of copy speed", "peak / larger vector"],
            rows,
        )


if __name__ == "__main__":
    main([int(float(size)) for size in sys.argv[1:]] or [10**6, 10**7, 10**8])
