"""Opening data behind a ledger."""

from __future__ import annotations

import os
from typing import Any

from psephos.domain.domain import Domain, checked_edition
from psephos.engines import as_source
from psephos.engines.columns import columns_of
from psephos.errors import DomainError, RefusedError, SourceError
from psephos.kernel import gate
from psephos.kernel.ledger import Ledger
from psephos.kernel.lineage import Node, root_name
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.snapshot import Snapshot
from psephos.kernel.vault import Vault


def protect(
    source: Any,
    domain: Domain,
    *,
    ledger: Ledger | str | os.PathLike[str],
    edition: str = "",
    folder: str | os.PathLike[str] | None = None,
) -> ProtectedTable:
    """A handle to sensitive data; every look at it is charged to the ledger.

    The rows are taken once, when something is first drawn from them: all that is asked of the
    handle is asked of that one table, whatever becomes of the source.

    Args:
        source: a path to a CSV or Parquet file, a folder or glob of Parquet files, the URL of a
            table of Postgres, a pandas or Polars frame, a DataFrame of Spark, an Arrow table or
            dataset, an engine (`psephos.engines`: `DuckdbTable`, `ConnectedTable`, …), or for
            attributes that are 0 or 1 a matrix with a column for each (numpy, scipy.sparse, or
            `psephos.engines.BitMatrix`)
        domain: the public schema; values outside it go where it says
        ledger: an existing ledger or its path; a missing one is refused, so that a mistyped
            path never mints a fresh budget
        edition: which state of the data this is, such as "2025"; what was measured on different
            editions is never combined, and all of them share the ledger's budget
        folder: where the rows are kept, as numbers of cells in files without a name, if not in
            memory; a folder that is the owner's alone
    """
    check_domain(domain)
    edition = checked_edition(edition)
    if folder is not None and not os.path.isdir(folder):
        raise SourceError("the folder for the rows is not there; make it first")
    schema: Domain = gate.admit(domain, "domain")
    if isinstance(ledger, Ledger):
        ledger.verify()  # it knows how far it had come when it was opened
    # The kernel's own, from the file: what an object says of its budget proves nothing.
    book = Ledger.open(ledger.path if isinstance(ledger, Ledger) else ledger)
    book.verify()
    table = as_source(source)
    table.check_schema(schema, book.unit.cap)
    vault = Vault(Snapshot(table, schema, book.unit.cap, folder), schema, book, Draws())
    return ProtectedTable(schema, vault, Node(root_name(vault.schema, edition)))


def protect_again(table: ProtectedTable, domain: Domain, *, edition: str = "") -> ProtectedTable:
    """A second handle to the rows of a first, under a domain of the same columns.

    Some columns may be merged there, or in another order: the rows are the same, taken once.
    """
    schema: Domain = gate.admit(domain, "domain")
    if type(table) is not ProtectedTable or table._node.parent is not None:
        raise RefusedError("the second handle is made of the first as it was opened, not of a part")
    vault = table._vault
    if vault.domain != schema:
        plain = not any(attribute.parts for attribute in vault.domain.attributes)
        same = set(columns_of(vault.domain)) == set(columns_of(schema))
        if not plain or not same or "row_cells" not in vault.row_abilities:
            raise DomainError("the rows of a handle are looked at under domains of their columns")
        rows = vault
        vault = rows.over(schema, lambda: rows.table().over(schema))
        vault.row_abilities = rows.row_abilities
    return ProtectedTable(schema, vault, Node(root_name(vault.schema, checked_edition(edition))))


def check_domain(domain: Domain) -> None:
    """Refuse what is no schema."""
    if not isinstance(domain, Domain):
        raise DomainError(f"a Domain is needed, got {type(domain).__name__}; write Domain.of(...)")
