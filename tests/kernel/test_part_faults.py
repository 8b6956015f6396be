"""What goes wrong while parts are measured: one charge, one readable answer, nothing lost.

Workers and drivers are killed for real; both are processes that these tests start themselves.
"""

import errno
import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import psephos as ps
from psephos.errors import LedgerError, SourceError
from psephos.kernel import gate
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.parts import law, runners, seal, task
from psephos.kernel.parts.runners import InProcess, Processes
from psephos.kernel.parts.seal import PartReceipt
from psephos.kernel.parts.task import PartJob, PartTask, perform
from psephos.kernel.parts.worker import receive, reply_to, send, start_worker, work
from psephos.kernel.query import Query
from psephos.kernel.scores.mechanisms import Draws
from psephos.matrix import Identity

PARTS = 40


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    """Four parts in a run, so that there are ten tasks."""
    monkeypatch.setattr(law, "TASK_NUMBERS", 12)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "parts").mkdir()
    unit, budget = ps.add_remove_row(), ps.epsilon("2")
    ps.Ledger.create(tmp_path / "people.ledger", dataset="people", unit=unit, budget=budget)
    return tmp_path


def parts_of(place):
    rng = np.random.default_rng(0)
    # Parts from 30 on are declared and have no rows.
    rows = pd.DataFrame({"part": rng.integers(0, 30, 500), "x": rng.integers(0, 3, 500)})
    domain = ps.Domain.of(part=PARTS, x=3)
    return ps.protect(rows, domain, ledger=place / "people.ledger").parts("part")


def measured(place, runner=None):
    return parts_of(place).measure(
        Identity(3),
        weights=[0, 1],
        spend=ps.epsilon("1"),
        folder=place / "parts",
        key="census",
        runner=runner,
    )


def spent(place):
    return ps.Ledger.open(place / "people.ledger").spent()


def sealed_files(place):
    return {path.name for path in (place / "parts").iterdir()}


def is_whole(measurement, place):
    """All parts answer, from exactly the files that the manifest names, for one charge."""
    assert measurement.answers_of(1, 0, PARTS).shape == (PARTS, 3)
    assert sealed_files(place) == {receipt.name for receipt in measurement.receipts}
    assert spent(place) == ps.epsilon("1")


@dataclass
class Stumbling:
    """Performs tasks in this process; each of some fails after it has written its file."""

    times: int
    left_behind: list = field(default_factory=list)

    def run(self, job, tasks):
        for each in tasks:
            if len(self.left_behind) < self.times:
                self.left_behind.append(perform(job, each, Draws()))
            yield perform(job, each, Draws())


def test_files_of_failed_attempts_are_swept_and_cannot_be_read(place, monkeypatch):
    stumbling = Stumbling(3)
    monkeypatch.setattr(InProcess, "run", lambda _, job, tasks: stumbling.run(job, tasks))
    measurement = measured(place)
    is_whole(measurement, place)
    lost = {receipt.name for receipt in stumbling.left_behind}
    assert not lost & sealed_files(place)
    assert not {receipt.key for receipt in stumbling.left_behind} & {
        receipt.key for receipt in measurement.receipts
    }


def test_killed_tasks_are_tried_again(place, monkeypatch):
    """Every process is killed after its first task, while it has the second one in hand."""
    performed, kills = runners._Worker.perform, []

    def killed(worker, task):
        if worker._process is not None and len(kills) < 5:
            kills.append(worker._process.pid)
            os.kill(worker._process.pid, signal.SIGKILL)
        return performed(worker, task)

    monkeypatch.setattr(runners._Worker, "perform", killed)
    is_whole(measured(place, Processes(1)), place)
    assert len(kills) == 5


def test_a_task_that_fails_always_is_told_and_costs_nothing_more(place, monkeypatch):
    monkeypatch.setattr(runners, "ATTEMPTS", 1)
    monkeypatch.setattr(runners._Worker, "_reply", lambda *_: ("failed",))
    with pytest.raises(SourceError, match="not charged twice"):
        measured(place, Processes(2))
    assert spent(place) == ps.epsilon("1")
    monkeypatch.undo()
    monkeypatch.setattr(law, "TASK_NUMBERS", 12)
    is_whole(measured(place), place)


