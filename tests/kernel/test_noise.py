"""Noise is exact: every sampler against exact probabilities, with real entropy and p > 1e-6."""

import ast
import inspect
import math
import os
import warnings
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction as F
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from psephos.errors import RefusedError
from psephos.infer.quantiles import noise_quantile
from psephos.kernel import noise
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace
from psephos.kernel.scores import mechanisms

SURE = 1e-6
SCALES = [F(1, 1000), F(1, 3), F(1), F(5, 2), F(10), F(1000, 7), F(12345)]
LARGE = [F(10**6), F(10**9) + F(1, 3), F(10**12)]


def gaussian(sigma):
    return DiscreteGaussian(sigma**2)


def weights(law, reach):
    """Probabilities of 0, ±1, …, ±reach, each sign for itself, and of what lies beyond."""
    x = np.arange(reach + 1.0)
    if isinstance(law, DiscreteLaplace):
        r = 1 / float(law.scale)
        head = np.exp(-x * r) * -np.expm1(-r) / (1 + math.exp(-r))
    else:
        v = float(law.variance)
        far = np.arange(reach + 2 + 12 * math.isqrt(math.ceil(law.variance)))
        head = np.exp(-(x**2) / (2 * v)) / (2 * np.exp(-(far**2) / (2 * v)).sum() - 1)
    both = np.concatenate([head[:0:-1], head])
    return both, max(0.0, 1 - both.sum())


def fits(observed, expected):
    """Chi-square of counts against expected counts, neighbours merged until 20 are expected."""
    edges, total = [0], 0.0
    for i, e in enumerate(expected):
        total += e
        if total >= 20:
            edges.append(i + 1)
            total = 0.0
    if len(edges) <= 2:  # one cell takes all
        top = int(np.argmax(expected))
        n = int(sum(observed))
        share = min(1.0, expected[top] / n)
        return stats.binomtest(int(observed[top]), n, share).pvalue > SURE
    starts = np.array(edges[:-1])
    seen, due = np.add.reduceat(observed, starts), np.add.reduceat(expected, starts)
    return stats.chi2.sf(((seen - due) ** 2 / due).sum(), len(seen) - 1) > SURE


def counted(values, reach):
    inside = values[np.abs(values) <= reach] + reach
    return np.append(np.bincount(inside, minlength=2 * reach + 1), len(values) - len(inside))


def check_law(law, size):
    values = law.draw(size)
    assert values.dtype == np.int64
    assert values.shape == (size,)
    reach = min(noise_quantile(law, 1 - 1e-12), 200_000)
    probabilities, rest = weights(law, reach)
    assert fits(counted(values, reach), size * np.append(probabilities, rest))


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_laplace(scale):
    check_law(DiscreteLaplace(scale), 500_000)


@pytest.mark.parametrize("sigma", SCALES, ids=str)
def test_gaussian(sigma):
    check_law(gaussian(sigma), 500_000)


@pytest.mark.parametrize("law", [DiscreteLaplace(F(7, 3)), DiscreteGaussian(F(7, 3))], ids=repr)
def test_tails(law):
    values = np.abs(law.draw(2_000_000))
    probabilities, _ = weights(law, 200)
    half = probabilities[200:]
    for k in range(4, noise_quantile(law, 1 - 1e-6)):
        tail = 2 * half[k + 1 :].sum()
        assert stats.binomtest(int((values > k).sum()), len(values), tail).pvalue > SURE / 50


@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian])
def test_the_tests_see_a_wrong_scale(law):
    wrong = law(F(10))
    object.__setattr__(wrong, "draw", law(F(1050, 100)).draw)
    with pytest.raises(AssertionError):
        check_law(wrong, 300_000)


def reference_laplace(t, rng):
    """Algorithm 2 of the paper, one at a time, at integer scale."""
    while True:
        u = rng(t)
        if reference_exp(F(u, t), rng):
            break
    v = 0
    while reference_exp(F(1), rng):
        v += 1
    x, negative = u + t * v, rng(2)
    return reference_laplace(t, rng) if negative and not x else (-x if negative else x)


