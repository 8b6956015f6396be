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

from psephos.release.spec.tables import Table, column_name
from psephos.release.views.labels import label_lists, part_titles
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
class Cube:
    """A part of a table: the codes along each column, and which rows of the long table it has."""

    part: str
    sides: dict[str, tuple[str, ...]]
    first: int

    @property
    def rows(self) -> int:
        return math.prod(map(len, self.sides.values()))

    def codes(self, column: str) -> Array:
        """The code of each of its rows in a column; "_T" if the part does not look at it."""
        if column not in self.sides:
            return np.full(self.rows, ALL_VALUES, dtype=object)
        grids = np.indices([len(codes) for codes in self.sides.values()], sparse=True)
        shape, axis = [len(codes) for codes in self.sides.values()], list(self.sides).index(column)
        places = np.broadcast_to(grids[axis], shape).ravel()
        return np.asarray(np.array(self.sides[column], dtype=object)[places])


@dataclass(frozen=True, eq=False)
class Cubes:
    """The parts of a table, with the codes of its columns."""

    columns: tuple[CodeList, ...]
    parts: tuple[Cube, ...]

    @classmethod
    def of(cls, questions: Workload, table: Table, titles: dict[str, str]) -> Cubes:
        """The cubes of a table; `titles` says what attributes are called."""
        domain = questions.domain
        domains = (domain.origin or domain, domain)
        lists, parts = label_lists(questions, table), part_titles(questions, table)
        entries: dict[str, dict[LabelEntry, None]] = {}
        for labels in lists:
            for name, words in labels.items():
                entries.setdefault(name, {}).update(dict.fromkeys(_entries(words)))
        columns = {}
        for name, each in entries.items():
            attribute = next((d[name] for d in domains if name in d), None)
            total = TOTAL if attribute is None else attribute.total_label
            title = titles.get(name, name)
            columns[name] = CodeList(column_name(name), title, total, _codes(list(each), total))
        cubes, first = [], 0
        for part, labels in zip(parts, lists, strict=True):
            sides = {
                column_name(name): tuple(columns[name].codes[entry] for entry in _entries(words))
                for name, words in labels.items()
            }
            cubes.append(Cube(part if len(lists) > 1 else "", sides, first))
            first += cubes[-1].rows
        return cls(tuple(columns.values()), tuple(cubes))


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
