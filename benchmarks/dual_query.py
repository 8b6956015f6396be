"""DualQuery on real and generated tables: Figures 2, 3 and 4 of Gaboardi et al. 2014.

    rounds    errors on generated tables over T and s: what the defaults were taken from
    figure2   the largest error on 500,000 three-way marginals over ε, δ = 0.001: Adult, KDD99 and a
              generated table of Netflix's shape
    figure3   error and time against the number of queries, KDD99, (1, 0.001)
    figure4   error and time against the number of attributes, 50 to 512,000, generated, (1, 0.001)
    small     16 binary attributes of Adult, where plans over all cells have their say too

Every row is a mean of runs. Beside ours, accounted for in zCDP, stand the same game under the
paper's Theorem 4.1, and answers that need no data: zero for every query, the uniform distribution,
and independent attributes. The paper's text gives no plotted values. Queries are counted once,
before the first round, and timed apart. Plots go to build/figures/.

`python -m benchmarks.dual_query SECTION FOLDER`, FOLDER with `dualquery/adult.tar.bz2` and
`dualquery/kdd99.tar.bz2`; a number after it is that of runs. After the number figure2 takes names
of tables (adult, kdd99, netflix) and values of ε, joined by commas, figure3 numbers of queries,
figure4 numbers of attributes, and small names of methods. Rows go to stderr as they come.
"""

from __future__ import annotations

import csv
import io
import math
import resource
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np

import psephos as ps
from benchmarks.measure import table
from psephos.domain.bits import PackedRows, record_counts
from psephos.domain.conjunctions import Conjunctions
from psephos.kernel.simulate import simulation
from psephos.plans.dual_query import LEARNING_RATE, GameParameters, fitting_draws
from psephos.synthesis.sample import sample
from psephos.values import Array

UNIT = ps.add_remove_row()
DELTA = "0.001"
FIGURES = Path("build/figures")
CONTINUOUS = 20
"""Bins of a continuous column."""


@dataclass(frozen=True)
class CountedQueries:
    """Rows, and true counts of conjunctions of them, behind the kernel's door for sources."""

    packed: PackedRows
    queries: Conjunctions
    counts: Array

    def conjunctions(self, domain: object, queries: Conjunctions, *_: object) -> Array:
        """The counts, which were made before; those of single values are made here."""
        known = queries.attributes.shape == self.queries.attributes.shape
        return self.counts if known else self.packed.counts(queries)


@dataclass(frozen=True)
class Data:
    """Rows as packed bits over a domain."""

    name: str
    domain: ps.Domain
    rows: int
    packed: PackedRows
    codes: Array | None = None


@dataclass(frozen=True)
class Errors:
    """Errors of all queries as shares of rows, and the processor time of a run."""

    largest: float
    mean: float
    seconds: float
    rounds: int
    draws: int
    spread: float
    mean_spread: float


def played(
    data: Data,
    queries: Conjunctions,
    counts: Array,
    budget: ps.Budget,
    runs: int,
    **options: object,
) -> Errors:
    """Runs of the plan in simulation; random numbers are seeded, the arithmetic is the kernel's."""
    largest, means, seconds, rounds, draws = [], [], [], 0, 0
    tables = ps.Workload(data.domain, [ps.product()])
    for seed in range(runs):
        source = simulation(
            CountedQueries(data.packed, queries, counts),
            data.domain,
            unit=UNIT,
            budget=budget,
            seed=seed,
        )
        begin = time.process_time()
        run = ps.plans.run(
            "DualQuery",
            source.vectorise(),
            tables,
            spend=budget,
            key=f"run {seed}",
            rows=data.rows,
            queries=queries,
            **options,
        )
        seconds.append(time.process_time() - begin)
        records = run.estimate.records  # type: ignore[attr-defined]
        plays = [request for request in run.requests if request.kind == "draw"]
        rounds, draws = len(plays) + 1, plays[0].result.size  # type: ignore[union-attr]
        shares = record_counts(queries, records, data.domain.shape) / len(records)
        gaps = np.abs(shares - counts / data.rows)
        largest.append(float(gaps.max()))
        means.append(float(gaps.mean()))
    return Errors(
        float(np.mean(largest)), float(np.mean(means)), float(np.mean(seconds)), rounds, draws,
        float(np.std(largest)), float(np.std(means)),
    )  # fmt: skip


