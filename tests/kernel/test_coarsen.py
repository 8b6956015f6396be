"""Attributes by groups of their values: what is counted, what it costs, what is refused."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import psephos as ps
from psephos import matrix as mx
from psephos.domain.domain import Domain
from psephos.engines.bit_matrix import BitMatrix
from psephos.errors import DomainError, RefusedError
from psephos.kernel.budget import epsilon
from psephos.kernel.simulate import counted, simulation
from psephos.kernel.unit import add_remove_row
from psephos.release.spec.asked_cells import AskedCells
from tests.kernel.test_protected import Silent

DOMAIN = Domain.of(sex=["F", "M"], age=range(6), region=3)
THIRDS = mx.Partition([0, 0, 1, 1, 2, 2])
ENDS = mx.Partition([0, 1, 1, 1, 1, 0])
ROWS = [(s, a, r) for s in (0, 1) for a in range(6) for r in range(3) for _ in range(s + 2 * a + r)]
ONE = epsilon("1")


def table_of(rows, unit=None):
    columns = {
        "sex": ["FM"[s] for s, *_ in rows],
        "age": [a for _, a, *_ in rows],
        "region": [r for _, _, r, *_ in rows],
        "id": [row[3] if len(row) > 3 else i for i, row in enumerate(rows)],
    }
    options = {"unit": unit or add_remove_row(), "budget": epsilon("1000"), "seed": 0}
    table = ps.simulate(pa.table(columns), DOMAIN, **options)
    table._vault.draws = Silent()
    return table


def cell_table(rows):
    x = np.zeros(DOMAIN.shape, dtype=np.int64)
    np.add.at(x, tuple(np.array([row[:3] for row in rows]).T), 1)
    table = simulation(
        counted(x, DOMAIN), DOMAIN, unit=add_remove_row(), budget=epsilon("1000"), seed=0
    )
    table._vault.draws = Silent()
    return table


def counts(table):
    vector = table.vectorise()
    measured = vector.measure(mx.Identity(vector.size), spend=ONE).values
    return measured.reshape(table.domain.shape)


def cube(rows=ROWS, keep=lambda row: True):
    x = np.zeros(DOMAIN.shape, dtype=np.int64)
    for row in rows:
        x[row[:3]] += keep(row)
    return x


def by_age(x, partition, axis=1):
    members = [np.flatnonzero(partition.groups == g) for g in range(partition.shape[0])]
    return np.stack([x.take(some, axis).sum(axis) for some in members], axis)


@given(
    groups=st.lists(st.integers(0, 5), min_size=6, max_size=6),
    rows=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 2)), min_size=1),
)
def test_groups_hold_the_rows_of_their_values(groups, rows):
    order = {g: i for i, g in enumerate(dict.fromkeys(groups))}
    partition = mx.Partition([order[g] for g in groups])
    for table in (table_of(rows), cell_table(rows)):
        assert (counts(table.coarsen(age=partition)) == by_age(cube(rows), partition)).all()


@pytest.mark.parametrize("make", [table_of, cell_table])
def test_it_goes_with_what_comes_before_and_after(make):
    table, x = make(ROWS), cube()
    old = cube(keep=lambda row: row[1] >= 3)
    assert (
        counts(table.where(ps.col("age") >= 3).coarsen(age=THIRDS)) == by_age(old, THIRDS)
    ).all()
    coarse = table.keep("age", "region").coarsen(age=ENDS, region=mx.Partition([0, 0, 0]))
    assert coarse.domain.shape == (2, 1)
    assert (counts(coarse) == by_age(x.sum(axis=(0, 2))[:, None], ENDS, 0)).all()
    later = table.coarsen(age=THIRDS).where(ps.col("age") >= 1)
    assert (counts(later)[:, 1:] == by_age(x, THIRDS)[:, 1:]).all()
    assert not counts(later)[:, 0].any()
    twice = table.coarsen(age=THIRDS).coarsen(age=mx.Partition([0, 1, 1]))
    assert (counts(twice)[:, 0] == x[:, :2].sum(axis=1)).all()
    part = table.split("sex")["M"].coarsen(age=THIRDS)
    assert (counts(part) == by_age(x[1], THIRDS, 0)).all()
    grouped = table.coarsen(age=THIRDS).group_by("age", most=1000)
    sizes = by_age(x, THIRDS).sum(axis=(0, 2))
    assert [int(np.argmax(row)) for row in counts(grouped)] == sizes.tolist()
    parts = table.coarsen(age=THIRDS).parts("sex")
    assert parts.domain["age"].size == 3


def test_persons_are_counted_in_groups_and_once():
    """Somebody with rows of two ages in one group is there once; conditions come first."""
    rows = [(0, 0, 0, "a"), (0, 1, 0, "a"), (0, 5, 0, "a"), (0, 1, 1, "b"), (1, 4, 1, "c")]
    table = table_of(rows, ps.person("id", max_rows=5))
    assert counts(table.coarsen(age=THIRDS).persons("age")).tolist() == [2, 0, 2]
    some = table.where(ps.col("age") < 5).coarsen(age=THIRDS)
    assert counts(some.persons("age")).tolist() == [2, 0, 1]
    assert counts(some.persons()).tolist() == [3]


def test_it_costs_what_the_cells_would():
    table = table_of(ROWS)
    handle = table.coarsen(age=THIRDS).vectorise()
    assert handle._node.stability == 1
    measured = handle.measure(mx.Identity(handle.size), spend=epsilon("1/2"))
    assert measured.noise[0].scale == Fraction(2)
    assert table._vault.ledger.spent == Fraction(1, 2)


def test_no_vector_of_the_cells_before_is_made():
    wide = Domain.of(**{f"x{i}": range(1000) for i in range(6)})
    rows = {f"x{i}": np.arange(50) * 7 % 1000 for i in range(6)}
    table = ps.simulate(pa.table(rows), wide, unit=add_remove_row(), budget=epsilon("9"), seed=0)
    table._vault.draws = Silent()
    halves = mx.Partition(np.arange(1000) // 500)
    coarse = table.coarsen(**{f"x{i}": halves for i in range(6)})
    assert coarse.domain.size == 64
    assert counts(coarse).sum() == 50


def test_a_partition_is_copied_before_it_is_used():
    held = mx.Partition([0, 0, 1, 1, 2, 2])
    coarse = table_of(ROWS).coarsen(age=held)
    path = coarse._node.path
    held.groups.setflags(write=True)
    held.groups[:] = 0
    assert (counts(coarse) == by_age(cube(), THIRDS)).all()
    assert path == table_of(ROWS).coarsen(age=THIRDS)._node.path


class Liar(mx.Partition):
    """A partition by another name."""


@pytest.mark.parametrize(
    ("partitions", "error"),
    [
        ({"age": [0, 0, 1, 1, 2, 2]}, RefusedError),
        ({"age": Liar([0, 0, 1, 1, 2, 2])}, RefusedError),
        ({"age": mx.Identity(6)}, RefusedError),
        ({"age": mx.Partition([0, 1])}, DomainError),
        ({"age": mx.Partition([1, 0, 0, 0, 0, 0])}, DomainError),
        ({"race": mx.Partition([0])}, DomainError),
    ],
)
def test_other_groups_are_refused(partitions, error):
    table = table_of(ROWS)
    with pytest.raises(error):
        table.coarsen(**partitions)
    assert table._vault.ledger.spent == 0


def test_tables_of_groups_and_of_persons_stay_as_they_are():
    """Two rows of a person lie in different cells there, and would come to lie in one."""
    rows = [(*row, str(i % 9)) for i, row in enumerate(ROWS)]
    table = table_of(rows, ps.person("id", max_rows=5))
    with pytest.raises(RefusedError, match="coarsen before group_by and persons"):
        table.persons("age").coarsen(age=THIRDS)
    with pytest.raises(RefusedError, match="coarsen before group_by and persons"):
        table.group_by("age", most=3).coarsen(age=THIRDS)
    merged = ps.simulate(
        cube(), DOMAIN.merge(["sex", "age"]), unit=add_remove_row(), budget=ONE, seed=0
    )
    with pytest.raises(DomainError, match="stays as it is"):
        merged.coarsen(**{"sex*age": mx.Partition(np.zeros(12, dtype=int))})


def test_a_release_knows_the_way_by_the_same_name():
    cells = AskedCells(DOMAIN, {"age": THIRDS.groups, "region": np.arange(3)})
    vector = cells.of(table_of(ROWS)).vectorise()
    measured = vector.measure(mx.Identity(vector.size), spend=ONE)
    assert measured.lineage == cells.lineage("")
    assert measured.domain == cells.domain
    whole = AskedCells.whole(DOMAIN)
    assert (
        whole.lineage("2025")
        == ps.simulate(cube(), DOMAIN, unit=add_remove_row(), budget=ONE, seed=0, edition="2025")
        .vectorise()
        ._node.path
    )
    lifted = cells.lifted(measured, whole)
    assert lifted.domain == DOMAIN
    assert (lifted.query.blocks[0].matrix @ cube().ravel() == measured.values).all()


def test_some_columns_of_a_matrix_are_counted_without_groups():
    matrix = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]])
    options = {"unit": add_remove_row(), "budget": epsilon("1000"), "seed": 0}
    table = ps.simulate(BitMatrix.of(matrix), Domain.of(a=2, b=2, c=2), **options)
    table._vault.draws = Silent()
    some = table.where(ps.col("a") == 1).keep("b", "c").coarsen()
    assert counts(some).tolist() == [[0, 1], [1, 1]]
    with pytest.raises(RefusedError, match="coarsen before"):
        table.coarsen(a=mx.Partition([0, 0]))
