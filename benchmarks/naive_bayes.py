"""Naive Bayes fitted from noisy tables: Figure 3 of Zhang et al. (2020).

Credit card clients, 30,000 of them, with the four predictors of the paper: education (7 values),
marriage (4), age (56) and repayment status (11), 17,248 cells, and whether the client defaulted.
The paper's rows are not here; these are made up with the same domain, the same share of defaults
(22 %), and about the same dependence on the repayment status. For each ε, ten times, a 10-fold
cross validation: the mean area under the ROC curve of its ten folds, and its percentiles over the
ten times. "Majority" calls all clients alike (0.5 by definition; the paper prints 0.5067).

`python -m benchmarks.naive_bayes [TIMES]`
"""

from __future__ import annotations

import sys
import time

import numpy as np
from scipy.stats import rankdata

import psephos as ps
from benchmarks.figures import draw
from benchmarks.measure import table
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


def scores(answers: Array, rows: Array) -> Array:
    """How much likelier a default is than none, in logarithms, from the tables' counts."""
    counts = np.maximum(answers, 0.0) + 1.0  # so that nothing is impossible
    ends = np.cumsum([2 * DOMAIN[name].size for name in PREDICTORS])
    *tables, label = np.split(counts, ends)
    result = np.full(len(rows), np.log(label[1] / label[0]))
    for i, each in enumerate(tables):
        shares = each.reshape(-1, 2)
        shares = shares / shares.sum(axis=0)
        result += np.log(shares[:, 1] / shares[:, 0])[rows[:, i]]
    return result


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
        areas.append(area(scores(answers, rows[fold]), rows[fold, -1]))
    return float(np.mean(areas))


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
    main(int(sys.argv[1]) if len(sys.argv) > 1 else TIMES)
