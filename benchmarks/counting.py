"""Counting rows into 25.5 M cells (the six attributes of a census person), beside plain DuckDB.

Plain is `SELECT a, …, f, COUNT(*) … GROUP BY ALL` over the same file, its groups fetched as Arrow;
it neither maps values to cells nor makes the dense vector. Each runs in a process of its own.
Aims at 10⁷ rows: within 1.5 times plain; memory at most that of the counts and 0.5 GB.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks.measure import table
from psephos.domain.attribute import Attribute
from psephos.domain.cleaning import Cleaning
from psephos.domain.domain import Domain
from psephos.engines import as_source, cleaned
from psephos.kernel.source import Cap

SIZES = {"sex": 2, "hispanic": 2, "race": 64, "relation": 17, "age": 115, "state": 51}
TEXT = ("sex", "race", "state")
ONE_PERSON = 3


def values(name: str) -> list[str]:
    return [f"{name} {i:02d}" for i in range(SIZES[name])]


def domain() -> Domain:
    return Domain.of(
        {n: Attribute.categories(values(n)) if n in TEXT else k for n, k in SIZES.items()}
    )


def write(rows: int, folder: Path) -> None:
    """The same made-up rows as Parquet and as CSV; a person has three of them on average."""
    rng = np.random.default_rng(0)
    columns = {}
    for name, size in SIZES.items():
        cells = pa.array(rng.integers(0, size, rows, dtype=np.int32))
        coded = pa.DictionaryArray.from_arrays(cells, values(name)) if name in TEXT else cells
        columns[name] = coded.dictionary_decode() if name in TEXT else coded
    columns["id"] = pa.array(rng.integers(0, rows // ONE_PERSON + 1, rows))
    made = pa.table(columns)
    pyarrow.parquet.write_table(made, folder / "people.parquet")
    pyarrow.csv.write_csv(made, folder / "people.csv")


def plain(path: Path) -> int:
    reader = "read_parquet" if path.suffix == ".parquet" else "read_csv"
    text = f"SELECT {', '.join(SIZES)}, COUNT(*) AS n FROM {reader}('{path}') GROUP BY ALL"
    groups = duckdb.connect().sql(text).to_arrow_table()
    return int(groups.column("n").to_numpy().sum())


def ours(path: Path, names: tuple[str, ...], cap: Cap | None) -> int:
    return int(as_source(path).count(domain(), names, (), cap).sum())


def one(job: str, path: Path) -> None:
    """Runs one job and prints its seconds, the memory it added, and the rows it counted."""
    jobs = {
        "plain": lambda: plain(path),
        "psephos": lambda: ours(path, tuple(SIZES), None),
        "psephos, two-way": lambda: ours(path, ("age", "state"), None),
        "psephos, 3 rows a person": lambda: ours(path, tuple(SIZES), Cap("id", ONE_PERSON)),
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    begin = time.perf_counter()
    counted = jobs[job]()
    wall = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([wall, peak - before, counted]))


STATES = ["employed", "out of work", "in education", "retired"]
SPELLINGS = ["employed", "Employed ", "EMPLOYED", "emp", " out of work", "In Education", "NULL"]
CLEANINGS = {
    "no rule": Cleaning(),
    "trim": Cleaning(trim=True),
    "trim, case": Cleaning(trim=True, case="lower"),
    "trim, case, nulls": Cleaning(trim=True, case="lower", nulls=("NULL", "n/a")),
    "trim, case, nulls, aliases": Cleaning(
        trim=True, case="lower", nulls=("NULL", "n/a"), aliases={"employed": ("emp", "empl.")}
    ),
}


def cleaning(rows: int, repeat: int) -> None:
    """Processor time of counting one column of dirty text, by the rules that clean it."""
    rng = np.random.default_rng(0)
    entries = pa.DictionaryArray.from_arrays(rng.integers(0, len(SPELLINGS), rows), SPELLINGS)
    amounts = pa.array([f"{i % 5000},{i % 100:02d}" for i in range(rows)])
    made = pa.table({"status": entries.dictionary_decode(), "amount": amounts})
    status = Attribute.categories(STATES).with_missing().with_unknown("other")
    amount = Attribute.bins([0, 100, 1000, 2000]).with_unknown("other")
    jobs = [("status", status, words, rule) for words, rule in CLEANINGS.items()]
    jobs += [("amount", amount, "no rule", Cleaning())]
    jobs += [("amount", amount, "decimal comma", Cleaning(decimal=","))]
    shown = []
    with tempfile.TemporaryDirectory() as folder:
        pyarrow.parquet.write_table(made, Path(folder) / "dirty.parquet")
        pyarrow.csv.write_csv(made, Path(folder) / "dirty.csv")
        for name, attribute, words, rule in jobs:
            times = [
                _processor(Path(folder) / file, name, attribute, rule, repeat)
                for file in ("dirty.parquet", "dirty.csv")
            ]
            shown.append([name, words, *(f"{seconds:.2f} s" for seconds in times)])
        plain_times = []
        for read in ("read_parquet", "read_csv"):
            path = Path(folder) / f"dirty.{read.removeprefix('read_')}"
            text = f"SELECT lower(trim(status)) AS s, COUNT(*) FROM {read}('{path}') GROUP BY s"
            runs = []
            for _ in range(repeat):
                begin = time.process_time()
                duckdb.connect().sql(text).fetchall()
                runs.append(time.process_time() - begin)
            plain_times.append(f"{min(runs):.2f} s")
        shown.append(["status", "plain DuckDB: lower(trim(status))", *plain_times])
    table(["column", "rules", "parquet", "csv"], shown)


def _processor(path: Path, name: str, attribute: Attribute, rule: Cleaning, repeat: int) -> float:
    schema, times = Domain.of({name: attribute}), []
    for _ in range(repeat):
        begin = time.process_time()
        as_source(cleaned(path, {name: rule})).count(schema, (name,), (), None)
        times.append(time.process_time() - begin)
    return min(times)


def main(rows: int, repeat: int) -> None:
    print(__doc__)
    dense = 8 * domain().size
    this = [sys.executable, "-m", "benchmarks.counting"]
    with tempfile.TemporaryDirectory() as folder:
        shown = []
        # In a process of its own, or its peak memory would count as that of the others.
        subprocess.check_call([*this, "--write", str(rows), folder])
        for kind in ("parquet", "csv"):
            base, path = 0.0, str(Path(folder) / f"people.{kind}")
            for job in ("plain", "psephos", "psephos, two-way", "psephos, 3 rows a person"):
                command = [*this, "--one", job, path]
                runs = [json.loads(subprocess.check_output(command)) for _ in range(repeat)]
                wall, peak = min(r[0] for r in runs), max(r[1] for r in runs)
                base = base or wall
                full = job in ("psephos", "psephos, 3 rows a person")
                beyond = f"{(peak - dense) / 2**30:+.2f} GB" if full else ""
                times, memory = [f"{wall:.2f} s", f"{wall / base:.2f}"], f"{peak / 2**30:.2f} GB"
                shown.append([kind, job, f"{runs[0][2]:,}", *times, memory, beyond])
        head = ["file", "job", "rows counted", "wall", "of plain", "memory added", "beyond counts"]
        table(head, shown)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], Path(sys.argv[3]))
    elif sys.argv[1:2] == ["--cleaning"]:
        cleaning(10**6, 5)
    elif sys.argv[1:2] == ["--write"]:
        write(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        numbers = [int(float(argument)) for argument in sys.argv[1:]]
        main(numbers[0] if numbers else 10**7, numbers[1] if len(numbers) > 1 else 2)
