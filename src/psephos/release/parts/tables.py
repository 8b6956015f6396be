"""Tables of parts as rows: labels of the part, labels of the numbers, the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from psephos.domain.part_tree import PartTree
from psephos.release.bundle.files import marked_name
from psephos.release.bundle.table_files import TableFile
from psephos.release.parts.published import PublishedRun
from psephos.release.spec.job import Job
from psephos.release.spec.tables import Table
from psephos.release.views.labels import table_labels
from psephos.report.cross_table import TOTAL
from psephos.values import Array
from psephos.workload.product import product
from psephos.workload.workload import Workload

TABLES_FOLDER = "tables"
PART_NUMBERS = ("count", "consistent", "stderr", "low", "high")


def level_folder(stem: str, level: str) -> Path:
    """Where the files of a table's level lie in a bundle, as partitioned data sets have it.

    Names that no folder can have, or that lead elsewhere, are cleaned as those of tables are.
    """
    return Path(TABLES_FOLDER, stem, f"level={marked_name(level)}")


def run_tables(job: Job, tree: PartTree, run: PublishedRun) -> Iterator[TableFile]:
    """The tables of some parts of a level; the number of the first part names their files."""
    for table in job.tables:
        folder = level_folder(job.table_files[table.name], tree.names[run.level])
        rows = part_rows(job, tree, table, run.level, run.parts, run.columns)
        yield TableFile((folder / f"{run.parts.start:08}").as_posix(), rows, 0)


def part_rows(
    job: Job, tree: PartTree, table: Table, level: int, parts: range, numbers: dict[str, Array]
) -> pa.Table:
    """The rows of a table as its file has them: finer parts than the level's are totals."""
    queries = table.rows(job.workload)
    columns = {name: values[:, queries] for name, values in numbers.items()}
    rows = part_rows_of(job.workload, tree, table, level, parts, columns)
    # The files of all levels have the same columns, so that they are read as one data set.
    for finer in range(level + 1, len(tree.names)):
        total = _labelled([TOTAL], np.zeros(rows.num_rows))
        rows = rows.add_column(finer - 1, tree.names[finer], total)
    return rows


def part_rows_of(
    workload: Workload,
    tree: PartTree,
    table: Table,
    level: int,
    parts: range,
    numbers: dict[str, Array],
) -> pa.Table:
    """The rows of some parts of a level; each of `numbers` is an array (parts, numbers)."""
    labels = table_labels(workload, table)
    lines = len(next(iter(labels.values()))) if labels else 1
    part = np.repeat(np.asarray(parts), lines)
    columns: dict[str, pa.Array] = {}
    starts = tree.edges[level][part]
    for above in range(1, level + 1):
        place = np.searchsorted(tree.edges[above], starts, side="right") - 1
        columns[tree.names[above]] = _labelled(tree.level_labels[above], place)
    for name, words in labels.items():
        known = list(dict.fromkeys(words))
        index = {word: i for i, word in enumerate(known)}
        numbers_of = np.tile([index[word] for word in words], len(parts))
        columns[name] = _labelled(known, numbers_of)
    for name, values in numbers.items():
        columns[name] = pa.array(values.reshape(-1))
    return pa.table(columns)


def total_rows(
    workload: Workload, tree: PartTree, parts: range, totals: dict[str, Array]
) -> pa.Table:
    """One row for each part of the first level below the whole: all its rows, counted."""
    total = Workload(workload.domain, [product()])
    rows = part_rows_of(total, tree, Table("total", "total", range(1)), 1, parts, totals)
    return rows.select([tree.names[1], *totals])


def _labelled(words: Sequence[str], index: Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), pa.array(list(words)))
