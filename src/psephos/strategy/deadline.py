"""When a search must end: at a time of the clock, or as soon as it is told to."""

from __future__ import annotations

import math
import time


class Deadline:
    """Shared by all that runs for one search; it passes at its time, or when it is stopped."""

    def __init__(self, end: float = math.inf) -> None:
        self.end = end

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """So many seconds from now; never by itself if none are given."""
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def passed(self) -> bool:
        return time.monotonic() > self.end

    @property
    def is_never(self) -> bool:
        """Does the clock play no part?"""
        return self.end == math.inf

    def stop(self) -> None:
        """Let it pass now, in whatever thread it is looked at."""
        self.end = -math.inf

    def within(self, seconds: float) -> Deadline:
        """This one, or so much processor time of the calling thread, whichever passes first."""
        return _Allotment(self, time.thread_time() + seconds)


class _Allotment(Deadline):
    """What one thread may take of a search: its own processor time, up to the end of the whole."""

    def __init__(self, whole: Deadline, end: float) -> None:
        super().__init__(end)
        self.whole = whole

    @property
    def passed(self) -> bool:
        return time.thread_time() > self.end or self.whole.passed


NEVER = Deadline()
