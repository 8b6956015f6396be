"""Best fits without negative cells, straight from measurements."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import psephos as ps
from psephos.infer.nonnegative import best_nonnegative

LINE = ps.Domain.of(cell=12)


def vector_of(counts, seed=0):
    budget = ps.epsilon(100)
    data = ps.simulate(counts, LINE, unit=ps.add_remove_row(), budget=budget, seed=seed)
    return data.vectorise()


def test_it_is_the_fit_by_way_of_least_squares_where_that_is_unique():
    counts = np.array([9, 0, 0, 4, 0, 0, 0, 7, 1, 0, 0, 0])
    measured = [vector_of(counts).measure(ps.matrix.Identity(12), spend=ps.epsilon("1/2"))]
    by_way = ps.infer.nonnegative(ps.infer.least_squares(measured), total=21).vector
    assert (by_way == 0).any()
    assert_allclose(best_nonnegative(measured, total=21).vector, by_way, atol=1e-6)


def test_what_a_few_ranges_leave_open_is_filled_evenly():
    """Cells 0-7 and 4-11 overlap: of all that fit, least norm has x = (2, 4, 2)/12 N by groups."""
    ranges = ps.matrix.Ranges.intervals(12, [0, 4], [7, 11])
    measured = [vector_of(np.full(12, 1000)).measure(ranges, spend=ps.epsilon(50))]
    fit = best_nonnegative(measured, total=12_000)
    assert fit.vector.sum() == pytest.approx(12_000)
    assert_allclose(fit.vector, 1000, atol=1)


@pytest.mark.slow
def test_of_least_norm_no_cell_is_negative_and_the_fit_is_best():
    """The ranges say 0-7 hold everything: 8-11 are empty, the rest follows from the overlap."""
    counts = np.repeat([500, 100, 0], 4)
    ranges = ps.matrix.Ranges.intervals(12, [0, 4], [7, 11])
    measured = [vector_of(counts).measure(ranges, spend=ps.epsilon(50))]
    cells = best_nonnegative(measured, total=2400).vector.reshape(3, 4)
    assert (cells >= 0).all()
    assert_allclose(cells, counts.reshape(3, 4), atol=1)
