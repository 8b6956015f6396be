"""OPT_+: exact errors and gradients of unions, and what they gain over their parts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose

from psephos.domain.domain import Domain
from psephos.matrix import Compose, Dense, Identity, Kron, Ones, Partition, Prefix
from psephos.strategy.deadline import Deadline
from psephos.strategy.factors import Factor, GaussianFactor, PureFactor, identity_factor, spread
from psephos.strategy.gram_terms import GramTerms
from psephos.strategy.hdmm.product import opt_product
from psephos.strategy.hdmm.union import PartUnion, best_shares, cuts_in_two, opt_union
from psephos.strategy.hdmm.union_pair import ProductPair, UnionObjective, descend
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload import (
    Workload,
    all_range,
    identity,
    prefix,
    product,
    range_marginals,
)
from tests.strategy.finite_differences import check_gradient

LAPLACE = NoiseKind.LAPLACE
NOISES = list(NoiseKind)


def mixed() -> Workload:
    domain = Domain.of(a=range(5), b=range(4), c=range(3))
    return Workload(
        domain,
        [
            product(a=all_range(), c=identity()),
            product(b=all_range(), c=identity(), weight=2.0),
            product(a=prefix(), b=identity(), c=prefix()),
        ],
    )


def merging() -> tuple[GramTerms, tuple[tuple[Array, ...], tuple[Array, ...]]]:
    """Three axes, two products that merge cells differently."""
    some, other = np.array([0, 1, 1, 2, 2]), np.array([0, 0, 1])
    first = (Prefix(5), Ones(1, 4), Compose((Prefix(2), Partition(other))))
    second = (Compose((Prefix(3), Partition(some))), Identity(4), Prefix(3))
    groups = (
        (np.arange(5), np.zeros(4, dtype=int), other),
        (some, np.arange(4), np.arange(3)),
    )
    return GramTerms((5, 4, 3), np.array([1.0, 2.0]), (first, second)), groups


def joints() -> dict[str, tuple[UnionObjective, int, list[int]]]:
    """Unions with the number of their parts and the cells of their factors."""
    two = GramTerms.of(Workload(Domain.of(a=6, b=5), [product(a=prefix()), product(b=identity())]))
    three = GramTerms.of(mixed())
    square = tuple(np.arange(n) for n in two.shape)
    plain = tuple(np.arange(n) for n in three.shape)
    merged, groups = merging()
    return {
        "pair, two axes": (ProductPair(two, LAPLACE, (square, square)), 2, [6, 5] * 2),
        "pair, three axes": (ProductPair(three, LAPLACE, (plain, plain)), 2, [5, 4, 3] * 2),
        "pair, merged": (ProductPair(merged, LAPLACE, groups), 2, [5, 1, 2, 3, 4, 3]),
    }  # fmt: skip


JOINTS = joints()


def blocks_of(joint: UnionObjective, factors: list[Factor]) -> list[Kron]:
    """The parts over all cells of a union."""
    assert isinstance(joint, ProductPair)
    d = len(joint.terms.shape)
    return [
        Kron([Dense(factors[s * d + i].matrix.dense()[:, joint.groups[s][i]]) for i in range(d)])
        for s in range(2)
    ]


def dense_error(blocks: list[Kron], precisions: Array, queries: Array) -> float:
    """tr(X⁺G), written out."""
    x = sum(
        c * block.dense().T @ block.dense() for c, block in zip(precisions, blocks, strict=True)
    )
    return float(np.trace(np.linalg.pinv(x, rcond=1e-12, hermitian=True) @ queries))


def written(terms: GramTerms) -> Array:
    grams = [Kron(f).dense().T @ Kron(f).dense() for f in terms.factors]
    return np.asarray(sum(c * g for c, g in zip(terms.coefficients, grams, strict=True)))


@pytest.mark.parametrize("name", JOINTS)
def test_error_is_the_dense_formula(name: str) -> None:
    joint, parts, cells = JOINTS[name]
    rng = default_rng(1)
    shares = rng.random(parts)
    factors: list[Factor] = [PureFactor(rng.random((2, n))) for n in cells]
    queries = written(joint.terms)  # type: ignore[attr-defined]
    expected = dense_error(blocks_of(joint, factors), (shares / shares.sum()) ** 2, queries)
    assert_allclose(joint.error(shares, factors), expected, rtol=1e-9)


@pytest.mark.parametrize("name", JOINTS)
def test_gradient_is_that_of_finite_differences(name: str) -> None:
    joint, parts, cells = JOINTS[name]
    rng = default_rng(2)
    point = [rng.random(parts), *(rng.random((2, n)) for n in cells)]
    check_gradient(joint, point, 1e-6)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    "workload",
    [
        mixed(),
        range_marginals(Domain.of(a=range(6), b=range(5), c=["x", "y"]), k=2),
        Workload(
            Domain.of(a=range(6), b=range(5)),
            [product(a=prefix(), b=identity()), product(a=identity(), b=prefix())],
        ),
    ],
    ids=["mixed", "range marginals", "P⊗I and I⊗P"],
)
def test_a_union_is_what_it_says(workload: Workload, noise: str) -> None:
    union = opt_union(workload, noise, rng=default_rng(0), restarts=1)  # type: ignore[arg-type]
    assert union is not None
    assert union.exact
    assert_allclose(union.weights.sum(), 1)
    assert (union.weights > 0).all()
    norm = noise.norm
    for part in union.parts:
        cells = Workload(workload.domain, [workload.products[j] for j in part.chosen]).reduce()
        assert tuple(f.cells for f in part.factors) == cells.domain.shape
        assert cells.partition.factors == part.merged  # type: ignore[attr-defined]
    for block in spread_out(union):
        norms = np.linalg.norm(block.dense(), norm, axis=0)
        assert_allclose(norms, 1)
    queries = {j for part in union.parts for j in part.chosen}
    assert queries == set(range(len(workload.products)))
    precisions = union.weights**noise.power
    expected = dense_error(spread_out(union), precisions, written(GramTerms.of(workload)))
    assert_allclose(union.error, expected, rtol=1e-6)


def spread_out(union: PartUnion) -> list[Kron]:
    return [
        Kron([spread(f.matrix, m) for f, m in zip(part.factors, part.merged, strict=True)])
        for part in union.parts
    ]


@pytest.mark.parametrize(("weight", "equal"), [(1.0, 1.0), (10.0, 1.45), (100.0, 1.77)])
def test_the_cube_root_rule_is_nearly_the_best_split(weight: float, equal: float) -> None:
    domain = Domain.of(a=range(64), b=range(64))
    workload = Workload(domain, [product(a=all_range()), product(b=all_range(), weight=weight)])
    terms = GramTerms.of(workload)
    line = GramTerms.of(Workload(Domain.of(a=range(64)), [product(a=all_range())]))
    alone = opt_product(line, LAPLACE, rng=default_rng(0), restarts=2)
    one = identity_factor(1)
    whole, none = np.arange(64), np.zeros(64, dtype=int)
    pair = ProductPair(terms, LAPLACE, ((whole, none), (none, whole)))
    factors = [alone.factors[0], one, one, alone.factors[0]]
    rule, _ = best_shares([alone.error, weight**2 * alone.error], LAPLACE)
    _, least = pair.split(factors, rule)
    assert np.sqrt(pair.error(rule, factors) / least) < 1.001
    assert_allclose(np.sqrt(pair.error(np.ones(2), factors) / least), equal, atol=0.02)


def test_the_descent_never_ends_worse() -> None:
    for noise in NOISES:
        terms = GramTerms.of(mixed())
        plain = tuple(np.arange(n) for n in terms.shape)
        pair = ProductPair(terms, noise, (plain, plain))  # type: ignore[arg-type]
        rng = default_rng(3)
        factors: list[Factor] = []
        for n in terms.shape * 2:
            a = rng.random((n, n))
            root = a / np.linalg.norm(a, axis=0)
            factors.append(PureFactor(a[:2]) if noise == LAPLACE else GaussianFactor(root))
        start = pair.error(np.array([0.5, 0.5]), factors)
        point = descend(pair, np.array([0.5, 0.5]), factors)
        assert point.error < 0.95 * start
        assert_allclose(pair.error(point.shares, point.factors), point.error, rtol=1e-9)
        late = descend(pair, np.array([0.5, 0.5]), factors, deadline=Deadline(0.0))
        assert point.error <= late.error <= start


def test_cuts_are_by_what_is_asked() -> None:
    cuts = cuts_in_two(GramTerms.of(mixed()))
    assert all(sorted(j for group in cut for j in group) == [0, 1, 2] for cut in cuts)
    assert {len(cut) for cut in cuts} == {2}
    same = Workload(Domain.of(a=range(4)), [product(a=prefix()), product(a=prefix(), weight=2.0)])
    assert cuts_in_two(GramTerms.of(same)) == []


def test_no_union_of_one_product() -> None:
    one = Workload(Domain.of(a=range(4)), [product(a=prefix())])
    assert opt_union(one, LAPLACE, rng=default_rng(0), restarts=1) is None
    same = Workload(Domain.of(a=range(4)), [product(a=prefix()), product(a=prefix(), weight=2.0)])
    assert opt_union(same, LAPLACE, rng=default_rng(0), restarts=1) is None


def test_the_same_seed_gives_the_same_union() -> None:
    first, second = (opt_union(mixed(), LAPLACE, rng=default_rng(7), restarts=1) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.error == second.error
    assert_allclose(first.weights, second.weights, rtol=0)
    for a, b in zip(spread_out(first), spread_out(second), strict=True):
        assert_allclose(a.dense(), b.dense(), rtol=0)


def test_progress_and_deadline() -> None:
    seen: list[float] = []
    union = opt_union(mixed(), LAPLACE, rng=default_rng(0), restarts=1, progress=seen.append)
    assert union is not None
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == union.error
    late = opt_union(mixed(), LAPLACE, rng=default_rng(0), restarts=1, deadline=Deadline(0.0))
    assert late is not None
    assert late.error >= union.error


def test_what_is_too_large_to_invert_keeps_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psephos.strategy.hdmm.union.PAIR_SEARCH_CELLS", 10)
    domain = Domain.of(a=range(5), b=range(6))
    products = [
        product(a=prefix(), b=identity()),
        product(a=identity(), b=prefix()),
        product(a=all_range(), b=all_range()),
    ]
    workload = Workload(domain, products)
    union = opt_union(workload, LAPLACE, rng=default_rng(0), restarts=1)
    assert union is not None
    assert not union.exact
    exact = dense_error(spread_out(union), union.weights**2, written(GramTerms.of(workload)))
    assert exact < union.error
