"""What every command does alike: results and mistakes on a terminal or as JSON, and progress."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, RenderableType

from psephos.cli import render
from psephos.errors import BudgetExceededError, LedgerError, PsephosError, SourceError
from psephos.kernel.budget import Budget
from psephos.release.preflight.memory import is_out_of_memory

EXIT_CODES: list[tuple[type[PsephosError], int]] = [
    (BudgetExceededError, 3),
    (LedgerError, 4),
    (SourceError, 5),
    (PsephosError, 2),
]
STOPPED = "stopped; nothing was charged"
NO_MEMORY = "there is not enough memory for this"
MORE_MEMORY = "go where more is free"
LINE_SECONDS = 2.0
"""Between two lines of progress, where there is no terminal."""
INTERRUPTS: list[int] = []
"""Signals from the keyboard that have come."""


def out() -> Console:
    """Standard output, in colour where that is wanted."""
    return Console(highlight=False, no_color=True if os.environ.get("NO_COLOR") else None)


@contextmanager
def report_errors(
    as_json: bool, stopped: str = STOPPED, release: Path | None = None
) -> Iterator[None]:
    """Mistakes in one way: a text on standard error, or JSON, and a code for scripts.

    Where memory does not suffice for a release file, its largest table is named.
    """
    try:
        yield
    except typer.Exit:
        raise
    except (KeyboardInterrupt, Exception) as error:
        # Libraries written in C may turn an interrupt into an error of their own.
        if isinstance(error, KeyboardInterrupt) or INTERRUPTS:
            complain(as_json, "Stopped", stopped)
            raise typer.Exit(130) from None
        if is_out_of_memory(error):
            traceback.clear_frames(error.__traceback__)  # which hold what takes the memory
            smaller = "" if release is None else f", or, unless it was charged, {_smaller(release)}"
            text = f"{NO_MEMORY}: {MORE_MEMORY}{smaller}; {stopped.removeprefix('stopped; ')}"
            complain(as_json, "MemoryError", text)
            raise typer.Exit(2) from None
        if not isinstance(error, PsephosError):
            raise
        code = next(code for kind, code in EXIT_CODES if isinstance(error, kind))
        complain(as_json, type(error).__name__, str(error))
        raise typer.Exit(code) from None


def _smaller(release: Path) -> str:
    """What to leave out of a release file so that it takes less memory."""
    from psephos.release.spec.job import Job

    try:
        return Job.read(release).smaller_words
    except (PsephosError, MemoryError):
        return "ask for fewer numbers"


def complain(as_json: bool, kind: str, message: str) -> None:
    """A mistake, on standard error or as JSON."""
    if as_json:
        plain = {"error": {"kind": kind, "message": message}}
        show(True, plain)
        return
    console = Console(stderr=True, highlight=False)
    if kind != "Stopped":
        console.print("[bold red]error[/]", end=" ")
    console.print(render.shorten(message), markup=False, soft_wrap=True)


@contextmanager
def progress(quiet: bool) -> Iterator[Any]:
    """A spinner that says what is being done, on a terminal; elsewhere a line now and then."""
    console = Console(stderr=True)
    if quiet:
        yield lambda _: None
        return
    if not console.is_terminal:
        yield SparseLines()
        return
    with console.status("starting") as status:
        yield lambda words: status.update(words)


class SparseLines:
    """Progress where there is no terminal: what changed, a line every few seconds at most."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.words = ""

    def __call__(self, words: str) -> None:
        now = time.monotonic()
        if words != self.words and now - self.last >= LINE_SECONDS:
            sys.stderr.write(f"{now - self.began:.0f} s: {words}\n")
            sys.stderr.flush()
            self.last, self.words = now, words


def plain_value(value: Any) -> Any:
    """A value as JSON has it: budgets exact and near, no number that is none or without an end."""
    if isinstance(value, Budget):
        amount = value.amount
        return {"currency": value.currency, "exact": str(amount), "about": float(amount)}
    if is_dataclass(value):
        return {each.name: plain_value(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def show(as_json: bool, plain: Any, *pieces: RenderableType) -> None:
    """A result, for people or as JSON."""
    if as_json:
        sys.stdout.write(json.dumps(plain_value(plain), indent=1, ensure_ascii=False) + "\n")
        return
    console = out()
    for piece in filter(None, pieces):
        if isinstance(piece, str):
            # Lines of text are wrapped by the terminal, if at all: they can be copied and searched.
            console.print(render.shorten(piece), markup=False, soft_wrap=True)
        else:
            console.print(piece)
