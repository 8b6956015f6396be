"""Handles to data that the client never sees.

A handle says what may be done, not what is there: it transforms (free), and it measures and chooses
(charged). Every charge is computed from the one amount that enters, is durable before noise is
drawn, and is written down with what was asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from psephos.attribute import Attribute
from psephos.domain import Domain
from psephos.errors import RefusedError, ShapeError, TooLargeError
from psephos.frozen import Array
from psephos.kernel.budget import Budget
from psephos.kernel.lineage import Node
from psephos.kernel.measurement import Measurement
from psephos.kernel.query import Query
from psephos.kernel.sensitivity import admit, answers, stability
from psephos.kernel.source import Conjunct
from psephos.kernel.vault import Grouped, Vault, digest
from psephos.matrix import Compose, Kron, Matrix, Ones, Partition, Sparse, total
from psephos.predicate import Predicate

CELLS_LIMIT = 10**9


class _Handle:
    """What no handle does: show, list, compare or travel."""

    def _closed(self, *_: Any, **__: Any) -> NoReturn:
        raise RefusedError(
            "a handle to protected data has no content to show; measure it: "
            "handle.vectorise().measure(query, spend=...)"
        )

    __array__ = __iter__ = __len__ = __bool__ = __getitem__ = __contains__ = _closed
    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = _closed
    __float__ = __int__ = __index__ = __lt__ = __gt__ = __le__ = __ge__ = _closed
    __array_ufunc__ = None


@dataclass(frozen=True, eq=False, repr=False)
class ProtectedTable(_Handle):
    """A table behind the kernel; made by `protect` or `simulate`."""

    domain: Domain
    _vault: Vault
    _node: Node
    _keep: tuple[Conjunct, ...] = ()

    def where(self, condition: Predicate) -> ProtectedTable:
        """The rows that satisfy a condition on declared values.

        Privacy: whether a row stays is decided by the row alone, so stability is 1
        (tests/kernel/test_protected.py::test_filters_have_stability_one).
        """
        if not isinstance(condition, Predicate):
            raise RefusedError(
                f"where takes a condition such as col('age') >= 18, got "
                f"{type(condition).__name__}; text is never evaluated"
            )
        kept = []
        for part in condition.conjuncts():
            names = tuple(name for name in self.domain.names if name in part.columns)
            kept.append(Conjunct(names, part.mask(self.domain)))
        return self._step(f"where {digest(kept)}", (*self._keep, *kept))

    def keep(self, *names: str) -> ProtectedTable:
        """Some of the columns. Privacy: rows stay rows, so stability is 1."""
        domain = self.domain.project(names)
        return ProtectedTable(domain, self._vault, self._node.step(f"keep {names}"), self._keep)

    def split(self, name: str) -> dict[str, ProtectedTable]:
        """One table for each value of an attribute, without that attribute.

        Privacy: a row lies in exactly one part, so spending s on every part costs s
        (tests/kernel/test_lineage.py::test_parts_of_a_split_cost_their_maximum).
        """
        attribute = self.domain[name]
        rest = [other for other in self.domain.names if other != name] or [name]
        domain = self.domain.project(rest)
        branch = self._node.split(f"split {name}")
        parts = {}
        for i in range(attribute.size):
            mask = np.arange(attribute.size) == i
            kept = (*self._keep, Conjunct((name,), mask))
            parts[attribute.label(i)] = ProtectedTable(
                domain, self._vault, branch.step(f"part {i}"), kept
            )
        return parts

    def group_by(self, *names: str, most: int, count: str = "count") -> ProtectedTable:
        """One row for each declared combination of the named attributes, with its row count.

        The result has the attributes named and one more, called `count`, with values 0 to `most`;
        larger counts are cut to `most`.

        Privacy: one row more or less changes the count of one group: one row of the result leaves
        and another comes, so stability is 2 (tests/kernel/test_protected.py::test_group_by).
        """
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise RefusedError(f"most is the largest count kept, a whole number, got {most!r}")
        if count in names:
            raise RefusedError(f"{count!r} is grouped by; give the new attribute another name")
        grouped = self.domain.project(names)
        _check_cells(grouped.size * (most + 1))
        source = Grouped(self._vault, names, self._keep, grouped.shape, most)
        domain = Domain.of(
            {
                **dict(zip(names, grouped.attributes, strict=True)),
                count: Attribute.integers(0, most),
            }
        )
        node = self._node.step(f"group by {names} up to {most} as {count!r}", 2)
        return ProtectedTable(domain, self._vault.over(source, domain), node)

    def vectorise(self) -> ProtectedVector:
        """The vector of cell counts; nothing is counted before the first charge."""
        return ProtectedVector(
            self.domain, self.domain.size, self._vault, self._node.step("vectorise"), self._keep
        )

    def noisy_count(self, *, spend: Budget, key: str | None = None) -> Measurement:
        """The number of rows, with noise."""
        return self.vectorise().noisy_count(spend=spend, key=key)

    def _step(self, name: str, keep: tuple[Conjunct, ...]) -> ProtectedTable:
        return ProtectedTable(self.domain, self._vault, self._node.step(name), keep)

    def __repr__(self) -> str:
        return f"ProtectedTable({self.domain}; {self._vault.state()})"


@dataclass(frozen=True, eq=False, repr=False)
class ProtectedVector(_Handle):
    """A vector of counts behind the kernel: the cells of `domain`, or a linear map of them."""

    domain: Domain
    size: int
    _vault: Vault
    _node: Node
    _keep: tuple[Conjunct, ...]
    _map: Matrix | None = None

    def transform(self, matrix: Matrix) -> ProtectedVector:
        """The vector after a linear map with integer entries.

        Privacy: a row moves the result by a column of the matrix, so the largest L1 column is the
        stability (tests/kernel/test_protected.py::test_scaled_masks_cost_their_scale).
        """
        own = self._fitting(matrix)
        return self._mapped(
            own, self._node.step(f"transform {digest(own)}", max(1, stability(own)))
        )

    def reduce(self, partition: Partition) -> ProtectedVector:
        """Sums over groups of cells. Privacy: a cell lies in one group, so stability is 1."""
        if type(partition) is not Partition:
            raise RefusedError(f"reduce takes a Partition, got {type(partition).__name__}")
        return self.transform(partition)

    def split(self, partition: Partition) -> list[ProtectedVector]:
        """One vector for each group of cells. Privacy: as for tables, parts cost their maximum."""
        if type(partition) is not Partition:
            raise RefusedError(f"split takes a Partition, got {type(partition).__name__}")
        own = Partition(partition.groups)  # a copy, as everything that the kernel keeps
        self._fitting(own)
        branch = self._node.split(f"split {digest(own)}")
        parts = []
        for g in range(own.shape[0]):
            cells = np.flatnonzero(own.groups == g)
            ones = np.ones(cells.size, dtype=np.int8)
            at = (np.arange(cells.size), cells)
            pick = Sparse(sp.csr_array((ones, at), shape=(cells.size, self.size)))
            parts.append(self._mapped(pick, branch.step(f"part {g}")))
        return parts

    def measure(
        self, query: Query | Matrix, *, spend: Budget, key: str | None = None
    ) -> Measurement:
        """Answers with exact integer noise, at a cost of `spend` for the whole data set.

        Privacy: with e = spend per unit of distance here (`Unit.per_distance`), block j gets
        discrete Laplace noise of scale Δ₁/(w_j e), or for rho discrete Gaussian noise of variance
        Δ₂²/(2 w_j e): Σ_j w_j|move_j|·e/Δ₁ ≤ e per row, and Σ_j w_j move_j²·e/Δ₂² ≤ e
        (tests/kernel/test_audit.py).
        """
        asked = Query.of(query) if isinstance(query, Matrix) else query
        return self._vault.measure(self, asked, spend, key)

    def noisy_count(self, *, spend: Budget, key: str | None = None) -> Measurement:
        """The sum of the vector, with noise."""
        return self.measure(total(self.size), spend=spend, key=key)

    def choose(
        self,
        queries: Matrix,
        estimate: Sequence[int] | Array,
        *,
        spend: Budget,
        key: str | None = None,
    ) -> int:
        """The number of a query that an estimate answers badly, by the exponential mechanism.

        The score of query i is |W_i x - W_i estimate|; the estimate is a vector of whole numbers.

        Privacy: a row moves every score by at most max |W_ij|, the rule in `sensitivity`; see
        `choose` for the mechanism (tests/kernel/test_choose.py).
        """
        return self._vault.choose(self, self._fitting(queries), np.asarray(estimate), spend, key)

    def _fitting(self, matrix: Matrix) -> Matrix:
        own = admit(matrix)
        if own.shape[1] != self.size:
            raise ShapeError(
                f"the vector has {self.size:,} cells, the matrix {own.shape[1]:,} columns"
            )
        return own

    def _check_size(self, query: Query) -> None:
        """Refuse what would not fit before anything is charged; sizes are public."""
        _check_cells(max(query.shape[0], *(self._cells(b.matrix) for b in query.blocks)))

    def _cells(self, matrix: Matrix) -> int:
        asked = None if self._map is not None else _attributes(self.domain, matrix)
        names = self.domain.names if asked is None else asked
        return math.prod(self.domain[name].size for name in names)

    def _mapped(self, matrix: Matrix, node: Node) -> ProtectedVector:
        whole = matrix if self._map is None else matrix @ self._map
        return ProtectedVector(self.domain, matrix.shape[0], self._vault, node, self._keep, whole)

    def _answers(self, matrix: Matrix) -> Array:
        """Exact answers; only the vault asks for them, after the charge."""
        if self._map is None:
            return _direct(self, matrix)
        x = self._vault.counts(self.domain.names, self._keep)
        parts = self._map.parts if isinstance(self._map, Compose) else (self._map,)
        for part in reversed(parts):
            x = answers(part, x)
        return answers(matrix, x)

    def __repr__(self) -> str:
        return f"ProtectedVector({self.size:,} cells of {self.domain}; {self._vault.state()})"


def _check_cells(needed: int) -> None:
    if needed > CELLS_LIMIT:
        raise TooLargeError(
            f"this needs {needed:,} numbers at once, over the limit of {CELLS_LIMIT:,}; "
            "ask about fewer attributes in each block (marginals), or keep fewer columns first",
            needed,
            CELLS_LIMIT,
        )


def _direct(vector: ProtectedVector, matrix: Matrix) -> Array:
    """Answers from the smallest counts that decide them: attributes summed over are not counted."""
    asked = _attributes(vector.domain, matrix)
    if asked is None or not isinstance(matrix, Kron):
        return answers(matrix, vector._vault.counts(vector.domain.names, vector._keep))
    x = vector._vault.counts(asked, vector._keep)
    if not asked:
        return x.reshape(1)
    factors = [matrix.factors[vector.domain.axis(name)] for name in asked]
    return answers(Kron(tuple(factors)), x)


def _attributes(domain: Domain, matrix: Matrix) -> tuple[str, ...] | None:
    """The attributes that a product does not sum over; None if the matrix is no such product."""
    if not isinstance(matrix, Kron) or tuple(f.shape[1] for f in matrix.factors) != domain.shape:
        return None
    pairs = zip(domain.names, matrix.factors, strict=True)
    return tuple(name for name, f in pairs if not (isinstance(f, Ones) and f.m == 1))
