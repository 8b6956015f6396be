"""The functions of matrix/ that see counts are those that docs/privacy.md counts in, no others."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import psephos
from psephos.kernel import gate, sensitivity
from psephos.matrix.base import Transposed
from tests.kernel.members import MEMBERS

SOURCE = Path(psephos.__file__).parent
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
