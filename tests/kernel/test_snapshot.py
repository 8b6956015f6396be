"""One table for life: what is asked of a handle is asked of the rows that were taken first."""

import os
import signal
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import psephos as ps
from psephos.engines.frames import ArrowTable
from psephos.errors import RefusedError, SourceError
from psephos.kernel.cell_counts import CellCounts
from psephos.kernel.snapshot import Snapshot
from psephos.protect import protect_again

DOMAIN = ps.Domain.of(side=["a", "b", "c"], x=2)
BIG = ps.epsilon("100")
"""At this much a noisy count is the true one, but with a probability of exp(-100)."""


def opened(place, source, **options):
    path = place / "people.ledger"
    if not path.exists():
        unit = options.pop("unit", ps.add_remove_row())
        ps.Ledger.create(path, dataset="people", unit=unit, budget=ps.epsilon("100000"))
    return ps.protect(source, DOMAIN, ledger=path, **options), ps.Ledger.open(path)


def rows(side, number=3):
    return pd.DataFrame({"side": [side] * number, "x": [0] * number})


def count(table, key=None):
    return int(table.noisy_count(spend=BIG, key=key).values[0])


class Live:
    """An engine that does not say when its rows change, and how often it was read."""

    def __init__(self, frame):
        self.frame, self.readings = frame, 0

    def columns(self):
        return ArrowTable(pa.Table.from_pandas(self.frame)).columns()

    def version(self):
        return None

    def snapshot(self):
        self.readings += 1
        return ArrowTable(pa.Table.from_pandas(self.frame)).snapshot()


@pytest.mark.parametrize("unit", [ps.add_remove_row(), ps.person("x", max_rows=9)])
def test_a_source_is_read_once_whatever_is_derived(tmp_path, unit):
    live = Live(rows("a"))
    table, ledger = opened(tmp_path, live, unit=unit)
    parts = table.split("side")
    groups = table.group_by("side", most=9)
    assert live.readings == 0  # nothing before a charge
    assert count(parts["a"]) == 3
    live.frame = rows("b", 7)
    assert [count(parts[name]) for name in "abc"] == [3, 0, 0]
    sizes = groups.where(ps.col("count") == 3).vectorise()
    assert sizes.noisy_count(spend=BIG).values[0] == 1
    assert count(table.where(ps.col("side") == "b")) == 0
    assert live.readings == 1
    later, _ = opened(tmp_path, live)
    assert count(later) == 7
    assert len({entry.snapshot for entry in ledger.history()}) == 2


def test_parts_cost_their_maximum_in_each_snapshot(tmp_path):
    live = Live(rows("a"))
    for handles in (1, 2, 3):
        table, ledger = opened(tmp_path, live)
        for name in "abc":
            count(table.split("side")[name])
        assert ledger.spent() == handles * BIG


def test_a_handle_that_takes_no_rows_reads_none(tmp_path):
    live = Live(rows("a"))
    table, ledger = opened(tmp_path, live)
    assert count(table, "k") == 3
    again, _ = opened(tmp_path, live)
    live.frame = rows("b", 9)
    assert count(again, "k") == 3  # what is stored
    assert live.readings == 1
    assert ledger.spent() == BIG


class Source:
    """Gives what is in its list, one after the other; an error is raised."""

    row_abilities = frozenset()

    def __init__(self, *tables):
        self.tables = list(tables)

    def take(self, domain, cap, folder=None):
        table = self.tables.pop(0)
        if isinstance(table, BaseException):
            raise table
        return CellCounts(domain, np.array(table))


def test_what_fails_leaves_nothing_and_keeps_its_name():
    snapshot = Snapshot(Source(SourceError("no"), KeyboardInterrupt(), [1, 2], [3, 4]), None, None)
    name = snapshot.name
    for error in (SourceError, KeyboardInterrupt):
        with pytest.raises(error):
            snapshot.table()
    for _ in range(2):
        assert snapshot.table().cells.tolist() == [1, 2]
    assert snapshot.name == name
    assert "1" not in repr(snapshot)


def test_names_are_random_and_not_those_of_the_rows():
    names = {Snapshot(Source([1, 2]), None, None).name for _ in range(100)}
    assert len(names) == 100
    assert all(len(bytes.fromhex(name)) == 16 for name in names)


def in_child(work):
    """What a forked child makes of it, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


class Forking(Source):
    """Forks while its rows are taken; the child asks there, or goes on."""

    def take(self, domain, cap, folder=None):
        if self.child is None:
            self.child = os.fork()
            if self.child == 0 and self.asks:
                self.name, self.rows = self.snapshot.name, self.snapshot.table()
        return super().take(domain, cap, folder)


@pytest.mark.parametrize("asks", [False, True])
def test_a_fork_while_rows_are_taken(asks):
    """Else two tables would lie under one name, the child's in place of one that it looked at."""
    source = Forking([1, 2], [3, 4])
    source.child, source.asks = None, asks
    snapshot = source.snapshot = Snapshot(source, None, None)
    name = snapshot.name
    try:
        table = snapshot.table()
    except RefusedError:
        table = None
    if source.child == 0:
        wrong = table is not None
        if asks:
            wrong |= source.name == name or snapshot.table() is not source.rows
        os._exit(int(wrong))
    assert os.waitpid(source.child, 0)[1] == 0
    assert table.cells.tolist() == [1, 2]
    assert snapshot.name == name


