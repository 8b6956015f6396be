"""The exceptions, and what each is about.

PsephosError
├── DomainError         an invalid schema, attribute or label
├── PredicateError      a row predicate that the declared values cannot decide
├── ShapeError          matrices or vectors that do not fit together
├── UnsupportedError    a matrix has no closed form for this question
├── TooLargeError       a computation over its size limit
├── BudgetError         an invalid amount, unit or charge
│   ├── BudgetExceededError   a charge over what remains in the ledger
│   └── LedgerError           a ledger that is missing, there already, damaged or locked
├── SourceError         a source that cannot be opened or read
├── RefusedError        the kernel has no rule for this request
├── ReleaseError        an invalid release file or bundle
└── WorkloadError       an invalid query set, weight or product
    └── SqlError        SQL outside the supported counting queries

Every message says what was given, what would do, and what to write.
"""

from __future__ import annotations

import errno
import os
from numbers import Integral


class PsephosError(Exception):
    """The root of all errors raised on purpose."""


class DomainError(PsephosError, ValueError):
    """An invalid schema, attribute or label."""


class PredicateError(PsephosError, ValueError):
    """A row predicate that the declared values cannot decide."""


class ShapeError(PsephosError, ValueError):
    """Matrices or vectors that do not fit together."""


class UnsupportedError(PsephosError, NotImplementedError):
    """A matrix has no closed form for this question."""


class TooLargeError(PsephosError, MemoryError):
    """A computation over its size limit; see `entries` and `limit`."""

    def __init__(self, message: str, entries: int, limit: int) -> None:
        super().__init__(message)
        self.entries = entries
        self.limit = limit


class BudgetError(PsephosError, ValueError):
    """An invalid amount, unit or charge."""


class BudgetExceededError(BudgetError):
    """A charge over what remains in the ledger; see `requested` and `remaining`."""

    def __init__(self, message: str, requested: object, remaining: object) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining


class LedgerError(BudgetError):
    """A ledger that is missing, there already, damaged or locked.

    `reason` says what is wrong without `place`, the owner's path, which no analyst is told.
    """

    def __init__(self, reason: str, place: str | None = None) -> None:
        super().__init__(reason if place is None else f"{place}: {reason}")
        self.reason = reason
        self.place = place


class SourceError(PsephosError):
    """A source that cannot be opened or read; the text never says what was in it."""


class RefusedError(PsephosError, ValueError):
    """The kernel has no rule for this request."""


class ReleaseError(PsephosError, ValueError):
    """An invalid release file or bundle; the text names the place in the file."""


class WorkloadError(PsephosError, ValueError):
    """An invalid query set, weight or product."""


class SqlError(WorkloadError):
    """SQL outside the supported counting queries; `sql`, `start` and `end` mark the place."""

    def __init__(self, message: str, sql: str = "", start: int = 0, end: int = 0) -> None:
        super().__init__(message)
        self.sql = sql
        self.start = start
        self.end = end


MOST_IS_MISSING = (
    "group_by needs most: the largest count of a group that is told, a whole number from 1 on "
    'chosen without the data, such as group_by("household", most=10)'
)
INSTEAD_OF = {
    "ndarray": "write ps.matrix.Dense(array), of whole numbers",
    "Strategy": "write strategy.query",
    "Workload": "write ps.select.hdmm(workload).query, or workload.query to measure it as it is",
}
"""What to write for things that people ask the kernel to measure by mistake, by their type."""
REMEDIES = {
    "SQLITE_FULL SQLITE_IOERR ENOSPC EDQUOT EIO": "the disk is full or failing; nothing was shown. "
    "Make room, then ask again with the same key: what was charged is not charged twice",
    "SQLITE_BUSY SQLITE_LOCKED SQLITE_CONSTRAINT": "another process keeps it locked, or wrote to "
    "it meanwhile; nothing was shown. Wait for that one, then ask again",
    "SQLITE_READONLY SQLITE_CANTOPEN SQLITE_PERM EROFS EACCES EPERM ENOENT": "it or its folder "
    "cannot be opened for writing; nothing was shown. Check that both are there, and their "
    "permissions, and ask again",
    "SQLITE_NOTADB SQLITE_CORRUPT": "this is no psephos ledger, or a damaged one. Check the path, "
    "or ask the owner for the last good copy and its anchor",
    "EEXIST": "it, or an old log of that name (-wal, -shm, -journal), is there already, and a "
    "budget is given once. Use it as it is, or choose another path (ledger.path) for other data",
}
"""What to do about errors of SQLite and of the system, by how their codes begin."""


def remedy_of(error: Exception) -> str:
    """What to do about an error of SQLite or of the system, without the path that it may name."""
    code = errno.errorcode.get(getattr(error, "errno", None) or 0, "")
    code = getattr(error, "sqlite_errorname", code)
    known = (w for codes, w in REMEDIES.items() if code.startswith(tuple(codes.split())))
    return next(known, getattr(error, "strerror", None) or str(error) or "it failed")


def a_path(path: object, what: str, kind: type[PsephosError]) -> str:
    """The path as text; what is no path is refused.

    >>> a_path("people.ledger", "a ledger", LedgerError)
    'people.ledger'
    """
    # Read once, and as plain text: a subclass of str could answer otherwise later.
    usable = isinstance(path, str | bytes | os.PathLike)
    text = str.__str__(os.fsdecode(path)) if usable else "\0"  # type: ignore[arg-type]
    if "\0" in text:
        raise kind(f"{what} is a path, got {path!r}")
    return text


def name_list(names: object, most: int = 12) -> str:
    """A short, readable list for a message: `age, sex, … (40 in all)`.

    >>> name_list(["age", "sex"])
    'age, sex'
    >>> name_list(range(100), most=3)
    '0, 1, 2, … (100 in all)'
    """
    items = list(names)  # type: ignore[call-overload]
    shown = ", ".join(str(item) for item in items[:most])
    return shown if len(items) <= most else f"{shown}, … ({len(items)} in all)"


def checked_whole(value: object, name: str, least: int) -> int:
    """A whole number, also one of numpy's."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise WorkloadError(f"{name} is a whole number of at least {least}, got {value!r}")
    return int(value)
