"""The estimates a published view can be rounded from, side by side, where the truth is known.

    least squares    the consistent view: unbiased, and negative where noise says so
    non-negative     cells that are not negative and fit the measurements best, the total held; left
                     out where every step of it would be solved in steps, which takes minutes
    in answers       such cells whose answers are nearest to those of least squares; over
                     `RANGE_CELLS` cells, where it is never published and slow, it is left out
    entropy          maximum entropy, as far from independent attributes as its own risk says
    published        what the rule of psephos.release.views.published takes, in whole numbers

Errors are root mean squares over all asked numbers, weighted as the workload weights its tables;
means and standard deviations over draws of simulated noise. Measured is what `select.hdmm` chooses,
for release files what their plan does. What the published view promises stands beside it, also
where it fails: not above least squares, at most 1.02 of non-negative, and at least 1.5 times below
least squares where ε · rows / cells is at most 0.1.

Coverage is the share of true counts within the published intervals, by the size of the true count:
the consistent view's 95 % intervals, cut at zero and extended to the published number. "around" has
intervals of the same half-width around the published number instead, and "consistent" those of the
consistent view as they are.

Data are Adult (the eight attributes with at most 16 values), DPBench and release files, all below
one folder (the last argument; without it `shared` beside the repository), and made-up rows.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import psephos as ps
from psephos.infer import splitting
from psephos.infer.entropy import maximum_entropy
from psephos.infer.intervals import half_widths
from psephos.infer.least_squares import LeastSquares, least_squares
from psephos.infer.nonnegative import nonnegative
from psephos.infer.normal_equations import NormalEquations
from psephos.infer.rounding import RoundingGaps, round_cells
from psephos.inverse.shifted import shifted_form
from psephos.kernel.measurement import noise_for
from psephos.release.preflight.step_costs import estimate_seconds
from psephos.release.spec.job import Job
from psephos.release.views.published import MOST_RANGES, RANGE_CELLS, share_of_ranges
from psephos.values import Array

UNIT = ps.add_remove_row()
DRAWS, CHEAP_DRAWS, FEW_DRAWS = 5, 20, 2
"""Draws of the noise for a row, for a row of few cells, and where another takes minutes."""
ADULT = ("workclass", "education-num", "marital-status", "occupation", "relationship", "race",
         "sex", "income>50K")  # fmt: skip
NAMES = ("least squares", "non-negative", "in answers", "entropy", "published")


@dataclass(frozen=True, eq=False)
class Case:
    """Known counts, and what is asked and measured about them."""

    name: str
    workload: ps.Workload
    strategy: ps.Strategy
    counts: Array
    epsilon: str
    draws: int = DRAWS

    @property
    def signal(self) -> float:
        """Rows per cell, times epsilon."""
        return float(self.epsilon) * float(self.counts.sum()) / self.counts.size

    def estimate(self, seed: int) -> LeastSquares:
        """Least squares from one draw of the noise."""
        spend, domain = ps.epsilon(self.epsilon), self.workload.domain
        counts = self.counts.reshape(domain.shape)
        data = ps.simulate(counts, domain, unit=UNIT, budget=spend, seed=seed)
        return least_squares(data.vectorise().measure(self.strategy.query, spend=spend))


@dataclass(frozen=True)
class Draw:
    """What one draw gave: errors and seconds by estimate, and the typical gap of rounding."""

    errors: dict[str, float]
    seconds: dict[str, float]
    gap: float
    classes: bool
    """Did maximum entropy start from latent classes?"""

    @classmethod
    def of(cls, case: Case, seed: int) -> Draw:
        """All estimates from one measurement."""
        workload = case.workload
        truth = workload.answer(case.counts)
        squares = np.array([product.weight**2 for product in workload.products])
        weights = np.repeat(squares, workload.query_counts)
        estimate = case.estimate(seed)
        chosen = chosen_estimate(workload)
        vectors: dict[str, Array] = {}
        seconds: dict[str, float] = {}
        classes = False

        def timed(name: str, call: Callable[[], Array]) -> None:
            started = time.process_time()
            vectors[name] = call()
            seconds[name] = time.process_time() - started

        def entropy() -> Array:
            nonlocal classes
            ranges = share_of_ranges(workload) > MOST_RANGES
            fit = maximum_entropy(estimate, workload, in_answers=ranges)
            classes = fit.classes
            return fit.vector

        if has_closed_form(estimate):
            timed("non-negative", lambda: nonnegative(estimate, hold_total=True).vector)
        if chosen == "in answers" or workload.domain.size <= RANGE_CELLS:
            timed("in answers", lambda: nearest_cells(estimate, workload))
        timed("entropy", entropy)
        timed("published", lambda: round_cells(vectors[chosen], workload))
        answers = {name: workload.answer(vector) for name, vector in vectors.items()}
        answers["least squares"] = estimate.answer(workload).values
        total = weights.sum()
        errors = {
            name: math.sqrt(float(weights @ (values - truth) ** 2 / total))
            for name, values in answers.items()
        }
        gap = RoundingGaps.of(vectors["published"], vectors[chosen], workload).typical
        return cls(errors, seconds, gap, classes)


def has_closed_form(estimate: LeastSquares) -> bool:
    """Are steps of splitting solved without steps of their own?"""
    normal = NormalEquations.of(estimate)
    return not shifted_form(normal.blocks, normal.weights, normal.shape).takes_steps


def chosen_estimate(workload: ps.Workload) -> str:
    """What the published view of these questions is rounded from."""
    ranges = share_of_ranges(workload) > MOST_RANGES
    return "in answers" if ranges and workload.domain.size <= RANGE_CELLS else "entropy"


def published_cells(estimate: LeastSquares, workload: ps.Workload) -> Array:
    """The published view's whole cells."""
    if chosen_estimate(workload) == "entropy":
        return round_cells(maximum_entropy(estimate, workload).vector, workload)
    return round_cells(nearest_cells(estimate, workload), workload)