def test_an_interruption_begins_no_further_task(monkeypatch):
    """Ctrl-C ends what is in hand, and does not wait for all parts."""
    taken, begun = [], threading.Event()

    def tasks():
        for number in range(1000):
            taken.append(number)
            yield number

    def slow(_, number):
        begun.set()
        time.sleep(0.01)
        return number

    monkeypatch.setattr(runners._Worker, "__init__", lambda worker, job: None)
    monkeypatch.setattr(runners._Worker, "__exit__", lambda *_: None)
    monkeypatch.setattr(runners._Worker, "perform", slow)

    def interrupted(*_):
        begun.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(Processes(1).run(None, tasks()))
    assert len(taken) < 100


DRIVER = """
    import os, sys
    from pathlib import Path
    from psephos.kernel.parts import law, seal
    from psephos.kernel.ledger import Request
    import tests.kernel.test_part_faults as faults
    law.TASK_NUMBERS = 12
    place, when = Path(sys.argv[1]), sys.argv[2]
    store, sealed, written = Request._store, seal.sealed, []
    def die(*_):
        os.kill(os.getpid(), 9)
    if when == "in the middle":
        from psephos.kernel.parts import task
        def sealed_some(*given):
            written.append(1)
            return die() if len(written) == 4 else sealed(*given)
        task.sealed = sealed_some
    if when == "before the store":
        Request._store = die
    if when == "after the store":
        def stored(request, data):
            store(request, data)
            die()
        Request._store = stored
    measurement = faults.measured(place)
    print(measurement.answers_of(1, 0, faults.PARTS).sum())
"""


def driver(place, when):
    script = textwrap.dedent(DRIVER)
    command = [sys.executable, "-c", script, str(place), when]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("when", ["in the middle", "before the store", "after the store"])
def test_a_killed_driver_is_resumed(place, when):
    died = driver(place, when)
    died.communicate(timeout=120)
    assert died.returncode == -signal.SIGKILL
    assert spent(place) == ps.epsilon("1")
    left_behind = sealed_files(place)
    assert left_behind
    measurement = measured(place)
    is_whole(measurement, place)
    stood = when == "after the store"
    assert (sealed_files(place) == left_behind) == stood


def test_two_drivers_at_once_show_one_answer(place):
    both = [driver(place, "never") for _ in range(2)]
    sums = {process.communicate(timeout=120)[0] for process in both}
    assert len(sums) == 1
    is_whole(measured(place), place)


def test_requests_that_share_a_folder_leave_each_other_alone(place):
    first = measured(place)
    answers = first.answers_of(1, 0, PARTS)
    asked = {"weights": [0, 1], "spend": ps.epsilon("1/4"), "folder": place / "parts"}
    others = [parts_of(place).measure(Identity(3), key=key, **asked) for key in ("b", "c")]
    assert (measured(place).answers_of(1, 0, PARTS) == answers).all()
    for other in others:
        assert other.answers_of(1, 0, PARTS).shape == (PARTS, 3)
    assert len(sealed_files(place)) == 3 * len(first.receipts)


@pytest.mark.parametrize("fault", ["altered", "missing", "swapped", "cut"])
def test_a_part_that_is_not_what_was_stored_is_refused(place, fault):
    measurement = measured(place)
    first, second = (place / "parts" / receipt.name for receipt in measurement.receipts[:2])
    data = bytearray(first.read_bytes())
    if fault == "altered":
        data[5] ^= 1
        first.write_bytes(data)
    elif fault == "cut":
        first.write_bytes(data[:-8])
    elif fault == "swapped":
        first.write_bytes(second.read_bytes())
    else:
        first.unlink()
    for again in (measurement, measured(place)):
        with pytest.raises(LedgerError, match=r"parts 0 to 3 .* not drawn again"):
            again.answers_of(1, 0, 1)
        assert again.answers_of(1, 4, PARTS).shape == (PARTS - 4, 3)


