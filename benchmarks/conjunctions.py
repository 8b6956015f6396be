"""Counting conjunctions, and best responses to those that were drawn.

`evaluation`: row·queries a second on one core, at the sizes of Gaboardi et al. 2014 (Figure 1, and
the most attributes of Figure 4), on made-up rows; each case in a process of its own, so that its
memory shows. Aims: 10⁹ at the size of Adult, and 8 GB for 512,000 attributes. `response`: how many
of the drawn queries a record satisfies, beside the optimum where HiGHS proves it, and its time.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from benchmarks.measure import table
from psephos.domain.bits import PackedRows, column_counts
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.engines import BitMatrix, as_source
from psephos.kernel import gate
from psephos.plans.best_response import (
    BestResponse,
    DrawnQueries,
    LocalSearch,
    SolverImproved,
    _Clauses,
    improved,
)
from psephos.values import Array

ADULT = [20, 8, 25, 16, 16, 7, 14, 6, 5, 2, 26, 26, 22, 42]  # 235 values in all
KDD99 = [3, 66, 11] + [2] * 6 + [9] * 16 + [10] * 16  # 41 attributes, 396 values
PROOF_NODES = 3000
Result = tuple[int, int, float, float]


def schema(sizes: list[int]) -> Domain:
    return Domain.of({f"a{i}": n for i, n in enumerate(sizes)})


def made_up(sizes: list[int], rows: int) -> list[Array]:
    """Columns whose low cells are the frequent ones."""
    rng = np.random.default_rng(0)
    return [(n * rng.random(rows) ** 2).astype(np.uint8) for n in sizes]


def timed(prepare: Callable[[], object], count: Callable[[object], Array]) -> tuple[float, float]:
    start = time.process_time()
    rows = prepare()
    middle = time.process_time()
    count(rows)
    return middle - start, time.process_time() - middle


def as_bits(sizes: list[int], rows: int, number: int) -> Result:
    columns, some = (
        made_up(sizes, rows),
        Conjunctions.sampled(schema(sizes), ways=3, number=number, seed=1),
    )
    costs = timed(lambda: None, lambda _: column_counts(columns, sizes, some))
    return (rows, number, *costs)


def as_table(sizes: list[int], rows: int, number: int) -> Result:
    """What the reader of a frame does, by whichever way it chooses."""
    domain, columns = schema(sizes), made_up(sizes, rows)
    frame = pa.table({f"a{i}": column for i, column in enumerate(columns)})
    some = Conjunctions.sampled(domain, ways=3, number=number, seed=1)
    costs = timed(
        lambda: as_source(frame), lambda source: source.take(domain, None).conjunctions(some, ())
    )
    return (rows, number, *costs)


def one_hot(rows: int, columns: int, number: int) -> Result:
    matrix = np.random.default_rng(0).random((rows, columns), dtype=np.float32) < 0.1
    some = Conjunctions.sampled(
        Domain.binary(columns), ways=3, number=number, seed=1, positive=True
    )
    costs = timed(lambda: PackedRows.of_matrix(matrix), lambda packed: packed.counts(some))
    return (rows, number, *costs)


def sparse(rows: int, columns: int, number: int) -> Result:
    rng = np.random.default_rng(0)
    filled = rng.binomial(columns, 0.01, size=rows)
    ends = np.append(0, np.cumsum(filled))
    indices = rng.integers(columns, size=ends[-1], dtype=np.int32)  # a few are there twice
    matrix = sp.csr_array((np.ones(ends[-1], dtype=bool), indices, ends), shape=(rows, columns))
    matrix.sum_duplicates()
    domain = Domain.binary(columns)
    some = Conjunctions.sampled(domain, ways=3, number=number, seed=1, positive=True)
    costs = timed(
        lambda: BitMatrix.of(matrix), lambda bits: bits.take(domain, None).conjunctions(some, ())
    )
    return (rows, number, *costs)


def blocks(rows: int, columns: int, number: int) -> Result:
    """A bias for each attribute, drawn evenly, as in the paper's synthetic data."""
    rng = np.random.default_rng(0)
    making = 0.0

    def some_columns() -> Iterator[Array]:
        nonlocal making
        for start in range(0, columns, 500):
            begin = time.process_time()
            biases = rng.integers(256, size=min(500, columns - start))
            octets = np.frombuffer(rng.bytes(rows * biases.size), dtype=np.uint8)
            block = octets.reshape(rows, biases.size) < biases.astype(np.uint8)
            making += time.process_time() - begin
            yield block

    start = time.process_time()
    domain = Domain.binary(columns)
    gate.fingerprint(gate.admit(domain, "domain"))
    some = Conjunctions.sampled(domain, ways=3, number=number, seed=1)
    print(f"domain, admission, sample: {time.process_time() - start:.1f} s CPU", file=sys.stderr)
    packing, counting = timed(
        lambda: BitMatrix.of_blocks(some_columns(), (rows, columns)),
        lambda bits: bits.take(domain, None).conjunctions(some, ()),
    )
    return rows, number, packing - making, counting


