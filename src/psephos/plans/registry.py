"""Plans by name: what they are called, how they read, whose they are, and when to use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from psephos.errors import RefusedError, TooLargeError, WorkloadError, name_list
from psephos.infer.estimate import Answers, Estimate
from psephos.inverse.form import VECTOR_LIMIT
from psephos.kernel.budget import Budget
from psephos.kernel.protected import ProtectedVector
from psephos.kernel.unit import Unit
from psephos.plans.session import (
    FirstMeasurement,
    PlanRequest,
    PlanVector,
    QuestionVector,
    Session,
    Transcript,
)
from psephos.strategy.strategy import Strategy
from psephos.variances import NoiseKind
from psephos.workload.workload import Workload

Body = Callable[..., Estimate]
"""A plan's body: of a PlanVector, a workload and a budget, with options by name."""
Outline = Callable[[Workload, Budget, Unit, Mapping[str, Any]], str]
"""Words on a plan's steps, from workload, budget, unit and options."""
_PLANS: dict[str, NamedPlan] = {}
PLAN_FILES = (
    "buckets",
    "case_studies",
    "dual_query",
    "fixed",
    "mwem",
    "privbayes",
    "adaptive_marginals",
)
"""Where the plans of this package lie, in the order in which they are listed."""


class PlanList(Mapping[str, "NamedPlan"]):
    """All plans by their names, those of users included; files are read when one is asked for."""

    def __getitem__(self, name: str) -> NamedPlan:
        return self._plans[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)

    @property
    def _plans(self) -> dict[str, NamedPlan]:
        for name in PLAN_FILES:
            import_module(f"psephos.plans.{name}")
        return _PLANS


PLANS: Mapping[str, NamedPlan] = PlanList()


@dataclass(frozen=True)
class NamedPlan:
    """A plan, and what people want to know of it before they use it."""

    name: str
    signature: str
    """Its operators, in EKTELO's letters (Zhang et al. 2020, Figures 1 and 2)."""
    reference: str
    adaptive: bool
    """Does what is measured depend on the data? Errors are then not known beforehand."""
    body: Body
    most_cells: int | None = VECTOR_LIMIT
    """It estimates every cell, so there is a limit to them; None for plans that do without."""
    outline: Outline | None = None
    """What is known of its steps beforehand, in words."""

    @property
    def when(self) -> str:
        """What it is good for: the first line of its function's text."""
        return next(iter((self.body.__doc__ or "").strip().splitlines()), "")

    @property
    def options(self) -> Mapping[str, Any]:
        """The options, each with its default."""
        parameters = signature(self.body).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is Parameter.KEYWORD_ONLY}

    def check_options(self, options: Iterable[str]) -> None:
        """Refuse an option that the plan does not have."""
        strange = sorted(set(options) - set(self.options))
        if strange:
            have = name_list(list(self.options)) if self.options else "none"
            raise WorkloadError(f"plan {self.name!r} has no option {strange[0]!r}; it has {have}")

    def strategy(self, workload: Workload, noise: NoiseKind, **options: Any) -> Strategy:
        """What a plan that does not adapt measures, whatever the data are.

        >>> import psephos as ps
        >>> ages = ps.Workload(ps.Domain.of(age=64), [ps.product(age=ps.prefix())])
        >>> ps.plans.PLANS["H2"].strategy(ages, ps.NoiseKind.LAPLACE).query.shape
        (127, 64)
        """
        if self.adaptive:
            raise WorkloadError(f"what plan {self.name!r} measures depends on the data")
        self.check_options(options)
        spend = Budget(noise.currency, Fraction(1))
        look = QuestionVector(workload.domain)
        try:
            self.body(look, workload, spend, **options)
        except FirstMeasurement as first:
            return Strategy(workload.domain, noise, first.query, self.name)
        raise WorkloadError(f"plan {self.name!r} measures nothing")


@dataclass(frozen=True)
class PlanRun:
    """What a plan found out: an estimate, and the requests it was made of."""

    name: str
    estimate: Estimate
    requests: tuple[PlanRequest, ...]

    def answer(self, workload: Workload) -> Answers:
        """The answers of a workload; free of charge."""
        return self.estimate.answer(workload)


