"""One table for life: the rows behind a handle are taken once, and the source is not read again.

Privacy: the maximum over the parts of a split, and the sensitivity of one request, hold for rows
that each lie in one cell. So everything that is asked of a handle, and of all that is derived from
it, is asked of the same rows. They are taken at the first draw, after its charge, and kept by the
kernel alone: as cells, after cleaning and cap. What fails while they are taken leaves nothing
behind. A snapshot is named at random, in the process that takes the rows, never by what is in them:
equal names of equal rows would show that a row did not come. A forked child that has no rows yet
takes its own, under a name of its own (tests/kernel/test_snapshot.py).
"""

from __future__ import annotations

import secrets
from typing import Any

from psephos.domain.domain import Domain
from psephos.errors import RefusedError
from psephos.kernel.lineage import process
from psephos.kernel.source import Source
from psephos.kernel.unit import Cap


class Snapshot:
    """The rows of a source in one state; shown without what it holds."""

    __slots__ = ("_domain", "_how", "_name", "_source", "_table", "row_abilities")

    def __init__(self, source: Source, domain: Domain, cap: Cap | None, folder: Any = None) -> None:
        self._source, self._domain, self._how = source, domain, (cap, folder)
        self._table: Any = None
        self._name: tuple[Any, str] = (None, "")
        self.row_abilities = source.row_abilities

    @property
    def name(self) -> str:
        """The name of these rows; that of rows yet to be taken belongs to this process alone."""
        if self._table is None and self._name[0] != process():
            self._name = (process(), secrets.token_hex(16))
        return self._name[1]

    def table(self) -> Any:
        """The rows, taken now if nobody asked before; asked for only after a charge.

        Privacy: what a fork goes on to take in a child is dropped, and so is what was taken around
        a request that took rows: it would lie under a name that is taken
        (tests/kernel/test_snapshot.py::test_a_fork_while_rows_are_taken).
        """
        if self._table is None:
            name = self._name
            table, here = self._source.take(self._domain, *self._how), process()
            if name[0] != here or self._name is not name:
                raise RefusedError("this process was forked in the middle of a request")
            self._table = table
        return self._table

    def __repr__(self) -> str:
        return "Snapshot(closed)"
