"""Counts of cells over any engine: DuckDB turns rows into cell indices, numpy adds them up.

DuckDB is handed the columns that are needed and no others. Adding up in numpy takes a fraction of
the time and memory of grouping by millions of cells. A small table is read once for many counts
(`row_cache`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from psephos.domain.cleaning import Cleaning
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.engines.columns import column_problems, columns_of, needed_columns
from psephos.engines.duckdb.arrow import COLUMNS_CHANGED, Relation, arrow_relation
from psephos.engines.duckdb.row_cache import RowCache
from psephos.engines.duckdb.rows import Rows, connect, first_of_each
from psephos.engines.protocol import Batches, Columns, Engine, NativeRelation
from psephos.errors import DomainError, PsephosError, ShapeError, SourceError
from psephos.kernel.source import Cells, GroupedAxis, Names
from psephos.kernel.unit import Cap
from psephos.values import Array

GROUP_LIMIT = 2**14  # up to this many cells DuckDB adds up, beyond it numpy does
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
    """An engine, its columns when it was opened, how they are cleaned, perhaps its rows.

    With a `held` state all counts are of that state.
    """

    __slots__ = ("_caches", "_held", "_rules", "columns", "engine")

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
        self._rules = {name: rule for name, rule in (rules or {}).items() if rule}
        # What was counted last, and its rows: None after the first count, False if too many.
        self._caches: dict[Any, RowCache | Literal[False] | None] = {}

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
        self.check_rules(domain, cap)

    def check_rules(self, domain: Domain, cap: Cap | None) -> None:
        """Refuses rules that do not fit the declared values, and any for the column of persons.

        Privacy: who is one person is fixed with the unit; persons are told apart by their ids as
        they are written (tests/contracts/test_cleaning.py).
        """
        if cap is not None and cap.column in self._rules:
            raise DomainError(
                f"column {cap.column!r} names the person of a row and is never cleaned: who is one "
                "person was fixed with the unit of privacy; take its cleaning rules out"
            )
        for name, attribute in columns_of(domain) if self._rules else ():
            try:
                self._rules.get(name, Cleaning()).check(attribute)
            except DomainError as error:
                raise DomainError(f"cleaning of {name!r}: {error}") from None

    def count(
        self, domain: Domain, attributes: tuple[str, ...], keep: Cells, cap: Cap | None
    ) -> Array:
        """How many rows lie in each cell of some attributes, of those that all of `keep` allow."""
        return self.counts(domain, [attributes], keep, cap)[0]

    def counts(
        self, domain: Domain, tables: Sequence[Names], keep: Cells, cap: Cap | None
    ) -> list[Array]:
        """See `psephos.kernel.source.Source.counts`."""
        self.check_schema(domain, cap)
        check_masks(domain, keep)
        counts, trouble = _attempt(lambda: self._counts(domain, tables, keep, cap))
        if counts is None:  # told from a frame that holds no count, and without a context
            raise SourceError(trouble)
        sizes = {name: domain[name].size for name in {name for names in tables for name in names}}
        shapes = [tuple([sizes[name] for name in names]) for names in tables]
        return [table.reshape(shape) for table, shape in zip(counts, shapes, strict=True)]

    def _counts(
        self, domain: Domain, tables: Sequence[Names], keep: Cells, cap: Cap | None
    ) -> list[Array]:
        cache = self._row_cache(domain, cap, at_once=len(tables) > 1)
        if cache is not None:
            return cache.counts(tables, keep)

        def counted(rows: Rows) -> list[Array]:
            if len(tables) == 1:
                return [_add_up(rows, domain, tables[0], keep, cap)]
            return _add_up_all(rows, domain, tables, keep, cap)

        with self.snapshot() as snapshot:
            return snapshot.read(needed_columns(domain, cap), counted, alike=cap is None)

    def conjunctions(self, domain: Domain, q: Conjunctions, keep: Cells, cap: Cap | None) -> Array:
        """See `psephos.kernel.source.Source`."""
        self.check_schema(domain, cap)
        check_masks(domain, keep)
        q.check(domain)
        counts, trouble = _attempt(lambda: self._conjunctions(domain, q, keep, cap))
        if counts is None:  # as in `counts`
            raise SourceError(trouble)
        return counts

    def _conjunctions(
        self, domain: Domain, conjunctions: Conjunctions, keep: Cells, cap: Cap | None
    ) -> Array:
        cache = self._row_cache(domain, cap, at_once=True)
        if cache is not None:
            return cache.conjunctions(conjunctions, keep)

        def counted(rows: Rows) -> Array:
            return _add_up_conjunctions(rows, domain, conjunctions, keep, cap)

        with self.snapshot() as snapshot:
            return snapshot.read(needed_columns(domain, cap), counted, alike=cap is None)

    def persons(self, domain: Domain, axes: Sequence[GroupedAxis], keep: Cells, cap: Cap) -> Array:
        """See `psephos.kernel.source.PersonSource`."""
        self.check_schema(domain, cap)
        check_masks(domain, keep)
        counts, trouble = _attempt(lambda: self._persons(domain, axes, keep, cap))
        if counts is None:  # as in `counts`
            raise SourceError(trouble)
        return counts

    def _persons(self, domain: Domain, axes: Sequence[GroupedAxis], keep: Cells, cap: Cap) -> Array:
        with self.snapshot() as snapshot:
            return snapshot.read(
                needed_columns(domain, cap), lambda rows: _persons(rows, domain, axes, keep, cap)
            )

    def row_cells(self, domain: Domain, names: Names, keep: Cells, cap: Cap | None) -> Array:
        """See `psephos.kernel.source.RowSource`."""
        self.check_schema(domain, cap)
        check_masks(domain, keep)
        cells, trouble = _attempt(lambda: self._row_cells(domain, names, keep, cap))
        if cells is None:  # as in `counts`
            raise SourceError(trouble)
        return cells

    def _row_cells(self, domain: Domain, names: Names, keep: Cells, cap: Cap | None) -> Array:
        with self.snapshot() as snapshot:
            return snapshot.read(
                needed_columns(domain, cap),
                lambda rows: _row_cells(rows, domain, names, keep, cap),
                alike=cap is None,
            )

    def _row_cache(self, domain: Domain, cap: Cap | None, *, at_once: bool) -> RowCache | None:
        """All rows as cells, if they are few: at once, or from the second count of a table on."""
        held = self._held is not None
        version = None if held else self.engine.version()
        if version is None and not held:
            self._caches.clear()
            return None
        key = (domain, cap, version)
        known = key in self._caches
        if not known:
            self._caches.clear()
            self._caches[key] = None  # a table that is counted once is not kept
        if (known or at_once) and self._caches[key] is None:

            def cached(rows: Rows) -> RowCache | None:
                text = rows.indices(domain, [(name,) for name in domain.names], cap)
                return RowCache.of(domain, _index_columns(rows, text, cap))

            with self.snapshot() as snapshot:
                needed = needed_columns(domain, cap)
                cache = snapshot.read(needed, cached, alike=cap is None)
            self._caches[key] = cache or False
        return self._caches[key] or None

    def version(self) -> Hashable | None:
        """What tells the rows' state from others, of the state that is held; None: nothing does."""
        return self.engine.version() if self._held is None else self._held.version

    def state(self) -> Hashable | None:
        """What tells the rows' state from others, a held one from all; None: nothing does."""
        return self.engine.version() if self._held is None else self._held

    @contextmanager
    def in_one_state(self) -> Iterator[Reader]:
        """The same table as it is now: until the block ends, all counts see the same rows.

        Errors are the engine's own, for the owner; `registry.in_one_state` is for everybody.
        """
        if self._held is not None:
            yield self
            return
        with self._opened() as held:
            reader = Reader(self.engine, self._rules, held=held)
            try:
                yield reader
            finally:
                held.has_ended.append(True)
                reader._caches.clear()

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """The rows in one state, until the block ends; refused if there are other columns now.

        What is read and then turns out to have changed meanwhile is refused, too.
        """
        with ExitStack() as stack:
            held = stack.enter_context(self._opened()) if self._held is None else self._held
            held.check(self.engine)
            yield Snapshot(self.engine, self.columns.names, held.batches, self._rules)
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
class Snapshot:
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