def by_theorem(rows: int, eps: float) -> GameParameters:
    """The game that Theorem 4.1 sells as (ε, δ), at the same η and by the same rule for s."""
    reach = eps * rows / (4 * math.sqrt(2 * math.log(1 / float(DELTA))))
    steps = reach / float(LEARNING_RATE)  # √s T^(3/2)
    draws = fitting_draws(Fraction(2 * steps**2))
    rounds = max(2, int((steps / math.sqrt(draws)) ** (2 / 3)))
    rate = f"{reach / math.sqrt(draws) / rounds**1.5:.9f}"
    return GameParameters.solved(rows, rounds=rounds, draws=draws, learning_rate=rate)


def peak_gigabytes() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def trivial(data: Data, queries: Conjunctions, counts: Array) -> dict[str, tuple[float, float]]:
    """Largest and mean error of answers that need no data, or single attributes alone."""
    shares = counts / data.rows
    sizes = np.asarray(data.domain.shape)
    uniform = np.where(queries.attributes >= 0, 1 / sizes[queries.attributes], 1.0).prod(axis=1)
    pairs = np.stack([queries.attributes.ravel(), queries.values.ravel()], axis=1)
    single, place = np.unique(pairs, axis=0, return_inverse=True)
    one_way = data.packed.counts(Conjunctions(single[:, :1], single[:, 1:])) / data.rows
    independent = one_way[place.reshape(-1)].reshape(queries.attributes.shape).prod(axis=1)
    guesses = {"zero": np.zeros_like(shares), "uniform": uniform, "independent": independent}
    gaps = {name: np.abs(guess - shares) for name, guess in guesses.items()}
    return {name: (float(gap.max()), float(gap.mean())) for name, gap in gaps.items()}


# ---- data ----------------------------------------------------------------------------------------


def uci(folder: Path, name: str) -> Data:
    """Adult or KDD99, discrete columns as they are, continuous ones in bins of fixed edges."""
    with tarfile.open(folder / "dualquery" / f"{name}.tar.bz2") as archive:
        member = archive.extractfile(f"{name}/{name}.clean")
        stats = archive.extractfile(f"{name}/{name}.stats")
        if member is None or stats is None:
            raise SystemExit(f"{name}.tar.bz2 lacks {name}.clean")
        kinds = [line for line in stats.read().decode().splitlines() if ": " in line]
        rows = np.array(list(csv.reader(io.TextIOWrapper(member))), dtype=float)
    columns, sizes, names = [], [], []
    for kind, column in zip(kinds, rows.T, strict=True):
        if "discrete" in kind:
            sizes.append(int(kind.split("(")[-1].split()[0]))
            columns.append(column.astype(np.int64))
        else:
            columns.append(binned(column, "(pct)" in kind))
            sizes.append(CONTINUOUS)
        names.append(kind.split(":")[0].strip())
    codes = np.stack(columns, axis=1)
    sizes = [max(size, int(codes[:, j].max()) + 1, 2) for j, size in enumerate(sizes)]
    domain = ps.Domain.of(dict(zip(names, sizes, strict=True)))
    return Data(name, domain, len(codes), PackedRows.of_codes(codes, domain.shape), codes)


def binned(column: Array, shares: bool) -> Array:
    """Bins on a scale of logarithms from 1, zero apart: edges that need no look at the data."""
    scaled = column * (CONTINUOUS - 1) if shares else 1 + 2 * np.log2(np.maximum(column, 1))
    return np.clip(np.where(column <= 0, 0, scaled), 0, CONTINUOUS - 1).astype(np.int64)


