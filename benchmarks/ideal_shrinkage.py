"""How close shrinkage could come that was told much of the truth, where 1.5 times below fails.

Cases in which the published view is less than 1.5 times below least squares. All columns know the
true tables of single attributes, and start from independent attributes with them. A number of a
table is then its guess plus a deviation, and least squares tells the deviation with noise of a
known variance, taken as normal here.

    by table        the best share of all deviations of a table, told by the truth: no estimate in
                    the manner of James and Stein is closer
    by number       the best function of the noisy deviation and its variance, one for each table:
                    told which deviations the table has, but not where; it is their mean given the
                    noisy one (Robbins 1951), and for a table of one number the best share
    and positive    the same, told as well that no number is negative
    mixed           the best share for every single number, told its deviation by the truth

"By number" is below every estimate that treats the numbers of a table alike and one by one, however
it learns what it does: shrinkage, thresholds, empirical Bayes. What is closer uses several numbers
together. "Mixed" is no estimate at all.

Usage: `python -m benchmarks.ideal_shrinkage FOLDER`, with the folder of benchmarks/estimates.py.
"""

from __future__ import annotations

import math
import sys
from itertools import chain
from pathlib import Path

import numpy as np

import psephos as ps
from benchmarks.estimates import UNIT, Case, RowsAsTheyCome, adult, census, releases
from psephos.values import Array

CASES = (
    ("Adult, up to 2-way", "1"),
    ("population, dense", "1"),
    ("SF1, 20,000 rows", "1"),
    ("housing, dense", "1"),
    ("labour, dense", "1"),
    ("labour, sparse", "0.1"),
    ("labour, sparse", "1"),
)
MOST_DEVIATIONS = 1500
"""Of more deviations in a table, a sample stands for all: the sum goes over all pairs of them."""
NOISY_NUMBERS = 3000
"""So many noisy numbers, at least, for the risk of one table."""
SEED = 1951


def risks(case: Case) -> dict[str, float]:
    """The root mean square error of each, weighted as the workload weights its tables."""
    workload = case.workload
    cells = case.counts.reshape(workload.domain.shape).astype(float)
    truth, guess = workload.answer(cells.ravel()), workload.answer(independent(cells))
    form = case.strategy.form(ps.epsilon(case.epsilon), UNIT)
    rng = np.random.default_rng(SEED)
    sums = dict.fromkeys(("noise", "by table", "by number", "and positive", "mixed"), 0.0)
    numbers, start = 0.0, 0
    for k, product in enumerate(workload.products):
        variances = form.variances(workload.factors(k)).ravel()
        some = slice(start, start + variances.size)
        start += variances.size
        deviations, guesses, weight = (truth - guess)[some], guess[some], product.weight**2
        squares = deviations**2
        far, wide = float(squares.sum()), float(variances.sum())
        sums["noise"] += weight * wide
        sums["by table"] += weight * (wide * far**2 + far * wide**2) / (far + wide) ** 2
        sums["mixed"] += weight * float((squares * variances / (squares + variances)).sum())
        numbers += weight * variances.size
        free, positive = best_function(deviations, guesses, variances, rng)
        sums["by number"] += weight * variances.size * free
        sums["and positive"] += weight * variances.size * positive
    return {name: math.sqrt(value / numbers) for name, value in sums.items()}


def independent(cells: Array) -> Array:
    """The counts of independent attributes that have the same tables of one attribute each."""
    product = np.full(1, cells.sum())
    for axis in range(cells.ndim):
        others = tuple(other for other in range(cells.ndim) if other != axis)
        product = np.multiply.outer(product, cells.sum(axis=others) / cells.sum()).ravel()
    return product


def best_function(
    deviations: Array, guesses: Array, variances: Array, rng: np.random.Generator
) -> tuple[float, float]:
    """The mean squared error of the mean given a noisy deviation; and given a sign as well."""
    if deviations.size == 1:  # to be told it would be to know it: the best share
        square, variance = float(deviations[0]) ** 2, float(variances[0])
        return (square * variance / (square + variance),) * 2
    if deviations.size > MOST_DEVIATIONS:
        sample = rng.choice(deviations.size, MOST_DEVIATIONS, replace=False)
        deviations, guesses, variances = (each[sample] for each in (deviations, guesses, variances))
    negative = deviations[None, :] < -guesses[:, None] - 1e-9
    errors: list[tuple[float, float]] = []
    for _ in range(max(1, NOISY_NUMBERS // deviations.size)):
        noisy = deviations + np.sqrt(variances) * rng.standard_normal(deviations.size)
        logs = -0.5 * (noisy[:, None] - deviations[None, :]) ** 2 / variances[:, None]
        means = [_mean(logs, deviations), _mean(np.where(negative, -np.inf, logs), deviations)]
        free, positive = (float(((mean - deviations) ** 2).mean()) for mean in means)
        errors.append((free, positive))
    free, positive = np.mean(errors, axis=0)
    return float(free), float(positive)


def _mean(logs: Array, deviations: Array) -> Array:
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights @ deviations / weights.sum(axis=1))


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]) if arguments else Path(__file__).parents[2] / "shared"
    heads = ["case", "ε", "least squares", "a 1.5th of it", "by table", "by number", "and positive"]
    rows = RowsAsTheyCome([*heads, "mixed"], [20, 3, 13, 13, 8, 9, 12, 6])
    files = releases(folder, ("population", "housing", "labour"))
    for case in chain(adult(folder), census(folder), files):
        if (case.name, case.epsilon) not in CASES:
            continue
        errors = risks(case)
        noise = errors.pop("noise")
        rows.add(
            [case.name, case.epsilon, *[f"{e:.2f}" for e in (noise, noise / 1.5, *errors.values())]]
        )


if __name__ == "__main__":
    main(sys.argv[1:])
