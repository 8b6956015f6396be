"""What must be trusted is what docs/privacy.md lists: files, lines, and functions of matrix/.

`python -m tests.kernel.test_trusted_base` writes the numbers of lines into the page.
"""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import psephos as ps
from psephos.kernel import gate, sensitivity
from psephos.matrix import Identity, Kron, Ones
from psephos.matrix.base import Transposed
from tests.kernel.members import MEMBERS
from tests.test_structure import code_lines

SOURCE = Path(ps.__file__).parent
DOCS = SOURCE.parent.parent / "docs" / "privacy.md"
OF_A_CLASS = {"__post_init__", "shape", "_apply", "_apply_t", "_apply_into", "_streams"}


def documented():
    """File → classes and functions, from the table."""
    table = {}
    for file, cell in re.findall(r"^\| `(\w+\.py)` \| (.*) \|$", DOCS.read_text(), re.MULTILINE):
        table[file] = set(re.findall(r"\w+", cell))
    return table


@pytest.fixture(scope="module")
def run():
    """File → names of all functions of matrix/ that ran, for counts small and large."""
    admitted = [gate.admit(member, "matrix") for member in MEMBERS]
    ran = {}

    def note(frame, event, _):
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.parent == SOURCE / "matrix":
            ran.setdefault(file.name, set()).add(frame.f_code.co_qualname.split(".<locals>")[0])

    sys.setprofile(note)
    try:
        for matrix in admitted:
            for size in (1, 2**50):
                sensitivity.answers(matrix, size * np.arange(matrix.shape[1]))
            for power in (1, 2):
                sensitivity.columns(matrix, power)
            sensitivity.stability(matrix)
    finally:
        sys.setprofile(None)
    return ran


def test_only_what_is_listed_sees_counts(run):
    listed = documented()
    for file, names in run.items():
        for name in names:
            owner, _, method = name.rpartition(".")
            known = listed[file]
            assert (owner in known and method in OF_A_CLASS) or method in known, (file, name)


def test_what_is_listed_is_needed(run):
    for file, names in documented().items():
        used = {part for name in run[file] for part in name.split(".")}
        assert names <= used, (file, names - used)


def test_every_type_is_run():
    assert {type(member) for member in MEMBERS} == set(sensitivity.RULES)
    assert Transposed in sensitivity.RULES


PLAIN = {
    "the core of `kernel/`": ["kernel/*.py"],
    "its boundary": ["kernel/gate.py", "kernel/codec.py"],
    "rows of a CSV to cells": [
        *(f"engines/{name}.py" for name in ("__init__", "protocol", "columns", "registry")),
        *(
            "engines/files.py",
            "engines/csv_lines.py",
            "engines/row_store.py",
            "engines/duckdb/*.py",
            "kernel/cell_counts.py",
        ),
    ],
    "schemas": ["domain/*.py", "protect.py"],
    "functions of `matrix/`, below": [],
}
"""What a release of one CSV rests on."""
OPTIONS = {
    "conditions on rows": ["domain/predicate.py"],
    "dates": ["domain/calendar.py"],
    "cleaning of entries": [
        *("domain/cleaning.py", "engines/cleaned.py", "engines/duckdb/clean_text.py"),
    ],
    "entries over several lines": ["engines/multiline_csv.py"],
    "columns of Arrow types, which all but CSV files have": ["engines/duckdb/arrow_types.py"],
    "frames, folders and Parquet": [
        *("engines/frames.py", "engines/folders.py", "engines/parquet.py"),
    ],
    "DuckDB files and connections": ["engines/databases.py"],
    "Postgres": ["engines/postgres.py"],
    "Spark": ["engines/spark.py", "kernel/parts/spark_*.py"],
    "parts": ["kernel/parts/*.py", "domain/part_tree.py"],
    "searches of plans": ["kernel/scores/*.py"],
    "DualQuery and matrices of 0 and 1": [
        *("kernel/scores/dual_query.py", "kernel/scores/conjunction_requests.py"),
        *("engines/bit_matrix.py", "domain/bits.py", "domain/conjunctions.py"),
    ],
    "group_by and persons": ["kernel/grouped_tables.py"],
    "epsilon at a delta": ["kernel/conversion.py"],
    "ledgers read and checked by others": ["kernel/ledger_history.py", "kernel/ledger_copy.py"],
    "answers of records": ["kernel/replay.py", "kernel/recorded_ledger.py"],
}
BEFORE_THE_GATE = ["domain/attribute.py", "domain/levels.py"]
"""How people write schemas; the gate takes the fields, which `domain/declared.py` checks."""
NO_REAL_DATA = ["kernel/simulate.py", "kernel/play_money.py"]
CEILINGS = {"the core of `kernel/`": 1500, "its boundary": 310}
MOST_OF_A_PLAIN_RELEASE = 4731


def files_of(patterns):
    return {path for pattern in patterns for path in SOURCE.glob(pattern)}