def mixture(rows: int, seed: int = 0, groups: int = 12) -> Data:
    """Rows of a few groups, each with its own shares of every attribute; Adult's sizes."""
    generator = np.random.default_rng(seed)
    sizes = [20, 8, 20, 16, 16, 7, 14, 6, 5, 2, 20, 20, 20, 41, 2]
    member = generator.choice(groups, rows, p=generator.dirichlet(np.ones(groups)))
    columns = []
    for size in sizes:
        ends = generator.dirichlet(np.full(size, 0.3), groups).cumsum(axis=1)
        column = (generator.random(rows)[:, None] > ends[member]).sum(axis=1)
        columns.append(np.minimum(column, size - 1))
    domain = ps.Domain.of({f"a{i}": size for i, size in enumerate(sizes)})
    codes = np.stack(columns, axis=1)
    return Data(f"mixture of {rows:,}", domain, rows, PackedRows.of_codes(codes, domain.shape))


def biased(attributes: int, rows: int, seed: int = 0) -> Data:
    """Binary attributes, each 1 with a probability of its own, as the paper generates them."""
    generator = np.random.default_rng(seed)
    bias = generator.random(attributes)

    def blocks(step: int = 2000) -> Sequence[Array]:
        for start in range(0, attributes, step):
            some = (256 * bias[start : start + step]).astype(np.uint8)
            yield generator.integers(0, 256, (rows, some.size), dtype=np.uint8) < some

    domain = ps.Domain.binary(attributes)
    return Data(
        f"{attributes:,} attributes",
        domain,
        rows,
        PackedRows.of_blocks(blocks(), (rows, attributes)),
    )


def netflix_shaped(rows: int = 480_189, attributes: int = 17_770, seed: int = 0) -> Data:
    """Films that few or many have rated, by persons who rate few or many: 1.2 % of all pairs."""
    generator = np.random.default_rng(seed)
    films = generator.pareto(1.2, attributes) + 0.02
    films = np.minimum(films / films.mean() * 0.0118, 0.5)
    persons = generator.gamma(0.7, 1 / 0.7, rows)

    def blocks(step: int = 200) -> Sequence[Array]:
        for start in range(0, attributes, step):
            chance = np.minimum(256 * persons[:, None] * films[start : start + step], 250)
            noise = generator.integers(0, 256, chance.shape, dtype=np.uint8)
            yield noise < chance.astype(np.float32)

    domain = ps.Domain.binary(attributes)
    return Data("Netflix's shape", domain, rows, PackedRows.of_blocks(blocks(), (rows, attributes)))


def counted(
    data: Data, number: int, *, positive: bool = False
) -> tuple[Conjunctions, Array, float]:
    """Three-way conjunctions, their counts, and the time that counting took."""
    queries = Conjunctions.sampled(data.domain, ways=3, number=number, seed=1, positive=positive)
    begin = time.process_time()
    counts = data.packed.counts(queries)
    return queries, counts, time.process_time() - begin


# ---- sections ------------------------------------------------------------------------------------


def rounds_section(folder: Path, runs: int) -> None:
    """T and s on generated tables; the default is the row marked with a star."""
    rows = []
    for number in (10_000, 50_000, 500_000):
        data = mixture(number)
        queries, counts, _ = counted(data, 200_000)
        for eps in ("1/4", "1", "5"):
            budget = ps.epsilon_delta(eps, DELTA)
            default = GameParameters.solved(number, budget=budget)
            grid = [
                (40, 50),
                (100, 20),
                (100, 50),
                (100, 200),
                (250, 50),
                (default.rounds, default.draws),
            ]
            for rounds, draws in grid:
                found = played(data, queries, counts, budget, runs, rounds=rounds, draws=draws)
                game = GameParameters.solved(number, budget=budget, rounds=rounds, draws=draws)
                star = "*" if (rounds, draws) == grid[-1] else ""
                rows.append([
                    f"{number:,}", eps, f"{rounds}{star}", str(draws),
                    f"{game.learning_rate:.2f}", f"{found.largest:.4f}", f"{found.mean:.5f}",
                ])  # fmt: skip
    table(["rows", "ε", "T", "s", "η", "largest error", "mean error"], rows)


