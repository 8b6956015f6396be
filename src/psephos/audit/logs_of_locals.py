"""Crash reports that print the local variables of every frame that an error passed.

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
from psephos.audit.stage import Attack, GotThrough, Stage, require, require_refusal
from psephos.domain.domain import Domain
from psephos.errors import PsephosError
from psephos.kernel import noise, storage
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.scores import (
    FarFromIndependent,
    NoisyIntervals,
    PrivTree,
    WholePartitions,
    WorstApproximated,
)
from psephos.kernel.scores.deviations import Deviations
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.unit import add_remove_row
from psephos.protect import protect

COUNTS = (4099, 5003, 6007, 7001)  # numbers that turn up by no other way
SPEND = epsilon("1/10")
FAILING_PARTS: tuple[tuple[Any, str], ...] = (
    (noise, "_entropy"), (storage, "keep"), (Draws, "choice"), (np, "concatenate"),
    (mx.Identity, "matvec"), (DiscreteLaplace, "draw"), (storage, "fetch"),
    (Draws, "below"), (Deviations, "of"),
)  # fmt: skip
"""Functions of the kernel, and below it, that are made to fail one at a time."""


def crash_report(error: BaseException) -> str:
    """Everything that a crash reporter can find out about an error, this file's frames aside."""
    lines: list[str] = []
    queue = [error]
    while queue:
        current = queue.pop()
        report = traceback.TracebackException.from_exception(current, capture_locals=True)
        report.stack[:] = [frame for frame in report.stack if frame.filename != __file__]
        lines += report.format(chain=False)
        queue += [e for e in (current.__cause__, current.__context__) if e is not None]
    return "".join(lines)


def _open(stage: Stage, name: str) -> tuple[ProtectedTable, Ledger]:
    ledger = Ledger.create(
        stage.folder / f"the owner's {name}.ledger",
        dataset="made up",
        unit=add_remove_row(),
        budget=epsilon("100"),
    )
    column = pa.array(np.repeat(np.arange(len(COUNTS)), COUNTS))
    return protect(pa.table({"x": column}), Domain.of(x=len(COUNTS)), ledger=ledger), ledger


@contextmanager
def _sabotage(owner: Any, name: str, error: Callable[[], BaseException]) -> Iterator[None]:
    """For a while, a function of a module or a class fails with an error."""

    def fail(*args: Any, **options: Any) -> Any:
        raise error()

    original = getattr(owner, name)
    setattr(owner, name, fail)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _crash_reports(stage: Stage) -> None:
    table, _ = _open(stage, "reports")
    vector = table.vectorise()
    requests: list[Callable[[], Any]] = [
        lambda: vector.measure(mx.Identity(4), spend=SPEND),
        lambda: vector.transform(mx.Prefix(4)).measure(mx.Identity(4), spend=SPEND),
        lambda: vector.choose(WorstApproximated(mx.Identity(4), [0] * 4), spend=SPEND),
        lambda: vector.choose(FarFromIndependent((mx.Identity(4),), ([0] * 4,)), spend=SPEND),
        lambda: vector.partition(WholePartitions(), spend=SPEND),
        lambda: vector.partition(NoisyIntervals(), spend=SPEND),
        lambda: vector.partition(PrivTree(), spend=SPEND),
        lambda: table.group_by("x", most=9000).noisy_count(spend=SPEND),
        lambda: repr(table) + repr(vector),
    ]
    for owner, name in FAILING_PARTS:
        for error in (MemoryError, KeyboardInterrupt, ValueError, OSError):
            for request in requests:
                failures: list[BaseException] = []
                with _sabotage(owner, name, error):
                    try:
                        request()
                    except BaseException as raised:  # noqa: BLE001 - of whatever kind
                        failures.append(raised)
                for failure in failures:
                    _require_secrecy(crash_report(failure), f"{name} failing")


def _require_secrecy(text: str, what: str) -> None:
    """The text must hold neither a true count nor the path of the ledger."""
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
            require_refusal(f"{tool.__name__} of a handle", tool, handle)
        require_refusal("replace of a handle", dataclasses.replace, handle, domain=Domain.of(x=2))
    vault = table._vault
    holders = (table, vector, vault, vault.snapshot, vault.table(), table._node)
    for holder in holders:
        _require_secrecy(repr(holder) + str(holder) + f"{holder}", "a repr")


def _paths_in_errors(stage: Stage) -> None:
    table, ledger = _open(stage, "paths")
    table.noisy_count(spend=SPEND, key="taken")
    requests: list[Callable[[], Any]] = [
        lambda: table.vectorise().measure(mx.Identity(4), spend=SPEND, key="taken"),
        lambda: table.noisy_count(spend=epsilon("101")),
    ]
    for new_path in (None, ledger.path.with_name("elsewhere")):
        if new_path is not None:
            ledger.path.rename(new_path)
            requests += [lambda: table.noisy_count(spend=SPEND), lambda: _raise_repr(table)]
        for request in requests:
            try:
                request()
            except PsephosError as error:
                _require_secrecy(crash_report(error), "an error")


def _raise_repr(table: ProtectedTable) -> None:
    raise PsephosError(repr(table))


LOG_ATTACKS = (
    Attack("crash reports with locals", "show no count and no path", _crash_reports),
    Attack("dataclass tools and reprs of handles", "show nothing", _dataclass_tools),
    Attack("errors of the ledger", "do not tell its path", _paths_in_errors),
)
