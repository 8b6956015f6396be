"""Crashes, races and forks: what was spent stays spent, and a key has one answer."""

import copy
import functools
import itertools
import multiprocessing
import os
import pickle
import random
import re
import secrets
import signal
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from fractions import Fraction

import pytest

from psephos.errors import BudgetExceededError, LedgerError, RefusedError
from psephos.kernel import storage
from psephos.kernel.budget import Budget, epsilon
from psephos.kernel.ledger import Ledger
from tests.kernel.ledgers import ask, charge, make

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FORK = multiprocessing.get_context("fork")


def crash_points(action):
    """Run the action in children that die at their first, second, ... step, until one is done."""
    for point in itertools.count(1):
        child = os.fork()
        if child == 0:
            left = [point]

            def step(left=left):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            class Dying(sqlite3.Connection):
                def execute(self, *given, step=step):
                    step()
                    return super().execute(*given)

                def close(self, step=step):
                    step()
                    super().close()
                    step()

            def dying(real, step=step):
                def call(*given, **named):
                    step()
                    return real(*given, **named)

                return call

            for name in ("open", "close", "fsync"):
                setattr(os, name, dying(getattr(os, name)))
            sqlite3.connect = functools.partial(sqlite3.connect, factory=Dying)
            code = 1
            try:
                action(point)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        died = os.WIFSIGNALED(status)
        assert died or os.WEXITSTATUS(status) == 0
        yield point
        if not died:
            return


def test_a_request_survives_a_crash_at_every_step(folder):
    ledger = make(folder, "100")
    shown = folder / "shown"

    def action(point):
        values = ask(ledger, f"key {point}", secrets.token_bytes(8))
        with open(shown, "wb", buffering=0) as file:
            file.write(values)

    last = 0
    for last in crash_points(action):
        values = ask(ledger, f"key {last}", b"drawn anew")
        if shown.exists():
            assert shown.read_bytes() == values
            shown.unlink()
        assert ask(ledger, f"key {last}", b"and again") == values
        assert ledger.spent() == epsilon("1/10") * last
        ledger.verify()
    assert last > 30
    assert sorted(os.listdir(folder)) == ["people.ledger"]


def test_create_is_whole_or_empty(folder):
    def action(point):
        make(folder, name=f"{point}.ledger")

    outcomes = []
    for last in crash_points(action):
        path = folder / f"{last}.ledger"
        try:
            Ledger.open(path)
            outcomes.append("whole")
        except LedgerError as error:
            said = re.search("there is no ledger|creation was cut short", str(error))
            outcomes.append(said[0])
        if path.exists():
            with pytest.raises(LedgerError, match="is there already, and a budget is given once"):
                make(folder, name=path.name)
        if outcomes[-1] != "whole":
            for left in folder.glob(f"{path.name}*"):
                left.unlink()
            make(folder, name=path.name)
        ledger = Ledger.open(path)
        ledger.verify()
        assert ask(ledger, "k", b"v") == b"v"
    assert len(outcomes) > 20
    order = ["there is no ledger", "creation was cut short", "whole"]
    assert outcomes == sorted(outcomes, key=order.index)
    assert set(outcomes) == set(order)


def create_or_not(folder, results):
    try:
        results.put(make(folder).dataset_id)
    except LedgerError as error:
        results.put(str(error))


def test_of_many_creators_one_makes_the_ledger(folder):
    results = FORK.SimpleQueue()
    creators = [FORK.Process(target=create_or_not, args=(folder, results)) for _ in range(4)]
    run(creators)
    said = [results.get() for _ in creators]
    refused = [text for text in said if "is there already, and a budget is given once" in text]
    assert len(refused) == 3
    assert Ledger.open(folder / "people.ledger").dataset_id in said


def test_a_new_ledger_works_while_its_log_is_not_folded_in(folder, monkeypatch):
    """SQLite does not fold it in while someone else reads the file, or if the disk is full."""
    real, readers = sqlite3.connect, []

    class Watched(sqlite3.Connection):
        def close(self):
            (_, _, file), *_ = self.execute("PRAGMA database_list")
            if not readers:
                readers.append(real(file))
                readers[0].execute("SELECT * FROM record").fetchall()
            super().close()

    monkeypatch.setattr(sqlite3, "connect", functools.partial(real, factory=Watched))
    ledger = make(folder)
    with closing(readers[0]):
        charge(ledger)
        ledger.verify()


