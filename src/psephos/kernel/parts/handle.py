"""A table in parts, behind the kernel: every part of a level is asked the same, for one charge.

Exactly one readable answer. The charge is on disk before anything is counted (`Vault.request`):

- tasks draw and seal files under keys that only their receipts hold; nobody has seen anything;
- the receipts, one for each declared run of parts, are stored in the ledger in one transaction, and
  the first manifest that was stored stands: whoever comes later drops their own, and its keys;
- only then are files opened, by the receipts that stand and if their contents have the stored hash.

If the driver dies before the manifest is stored, nobody can read what its tasks wrote: drawing
again costs nothing and shows nothing twice. If it dies later, the same manifest is read again. Two
drivers under one key charge once and read one manifest. A file that is gone or altered is refused,
never drawn again. Parts without rows come from the declared list like all others
(tests/kernel/test_part_faults.py).
"""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Sequence
from typing import Any

from psephos.domain.domain import Domain
from psephos.domain.part_tree import PartTree
from psephos.errors import RefusedError, ShapeError, SourceError, TooLargeError, a_path
from psephos.kernel import gate
from psephos.kernel.budget import Budget
from psephos.kernel.closed_handle import CELLS_LIMIT, ClosedHandle
from psephos.kernel.lineage import Node
from psephos.kernel.parts.admission import admitted_runner
from psephos.kernel.parts.law import level_weights, part_noise
from psephos.kernel.parts.measurement import PartMeasurement, check_complete
from psephos.kernel.parts.runners import Runner
from psephos.kernel.parts.seal import file_prefix, manifest, receipts_of, settle, sweep
from psephos.kernel.parts.task import PartJob
from psephos.kernel.parts.tasks import tasks_of
from psephos.kernel.parts.worker import DISK_FULL
from psephos.kernel.query import Query
from psephos.kernel.source import Cells
from psephos.kernel.vault import Vault
from psephos.matrix import Matrix
from psephos.values import Array

NUMBERED_CELLS = 1 << 60


class ProtectedParts(ClosedHandle):
    """The parts of a table, by a tree; `domain` is that of the cells inside each part."""

    __slots__ = ("_tree",)

    def __init__(
        self, whole: Domain, vault: Vault, node: Node, keep: Cells, by: Sequence[str]
    ) -> None:
        self._tree = PartTree.of(whole, by)
        inner = [name for name in whole.names if name not in self._tree.attributes]
        if not inner:
            raise RefusedError(f"by = {list(by)} leaves no attribute to count inside the parts")
        super().__init__(whole.project(inner), vault, node, keep)
        if self._tree.leaves * self._domain.size > NUMBERED_CELLS:
            raise TooLargeError(
                f"{self._tree} of {self._domain.size_text} cells each is too much to number; "
                "declare fewer parts or coarser attributes",
                self._tree.leaves * self._domain.size,
                NUMBERED_CELLS,
            )

    @property
    def tree(self) -> PartTree:
        """The declared parts."""
        return copy.deepcopy(self._tree)

    def bytes_on_disk(self, query: Query | Matrix, weights: Sequence[Any]) -> int:
        """How much the noisy answers will take: 8 bytes each."""
        admitted, levels = self._admitted(query), level_weights(weights, self._tree)
        parts = sum(n for n, v in zip(self._tree.sizes, levels, strict=True) if v)
        return 8 * admitted.shape[0] * parts

    def check_budget(self, spend: Budget, *, key: str | None = None) -> None:
        """Refuse a spend that the ledger cannot pay in full; nothing is charged by this."""
        self._vault.check_budget(gate.budget(spend, "spend"), key)

    def measure(
        self,
        query: Query | Matrix,
        *,
        weights: Sequence[Any],
        spend: Budget,
        folder: str | os.PathLike[str],
        key: str,
        runner: Runner | None = None,
    ) -> PartMeasurement:
        """Answers to one query in every part of every level, with exact integer noise.

        Args:
            query: what each part is asked, over the cells inside a part
            weights: one for each level of the tree, the whole first; 0 leaves a level out
            spend: what all of it costs, whatever the number of parts
            folder: an existing folder for the sealed answers
            key: the request's name in the ledger; asking again under it goes on with what was cut
                short, and shows the same answers
            runner: Processes or SparkRunner, who perform the tasks; if None, processes of this
                machine where it is worth it

        Privacy: see `law` for the noise, and above for who may read what.
        """
        spend, price = self._vault.priced(spend, "noise")
        admitted, levels = self._admitted(query), level_weights(weights, self._tree)
        noise = part_noise(admitted, levels, spend, self._vault.unit, self._node.stability)
        place = os.path.realpath(a_path(folder, "a folder of parts", SourceError))
        needed = self.bytes_on_disk(admitted, list(levels))
        simulated = self._vault.draws.simulation
        # Play money has one name for all data sets.
        prefix = file_prefix(self._vault.ledger.dataset_id, None if simulated else key)
        job = PartJob(admitted, noise, place, prefix)
        performer = admitted_runner(runner, needed, self._vault.draws)
        mark = gate.fingerprint("measure parts", self._node.path, admitted, levels, spend)

        def draw() -> Array:
            _check_room(place, needed)
            names = (*self._tree.attributes, *self._domain.names)
            rows = self._vault.table().row_cells(names, self._keep)
            tasks = tasks_of(rows, admitted, self._tree, levels)
            receipts = tuple(sorted(performer.run(job, tasks)))
            check_complete(receipts, self._tree, levels, admitted)
            settle(place)
            return manifest(receipts)

        if not os.path.isdir(place):
            raise SourceError("the folder for the parts' answers is not there; make it first")
        label = f"{admitted!r} in each part of {self._tree}"
        used, numbers = self._vault.request(self._node, mark, price, key, label, draw)
        sweep(receipts_of(numbers), place, prefix)
        return PartMeasurement(
            dataset_id=self._vault.ledger.dataset_id,
            lineage=self._node.path,
            domain=self.domain,
            tree=self.tree,
            query=admitted,
            weights=levels,
            noise=noise,
            cost=price,
            key=used,
            manifest=numbers,
            folder=place,
            simulation=simulated,
        )

    def _admitted(self, query: Query | Matrix) -> Query:
        whole = type(query) is Query
        admitted = gate.admit(query, "query") if whole else Query.of(gate.admit(query, "matrix"))
        answers, cells = admitted.shape
        if cells != self._domain.size:
            size = self._domain.size_text
            raise ShapeError(f"a part has {size} cells, the query {cells:,} columns")
        if max(answers, cells) > CELLS_LIMIT:
            raise TooLargeError(
                f"a part of {cells:,} cells and {answers:,} answers is over the limit of "
                f"{CELLS_LIMIT:,}; cut it into smaller ones",
                max(answers, cells),
                CELLS_LIMIT,
            )
        return admitted

    def __repr__(self) -> str:
        return f"ProtectedParts({self._tree} of {self._domain}; {self._vault.state()})"


def _check_room(folder: str, needed: int) -> None:
    """Refuse what cannot fit; sizes are public."""
    if shutil.disk_usage(folder).free < needed:
        raise SourceError(DISK_FULL)
