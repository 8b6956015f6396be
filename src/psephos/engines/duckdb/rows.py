"""Rows as cell indices: the SQL that makes them, and the cap on the rows of a person.

Every reading opens a DuckDB of its own that can reach the files it counts, or nothing at all, and
keeps nothing on disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from psephos.domain.attribute import Attribute
from psephos.domain.cleaning import Cleaning
from psephos.domain.domain import Domain
from psephos.engines.columns import columns_of
from psephos.engines.duckdb.arrow import TIMES
from psephos.engines.duckdb.cells import INTEGER_KINDS, CellSql, cell_sql, flat, quote
from psephos.engines.duckdb.clean_text import cleaned_cell_sql
from psephos.kernel.unit import Cap
from psephos.values import Array

SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",  # rows are never spilled to disk
}


@contextmanager
def connect(files: Sequence[Path] = ()) -> Iterator[Any]:
    """A DuckDB in memory that can open these files and nothing else, until the block ends."""
    import duckdb

    connection = duckdb.connect(":memory:", config=dict(SETTINGS))
    try:
        connection.execute("SET TimeZone = 'UTC'")
        # Else long texts, 2 GB of them in a batch, would make it fail.
        connection.execute("SET arrow_large_buffer_size = true")
        connection.execute(f"SET disabled_optimizers = '{_harmful_optimizers(connection)}'")
        if files:
            paths = ", ".join(quote(str(path)) for path in files)
            connection.execute(f"SET allowed_paths = [{paths}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection
    finally:
        connection.close()


def _harmful_optimizers(connection: Any) -> str:
    """The optimizers to do without, of those that this DuckDB has.

    Two move a TRY_CAST into a CSV's reader, where a bad entry drops its row; one may build a
    join's hash table of the rows, for a CSV whose size it underrates, and not of the small table.
    """
    names = {name for (name,) in connection.execute("FROM duckdb_optimizers()").fetchall()}
    harmful = {"type_pushdown", "scalar_fn_pushdown", "build_side_probe_side"}
    return ", ".join(sorted(names & harmful))


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """An open connection to a source, which stands as `relation` behind FROM.

    Column i is called c{i} there, so that no name of the schema enters SQL text; whom it names as
    a person is p{i}, where that is more than the text can tell. `frame`, if any, gives what the
    relation reads of; it is asked for each query, because a reader can be read once.
    """

    connection: Any
    names: tuple[str, ...]
    relation: str
    frame: Callable[[], Any] | None = None
    rules: Mapping[str, Cleaning] = field(default_factory=dict)

    def run(self, text: str) -> Any:
        if self.frame is not None:
            self.connection.register("frame", self.frame())
        return self.connection.sql(text)

    @cached_property
    def kinds(self) -> dict[str, str]:
        """DuckDB's types of the columns."""
        described = self.run(f"DESCRIBE SELECT * FROM {self.relation}").fetchall()
        return {row[0]: row[1] for row in described}

    @property
    def alike(self) -> bool:
        """Whether a row stands for all that are like it, as many as its column `times` says."""
        return TIMES[0] in self.kinds

    def column(self, name: str) -> str:
        return f"c{self.names.index(name)}"

    def person(self, cap: Cap) -> str:
        """Whom a row is about; ids are told apart by their text, or its bytes."""
        column = self.column(cap.column)
        person = f"p{column[1:]}"
        column = person if person in self.kinds else column
        is_exact = self.kinds[column] in (*INTEGER_KINDS, "BLOB")
        return column if is_exact else f"CAST({column} AS VARCHAR)"

    def cell(self, name: str, attribute: Attribute, alias: str) -> CellSql:
        """The expressions of a column; its lookup table, if it has one, is made."""
        column, rule = self.column(name), self.rules.get(name)
        how = (attribute, column, self.kinds[column], alias)
        cell = cell_sql(*how) if rule is None else cleaned_cell_sql(rule, *how)
        if cell.lookup is not None:
            self.connection.execute(
                # Grouped, so that no row joins twice even if DuckDB holds two keys for equal.
                f"CREATE OR REPLACE TEMP TABLE {alias} AS SELECT {cell.lookup.key} AS v, MIN(k) "
                f"AS k FROM (SELECT UNNEST($keys::{cell.lookup.kind}[]) AS v, "
                "UNNEST($cells::BIGINT[]) AS k) GROUP BY 1",
                {"keys": list(cell.lookup.keys), "cells": list(cell.lookup.cells)},
            )
        return cell

    def entries(self, cells: Sequence[CellSql]) -> str:
        """The source with its entries read, joined to the lookup tables."""
        columns = ", ".join(["*", *(cell.columns for cell in cells)])
        joins = "".join(cell.join for cell in cells)
        relation = self.relation
        for steps in zip_longest(*(cell.steps for cell in cells)):
            named = [step for step in steps if step is not None]
            relation = f"(SELECT *, {', '.join(named)} FROM {relation})"
        return f"(SELECT {columns} FROM {relation}){joins}"

    def indices(self, domain: Domain, axes: list[tuple[str, ...]], cap: Cap | None) -> str:
        """A query for the rows that stay, as row-major indices in each group of attributes.

        Under a cap a last column names the person, and rows come in the order of `first_of_each`;
        where a row stands for several, a last column says for how many.
        """
        columns = list(columns_of(domain))
        cells = [self.cell(name, attribute, f"l{i}") for i, (name, attribute) in enumerate(columns)]
        leaves = [len(list(columns_of(domain.project([name])))) for name in domain.names]
        firsts = np.cumsum([0, *leaves])

        def index(names: tuple[str, ...]) -> str:
            starts = [(firsts[domain.axis(name)], leaves[domain.axis(name)]) for name in names]
            where = [first + i for first, count in starts for i in range(count)]
            return flat([f"k{i}" for i in where], [columns[i][1].size for i in where])

        cell_columns = ", ".join(f"{cell.cell} AS k{i}" for i, cell in enumerate(cells))
        person = f", {self.person(cap)} AS person" if cap else ""
        times = f", {TIMES[0]}" if self.alike else ""
        stay = " AND ".join(f"k{i} IS NOT NULL" for i in range(len(cells)))
        kinds = [_smallest(math.prod(domain[name].size for name in names)) for names in axes]
        indices = ", ".join(
            f"CAST({index(names)} AS {kind}) AS i{j}"
            for j, (names, kind) in enumerate(zip(axes, kinds, strict=True))
        )
        text = f"SELECT {cell_columns}{person}{times} FROM {self.entries(cells)}"
        if cap is None:
            return f"SELECT {indices}{times} FROM ({text}) WHERE {stay}"
        order = ", ".join(_words([attribute.size for _, attribute in columns]))
        return (
            f"SELECT {indices}, person FROM ({text}) WHERE {stay} AND person IS NOT NULL "
            f"ORDER BY person, {order}"
        )


