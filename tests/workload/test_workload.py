"""A workload is the stack of its weighted Kronecker products, whatever is asked of it."""

import math
import tracemalloc
from itertools import product as pairs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import psephos as ps
from psephos import matrix as mx

AGE = ps.Attribute.integers(0, 5).with_level("pair", 2).with_level("half", [0, 4])
DOMAIN = ps.Domain.of(a=["x", "y", "z"], age=AGE, b=2)


@st.composite
def query_sets(draw, n, leveled=False):
    """Any query set on an attribute of n values: joining the family is one line here."""
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).map(sorted).map(tuple)
    rows = st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n), min_size=1, max_size=3)
    choices = [
        st.just(ps.identity()),
        st.just(ps.total()),
        st.just(ps.identity_total()),
        st.just(ps.prefix()),
        st.just(ps.all_range()),
        st.integers(1, n).map(ps.width_range),
        st.lists(ends, min_size=1, max_size=3).map(ps.ranges),
        rows.map(ps.masks),
        st.permutations(range(n)).map(lambda order: ps.permuted(ps.prefix(), order)),
        st.lists(ends, min_size=1, max_size=2).map(
            lambda e: ps.stacked(ps.ranges(e), ps.total(), ps.ranges(e))
        ),
    ]
    if leveled:
        choices += [st.just(ps.level("pair")), st.just(ps.level("half")), st.just(ps.sums())]
        choices += [st.just(ps.predicates(ps.col("age") < 3, ps.col("age").isin([1, 5])))]
    return draw(st.one_of(choices))


@st.composite
def workloads(draw, domain=DOMAIN):
    products = []
    for _ in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from(domain.names), unique=True, max_size=3))
        factors = {n: draw(query_sets(domain[n].size, bool(domain[n].levels))) for n in names}
        products.append(ps.product(factors, weight=draw(st.sampled_from([0.5, 1, 2, 3]))))
    return ps.Workload(domain, products)


def dense(workload):
    """The workload written out by the definition, factor by factor."""
    blocks = []
    for product in workload.products:
        rows = np.ones((1, 1))
        for name in workload.domain.names:
            attribute = workload.domain[name]
            rows = np.kron(rows, product.factor(name).matrix(attribute).dense())
        blocks.append(product.weight * rows)
    return np.vstack(blocks)


@given(w=workloads())
def test_matrix_gram_and_shape(w):
    d = dense(w)
    assert w.shape == d.shape == w.matrix.shape
    assert_allclose(w.matrix.dense(), d)
    assert_allclose(w.gram().dense(), d.T @ d)
    assert_allclose(w.gram().trace(), np.trace(d.T @ d))


@given(w=workloads(), data=st.data())
def test_answers_are_counts_without_weight(w, data):
    x = np.array(data.draw(st.lists(st.integers(0, 9), min_size=36, max_size=36)))
    weights = np.repeat([p.weight for p in w.products], w.query_counts)
    assert_allclose(w.answer(x) * weights, dense(w) @ x)
    assert_array_equal(w.answer(x.reshape(w.domain.shape)), w.answer(x))


@given(w=workloads())
def test_every_query_has_its_label(w):
    listed = []
    for i in range(len(w.products)):
        columns = w.labels(i)
        names = list(columns)
        rows = zip(*columns.values(), strict=True) if names else [()] * w.query_counts[i]
        listed += [dict(zip(names, row, strict=True)) for row in rows]
    assert [w.label(i)[1] for i in range(w.shape[0])] == listed


@given(w=workloads())
def test_traces_are_those_of_the_eigenspaces(w):
    gram = w.gram().dense()
    shape = w.domain.shape
    traces = w.subset_traces()
    sparse = w.closure_traces()
    for code in range(1 << len(shape)):
        inside = [code >> i & 1 for i in range(len(shape))]
        projector = np.ones((1, 1))
        for n, varies in zip(shape, inside, strict=True):
            mean = np.full((n, n), 1 / n)
            projector = np.kron(projector, np.eye(n) - mean if varies else mean)
        key = tuple(i for i, varies in enumerate(inside) if varies)
        expected = np.trace(projector @ gram)
        assert_allclose(traces[code], expected, atol=1e-8)
        assert_allclose(sparse.get(key, 0.0), expected, atol=1e-8)


@given(w=workloads())
def test_compaction_keeps_every_weighted_query(w):
    c = w.compact()
    assert len(c.products) <= len(w.products)
    assert c.shape == w.shape

    def multiset(workload):
        return sorted(map(tuple, dense(workload).tolist()))

    assert multiset(c) == multiset(w)
    assert len(c.compact().products) == len(c.products)