CASES: dict[str, Callable[[], Result]] = {
    "Adult, 14 attributes, as bits": lambda: as_bits(ADULT, 48_842, 500_000),
    "Adult, 14 attributes, a frame": lambda: as_table(ADULT, 48_842, 500_000),
    "Adult, 235 columns of bits": lambda: one_hot(48_842, 235, 500_000),
    "KDD99, 41 attributes, a frame": lambda: as_table(KDD99, 494_021, 500_000),
    "KDD99, the same, 2,000,000 queries": lambda: as_table(KDD99, 494_021, 2_000_000),
    "KDD99, 396 columns of bits": lambda: one_hot(494_021, 396, 500_000),
    "Netflix, 17,770 columns, sparse": lambda: sparse(480_189, 17_770, 500_000),
    "51,200 columns in blocks": lambda: blocks(50_000, 51_200, 100_000),
    "512,000 columns in blocks": lambda: blocks(50_000, 512_000, 100_000),
}


def evaluation() -> None:
    rows = []
    for name in CASES:
        command = [sys.executable, "-m", "benchmarks.conjunctions", "case", name]
        words = subprocess.run(command, capture_output=True, text=True, check=True)
        print(words.stderr, end="", file=sys.stderr)
        number, queries, packing, counting, memory = map(float, words.stdout.split())
        speed = number * queries / counting
        rows.append(
            [
                name,
                f"{number:,.0f}",
                f"{queries:,.0f}",
                f"{packing:.2f} s",
                f"{counting:.2f} s",
                f"{speed:.1e}",
                f"{memory:.2f} GB",
            ]
        )
    table(["case", "rows", "queries", "packing", "counting", "row·queries/s", "peak memory"], rows)


def case(name: str) -> None:
    result = CASES[name]()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(*result, memory)


RESPONSES: dict[str, tuple[list[int], bool, float, int, bool]] = {
    "Adult's 14 attributes, half negated": (ADULT, False, 0.5, 100, True),
    "Adult's 14 attributes, half negated, 500": (ADULT, False, 0.5, 500, False),
    "235 bits, none negated": ([2] * 235, False, 0.0, 50, True),
    "235 bits, none negated, 100": ([2] * 235, False, 0.0, 100, True),
    "235 bits, half negated": ([2] * 235, False, 0.5, 100, True),
    "235 bits, positive, half negated": ([2] * 235, True, 0.5, 200, True),
    "235 bits, none negated, 500": ([2] * 235, False, 0.0, 500, False),
    "235 bits, half negated, 500": ([2] * 235, False, 0.5, 500, False),
    "512,000 bits, half negated": ([2] * 512_000, False, 0.5, 500, True),
}
SEARCHES: dict[str, BestResponse] = {
    "one start": LocalSearch(starts=1, throws=0),
    "local search": LocalSearch(),
    "32 starts, 8 throws": LocalSearch(starts=32, throws=8),
    "and HiGHS, 50 nodes": SolverImproved(most_queries=100),
}


def response(times: int) -> None:
    rows = []
    for name, (sizes, positive, negated, number, provable) in RESPONSES.items():
        domain = Domain.binary(len(sizes)) if set(sizes) == {2} else schema(sizes)
        scores = dict.fromkeys(SEARCHES, 0)
        seconds = dict.fromkeys(SEARCHES, 0.0)
        best, proofs = 0, 0
        for seed in range(times):
            some = Conjunctions.sampled(domain, ways=3, number=number, seed=seed, positive=positive)
            signs = np.random.default_rng(seed).random(number) < negated
            drawn = DrawnQueries(some, signs)
            for search, respond in SEARCHES.items():
                start = time.process_time()
                record = respond(drawn, np.array(sizes), np.random.default_rng(seed))
                seconds[search] += time.process_time() - start
                scores[search] += int(drawn.satisfied(record)[0])
            if provable:
                problem = _Clauses.of(drawn, np.array(sizes))
                options = LocalSearch()._choices(problem, np.random.default_rng(seed))
                options, proven = improved(problem, options, PROOF_NODES)
                record = problem.record(options, "first", np.random.default_rng(seed))
                best, proofs = best + int(drawn.satisfied(record)[0]), proofs + proven
        unknown = "not proven" if provable else "not tried"
        optimum = f"{best / times:.1f}" if proofs == times else unknown
        costs = [
            f"{scores[search] / times:.1f} ({1000 * seconds[search] / times:.0f} ms)"
            for search in SEARCHES
        ]
        rows.append([name, f"{number}", *costs, optimum])
    table(["queries drawn from", "drawn", *SEARCHES, "proven optimum"], rows)


if __name__ == "__main__":
    section = sys.argv[1] if len(sys.argv) > 1 else "all"
    if section == "case":
        case(sys.argv[2])
    if section in ("all", "evaluation"):
        evaluation()
    if section in ("all", "response"):
        response(5)