def figure2(folder: Path, runs: int, names: str = "", amounts: str = "", free: str = "") -> None:
    """The largest error over ε, on three tables; `free` is what unnamed attributes get."""
    options = {"free": free} if free else {}
    tables = {
        "adult": lambda: uci(folder, "adult"),
        "kdd99": lambda: uci(folder, "kdd99"),
        "netflix": netflix_shaped,
    }
    for name in names.split(",") if names else tables:
        data = tables[name]()
        netflix = data.name.startswith("Netflix")
        queries, counts, seconds = counted(data, 500_000, positive=netflix)
        speed = len(queries) * data.rows / seconds
        print(f"{data.name}: {data.rows:,} rows, {sum(data.domain.shape):,} features, 500,000 "
              f"queries counted in {seconds:.1f} s CPU ({speed:.2g} row·queries/s)\n")  # fmt: skip
        rows = []
        points = []
        for eps in (amounts or "0.25,0.5,1,2,3,4,5").split(","):
            ours = played(data, queries, counts, ps.epsilon_delta(eps, DELTA), runs, **options)
            sold = by_theorem(data.rows, float(eps))
            few = len(data.domain) <= queries.ways * sold.draws
            fixed = {"free": "earlier" if few else "first", **options}
            fixed |= {"rounds": sold.rounds, "draws": sold.draws}
            theirs = played(data, queries, counts, sold.rho, runs, **fixed)
            points.append((float(eps), ours.largest, theirs.largest))
            rows.append([
                eps, str(ours.rounds), str(ours.draws), f"{ours.largest:.4f} ± {ours.spread:.4f}",
                f"{ours.mean:.6f}", f"{ours.seconds:.1f}", str(theirs.rounds), str(theirs.draws),
                f"{theirs.largest:.4f} ± {theirs.spread:.4f}", f"{theirs.mean:.6f}",
            ])  # fmt: skip
            print(rows[-1], file=sys.stderr, flush=True)
        heads = [
            "ε",
            "T",
            "s",
            "largest, zCDP",
            "mean",
            "CPU s",
            "T",
            "s",
            "largest, Theorem 4.1",
            "mean",
        ]
        table(heads, rows)
        rivals = trivial(data, queries, counts)
        table(
            ["no data", "largest", "mean"],
            [[name, f"{top:.4f}", f"{mean:.6f}"] for name, (top, mean) in rivals.items()],
        )
        plot(f"dual_query_{data.name.split()[0].strip(chr(39)).lower()}", "ε", points,
             ["zCDP", "Theorem 4.1"], "largest error", log="")  # fmt: skip


def figure3(folder: Path, runs: int, numbers: str = "") -> None:
    """Error and time against the number of queries, on KDD99."""
    data, budget = uci(folder, "kdd99"), ps.epsilon_delta("1", DELTA)
    rows, points = [], []
    wanted = numbers or "40000,100000,250000,500000,1000000,2000000"
    for number in map(int, wanted.split(",")):
        queries, counts, seconds = counted(data, number)
        ours = played(data, queries, counts, budget, runs)
        zero = trivial(data, queries, counts)["zero"]
        points.append((number, ours.largest, zero[0]))
        rows.append([
            f"{number:,}", f"{ours.largest:.4f} ± {ours.spread:.4f}",
            f"{ours.mean:.6f} ± {ours.mean_spread:.6f}", f"{zero[0]:.4f}", f"{zero[1]:.6f}",
            f"{seconds:.1f}", f"{ours.seconds:.1f}", f"{ours.seconds / ours.rounds * 1000:.0f}",
        ])  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    heads = [
        "queries",
        "largest",
        "mean",
        "largest, zero",
        "mean, zero",
        "counting, s",
        "rounds, s",
    ]
    table([*heads, "ms a round"], rows)
    plot("dual_query_queries", "queries", points, ["DualQuery", "zero"], "largest error", log="x")


