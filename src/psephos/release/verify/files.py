"""Are the files of a bundle those of its release, and do they hold what follows from it?

What each file should hold is worked out again by the code that writes a release
(psephos.release.bundle.contents). Parquet files have every digit, and are compared with that.
CSV files have rounded numbers: they must be those of the Parquet files, byte for byte, or, where
there are none, within the rounding of the numbers worked out again. Files for other programs are
made again from these and compared: byte for byte, workbooks by what is packed in them.

Numbers are compared by one rule: each may be off by a share of its standard error, and by the last
digits that floats keep of the largest number; where errors are not known, by a share of intervals
or of the largest number.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.errors import PsephosError
from psephos.release.bundle.bundle import Bundle, files_of
from psephos.release.bundle.files import file_hashes, read_csv, read_parquet
from psephos.release.bundle.table_files import TableFile
from psephos.release.formats.csv_text import csv_bytes
from psephos.release.formats.digits import printed, rounding_of
from psephos.release.formats.publication import Publication, table_decimals
from psephos.release.formats.registry import compare_file, format_names, formats_of, write_formats
from psephos.release.verify.verification import WrongError
from psephos.values import Array

TOLERANCE, ERRORS = 1e-9, "standard errors"
"""Of a standard error: how far a number may be from its recomputation."""
PLAN_TOLERANCE, LARGEST = 1e-6, "of the largest number"
"""The same for estimates that iterations may have reached and that have no standard errors."""
LAST_SHARE = 1e-4
"""Of the largest number: smaller errors count as this, for floats keep no more digits of it."""
DECIMAL_TOLERANCE = 1e-6
"""As a share: how far standard errors may be off when decimals are decided by them."""
LISTED_FAULTS = 20
"""Files that a message names."""


def check_files(
    folder: Path, marks: Mapping[str, str], expected: Callable[[], Iterable[str]]
) -> str:
    """Every file that a release has, none other, each with its hash.

    Hashes come first: what else there should be follows from what files say.
    """
    there = file_hashes(folder)
    changed = [name for name in sorted(marks.keys() & there) if there[name] != marks[name]]
    right = set(marks) if changed or marks.keys() - there else set(expected())
    faults = [f"{name} is missing" for name in sorted((marks.keys() | right) - there.keys())]
    faults += [f"{name} does not belong here" for name in sorted((there.keys() | marks) - right)]
    faults += [f"{name} is not in the manifest" for name in sorted(right & there.keys() - marks)]
    faults += (
        [f"changed since the release: {', '.join(changed[:LISTED_FAULTS])}"] if changed else []
    )
    if faults:
        raise WrongError("; ".join(faults[:LISTED_FAULTS]))
    return f"{len(marks):,} files, every hash as the manifest has it"


def compare_tables(folder: Path, files: Iterable[TableFile], kinds: Sequence[str]) -> float:
    """How far, in units of the rule above, tables in a folder are from what they should hold."""
    return max((compare_table(folder, file, kinds) for file in files), default=0.0)


def compare_table(folder: Path, file: TableFile, kinds: Sequence[str]) -> float:
    """The same for one table; labels and whole numbers have to be the same."""
    again, worst, source = file.table, 0.0, None
    if "parquet" in kinds:
        place = f"{file.stem}.parquet"
        source = read_parquet(folder / place, (again.schema,), again.num_rows)
        worst = _gap(place, source, again, None)
    if "csv" in kinds:
        place = f"{file.stem}.csv"
        written = read_csv(folder / place, again.schema, again.num_rows)
        worst = max(worst, _gap(place, written, again, file.decimals))
        digits = printed(written if source is None else source, file.decimals)
        if (folder / place).read_bytes() != csv_bytes(digits):
            raise WrongError(f"{place} does not hold the numbers of this table, rounded")
    return worst


def _gap(place: str, written: pa.Table, again: pa.Table, decimals: int | None) -> float:
    """How far numbers are from those worked out again, beyond what rounding moves them."""
    scale, tolerance, unit = _scale(again)
    worst = 0.0
    for column in again.column_names:
        kind = again.schema.field(column).type
        if not pa.types.is_floating(kind):
            pair = written[column], again[column]
            if pa.types.is_dictionary(kind):  # which words are listed first says nothing
                pair = pair[0].cast(pa.string()), pair[1].cast(pa.string())
            if not pair[0].equals(pair[1]):
                raise WrongError(f"{place}: {column} is not what follows from the noisy integers")
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


def _scale(again: pa.Table) -> tuple[Array | float, float, str]:
    """In what the gaps of a table's numbers are counted, how many are allowed, and its name."""
    names = [name for name in ("value", "count") if name in again.column_names]
    numbers = [np.nan_to_num(again[name].to_numpy().astype(float)) for name in names]
    largest = max((np.abs(each).max(initial=1.0) for each in numbers), default=1.0)
    if "stderr" in again.column_names:
        return np.maximum(again["stderr"].to_numpy(), LAST_SHARE * largest), TOLERANCE, ERRORS
    if "low" not in again.column_names:  # a plan's estimate may have been reached by iterations
        return largest, PLAN_TOLERANCE, LARGEST
    width = again["high"].to_numpy() - again["low"].to_numpy()
    scale = np.maximum(np.where(np.isfinite(width), width, largest), 1e-9 * largest)
    return scale, PLAN_TOLERANCE, "of its interval"


def _differences(numbers: Array, others: Array) -> Array:
    """How far apart numbers are; groups without rows have none, and open bins no end."""
    same = (numbers == others) | (np.isnan(numbers) & np.isnan(others))
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.abs(numbers - others))


def check_facts(recorded: Any, facts: Any, place: str) -> None:
    """Refuse recorded facts that are not these; numbers may be off in their last digits."""
    if (
        isinstance(facts, Mapping)
        and isinstance(recorded, dict)
        and facts.keys() == recorded.keys()
    ):
        for key, fact in facts.items():
            check_facts(recorded[key], fact, f"{place}.{key}")
    elif isinstance(facts, list | tuple) and _has_length(recorded, len(facts)):
        for i, fact in enumerate(facts):
            check_facts(recorded[i], fact, f"{place}[{i + 1}]")
    elif isinstance(facts, float) and isinstance(recorded, int | float):
        if not abs(facts - recorded) <= PLAN_TOLERANCE * max(1.0, abs(facts)):
            raise WrongError(f"{place} is {facts:.6g}, {recorded:.6g} is recorded")
    elif facts != recorded:
        raise WrongError(f"{place} is not {recorded!r:.80}, but {facts!r:.80}")


def _has_length(recorded: Any, length: int) -> bool:
    return isinstance(recorded, list) and len(recorded) == length


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
