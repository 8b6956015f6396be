"""Data cubes beside Yaroslavtsev, Cormode, Procopiuc and Srivastava (2013).

    python -m benchmarks.datacube FOLDER [introduction | adult | figures | bounds | groups |
                                          consistency | variances] ...

FOLDER holds dualquery/adult.tar.bz2, the UCI table as it was published: 32,561 rows, of which the
paper takes eight attributes. Workloads count attributes: Q_2 are the 28 tables of two of them. For
F the attributes are coded in bits as in the paper (23 of them), and a table is the marginal of all
bits of its attributes; the other strategies measure the attributes as they are. NLTCS itself is not
public, and errors do not depend on it: noise does not, and the mean of a table of c cells is
21,576/c. So rows are made up.

The seven strategies are recovered by least squares. Relative error is the mean |error| of all
entries of all tables over their mean true value, of real runs (drawn noise, not variances) at four
values of epsilon. Every epsilon has fresh noise, of 4,000 numbers or of 0.3 seconds. Processor time
is of selecting, measuring, inferring and answering. Drawings go to build/figures/.
"""

from __future__ import annotations

import io
import math
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import psephos as ps
from benchmarks.figures import draw
from benchmarks.measure import table
from psephos.kernel.query import Query
from psephos.matrix import Dense
from psephos.strategy.datacube.budgets import budgeted, row_groups
from psephos.strategy.datacube.strategies import PlainStrategy
from psephos.strategy.hdmm.residual import largest_variance_weights, residual_error
from psephos.values import Array

ADULT = {
    "workclass": (1, 9),
    "education": (3, 16),
    "marital": (5, 7),
    "occupation": (6, 15),
    "relationship": (7, 6),
    "race": (8, 5),
    "sex": (9, 2),
    "salary": (14, 2),
}
"""Of the paper's attributes the column of the file, and the number of values."""
STRATEGIES = {
    "I": ("I", "uniform"),
    "Q": ("Q", "uniform"),
    "Q⁺": ("Q", "optimal"),
    "F": ("F", "uniform"),
    "F⁺": ("F", "optimal"),
    "C": ("C", "uniform"),
    "C⁺": ("C", "optimal"),
}
EPSILONS = ("1/10", "1/4", "1/2", "1")
LEAST_NUMBERS, MOST_SECONDS = 4000, 0.3
"""Answers with noise of their own at every epsilon, if they take no longer."""
MOST_BLOCKS = 4000
"""Strategies of more blocks are told by their exact error alone."""
UNIT = ps.add_remove_row()


# ---- data --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cube:
    """A table of whole numbers, with the same rows in bits."""

    name: str
    rows: Array
    sizes: dict[str, int]

    @property
    def domain(self) -> ps.Domain:
        return ps.Domain.of(self.sizes)

    @property
    def bits(self) -> dict[str, list[str]]:
        """The bits of every attribute, the highest first."""
        return {n: [f"{n}{b}" for b in range((c - 1).bit_length())] for n, c in self.sizes.items()}

    def frame(self, coded: bool) -> pl.DataFrame:
        columns = {}
        for j, (name, bits) in enumerate(self.bits.items()):
            for k, bit in enumerate(bits if coded else [name]):
                values = self.rows[:, j]
                columns[bit] = values >> (len(bits) - 1 - k) & 1 if coded else values
        return pl.DataFrame(columns)

    def workloads(self) -> dict[str, ps.Workload]:
        """Q_k, Q_k* and Q_k^a of section V."""
        domain, first = self.domain, next(iter(self.sizes))
        workloads = {}
        for k in (1, 2):
            workloads[f"Q{k}"] = ps.marginals(domain, k=k)
            workloads[f"Q{k}*"] = ps.marginals(domain, k=k, half_above=True)
            workloads[f"Q{k}a"] = ps.marginals(domain, k=k, above_with=first)
        return workloads

    def in_bits(self, workload: ps.Workload) -> ps.Workload:
        """The same tables over the bits of their attributes."""
        domain = ps.Domain.of({bit: 2 for bits in self.bits.values() for bit in bits})
        sets = [[bit for n in p.factors for bit in self.bits[n]] for p in workload.products]
        return ps.marginals(domain, of=sets)

    def counts(self, workload: ps.Workload) -> list[Array]:
        """The true tables."""
        places = {name: j for j, name in enumerate(self.sizes)}
        tables = []
        for product in workload.products:
            names = list(product.factors)
            shape = [self.sizes[name] for name in names]
            codes = np.zeros(len(self.rows), dtype=np.int64)
            for name, n in zip(names, shape, strict=True):
                codes = codes * n + self.rows[:, places[name]]
            tables.append(np.bincount(codes, minlength=math.prod(shape)))
        return tables


