"""From a release file, or a workload, to a plan: processor time, peak memory, error.

    python -m benchmarks.planning [FOLDER] [rows] [files] [growth]

Release files are read from a folder (../shared/releases if it is there), each copied to an empty
folder and planned in a process of its own; no data are needed. "first" is when the first strategy
within 10 % of the final error was shown. "reference" is the best error that other closed forms and
bounds gave for the file before there were unions over levels. Rows are selections of the papers'
workloads with the aims that a person at a terminal would have. Growth is planning over cells,
products and attributes, as a table and as a drawing in build/figures/.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psephos as ps
from benchmarks.measure import table

REFERENCE = {
    "population": 12.58,
    "hospital": 18.5,
    "housing": 14.5,
    "epidemic": 11.95,
    "labour": 32.1,
    "survey": 148.2,
}
"""Root mean squared errors at epsilon 1."""
GROWTH_SECONDS = 120.0


def measured(action: str, *arguments: str) -> dict[str, float]:
    """An action of this file in a process of its own, with its processor time and peak."""
    command = [sys.executable, "-m", "benchmarks.planning", action, *arguments]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    output = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    return {**result, "cpu": usage.ru_utime + usage.ru_stime, "peak": usage.ru_maxrss * 1024}


# ---- release files -----------------------------------------------------------------------------


def plan_file(path: str) -> dict[str, float]:
    """Plan a file, noting when strategies came up."""
    seen: list[tuple[float, float]] = []
    forecast = ps.plan(path, progress=lambda _, gain: seen.append((time.process_time(), gain)))
    final = max(gain for _, gain in seen)
    first = next(moment for moment, gain in seen if gain >= final / 1.1)
    return {"rmse": forecast.rmse, "first": first, "numbers": float(len(forecast.widths.stderr))}


def files(folder: Path) -> None:
    rows = []
    for place in sorted(folder.glob("*.toml")):
        with tempfile.TemporaryDirectory() as empty:
            copy = Path(empty) / "release.toml"
            shutil.copy(place, copy)
            cost = measured("plan", str(copy))
        job = ps.Job.read(place)
        reference = REFERENCE.get(place.stem)
        rows.append(
            [
                place.stem,
                f"{job.workload.domain.size:,}",
                f"{cost['numbers']:,.0f}",
                f"{cost['rmse']:.4g}",
                "-" if reference is None else f"{reference:g}",
                f"{cost['first']:.1f} s",
                f"{cost['cpu']:.1f} s",
                f"{cost['peak'] / 1e9:.2f} GB",
            ]
        )
    table(["file", "cells", "numbers", "RMSE", "reference", "first", "cpu", "peak"], rows)


# ---- rows of the papers ------------------------------------------------------------------------


def square(n: int) -> ps.Workload:
    p, i = ps.prefix(), ps.identity()
    domain = ps.Domain.of(a=n, b=n)
    return ps.Workload(domain, [ps.product(a=p, b=i), ps.product(a=i, b=p)])


def line(n: int, queries: ps.QuerySet) -> ps.Workload:
    return ps.Workload(ps.Domain.of(a=n), [ps.product(a=queries)])


def tens(d: int) -> ps.Workload:
    return ps.marginals(ps.Domain.of({f"a{i}": 10 for i in range(d)}), up_to=3)


def adult() -> ps.Workload:
    return ps.marginals(ps.Domain.of(age=75, education=16, race=5, sex=2, hours=20), k=2)


def three_products() -> ps.Workload:
    """Three unlike two-way products over 10⁴ cells."""
    p, r, i = ps.prefix(), ps.all_range(), ps.identity()
    domain = ps.Domain.of(a=25, b=20, c=20)
    return ps.Workload(domain, [ps.product(a=p, b=r), ps.product(b=i, c=p), ps.product(a=r, c=r)])


def ten_binary() -> ps.Workload:
    return ps.marginals(ps.Domain.of({f"b{i}": 2 for i in range(10)}), up_to=2)


def two_products() -> ps.Workload:
    domain = ps.Domain.of(a=50, b=40)
    return ps.Workload(
        domain,
        [ps.product(a=ps.prefix(), b=ps.identity()), ps.product(a=ps.identity(), b=ps.all_range())],
    )


Select = Callable[[ps.Workload], ps.Strategy]
WORKLOADS: dict[str, tuple[Callable[[], ps.Workload], Select, str]] = {
    "SF1, plainly": (
        ps.census.sf1, lambda w: ps.select.opt_product(w, restarts=4), "13.1, 2 s"
    ),
    "SF1": (ps.census.sf1, ps.select.hdmm, "16.4, 20 s"),
    "[P⊗I;I⊗P] 1024²": (
        lambda: square(1024), lambda w: ps.select.opt_product(w, restarts=1), "2.00, 15 s"
    ),
    "Adult, 2-way": (adult, ps.select.hdmm, "4.05, 3 s"),
    "AllRange 8192": (lambda: line(8192, ps.all_range()), ps.select.hdmm, "4.52, 30 s"),
    "Prefix 8192": (lambda: line(8192, ps.prefix()), ps.select.hdmm, "6.57, 30 s"),
    "10²⁰ cells, up to 3-way": (lambda: tens(20), ps.select.hdmm, "-, 1 s"),
    "10¹⁰⁰ cells, up to 3-way": (lambda: tens(100), ps.select.hdmm, "-, 10 s"),
    "three products, 10⁴ cells": (three_products, ps.select.hdmm, "-"),
    "ten binary, up to 2-way": (ten_binary, ps.select.hdmm, "-"),
    "two products, 2,000 cells": (two_products, ps.select.hdmm, "-"),
}  # fmt: skip


def select_row(name: str) -> dict[str, float]:
    make, select, _ = WORKLOADS[name]
    workload = make()
    began = time.process_time()
    strategy = select(workload)
    seconds = time.process_time() - began
    error = strategy.expected_error(workload)
    base = ps.select.identity(workload).expected_error(workload)
    return {"ratio": math.sqrt(base / error), "selection": seconds}


def rows() -> None:
    out = []
    for name, (_, _, aim) in WORKLOADS.items():
        cost = measured("row", name)
        out.append(
            [
                name,
                f"{cost['ratio']:.4g}",
                f"{cost['selection']:.1f} s",
                aim,
                f"{cost['peak'] / 1e9:.2f} GB",
            ]
        )
    table(["workload", "ratio to Identity", "selection, cpu", "aim", "peak"], out)


# ---- growth ------------------------------------------------------------------------------------


def mixed(cells: int, attributes: int, products: int) -> ps.Workload:
    """Tables of two attributes each, one of them by prefixes of a number, by levels elsewhere."""
    side = max(2, round(cells ** (1 / attributes)))
    number = ps.Attribute.integers(0, side - 1)
    named = {f"a{i}": number.with_level("half", max(2, side // 2)) for i in range(attributes)}
    sets = [ps.prefix(), ps.identity(), ps.level("half")]
    pairs = [(i, j) for i in range(attributes) for j in range(i + 1, attributes)]
    tables = []
    for k in range(products):
        i, j = pairs[k % len(pairs)]
        turn = k // len(pairs)
        one, other = sets[(k + turn) % 3], sets[(k + 1 + 2 * turn) % 3]
        tables.append(ps.product({f"a{i}": one, f"a{j}": other}))
    return ps.Workload(ps.Domain.of(named), tables)


def growth_cases() -> Iterator[tuple[str, int, tuple[int, int, int]]]:
    for exponent in range(3, 10):
        yield "cells", 10**exponent, (10**exponent, 4, 6)
    for products in (2, 4, 8, 16, 32):
        yield "products", products, (10**6, 6, products)
    for attributes in (2, 3, 4, 6, 8, 10, 12):
        yield "attributes", attributes, (4**attributes, attributes, max(2, attributes))


def growth() -> None:
    out, curves = [], {}
    for kind, size, shape in growth_cases():
        cost = measured("growth-point", *map(str, shape))
        curves.setdefault(kind, []).append((size, cost["selection"]))
        out.append([kind, f"{size:.3g}", f"{cost['selection']:.1f} s", f"{cost['ratio']:.3g}",
                    f"{cost['peak'] / 1e9:.2f} GB"])  # fmt: skip
    table(["what grows", "size", "selection, cpu", "ratio to Identity", "peak"], out)
    draw(curves)


def growth_point(cells: str, attributes: str, products: str) -> dict[str, float]:
    workload = mixed(int(cells), int(attributes), int(products))
    began = time.process_time()
    strategy = ps.select.hdmm(workload, restarts=3, time_limit=GROWTH_SECONDS)
    seconds = time.process_time() - began
    error = strategy.expected_error(workload)
    base = ps.select.identity(workload).expected_error(workload)
    return {"ratio": math.sqrt(base / error), "selection": seconds}


def draw(curves: dict[str, list[tuple[int, float]]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.5), sharey=True)
    for axis, (kind, points) in zip(axes, curves.items(), strict=True):
        axis.plot(*zip(*points, strict=True), marker="o")
        axis.set(xlabel=kind, yscale="log", xscale="log" if kind == "cells" else "linear")
    axes[0].set_ylabel("selection, seconds of processor time")
    place = Path("build/figures")
    place.mkdir(parents=True, exist_ok=True)
    figure.savefig(place / "planning.png", dpi=120, bbox_inches="tight")


def main(arguments: list[str]) -> None:
    actions: dict[str, Callable[..., dict[str, float]]] = {
        "plan": plan_file, "row": select_row, "growth-point": growth_point
    }  # fmt: skip
    if arguments and arguments[0] in actions:
        print(json.dumps(actions[arguments[0]](*arguments[1:])))
        return
    parts = [a for a in arguments if a in ("rows", "files", "growth")] or [
        "files",
        "rows",
        "growth",
    ]
    folders = [Path(a) for a in arguments if a not in parts]
    folder = folders[0] if folders else Path(__file__).parents[2] / "shared" / "releases"
    if "files" in parts and folder.is_dir():
        files(folder)
    if "rows" in parts:
        rows()
    if "growth" in parts:
        growth()


if __name__ == "__main__":
    main(sys.argv[1:])
