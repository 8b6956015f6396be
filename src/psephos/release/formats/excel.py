"""An Excel workbook: a cover, then one sheet a table with ± beside each number.

Every text is written as text, so none is executed as a formula. The same tables give the same file:
its dates are those of the charge, and xlsxwriter packs files without the time of day.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from psephos.release.formats.names import sheet_names
from psephos.release.formats.publication import NO_DATE, FormatFiles, Publication
from psephos.release.formats.sheets import Styles, cut, write_table, write_text
from psephos.release.formats.workbook_size import left_out_of_workbook
from psephos.report.cross_table import PLUS_MINUS

WORKBOOK_FILE = "tables.xlsx"
COVER = "Cover"


def excel(publication: Publication) -> FormatFiles:
    """All tables that fit, in one workbook."""
    yield WORKBOOK_FILE, partial(_write_workbook, publication)


def _write_workbook(publication: Publication, place: Path) -> None:
    import xlsxwriter
    from xlsxwriter.exceptions import FileCreateError

    options = {
        "constant_memory": True,
        "tmpdir": str(place.parent),
        "strings_to_formulas": False,
        "strings_to_numbers": False,
        "strings_to_urls": False,
    }
    workbook = xlsxwriter.Workbook(str(place), options)
    try:
        _Book(workbook, publication).write()
        workbook.close()
    except FileCreateError as error:
        _abandon(workbook)
        cause = error.args[0] if error.args else error
        raise (cause if isinstance(cause, OSError) else OSError(str(error))) from None
    except BaseException:
        _abandon(workbook)
        raise


def _abandon(workbook: Any) -> None:
    """Close what xlsxwriter holds open; else it would try to write the file once more."""
    for sheet in workbook.worksheets():
        sheet.row_data_fh.close()
    workbook.fileclosed = True


@dataclass(frozen=True, eq=False)
class _Book:
    """A workbook while it is written."""

    workbook: Any
    publication: Publication

    def write(self) -> None:
        publication = self.publication
        date = (publication.date or NO_DATE).replace(tzinfo=None)
        self.workbook.set_properties(
            {
                "title": cut(publication.title, 255),
                "author": cut(publication.job.file.publisher, 255),
                "created": date,
            }
        )
        styles = Styles(self.workbook)
        left_out = left_out_of_workbook(publication.job)
        tables = [t for t in publication.tables if t.table.name not in left_out]
        names = sheet_names([table.table.name for table in tables], [COVER])
        cover = self.workbook.add_worksheet(COVER)
        sheets = [self.workbook.add_worksheet(name) for name in names]
        places = {table.table.name: name for table, name in zip(tables, names, strict=True)}
        self._cover(cover, styles, places, left_out)
        for sheet, table in zip(sheets, tables, strict=True):
            write_table(sheet, styles, publication, table, f"internal:'{COVER}'!A1")

    def _cover(
        self, sheet: Any, styles: Styles, places: dict[str, str], left_out: dict[str, str]
    ) -> None:
        publication = self.publication
        sheet.hide_gridlines(2)
        for column, signs in enumerate((33, 100, 14)):
            sheet.set_column(column, column, signs)
        write_text(sheet, 0, 0, publication.title, styles.of(bold=True, font_size=16))
        wrapped = styles.of(text_wrap=True, valign="top")
        row = 2
        for name, text in self._facts():
            if text:
                write_text(sheet, row, 0, name, styles.of(bold=True, valign="top"))
                write_text(sheet, row, 1, text, wrapped)
                row += 1
        row += 1
        for column, text in enumerate(("Sheet", "Table", "Numbers")):
            write_text(sheet, row, column, text, styles.of(bold=True, bottom=1))
        kind = publication.job.file.output.table_formats[0]
        for line, shown in enumerate(publication.tables, row + 1):
            name, title = shown.table.name, shown.table.title
            if name in places:
                sheet.write_url(line, 0, f"internal:'{places[name]}'!A1", styles.link, places[name])
            else:
                italic = styles.of(italic=True, valign="top")
                write_text(sheet, line, 0, "not in this workbook", italic)
                title += f" (too large: {left_out[name]}; {shown.source}.{kind} has all)"
            write_text(sheet, line, 1, title, wrapped)
            sheet.write_number(line, 2, shown.numbers, styles.of(num_format="#,##0", valign="top"))

    def _facts(self) -> Iterator[tuple[str, str]]:
        """What the cover says, line by line."""
        publication, file = self.publication, self.publication.job.file
        yield "Publisher", file.publisher
        yield "Edition", file.edition
        yield from (("About", part) for part in publication.description)
        for view in dict.fromkeys(table.view for table in publication.tables):
            yield "Numbers", publication.number_words(view)
        margin = f" {PLUS_MINUS} is half the interval, or more where that does not cover it."
        for errors in dict.fromkeys(table.errors for table in publication.tables):
            words = publication.interval_words(errors) + (margin if errors else "")
            yield f"{PLUS_MINUS} and intervals", words
        yield "Privacy", publication.guarantee
        yield from (("Fact", fact) for fact in file.facts)
        yield "Digits", "Numbers are rounded to the digits that their noise leaves."
