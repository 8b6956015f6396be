"""Counts by DuckDB over CSV, TSV and Parquet files, pandas and Polars frames, Arrow tables.

Every reading opens a DuckDB of its own that can reach the one file it counts, or nothing at all,
and keeps nothing on disk. It is handed the columns that are needed and no others (`relations`).
SQL turns rows into cell indices; numpy applies the masks and adds up, which takes a fraction of
the time and memory of grouping by millions of cells. A small table is read once for many counts
(`kept`).

A CSV has a header, separators as found there (`files`) and double quotes, and is read as text. An
empty field is missing, a quoted empty one is empty text. Lines with too few fields, bytes that are
not UTF-8 or more than 2 MB are left out; fields too many are ignored. Its rows are what this
reading makes of it: a stray quote can join lines, so prefer Parquet where people typed the
entries. The owner's check tells how many lines are of any of these kinds (`broken`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import duckdb
import numpy as np

from psephos.domain.domain import Domain
from psephos.engines.columns import (
    PARQUET,
    Columns,
    checked_file,
    column_problems,
    file_columns,
    needed_columns,
)
from psephos.engines.frames import as_table
from psephos.engines.relations import (
    Relation,
    arrow_table,
    native_parquet,
    parquet_by_arrow,
    quoted,
)
from psephos.engines.row_cache import KeptRows
from psephos.engines.rows import Rows, first_of_each
from psephos.errors import DomainError, ShapeError, SourceError
from psephos.kernel.source import Cells
from psephos.kernel.unit import Cap
from psephos.values import Array

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
T = TypeVar("T")
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
        names = tuple(table.column_names)
        return DuckSource(Columns(names, types=table.schema.remove_metadata()), table=table)
    path = checked_file(Path(data).absolute())
    return DuckSource(file_columns(path), path=path)


class DuckSource:
    """A file or a table, and its columns when it was opened."""

    __slots__ = ("_path", "_seen", "_table", "found")

    def __init__(self, found: Columns, path: Path | None = None, table: Any = None) -> None:
        self.found = found
        self._path = path
        self._table = table
        # What was counted last, and its rows: None after the first count, False if too many.
        self._seen: dict[Any, KeptRows | Literal[False] | None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return self.found.names

    def columns(self) -> tuple[str, ...]:
        """The names of the columns, from the schema or the header alone."""
        return self.names

    def check_columns(self, needed: tuple[str, ...]) -> None:
        """Refuses, before anything is charged, if one is missing, there twice or of no use."""
        problems = column_problems(self.found, needed)
        if problems:
            named = all(self.names.count(name) == 1 for name in problems)
            hint = "" if named else "; name attributes and person as the source does"
            raise DomainError("; ".join(problems.values()) + hint)

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
        counts = self._counts(domain, attributes, keep, cap)
        if counts is None:  # told from a frame that holds no count, and without a context
            raise SourceError(UNREADABLE)
        return counts.reshape(shape)

    def _counts(
        self, domain: Domain, attributes: tuple[str, ...], keep: Cells, cap: Cap | None
    ) -> Array | None:
        """The counts, or None where they cannot be had."""
        try:
            kept = self._kept_rows(domain, cap)
            if kept is not None:
                return kept.count(attributes, keep)
            return self.read(
                needed_columns(domain, cap),
                lambda rows: self._added(rows, domain, attributes, keep, cap),
            )
        except Exception:  # noqa: BLE001 - an engine's words may hold an entry
            return None

    def _added(
        self,
        rows: Rows,
        domain: Domain,
        attributes: tuple[str, ...],
        keep: Cells,
        cap: Cap | None,
    ) -> Array:
        counts = np.zeros(math.prod(domain[name].size for name in attributes), dtype=np.int64)
        axes = [attributes, *(conjunct.names for conjunct in keep)]
        few = math.prod([counts.size, *(c.mask.size for c in keep)]) <= GROUP_LIMIT
        weigh = few and cap is None
        masks = [np.ravel(conjunct.mask) for conjunct in keep]
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
        return counts

    def _kept_rows(self, domain: Domain, cap: Cap | None) -> KeptRows | None:
        """All rows as cells, from the second count of an unchanged table on, if they are few."""
        wanted = (domain, cap, self._version())
        if wanted not in self._seen:
            self._seen.clear()
            self._seen[wanted] = None  # a table that is counted once is not kept
        elif self._seen[wanted] is None:

            def kept(rows: Rows) -> KeptRows | None:
                text = rows.indices(domain, [(name,) for name in domain.names], cap)
                batches = rows.run(text).to_arrow_reader(BATCH)
                few = first_of_each(batches, cap.max_rows) if cap else map(_numpy, batches)
                return KeptRows.of(domain, few)

            self._seen[wanted] = self.read(needed_columns(domain, cap), kept) or False
        return self._seen[wanted] or None

    def _version(self) -> tuple[int, ...]:
        """What changes when the file does."""
        if self._path is None:
            return ()
        state = self._path.stat()
        return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino

    def read(self, needed: Sequence[str], work: Callable[[Rows], T]) -> T:
        """What the work makes of the rows; of a Parquet file perhaps at the second try."""
        if self._is_parquet:
            try:
                with self.opened(needed) as rows:
                    return work(rows)
            except Exception:  # noqa: BLE001 - an entry that DuckDB's own reader gives up on
                pass
        with self.opened(needed, by_arrow=True) as rows:
            return work(rows)

    @property
    def _is_parquet(self) -> bool:
        return self._path is not None and self._path.suffix.lower() in PARQUET

    @contextmanager
    def opened(self, needed: Sequence[str], *, by_arrow: bool = False) -> Iterator[Rows]:
        """The needed columns of the rows, readable until the block ends."""
        columns = self.found if self._path is None else file_columns(self._path)
        if columns != self.found:
            raise SourceError("the columns of the file have changed since it was opened")
        connection = duckdb.connect(":memory:", config=dict(SETTINGS))
        try:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(f"SET disabled_optimizers = '{_unwanted(connection)}'")
            if self._path is not None:
                connection.execute(f"SET allowed_paths = [{quoted(str(self._path))}]")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            places = [self.names.index(name) for name in needed]
            yield Rows(
                connection, self.names, *self._relation(connection, columns.types, places, by_arrow)
            )
        finally:
            connection.close()

    def _relation(
        self, connection: Any, schema: Any, places: list[int], by_arrow: bool
    ) -> Relation:
        """The source as it stands behind FROM, its columns numbered."""
        if self._path is None:
            return arrow_table(self._table, places)
        if self._is_parquet:
            native = None if by_arrow else native_parquet(connection, self._path, schema, places)
            return native or parquet_by_arrow(self._path, places)
        names = ", ".join(f"c{i}" for i in range(len(self.names)))
        return f"{self.csv(len(self.names), 'ignore_errors = true')} AS t({names})", None

    def csv(self, columns: int, errors: str) -> str:
        """A CSV file behind FROM, read as so many columns of text, c0 and on."""
        kinds = ", ".join(f"c{i}: 'VARCHAR'" for i in range(columns))
        options = f"{CSV_OPTIONS}, {errors}, delim = '{self.found.separator}'"
        if self.found.newline is not None:
            options += f", new_line = '{self.found.newline}'"
        return f"read_csv({quoted(str(self._path))}, {options}, columns = {{{kinds}}})"

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