@given(w=workloads(), data=st.data())
def test_reductions_are_lossless(w, data):
    x = np.array(data.draw(st.lists(st.integers(0, 9), min_size=36, max_size=36)))
    r = w.reduce()
    assert_array_equal(r.workload.answer(r.partition @ x), w.answer(x))
    assert_allclose(r.workload.matrix.dense() @ r.partition.dense(), dense(w))
    assert [r.workload.label(i) for i in range(w.shape[0])] == [
        w.label(i) for i in range(w.shape[0])
    ]
    cells = w.reduce_cells()
    assert_allclose(cells.workload.matrix.dense() @ cells.partition.dense(), dense(w))
    assert cells.domain.size == np.unique(dense(w), axis=1).shape[1]
    assert cells.domain.size <= r.domain.size


@given(w=workloads(), names=st.sampled_from([["a", "age"], ["age", "b"], ["a", "b"]]))
def test_merged_domains_ask_the_same(w, names):
    merged = w.domain.merge(names)
    x = np.arange(36).reshape(w.domain.shape)
    moved = w.over(merged)
    assert moved.shape == w.shape
    assert_array_equal(np.sort(moved.answer(x)), np.sort(w.answer(x)))


def test_merged_cells_are_not_guessed():
    domain = ps.Domain.of(sex=["F", "M"], age=range(4), region=["n", "s"])
    x = np.arange(16).reshape(domain.shape)
    w = ps.Workload.from_sql(domain, "SELECT COUNT(*) FROM t WHERE sex = 'F' OR region = 's'")
    assert w.answer(x)[0] == x[0].sum() + x[1, :, 1].sum()
    moved = x.transpose(0, 2, 1).reshape(w.domain.shape)
    assert_array_equal(w.answer(moved), w.answer(x))
    with pytest.raises(ps.ShapeError, match="merging renumbered the cells"):
        w.answer(x.ravel())
    twice = domain.merge(["sex", "age"]).merge(["sex*age", "region"])
    assert [name for name, _ in twice["sex*age*region"].parts] == ["sex", "age", "region"]
    assert_array_equal(
        ps.marginals(domain, k=1).over(twice).answer(x.ravel()), ps.marginals(domain, k=1).answer(x)
    )
    for strange in (domain.project(["sex"]), ps.Domain.of(z=16), 5):
        with pytest.raises(ps.WorkloadError):
            w.over(strange)


def test_weights_stay_apart_from_answers_when_cells_are_merged():
    w = ps.Workload(ps.Domain.of(a=2, b=2), [ps.product(a=ps.identity(), weight=3.0)])
    r = w.reduce_cells()
    x = np.array([1, 2, 3, 4])
    assert_array_equal(r.workload.answer(r.partition @ x), w.answer(x))
    assert r.workload.label(0) == ("a", {"cells": "a: 0"})


def test_labels_say_what_is_counted():
    named = ps.Attribute.bins([0, 10, 25, 50], ["0 to 9,999", "10,000 to 24,999", "more"])
    w = ps.Workload(ps.Domain.of(i=named), [ps.product(i=ps.all_range())])
    assert w.labels(0)["i"][1] == "0 to 9,999–10,000 to 24,999"
    plain = ps.Domain.of(i=ps.Attribute.bins([0, 10, 25, 50]))
    assert ps.Workload(plain, [ps.product(i=ps.ranges([(0, 1)]))]).labels(0)["i"] == ["[0, 25)"]
    w = ps.Workload(ps.Domain.of(a=3), [ps.product(a=ps.masks([[1, 2, 3], [0, -1, 0]]))])
    assert w.labels(0)["a"] == ["1 × 0, 2 × 1, 3 × 2", "-1 × 1"]
    aged = ps.Domain.of(age=ps.Attribute.integers(0, 99).with_level("broad", [0, 20, 65]))
    w = ps.Workload.from_sql(aged, "SELECT broad, COUNT(*) FROM t WHERE age >= 18 GROUP BY broad")
    assert w.label(0) == ("broad where age >= 18", {"age": "0–19"})


def test_union_and_weights():
    w = ps.Workload(DOMAIN, [ps.product(a=ps.identity())])
    assert (w + w).shape[0] == 6
    assert (2 * w).products[0].weight == 2
    assert w == ps.Workload(DOMAIN, (ps.product(a=ps.identity()),))
    with pytest.raises(ps.WorkloadError, match="over one domain"):
        w + ps.marginals(ps.Domain.of(a=2), k=1)


