"""Requests that choose by a private search: admitted, priced, charged, then drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from psephos.errors import BudgetError, RefusedError
from psephos.kernel import gate
from psephos.kernel.budget import Budget
from psephos.kernel.lineage import Node
from psephos.kernel.query import Query
from psephos.kernel.scores import PrivateSearch
from psephos.kernel.vault import Vault
from psephos.matrix import Matrix
from psephos.values import Array


class SearchedVector(Protocol):
    """What a search needs of the handle to a vector."""

    _vault: Vault
    _node: Node

    @property
    def size(self) -> int:
        """How many counts."""

    def _check(self, query: Query) -> None:
        """Refuse what would not fit."""

    def _answers(self, matrices: Sequence[Matrix]) -> list[Array]:
        """Exact answers, after the charge."""


def draw(
    vector: SearchedVector,
    search: Any,
    kinds: Sequence[type[PrivateSearch]],
    label: str,
    spend: Budget,
    key: str | None,
) -> Array:
    """What a search of one of these kinds draws; see `ProtectedVector.choose`."""
    if not any(type(search) is kind for kind in kinds):  # == is for its metaclass to answer
        names = ", ".join(kind.__name__ for kind in kinds)
        raise RefusedError(f"no rule to {label} by {type(search).__name__}; have {names}")
    vault, node = vector._vault, vector._node
    spend, price = vault.priced(spend, type(search).mechanism)
    if spend.currency != "epsilon":
        raise BudgetError(f"private searches are paid in epsilon, got {spend}")
    # By its type: an instance may hold something else under that name.
    admitted: PrivateSearch = type(search).admitted(search, vector.size)
    tables = admitted.tables(vector.size)
    vector._check(Query.of([(table, 1) for table in tables]))
    each = vault.unit.per_distance(spend, node.stability)

    def result() -> Array:
        return admitted.draw(vector._answers(tables), each, vault.draws)

    mark = gate.fingerprint(label, node.path, *admitted.parts, spend)
    return vault.request(node, mark, price, key, label, result)[1]
