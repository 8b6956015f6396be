"""What a chart of a table draws: its points, and the shape that suits them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import pyarrow as pa

TOTAL = "total"


ChartShape = Literal["bars", "line", "groups", "lines", "heat", "panels"]
NUMBER_COLUMNS = ("count", "low", "high", "stderr")
PART = "part"
SERIES = 5  # as many colours as can be told apart
LINE = 20  # ordered values from which a line reads better than bars
LINES = 12  # the same for grouped bars
GROUPED = 30  # bars that fit one plot


@dataclass(frozen=True)
class Points:
    """Labels by column and the numbers that belong to them, in the order of the table."""

    labels: dict[str, list[str]]
    numbers: dict[str, list[float]]
    note: str = ""

    @classmethod
    def of(cls, table: pa.Table) -> Points:
        """The rows of a view's table; labels are the columns before the count."""
        names = table.column_names[: table.column_names.index("count")]
        labels = {name: [str(label) for label in table[name].to_pylist()] for name in names}
        shown = [name for name in NUMBER_COLUMNS if name in table.column_names]
        numbers = {name: [float(x) for x in table[name].to_pylist()] for name in shown}
        # Where no interval is known, it ends where it begins, and nothing is drawn of it.
        numbers |= {name: numbers["count"] for name in ("low", "high") if name not in numbers}
        return cls(labels, numbers)

    @property
    def has_errors(self) -> bool:
        """Are standard errors and intervals known?"""
        return "stderr" in self.numbers

    def __len__(self) -> int:
        return len(self.numbers["count"])

    def values(self, name: str) -> list[str]:
        """The labels of a column, each once, in their order."""
        return list(dict.fromkeys(self.labels[name]))

    @property
    def columns(self) -> list[str]:
        """The columns that tell points apart."""
        return [name for name in self.labels if len(self.values(name)) > 1]

    @property
    def extent(self) -> tuple[float, float]:
        """From the least to the greatest number, zero included."""
        low = min(*self.numbers["low"], *self.numbers["count"], 0.0)
        return low, max(*self.numbers["high"], *self.numbers["count"], 0.0)

    def pick(self, keep: Sequence[int], note: str = "") -> Points:
        """Some of the points."""
        labels = {name: [words[i] for i in keep] for name, words in self.labels.items()}
        numbers = {name: [xs[i] for i in keep] for name, xs in self.numbers.items()}
        return Points(labels, numbers, ", ".join(filter(None, (self.note, note))))

    def without_totals(self) -> Points:
        """Without margins, next to which all else would look small, if anything else is there."""
        totals = {name: self._total(name) for name in self.columns}
        margins = [name for name, total in totals.items() if total in self.labels[name]]
        keep = [i for i in range(len(self)) if all(self.labels[n][i] != totals[n] for n in margins)]
        if not margins or not keep:
            return self
        return self.pick(keep, "totals are in the table")

    def _total(self, name: str) -> str:
        """What the total is called in a column; a value may be called "total" too."""
        return f"({TOTAL})" if f"({TOTAL})" in self.labels[name] else TOTAL

    def largest(self, most: int) -> Points:
        """The points with the greatest counts, in the order of the table."""
        if len(self) <= most:
            return self
        ranked = sorted(range(len(self)), key=lambda i: -self.numbers["count"][i])
        return self.pick(sorted(ranked[:most]), f"the {most} largest of {len(self):,}")

    def first(self, name: str, most: int) -> Points:
        """The points under the first labels of a column."""
        values = self.values(name)
        if len(values) <= most:
            return self
        labels = set(values[:most])
        rows = [i for i, label in enumerate(self.labels[name]) if label in labels]
        return self.pick(rows, f"the first {most} of {len(values):,} values of {name}")

    def split(self, names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], Points]]:
        """The points under each combination of labels, with those labels."""
        rows: dict[tuple[str, ...], list[int]] = {}
        for i, key in enumerate(zip(*(self.labels[name] for name in names), strict=True)):
            rows.setdefault(key, []).append(i)
        for key in product(*(self.values(name) for name in names)):
            if key in rows:
                part = self.pick(rows[key])
                labels = {n: words for n, words in part.labels.items() if n not in names}
                yield key, Points(labels, part.numbers)

    def distinct(self) -> Points:
        """Points that share all their labels get a number each, so that none hides another."""
        if not self.labels:
            return Points({"": [TOTAL] * len(self)}, self.numbers, self.note).distinct()
        times: Counter[tuple[str, ...]] = Counter()
        last = list(self.labels)[-1]
        words = list(self.labels[last])
        for i, key in enumerate(zip(*self.labels.values(), strict=True)):
            times[key] += 1
            if times[key] > 1:
                words[i] = f"{words[i]} ({times[key]})"
        return Points({**self.labels, last: words}, self.numbers, self.note)

    def rows(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """One record for each point, under field names that need no quoting."""
        fields = {f"a{k}": self.labels[name] for k, name in enumerate(names)}
        columns: dict[str, list[Any]] = {**fields, **self.numbers}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def shape_of(points: Points, ordered: Sequence[str]) -> tuple[ChartShape, list[str]]:
    """The shape for some points, and the columns it draws, the long one first."""
    columns = points.columns or list(points.labels)[:1]
    sizes = {name: len(points.values(name)) for name in columns}
    if len(columns) == 1:
        run = columns[0] in ordered and sizes[columns[0]] > LINE
        return ("line" if run else "bars"), columns
    if len(columns) > 2:
        return "panels", sorted(columns, key=lambda name: -sizes[name])
    long, short = sorted(columns, key=lambda name: (-sizes[name], name not in ordered))
    if sizes[short] > SERIES:
        return "heat", [long, short]
    if long in ordered and sizes[long] > LINES:
        return "lines", [long, short]
    small = sizes[long] * sizes[short] <= GROUPED
    return ("groups" if small else "heat"), [long, short]
