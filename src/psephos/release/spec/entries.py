"""The parts of a release file: what may be written in it, and what it means.

Each part is a frozen model that refuses unknown keys and checks what it holds; texts that no page,
chart or file could show are refused anywhere in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from psephos.domain.cleaning import Cleaning
from psephos.domain.domain import Domain, checked_edition
from psephos.errors import PsephosError, ReleaseError
from psephos.kernel.budget import Budget
from psephos.release.spec.budgets import BudgetEntry, LedgerEntry, PersonsEntry, PrivacyEntry
from psephos.release.spec.columns import AttributeEntry
from psephos.release.spec.entry_types import (
    FileEntry,
    Number,
    Scalar,
    each_once,
    refuse_unprintable,
    refused_at,
)
from psephos.release.spec.statistics import StatisticName, statistic_mistakes
from psephos.synthesis.method import SyntheticMethod

RESERVED_FOLDER = ".psephos"


def checked_bundle(path: str) -> str:
    """The path of the bundle, if its last part can name a folder."""
    name = path.rstrip("/").rpartition("/")[2]
    if name in ("", ".", "..", RESERVED_FOLDER) or len(name.encode()) > 200:
        raise ValueError('this is no name for a new folder; write bundle = "bundle"')
    return path


View = Literal["raw", "consistent", "published"]
PublishedMethod = Literal["entropy", "least squares"]
Format = Literal["csv", "parquet", "wide", "xlsx", "datapackage", "csvw", "jsonstat", "sdmx"]
TABLE_FORMATS = ("csv", "parquet")
"""Those that hold every view of every table; others are made from them."""
CSV_FORMATS = ("datapackage", "csvw")
"""Those that describe the CSV files."""


class TargetEntry(FileEntry):
    """How precise a table must be: "± 50 at 95 %", for each count or for all at once."""

    plus_minus: Number | None = Field(None, gt=0, description="half the width of the interval")
    relative: Number | None = Field(None, gt=0, description="as a share of `guess`")
    guess: Number | None = Field(None, gt=0, description="a public guess of a typical count")
    confidence: Number = Field(0.95, gt=0, lt=1)
    simultaneous: bool = Field(False, description="all counts of the table at once")

    def mistakes(self) -> Iterator[str]:
        if (self.plus_minus is None) == (self.relative is None):
            yield "give plus_minus = 50, or relative = 0.1 with guess = 500"
        if (self.relative is None) != (self.guess is None):
            yield (
                "relative accuracy needs a declared guess of the counts (guess = 500); the counts "
                "themselves are not looked at"
            )
        if self.half_width < 0.5:
            yield (
                f"within ± {self.half_width:g} a whole number is known exactly, which no private "
                "release can promise; ask for at least ± 0.5"
            )

    @property
    def half_width(self) -> float:
        """Half the width of the interval, in rows."""
        if self.plus_minus is not None:
            return float(self.plus_minus)
        return float(self.relative or 0) * float(self.guess or 0)


class TableEntry(FileEntry):
    """What one table asks: SQL, or rows, columns and breakdowns, or query sets, or a builder."""

    name: str = Field(min_length=1)
    title: str = ""
    sql: str | None = None
    dialect: str | None = None
    statistic: StatisticName | None = Field(
        None, description="instead of counts: of the numbers of an attribute, or shares"
    )
    of: str | None = Field(None, description="the attribute whose numbers a statistic is of")
    quantiles: tuple[Number, ...] = Field((), description="shares of rows, e.g. [0.25, 0.5, 0.75]")
    share_of: Literal["row", "column", "total"] | None = Field(
        None, description="of shares: what is 100 percent; the total if left out"
    )
    by: tuple[str, ...] = Field((), description="of a statistic: its groups, as rows are")
    rows: tuple[str, ...] = Field((), description="attributes, attribute.level or attribute.*")
    columns: tuple[str, ...] = ()
    breakdowns: tuple[str, ...] = ()
    totals: bool = Field(True, description="with rows and columns: their totals too")
    queries: dict[str, str] | None = Field(
        None, description='query sets by attribute: age = "prefix", sex = "identity"'
    )
    builder: Literal["marginals", "range_marginals", "sf1"] | None = None
    k: int | None = Field(None, ge=0, description="marginals of exactly k attributes")
    up_to: int | None = Field(None, ge=0, description="marginals of up to so many attributes")
    attributes: tuple[str, ...] | None = Field(None, description="the builder's attributes")
    weight: Number = Field(1, gt=0, description="twice the weight, about half the error")
    target: TargetEntry | None = None

    def mistakes(self) -> Iterator[str]:
        ways = {
            "sql": self.sql is not None,
            "rows/columns": bool(self.rows or self.columns or self.breakdowns),
            "queries": self.queries is not None,
            "builder": self.builder is not None,
        }
        choices = [name for name, used in ways.items() if used]
        if self.statistic is not None or self.of is not None or self.by:
            yield from statistic_mistakes(self, choices)
            return
        if self.quantiles or self.share_of is not None:
            yield 'quantiles and share_of go with a statistic: statistic = "quantiles"'
        if len(choices) != 1:
            yield (
                "a table is asked in one way, by sql, by rows and columns, by queries or by a "
                f"builder; got {' and '.join(choices) or 'none'}"
            )


class SelectionEntry(FileEntry):
    """How the strategy is selected."""

    strategy: str = Field("hdmm", description="hdmm, or a name in ps.select")
    restarts: int = Field(3, ge=1)
    seed: int = Field(0, ge=0)
    time_limit: Number | None = Field(
        60, gt=0, description="seconds, after which the best so far is taken"
    )
    effort: Number | None = Field(
        10,
        gt=0,
        description="how long to search: seconds of an ordinary core, counted, not measured",
    )
    error: Literal["absolute", "relative"] = Field(
        "absolute", description="what is made small: errors in rows, or beside a number's size"
    )


class MethodEntry(FileEntry):
    """By which plan tables are measured and estimated (`psephos plans` lists them)."""

    name: str = Field(
        "measure",
        min_length=1,
        description='"measure": the best strategy, errors known beforehand; "auto"; or a plan',
    )
    options: dict[str, Scalar] = Field(default={}, description="options of the plan, by name")


class OutputEntry(FileEntry):
    """The bundle: where it is written, with which views and formats."""

    bundle: Annotated[str, AfterValidator(checked_bundle)] = "bundle"
    views: Annotated[tuple[View, ...], AfterValidator(each_once)] = Field(
        ("raw", "consistent", "published"), min_length=1
    )
    formats: Annotated[tuple[Format, ...], AfterValidator(each_once)] = Field(
        ("csv", "parquet"), min_length=1
    )
    confidence: Number = Field(0.95, gt=0, lt=1)
    published: PublishedMethod | Literal["auto"] = Field(
        "auto", description="what the published view is rounded from"
    )
    consistency: Literal["l2", "l1", "linf"] = Field(
        "l2", description="in which norm consistent tables are nearest to the noisy numbers"
    )
    prior: Literal["independent", "stand_in"] = Field(
        "independent", description="what an entropy estimate is drawn towards"
    )

    @property
    def table_formats(self) -> tuple[Format, ...]:
        """The formats that hold every view of every table."""
        return tuple(kind for kind in self.formats if kind in TABLE_FORMATS)

    def mistakes(self) -> Iterator[str]:
        if not self.table_formats:
            yield (
                "formats: a bundle holds its tables as csv or parquet, which all other files are "
                f"made from; write formats = {_listing(('csv', *self.formats))}"
            )
        needing = [kind for kind in self.formats if kind in CSV_FORMATS]
        if needing and "csv" not in self.formats:
            yield (
                f"formats: {needing[0]} describes CSV files, and there are none; write formats = "
                f"{_listing(('csv', *self.formats))}"
            )
        others = [kind for kind in self.formats if kind not in (*TABLE_FORMATS, *CSV_FORMATS)]
        if others and self.views == ("raw",):
            yield (
                f"formats: {others[0]} shows consistent or published tables, and only raw ones are "
                'asked for; write views = ["raw", "consistent"]'
            )


def _listing(names: tuple[str, ...]) -> str:
    return f"[{', '.join(json.dumps(name) for name in names)}]"


class SyntheticEntry(FileEntry):
    """A table of made-up rows that answers like the published tables."""

    method: SyntheticMethod = Field(
        "auto", description="how the data are measured that rows are made up from"
    )
    rows: int | None = Field(
        None,
        ge=1,
        le=10**8,
        description="how many rows; as many as the published total if left out",
    )
    queries: int | None = Field(
        None, ge=1, le=10**7, description="the most queries that dual_query plays with"
    )


class CsvEntry(FileEntry):
    """A CSV file, and whether its entries may go on over several lines."""

    csv: str = Field(min_length=1, description="the file, beside this file")
    multiline: bool = Field(
        False,
        description="whether an entry in quotes may go on over several lines; one entry can then "
        "join lines of other people, and what is protected are rows as they are read",
    )


class DuckdbEntry(FileEntry):
    """A table or view of a DuckDB file."""

    duckdb: str = Field(min_length=1, description="the file, beside this file")
    table: str = Field(min_length=1, description="the table or view in it")
    # `schema` is also a method of pydantic's models
    namespace: str = Field("main", alias="schema", min_length=1, description="where the table is")


class SparkEntry(FileEntry):
    """A table or view of Spark."""

    spark: str = Field(min_length=1, description='the table or view, e.g. "census.people"')
    folder: str | None = Field(
        None, description="shared with Spark's executors, for a private copy; if Spark is elsewhere"
    )


def _kind_of_table(entry: Any) -> str:
    if isinstance(entry, SparkEntry) or (isinstance(entry, dict) and "spark" in entry):
        return "table of Spark"
    is_csv = isinstance(entry, CsvEntry) or (isinstance(entry, dict) and "csv" in entry)
    return "CSV file" if is_csv else "table of DuckDB"


SourceTable = Annotated[
    Annotated[CsvEntry, Tag("CSV file")]
    | Annotated[DuckdbEntry, Tag("table of DuckDB")]
    | Annotated[SparkEntry, Tag("table of Spark")],
    Discriminator(_kind_of_table),
]


class ReleaseFile(FileEntry):
    """A whole release."""

    name: str = Field(min_length=1, description="a short name; it is the ledger's key")
    title: str = ""
    description: str = ""
    publisher: str = Field("", description="who to cite")
    facts: tuple[str, ...] = Field((), description="public facts the release rests on")
    source: str | SourceTable | None = Field(
        None,
        description="a CSV or Parquet file beside this file, a folder or glob of Parquet files, "
        "a table of Postgres (postgresql://host/database/table), of a DuckDB file or of Spark",
    )
    edition: Annotated[str, AfterValidator(checked_edition)] = Field(
        "", description='which state of the data the source is, e.g. "2025"'
    )
    privacy: PrivacyEntry
    ledger: LedgerEntry
    budget: BudgetEntry | None = Field(None, description="leave it out if tables have targets")
    # `schema` is also a method of pydantic's models
    attributes: dict[str, AttributeEntry] = Field(alias="schema", min_length=1)
    by: tuple[str, ...] = Field(
        (),
        description="attributes and levels that cut the table into parts, from large to small, "
        'such as ["state", "county"]: every table is published for the whole and for every part',
    )
    builds_on: tuple[str, ...] = Field(
        (), description="bundles of the same data set, whose measurements count too"
    )
    ask_later: tuple[str, ...] = Field(
        (),
        description="attributes of which every value is measured by itself, for later questions; "
        "others by what the tables ask",
    )
    zeros: tuple[str, ...] = Field(
        (), description='conditions in SQL that no row can meet, e.g. "age < 12 AND married = 1"'
    )
    total: int | None = Field(
        None, ge=0, le=10**15, description="how many rows there are, if that number is public"
    )
    stand_in: str | None = Field(
        None, description="a public table of the same columns, such as an earlier year's"
    )
    stand_in_is_public: bool = Field(
        False, description="whether its counts were published, though they are the source's own"
    )
    tables: tuple[TableEntry, ...] = Field(min_length=1)
    persons: tuple[PersonsEntry, ...] = Field(
        (), description="tables that count persons, not rows; each with a budget of its own"
    )
    method: MethodEntry = Field(default_factory=lambda: MethodEntry.model_validate({}))
    selection: SelectionEntry = Field(default_factory=lambda: SelectionEntry.model_validate({}))
    synthetic: SyntheticEntry | None = Field(
        None, description="made-up rows beside the tables; leave it out for none"
    )
    output: OutputEntry = Field(default_factory=lambda: OutputEntry.model_validate({}))

    @model_validator(mode="before")
    @classmethod
    def _printable(cls, content: Any) -> Any:
        refuse_unprintable(content)
        return content

    def mistakes(self) -> Iterator[str]:
        from psephos.engines.postgres import PostgresUrl, is_database_url

        if isinstance(self.source, str) and is_database_url(self.source):
            try:
                PostgresUrl.of(self.source)
            except PsephosError as error:
                yield f"source: {error}"
        yield from self._name_mistakes()
        yield from self._budget_mistakes()
        yield from self._persons_mistakes()
        yield from self._output_mistakes()
        if self.synthetic is not None:
            yield from self._synthetic_mistakes(self.synthetic)

    def _budget_mistakes(self) -> Iterator[str]:
        """What may be spent is said once, and is not too much."""
        if self.budget is None and not any(table.target for table in self.tables):
            yield (
                'say what may be spent ([budget] epsilon = "1"), or how precise a table must be '
                "(target = { plus_minus = 50 }); there is no default"
            )
        if self.budget is not None and any(table.target for table in self.tables):
            yield (
                "there is a budget and there are targets; keep [budget] or the targets, the other "
                "follows"
            )
        if self.budget is not None:
            yield from self._price_mistakes(self.budget.budget(), "budget")

    def _persons_mistakes(self) -> Iterator[str]:
        """Tables of persons need to know who is one, and may not cost too much."""
        if self.persons and self.privacy.unit != "person":
            yield (
                "persons: the unit of privacy is a row, so nobody knows whose rows are whose; "
                'write [privacy] unit = "person", column = "id", max_rows = 3'
            )
        for each in self.persons:
            yield from self._price_mistakes(each.budget(), f"persons {each.name!r}")
        person = self.attributes.get(self.privacy.column or "")
        if person is not None and person.cleaning():
            yield (
                f"schema.{self.privacy.column}: it names the person of a row and is never cleaned, "
                "since who is one person was fixed with the unit of privacy; take trim, case, "
                "nulls, aliases and decimal out"
            )

    def _output_mistakes(self) -> Iterator[str]:
        """Views and plans that need something else than the file gives them."""
        if self.output.prior == "stand_in" and self.stand_in is None:
            yield (
                'output.prior: there is no stand-in; write stand_in = "2015.csv" at the top of the '
                "file, a public table of the same columns"
            )
        if self.output.consistency != "l2" and any(table.target for table in self.tables):
            yield (
                'output.consistency: only tables of least squares ("l2") have intervals, which '
                "targets are about"
            )
        if self.method.options and self.method.name in ("measure", "auto"):
            yield (f"method.options: {self.method.name!r} has none; they go with a plan's name")

    def _synthetic_mistakes(self, entry: SyntheticEntry) -> Iterator[str]:
        """Rows that could not be made up, before a ledger is made that cannot pay them."""
        if entry.method not in ("auto", "sample") and self.method.name != "measure":
            yield ("synthetic.method and method.name each name a plan; leave one of them out")
        if "published" not in self.output.views:
            yield (
                'synthetic: rows are made up from the published view; add "published" to '
                "output.views"
            )
        if entry.queries is not None and entry.method not in ("auto", "dual_query"):
            yield (
                f'synthetic.queries: "dual_query" alone plays with queries, and the method is '
                f"{entry.method!r}; leave them out"
            )
        if entry.method != "dual_query":
            return
        if self.ledger.budget().currency != "rho":
            yield (
                'synthetic.method: "dual_query" is paid in rho, and a ledger keeps its currency '
                "for life; give [ledger] in rho, and [budget] in rho or as epsilon with a delta"
            )
        if self.total is None:
            yield (
                'synthetic.method: "dual_query" needs the number of rows, which must be public: '
                "write total = 48842 at the top of the file"
            )

    def _price_mistakes(self, spend: Budget, place: str) -> Iterator[str]:
        """What no ledger of this size could ever pay is refused before anyone plans with it."""
        limit = self.ledger.budget()
        if spend.currency == "rho" and limit.currency == "epsilon":
            yield (
                f"{place}: a ledger that holds epsilon cannot pay rho; give it in epsilon, or a "
                "new data set a [ledger] in rho"
            )
        cost = spend.amount if spend.currency == limit.currency else spend.amount**2 / 2
        if cost > limit.amount:
            conversion = "" if spend.currency == limit.currency else f" (booked as rho {cost})"
            yield (
                f"{place}: {spend}{conversion} is more than the ledger will ever hold, {limit}; "
                "lower it"
            )

    def _name_mistakes(self) -> Iterator[str]:
        """Names that are one; some disks take "a.csv" and "A.csv" for one file, too."""
        names = [*(t.name for t in self.tables), *(t.name for t in self.persons)]
        folded = [name.casefold() for name in names]
        for i, name in enumerate(names):
            if name in names[:i]:
                yield (
                    f"two tables are called {name!r} (numbers {names.index(name) + 1} and "
                    f"{i + 1}); give each its own name"
                )
            other = names[folded.index(folded[i])]
            if other != name:
                yield (
                    f"two tables are called {other!r} and {name!r}, which differ only in upper and "
                    "lower case: their files would be one on some disks; rename one"
                )

    def cleaning(self) -> dict[str, Cleaning]:
        """How entries are cleaned, of the columns that have rules."""
        rules = {name: entry.cleaning() for name, entry in self.attributes.items()}
        return {name: rule for name, rule in rules.items() if rule}

    @property
    def units(self) -> dict[str, str]:
        """What the numbers of attributes are in, where that is said."""
        return {name: entry.unit for name, entry in self.attributes.items() if entry.unit}

    def domain(self) -> Domain:
        """The public schema."""
        drafts = [name for name, entry in self.attributes.items() if not entry.confirmed]
        if drafts:
            raise ReleaseError(
                f"schema: {', '.join(drafts)} {'is' if len(drafts) == 1 else 'are'} still a "
                "draft; write the values from public knowledge and remove `confirmed = false`"
            )
        attributes = {}
        for name, entry in self.attributes.items():
            with refused_at(f"schema.{name}"):
                attributes[name] = entry.attribute()
                entry.cleaning().check(attributes[name])
        return Domain.of(attributes)
