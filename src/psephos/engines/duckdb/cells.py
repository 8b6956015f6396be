"""From an entry of a column to its cell, as DuckDB expressions that no entry can make fail.

What an entry is, is decided by its text, so that a CSV and the Parquet file made of it count the
same. The text is read as the declared values are: whole numbers ("07" and "7.0" are 7, "7.5" is
none), numbers, truth values, dates (by day), times; text and values of mixed types match exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from psephos.domain.attribute import Attribute
from psephos.domain.values import is_run_of_days

INTEGER_KINDS = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
)
WORD = range(-(2**62), 2**62)


@dataclass(frozen=True)
class Lookup:
    """A small table from declared values (of one SQL type) to cells.

    `key` is what an entry's cleaning makes of a key v, so that both are spelled alike.
    """

    kind: str
    keys: tuple[Any, ...]
    cells: tuple[int, ...]
    key: str = "v"


@dataclass(frozen=True)
class CellSql:
    """Expressions for one column: the entry as a value and a number, and the cell it belongs to.

    `entry` is the column that is read: the source's own, or what `steps` of cleaning make of it.
    `match` and `cell` speak of the columns {alias}_r, the entry as the declared values are
    read, and {alias}_n, the entry as a number. The first is NULL where the entry is not of that
    kind, `match` where no declared value fits, `cell` where the row is dropped. `lookup`, if any,
    is joined as table `alias` on its column v; it holds every key once, so joining adds no rows.
    """

    alias: str
    entry: str
    value: str
    number: str
    match: str
    cell: str
    lookup: Lookup | None = None
    steps: tuple[str, ...] = ()

    @property
    def columns(self) -> str:
        return f"{self.value} AS {self.alias}_r, {self.number} AS {self.alias}_n"

    @property
    def join(self) -> str:
        on = f" LEFT JOIN {self.alias} ON {self.alias}.v = {self.alias}_r"
        return "" if self.lookup is None else on


def cell_sql(attribute: Attribute, column: str, kind: str, alias: str) -> CellSql:
    """The expressions for an attribute in a column of that type."""
    declared = attribute.declared
    is_run = isinstance(declared, range) and declared.step == 1
    # A range may be long, so it is not listed.
    values = declared if is_run else [v for v in declared if v is not None]
    match, lookup = f"{alias}.k", None
    value = number = _number(column, kind)
    missing = None if isinstance(declared, range) or None not in declared else declared.index(None)
    if attribute.edges is not None:
        match = _bin(f"{alias}_r", attribute.edges, attribute.unknown == "clip")
    else:
        target = value_kind([values[0], values[-1]] if is_run else values)
        value = _value(column, kind, target)
        low, high = (values[0], values[-1]) if target == "BIGINT" else (0, -1)
        if target == "BIGINT" and _is_run(declared[: len(values)], low, high):
            match = _distance_from(low, high, f"{alias}_r")
            if attribute.unknown == "clip":
                match = _clip(match, f"{alias}_n", low, high)
        elif target == "DATE" and is_run_of_days(declared[: len(values)]):
            first, last = (f"DATE '{day:%Y-%m-%d}'" for day in (values[0], values[-1]))
            day = f"{alias}_r"
            match = f"CASE WHEN {day} BETWEEN {first} AND {last} THEN {day} - {first} END"
        else:
            keys: dict[Any, int] = {}
            for i, each in enumerate(declared):
                if each is not None:
                    keys.setdefault(_key(each, target), i)
            lookup = Lookup(target, tuple(keys), tuple(keys.values()))
    if missing is not None:
        match = f"CASE WHEN {column} IS NULL THEN {missing} ELSE {match} END"
    cell = match if attribute.unknown != "other" else f"COALESCE({match}, {attribute.size - 1})"
    return CellSql(alias, column, value, number, match, cell, lookup)


def _is_run(values: Sequence[Any], low: int, high: int) -> bool:
    """Whether these are the whole numbers from low to high, in order."""
    if isinstance(values, range):
        return values == range(low, high + 1)
    return len(values) == high - low + 1 and list(values) == list(range(low, high + 1))


def value_kind(values: Sequence[Any]) -> str:
    """The DuckDB type by which these values match; text where they have no single one."""
    kinds = {type(value) for value in values}
    if kinds == {int}:
        return "BIGINT" if all(value in WORD for value in values) else "VARCHAR"
    if kinds == {datetime}:
        local = {value.tzinfo is None for value in values}
        return "VARCHAR" if len(local) > 1 else "TIMESTAMP" if local.pop() else "TIMESTAMPTZ"
    if kinds and kinds <= {int, float}:
        return "DOUBLE"
    single = {bool: "BOOLEAN", date: "DATE"}
    return single.get(kinds.pop(), "VARCHAR") if len(kinds) == 1 else "VARCHAR"


def flat(cells: Sequence[str], sizes: Sequence[int]) -> str:
    """The row-major index of a combination of cells."""
    index = "CAST(0 AS BIGINT)"
    for cell, size in zip(cells, sizes, strict=True):
        index = f"({index} * {size} + {cell})"
    return index


def text_of(column: str, kind: str) -> str:
    """The entry as text."""
    return column if kind == "VARCHAR" else f"CAST({column} AS VARCHAR)"


def _number(column: str, kind: str) -> str:
    """The entry as a DOUBLE; NaN is no number, and 1e400 is infinite."""
    if kind in INTEGER_KINDS:
        return f"CAST({column} AS DOUBLE)"
    number = column if kind == "DOUBLE" else f"TRY_CAST({text_of(column, kind)} AS DOUBLE)"
    return f"CASE WHEN NOT isnan({number}) THEN {number} END"


def _value(column: str, kind: str, target: str) -> str:
    """The entry as the target type of the declared values; NULL where it is not of that type."""
    if target == "DOUBLE":
        return _number(column, kind)
    if target == "BIGINT" and kind in INTEGER_KINDS:
        return f"CAST({column} AS BIGINT)"
    if target == kind:
        return column
    entry = column if target == "BIGINT" and kind == "DOUBLE" else text_of(column, kind)
    if target == "VARCHAR":
        return entry
    if target == "BOOLEAN":
        # Spelled out, because what a cast takes for true differs between versions.
        yes = f"lower({entry}) IN ('true', 't', '1')"
        no = f"lower({entry}) IN ('false', 'f', '0')"
        return f"CASE WHEN {yes} THEN TRUE WHEN {no} THEN FALSE END"
    value = f"TRY_CAST({entry} AS {target})"
    if target == "BIGINT":
        # A cast alone would round 7.5 to 8.
        is_whole = f"CAST({value} AS DOUBLE) = TRY_CAST({entry} AS DOUBLE)"
        return f"CASE WHEN {is_whole} THEN {value} END"
    return value


def _key(value: Any, target: str) -> Any:
    if target == "VARCHAR":
        return str(value)
    return float(value) if target == "DOUBLE" else value


def _distance_from(low: int, high: int, number: str) -> str:
    """The place of a whole number in the run from low to high."""
    # The difference is taken of a number in range, so it cannot overflow wherever it is evaluated.
    inside = f"least(greatest({number}, {_whole(low)}), {_whole(high)}) - {_whole(low)}"
    return f"CASE WHEN {number} BETWEEN {_whole(low)} AND {_whole(high)} THEN {inside} END"


def _clip(match: str, number: str, low: int, high: int) -> str:
    return (
        f"CASE WHEN {number} < {double(low)} THEN 0 "
        f"WHEN {number} > {double(high)} THEN {high - low} ELSE {match} END"
    )


def _bin(number: str, edges: tuple[float, ...], clip: bool) -> str:
    """A search tree over the edges: bin i holds edges[i] <= x < edges[i + 1]."""

    def between(first: int, last: int) -> str:
        if first == last:
            return str(first)
        middle = (first + last + 1) // 2
        below, above = between(first, middle - 1), between(middle, last)
        return f"CASE WHEN {number} < {double(edges[middle])} THEN {below} ELSE {above} END"

    tree = between(0, len(edges) - 2)
    inside = f"{number} >= {double(edges[0])} AND {number} < {double(edges[-1])}"
    return f"CASE WHEN {f'{number} IS NOT NULL' if clip else inside} THEN {tree} END"


def _whole(number: int) -> str:
    return f"CAST({number} AS BIGINT)"


def double(number: float) -> str:
    """A DOUBLE, written without loss."""
    return f"CAST('{float(number)!r}' AS DOUBLE)"


def quote(text: str) -> str:
    """Text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
