"""Private partitions have exactly their probabilities, and those move by at most exp(ε)."""

import math
from collections import Counter
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from psephos import matrix as mx
from psephos.domain.domain import Domain
from psephos.errors import RefusedError, TooLargeError
from psephos.kernel.budget import epsilon
from psephos.kernel.scores import NoisyIntervals, PrivTree, WholePartitions
from psephos.kernel.scores.deviations import (
    LARGEST_COUNT,
    LARGEST_PENALTY,
    Deviations,
    Intervals,
    blocks,
)
from psephos.kernel.scores.exponentials import (
    UNIT,
    UpperExponentials,
    enclosed_product,
    falls_below,
    halved_exp,
    rounded_rate,
)
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.simulate import SeededDraws, counted, simulation
from psephos.kernel.unit import add_remove_row, substitute_row

LENGTHS = ["aligned", "dyadic", "all"]
COUNTS = st.lists(st.integers(-9, 9), min_size=1, max_size=20)
MANY = Context(prec=120)


def deviation(counts):
    """Σ|x_i - median|, by definition."""
    ordered = sorted(counts)
    return sum(abs(x - ordered[len(ordered) // 2]) for x in ordered)


def every_interval(cells, lengths):
    for end in range(1, cells + 1):
        for start in reversed(range(end)):
            length = end - start
            power = length & (length - 1) == 0
            if lengths == "all" or (power and (lengths == "dyadic" or start % length == 0)):
                yield start, end


def every_partition(cells, lengths="all"):
    """The lengths of the intervals of each partition, those of the shortest last one first."""
    if cells == 0:
        yield ()
    for start, end in every_interval(cells, lengths):
        if end == cells:
            yield from ((*before, end - start) for before in every_partition(start, lengths))


def cost(counts, lengths, penalty):
    ends = np.cumsum(lengths)
    parts = [counts[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    return sum(deviation(part) + penalty for part in parts)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("cells", [1, 2, 3, 8, 21, 70])
def test_intervals_are_all_there(lengths, cells, monkeypatch):
    monkeypatch.setattr("psephos.kernel.scores.deviations.AT_ONCE", 64)
    pairs = [pair for block in blocks(cells, lengths) for pair in zip(*block, strict=True)]
    assert [(int(a), int(b)) for a, b in pairs] == list(every_interval(cells, lengths))


@given(counts=COUNTS)
def test_deviations_are_those_of_the_definition(counts):
    deviations = Deviations(np.array(counts))
    for block in blocks(len(counts), "all"):
        expected = [deviation(counts[a:b]) for a, b in zip(*block, strict=True)]
        assert deviations.of(block).tolist() == expected


@given(
    counts=st.lists(st.integers(-(2**80), 2**80) | st.integers(0, 3), min_size=1, max_size=9),
    data=st.data(),
)
def test_a_row_moves_a_deviation_by_one(counts, data):
    more = list(counts)
    more[data.draw(st.integers(0, len(counts) - 1))] += 1
    here, there = (Deviations(np.array(x, object)) for x in (counts, more))
    for block in blocks(len(counts), "all"):
        assert np.abs(here.of(block) - there.of(block)).max() <= 1


def test_huge_counts_are_cut():
    huge = Deviations(np.array([-(2**90), 2**90, 0], object))
    assert huge.of(Intervals(np.array([0]), np.array([3]))).tolist() == [2 * LARGEST_COUNT]


def exponential_of(gamma, doublings=0):
    """exp(-gamma)·2^doublings to 100 digits."""
    power = MANY.divide(Decimal(-gamma.numerator), Decimal(gamma.denominator))
    return MANY.multiply(MANY.exp(power), MANY.power(Decimal(2), Decimal(doublings)))


@given(
    rate=st.fractions(0, 32).filter(bool) | st.just(Fraction(1, 2**90)),
    numbers=st.lists(st.integers(0, 2**12) | st.integers(0, 2**20), min_size=1, max_size=5),
)
def test_upper_exponentials_are_above_and_close(rate, numbers):
    upper = UpperExponentials(rate).of(np.array(numbers))
    assert upper.mantissa.max() <= UNIT + 20
    for number, mantissa, halvings in zip(numbers, *upper, strict=True):
        gamma = rate * number
        if gamma > 10**5:  # beyond what decimals are made for here
            continue
        ratio = Decimal(int(mantissa)) / UNIT / exponential_of(gamma, int(halvings))
        assert 1 <= ratio <= 1 + Decimal(2) ** -20


@given(
    gamma=st.fractions(0, 10**4, max_denominator=1000),
    doublings=st.integers(-(10**4), 10**4),
    digits=st.integers(1, 40),
)
def test_exponentials_are_enclosed(gamma, doublings, digits):
    a, k = halved_exp(gamma, doublings, digits)
    true = exponential_of(gamma, doublings + k).scaleb(digits, MANY)
    assert a <= true <= a + 3


def test_exponentials_of_sums_as_large_as_they_get():
    gamma = Fraction(2**58 - 1, 3)
    a, k = halved_exp(gamma, 0, 20)
    two = MANY.ln(Decimal(2))
    y = MANY.divide(MANY.divide(Decimal(2**58 - 1), Decimal(3)), two)
    true = MANY.exp(MANY.multiply(MANY.subtract(Decimal(k), y), two)).scaleb(20, MANY)
    assert a <= true <= a + 3
    assert 10**20 // 2 - 3 <= a <= 10**20


@given(
    ratios=st.lists(st.tuples(st.integers(1, 2**63), st.integers(1, 2**63)), max_size=30),
    bits=st.integers(40, 200),
)
def test_products_are_enclosed(ratios, bits):
    low, high, power = enclosed_product(ratios, bits)
    true = math.prod(Fraction(top, bottom) for top, bottom in ratios) / Fraction(2) ** power
    assert low <= true <= high
    assert low.bit_length() == bits
    assert high - low <= 3 * len(ratios)


class Scripted:
    """Uniform integers written down beforehand."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def below(self, bound):
        return self.numbers.pop(0)


def test_trials_look_at_more_bits_where_the_first_do_not_tell():
    p = exponential_of(Fraction(1)) * 3 / 2  # 0.55
    words = [int(p * 2**32), int(p * 2**64) % 2**32]
    ask = lambda *bits: falls_below(Fraction(1), -1, [(3, 1)], Scripted(*bits))  # noqa: E731
    assert ask(words[0] - 1)
    assert not ask(words[0] + 1)
    assert ask(words[0], words[1] - 1)
    assert not ask(words[0], words[1] + 1)
    assert falls_below(Fraction(0), 0, [(5, 5)], Scripted(2**32 - 1, 2**32 - 1, 0))


@pytest.mark.parametrize(
    ("gamma", "doublings", "ratio"),
    [
        ("1/7", 0, (1, 1)),
        ("3", 2, (7, 9)),
        ("700", 1000, (1, 2)),
        ("0", 0, (2, 3)),
        ("9", 9, (1, 1)),
    ],
)
def test_trials_have_their_probability(gamma, doublings, ratio):
    p = float(exponential_of(Fraction(gamma), doublings)) * ratio[0] / ratio[1]
    trials = 2000
    hits = sum(falls_below(Fraction(gamma), doublings, [ratio], Draws()) for _ in range(trials))
    assert abs(hits - trials * p) < 5 * math.sqrt(trials * max(p * (1 - p), 1 / trials))


@given(rate=st.fractions(0, 10**6).filter(bool))
def test_rates_are_never_rounded_up(rate):
    rounded = rounded_rate(rate)
    assert 0 < rounded <= rate
    assert rounded == 32 or rate - rounded <= rate / 2**38
    assert rounded.numerator < 2**41


def whole_chances(counts, eps, penalty, lengths):
    """P ∝ exp(-ε C(P)/2) over all partitions."""
    partitions = list(every_partition(len(counts), lengths))
    weights = np.array([math.exp(-eps * cost(counts, p, penalty) / 2) for p in partitions])
    return partitions, weights / weights.sum()


def laplace(scale, far):
    """Probabilities of -far … far; scale 0 is no noise."""
    places = np.abs(np.arange(-far, far + 1))
    law = (places == 0) * 1.0 if scale == 0 else np.exp(-places / scale)
    return law / law.sum()


def noisy_chances(counts, eps, penalty, single=1, longer=2, far=60):
    """The same for noisy intervals of three cells, by adding up all noise.

    Given the noise of the first and the last cell, the four partitions have independent costs.
    """
    x, y, z = counts
    laws = {1: laplace(single / eps, far), 2: laplace(longer / eps, far)}
    noise = np.arange(-far, far + 1)
    first, last = (axis.ravel() for axis in np.meshgrid(noise, noise, indexing="ij"))
    outer = np.outer(laws[1], laws[1]).ravel()
    fixed = [  # without the noise of the second cell, the first two, the last two, all
        3 * penalty + first + last,
        2 * penalty + deviation([x, y]) + last,
        2 * penalty + deviation([y, z]) + first,
        penalty + deviation([x, y, z]) + 0 * first,
    ]
    own = [laws[1], laws[2], laws[2], laws[2]]
    above = [np.append(np.cumsum(law[::-1])[::-1], 0.0) for law in own]  # P(noise ≥ place)
    chances = []
    for i in range(4):
        wins = np.zeros(outer.size)
        for value, weight in zip(noise, own[i], strict=True):
            chance = np.full(outer.size, weight)
            for j in range(4):
                if j != i:  # of equals the one with the shorter last interval is taken
                    least = fixed[i] + value - fixed[j] + (j < i)
                    chance = chance * above[j][np.clip(least + far, 0, 2 * far + 1)]
            wins += chance
        chances.append(float(wins @ outer))
    return [(1, 1, 1), (2, 1), (1, 2), (3,)], np.array(chances)


def compare(search, counts, eps, partitions, chances, draws, runs=1500):
    drawn = Counter(
        tuple(search.draw([np.array(counts)], Fraction(eps), draws).tolist()) for _ in range(runs)
    )
    assert set(drawn) <= set(partitions)
    observed = np.array([drawn[p] for p in partitions])
    expected = runs * chances
    likely = expected >= 5
    observed = np.append(observed[likely], observed[~likely].sum())
    expected = np.append(expected[likely], expected[~likely].sum())
    if expected[-1] < 1:
        assert observed[-1] <= 20
        observed, expected = observed[:-1], expected[:-1]
    if observed.size > 1:
        assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-6


SOURCES = [Draws(), SeededDraws(np.random.default_rng(5))]


@pytest.mark.parametrize("draws", SOURCES, ids=["exact", "seeded"])
@pytest.mark.parametrize(
    ("counts", "eps", "penalty", "lengths"),
    [
        ([5, 6, 5, 9], "3/2", 1, "all"),
        ([0, 0, 0, 0, 0], "1/10", 0, "dyadic"),
        ([3, 0, 7, 7, 1, 1, 1, 1], "1", 2, "aligned"),
        ([-4, 10**6, 0], "1/2", 3, "all"),
    ],
)
def test_partitions_have_their_probabilities(counts, eps, penalty, lengths, draws):
    partitions, chances = whole_chances(counts, float(Fraction(eps)), penalty, lengths)
    compare(WholePartitions(penalty, lengths), counts, eps, partitions, chances, draws)


def test_weights_decide_the_time_and_not_the_probabilities(monkeypatch):
    """Bounds that are up to twice too large are made up for by drawing again."""
    true, calls = UpperExponentials.of, []

    def crude(self, numbers):
        upper = true(self, numbers)
        return upper._replace(mantissa=np.full_like(upper.mantissa, UNIT + 20))

    def counted_trial(*args):
        calls.append(falls_below(*args))
        return calls[-1]

    monkeypatch.setattr(UpperExponentials, "of", crude)
    monkeypatch.setattr("psephos.kernel.scores.whole_partitions.falls_below", counted_trial)
    partitions, chances = whole_chances([5, 6, 5, 9], 1.5, 1, "all")
    compare(WholePartitions(1, "all"), [5, 6, 5, 9], "3/2", partitions, chances, Draws())
    assert calls.count(False) > 300


@pytest.mark.parametrize("draws", SOURCES, ids=["exact", "seeded"])
@pytest.mark.parametrize(
    ("counts", "eps", "penalty"),
    [([5, 5, 5], "1", 1), ([5, 6, 5], "1", 1), ([5, 6, 5], "2", 0), ([0, 9, 1], "1/2", 4)],
)
def test_noisy_partitions_have_their_probabilities(counts, eps, penalty, draws):
    partitions, chances = noisy_chances(counts, float(Fraction(eps)), penalty)
    assert chances.sum() == pytest.approx(1, abs=1e-6)
    compare(NoisyIntervals(penalty, "all"), counts, eps, partitions, chances, draws)


def loss(here, there):
    return np.abs(np.log(here) - np.log(there)).max()


@given(
    counts=st.lists(st.integers(0, 6), min_size=2, max_size=7),
    place=st.integers(0, 6),
    penalty=st.integers(0, 9),
    lengths=st.sampled_from(LENGTHS),
    eps=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_partitions_cost_their_epsilon(counts, place, penalty, lengths, eps):
    """Exactly, and within ε²/8: the range of a partition's loss is at most ε."""
    more = list(counts)
    more[place % len(counts)] += 1
    here, there = (whole_chances(x, eps, penalty, lengths)[1] for x in (counts, more))
    assert loss(here, there) <= eps * (1 + 1e-9)
    assert np.ptp(np.log(here) - np.log(there)) <= eps * (1 + 1e-9)


NEIGHBOURS = [
    ([5, 5, 5], [5, 6, 5]), ([5, 5, 5], [6, 5, 5]), ([0, 0, 4], [0, 1, 4]), ([1, 3, 2], [1, 3, 3]),
    ([2, 9, 2], [2, 8, 2]), ([0, 1, 2], [0, 2, 2]), ([7, 0, 0], [6, 0, 0]), ([3, 3, 9], [3, 4, 9]),
]  # fmt: skip


@pytest.mark.parametrize("eps", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("penalty", [0, 1, 4])
@pytest.mark.parametrize(("counts", "more"), NEIGHBOURS)
def test_noisy_partitions_cost_their_epsilon(counts, more, penalty, eps):
    far = int(20 / eps) + 20
    here, there = (noisy_chances(x, eps, penalty, far=far)[1] for x in (counts, more))
    assert loss(here, there) <= eps + 1e-3  # what lies beyond `far` is missing


def above(threshold, scale):
    """P(noise > threshold), discrete Laplace noise, a whole threshold."""
    p = math.exp(-1 / scale)
    if threshold >= 0:
        return p ** (threshold + 1) / (1 + p)
    return 1 - p**-threshold / (1 + p)


def tree_chances(counts, scale, bias, start=0, end=None, depth=0):
    """Every partition by halving below an interval, and its probability."""
    end = len(counts) if end is None else end
    if end - start == 1:
        return {(1,): 1.0}
    b = max(-bias, sum(max(0, x) for x in counts[start:end]) - depth * bias)
    halved, middle = above(-b, scale), (start + end) // 2
    chances = {(end - start,): above(b - 1, scale)}  # P(noise ≤ -b), the other side of the law
    sides = (start, middle), (middle, end)
    left, right = (tree_chances(counts, scale, bias, *side, depth + 1) for side in sides)
    for first, p in left.items():
        for second, q in right.items():
            chances[first + second] = halved * p * q
    return chances


def bias_of(eps):
    return math.ceil(Fraction(3) / Fraction(eps) * Fraction(7, 10))


@given(
    counts=st.lists(st.integers(-2, 3) | st.integers(0, 60), min_size=2, max_size=6),
    place=st.integers(0, 5),
    eps=st.sampled_from(["1/10", "1/2", "1", "3", "10"]),
)
def test_trees_cost_their_epsilon(counts, place, eps):
    more = list(counts)
    more[place % len(counts)] += 1
    epsilon_, bias = float(Fraction(eps)), bias_of(eps)
    here, there = (tree_chances(x, 3 / epsilon_, bias) for x in (counts, more))
    assert sum(here.values()) == pytest.approx(1)
    worst = max(abs(math.log(here[tree]) - math.log(there[tree])) for tree in here)
    assert worst <= epsilon_ * (1 + 1e-6)


def test_biases_below_their_bound_tell_more():
    """Without a bias for depth, a row counts once in every interval that holds it."""
    losses = []
    for bias in (0, bias_of(1)):
        here, there = (tree_chances(x, 3.0, bias) for x in ([0] * 16, [1, *[0] * 15]))
        losses.append(max(abs(math.log(here[tree] / there[tree])) for tree in here))
    assert losses[0] == pytest.approx(4 / 3)  # ε = 1 was paid
    assert losses[1] <= 1


@pytest.mark.parametrize("draws", SOURCES, ids=["exact", "seeded"])
@pytest.mark.parametrize(
    ("counts", "eps"), [([9, 0, 0, 4], "1"), ([0] * 5, "2"), ([30, -8, 3, 3, 9, 9], "1/2")]
)
def test_trees_have_their_probabilities(counts, eps, draws):
    chances = tree_chances(counts, 3 / float(Fraction(eps)), bias_of(eps))
    probabilities = np.array(list(chances.values()))
    compare(PrivTree(), counts, eps, list(chances), probabilities, draws)


def test_trees_are_deep_where_rows_are():
    lengths = PrivTree().draw([np.array([1000] * 2 + [0] * 62)], Fraction(1), Draws())
    assert lengths[:2].tolist() == [1, 1]
    assert lengths[-1] >= 16


def test_single_cells_need_noise():
    """Without it, as DAWA is published, "nothing is merged" tells 5, 5, 5 from 5, 6, 5."""
    eps = 0.5
    here, there = (noisy_chances(x, eps, 4, single=0)[1] for x in ([5, 5, 5], [5, 6, 5]))
    assert loss(here, there) > 1.2 * eps
    here, there = (noisy_chances(x, eps, 4)[1] for x in ([5, 5, 5], [5, 6, 5]))
    assert loss(here, there) < eps


def handle(counts, unit=None):
    domain = Domain.of(x=len(counts))
    unit = unit or add_remove_row()
    source = counted(np.array(counts), domain)
    return simulation(source, domain, unit=unit, budget=epsilon("1000"), seed=0).vectorise()


@pytest.mark.parametrize("search", [WholePartitions(), NoisyIntervals()])
def test_steps_are_found(search):
    vector = handle([500] * 8 + [20] * 16 + [0] * 8)
    groups = vector.partition(search, spend=epsilon("1")).groups
    edges = np.flatnonzero(np.diff(groups)) + 1
    assert {8, 24} <= set(edges.tolist())
    assert len(edges) < 8
    assert vector.reduce(mx.Partition(groups)).size == groups[-1] + 1


@pytest.mark.parametrize("search", [WholePartitions(), NoisyIntervals()])
def test_seeds_repeat_partitions(search):
    first, second = (
        handle(list(range(20))).partition(search, spend=epsilon("1/2")) for _ in range(2)
    )
    assert first.groups.tolist() == second.groups.tolist()


def test_epsilon_is_per_unit_of_distance(monkeypatch):
    seen = []

    def spy(self, answers, eps, draws):
        seen.append((eps, answers[0].tolist()))
        return np.array([4])

    monkeypatch.setattr(WholePartitions, "draw", spy)
    spend = epsilon("1")
    vector = handle([1, 2, 3, 4], substitute_row())
    vector.transform(mx.Scaled(3, mx.Identity(4))).partition(WholePartitions(), spend=spend)
    other_order = mx.Permuted(mx.Identity(4), [2, 0, 1, 3])
    vector.transform(other_order).partition(WholePartitions(), spend=spend)
    assert seen[0] == (Fraction(1, 6), [3, 6, 9, 12])
    assert seen[1][0] == Fraction(1, 2)  # another order of cells has stability 1
    assert sorted(seen[1][1]) == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", [WholePartitions, NoisyIntervals])
def test_strange_fields_are_refused(kind):
    vector = handle([1] * 6)
    word = type("Word", (str,), {})("all")
    number = type("Number", (int,), {})(3)
    for penalty in (-1, True, 0.5, "1", number, LARGEST_PENALTY + 1, np.int64(3)):
        with pytest.raises(RefusedError, match="penalty"):
            vector.partition(kind(penalty), spend=epsilon("1"))
    for lengths in ("", "dyadic ", word, None, ["all"], 2):
        with pytest.raises(RefusedError, match="lengths"):
            vector.partition(kind(lengths=lengths), spend=epsilon("1"))
    with pytest.raises(TooLargeError, match="dyadic"):
        handle([0] * 10**4).partition(kind(lengths="all"), spend=epsilon("1"))
    assert vector._vault.ledger.spent == 0


def test_penalties_have_public_defaults():
    """They grow as epsilon shrinks, up to the largest; long intervals then win on any counts."""
    counts = np.array([3, 1, 4, 1, 5, 9, 2, 6])
    for kind in (WholePartitions, NoisyIntervals):
        assert kind(lengths="all").draw([counts], Fraction(1, 10**15), Draws()).sum() == 8


def test_noise_beyond_64_bits():
    lengths = NoisyIntervals(0, "all").draw([np.arange(9)], Fraction(1, 2**80), Draws())
    assert lengths.sum() == 9
