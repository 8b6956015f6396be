"""An estimate: what the measurements tell, ready to answer workloads free of charge.

`Estimate` is a protocol: least squares is one, and so is anything else that answers workloads from
noisy numbers alone. `Answers` is what each of them returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import WorkloadError, name_list
from psephos.report.chart import Chart
from psephos.report.html import HtmlTable, notebook_html
from psephos.values import Array
from psephos.workload.workload import Workload

SHOWN_ANSWERS = 20
"""Rows of answers that a notebook shows."""


@runtime_checkable
class Estimate(Protocol):
    """Noisy measurements, combined; answering costs no budget."""

    @property
    def domain(self) -> Domain:
        """The domain that was measured."""

    @property
    def simulation(self) -> bool:
        """Is any of it made up?"""

    @property
    def biased(self) -> bool:
        """Do answers differ from the truth on average over the noise?"""

    def answer(self, workload: Workload) -> Answers:
        """The answers of a workload over this domain, with standard errors where they are known."""


@runtime_checkable
class VectorEstimate(Protocol):
    """An estimate of every cell."""

    @property
    def vector(self) -> Array:
        """The cells, in row-major order."""


def cells_of(estimate: object) -> Array | None:
    """An estimate's vector of all cells; None if it has none."""
    return estimate.vector if isinstance(estimate, VectorEstimate) else None


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """Named answers, in the order of the workload's queries.

    `variances` gives the variance of the noise in every answer of a workload, and is asked for it
    once standard errors are; None where an estimate knows none.
    """

    workload: Workload
    values: Array
    variances: Callable[[Workload], Array] | None = None
    biased: bool = False
    simulation: bool = False

    @cached_property
    def stderr(self) -> Array | None:
        """The standard deviation of the noise in every answer; None where it is not known."""
        if self.variances is None:
            return None
        return np.asarray(np.sqrt(np.maximum(self.variances(self.workload), 0)))

    def tables(self) -> dict[str, Answers]:
        """The answers of each table by itself, by the table's title.

        Products of one title are one table.
        """
        places: dict[str, list[int]] = {}
        for i, product in enumerate(self.workload.products):
            places.setdefault(product.title, []).append(i)
        return {title: self._part(indices) for title, indices in places.items()}

    def _part(self, products: list[int]) -> Answers:
        ends = np.cumsum([0, *self.workload.query_counts])
        parts = [self.values[ends[i] : ends[i + 1]] for i in products]
        some = Workload(self.workload.domain, [self.workload.products[i] for i in products])
        return replace(self, workload=some, values=np.concatenate(parts))

    def __getitem__(self, title: str) -> Answers:
        """The answers of one table, by its title."""
        tables = self.tables()
        if not isinstance(title, str) or title not in tables:
            close = get_close_matches(str(title), list(tables), n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"have {name_list(tables)}"
            raise WorkloadError(f"no table {title!r} in these answers; {remedy}")
        return tables[title]

    def plot(self, title: str | None = None) -> Chart:
        """A chart of one table, or of all of them one below the other: notebooks show it.

        Bars, lines and bands are those of a release's report; intervals are two standard errors to
        each side, about 95 %.
        """
        import pyarrow as pa

        from psephos.report.cross_table import PART
        from psephos.report.table_charts import table_chart

        if title is not None:
            return self[title].plot()
        columns = self.columns()
        titles = columns.pop("table")
        several = {PART: titles} if len(set(titles)) > 1 else {}
        counts, errors = columns.pop("estimate"), columns.pop("stderr", None)
        numbers = {"count": counts}
        if errors is not None:
            pairs = list(zip(counts, errors, strict=True))
            numbers |= {"stderr": errors, "low": [x - 2 * e for x, e in pairs]}
            numbers |= {"high": [x + 2 * e for x, e in pairs]}
        words = "Answers" if several else titles[0]
        ordered = [n for n in columns if self.workload.domain[n].is_numeric]
        table = pa.table({**several, **columns, **numbers})
        return table_chart(
            table.filter(pa.array(self._in_order(columns, ordered), pa.bool_())),
            f"Simulated: {words}" if self.simulation else words,
            ordered=ordered,
            confidence="about 95 %",
        )

    def _in_order(self, columns: dict[str, list[Any]], ordered: list[str]) -> list[bool]:
        """Of every row: has it a place on a curve, as missing and undeclared entries have not?"""
        apart: dict[str, set[str]] = {}
        for name in ordered:
            attribute = self.workload.domain[name]
            apart[name] = {attribute.label(cell) for cell in attribute.apart}
        each = range(len(self))
        return [all(columns[name][i] not in words for name, words in apart.items()) for i in each]

    def columns(self) -> dict[str, list[Any]]:
        """Labels, values and, where they are known, standard errors as columns of one table."""
        names = self.workload.domain.names
        labels: dict[str, list[str]] = {name: [] for name in ("table", *names)}
        for i, product in enumerate(self.workload.products):
            words, count = self.workload.labels(i), self.workload.query_counts[i]
            labels["table"] += [product.title] * count
            for name in names:
                labels[name] += words.get(name, [""] * count)
        columns: dict[str, list[Any]] = {k: v for k, v in labels.items() if k == "table" or any(v)}
        columns["estimate"] = self.values.tolist()
        if self.stderr is not None:
            columns["stderr"] = self.stderr.tolist()
        return columns

    def to_pandas(self) -> Any:
        """A pandas DataFrame: table, labels, estimate, stderr if known."""
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(self.columns())

    def to_polars(self) -> Any:
        """A Polars DataFrame: table, labels, estimate, stderr if known."""
        import polars as pl

        return pl.DataFrame(self.columns())

    def to_arrow(self) -> Any:
        """An Arrow table: table, labels, estimate, stderr if known."""
        import pyarrow as pa

        return pa.table(self.columns())

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        kind = "biased answers" if self.biased else "answers"
        mark = f"Simulated {kind}" if self.simulation else kind.capitalize()
        return f"{mark}({len(self.values):,} of {self.workload})"

    def _error(self, i: int) -> str:
        """The standard error of one answer as text, empty where it is not known."""
        return "" if self.stderr is None else f"± {self.stderr[i]:,.1f}"

    def _repr_html_(self) -> str:
        rows = []
        for i in range(min(SHOWN_ANSWERS, len(self.values))):
            title, labels = self.workload.label(i)
            query = ", ".join(f"{name}: {label}" for name, label in labels.items())
            rows.append([title, query, f"{self.values[i]:,.1f}", self._error(i)])
        heads = ["table", "query", "estimate", "standard error"]
        return notebook_html(HtmlTable.of(repr(self), heads, rows))


@dataclass(frozen=True, eq=False, repr=False)
class CellEstimate:
    """An estimate of every cell, also of what no measurement tells apart: biased by that.

    Answers carry no standard errors, since those of the noise alone would leave the bias out.
    """

    domain: Domain
    vector: Array
    method: str
    """By which the cells were found, in a word."""
    simulation: bool = False
    biased: ClassVar[bool] = True

    def answer(self, workload: Workload) -> Answers:
        """The answers W x of a workload; their standard errors are not known."""
        return answers_of_cells(self, self.vector, workload)

    def __repr__(self) -> str:
        words = f"{self.method} estimate({self.vector.size:,} cells over {self.domain})"
        return f"Simulated {words}" if self.simulation else words[0].upper() + words[1:]


def answers_of_cells(estimate: Estimate, vector: Array, workload: Workload) -> Answers:
    """The answers W x of a biased estimate x of all cells; their standard errors are not known."""
    Workload.require(workload, estimate.domain, same_cells=True)
    krons = [workload.kron(i) for i in range(len(workload.products))]
    values = np.concatenate([kron @ vector for kron in krons])
    return Answers(workload, values, biased=True, simulation=estimate.simulation)
