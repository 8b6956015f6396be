"""A handle takes its rows at its first request: what that costs, and what the later ones do.

Rows of four attributes (50,000 cells) and a person in 16 folders of Parquet, made up in a temporary
folder; ten requests for tables of two attributes, each another one. Memory is the peak that the
process adds, disk what lies in the folder for the rows while they are held, as the file system sees
it. With a cap every person has at most three of about three rows.

    python -m benchmarks.handles [ROWS ...]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import duckdb
import numpy as np

import psephos as ps
from benchmarks.engines import DOMAIN, MADE_UP
from benchmarks.measure import table
from psephos.matrix import Identity, Kron, total

PERSONS = ", CAST(hash(i + 4) % {persons} AS BIGINT) AS person, CAST(i % 16 AS"
WAYS = ("memory", "folder", "memory, cap", "folder, cap")


def write_rows(folder: Path, rows: int) -> None:
    """The rows of `benchmarks.engines`, each of a person."""
    step = 10**7
    text = MADE_UP.replace(", CAST(i % 16 AS", PERSONS.format(persons=rows // 3 + 1))
    with duckdb.connect() as connection:
        for piece, first in enumerate(range(0, rows, step)):
            query = text.format(first=first, last=min(first + step, rows))
            connection.execute(
                f"COPY ({query}) TO '{folder}' (FORMAT parquet, PARTITION_BY (part), "
                f"OVERWRITE_OR_IGNORE, FILENAME_PATTERN 'piece{piece}_{{i}}')"
            )


def requests() -> list[Kron]:
    """Ten tables, of up to two attributes."""
    axes = [*combinations(range(len(DOMAIN)), 2), *((i,) for i in range(len(DOMAIN)))]
    return [
        Kron(tuple(Identity(n) if i in some else total(n) for i, n in enumerate(DOMAIN.shape)))
        for some in axes
    ]


def one(way: str, folder: Path) -> None:
    """Runs ten requests and prints CPU and wall seconds of the first and the last, and sizes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = ps.person("person", max_rows=3) if "cap" in way else ps.add_remove_row()
    with tempfile.TemporaryDirectory() as private:
        path = Path(private) / "ledger"
        ps.Ledger.create(path, dataset="rows", unit=unit, budget=ps.epsilon("1000"))
        place = private if "folder" in way else None
        free = os.statvfs(private)
        vector = ps.protect(folder, DOMAIN, ledger=path, folder=place).vectorise()
        times = []
        for matrix in requests():
            cpu, wall = time.process_time(), time.perf_counter()
            vector.measure(matrix, spend=ps.epsilon("1"))
            times.append((time.process_time() - cpu, time.perf_counter() - wall))
        left = os.statvfs(private)
        disk = (free.f_bfree - left.f_bfree) * free.f_frsize if place else 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([times[0], times[-1], peak * 1024, max(disk, 0)]))


def plain(folder: Path) -> tuple[float, float]:
    """The first table by plain DuckDB: CPU and wall."""
    text = f"read_parquet('{folder}/*/*.parquet', hive_partitioning = false)"
    cpu, wall = time.process_time(), time.perf_counter()
    with duckdb.connect() as connection:
        query = f"SELECT sex, age, COUNT(*) FROM {text} GROUP BY ALL"
        np.array(connection.execute(query).fetchall())
    return time.process_time() - cpu, time.perf_counter() - wall


def main(sizes: list[int]) -> None:
    print(__doc__)
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made) / "rows"
            this = [sys.executable, "-m", "benchmarks.handles"]
            # In a process of its own, or its peak memory would count as that of the others.
            cpu, wall = json.loads(subprocess.check_output([*this, "--plain", str(size), folder]))
            rows.append([f"{size:.0e}", "plain DuckDB", f"{cpu:.2f} / {wall:.2f}", "", "", ""])
            for way in WAYS:
                command = [*this, "--one", way, str(folder)]
                first, last, peak, disk = json.loads(subprocess.check_output(command))
                seconds = [f"{cpu:.2f} / {wall:.2f}" for cpu, wall in (first, last)]
                sizes_text = [f"{peak / 1e9:.2f} GB", f"{disk / 1e9:.2f} GB"]
                rows.append([f"{size:.0e}", way, *seconds, *sizes_text])
    head = ["rows", "held in", "first request, CPU / wall s", "tenth", "memory added", "disk"]
    table(head, rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], Path(sys.argv[3]))
    elif sys.argv[1:2] == ["--plain"]:
        write_rows(Path(sys.argv[3]), int(sys.argv[2]))
        print(json.dumps(plain(Path(sys.argv[3]))))
    else:
        main([int(float(word)) for word in sys.argv[1:]] or [10**7, 10**8])
