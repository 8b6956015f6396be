"""A process that performs tasks: a job on standard input, then tasks; receipts on standard output.

Messages are canonical bytes (`codec`) behind their length; nothing is pickled. The process ends
when its input does, so it never outlives who started it. It says nothing but receipts and, where a
task fails, whether the disk is full: words of errors could hold what is in the data.
"""

from __future__ import annotations

import errno
import sys
from typing import IO

from psephos.kernel import gate
from psephos.kernel.parts.task import PartJob, PartTask, perform
from psephos.kernel.scores.mechanisms import Draws

LENGTH_BYTES = 8
FULL_DISK_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ATTEMPTS = 4
DISK_FULL = (
    "the disk is full, so not all parts could be written, and nothing was shown; make room and "
    "run it again under the same key, which is not charged twice"
)


def send(pipe: IO[bytes], data: bytes) -> None:
    """Write one message."""
    pipe.write(len(data).to_bytes(LENGTH_BYTES, "big"))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """Read one message; None if there are no more."""
    head = pipe.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    size = int.from_bytes(head, "big")
    data = pipe.read(size)
    return data if len(data) == size else None


def work(given: IO[bytes], told: IO[bytes]) -> None:
    """Perform tasks until there are no more."""
    first = receive(given)
    if first is None:
        return
    job = PartJob.from_bytes(first)
    while (data := receive(given)) is not None:
        send(told, gate.to_bytes(reply_to(job, data)))


def reply_to(job: PartJob, data: bytes) -> tuple[object, ...]:
    """A task's receipt behind "done", or "full" for a full disk, or "failed"."""
    try:
        return ("done", *perform(job, PartTask.from_bytes(data), Draws()))
    except OSError as error:
        return ("full" if error.errno in FULL_DISK_CODES else "failed",)
    except Exception:  # noqa: BLE001 - its words may hold an entry
        return ("failed",)


if __name__ == "__main__":
    work(sys.stdin.buffer, sys.stdout.buffer)
