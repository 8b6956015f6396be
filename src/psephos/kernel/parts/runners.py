"""Where tasks run: in this process, in others on this machine, or on Spark (`spark_runner`).

A runner takes a job and its tasks, which come one by one, and gives one receipt for each.

Privacy: a task whose process dies is tried again, whatever it was about to write: its draw was not
seen, and its key is gone. Tasks are never run twice at once to take the faster one, because how
long a draw takes depends on the noise (tests/kernel/test_part_faults.py).
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any, Protocol, cast

from psephos.errors import RefusedError, SourceError
from psephos.kernel import gate
from psephos.kernel.parts.seal import PartReceipt
from psephos.kernel.parts.spark_runner import CLUSTERS, SparkRunner
from psephos.kernel.parts.task import PartJob, PartTask, perform
from psephos.kernel.parts.worker import (
    ATTEMPTS,
    DISK_FULL,
    FULL_DISK_CODES,
    receive,
    send,
    start_worker,
)
from psephos.kernel.scores.mechanisms import Draws

TASK_FAILED = (
    f"a task failed {ATTEMPTS} times, and nothing was shown; run it again under the same key, "
    "which is not charged twice. If it had too little memory, use fewer processes"
)


class Runner(Protocol):
    """Who performs tasks."""

    def run(self, job: PartJob, tasks: Iterable[PartTask]) -> Iterator[PartReceipt]:
        """One receipt for each task, in any order; refused if a task cannot be performed."""


@dataclass(frozen=True)
class InProcess:
    """One task after another, in this process; the only runner of simulations."""

    draws: Draws

    def run(self, job: PartJob, tasks: Iterable[PartTask]) -> Iterator[PartReceipt]:
        """One receipt for each task."""
        for task in tasks:
            try:
                yield perform(job, task, self.draws)
            except OSError as error:
                raise SourceError(
                    DISK_FULL if error.errno in FULL_DISK_CODES else TASK_FAILED
                ) from None


@dataclass(frozen=True)
class Processes:
    """Processes of this machine, as many as it has cores unless said otherwise."""

    number: int = 0

    def __post_init__(self) -> None:
        if type(self.number) is not int or self.number < 0:
            raise RefusedError(f"a number of processes is a whole number, got {self.number!r}")

    def run(self, job: PartJob, tasks: Iterable[PartTask]) -> Iterator[PartReceipt]:
        """One receipt for each task; each thread feeds a process of its own."""
        number = self.number or os.cpu_count() or 1
        turn, waiting = threading.Lock(), iter(tasks)
        failed = threading.Event()

        def fed() -> list[PartReceipt]:
            receipts: list[PartReceipt] = []
            with _Worker(job) as worker:
                while not failed.is_set():
                    with turn:
                        task = next(waiting, None)
                    if task is None:
                        break
                    receipts.append(worker.perform(task))
            return receipts

        def guarded() -> list[PartReceipt]:
            try:
                return fed()
            except BaseException:
                failed.set()
                raise

        with ThreadPoolExecutor(number) as pool:
            try:
                for each in [pool.submit(guarded) for _ in range(number)]:
                    yield from each.result()
            finally:
                failed.set()  # also where it is interrupted: no thread begins another task


class _Worker:
    """A process that performs tasks for a thread, and is started anew where it died."""

    def __init__(self, job: PartJob) -> None:
        self._job = job.to_bytes()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def perform(self, task: PartTask) -> PartReceipt:
        data = task.to_bytes()
        for _ in range(ATTEMPTS):
            reply = self._reply(data)
            if reply[0] == "done":
                return PartReceipt(*reply[1:])
            if reply[0] == "full":
                raise SourceError(DISK_FULL)
        raise SourceError(TASK_FAILED)

    def _reply(self, data: bytes) -> tuple[Any, ...]:
        try:
            pipes = self._pipes()
            send(pipes[0], data)
            reply = receive(pipes[1])
        except OSError:
            reply = None
        if reply is None:
            self._end()
            return ("failed",)
        read: tuple[Any, ...] = gate.from_bytes(reply)
        return read

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None:
            self._process = start_worker()
            send(cast("IO[bytes]", self._process.stdin), self._job)
        return cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def runner_by_name(name: str) -> Runner:
    """The runner that a command names: "processes", "processes:4", "spark", or a Spark cluster."""
    kind, _, number = name.partition(":")
    if kind == "processes" and (number.isdecimal() or not number):
        return Processes(int(number or 0))
    if name == "spark" or name.startswith(CLUSTERS):
        return SparkRunner.start(None if name == "spark" else name)
    raise RefusedError(
        f"no runner {name!r}; have processes, processes:4, spark (on this machine), and clusters "
        "as Spark calls them: spark://host:7077, k8s://host, yarn"
    )
