import datetime
import math
import operator
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos import Attribute, Domain, PredicateError, TooLargeError, col

DOMAIN = Domain.of(
    a=6,
    b=["x", "y", None],
    c=Attribute.bins([0, 10, 20, math.inf]),
    d=Attribute.integers(0, 9).with_level("half", [0, 5]),
)


@st.composite
def conditions(draw, depth=3):
    """A predicate and the plain function that says what it should mean."""
    kind = draw(st.sampled_from(["a", "b", "and", "or", "not"] if depth else ["a", "b"]))
    if kind == "a":
        k = draw(st.integers(-1, 6))
        return draw(
            st.sampled_from(
                [
                    (col("a") < k, lambda a, b: a < k),
                    (col("a") <= k, lambda a, b: a <= k),
                    (col("a") > k, lambda a, b: a > k),
                    (col("a") >= k, lambda a, b: a >= k),
                    (col("a").between(k, k + 2), lambda a, b: k <= a <= k + 2),
                    (col("a") == k % 6, lambda a, b: a == k % 6),
                    (col("a") != k % 6, lambda a, b: a != k % 6),
                    (col("a").isin([1, k % 6]), lambda a, b: a in (1, k % 6)),
                ]
            )
        )
    if kind == "b":
        return draw(
            st.sampled_from(
                [
                    (col("b") == "x", lambda a, b: b == "x"),
                    (col("b") != "x", lambda a, b: b != "x"),
                    (col("b").is_null(), lambda a, b: b is None),
                    (col("b") == None, lambda a, b: b is None),  # noqa: E711
                    (col("b").isin(["y", None]), lambda a, b: b in ("y", None)),
                ]
            )
        )
    p, f = draw(conditions(depth - 1))
    if kind == "not":
        return ~p, lambda a, b: not f(a, b)
    q, g = draw(conditions(depth - 1))
    if kind == "and":
        return p & q, lambda a, b: f(a, b) and g(a, b)
    return p | q, lambda a, b: f(a, b) or g(a, b)


@given(pair=conditions())
def test_masks_say_what_the_condition_means(pair):
    predicate, meaning = pair
    axes = [n for n in DOMAIN.names if n in predicate.columns]
    mask = predicate.mask(DOMAIN)
    assert mask.shape == tuple(DOMAIN[n].size for n in axes)
    for index in np.ndindex(mask.shape):
        row = {"a": 0, "b": "x"} | {
            n: DOMAIN[n].values[i] for n, i in zip(axes, index, strict=True)
        }
        assert mask[index] == meaning(row["a"], row["b"])


def test_bins_are_decided_whole():
    assert (col("c") < 20).mask(DOMAIN).tolist() == [True, True, False]
    assert (col("c") >= 10).mask(DOMAIN).tolist() == [False, True, True]
    assert (col("c") > -5).mask(DOMAIN).tolist() == [True, True, True]
    assert (col("c") == "[10, 20)").mask(DOMAIN).tolist() == [False, True, False]
    for cut in (col("c") < 15, col("c") <= 10, col("c") > 10, col("c") > 25, col("c") <= 20):
        with pytest.raises(PredicateError, match=r"cuts the bin .* of 'c'"):
            cut.mask(DOMAIN)
    with pytest.raises(PredicateError, match="name a bin by its label"):
        (col("c") == 10).mask(DOMAIN)


def test_levels_and_dates():
    assert col("d").in_level("half", "5–9").mask(DOMAIN).tolist() == [False] * 5 + [True] * 5
    with pytest.raises(PredicateError, match="have 0–4, 5–9"):
        col("d").in_level("half", "6–9").mask(DOMAIN)
    days = [datetime.date(2020, 1, d) for d in (1, 2, 3)]
    dated = Domain.of(day=[*days, None])
    mask = (col("day") > datetime.date(2020, 1, 1)).mask(dated)
    assert mask.tolist() == [False, True, True, False]


def test_conjuncts_are_flat():
    p = (col("a") > 1) & ((col("b") == "x") & (col("c") < 10))
    assert [sorted(q.columns) for q in p.conjuncts()] == [["a"], ["b"], ["c"]]
    assert p.mask(DOMAIN).shape == (6, 3, 3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: bool(col("a") > 1), "combine conditions with & | ~"),
        (lambda: 1 <= col("a") <= 3, "between"),
        (lambda: (col("a") > 1) and (col("b") == "x"), "not and/or/not"),
        (lambda: bool(col("a")), "compare col('a') with a value"),
        (lambda: (col("a") > 1) & True, "put each comparison in parentheses"),
        (lambda: col("a") == [1], "cannot compare a column with [1]"),
        (lambda: col("a") == math.nan, "NaN"),
        (lambda: col("a") == (lambda: 1), "cannot compare a column"),
        (lambda: col(3), "name of an attribute"),
        (lambda: col("b").isin("xy"), "list of values"),
        (lambda: (col("a") == 17).mask(DOMAIN), "no value 17; have 0 to 5"),
        (lambda: (col("b") == "z").mask(DOMAIN), "no value 'z'; have x, y"),
        (lambda: (col("b") < "y").mask(DOMAIN), "no common order"),
        (lambda: (col("a") < "y").mask(DOMAIN), "no common order"),
    ],
)
def test_mistakes_are_refused_in_words(make, words):
    with pytest.raises(PredicateError) as error:
        make()
    assert words in str(error.value)


def test_unknown_columns_and_wide_spans():
    with pytest.raises(ValueError, match="no attribute 'race'; have a, b, c, d"):
        (col("race") == "x").mask(DOMAIN)
    wide = Domain.of(p=10_000, q=10_000)
    with pytest.raises(TooLargeError, match="100,000,000 combinations of p, q"):
        ((col("p") == 1) | (col("q") == 1)).mask(wide)


def test_no_text_is_ever_evaluated(tmp_path):
    evil = f"__import__('pathlib').Path({str(tmp_path / 'x')!r}).touch()"
    with pytest.raises(PredicateError):
        (col("b") == evil).mask(DOMAIN)
    with pytest.raises(ValueError, match="no attribute"):
        (col(evil) == 1).mask(DOMAIN)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("join", [operator.or_, operator.and_])
def test_twenty_thousand_terms_stand_side_by_side(join):
    domain, many = Domain.of(a=20_001), 20_000
    terms = [col("a") == i if join is operator.or_ else col("a") != i for i in range(many)]
    condition = reduce(join, terms)
    assert condition == type(condition)(tuple(terms))
    assert len(condition.parts) == many
    assert condition.columns == {"a"}
    assert repr(condition).count("a == ") == many
    assert condition.mask(domain).sum() == (many if join is operator.or_ else 1)


def test_deep_nesting_is_refused():
    def nested(levels):
        step = lambda p, _: (p | (col("a") == 1)) & (col("b") == "x")  # noqa: E731
        return reduce(step, range(levels // 2), col("a") == 0)

    def negated(levels):
        return reduce(lambda p, _: ~p, range(levels), col("a") == 0)

    for nest in (nested, negated):
        assert nest(100).mask(DOMAIN).any()
        assert repr(nest(100))
        with pytest.raises(PredicateError, match="at most 100 deep"):
            nest(102)
