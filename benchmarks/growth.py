"""Tables 2 and 3 of EKTELO (Zhang et al. 2020), measured: growth of time and memory with n.

An exponent near 1 is linear growth. Dense and sparse forms are measured as far as they fit, where a
sparse matrix of a few thousand entries costs its call rather than its size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from benchmarks.measure import Cost, cost, table
from psephos import matrix as mx

CORE: dict[str, tuple[Callable[[int], mx.Matrix], str, str, str]] = {
    # matrix, and the paper's growth: implicit space and time, dense, sparse
    "Identity": (mx.Identity, "1 / n", "n²", "n"),
    "Ones": (lambda n: mx.Ones(n, n), "1 / m + n", "mn", "mn"),
    "Prefix": (mx.Prefix, "1 / n", "n²", "n²"),
    "Suffix": (mx.suffix, "1 / n", "n²", "n²"),
    "Wavelet": (mx.Haar, "1 / n log n", "n²", "n log n"),
}


def exponent(sizes: list[int], values: list[float]) -> str:
    if min(values) <= 0:
        return "0"
    return f"{np.polyfit(np.log(sizes), np.log(values), 1)[0]:.2f}"


def product_cost(matrix: mx.Matrix) -> Cost:
    x = np.ones(matrix.shape[1])
    return cost(lambda: matrix @ x)


def core() -> None:
    large, small = [2**k for k in (20, 22, 24)], [2**k for k in (10, 11, 12)]
    rows = []
    for name, (make, implicit, dense, sparse) in CORE.items():
        spent = [product_cost(make(n)) for n in large]
        held = {make(n).nbytes for n in large}
        written = [make(n).dense() for n in small]
        multiplied = [cost(lambda d=d: d @ np.ones(len(d)), repeat=50).wall for d in written]
        packed = [sp.csr_array(d) for d in written]
        products = [cost(lambda s=s: s @ np.ones(s.shape[1]), repeat=50).wall for s in packed]
        rows.append(
            [
                name,
                f"{spent[-1].wall * 1e3:.1f} ms",
                exponent(large, [c.wall for c in spent]),
                f"{max(held)} B",
                f"{spent[-1].peak / (8 * large[-1]):.1f}",
                implicit,
                exponent(small, multiplied),
                exponent(small, [d.nbytes for d in written]),
                dense,
                exponent(small, products),
                exponent(small, [s.data.nbytes for s in packed]),
                sparse,
            ]
        )
    head = ["core matrix", f"mat-vec, n = {large[-1]:,}", "implicit time", "implicit space"]
    head += ["peak / n", "paper: space / time", "dense time", "dense space", "paper"]
    table([*head, "sparse time", "sparse space", "paper"], rows)


def composed() -> None:
    n = 2**20
    x = np.ones(n)
    a, b = mx.Prefix(n), mx.Haar(n)
    time_a, time_b = cost(lambda: a @ x).wall, cost(lambda: b @ x).wall
    union, chain = mx.Stack((a, b)), mx.Compose((a, b))
    small_a, small_b = mx.Prefix(1024), mx.Haar(1024)
    column = np.ones(1024)
    kron = mx.Kron((small_a, small_b))
    apart = 1024 * (
        cost(lambda: small_a @ column, 50).wall + cost(lambda: small_b @ column, 50).wall
    )
    rows = [
        [f"{name}", rule, f"{measured * 1e3:.1f} ms", f"{bound * 1e3:.1f} ms", space]
        for name, rule, measured, bound, space in (
            ("Union(Prefix, Wavelet)", "Time(A) + Time(B)", cost(lambda: union @ x).wall,
             time_a + time_b, f"{union.nbytes} B"),
            ("Product(Prefix, Wavelet)", "Time(A) + Time(B)", cost(lambda: chain @ x).wall,
             time_a + time_b, f"{chain.nbytes} B"),
            ("Kronecker(Prefix, Wavelet)", "n_B Time(A) + m_A Time(B)", cost(lambda: kron @ x).wall,
             apart, f"{kron.nbytes} B"),
        )
    ]  # fmt: skip
    table(["composed, 2^20 cells", "paper's rule", "measured", "by the rule", "space"], rows)


if __name__ == "__main__":
    print(__doc__)
    core()
    composed()
