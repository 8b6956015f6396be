"""A process that performs tasks: a job on standard input, then tasks; receipts on standard output.

Messages are canonical bytes (`codec`) behind their length; nothing is pickled. The process ends
when its input does, so it never outlives who started it. It says nothing but receipts and, where a
task fails, whether the disk is full: words of errors could hold what is in the data.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import numpy as np

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
BOOTSTRAP = (
    "import site, sys; sys.path += sys.argv[1:]; site.main(); "
    "from psephos.kernel.parts import worker; worker.work(sys.stdin.buffer, sys.stdout.buffer)"
)
LOCALE = ("LANG", "LC_ALL", "LC_CTYPE")
"""Names of folders are written by these; all else of the caller's environment stays behind."""


def start_worker() -> subprocess.Popen[bytes]:
    """A process that performs tasks by the psephos that runs here, in an environment of its own.

    Privacy: tasks hold counts, so nothing that the environment names is loaded (PYTHONPATH,
    LD_PRELOAD), nor what lies in the working folder: modules are the standard library's, then
    those beside psephos and numpy, as they run here, then the installation's
    (tests/attacks/test_runners_that_look.py::test_workers_take_no_code_from_the_environment).
    """
    folders = [Path(__file__).parents[3], Path(np.__file__).parents[1]]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", BOOTSTRAP, *folders],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in LOCALE if name in os.environ}
        | {"OPENBLAS_NUM_THREADS": "1"},
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
