"""The public record of a measurement in parts: what was asked, and where the noisy integers are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from psephos.domain.domain import Domain
from psephos.domain.part_tree import PartTree
from psephos.errors import LedgerError, RefusedError
from psephos.kernel.budget import Budget
from psephos.kernel.noise import Noise
from psephos.kernel.parts.law import runs
from psephos.kernel.parts.seal import PartReceipt, opened, receipts_of
from psephos.kernel.query import Query
from psephos.values import Array, frozen


@dataclass(frozen=True, eq=False, repr=False)
class PartMeasurement:
    """Noisy answers to one query in every part of the measured levels, in sealed files.

    `domain` is that of the cells inside a part; `noise` has for each level the distribution added
    to each block, none where a level was not measured; `manifest` is what the ledger stored.
    """

    dataset_id: str
    lineage: tuple[str, ...]
    domain: Domain
    tree: PartTree
    query: Query
    weights: tuple[Fraction, ...]
    noise: tuple[tuple[Noise, ...], ...]
    cost: Budget
    key: str
    manifest: Array
    folder: str
    simulation: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "manifest", frozen(self.manifest, np.int64))
        check_complete(self.receipts, self.tree, self.weights, self.query)

    @cached_property
    def receipts(self) -> tuple[PartReceipt, ...]:
        """One for each run of parts that was measured."""
        return receipts_of(self.manifest)

    @property
    def measured(self) -> tuple[int, ...]:
        """The levels that were measured."""
        return tuple(level for level, laws in enumerate(self.noise) if laws)

    def answers(self, level: int) -> Iterator[tuple[int, Array]]:
        """Runs of parts of a level in their order: the first part's number, a row for each part."""
        for receipt in self.receipts:
            if receipt.level == level:
                yield receipt.start, self._opened(receipt)

    def answers_of(self, level: int, start: int, stop: int) -> Array:
        """The answers of some parts of a level, a row for each."""
        rows = [
            self._opened(receipt)[max(start - receipt.start, 0) : stop - receipt.start]
            for receipt in self.receipts
            if receipt.level == level and receipt.start < stop and start < receipt.stop
        ]
        if not rows:
            raise RefusedError(f"level {self.tree.names[level]!r} has no answers of these parts")
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def _opened(self, receipt: PartReceipt) -> Array:
        return opened(receipt, self.folder, self.query.shape[0])

    def __repr__(self) -> str:
        kind = "Simulated measurement" if self.simulation else "Measurement"
        return f"{kind}({self.query} in each part of {self.tree} at {self.cost})"


def check_complete(
    receipts: tuple[PartReceipt, ...], tree: PartTree, weights: tuple[Fraction, ...], query: Query
) -> None:
    """Refuse a manifest that has not exactly one receipt for each declared run of parts."""
    answers, cells = query.shape
    wanted = [
        (level, start, stop)
        for level, weight in enumerate(weights)
        if weight
        for start, stop in runs(tree, level, cells, answers)
    ]
    if [tuple(receipt[:3]) for receipt in receipts] != wanted:
        raise LedgerError(
            f"a manifest has {len(receipts):,} receipts, and {len(wanted):,} runs of parts were "
            "declared, each once; it was changed, or is that of another request"
        )
