"""Rows of any engine as cells: DuckDB turns entries into cell indices, and they are read once.

DuckDB is handed the columns that are needed and no others. A table of few cells is added up by
DuckDB; of any other the rows are kept (`row_store`), and counted as often as they are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from psephos.domain.cleaning import Cleaning
from psephos.domain.domain import Domain
from psephos.engines.cleaned import check_rules
from psephos.engines.columns import column_problems, needed_columns
from psephos.engines.duckdb.arrow import COLUMNS_CHANGED, Relation, arrow_relation
from psephos.engines.duckdb.rows import Rows, connect, first_of_each
from psephos.engines.protocol import Batches, Columns, Engine, NativeRelation
from psephos.engines.row_store import RowStore
from psephos.errors import DomainError, PsephosError, SourceError
from psephos.kernel.cell_counts import CellCounts
from psephos.kernel.source import Cells, Names
from psephos.kernel.unit import Cap
from psephos.values import Array

GROUP_LIMIT = 2**14  # up to this many cells DuckDB adds up, beyond it rows are kept
INDEX_BATCH_ROWS = 2**20
T = TypeVar("T")
UNCOUNTABLE = (
    "the source could not be counted; the owner finds out why with check(source, domain), "
    "whose output is private"
)
SOURCE_CHANGED = (
    "the source was written to while it was read, and rows of different states are not counted "
    "together; let it stand still, and ask again"
)
STATE_ENDED = "the source was opened for one block of work, and that has ended; open it again"


class StateError(Exception):
    """The rows are no longer those that were opened; its words are ours and hold no entry."""


class Reader:
    """An engine, its columns when it was opened, and how they are cleaned.

    With a `held` state all readings are of that state.
    """

    __slots__ = ("_held", "columns", "engine", "rules")

    def __init__(
        self,
        engine: Engine,
        rules: Mapping[str, Cleaning] | None = None,
        *,
        held: HeldState | None = None,
    ) -> None:
        self.engine = engine
        self.columns = _columns(engine) if held is None else held.columns
        self._held = held
        self.rules = {name: rule for name, rule in (rules or {}).items() if rule}

    def check_columns(self, needed: tuple[str, ...]) -> None:
        """Refuses, before anything is charged, if one is missing, there twice or of no use."""
        problems = column_problems(self.columns, needed)
        if problems:
            named = all(self.columns.names.count(name) == 1 for name in problems)
            hint = "" if named else "; name attributes and person as the source does"
            raise DomainError("; ".join(problems.values()) + hint)

    def check_schema(self, domain: Domain, cap: Cap | None) -> None:
        """Refuses, before anything is charged, a schema that columns or rules do not fit."""
        self.check_columns(needed_columns(domain, cap))
        if self.rules:
            check_rules(self.rules, domain, cap)

    row_abilities = frozenset({"row_cells", "persons"})

    def take(
        self, domain: Domain, cap: Cap | None, folder: str | os.PathLike[str] | None = None
    ) -> RowStore | CellCounts:
        """See `psephos.kernel.source.Source`: the one place where rows are read to be counted."""
        self.check_schema(domain, cap)
        table, trouble = _attempt(lambda: self._take(domain, cap, folder))
        if table is None:  # raised from a frame that holds no count, and without a context
            raise SourceError(trouble)
        return table

    def _take(
        self, domain: Domain, cap: Cap | None, folder: str | os.PathLike[str] | None
    ) -> RowStore | CellCounts:
        def work(rows: Rows) -> RowStore | CellCounts:
            if cap is None and domain.size <= GROUP_LIMIT:
                return _cell_counts(rows, domain)
            text = rows.indices(domain, [(name,) for name in domain.names], cap)
            batches = _index_columns(rows, text, cap)
            return RowStore.of(domain, batches, persons=cap is not None, folder=folder)

        with self.snapshot() as snapshot:
            return snapshot.read(needed_columns(domain, cap), work, alike=cap is None)

    def count(self, domain: Domain, attributes: Names, keep: Cells, cap: Cap | None) -> Array:
        """How many rows lie in each cell of some attributes, in a reading of their own."""
        return self.take(domain, cap).counts([attributes], keep)[0]

    def version(self) -> Hashable | None:
        """What tells the rows' state from others, of the state that is held; None: nothing does."""
        return self.engine.version() if self._held is None else self._held.version

    @contextmanager
    def in_one_state(self) -> Iterator[Reader]:
        """The same table as it is now: until the block ends, all counts see the same rows.

        Errors are the engine's own, for the owner; `registry.in_one_state` is for everybody.
        """
        if self._held is not None:
            yield self
            return
        with self._opened() as held:
            try:
                yield Reader(self.engine, self.rules, held=held)
            finally:
                held.has_ended.append(True)

    @contextmanager
    def snapshot(self) -> Iterator[OpenState]:
        """The rows in one state, until the block ends; refused if there are other columns now.

        What is read and then turns out to have changed meanwhile is refused, too.
        """
        with ExitStack() as stack:
            held = stack.enter_context(self._opened()) if self._held is None else self._held
            held.check(self.engine)
            yield OpenState(self.engine, self.columns.names, held.batches, self.rules)
            held.check(self.engine)

    @contextmanager
    def _opened(self) -> Iterator[HeldState]:
        version = self.engine.version()
        with self.engine.snapshot() as batches:
            if self.engine.columns() != self.columns:
                raise SourceError(COLUMNS_CHANGED)
            yield HeldState(self.columns, version, batches)

    def __repr__(self) -> str:
        return f"Reader({self.columns.summary})"