def test_a_full_disk_is_told_and_nothing_is_lost(place, monkeypatch):
    full, calls = OSError(28, "No space left on device"), []
    fsync = os.fsync

    def failing(descriptor):
        calls.append(descriptor)
        if len(calls) == 3:
            raise full
        fsync(descriptor)

    monkeypatch.setattr(seal.os, "fsync", failing)
    with pytest.raises(SourceError, match="the disk is full"):
        measured(place, InProcess(Draws()))
    monkeypatch.undo()
    monkeypatch.setattr(law, "TASK_NUMBERS", 12)
    is_whole(measured(place), place)


def test_no_room_is_told_before_anything_is_drawn(place, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: _Room())
    with pytest.raises(SourceError, match="the disk is full"):
        measured(place)
    assert not sealed_files(place)


class _Room:
    free = 100


def test_empty_parts_answer_like_all_others(place):
    """Declared parts without rows have noise and nothing else that tells them apart."""
    answers = measured(place).answers_of(1, 30, PARTS)
    assert answers.shape == (10, 3)
    assert (answers != 0).any()


def test_file_sizes_tell_nothing(place):
    measured(place)
    sizes = {path.stat().st_size for path in (place / "parts").iterdir()}
    assert sizes == {4 * 3 * 8 + 16}


def exact_job(place):
    """A job whose noise is nearly always zero, and a task of two parts with three rows."""
    laws = ((DiscreteLaplace(Fraction(1, 100)),),)
    job = PartJob(Query.of(Identity(3)), laws, str(place / "parts"), "census")
    return job, PartTask(0, 4, 6, 0, np.array([0, 5, 5]))


def conversation(*messages):
    """What a worker replies to these messages, as it would in its own process."""
    asked, replies = io.BytesIO(), io.BytesIO()
    for message in messages:
        send(asked, message)
    asked.seek(0)
    work(asked, replies)
    replies.seek(0)
    return list(iter(lambda: receive(replies), None))


def test_a_worker_replies_with_a_receipt_for_each_task(place):
    job, given = exact_job(place)
    replies = conversation(job.to_bytes(), given.to_bytes(), given.to_bytes())
    receipts = [PartReceipt(*gate.from_bytes(reply)[1:]) for reply in replies]
    assert len({receipt.key for receipt in receipts}) == 2
    for receipt in receipts:
        assert receipt[:3] == (0, 4, 6)
        answers = seal.opened(receipt, job.folder, 3)
        assert answers.tolist() == [[1, 0, 0], [0, 0, 2]]


def test_a_worker_without_a_whole_job_replies_nothing(place):
    assert conversation() == []
    job, _ = exact_job(place)
    cut = io.BytesIO((10).to_bytes(8, "big") + b"a job")
    work(cut, replies := io.BytesIO())
    assert replies.getvalue() == b""
    assert conversation(job.to_bytes()) == []
    assert not sealed_files(place)


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (OSError(errno.ENOSPC, "a path"), "full"),
        (OSError(errno.EDQUOT, "a path"), "full"),
        (OSError(errno.EIO, "a path"), "failed"),
        (ValueError("an entry"), "failed"),
        (MemoryError(), "failed"),
    ],
)
def test_a_worker_says_nothing_of_what_failed(place, monkeypatch, error, reply):
    def failing(*_):
        raise error

    monkeypatch.setattr(task, "sealed", failing)
    job, given = exact_job(place)
    assert reply_to(job, given.to_bytes()) == (reply,)


def test_a_full_disk_of_a_worker_is_told_at_once(place, monkeypatch):
    replies = []
    monkeypatch.setattr(runners._Worker, "_reply", lambda *_: replies.append(1) or ("full",))
    with pytest.raises(SourceError, match="the disk is full"):
        measured(place, Processes(1))
    assert len(replies) == 1  # trying again would not help
    assert spent(place) == ps.epsilon("1")


def test_a_worker_that_cannot_be_written_to_is_started_anew(place, monkeypatch):
    """Its pipe is closed before the first task reaches it."""
    started = []

    def start():
        started.append(start_worker())
        if len(started) == 1:
            started[0].kill()
            started[0].wait()
        return started[-1]

    monkeypatch.setattr(runners, "start_worker", start)
    is_whole(measured(place, Processes(1)), place)
    assert len(started) == 2
    assert all(worker.returncode is not None for worker in started)


def test_a_worker_ends_with_its_driver():
    worker = start_worker()
    worker.communicate(timeout=60)
    assert worker.returncode == 0