def nearest_cells(estimate: LeastSquares, workload: ps.Workload) -> Array:
    """Cells that are not negative, whose answers are nearest to those of least squares."""
    return nonnegative(estimate, workload=workload, hold_total=True).vector


def mixture(
    shape: tuple[int, ...], rows: int, parts: int, seed: int, evenness: float = 0.5
) -> Array:
    """Rows from a mixture of independent attributes."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(math.prod(shape), dtype=np.int64)
    for some in rng.multinomial(rows, rng.dirichlet(np.ones(parts))):
        columns = [rng.choice(n, size=some, p=rng.dirichlet(np.full(n, evenness))) for n in shape]
        np.add.at(counts, np.ravel_multi_index(columns, shape), 1)
    return counts


def sparse(shape: tuple[int, ...], rows: int, seed: int) -> Array:
    """Rows in 200 cells, some of which hold most."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(math.prod(shape), dtype=np.int64)
    cells = rng.choice(counts.size, 200, replace=False)
    counts[cells] = rng.multinomial(rows, rng.dirichlet(np.full(200, 0.3)))
    return counts


def smooth(shape: tuple[int, ...], rows: int, seed: int) -> Array:
    """Rows on a ridge across all attributes."""
    grid = np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij")
    density = np.exp(-0.5 * sum(grid) ** 2 - 0.3 * sum(axis**2 for axis in grid)).reshape(-1)
    return np.random.default_rng(seed).multinomial(rows, density / density.sum())


def uniform(shape: tuple[int, ...], rows: int, seed: int) -> Array:
    """Rows anywhere."""
    cells = math.prod(shape)
    return np.random.default_rng(seed).multinomial(rows, np.full(cells, 1 / cells))


def adult_counts(folder: Path, names: tuple[str, ...]) -> tuple[ps.Domain, Array]:
    """Some attributes of Adult, and the counts of their cells."""
    sizes = json.loads((folder / "data/adult/adult-domain.json").read_text())
    shape = tuple(sizes[name] for name in names)
    with (folder / "data/adult/adult.csv").open() as file:
        heads = file.readline().strip().split(",")
        rows = np.loadtxt(file, dtype=np.int64, delimiter=",")
    columns = [rows[:, heads.index(name)] for name in names]
    counts = np.bincount(np.ravel_multi_index(columns, shape), minlength=math.prod(shape))
    return ps.Domain.of({name: sizes[name] for name in names}), counts