@dataclass(frozen=True, eq=False, repr=False)
class HeldState:
    """An engine's open snapshot, and the version that its rows had when it was opened."""

    columns: Columns
    version: Hashable | None
    batches: Batches
    has_ended: list[bool] = field(default_factory=list)

    def check(self, engine: Engine) -> None:
        """Refuse rows of another state: files are read by their paths, whatever is there by now."""
        if self.has_ended:
            raise StateError(STATE_ENDED)
        if engine.version() != self.version:
            raise StateError(SOURCE_CHANGED)


@dataclass(frozen=True, eq=False, repr=False)
class OpenState:
    """The rows of an engine in one state."""

    engine: Engine
    names: tuple[str, ...]
    batches: Batches
    rules: Mapping[str, Cleaning]

    def read(self, needed: Sequence[str], work: Callable[[Rows], T], *, alike: bool = False) -> T:
        """What the work makes of the rows, by the fast reading or, where that fails, the safe one.

        With `alike` the work can do with one row in place of all that are like it (`Rows.alike`).

        Privacy: both readings agree, so no entry decides how others are read (`arrow`).
        """
        try:
            with self.opened(needed, alike=alike) as rows:
                return work(rows)
        except Exception:  # noqa: BLE001 - an entry that the fast reading gives up on
            pass
        with self.opened(needed, safe=True) as rows:
            return work(rows)

    @contextmanager
    def opened(
        self, needed: Sequence[str], *, safe: bool = False, alike: bool = False
    ) -> Iterator[Rows]:
        """The needed columns of the rows, readable until the block ends."""
        able = (each for each in (self.batches, self.engine) if isinstance(each, NativeRelation))
        native = None if safe else next(able, None)
        with connect(() if native is None else native.files) as connection:
            relation: Relation | None = None
            if native is not None:
                text = native.relation(connection, [self.names.index(name) for name in needed])
                relation = None if text is None else (text, None)
            if relation is None:
                relation = arrow_relation(self.batches, self.names, needed, safe=safe, alike=alike)
            yield Rows(connection, self.names, *relation, self.rules)


def _attempt(work: Callable[[], T]) -> tuple[T | None, str]:
    """What the work gives; or None and why, in words that hold no entry."""
    try:
        return work(), ""
    except StateError as error:
        return None, str(error)
    except Exception:  # noqa: BLE001 - an engine's words may hold an entry
        return None, UNCOUNTABLE


def _columns(engine: Engine) -> Columns:
    """The columns of an engine, whoever wrote it."""
    columns: Any = None
    try:
        columns = engine.columns()
    except PsephosError:
        raise
    except Exception:  # noqa: BLE001 - its words may hold an entry
        pass
    if isinstance(columns, Columns) and all(isinstance(name, str) for name in columns.names):
        return columns
    raise SourceError(  # outside the handler, so that it has no context
        f"the engine {type(engine).__name__} does not tell its columns; let its method columns() "
        "give Columns((name, ...))"
    )


def _cell_counts(rows: Rows, domain: Domain) -> CellCounts:
    """All cells of a small domain, added up by DuckDB."""
    number = "CAST(SUM(times) AS BIGINT)" if rows.alike else "COUNT(*)"
    text = rows.indices(domain, [domain.names], None)
    grouped = rows.run(f"SELECT i0, {number} AS times FROM ({text}) GROUP BY i0").fetchnumpy()
    counts = np.zeros(domain.size, dtype=np.int64)
    counts[grouped["i0"].astype(np.int64)] = grouped["times"]
    return CellCounts(domain, counts)


def _index_columns(rows: Rows, text: str, cap: Cap | None) -> Iterator[list[Array]]:
    """The columns of a query for indices, a batch at a time; under a cap of the rows that stay.

    Rows that are alike are written out. Under a cap a last column says where a person begins.
    """
    batches = rows.run(text).to_arrow_reader(INDEX_BATCH_ROWS)
    if cap is not None:
        yield from first_of_each(batches, cap.max_rows)
        return
    for batch in batches:
        columns = [column.to_numpy() for column in batch.columns]
        if rows.alike:
            yield from _written_out(columns[:-1], columns[-1])
        else:
            yield columns


def _written_out(columns: list[Array], times: Array) -> Iterator[list[Array]]:
    """Every row as often as it is there, so many at once that they fit in memory."""
    ends = np.cumsum(times)
    for start in range(0, int(ends[-1]) if len(ends) else 0, INDEX_BATCH_ROWS):
        inside = np.clip(ends, start, start + INDEX_BATCH_ROWS)
        repeats = np.diff(inside, prepend=start)
        yield [np.repeat(column, repeats) for column in columns]