def figure4(folder: Path, runs: int, sizes: str = "") -> None:
    """Error and time against the number of attributes, generated with a bias for each."""
    budget, rows, points = ps.epsilon_delta("1", DELTA), [], []
    for attributes in map(int, (sizes or "50,500,5000,50000,200000,512000").split(",")):
        data = biased(attributes, 50_000)
        number = min(100_000, math.comb(attributes, 3))
        queries, counts, seconds = counted(data, number, positive=True)
        ours = played(data, queries, counts, budget, runs)
        rivals = trivial(data, queries, counts)
        points.append((attributes, ours.largest, rivals["zero"][0]))
        rows.append([
            f"{attributes:,}", f"{number:,}", f"{ours.largest:.4f} ± {ours.spread:.4f}",
            f"{ours.mean:.4f} ± {ours.mean_spread:.4f}",
            *(f"{rivals[name][0]:.4f} / {rivals[name][1]:.4f}" for name in rivals),
            f"{seconds:.1f}", f"{ours.seconds:.1f}",
            f"{ours.seconds / ours.rounds * 1000:.0f}", f"{peak_gigabytes():.2f}",
        ])  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    rival_heads = [f"{name}: largest / mean" for name in ("zero", "uniform", "independent")]
    table(
        ["attributes", "queries", "largest", "mean", *rival_heads, "counting, s", "rounds, s",
         "ms a round", "peak, GB"], rows)  # fmt: skip
    plot(
        "dual_query_attributes",
        "attributes",
        points,
        ["DualQuery", "zero"],
        "largest error",
        log="x",
    )


SMALL_ATTRIBUTES = 16


def halves(folder: Path) -> Array:
    """The counts of all cells of 16 features of Adult, those that are nearest to half of it."""
    data = uci(folder, "adult")
    pairs = [(a, v) for a, size in enumerate(data.domain.shape) for v in range(size)]
    shares = data.packed.counts(Conjunctions(*np.array(pairs).T[:, :, None])) / data.rows
    features = sorted(np.argsort(np.abs(shares - 0.5), kind="stable")[:SMALL_ATTRIBUTES])
    cells = np.zeros(data.rows, dtype=np.int64)
    for attribute, value in (pairs[feature] for feature in features):
        cells = 2 * cells + (data.codes[:, attribute] == value)
    return np.bincount(cells, minlength=2**SMALL_ATTRIBUTES)


