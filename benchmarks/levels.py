"""Three levels of parts: a nation, 50 states, 3,000 counties; sex, age and race in each.

    python -m benchmarks.levels [exact | flat | whole] ...

`exact` compares, at equal budget, the root mean squared error of every table on every level:

- tree, numbers: the plan of `choose_levels` in which every number counts alike, so that counties,
  which have most of them, decide;
- tree, levels: that in which every level counts alike;
- apart, even: each level published by itself with a third of the budget;
- apart, numbers: the same with the shares that are best if every number counts alike;
- counties only: all budget on the counties, whose sums are states and nation.

Errors are of the noise that would be drawn; those of the tree are never less than they are, and by
up to some per cent more, as `LevelNoise` says. The ratios below each table are free of that.

`flat` looks for one HDMM strategy over all counties and cells at once, for at most two minutes: for
3,000 counties, and for 1,000 counties of 25 states. `whole` draws exact noise on made-up persons
and compares least squares and whole numbers with the truth, and whole numbers that are cut off cell
by cell. Counties are of very unequal size, and most cells of small ones are empty. Drawings go to
build/figures/levels_….svg; seconds are of the processor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.random import default_rng

import psephos as ps
from benchmarks.figures import draw
from benchmarks.measure import table
from psephos.domain.part_tree import PartTree
from psephos.infer import tree_rounding
from psephos.infer.local_fits import LocalFits
from psephos.infer.tree_rounding import whole_numbers_down
from psephos.infer.two_pass import TreeFit, two_pass
from psephos.kernel.parts.law import part_noise
from psephos.strategy.level_plan import LevelPlan, PartTables, choose_levels
from psephos.values import Array

STATES, COUNTIES = 50, 3000
DOMAIN = ps.Domain.of(sex=["F", "M"], age=range(100), race=7)
UNIT = ps.add_remove_row()
BUDGETS = (ps.epsilon(1), ps.rho("1/2"))
SEARCH_SECONDS = 120.0
CELLS = ps.product(sex=ps.identity(), age=ps.identity(), race=ps.identity(), name="cells")
RANGES = [
    ps.product(age=ps.prefix(), name="age prefixes"),
    ps.product(sex=ps.identity(), age=ps.prefix(), name="sex × age prefixes"),
    ps.product(race=ps.identity(), age=ps.identity(), name="age × race"),
]
TABLES = {
    "cells": ps.Workload(DOMAIN, [CELLS]),
    "all marginals": ps.marginals(DOMAIN, up_to=3),
    "cells and ranges": ps.Workload(DOMAIN, [CELLS, *RANGES]),
}


def geography(states: int, counties: int) -> ps.Domain:
    """Counties with their states; states have from a few counties to some hundred."""
    rng = default_rng(1)
    sizes = 1 + rng.multinomial(counties - states, rng.dirichlet(np.full(states, 2.0)))
    names = [[f"{s:02}-{c:03}" for c in range(size)] for s, size in enumerate(sizes)]
    county = ps.Attribute.categories([name for state in names for name in state])
    county = county.with_level("state", {f"{s:02}": state for s, state in enumerate(names)})
    return ps.Domain.of(county=county)


def titles(workload: ps.Workload) -> list[str]:
    return [product.title for product in workload.products]


# ---- exact errors ------------------------------------------------------------------------------


def apart(
    strategy: ps.select.Strategy, workload: ps.Workload, budget: ps.Budget, shares: Sequence[float]
) -> list[Array]:
    """The RMSE of every table on every level, each published by itself with its share."""
    errors = []
    for share in shares:
        form = strategy.form(budget * Fraction(share).limit_denominator(10**6), UNIT)
        errors.append(np.sqrt(form.traces(workload.listed) / np.array(workload.query_counts)))
    return errors


def exact(tree: PartTree) -> None:
    levels = tree.names
    for name, workload in TABLES.items():
        for budget in BUDGETS:
            kind = "laplace" if budget.currency == "epsilon" else "gaussian"
            start = time.process_time()
            by_number = choose_levels(PartTables.same(tree, workload), kind)
            level_plan = choose_levels(PartTables.levels_alike(tree, workload), kind)
            seconds = time.process_time() - start
            strategy = by_number.strategy
            single = np.array(tree.sizes) * by_number.tables.traces(strategy)
            split = single ** (1 / (1 + strategy.noise.power))
            split /= split.sum()
            alone = LevelPlan(by_number.tables, strategy, (Fraction(0), Fraction(0), Fraction(1)))
            methods = {
                "tree, numbers": rmse_of(by_number, budget),
                "apart, numbers": apart(strategy, workload, budget, split),
                "tree, levels": rmse_of(level_plan, budget),
                "apart, even": apart(strategy, workload, budget, [1 / 3] * 3),
                "counties only": rmse_of(alone, budget),
            }
            print(f"\n{name}, {budget}: {strategy.name}; {seconds:.1f} s for both trees\n")
            print(f"shares of the budget: {by_number}, {level_plan}, apart {split.round(4)}\n")
            rows = [
                [levels[level], title, *(f"{e[level][i]:.3g}" for e in methods.values())]
                for level in range(3)
                for i, title in enumerate(titles(workload))
            ]
            table(["level", "table", *methods], rows)
            for plan, shares, other in (
                (by_number, split, "apart, numbers"),
                (level_plan, np.full(3, 1 / 3), "apart, even"),
            ):
                errors = np.array([plan.table_errors(level) for level in range(3)])
                single_errors = np.outer(
                    tree.sizes / shares**strategy.noise.power, strategy.product_errors(workload)
                )
                ratio = np.sqrt(single_errors / errors)
                print(f"\n{other} / tree, continuous noise: {ratio.min():.4f} to {ratio.max():.4f}")
            lines = [
                (method, list(tree.sizes), [float(e[level][-1]) for level in range(3)])
                for method, e in methods.items()
            ]
            draw(
                f"levels_{name.replace(' ', '_')}_{budget.currency}",
                f"RMSE of {titles(workload)[-1]} in each part, {budget}",
                ("parts of the level", "RMSE"),
                lines,
                "xy",
            )


def rmse_of(plan: LevelPlan, budget: ps.Budget) -> list[Array]:
    return [plan.table_rmse(level, budget, UNIT) for level in range(3)]


# ---- one flat strategy -------------------------------------------------------------------------


def flat(states: int, counties: int) -> None:
    """One HDMM strategy over counties and cells, where `county` has the level `state`."""
    geo = geography(states, counties)
    tree = PartTree.of(geo, ["state", "county"])
    domain = ps.Domain.of(county=geo["county"], sex=DOMAIN["sex"], age=DOMAIN["age"], race=7)
    place: tuple[dict[str, ps.QuerySet], ...]
    place = ({}, {"county": ps.level("state")}, {"county": ps.identity()})
    rows = []
    for name, inner in TABLES.items():
        products = [
            ps.product({**each.factors, **where}, name=each.title)
            for where in place
            for each in inner.products
        ]
        workload = ps.Workload(domain, products)
        for budget in BUDGETS:
            kind = "laplace" if budget.currency == "epsilon" else "gaussian"
            plan, traded = (
                choose_levels(PartTables.same(tree, inner), kind, trade=trade)
                for trade in (False, True)
            )
            counts = np.array(workload.query_counts).reshape(3, -1)
            scale = 2.0 if kind == "laplace" else 1.0  # at epsilon 1, and at rho 1/2
            ours, trading = (
                scale * np.array([each.table_errors(level) for level in range(3)])
                for each in (plan, traded)
            )
            trees = [by_level(ours, counts), by_level(trading, counts)]
            start, clock = time.process_time(), time.perf_counter()
            try:
                strategy = ps.select.hdmm(workload, kind, time_limit=SEARCH_SECONDS)
                errors = scale * strategy.product_errors(workload).reshape(3, -1)
            except (ps.TooLargeError, ps.UnsupportedError) as error:
                rows.append([name, str(budget), f"refused: {error}", "", "", *trees, ""])
            else:
                seconds = time.process_time() - start
                clock = time.perf_counter() - clock
                searched = f"{seconds:.0f} s ({clock:.0f} s on the clock)"
                rows.append([name, str(budget), strategy.name, searched])
                rows[-1] += [by_level(errors, counts), *trees]
                beside = [np.sqrt(errors.sum() / each.sum()) for each in (ours, trading)]
                rows[-1].append(" / ".join(f"{ratio:.3f}" for ratio in beside))
            print(rows[-1], flush=True)
    print(f"\n{tree}\n")
    head = ["tables", "budget", "flat strategy", "search", "flat: nation / state / county"]
    trees_head = ["tree, numbers", "the same with `trade`", "flat / tree, flat / with `trade`"]
    table([*head, *trees_head], rows)


def by_level(errors: Array, counts: Array) -> str:
    """The RMSE of all numbers of each level."""
    return " / ".join(f"{x:.3g}" for x in np.sqrt(errors.sum(axis=1) / counts.sum(axis=1)))


# ---- whole numbers -----------------------------------------------------------------------------


def persons(tree: PartTree, count: float) -> list[Array]:
    """Made-up counts of all cells: counties of unequal size, ages alike, races very unequal."""
    rng = default_rng(2)
    sizes = rng.lognormal(0, 1.4, COUNTIES)
    sizes *= count / sizes.sum()
    ages = np.interp(np.arange(100), [0, 50, 75, 99], [1.3, 1.3, 0.9, 0.02])
    cells = np.empty((COUNTIES, DOMAIN.size), dtype=np.int64)
    for i, size in enumerate(sizes):
        race = rng.dirichlet(5 * np.array([0.7, 0.12, 0.06, 0.01, 0.005, 0.03, 0.075]))
        age = ages * rng.lognormal(0, 0.1, 100)
        shares = np.multiply.outer([0.49, 0.51], np.multiply.outer(age / age.sum(), race))
        cells[i] = rng.multinomial(int(size), shares.ravel() / shares.sum())
    return [np.add.reduceat(cells, edges[:-1], axis=0) for edges in tree.edges]


def measured(plan: LevelPlan, truth: list[Array], budget: ps.Budget) -> TreeFit:
    """Least squares from exact noise on made-up counts."""
    fits = LocalFits.of(plan.query, plan.level_noise(budget, UNIT).block_variances, DOMAIN.shape)
    z: list[Array | None] = []
    for counts, laws in zip(
        truth, part_noise(plan.query, plan.weights, budget, UNIT, 1), strict=True
    ):
        answers = [
            block.matrix.matmat(counts.T).T
            + law.draw(len(counts) * block.matrix.shape[0]).reshape(len(counts), -1)
            for block, law in zip(plan.query.blocks, laws, strict=False)
        ]
        z.append(fits.cells(answers) if laws else None)

    def read(level: int, start: int, stop: int) -> Array:
        estimates = z[level]
        return np.empty(0) if estimates is None else estimates[start:stop]

    return two_pass(plan.tree, plan.level_noise(budget, UNIT), read, DOMAIN.size)


def table_rmse(workload: ps.Workload, cells: Array, truth: Array) -> list[float]:
    gaps = (cells - truth).T.astype(float)
    krons = [workload.kron(i) for i in range(len(workload.products))]
    return [float(np.sqrt((kron.matmat(gaps) ** 2).mean())) for kron in krons]


def whole(tree: PartTree) -> None:
    name = "all marginals"
    workload = TABLES[name]
    for budget in BUDGETS:
        kind = "laplace" if budget.currency == "epsilon" else "gaussian"
        plan = choose_levels(PartTables.same(tree, workload), kind)
        forecast = rmse_of(plan, budget)
        for count in (3e6, 3e8):
            truth = persons(tree, count)
            start = time.process_time()
            fit = measured(plan, truth, budget)
            fitted = time.process_time() - start
            results: dict[str, list[Array]] = {}
            seconds = []
            for steps in (tree_rounding.FAMILY_STEPS, 0):
                start = time.process_time()
                usual, tree_rounding.FAMILY_STEPS = tree_rounding.FAMILY_STEPS, steps
                levels: list[list[Array]] = [[], [], []]
                for run in whole_numbers_down(fit, [workload] * 3):
                    levels[run.level].append(run.cells)
                tree_rounding.FAMILY_STEPS = usual
                results["nearest tables" if steps else "cell by cell"] = [
                    np.concatenate(each) for each in levels
                ]
                seconds.append(time.process_time() - start)
            print(
                f"\n{name}, {budget}, {count:.0e} persons: noise and least squares {fitted:.1f} s, "
                f"whole numbers {seconds[0]:.1f} s (cell by cell {seconds[1]:.1f} s)\n"
            )
            rows = []
            for level in range(3):
                consistent = fit.estimates(level, 0, tree.sizes[level])
                errors = [table_rmse(workload, consistent, truth[level])]
                errors += [
                    table_rmse(workload, each[level], truth[level]) for each in results.values()
                ]
                for i, title in enumerate(titles(workload)):
                    numbers = [forecast[level][i], *(each[i] for each in errors)]
                    rows.append([tree.names[level], title, *(f"{x:.3g}" for x in numbers)])
            table(["level", "table", "forecast", "consistent", *results], rows)


def main(sections: list[str]) -> None:
    tree = PartTree.of(geography(STATES, COUNTIES), ["state", "county"])
    print(tree)
    for section in sections or ["exact", "flat", "whole"]:
        if section == "exact":
            exact(tree)
        elif section == "flat":
            flat(STATES, COUNTIES)
            flat(25, 1000)
        elif section == "whole":
            whole(tree)
        else:
            sys.exit(f"there is no section {section!r}; have exact, flat, whole")


if __name__ == "__main__":
    main(sys.argv[1:])
