"""(X + μI)⁻¹ by structure, against X written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from psephos import matrix as mx
from psephos.inverse import shifted
from psephos.inverse.shifted import ClassSpectrum, Line, MarginalSpectrum, Solved, Spectrum
from tests.inverse.generators import BLOCKS, SHAPE, residual, trees_of_counts

SHIFTS = st.sampled_from([0.01, 1.0, 30.0])


def check(blocks, weights, shape, shift, kind=None, share=1e-9):
    form = shifted.shifted_form(blocks, weights, shape)
    assert kind is None or isinstance(form, kind)
    n = int(np.prod(shape))
    x = sum(c * b.gram().dense() for b, c in zip(blocks, weights, strict=True)) + shift * np.eye(n)
    v = np.sin(np.arange(1, n + 1))
    assert_allclose(x @ form.at(shift)(v.copy(), np.zeros(n)), v, atol=share * 10)
    assert form.scale > 0
    if form.takes_columns:
        columns = np.stack([v, v[::-1] + 1], axis=1)
        assert_allclose(x @ form.at(shift)(columns.copy(), columns), columns, atol=share * 10)


@settings(max_examples=60)
@given(st.lists(BLOCKS, min_size=1, max_size=4), SHIFTS)
def test_every_form_solves(blocks, shift):
    check(blocks, [1.0, 0.5, 2.0, 0.3][: len(blocks)], SHAPE, shift)


@settings(max_examples=40)
@given(st.lists(BLOCKS, min_size=1, max_size=4), SHIFTS)
def test_classes_and_steps_solve_what_is_not_written_out(blocks, shift):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shifted, "SPECTRUM_AXIS", 4)  # axes have up to four cells, X has twelve
        patch.setattr(shifted, "SHIFTED_SHARE", 1e-12)
        check(blocks, [1.0, 0.5, 2.0, 0.3][: len(blocks)], SHAPE, shift, share=1e-6)


@given(trees_of_counts(), SHIFTS)
def test_trees_have_one_level_more(tree, shift):
    check([tree], [2.0], (tree.shape[1],), shift)


def identities(*kept):
    pairs = zip((3, 4, 2), kept, strict=True)
    return mx.Kron(tuple(mx.Identity(n) if k else mx.total(n) for n, k in pairs))


def test_the_form_is_the_one_that_blocks_allow(monkeypatch):
    p = [mx.PIdentity([1, 2, 3, 1], [[1, 0, 2, i]]) for i in range(3)]
    marginals = [identities(1, 1, 0), identities(0, 1, 1), mx.Kron(tuple(map(residual, (3, 4, 2))))]
    check(marginals, [1.0, 2.0, 0.1], (3, 4, 2), 0.5, MarginalSpectrum)
    for line in (p[0], mx.Prefix(4), mx.AllRange(4)):
        check([line], [2.0], (4,), 0.5, Line)
    check([mx.Kron((p[0], mx.Prefix(3)))], [2.0], (4, 3), 0.5, Spectrum)
    check([mx.Kron((q, mx.Identity(3))) for q in p], [1.0, 1.0, 1.0], (4, 3), 0.5, Spectrum)
    monkeypatch.setattr(shifted, "TREE_COST", 0)
    check(marginals, [1.0, 2.0, 0.1], (3, 4, 2), 0.5, Spectrum)
    monkeypatch.setattr(shifted, "SPECTRUM_AXIS", 5)
    levels = [mx.Kron((p[0], mx.Identity(3))), mx.Kron((mx.total(4), mx.Identity(3)))]
    check(levels, [1.0, 3.0], (4, 3), 0.5, ClassSpectrum)
    monkeypatch.setattr(shifted, "block_classes", lambda *_: None)
    monkeypatch.setattr(shifted, "SHIFTED_SHARE", 1e-12)
    check([mx.Kron((q, mx.Prefix(3))) for q in p], [1.0, 1.0, 1.0], (4, 3), 0.5, Solved, 1e-6)
    odd = [mx.Dense(np.arange(36).reshape(3, 12) % 5), mx.Identity(12)]
    check(odd, [1.0, 1.0], (4, 3), 0.5, Solved, 1e-6)