def adult(folder: Path) -> Cube:
    with tarfile.open(folder / "dualquery/adult.tar.bz2") as archive:
        file = archive.extractfile("adult/adult.data")
        text = b"" if file is None else file.read()
    lines = [line.split(", ") for line in io.StringIO(text.decode()) if line.count(",") == 14]
    columns, sizes = [], {}
    for name, (j, size) in ADULT.items():
        values = sorted({line[j].strip() for line in lines})
        if len(values) != size:
            raise SystemExit(f"{name} has {len(values)} values, and {size} in the paper")
        code = {value: i for i, value in enumerate(values)}
        columns.append([code[line[j].strip()] for line in lines])
        sizes[name] = size
    return Cube("Adult", np.array(columns).T, sizes)


def nltcs() -> Cube:
    """Sixteen functions that go one after the other as a latent disability grows."""
    rng = np.random.default_rng(0)
    latent = rng.gumbel(-1.5, 1.5, 21_576)
    thresholds = np.linspace(-1, 3, 16)
    rows = rng.logistic(size=(21_576, 16)) + latent[:, None] > thresholds
    return Cube("NLTCS-like", rows.astype(np.int64), {f"x{i}": 2 for i in range(16)})


# ---- the introduction and Adult's exact errors -------------------------------------------------


def introduction() -> None:
    w = ps.marginals(ps.Domain.of(a=2, b=2, c=2), of=[("a",), ("a", "b")])
    hand = Query.of([(w.kron(0), 4), (w.kron(1), 5)])
    laplace = ps.NoiseKind.LAPLACE

    def cube(**choice: Any) -> ps.Strategy:
        return ps.select.datacube(w, **choice)

    optimal = {"strategy": "Q", "budgets": "optimal"}
    rows = [
        ("Q, plain", cube(strategy="Q", recovery="plain"), "48.00"),
        ("Q with budgets 4 : 5, plain", PlainStrategy(w.domain, laplace, hand), "46.17"),
        ("Q⁺, plain", cube(**optimal, recovery="plain"), "-"),
        ("Q with budgets 4 : 5, least squares", ps.Strategy(w.domain, laplace, hand), "30.01"),
        ("Q⁺, least squares", cube(**optimal), "-"),
        ("Q, least squares", cube(strategy="Q"), "32.00"),
        ("C", cube(), "16.00"),
        ("F", cube(strategy="F"), "-"),
        ("F⁺", cube(strategy="F", budgets="optimal"), "-"),
        ("hdmm", ps.select.hdmm(w), "-"),
    ]
    print("Introduction: the sum of variances times ε² (its 34.6 is a recovery by hand)\n")
    table(
        ["strategy", "ours", "paper, or by its rules"],
        [[name, f"{2 * s.expected_error(w):.2f}", paper] for name, s, paper in rows],
    )


def rmse(strategy: ps.Strategy, workload: ps.Workload) -> float:
    """At ε = 1, of continuous noise."""
    return math.sqrt(2 * strategy.expected_error(workload) / workload.shape[0])