def adult(folder: Path) -> Iterator[Case]:
    """Marginals of eight attributes of Adult."""
    domain, counts = adult_counts(folder, ADULT)
    for order in (2, 3):
        workload = ps.marginals(domain, up_to=order)
        strategy = ps.select.hdmm(workload)
        for epsilon in ("0.1", "1", "10"):
            yield Case(f"Adult, up to {order}-way", workload, strategy, counts, epsilon)


RELEASES = ("population", "epidemic", "labour", "housing")


def releases(folder: Path, names: tuple[str, ...] = RELEASES) -> Iterator[Case]:
    """Release files with 20,000 made-up rows."""
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            shutil.copy(folder / f"releases/{name}.toml", Path(place) / "release.toml")
            job = Job.read(Path(place))
            strategy = ps.plan(job).strategy
        shape = job.workload.domain.shape
        kinds = {"dense": mixture(shape, 20_000, 12, 5), "sparse": sparse(shape, 20_000, 5)}
        for kind, counts in kinds.items():
            for epsilon in ("0.1", "1"):
                yield Case(f"{name}, {kind}", job.workload, strategy, counts, epsilon)


def line(folder: Path) -> Iterator[Case]:
    """DPBench's histograms of 1,024 cells."""
    domain = ps.Domain.of(a=1024)
    for kind, queries in (("prefixes", ps.prefix()), ("all ranges", ps.all_range())):
        workload = ps.Workload(domain, [ps.product(a=queries)])
        strategy = ps.select.hdmm(workload)
        for name in ("HEPTH", "SEARCHLOGS", "NETTRACE", "ADULTFRANK", "MEDCOST"):
            cells = np.load(folder / f"data/dpbench1d/{name}.n4096.npy")
            counts = cells.astype(np.int64).reshape(1024, -1).sum(axis=1)
            for epsilon in ("0.01", "0.1", "1"):
                title = f"{name}, {kind}"
                yield Case(title, workload, strategy, counts, epsilon, CHEAP_DRAWS)


def plane(folder: Path) -> Iterator[Case]:
    """DPBench's maps of 64 × 64 cells."""
    domain = ps.Domain.of(a=64, b=64)
    workload = ps.Workload(domain, [ps.product(a=ps.prefix(), b=ps.prefix())])
    strategy = ps.select.hdmm(workload)
    for name in ("Adult_2D", "BeijingTaxiE"):
        cells = np.load(folder / f"data/dpbench2d/{name}_256_256.npy").astype(np.int64)
        counts = cells.reshape(64, 4, 64, 4).sum(axis=(1, 3)).reshape(-1)
        for epsilon in ("0.01", "0.1", "1"):
            title = f"{name}, prefixes × prefixes"
            yield Case(title, workload, strategy, counts, epsilon, CHEAP_DRAWS)


def wide_planes(folder: Path) -> Iterator[Case]:
    """Ranges over many cells: DPBench's maps of 256 × 256, and made-up rows in 64 × 64 × 100."""
    domain = ps.Domain.of(a=256, b=256)
    workload = ps.prefix_product(domain)
    strategy = ps.select.hdmm(workload)
    for name in ("Adult_2D", "BeijingTaxiE", "BeijingTaxiS", "cabspottingS"):
        counts = np.load(folder / f"data/dpbench2d/{name}_256_256.npy").astype(np.int64).reshape(-1)
        for epsilon in ("0.1", "1"):
            yield Case(f"{name}, prefixes", workload, strategy, counts, epsilon)
    workload = ps.prefix_product(ps.Domain.of(a=64, b=64, c=100))
    strategy, shape = ps.select.hdmm(workload), workload.domain.shape
    for kind, counts in {
        "dense": mixture(shape, 20_000, 5, 1),
        "sparse": sparse(shape, 20_000, 1),
    }.items():
        for epsilon in ("0.1", "1", "10"):
            yield Case(f"{kind}, prefixes", workload, strategy, counts, epsilon)