def test_builders():
    d = ps.Domain.of({f"x{i}": 10 for i in range(8)})
    assert ps.marginals(d, up_to=3).shape[0] == sum(math.comb(8, k) * 10**k for k in range(4))
    assert len(ps.marginals(d, k=3).products) == 56
    mixed = ps.Domain.of(age=100, sex=["F", "M"])
    assert ps.range_marginals(mixed, k=2).shape[0] == 5050 * 2
    assert ps.range_marginals(mixed, k=2, ordered=[]).shape[0] == 200
    assert ps.prefix_product(mixed).shape[0] == 200
    assert ps.range_product(mixed, ["age"]).shape[0] == 5050
    assert ps.marginals(mixed, of=["sex", ("sex", "age"), ()]).query_counts == (2, 200, 1)


def test_impvec_of_predicates():
    """HDMM Algorithm 1 and Theorem 1: a conjunction is a Kronecker product of its parts."""
    p = (ps.col("a") == "x") & (ps.col("age") >= 4) & (ps.col("age") < 5)
    w = ps.Workload.from_predicates(DOMAIN, [p, ps.col("b") == 1])
    assert w.query_counts == (1, 1)
    joint = p.mask(DOMAIN)
    assert_array_equal(
        w.matrix.row(0).reshape(DOMAIN.shape), np.repeat(joint[..., None], 2, axis=2)
    )
    with pytest.raises(ps.WorkloadError, match="spans a, b"):
        ps.Workload.from_predicates(DOMAIN, [(ps.col("a") == "x") | (ps.col("b") == 1)])


def test_ektelo_example_7_3_takes_bytes():
    """R(age, income, marital status), 70,000 cells: 56 GB dense, 8 GB sparse in the paper."""
    domain = ps.Domain.of(age=100, income=100, status=7)
    married = ps.masks([[1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 1]], ["married", "unmarried"])
    status = ps.stacked(ps.total(), ps.identity(), married)
    w = ps.Workload(domain, [ps.product(age=ps.prefix(), income=ps.prefix(), status=status)])
    assert w.shape == (100_000, 70_000)
    assert 8 * math.prod(w.shape) == 56 * 10**9
    assert w.nbytes == 14
    x = np.arange(domain.size)
    assert w.answer(x)[-10] == x.sum()


def test_paper_counts_hold():
    sf1, plus = ps.census.sf1(), ps.census.sf1_plus()
    assert (sf1.shape, len(sf1.products)) == ((4151, 500_480), 33)
    assert (plus.shape, len(plus.products)) == ((215_852, 25_524_480), 33)
    assert sf1.matrix.sensitivity(1) == 41
    assert sum(max(p.sensitivity(1) for p in [sf1.kron(i)]) for i in range(33)) == 50


def test_sf1_plus_is_held_in_under_a_megabyte():
    """HDMM Example 7: 687 KB factored; written out it would take 22 TB."""
    assert ps.census.sf1_plus().matrix.shape == (215_852, 25_524_480)  # warms all caches
    tracemalloc.start()
    plus = ps.census.sf1_plus()
    assert plus.matrix.shape == plus.shape
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 1_000_000
    assert plus.nbytes < 10_000


def single_queries(workload, keep):
    """Every query a product of its own, except that the attributes of `keep` stay query sets."""
    products = []
    for p in workload.products:
        names = [n for n in workload.domain.names if n not in keep]
        rows = [p.factor(n).matrix(workload.domain[n]).dense().astype(int) for n in names]
        kept = [(n, part) for n in keep for part in p.factor(n).parts]
        for choice in pairs(*rows):
            masks = {n: ps.masks(row) for n, row in zip(names, choice, strict=True)}
            for name, part in kept:
                products.append(ps.product({**masks, name: part}))
    return ps.Workload(workload.domain, products)


def test_single_queries_of_sf1_plus_fold_to_a_few_dozen_products():
    plus = ps.census.sf1_plus()
    singles = single_queries(plus, ["state"])
    assert (len(singles.products), singles.shape) == (8302, plus.shape)
    folded = singles.compact()
    assert folded.shape == plus.shape
    assert len(folded.products) <= 36
    assert folded.nbytes < 100_000
    rng = np.random.default_rng(0)
    for _ in range(5):
        # xᵀGx on product vectors tells Grams apart without a vector of 25 million cells.
        x = [rng.integers(0, 5, n).astype(float) for n in plus.domain.shape]
        assert_allclose(quadratic(folded, x), quadratic(plus, x), rtol=1e-12)