def adult_errors() -> None:
    domain = ps.Domain.of({name: size for name, (_, size) in ADULT.items()})
    rows = []
    for k in (1, 2):
        w = ps.marginals(domain, k=k)
        row = [f"Q{k}"]
        for letter, budgets in STRATEGIES.values():
            if letter == "F":
                continue
            choice: dict[str, Any] = {"strategy": letter, "budgets": budgets}
            plain = ps.select.datacube(w, recovery="plain", **choice)
            best = ps.select.datacube(w, **choice)
            row.append(f"{rmse(plain, w):.2f} / {rmse(best, w):.2f}")
        for budgets in ("uniform", "optimal"):
            row.append(f"{rmse(ps.select.datacube(w, strategy='F', budgets=budgets), w):.2f}")
        row.append(f"{rmse(ps.select.opt_marginals(w, restarts=5), w):.2f}")
        rows.append(row)
    print("Adult, eight attributes: exact RMSE at ε = 1, plain recovery / least squares\n")
    head = ["workload", "I", "Q", "Q⁺", "C", "C⁺", "F of nI - 11ᵀ", "F⁺", "OPT_M"]
    table(head, rows)


# ---- Figures 4 to 6 ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """Relative errors of one strategy over epsilon, exact ones beside, and processor time."""

    measured: list[float] | None
    exact: float
    """The root mean square relative error at ε = 1,"""
    plain: float
    """the same by plain recovery,"""
    seconds: float


def curve(cube: Cube, workload: ps.Workload, name: str) -> Curve:
    letter, budgets = STRATEGIES[name]
    coded = letter == "F"
    asked = cube.in_bits(workload) if coded else workload
    frame = cube.frame(coded)
    begin = time.process_time()
    choice: dict[str, Any] = {"strategy": letter, "budgets": budgets}
    strategy = ps.select.datacube(asked, **choice)
    selecting = time.process_time() - begin
    true = np.concatenate(cube.counts(workload))
    mean = float(true.mean())
    # In bits a table has cells that no row can be in; a cell's variance is the same in all.
    cells = np.array(workload.query_counts) / np.array(asked.query_counts)

    def relative(each: ps.Strategy) -> float:
        errors = 2 * each.product_errors(asked) @ cells
        return math.sqrt(float(errors) / len(true)) / mean

    exact = relative(strategy)
    plain = relative(ps.select.datacube(asked, recovery="plain", **choice))
    real = [_real_cells(cube, workload, i) for i in range(len(workload.products))] if coded else []
    if len(strategy.query.blocks) > MOST_BLOCKS:
        return Curve(None, exact, plain, selecting)
    measured, seconds = [], []
    seed = 0
    for epsilon in EPSILONS:
        total, numbers, first = 0.0, 0, time.process_time()
        while numbers < LEAST_NUMBERS and (
            not numbers or time.process_time() - first < MOST_SECONDS
        ):
            begin = time.process_time()
            budget = ps.epsilon(epsilon)
            data = ps.simulate(frame, asked.domain, unit=UNIT, budget=budget, seed=seed)
            y = data.vectorise().measure(strategy.query, spend=budget)
            values = ps.infer.least_squares(y).answer(asked).values
            seconds.append(time.process_time() - begin)
            if coded:
                tables = np.split(values, np.cumsum(asked.query_counts)[:-1])
                values = np.concatenate([t[r] for t, r in zip(tables, real, strict=True)])
            total += float(np.abs(values - true).sum()) / mean
            numbers, seed = numbers + workload.shape[0], seed + 1
        measured.append(total / numbers)
    return Curve(measured, exact, plain, selecting + float(np.median(seconds)))


def _real_cells(cube: Cube, workload: ps.Workload, i: int) -> Array:
    """Which cells of a table in bits stand for values."""
    places = np.zeros(1, dtype=np.int64)
    for name in workload.products[i].factors:
        n = cube.sizes[name]
        width = 1 << (n - 1).bit_length()
        places = (places[:, None] * width + np.arange(n)).ravel()
    return places