def reference_exp(gamma, rng):
    """Algorithm 1 of the paper."""
    while gamma > 1:
        if not reference_exp(F(1), rng):
            return False
        gamma -= 1
    k = 1
    while rng(gamma.denominator * k) < gamma.numerator:
        k += 1
    return k % 2 == 1


def reference_gaussian(variance, rng):
    """Algorithm 3 of the paper, t as there."""
    t = math.isqrt(math.floor(variance)) + 1
    while True:
        y = reference_laplace(t, rng)
        if reference_exp((abs(y) - variance / t) ** 2 / (2 * variance), rng):
            return y


@pytest.fixture(scope="module")
def below():
    import secrets

    return secrets.randbelow


def same_law(one, other):
    return stats.ks_2samp(one, other, method="asymp").pvalue > SURE


@pytest.mark.parametrize("scale", [*LARGE, F(10**20)], ids=str)
def test_large_scales(scale, below):
    for law, reference in (
        (DiscreteLaplace(scale), lambda s=scale: reference_laplace(math.ceil(s), below)),
        (gaussian(scale), lambda s=scale: reference_gaussian(s**2, below)),
    ):
        size = 4000 if scale > 2**60 else 200_000
        drawn = law.draw(size)
        assert drawn.dtype == (object if scale > 2**60 else np.int64)
        values = drawn.astype(float) / float(scale)
        shape = stats.laplace() if isinstance(law, DiscreteLaplace) else stats.norm()
        assert stats.kstest(values, shape.cdf).pvalue > SURE
        spread = law.exact_variance / float(scale) ** 2
        fourth = shape.moment(4) * (spread / shape.var()) ** 2
        assert abs(values.mean()) < 5 * math.sqrt(spread / size)
        assert abs((values**2).mean() - spread) < 5 * math.sqrt((fourth - spread**2) / size)
        assert same_law(values, [float(reference()) / float(scale) for _ in range(1500)])
        low = np.bincount((drawn % 16).astype(np.int64), minlength=16)  # no digit is lost
        assert stats.chisquare(low).pvalue > SURE


@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian])
def test_python_integers_draw_the_same_law(law, monkeypatch):
    monkeypatch.setattr(noise, "WIDE", 0)  # nothing is small enough for int64
    drawn = law(F(12)).draw(20_000)
    assert drawn.dtype == object
    probabilities, rest = weights(law(F(12)), 60)
    counts = counted(drawn.astype(np.int64), 60)
    assert fits(counts, len(drawn) * np.append(probabilities, rest))


@pytest.mark.parametrize("scale", [1.0, 2.5, 40.0])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_agrees_with_opendp(kind, scale):
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    metric = dp.l1_distance(T="i64") if kind == "laplace" else dp.l2_distance(T="f64")
    make = dp.m.make_laplace if kind == "laplace" else dp.m.make_gaussian
    other = make(dp.vector_domain(dp.atom_domain(T="i64")), metric, scale=scale)
    theirs = np.array(other([0] * 10_000))
    ours = (DiscreteLaplace(F(scale)) if kind == "laplace" else gaussian(F(scale))).draw(200_000)
    pooled = np.sort(np.concatenate([theirs, ours]))
    edges = np.unique(pooled[:: len(pooled) // 40])
    cells = [
        np.bincount(np.searchsorted(edges, v), minlength=len(edges) + 1) for v in (theirs, ours)
    ]
    seen = np.array(cells)[:, np.sum(cells, 0) > 150]
    assert stats.chi2_contingency(seen).pvalue > SURE


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (0, 5), (1, 3), (1, 1), (7, 2), (100, 7), (2**40, 2**39 + 1), (1, 2**61 + 3),
        (2**62 - 1, 2**62 - 1), (2**62 - 2, 2**62 - 1),
    ],
)  # fmt: skip
def test_exp_flags(a, b):
    size = 200_000
    for bound in (b, np.full(size, b)):
        flags = noise.exp_flags(((np.full(size, a), bound),))
        assert flags.dtype == bool
        assert stats.binomtest(int(flags.sum()), size, math.exp(-a / b)).pvalue > SURE