def quadratic(workload, x):
    total = 0.0
    for i, p in enumerate(workload.products):
        factors = workload.kron(i).factors
        total += p.weight**2 * math.prod(
            float(((f @ v) ** 2).sum()) for f, v in zip(factors, x, strict=True)
        )
    return total


def test_random_ranges_reduce_to_their_cuts():
    """Fifty random ranges on 256 cells leave at most 101 groups of cells."""
    rng = np.random.default_rng(0)
    ends = [tuple(sorted(rng.integers(0, 256, 2).tolist())) for _ in range(50)]
    w = ps.Workload(ps.Domain.of(x=256), [ps.product(x=ps.ranges(ends))])
    r = w.reduce()
    assert r.domain.size <= 101
    assert isinstance(r.workload.kron(0).factors[0], mx.Ranges)


def test_reprs_are_friendly():
    w = ps.marginals(DOMAIN, k=1)
    assert repr(w) == "Workload(11 queries in 3 products over 36 cells)"
    assert "<table>" in w._repr_html_()
    assert repr(w.reduce()) == "Reduction(36 cells to 36)"


def one(**factors):
    return ps.Workload(DOMAIN, [ps.product(**factors)])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ps.Workload(DOMAIN, []), "at least one product"),
        (lambda: ps.Workload({"a": 2}, [ps.product()]), "needs a Domain, got dict"),
        (lambda: ps.Workload(DOMAIN, [ps.identity()]), "made of products"),
        (lambda: ps.Workload(DOMAIN, None), "takes a list of products, got None"),
        (lambda: ps.Workload(DOMAIN, ps.identity()), "takes a list of products"),
        (lambda: ps.product(name=ps.identity()), "attribute called 'name'"),
        (lambda: ps.product(weight=ps.identity()), "attribute called 'weight'"),
        (lambda: ps.product({"a": ps.identity()}, a=ps.prefix()), "given twice"),
        (lambda: ps.product(weight=10**400), "positive finite"),
        (lambda: one(b=ps.predicates(ps.col("age") < 1)), "'b' is asked for conditions on age"),
        (lambda: ps.Workload.from_predicates(DOMAIN, ps.col("age") < 1), "list of conditions"),
        (lambda: ps.Workload.from_predicates(DOMAIN, ["age < 1"]), "text is not evaluated"),
        (lambda: ps.Workload.from_sql(DOMAIN, None), "text or a list of texts"),
        (lambda: ps.Workload.from_sql("SELECT 1", DOMAIN), "domain comes first"),
        (lambda: ps.Workload.from_sql(DOMAIN, "SELECT 1", merge_limit="a"), "whole number"),
        (lambda: ps.marginals({"a": 2}, k=1), "Domain is needed"),
        (lambda: ps.marginals(DOMAIN, of="age"), "list of marginals"),
        (lambda: ps.marginals(DOMAIN, of=[("a", "a")]), "twice"),
        (lambda: ps.prefix_product(DOMAIN, "age"), r"write \['age'\]"),
        (lambda: ps.range_marginals(DOMAIN, k=1, ordered="age"), r"write \['age'\]"),
        (lambda: ps.ranges((0, 17)), "whole-number pairs"),
        (lambda: ps.ranges(None), "whole-number pairs"),
        (lambda: ps.masks([[1, 0], [1]]), "differ in length"),
        (lambda: ps.groups([0.0, 1.0], ["a", "b"]), "whole number for each"),
        (lambda: ps.groups([0, 1], None), "list of labels"),
        (lambda: ps.level(["x"]), "name of a level"),
        (lambda: one(a=ps.identity()) + 5, "joined with a workload"),
        (lambda: ps.product(a=ps.identity), "attribute 'a': .* with its parentheses"),
        (lambda: ps.product(a="identity"), "'identity' is not a query set"),
        (lambda: ps.product(["a"]), "takes a dict"),
        (lambda: ps.product(weight=-1.0), "positive finite number, got -1.0"),
        (lambda: ps.product(weight=math.nan), "got nan"),
        (lambda: ps.product(weight=math.inf), "got inf"),
        (lambda: ps.product(weight=0), "leave the product out"),
        (lambda: ps.product(weight="2"), "got '2'"),
        (lambda: one(a=ps.masks([[1, 0]])), "attribute 'a': masks have 2 columns but .* 3 values"),
        (lambda: one(a=ps.level("none")), "attribute 'a': no level 'none'"),
        (lambda: one(age=ps.ranges([(3, 9)])), r"attribute 'age': range \(3, 9\) .* leaves 0 to 5"),
        (lambda: one(age=ps.width_range(7)), "attribute 'age': .* does not fit in 6 cells"),
        (lambda: one(age=ps.permuted(ps.prefix(), [1, 0])), "lists 2 positions"),
        (lambda: one(age=ps.predicates(ps.col("age") == 77)), "no value 77"),
        (lambda: ps.width_range(0), "positive whole number"),
        (lambda: ps.ranges([]), "list of whole-number pairs"),
        (lambda: ps.ranges([(0, 1.5)]), "whole-number pairs"),
        (lambda: ps.masks([[math.nan]]), "finite"),
        (lambda: ps.masks([["a"]]), "array of numbers"),
        (lambda: ps.masks([[1]], ["a", "b"]), "1 masks but 2 labels"),
        (lambda: ps.permuted(ps.prefix(), [0, 0]), "every position"),
        (lambda: ps.stacked(), "at least one"),
        (lambda: ps.stacked(3), "not a query set"),
        (lambda: ps.predicates(), "at least one condition"),
        (lambda: ps.predicates((ps.col("a") == 1) & (ps.col("b") == 1)), "one attribute"),
        (lambda: ps.marginals(DOMAIN), "say which marginals"),
        (lambda: ps.marginals(DOMAIN, k=4), "the domain has 3: take 0 to 3"),
        (lambda: ps.marginals(DOMAIN, k=1, up_to=1), "say which"),
        (lambda: ps.marginals(DOMAIN, k=1) * -1, "positive finite"),
    ],
)
def test_mistakes_are_refused_in_words(make, words):
    with pytest.raises(ps.WorkloadError, match=words):
        make()


