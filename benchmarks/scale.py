"""Beyond one vector: what tables in parts cost, section by section.

    python -m benchmarks.scale            all sections
    python -m benchmarks.scale parts      1,000 parts, by processes and by Spark
    python -m benchmarks.scale growth     10^6 to 10^9 cells: measure and least squares

CPU seconds are those of a process and of all below it (for Spark the JVM and the Python processes
of its executors), read from /proc, so sections need Linux.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

import psephos as ps
from benchmarks.dual_query import plot
from benchmarks.measure import table
from psephos.kernel.parts.runners import Processes, Runner
from psephos.kernel.parts.spark_runner import SparkRunner
from psephos.matrix import Identity
from psephos.release.parts.estimates import PartEstimates

PARTS = 1000
ROWS = 10**6
CORES = 2


def cpu_seconds() -> float:
    """Of this process and all below it, whether they still run or have been waited for."""
    below: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        process = int(path.parent.name)
        below.setdefault(int(fields[1]), []).append(process)
        ticks[process] = sum(map(int, fields[11:15]))  # its own, and of children that ended
    total, left = 0, [os.getpid()]
    while left:
        process = left.pop()
        total += ticks.get(process, 0)
        left += below.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


def now() -> np.ndarray:
    """Wall and CPU seconds; differences count."""
    return np.array([time.perf_counter(), cpu_seconds()])


def runner_of(name: str) -> Runner:
    return Processes(CORES) if name == "processes" else SparkRunner.start(f"local[{CORES},4]")


def parts_of_one_run(name: str, cells: int) -> None:
    """One run in a process of its own: its figures, on a line."""
    rng = np.random.default_rng(0)
    columns = {"part": rng.integers(0, PARTS, ROWS), "x": rng.integers(0, cells, ROWS)}
    with tempfile.TemporaryDirectory() as folder:
        ledger, answers = Path(folder, "people.ledger"), Path(folder, "parts")
        answers.mkdir()
        ps.Ledger.create(ledger, dataset="people", unit=ps.add_remove_row(), budget=ps.epsilon("1"))
        domain = ps.Domain.of(part=PARTS, x=cells)
        parts = ps.protect(pd.DataFrame(columns), domain, ledger=ledger).parts("part")
        begin = now()
        runner = runner_of(name)
        started = now()
        parts.measure(
            Identity(cells),
            weights=[0, 1],
            spend=ps.epsilon("1"),
            folder=answers,
            key="parts",
            runner=runner,
        )
        ended = now()
        sizes = [path.stat().st_size for path in answers.iterdir()]
        print(*(started - begin), *(ended - started), sum(sizes), len(sizes))


def parts() -> None:
    """Identity at the leaves, one charge: count a million rows, draw, seal and store receipts."""
    print("\n## Parts\n")
    rows = []
    names = ["processes"]
    if find_spec("pyspark") and shutil.which("java"):
        names.append("spark")
    else:
        print("Spark is left out: pyspark or Java is not installed\n")
    for cells in (10**4, 10**5):
        for name in names:
            command = [sys.executable, "-m", "benchmarks.scale", "one-run", name, str(cells)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            start_wall, start_cpu, wall, cpu, size, files = map(float, done.stdout.split()[-6:])
            rows.append(
                [
                    f"{PARTS:,} x {cells:,} = {PARTS * cells:.0e}",
                    {"processes": f"Processes({CORES})", "spark": f"Spark local[{CORES}]"}[name],
                    f"{start_wall:.1f} s / {start_cpu:.1f} s",
                    f"{wall:.1f} s / {cpu:.1f} s",
                    f"{size / 1e6:.0f} MB in {files:.0f}",
                ]
            )
    table(["cells", "runner", "start: wall / CPU", "measure: wall / CPU", "files"], rows)


GROWTH = ((10**3, 10**3), (10**3, 10**4), (10**3, 10**5), (10**4, 10**5))
"""Parts, and cells of each."""


def growth_of_one_run(count: int, cells: int) -> None:
    """Measure all cells of all parts, then estimate every part by least squares; on a line."""
    rng = np.random.default_rng(0)
    columns = {"part": rng.integers(0, count, ROWS), "x": rng.integers(0, cells, ROWS)}
    with tempfile.TemporaryDirectory() as folder:
        ledger, answers = Path(folder, "people.ledger"), Path(folder, "parts")
        answers.mkdir()
        ps.Ledger.create(ledger, dataset="people", unit=ps.add_remove_row(), budget=ps.epsilon("1"))
        parts = ps.protect(
            pd.DataFrame(columns), ps.Domain.of(part=count, x=cells), ledger=ledger
        ).parts("part")
        spend, weights = ps.epsilon("1"), [0, 1]
        told = parts.bytes_on_disk(Identity(cells), weights)
        begin = now()
        measurement = parts.measure(
            Identity(cells),
            weights=weights,
            spend=spend,
            folder=answers,
            key="growth",
            runner=Processes(CORES),
        )
        middle = now()
        estimates = PartEstimates(measurement, Path(folder))
        total = sum(float(each.sum()) for _, each in estimates.fit.runs(1))
        ended = now()
        size = sum(path.stat().st_size for path in answers.iterdir())
        usage = [resource.getrusage(who).ru_maxrss for who in WHO]
        memory = usage[0] + CORES * usage[1]
        print(*(middle - begin), *(ended - middle), memory * 1024, told, size, total)


WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def growth() -> None:
    """One block at the leaves, by processes of this machine."""
    print("\n## Growth of parts\n")
    rows, points = [], []
    for count, cells in GROWTH:
        command = [sys.executable, "-m", "benchmarks.scale", "one-growth", str(count), str(cells)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        wall, cpu, fit_wall, fit_cpu, memory, told, size, _ = map(float, done.stdout.split()[-8:])
        rows.append(
            [
                f"{count:,} x {cells:,} = {count * cells:.0e}",
                f"{cpu:.1f} s",
                f"{fit_cpu:.1f} s",
                f"{wall + fit_wall:.0f} s",
                f"{memory / 1e9:.2f} GB",
                f"{told / 1e6:,.0f} MB",
                f"{size / 1e6:,.0f} MB",
            ]
        )
        points.append((count * cells, cpu, fit_cpu))
        heads = ["cells", "measure, CPU", "least squares, CPU", "wall", "memory"]
        table([*heads, "disk, told before", "disk"], rows)
    # A second for 10⁷ cells: both lines run beside it where time grows as cells do.
    drawn = [(cells, cpu, fit_cpu, cells / 10**7) for cells, cpu, fit_cpu in points]
    lines = ["measure", "least squares", "a second for 10⁷ cells"]
    plot("scale_growth", "cells", drawn, lines, "CPU seconds", log="xy")


SECTIONS: dict[str, Callable[[], None]] = {"parts": parts, "growth": growth}


def main() -> None:
    names = sys.argv[1:]
    if names[:1] == ["one-run"]:
        parts_of_one_run(names[1], int(names[2]))
        return
    if names[:1] == ["one-growth"]:
        growth_of_one_run(int(names[1]), int(names[2]))
        return
    print(__doc__)
    for name in names or SECTIONS:
        SECTIONS[name]()


if __name__ == "__main__":
    main()