def answer_forever(path, pipe, start):
    ledger = Ledger.open(path)
    os.write(pipe, b"\n")
    for i in itertools.count(start):
        for key in {f"{random.randrange(i + 1)}", f"{i}"}:
            values = ask(ledger, key, secrets.token_bytes(16), "1/1000")
            os.write(pipe, f"{key} {values.hex()}\n".encode())


def test_kill_at_random_points(folder):
    """Hundreds of kill -9: no charge is lost or made twice, no key shows two answers."""
    ledger = make(folder, "1000")
    rng = random.Random(0)
    shown: dict[str, str] = {}
    kills = 0
    begin = time.monotonic()
    while kills < 100 or (kills < 300 and (time.monotonic() - begin < 10 or len(shown) <= 20)):
        reader, writer = os.pipe()
        start = max((int(key) + 1 for key in shown), default=0)
        child = FORK.Process(target=answer_forever, args=(ledger.path, writer, start))
        child.start()
        os.close(writer)
        os.read(reader, 1)
        time.sleep(rng.uniform(0, 0.01))
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        with open(reader) as lines:
            for line in lines:
                key, values = line.split()
                assert shown.setdefault(key, values) == values
        kills += 1
        assert ledger.spent() >= Budget("epsilon", Fraction(len(shown), 1000))
    ledger.verify()
    before = ledger.anchor()
    charged = [entry.key for entry in ledger.history()]
    assert len(charged) == len(set(charged))
    assert ledger.spent() == epsilon("1/1000") * len(charged) <= ledger.budget
    assert set(shown) <= set(charged)
    for key, values in shown.items():
        assert ask(ledger, key, b"never", "1/1000").hex() == values
    assert ledger.anchor() == before
    assert len(shown) > 20


def exhaust(path, seed, granted):
    ledger, rng, mine = Ledger.open(path), random.Random(seed), 0
    costs = [Fraction(1, 10), Fraction(1, 25), Fraction(1, 100)]
    while costs:
        cost = rng.choice(costs)
        try:
            charge(ledger, cost)
            mine += int(cost * 100)
        except BudgetExceededError:
            costs.remove(cost)
    granted.put(mine)


def run(processes):
    for process in processes:
        process.start()
    for process in processes:
        process.join(20)
        process.kill()
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)


def test_processes_race_to_exhaustion(folder):
    ledger = make(folder, "3")
    granted = FORK.SimpleQueue()
    racers = [FORK.Process(target=exhaust, args=(ledger.path, i, granted)) for i in range(8)]
    run(racers)
    assert sum(granted.get() for _ in racers) == 300
    assert ledger.spent() == ledger.budget
    ledger.verify()


def test_threads_share_a_ledger(ledger):
    asked = [threading.Thread(target=ask, args=(ledger, f"{i}", b"v")) for i in range(8)]
    for thread in asked:
        thread.start()
    for thread in asked:
        thread.join()
    assert ledger.spent() == epsilon("8/10")
    ledger.verify()


def test_of_two_threads_the_later_charge_is_remembered(ledger, monkeypatch):
    """Else the process would not notice an older copy that lacks it."""
    real, later = storage.operation, threading.Thread(target=charge, args=(ledger,))

    @contextmanager
    def overtaken(*given):
        with real(*given) as db:
            yield db
        monkeypatch.setattr(storage, "operation", real)
        later.start()
        later.join(0.2)

    monkeypatch.setattr(storage, "operation", overtaken)
    ledger.spent()
    later.join()
    assert ledger._seen[1].number == 1


def draw_late(path, ready, results):
    request = charge(Ledger.open(path), key="k")
    assert request.values is None
    ready.wait(10)  # by now all are charged, and draw
    results.put(bytes(request._store(secrets.token_bytes(8))))


