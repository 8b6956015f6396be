"""How far a search has come: told to a function, or drawn as a bar on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from psephos.errors import WorkloadError

if TYPE_CHECKING:
    from rich.console import Console

Listener = Callable[[str, float], None]
"""Called with what was tried and the ratio of Identity's RMSE to the best so far."""
SearchProgress = Listener | bool | Literal["always"]
"""A function, True for a bar where stderr is a terminal, "always" for one in any case."""


class Watch:
    """What a search reports to; this one passes candidates on to a function, if there is one."""

    def __init__(self, listener: Listener | None = None) -> None:
        self.listener = listener

    def begins(self, operators: int) -> None:
        """So many operators will be tried."""

    def enters(self, operator: str) -> None:
        """One of them starts."""

    def tried(self, name: str, ratio: float) -> None:
        """A candidate was scored; the best so far has `ratio` times less error than Identity."""
        if self.listener is not None:
            self.listener(name, ratio)

    def leaves(self) -> None:
        """The operator has ended."""


@contextmanager
def watch(
    progress: SearchProgress | None, time_limit: float | None = None, console: Console | None = None
) -> Iterator[Watch]:
    """What the search should report to, until the block ends."""
    if progress is None or progress is False:
        yield Watch()
    elif progress is True or progress == "always":
        with _bar(progress == "always", time_limit, console) as bar:
            yield bar
    elif callable(progress):
        yield Watch(progress)
    else:
        raise WorkloadError(
            'progress is True, "always" (also where stderr is no terminal), or a function of '
            f"(name, ratio), got {progress!r}"
        )


@contextmanager
def _bar(always: bool, time_limit: float | None, console: Console | None) -> Iterator[Watch]:
    """Operators done, the best ratio, and the time: what is left of a limit, else what is gone.

    Where stderr is no terminal "always" writes the last state only, as one line.
    """
    # Only here, so that nothing else waits for the import.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as Display
    from rich.text import Text

    class Clock(ProgressColumn):
        def render(self, task: Task) -> Text:
            elapsed = task.elapsed or 0.0
            if time_limit is None:
                return Text(f"{elapsed:.0f} s")
            return Text(f"{max(0.0, time_limit - elapsed):.0f} s left of {time_limit:g} s")

    class Bar(Watch):
        def begins(self, operators: int) -> None:
            display.update(task, total=operators)

        def enters(self, operator: str) -> None:
            display.update(task, description=operator)

        def tried(self, name: str, ratio: float) -> None:
            display.update(task, best=f"{ratio:.3g} x better than Identity")

        def leaves(self) -> None:
            display.advance(task)

    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[best]}"),
        Clock(),
    )
    quiet = not (always or console.is_terminal or console.is_jupyter)
    with Display(*columns, console=console, disable=quiet) as display:
        task = display.add_task("selecting", total=None, best="")
        yield Bar()
