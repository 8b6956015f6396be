"""Time of plans and of inference over the number of cells: Figures 4 and 5 of Zhang et al. (2020).

    forms      Figure 4: plans with a fixed strategy, whose matrix is written out as numbers
               ("dense", numpy), as a sparse one (scipy), or not at all ("implicit"): answers,
               Laplace noise, and least squares by iterations (LSMR), the same for all three;
               and "here", the plan as it is, with exact noise and the inverse in closed form
    plans      Figure 4: whole runs of all plans, single cells asked
    inference  Figure 5: least squares and non-negative least squares from a binary hierarchy

The paper stops at 1,000 s, and says that implicit matrices take HB, Quadtree and UniformGrid to
domains a thousand times larger than others, and that DAWA, Greedy-H and AdaptiveGrid gain little;
for inference, that sparse and iterative methods take millions of cells in less than a minute, and
implicit ones further, a thousand times larger vectors than direct and dense.

In Figure 5 "direct" solves the normal equations, "tree" goes up and down the tree (Hay et al.
2010); non-negative fits are by L-BFGS-B on a sparse matrix, as in the paper, and here.

Processor time of one run. What took longer than LIMIT at one size is not tried at the next, and
nothing is written out beyond MOST_NUMBERS. `python -m benchmarks.plan_growth [SECTION] [quick]`;
numbers k run 2ᵏ cells alone, and names of plans these alone.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, lsmr

import psephos as ps
from benchmarks.figures import draw
from benchmarks.measure import table
from psephos.errors import PsephosError
from psephos.plans.fixed import hb_matrix
from psephos.values import Array

LIMIT = 5.0
PLAN_LIMIT = 15.0
"""For whole runs of plans; one that is linear takes a minute at the next size."""
FIT_LIMIT = 2.0
"""For non-negative fits, which grow faster."""
MOST_NUMBERS = 2 * 10**8
"""Of a matrix that is written out: 1.6 GB."""
UNIT = ps.add_remove_row()
SPEND = ps.epsilon("0.1")
LINES = ["Greedy-H", "DAWA", "AHP", "MWEM variant b"]
SQUARES = ["Identity", "Privelet", "H2", "HB", "Quadtree", "UniformGrid", "AdaptiveGrid", "HDMM"]
STRIPED = ["PrivBayesLS", "DAWA-Striped", "HB-Striped", "HB-Striped_kron"]
ALL_PLANS = [*LINES, *SQUARES, *STRIPED]


def seconds_of(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def counts_of(cells: int) -> Array:
    """Rows in a few crowds, ten for every cell on average up to a million rows."""
    rng = np.random.default_rng(0)
    rows = min(10 * cells, 10**6)
    crowds = rng.integers(0, cells, 20)
    places = crowds[rng.integers(0, 20, rows)] + rng.normal(0, cells / 100, rows).astype(np.int64)
    return np.bincount(places % cells, minlength=cells)


# ---- Figure 4 ------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[ps.Workload], ps.Strategy]] = {
    "Identity": ps.select.identity,
    "Privelet": ps.select.privelet,
    "H2": ps.select.h2,
    "HB": ps.select.hb,
    "Quadtree": ps.select.quadtree,
    "Greedy-H": ps.select.greedy_h,
    "HB-Striped_kron": lambda w: striped(w.domain),
}


def striped(domain: ps.Domain) -> ps.Strategy:
    """HB along the first attribute, for every combination of the others."""
    others = (ps.matrix.Identity(n) for n in domain.shape[1:])
    matrix = ps.matrix.Kron((hb_matrix(domain.shape[0]), *others))
    return ps.Strategy(domain, ps.NoiseKind.LAPLACE, ps.Query.of(matrix), "HB-Striped")


def written_out(matrix: ps.matrix.Matrix) -> sp.csr_array:
    """A matrix as a sparse one, part by part."""
    match matrix:
        case ps.matrix.Stack(parts=parts):
            return sp.csr_array(sp.vstack([written_out(part) for part in parts]))
        case ps.matrix.Kron(factors=factors):
            result = sp.csr_array(np.ones((1, 1)))
            for factor in factors:
                result = sp.csr_array(sp.kron(result, written_out(factor)))
            return result
        case ps.matrix.Scaled(factor=factor, base=inner):
            return sp.csr_array(written_out(inner) * float(factor))
        case ps.matrix.Identity():
            return sp.csr_array(sp.eye_array(matrix.shape[1]))
        case ps.matrix.Partition(groups=groups):
            cells = np.arange(groups.size)
            return sp.csr_array((np.ones(groups.size), (groups, cells)), shape=matrix.shape)
        case ps.matrix.Diagonal(weights=weights):
            return sp.csr_array(sp.diags_array(np.asarray(weights, dtype=float)))
        case ps.matrix.Sparse(entries=entries):
            return sp.csr_array(entries.astype(float))
    return sp.csr_array(matrix.dense().astype(float))


def by_iterations(a: Any, counts: Array) -> Array:
    """Answers, noise and least squares with one form of a matrix."""
    rng = np.random.default_rng(0)
    if isinstance(a, ps.matrix.Matrix):
        a = LinearOperator(a.shape, matvec=a.matvec, rmatvec=a.rmatvec, dtype=float)
    y = a @ counts + rng.laplace(0, 10, a.shape[0])
    return np.asarray(lsmr(a, y, atol=1e-8, btol=1e-8)[0])


def forms(sizes: list[int]) -> None:
    """Figure 4 for strategies that can be written out."""
    rows = []
    for name, select in FORMS.items():
        times: dict[str, list[float]] = {"dense": [], "sparse": [], "implicit": [], "here": []}
        for size in sizes:
            domain, counts = domain_for(name, size), counts_of(size)
            asked = ps.Workload(domain, [ps.product({n: ps.identity() for n in domain.names})])
            calls = form_calls(
                name, select, asked, counts, [f for f in times if may_go_on(times[f])]
            )
            for form, seconds in times.items():
                seconds.append(seconds_of(calls[form]) if form in calls else math.nan)
            print(name, size, {f: s[-1] for f, s in times.items()}, file=sys.stderr, flush=True)
        for form, seconds in times.items():
            rows.append([name, form, *("" if math.isnan(s) else f"{s:.3f} s" for s in seconds)])
        lines = [
            (form, [float(n) for n, s in zip(sizes, known, strict=True) if s == s],
             [max(s, 1e-4) for s in known if s == s])
            for form, known in times.items()
        ]  # fmt: skip
        draw(f"forms_{name}", f"{name}, forms of its matrix", ("cells", "CPU s"), lines, "xy")
    table(["plan", "matrix", *(f"{size:,} cells" for size in sizes)], rows)


def may_go_on(seconds: list[float]) -> bool:
    """Was the last size not too large?"""
    return not seconds or seconds[-1] < LIMIT


def form_calls(
    name: str,
    select: Callable[[ps.Workload], ps.Strategy],
    asked: ps.Workload,
    counts: Array,
    wanted: list[str],
) -> dict[str, Callable[[], Any]]:
    """What is timed, for the forms that can be had at this size."""
    calls: dict[str, Callable[[], Any]] = {}
    spent = SELECTION_SECONDS.get(name, 0.0)
    if {"dense", "sparse", "implicit"} & set(wanted) and spent < LIMIT:
        begin = time.process_time()
        (block,) = select(asked).query.blocks
        SELECTION_SECONDS[name] = time.process_time() - begin
        matrix = block.matrix
        if "implicit" in wanted:
            calls["implicit"] = lambda: by_iterations(matrix, counts)
        if {"dense", "sparse"} & set(wanted) and counts.size <= MOST_SPARSE:
            sparse = written_out(matrix)
            if "sparse" in wanted:
                calls["sparse"] = lambda: by_iterations(sparse, counts)
            if "dense" in wanted and math.prod(matrix.shape) <= MOST_NUMBERS:
                dense = sparse.toarray()
                calls["dense"] = lambda: by_iterations(dense, counts)
    if "here" in wanted:
        data = ps.simulate(counts, asked.domain, unit=UNIT, budget=SPEND, seed=0).vectorise()
        calls["here"] = lambda: ps.plans.run(name, data, asked, spend=SPEND).answer(asked)
    return calls


SELECTION_SECONDS: dict[str, float] = {}
"""What the last selection of a strategy took: it is not part of the times of forms."""
MOST_SPARSE = 1 << 22


def plans(sizes: list[int], names: Sequence[str] = ()) -> None:
    """Figure 4."""
    rows, lines = [], []
    for name in names or ALL_PLANS:
        cells, known, reached = [], [], []
        last = 0.0
        for size in sizes:
            if last > PLAN_LIMIT:
                cells.append("")
                continue
            domain = domain_for(name, size)
            asked = ps.Workload(domain, [ps.product({n: ps.identity() for n in domain.names})])
            data = ps.simulate(
                counts_of(domain.size), domain, unit=UNIT, budget=SPEND, seed=0
            ).vectorise()
            try:
                last = seconds_of(lambda: ps.plans.run(name, data, asked, spend=SPEND))  # noqa: B023
            except PsephosError as refusal:
                cells.append(f"refused ({type(refusal).__name__})")
                last = math.inf
                continue
            cells.append(f"{last:.2f} s")
            print(name, size, cells[-1], file=sys.stderr, flush=True)
            known.append(max(last, 1e-3))
            reached.append(float(domain.size))
        rows.append([name, *cells])
        if len(known) > 1:
            lines.append((name, reached, known))
    print("Figure 4: whole runs of plans\n")
    table(["plan", *(f"{size:,} cells" for size in sizes)], rows)
    draw("plans_growth", "Plans over cells", ("cells", "CPU s"), lines, "xy")


def domain_for(name: str, size: int) -> ps.Domain:
    """A line, a square, or an attribute of a thousand values beside small ones."""
    if name in LINES:
        return ps.Domain.of(x=size)
    if name in SQUARES:
        side = round(math.sqrt(size))
        return ps.Domain.of(x=side, y=side)
    return ps.Domain.of(x=max(4, size // 64), a=4, b=4, c=4)


# ---- Figure 5 ------------------------------------------------------------------------------------


def hierarchy(n: int) -> sp.csr_array:
    """All nodes of a binary tree over n cells, the root first."""
    cells = np.arange(n)
    levels = [
        sp.csr_array((np.ones(n), (cells >> k, cells)), shape=(n >> k, n))
        for k in reversed(range(n.bit_length()))
    ]
    return sp.csr_array(sp.vstack(levels))


def tree_answers(counts: Array) -> Array:
    """The counts of all nodes, the root first."""
    levels = [counts]
    while levels[-1].size > 1:
        levels.append(levels[-1].reshape(-1, 2).sum(axis=1))
    return np.concatenate(levels[::-1])


def by_normal_equations(a: Array, y: Array) -> Array:
    return np.linalg.solve(a.T @ a, a.T @ y)


def by_tree(y: Array, n: int) -> Array:
    """Up and down the tree: means of a node and its children, then what is left shared out."""
    sizes = [1 << k for k in range(n.bit_length())]
    levels = np.split(y.astype(float), np.cumsum(sizes)[:-1])
    for k in range(len(levels) - 2, -1, -1):
        height = 1 << (len(levels) - k)
        both = levels[k + 1].reshape(-1, 2).sum(axis=1)
        levels[k] = ((height - height / 2) * levels[k] + (height / 2 - 1) * both) / (height - 1)
    x = levels[0]
    for children in levels[1:]:
        off = (x - children.reshape(-1, 2).sum(axis=1)) / 2
        x = children + np.repeat(off, 2)
    return x


def by_quasi_newton(a: sp.csr_array, y: Array) -> Array:
    """Non-negative least squares as the paper finds them."""

    def squares(x: Array) -> tuple[float, Array]:
        off = a @ x - y
        return float(off @ off) / 2, a.T @ off

    bounds = [(0, None)] * a.shape[1]
    found = minimize(squares, np.zeros(a.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(found.x)


def inference(sizes: list[int]) -> None:
    """Figure 5."""
    names = [
        "direct, dense", "iterative, dense", "iterative, sparse", "iterative, implicit", "tree",
        "here", "non-negative, L-BFGS-B", "non-negative, here",
    ]  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in names}
    stopped: set[str] = set()
    for n in sizes:
        domain = ps.Domain.of(x=n)
        counts = counts_of(n)
        asked = ps.Workload(domain, [ps.product(x=ps.all_range())])
        cells = ps.Workload(domain, [ps.product(x=ps.identity())])
        vector = ps.simulate(counts, domain, unit=UNIT, budget=SPEND, seed=0).vectorise()
        measured = vector.measure(ps.select.h2(asked).query, spend=SPEND)
        implicit = measured.query.blocks[0].matrix
        a = hierarchy(n) if n <= MOST_SPARSE else None
        y = tree_answers(counts) + np.random.default_rng(0).laplace(0, 10, 2 * n - 1)
        dense = a.toarray() if a is not None and a.shape[0] * n <= MOST_NUMBERS else None
        calls: dict[str, Callable[[], Any]] = {
            "direct, dense": lambda: by_normal_equations(dense, y),  # noqa: B023
            "iterative, dense": lambda: by_iterations(dense, counts),  # noqa: B023
            "iterative, sparse": lambda: by_iterations(a, counts),  # noqa: B023
            "iterative, implicit": lambda: by_iterations(implicit, counts),  # noqa: B023
            "tree": lambda: by_tree(y, n),  # noqa: B023
            "here": lambda: ps.infer.least_squares(measured).answer(cells),  # noqa: B023
            "non-negative, L-BFGS-B": lambda: by_quasi_newton(a, y),  # noqa: B023
            "non-negative, here": lambda: ps.infer.nonnegative(ps.infer.least_squares(measured)),  # noqa: B023
        }  # fmt: skip
        for name in names:
            matrix = {"direct, dense": dense, "iterative, dense": dense, "iterative, sparse": a,
                      "non-negative, L-BFGS-B": a}.get(name, y)  # fmt: skip
            if name in stopped or matrix is None:
                times[name].append(math.nan)
                continue
            try:
                seconds = seconds_of(calls[name])
            except PsephosError:
                seconds = math.nan
            times[name].append(seconds)
            print(n, name, seconds, file=sys.stderr, flush=True)
            if not seconds < (FIT_LIMIT if name.startswith("non-negative") else LIMIT):
                stopped.add(name)
    shown = [
        [f"{n:,}", *("" if math.isnan(times[m][i]) else f"{times[m][i]:.3f} s" for m in names)]
        for i, n in enumerate(sizes)
    ]
    print("Figure 5: inference from a binary hierarchy\n")
    table(["cells", *names], shown)
    lines = []
    for name in names:
        pairs = [(n, t) for n, t in zip(sizes, times[name], strict=True) if not math.isnan(t)]
        lines.append((name, [float(n) for n, _ in pairs], [max(t, 1e-4) for _, t in pairs]))
    draw("inference_growth", "Inference over cells", ("cells", "CPU s"), lines, "xy")


SECTIONS = {"inference": inference, "forms": forms, "plans": plans}


def main(words: list[str]) -> None:
    powers = (10, 12, 14) if "quick" in words else (10, 12, 14, 16, 18, 20, 22, 24)
    powers = tuple(int(word) for word in words if word.isdigit()) or powers
    sizes = [1 << k for k in powers]
    some = [word for word in words if word in ALL_PLANS]
    for name in [word for word in words if word in SECTIONS] or SECTIONS:
        if name == "plans" and some:
            plans(sizes, some)
        else:
            SECTIONS[name](sizes)


if __name__ == "__main__":
    main(sys.argv[1:])
