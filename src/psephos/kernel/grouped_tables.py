"""Tables made of a table: one row for each group of rows, or for each person in each group.

Privacy: `ProtectedTable.group_by` and `ProtectedTable.persons` say what a row moves in them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.errors import MOST_IS_MISSING, RefusedError
from psephos.kernel import gate
from psephos.kernel.cell_counts import CellCounts
from psephos.kernel.closed_handle import ClosedHandle, attribute_names, check_cells
from psephos.kernel.lineage import Node
from psephos.kernel.vault import Vault
from psephos.values import Array

Made = tuple[Domain, Vault, Node]
"""What the handle to the new table is made of."""


def table_of_groups(table: ClosedHandle, by: tuple[str, ...], most: int, count: str) -> Made:
    """See `ProtectedTable.group_by`."""
    if type(most) is not int or most < 1:
        raise RefusedError(MOST_IS_MISSING)
    *names, count = attribute_names((*by, count))
    if count in names:
        raise RefusedError(f"{count!r} is grouped by; give the new attribute another name")
    grouped = table._domain.project(names)
    check_cells(grouped.size * (most + 1))
    vault, keep = table._vault, table._keep
    domain = Domain((*names, count), (*grouped.attributes, Attribute.integers(0, most)))
    node = table._node.step(f"group by {tuple(names)} up to {most} as {count!r}", 2)

    def groups() -> CellCounts:
        return CellCounts(domain, group_sizes(vault.tables([tuple(names)], keep)[0], most))

    return domain, vault.over(domain, groups), node


def table_of_persons(table: ClosedHandle, by: tuple[str, ...], levels: Mapping[str, str]) -> Made:
    """See `ProtectedTable.persons`."""
    attribute_names((*by, *levels, *levels.values()))
    rows, keep, unit = table._vault, table._keep, table._vault.unit
    if unit.person is None or "persons" not in rows.row_abilities or not table._node.rowwise:
        raise RefusedError(
            "persons are counted in the rows of a source that names them, with a ledger whose "
            "unit is person(column, max_rows=k), and before split, group_by and persons"
        )
    axes, attributes = [], []
    for name in (*by, *levels):
        attribute = table._domain[name]
        level = attribute.level(levels[name]) if name in levels else None
        attributes.append(attribute if level is None else Attribute(level.labels))
        groups = np.arange(attribute.size) if level is None else level.groups.astype(np.int64)
        axes.append((name, groups, attributes[-1].size))
    names = [name for name, *_ in axes] or ["person"]
    domain = Domain(tuple(names), tuple(attributes) or (Attribute(("everyone",)),))
    check_cells(domain.size)
    node = table._node.step(f"persons by {gate.fingerprint(domain, *axes)}")

    def persons() -> CellCounts:
        return CellCounts(domain, rows.table().persons(axes, keep))

    return domain, rows.over(domain, persons, unit.on_persons(domain.size)), node


def group_sizes(sizes: Array, most: int) -> Array:
    """The table that group_by makes: one row for each group, with its size cut at `most`."""
    cut = np.minimum(sizes, most)
    table = np.zeros((cut.size, most + 1), dtype=np.int64)
    table[np.arange(cut.size), cut] = 1
    return table
