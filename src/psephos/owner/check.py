"""The owner's private comparison of a schema with the data; an analyst never sees its output.

It reads some columns at a time through the same reader that counts, so it works for every engine;
what only lines of text can get wrong is asked of engines that have such lines.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from psephos.domain.attribute import Attribute
from psephos.domain.cleaning import Cleaning
from psephos.domain.domain import Domain
from psephos.domain.values import Level
from psephos.engines.bit_matrix import BitMatrix, rows_given
from psephos.engines.cleaned import check_rules
from psephos.engines.columns import column_problems, columns_of, needed_columns
from psephos.engines.duckdb.cells import CellSql, double
from psephos.engines.duckdb.reader import Reader
from psephos.engines.duckdb.rows import Rows
from psephos.engines.files import CsvFile
from psephos.engines.registry import as_source
from psephos.errors import DomainError, name_list
from psephos.kernel.source import Cells
from psephos.kernel.unit import Cap
from psephos.owner.broken_lines import broken_lines
from psephos.owner.report import CheckReport, Mismatch, Severity
from psephos.owner.suggestions import suggestions

NO_ROW = Mismatch("rows", "none", "error", "no row is left to count")
COMMON_ENTRIES = 10
"""So many undeclared entries are listed, the most frequent ones."""
SUGGESTED_ENTRIES = 1000
"""For so many of them lines of a release file are suggested."""
LISTED_LINES = 10
"""Of so many broken lines the numbers are listed."""
COLUMNS_AT_ONCE = 32
"""So many columns are read through together: a line of text is parsed whole for any of them."""


def check(
    source: Any,
    domain: Domain,
    *,
    unit: Any = None,
    max_rows_total: int | None = None,
    left_out: Collection[str] = (),
    impossible: Sequence[tuple[str, Domain, Cells]] = (),
) -> CheckReport:
    """Everything about the data that the schema did not expect, at once.

    Args:
        source: what will be counted: an engine, or whatever an engine can be made of
        domain: the public schema
        unit: the unit of privacy, whose person column and cap are looked at too
        max_rows_total: the declared public bound on the number of rows
        left_out: columns whose undeclared entries are meant to be dropped
        impossible: what no row can be: in words, and as masks over a domain of the same columns
    """
    reader = as_source(source)
    cap = None if unit is None else unit.cap
    if isinstance(reader, BitMatrix):
        return _bits_report(reader, domain, cap, max_rows_total, impossible)
    problems = column_problems(reader.columns, needed_columns(domain, cap))
    findings = [Mismatch("columns", "columns", "error", problem) for problem in problems.values()]
    columns = {name: each for name, each in columns_of(domain) if name not in problems}
    person = None if cap is None or cap.column in problems else cap
    total = counted = None
    try:
        check_rules(reader.rules, domain, cap)
    except DomainError as error:
        findings.append(Mismatch("cleaning", "cleaning", "error", str(error)))
        return CheckReport(None, tuple(findings))
    try:
        with reader.in_one_state() as held:
            total, dropping, mismatches = _mismatches(
                held, columns, person, max_rows_total, left_out
            )
            findings += mismatches
            if not problems:
                counted = _counted(held, domain, dropping) if dropping else total
            if total and counted == 0:
                findings.append(NO_ROW)
            if counted:
                findings += _contradictions(held, impossible)
        return CheckReport(total, tuple(findings), counted)
    except Exception as error:  # noqa: BLE001 - the owner may read the engine's own words
        text = f"cannot be read through: {error}"
    findings.append(Mismatch("source", "unreadable", "error", text))
    return CheckReport(None, tuple(findings))


def _bits_report(
    matrix: BitMatrix,
    domain: Domain,
    cap: Cap | None,
    max_rows_total: int | None,
    impossible: Sequence[tuple[str, Domain, Cells]],
) -> CheckReport:
    """The report on a matrix of 0 and 1, whose columns have no names."""
    total, counted = rows_given(matrix), None
    findings: list[Mismatch] = []
    try:
        matrix.check_schema(domain, cap)
        counted = int(matrix.count(domain, (), (), None))
    except DomainError as error:
        findings.append(Mismatch("columns", "columns", "error", str(error)))
    if total is not None and max_rows_total is not None and total > max_rows_total:
        findings.append(_bound(total, max_rows_total))
    if counted is not None and total is not None and counted < total:
        text = f"{total - counted:,} rows with entries other than 0 and 1 are dropped"
        findings.append(Mismatch("matrix", "undeclared", "error", text))
    if total and counted == 0:
        findings.append(NO_ROW)
    if counted:
        findings += _contradictions(matrix, impossible)
    return CheckReport(total, tuple(findings), counted)


def _bound(total: int, most: int) -> Mismatch:
    text = f"{total:,} rows, over the declared bound of {most:,}"
    return Mismatch("rows", "bound", "error", text)


def _mismatches(
    reader: Reader,
    columns: dict[str, Attribute],
    cap: Cap | None,
    max_rows_total: int | None,
    left_out: Collection[str],
) -> tuple[int, set[str], list[Mismatch]]:
    """The number of rows, and what is not as declared in them, their lines and each column.

    Beside them, the columns that have an entry without a cell.
    """
    findings: list[Mismatch] = []
    dropping: set[str] = set()
    with reader.snapshot() as snapshot:
        (total,) = snapshot.read((), lambda rows: _row(rows, "COUNT(*)"))
        if max_rows_total is not None and total > max_rows_total:
            findings.append(_bound(total, max_rows_total))
        if isinstance(reader.engine, CsvFile):
            findings += _lines(reader.engine)
            if reader.engine.is_multiline:
                findings += snapshot.read(reader.columns.names, _joined)
        for first in range(0, len(columns), COLUMNS_AT_ONCE):
            some = list(columns)[first : first + COLUMNS_AT_ONCE]
            facts = snapshot.read(some, partial(_facts, {name: columns[name] for name in some}))
            for name, each in zip(some, facts, strict=True):
                attribute = columns[name]
                if each.dropped:
                    dropping.add(name)
                strange: list[tuple[str, int]] = []
                if each.undeclared:
                    strange = snapshot.read((name,), partial(_strange_entries, name, attribute))
                rule = snapshot.rules.get(name, Cleaning())
                findings += _column(name, attribute, name in left_out, each, strange, rule)
        for name, level in _levels_in_data(reader, columns):
            work = partial(_level, name, columns[name], level)
            findings += snapshot.read((name, level.name), work)
        if cap is not None:
            findings += snapshot.read((cap.column,), partial(_persons, cap))
    return total, dropping, findings


def _lines(file: CsvFile) -> Iterator[Mismatch]:
    """The lines that are no rows, by what is wrong with them."""
    numbers: dict[str, int] = {}
    first: dict[str, list[str]] = {}
    for number, trouble in broken_lines(file):
        numbers[trouble] = numbers.get(trouble, 0) + 1
        if numbers[trouble] <= LISTED_LINES:
            first.setdefault(trouble, []).append(f"{number:,}")
    for trouble, number in numbers.items():
        places = ", ".join(first[trouble]) + (" …" if number > LISTED_LINES else "")
        text = f"{number:,} lines {trouble} (line{'s' * (number > 1)} {places})"
        yield Mismatch("lines", "lines left out", "error", text)


def _joined(rows: Rows) -> list[Mismatch]:
    """Rows of several lines, where entries may have some."""
    breaks = " OR ".join(f"contains({rows.column(name)}, chr(10))" for name in rows.names)
    (number,) = _row(rows, f"COUNT(*) FILTER ({breaks})")
    text = f"{number:,} rows hold an entry of several lines; has a stray quote joined lines?"
    return [Mismatch("lines", "joined", "warning", text)] if number else []


def _counted(reader: Reader, domain: Domain, dropping: Collection[str]) -> int:
    """Of the rows, those whose entries all have a cell; only columns that drop some are read."""
    some = [
        name
        for name in domain.names
        if any(column in dropping for column, _ in columns_of(domain.project([name])))
    ]
    return int(reader.count(domain.project(some), (), (), None))


class ColumnFacts(NamedTuple):
    """Numbers of rows by what a column says in them, and the cells that are there."""

    missing: int
    filled: int
    unreadable: int
    undeclared: int
    below: int
    above: int
    dropped: int
    cells: list[int | None]


def _facts(columns: Mapping[str, Attribute], rows: Rows) -> list[ColumnFacts]:
    """What is to be known of each of some columns, from one reading of them."""
    expressions, cells = [], []
    for place, (name, attribute) in enumerate(columns.items()):
        cell = rows.cell(name, attribute, f"l{place}")
        column, (below, above) = cell.entry, _outside(attribute, f"{cell.alias}_n")
        expressions += [
            f"COUNT(*) FILTER ({column} IS NULL)",
            f"COUNT({column})",
            f"COUNT(*) FILTER ({cell.alias}_r IS NULL AND {column} IS NOT NULL)",
            f"COUNT(*) FILTER ({cell.match} IS NULL AND {column} IS NOT NULL)",
            f"COUNT(*) FILTER ({below})",
            f"COUNT(*) FILTER ({above})",
            f"COUNT(*) FILTER ({cell.cell} IS NULL)",
            f"LIST(DISTINCT {cell.cell})",
        ]
        cells.append(cell)
    (told,) = rows.run(f"SELECT {', '.join(expressions)} FROM {rows.entries(cells)}").fetchall()
    width = len(ColumnFacts._fields)
    parts = (told[start : start + width] for start in range(0, len(told), width))
    return [ColumnFacts._make([*numbers, there or []]) for *numbers, there in parts]


def _strange_entries(name: str, attribute: Attribute, rows: Rows) -> list[tuple[str, int]]:
    """Undeclared entries of a column and how often each is there, the most frequent ones first."""
    cell = rows.cell(name, attribute, "l")
    entry = f"CAST({rows.column(name)} AS VARCHAR)"
    where = f"WHERE {cell.match} IS NULL AND {cell.entry} IS NOT NULL"
    top: list[tuple[str, int]] = rows.run(
        f"SELECT {entry} AS entry, COUNT(*) AS n FROM {rows.entries([cell])} {where} "
        f"GROUP BY entry ORDER BY n DESC, entry LIMIT {SUGGESTED_ENTRIES}"
    ).fetchall()
    return top


def _column(
    name: str,
    attribute: Attribute,
    left_out: bool,
    facts: ColumnFacts,
    strange: list[tuple[str, int]],
    rule: Cleaning,
) -> list[Mismatch]:
    """What is undeclared, missing, out of range or absent in a column."""
    findings = []
    if facts.filled and facts.unreadable == facts.filled:
        text = f"no entry can be read as the declared values are ({attribute.some_values()})"
        findings.append(Mismatch(name, "type", "error", text))
    if facts.undeclared:
        level, text = _undeclared(attribute, facts.undeclared, left_out)
        common = tuple(strange[:COMMON_ENTRIES])
        findings.append(Mismatch(name, "undeclared", level, text, common))
        findings += suggestions(name, attribute, rule, strange)
    if facts.missing:
        findings.append(_missing(name, attribute, facts.missing, facts.filled))
    findings += _range(name, attribute, facts)
    return findings + _absent(name, attribute, facts)


def _undeclared(attribute: Attribute, number: int, left_out: bool) -> tuple[Severity, str]:
    """Losing entries that nobody spoke of is an error; losing them on purpose is not."""
    text = f"{number:,} rows with undeclared entries"
    if attribute.unknown == "other":
        return "note", f"{text} go to the cell (other)"
    if left_out:
        return "warning", f"{text} are dropped, as the schema says"
    remedy = 'declare them, or write unknown = "other" to keep them, or unknown = "drop" if they '
    return "error", f"{text} are dropped ({remedy}are to be left out)"


def _missing(name: str, attribute: Attribute, missing: int, filled: int) -> Mismatch:
    if None in attribute.declared:
        return Mismatch(name, "missing", "note", f"{missing:,} missing entries have their own cell")
    if attribute.unknown == "other":
        text = f"{missing:,} missing entries go to the cell (other)"
        return Mismatch(name, "missing", "note", text)
    keep = 'missing = "not stated" or unknown = "other"'
    text = f"{missing:,} rows with missing entries are dropped (to keep them write {keep})"
    return Mismatch(name, "missing", "warning" if filled else "error", text)


def _ends(attribute: Attribute) -> tuple[Any, Any]:
    """The least and the largest of the declared numbers."""
    if attribute.edges is not None:
        return attribute.edges[0], attribute.edges[-1]
    values = [value for value in attribute.declared if value is not None]
    return min(values), max(values)


def _outside(attribute: Attribute, number: str) -> tuple[str, str]:
    """Whether a number is below or above all declared ones, in SQL."""
    if not attribute.is_numeric:
        return "FALSE", "FALSE"
    low, high = _ends(attribute)
    above = ">" if attribute.edges is None else ">="
    return f"{number} < {double(low)}", f"{number} {above} {double(high)}"


def _range(name: str, attribute: Attribute, facts: ColumnFacts) -> list[Mismatch]:
    """Numbers outside the declared ones; those that clipping does not keep are undeclared too."""
    if not facts.below and not facts.above:
        return []
    low, high = _ends(attribute)
    sides = [(facts.below, "below", low), (facts.above, "above", high)]
    known = [f"{number:,} {side} {end}" for number, side, end in sides if math.isfinite(end)]
    text = " and ".join(known).replace(" ", " numbers ", 1)
    clipped = " are clipped" if attribute.unknown == "clip" else ""
    return [Mismatch(name, "range", "note", text + clipped)]


def _absent(name: str, attribute: Attribute, facts: ColumnFacts) -> list[Mismatch]:
    """Declared values that no row has; no fault, but often a typing error."""
    absent = sorted(set(range(attribute.size)) - set(facts.cells))
    if not absent:
        return []
    labels = name_list(attribute.label(i) for i in absent)
    return [Mismatch(name, "absent", "note", f"declared and never there: {labels}")]


def _levels_in_data(reader: Reader, columns: dict[str, Attribute]) -> Iterator[tuple[str, Level]]:
    """Levels whose groups the data tell, too: in a column of that name that nobody declared."""
    for name, attribute in columns.items():
        for level in attribute.levels:
            there = level.name in reader.columns.names and level.name not in columns
            if there and not column_problems(reader.columns, (level.name,)):
                yield name, level


def _level(name: str, attribute: Attribute, level: Level, rows: Rows) -> list[Mismatch]:
    """Rows whose group in the data is not the one that the schema declares for their value."""
    cell = rows.cell(name, attribute, "l")
    group = rows.cell(level.name, Attribute.categories(level.labels), "g")
    both = f"{cell.match} IS NOT NULL AND {cell.entry} IS NOT NULL AND {group.entry} IS NOT NULL"
    combined = rows.run(
        f"SELECT {cell.match}, COALESCE({group.match}, -1), COUNT(*) "
        f"FROM {rows.entries([cell, group])} WHERE {both} GROUP BY ALL"
    ).fetchall()
    compared = sum(number for *_, number in combined)
    strange = sum(number for _, place, number in combined if place < 0)
    other = sum(n for value, place, n in combined if 0 <= place != level.groups[value])
    if compared and compared == strange:
        text = f"no entry of column {level.name!r} is a declared {level.name}, so that level and "
        return [Mismatch(name, "level", "note", f"{text}column were not compared")]
    if not strange and not other:
        return []
    text = (
        f"{other:,} rows lie in another {level.name} by column {level.name!r} than the schema says "
        f"of their {name}, and {strange:,} in one that is not declared; they are counted by {name}"
    )
    return [Mismatch(name, "level", "warning", text)]


def _persons(cap: Cap, rows: Rows) -> list[Mismatch]:
    column = rows.column(cap.column)
    people = f"SELECT COUNT(*) AS n FROM {rows.relation} WHERE {column} IS NOT NULL GROUP BY "
    people += rows.person(cap)
    findings = []
    nobody, somebody = _row(rows, f"COUNT(*) FILTER ({column} IS NULL), COUNT({column})")
    if nobody:
        text = (
            f"{nobody:,} rows without an id are dropped (give them ids of their own to keep them)"
        )
        findings.append(Mismatch(cap.column, "missing", "warning" if somebody else "error", text))
    many, over = rows.run(
        f"SELECT COUNT(*), SUM(n - {cap.max_rows}) FROM ({people}) WHERE n > {cap.max_rows}"
    ).fetchall()[0]
    if many:
        text = f"{many:,} persons have more than {cap.max_rows} rows; up to {over:,} rows are cut"
        findings.append(Mismatch(cap.column, "cap", "warning", text))
    return findings


def _contradictions(
    reader: Reader | BitMatrix, impossible: Sequence[tuple[str, Domain, Cells]]
) -> Iterator[Mismatch]:
    for words, domain, masks in impossible:
        rows = int(reader.count(domain, (), masks, None))
        if rows:
            text = f"{rows:,} rows contradict it; they will be published as 0"
            yield Mismatch(words, "zeros", "error", text)


def _row(rows: Rows, expressions: str, cell: CellSql | None = None) -> tuple[int, ...]:
    entries = rows.relation if cell is None else rows.entries([cell])
    row: tuple[int, ...] = rows.run(f"SELECT {expressions} FROM {entries}").fetchall()[0]
    return row
