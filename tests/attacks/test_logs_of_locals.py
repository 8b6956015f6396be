"""Crash reports that print the local variables of every frame that an error passed.

The story: `traceback.TracebackException(..., capture_locals=True)`, which logs and crash reporters
use, prints the repr of every local. The rooms that hold counts had reprs that show them, arrays of
counts are locals of the kernel's frames, and `dataclasses.asdict` of a handle went through all of
it. An error of the ledger showed its path as well.

All errors that the suite expects are looked through, too (tests/locals_of_errors.py); here it is
seen that the look would find something.
"""

import dataclasses
import re
import traceback
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

import psephos as ps
import psephos.matrix as mx
from psephos.audit.stage import GotThrough, require
from psephos.domain.domain import Domain
from psephos.errors import PsephosError
from psephos.kernel import noise, storage, vault
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.scores import (
    FarFromIndependent,
    NoisyIntervals,
    PrivTree,
    WholePartitions,
    WorstApproximated,
)
from psephos.kernel.scores.deviations import Deviations
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.simulate import counted, simulation
from psephos.kernel.unit import add_remove_row
from psephos.protect import protect
from tests import locals_of_errors
from tests.attacks.forgeries import require_refusal

OWNERS_COUNTS = (4099, 5003, 6007, 7001)  # numbers that turn up by no other way
SPEND = epsilon("1/10")
FAILING_PARTS = (
    (noise, "_entropy"), (storage, "keep"), (Draws, "choice"), (np, "concatenate"),
    (mx.Identity, "matvec"), (DiscreteLaplace, "draw"), (storage, "fetch"),
    (Draws, "below"), (Deviations, "of"),
)  # fmt: skip
"""Functions of the kernel, and below it, that are made to fail one at a time."""


def crash_report(error):
    """Everything that a crash reporter can find out about an error, this file's frames aside."""
    lines = []
    queue = [error]
    while queue:
        current = queue.pop()
        report = traceback.TracebackException.from_exception(current, capture_locals=True)
        report.stack[:] = [frame for frame in report.stack if frame.filename != __file__]
        lines += report.format(chain=False)
        queue += [e for e in (current.__cause__, current.__context__) if e is not None]
    return "".join(lines)


def open_owners(place, name):
    ledger = Ledger.create(
        place.folder / f"the owner's {name}.ledger",
        dataset="made up",
        unit=add_remove_row(),
        budget=epsilon("100"),
    )
    column = pa.array(np.repeat(np.arange(len(OWNERS_COUNTS)), OWNERS_COUNTS))
    return protect(pa.table({"x": column}), Domain.of(x=len(OWNERS_COUNTS)), ledger=ledger), ledger


@contextmanager
def sabotage(owner, name, error):
    """For a while, a function of a module or a class fails with an error."""

    def fail(*args, **options):
        raise error()

    original = getattr(owner, name)
    setattr(owner, name, fail)
    try:
        yield
    finally:
        setattr(owner, name, original)


def test_crash_reports_show_no_count_and_no_path(place):
    table, _ = open_owners(place, "reports")
    vector = table.vectorise()
    requests = [
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
                failures = []
                with sabotage(owner, name, error):
                    try:
                        request()
                    except BaseException as raised:  # noqa: BLE001 - of whatever kind
                        failures.append(raised)
                for failure in failures:
                    require_secrecy(crash_report(failure), f"{name} failing")


def require_secrecy(text, what):
    """The text must hold neither a true count nor the path of the ledger."""
    for count in OWNERS_COUNTS:
        if re.search(rf"(?<![0-9a-f]){count}(?![0-9a-f])", text):  # not inside of a hash
            raise GotThrough(f"{what} shows a true count")
    require("the owner's" not in text, f"{what} shows the owner's path")


def test_dataclass_tools_and_reprs_of_handles_show_nothing(place):
    table, _ = open_owners(place, "handles")
    vector = table.vectorise()
    vector.measure(mx.Identity(4), spend=SPEND)
    for handle in (table, vector):
        tools = [dataclasses.asdict, dataclasses.astuple, dataclasses.fields, vars]
        for tool in tools:
            require_refusal(f"{tool.__name__} of a handle", tool, handle)
        require_refusal("replace of a handle", dataclasses.replace, handle, domain=Domain.of(x=2))
    vault = table._vault
    holders = (table, vector, vault, vault.snapshot, vault.table(), table._node)
    for holder in holders:
        require_secrecy(repr(holder) + str(holder) + f"{holder}", "a repr")


def test_errors_of_the_ledger_do_not_say_its_path(place):
    table, ledger = open_owners(place, "paths")
    table.noisy_count(spend=SPEND, key="taken")
    requests = [
        lambda: table.vectorise().measure(mx.Identity(4), spend=SPEND, key="taken"),
        lambda: table.noisy_count(spend=epsilon("101")),
    ]
    for new_path in (None, ledger.path.with_name("elsewhere")):
        if new_path is not None:
            ledger.path.rename(new_path)
            requests += [lambda: table.noisy_count(spend=SPEND), lambda: raise_repr(table)]
        for request in requests:
            try:
                request()
            except PsephosError as error:
                require_secrecy(crash_report(error), "an error")


def raise_repr(table):
    raise PsephosError(repr(table))


DOMAIN = ps.Domain.of(x=5)
COUNTS = np.array([811, 17, 4099, 5, 93])


def broken_table():
    unit = ps.add_remove_row()
    table = simulation(counted(COUNTS, DOMAIN), DOMAIN, unit=unit, budget=ps.epsilon(9), seed=0)

    class Broken(vault.Draws):
        def noise(self, noise, size):
            raise MemoryError("811, 17, 4099, 5")

    table._vault.draws = Broken()
    return table.vectorise()


def test_the_look_sees_what_a_vault_has_counted():
    with pytest.raises(MemoryError) as caught:
        broken_table().measure(ps.matrix.Identity(5), spend=ps.epsilon("1"))
    assert (811, 17, 4099, 5) in locals_of_errors.COUNTED
    assert str(caught.value) == ""
    assert locals_of_errors.FORMATTED[0] > 0


def test_a_frame_with_counts_would_be_seen(monkeypatch):
    """Were errors passed on as they are, the suite would fail."""
    monkeypatch.setattr(vault, "_bare", lambda error: error)
    with locals_of_errors.plain_raises(AssertionError, match="shows true counts"):
        measure_and_look()


def measure_and_look():
    with pytest.raises(MemoryError):
        broken_table().measure(ps.matrix.Identity(5), spend=ps.epsilon("1"))