def _add_up(
    rows: Rows, domain: Domain, attributes: tuple[str, ...], keep: Cells, cap: Cap | None
) -> Array:
    """The counts of all cells of some attributes, of the rows that all of `keep` allow."""
    counts = np.zeros(math.prod(domain[name].size for name in attributes), dtype=np.int64)
    axes = [attributes, *(conjunct.names for conjunct in keep)]
    few = math.prod([counts.size, *(c.mask.size for c in keep)]) <= GROUP_LIMIT
    weighted = cap is None and (few or rows.alike)
    masks = [np.ravel(conjunct.mask) for conjunct in keep]
    text = rows.indices(domain, axes, cap)
    if weighted and few:
        number = "CAST(SUM(times) AS BIGINT)" if rows.alike else "COUNT(*)"
        cells = ", ".join(f"i{j}" for j in range(len(axes)))
        text = f"SELECT {cells}, {number} AS times FROM ({text}) GROUP BY ALL"
    for index, *others in _index_columns(rows, text, cap, weighted=weighted):
        weight = others.pop() if weighted else np.broadcast_to(1, index.shape)
        for mask, cell in zip(masks, others, strict=True):
            weight = weight * mask[cell]
        np.add.at(counts, index, weight)
    return counts


def _add_up_all(
    rows: Rows, domain: Domain, tables: Sequence[Names], keep: Cells, cap: Cap | None
) -> list[Array]:
    """The same for several tables, in one reading of the rows."""
    used = {name for names in (*tables, *(c.names for c in keep)) for name in names}
    some = domain.project([name for name in domain.names if name in used] or domain.names[:1])
    text = rows.indices(domain, [(name,) for name in some.names], cap)
    no_rows = RowCache(some, tuple([np.zeros(0, dtype=np.int64)] * len(some.names)))
    sums = no_rows.counts(tables, keep)
    for columns in _index_columns(rows, text, cap):
        counts = RowCache(some, tuple(columns)).counts(tables, keep)
        for total, table in zip(sums, counts, strict=True):
            total += table
    return sums


