"""What is kept beside a release file: strategies, requests, and stamps of checks that passed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from psephos.errors import PsephosError, ReleaseError
from psephos.release.spec.asked_cells import AskedCells
from psephos.release.spec.job import Job

STORE = ".psephos"
MEASURE, AUTO = "measure", "auto"
"""Names of methods that are no plans: the best strategy, and what a stand-in speaks for."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, PsephosError)
ELSEWHERE = "copy the release file to a folder you can write to"
Progress = Callable[[str, float], None]


def make_folder(folder: Path) -> None:
    """The folder in which things are stored, if it can be made."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ReleaseError(f"{folder} cannot be made: {error.strerror}; {ELSEWHERE}") from None


def stored_cells(job: Job) -> AskedCells | None:
    """The cells that a request measures which was charged; None if they are not stored here."""
    place = selection_folder(job) / f"{job.request[:32]}.cells"
    try:
        return AskedCells.read(place, job.questions.domain) if place.exists() else None
    except UNREADABLE:
        return None


def selection_folder(job: Job) -> Path:
    """Where strategies and requests are stored."""
    return job.folder / STORE