def figures(folder: Path) -> None:
    for figure, cube in ((4, adult(folder)), (5, nltcs())):
        workloads = cube.workloads()
        if cube.name != "Adult":
            workloads["Q3"] = ps.marginals(cube.domain, k=3)
        curves: dict[str, dict[str, Curve]] = {}
        for w, workload in workloads.items():
            curves[w] = {s: curve(cube, workload, s) for s in STRATEGIES}
            print(cube.name, w, file=sys.stderr, flush=True)
        print(f"Figure {figure}, {cube.name}: relative error at ε = 1/10 and 1 (exact RMS at 1)\n")
        table(
            ["workload", *STRATEGIES],
            [[w, *(_cell(each[s]) for s in STRATEGIES)] for w, each in curves.items()],
        )
        print(f"{cube.name}: what budgets bring, 1 - S⁺/S, measured (exact; by plain recovery)\n")
        table(
            ["workload", "Q⁺", "F⁺", "C⁺", "best"],
            [
                [w, *(_gain(each[s], each[f"{s}⁺"]) for s in "QFC"), _best(each)]
                for w, each in curves.items()
            ],
        )
        print(f"Figure 6, {cube.name}: processor seconds of one run\n")
        table(
            ["workload", *STRATEGIES],
            [
                [
                    w,
                    *(
                        f"{each[s].seconds:.2f}" + ("" if each[s].measured else " select")
                        for s in STRATEGIES
                    ),
                ]
                for w, each in curves.items()
            ],
        )
        epsilons = [float(Fraction(e)) for e in EPSILONS]
        for w, each in curves.items():
            lines = [(s, epsilons, c.measured) for s, c in each.items() if c.measured]
            name = f"datacube_{cube.name.split('-')[0].lower()}_{w.replace('*', 'half')}"
            draw(name, f"{cube.name}, {w}", ("ε", "relative error"), lines, "y")


def _cell(c: Curve) -> str:
    ends = "-" if c.measured is None else f"{c.measured[0]:.3g}, {c.measured[-1]:.3g}"
    return f"{ends} ({c.exact:.3g})"


def _gain(even: Curve, best: Curve) -> str:
    gains = [1 - best.exact / even.exact, 1 - best.plain / even.plain]
    exact = f"({100 * gains[0]:.0f} %; {100 * gains[1]:.0f} %)"
    if even.measured is None or best.measured is None:
        return exact
    ratios = np.array(best.measured) / np.array(even.measured)
    return f"{100 * (1 - ratios.mean()):.0f} % {exact}"


def _best(curves: Mapping[str, Curve]) -> str:
    return min(curves, key=lambda s: curves[s].exact)


# ---- Table I, groups, consistency, variances ---------------------------------------------------


def bounds() -> None:
    """Expected L1 noise of a marginal at ε = 1 beside Table I without its constants."""
    d = 16
    domain = ps.Domain.of({f"x{i}": 2 for i in range(d)})
    rows = []
    for k in (1, 2, 3):
        w = ps.marginals(domain, k=k)
        ways, both = math.comb(d, k), math.comb(d + k, k)
        limits: list[tuple[str, dict[str, Any], float]] = [
            ("I", {"strategy": "I"}, 2 ** ((d + k) / 2)),
            ("Q", {"strategy": "Q", "recovery": "plain"}, 2**k * ways),
            ("F", {"strategy": "F"}, k * ways * 2 ** (k / 2)),
            ("F⁺", {"strategy": "F", "budgets": "optimal"}, k * math.sqrt(ways * both)),
        ]
        for name, choice, limit in limits:
            # E|noise| is at most its standard deviation, and at least 0.7 of it here.
            ours = 2**k * rmse(ps.select.datacube(w, **choice), w)
            rows.append([f"{k}", name, f"{ours:,.1f}", f"{limit:,.1f}", f"{ours / limit:.2f}"])
        best = 2**k * rmse(ps.select.opt_marginals(w, restarts=3), w)
        rows.append([f"{k}", "OPT_M", f"{best:,.1f}", "-", "-"])
        rows.append([f"{k}", "lower bound", "-", f"{math.sqrt(ways):,.1f}", "-"])
    print(f"Table I at d = {d}, ε = 1: 2^k · RMSE of all k-way marginals beside the bound\n")
    table(["k", "strategy", "ours", "bound, without its constant", "ratio"], rows)


