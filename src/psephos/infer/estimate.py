"""An estimate: what the measurements tell, ready to answer any workload they determine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import UnsupportedError
from psephos.inverse.form import Fitted, Form
from psephos.kernel.measurement import Measurement
from psephos.report.html import HtmlTable, notebook_html
from psephos.values import Array
from psephos.workload.workload import Workload, check_covered, check_domain


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Noisy measurements, combined; answering costs no budget."""

    domain: Domain
    form: Form
    fitted: Fitted
    measurements: tuple[Measurement, ...]

    def answer(self, workload: Workload) -> Answers:
        """The answers of a workload, with the standard error of each."""
        check_domain(workload, self.domain)
        check_covered(self.form, workload)
        products = [workload.factors(i) for i in range(len(workload.products))]
        values = np.concatenate([self.fitted.answers(factors) for factors in products])
        return Answers(workload, values, self.form, self.simulation)

    @property
    def simulation(self) -> bool:
        """Is any of it made up?"""
        return any(m.simulation for m in self.measurements)

    @property
    def vector(self) -> Array:
        """The estimate of every cell, where one is made."""
        found: Array | None = getattr(self.fitted, "vector", None)
        if found is None:
            raise UnsupportedError(
                "this estimate keeps tables, not cells; ask it with estimate.answer(workload)"
            )
        return found

    def __repr__(self) -> str:
        mark = "Simulated estimate" if self.simulation else "Estimate"
        count = sum(len(m.values) for m in self.measurements)
        return f"{mark}(from {count:,} noisy answers over {self.domain})"


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """Named answers with their standard errors, in the order of the workload's queries."""

    workload: Workload
    values: Array
    form: Form
    simulation: bool = False

    @cached_property
    def stderr(self) -> Array:
        """The standard deviation of the noise in every answer."""
        products = [self.workload.factors(i) for i in range(len(self.workload.products))]
        variances = np.concatenate([self.form.variances(factors) for factors in products])
        return np.asarray(np.sqrt(np.maximum(variances, 0)))

    def columns(self) -> dict[str, list[Any]]:
        """Labels, values and standard errors as columns of one table."""
        names = self.workload.domain.names
        table: dict[str, list[Any]] = {"table": []} | {name: [] for name in names}
        for i, asked in enumerate(self.workload.products):
            labels, count = self.workload.labels(i), self.workload.query_counts[i]
            table["table"] += [asked.title] * count
            for name in names:
                table[name] += labels.get(name, [""] * count)
        kept = {k: v for k, v in table.items() if k == "table" or any(v)}
        return kept | {"estimate": self.values.tolist(), "stderr": self.stderr.tolist()}

    def to_pandas(self) -> Any:
        """A pandas DataFrame: table, labels, estimate, stderr."""
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(self.columns())

    def to_polars(self) -> Any:
        """A Polars DataFrame: table, labels, estimate, stderr."""
        import polars as pl

        return pl.DataFrame(self.columns())

    def to_arrow(self) -> Any:
        """An Arrow table: table, labels, estimate, stderr."""
        import pyarrow as pa

        return pa.table(self.columns())

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        mark = "Simulated answers" if self.simulation else "Answers"
        return f"{mark}({len(self.values):,} of {self.workload})"

    def _repr_html_(self) -> str:
        rows = []
        for i in range(min(20, len(self.values))):
            title, labels = self.workload.label(i)
            query = ", ".join(f"{name}: {label}" for name, label in labels.items())
            rows.append([title, query, f"{self.values[i]:,.1f}", f"± {self.stderr[i]:,.1f}"])
        heads = ["table", "query", "estimate", "standard error"]
        return notebook_html(HtmlTable.of(repr(self), heads, rows))
