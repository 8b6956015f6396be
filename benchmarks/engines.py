"""Where tables live: what counting costs beside the plainest way to get the same rows.

Aims: 10⁸ rows of partitioned Parquet within 1.3 times plain DuckDB's `SELECT cols, count(*) GROUP
BY cols`, 5·10⁶ rows of Postgres within 1.2 times a plain ADBC fetch of the needed columns, Spark
beside them (`toArrow`). CPU is that of this process, and also with the server's or the JVM's. All
data are made up in a temporary folder, which is removed.

    python -m benchmarks.engines [parquet ROWS] [postgres ROWS] [spark ROWS]
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.engines import SparkTable, as_source

DOMAIN = Domain.of(
    sex=["F", "M"],
    age=Attribute.integers(0, 99),
    region=Attribute.integers(0, 49),
    work=Attribute.categories(["a", "b", "c", "d"]).with_unknown("other"),
)
COLUMNS = "sex, age, region, work"
MADE_UP = (
    "SELECT CASE WHEN hash(i) % 2 = 0 THEN 'F' ELSE 'M' END AS sex, "
    "CAST(hash(i + 1) % 100 AS INTEGER) AS age, CAST(hash(i + 2) % 50 AS INTEGER) AS region, "
    "substr('abcde', CAST(1 + hash(i + 3) % 5 AS BIGINT), 1) AS work, "
    "CAST(i % 16 AS INTEGER) AS part FROM range({first}, {last}) t(i)"
)


def own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def timed(
    work: Callable[[], object], times: int = 3, cpu: Callable[[], float] = own_cpu
) -> tuple[float, float]:
    """CPU and wall seconds, the least of some runs."""
    runs = []
    for _ in range(times):
        before, start = cpu(), time.perf_counter()
        work()
        wall = time.perf_counter() - start
        runs.append((cpu() - before, wall))
    return min(cpu for cpu, _ in runs), min(wall for _, wall in runs)


def show(title: str, plain: tuple[float, float], ours: tuple[float, float]) -> None:
    ratios = [mine / other for mine, other in zip(ours, plain, strict=True)]
    print(
        f"| {title} | {plain[0]:.2f} / {plain[1]:.2f} | {ours[0]:.2f} / {ours[1]:.2f} | "
        f"{ratios[0]:.2f} / {ratios[1]:.2f} |",
        flush=True,
    )


def write_rows(folder: Path, rows: int) -> None:
    """Hive folders part=0 to part=15, in pieces that fit in memory."""
    step = 10**7
    with duckdb.connect() as connection:
        for piece, first in enumerate(range(0, rows, step)):
            query = MADE_UP.format(first=first, last=min(first + step, rows))
            connection.execute(
                f"COPY ({query}) TO '{folder}' (FORMAT parquet, PARTITION_BY (part), "
                f"OVERWRITE_OR_IGNORE, FILENAME_PATTERN 'piece{piece}_{{i}}')"
            )


def parquet(rows: int, folder: Path) -> None:
    write_rows(folder, rows)
    text = f"FROM read_parquet('{folder}/*/*.parquet', hive_partitioning = false)"

    def plain() -> list[object]:
        with duckdb.connect() as connection:
            query = f"SELECT {COLUMNS}, COUNT(*) {text} GROUP BY {COLUMNS}"
            return connection.execute(query).fetchall()

    def ours() -> object:
        return as_source(folder).count(DOMAIN, DOMAIN.names, (), None)

    show(f"Parquet in 16 folders, {rows:.0e} rows", timed(plain), timed(ours))


def postgres(rows: int, folder: Path) -> None:
    from adbc_driver_postgresql import dbapi

    from tests.engines.postgres_cluster import run_sql, server

    url = server()
    drawn = "abs(CAST(hashint8extended(i, {seed}) AS bigint) % {size})"
    age, region, work, income = (
        drawn.format(seed=seed, size=size) for seed, size in enumerate((100, 50, 5, 10**6))
    )
    run_sql(
        "CREATE TABLE rows AS SELECT CASE WHEN i % 2 = 0 THEN 'F' ELSE 'M' END AS sex, "
        f"CAST({age} AS int) AS age, CAST({region} AS int) AS region, "
        f"substr('abcde', CAST(1 + {work} AS int), 1) AS work, CAST({income} AS float8) AS income "
        f"FROM generate_series(CAST(1 AS bigint), {rows}) t(i)"
    )
    with_income = Domain.of(
        **dict(zip(DOMAIN.names, DOMAIN.attributes, strict=True)),
        income=Attribute.bins([0, 10**5, 3 * 10**5, 10**6]),
    )

    def plain(domain: Domain) -> int:
        with dbapi.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(domain.names)} FROM rows")
            return sum(batch.num_rows for batch in cursor.fetch_record_batch())

    def ours(domain: Domain) -> object:
        return as_source(f"{url}/rows").count(domain, domain.names, (), None)

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (backend,) = cursor.fetchone()
        postmaster = int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])

    def both_cpu() -> float:
        time.sleep(0.5)  # until the server has taken leave of its connections
        fields = Path(f"/proc/{postmaster}/stat").read_text().rpartition(")")[2].split()
        return own_cpu() + sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")

    for title, domain in (("", DOMAIN), (" and a column of floats", with_income)):
        for suffix, cpu in (("", own_cpu), (", with the server's CPU", both_cpu)):
            runs = [timed(partial(work, domain), cpu=cpu) for work in (plain, ours)]
            show(f"Postgres, {rows:.0e} rows{title}{suffix}", *runs)
    run_sql("DROP TABLE rows")


def spark(rows: int, folder: Path) -> None:
    from tests.engines.spark_session import spark as session

    write_rows(folder, rows)
    frame = session().read.parquet(str(folder))

    def plain() -> int:
        return len(frame.select(*COLUMNS.split(", ")).toArrow())

    def ours() -> object:
        table = SparkTable(frame, needed=COLUMNS.split(", "))
        return as_source(table).count(DOMAIN, DOMAIN.names, (), None)

    machine = session().sparkContext._gateway.proc.pid

    def both_cpu() -> float:
        fields = Path(f"/proc/{machine}/stat").read_text().rpartition(")")[2].split()
        return own_cpu() + sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    for suffix, cpu in (("", own_cpu), (", with the JVM's CPU", both_cpu)):
        runs = [timed(work, cpu=cpu) for work in (plain, ours)]
        show(f"Spark local[2], {rows:.0e} rows{suffix}", *runs)


def main(words: list[str]) -> None:
    sections = {"parquet": parquet, "postgres": postgres, "spark": spark}
    wanted = list(zip(words[::2], map(int, words[1::2]), strict=True))
    wanted = wanted or [("parquet", 10**8), ("postgres", 5 * 10**6), ("spark", 5 * 10**6)]
    print("| source | plain: CPU / wall s | psephos: CPU / wall s | ratio: CPU / wall |")
    print("| --- | --- | --- | --- |")
    for name, rows in wanted:
        folder = Path(tempfile.mkdtemp(prefix="psephos-bench-"))
        try:
            sections[name](rows, folder)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