def census(_: Path) -> Iterator[Case]:
    """SF1 on made-up persons."""
    workload = ps.census.sf1()
    strategy = ps.select.hdmm(workload)
    shape = workload.domain.shape
    for rows in (20_000, 1_000_000):
        counts = mixture(shape, rows, 12, 5)
        for epsilon in ("0.1", "1"):
            yield Case(f"SF1, {rows:,} rows", workload, strategy, counts, epsilon)


def compare(cases: Iterator[Case]) -> None:
    """A row for each case."""
    heads = ["case", "measured", "cells", "ε", "ε·rows/cells", "draws", *NAMES, "from", "rounding"]
    heads += [
        "/ least squares",
        "/ non-negative",
        "1.5 × below",
        "CPU: nn, answers, entropy, whole",
    ]
    rows = RowsAsTheyCome(heads, [36, 9, 9, 4, 12, 5, *[15] * 5, 10, 8, 15, 14, 11, 32])
    for case in cases:
        draws = [Draw.of(case, seed) for seed in range(case.draws)]
        errors = np.array([[draw.errors.get(name, math.nan) for name in NAMES] for draw in draws])
        means, spreads = errors.mean(axis=0), errors.std(axis=0, ddof=1)
        mean = dict(zip(NAMES, means, strict=True))
        seconds = [
            np.mean([draw.seconds.get(name, math.nan) for draw in draws]) for name in NAMES[1:]
        ]
        above, beside = (mean["published"] / mean[name] for name in NAMES[:2])
        facts = [case.strategy.name, f"{case.counts.size:,}", case.epsilon, f"{case.signal:.3g}"]
        rows.add(
            [case.name, *facts, str(len(draws))]
            + [mean_and_spread(m, s) for m, s in zip(means, spreads, strict=True)]
            + [origin(case, draws), f"{np.mean([draw.gap for draw in draws]):.2f}"]
            + [promise(above, above <= 1)]
            + ["–" if math.isnan(beside) else promise(beside, beside <= 1.02)]
            + ["–" if case.signal > 0.1 else promise(1 / above, above <= 1 / 1.5)]
            + [", ".join("–" if math.isnan(s) else f"{s:.1f}" for s in seconds) + " s"]
        )


def origin(case: Case, draws: list[Draw]) -> str:
    """What was published, and in how many draws it started from latent classes."""
    chosen, classes = chosen_estimate(case.workload), sum(draw.classes for draw in draws)
    return f"{chosen}, classes in {classes}" if chosen == "entropy" and classes else chosen


def mean_and_spread(mean: float, spread: float) -> str:
    """What was measured, a dash where nothing was."""
    return "–" if math.isnan(mean) else f"{mean:.4g} ± {spread:.2g}"


def promise(ratio: float, kept: bool) -> str:
    """A ratio, marked where it breaks a promise."""
    return f"{ratio:.3f}" if kept else f"{ratio:.3f} **fails**"


@dataclass(frozen=True)
class RowsAsTheyCome:
    """A table in Markdown that is printed row by row."""

    heads: list[str]
    widths: list[int]

    def __post_init__(self) -> None:
        self.add(self.heads)
        self.add(["-" * width for width in self.widths])

    def add(self, row: list[str]) -> None:
        """Print one more row."""
        cells = (cell.ljust(width) for cell, width in zip(row, self.widths, strict=True))
        print("| " + " | ".join(cells) + " |", flush=True)