def test_exp_flags_of_mixed_rates():
    a = np.tile([0, 1, 3, 2**50, 10**18, 2**62 - 1], 20_000)
    b = np.tile([1, 2, 1, 2**51, 3, 2**62 - 1], 20_000)
    means = noise.exp_flags(((a, b),)).reshape(-1, 6).sum(0)
    for seen, rate in zip(means, np.exp(-a[:6] / b[:6]), strict=True):
        assert stats.binomtest(int(seen), 20_000, rate).pvalue > SURE
    assert noise.exp_flags(((np.array([], int), np.array([], int)),)).size == 0


@pytest.mark.parametrize(
    "gamma", [F(0), F(1, 3), F(1), F(17, 5), F(10**30 + 1, 3 * 10**30)], ids=str
)
def test_exp_flags_in_python_integers(gamma):
    for bound in (gamma.denominator, np.full(20_000, gamma.denominator, object)):
        flags = noise.exp_flags(((np.full(20_000, gamma.numerator, object), bound),))
        assert flags.dtype == bool
        assert stats.binomtest(int(flags.sum()), 20_000, math.exp(-gamma)).pvalue > SURE
    assert not noise.exp_flags(((np.array([10**40], object), 1),)).any()


@pytest.mark.parametrize(
    "bound", [1, 2, 3, 1000, 4096, 4097, 2**28 + 1, 3 * 2**61, 2**62 + 1, 2**63 - 1, 2**80 // 3]
)
@pytest.mark.parametrize("each", [False, True])
def test_uniform(bound, each):
    size = 100_000
    each = each and bound < 2**63
    values = noise.uniform_below(np.full(size, bound) if each else bound, size)
    assert values.dtype == (np.int64 if bound < 2**63 else object)
    assert values.min() >= 0
    assert values.max() < bound
    cells = min(bound, 60)
    seen = np.bincount((values.astype(object) * cells // bound).astype(int), minlength=cells)
    due = [
        size * float(F(-(-(i + 1) * bound // cells) + (i * bound // -cells), bound))
        for i in range(cells)
    ]
    assert fits(seen, np.array(due))
    seen = np.bincount((values % cells).astype(int), minlength=cells)
    assert fits(
        seen, np.array([size * float(F(-((i - bound) // cells), bound)) for i in range(cells)])
    )


def test_uniform_with_a_bound_each():
    bounds = np.tile([1, 3, 10, 2**62 + 1], 30_000)
    values = noise.uniform_below(bounds, len(bounds)).reshape(-1, 4)
    assert not values[:, 0].any()
    assert stats.chisquare(np.bincount(values[:, 1], minlength=3)).pvalue > SURE
    assert stats.chisquare(np.bincount(values[:, 2], minlength=10)).pvalue > SURE
    assert stats.kstest(values[:, 3] / (2**62 + 1), "uniform").pvalue > SURE


def repeating(block):
    return lambda size: (block * (size // len(block) + 1))[:size]


def counter():
    """A deterministic stream: SHA-256 of 0, 1, 2, …"""
    import hashlib

    state = count()

    def stream(size):
        blocks = range(size // 32 + 1)
        return b"".join(hashlib.sha256(next(state).to_bytes(8)).digest() for _ in blocks)[:size]

    return stream


def test_entropy_alone_decides(monkeypatch):
    draws = []
    for _ in range(2):
        monkeypatch.setattr(noise, "_entropy", counter())
        laws = (DiscreteLaplace(F(5, 2)), gaussian(F(10**12)), DiscreteLaplace(F(10**20)))
        draws.append([law.draw(500).tolist() for law in laws])
    assert draws[0] == draws[1]


@pytest.mark.parametrize("scale", [F(8), F(1), F(7, 3), F(10**20)], ids=str)
def test_zero_entropy_gives_the_least_of_each_draw(scale, monkeypatch):
    monkeypatch.setattr(noise, "_entropy", bytes)
    for law in (DiscreteLaplace(scale), gaussian(scale)):
        assert law.draw(100).tolist() == [0] * 100


def test_stuck_entropy_is_an_error_not_a_hang(monkeypatch):
    monkeypatch.setattr(noise, "_entropy", repeating(b"\xff"))
    assert (noise.uniform_below(4, 10) == 3).all()
    with pytest.raises(RecursionError):
        noise.uniform_below(3 * 2**61, 10)
    for law in (DiscreteLaplace(F(10)), DiscreteGaussian(F(10))):
        with pytest.raises(RefusedError, match="entropy repeats"):
            law.draw(5)


# ---- the staircase ------------------------------------------------------------------------------

PRECISE = Context(prec=80, Emin=-(10**9))
LAWS = [(1, 1, 1), (1, 1000, 1), (1, 2, 5), (1, 1, 12345), (1, 7, 10**15), (1, 1, 2**80)]
LAWS += [(2, 1, 2), (2, 10**6, 1), (2, 3, 14), (2, 1, 2 * 10**6), (2, 5, 10**14), (2, 1, 2**130)]


def exponential(gamma):
    """exp(-γ) to some 75 digits; nothing where it is below all that is compared with it."""
    if gamma > 400:
        return F(0)
    exponent = PRECISE.divide(Decimal(-gamma.numerator), Decimal(gamma.denominator))
    return F(PRECISE.exp(exponent))


@given(
    gamma=st.fractions(0, 60, max_denominator=10**6) | st.sampled_from([F(10**30), F(1, 10**30)]),
    bits=st.integers(1, 150),
)
def test_exp_bounds(gamma, bits):
    low, high = noise._exp_bounds(gamma, bits)
    exact = exponential(gamma) * 2**bits
    assert low <= exact * (1 + F(1, 10**70))
    assert exact * (1 - F(1, 10**70)) <= high
    assert high - low <= 2


def check_staircase(strips):
    """What the proof of `_Strips` rests on."""
    shift, power = strips.shift, strips.power
    ahead, behind = 1 + F(1, 10**60), 1 - F(1, 10**60)
    for k, n in enumerate(strips.counts):
        height = exponential(strips._gamma(k << shift)) * strips.scale
        assert height * behind <= n
        near, sure, most = (int(each[k]) for each in (strips.near, strips.sure, strips.most))
        assert sure <= height / n * 2**16 * ahead
        assert height / n * 2**16 * behind <= most <= 2**16
        rise = strips._gamma((k + 1 << shift) - 1) - strips._gamma(k << shift)
        assert rise * sure <= near <= sure
        assert rise <= 1
        assert strips._gamma(k << shift) < 32
    ends = np.bincount(strips.places, minlength=len(strips.counts) + 2)
    assert ends.tolist()[:-1] == [*strips.counts, 1]
    assert ends.sum() == 2**16
    assert ends[-1] > 0
    assert strips._gamma(1 << strips.block) >= F(7, 10)
    first = exponential(strips._gamma(len(strips.counts) << shift))
    assert first * strips.scale * 2 ** (1 + strips.block - shift) <= ahead
    assert power in (1, 2)


@settings(max_examples=60)
@given(
    power=st.sampled_from([1, 2]),
    top=st.integers(1, 2**45),
    bottom=st.integers(1, 2**45),
    larger=st.integers(0, 200),
)
def test_places(power, top, bottom, larger):
    ratio = F(top, bottom << larger)
    check_staircase(noise._Strips.of(power, *ratio.as_integer_ratio()))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_places_of_all_sizes(law):
    check_staircase(noise._Strips.of(*law))


def test_the_checks_see_a_wrong_staircase():
    strips = noise._Strips.of(2, 1, 2 * 10**6)
    for wrong in ({"scale": strips.scale + 1}, {"near": strips.near - 1}, {"block": 7}):
        with pytest.raises(AssertionError):
            check_staircase(replace(strips, **wrong))


def filled(strips, size):
    return noise._filled(size, strips.draw)


@pytest.mark.parametrize(("power", "law"), [(1, DiscreteLaplace(F(40))), (2, gaussian(F(40)))])
def test_the_tail_is_part_of_the_law(power, law):
    """With few places the tail begins within three scales, and is drawn often."""
    top, bottom = (1, 40) if power == 1 else (1, 3200)
    strips = noise._Strips.of(power, top, bottom, 200)
    check_staircase(strips)
    busy = strips.places[strips.places <= len(strips.counts)]
    idle = np.full(2**16 % busy.size, len(strips.counts) + 1, np.uint16)
    values = filled(
        replace(strips, places=np.append(np.tile(busy, 2**16 // busy.size), idle)), 60_000
    )
    start = len(strips.counts) << strips.shift
    beyond = int((np.abs(values) >= start).sum())
    assert beyond > 10
    probabilities, rest = weights(law, 1000)
    far = probabilities[np.abs(np.arange(-1000, 1001)) >= start].sum() + rest
    assert stats.binomtest(beyond, len(values), far).pvalue > SURE
    assert fits(counted(values, 1000), len(values) * np.append(probabilities, rest))


@pytest.mark.parametrize(("power", "law"), [(1, DiscreteLaplace(F(40))), (2, gaussian(F(40)))])
def test_judged(power, law):
    """A worse bound than could be had leaves more to be judged exactly, and the law as it is."""
    strips = noise._Strips.of(power, 1, 40 if power == 1 else 3200)
    sure = strips.sure - strips.sure // 40
    loose = replace(strips, sure=sure, most=np.where(strips.most > 0, 2**16, 0))
    check_staircase(loose)
    values = filled(loose, 40_000)
    probabilities, rest = weights(law, 600)
    assert fits(counted(values, 600), len(values) * np.append(probabilities, rest))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("law", [(1, 1, 12345), (2, 1, 2 * 10**6)], ids=str)
def test_near(law, wide, monkeypatch):
    """What comes up with verdicts below `near`, beside the others, adds up to exp(-δ)."""
    if wide:
        monkeypatch.setattr(noise, "WIDE", 0)
    strips, size = noise._Strips.of(*law), 20_000 if wide else 200_000
    for k in (0, len(strips.counts) // 2, len(strips.counts) - 1):
        for x in (k << strips.shift, (k << strips.shift) + 3, (k + 1 << strips.shift) - 1):
            flags = strips._near(np.full(size, k, np.uint16), np.full(size, x))
            delta = float(strips._gamma(x) - strips._gamma(k << strips.shift))
            share = 1 + math.expm1(-delta) * int(strips.sure[k]) / int(strips.near[k])
            assert stats.binomtest(int(flags.sum()), size, share).pvalue > SURE


@pytest.mark.parametrize(
    ("gamma", "times"), [(F(0), F(1, 3)), (F(1, 2), F(1)), (F(7), F(900)), (F(10**9), F(5))]
)
def test_single_flags(gamma, times):
    size, share = 4000, float(times) * math.exp(-gamma)
    seen = sum(noise._flag(gamma, times) for _ in range(size))
    assert stats.binomtest(seen, size, share).pvalue > SURE
    known = [noise._flag(gamma, times, word, 2) for word in range(4) for _ in range(size // 4)]
    assert stats.binomtest(sum(known), size, share).pvalue > SURE or share in (0, 1)


@pytest.mark.parametrize("run", [3, 60, 900])
@pytest.mark.parametrize("law", [(1, 1, 10**12), (1, 1, 10**18), (2, 1, 10**24)], ids=str)
def test_far_tails_do_not_wrap(run, law, monkeypatch):
    strips = noise._Strips.of(*law)
    bits = count()
    monkeypatch.setattr(noise, "_flag", lambda *_: True)
    monkeypatch.setattr(
        noise,
        "_below_big",
        lambda bound: int(next(bits) % (run + 1) < run) if bound == 2 else bound - 1,
    )
    tail = replace(strips, places=np.full(2**16, len(strips.counts), np.uint16))
    drawn = tail.draw(20)
    far = (len(strips.counts) << strips.shift) + (run + 1 << strips.block) - 1
    assert {abs(x) for x in drawn.tolist()} == {far}
    assert drawn.dtype == (np.int64 if far < 2**62 else object)


@given(x=st.fractions(F(1, 10**9), 10**15, max_denominator=10**9))
def test_rounding_is_up_and_small(x):
    for given_, kept in ((x, DiscreteLaplace(x).scale), (x, DiscreteGaussian(x).variance)):
        assert given_ <= kept <= given_ * (1 + F(1, 2**24))
        assert DiscreteLaplace(kept).scale == kept


@given(a=st.integers(1, 2**300), b=st.integers(1, 2**300))
def test_rounding_of_long_fractions(a, b):
    x = F(a, b)
    kept = DiscreteLaplace(x).scale
    assert x <= kept < x * (1 + F(1, 2**24))
    assert DiscreteGaussian(kept).variance == kept
    odd = kept.numerator // (kept.numerator & -kept.numerator)
    assert kept == x or odd <= 2**26
    assert DiscreteLaplace(x) == DiscreteLaplace(kept)
    assert hash(DiscreteLaplace(x)) == hash(DiscreteLaplace(kept))


@pytest.mark.parametrize("scale", [F(1, 2**299), F(1, 10**30), F(3, 2**62), F(2) ** 299])
def test_extremes_draw(scale):
    for law in (DiscreteLaplace(scale), DiscreteGaussian(scale)):
        values = law.draw(5)
        assert all(isinstance(int(x), int) for x in values.tolist())
        assert (scale > 1) == any(values.tolist())
        assert law.draw(0).size == 0


def decimal_variance(weight, reach):
    ctx = Context(prec=50, Emin=-(10**9))
    w = [ctx.exp(-weight(ctx, Decimal(x))) for x in range(1, reach)]
    top = sum((x * x * y for x, y in enumerate(w, 1)), Decimal(0))
    return float(2 * top / (1 + 2 * sum(w, Decimal(0))))


@pytest.mark.parametrize(
    "x", [F(1, 500), F(1, 20), F(1, 3), F(99, 100), F(1), F(5, 2), F(30)], ids=str
)
def test_variance_is_the_sum(x):
    reach = 100 + 60 * math.ceil(x)
    x_ = Decimal(x.numerator) / Decimal(x.denominator)
    laplace = decimal_variance(lambda ctx, n: ctx.divide(n, x_), reach)
    gauss = decimal_variance(lambda ctx, n: ctx.divide(n * n, 2 * x_), reach)
    assert_allclose(DiscreteLaplace(x).exact_variance, laplace, rtol=1e-12)
    assert_allclose(DiscreteGaussian(x).exact_variance, gauss, rtol=1e-12)


def test_variance_at_extremes():
    assert DiscreteLaplace(F(1, 10**6)).exact_variance == 0
    assert DiscreteGaussian(F(1, 10**6)).exact_variance == 0
    for scale in (F(10**6), F(10**12), F(10**24)):
        law = DiscreteLaplace(scale)
        assert_allclose(law.exact_variance, 2 * float(law.scale) ** 2, rtol=1e-12)
        assert_allclose(DiscreteGaussian(scale).exact_variance, float(scale), rtol=1e-7)
    assert DiscreteLaplace(F(1)).exact_variance / 2 == pytest.approx(0.92, abs=0.005)


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_variance_is_drawn(scale):
    for law in (DiscreteLaplace(scale), gaussian(scale)):
        squares = law.draw(200_000).astype(float) ** 2
        error = squares.std() / math.sqrt(len(squares))
        assert abs(squares.mean() - law.exact_variance) <= 5 * error


def test_consecutive_draws_differ():
    for law in (DiscreteLaplace(F(100)), gaussian(F(100)), DiscreteLaplace(F(10**20))):
        assert law.draw(50).tolist() != law.draw(50).tolist()


def test_fork_shares_no_noise():
    law = DiscreteLaplace(F(10**6))
    before = law.draw(8).tolist()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads
        child = os.fork()
    if not child:
        try:
            os.write(write, law.draw(8).tobytes())
        finally:
            os._exit(0)
    ours = law.draw(8).tolist()
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(read, 64), np.int64).tolist()
    os.close(read), os.close(write)
    assert len(theirs) == 8
    assert not set(before) & set(ours) & set(theirs)
    assert ours != theirs != before != ours


MEASURES = {"exact_variance"}  # a read-out; draws never call it


def test_no_float_takes_part():
    tree = ast.parse(inspect.getsource(noise) + inspect.getsource(mechanisms))
    bodies = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name not in MEASURES
    ]
    named = {"draw", "of", "_judged", "_near", "_flag", "_exp_bounds", "_bits", "uniform_below"}
    assert named | {"_unit_flags", "exponential"} <= {b.name for b in bodies}
    allowed = {
        "x / unit",
        "epsilon / (2 * sensitivity)",
        "2 * sensitivity / epsilon",
    }  # of Fractions
    for body in bodies:
        for node in ast.walk(body):
            assert not (isinstance(node, ast.Constant) and isinstance(node.value, float)), body.name
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                assert ast.unparse(node).removeprefix("self.") in allowed
            if isinstance(node, ast.Attribute | ast.Name):
                name = node.attr if isinstance(node, ast.Attribute) else node.id
                assert name not in MEASURES | {
                    "random",
                    "float",
                    "float64",
                    "exp",
                    "log",
                    "true_divide",
                }


def test_no_array_of_floats_takes_part(monkeypatch):
    seen = set()

    def watched(owner, name):
        call = getattr(owner, name)

        def record(*args):
            out = call(*args)
            seen.add(out.dtype)
            return out

        monkeypatch.setattr(owner, name, record)

    for name in ("uniform_below", "exp_flags", "_unit_flags", "_bits"):
        watched(noise, name)
    for name in ("draw", "_near"):
        watched(noise._Strips, name)
    for law in (DiscreteGaussian(F(10**24)), DiscreteLaplace(F(10**20)), DiscreteGaussian(F(3))):
        law.draw(200)
    kinds = {law: noise._Strips.of(2, 1, law) for law in (1, 10**9, 10**40)}
    arrays = [a for s in kinds.values() for a in (s.places, s.near, s.sure, s.most)]
    assert {array.dtype.kind for array in arrays} == {"u", "i"}
    assert seen == {np.dtype(np.int64), np.dtype(bool), np.dtype(object)}


@pytest.mark.parametrize("bad", [F(0), F(-1), 1.0, 3, "1", None, F(1, 2**301), F(2) ** 301])
def test_refuses_scales(bad):
    with pytest.raises(RefusedError, match="scale must be a Fraction"):
        DiscreteLaplace(bad)
    with pytest.raises(RefusedError, match="variance must be a Fraction"):
        DiscreteGaussian(bad)


def test_refuses_what_it_cannot_draw():
    for size in (-1, 2.0, True):
        with pytest.raises(RefusedError, match="how many"):
            DiscreteLaplace(F(1)).draw(size)
    for bound in (0, np.array([3, 0])):
        with pytest.raises(RefusedError, match="at least 1"):
            noise.uniform_below(bound, 2)


def test_shows_what_is_drawn():
    assert repr(DiscreteLaplace(F(10, 3))) == "DiscreteLaplace(scale=Fraction(10, 3))"
    assert DiscreteGaussian(F(2)) != DiscreteGaussian(F(3))
    with pytest.raises(AttributeError):
        DiscreteLaplace(F(1)).scale = F(2)
