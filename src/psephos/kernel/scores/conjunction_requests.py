"""Requests about conjunctions of values, for hundreds of thousands of attributes: DualQuery's.

Counts of single values are a table of one attribute beside another, which no product of matrices
could name: `measure` takes one block for each, and each names all others. Rounds of a game draw
queries that its records undercount (`dual_query`).

Privacy: a row has one value of each of k attributes, so one row more or less moves k counts of
values by one each: Δ₁ = k and Δ₂² = k, whatever the number of values
(tests/kernel/test_value_counts.py). For draws see `dual_query`.
"""

from __future__ import annotations

from fractions import Fraction
from operator import add
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.errors import BudgetError, RefusedError
from psephos.kernel import gate, sensitivity
from psephos.kernel.budget import Budget
from psephos.kernel.closed_handle import ClosedHandle
from psephos.kernel.measurement import noise_law
from psephos.kernel.scores.dual_query import MOST_DRAWN_FROM, UndercountedQueries, whole_copy
from psephos.kernel.vault import Vault, masks_of
from psephos.values import Array

_last_games: WeakKeyDictionary[Vault, tuple[Domain, UndercountedQueries, str]] = WeakKeyDictionary()
"""Of each vault the last round: the next one shares its queries and, but for one, its records."""


def count_values(
    vector: ClosedHandle, attributes: ArrayLike, spend: Budget, key: str | None
) -> Array:
    """See `ProtectedVector.count_values`."""
    vault, node = vector._vault, vector._node
    queries, number = value_queries(attributes, vector._domain)
    spend, price = vault.priced(spend, "noise")
    law = noise_law(
        Fraction(number), vault.unit.per_distance(spend, node.stability), spend.currency
    )
    name = gate.fingerprint(queries.attributes, queries.values)

    def draw() -> Array:
        true = _counts(vector, queries, name)
        return sensitivity.exactly(add, true, vault.draws.noise(law, true.size))

    mark = gate.fingerprint("count values", node.path, name, spend)
    _, values = vault.request(node, mark, price, key, "count values", draw)
    if values.shape != (len(queries),):
        raise RefusedError(f"what is stored is not {len(queries):,} counts of values")
    return values


def draw_queries(
    vector: ClosedHandle, game: UndercountedQueries, spend: Budget, key: str | None
) -> Array:
    """See `ProtectedVector.draw_queries`."""
    if type(game) is not UndercountedQueries:
        known = UndercountedQueries.__name__
        raise RefusedError(f"no rule to draw queries by {type(game).__name__}; have {known}")
    vault, node = vector._vault, vector._node
    admitted, name = _admitted_game(vault, game, vector._domain)
    spend, price = vault.priced(spend, UndercountedQueries.mechanism, admitted.draws)
    if spend.currency != "epsilon":
        raise BudgetError(f"private draws are paid in epsilon, got {spend}")
    each = vault.unit.per_moved_row(spend, node.stability, rowwise=node.rowwise)

    def draw() -> Array:
        return admitted.draw(_counts(vector, admitted.queries, name), each, vault.draws)

    mark = gate.fingerprint("draw queries", node.path, name, *admitted.parts, spend)
    _, result = vault.request(node, mark, price, key, "draw queries", draw)
    admitted.check_drawn(result)
    return result


def _counts(vector: ClosedHandle, queries: Conjunctions, name: str) -> Array:
    """In how many rows each conjunction holds; counted once, for all rounds of a game.

    Conjunctions number the attributes of the vector, which may be some of the table's.
    """
    vault, names, keep = vector._vault, vector._domain.names, vector._keep
    axes = [vault.domain.axis(each) for each in names]
    here = queries if names == vault.domain.names else queries.renumbered(axes)
    place = names, name, masks_of(keep)
    return vault.latest(place, lambda: [vault.table().conjunctions(here, keep)])[0]


def _admitted_game(
    vault: Vault, game: UndercountedQueries, domain: Domain
) -> tuple[UndercountedQueries, str]:
    """A round of a game by the kernel's own parts, and a name for its queries.

    Queries of the last round are compared, not checked and hashed anew, and of the records only the
    newest is counted.
    """
    schema, last, name = _last_games.get(vault, (None, None, ""))
    earlier = last._tally if last is not None and schema == domain else None
    admitted = UndercountedQueries.admitted(game, domain, earlier)
    queries = admitted.queries
    if earlier is None or queries is not earlier.conjunctions:
        name = gate.fingerprint(queries.attributes, queries.values)
    _last_games[vault] = domain, admitted, name
    return admitted, name


def value_queries(attributes: ArrayLike, domain: Domain) -> tuple[Conjunctions, int]:
    """A conjunction for each value of these attributes, by their numbers, and how many these are.

    >>> queries, attributes = value_queries([0, 2], Domain.of(sex=2, age=100, smokes=3))
    >>> queries.attributes.ravel().tolist(), queries.values.ravel().tolist(), attributes
    ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2], 2)
    """
    axes = whole_copy(attributes)
    if axes.ndim != 1 or not axes.size or axes[0] < 0 or (np.diff(axes) <= 0).any():
        raise RefusedError("attributes are named by their numbers, each once, in rising order")
    if axes[-1] >= len(domain):
        raise RefusedError(f"there is no attribute {axes[-1]:,}; the last is {len(domain) - 1:,}")
    sizes = np.array(domain.shape)[axes]
    values = sum(sizes.tolist())
    if values > MOST_DRAWN_FROM:
        raise RefusedError(f"{values:,} values are over the limit of {MOST_DRAWN_FROM:,}")
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    codes = np.arange(values, dtype=np.int64) - starts
    return Conjunctions(np.repeat(axes, sizes)[:, None], codes[:, None]), axes.size
