"""How a reader walks through the code: the order in which a release first calls each function.

A release of two tables, one of them in SQL, runs under `sys.setprofile`. Every function of psephos is
noted once, at its first call, with the top folder that it lies in; what counts is how often the folder
changes from one first call to the next. Left out are lambdas and comprehensions, which have no name to
look for, and the files beside the folders (errors, values, protect), which everything holds.

    python -m benchmarks.walk           the number of changes, and where they are
    python -m benchmarks.walk --list    every function, in the order of first calls
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType

from numpy.random import default_rng

import psephos as ps

SOURCE = Path(ps.__file__).parent
RELEASE = """
name = "pets"
source = "people.csv"
privacy = { unit = "add_remove_row" }
ledger = { path = "people.ledger", dataset = "people", epsilon = 2 }
budget = { epsilon = 0.5 }

[schema]
age = { integers = [0, 19], levels = { broad = [0, 6, 12] } }
pet = { values = ["cat", "dog", "horse"], unknown = "other" }

[[tables]]
name = "pets"
rows = ["age.broad"]
columns = ["pet"]

[[tables]]
name = "young"
sql = "SELECT pet, COUNT(*) FROM people WHERE age < 12 GROUP BY pet"

[selection]
strategy = "opt_product"
restarts = 1
"""


def prepare(folder: Path) -> Path:
    """A release file with its data and its ledger, checked."""
    rng = default_rng(0)
    ages, pets = rng.integers(0, 20, 600), rng.choice(["cat", "dog", "horse", "newt"], 600)
    rows = "\n".join(f"{age},{pet}" for age, pet in zip(ages, pets, strict=True))
    (folder / "people.csv").write_text(f"age,pet\n{rows}\n")
    (folder / "release.toml").write_text(RELEASE)
    ps.Ledger.create(
        folder / "people.ledger",
        dataset="people",
        unit=ps.add_remove_row(),
        budget=ps.epsilon("2"),
    )
    ps.check_release(folder)
    return folder / "release.toml"


def first_calls(place: Path) -> list[tuple[Path, str]]:
    """The functions of a release in the order of their first calls: file and name."""
    calls: dict[tuple[str, int], tuple[Path, str]] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)):
            place = (code.co_filename, code.co_firstlineno)
            calls.setdefault(place, (Path(code.co_filename).relative_to(SOURCE), code.co_qualname))

    sys.setprofile(note)
    try:
        ps.release(place)
    finally:
        sys.setprofile(None)
    return [
        (file, name)
        for file, name in calls.values()
        if len(file.parts) > 1 and not name.endswith(">")
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        calls = first_calls(prepare(Path(folder)))
    folders = [file.parts[0] for file, _ in calls]
    changes = [(a, b) for a, b in pairwise(folders) if a != b]
    if "--list" in sys.argv:
        for (file, name), before in zip(calls, ["", *folders], strict=False):
            print(" " if file.parts[0] == before else ">", file, name)
    files = len({file for file, _ in calls})
    print(f"{len(calls)} functions in {files} files; the top folder changes {len(changes)} times")
    for (a, b), count in Counter(changes).most_common(12):
        print(f"  {a} to {b}: {count}")


if __name__ == "__main__":
    main()
