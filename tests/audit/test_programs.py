"""Random programs with several snapshots and interruptions lose no more than their ledger says."""

import os
import resource
import signal
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest

from psephos.audit import programs
from psephos.audit.changing_rows import ChangingRows
from psephos.audit.program_steps import split_table
from psephos.audit.programs import INTERRUPTIONS, Program, random_programs
from psephos.audit.stage import GotThrough
from psephos.engines.duckdb.reader import Reader
from psephos.engines.row_store import RowStore
from psephos.kernel import ledger
from psephos.kernel.lineage import process
from psephos.kernel.snapshot import Snapshot
from psephos.kernel.vault import Vault
from tests.broken_rules import forget_parts, forget_stability, refund_charges

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FEW = range(60)
MANY = range(1000, 1000 + 6000)


def in_child(work):
    """A forked child does the work, and takes its answer with it."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_child(program, ask):
    """A child dies at a random line; the parent goes on, with the same handle or another."""

    def work():
        with programs.at_some_line(program.rng, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            ask()

    in_child(work)


def fill_disk(program, ask):
    """A child cannot write past some byte of the ledger or of its log."""
    most = program.rng.randrange(os.path.getsize(program.ledger.path) + 2**14)

    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        ask()

    in_child(work)


ALL_INTERRUPTIONS = INTERRUPTIONS | {"kill": kill_child, "disk": fill_disk}


class CellReader(Reader):
    """A reader of rows that are cells already, which takes no time."""

    def take(self, domain, cap, folder=None):
        """The rows of now."""
        rows = self.engine.serve()
        begins = np.append(True, np.diff(rows[:, 0]) > 0)
        columns = [*rows[:, 1:].T, begins] if cap else list(rows[:, 1:].T)
        return RowStore.of(domain, [columns], persons=cap is not None, folder=folder)


class FastProgram(Program):
    """Three of four read no rows by way of an engine."""

    def source(self, rows):
        return CellReader(rows) if self.seed % 4 else rows


class Tally:
    """What some programs came to."""

    def __init__(self, stage, seeds, interruptions=ALL_INTERRUPTIONS):
        self.results = []
        for seed in seeds:
            self.results.append(FastProgram(stage, seed, interruptions).run())

    @property
    def worst(self):
        return max(result.worst for result in self.results)

    @property
    def tight(self):
        return sum(result.loss == result.spent > 0 for result in self.results)

    @property
    def interruptions(self):
        return sum((result.interruptions for result in self.results), Counter())

    def __str__(self):
        spread = Counter(result.snapshots for result in self.results)
        requests = sum(result.requests for result in self.results)
        return (
            f"{len(self.results)} programs, {requests} requests, {dict(self.interruptions)}, "
            f"worst {float(self.worst)}, {self.tight} tight, snapshots {sorted(spread.items())}"
        )


def test_programs_lose_no_more_than_is_spent(place):
    tally = Tally(place, FEW)
    assert tally.worst == 1, tally
    assert tally.tight > len(FEW) / 10, tally
    assert set(tally.interruptions) == set(ALL_INTERRUPTIONS)


def one_snapshot_name(monkeypatch):
    """Rows are taken anew by each handle, under the name of those taken before."""

    def name(self):
        self._name = (process(), "the same")
        return "the same"

    monkeypatch.setattr(Snapshot, "name", property(name))


def rows_taken_again(monkeypatch):
    """A handle reads its source for every request."""
    monkeypatch.setattr(Snapshot, "table", lambda self: self._source.take(self._domain, *self._how))
    monkeypatch.setattr(Vault, "latest", lambda self, place, counts: [c.ravel() for c in counts()])


def free_unanswered_keys(monkeypatch):
    """What a key has paid in one snapshot holds in all, behind splits, too."""
    true = ledger._price_paid
    everywhere = lambda records, charge: true(records, charge._replace(branches=()))  # noqa: E731
    monkeypatch.setattr(ledger, "_price_paid", everywhere)


def narrow(program):
    """Requests in the parts of one split, at one price, so that one leans on the other."""
    program.steps, program.queries = [split_table], programs.QUERIES[:1]
    program.prices, program.nearness, program.rate = (1,), 1, 1 / 3
    return program


@pytest.mark.parametrize(
    "broken",
    [forget_parts, refund_charges, forget_stability, one_snapshot_name, rows_taken_again],
)
def test_a_broken_rule_is_found(monkeypatch, place, broken):
    """Among those that an audit tries, or soon after."""
    broken(monkeypatch)
    assert any(FastProgram(place, seed).run().worst > 1 for seed in FEW)


def test_keys_that_are_free_in_all_snapshots_are_found(monkeypatch, place):
    """It takes a request that fails, one that leans on it, and the first again over other rows."""
    assert all(narrow(FastProgram(place, seed)).run().worst <= 1 for seed in range(150, 165))
    free_unanswered_keys(monkeypatch)
    assert any(narrow(FastProgram(place, seed)).run().worst > 1 for seed in range(150, 300))


def test_values_of_other_rows_are_found(monkeypatch, place):
    """Noise is zero, so an answer over another state differs."""
    true = ChangingRows.serve
    monkeypatch.setattr(ChangingRows, "serve", lambda self: true(self)[1:])
    with pytest.raises(GotThrough, match="not that of the rows that were served"):
        Tally(place, FEW, INTERRUPTIONS)


def test_the_audit_has_a_row(monkeypatch, place):
    (result,) = random_programs(place, range(5))
    assert result.ok
    assert result.loss <= result.charge
    assert "5 programs" in result.verdict
    monkeypatch.setattr(Program, "_ask", lambda *_: (_ for _ in ()).throw(GotThrough("it was")))
    broken = list(random_programs(place, range(5)))
    assert not any(result.ok for result in broken)
    assert "IT GOT THROUGH: it was, in the program of seed 0" in broken[0].verdict


@pytest.mark.slow
def test_thousands_of_programs_with_three_snapshots(place):
    """Interrupted programs of three snapshots or more alone are counted to the 2,000."""
    tally = Tally(place, [])
    for seed in MANY:
        program = FastProgram(place, seed, ALL_INTERRUPTIONS)
        program.rate = 1 / 3
        result = program.run()
        assert result.worst <= 1, result
        if result.snapshots > 2 and result.interruptions.total():
            tally.results.append(result)
        if len(tally.results) == 2000:
            break
    print(tally)  # noqa: T201
    assert len(tally.results) == 2000, tally
    assert tally.tight > 100, tally
    assert set(tally.interruptions) == set(ALL_INTERRUPTIONS)
