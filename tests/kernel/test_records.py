"""Measurements keep integers exactly, in 64 bits or beyond."""

from fractions import Fraction
from operator import add

import numpy as np
import pytest

from psephos import matrix as mx
from psephos.domain.domain import Domain
from psephos.errors import BudgetError, RefusedError, ShapeError
from psephos.kernel import budget as b
from psephos.kernel import conversion, gate
from psephos.kernel.measurement import pack, unpack
from psephos.kernel.query import Block, Query
from psephos.kernel.scores.worst_approximated import WorstApproximated
from psephos.kernel.sensitivity import RULES, answers, columns, exactly, largest_entry, sensitivity
from psephos.kernel.simulate import counted, simulation
from psephos.kernel.unit import add_remove_row
from psephos.kernel.vault import Draws
from psephos.values import digest


def test_integers_of_any_size_are_kept():
    small = np.array([1, -(2**62), 0])
    large = np.array([2**80, -1], dtype=object)
    assert unpack(pack(small)).tolist() == small.tolist()
    assert unpack(pack(large)).tolist() == large.tolist()
    assert unpack(pack(np.array([5], dtype=object))).dtype == np.int64
    assert unpack(pack(large)).dtype == object


def test_sums_with_noise_never_wrap_around():
    top = np.array([2**62 - 1])
    for true, noise in ([top, top], [top, -top - 1], [top + 1, top + 1], [-top, np.array([-5])]):
        assert exactly(add, true, noise).tolist() == [int(true[0]) + int(noise[0])]
    assert exactly(add, np.array([2**61 - 1]), np.array([-(2**61)])).dtype == np.int64
    assert exactly(add, np.array([2**80], dtype=object), np.array([1])).tolist() == [2**80 + 1]


def test_huge_columns_are_exact():
    wide = mx.Dense(np.array([[2**62], [2**62]]))
    assert columns(wide, 1).max() == 2**63
    assert columns(wide, 2).max() == 2**125
    assert columns(mx.Stack((wide, mx.Identity(1))), 1).max() == 2**63 + 1
    mixed = [(mx.Kron((mx.Dense([[2**62], [2**62]]), mx.Prefix(2))), 1), (mx.Prefix(2), 1)]
    with pytest.raises(RefusedError, match="share one width"):
        Query.of([*mixed, (mx.Identity(3), 1)])
    assert sensitivity(Query.of(mixed), 1) == 2**64 + 2
    far = mx.Dense(np.array([[2**62, -(2**62)]]))
    assert answers(far, np.array([4, 4])).tolist() == [0]
    assert answers(mx.Prefix(2), np.array([2**70, 1], dtype=object)).tolist() == [2**70, 2**70 + 1]


def test_two_products_on_a_grid_need_no_cells():
    a = mx.Kron((mx.Prefix(3), mx.Identity(1000), mx.Identity(1000)))
    c = mx.Kron((mx.total(3), mx.Prefix(1000), mx.total(1000)))
    assert sensitivity(Query.of([(a, 1), (c, 2)]), 1) == 3 + 2 * 1000
    same = mx.Kron((mx.Prefix(3), mx.Prefix(4)))
    other = mx.Kron((mx.Prefix(4), mx.Prefix(3)))
    exact = (np.abs(same.dense()).sum(axis=0) + np.abs(other.dense()).sum(axis=0)).max()
    assert sensitivity(Query.of([(same, 1), (other, 1)]), 1) == exact
    huge = mx.Kron((mx.Dense([[2**40], [2**40]]), mx.Dense([[2**40, 1]])))
    assert sensitivity(Query.of([(huge, 1), (huge, 1)]), 1) == 2**82


def test_largest_entries_by_type():
    assert largest_entry(mx.Permuted(mx.Dense([[3, -9]]), [1, 0])) == 9
    assert largest_entry(mx.Marginals.of((2, 2), {(0,): -4, (): 1})) == 4
    assert largest_entry(mx.DirectSum((mx.Diagonal([7]), mx.Prefix(2)))) == 7
    with pytest.raises(RefusedError):
        largest_entry(mx.Semiseparable([1.0], [1.0]))
    with pytest.raises(RefusedError):
        columns(mx.Semiseparable([1.0], [1.0]), 1)
    assert mx.Semiseparable not in RULES


def test_fields_of_strange_kinds_are_refused():
    strange = mx.Kron((mx.Identity(2),))
    object.__setattr__(strange, "factors", ("text",))
    with pytest.raises(ShapeError, match="Kron is made of matrices, got str"):
        gate.admit(strange, "matrix")
    with pytest.raises(RefusedError, match="a block is a matrix"):
        Query.of([("text", 1)])
    with pytest.raises(RefusedError):
        Query((Block(mx.Identity(2), 0.5),))


def test_certified_conversions_at_the_edges():
    assert conversion.delta_bound(Fraction(0), Fraction(1)) == 0
    assert conversion.delta_bound(Fraction(10**6), Fraction(1, 10**6)) == 1
    with pytest.raises(BudgetError):
        simulation(None, None, unit="row", budget=b.epsilon("1"), seed=0)


def test_rare_paths_of_the_rules(monkeypatch):
    assert columns(mx.Permuted(mx.Identity(3), [2, 0, 1]), 1).tolist() == [1, 1, 1]
    with pytest.raises(RefusedError):
        columns(mx.AllRange(3).T, 1)
    big = mx.Kron((mx.Dense([[2**62], [2**62]]), mx.Prefix(2)))
    assert sensitivity(Query.of([(big, 1), (big, 1)]), 1) == 2**65
    pair = mx.Kron((mx.Prefix(3), mx.Prefix(2)))
    monkeypatch.setattr("psephos.kernel.sensitivity.MOST_CASES", 1)
    assert sensitivity(Query.of([(pair, 1), (pair, 1)]), 1) == 12


def test_handles_refuse_misfits_and_real_draws_choose():
    domain = Domain.of(x=3, y=2)
    table = simulation(
        counted(np.arange(6), domain), domain, unit=add_remove_row(), budget=b.epsilon("9"), seed=0
    )
    v = table.vectorise()
    with pytest.raises(ShapeError, match="the vector has 6 cells, the matrix 5 columns"):
        v.transform(mx.Identity(5))
    y = v.measure(mx.Identity(6), spend=b.epsilon("1"))
    assert y.values.shape == (6,)
    assert v.noisy_count(spend=b.epsilon("1")).values.size == 1
    nothing = mx.Kron((mx.total(3), mx.total(2)))
    assert v.measure(nothing, spend=b.epsilon("1")).values.size == 1
    table._vault.draws = Draws()
    assert v.choose(WorstApproximated(mx.Identity(6), [0] * 6), spend=b.epsilon("1")) in range(6)
    assert digest(np.array([1])) == digest(np.array([1])) != digest(np.array([2]))