def groups() -> None:
    """Section III's grouped strategies: the number of groups, C_r, and what budgets bring."""
    rng = np.random.default_rng(0)
    n = 256
    repeats = np.zeros((9, 64, n), dtype=np.int64)
    for each in repeats:
        each[rng.integers(64, size=n), np.arange(n)] = rng.choice([-1, 1], n)
    sketch = repeats.reshape(-1, n)
    sketch = sketch[np.abs(sketch).any(axis=1)]
    line = ps.Workload(ps.Domain.of(a=n), [ps.product(a=ps.all_range())])
    box = ps.Workload(ps.Domain.of(a=16, b=16), [ps.product(a=ps.all_range(), b=ps.all_range())])
    laplace = ps.NoiseKind.LAPLACE
    cases: list[tuple[str, ps.Workload, ps.Strategy, str]] = [
        ("hierarchy, binary", line, ps.select.h2(line), "⌈log₂ n⌉ levels (with the root one more)"),
        ("Haar wavelet", line, ps.select.privelet(line), "⌈log₂ n⌉ + 1"),
        ("Haar wavelet, 16 x 16", box, ps.select.privelet(box), "(log₂ 16 + 1)²"),
        (
            "sketch, 9 x 64",
            line,
            ps.Strategy(line.domain, laplace, Query.of(Dense(sketch))),
            "t = 9",
        ),
    ]
    rows = []
    for name, workload, strategy, paper in cases:
        grouping = row_groups(strategy.query.blocks[0].matrix)
        begin = time.process_time()
        better = budgeted(strategy, workload)
        seconds = time.process_time() - begin
        gain = 1 - math.sqrt(better.expected_error(workload) / strategy.expected_error(workload))
        sizes = "-" if grouping is None else ", ".join(map(str, sorted(set(grouping.sizes))))
        count = "-" if grouping is None else str(grouping.count)
        rows.append([name, count, paper, sizes, f"{100 * gain:.1f} %", f"{seconds:.2f} s"])
    print("Groups (Definition 3.1), all ranges, Laplace: less RMSE by least squares with budgets\n")
    table(["strategy", "groups", "paper", "C_r", "gain", "cpu"], rows)


def consistency(folder: Path) -> None:
    """Errors of consistent tables by norm, real runs at ε = 1."""
    rows = []
    for cube, k in [(adult(folder), 2), (nltcs(), 2), (nltcs(), 3)]:
        w = ps.marginals(cube.domain, k=k)
        true = np.concatenate(cube.counts(w))
        strategy = ps.select.datacube(w, strategy="Q")
        budget, frame = ps.epsilon(1), cube.frame(False)
        for norm in ("plain", "l2", "l1", "linf"):
            squares, sums, largest, seconds = [], [], [], []
            for seed in range(5):
                data = ps.simulate(frame, cube.domain, unit=UNIT, budget=budget, seed=seed)
                y = data.vectorise().measure(strategy.query, spend=budget)
                begin = time.process_time()
                plain = norm == "plain"
                estimate: ps.Estimate = (
                    ps.infer.plain_recovery(y) if plain else ps.infer.consistent(y, norm)  # type: ignore[arg-type]
                )
                errors = np.abs(estimate.answer(w).values - true)
                seconds.append(time.process_time() - begin)
                squares.append(float((errors**2).mean()))
                sums.append(float(errors.mean()))
                largest.append(float(errors.max()))
            values = (math.sqrt(np.mean(squares)), np.mean(sums), np.mean(largest))
            rows.append(
                [f"{cube.name}, Q{k}", f"{len(true):,}", norm]
                + [f"{value:,.1f}" for value in values]
                + [f"{np.mean(seconds):.2f} s"]
            )
    print("Consistency: errors of Q at ε = 1, five runs each\n")
    table(["workload", "numbers", "norm", "RMSE", "mean", "largest", "cpu"], rows)


