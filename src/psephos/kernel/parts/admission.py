"""Which runners may perform tasks: those of the kernel, made anew here before any charge.

Privacy: tasks hold counts, and a runner says who draws. So a runner is admitted as everything else
that comes from callers is: by its exact type, of what it shows, and never as the object that was
given (tests/attacks/test_runners_that_look.py).
"""

from __future__ import annotations

from psephos.errors import RefusedError
from psephos.kernel.parts.runners import InProcess, Processes, Runner
from psephos.kernel.parts.spark_runner import SparkRunner
from psephos.kernel.scores.mechanisms import Draws

LITTLE_WORK = 1 << 25
"""Up to so many bytes of answers, other processes take longer to start than the work does."""


def admitted_runner(given: Runner | None, needed: int, draws: Draws) -> Runner:
    """The kernel's own runner of the kind that was given; simulations run in this process."""
    if given is None:
        given = Processes() if needed > LITTLE_WORK else InProcess(draws)
    if draws.simulation or type(given) is InProcess:
        return InProcess(draws)
    if type(given) is Processes:
        return Processes(given.number)
    if type(given) is SparkRunner:
        return SparkRunner(given.session)
    name = type(given).__name__
    raise RefusedError(f"no rule to perform tasks by {name}; have Processes and SparkRunner")
