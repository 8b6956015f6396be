"""Do the files of a bundle hold the numbers that follow from its measurements?

Parquet files have every digit, and are compared with the numbers worked out again. CSV files have
rounded numbers: they must be those of the Parquet files, byte for byte, or, where there are none,
within the rounding of the numbers worked out again. All other files are made again from these and
compared: byte for byte, workbooks by what is packed in them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from psephos.errors import PsephosError
from psephos.release.bundle.bundle import Bundle, files_of
from psephos.release.bundle.files import read_csv, read_parquet
from psephos.release.formats.csv_text import csv_bytes
from psephos.release.formats.digits import decimals_in, printed, rounding_of
from psephos.release.formats.publication import Publication, table_decimals
from psephos.release.formats.registry import compare_file, format_names, formats_of, write_formats
from psephos.release.spec.entries import View
from psephos.release.spec.persons import PERSONS_FOLDER
from psephos.release.spec.tables import Table
from psephos.release.verify.verification import WrongError
from psephos.values import Array

TOLERANCE, ERRORS = 1e-9, "standard errors"
"""Of a standard error: how far a consistent number may be from its recomputation."""
PLAN_TOLERANCE, LARGEST = 1e-6, "of the largest number"
"""Of the largest number: the same for the estimate of a plan, which has no standard errors."""
DECIMAL_TOLERANCE = 1e-6
"""As a share: how far standard errors may be off when decimals are decided by them."""


def compare_table(bundle: Bundle, table: Table, view: View, again: pa.Table) -> float:
    """How far, in standard errors, files of a table are from what is recomputed."""
    digits = bundle.manifest["decimals"][bundle.job.tables.index(table)]
    return _compare(bundle, f"{view}/{bundle.job.table_files[table.name]}", again, digits)


def compare_block(bundle: Bundle, name: str, again: pa.Table) -> None:
    """Refuse files of a measured block that hold other numbers."""
    _compare(bundle, f"raw/{name}", again, decimals_in(again))


def compare_persons(bundle: Bundle, name: str, again: pa.Table) -> None:
    """Refuse files of a table of persons that hold other numbers."""
    stem = f"{PERSONS_FOLDER}/{bundle.job.persons_files[name]}"
    _compare(bundle, stem, again, decimals_in(again))


def _compare(bundle: Bundle, stem: str, again: pa.Table, decimals: int) -> float:
    """How far files are from what is recomputed; labels to the letter."""
    kinds, worst = bundle.job.file.output.table_formats, 0.0
    source = None
    if "parquet" in kinds:
        place = f"{stem}.parquet"
        source = read_parquet(bundle.path / place, (again.schema,), again.num_rows)
        worst = _gap(place, source, again, None)
    if "csv" in kinds:
        place = f"{stem}.csv"
        written = read_csv(bundle.path / place, again.schema, again.num_rows)
        worst = max(worst, _gap(place, written, again, decimals))
        digits = printed(written if source is None else source, decimals)
        if (bundle.path / place).read_bytes() != csv_bytes(digits):
            raise WrongError(f"{place} does not hold the numbers of this table, rounded")
    return worst


def _gap(place: str, written: pa.Table, again: pa.Table, decimals: int | None) -> float:
    """How far numbers are from those worked out again, beyond what rounding moves them."""
    if "stderr" in again.column_names:
        scale, tolerance, unit = np.maximum(again["stderr"].to_numpy(), 1e-9), TOLERANCE, ERRORS
    elif "low" in again.column_names:
        width = again["high"].to_numpy() - again["low"].to_numpy()
        large = np.abs(np.nan_to_num(again["value"].to_numpy())).max(initial=1.0)
        scale = np.maximum(np.where(np.isfinite(width), width, large), 1e-9 * large)
        tolerance, unit = PLAN_TOLERANCE, "of its interval"
    else:  # a plan's estimate may have been reached by iterations
        column = "value" if "value" in again.column_names else "count"
        numbers = np.nan_to_num(again[column].to_numpy().astype(float))
        scale, tolerance, unit = np.abs(numbers).max(initial=1.0), PLAN_TOLERANCE, LARGEST
    worst = 0.0
    for column in again.column_names:
        if not pa.types.is_floating(again.schema.field(column).type):
            if not written[column].equals(again[column]):
                raise WrongError(f"{place}: {column} is not what was written")
            continue
        gap = _differences(written[column].to_numpy(), again[column].to_numpy())
        rounding = 0.0 if decimals is None else rounding_of(column, decimals)
        gap = np.where(np.isfinite(gap), np.maximum(gap - rounding, 0), np.inf) / scale
        if not gap.max(initial=0) <= tolerance:
            raise WrongError(
                f"{place}: {column} is up to {gap.max():.2g} {unit} from its recomputation"
            )
        worst = max(worst, float(gap.max(initial=0)))
    return worst


def _differences(numbers: Array, others: Array) -> Array:
    """How far apart numbers are; groups without rows have none, and open bins no end."""
    same = (numbers == others) | (np.isnan(numbers) & np.isnan(others))
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.abs(numbers - others))


def check_decimals(bundle: Bundle) -> None:
    """Refuse other decimals than standard errors leave."""
    recorded = bundle.manifest["decimals"]
    slack = (1 - DECIMAL_TOLERANCE, 1 + DECIMAL_TOLERANCE)
    allowed = [table_decimals(bundle.views, scale) for scale in slack]
    if len(recorded) != len(bundle.job.tables) or any(
        digits not in choices for digits, *choices in zip(recorded, *allowed, strict=True)
    ):
        raise WrongError("numbers are recorded to have other decimals than their errors leave")


def publication_of(bundle: Bundle) -> Publication:
    """What the files for other programs are made from."""
    decimals = bundle.manifest["decimals"]
    if len(decimals) != len(bundle.job.tables):
        raise WrongError("the manifest does not say how many decimals numbers have")
    return Publication.of(bundle.views, files_of(bundle), decimals, bundle.spend, bundle.receipt)


def has_formats(bundle: Bundle) -> bool:
    """Has the release files for other programs? Not if nobody can tell what was asked."""
    try:
        output = bundle.job.file.output
    except PsephosError:
        return False
    return len(output.formats) > len(output.table_formats)


def format_files(bundle: Bundle) -> Iterator[str]:
    """The files for other programs that a release of this job has."""
    if has_formats(bundle):
        yield from format_names(publication_of(bundle))


def check_formats(bundle: Bundle) -> str:
    """Refuse files for other programs that hold something else than the tables."""
    publication = publication_of(bundle)
    alike: list[str] = []
    with tempfile.TemporaryDirectory(prefix="psephos-verify-") as folder:
        write_formats(publication, Path(folder))
        for name in format_names(publication):
            likeness = compare_file(name, bundle.path / name, Path(folder) / name)
            if likeness == "other":
                raise WrongError(f"{name} does not hold what follows from the tables")
            alike += [name] if likeness == "same cells" else []
    text = f"{', '.join(formats_of(publication))}: made again from the tables, and the same"
    if not alike:
        return text
    return (
        f"{text}; of {', '.join(alike)} every cell: another version of xlsxwriter wrote it, so its "
        "formats and links were NOT checked"
    )
