"""Counts by DuckDB over CSV, TSV and Parquet files, pandas and Polars frames, Arrow tables.

Every reading opens a DuckDB of its own that can reach the one file it counts, or nothing at all,
and keeps nothing on disk. SQL turns rows into cell indices; numpy applies the masks and adds up,
which takes a fraction of the time and memory of grouping by millions of cells. A small table is
read once for many counts (`kept`).

A CSV has a header, separators as found there (`files`) and double quotes, and is read as text. An
empty field is missing, a quoted empty one is empty text. Lines with too few fields, bytes that are
not UTF-8 or more than 2 MB are left out; fields too many are ignored. Its rows are what this
reading makes of it: a stray quote can join lines, so prefer Parquet where people typed the
entries. The owner's check tells how many lines are of any of these kinds (`broken`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np

from psephos.domain import Domain
from psephos.engines.columns import column_problems, needed_columns
from psephos.engines.files import PARQUET, Columns, checked_file, file_columns
from psephos.engines.frames import as_table
from psephos.engines.kept import KeptRows
from psephos.engines.rows import Rows, first_of_each
from psephos.errors import DomainError, ShapeError, SourceError
from psephos.frozen import Array
from psephos.kernel.source import Cells
from psephos.kernel.unit import Cap

SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",  # rows are never spilled to disk
}
CSV_OPTIONS = (
    "auto_detect = false, header = true, quote = '\"', escape = '\"', strict_mode = false, "
    "allow_quoted_nulls = false, hive_partitioning = false"
)
GROUP_LIMIT = 2**14  # up to this many cells DuckDB adds up, beyond it numpy does
BATCH = 2**20
UNREADABLE = (
    "the source could not be counted; the owner finds out why with check(source, domain), "
    "whose output is private"
)


def source(data: Any) -> DuckSource:
    """A source for a path to a .csv, .tsv or .parquet file, a frame or an Arrow table.

    >>> import pyarrow as pa
    >>> table = pa.table({"sex": ["F", "M", "F"], "age": ["1", "0", None]})
    >>> domain = Domain.of(sex=["F", "M"], age=2)
    >>> source(table).count(domain, ("sex", "age"), (), None)
    array([[0, 1],
           [1, 0]])
    """
    if not isinstance(data, str | Path):
        table = as_table(data)
        return DuckSource(Columns(tuple(table.column_names)), table=table)
    path = checked_file(Path(data).absolute())
    return DuckSource(file_columns(path), path=path)


@dataclass(frozen=True, eq=False, repr=False)
class DuckSource:
    """A file or a table, and its columns when it was opened."""

    found: Columns
    path: Path | None = None
    table: Any = None
    _seen: dict[Any, KeptRows | Literal[False] | None] = field(default_factory=dict)
    """What was counted last, and its rows: None after the first count, False if too many."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.found.names

    def columns(self) -> tuple[str, ...]:
        """The names of the columns, from the schema or the header alone."""
        return self.names

    def check_columns(self, needed: tuple[str, ...]) -> None:
        """Refuses, before anything is charged, if one is missing or there twice."""
        found = column_problems(self.names, needed)
        if found:
            raise DomainError(f"{'; '.join(found)}; name attributes and person as the source does")

    def count(
        self, domain: Domain, attributes: tuple[str, ...], keep: Cells, cap: Cap | None
    ) -> Array:
        """See `psephos.kernel.source.Source.count`."""
        self.check_columns(needed_columns(domain, cap))
        shape = tuple(domain[name].size for name in attributes)
        for conjunct in keep:
            sizes = tuple(domain[name].size for name in conjunct.names)
            if conjunct.mask.shape != sizes:
                raise ShapeError(f"a mask over {conjunct.names} has shape {conjunct.mask.shape}")
        try:
            kept = self._kept_rows(domain, cap)
            if kept is not None:
                return kept.count(attributes, keep)
            counts = np.zeros(math.prod(shape), dtype=np.int64)
            self._add(counts, domain, attributes, keep, cap)
            return counts.reshape(shape)
        except Exception:  # noqa: BLE001 - an engine's words may hold an entry
            pass
        raise SourceError(UNREADABLE)  # outside the handler, so that it has no context

    def _add(
        self,
        counts: Array,
        domain: Domain,
        attributes: tuple[str, ...],
        keep: Cells,
        cap: Cap | None,
    ) -> None:
        axes = [attributes, *(conjunct.names for conjunct in keep)]
        few = math.prod([counts.size, *(c.mask.size for c in keep)]) <= GROUP_LIMIT
        weigh = few and cap is None
        masks = [np.ravel(conjunct.mask) for conjunct in keep]
        with self.opened() as rows:
            text = rows.indices(domain, axes, cap)
            if weigh:
                text = f"SELECT *, COUNT(*) AS n FROM ({text}) GROUP BY ALL"
            batches = rows.run(text).to_arrow_reader(BATCH)
            for columns in first_of_each(batches, cap.max_rows) if cap else map(_numpy, batches):
                index, *looked = columns
                number = looked.pop() if weigh else np.broadcast_to(1, index.shape)
                for mask, cell in zip(masks, looked, strict=True):
                    number = number * mask[cell]
                np.add.at(counts, index, number)

    def _kept_rows(self, domain: Domain, cap: Cap | None) -> KeptRows | None:
        """All rows as cells, from the second count of an unchanged table on, if they are few."""
        wanted = (domain, cap, self._version())
        if wanted not in self._seen:
            self._seen.clear()
            self._seen[wanted] = None  # a table that is counted once is not kept
        elif self._seen[wanted] is None:
            with self.opened() as rows:
                text = rows.indices(domain, [(name,) for name in domain.names], cap)
                batches = rows.run(text).to_arrow_reader(BATCH)
                few = first_of_each(batches, cap.max_rows) if cap else map(_numpy, batches)
                self._seen[wanted] = KeptRows.of(domain, few) or False
        return self._seen[wanted] or None

    def _version(self) -> tuple[int, ...]:
        """What changes when the file does."""
        if self.path is None:
            return ()
        state = self.path.stat()
        return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino

    @contextmanager
    def opened(self) -> Iterator[Rows]:
        """The rows, readable until the block ends."""
        if self.path is not None and file_columns(self.path) != self.found:
            raise SourceError("the columns of the file have changed since it was opened")
        connection = duckdb.connect(":memory:", config=dict(SETTINGS))
        try:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(f"SET disabled_optimizers = '{_unwanted(connection)}'")
            if self.path is not None:
                connection.execute(f"SET allowed_paths = [{_quoted(str(self.path))}]")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            yield Rows(connection, self.names, self._relation(connection))
        finally:
            connection.close()

    def _relation(self, connection: Any) -> str:
        """The source as it stands behind FROM, its columns numbered."""
        names = [f"c{i}" for i in range(len(self.names))]
        path, called = self.path, f"AS t({', '.join(names)})"
        if path is None:
            connection.register("frame", self.table.rename_columns(names))
            return f"frame {called}"
        if path.suffix.lower() in PARQUET:
            return f"read_parquet({_quoted(str(path))}, hive_partitioning = false) {called}"
        return f"{self.csv(len(names), 'ignore_errors = true')} {called}"

    def csv(self, columns: int, errors: str) -> str:
        """A CSV file behind FROM, read as so many columns of text, c0 and on."""
        kinds = ", ".join(f"c{i}: 'VARCHAR'" for i in range(columns))
        options = f"{CSV_OPTIONS}, {errors}, delim = '{self.found.separator}'"
        return f"read_csv({_quoted(str(self.path))}, {options}, columns = {{{kinds}}})"

    def __repr__(self) -> str:
        return f"DuckSource({len(self.names)} columns: {', '.join(self.names)})"


def _numpy(batch: Any) -> list[Array]:
    return [column.to_numpy() for column in batch.columns]


def _unwanted(connection: Any) -> str:
    """The optimizers to do without, of those that this DuckDB has.

    Two move a TRY_CAST into a CSV's reader, where a bad entry drops its row; one may build a
    join's hash table of the rows, for a CSV whose size it underrates, and not of the small table.
    """
    known = {name for (name,) in connection.execute("FROM duckdb_optimizers()").fetchall()}
    unwanted = {"type_pushdown", "scalar_fn_pushdown", "build_side_probe_side"}
    return ", ".join(sorted(known & unwanted))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