class Resumed(Source):
    """Its rows are taken on in another process, or around a request that took rows itself."""

    def take(self, domain, cap, folder=None):
        self.meanwhile()
        return super().take(domain, cap, folder)


def test_rows_that_were_taken_across_a_fork_are_dropped(monkeypatch):
    """As the child sees it, but here."""
    source = Resumed([1, 2], [3, 4])
    snapshot = Snapshot(source, None, None)
    name, there = snapshot.name, (0, 0)
    source.meanwhile = lambda: monkeypatch.setattr("psephos.kernel.snapshot.process", lambda: there)
    with pytest.raises(RefusedError, match="forked in the middle"):
        snapshot.table()
    source.meanwhile = lambda: None
    assert snapshot.name != name
    assert snapshot.table().cells.tolist() == [3, 4]


def test_rows_that_were_taken_around_others_are_dropped(monkeypatch):
    source = Resumed([1, 2], [3, 4])
    snapshot = Snapshot(source, None, None)
    name, here = snapshot.name, ["the parent"]
    monkeypatch.setattr("psephos.kernel.snapshot.process", lambda: here[0])
    name = snapshot.name

    def ask():
        source.meanwhile = lambda: None
        here[0] = "the child"
        assert snapshot.name != name
        assert snapshot.table().cells.tolist() == [1, 2]
        here[0] = "the parent"

    source.meanwhile = ask
    with pytest.raises(RefusedError, match="forked in the middle"):
        snapshot.table()
    assert snapshot.table().cells.tolist() == [1, 2]


def test_a_second_handle_is_made_of_the_first_as_it_was_opened(tmp_path):
    """Made of a derived one it would forget the way to it, and with it the stability."""
    table, _ = opened(tmp_path, rows("a"))
    merged = DOMAIN.merge(["side", "x"])
    again = protect_again(table, merged)
    assert again.domain == merged
    assert count(again) == 3
    derived = (table.group_by("side", most=3), table.keep("x"), table.split("side")["a"])
    for handle in (*derived, table.vectorise()):
        with pytest.raises(RefusedError, match="as it was opened"):
            protect_again(handle, handle.domain)
    with pytest.raises(ps.errors.DomainError, match="domains of their columns"):
        protect_again(table, ps.Domain.of(side=["a", "b"], x=2))


def test_a_forked_child_without_rows_has_a_name_of_its_own(monkeypatch):
    """Even under the number of a process that was there before."""
    snapshot = Snapshot(Source([1, 2]), None, None)
    name, number = snapshot.name, os.getpid()

    def name_there():
        monkeypatch.setattr(os, "getpid", lambda: number)
        return snapshot.name

    other = in_child(name_there)
    assert len(other) == 32
    assert other != name == snapshot.name
    snapshot.table()
    assert in_child(lambda: snapshot.name) == name  # the same rows


def test_threads_take_the_rows_once(tmp_path):
    live = Live(rows("a"))
    table, _ = opened(tmp_path, live)
    shown = []
    threads = [threading.Thread(target=lambda: shown.append(count(table))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shown == [3] * 4
    assert live.readings == 1


class Alarming(Live):
    """Sends a signal while its rows are taken."""

    def snapshot(self):
        signal.raise_signal(signal.SIGUSR1)
        return super().snapshot()


def test_a_handler_that_asks_while_rows_are_taken_is_refused(tmp_path):
    live, refused = Alarming(rows("a")), []
    table, _ = opened(tmp_path, live)

    def ask(*_):
        with pytest.raises(ps.errors.RefusedError, match="a request is being made"):
            count(table)
        refused.append(1)

    before = signal.signal(signal.SIGUSR1, ask)
    try:
        assert count(table) == 3
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert refused == [1]
    assert live.readings == 1


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_rows_may_lie_in_a_folder_of_the_owner(tmp_path, where, monkeypatch):
    monkeypatch.setattr("psephos.engines.duckdb.reader.GROUP_LIMIT", 0)
    place = tmp_path / "private"
    place.mkdir()
    table, _ = opened(tmp_path, rows("a"), folder=place if where == "folder" else None)
    assert count(table.split("side")["a"]) == 3
    assert os.listdir(place) == []


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SourceError, match="make it first"):
        opened(tmp_path, rows("a"), folder=tmp_path / "none")
