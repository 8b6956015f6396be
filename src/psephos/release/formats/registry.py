"""All formats beside CSV and Parquet: joining is one line in the table."""

from __future__ import annotations

import filecmp
from collections.abc import Callable
from pathlib import Path

from psephos.errors import ReleaseError
from psephos.release.formats.csv_descriptions import csv_on_the_web, data_package
from psephos.release.formats.excel import excel
from psephos.release.formats.jsonstat import json_stat
from psephos.release.formats.publication import FormatFiles, Publication
from psephos.release.formats.sdmx import sdmx
from psephos.release.formats.wide_csv import wide_csv
from psephos.release.formats.workbook_files import Likeness, compare_workbooks

FILE_FORMATS: dict[str, Callable[[Publication], FormatFiles]] = {
    "wide": wide_csv,
    "xlsx": excel,
    "datapackage": data_package,
    "csvw": csv_on_the_web,
    "jsonstat": json_stat,
    "sdmx": sdmx,
}
"""By their names in `[output] formats`; the same publication gives the same files."""


def formats_of(publication: Publication) -> list[str]:
    """The formats that a release asks for."""
    names = publication.job.file.output.formats
    return [name for name in FILE_FORMATS if name in names]


def format_names(publication: Publication) -> list[str]:
    """The files of all formats that a release asks for."""
    return [
        place for name in formats_of(publication) for place, _ in FILE_FORMATS[name](publication)
    ]


def write_format(publication: Publication, name: str, folder: Path) -> None:
    """The files of one format, below a folder."""
    for file, write in FILE_FORMATS[name](publication):
        place = folder / file
        place.parent.mkdir(exist_ok=True)
        write(place)


def write_formats(publication: Publication, folder: Path) -> None:
    """All files that a release asks for, below a folder."""
    for name in formats_of(publication):
        try:
            write_format(publication, name, folder)
        except (OSError, ReleaseError):
            raise
        except Exception as error:
            raise ReleaseError(
                f"the files of format {name!r} cannot be made ({type(error).__name__}: "
                f"{error}). Nothing is lost: the measurement is in the ledger. Take {name!r} "
                "out of output.formats and run the release again, which charges nothing"
            ) from error


def compare_file(name: str, written: Path, again: Path) -> Likeness:
    """How alike a file is to the one it should be; workbooks are compared by what is in them."""
    if name.endswith(".xlsx"):
        return compare_workbooks(written, again)
    same = filecmp.cmp(written, again, shallow=False)
    return "same" if same else "other"
