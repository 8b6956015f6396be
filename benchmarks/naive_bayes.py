"""Naive Bayes fitted from noisy tables: Figure 3 of Zhang et al. (2020).

Credit card clients, 30,000 of them, with the four predictors of the paper: education (7 values),
marriage (4), age (56) and repayment status (11), 17,248 cells, and whether the client defaulted.
The paper's rows are not here; these are made up with the same domain, the same share of defaults
(22 %), and about the same dependence on the repayment status. For each ε, ten times, a 10-fold
cross validation: the mean area under the ROC curve of its ten folds, and its percentiles over the
ten times. "Majority" calls all clients alike (0.5 by definition; the paper prints 0.5067).

`why` asks what least squares adds to Workload: by how much it lessens the noise of each table, and
what that does to classifiers that are fitted and rated in other ways.

`python -m benchmarks.naive_bayes [why] [TIMES]`
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

import psephos as ps
from benchmarks.figures import draw
from benchmarks.measure import table
from psephos.plans.case_studies import NoisyAnswers
from psephos.values import Array

DOMAIN = ps.Domain.of(education=7, marriage=4, age=56, status=11, default=2)
PREDICTORS = DOMAIN.names[:4]
CLIENTS, FOLDS, TIMES = 30_000, 10, 10
EPSILONS = ["0.001", "0.01", "0.1", "1"]
PLANS = ["Identity", "Workload", "WorkloadLS", "SelectLS"]
TABLES = ps.Workload(
    DOMAIN,
    [
        *(ps.product({name: ps.identity(), "default": ps.identity()}) for name in PREDICTORS),
        ps.product(default=ps.identity()),
    ],
)

ENDS = np.cumsum([2 * DOMAIN[name].size for name in PREDICTORS])
"""Where the tables of the predictors end among all counts."""


def clients(seed: int = 0) -> Array:
    """Rows of values, one column for each attribute."""
    rng = np.random.default_rng(seed)
    default = (rng.random(CLIENTS) < 0.22).astype(np.int64)
    status_of = np.array(
        [[9.5, 20.5, 55, 10.4, 4, 0.3, 0.1, 0.05, 0.05, 0.05, 0.05],
         [5.5, 14, 28.5, 19, 28, 3.7, 0.8, 0.2, 0.1, 0.1, 0.1]]
    )  # fmt: skip
    education_of = np.array([[0.1, 37, 46, 15.5, 0.5, 0.7, 0.2], [0.1, 31, 50, 18, 0.2, 0.4, 0.3]])
    marriage_of = np.array([[0.2, 45, 53.8, 1], [0.2, 48, 50.6, 1.2]])
    age = np.clip(rng.gamma(3.2, 4.9 + 0.25 * default), 0, 55).astype(np.int64)

    def drawn(shares: Array) -> Array:
        edges = (shares / shares.sum(axis=1, keepdims=True)).cumsum(axis=1)[default]
        return np.minimum((rng.random((CLIENTS, 1)) > edges).sum(axis=1), shares.shape[1] - 1)

    columns = [drawn(education_of), drawn(marriage_of), age, drawn(status_of), default]
    return np.stack(columns, axis=1)


def counts_of(rows: Array) -> Array:
    return np.bincount(np.ravel_multi_index(tuple(rows.T), DOMAIN.shape), minlength=DOMAIN.size)


def area(scored: Array, truth: Array) -> float:
    """The chance that a default is scored above a client who paid."""
    ranks, positives = rankdata(scored), int(truth.sum())
    above = ranks[truth == 1].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (truth.size - positives)))


def cross_validated(plan: str | None, epsilon: str, rows: Array, seed: int) -> float:
    """The mean area under the curve of ten folds; without a plan, of the unperturbed tables."""
    order = np.random.default_rng(seed).permutation(len(rows))
    areas = []
    for i, fold in enumerate(np.array_split(order, FOLDS)):
        training = counts_of(np.delete(rows, fold, axis=0))
        answers = TABLES.answer(training)
        if plan is not None:
            spend = ps.epsilon(epsilon)
            data = ps.simulate(
                training, DOMAIN, unit=ps.add_remove_row(), budget=spend, seed=seed * FOLDS + i
            )
            answers = (
                ps.plans.run(plan, data.vectorise(), TABLES, spend=spend).answer(TABLES).values
            )
        areas.append(Fit("").rated(answers, rows[fold], 0.0))
    return float(np.mean(areas))


# ---- what least squares adds -------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """How tables become a classifier, and how it is rated."""

    name: str
    nonnegative: bool = False
    """The nearest tables without negative cells, in place of counts cut at zero."""
    by_label: bool = False
    """Counts over those of the label's own table, in place of their own sums."""
    added: float | None = 1.0
    """To every count, so that nothing is impossible; None adds the noise's standard deviation."""
    hard: bool = False
    """Rated by classes, the likelier one, in place of scores."""

    def rated(self, answers: Array, rows: Array, deviation: float) -> float:
        counts = np.maximum(answers, 0.0) + (deviation if self.added is None else self.added)
        *tables, label = np.split(counts, ENDS)
        scored = np.full(len(rows), np.log(label[1] / label[0]))
        for i, each in enumerate(tables):
            shares = each.reshape(-1, 2)
            shares = shares / (label if self.by_label else shares.sum(axis=0))
            scored += np.log(shares[:, 1] / shares[:, 0])[rows[:, i]]
        return area((scored > 0).astype(float) if self.hard else scored, rows[:, -1])


