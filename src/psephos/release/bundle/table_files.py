"""Files of tables and columns, with what is in them: written by releases, compared by `verify`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet

from psephos.release.bundle.files import write_column
from psephos.release.formats.csv_text import write_csv
from psephos.release.formats.digits import printed
from psephos.values import Array


@dataclass(frozen=True, eq=False)
class TableFile:
    """A table, its place without an ending, and its decimals in CSV."""

    stem: str
    table: pa.Table
    decimals: int

    def write(self, folder: Path, kinds: Sequence[str]) -> None:
        """The file of each kind."""
        (folder / self.stem).parent.mkdir(parents=True, exist_ok=True)
        if "csv" in kinds:
            write_csv(printed(self.table, self.decimals), folder / f"{self.stem}.csv")
        if "parquet" in kinds:
            pa.parquet.write_table(self.table, folder / f"{self.stem}.parquet")


class ColumnFile(NamedTuple):
    """A Parquet file of one column."""

    name: str
    column: str
    values: Array

    def write(self, folder: Path) -> None:
        """The file."""
        (folder / self.name).parent.mkdir(parents=True, exist_ok=True)
        write_column(folder / self.name, self.column, self.values)
