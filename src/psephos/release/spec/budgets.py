"""The unit of privacy, and every budget of a release file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal

from pydantic import Field

from psephos.kernel.budget import Budget, epsilon, epsilon_delta, rho
from psephos.kernel.unit import Change, Unit
from psephos.release.spec.entry_types import Amount, FileEntry


class PrivacyEntry(FileEntry):
    """The unit of privacy: whose presence the release must not reveal; there is no default."""

    unit: Literal["add_remove_row", "substitute_row", "person"]
    column: str | None = Field(None, description="for persons: the column that names them")
    max_rows: int | None = Field(None, description="for persons: the most rows of one that count")
    change: Change = Field(
        "add_remove", description="for persons: added or removed, or substituted"
    )

    def mistakes(self) -> Iterator[str]:
        complete = self.column is not None and self.max_rows is not None
        if self.unit == "person" and not complete:
            yield (
                "a person is protected through a column that names them and a cap on their rows: "
                'write column = "id" and max_rows = 3'
            )
        if self.unit != "person" and (self.column is not None or self.max_rows is not None):
            yield 'column and max_rows go with unit = "person"'

    def privacy_unit(self) -> Unit:
        """The unit of privacy."""
        if self.unit == "person":
            return Unit(self.change, self.column, self.max_rows or 0)
        return Unit("substitute" if self.unit == "substitute_row" else "add_remove")


class BudgetEntry(FileEntry):
    """An exact amount: epsilon, or rho, or epsilon with delta (which is kept as rho)."""

    epsilon: Amount | None = None
    rho: Amount | None = None
    delta: Amount | None = None

    def mistakes(self) -> Iterator[str]:
        if (self.epsilon is None) == (self.rho is None):
            yield 'give epsilon = "1", or rho = "1/200", or epsilon and delta'
        if self.rho is not None and self.delta is not None:
            yield "delta goes with epsilon; rho stands alone"
        self.budget()  # refused here, with its place, rather than later

    def budget(self) -> Budget:
        """The amount as a budget."""
        return _budget(self.epsilon, self.rho, self.delta)


class LedgerEntry(BudgetEntry):
    """Where the budget of the data set is kept, and how much it holds when it is made."""

    path: str
    dataset: str = Field(description="what the data set is called in the ledger")


class PersonsEntry(BudgetEntry):
    """A table that counts persons, each once in every cell that one of their rows lies in."""

    name: str = Field(min_length=1)
    title: str = ""
    rows: tuple[str, ...] = Field((), description="attributes or attribute.level; none: everyone")
    where: str = Field("", description="a condition in SQL on the rows that count")
    sql: str | None = Field(None, description="SELECT …, COUNT(DISTINCT person) … GROUP BY …")
    dialect: str | None = None

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if self.sql is not None and (self.rows or self.where):
            yield "a table of persons is asked by sql, or by rows and where; not both"


@cache
def _budget(eps: str | None, in_rho: str | None, delta: str | None) -> Budget:
    """The budget of amounts as written; cached, for a conversion takes a third of a second."""
    if in_rho is not None:
        return rho(in_rho)
    return epsilon(eps) if delta is None else epsilon_delta(eps, delta)