def numbers():
    """The files and the lines of each group; a file of two patterns is the narrower one's."""
    narrow = files_of(p for group in OPTIONS.values() for p in group)
    narrow |= files_of(NO_REAL_DATA)
    groups = {}
    for name, patterns in PLAIN.items():
        exact = files_of(
            p for other, ps in PLAIN.items() if other != name for p in ps if "*" not in p
        )
        groups[name] = files_of(patterns) - narrow - exact
    for name, patterns in OPTIONS.items():
        exact = {path for other, ps in OPTIONS.items() if other != name for path in files_of(ps)}
        wide = files_of(p for p in patterns if p in ("kernel/parts/*.py", "kernel/scores/*.py"))
        groups[name] = (files_of(patterns) - wide) | (wide - exact)
    lines = {name: sum(map(code_lines, paths)) for name, paths in groups.items()}
    lines["functions of `matrix/`, below"] = matrix_lines()
    return groups, lines


def matrix_lines():
    """Lines of the functions of matrix/ that the table lists."""
    total = 0
    for file, known in documented().items():
        path = SOURCE / "matrix" / file
        tree = ast.parse(path.read_text())
        listed = []
        for node in tree.body:
            inner = node.body if isinstance(node, ast.ClassDef) else [node]
            names = OF_A_CLASS | known if getattr(node, "name", "") in known else known
            functions = [n for n in inner if isinstance(n, ast.FunctionDef)]
            listed += [n for n in functions if n.name in names]
        code = path.read_text().splitlines()
        texts = {
            line
            for n in ast.walk(tree)
            if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
            for line in range(n.lineno, n.end_lineno + 1)
        }
        for function in listed:
            for number in range(function.lineno, function.end_lineno + 1):
                text = code[number - 1].strip()
                total += bool(text) and number not in texts and not text.startswith("#")
    return total


def table():
    """The numbers as docs/privacy.md shows them."""
    _, lines = numbers()
    rows = ["| what | lines of code |", "|---|--:|"]
    rows += [f"| {name} | {lines[name]:,} |" for name in PLAIN]
    rows += [f"| **a release of one CSV, in all** | **{sum(lines[n] for n in PLAIN):,}** |"]
    rows += [f"| in addition: {name} | {lines[name]:,} |" for name in OPTIONS]
    return "\n".join(rows)


def test_every_file_is_counted_once():
    groups, _ = numbers()
    rooms = files_of(["kernel/**/*.py", "engines/**/*.py", "domain/**/*.py", "protect.py"])
    counted = [path for paths in groups.values() for path in paths]
    assert len(counted) == len(set(counted))
    assert set(counted) == rooms - files_of(NO_REAL_DATA)


def test_the_trusted_base_only_shrinks():
    _, lines = numbers()
    for name, ceiling in CEILINGS.items():
        assert lines[name] <= ceiling, name
    assert sum(lines[name] for name in PLAIN) <= MOST_OF_A_PLAIN_RELEASE


OPENERS = {"open_postgres", "is_database_url", "open_folder", "is_glob", "open_parquet"}
"""They look at what is given, and leave the path of a CSV to the next."""


def called(work, files):
    """What the work gives, and the functions of some files that it calls."""
    names, ran = {str(path) for path in files}, set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename in names:
            ran.add(frame.f_code.co_qualname.split(".<locals>")[0])

    sys.setprofile(note)
    try:
        return work(), ran
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("text", ["F,7,1,1\nM,8,2,1\n", 'F,7,1,1\nM,8\n"M",9,2,2\n'])
@pytest.mark.parametrize("unit", [ps.add_remove_row(), ps.person("id", max_rows=1)])
@pytest.mark.parametrize("ages", [100, 20_000])
def test_a_plain_release_runs_nothing_that_is_counted_as_an_option(tmp_path, text, unit, ages):
    (tmp_path / "people.csv").write_text(f"sex,age,income,id\n{text}")
    ps.Ledger.create(tmp_path / "l", dataset="d", unit=unit, budget=ps.epsilon(2))

    def declare():
        age = ps.Attribute.integers(0, ages - 1).with_level("broad", [0, 18]).with_unknown("clip")
        sex = ps.Attribute.categories(["F", "M", None]).with_unknown("other")
        return ps.Domain.of(sex=sex, age=age, income=ps.Attribute.bins([0, 2, 5]))

    def measure(domain, key):
        table = ps.protect(tmp_path / "people.csv", domain, ledger=tmp_path / "l")
        query = Kron((Identity(4), Ones(1, ages), Identity(2)))
        return table.vectorise().measure(query, spend=ps.epsilon("1/2"), key=key)

    measure(declare(), "everything is imported")
    groups, _ = numbers()
    rooms = files_of(["engines/**/*.py", "domain/**/*.py"])
    options = {path for name in OPTIONS for path in groups[name] & rooms}
    domain, ran = called(declare, options)
    assert not ran
    before = files_of(BEFORE_THE_GATE)
    _, ran = called(lambda: measure(domain, "observed"), options | before)
    assert ran <= OPENERS


def test_the_page_says_how_much_it_is():
    assert table() in DOCS.read_text()


if __name__ == "__main__":
    text = DOCS.read_text()
    start = text.index("| what | lines of code |")
    DOCS.write_text(text[:start] + table() + text[text.index("\n\n", start) :])
