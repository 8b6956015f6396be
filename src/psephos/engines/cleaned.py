"""Sources with rules by which their entries are cleaned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psephos.domain.cleaning import Cleaning
from psephos.domain.domain import Domain
from psephos.engines.columns import columns_of
from psephos.errors import DomainError
from psephos.kernel.unit import Cap


@dataclass(frozen=True, eq=False, repr=False)
class CleanedSource:
    """A source whose entries are cleaned as they are read, column by column; see `cleaned`."""

    source: Any
    rules: Mapping[str, Cleaning]

    def __repr__(self) -> str:
        return f"CleanedSource({', '.join(self.rules)})"


def cleaned(source: Any, rules: Mapping[str, Cleaning]) -> CleanedSource:
    """The same table with cleaned entries: it goes wherever a source does.

    The ledger does not know by which rules a source was cleaned: where they change, say so with
    another edition.

    Args:
        source: a path to a CSV or Parquet file, a frame, an Arrow table, an engine
        rules: how the entries of a column are cleaned, by its name

    >>> import pyarrow as pa
    >>> from psephos.domain.domain import Domain
    >>> from psephos.engines.registry import as_source
    >>> table = pa.table({"status": ["Employed ", "EMP", "n/a"]})
    >>> rule = Cleaning(trim=True, case="lower", aliases={"employed": ["emp"]}, nulls=["n/a"])
    >>> domain = Domain.of(status=["employed", None])
    >>> as_source(cleaned(table, {"status": rule})).count(domain, ("status",), (), None)
    array([2, 1])
    """
    if isinstance(source, CleanedSource) or not isinstance(rules, Mapping):
        raise DomainError('a source is cleaned once: cleaned(source, {"column": Cleaning(...)})')
    strange = [name for name, rule in rules.items() if not isinstance(rule, Cleaning)]
    if strange:
        raise DomainError(f"the rule of {strange[0]!r} is written Cleaning(trim=True, ...)")
    return CleanedSource(source, dict(rules))


def check_rules(rules: Mapping[str, Cleaning], domain: Domain, cap: Cap | None) -> None:
    """Refuses rules that do not fit the declared values, and any for the column of persons.

    Privacy: who is one person is fixed with the unit; persons are told apart by their ids as
    they are written (tests/contracts/test_cleaning.py).
    """
    if cap is not None and cap.column in rules:
        raise DomainError(
            f"column {cap.column!r} names the person of a row and is never cleaned: who is one "
            "person was fixed with the unit of privacy; take its cleaning rules out"
        )
    for name, attribute in columns_of(domain):
        try:
            rules.get(name, Cleaning()).check(attribute)
        except DomainError as error:
            raise DomainError(f"cleaning of {name!r}: {error}") from None
