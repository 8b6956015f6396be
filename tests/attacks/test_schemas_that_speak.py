"""Schemas that say more than values: text where numbers belong, or the kernel's own changed.

Who declares bins by hand can write text between their edges, which the engine takes into its SQL:
one row then decides the cell of every other. And `handle.domain` is the very object that the
kernel counts by, so that whoever holds a handle changes it between two requests.
"""

import pyarrow as pa
import pytest

import psephos as ps
from psephos import matrix as mx
from psephos.domain.attribute import Attribute
from psephos.errors import PsephosError

ONE = ps.epsilon("1")
COUNTED = "' = 'x' AS DOUBLE) + (SELECT count(*) FROM frame WHERE x0 = 7) + CAST('x' = '"
BINS = ps.Domain.of(age=Attribute.bins([-1, 0.5, 10]))


def opened(folder, column, domain):
    path = folder / "people.ledger"
    ps.Ledger.create(path, dataset="people", unit=ps.add_remove_row(), budget=ONE)
    table = ps.protect(pa.table(column), domain, ledger=path)
    return table, ps.Ledger.open(path)


def counts(folder, column, domain, change=lambda domain: None):
    """The true counts of all cells, or None where they are refused."""
    folder.mkdir()
    try:
        table, _ = opened(folder, column, domain)
        change(table.domain)
        cells = table.vectorise()
        return cells._answers([mx.Identity(2)])[0]
    except PsephosError:
        return None


def moved(folder, domain, change=lambda domain: None):
    """How many rows one row more moves."""
    before = counts(folder / "before", {"age": [0] * 50}, domain, change)
    after = counts(folder / "after", {"age": [0] * 50 + [7]}, domain, change)
    return 0 if before is None or after is None else abs(after - before).sum()


def test_an_edge_is_a_number(tmp_path):
    edges = (-1.0, COUNTED, 10.0)
    values = ((-1.0, COUNTED), (COUNTED, 10.0))
    try:
        domain = ps.Domain(("age",), (Attribute(values, ("low", "high"), edges),))
    except PsephosError:
        return
    assert moved(tmp_path, domain) <= 1


def test_the_schema_of_a_handle_is_no_part_of_the_kernel(tmp_path):
    def change(domain):
        object.__setattr__(domain["age"], "edges", (-1, COUNTED, 10))

    assert moved(tmp_path, BINS, change) <= 1


def test_no_class_of_the_caller_is_asked(tmp_path):
    asked = []

    class Curious(ps.Domain):
        def axis(self, name):
            asked.append(name)
            return super().axis(name)

    table, _ = opened(tmp_path, {"age": [0]}, BINS)
    object.__setattr__(table.domain, "__class__", Curious)
    table.noisy_count(spend=ONE)
    assert not asked


@pytest.mark.parametrize("of", ["handle", "measurement"])
def test_parts_stay_apart_whatever_becomes_of_the_schema(of, tmp_path):
    """Values that change places between two parts would put one row in both, for one price."""
    table, _ = opened(tmp_path, {"sex": ["F"] * 7}, ps.Domain.of(sex=["F", "M"]))
    parts = table.split("sex")
    first = parts["F"].noisy_count(spend=ONE)
    shown = table.domain if of == "handle" else first.domain
    object.__setattr__(shown["sex"], "values", ("M", "F"))
    assert parts["M"].vectorise()._answers([mx.total(2)])[0].tolist() == [0]
