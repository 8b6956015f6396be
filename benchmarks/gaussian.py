"""Gaussian noise: optimal strategies with their certificates, marginals, and the step to integers.

- Ratios sqrt(Err(Identity) / Err) for the L2 norm, with the duality gap: the share of the error
  that any other strategy could save at most. Aims: the ratios that longer
  iterations reach, and a gap of 1e-4.
- RMSE of all marginals up to k-way at ρ = 0.5 (add or remove a row) through residual subspaces.
  Aim: the values of ResidualPlanner (Xiao et al. 2023), to all digits.
- What integers cost when one to five factors share the bits of a 64-bit answer. Aims: a
  loss below 1e-3 up to five factors (Laplace), two (Gaussian), and 5e-3 at three.

`quick` leaves out n = 1024 and d = 50.
"""

from __future__ import annotations

import math
import sys
import time
from itertools import combinations

import numpy as np
from numpy.random import default_rng

import psephos as ps
from benchmarks.measure import table
from psephos.matrix import AllRange, Matrix, Prefix
from psephos.strategy.build import integer_product, room
from psephos.strategy.factors import Factor, GaussianFactor, PureFactor
from psephos.strategy.gram_terms import GramTerms, gram_operator
from psephos.strategy.hdmm.gaussian import optimise_gaussian
from psephos.strategy.hdmm.opt0 import opt0
from psephos.strategy.hdmm.residual import residual_error
from psephos.variances import NoiseKind

RATIOS = {
    "Prefix": {128: 3.4751, 256: 4.4903, 512: 5.8462, 1024: 7.6597},
    "AllRange": {128: 2.5328, 256: 3.1962, 512: 4.0812, 1024: 5.2611},
}
RMSE = {
    (3, 6): 4.2752, (3, 10): 9.3481, (3, 15): 17.3782, (3, 20): 26.9168, (3, 30): 49.7132,
    (3, 50): 107.2581, (2, 20): 11.8220, (2, 50): 29.2899,
}  # fmt: skip
ROUNDED = [1, 2, 3, 4, 5]


def queries(name: str, n: int) -> Matrix:
    return Prefix(n) if name == "Prefix" else AllRange(n)


def dense_gram(name: str, n: int) -> np.ndarray:
    return gram_operator([1.0], [queries(name, n)]).times(np.eye(n))


def certified(name: str, n: int, wanted: float) -> list[str]:
    gram = dense_gram(name, n)
    begin = time.process_time()
    best = optimise_gaussian(gram)
    seconds = time.process_time() - begin
    ratio = math.sqrt(gram.trace() / best.error)
    svd = np.linalg.eigvalsh(gram)
    bound = np.sqrt(np.maximum(svd, 0)).sum() ** 2 / n
    missed = "" if round(ratio, 3) >= round(wanted, 3) and best.gap <= 1e-4 else "yes"
    return [
        f"{name} {n}", f"{ratio:.4f}", f"{wanted:.4f}", f"{best.gap:.0e}",
        f"{best.error / bound:.4f}", f"{seconds:.2f} s", missed,
    ]  # fmt: skip


def up_to(shape: tuple[int, ...], most: int) -> tuple[dict[tuple[int, ...], float], int]:
    """τ_S of all marginals of at most `most` attributes, and how many queries they have."""
    asked = [a for k in range(most + 1) for a in combinations(range(len(shape)), k)]
    cells = math.prod(map(float, shape))
    sums = dict.fromkeys(asked, 0.0)
    count = 0
    for a in asked:
        size = math.prod(shape[i] for i in a)
        count += size
        for k in range(len(a) + 1):
            for s in combinations(a, k):
                sums[s] += cells / size
    return {s: v * math.prod(shape[i] - 1 for i in s) for s, v in sums.items()}, count


def marginals_row(name: str, shape: tuple[int, ...], most: int, wanted: float) -> list[str]:
    begin = time.process_time()
    traces, count = up_to(shape, most)
    # The summed variance is the error over 2ρ, and ρ is one half.
    rmse = math.sqrt(residual_error(shape, traces) / count)
    seconds = time.process_time() - begin
    missed = "" if abs(rmse - wanted) <= 6e-5 else "yes"
    return [name, f"{most}", f"{rmse:.4f}", f"{wanted:.4f}", f"{seconds:.2f} s", missed]


def measured_row(d: int, most: int, wanted: float) -> list[str]:
    """The same from the integers that the kernel would measure, noise and all."""
    domain = ps.Domain.of({f"a{i}": 10 for i in range(d)})
    work = ps.marginals(domain, up_to=most)
    begin = time.process_time()
    made = ps.select.residual(work)
    rmse = made.rmse(work, ps.rho("0.5"), ps.add_remove_row())
    seconds = time.process_time() - begin
    missed = "" if rmse <= wanted * 1.0005 else "yes"
    name = f"{d} of 10, measured in integers"
    return [name, f"{most}", f"{rmse:.4f}", f"{wanted:.4f}", f"{seconds:.2f} s", missed]


def factor(name: str, n: int, noise: NoiseKind) -> Factor:
    gram = gram_operator([1.0], [queries(name, n)])
    if noise is NoiseKind.GAUSSIAN:
        return GaussianFactor(optimise_gaussian(gram.times(np.eye(n))).factor)
    return PureFactor(opt0(gram, rng=default_rng(0), restarts=1).theta)


def rounding_row(name: str, n: int, noise: NoiseKind) -> list[str]:
    """The loss of products of one to five times the same factor."""
    one = factor(name, n, noise)
    row = [noise, f"{name} {n}"]
    for k in ROUNDED:
        w = queries(name, n)
        terms = GramTerms((n,) * k, np.ones(1), ((w,) * k,))
        made, loss = integer_product(terms, [one] * k, noise.norm)
        bits = sum(math.log2(a.sensitivity(noise.norm)) for a in made)
        row.append(f"{loss:.1e}, {bits:.0f} bits")
    return row


def main(quick: bool) -> None:
    print(__doc__)
    rows = [
        certified(name, n, wanted)
        for name, sizes in RATIOS.items()
        for n, wanted in sizes.items()
        if n < 1024 or not quick
    ]
    head = ["workload", "ratio", "aim", "gap", "error / SVD bound", "cpu", "misses"]
    table(head, rows)

    rows = [
        marginals_row(f"{d} of 10", (10,) * d, most, wanted)
        for (most, d), wanted in RMSE.items()
        if d < 50 or not quick
    ]
    rows.append(marginals_row("50 x 100 x 7 x 4 x 2", (50, 100, 7, 4, 2), 3, 2.2759))
    rows += [measured_row(d, 3, RMSE[3, d]) for d in (6, 10)]
    table(["marginals", "up to", "RMSE, ρ = 0.5", "aim", "cpu", "misses"], rows)

    print(f"Loss of RMSE by rounding, {room()} bits for all factors together:\n")
    rows = [
        rounding_row(name, n, noise)
        for noise in NoiseKind
        for name, n in (("Prefix", 100), ("AllRange", 64), ("AllRange", 256))
    ]
    table(["noise", "every factor", *(f"{k} factor{'s' * (k > 1)}" for k in ROUNDED)], rows)


if __name__ == "__main__":
    main("quick" in sys.argv[1:])
