"""Corners of workloads and SQL that random examples seldom reach."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import psephos as ps
from psephos.workload.product import Product

YEARS = ps.Attribute.integers(2000, 2005)
DOMAIN = ps.Domain.of(a=["x", "y", "z"], year=YEARS, s=range(10, 20, 2))


def row(**factors):
    return ps.Workload(DOMAIN, [ps.product(factors)]).matrix.row(0).reshape(DOMAIN.shape)


def test_ranges_go_by_value_on_integers_and_by_position_elsewhere():
    assert row(year=ps.ranges([(2001, 2002)]))[0, :, 0].tolist() == [0, 1, 1, 0, 0, 0]
    assert row(s=ps.ranges([(1, 3)]))[0, 0].tolist() == [0, 1, 1, 1, 0]


def test_labels_name_the_cells_that_are_counted():
    w = ps.Workload(DOMAIN, [ps.product({"year": ps.identity(), "a": ps.identity()})])
    for i in range(w.shape[0]):
        labels = w.label(i)[1]
        cells = w.matrix.row(i).reshape(DOMAIN.shape)
        assert cells[DOMAIN["a"].index(labels["a"]), YEARS.index(int(labels["year"]))].all()


def test_weights_multiply():
    w = ps.marginals(DOMAIN, k=1, weight=3.0)
    assert {p.weight for p in w.products} == {3.0}
    assert {p.weight for p in (w * 2).products} == {6.0}
    with pytest.raises(ps.WorkloadError, match="a weight lies between"):
        w * 1e200 * 1e200


def test_products_are_checked_however_they_are_made():
    for weight in (-1, float("nan")):
        with pytest.raises(ps.WorkloadError):
            Product((), weight)
    with pytest.raises(ps.WorkloadError, match="twice"):
        Product((("a", ps.identity()), ("a", ps.total())))


def test_masks_keep_their_numbers():
    assert ps.masks([[300, 1]]).rows.tolist() == [[300, 1]]
    assert ps.masks([[0.5, 1]]).rows.tolist() == [[0.5, 1]]
    assert ps.masks([[1e30]]).rows.tolist() == [[1e30]]
    assert (
        ps.Workload(ps.Domain.of(a=1), [ps.product(a=ps.masks([[-128]]))]).matrix.sensitivity(1)
        == 128
    )
    with pytest.raises(ps.WorkloadError, match="uint64"):
        ps.masks(np.array([[2**63]], np.uint64))
    with pytest.raises(ps.WorkloadError):
        ps.groups([-5, 0], ["a"])


def test_compaction_keeps_names_and_multiples():
    named = [ps.product(a=ps.masks([[1, 0, 0]], ["p"])), ps.product(a=ps.masks([[0, 1, 0]], ["q"]))]
    assert ps.Workload(DOMAIN, named).compact().labels(0)["a"] == ["p", "q"]
    twos = ps.Workload(DOMAIN, [ps.product(a=ps.masks([[2, 2, 2]])), ps.product(a=ps.identity())])
    assert twos.compact().matrix.sum() == 3 * DOMAIN.size


def test_merged_attributes_nobody_asks_about_are_left_out():
    w = ps.Workload(DOMAIN, [ps.product(a=ps.identity())])
    assert list(w.over(DOMAIN.merge(["year", "s"])).products[0].factors) == ["a"]
    clash = DOMAIN.merge(["a", "s"], name="a")
    workload = ps.Workload(DOMAIN, [ps.product(a=ps.identity(), s=ps.prefix())])
    x = np.arange(DOMAIN.size).reshape(DOMAIN.shape)
    assert sorted(workload.over(clash).answer(x)) == sorted(workload.answer(x))


def test_traces_without_dust():
    n = 2000
    almost = ps.masks(np.r_[0, np.ones(n - 1, dtype=int)])
    traces = ps.Workload(ps.Domain.of(a=n), [ps.product(a=almost)]).subset_traces()
    constant = (n - 1) ** 2 / n
    assert_allclose(traces, [constant, n - 1 - constant], rtol=1e-9)
    flat = ps.product(a=ps.masks(np.full((3, 7), 0.1)), b=ps.masks(np.full((1, 49), 0.1)))
    w = ps.Workload(ps.Domain.of(a=7, b=49), [flat])
    assert w.subset_traces()[1:].tolist() == [0, 0, 0]
    assert set(w.closure_traces()) == {()}
    wide = ps.Workload(ps.Domain.of(a=200_000), [ps.product(a=ps.all_range())])
    assert_allclose(wide.subset_traces().sum(), wide.gram().trace(), rtol=1e-12)
    many = ps.Domain.of({f"x{i}": 10 for i in range(400)})
    with pytest.raises(ps.TooLargeError):
        ps.marginals(many, of=[("x0",)]).closure_traces()


def test_counts_of_queries_have_no_limit():
    huge = ps.Domain.of({f"x{i}": 2 for i in range(62)})
    w = ps.Workload(huge, [ps.product(dict.fromkeys(huge.names, ps.identity()))] * 3)
    assert w.shape[0] == 3 * 2**62
    assert w.label(3 * 2**62 - 1)[1]["x0"] == "1"


def test_vectors_of_another_shape_are_refused():
    with pytest.raises(ps.ShapeError):
        ps.marginals(DOMAIN, k=1).answer(np.ones((DOMAIN.size, 1)))


SQL = ps.Domain.of(
    sex=["F", "M"], x=ps.Attribute.bins([0, 10, 20, 30]), year=range(2000, 2021, 5), age=4
)
X = np.arange(SQL.size).reshape(SQL.shape)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x < -5 OR x >= 10", X[:, 1:].sum()),
        ("x < 0 OR x >= 20", X[:, 2:].sum()),
        ("year > 2005", X[:, :, 2:].sum()),
    ],
)
def test_conditions_are_decided_one_by_one(where, expected):
    both = "SELECT COUNT(*) FROM t WHERE x < -5 OR x >= 10"
    w = ps.Workload.from_sql(SQL, f"{both}; SELECT COUNT(*) FROM t WHERE {where}")
    assert w.answer(X).tolist() == [X[:, 1:].sum(), expected]


def test_sums_that_count():
    every = "SELECT SUM(CASE WHEN sex = 'F' THEN 1 ELSE 1 END) FROM t"
    women = "SELECT SUM(CASE sex WHEN 'F' THEN 1 ELSE 0 END) FROM t"
    w = ps.Workload.from_sql(SQL, [every, women])
    assert w.answer(X).tolist() == [X.sum(), X[0].sum()]


def test_only_what_decides_is_asked_about():
    def tables(text):
        w = ps.Workload.from_sql(SQL, text)
        assert w.domain == SQL
        return w

    grouped = tables("SELECT COUNT(*) FROM t GROUP BY CASE WHEN age >= 0 THEN sex END")
    assert grouped.answer(X).tolist() == [X[0].sum(), X[1].sum()]
    split = tables("SELECT COUNT(*) FROM t WHERE sex = 'F' AND age + 0 * year < 2")
    assert set(split.products[0].factors) == {"sex", "age"}
    free = tables("SELECT COUNT(*) FROM t WHERE (sex = 'F' OR age < 9) AND year > 2005")
    assert set(free.products[0].factors) == {"year"}
    twice = tables("SELECT sex, COUNT(*) FROM t GROUP BY sex, ROLLUP (sex)")
    assert [p.name for p in twice.products] == ["sex", "sex"]


def test_groups_of_one_are_told_from_their_value():
    age = ps.Attribute.integers(14, 60).with_level("five", 5).with_level("ten", 10)
    queries = ps.stacked(ps.level("ten"), ps.level("five"), ps.identity(), ps.total())
    labels = queries.labels(age)
    assert len(set(labels)) == len(labels)
    assert {"60 (ten)", "60 (five)", "60", "15–19"} <= set(labels)
    assert labels == [queries.label(age, i) for i in range(len(labels))]
    assert "60" in ps.stacked(ps.level("five"), ps.total()).labels(age)
