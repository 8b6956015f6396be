"""How selection grows, and what it finds: Figures 1 to 6 of the HDMM paper in tables.

- Selection time of OPT_0 over n (Figures 1a and 6 left: the paper's code below 10 s at n = 1024,
  ends at 8192), and of OPT_M over d (Figures 1c and 6 right: below 10 s up to d = 10, ends at 14).
- Prefixes of three attributes (Figure 1b: the paper's code ends near 10⁹ cells, held up by its
  measurement, low-rank near 10⁴), and measuring and reconstructing with a vector of zeros (Figure
  1d: OPT_⊗ and OPT_M to 10⁹ cells, OPT_+ to 10⁸).
- Error of OPT_0 over p on AllRange 256 (Figure 2: flat from 8 to 128, worse up to 4 and from 256).
- Where random starts end (Figure 3: ranges close together, marginals up to 4-way apart, a quarter
  of them within 1.05 of the best).
- The queries beside the identity for Prefix and AllRange 256 (Figure 4).
- Ranges over 64 x 64 cells by OPT_⊗ and by OPT_0 on all cells, as time goes on (Figure 5: OPT_0
  ends a little better, after much longer).

Processor time of all threads: one start of OPT_0, all starts of OPT_M. Drawings go to
build/figures/*.svg. `quick` ends at n = 2048, d = 12 and 10⁶ cells, with fewer starts. Names of
figures (1a, 1b, 1c, 1d, 2, 3, 4, 5) run these alone.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.random import default_rng

import psephos as ps
from benchmarks import reconstruct
from benchmarks.measure import table
from psephos.matrix import AllRange, Matrix, Prefix
from psephos.strategy.gram_terms import gram_operator
from psephos.strategy.hdmm.marginal_error import Lattice, descend
from psephos.strategy.hdmm.marginals import opt_marginals
from psephos.strategy.hdmm.opt0 import opt0, optimise

FOLDER = Path("build/figures")
Line = tuple[str, Sequence[float], Sequence[float]]
COLOURS = ["#1b6ca8", "#c8553d", "#3f7d4e", "#7a5195", "#8a6d1d", "#4c4c4c", "#c04c9e"]


# ---- drawings ----------------------------------------------------------------------------------


def ticks(low: float, high: float, log: bool) -> list[float]:
    """Round numbers in a range; powers of ten on a logarithmic axis."""
    if log:
        return [
            10.0**k for k in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        ]
    step = 10.0 ** math.floor(math.log10((high - low) or 1))
    step /= 1 if (high - low) / step >= 4 else 2 if (high - low) / step >= 2 else 5
    return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def draw(name: str, title: str, axes: tuple[str, str], lines: list[Line], log: str = "") -> None:
    """Polylines with axes, as SVG without any library."""
    width, height, left, top, right, bottom = 640, 400, 64, 36, 150, 48
    logs = ("x" in log, "y" in log)
    spans = []
    for i in (0, 1):
        values = [v for line in lines for v in line[1 + i] if v > 0 or not logs[i]]
        low, high = min(values), max(values)
        spans.append((low, high if high > low else low + 1))

    def at(i: int, value: float) -> float:
        low, high = spans[i]
        if logs[i]:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        share = (value - low) / (high - low)
        if i == 0:
            return left + share * (width - left - right)
        return height - bottom - share * (height - top - bottom)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="20" font-size="13">{title}</text>',
        f'<path d="M{left} {top}V{height - bottom}H{width - right}" fill="none" stroke="black"/>',
        f'<text x="{width - right}" y="{height - 12}" text-anchor="end">{axes[0]}</text>',
        f'<text x="{left}" y="{top - 4}" text-anchor="end">{axes[1]}</text>',
    ]
    for value in ticks(*spans[0], logs[0]):
        x = f"{at(0, value):.1f}"
        out.append(f'<path d="M{x} {height - bottom}v4" stroke="black"/>')
        out.append(
            f'<text x="{x}" y="{height - bottom + 16}" text-anchor="middle">{value:g}</text>'
        )
    for value in ticks(*spans[1], logs[1]):
        y = at(1, value)
        out.append(f'<path d="M{left} {y:.1f}h-4" stroke="black"/>')
        out.append(f'<text x="{left - 7}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for k, (label, xs, ys) in enumerate(lines):
        colour = COLOURS[k % len(COLOURS)]
        points = " ".join(f"{at(0, x):.1f},{at(1, y):.1f}" for x, y in zip(xs, ys, strict=True))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        if label:
            y = top + 14 * k
            out.append(f'<text x="{width - right + 8}" y="{y}" fill="{colour}">{label}</text>')
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.svg").write_text("\n".join([*out, "</svg>"]) + "\n")


# ---- growth ------------------------------------------------------------------------------------


def line_workload(n: int, queries: ps.QuerySet) -> ps.Workload:
    return ps.Workload(ps.Domain.of(a=n), [ps.product(a=queries)])


def growth_of_lines(sizes: list[int]) -> None:
    """Figures 1a and 6, left."""
    rows, lines = [], []
    for name, queries in (("AllRange", ps.all_range()), ("Prefix", ps.prefix())):
        seconds = []
        for n in sizes:
            work = line_workload(n, queries)
            begin = time.process_time()
            made = ps.select.opt0(work, restarts=1)
            seconds.append(time.process_time() - begin)
            base = ps.select.identity(work).expected_error(work)
            ratio = math.sqrt(base / made.expected_error(work))
            growth = math.log2(seconds[-1] / seconds[-2]) if len(seconds) > 1 else math.nan
            paper = "below 10 s" if n == 1024 else "largest" if n == 8192 else "-"
            power = "-" if math.isnan(growth) else f"{growth:.1f}"
            rows.append([name, f"{n}", f"{ratio:.4f}", f"{seconds[-1]:.2f} s", power, paper])
        lines.append((name, sizes, seconds))
    print("Figures 1a and 6, left: OPT_0, one start\n")
    table(["workload", "n", "ratio", "cpu", "growth, power of n", "paper"], rows)
    draw("growth_n", "Selection by OPT_0, one start", ("cells n", "CPU s"), lines, "xy")


def growth_of_attributes(most: int) -> None:
    """Figures 1c and 6, right."""
    rows = []
    found: dict[str, tuple[list[int], list[float]]] = {"up to 3-way": ([], []), "all": ([], [])}
    for d in range(2, most + 1):
        domain = ps.Domain.of({f"a{i}": 10 for i in range(d)})
        row = [f"{d}"]
        for kind, ways in (("up to 3-way", min(3, d)), ("all", d)):
            traces = ps.marginals(domain, up_to=ways).subset_traces()
            begin = time.process_time()
            made = opt_marginals((10,) * d, traces, rng=default_rng(0), restarts=25)
            seconds = time.process_time() - begin
            found[kind][0].append(d)
            found[kind][1].append(seconds)
            row += [f"{math.sqrt(traces.sum() / made.error):.4g}", f"{seconds:.2f} s"]
        paper = "below 10 s" if d <= 10 else "over 10 s" if d <= 14 else "out of reach"
        rows.append([*row, paper])
    print("Figures 1c and 6, right: OPT_M, attributes of 10 values, all its starts\n")
    table(["d", "up to 3-way: ratio", "cpu", "all marginals: ratio", "cpu", "paper"], rows)
    lines = [(kind, xs, ys) for kind, (xs, ys) in found.items()]
    draw("growth_d", "Selection by OPT_M, all its starts", ("attributes d", "CPU s"), lines, "y")


def growth_of_cubes(most: int) -> None:
    """Figure 1b: P ⊗ P ⊗ P."""
    rows, lines = [], []
    cells, seconds = [], []
    for n in (10, 22, 46, 100, 215, 464, 1000):
        if n**3 > most:
            break
        work = ps.prefix_product(ps.Domain.of(a=n, b=n, c=n))
        begin = time.process_time()
        strategy = ps.select.opt_product(work, restarts=1)
        seconds.append(time.process_time() - begin)
        cells.append(n**3)
        base = ps.select.identity(work).expected_error(work)
        ratio = math.sqrt(base / strategy.expected_error(work))
        paper = "reached" if n**3 <= 10**8 else "ends"
        rows.append(
            [f"{n}³", f"{n**3:.1e}", "OPT_⊗", f"{ratio:.4g}", f"{seconds[-1]:.2f} s", paper]
        )
    lines.append(("OPT_⊗", cells, seconds))
    cells, seconds = [], []
    for n in (4, 6, 8):
        work = ps.prefix_product(ps.Domain.of(a=n, b=n, c=n))
        begin = time.process_time()
        strategy = ps.select.low_rank(work)
        seconds.append(time.process_time() - begin)
        cells.append(n**3)
        base = ps.select.identity(work).expected_error(work)
        ratio = math.sqrt(base / strategy.expected_error(work))
        cost = f"{seconds[-1]:.2f} s"
        rows.append([f"{n}³", f"{n**3:.1e}", "low-rank", f"{ratio:.4g}", cost, "to about 10⁴"])
    lines.append(("low-rank", cells, seconds))
    print("Figure 1b: selection for prefixes of three attributes, one start\n")
    table(["domain", "cells", "by", "ratio", "cpu", "paper"], rows)
    draw("growth_cubes", "Selection for P ⊗ P ⊗ P", ("cells", "CPU s"), lines, "xy")


def growth_of_reconstruction(most: int) -> None:
    """Figure 1d: exact answers, noise and least squares."""
    kinds = {
        "OPT_⊗": (cube_strategy, 10**9, "10⁹"),
        "OPT_+": (pair_strategy, 10**7, "10⁸"),
        "OPT_M": (marginal_strategy, 10**9, "10⁹"),
    }
    rows, lines = [], []
    for name, (strategy_of, largest, paper) in kinds.items():
        cells, seconds = [], []
        for power in range(3, 10):
            if 10**power > min(largest, most):
                break
            case = strategy_of(power)
            counts = np.zeros(case.strategy.query.shape[1], dtype=np.int64)
            if name == "OPT_⊗" and power == 9:  # answers and estimate would be 18 GB side by side
                spent = reconstruct.staged_in_place(case.strategy, counts).seconds
            else:
                spent = reconstruct.staged(case, counts, trace=False).seconds
            cells.append(counts.size)
            seconds.append(sum(spent.values()))
            besides = seconds[-1] - spent["noise"]
            rows.append([
                name, f"{counts.size:.1e}", f"{case.strategy.query.shape[0]:.1e}",
                f"{besides:.3f} s", f"{spent['noise']:.3f} s", f"to about {paper}",
            ])  # fmt: skip
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
        lines.append((name, cells, seconds))
    print("Figure 1d: measure and reconstruct\n")
    table(["strategy", "cells", "answers", "besides noise", "noise", "paper"], rows)
    draw("growth_reconstruct", "Measure and reconstruct", ("cells", "CPU s"), lines, "xy")


def cube_strategy(power: int) -> reconstruct.Case:
    """OPT_⊗ for prefixes of three attributes of one length, nearly."""
    strategy = reconstruct.product(*(round(10 ** (power / 3)),) * 3)
    return reconstruct.Case("", strategy, None, None, None, "")


def pair_strategy(power: int) -> reconstruct.Case:
    """Two products without a common factor."""
    strategy = reconstruct.union(round(10 ** (power / 3)), 3)
    return reconstruct.Case("", strategy, None, None, None, "")


def marginal_strategy(power: int) -> reconstruct.Case:
    """OPT_M for tables up to 3-way of attributes of ten values."""
    asked = ps.marginals(ps.Domain.of({f"a{i}": 10 for i in range(power)}), up_to=3)
    return reconstruct.Case("", ps.select.opt_marginals(asked), asked, None, None, "")


# ---- what is found -----------------------------------------------------------------------------


def ratio_over_rows(starts: int) -> None:
    """Figure 2: plain random starts, as in the paper."""
    gram = gram_operator([1.0], [AllRange(256)])
    rows, best = [], []
    sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    for p in sizes:
        begin = time.process_time()
        found = [optimise(gram, rng=default_rng(k), p=p).error for k in range(starts)]
        seconds = (time.process_time() - begin) / starts
        best.append(math.sqrt(gram.trace / min(found)))
        paper = "too few" if p <= 4 else "about equal" if p <= 128 else "too many"
        rows.append([f"{p}", f"{best[-1]:.4f}", f"{seconds:.2f} s", paper])
    print(f"Figure 2: OPT_0 over p, AllRange 256, best of {starts} random starts\n")
    table(["p", "ratio", "cpu of a start", "paper"], rows)
    draw("rows_p", "OPT_0 on AllRange 256", ("rows p", "ratio"), [("", sizes, best)], "x")


def spread_row(name: str, errors: np.ndarray, least: float, paper: str) -> list[str]:
    """RMSE of where starts end, over the best that is known."""
    over = np.sqrt(errors / least)
    marks = [np.quantile(over, q) for q in (0, 0.25, 0.5, 0.75, 1)]
    within = (over <= 1.05).mean()
    return [name, f"{len(over)}", *(f"{mark:.3f}" for mark in marks), f"{within:.0%}", paper]


def local_minima(starts: int) -> None:
    """Figure 3: random starts, each to its end."""
    gram = gram_operator([1.0], [AllRange(256)])
    ranges = np.array([optimise(gram, rng=default_rng(k)).error for k in range(starts)])
    least = min(float(ranges.min()), opt0(gram, rng=default_rng(0), restarts=1).error)
    work = ps.marginals(ps.Domain.of({f"a{i}": 10 for i in range(8)}), up_to=4)
    traces = work.subset_traces()
    lattice = Lattice.of((10,) * 8, traces)
    weights = default_rng(0).random((100, 256))
    _, marginals = descend(lattice, weights, steps=2000)
    best = opt_marginals((10,) * 8, traces, rng=default_rng(0), restarts=25).error
    rows = [
        spread_row("AllRange 256", ranges, least, "close together"),
        spread_row("8 of 10, up to 4-way", marginals, min(best, marginals.min()), "25% in 1.05"),
    ]
    print("Figure 3: RMSE of random starts over the best found by all starts\n")
    head = ["workload", "starts", "least", "25 %", "median", "75 %", "most", "within 1.05", "paper"]
    table(head, rows)
    lines = [
        (name, np.linspace(0, 1, len(e)).tolist(), np.sort(np.sqrt(e / e.min())).tolist())
        for name, e in (("AllRange 256", ranges), ("up to 4-way", marginals))
    ]
    draw("local_minima", "Where random starts end", ("share of starts", "RMSE / least"), lines)


def queries(name: str, matrix: Matrix) -> list[str]:
    """Figure 4: the rows beside the identity, scaled so that every column sums to one."""
    n = matrix.shape[1]
    gram = gram_operator([1.0], [matrix])
    found = opt0(gram, rng=default_rng(0), restarts=2)
    rows = found.theta / (1 + found.theta.sum(axis=0))
    order = np.argsort((rows * np.arange(n)).sum(axis=1) / rows.sum(axis=1))
    lines = [("", list(range(n)), rows[k].tolist()) for k in order]
    draw(f"queries_{name.lower()}", f"OPT_0 on {name} {n}", ("cell", "weight"), lines)
    used = rows > 0.01 * rows.max()
    widths = used.sum(axis=1)
    own = 1 / (1 + found.theta.sum(axis=0))
    return [
        f"{name} {n}", f"{math.sqrt(gram.trace / found.error):.4f}", f"{len(rows)}",
        f"{widths.min()} to {widths.max()}, median {np.median(widths):.0f}",
        f"{used.sum(axis=0).mean():.1f}", f"{own.mean():.2f}",
    ]  # fmt: skip


def quality_over_time(limits: Sequence[float]) -> None:
    """Figure 5: all ranges over 64 x 64 cells, by two operators."""
    ranges = ps.product(a=ps.all_range(), b=ps.all_range())
    work = ps.Workload(ps.Domain.of(a=64, b=64), [ranges])
    base = ps.select.identity(work).expected_error(work)
    rows, lines = [], []
    searches = [("OPT_⊗", f"{k} starts", {"restarts": k}) for k in (1, 2, 4, 8)]
    searches += [("OPT_0", f"limit {t:g} s", {"restarts": 1, "time_limit": t}) for t in limits]
    for name, given, options in searches:
        begin = time.process_time()
        selector = ps.select.opt_product if name == "OPT_⊗" else ps.select.opt0
        strategy = selector(work, **options)
        seconds = time.process_time() - begin
        ratio = math.sqrt(base / strategy.expected_error(work))
        rows.append([name, given, f"{seconds:.2f} s", f"{ratio:.4f}"])
        lines.append((name, seconds, ratio))
    print("Figure 5: R ⊗ R over 64 x 64 cells, OPT_0 on all 4,096 (paper, Table 4b: 1.54)\n")
    table(["by", "given", "cpu", "ratio"], rows)
    drawn = [
        (name, [s for n, s, _ in lines if n == name], [r for n, _, r in lines if n == name])
        for name in ("OPT_⊗", "OPT_0")
    ]
    draw("quality_over_time", "Ranges over 64 x 64 cells", ("CPU s", "ratio"), drawn, "x")


def strategies() -> None:
    """Figure 4."""
    rows = [queries("AllRange", AllRange(256)), queries("Prefix", Prefix(256))]
    print("Figure 4: queries beside the identity (the paper has 13 of them for AllRange)\n")
    head = ["workload", "ratio", "queries", "cells of a query", "queries of a cell", "own share"]
    table(head, rows)


def main(words: list[str]) -> None:
    quick = "quick" in words
    figures = {
        "1a": lambda: growth_of_lines(
            [64, 128, 256, 512, 1024, 2048] + ([] if quick else [4096, 8192])
        ),
        "1b": lambda: growth_of_cubes(10**6 if quick else 10**9),
        "1c": lambda: growth_of_attributes(12 if quick else 15),
        "1d": lambda: growth_of_reconstruction(10**6 if quick else 10**9),
        "2": lambda: ratio_over_rows(2 if quick else 10),
        "3": lambda: local_minima(20 if quick else 100),
        "4": strategies,
        "5": lambda: quality_over_time([1, 3, 10] if quick else [1, 3, 10, 30, 60]),
    }
    print(__doc__)
    for name in [word for word in words if word in figures] or figures:
        figures[name]()
    print(f"Drawings in {FOLDER}/")


if __name__ == "__main__":
    main(sys.argv[1:])
