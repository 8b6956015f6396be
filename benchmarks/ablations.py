"""What every special case of strategy selection buys: error and time with it and without it.

    python -m benchmarks.ablations [part ...]        all parts, or those whose names hold a word

A part that changes no error and saves no time is one that could go. Cases are random release files
(seeds of their own, so that nothing is tuned on them), and under both kinds of noise small unions,
marginals with ranges, and the release files of ../shared/releases if they are there. For
each part: the cases in which the search ends elsewhere without it, the error (RMSE) without it as a
multiple, at least, at most and in the geometric mean over all cases, and the processor time of all
searches with and without it.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import psephos as ps
from benchmarks.measure import table
from benchmarks.unasked_columns import release_file
from psephos.release.spec.job import Job
from psephos.strategy.factors import NoiseName
from psephos.strategy.hdmm import gaussian, levels, operators, search, union

FILES = range(100, 112)
"""Numbers of random release files; other benchmarks show the first ten."""
RELEASES = Path("../shared/releases")
NOISES: tuple[NoiseName, ...] = ("laplace", "gaussian")
Switch = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Case:
    """A workload that is searched for."""

    name: str
    workload: ps.Workload
    noise: NoiseName


@dataclass(frozen=True)
class Outcome:
    """Where a search ended, and what it took."""

    error: float
    seconds: float
    strategy: str


def cases() -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as folder:
        for number in FILES:
            place = Path(folder) / f"{number}.toml"
            place.write_text(release_file(number, 0), encoding="utf-8")
            job = Job.read(place)
            yield Case(f"file {number}", job.workload, job.noise.value)
    p, r, i, t = ps.prefix(), ps.all_range(), ps.identity(), ps.total()
    unions = {
        "[R⊗T;T⊗R]": [(r, t), (t, r)],
        "[P⊗I;I⊗P]": [(p, i), (i, p)],
        "[P⊗P;R⊗T;I⊗T]": [(p, p), (r, t), (i, t)],
        "[R⊗R;I⊗P;P⊗T;T⊗P]": [(r, r), (i, p), (p, t), (t, p)],
    }
    for noise in NOISES:
        for place in sorted(RELEASES.glob("*.toml")):
            yield Case(place.stem, Job.read(place).workload, noise)
        for name, pairs in unions.items():
            products = [ps.product(a=a, b=b) for a, b in pairs]
            yield Case(f"{name} 48 x 40", ps.Workload(ps.Domain.of(a=48, b=40), products), noise)
        people = ps.Domain.of(income=60, age=45, status=6, origin=4, sex=2)
        yield Case(
            "2-way range-marginals",
            ps.range_marginals(people, k=2, ordered=["income", "age"]),
            noise,
        )
        yield Case("up to 3-way", ps.marginals(people, up_to=3), noise)


# ---- parts ---------------------------------------------------------------------------------------


def without_operator(number: int) -> Switch:
    kept = [each for each in operators.HDMM_OPERATORS if each.number != number]
    return lambda: patch.object(operators, "HDMM_OPERATORS", kept)


def without_step(name: str) -> Switch:
    """A step of OPT_+ over levels that finds nothing."""
    return lambda: patch.object(levels._LevelSearch, name, lambda *_: None)


PARTS: dict[str, Switch] = {
    **{
        f"{each.name} (operator {each.number})": without_operator(each.number)
        for each in operators.HDMM_OPERATORS
    },
    "levels: parts chosen once more": without_step("revised"),
    "levels: a strategy for every part": without_step("divided"),
    "levels: a longer descent at the end": without_step("polished"),
    "Gaussian factors by few dimensions": lambda: patch.object(gaussian, "FEW_DIMENSIONS", 0.0),
    "unions: two parts optimised together": lambda: patch.object(union, "DESCENTS", 0),
    "strategies that are written down": lambda: patch.object(
        search, "fixed_candidates", lambda *_: []
    ),
    "a start takes half of the effort at most": lambda: patch.object(search, "START_SHARE", 1.0),
}


# ---- runs ----------------------------------------------------------------------------------------


def outcome(case: Case) -> Outcome:
    begin = time.process_time()
    strategy = ps.select.hdmm(case.workload, case.noise, cores=1)
    seconds = time.process_time() - begin
    return Outcome(math.sqrt(strategy.expected_error(case.workload)), seconds, strategy.name)


def row(part: str, every: list[Case], with_it: list[Outcome]) -> list[str]:
    print(part, file=sys.stderr)
    with PARTS[part]():
        without = [outcome(case) for case in every]
    ratios = [b.error / a.error for a, b in zip(with_it, without, strict=True)]
    worst = max(range(len(every)), key=ratios.__getitem__)
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return [
        part,
        str(sum(abs(ratio - 1) > 1e-6 for ratio in ratios)),
        f"{mean:.4f}",
        f"{min(ratios):.4f}",
        f"{ratios[worst]:.4f}" + (f" ({every[worst].name})" if ratios[worst] > 1 + 1e-6 else ""),
        f"{sum(each.seconds for each in with_it):.0f} s",
        f"{sum(each.seconds for each in without):.0f} s",
    ]


def main(words: list[str]) -> None:
    print(__doc__)
    every = list(cases())
    with_it = [outcome(case) for case in every]
    for case, each in zip(every, with_it, strict=True):
        print(f"{case.name}, {case.noise}: {each}", file=sys.stderr)
    chosen = [part for part in PARTS if not words or any(word in part for word in words)]
    head = ["part", f"elsewhere (of {len(every)})", "mean", "least", "most", "with", "without"]
    table(head, [row(part, every, with_it) for part in chosen])


if __name__ == "__main__":
    main(sys.argv[1:])