def memory(_: Path) -> None:
    """The peak of memory of one estimate beyond least squares, in vectors of 8 bytes a cell."""
    splitting.FEWEST_STEPS, splitting.SPLIT_CELLS = 41, 1  # the peak is the same at every look
    tens, plane = (10, 10, 10, 10, 10, 5), ps.Domain.of(a=64, b=64, c=100)
    domain = ps.Domain.of({f"a{i}": n for i, n in enumerate(tens)})
    prefixes = [ps.product(a=ps.prefix(), b=ps.identity())]
    prefixes.append(ps.product(c=ps.prefix(), b=ps.identity()))
    workloads = {
        "marginals up to 3-way": ps.marginals(domain, up_to=3),
        "marginals up to 2-way": ps.marginals(domain, up_to=2),
        "SF1": ps.census.sf1(),
        "product of prefixes": ps.prefix_product(plane),
        "two products": ps.Workload(plane, prefixes),
    }
    rows = RowsAsTheyCome(["asked", "cells", *NAMES[1:4]], [22, 9, 12, 12, 12])
    for name, workload in workloads.items():
        counts = mixture(workload.domain.shape, 20_000, 5, 1)
        strategy = ps.select.hdmm(workload)
        estimate = Case(name, workload, strategy, counts, "1").estimate(0)
        peaks = []
        for call in (
            lambda e, _: nonnegative(e, hold_total=True),
            lambda e, w: nonnegative(e, workload=w, hold_total=True),
            maximum_entropy,
        ):
            tracemalloc.start()
            call(estimate, workload)
            peaks.append(tracemalloc.get_traced_memory()[1] / 8 / counts.size)
            tracemalloc.stop()
        rows.add([name, f"{counts.size:,}", *[f"{peak:.1f}" for peak in peaks]])
    print()


def priors(_: Path, draws: int = 3) -> None:
    """Maximum entropy from independent attributes, from latent classes, and from what it takes."""
    shape = (12, 8, 7, 6, 4, 3)
    domain = ps.Domain.of({f"a{i}": n for i, n in enumerate(shape)})
    workload = ps.marginals(domain, k=3)
    strategy = ps.Strategy(domain, "laplace", workload.query, "what is asked")
    heads = ["data", "rows", "ε", "least squares", "independent", "classes", "taken", "classes in"]
    rows = RowsAsTheyCome(heads, [11, 6, 3, 13, 11, 7, 7, 10])
    for name, counts in {
        "mixture": mixture(shape, 5_000, 12, 5),
        "sparse": sparse(shape, 5_000, 3),
        "independent": mixture(shape, 5_000, 1, 8),
        "smooth": smooth(shape, 50_000, 3),
    }.items():
        truth = workload.answer(counts)
        for epsilon in ("0.1", "1"):
            case, errors, taken = Case(name, workload, strategy, counts, epsilon), [], 0
            for seed in range(draws):
                estimate = case.estimate(seed)
                pair = [maximum_entropy(estimate, workload, classes=c) for c in (False, True)]
                best = min(pair, key=lambda fit: fit.risk)
                taken += best.classes
                answers = [each.answer(workload).values for each in (estimate, *pair, best)]
                errors.append([math.sqrt(np.mean((each - truth) ** 2)) for each in answers])
            means = [f"{each:.2f}" for each in np.mean(errors, axis=0)]
            rows.add([name, f"{counts.sum():,}", epsilon, *means, f"{taken} of {draws}"])
    print()


COST_SHAPES = {
    "500,000": (10, 10, 10, 10, 10, 5),
    "1,451,520": (16, 15, 9, 7, 6, 4, 2, 2),
    "10,000,000": (10, 10, 10, 10, 10, 10, 10),
}


def cost(_: Path) -> None:
    """Processor time of one estimate and its rounding, beside what plans predict."""
    heads = ["asked", "cells", "ε", "steps", "entropy", "whole", "predicted: both"]
    rows = RowsAsTheyCome(heads, [12, 10, 3, 5, 8, 8, 15])
    for name, shape in COST_SHAPES.items():
        domain = ps.Domain.of({f"a{i}": n for i, n in enumerate(shape)})
        workload = ps.marginals(domain, up_to=3)
        strategy = ps.select.hdmm(workload)
        counts = mixture(shape, 48_842, 12, 5)
        estimate = Case(name, workload, strategy, counts, "1").estimate(0)
        begin = time.process_time()
        fit = maximum_entropy(estimate, workload)
        middle = time.process_time()
        round_cells(fit.vector, workload)
        seconds = [middle - begin, time.process_time() - middle]
        seconds.append(estimate_seconds("entropy", counts.size))
        times = [f"{each:.1f} s" for each in seconds]
        rows.add(["up to 3-way", name, "1", str(fit.steps), *times])
    print()