FITS = [
    Fit("as in the table above"),
    Fit("counts over the label's own", by_label=True),
    Fit("the noise's deviation added to counts", added=None),
    Fit("without negative cells", nonnegative=True),
    Fit("rated by classes", hard=True),
    Fit("rated by classes, counts over the label's own", by_label=True, hard=True),
    Fit("rated by classes, without negative cells", nonnegative=True, hard=True),
]


NINE = "Workload with noise for nine histograms of each row"
"""As if a row were in all 2k + 1 of them; it is in k + 1, one of each predictor's two."""


def noise_of_tables() -> None:
    """Standard deviations of the counts in each table at ε 0.1, exactly."""
    spend, shown = ps.epsilon("0.1"), []
    zero = ps.simulate(
        np.zeros(DOMAIN.size, dtype=np.int64), DOMAIN, unit=ps.add_remove_row(), budget=spend * 2,
        seed=0,
    )  # fmt: skip
    before, after = (
        ps.plans.run(name, zero.vectorise(), TABLES, spend=spend).answer(TABLES).stderr
        for name in ("Workload", "WorkloadLS")
    )
    names = [*PREDICTORS, "default alone"]
    for name, rows in zip(names, np.split(np.arange(len(before)), ENDS), strict=True):
        least, most = before[rows].mean(), after[rows].mean()
        shown.append(
            [name, f"{len(rows)}", f"{least:.1f}", f"{most:.1f}", f"{1 - most / least:.0%}"]
        )
    table(["table", "counts", "Workload", "WorkloadLS", "less by"], shown)


def why(times: int) -> None:
    """Classifiers from the same noisy tables with and without least squares."""
    noise_of_tables()
    rows = clients()
    for epsilon in ("0.01", "0.1"):
        spend = ps.epsilon(epsilon)
        areas: dict[tuple[str, bool], list[float]] = {}
        for seed in range(times):
            order = np.random.default_rng(seed).permutation(len(rows))
            for i, fold in enumerate(np.array_split(order, FOLDS)):
                training = counts_of(np.delete(rows, fold, axis=0))
                data = ps.simulate(
                    training, DOMAIN, unit=ps.add_remove_row(), budget=spend, seed=seed * FOLDS + i
                )
                run = ps.plans.run("WorkloadLS", data.vectorise(), TABLES, spend=spend)
                inferred = run.answer(TABLES).values
                measured = NoisyAnswers(TABLES, run.requests[0].result).answer(TABLES)
                without = ps.infer.nonnegative(run.estimate).answer(TABLES).values
                deviation = float(measured.stderr[0])
                coarse = spend / 9 * 5
                data = ps.simulate(
                    training, DOMAIN, unit=ps.add_remove_row(), budget=spend, seed=seed * FOLDS + i
                )
                run = ps.plans.run("Workload", data.vectorise(), TABLES, spend=coarse)
                counts = run.answer(TABLES).values
                areas.setdefault((NINE, False), []).append(Fit("").rated(counts, rows[fold], 0.0))
                areas.setdefault((NINE, True), []).append(Fit("").rated(inferred, rows[fold], 0.0))
                for fit in FITS:
                    for least_squares in (False, True):
                        answers = inferred if least_squares else measured.values
                        if fit.nonnegative and least_squares:
                            answers = without
                        rated = fit.rated(answers, rows[fold], deviation)
                        areas.setdefault((fit.name, least_squares), []).append(rated)
        shown = []
        for name in [*(fit.name for fit in FITS), NINE]:
            both = [np.array(areas[name, each]) for each in (False, True)]
            gain = both[1] - both[0]
            error = gain.std() / np.sqrt(gain.size)
            means = [f"{each.mean():.3f}" for each in both]
            shown.append([name, *means, f"{gain.mean():+.3f} ± {error:.3f}"])
        print(f"ε {epsilon}, {times} times ten folds, the same noise for both\n")
        table(["fitted and rated", "Workload", "WorkloadLS", "gain"], shown)


def main(times: int) -> None:
    rows = clients()
    exact = float(np.median([cross_validated(None, "1", rows, seed) for seed in range(times)]))
    shown, lines = [], []
    for plan in PLANS:
        begin, cells, medians = time.process_time(), [], []
        for epsilon in EPSILONS:
            areas = [cross_validated(plan, epsilon, rows, seed) for seed in range(times)]
            low, middle, high = np.percentile(areas, [25, 50, 75])
            cells.append(f"{middle:.3f} ({low:.3f} to {high:.3f})")
            medians.append(float(middle))
        each = (time.process_time() - begin) / (len(EPSILONS) * times * FOLDS)
        shown.append([plan, *cells, f"{each:.2f} s"])
        lines.append((plan, [float(e) for e in EPSILONS], medians))
    shown.append(["unperturbed", *[f"{exact:.3f}"] * len(EPSILONS), ""])
    shown.append(["majority", *["0.5"] * len(EPSILONS), ""])
    table(["plan", *(f"ε {e}" for e in EPSILONS), "CPU of a fit"], shown)
    lines.append(("unperturbed", [float(e) for e in EPSILONS], [exact] * len(EPSILONS)))
    draw("naive_bayes", "Naive Bayes from noisy tables", ("ε", "AUC"), lines, "x")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    (why if "why" in sys.argv[1:] else main)(numbers[0] if numbers else TIMES)