def _add_up_conjunctions(
    rows: Rows, domain: Domain, conjunctions: Conjunctions, keep: Cells, cap: Cap | None
) -> Array:
    """In how many rows each conjunction holds, in one reading of the rows."""
    axes = {*conjunctions.attributes.reshape(-1).tolist(), *map(domain.axis, _masked(keep))} - {-1}
    some = domain.project([domain.names[axis] for axis in sorted(axes)] or domain.names[:1])
    text = rows.indices(domain, [(name,) for name in some.names], cap)
    projected = conjunctions.over(sorted(axes))
    totals = np.zeros(len(conjunctions), dtype=np.int64)
    for columns in _index_columns(rows, text, cap):
        totals += RowCache(some, tuple(columns)).conjunctions(projected, keep)
    return totals


def _persons(
    rows: Rows, domain: Domain, axes: Sequence[GroupedAxis], keep: Cells, cap: Cap
) -> Array:
    """How many persons have a row in each combination of groups, of rows that `keep` allows.

    A person's rows come one after the other, so only the last one of a batch may go on in the next.
    """
    shape = tuple(size for *_, size in axes)
    names: list[Names] = [(name,) for name, *_ in axes]
    names = names or [domain.names[:1]]  # a column to tell the number of rows by
    text = rows.indices(domain, [*names, *(conjunct.names for conjunct in keep)], cap)
    masks = [np.ravel(conjunct.mask) for conjunct in keep]
    counts = np.zeros(math.prod(shape), dtype=np.int64)
    last, last_cells = 0, np.zeros(0, dtype=np.int64)
    batches = rows.run(text).to_arrow_reader(INDEX_BATCH_ROWS)
    for columns, person in first_of_each(batches, cap.max_rows):
        cell = np.zeros(len(person), dtype=np.int64)
        for (_, groups, size), column in zip(axes, columns, strict=False):
            cell = cell * size + groups[column]
        inside = np.ones(len(person), dtype=bool)
        for mask, column in zip(masks, columns[len(names) :], strict=True):
            inside &= mask[column]
        whose = np.append(np.full(len(last_cells), last), person[inside])
        where = np.append(last_cells, cell[inside])
        order = np.lexsort((where, whose))
        whose, where = whose[order], where[order]
        first = np.append(True, (np.diff(whose) != 0) | (np.diff(where) != 0))[: len(whose)]
        counts += np.bincount(where[first], minlength=counts.size)
        counts -= np.bincount(last_cells, minlength=counts.size)
        if len(person):
            last = int(person[-1])
            last_cells = where[first & (whose == last)]
    return counts.reshape(shape)


def _row_cells(rows: Rows, domain: Domain, names: Names, keep: Cells, cap: Cap | None) -> Array:
    """The cell of some attributes that each row lies in, of rows that `keep` allows."""
    text = rows.indices(domain, [names, *(conjunct.names for conjunct in keep)], cap)
    masks = [np.ravel(conjunct.mask) for conjunct in keep]
    cells: list[Array] = []
    for index, *others in _index_columns(rows, text, cap):
        inside = np.ones(len(index), dtype=bool)
        for mask, cell in zip(masks, others, strict=True):
            inside &= mask[cell]
        cells.append(index.astype(np.int64) if inside.all() else index[inside].astype(np.int64))
    return np.concatenate(cells) if cells else np.zeros(0, dtype=np.int64)


def _masked(keep: Cells) -> set[str]:
    return {name for conjunct in keep for name in conjunct.names}


def check_masks(domain: Domain, keep: Cells) -> None:
    """Refuses masks of another shape than their attributes have."""
    for conjunct in keep:
        shape = tuple(domain[name].size for name in conjunct.names)
        if conjunct.mask.shape != shape:
            raise ShapeError(f"a mask over {conjunct.names} has shape {conjunct.mask.shape}")


def _index_columns(
    rows: Rows, text: str, cap: Cap | None, *, weighted: bool = False
) -> Iterator[list[Array]]:
    """The columns of a query for indices, a batch at a time; under a cap of the rows that stay.

    Rows that are alike are written out, unless the caller takes their number in a last column.
    """
    batches = rows.run(text).to_arrow_reader(INDEX_BATCH_ROWS)
    if cap is not None:
        yield from (columns for columns, _ in first_of_each(batches, cap.max_rows))
        return
    for batch in batches:
        columns = [column.to_numpy() for column in batch.columns]
        if rows.alike and not weighted:
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