CLASSES = ((0, 0), (1, 10), (11, 100), (101, 1000), (1001, 10**9))


def coverage(_: Path, draws: int = DRAWS) -> None:
    """The share of true counts inside the published intervals."""
    shape, spend = (12, 8, 7, 6, 4, 3), ps.epsilon("1")
    domain = ps.Domain.of({f"a{i}": n for i, n in enumerate(shape)})
    workload = ps.marginals(domain, k=3)
    strategy = ps.select.hdmm(workload)
    noises = noise_for(strategy.query, spend, UNIT, 1)
    sizes = [block.matrix.shape[0] for block in strategy.query.blocks]
    half = half_widths(strategy.form(spend, UNIT), noises, sizes, workload).per_query
    title = f"{domain.size:,} cells, {workload.shape[0]:,} numbers, ε 1, {strategy.name}"
    print(f"### Coverage of the published view's 95 % intervals: {title}, {draws} draws\n")
    heads = ["data", "rows", "consistent", "published", "around, least"]
    heads += ["true count 0", "1 to 10", "11 to 100", "101 to 1,000", "more", "least"]
    rows = RowsAsTheyCome(heads, [11, 6, 10, 9, 13, *[14] * 5, 6])
    for count in (5_000, 50_000):
        for name, counts in {
            "mixture": mixture(shape, count, 12, 5),
            "sparse": sparse(shape, count, 3),
            "independent": mixture(shape, count, 1, 8),
            "smooth": smooth(shape, count, 3),
            "uniform": uniform(shape, count, 3),
        }.items():
            case = Case(name, workload, strategy, counts, "1")
            truth = workload.answer(counts)
            plain, around, inside = [], [], []
            for seed in range(draws):
                estimate = case.estimate(seed)
                values = workload.answer(published_cells(estimate, workload))
                centre = estimate.answer(workload).values
                low = np.maximum(np.minimum(centre - half, values), 0)
                inside.append((low <= truth) & (truth <= np.maximum(centre + half, values)))
                around.append(np.abs(values - truth) <= half)
                plain.append(np.abs(centre - truth) <= half)
            share = np.mean(inside, axis=0)
            members = [(truth >= low) & (truth <= high) for low, high in CLASSES]
            shares = [float(share[some].mean()) for some in members if some.any()]
            cells = [f"{share[m].mean():.3f} ({m.sum():,})" if m.any() else "–" for m in members]
            other = np.mean(around, axis=0)
            least = min(float(other[some].mean()) for some in members if some.any())
            first = [name, f"{count:,}", f"{np.mean(plain):.3f}", f"{share.mean():.3f}"]
            first.append(f"{least:.3f}")
            rows.add([*first, *cells, f"{min(shares):.3f}"])
    print("\nIn brackets: how many numbers are of that size.\n")


MBI_ATTRIBUTES = ("workclass", "marital-status", "relationship", "race", "sex", "income>50K")
MORE_MBI_ATTRIBUTES = ("education-num", *MBI_ATTRIBUTES)
MBI_ITERATIONS = 1000


def beside_mbi(folder: Path) -> None:
    """Maximum entropy beside mbi's mirror descent with an exact oracle, from the same numbers."""
    if find_spec("mbi") is None:
        print("mbi is not installed\n")
        return
    heads = [
        "asked and measured",
        "cells",
        "ε",
        "draws",
        "least squares",
        "entropy",
        "mbi",
        "CPU of entropy",
    ]
    heads += ["of mbi", "times faster", "compiling"]
    rows = RowsAsTheyCome(heads, [18, 7, 4, 5, *[15] * 3, 14, 8, 12, 9])
    for attributes, draws in ((MBI_ATTRIBUTES, DRAWS), (MORE_MBI_ATTRIBUTES, FEW_DRAWS)):
        domain, counts = adult_counts(folder, attributes)
        for order in (2, 3):
            workload = ps.marginals(domain, up_to=order)
            strategy = ps.Strategy(domain, "laplace", workload.query, "what is asked")
            for epsilon in ("0.1", "1", "10"):
                case = Case(f"up to {order}-way", workload, strategy, counts, epsilon, draws)
                rows.add(_mbi_row(case))
    print(f"\nmbi took {MBI_ITERATIONS:,} iterations.\n")


