"""Tasks on Spark: they count, draw and seal in its executors, and only receipts come back.

The driver hands each task over as canonical bytes. An executor writes the sealed file into the
request's folder, which driver and executors share under one path (a network file system; on one
machine any folder will do), and returns a receipt. psephos of the same version is installed where
executors run.

Privacy: Spark tries a task again whose executor or Python process died; that is another draw, in
another file, under another key, and the first key is gone. There is one stage and no shuffle, so
nothing that was drawn is computed again once its receipt is here, and of a run at most one receipt
leaves this file. Executors say nothing but receipts, and their errors have no words of the data.
`spark_session` says which sessions are refused, before any charge. How large tasks are and how long
they take can be seen in Spark's UI and event logs, which are the owner's
(tests/kernel/test_spark_parts.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from importlib.metadata import version
from typing import Any

from psephos.errors import RefusedError, SourceError
from psephos.kernel import gate
from psephos.kernel.parts.seal import PartReceipt
from psephos.kernel.parts.spark_session import context_of, started
from psephos.kernel.parts.task import PartJob, PartTask
from psephos.kernel.parts.worker import DISK_FULL, reply_to

WAVE_BYTES = 1 << 26
"""Tasks are handed over together up to so many bytes, of which the JVM holds some copies."""
CLUSTERS = ("spark://", "k8s://", "yarn")
"""How masters begin that are not this machine."""
SPARK_FAILED = (
    "Spark could not perform all tasks, and nothing was shown; run it again under the same key, "
    "which is not charged twice. Where parts have more than ten million cells, Spark may need more "
    "memory (spark.driver.memory, spark.executor.memory) and a larger spark.rpc.message.maxSize"
)
FILE_GONE = (
    "answers that an executor of Spark wrote are not in the folder for parts, and nothing was "
    "shown. Run it again under the same key, which is not charged twice: another run under it may "
    "have ended first. If it is told again, take a folder that driver and executors share under "
    "one path"
)


@dataclass(frozen=True)
class SparkRunner:
    """The executors of a Spark session, which is checked here: before anything is charged."""

    session: Any = field(repr=False)

    def __post_init__(self) -> None:
        context = context_of(self.session)
        try:
            (there,) = context.parallelize([b""], 1).map(_version_there).collect()
        except Exception:  # noqa: BLE001 - Spark's words
            there = "that cannot be imported"
        if there != _version():
            raise RefusedError(
                f"Spark's executors have a psephos {there}, and the driver has {_version()}; "
                "install the same there, or point PYSPARK_PYTHON to a Python that has it"
            )

    @classmethod
    def start(cls, master: str | None = None) -> SparkRunner:
        """A runner on a master; if None, on the active session, or else on this machine."""
        return cls(started(master))

    def run(self, job: PartJob, tasks: Iterable[PartTask]) -> Iterator[PartReceipt]:
        """One receipt for each task; tasks go to Spark in waves that fit in memory."""
        work = partial(_performed, _version(), job.to_bytes())
        runs: set[tuple[int, int, int]] = set()
        for wave in _waves(tasks):
            try:
                spread = self.session.sparkContext.parallelize(wave, len(wave))
                replies = spread.map(work).collect()
            except Exception:  # noqa: BLE001 - Spark's words
                raise SourceError(SPARK_FAILED) from None
            for state, *fields in map(gate.from_bytes, replies):
                if state != "done":
                    raise SourceError(DISK_FULL)
                receipt = PartReceipt(*fields)
                if not os.path.isfile(os.path.join(job.folder, receipt.name)):
                    raise SourceError(FILE_GONE)
                if receipt[:3] not in runs:  # a second one is dropped, and its key with it
                    runs.add(receipt[:3])
                    yield receipt


def _waves(tasks: Iterable[PartTask]) -> Iterator[list[bytes]]:
    wave: list[bytes] = []
    size = 0
    for data in (task.to_bytes() for task in tasks):
        if wave and size + len(data) > WAVE_BYTES:
            yield wave
            wave, size = [], 0
        wave.append(data)
        size += len(data)
    if wave:
        yield wave


def _performed(version_of_driver: str, job: bytes, task: bytes) -> bytes:
    """In an executor: a receipt; a task that fails is tried again by Spark."""
    reply = reply_to(_job(job), task) if version_of_driver == _version() else ("failed",)
    if reply[0] == "failed":
        raise SourceError(SPARK_FAILED)
    return gate.to_bytes(reply)


@lru_cache(1)
def _job(data: bytes) -> PartJob:
    return PartJob.from_bytes(data)


@cache
def _version() -> str:
    return version("psephos")


def _version_there(_: bytes) -> str:
    return _version()
