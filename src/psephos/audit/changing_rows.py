"""Rows that change between readings, and a source that knows which state of them it served."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from mmap import mmap

import numpy as np
import pyarrow as pa

from psephos.audit.neighbours import ROWS_OF_OTHERS
from psephos.audit.stage import rows_of_copies
from psephos.domain.domain import Domain
from psephos.engines.frames import ArrowTable
from psephos.engines.protocol import Batches, Columns
from psephos.kernel.unit import Unit
from psephos.values import Array


@dataclass
class World:
    """Rows that change: the others' in each state, and those of the unit, which are hidden."""

    domain: Domain
    unit: Unit
    hidden: list[Array]
    now: int = 0
    failing: bool = False

    def rows(self, state: int, hidden: Array) -> Array:
        """A row's person and its cell of each attribute, with these rows of the unit."""
        cells = np.repeat(np.arange(hidden.size), np.roll(ROWS_OF_OTHERS, state))
        unit = np.repeat(np.arange(hidden.size), hidden)
        persons = np.append(np.arange(cells.size), np.full(unit.size, cells.size))
        codes = np.unravel_index(np.append(cells, unit), self.domain.shape)
        return np.column_stack([persons, *codes])


class ChangingRows:
    """An engine whose rows are those of a world, now; `state` is the one it served last."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._served = mmap(-1, 1)  # shared with forked children

    @property
    def state(self) -> int:
        """The state of the rows that were read last, by this process or a child of it."""
        return self._served[0]

    def serve(self) -> Array:
        """The rows of now, for one reading, which may be made to fail."""
        if self._world.failing:
            raise OSError("out of reach")
        self._served[0] = self._world.now
        return self._world.rows(self.state, self._world.hidden[self.state])

    def columns(self) -> Columns:
        """See `Engine`."""
        return self._table().columns()

    def version(self) -> None:
        """Nothing says when the rows change."""

    def snapshot(self) -> AbstractContextManager[Batches]:
        """See `Engine`."""
        self.serve()
        return self._table().snapshot()

    def _table(self) -> ArrowTable:
        """A person who has as many rows as count has two more, which are cut off."""
        world, base = self._world, np.roll(ROWS_OF_OTHERS, self.state)
        cells, persons = rows_of_copies(base, world.hidden[self.state], world.unit, 1)
        codes = np.unravel_index(cells, world.domain.shape)
        columns = dict(zip(world.domain.names, codes, strict=True)) | {"person": persons}
        return ArrowTable(pa.table({n: pa.array(c, pa.int64()) for n, c in columns.items()}))
