"""How often the intervals of sums, means, shares, quantiles and variances hold the truth.

    python -m benchmarks.statistics [--trials 300]

One domain, made-up rows: a small group whose rows the noise nearly hides, a middling one and a
large one; HDMM for the statistics' tables, both kinds of noise. Every trial draws new noise for the
same rows. Intervals are at 95 %.
"""

import argparse

import numpy as np

import psephos as ps
from psephos.infer.statistics import joint_noise, part_of, statistic_intervals, statistic_values

GROUPS = {"small": 40, "middling": 400, "large": 20_000}
DOMAIN = ps.Domain.of(group=list(GROUPS), sex=["F", "M"], age=range(60))
QUESTIONS = {
    "sum": ps.StatisticQuestion("sum", "age", ("group",)),
    "mean": ps.mean("age", by="group"),
    "share of a row": ps.share(["group", "sex"], within="sex"),
    "first quartile": ps.quantiles("age", [0.25], by="group"),
    "median": ps.median("age", by="group"),
    "variance": ps.variance("age", by="group"),
    "standard deviation": ps.stddev("age", by="group"),
}
SPENDS = {"laplace": ps.epsilon("1/2"), "gaussian": ps.rho("1/16")}
CONFIDENCE = 0.95


def made_up_rows():
    """Counts of all cells: ages around 25, sexes unevenly split."""
    rng = np.random.default_rng(0)
    x = np.zeros(DOMAIN.shape, dtype=np.int64)
    for g, rows in enumerate(GROUPS.values()):
        ages = np.clip(rng.gamma(4, 6, rows), 0, 59).astype(int)
        np.add.at(x, (g, (rng.random(rows) < 0.3).astype(int), ages), 1)
    return x


def coverage(noise, spend, trials):
    """Of every statistic and group: how often it was covered, half its width, whole ranges."""
    statistics = ps.Statistics(DOMAIN, QUESTIONS.values())
    workload, x = statistics.workload, made_up_rows()
    strategy = ps.select.hdmm(workload, noise, seed=0)
    exact = workload.answer(x).astype(float)
    ends = np.cumsum([ps.Workload(DOMAIN, s.products).shape[0] for s in statistics.statistics])
    parts = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
    results = {name: [] for name in QUESTIONS}
    joint = None
    for seed in range(trials):
        data = ps.simulate(x, DOMAIN, unit=ps.add_remove_row(), budget=spend, seed=seed)
        measured = data.vectorise().measure(strategy.query, spend=spend)
        estimate = ps.infer.least_squares(measured)
        joint = joint or joint_noise(estimate, workload)
        answers = estimate.answer(workload).values
        for name, item, part in zip(QUESTIONS, statistics.statistics, parts, strict=True):
            truth = statistic_values(item, DOMAIN, exact[part])
            noise_of = part_of(joint, part.start, part.stop)
            numbers = statistic_intervals(item, DOMAIN, answers[part], noise_of, CONFIDENCE)
            held = (numbers.low - 1e-9 <= truth) & (truth <= numbers.high + 1e-9)
            results[name].append([held, (numbers.high - numbers.low) / 2, numbers.whole_range])
    return {name: np.mean(np.array(rows, dtype=float), axis=0) for name, rows in results.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=300)
    trials = parser.parse_args().trials
    print(f"| noise | statistic | {' | '.join(f'{g} ({n:,} rows)' for g, n in GROUPS.items())} |")
    print("|---|---|" + "---|" * len(GROUPS))
    for noise, spend in SPENDS.items():
        for name, (held, half, whole) in coverage(noise, spend, trials).items():
            each = held.size // len(GROUPS)
            cells = []
            for g in range(len(GROUPS)):
                some = slice(g * each, (g + 1) * each)
                ranges = f", range {whole[some].mean():.0%}" if whole[some].mean() > 0.005 else ""
                cells.append(f"{held[some].mean():.1%} (± {half[some].mean():,.3g}{ranges})")
            print(f"| {noise} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