def test_one_key_in_two_processes_shows_one_answer(ledger):
    """All draw, one is stored, and that one is shown by all."""
    results, ready = FORK.SimpleQueue(), FORK.Barrier(4)
    run([FORK.Process(target=draw_late, args=(ledger.path, ready, results)) for _ in range(4)])
    shown = {results.get() for _ in range(4)}
    assert shown == {bytes(ask(ledger, "k", b"never"))}
    assert ledger.spent() == epsilon("1/10")
    ledger.verify()


def test_one_key_in_two_threads_shows_one_answer(ledger):
    shown, ready = [], threading.Barrier(4)

    def draw():
        request = charge(ledger, key="k")
        ready.wait(10)
        shown.append(bytes(request._store(secrets.token_bytes(8))))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shown) == 4
    assert len(set(shown)) == 1


def in_child(action):
    """What the action says in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            os.write(writer, str(action()).encode())
        except BaseException as error:  # noqa: BLE001
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def test_fork(ledger):
    charge(ledger)
    assert in_child(lambda: charge(ledger, key="child").key) == "child"
    assert charge(ledger, key="child").replay
    assert in_child(ledger.spent) == "epsilon 1/5 (~0.2)"
    ledger.verify()


def test_a_fork_inside_an_operation_ends_the_child(ledger, capfd):
    """Its copy of the connection would otherwise take back what the parent charges after it."""
    reader, writer = os.pipe()
    with ledger._operation("BEGIN IMMEDIATE"):
        child = os.fork()
        if child == 0:
            os.write(writer, b"alive")
    os.close(writer)
    for _ in range(3):
        charge(ledger)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert os.read(reader, 9) == b""
    os.close(reader)
    assert "forked in the middle of a ledger's operation" in capfd.readouterr().err
    assert ledger.spent() == epsilon("3/10")
    assert in_child(ledger.spent) == "epsilon 3/10 (~0.3)"
    ledger.verify()


@pytest.mark.parametrize("operations", [0, 1, 2])
def test_only_a_fork_outside_of_all_operations_goes_on(operations, monkeypatch, capfd):
    """What a child does first, done here, with the turns that its parent's thread had."""

    class Ended(BaseException):
        pass

    def end(code):
        raise Ended(code)

    turn = threading.RLock()
    monkeypatch.setattr(storage, "TURN", turn)
    monkeypatch.setattr(storage.os, "_exit", end)
    for _ in range(operations + 1):  # the fork has a turn of its own
        turn.acquire()
    if operations:
        with pytest.raises(Ended, match="1"):
            storage._in_child()
        assert "forked in the middle of a ledger's operation" in capfd.readouterr().err
    else:
        storage._in_child()
    assert not turn._is_owned()


def test_a_fork_waits_for_the_operation_under_way(ledger):
    entered, leave = threading.Event(), threading.Event()

    def slowly():
        with ledger._operation("BEGIN IMMEDIATE"):
            entered.set()
            leave.wait(5)

    thread = threading.Thread(target=slowly)
    thread.start()
    entered.wait(5)
    threading.Timer(0.05, leave.set).start()
    assert in_child(lambda: charge(ledger, key="child").key) == "child"
    thread.join()


def test_parent_and_child_of_a_fork_show_one_answer(ledger):
    request = charge(ledger, key="k")
    assert in_child(lambda: request._store(b"the child's")) == str(b"the child's")
    assert request._store(b"the parent's") == b"the child's"
    assert in_child(lambda: bytes(request._store(b"late"))) == str(b"the child's")


def test_a_ledger_is_not_copied(ledger):
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(
            RefusedError, match=r"not copied; write Ledger\.open\('.*people\.ledger'"
        ):
            attempt(ledger)
    with pytest.raises(AttributeError):
        ledger.budget = epsilon("100")


def test_repr(ledger):
    charge(ledger, "1/4")
    unit = "add or remove one person (id, at most 3 rows)"
    assert repr(ledger) == f"Ledger('people', {unit}: epsilon 1/4 (~0.25) spent of epsilon 1)"
    ledger.path.unlink()
    assert "cannot be opened" in repr(ledger)
