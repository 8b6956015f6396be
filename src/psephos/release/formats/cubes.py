"""Tables as cubes: what runs along each side, with codes for programs and labels for people.

A part of a table is a cube: all combinations of its labels, the last side fastest. Codes are the
labels where they are plain, "_T" for totals (as in SDMX), else a number with a C before it; the
parts of a table share them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from psephos.domain.domain import Domain
from psephos.release.spec.job import Job
from psephos.release.spec.persons import PersonsTable
from psephos.release.spec.tables import Table, column_name
from psephos.release.views.labels import label_lists
from psephos.report.cross_table import TOTAL
from psephos.values import Array
from psephos.workload.workload import Workload

ALL_VALUES = "_T"
"""The code of all values together."""
PLAIN_CODE = re.compile(r"[A-Za-z0-9$@-][A-Za-z0-9_$@-]*")
LabelEntry = tuple[str, int]
"""A label, and how often it stood before on its side: some queries have the same label."""


@dataclass(frozen=True)
class CodeList:
    """The codes of a column and their labels, for all parts of a table."""

    column: str
    title: str
    total: str
    """What all values together are called."""
    codes: dict[LabelEntry, str]

    @property
    def labels(self) -> dict[str, str]:
        """The label of each code."""
        return {code: label for (label, _), code in self.codes.items()}


@dataclass(frozen=True)
class Side:
    """One side of a cube: which codes run along it."""

    column: str
    codes: tuple[str, ...]


@dataclass(frozen=True)
class Cube:
    """A part of a table: its sides, and which rows of the long table it has."""

    part: str
    sides: tuple[Side, ...]
    first: int

    @property
    def rows(self) -> int:
        return math.prod(len(side.codes) for side in self.sides)

    def codes(self, column: str) -> Array:
        """The code of each of its rows in a column; "_T" if the part does not look at it."""
        shape = [len(side.codes) for side in self.sides]
        for axis, side in enumerate(self.sides):
            if side.column == column:
                order = np.arange(shape[axis]).reshape([-1] + [1] * (len(shape) - axis - 1))
                places = np.broadcast_to(order, shape).ravel()
                return np.asarray(np.array(side.codes, dtype=object)[places])
        return np.full(self.rows, ALL_VALUES, dtype=object)


@dataclass(frozen=True, eq=False)
class Cubes:
    """The parts of a table, with the codes of its columns."""

    columns: tuple[CodeList, ...]
    parts: tuple[Cube, ...]

    @classmethod
    def of(cls, job: Job, table: Table | PersonsTable, titles: dict[str, str]) -> Cubes:
        """The cubes of a table of a release."""
        workload = job.questions
        if isinstance(table, PersonsTable):
            pairs = zip(table.domain.names, table.domain.attributes, strict=True)
            lists, parts_of = [{name: list(each.labels) for name, each in pairs}], [""]
            domains: tuple[Domain, ...] = (table.domain,)
        else:
            lists, parts_of = label_lists(workload, table), _part_titles(workload, table)
            domains = (workload.domain.origin or workload.domain, workload.domain)
        names = list(dict.fromkeys(name for labels in lists for name in labels))
        columns = {}
        for name in names:
            attribute = next((d[name] for d in domains if name in d), None)
            total = TOTAL if attribute is None else attribute.total_label
            entries = dict.fromkeys(
                entry for labels in lists for entry in _entries(labels.get(name, ()))
            )
            codes = _codes(list(entries), total)
            columns[name] = CodeList(column_name(name), titles.get(name, name), total, codes)
        parts, first = [], 0
        for part, labels in zip(parts_of, lists, strict=True):
            sides = [
                Side(
                    column_name(name),
                    tuple(columns[name].codes[entry] for entry in _entries(words)),
                )
                for name, words in labels.items()
            ]
            cube = Cube(part, tuple(sides), first)
            first += cube.rows
            parts.append(cube)
        return cls(tuple(columns.values()), tuple(parts))


def _part_titles(workload: Workload, table: Table) -> list[str]:
    """What the parts of a table are called; nothing where it has one."""
    if len(table.products) == 1:
        return [""]
    titles = [workload.products[number].title for number in table.products]
    return [title.removeprefix(f"{table.name}: ") for title in titles]


def _entries(labels: Sequence[str]) -> list[LabelEntry]:
    times: Counter[str] = Counter()
    entries = []
    for label in labels:
        entries.append((label, times[label]))
        times[label] += 1
    return entries


def _codes(entries: Sequence[LabelEntry], total: str) -> dict[LabelEntry, str]:
    """A code for each entry.

    >>> _codes([("cat", 0), ("[0, 5)", 0), ("cat", 1), ("total", 0)], "total")
    {('cat', 0): 'cat', ('[0, 5)', 0): 'C2', ('cat', 1): 'C3', ('total', 0): '_T'}
    """
    plain = {
        entry: entry[0]
        for entry in entries
        if entry[1] == 0 and PLAIN_CODE.fullmatch(entry[0]) and entry[0] != total
    }
    taken, codes = {*plain.values(), ALL_VALUES}, {}
    for number, entry in enumerate(entries, 1):
        code = plain.get(entry, ALL_VALUES if entry == (total, 0) else "")
        if not code:
            code = f"C{number}"
            while code in taken:
                code += "_"
            taken.add(code)
        codes[entry] = code
    return codes
