"""Nine strategies for a workload of your own: exact errors, simulated ones, and a plot over ε.

    python examples/own_workload/compare.py --trials 1000

Nothing here touches private data: strategies are compared by what they would err by, which follows
from the questions alone, and tried on made-up counts.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import psephos as ps

HERE = Path(__file__).parent
UNIT = ps.add_remove_row()
CELLS = 64
BUDGETS = ("1/10", "1/4", "1/2", "1", "2")
SELECTORS = {
    "HDMM": lambda W: ps.select.hdmm(W, restarts=3),
    "Identity": ps.select.identity,
    "the workload itself": ps.select.workload,
    "Privelet": ps.select.privelet,
    "H2": ps.select.h2,
    "HB": ps.select.hb,
    "Greedy-H": ps.select.greedy_h,
    "low rank": ps.select.low_rank,
    "matrix mechanism": ps.select.matrix_mechanism,
}


def own_workload() -> ps.Workload:
    """Ranges around a few centres, and the difference of the two halves: an array of numbers."""
    draws = np.random.default_rng(7)
    low = draws.integers(0, CELLS, 60)
    high = np.minimum(low + draws.geometric(1 / 12, 60), CELLS - 1)
    cells = np.arange(CELLS)
    ranges = ((cells >= low[:, None]) & (cells <= high[:, None])).astype(int)
    halves = np.where(cells < CELLS // 2, 1, -1)
    labels = [f"{a}–{b}" for a, b in zip(low, high, strict=True)]
    return ps.Workload.from_matrix(
        ps.Domain.of(hour=CELLS), np.vstack([ranges, halves]), [*labels, "first half minus second"]
    )


def trial_errors(
    strategy: ps.Strategy, W: ps.Workload, counts: np.ndarray, trials: int, budget: str
) -> float:
    """The root mean squared error of all answers, over many draws of the noise."""
    truth, squares = W.answer(counts), 0.0
    for seed in range(trials):
        data = ps.simulate(counts, W.domain, unit=UNIT, budget=ps.epsilon(budget), seed=seed)
        y = data.vectorise().measure(strategy.query, spend=ps.epsilon(budget))
        squares += float(((ps.infer.least_squares(y).answer(W).values - truth) ** 2).mean())
    return float(np.sqrt(squares / trials))


def compare(trials: int, output: Path) -> list[dict[str, object]]:
    """The exact error of every strategy at every budget, and the simulated one at ε = 1."""
    W = own_workload()
    counts = np.random.default_rng(0).poisson(40 * np.exp(-np.arange(CELLS) / 20))
    rows: list[dict[str, object]] = []
    print(f"{W}; no strategy errs below {bound(W):.1f} at epsilon 1")
    for name, select in SELECTORS.items():
        strategy = select(W)
        for budget in BUDGETS:
            spend = ps.epsilon(budget)
            error = strategy.rmse(W, spend, UNIT)
            rows.append({"strategy": name, "epsilon": float(spend.amount), "error": error})
        exact = strategy.rmse(W, ps.epsilon("1"), UNIT)
        simulated = trial_errors(strategy, W, counts, trials, "1")
        print(f"{name:>20}: exact {exact:6.2f}, simulated {simulated:6.2f} ({trials:,} trials)")
        rows.append({"strategy": name, "exact": exact, "simulated": simulated})
    plot_errors([row for row in rows if "epsilon" in row], output)
    return rows


def bound(W: ps.Workload) -> float:
    """What no strategy can be below, as a root mean squared error at epsilon 1."""
    return float(np.sqrt(2 * ps.select.svd_bound(W) / W.shape[0]))


def plot_errors(rows: list[dict[str, object]], output: Path) -> None:
    """Error against epsilon, on logarithmic axes: one line for each strategy."""
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    for name in SELECTORS:
        line = [row for row in rows if row["strategy"] == name]
        axes.loglog([row["epsilon"] for row in line], [row["error"] for row in line], "o-")
    axes.legend(SELECTORS)
    axes.set(xlabel="ε", ylabel="root mean squared error, rows")
    figure.savefig(output)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=HERE / "error.svg")
    options = parser.parse_args()
    compare(options.trials, options.output)
    print(f"plot: {options.output}")