def small(folder: Path, runs: int, names: str = "") -> None:
    """All three-way conjunctions of 16 binary attributes, by plans with a vector of all cells."""
    counts, budget = halves(folder), ps.epsilon_delta("1", DELTA)
    domain = ps.Domain.of({f"a{i}": 2 for i in range(SMALL_ATTRIBUTES)})
    workload, rows = ps.marginals(domain, k=3), int(counts.sum())
    truth = workload.answer(counts.reshape(domain.shape))
    strategies = {
        "OPT_M": (ps.select.opt_marginals(workload), ps.epsilon(1)),
        "residuals": (ps.select.residual(workload, ps.NoiseKind.GAUSSIAN), budget),
    }

    def handle(spend: ps.Budget, seed: int) -> ps.ProtectedVector:
        return ps.simulate(counts, domain, unit=UNIT, budget=spend, seed=seed).vectorise()

    def planned(name: str, spend: ps.Budget, **options: object) -> Callable[[int], Array]:
        def answers(seed: int) -> Array:
            key = f"run {seed}"
            run = ps.plans.run(name, handle(spend, seed), workload, spend=spend, key=key, **options)
            return run.answer(workload).values

        return answers

    def measured(name: str) -> Callable[[int], Array]:
        def answers(seed: int) -> Array:
            strategy, spend = strategies[name]
            noisy = handle(spend, seed).measure(strategy.query, spend=spend)
            return ps.infer.least_squares(noisy).answer(workload).values

        return answers

    def made_up(name: str) -> Callable[[int], Array]:
        def answers(seed: int) -> Array:
            strategy, spend = strategies[name]
            noisy = handle(spend, seed).measure(strategy.query, spend=spend)
            cells = ps.infer.maximum_entropy(ps.infer.least_squares(noisy), workload, total=rows)
            made = sample(cells, generator=np.random.default_rng(seed), workload=workload)
            places = np.ravel_multi_index(tuple(made.records.T), domain.shape)
            return workload.answer(np.bincount(places, minlength=domain.size))

        return answers

    methods = {
        "DualQuery": planned("DualQuery", budget, rows=rows),
        "MWEM": planned("MWEM", ps.epsilon(1), rows=rows),
        "OPT_M": measured("OPT_M"),
        "OPT_M rows": made_up("OPT_M"),
        "residuals": measured("residuals"),
        "residuals rows": made_up("residuals"),
        "AdaptiveMarginals": planned("AdaptiveMarginals", budget),
    }
    lines = []
    for name in names.split(",") if names else methods:
        answers = methods[name]
        errors, begin = [], time.process_time()
        for seed in range(runs):
            gaps = np.abs(answers(seed) - truth) / rows
            errors.append((gaps.max(), gaps.mean()))
        seconds = (time.process_time() - begin) / runs
        (top, mean), (spread, mean_spread) = np.mean(errors, axis=0), np.std(errors, axis=0)
        lines.append([name, f"{top:.4f} ± {spread:.4f}", f"{mean:.5f} ± {mean_spread:.5f}",
                      f"{seconds:.1f}"])  # fmt: skip
        print(lines[-1], file=sys.stderr, flush=True)
    one_way = [counts.reshape(domain.shape).sum(tuple(j for j in range(16) if j != i)) / rows
               for i in range(SMALL_ATTRIBUTES)]  # fmt: skip
    independent = np.array(1.0)
    for share in one_way:
        independent = np.multiply.outer(independent, share)
    guesses = {
        "zero": np.zeros(truth.size),
        "uniform": np.full(truth.size, rows / 8),
        "independent attributes, no noise": workload.answer(rows * independent),
    }
    for name, guess in guesses.items():
        gaps = np.abs(guess - truth) / rows
        lines.append([name, f"{gaps.max():.4f}", f"{gaps.mean():.5f}", ""])
    table(["method", "largest", "mean", "CPU s"], lines)


def plot(
    name: str,
    over: str,
    points: Sequence[tuple[float, ...]],
    lines: list[str],
    label: str,
    log: Literal["", "x", "xy"],
) -> None:
    """Lines over a common axis; on two logarithmic ones what grows alike runs parallel."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.2))
    for i, line in enumerate(lines, 1):
        axes.plot([p[0] for p in points], [p[i] for p in points], marker="o", label=line)
    axes.set_xlabel(over)
    axes.set_ylabel(label)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.legend()
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / f"{name}.png", dpi=120, bbox_inches="tight")
    plt.close(figure)


SECTIONS = {
    "rounds": (rounds_section, 2),
    "figure2": (figure2, 5),
    "figure3": (figure3, 3),
    "figure4": (figure4, 3),
    "small": (small, 5),
}


def main() -> None:
    """The sections that are named, or all."""
    names = [word for word in sys.argv[1:] if word in SECTIONS] or list(SECTIONS)
    rest = [word for word in sys.argv[1:] if word not in SECTIONS]
    folder = Path(rest[0]) if rest else Path()
    for name in names:
        section, number = SECTIONS[name]
        section(folder, int(rest[1]) if len(rest) > 1 else number, *rest[2:])


if __name__ == "__main__":
    main()
