"""The owner's check of tables of very many columns: time against the number of columns.

`python -m benchmarks.wide_check [ROWS [COLUMNS ...]]`, 200,000 rows of 30, 100 and 300 columns if
left out: categories, whole numbers, bins and text in turn, with some missing and undeclared entries
in one column of ten; as Parquet and as CSV. Files are made in a temporary folder.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import psephos as ps
from benchmarks.measure import table
from psephos.owner.check import check


def generated(rows: int, columns: int, seed: int = 0) -> tuple[pa.Table, ps.Domain]:
    """A table and its schema."""
    generator = np.random.default_rng(seed)
    data, schema = {}, {}
    words = np.array(["north", "south", "east", "west"])
    for i in range(columns):
        name, kind = f"c{i}", i % 4
        if kind == 0:
            entries = pa.array(words[generator.integers(4, size=rows)])
            schema[name] = words.tolist()
        elif kind == 1:
            entries = pa.array(generator.integers(20, size=rows))
            schema[name] = 20
        elif kind == 2:
            entries = pa.array(np.round(generator.random(rows) * 999, 2))
            schema[name] = ps.Attribute.bins([0, 100, 250, 500, 1000])
        else:
            entries = pa.array(np.array(["no", "yes"])[generator.integers(2, size=rows)])
            schema[name] = ["no", "yes"]
        if i % 10 == 0:
            strange = entries.to_pylist()
            strange[::1000], strange[1::1000] = (
                [None] * len(strange[::1000]),
                (["nowhere"] if kind in (0, 3) else [-7]) * len(strange[1::1000]),
            )
            entries = pa.array(strange)
        data[name] = entries
    return pa.table(data), ps.Domain.of(schema)


def main() -> None:
    """One row for each number of columns."""
    numbers = [int(word) for word in sys.argv[1:]] or [200_000]
    rows, sizes = numbers[0], numbers[1:] or [30, 100, 300]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for columns in sizes:
            content, domain = generated(rows, columns)
            parquet, text = Path(folder) / "wide.parquet", Path(folder) / "wide.csv"
            pa.parquet.write_table(content, parquet)
            pa.csv.write_csv(content, text)
            line = [f"{rows:,}", f"{columns}"]
            for place in (parquet, text):
                begin, used = time.perf_counter(), time.process_time()
                report = check(str(place), domain)
                line += [
                    f"{time.perf_counter() - begin:.1f}", f"{time.process_time() - used:.1f}",
                ]  # fmt: skip
            lines.append([*line, str(len(report.findings))])
            print(lines[-1], file=sys.stderr, flush=True)
    heads = ["rows", "columns", "Parquet, s", "CPU s", "CSV, s", "CPU s", "findings"]
    table(heads, lines)


if __name__ == "__main__":
    main()
