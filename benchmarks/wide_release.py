"""A release of all one- and two-way tables of many attributes, from its file to a verified bundle.

    python -m benchmarks.wide_release [ATTRIBUTES ...]

Attributes have 5 to 10 values in turn, 10,000 made-up rows, ρ = 1/2; no vector of all cells fits.
Every command is a process of its own: processor time and the most memory that it held.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import table

ROWS = 10_000
COMMANDS = (["plan"], ["check", "--create-ledger"], ["release"], ["verify"])


def write(folder: Path, attributes: int) -> Path:
    """The rows and the release file."""
    rng = np.random.default_rng(0)
    sizes = [5 + i % 6 for i in range(attributes)]
    columns = [rng.choice(n, size=ROWS, p=rng.dirichlet(np.ones(n))) for n in sizes]
    head = ",".join(f"q{i}" for i in range(attributes))
    np.savetxt(folder / "rows.csv", np.stack(columns, axis=1), "%d", ",", header=head, comments="")
    schema = [
        f"[schema.q{i}]\nvalues = [{', '.join(str(v) for v in range(n))}]\n"
        for i, n in enumerate(sizes)
    ]
    tables = [f'[[tables]]\nname = "t{k}"\nbuilder = "marginals"\nk = {k}\n' for k in (1, 2)]
    file = folder / "wide.toml"
    file.write_text(
        'name = "wide"\nsource = "rows.csv"\nprivacy = { unit = "add_remove_row" }\n'
        'ledger = { path = "wide.ledger", dataset = "wide", rho = "1" }\n'
        'budget = { rho = "1/2" }\n\n' + "\n".join([*schema, *tables])
    )
    return file


def run(words: list[str], folder: Path) -> tuple[float, float]:
    """Processor seconds and gigabytes of one command."""
    start = "import sys; from psephos.cli.main import main; sys.exit(main())"
    psephos = [sys.executable, "-c", start, *words]
    number = os.fork()
    if number == 0:
        os.chdir(folder)
        with (folder / "output.txt").open("ab") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.execv(sys.executable, psephos)
    _, status, usage = os.wait4(number, 0)
    if status:
        raise SystemExit(
            f"{' '.join(words)} failed:\n{(folder / 'output.txt').read_text()[-2000:]}"
        )
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6


def main(arguments: list[str]) -> None:
    print(__doc__)
    rows = []
    for attributes in map(int, arguments or ["30", "60"]):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            file = write(folder, attributes)
            times = []
            for command, *options in COMMANDS:
                what = "bundle" if command == "verify" else file.name
                seconds, peak = run([command, what, *options], folder)
                times.append(f"{seconds:.0f} s, {peak:.2f} GB")
                print(attributes, command, times[-1], file=sys.stderr, flush=True)
            bundle = sum(p.stat().st_size for p in (folder / "bundle").rglob("*") if p.is_file())
            rows.append([str(attributes), *times, f"{bundle / 1e6:.1f} MB"])
    table(["attributes", *(command for command, *_ in COMMANDS), "bundle"], rows)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main(sys.argv[1:])
