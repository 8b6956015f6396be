"""An Excel workbook: a cover, then one sheet a table with ± beside each number.

Every text is written as text, so none is executed as a formula. The same tables give the same file:
its dates are those of the charge, and xlsxwriter packs files without the time of day.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from psephos.release.formats.names import sheet_names
from psephos.release.formats.publication import NO_DATE, FormatFiles, Publication
from psephos.release.formats.sheets import MARGIN_WORDS, Sheet, cut, write_table
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
        _fill(workbook, publication)
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


def _fill(workbook: Any, publication: Publication) -> None:
    """The cover and all sheets of a workbook."""
    date = (publication.date or NO_DATE).replace(tzinfo=None)
    title, author = cut(publication.title, 255), cut(publication.job.file.publisher, 255)
    workbook.set_properties({"title": title, "author": author, "created": date})
    looks: dict[str, Any] = {}
    left_out = left_out_of_workbook(publication.job)
    tables = [t for t in publication.tables if t.table.name not in left_out]
    names = sheet_names([table.table.name for table in tables], [COVER])
    cover, *sheets = (
        Sheet(workbook.add_worksheet(name), workbook, looks) for name in (COVER, *names)
    )
    places = {table.table.name: name for table, name in zip(tables, names, strict=True)}
    _write_cover(cover, publication, places, left_out)
    for sheet, table in zip(sheets, tables, strict=True):
        write_table(sheet, publication, table, f"internal:'{COVER}'!A1")


def _write_cover(
    sheet: Sheet, publication: Publication, places: dict[str, str], left_out: dict[str, str]
) -> None:
    """What the release is, and the sheet of each table or why there is none."""
    sheet.page.hide_gridlines(2)
    for column, signs in enumerate((33, 100, 14)):
        sheet.page.set_column(column, column, signs)
    sheet.text(0, 0, publication.title, bold=True, font_size=16)
    wrapped = {"text_wrap": True, "valign": "top"}
    row = 2
    for name, text in _facts(publication):
        if text:
            sheet.text(row, 1, text, **wrapped)
            sheet.text(row, 0, name, bold=True, valign="top")
            row += 1
    row += 1
    for column, text in enumerate(("Sheet", "Table", "Numbers")):
        sheet.text(row, column, text, bold=True, bottom=1)
    kind = publication.job.file.output.table_formats[0]
    for line, shown in enumerate(publication.tables, row + 1):
        name, title = shown.table.name, shown.table.title
        if name in places:
            sheet.link(line, 0, f"internal:'{places[name]}'!A1", places[name])
        else:
            sheet.text(line, 0, "not in this workbook", italic=True, valign="top")
            title += f" (too large: {left_out[name]}; {shown.source}.{kind} has all)"
        sheet.text(line, 1, title, **wrapped)
        look = sheet.look(num_format="#,##0", valign="top")
        sheet.page.write_number(line, 2, shown.numbers, look)


def _facts(publication: Publication) -> Iterator[tuple[str, str]]:
    """What the cover says, line by line."""
    file = publication.job.file
    yield "Publisher", file.publisher
    yield "Edition", file.edition
    yield from (("About", part) for part in publication.description)
    for view in dict.fromkeys(table.view for table in publication.tables):
        yield "Numbers", publication.number_words(view)
    for errors in dict.fromkeys(table.errors for table in publication.tables):
        words = publication.interval_words(errors) + (f" {MARGIN_WORDS}" if errors else "")
        yield f"{PLUS_MINUS} and intervals", words
    yield "Privacy", publication.guarantee
    yield from (("Fact", fact) for fact in file.facts)
    yield "Digits", "Numbers are rounded to the digits that their noise leaves."
