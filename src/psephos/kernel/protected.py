"""Handles to data that the client never sees.

A handle says what may be done, not what is there: it transforms (free), and it measures and chooses
(charged). Every charge is computed from the one amount that enters, is durable before noise is
drawn, and is written down with what was asked.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from operator import add

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from psephos.domain.domain import Domain
from psephos.domain.predicate import Predicate
from psephos.errors import RefusedError, ShapeError
from psephos.kernel import gate, grouped_tables, sensitivity
from psephos.kernel.budget import Budget
from psephos.kernel.closed_handle import ClosedHandle, attribute_names, check_cells
from psephos.kernel.lineage import Node
from psephos.kernel.measurement import Measurement, noise_for, request_fingerprint
from psephos.kernel.noise import Noise
from psephos.kernel.parts.handle import ProtectedParts
from psephos.kernel.query import Query
from psephos.kernel.scores import (
    PARTITIONS,
    SCORES,
    PrivateSearch,
    Score,
    UndercountedQueries,
    conjunction_requests,
    search_requests,
)
from psephos.kernel.source import Cells, Conjunct, Names
from psephos.kernel.vault import Vault
from psephos.matrix import Identity, Kron, Matrix, Partition, Sparse, is_total, total
from psephos.matrix.combine import compose
from psephos.values import Array

PORTION = 1 << 22
"""Blocks are answered together up to this many answers."""


class ProtectedTable(ClosedHandle):
    """A table behind the kernel; made by `protect` or `simulate`."""

    __slots__ = ()

    def where(self, condition: Predicate) -> ProtectedTable:
        """The rows that satisfy a condition on declared values.

        Privacy: whether a row stays is decided by the row alone, so stability is 1
        (tests/kernel/test_protected.py::test_filters_have_stability_one).
        """
        masks = gate.admit(condition, "predicate").masks(self._domain)
        node = self._node.step(f"where {gate.fingerprint(*masks)}")
        keep = (*self._keep, *(Conjunct(names, mask) for names, mask in masks))
        return ProtectedTable(self._domain, self._vault, node, keep)

    def keep(self, *names: str) -> ProtectedTable:
        """Some of the columns. Privacy: rows stay rows, so stability is 1."""
        names = attribute_names(names)
        node = self._node.step(f"keep {names}")
        return ProtectedTable(self._domain.project(names), self._vault, node, self._keep)

    def coarsen(self, **partitions: Partition) -> ProtectedTable:
        """The table with attributes by groups of their values: `coarsen(age=Partition([0, 0, 1]))`.

        Rows are counted by groups, so that no vector of the cells before is made.

        Privacy: which group a row lies in is decided by the row alone and by public numbers, so
        stability is 1. A person's rows in different cells may come to lie in one: tables of persons
        are made of rows by groups, never the other way round (tests/kernel/test_coarsen.py).
        """
        rows, keep = self._vault, self._keep
        if partitions and "row_cells" not in rows.row_abilities:
            raise RefusedError("groups are counted in rows; coarsen before group_by and persons")
        if not all(type(partition) is Partition for partition in partitions.values()):
            raise RefusedError("coarsen takes a Partition for each attribute")
        names = attribute_names(tuple(partitions))
        admitted = [(name, gate.admit(partitions[name], "matrix")) for name in names]
        groups = {self._domain.names[self._domain.axis(n)]: p.groups for n, p in admitted}
        domain = self._domain.coarsen(groups)
        vault = rows.over(domain, lambda: rows.table().coarsen(domain, groups, keep))
        vault.row_abilities = rows.row_abilities
        return ProtectedTable(domain, vault, self._node.step(coarsen_step(admitted)))

    def split(self, name: str) -> dict[str, ProtectedTable]:
        """One table for each value of an attribute, without that attribute.

        Privacy: a row lies in exactly one part, so spending s on every part costs s
        (tests/kernel/test_lineage.py::test_parts_of_a_split_cost_their_maximum).
        """
        (name,) = attribute_names((name,))
        attribute = self._domain[name]
        check_cells(attribute.size**2)  # a mask for each part
        rest = [other for other in self._domain.names if other != name] or [name]
        domain = self._domain.project(rest)
        branch = self._node.split(f"split {name}")
        parts = {}
        for i in range(attribute.size):
            keep = (*self._keep, Conjunct((name,), np.arange(attribute.size) == i))
            part = ProtectedTable(domain, self._vault, branch.step(f"part {i}"), keep)
            parts[attribute.label(i)] = part
        return parts

    def group_by(self, *names: str, most: int = 0, count: str = "count") -> ProtectedTable:
        """One row for each declared combination of the named attributes, with its row count.

        The result has the attributes named and one more, called `count`, with values 0 to `most`;
        larger counts are cut to `most`.

        Privacy: one row more or less changes the count of one group: one row of the result leaves
        and another comes, so stability is 2 (tests/kernel/test_protected.py::test_group_by).
        """
        return ProtectedTable(*grouped_tables.table_of_groups(self, names, most, count))

    def persons(self, *names: str, **levels: str) -> ProtectedTable:
        """One row for each person and each combination of these attributes that their rows have.

        An attribute is named, or given with one of its levels: `persons("sex", district="region")`.
        Without any there is one row for each person. Sums over cells count a person once for each,
        so ask for every grouping by itself.

        Privacy: whether a person is in a cell is decided by their own rows, of which the cap leaves
        at most k, so neighbours differ in at most k rows here, one in a cell: `Unit.on_persons`.
        That counts all cells that a person is in, so no split may lie above
        (tests/kernel/test_persons.py).
        """
        return ProtectedTable(*grouped_tables.table_of_persons(self, names, levels))

    def parts(self, *by: str) -> ProtectedParts:
        """The table in declared parts, from large to small: `parts("state", "county")`.

        Every part of a level is asked the same, and no vector of all cells is held. Privacy:
        a row lies in one part of each level; see `psephos.kernel.parts`.
        """
        by = attribute_names(by)
        if "row_cells" not in self._vault.row_abilities:
            raise RefusedError("parts are counted in the rows of a source; ask before group_by")
        node = self._node.step(f"parts {by}")
        return ProtectedParts(self._domain, self._vault, node, self._keep, by)

    def vectorise(self) -> ProtectedVector:
        """The vector of cell counts; nothing is counted before the first charge."""
        return ProtectedVector(self._domain, self._vault, self._node.step("vectorise"), self._keep)

    def noisy_count(self, *, spend: Budget, key: str | None = None) -> Measurement:
        """The number of rows, with noise."""
        return self.vectorise().noisy_count(spend=spend, key=key)

    def __repr__(self) -> str:
        return f"ProtectedTable({self._domain}; {self._vault.state()})"


class ProtectedVector(ClosedHandle):
    """A vector of counts behind the kernel: the cells of `domain`, or a linear map of them."""

    __slots__ = ("_maps",)

    def __init__(
        self,
        domain: Domain,
        vault: Vault,
        node: Node,
        keep: Cells,
        maps: tuple[Matrix, ...] = (),
    ) -> None:
        super().__init__(domain, vault, node, keep)
        self._maps = maps

    @property
    def size(self) -> int:
        """How many counts."""
        return self._maps[0].shape[0] if self._maps else self._domain.size

    def transform(self, matrix: Matrix) -> ProtectedVector:
        """The vector after a linear map with integer entries.

        Privacy: a row moves the result by a column of the matrix, so the largest L1 column is the
        stability (tests/kernel/test_protected.py::test_scaled_masks_cost_their_scale).
        """
        copied = self._admitted(matrix)
        name, stability = f"transform {gate.fingerprint(copied)}", sensitivity.stability(copied)
        return self._mapped(copied, self._node.step(name, max(1, stability)))

    def reduce(self, partition: Partition) -> ProtectedVector:
        """Sums over groups of cells. Privacy: a cell lies in one group, so stability is 1."""
        if type(partition) is not Partition:
            raise RefusedError(f"reduce takes a Partition, got {type(partition).__name__}")
        return self.transform(partition)

    def split(self, partition: Partition) -> list[ProtectedVector]:
        """One vector for each group of cells. Privacy: as for tables, parts cost their maximum."""
        if type(partition) is not Partition:
            raise RefusedError(f"split takes a Partition, got {type(partition).__name__}")
        copied = self._admitted(partition)
        branch = self._node.split(f"split {gate.fingerprint(copied)}")
        numbers = copied.groups  # type: ignore[attr-defined]
        ends = [0, *np.cumsum(np.bincount(numbers))]
        cells = sp.eye_array(self.size, dtype=np.int8, format="csr")
        cells = cells[np.argsort(numbers, kind="stable")]
        parts = [Sparse(cells[start:end]) for start, end in pairwise(ends)]
        return [self._mapped(part, branch.step(f"part {g}")) for g, part in enumerate(parts)]

    def check_budget(self, spend: Budget, *, key: str | None = None) -> None:
        """Refuse a spend that the ledger cannot pay in full; nothing is charged by this.

        Several requests that spend this much together cost no more, by composition. What was paid
        for under the key, or as a step of it, is not paid again.
        """
        self._vault.check_budget(gate.budget(spend, "spend"), key)

    def measure(
        self, query: Query | Matrix, *, spend: Budget, key: str | None = None
    ) -> Measurement:
        """Answers with exact integer noise, at a cost of `spend` for the whole data set.

        Privacy: with e = spend per unit of distance here (`Unit.per_distance`), block j gets
        discrete Laplace noise of scale Δ₁/(w_j e), or for rho discrete Gaussian noise of variance
        Δ₂²/(2 w_j e): Σ_j w_j|move_j|·e/Δ₁ ≤ e per row, and Σ_j w_j move_j²·e/Δ₂² ≤ e
        (tests/kernel/test_audit.py).
        """
        spend, price = self._vault.priced(spend, "noise")
        whole = type(query) is Query
        admitted = gate.admit(query, "query") if whole else Query.of(gate.admit(query, "matrix"))
        self._check(admitted)
        noise = noise_for(admitted, spend, self._vault.unit, self._node.stability)

        sizes = [block.matrix.shape[0] for block in admitted.blocks]

        def noisy(some: slice) -> Array:
            true = _joined(self._answers([block.matrix for block in admitted.blocks[some]]))
            return sensitivity.exactly(add, true, self._noise(noise[some], sizes[some]))

        def draw() -> Array:
            return _joined([noisy(some) for some in _portions(sizes)])

        mark = request_fingerprint(self._node.path, admitted, spend)
        used, values = self._vault.request(self._node, mark, price, key, repr(admitted), draw)
        return Measurement(
            dataset_id=self._vault.ledger.dataset_id,
            lineage=self._node.path,
            domain=self.domain,
            transform=copy.deepcopy(compose(*self._maps)) if self._maps else None,
            query=admitted,
            values=values,
            noise=noise,
            cost=price,
            key=used,
            simulation=self._vault.draws.simulation,
        )

    def noisy_count(self, *, spend: Budget, key: str | None = None) -> Measurement:
        """The sum of the vector, with noise."""
        return self.measure(total(self.size), spend=spend, key=key)

    def count_values(
        self, attributes: ArrayLike, *, spend: Budget, key: str | None = None
    ) -> Array:
        """Noisy counts of every value of some attributes, by their numbers in rising order.

        Privacy: a row moves as many counts by one as there are attributes, so Δ₁ = Δ₂² = their
        number; noise is added as by `measure` (tests/kernel/test_value_counts.py).

        >>> import numpy as np
        >>> import psephos as ps
        >>> options = {"unit": ps.add_remove_row(), "budget": ps.rho("1000"), "seed": 0}
        >>> table = ps.simulate(np.array([10, 20, 30, 40]), ps.Domain.of(a=2, b=2), **options)
        >>> table.vectorise().count_values([0, 1], spend=ps.rho("1000"))
        array([30, 70, 40, 60])
        """
        if self._maps:
            raise RefusedError("values are those of a table's own cells; count before a transform")
        return conjunction_requests.count_values(self, attributes, spend, key)

    def choose(self, score: Score, *, spend: Budget, key: str | None = None) -> int:
        """The number of a candidate that scores high, at a cost of `spend` in epsilon.

        Privacy: the score is rebuilt by its own type, which the kernel lists in `scores`, and says
        how far a row moves it; its mechanism says what the choice costs
        (tests/kernel/test_choose.py, tests/contracts/test_scores.py).
        """
        return int(search_requests.draw(self, score, SCORES, "choose", spend, key)[0])

    def partition(
        self, search: PrivateSearch, *, spend: Budget, key: str | None = None
    ) -> Partition:
        """The cells cut into intervals of like counts, at a cost of `spend` in epsilon.

        Privacy: as for `choose`; only the partition is shown (tests/kernel/test_partition.py,
        tests/contracts/test_scores.py).

        >>> import numpy as np
        >>> import psephos as ps
        >>> options = {"unit": ps.add_remove_row(), "budget": ps.epsilon("2"), "seed": 0}
        >>> counts = np.array([90, 91, 90, 5, 5, 6, 5])
        >>> vector = ps.simulate(counts, ps.Domain.of(x=7), **options).vectorise()
        >>> vector.partition(ps.WholePartitions(lengths="all"), spend=ps.epsilon("2")).groups
        array([0, 0, 0, 1, 1, 1, 1])
        """
        lengths = search_requests.draw(self, search, PARTITIONS, "partition", spend, key)
        return Partition(np.repeat(np.arange(lengths.size), lengths))

    def draw_queries(
        self, game: UndercountedQueries, *, spend: Budget, key: str | None = None
    ) -> Array:
        """Numbers of queries that records undercount, at a cost of `spend` in epsilon for them all.

        Privacy: as for `choose`, s times at a share of the spend; counts of conjunctions move by a
        row at a time, so that a substituted row counts once where rows are the root's
        (tests/kernel/test_dual_query.py).
        """
        if self._maps:
            raise RefusedError(
                "queries are drawn over a table's own cells; draw before a transform"
            )
        return conjunction_requests.draw_queries(self, game, spend, key)

    def _admitted(self, matrix: Matrix) -> Matrix:
        admitted: Matrix = gate.admit(matrix, "matrix")
        self._check(Query.of(admitted))
        return admitted

    def _check(self, query: Query) -> None:
        """Refuse what would not fit before anything is charged; sizes are public."""
        rows, columns = query.shape
        if columns != self.size:
            raise ShapeError(f"the vector has {self.size:,} cells, the matrix {columns:,} columns")
        looked_at = [self._looked_at(block.matrix)[0] for block in query.blocks]
        if max(map(len, looked_at)) > 64:  # axes of an array
            raise RefusedError("a block looks at over 64 attributes at once; ask about fewer")
        sizes = {name: self._domain[name].size for names in looked_at for name in names}
        cells = [math.prod([sizes[name] for name in names]) for names in looked_at]
        check_cells(max(rows, *cells))

    def _looked_at(self, matrix: Matrix) -> tuple[Names, tuple[Matrix, ...]]:
        """The attributes whose counts decide the answers, and the factors over their cells.

        Those that are summed over do not: their factor is a row of ones.
        """
        names = self._domain.names
        if self._maps or not (is_total(matrix) or type(matrix) is Kron):
            return names, (matrix,)
        if type(matrix) is not Kron:
            return (), ()
        if matrix.grid != self._domain.shape:
            return names, (matrix,)
        return tuple([names[i] for i, _ in matrix.active]), tuple([f for _, f in matrix.active])

    def _mapped(self, matrix: Matrix, node: Node) -> ProtectedVector:
        maps = (matrix, *self._maps)
        return ProtectedVector(self._domain, self._vault, node, self._keep, maps)

    def _answers(self, matrices: Sequence[Matrix]) -> list[Array]:
        """Exact answers of each, asked for only after the charge.

        Matrices with the same factors, on whatever attributes, are applied to all their counts at
        once.
        """
        looked_at = [self._looked_at(matrix) for matrix in matrices]
        tables = self._vault.tables([names for names, _ in looked_at], self._keep)
        alike: dict[tuple[int, ...], list[int]] = {}
        for j, (_, factors) in enumerate(looked_at):
            alike.setdefault(tuple(map(id, factors)), []).append(j)
        answers: list[Array] = [np.zeros(0)] * len(tables)
        for members in alike.values():
            factors = looked_at[members[0]][1]
            matrix = factors[0] if len(factors) == 1 else Kron(factors or (Identity(1),))
            several = len(members) > 1
            x = np.stack([tables[j] for j in members], 1) if several else tables[members[0]]
            for part in reversed((matrix, *self._maps)):
                x = sensitivity.answers(part, x)
            for j, each in zip(members, np.atleast_2d(x.T), strict=True):
                answers[j] = each
        return answers

    def _noise(self, laws: Sequence[Noise], sizes: Sequence[int]) -> Array:
        """Independent draws, so many of each law in turn; equal laws are drawn together."""
        totals: dict[Noise, int] = {}
        for law, size in zip(laws, sizes, strict=True):
            totals[law] = totals.get(law, 0) + size
        left = {law: self._vault.draws.noise(law, size) for law, size in totals.items()}
        if len(left) == 1:
            return left[laws[0]]
        parts = []
        for law, size in zip(laws, sizes, strict=True):
            parts.append(left[law][:size])
            left[law] = left[law][size:]
        return _joined(parts)

    def __repr__(self) -> str:
        cells = f"{self.size:,}" if self._maps else self._domain.size_text
        return f"ProtectedVector({cells} cells of {self._domain}; {self._vault.state()})"


def coarsen_step(partitions: Sequence[tuple[str, Matrix]]) -> str:
    """What a lineage calls the step to groups of values."""
    return f"coarsen {gate.fingerprint(*partitions)}"


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _portions(sizes: list[int]) -> list[slice]:
    """Neighbouring blocks whose answers are made together."""
    ends = np.searchsorted(np.cumsum(sizes), np.arange(PORTION, sum(sizes), PORTION), "right")
    edges = sorted({0, *ends.tolist(), len(sizes)})
    return [slice(start, end) for start, end in pairwise(edges)]
