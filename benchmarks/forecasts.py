"""What a plan says that a release will take, beside what it takes: time and memory of every step.

    python -m benchmarks.forecasts [FOLDER]

Every release file below a folder is planned, checked and released in a process of its own, rows and
all; without a folder, shapes of several sizes are written first. Measured is processor time, with
the reading of the rows, and by how much memory grows in a step. The aim is a factor of three
wherever a step takes more than a few seconds or a tenth of a gigabyte.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.measure import table
from psephos.release.preflight.checks import check_release, create_ledger
from psephos.release.preflight.forecast import forecast_measured
from psephos.release.run import release
from psephos.release.spec.job import Job

FLOOR_SECONDS, FLOOR_BYTES = 3.0, 1e8
"""Less than this is as good as nothing."""
STEPS = {
    "looking": "intervals",  # what is measured is stored by then
    "intervals": "intervals",
    "counting": "measuring and estimating",
    "estimating": "measuring and estimating",
    "consistent": "measuring and estimating",
    "published": "published numbers",
    "made-up": "published numbers",
    "tables": "tables and report",
    "files": "tables and report",
    "report": "tables and report",
    "manifest": "tables and report",
    **dict.fromkeys(["start", "comparing", "end"], ""),
}
"""The step of a forecast, by the first word of what a release says that it does; "" of none."""


class Steps:
    """The processor seconds of each step, and the most that memory grew in it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.bytes: dict[str, int] = defaultdict(int)
        self.step = ""
        self("start")

    def __call__(self, words: str) -> None:
        """The step before has ended."""
        if self.step:
            self.seconds[self.step] += time.process_time() - self.began
            self.bytes[self.step] = max(self.bytes[self.step], _held("VmHWM") - self.held)
        self.step = STEPS.get(words.replace(":", " ").split()[0], self.step)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        self.began, self.held = time.process_time(), _held("VmRSS")


def _held(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def measured(folder: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """Predicted and measured seconds and bytes of every step."""
    job = Job.read(folder)
    forecast = forecast_measured(job)
    if not check_release(job).ok:
        raise SystemExit(f"{folder}: rows and schema disagree")
    create_ledger(job)
    steps = Steps()
    release(job, progress=steps)
    steps("end")
    return {
        "seconds": {s.name: (s.seconds, steps.seconds[s.name]) for s in forecast.steps},
        "bytes": {s.name: (s.bytes, steps.bytes[s.name]) for s in forecast.steps},
    }


CODES = {"a": 40, "b": 50, "c": 50, "d": 10, "e": 4, "f": 2, "g": 7, "h": 250}
PAIRS = [(i, j) for i in "abcdefg" for j in "abcdefg" if i < j]
SHAPES: dict[str, list[str]] = {
    "10⁵ cells, one table": ['rows = ["a", "b"]\ncolumns = ["c"]'],
    "10⁶ cells, one table": ['rows = ["a", "b", "c"]\ncolumns = ["d"]'],
    "10⁶ cells, pairs": [
        f'rows = ["{i}"]\ncolumns = ["{j}"]' for i, j in PAIRS if {i, j} <= set("abcd")
    ],
    "50,000 ranges": ['queries = { n = "all_range" }', 'rows = ["a"]\ncolumns = ["d"]'],
    "50,000 numbers": ['rows = ["h"]\ncolumns = ["b", "e"]'],
    "many small tables": [f'rows = ["{i}"]\ncolumns = ["{j}"]' for i, j in PAIRS],
    "medians by group": ['statistic = "median"\nof = "n"\nby = ["a"]'],
}


def write_shape(folder: Path, tables: list[str], rows: int = 20_000) -> None:
    """A release file of some tables, and rows of two kinds."""
    lines = ['name = "shape"', 'source = "rows.csv"', "[privacy]", 'unit = "add_remove_row"']
    lines += ["[ledger]", 'path = "l.ledger"', 'dataset = "rows"', 'epsilon = "10"']
    lines += ["[budget]", 'epsilon = "1"']
    for name, n in CODES.items():
        values = ", ".join(f'"{name}{i}"' for i in range(n))
        lines += [f"[schema.{name}]", f"values = [{values}]"]
    lines += ["[schema.n]", "integers = [0, 319]"]
    for i, text in enumerate(tables):
        lines += ["[[tables]]", f'name = "table {i}"', text]
    folder.mkdir()
    (folder / "release.toml").write_text("\n".join(lines) + "\n")
    rng = np.random.default_rng(31)
    shares = (
        rng.beta(1, 4, (rows // 2, len(CODES) + 1)),
        rng.beta(3, 2, (rows // 2, len(CODES) + 1)),
    )
    cells = (np.concatenate(shares) * [*CODES.values(), 320]).astype(int)
    text = [",".join([*CODES, "n"])]
    text += [
        ",".join([*(f"{k}{i}" for k, i in zip(CODES, row, strict=False)), str(row[-1])])
        for row in cells
    ]
    (folder / "rows.csv").write_text("\n".join(text) + "\n")


def _ratio(predicted: float, found: float, floor: float) -> float:
    """By which factor a prediction is off; small values count as the floor."""
    return max(predicted, floor) / max(found, floor)


def in_a_process(folder: Path) -> dict[str, dict[str, tuple[float, float]]] | str:
    """What a fresh copy of a folder takes in a process of its own; or why it does not run."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / folder.name
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("bundle*", "*.ledger*", ".*"))
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.forecasts", "--one", str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["killed"])[-1][:60]
    return dict(json.loads(done.stdout))


def compared(folders: list[Path]) -> None:
    """A line for every release file, and how many are within a factor of three."""
    rows, good = [], dict.fromkeys(("time", "memory"), 0)
    names = dict.fromkeys(filter(None, STEPS.values()))
    for folder in folders:
        found = in_a_process(folder)
        if isinstance(found, str):
            rows.append([folder.name, found, *[""] * (len(names) + 3)])
            continue
        seconds, held = found["seconds"], found["bytes"]
        cells = ["{:.1f} / {:.1f}".format(*seconds.get(name, (0, 0))) for name in names]
        totals = [sum(pair[k] for pair in seconds.values()) for k in (0, 1)]
        peaks = [max(pair[k] for pair in held.values()) for k in (0, 1)]
        ratios = _ratio(*totals, FLOOR_SECONDS), _ratio(*peaks, FLOOR_BYTES)
        for what, ratio in zip(good, ratios, strict=True):
            good[what] += 1 / 3 <= ratio <= 3
        cells.append(f"{totals[0]:.1f} / {totals[1]:.1f}")
        cells.append(f"{peaks[0] / 1e6:,.0f} / {peaks[1] / 1e6:,.0f}")
        rows.append([folder.name, *cells, *(f"{ratio:.2g}" for ratio in ratios)])
    table(["file", *names, "seconds in all", "most MB", "time, ratio", "memory, ratio"], rows)
    for what, count in good.items():
        print(f"{what}: {count} of {len(folders)} within a factor of three")


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measured(Path(sys.argv[2]))))
        return
    print(__doc__)
    if sys.argv[1:]:
        compared(sorted(place.parent for place in Path(sys.argv[1]).glob("*/release.toml")))
        return
    with tempfile.TemporaryDirectory() as place:
        for name, tables in SHAPES.items():
            write_shape(Path(place) / name, tables)
        compared([Path(place) / name for name in SHAPES])


if __name__ == "__main__":
    main()