def first_of_each(batches: Iterable[Any], most: int) -> Iterator[list[Array]]:
    """The first rows of each person, of rows ordered by person (the last column) and cell.

    In place of the person, a last column says where another one begins. A person's rows may go on
    in the next batch, so their number so far is carried along.
    """
    last, last_rows = None, 0
    for batch in batches:
        *columns, who = batch.columns
        if len(who) == 0:
            continue
        new = np.ones(len(who), dtype=bool)
        new[0] = who[0].as_py() != last
        new[1:] = pc.not_equal(who[1:], who[:-1]).to_numpy(zero_copy_only=False)
        starts = np.append(-last_rows, np.flatnonzero(new))
        place = np.arange(len(who)) - starts[np.cumsum(new)]
        last, last_rows = who[-1].as_py(), int(place[-1]) + 1
        stays = place < most
        yield [*(column.to_numpy()[stays] for column in columns), new[stays]]


def _smallest(size: int) -> str:
    """DuckDB's smallest type for the numbers below a size."""
    bits = (size - 1).bit_length()
    kinds = {8: "UTINYINT", 16: "USMALLINT", 32: "UINTEGER", 63: "BIGINT"}
    return next(kind for most, kind in kinds.items() if bits <= most)


def _words(sizes: list[int]) -> list[str]:
    """Cell indices packed, in order, into as few 62-bit words as hold them."""
    words: list[list[int]] = [[]]
    for i, size in enumerate(sizes):
        if math.prod(sizes[j] for j in words[-1]) * size >= 2**62:
            words.append([])
        words[-1].append(i)
    return [flat([f"k{i}" for i in word], [sizes[i] for i in word]) for word in words]
