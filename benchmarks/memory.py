"""What workloads weigh, beside the numbers of the papers."""

from __future__ import annotations

import tracemalloc

import numpy as np

import psephos as ps
from benchmarks.measure import cost, table


def held(make: object) -> tuple[ps.Workload, int]:
    """A workload with its matrix, and all that Python holds for them."""
    make().matrix  # noqa: B018 - the second build finds imports and caches warm
    tracemalloc.start()
    workload = make()
    workload.matrix  # noqa: B018
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return workload, size


def example_7_3() -> ps.Workload:
    """Prefixes of age and income by marital status, total and two groups: 70,000 cells."""
    domain = ps.Domain.of(age=100, income=100, status=7)
    married = ps.masks([[1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 1]], ["married", "unmarried"])
    status = ps.stacked(ps.total(), ps.identity(), married)
    return ps.Workload(domain, [ps.product(age=ps.prefix(), income=ps.prefix(), status=status)])


def main() -> None:
    print(__doc__)
    rows = []
    for name, make, paper in (
        ("SF1", ps.census.sf1, "335 KB factored, 8.3 GB written out"),
        ("SF1+", ps.census.sf1_plus, "687 KB factored, 22 TB written out"),
        ("EKTELO Example 7.3", example_7_3, "< 100 bytes, 8 GB sparse, 56 GB dense"),
    ):
        workload, size = held(make)
        m, n = workload.shape
        sizes = [f"{workload.nbytes:,} B", f"{size:,} B", f"{8.0 * m * n:.1e} B"]
        rows.append([name, f"{m:,} x {n:,}", *sizes, paper])
    table(["workload", "shape", "arrays", "all Python objects", "8-byte dense", "paper"], rows)
    plus = ps.census.sf1_plus()
    x = np.random.default_rng(0).poisson(3.0, plus.domain.size)
    spent = cost(lambda: plus.answer(x), repeat=1)
    print(
        f"SF1+: all {plus.shape[0]:,} answers of 25.5 million integer counts in "
        f"{spent.wall:.2f} s, peak {spent.peak / x.nbytes:.2f} vectors"
    )


if __name__ == "__main__":
    main()
