"""One sheet of a workbook: a table as it was asked for, ± beside each number, notes below.

Rows go to disk in their order and are not kept, so sheets of a million rows take little memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.release.formats.publication import Publication, PublishedTable
from psephos.release.formats.workbook_size import SHEET_COLUMNS
from psephos.release.spec.tables import column_name
from psephos.release.views.layout import cross_tables
from psephos.release.views.statistics import bounds_words
from psephos.report.cross_table import (
    NOWHERE,
    PLUS_MINUS,
    CrossTable,
    HeadingAxis,
    laid_out,
    rounded_up,
)

CELL_SIGNS = 32_767
"""The longest text of a cell."""
WIDEST, NARROWEST = 60, 9
"""Widths of columns, in signs."""
GREY, LINK_BLUE = "#595959", "#0563C1"
MARGIN_WORDS = f"{PLUS_MINUS} is half the interval, or more where that does not cover it."


@dataclass(frozen=True, eq=False)
class Sheet:
    """A sheet of a workbook while it is written: texts and numbers, each in a look.

    Attributes:
        page: the sheet as xlsxwriter has it
        workbook: the workbook that it is in
        looks: the formats of the workbook, each added once
        signs: the widths of columns that were fitted
    """

    page: Any
    workbook: Any
    looks: dict[str, Any]
    signs: dict[int, int] = field(default_factory=dict)

    def look(self, **properties: Any) -> Any:
        """The format with these properties."""
        key = repr(sorted(properties.items()))
        if key not in self.looks:
            self.looks[key] = self.workbook.add_format(properties)
        return self.looks[key]

    def text(self, row: int, column: int, text: str, **properties: Any) -> None:
        """A text as a text, whatever it looks like."""
        look = self.look(**properties) if properties else None
        if text:
            self.page.write_string(row, column, cut(text, CELL_SIGNS), look)
        else:
            self.page.write_blank(row, column, None, look)

    def link(self, row: int, column: int, place: str, text: str) -> None:
        """A link to another sheet."""
        look = self.look(font_color=LINK_BLUE, underline=1, valign="top")
        self.page.write_url(row, column, place, look, text)

    def fit(self, column: int, signs: int) -> None:
        """Make a column as wide as a text of so many signs."""
        self.signs[column] = max(self.signs.get(column, NARROWEST), min(WIDEST, signs + 2))

    def set_widths(self) -> None:
        """Give columns the widths that were fitted."""
        for column, signs in self.signs.items():
            self.page.set_column(column, column, signs)


def cut(text: str, size: int) -> str:
    """A text of at most so many units of UTF-16."""
    if len(text) * 2 <= size or len(text.encode("utf-16-le")) <= 2 * size:
        return text
    return text.encode("utf-16-le")[: 2 * (size - 1)].decode("utf-16-le", errors="ignore") + "…"


def write_table(sheet: Sheet, publication: Publication, shown: PublishedTable, back: str) -> None:
    """A table, its parts below each other, and notes; `back` is where its link leads to."""
    mark = "Rehearsal on made-up data: " if publication.files.simulation else ""
    sheet.text(0, 0, f"{mark}{shown.table.title}", bold=True, font_size=14)
    sheet.link(1, 0, back, "Back to the cover")
    if shown.table.statistics:
        row, notes = _write_statistics(sheet, publication, shown)
    else:
        row = _write_parts(sheet, publication, shown)
        notes = [publication.number_words(shown.view), publication.interval_words(shown.errors)]
        notes += [MARGIN_WORDS] if shown.errors else []
    for line, note in enumerate(notes, row):
        sheet.text(line, 0, note, italic=True, font_color=GREY)
    sheet.set_widths()


def _write_parts(sheet: Sheet, publication: Publication, shown: PublishedTable) -> int:
    """The parts of a table below each other; the row below them."""
    tables, row = [_fitting(table) for table in _layouts(publication, shown)], 3
    for number, table in enumerate(tables):
        part = _Part(sheet, table, shown.decimals, shown.whole)
        if table.part:
            sheet.text(row, 0, table.part, bold=True)
            row += 1
        body = part.write_heads(row)
        if len(tables) == 1:
            sheet.page.freeze_panes(body, len(part.sides))
        elif number == 0:
            sheet.page.freeze_panes(1, 0)
        row = part.write_body(body) + 1
        part.measure()
    return row


def _write_statistics(
    sheet: Sheet, publication: Publication, shown: PublishedTable
) -> tuple[int, list[str]]:
    """Sums, means, shares or quantiles: a line for each number. The row of the notes, and they."""
    data, numbers = shown.read(), {"value": "Value", "low": "Low", "high": "High"}
    columns = [n for n in data.column_names if pa.types.is_string(data.schema.field(n).type)]
    heads = [publication.job.titles.get(name, name.capitalize()) for name in columns]
    columns += [name for name in numbers if name in data.column_names]
    heads += [numbers[name] for name in columns if name in numbers]
    for column, head in enumerate(heads):
        align = "right" if columns[column] in numbers else "left"
        sheet.text(3, column, head, bold=True, bottom=1, align=align)
        sheet.fit(column, len(head))
    look, row = sheet.look(num_format=f"#,##{_decimal_places(shown.decimals)}"), 4
    for line in data.select(columns).to_pylist():
        for column, name in enumerate(columns):
            if name not in numbers:
                sheet.text(row, column, line[name])
                sheet.fit(column, len(line[name]))
            elif math.isfinite(line[name]):  # groups without rows have no number
                sheet.page.write_number(row, column, line[name], look)
                sheet.fit(column, len(f"{line[name]:,.{shown.decimals}f}"))
        row += 1
    sheet.page.freeze_panes(4, 0)
    words = "Low and high are the ends of intervals that cover the privacy noise and nothing else."
    return row + 1, [words * ("low" in data.column_names), bounds_words(shown.table)]


def _decimal_places(count: int) -> str:
    """Decimals as formats of numbers have them."""
    return f"0.{'0' * count}" if count else "0"


def _layouts(publication: Publication, shown: PublishedTable) -> Sequence[CrossTable]:
    """The table laid out; those of persons run down the side."""
    data, table = shown.read(), shown.persons
    if table is None:
        return cross_tables(publication.job, shown.table, data)
    axes = []
    for name, attribute in zip(table.domain.names, table.domain.attributes, strict=True):
        labels, title = tuple(attribute.labels), publication.job.titles.get(name, name)
        none = (False,) * len(labels), (0,) * len(labels)
        axes.append(HeadingAxis(column_name(name), title, labels, *none))
    fixed = (("where", table.words),) if table.words else ()
    return [laid_out(table.name, table.title, data, (axes, ()), fixed=fixed)]


def _fitting(table: CrossTable) -> CrossTable:
    """The table, or a long one if it has more columns than a sheet."""
    per_column = 2 if table.has_errors else 1
    if len(table.rows.axes) + per_column * len(table.columns) <= SHEET_COLUMNS:
        return table
    sides = (table.axes, ())
    return laid_out(
        table.name,
        table.title,
        table.numbers,
        sides,
        value=table.value,
        fixed=table.fixed,
        part=table.part,
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """A cross-table on its way to a sheet."""

    sheet: Sheet
    table: CrossTable
    decimals: int
    whole: bool

    @property
    def sides(self) -> Sequence[str]:
        """What the columns of labels are called."""
        return [axis.title for axis in self.table.rows.axes] or [""]

    @property
    def per_column(self) -> int:
        return 2 if self.table.has_errors else 1

    def write_heads(self, row: int) -> int:
        """The headings; the row below them."""
        sides, columns = self.sides, self.table.columns
        if self.table.fixed:
            words = ", ".join(f"{name}: {label}" for name, label in self.table.fixed)
            self.sheet.text(row, 0, words, italic=True)
            row += 1
        for k, axis in enumerate(columns.axes):
            self.sheet.text(row, len(sides) - 1, axis.title, italic=True)
            for label, total, first, count in columns.spans(k):
                look = {"bold": total, "align": "center", "bottom": 4}
                start = len(sides) + first * self.per_column
                end = start + count * self.per_column - 1
                if end > start:
                    self.sheet.page.merge_range(row, start, row, end, "", self.sheet.look(**look))
                self.sheet.text(row, start, label, **look)
            row += 1
        right = {"bold": True, "bottom": 1, "align": "right"}
        for column, text in enumerate(sides):
            self.sheet.text(row, column, text, bold=True, bottom=1)
        for j in range(len(columns)):
            start = len(sides) + j * self.per_column
            self.sheet.text(row, start, self.table.value.capitalize(), **right)
            if self.table.has_errors:
                self.sheet.text(row, start + 1, PLUS_MINUS, **right)
        return row + 1

    def write_body(self, row: int) -> int:
        """Labels and numbers; the row below them."""
        table, sheet = self.table, self.sheet
        values, margins = table.values, self._margins()
        shown = table.places != NOWHERE
        plain, bold = (self._number_styles(total) for total in (False, True))
        across = table.columns.totals.tolist()
        edges = [axis.labels for axis in table.rows.axes]
        for i in range(len(table.rows)):
            total = bool(table.rows.totals[i])
            for column, (labels, code) in enumerate(zip(edges, table.rows.codes[i], strict=True)):
                inner = column == len(edges) - 1
                depth = table.rows.depth(i) if inner else 0
                look = {"bold": total, "indent": depth} if total or depth else {}
                sheet.text(row, column, labels[int(code)], **look)
            if not edges:
                sheet.text(row, 0, "total")
            column = len(self.sides)
            numbers = zip(values[i].tolist(), margins[i].tolist(), shown[i].tolist(), strict=True)
            for j, (value, margin, there) in enumerate(numbers):
                style, margin_style = bold if total or across[j] else plain
                if there:
                    sheet.page.write_number(row, column, value, style)
                    if self.per_column == 2:
                        sheet.page.write_number(row, column + 1, margin, margin_style)
                column += self.per_column
            row += 1
        return row

    def measure(self) -> None:
        """Make columns as wide as what stands in them."""
        table = self.table
        for column, axis in enumerate(table.rows.axes):
            deepest = 2 * max(axis.depths, default=0)
            self.sheet.fit(column, max(len(axis.title), *map(len, axis.labels)) + deepest)
        names = [max(map(len, a.labels)) for a in table.columns.axes]
        digits = len(f"{np.nanmax(np.abs(table.values), initial=0):,.{self.decimals}f}") + 1
        signs = max(digits, *(-(-size // self.per_column) for size in names), 0)
        for column in range(self.per_column * len(table.columns)):
            self.sheet.fit(len(self.sides) + column, signs)

    def _margins(self) -> np.ndarray[Any, Any]:
        margins = self.table.margins
        return np.zeros(self.table.shape) if margins is None else rounded_up(margins, self.decimals)

    def _number_styles(self, total: bool) -> tuple[Any, Any]:
        decimals = _decimal_places(self.decimals)
        number = "#,##0" if self.whole else f"#,##{decimals}"
        margin = f'"{PLUS_MINUS} "#,##{decimals}'
        return (
            self.sheet.look(bold=total, num_format=number),
            self.sheet.look(bold=total, num_format=margin, font_color=GREY),
        )
