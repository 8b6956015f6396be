"""A row that moves between two looks: whoever is paid for once must not be seen twice.

Each test measures at so high a spend that the noise is nothing, and counts in how many answers the
row was seen against how often its price was paid.
"""

import os
import random
import signal
import sqlite3
import threading
import time
from contextlib import suppress

import duckdb
import numpy as np
import pandas as pd
import pytest

import psephos as ps
from psephos.engines import ConnectedTable, in_one_state
from psephos.matrix import Dense, Identity, Kron, total

DOMAIN = ps.Domain.of(side=["a", "b"], g=2)
SPEND = ps.epsilon("100")


class World:
    """Three rows on each side and one more, at which all of this looks, that moves."""

    def __init__(self, folder):
        self.place = folder / "people.csv"
        self.path = folder / "people.ledger"
        unit, budget = ps.add_remove_row(), ps.epsilon("100000")
        self.ledger = ps.Ledger.create(self.path, dataset="p", unit=unit, budget=budget)
        self.stamp = time.time_ns()

    def write(self, side):
        rows = [("a", 0)] * 3 + [("b", 0)] * 3 + [(side, 1)]
        pd.DataFrame(rows, columns=["side", "g"]).to_csv(self.place, index=False)
        self.stamp += 10**9
        os.utime(self.place, ns=(self.stamp, self.stamp))

    def table(self):
        return ps.protect(self.place, DOMAIN, ledger=self.path)

    def parts(self):
        return self.table().split("side")

    def paid(self):
        return self.ledger.spent().amount / SPEND.amount


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.write("a")
    return made


def seen(part, key=None):
    """Is the moving row in it?"""
    return int(part.noisy_count(spend=SPEND, key=key).values[0]) == 4


def test_counts_kept_from_before_beside_counts_of_now(world):
    parts = world.parts()
    parts["a"].noisy_count(spend=ps.epsilon("1/1000"))
    world.write("b")
    assert seen(parts["a"]) + seen(parts["b"]) <= world.paid()


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_key_of_a_part_that_is_drawn_over_other_rows(world, first, tmp_path):
    """Booked at a discount, or in full while the other part leaned on it."""
    parts, query = world.parts(), total(1)
    domain = ps.Domain.of(side=["a", "b"], g=2, x=1)
    frame = pd.read_csv(world.place).assign(x=0)
    (tmp_path / "out").mkdir()

    def opened():
        data = pd.read_csv(world.place).assign(x=0)
        return ps.protect(data, domain, ledger=world.path).split("side")

    def measured(part, folder):
        return part.parts("g").measure(
            query, weights=[1, 0], spend=SPEND, folder=folder, key="cut short"
        )

    assert len(frame) == 7
    parts, shown = opened(), 0
    if first == "a":
        shown += seen(parts["a"])
    with pytest.raises(ps.errors.PsephosError):
        measured(parts["b"], "/proc")  # fails after its charge
    if first == "b":
        shown += seen(parts["a"])
    world.write("b")
    answers = measured(opened()["b"], tmp_path / "out").answers_of(0, 0, 1)
    shown += int(answers[0, 0]) == 4
    assert shown == 2
    assert shown <= world.paid()


def test_one_request_over_rows_of_two_times(world):
    """The request's sensitivity supposes that a row has one cell."""
    side_a = Kron((Dense(np.array([[1, 0]])), total(2)))
    side_b = Kron((Dense(np.array([[0, 1]])), Identity(2)))
    vector = world.table().vectorise()
    vector.measure(side_a, spend=ps.epsilon("1/1000"))
    world.write("b")
    query = ps.Query.of([(side_a, 1), (side_b, 1)])
    in_a, _, in_b = vector.measure(query, spend=SPEND).values
    assert (in_a, in_b) == (4, 0)


def test_free_requests_after_a_failed_look(world, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    world.place = folder / "people.csv"
    world.write("a")
    part = world.parts()["a"]
    shown = seen(part, "first")
    for i in range(5):
        folder.rename(tmp_path / "moved")
        assert seen(part, "first")  # a replay, which is free
        (tmp_path / "moved").rename(folder)
        shown += seen(part, f"fresh {i}")
    assert shown == world.paid() == 6


class Late(Exception):
    pass


# Where the timer rings inside a callback of the test runner's own, that says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_free_requests_by_a_timer(tmp_path):
    """Replays are interrupted anywhere; a fresh request at more than is left stays refused."""
    ledger = ps.Ledger.create(
        tmp_path / "l", dataset="p", unit=ps.add_remove_row(), budget=ps.epsilon("9")
    )
    frame = pd.DataFrame({"side": ["a"] * 3 + ["b"] * 3, "g": [0] * 6})
    part = ps.protect(frame, DOMAIN, ledger=tmp_path / "l").split("side")["a"].vectorise()
    five = ps.epsilon("5")
    part.noisy_count(spend=five, key="first")
    generator = random.Random(0)

    def late(*_):
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    try:
        for i in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, generator.uniform(1e-4, 3e-3))
                part.noisy_count(spend=five, key="first")
                signal.setitimer(signal.ITIMER_REAL, 0)
            except (Late, ps.errors.PsephosError):
                pass
            finally:
                with suppress(Late):
                    signal.setitimer(signal.ITIMER_REAL, 0)
            with pytest.raises(ps.errors.BudgetError):
                part.noisy_count(spend=five, key=f"fresh {i}")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ledger.spent() == five
    ledger.verify()


def test_rows_that_change_while_a_request_waits_for_the_ledger(world):
    parts = world.parts()
    first = seen(parts["a"])
    lock = sqlite3.connect(world.path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    shown = []
    thread = threading.Thread(target=lambda: shown.append(seen(parts["b"])))
    thread.start()
    time.sleep(0.3)
    world.write("b")
    lock.execute("ROLLBACK")
    lock.close()
    thread.join()
    assert first + shown[0] <= world.paid()


def test_a_frame_that_is_changed_in_place(tmp_path):
    domain = ps.Domain.of(side=2, x=2)
    ledger = ps.Ledger.create(
        tmp_path / "l", dataset="p", unit=ps.add_remove_row(), budget=ps.epsilon("1000")
    )
    sides = {"side": np.array([0, 0, 0, 1, 1, 1, 0]), "x": np.array([0, 0, 0, 0, 0, 0, 1])}
    frame = pd.DataFrame(sides)
    parts = ps.protect(frame, domain, ledger=tmp_path / "l").split("side")
    before = int(parts["0"].noisy_count(spend=SPEND).values[0])
    frame.iloc[6, 0] = 1
    after = int(parts["1"].noisy_count(spend=SPEND).values[0])
    assert before + after == 7
    assert ledger.spent() == SPEND


def test_a_live_connection_that_is_held_open(tmp_path):
    database = duckdb.connect(str(tmp_path / "live.duckdb"))
    database.execute("CREATE TABLE t AS SELECT 'a' AS side, 0 AS g FROM range(3)")
    database.execute("INSERT INTO t SELECT 'b', 0 FROM range(3)")
    database.execute("INSERT INTO t VALUES ('a', 1)")
    ledger = ps.Ledger.create(
        tmp_path / "l", dataset="p", unit=ps.add_remove_row(), budget=ps.epsilon("1000")
    )
    with in_one_state(ConnectedTable(database, "t")) as table:
        parts = ps.protect(table, DOMAIN, ledger=tmp_path / "l").split("side")
        first = seen(parts["a"])
        database.execute("UPDATE t SET side = 'b' WHERE g = 1")
        assert first + seen(parts["b"]) <= ledger.spent().amount / SPEND.amount