def plan(
    name: str,
    *,
    signature: str,
    reference: str = "",
    adaptive: bool = False,
    most_cells: int | None = VECTOR_LIMIT,
    outline: Outline | None = None,
) -> Callable[[Body], Body]:
    """Register a function of (vector, workload, budget) as a plan of that name.

    The vector is a `PlanVector`; what it measures, chooses and cuts must add up to the budget. The
    first line of the function's text says when to use the plan.

    >>> import psephos as ps
    >>> @ps.plans.plan("Half and half", signature="ST LM SI LM LS")
    ... def half_and_half(vector, workload, budget):
    ...     "Totals and cells alike are asked."
    ...     first = vector.measure(ps.matrix.total(vector.size), spend=budget / 2)
    ...     second = vector.measure(ps.select.identity(workload), spend=budget / 2)
    ...     return ps.infer.least_squares([first, second])
    >>> ps.plans.forget("Half and half")
    """

    def register(body: Body) -> Body:
        ours = body.__module__.startswith("psephos.plans.")  # being read: none of them is asked for
        plans = _PLANS if ours else PLANS
        if name in plans and plans[name].body.__module__ != body.__module__:
            raise WorkloadError(f"there is a plan called {name!r} already; choose another name")
        _PLANS[name] = NamedPlan(name, signature, reference, adaptive, body, most_cells, outline)
        return body

    return register


def forget(name: str) -> None:
    """Take a plan off the list."""
    _PLANS.pop(named(name).name)


def names() -> list[str]:
    """The names of all plans.

    >>> import psephos as ps
    >>> ps.plans.names()[:3]
    ['Identity', 'Privelet', 'H2']
    """
    return list(PLANS)


def run(
    name: str,
    vector: ProtectedVector,
    workload: Workload,
    *,
    spend: Budget,
    key: str | None = None,
    transcript: Transcript | None = None,
    progress: Callable[[int, int | None], None] = lambda step, steps: None,
    **options: Any,
) -> PlanRun:
    """Run a plan on a protected vector, at a cost of exactly `spend`.

    The ledger must be able to pay all of it, or nothing is asked. With a key the run can be taken
    up after a crash: what was answered stays as it was and costs nothing. A transcript keeps what
    was asked, for a run on another machine, and for whoever takes the same steps again. `progress`
    is told the number of each request, and of how many, where that is known.

    >>> import numpy as np
    >>> import psephos as ps
    >>> domain = ps.Domain.of(age=64)
    >>> table = ps.simulate(np.arange(64), domain, unit=ps.add_remove_row(),
    ...                     budget=ps.epsilon("1"), seed=0)
    >>> ages = ps.Workload(domain, [ps.product(age=ps.prefix())])
    >>> ps.plans.run("DAWA", table.vectorise(), ages, spend=ps.epsilon("1")).answer(ages)
    Simulated biased answers(64 of Workload(64 queries in 1 product over 64 cells))
    """
    chosen = named(name)
    chosen.check_options(options)
    if not isinstance(vector, ProtectedVector):
        raise RefusedError(
            f"a plan runs on a protected vector, got {type(vector).__name__}; write "
            "ps.protect(...).vectorise()"
        )
    Workload.require(workload, vector.domain)
    most = chosen.most_cells
    if chosen.adaptive and most is not None and vector.domain.size > most:
        raise TooLargeError(
            f"plan {name!r} estimates every cell, at most {most:,}, and {vector.domain} has more; "
            "keep fewer columns, or take HDMM. Nothing was charged",
            vector.domain.size,
            most,
        )
    vector.check_budget(spend, key=key)
    session = Session(name, spend, key, transcript, progress=progress)
    estimate = chosen.body(PlanVector(vector, session), workload, spend, **options)
    session.check_spent()
    return PlanRun(name, estimate, tuple(session.requests))


def named(name: str) -> NamedPlan:
    """The plan of a name."""
    if not isinstance(name, str) or name not in PLANS:
        folded = {each.casefold(): each for each in PLANS}
        near = get_close_matches(str(name).casefold(), folded, n=1)
        hint = f"did you mean {folded[near[0]]!r}?" if near else f"there are {name_list(names())}"
        raise WorkloadError(f"there is no plan called {name!r}; {hint}")
    return PLANS[name]
