"""How a reader walks through the code: the order in which a release first calls each function.

A release of two tables, one of them in SQL, runs under `sys.setprofile`. Every function of psephos
is noted once, at its first call, with the top folder that it lies in; what counts is how often the
folder changes from one first call to the next. Left out are lambdas and comprehensions, which have
no name to look for, and the files beside the folders (errors, values, protect).

Two numbers are printed. Functions are what a reader goes to another file for. Methods belong to a
value that is at hand already, such as a matrix or a domain; counted too, every `domain.size` and
`matrix.shape` that is asked for the first time is a way there and back.

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

    importing = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>":  # what a file does on import is no step of the release
            importing += (event == "call") - (event == "return")
        if not importing and event == "call" and code.co_filename.startswith(str(SOURCE)):
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


def changes(calls: list[tuple[Path, str]]) -> list[tuple[str, str]]:
    """From which top folder to which, wherever it changes."""
    folders = [file.parts[0] for file, _ in calls]
    return [(a, b) for a, b in pairwise(folders) if a != b]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        calls = first_calls(prepare(Path(folder)))
    functions = [(file, name) for file, name in calls if "." not in name]
    if "--list" in sys.argv:
        before = ""
        for file, name in functions:
            print(" " if file.parts[0] == before else ">", file, name)
            before = file.parts[0]
    for what, some in (("functions", functions), ("functions and methods", calls)):
        files = len({file for file, _ in some})
        print(f"{len(some)} {what} in {files} files: {len(changes(some))} changes of folder")
    for (a, b), count in Counter(changes(functions)).most_common(8):
        print(f"  {a} to {b}: {count}")


if __name__ == "__main__":
    main()
