"""The columns of a statement: which attribute, or which of its levels, a name stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

from sqlglot import exp

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.errors import SqlError, name_list
from psephos.workload.sql.refusals import refuse


@dataclass(frozen=True)
class ColumnSource:
    """What a column holds: an attribute's values, or the group labels of one of its levels."""

    name: str
    level: str | None = None


@dataclass(frozen=True)
class ColumnNames:
    """The names of columns that statements about a domain may use.

    Where a name fits several, an attribute goes before a level, the exact spelling before another
    case.

    >>> from psephos.domain import Attribute
    >>> age = Attribute.integers(0, 99).with_level("broad", [0, 18, 65])
    >>> ColumnNames(Domain.of(age=age)).sources("BROAD", quoted=False)
    [ColumnSource(name='age', level='broad')]
    """

    domain: Domain

    def sources(self, name: str, quoted: bool) -> list[ColumnSource]:
        """What the name may stand for: one source, none, or several that tie."""
        exact, any_case = self._spellings
        return exact.get(name) or ([] if quoted else any_case.get(name.casefold(), []))

    @cached_property
    def _spellings(self) -> tuple[dict[str, list[ColumnSource]], dict[str, list[ColumnSource]]]:
        """The sources of every name as it is spelled, and of every name in any case."""
        exact: dict[str, list[ColumnSource]] = {}
        any_case: dict[str, list[ColumnSource]] = {}
        for source in (*map(ColumnSource, self.domain), *self._levels()):
            for spellings, name in (
                (exact, _spelling(source)),
                (any_case, _spelling(source).casefold()),
            ):
                tied = spellings.setdefault(name, [])
                if not tied or (tied[0].level is None) == (source.level is None):
                    tied.append(source)
        return exact, any_case

    def resolve(self, column: exp.Column, sql: str, tables: frozenset[str]) -> ColumnSource:
        """The source of a column; `tables` are the names that may stand before its dot."""
        identifier = column.this
        if not isinstance(identifier, exp.Identifier):
            raise refuse("a star is not a column", sql, column, "the name of a column, or COUNT(*)")
        sources = self.sources(identifier.name, bool(identifier.args.get("quoted")))
        table = column.table
        if table and table.casefold() not in tables:
            # age.broad names a level of an attribute, which also tells apart levels that tie.
            sources = [s for s in self._levels() if s == ColumnSource(table, identifier.name)]
            if not sources:
                raise refuse(
                    f"no table {table!r} in FROM; have {name_list(sorted(tables))}",
                    sql,
                    column.args["table"],
                    identifier.name,
                )
        if not sources:
            raise self._unknown(identifier, sql)
        if len(sources) > 1:
            choices = " or ".join(
                f'"{s.name}"."{s.level}"' if s.level else f'"{s.name}"' for s in sources
            )
            raise refuse(
                f"{identifier.name!r} may stand for {len(sources)} columns", sql, column, choices
            )
        return sources[0]

    def attribute(self, source: ColumnSource) -> Attribute:
        return self.domain[source.name]

    def _levels(self) -> Iterator[ColumnSource]:
        for name, attribute in zip(self.domain.names, self.domain.attributes, strict=True):
            for level in attribute.levels:
                yield ColumnSource(name, level.name)

    def _unknown(self, identifier: exp.Identifier, sql: str) -> SqlError:
        name = identifier.name
        for merged, attribute in zip(self.domain.names, self.domain.attributes, strict=True):
            if name in (part for part, _ in attribute.parts):
                return refuse(
                    f"{name!r} is merged into {merged!r} in this domain",
                    sql,
                    identifier,
                    "the domain as it was before attributes were merged",
                )
        levels = [s.level for s in self._levels() if s.level]
        spellings = {n.casefold(): n for n in (*reversed(levels), *self.domain.names)}
        close = get_close_matches(name.casefold(), spellings, n=3)
        have = name_list(self.domain.names) + (f"; levels {name_list(levels)}" if levels else "")
        remedy = " or ".join(spellings[c] for c in close) if close else "one of these columns"
        compared = isinstance(identifier.find_ancestor(exp.EQ, exp.NEQ, exp.In), exp.Expression)
        if (identifier.args.get("quoted") or compared) and not close:
            remedy = f"'{name}' in single quotes if it is text, else one of these columns"
        return refuse(f"no column {name!r}; have {have}", sql, identifier, remedy)


def _spelling(source: ColumnSource) -> str:
    return source.level if source.level is not None else source.name
