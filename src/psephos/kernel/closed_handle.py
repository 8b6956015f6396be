"""What all handles have in common: they show a schema and a unit, and nothing of the data."""

from __future__ import annotations

import copy
from typing import Any, NoReturn

from psephos.domain.domain import Domain
from psephos.errors import RefusedError, TooLargeError
from psephos.kernel.lineage import Node
from psephos.kernel.source import Cells
from psephos.kernel.unit import Unit
from psephos.kernel.vault import Vault

CELLS_LIMIT = 10**9
"""Numbers that a request may hold at once."""


class ClosedHandle:
    """What no handle does: show, list, compare or travel."""

    __slots__ = ("_domain", "_keep", "_node", "_vault")

    def __init__(self, domain: Domain, vault: Vault, node: Node, keep: Cells = ()) -> None:
        self._domain, self._vault, self._node, self._keep = domain, vault, node, keep

    @property
    def domain(self) -> Domain:
        """The public schema of the cells: a copy, so that nobody changes the kernel's own."""
        return copy.deepcopy(self._domain)

    @property
    def unit(self) -> Unit:
        """Whose presence is protected: a copy, so that nobody changes the kernel's own."""
        return copy.deepcopy(self._vault.unit)

    @property
    def simulation(self) -> bool:
        """Is this made-up or public data?"""
        return self._vault.draws.simulation

    def _closed(self, *_: Any, **__: Any) -> NoReturn:
        raise RefusedError("a handle shows nothing; write handle.vectorise().measure(query, ...)")

    __array__ = __iter__ = __len__ = __bool__ = __getitem__ = __contains__ = _closed
    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = __replace__ = _closed
    __float__ = __int__ = __index__ = __lt__ = __gt__ = __le__ = __ge__ = _closed
    __array_ufunc__ = None


def attribute_names(names: tuple[Any, ...]) -> tuple[str, ...]:
    """Names of attributes, to the letter."""
    if not all(type(name) is str for name in names):
        raise RefusedError(f"attributes are named by text, got {[type(n).__name__ for n in names]}")
    return names


def check_cells(needed: int) -> None:
    """Refuse what would hold too many numbers at once; sizes are public."""
    if needed > CELLS_LIMIT:
        remedy = "ask about fewer attributes in each block (marginals), or keep fewer columns"
        text = f"this needs {needed:,} numbers at once, over the limit of {CELLS_LIMIT:,}; {remedy}"
        raise TooLargeError(text, needed, CELLS_LIMIT)