def test_unknown_attributes_and_misfit_vectors():
    with pytest.raises(ps.DomainError, match="no attribute 'race'; have a, age, b"):
        one(race=ps.identity())
    with pytest.raises(ps.DomainError, match="no attribute 'race'"):
        ps.marginals(DOMAIN, of=[("race",)])
    with pytest.raises(ps.ShapeError, match=r"36 cells \(shape \(3, 6, 2\)\), got .* \(35,\)"):
        one(a=ps.identity()).answer(np.ones(35))
    with pytest.raises(ps.ShapeError, match=r"query 3 is not a number in 0\.\.2"):
        one(a=ps.identity()).label(3)


def test_domains_beyond_memory_are_refused_with_a_way_out():
    huge = ps.Domain.of(a=10**6, b=10**6)
    w = ps.prefix_product(huge)
    with pytest.raises(ps.TooLargeError, match="use `A @ x`"):
        w.matrix.dense()
    with pytest.raises(ps.TooLargeError, match="1,000,000,000,000 cells"):
        w.reduce_cells()
    assert w.matrix.sensitivity(1) == 10**12
    with pytest.raises(ps.TooLargeError, match=r"closure_traces\(\)"):
        ps.marginals(ps.Domain.of({f"x{i}": 2 for i in range(30)}), k=1).subset_traces()


def test_prefixes_of_bins_end_before_an_edge():
    income = ps.Attribute.bins([0, 10.5, 50, math.inf]).with_unknown("other")
    assert ps.prefix().labels(income) == ["below 10.5", "below 50", "all numbers", "(other)"]
    named = ps.Attribute.bins([0, 10, 20], ["small", "tall"])
    assert ps.prefix().labels(named) == ["up to small", "up to tall"]
    assert ps.prefix().labels(ps.Attribute.integers(0, 1)) == ["up to 0", "up to 1"]


@given(workloads())
def test_a_number_of_every_product_is_that_of_its_factors(W):
    counts = W.factor_products(lambda factor: float(factor.shape[0]))
    assert_allclose(counts, W.query_counts)
    traces = W.factor_products(lambda factor: factor.gram().trace())
    expected = [math.prod(f.gram().trace() for f in W.factors(i)) for i in range(len(W.products))]
    assert_allclose(traces, expected)
    axes = zip(*(W.factors(i) for i in range(len(W.products))), strict=True)
    for there, axis in zip(W.different_factors(), axes, strict=True):
        assert {id(f) for f in there} == {id(f) for f in axis}


