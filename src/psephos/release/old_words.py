"""How bundles of released versions up to 0.2 spoke of open bins, and ordered what has no order.

Their files are read as they were written, so that they verify.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.domain.levels import shown_number
from psephos.domain.values import Level
from psephos.release.spec.columns import AttributeEntry
from psephos.release.spec.entries import ReleaseFile
from psephos.workload.query_sets import (
    JointQueries,
    OrderedQueries,
    QuerySet,
    StackedQueries,
)
from psephos.workload.workload import Workload


def old_labels(domain: Domain, file: ReleaseFile) -> Domain:
    """The schema with labels such as [100, inf) for the bins, and groups of bins, at its ends."""
    attributes = [
        _old(attribute, file.attributes[name])
        for name, attribute in zip(domain.names, domain.attributes, strict=True)
    ]
    return Domain(domain.names, tuple(attributes))


def over_all_cells(workload: Workload) -> Workload:
    """The workload with missing and undeclared entries last in every order, as if they had one."""
    products = [
        replace(product, items=tuple((name, _whole(queries)) for name, queries in product.items))
        for product in workload.products
    ]
    return Workload(workload.domain, products)


def _old(attribute: Attribute, entry: AttributeEntry) -> Attribute:
    edges = attribute.edges
    if edges is None or not (math.isinf(edges[0]) or math.isinf(edges[-1])):
        return attribute
    bins, names = len(edges) - 1, attribute.names or ()
    listed = [name for name, groups in entry.levels.items() if not isinstance(groups, dict)]
    if entry.labels is None:
        names = (*(_bin(*values) for values in attribute.values[:bins]), *names[bins:])
    levels = tuple(
        _old_level(level, edges) if level.name in listed else level for level in attribute.levels
    )
    return replace(attribute, names=names, levels=levels)


def _old_level(level: Level, edges: tuple[float, ...]) -> Level:
    labels = list(level.labels)
    for group, label in enumerate(labels):
        cells = np.flatnonzero(level.groups[: len(edges) - 1] == group)
        is_open = label.startswith("below ") or label.endswith(" and over")
        if cells.size and is_open:
            labels[group] = _bin(edges[cells[0]], edges[cells[-1] + 1])
    return replace(level, labels=tuple(labels))


def _bin(low: float, high: float) -> str:
    return f"[{shown_number(low)}, {shown_number(high)})"


def _whole(queries: QuerySet) -> QuerySet:
    if isinstance(queries, OrderedQueries):
        return queries.over_all_cells()
    if isinstance(queries, StackedQueries | JointQueries):
        return replace(queries, parts=tuple(map(_whole, queries.parts)))
    return queries
