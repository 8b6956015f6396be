"""What an engine is: a table somewhere that hands over its rows as Arrow batches.

An engine moves rows and decides nothing: what an entry is, which cell it belongs to and which rows
of a person stay are rules of the one reader (`duckdb/`), the same for all engines. So an engine
only tells its columns, when its rows may have changed, and gives the columns it is asked for.

It may be able to do more, and says so by having one more method: `NativeRelation` for files that
DuckDB reads faster by itself, `AlikeRows` for databases that can put rows together which are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa


@dataclass(frozen=True)
class Columns:
    """The public names of a table's columns in their order, and Arrow's schema where it is known.

    >>> Columns(("age", "sex")).summary
    '2 columns: age, sex'
    """

    names: tuple[str, ...]
    types: pa.Schema | None = field(default=None, compare=False, repr=False)

    @property
    def summary(self) -> str:
        """How many columns and which; nothing of the rows."""
        number = f"{len(self.names)} column{'' if len(self.names) == 1 else 's'}"
        return f"{number}: {', '.join(self.names)}"


class Batches(Protocol):
    """The rows in one state of the data; reading them twice gives the same rows."""

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        """The Arrow type of each column of the table, from its schema and never from an entry."""

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        """These columns of all rows, in this order and of these kinds: a fresh reader each time.

        `names` may be empty; batches then have no columns but still their numbers of rows.
        """


class Engine(Protocol):
    """A table of rows that can be counted.

    Privacy: an engine's `columns` and `kinds` say what the schema says, whatever rows there are.
    Its `repr` shows no entry and no number of rows.
    """

    def columns(self) -> Columns:
        """The columns as they are now."""

    def version(self) -> Hashable | None:
        """What is another value after the rows have changed; None if nothing tells.

        Rows are kept for later counts only where it is known, or while a snapshot is open. It is
        compared before and after each reading, and rows that changed meanwhile are refused.
        """

    def snapshot(self) -> AbstractContextManager[Batches]:
        """One read-only, repeatable view of the rows, for a count or a whole release.

        Where it cannot promise that, as with files, `version` must tell.
        """


@runtime_checkable
class NativeRelation(Protocol):
    """The ability of an engine, or of its batches, whose files DuckDB reads by itself."""

    @property
    def files(self) -> Sequence[Path]:
        """All files that DuckDB may open."""

    def relation(self, connection: Any, places: Sequence[int]) -> str | None:
        """What stands behind FROM, with column i called c{i}; None if DuckDB reads it differently.

        Reading may fail on an entry; then the count starts again with `snapshot`.
        """


@runtime_checkable
class AlikeRows(Protocol):
    """The ability of batches that can hand over one row for all that are alike.

    Privacy: rows are alike if all their entries are the same, byte by byte, as `read` would hand
    them over. So it makes no difference to any count (tests/engines/test_postgres.py).
    """

    def alike(self, names: Sequence[str]) -> Callable[[], pa.RecordBatchReader] | None:
        """What reads these columns, each combination of entries once: a fresh reader each time.

        A last column of int64 says how many rows have it. None where types leave open what is the
        same, or where there would be hardly fewer rows.
        """