def variances() -> None:
    """ρ = 1/2, up to 3-way: the sum of variances and the largest, beside published values."""
    adult_14 = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
    cases = [
        ("10^6", (10,) * 6, "4.2752", "26.90"),
        ("10^10", (10,) * 10, "9.3481", "105.03"),
        ("10^15", (10,) * 15, "17.3782", "-"),
        ("10^20", (10,) * 20, "26.9168", "768.94"),
        ("10^30", (10,) * 30, "49.7132", "-"),
        ("Adult, 14", adult_14, "10.6650", "253.61"),
    ]
    rows = []
    for name, shape, published, most in cases:
        domain = ps.Domain.of({f"x{i}": n for i, n in enumerate(shape)})
        w = ps.marginals(domain, up_to=3)
        root = math.sqrt(residual_error(shape, w.closure_traces()) / w.shape[0])
        row = [name, f"{root:.4f}", published]
        sets = [s for k in range(4) for s in combinations(range(len(shape)), k)]
        begin = time.process_time()
        largest = "-" if most == "-" else f"{largest_variance_weights(shape, sets)[1]:.2f}"
        row += [largest, most, f"{time.process_time() - begin:.2f} s"]
        empirical = "-"
        if math.prod(shape) <= 10**10:
            strategy = ps.select.residual(w)
            spend = ps.rho("1/2")
            counts = pl.DataFrame({n: np.zeros(1, dtype=np.int64) for n in domain.names})
            data = ps.simulate(counts, domain, unit=UNIT, budget=spend, seed=0)
            y = data.vectorise().measure(strategy.query, spend=spend)
            values = ps.infer.least_squares(y).answer(w).values.copy()
            ends = np.cumsum([0, *w.query_counts[:-1]])
            values[ends] -= 1  # the one row is in the first cell of every table
            empirical = f"{math.sqrt(float((values**2).mean())):.4f}"
        rows.append([*row, empirical])
    print("Gaussian, ρ = 1/2, all marginals up to 3-way, attributes of 10 values\n")
    head = [
        "attributes",
        "RMSE",
        "published",
        "largest variance",
        "published",
        "cpu",
        "RMSE of a run",
    ]
    table(head, rows)
    rows = []
    for name, shape in [("Adult, 8", tuple(n for _, n in ADULT.values())), ("10^6", (10,) * 6)]:
        w = ps.marginals(ps.Domain.of({f"x{i}": n for i, n in enumerate(shape)}), up_to=3)
        begin = time.process_time()
        balanced = ps.select.smallest_largest(w, restarts=3)
        seconds = time.process_time() - begin
        sums = ps.select.opt_marginals(w, restarts=3)
        worst = [2 * s.worst_errors(w).max() for s in (sums, balanced)]
        rows.append([name, *(f"{value:,.0f}" for value in worst), f"{seconds:.1f} s"])
    print("Laplace, ε = 1, up to 3-way: the largest variance of a cell\n")
    table(["attributes", "OPT_M", "smallest_largest", "cpu"], rows)


SECTIONS: dict[str, Callable[[Path], None]] = {
    "introduction": lambda folder: introduction(),
    "adult": lambda folder: adult_errors(),
    "figures": figures,
    "bounds": lambda folder: bounds(),
    "groups": lambda folder: groups(),
    "consistency": consistency,
    "variances": lambda folder: variances(),
}


def main(folder: Path, names: list[str]) -> None:
    print(__doc__)
    for name in names or list(SECTIONS):
        SECTIONS[name](folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
