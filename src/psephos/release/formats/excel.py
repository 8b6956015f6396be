"""An Excel workbook: a cover, then one sheet a table with ± beside each number.

Every text is written as text, so none is executed as a formula. The same tables give the same file:
its dates are those of the charge, and xlsxwriter packs files without the time of day.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from psephos.release.formats.cubes import total_labels
from psephos.release.formats.digits import printed_margin
from psephos.release.formats.names import sheet_names
from psephos.release.formats.publication import NO_DATE, Publication, PublishedTable
from psephos.release.request import Job
from psephos.report.points import PART

WORKBOOK_FILE = "tables.xlsx"
COVER = "Cover"
SHEET_ROWS = 1_048_576
"""The rows of a sheet."""
HEAD_ROWS = 16
"""Room for titles, notes and headings above a table."""
MOST_WORKBOOK_NUMBERS = 2_000_000
"""What a workbook has room for: more would take minutes to write, and gigabytes to open."""
CELL_SIGNS = 32_767
"""The longest text of a cell."""
WIDEST, NARROWEST = 60, 9
"""Widths of columns, in signs."""


@dataclass(frozen=True)
class Excel:
    """All tables that fit, in one workbook."""

    name: str = "xlsx"

    def files(self, publication: Publication) -> Iterator[str]:
        yield WORKBOOK_FILE

    def write(self, publication: Publication, folder: Path) -> None:
        import xlsxwriter
        from xlsxwriter.exceptions import FileCreateError

        options = {
            "constant_memory": True,
            "tmpdir": str(folder),
            "strings_to_formulas": False,
            "strings_to_numbers": False,
            "strings_to_urls": False,
        }
        place = folder / WORKBOOK_FILE
        try:
            book = _Book(xlsxwriter.Workbook(str(place), options), publication)
            book.write()
            book.workbook.close()
        except FileCreateError as error:
            cause = error.args[0] if error.args else error
            raise cause if isinstance(cause, OSError) else OSError(str(error)) from None


def left_out_of_workbook(job: Job) -> dict[str, str]:
    """The tables that have no room in a workbook, and why."""
    reasons, numbers = {}, 0
    for table in job.tables:
        rows = sum(job.workload.query_counts[p] for p in table.products)
        if rows > SHEET_ROWS - HEAD_ROWS:
            reasons[table.name] = f"{rows:,} numbers, and a sheet has {SHEET_ROWS:,} rows"
        elif numbers + rows > MOST_WORKBOOK_NUMBERS:
            reasons[table.name] = (
                f"{rows:,} numbers, and with the tables before it that would be over "
                f"{MOST_WORKBOOK_NUMBERS:,}"
            )
        else:
            numbers += rows
    return reasons


@dataclass(eq=False)
class _Book:
    """A workbook while it is written; rows go to disk in their order."""

    workbook: Any
    publication: Publication
    formats: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        publication = self.publication
        date = (publication.date or NO_DATE).replace(tzinfo=None)
        self.workbook.set_properties(
            {
                "title": _cut(publication.title, 255),
                "author": _cut(publication.job.file.publisher, 255),
                "created": date,
            }
        )
        left_out = left_out_of_workbook(publication.job)
        tables = [t for t in publication.tables if t.table.name not in left_out]
        names = sheet_names([table.table.name for table in tables], [COVER])
        cover = self.workbook.add_worksheet(COVER)
        sheets = [self.workbook.add_worksheet(name) for name in names]
        self._cover(cover, tables, names, left_out)
        for sheet, table in zip(sheets, tables, strict=True):
            self._table(sheet, table)

    def style(self, **properties: Any) -> Any:
        """A format; the same one for the same properties."""
        key = repr(sorted(properties.items()))
        if key not in self.formats:
            self.formats[key] = self.workbook.add_format(properties)
        return self.formats[key]

    # ---- the cover -----------------------------------------------------------------------------

    def _cover(
        self,
        sheet: Any,
        tables: Sequence[PublishedTable],
        names: Sequence[str],
        left_out: dict[str, str],
    ) -> None:
        publication, file = self.publication, self.publication.job.file
        sheet.hide_gridlines(2)
        sheet.set_column(0, 0, 33)
        sheet.set_column(1, 1, 100)
        sheet.set_column(2, 2, 14)
        _text(sheet, 0, 0, publication.title, self.style(bold=True, font_size=16))
        row = 2
        wrapped = self.style(text_wrap=True, valign="top")
        key = self.style(bold=True, valign="top")
        for name, text in (
            ("Publisher", file.publisher),
            ("Edition", file.edition),
            *(("About", part) for part in publication.description),
            *(("Numbers", publication.number_words(v)) for v in _views(tables)),
            ("± and intervals", f"{publication.interval_words}{self._margin_words()}"),
            ("Privacy", publication.guarantee),
            *(("Fact", fact) for fact in file.facts),
            ("Digits", "Numbers are rounded to the digits that their noise leaves; Parquet files "
             "of the bundle, where there are any, have every digit."),
        ):  # fmt: skip
            if text:
                _text(sheet, row, 0, name, key)
                _text(sheet, row, 1, text, wrapped)
                row += 1
        row += 1
        head = self.style(bold=True, bottom=1)
        for column, text in enumerate(("Sheet", "Table", "Numbers")):
            _text(sheet, row, column, text, head)
        count = self.style(num_format="#,##0", valign="top")
        by_name = {each.table.name: (each, name) for each, name in zip(tables, names, strict=True)}
        for shown in publication.tables:
            row += 1
            title = shown.table.title
            if shown.table.name in by_name:
                name = by_name[shown.table.name][1]
                link = self.style(font_color="#0563C1", underline=1, valign="top")
                sheet.write_url(row, 0, f"internal:'{name}'!A1", link, name)
            else:
                why, kinds = left_out[shown.table.name], publication.job.file.output.formats
                kind = "csv" if "csv" in kinds else "parquet"
                _text(sheet, row, 0, "not in this workbook", self.style(italic=True, valign="top"))
                title += f" (too large: {why}; {shown.view}/{shown.stem}.{kind} has them all)"
            _text(sheet, row, 1, title, wrapped)
            sheet.write_number(row, 2, shown.numbers, count)

    def _margin_words(self) -> str:
        if not self.publication.files.errors:
            return ""
        return " ± is the least that covers the interval on both sides of the number."

    # ---- a table -------------------------------------------------------------------------------

    def _table(self, sheet: Any, shown: PublishedTable) -> None:
        publication, data = self.publication, shown.read()
        row = self._head(sheet, shown)
        labels = data.column_names[: data.column_names.index("count")]
        if len(labels) > 1 and PART in labels:
            labels.remove(PART)
        totals = total_labels(publication.job, shown.table)
        heads = [publication.titles.get(name, name) for name in labels] or [""]
        heads += ["Count", *(["±", "Low", "High"] if publication.files.errors else [])]
        head = self.style(bold=True, bottom=1, text_wrap=True)
        words = [data[name].to_pylist() for name in labels] or [["total"] * data.num_rows]
        for column, text in enumerate(heads):
            _text(sheet, row, column, text, head)
        sheet.freeze_panes(row + 1, len(words))
        for column, texts in enumerate(words):
            longest = max(map(len, {*texts, heads[column]}))
            sheet.set_column(column, column, min(WIDEST, max(NARROWEST, longest + 2)))
        sheet.set_column(len(words), len(heads) - 1, 13)
        numbers = self._numbers(shown, data)
        keys = labels or [""]
        for i in range(data.num_rows):
            bold = any(texts[i] == totals.get(n) for n, texts in zip(keys, words, strict=True))
            place = row + 1 + i
            style = self.style(bold=True) if bold else None
            for column, texts in enumerate(words):
                _text(sheet, place, column, texts[i], style)
            for column, (values, pattern) in enumerate(numbers, len(words)):
                style = self.style(num_format=pattern, bold=bold)
                sheet.write_number(place, column, values[i], style)

    def _head(self, sheet: Any, shown: PublishedTable) -> int:
        """Title and notes; the row after them."""
        publication = self.publication
        _text(sheet, 0, 0, shown.table.title, self.style(bold=True, font_size=14))
        notes = ["Rehearsal: all numbers are made up."] if publication.files.simulation else []
        notes += [publication.number_words(shown.view), publication.interval_words]
        for row, note in enumerate(notes, 1):
            _text(sheet, row, 0, note, self.style(italic=True, font_color="#595959"))
        link = self.style(font_color="#0563C1", underline=1)
        sheet.write_url(len(notes) + 1, 0, f"internal:'{COVER}'!A1", link, "Back to the cover")
        return len(notes) + 3

    def _numbers(self, shown: PublishedTable, data: pa.Table) -> list[tuple[list[float], str]]:
        """The columns of numbers, and how each is shown."""
        decimals = "0" if not shown.decimals else f"0.{'0' * shown.decimals}"
        whole = shown.view == "published"
        count = data["count"].to_numpy()
        columns = [(count.tolist(), "#,##0" if whole else f"#,##{decimals}")]
        if self.publication.files.errors:
            low, high = data["low"].to_numpy(), data["high"].to_numpy()
            margin = printed_margin(count, low, high, shown.decimals)
            columns.append((margin.tolist(), f'"± "#,##{decimals}'))
            columns += [(each.tolist(), f"#,##{decimals}") for each in (low, high)]
        return columns


def _views(tables: Sequence[PublishedTable]) -> list[Any]:
    return list(dict.fromkeys(table.view for table in tables))


def _text(sheet: Any, row: int, column: int, text: str, style: Any = None) -> None:
    """A text as a text, whatever it looks like."""
    if text:
        sheet.write_string(row, column, _cut(text, CELL_SIGNS), style)
    else:
        sheet.write_blank(row, column, None, style)


def _cut(text: str, size: int) -> str:
    """A text of at most so many units of UTF-16."""
    if len(text.encode("utf-16-le")) <= 2 * size:
        return text
    return text.encode("utf-16-le")[: 2 * (size - 1)].decode("utf-16-le", errors="ignore") + "…"
