"""Noise is exact: every sampler against exact probabilities, with real entropy and p > 1e-6."""

import ast
import inspect
import math
import os
import warnings
from decimal import Context, Decimal
from fractions import Fraction as F
from itertools import count

import numpy as np
import pytest
from hypothesis import given
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
    monkeypatch.setattr(noise, "_geometric", lambda size: np.full(size, 3))  # else heads for ever
    drawn = DiscreteLaplace(scale).draw(100)
    assert drawn.tolist() == [math.floor(3 * DiscreteLaplace(scale).scale)] * 100


def test_stuck_entropy_is_an_error_not_a_hang(monkeypatch):
    monkeypatch.setattr(noise, "_entropy", repeating(b"\xff"))
    assert (noise.uniform_below(4, 10) == 3).all()
    assert not noise._geometric(10).any()
    with pytest.raises(RecursionError):
        noise.uniform_below(3 * 2**61, 10)
    with pytest.raises(RecursionError):
        DiscreteLaplace(F(10)).draw(5)
    monkeypatch.setattr(noise, "_entropy", bytes)  # zeros: each coin shows heads
    for law in (DiscreteLaplace(F(10)), DiscreteGaussian(F(10))):
        with pytest.raises(RefusedError, match="entropy repeats"):
            law.draw(5)


@pytest.mark.parametrize("v", [2**10, 2**40, 2**62])
def test_far_tails_do_not_wrap(v, monkeypatch):
    monkeypatch.setattr(noise, "_geometric", lambda size: np.full(size, v))
    for scale in (F(10**12), F(10**12, 7), F(1, 2**61)):
        drawn = DiscreteLaplace(scale).draw(50)
        t, s = scale.as_integer_ratio()
        assert all(v * t <= (abs(x) + 1) * s and abs(x) * s < (v + 1) * t for x in drawn.tolist())
    judged = []

    def judge(parts):
        judged.extend(zip(*(a.tolist() for a, _ in parts), strict=True))
        assert parts[0][0].dtype == object or max(a.max() for a, _ in parts) < 2**62
        return np.ones(len(parts[0][0]), bool)

    monkeypatch.setattr(noise, "exp_flags", judge)
    for variance in (F(10**24), F(2), F(1, 10**6)):
        drawn = DiscreteGaussian(variance).draw(20)
        assert all(abs(x) >= v for x in drawn.tolist())
        assert all(one == other >= 0 for one, other in judged)
        assert judged
        judged.clear()


def test_far_candidates_are_judged_exactly(monkeypatch):
    """γ = a/2qt · a/p is (|Y| - σ²/t)²/2σ², in Python integers if int64 might not do."""
    t, p, q = 2**40, 3 * 2**40 + 1, 5
    y = np.array([0, 1, -7, 2**50, 2**58, -(2**62)])
    monkeypatch.setattr(noise, "_laplace", lambda *_: y)
    for candidates in (y, y[:4], y.astype(object)):
        monkeypatch.setattr(noise, "_laplace", lambda *_, c=candidates: c)
        seen = []
        monkeypatch.setattr(noise, "exp_flags", lambda parts, s=seen: s.append(parts) or ...)
        noise._gaussian(t, p, q, 6)
        (((a, b), (c, d)),) = seen
        for each, one, other in zip(candidates.tolist(), a.tolist(), c.tolist(), strict=True):
            variance = t * F(p, q)
            assert F(one, b) * F(other, d) == (abs(each) - variance / t) ** 2 / (2 * variance)
            assert a.dtype == (np.int64 if len(candidates) == 4 else object)


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
    assert {"draw", "uniform_below", "_laplace", "_gaussian", "_unit_flags", "exponential"} <= {
        b.name for b in bodies
    }
    allowed = {
        "variance / t",
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

    def watched(name):
        call = getattr(noise, name)

        def record(*args):
            out = call(*args)
            seen.add(out.dtype)
            return out

        return record

    for name in (
        "uniform_below",
        "exp_flags",
        "_unit_flags",
        "_geometric",
        "_laplace",
        "_gaussian",
    ):
        monkeypatch.setattr(noise, name, watched(name))
    DiscreteGaussian(F(10**24)).draw(100)
    DiscreteLaplace(F(10**20)).draw(10)
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
