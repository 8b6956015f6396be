"""Noise intervals: exact quantiles of single noises, and coverage of simulated ones."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import psephos as ps
from psephos.infer import intervals
from psephos.infer.intervals import half_widths
from psephos.infer.quantiles import noise_quantile, sum_quantiles
from psephos.inverse.iterative import IterativeForm
from psephos.kernel.measurement import noise_for
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace

UNIT = ps.add_remove_row()


@given(
    parameter=st.fractions(Fraction(1, 20), Fraction(60)),
    confidence=st.sampled_from([0.5, 0.9, 0.95, 0.999]),
    gaussian=st.booleans(),
)
def test_quantiles_are_the_least_that_cover(parameter, confidence, gaussian):
    noise = DiscreteGaussian(parameter) if gaussian else DiscreteLaplace(parameter)
    x = np.arange(3000)
    weights = np.exp(-(x**2) / float(2 * parameter)) if gaussian else np.exp(-x / float(parameter))
    weights[1:] *= 2
    within = np.cumsum(weights) / weights.sum()
    k = noise_quantile(noise, confidence)
    assert within[k] >= confidence - 1e-9
    assert k == 0 or within[k - 1] < confidence + 1e-9


def setting(noise):
    domain = ps.Domain.of(a=4, b=3)
    W = ps.marginals(domain, up_to=2)
    chosen = (ps.select.workload if noise == "laplace" else ps.select.residual)(W, noise)
    budget = ps.epsilon("1/2") if noise == "laplace" else ps.rho("1/20")
    rows = [block.matrix.shape[0] for block in chosen.query.blocks]
    noises = noise_for(chosen.query, budget, UNIT, 1)
    return W, chosen, budget, rows, noises, chosen.form(budget, UNIT)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_intervals_cover_as_often_as_they_say(noise):
    W, chosen, budget, rows, noises, form = setting(noise)
    widths = half_widths(form, noises, rows, W, confidence=0.9)
    counts = np.arange(12) * 7
    data = ps.simulate(
        counts, W.domain, unit=UNIT, budget=budget * 1000, seed=1
    ).vectorise()  # fmt: skip
    runs, starts = 400, np.cumsum([0, *W.query_counts])
    each, together = np.zeros(W.shape[0]), np.zeros(len(W.products))
    for _ in range(runs):
        answers = ps.infer.least_squares(data.measure(chosen.query, spend=budget)).answer(W)
        inside = np.abs(answers.values - W.answer(counts)) <= widths.per_query
        each += inside
        gaps = np.abs(answers.values - W.answer(counts))
        for i, (a, b) in enumerate(pairwise(starts)):
            together[i] += gaps[a:b].max() <= widths.per_table[i] + 1e-9
    # 5 standard deviations of 400 tosses at 0.9, and 2 % for the simulated widths themselves
    assert (np.abs(each / runs - 0.9) < 5 * np.sqrt(0.09 / runs) + 0.02).all()
    assert (np.abs(together / runs - 0.9) < 5 * np.sqrt(0.09 / runs) + 0.02).all()


def test_the_same_seed_gives_the_same_widths():
    W, _, _, rows, noises, form = setting("laplace")
    first, second = (half_widths(form, noises, rows, W, draws=199) for _ in range(2))
    np.testing.assert_array_equal(first.per_query, second.per_query)


@pytest.mark.parametrize(
    "options", [{"confidence": 1.0}, {"confidence": 0}, {"confidence": 0.99999}]
)
def test_bad_input(options):
    W, _, _, rows, noises, form = setting("laplace")
    with pytest.raises(ps.UnsupportedError):
        half_widths(form, noises, rows, W, **options)


def test_wide_noise_is_no_matter_of_memory():
    small, wide = DiscreteGaussian(Fraction(10**6)), DiscreteGaussian(Fraction(10**26))
    assert noise_quantile(wide, 0.95) == pytest.approx(1e10 * noise_quantile(small, 0.95), rel=1e-3)
    for variance in (10**6 - 1, 10**6 + 1):  # either side of the change of formula
        assert noise_quantile(DiscreteGaussian(Fraction(variance)), 0.95) == 1960


def test_high_confidence_gets_the_draws_it_needs():
    W, _, _, rows, noises, form = setting("laplace")
    assert half_widths(form, noises, rows, W, confidence=0.999, draws=99).draws == 999


def forms():
    """One measured form of every kind: product, pair, written, commuting, merged, iterative."""
    domain = ps.Domain.of(a=6, b=5)
    prefix = ps.Workload(domain, [ps.product(a=ps.prefix(), b=ps.identity())])
    pair = ps.Workload(domain, [ps.product(a=ps.prefix()), ps.product(b=ps.prefix())])
    cubes = ps.marginals(domain, up_to=2)
    wide = ps.Workload(ps.Domain.of(a=6, b=200), [ps.product(a=ps.prefix())])
    shape = (6, 5)
    blocks = [b.matrix for b in ps.select.workload(pair).query.blocks]
    settings = {
        "product": (prefix, ps.select.identity(prefix)),
        "p-identity": (prefix, ps.select.opt_product(prefix, restarts=1)),
        "pair": (pair, ps.select.opt_union(pair, restarts=1)),
        "written": (pair, ps.select.workload(pair)),
        "commuting": (cubes, ps.select.workload(cubes)),
        "residual": (cubes, ps.select.residual(cubes, "gaussian")),
        "merged": (wide, ps.select.hdmm(wide, restarts=1)),
    }
    for name, (workload, chosen) in settings.items():
        budget = ps.rho("1/8") if name == "residual" else ps.epsilon("1/2")
        rows = [block.matrix.shape[0] for block in chosen.query.blocks]
        noises = noise_for(chosen.query, budget, UNIT, 1)
        yield name, workload, chosen.form(budget, UNIT), noises, rows
    loose = IterativeForm.of(blocks, [1.0] * len(blocks), shape)
    noises = [DiscreteLaplace(Fraction(2))] * len(blocks)
    yield "iterative", pair, loose, noises, [block.shape[0] for block in blocks]


def test_the_ways_to_simulate_agree(monkeypatch):
    for name, workload, form, noises, rows in forms():
        draws = 99 if name == "iterative" else 9999  # each of its draws is solved for alone
        best = half_widths(form, noises, rows, workload, draws=draws)
        assert best.draws == draws
        if name == "iterative":
            continue
        monkeypatch.setattr(intervals, "HELD_NUMBERS", 1500 * workload.shape[0])
        looped = half_widths(form, noises, rows, workload)
        monkeypatch.setattr(intervals, "HELD_NUMBERS", 10)
        pooled = half_widths(form, noises, rows, workload)
        monkeypatch.undo()
        assert looped.draws == 1500
        np.testing.assert_allclose(looped.per_query, best.per_query, rtol=0.15, err_msg=name)
        np.testing.assert_allclose(looped.per_table, best.per_table, rtol=0.15, err_msg=name)
        np.testing.assert_allclose(pooled.per_query, best.per_query, rtol=0.25, err_msg=name)


def test_sums_of_noise_have_the_quantiles_that_they_have():
    # P(|X + Y| > h) = (1 + h/2) exp(-h) for two Laplace noises of scale 1: 5 % at 4.1130.
    domain = ps.Domain.of(a=2)
    total = ps.Workload(domain, [ps.product(a=ps.total())])
    chosen, budget = ps.select.identity(total), ps.epsilon("1/1000")
    noises = noise_for(chosen.query, budget, UNIT, 1)
    widths = half_widths(chosen.form(budget, UNIT), noises, [2], total)
    assert widths.method == "computed"
    assert widths.per_query[0] == pytest.approx(4113.0, rel=1e-4)
    cells = ps.Workload(domain, [ps.product(a=ps.identity())])
    narrow = half_widths(chosen.form(budget, UNIT), noises, [2], cells)
    assert narrow.per_query == pytest.approx(np.log(20) * 1000, rel=1e-3)
    assert narrow.per_query[0] == narrow.per_query[1]  # of one shape, so of one width


@given(
    effects=st.lists(st.floats(-3, 3), min_size=1, max_size=6).filter(
        lambda e: max(map(abs, e)) > 0.1
    ),
    confidence=st.sampled_from([0.8, 0.9, 0.95, 0.99]),
    kinds=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_computed_quantiles_are_those_of_many_draws(effects, confidence, kinds):
    noises = [
        DiscreteGaussian(Fraction(10**6)) if gaussian else DiscreteLaplace(Fraction(700))
        for gaussian in kinds[: len(effects)]
    ]
    rows = [1] * len(effects)
    (quantile,) = sum_quantiles(np.array([effects]), noises, rows, confidence)
    draws, rng = 40_000, np.random.default_rng(0)
    samples = [rng.normal(0, 1000, draws) if g else rng.laplace(0, 700, draws) for g in kinds]
    total = np.abs(sum(e * x for e, x in zip(effects, samples, strict=False)))
    # 6 standard deviations of the share of draws inside
    assert abs((total <= quantile).mean() - confidence) < 6 * np.sqrt(0.25 / draws)


def test_whole_numbers_at_the_end_lie_inside():
    domain = ps.Domain.of(a=3)
    cells = ps.Workload(domain, [ps.product(a=ps.identity())])
    chosen, budget = ps.select.identity(cells), ps.epsilon("1/2")
    noises = noise_for(chosen.query, budget, UNIT, 1)
    widths = half_widths(chosen.form(budget, UNIT), noises, [3], cells)
    assert (widths.per_query >= noise_quantile(noises[0], 0.95)).all()
    assert (widths.per_query < noise_quantile(noises[0], 0.95) + 1e-6).all()


def test_a_question_has_one_width_however_it_is_asked():
    domain = ps.Domain.of(a=["x", "y"], b=50, c=40, d=30)
    pair = ps.product(a=ps.identity(), b=ps.identity())
    W = ps.Workload(domain, [pair, ps.product(c=ps.identity())])
    chosen, budget = ps.select.opt_marginals(W), ps.epsilon("1/10")
    noises = noise_for(chosen.query, budget, UNIT, 1)
    rows = [block.matrix.shape[0] for block in chosen.query.blocks]
    form = chosen.form(budget, UNIT)
    both = ps.Workload(domain, [ps.product(a=ps.identity())])
    one = ps.Workload(domain, [ps.product(a=ps.masks([[True, False]]))])
    wide, narrow = (half_widths(form, noises, rows, workload) for workload in (both, one))
    assert wide.draws == narrow.draws == 9999  # cells that no fit looks at cost nothing
    assert wide.per_query[0] == pytest.approx(narrow.per_query[0], rel=0.03)


@given(
    confidence=st.sampled_from([0.5, 0.9, 0.95, 0.99]),
    amount=st.sampled_from(["1/100", "1/10", "1", "4"]),
    seed=st.integers(0, 99),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    noise=st.sampled_from(["laplace", "gaussian"]),
)
def test_all_at_once_is_never_narrower_than_each(confidence, amount, seed, sizes, noise):
    W = ps.marginals(ps.Domain.of(a=sizes[0], b=sizes[1]), up_to=2)
    chosen = ps.select.identity(W, noise) if seed % 2 else ps.select.workload(W, noise)
    budget = ps.epsilon(amount) if noise == "laplace" else ps.rho(amount)
    rows = [block.matrix.shape[0] for block in chosen.query.blocks]
    noises, form = noise_for(chosen.query, budget, UNIT, 1), chosen.form(budget, UNIT)
    tables = [[0, 1], [2, 3], [0, 1, 2, 3], [1]]
    options = {"tables": tables, "confidence": confidence, "draws": 99, "seed": seed}
    widths = half_widths(form, noises, rows, W, **options)
    parts = np.split(widths.per_query, np.cumsum(W.query_counts)[:-1])
    for table, together in zip(tables, widths.per_table, strict=True):
        assert together >= max(parts[i].max() for i in table)


def test_all_at_once_is_never_narrower_where_shapes_are_pooled(monkeypatch):
    for name, workload, form, noises, rows in forms():
        monkeypatch.setattr(intervals, "HELD_NUMBERS", 10)
        widths = half_widths(form, noises, rows, workload, draws=99)
        monkeypatch.undo()
        parts = np.split(widths.per_query, np.cumsum(workload.query_counts)[:-1])
        assert (widths.per_table >= [part.max() for part in parts]).all(), name


def test_nothing_is_drawn_where_everything_is_computed(monkeypatch):
    cells = ps.Workload(ps.Domain.of(a=3), [ps.product(a=ps.identity()), ps.product()])
    chosen, budget = ps.select.identity(cells), ps.epsilon("1/2")
    noises = noise_for(chosen.query, budget, UNIT, 1)
    arguments = (chosen.form(budget, UNIT), noises, [3], cells)
    whole = half_widths(*arguments)
    assert whole.method == "computed"
    monkeypatch.setattr(intervals.SeededDraws, "noise", None)
    alone = half_widths(*arguments, tables=[])
    assert alone.per_table.size == 0
    np.testing.assert_array_equal(alone.per_query, whole.per_query)
