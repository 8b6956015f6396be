"""Predicted cost: the form that inference will use, and sizes that are known exactly."""

from fractions import Fraction

import pytest

import psephos as ps
from psephos.inverse.choice import Cost
from psephos.inverse.merged_cells import MergedForm
from psephos.kernel.query import Block
from psephos.matrix import Kron, Prefix, Stack, total

FORMS = {"ProductForm": "product", "Classes": "classes", "DenseForm": "dense"}
FORMS |= {"Subspaces": "subspaces", "IterativeForm": "iterative"}
GRID = ps.Domain.of(a=6, b=5)
LARGE = ps.Domain.of(a=80, b=80)


def blocks(domain, *products):
    """One block for each product of matrices."""
    pairs = tuple(Block(Kron(tuple(p)), Fraction(1)) for p in products)
    return ps.Strategy(domain, "laplace", ps.Query(pairs))


def three(domain):
    n, m = domain.shape
    eye = ps.matrix.Identity
    return blocks(domain, [Prefix(n), eye(m)], [eye(n), Prefix(m)], [Prefix(n).T, Prefix(m).T])


CASES = {
    "identity": lambda: ps.select.identity(ps.marginals(GRID, k=1)),
    "merged": lambda: ps.select.hdmm(
        ps.Workload(GRID, [ps.product(a=ps.ranges([(0, 2), (0, 5)]))]), restarts=1
    ),
    "tree": lambda: ps.select.h2(ps.marginals(GRID, k=1)),
    "marginals": lambda: ps.select.workload(ps.marginals(GRID, up_to=1)),
    "residuals": lambda: ps.select.residual(ps.marginals(GRID, up_to=2)),
    "two products": lambda: blocks(GRID, [Prefix(6), total(5)], [ps.matrix.Identity(6), Prefix(5)]),
    "three products": lambda: three(GRID),
    "three large products": lambda: three(LARGE),
    "no products": lambda: ps.Strategy(
        GRID, "laplace", ps.Query.of([(Prefix(30), 1), (Stack((Prefix(30), total(30))), 2)])
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_method_is_the_one_that_inference_will_use(name):
    strategy = CASES[name]()
    form = strategy._form.inner if isinstance(strategy._form, MergedForm) else strategy._form
    assert strategy.cost.method == FORMS[type(form).__name__]
    assert strategy.cost.answers == strategy.query.shape[0]
    assert strategy.cost.seconds > 0
    assert strategy.cost.bytes >= 8 * strategy.cost.answers


def test_marginals_count_their_own_cells_alone():
    many = ps.Domain.of({f"a{i}": 10 for i in range(30)})
    cost = ps.select.residual(ps.marginals(many, up_to=2)).cost
    assert cost.cells == cost.answers == 1 + 30 * 10 + 435 * 100
    assert cost.bytes < 10**7
    assert ps.select.h2(ps.marginals(GRID, k=1)).cost.cells == 30


def test_more_costs_more():
    sizes = (100, 1000, 10000)
    costs = [
        ps.select.identity(ps.Workload(ps.Domain.of(a=n, b=n), [ps.product()])).cost for n in sizes
    ]
    assert sorted(c.seconds for c in costs) == [c.seconds for c in costs]
    assert costs[1].bytes == 100 * costs[0].bytes
    gaussian = ps.select.identity(ps.Workload(ps.Domain.of(a=100), [ps.product()]), "gaussian")
    assert gaussian.cost.seconds > costs[0].seconds * 100 / 10**4


@pytest.mark.parametrize(
    ("seconds", "size", "text"),
    [
        (1e-5, 10, "about 0.01 s and 0.1 MB"),
        (0.034, 3 * 10**6, "about 0.03 s and 3 MB"),
        (2.4, 4 * 10**8, "about 2 s and 0.4 GB"),
        (47.0, 10**10, "about 47 s and 10 GB"),
        (200.0, 2 * 10**11, "about 3 min and 0.2 TB"),
        (9000.0, 10**6, "about 2 hours and 1 MB"),
        (1e7, 10**6, "about 120 days and 1 MB"),
    ],
)
def test_it_reads_well(seconds, size, text):
    assert repr(Cost(1, 1, seconds, size, "product")) == text


def test_merged_attributes_whose_queries_are_products_have_a_cost():
    workload = ps.Workload.from_sql(
        ps.Domain.of(a=5, b=4, c=3),
        "SELECT COUNT(*) FROM t WHERE a < 2 OR b = 1; SELECT a, c, COUNT(*) FROM t GROUP BY a, c",
    )
    cost = ps.select.workload(workload).cost
    assert cost.cells == workload.domain.size
    assert cost.answers == workload.shape[0]
