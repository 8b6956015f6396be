"""Predicted cost beside measured cost: time and memory of measuring and reconstructing.

Measured is what a user waits for once the table is read: exact answers, exact noise, the inverse
and the fit, in one thread, and the peak of memory. The aim is a factor of three.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction

import numpy as np

import psephos as ps
from benchmarks.measure import table
from benchmarks.reconstruct import product, union
from psephos.inverse.merged_cells import MergedForm
from psephos.kernel.cell_counts import CellCounts
from psephos.kernel.lineage import Node
from psephos.kernel.play_money import PlayMoney
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.query import Block
from psephos.kernel.snapshot import Snapshot
from psephos.kernel.unit import Cap
from psephos.kernel.vault import Draws, Vault
from psephos.matrix import Kron

UNIT = ps.add_remove_row()
NAMES = {"ProductForm": "product", "Classes": "classes", "DenseForm": "dense"}
NAMES |= {"Commuting": "subspaces", "IterativeForm": "iterative"}


class Read:
    """A table that has been read: counts cost no time."""

    row_abilities: frozenset[str] = frozenset()

    def take(self, domain: ps.Domain, cap: Cap | None, folder: object = None) -> CellCounts:
        return CellCounts(domain, np.full(domain.size, 100))


def line(n: int, queries: ps.QuerySet) -> ps.Workload:
    return ps.Workload(ps.Domain.of(a=n), [ps.product(a=queries)])


def three(n: int) -> ps.Strategy:
    """Three products of two attributes, no factor in common: no closed form."""
    domain = ps.Domain.of(a=n, b=n)
    kinds = [ps.prefix(), ps.all_range(), ps.width_range(n // 4)]
    made = [ps.select.opt0(line(n, kind), restarts=1).query.blocks[0].matrix for kind in kinds]
    factors = [m.factors[0] if isinstance(m, Kron) else m for m in made]
    blocks = tuple(Block(Kron((a, a)), Fraction(w)) for w, a in enumerate(factors, 1))
    return ps.Strategy(domain, "laplace", ps.Query(blocks), "three products")


def tens(d: int, k: int) -> ps.Workload:
    return ps.marginals(ps.Domain.of({f"a{i}": 10 for i in range(d)}), up_to=k)


CASES: dict[str, Callable[[], ps.Strategy]] = {
    "product, 100³": lambda: product(100, 100, 100),
    "product, 100³ × 10": lambda: product(100, 100, 100, 10),
    "two products, 100³": lambda: union(100, 3),
    "two products, 1000²": lambda: union(1000, 2),
    "three products, 40²": lambda: three(40),
    "three products, 100²": lambda: three(100),
    "marginals up to 3-way, 10⁶": lambda: ps.select.opt_marginals(tens(6, 3)),
    "residuals up to 3-way, 10⁶": lambda: ps.select.residual(tens(6, 3)),
    "tree, 2²⁰": lambda: ps.select.tied(line(2**20, ps.prefix())),
    "prefixes, 512, Gaussian": lambda: ps.select.hdmm(
        line(512, ps.prefix()), "gaussian", restarts=1
    ),
    "Identity, 10⁷": lambda: ps.select.identity(tens(7, 1)),
}


def measured(strategy: ps.Strategy) -> str:
    """Measure and reconstruct once, noise and all; the name of the form that was used."""
    budget = ps.epsilon(1) if strategy.noise == "laplace" else ps.rho(1)
    domain = strategy.domain
    vault = Vault(Snapshot(Read(), domain, None), domain, PlayMoney(UNIT, budget), Draws())
    vector = ProtectedTable(domain, vault, Node("root")).vectorise()
    estimate = ps.infer.least_squares([vector.measure(strategy.query, spend=budget)])
    form = estimate.form.inner if isinstance(estimate.form, MergedForm) else estimate.form
    return NAMES[type(form).__name__]


def row(name: str, made: ps.Strategy) -> list[str]:
    measured(made)
    begin = time.process_time()
    method = measured(made)
    seconds = time.process_time() - begin
    tracemalloc.start()
    measured(made)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    cost = made.cost
    pairs = (seconds, cost.seconds), (peak, cost.bytes)
    ratios = [max(a / b, b / a) for a, b in pairs]
    return [
        name, f"{cost.cells:.1e}", f"{cost.answers:.1e}", cost.method, method,
        f"{cost.seconds:.2f} s", f"{seconds:.2f} s", f"{cost.bytes / 1e6:.0f} MB",
        f"{peak / 1e6:.0f} MB", f"{ratios[0]:.1f}", f"{ratios[1]:.1f}",
    ]  # fmt: skip


def main() -> None:
    print(__doc__)
    head = ["strategy", "counted", "answers", "method", "used", "predicted time"]
    head += ["measured", "predicted memory", "measured", "time, factor", "memory, factor"]
    table(head, [row(name, make()) for name, make in CASES.items()])


if __name__ == "__main__":
    main()
