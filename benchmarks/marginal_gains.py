"""Pure differential privacy: all marginals up to 3-way, gain over the Laplace mechanism.

The gain is the ratio of root mean squared errors: the workload itself, measured with Laplace noise,
over what `select.hdmm` finds, both exact. Closure only is what the best start known there reaches
on the marginals asked and those inside them; a cover adds larger ones.
"""

from __future__ import annotations

import math
import sys
import time

import psephos as ps
from benchmarks.measure import table

KNOWN = {  # attributes, values: closure only, with 4-way covers
    (8, 10): (1.85, 2.17), (8, 4): (2.36, 4.15), (8, 2): (3.79, 8.27),
    (16, 10): (1.44, 1.79), (16, 4): (1.88, 3.59), (16, 2): (3.28, 8.27),
    (50, 10): (1.25, 1.49), (50, 4): (1.63, 2.71), (50, 2): (2.96, 6.11),
    (100, 10): (1.21, 1.45), (100, 4): (1.59, 2.65), (100, 2): (2.89, 6.08),
}  # fmt: skip


def row(attributes: int, values: int) -> list[str]:
    closure, covers = KNOWN[attributes, values]
    domain = ps.Domain.of({f"a{i}": values for i in range(attributes)})
    begin = time.process_time()
    workload = ps.marginals(domain, up_to=3)
    strategy = ps.select.hdmm(workload)
    seconds = time.process_time() - begin
    direct = next(rival.error for rival in strategy.rivals if rival.name == "workload")
    gain = math.sqrt(direct / strategy.expected_error(workload))
    miss = "" if gain >= covers - 0.005 else "below"
    facts = [f"{gain:.3f}", f"{closure}", f"{covers}", f"{len(strategy.query.blocks):,}"]
    return [f"{attributes} of {values}", *facts, f"{seconds:.1f} s", miss]


def main(most: int) -> None:
    print(__doc__)
    rows = []
    for attributes, values in KNOWN:
        if attributes <= most:
            rows.append(row(attributes, values))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    head = ["attributes", "gain", "closure only", "with covers", "measured", "cpu", "misses"]
    table(head, rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
