"""All formats beside CSV and Parquet: joining is one line in the list."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from psephos.errors import ReleaseError
from psephos.release.formats.csvw import CsvOnTheWeb
from psephos.release.formats.datapackage import DataPackage
from psephos.release.formats.excel import Excel
from psephos.release.formats.jsonstat import JsonStat
from psephos.release.formats.publication import Publication
from psephos.release.formats.sdmx import Sdmx
from psephos.release.formats.wide import WideCsv
from psephos.release.formats.workbook_files import Likeness, compare_workbooks


class FileFormat(Protocol):
    """A format that is made from the tables of a bundle."""

    @property
    def name(self) -> str:
        """What it is called in `[output] formats`."""

    def files(self, publication: Publication) -> Iterator[str]:
        """Its files in the bundle."""

    def write(self, publication: Publication, folder: Path) -> None:
        """Write them below a folder; the same publication gives the same files."""


FILE_FORMATS: tuple[FileFormat, ...] = (
    WideCsv(),
    Excel(),
    DataPackage(),
    CsvOnTheWeb(),
    JsonStat(),
    Sdmx(),
)


def formats_of(publication: Publication) -> tuple[FileFormat, ...]:
    """The formats that a release asks for."""
    names = publication.job.file.output.formats
    return tuple(each for each in FILE_FORMATS if each.name in names)


def write_formats(publication: Publication, folder: Path) -> None:
    """All files that a release asks for, below a folder."""
    for each in formats_of(publication):
        try:
            each.write(publication, folder)
        except (OSError, ReleaseError):
            raise
        except Exception as error:
            raise ReleaseError(
                f"the files of format {each.name!r} cannot be made ({type(error).__name__}: "
                f"{error}). Nothing is lost: the measurement is in the ledger. Take {each.name!r} "
                "out of output.formats and run the release again, which charges nothing"
            ) from error


def compare_file(name: str, written: Path, again: Path) -> Likeness:
    """How alike a file is to the one it should be; workbooks are compared by what is in them."""
    if name.endswith(".xlsx"):
        return compare_workbooks(written, again)
    same = filecmp.cmp(written, again, shallow=False)
    return "same" if same else "other"
