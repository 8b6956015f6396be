"""What error trackers write down: the locals of every frame that an error passed.

The story: `traceback.TracebackException(..., capture_locals=True)`, which logs and crash reporters
use, prints the repr of every local. The rooms that hold counts had reprs that show them, arrays of
counts are locals of the kernel's frames, and `dataclasses.asdict` of a handle went through all of
it. An error of the ledger told its path as well.
"""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

import psephos.matrix as mx
from psephos.audit.stage import Attack, GotThrough, Stage, refused, require
from psephos.domain.domain import Domain
from psephos.errors import PsephosError
from psephos.kernel import noise, storage, vault
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.scores.worst_approximated import WorstApproximated
from psephos.kernel.unit import add_remove_row
from psephos.protect import protect

COUNTS = (4099, 5003, 6007, 7001)  # numbers that turn up by no other way
SPEND = epsilon("1/10")


def _open(stage: Stage, name: str) -> tuple[ProtectedTable, Ledger]:
    ledger = Ledger.create(
        stage.folder / f"the owner's {name}.ledger",
        dataset="made up",
        unit=add_remove_row(),
        budget=epsilon("100"),
    )
    column = pa.array(np.repeat(np.arange(len(COUNTS)), COUNTS))
    return protect(pa.table({"x": column}), Domain.of(x=len(COUNTS)), ledger=ledger), ledger


def shown_with_locals(error: BaseException) -> str:
    """Everything that a crash reporter can find out about an error, this file's frames aside."""
    lines: list[str] = []
    left = [error]
    while left:
        each = left.pop()
        report = traceback.TracebackException.from_exception(each, capture_locals=True)
        report.stack[:] = [frame for frame in report.stack if frame.filename != __file__]
        lines += report.format(chain=False)
        left += [other for other in (each.__cause__, each.__context__) if other is not None]
    return "".join(lines)


@contextmanager
def _broken(place: Any, name: str, error: Callable[[], BaseException]) -> Iterator[None]:
    def fail(*given: Any, **named: Any) -> Any:
        raise error()

    working = getattr(place, name)
    setattr(place, name, fail)
    try:
        yield
    finally:
        setattr(place, name, working)


PLACES: tuple[tuple[Any, str], ...] = (
    (noise, "_entropy"), (storage, "keep"), (vault.Draws, "choice"), (np, "concatenate"),
)  # fmt: skip
PLACES += ((mx.Identity, "matvec"), (DiscreteLaplace, "draw"), (storage, "fetch"))


def _crash_reports(stage: Stage) -> None:
    table, _ = _open(stage, "reports")
    vector = table.vectorise()
    requests: list[Callable[[], Any]] = [
        lambda: vector.measure(mx.Identity(4), spend=SPEND),
        lambda: vector.transform(mx.Prefix(4)).measure(mx.Identity(4), spend=SPEND),
        lambda: vector.choose(WorstApproximated(mx.Identity(4), [0] * 4), spend=SPEND),
        lambda: table.group_by("x", most=9000).noisy_count(spend=SPEND),
        lambda: repr(table) + repr(vector),
    ]
    for place, name in PLACES:
        for kind in (MemoryError, KeyboardInterrupt, ValueError, OSError):
            for request in requests:
                failures: list[BaseException] = []
                with _broken(place, name, kind):
                    try:
                        request()
                    except BaseException as failure:  # noqa: BLE001 - of whatever kind
                        failures.append(failure)
                for seen in failures:
                    _look(shown_with_locals(seen), f"{name} failing")


def _look(text: str, what: str) -> None:
    for count in COUNTS:
        if re.search(rf"(?<![0-9a-f]){count}(?![0-9a-f])", text):  # not inside of a hash
            raise GotThrough(f"{what} shows a true count")
    require("the owner's" not in text, f"{what} shows the owner's path")


def _dataclass_tools(stage: Stage) -> None:
    table, _ = _open(stage, "handles")
    vector = table.vectorise()
    vector.measure(mx.Identity(4), spend=SPEND)
    for handle in (table, vector):
        tools: list[Any] = [dataclasses.asdict, dataclasses.astuple, dataclasses.fields, vars]
        for tool in tools:
            refused(f"{tool.__name__} of a handle", tool, handle)
        refused("replace of a handle", dataclasses.replace, handle, domain=Domain.of(x=2))
    rooms = (table, vector, table._vault, table._vault.source, table._node)
    for room in rooms:
        _look(repr(room) + str(room) + f"{room}", "a repr")


def _told_paths(stage: Stage) -> None:
    table, ledger = _open(stage, "paths")
    table.noisy_count(spend=SPEND, key="taken")
    asks: list[Callable[[], Any]] = [
        lambda: table.vectorise().measure(mx.Identity(4), spend=SPEND, key="taken")
    ]
    asks += [lambda: table.noisy_count(spend=epsilon("101"))]
    hidden = ledger.path.with_name("elsewhere")
    for step in (None, hidden):
        if step is not None:
            ledger.path.rename(step)
            asks += [lambda: table.noisy_count(spend=SPEND), lambda: _repr(table)]
        for ask in asks:
            try:
                ask()
            except PsephosError as error:
                _look(shown_with_locals(error), "an error")


def _repr(table: ProtectedTable) -> None:
    raise PsephosError(repr(table))


ATTACKS = (
    Attack("crash reports with locals", "show no count and no path", _crash_reports),
    Attack("dataclass tools and reprs of handles", "show nothing", _dataclass_tools),
    Attack("errors of the ledger", "do not tell its path", _told_paths),
)
