"""Time, processor time and peak memory of a call."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cost:
    """The best wall time of several calls with its processor time, and the peak of one."""

    wall: float
    cpu: float
    peak: int


def cost(call: Callable[[], Any], repeat: int = 5, seconds: float = 3.0) -> Cost:
    """What a call costs: the best of `repeat` calls, or of those that fit in `seconds`."""
    call()
    best = (float("inf"), 0.0)
    begin = time.perf_counter()
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        best = min(best, (time.perf_counter() - wall, time.process_time() - cpu))
        if time.perf_counter() - begin > seconds:
            break
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Cost(*best, peak)


def table(head: list[str], rows: list[list[str]]) -> None:
    """A table in Markdown, columns aligned."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, ["-" * w for w in widths], *rows]:
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |")
    print()