def _mbi_row(case: Case) -> list[str]:
    workload, errors, seconds, compiling = case.workload, [], [], 0.0
    truth = workload.answer(case.counts)
    for seed in range(case.draws):
        estimate = case.estimate(seed)
        if seed == 0:  # the first call compiles, the others find it done
            compiling = mbi_answers(estimate, workload)[1]
        begin = time.process_time()
        vector = maximum_entropy(estimate, workload).vector
        taken = time.process_time() - begin
        values, others = mbi_answers(estimate, workload)
        seconds.append((taken, others))
        answers = (estimate.answer(workload).values, workload.answer(vector), values)
        errors.append([math.sqrt(np.mean((each - truth) ** 2)) for each in answers])
    means, spreads = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1)
    ours, theirs = np.mean(seconds, axis=0)
    return (
        [case.name, f"{case.counts.size:,}", case.epsilon, str(case.draws)]
        + [f"{m:.4g} ± {s:.2g}" for m, s in zip(means, spreads, strict=True)]
        + [f"{ours:.2f} s", f"{theirs:.2f} s", promise(theirs / ours, theirs >= 5 * ours)]
        + [f"{max(compiling - theirs, 0):.0f} s"]
    )


def mbi_answers(estimate: LeastSquares, workload: ps.Workload) -> tuple[Array, float]:
    """The answers of mbi's estimate from the measurement of these marginals, and its time."""
    import jax
    import mbi

    jax.config.update("jax_enable_x64", True)
    (measurement,) = estimate.measurements
    names = [f"{i:02d}" for i in range(len(workload.domain.shape))]
    factors = [workload.factors(k) for k in range(len(workload.products))]
    cliques = [
        tuple(names[i] for i, factor in enumerate(each) if factor.shape[0] > 1) for each in factors
    ]
    deviation = math.sqrt(measurement.noise[0].exact_variance)
    tables = np.split(measurement.values, np.cumsum(workload.query_counts)[:-1])
    noisy = [
        mbi.LinearMeasurement(cells.astype(float), clique, stddev=deviation)
        for cells, clique in zip(tables, cliques, strict=True)
        if clique
    ]
    total = float(estimate.answer(ps.marginals(workload.domain, k=0)).values[0])
    begin = time.process_time()
    model = mbi.estimation.MirrorDescent().estimate(
        mbi.Domain(names, workload.domain.shape), noisy, known_total=total, iters=MBI_ITERATIONS
    )
    parts = [
        np.asarray(model.project(clique).datavector(), float) if clique else np.array([total])
        for clique in cliques
    ]
    return np.concatenate(parts), time.process_time() - begin


PARTS: dict[str, Callable[[Path], Iterator[Case]]] = {
    "adult": adult,
    "releases": releases,
    "line": line,
    "plane": plane,
    "wide_planes": wide_planes,
    "census": census,
}


def main(arguments: list[str]) -> None:
    others = {"coverage": coverage, "mbi": beside_mbi, "memory": memory}
    others |= {"cost": cost, "priors": priors}
    chosen = [word for word in arguments if word in PARTS or word in others]
    files = tuple(word for word in arguments if word in RELEASES)
    folders = [Path(word) for word in arguments if word not in (*chosen, *files)]
    folder = folders[0] if folders else Path(__file__).parents[2] / "shared"
    if files:
        print(f"### Release files: {', '.join(files)}\n")
        compare(releases(folder, files))
        return
    for part in chosen or [*PARTS, *others]:
        if part in others:
            others[part](folder)
            continue
        if part != "census" and not folder.is_dir():
            print(f"{part}: no data below {folder}\n")
            continue
        print(f"### {(PARTS[part].__doc__ or part).rstrip('.')}\n")
        compare(PARTS[part](folder))
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