APART = [
    ps.Attribute.integers(0, 4).with_missing("not stated"),
    ps.Attribute.integers(0, 4).with_unknown("other"),
    ps.Attribute.bins([-math.inf, 0, 10, math.inf]).with_missing().with_unknown("other"),
    ps.Attribute.categories([3, None, 5, 7]).with_unknown("other"),
    ps.Attribute.categories([None]),
]


@pytest.mark.parametrize("attribute", APART, ids=repr)
@pytest.mark.parametrize("queries", [ps.prefix(), ps.all_range(), ps.width_range(1)], ids=repr)
def test_missing_and_undeclared_entries_stand_outside_of_every_order(attribute, queries):
    rows = queries.matrix(attribute).dense()
    labels = queries.labels(attribute)
    assert labels == [queries.label(attribute, i) for i in range(len(rows))]
    apart = list(attribute.apart)
    alone = np.eye(attribute.size)[apart]
    np.testing.assert_array_equal(rows[len(rows) - len(apart) :], alone)
    assert labels[len(rows) - len(apart) :] == [attribute.label(cell) for cell in apart]
    real = [cell for cell in range(attribute.size) if cell not in apart]
    assert not rows[: len(rows) - len(apart), apart].any()
    if real:
        inside = queries.matrix(ps.Attribute.integers(1, len(real))).dense()
        np.testing.assert_array_equal(rows[: len(rows) - len(apart), real], inside)


def test_many_ranges_beside_cells_apart_are_not_listed():
    ages = ps.Attribute.integers(0, 1999).with_unknown("other")
    matrix = ps.all_range().matrix(ages)
    assert matrix.shape == (2000 * 2001 // 2 + 1, 2001)
    x = np.arange(2001)
    assert (matrix @ x)[-1] == 2000


def test_listed_ranges_keep_to_the_order():
    ages = ps.Attribute.integers(10, 14).with_missing()
    rows = ps.ranges([(10, 11), (12, 14)]).matrix(ages).dense()
    np.testing.assert_array_equal(rows, [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0]])
    with pytest.raises(ps.WorkloadError, match="stands outside of the order"):
        ps.ranges([(0, 2)]).matrix(ps.Attribute.categories(["a", "b", None]))


def test_ranges_of_open_bins_are_said_in_words():
    income = ps.Attribute.bins([-math.inf, 0, 10, math.inf])
    assert ps.width_range(2).labels(income) == ["below 10", "0 and over"]
    assert ps.prefix().labels(income) == ["below 0", "below 10", "all numbers"]


def test_the_missing_are_a_group_of_their_own():
    sex = ps.Attribute.categories({"F": "Female", "M": "Male", None: "not stated"})
    level = sex.with_level("known", {"yes": ["F", "M"]}).level("known")
    assert level.labels == ("yes", "not stated")
    ages = ps.Attribute.integers(0, 9).with_level("five", 5).with_missing("not stated")
    assert ages.level("five").labels == ("0–4", "5–9", "not stated")
    with pytest.raises(ps.DomainError, match="get a cell once"):
        ages.with_missing()
    assert ps.select.identity(ps.Workload(ps.Domain.of(age=ages), [ps.product(age=ps.prefix())]))


def test_conditions_never_hold_for_what_stands_apart():
    income = ps.Attribute.bins([0, 10, math.inf]).with_missing("not stated")
    domain = ps.Domain.of(income=income, age=ps.Attribute.integers(0, 4).with_missing())
    for sql, cells in {
        "income < 10": [1, 0, 0],
        "income >= 10": [0, 1, 0],
        "NOT income < 10": [0, 1, 0],
        "income IS NULL": [0, 0, 1],
        "income IS NOT NULL": [1, 1, 0],
    }.items():
        workload = ps.Workload.from_sql(domain, f"SELECT COUNT(*) FROM t WHERE {sql}")
        row = workload.matrix.dense().reshape(domain.shape)[:, 0]
        assert row.tolist() == cells, sql
    assert (ps.col("age") < 3).mask(domain).tolist() == [True] * 3 + [False] * 3
    assert (ps.col("income") < 10).mask(domain).tolist() == [True, False, False]
    assert ps.col("income").is_null().mask(domain).tolist() == [False, False, True]
    between = ps.Workload.from_sql(domain, "SELECT COUNT(*) FROM t WHERE age BETWEEN 0 AND 99")
    assert between.matrix.dense().reshape(domain.shape)[0].tolist() == [1] * 5 + [0]
