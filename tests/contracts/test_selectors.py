"""One law suite for every selector: what it returns, what it promises, and what it refuses.

Joining the family is one line in `SELECTORS`. Which workloads a selector has no strategy for, or no
error in closed form, is written down in `REFUSALS`: whatever is not listed there must be served.
"""

import inspect
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose

import psephos as ps
from psephos.kernel import gate
from psephos.kernel.budget import Budget, exact
from psephos.kernel.measurement import noise_for
from psephos.strategy.fixed.baselines import direct_error
from psephos.strategy.hdmm import operators
from psephos.variances import NoiseKind

LAPLACE, GAUSSIAN = NoiseKind
ONCE = {"restarts": 1, "cores": 1}
SELECTORS = {
    "datacube": {},
    "greedy_h": {},
    "h2": {},
    "hb": {},
    "hdmm": ONCE,
    "identity": {},
    "low_rank": {"steps": 20},
    "matrix_mechanism": {"restarts": 0, "iterations": 30},
    "opt0": ONCE,
    "opt_marginals": ONCE,
    "opt_product": ONCE,
    "opt_union": ONCE,
    "privelet": {},
    "quadtree": {},
    "residual": {},
    "smallest_largest": ONCE,
    "tied": ONCE,
    "workload": {},
}
"""Every selector, and the options that make it quick."""
ONE_NOISE = {"opt_marginals": LAPLACE, "residual": GAUSSIAN}
"""Selectors that refuse the other kind of noise."""

PAIRS = ps.Domain.of(sex=["F", "M"], age=range(5))
WORKLOADS = {
    "line": ps.Workload(ps.Domain.of(age=8), [ps.product(age=ps.prefix())]),
    "merged": ps.Workload(PAIRS, [ps.product(age=ps.ranges([(0, 1), (2, 4), (0, 4)]))]),
    "product": ps.Workload(PAIRS, [ps.product(sex=ps.identity(), age=ps.all_range())]),
    "union": ps.Workload(
        PAIRS, [ps.product(age=ps.prefix(), weight=2.0), ps.product(sex=ps.identity())]
    ),
    "marginals": ps.marginals(PAIRS, k=1),
    "total": ps.Workload(ps.Domain.of(a=2, b=3, c=2), [ps.product()]),
    "irrational": ps.Workload(
        ps.Domain.of(a=4), [ps.product(a=ps.masks([[1, 2**0.5, 0, 0], [0, 0, 1, 1]]))]
    ),
    "wide": ps.marginals(ps.Domain.of({f"x{i}": 40 for i in range(8)}), k=1),
}
WRITTEN_OUT = [name for name, workload in WORKLOADS.items() if workload.domain.size <= 100]
"""Workloads whose errors can be compared with arrays."""

NO_MARGINALS = {"datacube": ps.WorkloadError}
ONE_PRODUCT = {"opt_union": ps.UnsupportedError}
ONE_ATTRIBUTE = {"opt_marginals": ps.UnsupportedError}
NO_LINE = {"tied": ps.UnsupportedError}
REFUSALS = {
    "line": NO_MARGINALS | ONE_PRODUCT | ONE_ATTRIBUTE,
    "merged": NO_MARGINALS | ONE_PRODUCT | ONE_ATTRIBUTE | NO_LINE,
    "product": NO_MARGINALS | ONE_PRODUCT | NO_LINE,
    "union": NO_MARGINALS | NO_LINE,
    "marginals": NO_LINE | {"opt0": ps.UnsupportedError},  # OPT_M serves tables
    "total": ONE_PRODUCT | ONE_ATTRIBUTE | NO_LINE | {"quadtree": ps.WorkloadError},
    "irrational": NO_MARGINALS
    | ONE_PRODUCT
    | ONE_ATTRIBUTE
    | NO_LINE
    | {"workload": ps.WorkloadError},  # no whole numbers stand for the root of two
    "wide": NO_LINE
    | dict.fromkeys(["greedy_h", "h2", "hb"], ps.TooLargeError)
    | dict.fromkeys(["low_rank", "matrix_mechanism"], ps.TooLargeError)
    | dict.fromkeys(["opt0", "opt_product", "opt_union"], ps.UnsupportedError)
    | {"quadtree": ps.WorkloadError},
}
"""Which selector refuses which workload, and how; all others serve it."""


def refusal(name, of, noise):
    """The error that a selector answers a workload with, or None."""
    if ONE_NOISE.get(name, noise) is not noise:
        return ps.UnsupportedError
    return REFUSALS[of].get(name)


EVERY = [(name, of, noise) for name in SELECTORS for of in WORKLOADS for noise in NoiseKind]
SERVED = [case for case in EVERY if refusal(*case) is None]
REFUSED = [case for case in EVERY if refusal(*case) is not None]
DENSE = [case for case in SERVED if case[1] in WRITTEN_OUT]
SEEDED = {name for name, options in SELECTORS.items() if options is ONCE}
SEEDED |= {"low_rank", "matrix_mechanism"}
EXAMPLES = [
    next(case for of in ("union", "marginals", "line") if (case := (name, of, noise)) in SERVED)
    for name in SELECTORS
    for noise in NoiseKind
    if ONE_NOISE.get(name, noise) is noise
]
"""Every selector with every noise that it serves, on the hardest workload that it serves."""


@pytest.fixture(autouse=True, scope="module")
def short_trees():
    """Trees serve lines of more than 4096 cells; here of more than four, and goals stop early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "LONG_AXIS", 4)
        patch.setattr("psephos.strategy.goals.REWEIGHTINGS", 2)
        yield


def select(name, of, noise, **options):
    return getattr(ps.select, name)(WORKLOADS[of], noise, **(SELECTORS[name] | options))


@cache
def selected(name, of, noise):
    return select(name, of, noise)


def dense_error(strategy, workload):
    """tr(X⁺WᵀW) from arrays: X = Σ (w_b/Δ)^power B_bᵀB_b, Δ the largest column sum of w|B|^norm."""
    kind = strategy.noise
    blocks = [(float(b.weight), b.matrix.dense()) for b in strategy.query.blocks]
    size = sum(w * (np.abs(b) ** kind.norm).sum(axis=0) for w, b in blocks).max()
    x = sum((w / size) ** kind.power * b.T @ b for w, b in blocks)
    queries = workload.matrix.dense()
    return np.trace(np.linalg.pinv(x, rcond=1e-12, hermitian=True) @ queries.T @ queries)


def error_of(name, of, noise):
    return selected(name, of, noise).expected_error(WORKLOADS[of])


def test_every_selector_is_held_to_these_laws():
    """A selector is what takes a workload first and returns a Strategy."""
    public = {}
    for name in ps.select.__all__:
        value = getattr(ps.select, name)
        if inspect.isfunction(value) and inspect.signature(value).return_annotation == "Strategy":
            public[name] = next(iter(inspect.signature(value).parameters))
    assert {name for name, first in public.items() if first == "workload"} == set(SELECTORS)
    # These take a strategy, read one, or call hdmm.
    others = {name for name, first in public.items() if first != "workload"}
    assert others == {"budgeted", "cached", "load"}


@pytest.mark.parametrize(("name", "of", "noise"), SERVED)
def test_a_strategy_is_integers_with_an_error_in_closed_form(name, of, noise):
    strategy = selected(name, of, noise)
    assert type(strategy) is ps.Strategy
    assert strategy.domain == WORKLOADS[of].domain
    assert strategy.noise is noise
    assert strategy.query.shape[1] == strategy.domain.size
    assert gate.admit(strategy.query, "query") == strategy.query
    assert all(block.matrix.entry_type.kind == "i" for block in strategy.query.blocks)
    assert strategy.complete
    assert strategy.error_is_exact
    bound = ps.select.svd_bound(WORKLOADS[of])
    assert strategy.expected_error(WORKLOADS[of]) >= bound * (1 - 1e-9)
    # Rounding may help by chance.
    assert -1e-3 < strategy.rounding_loss < 0.02


@pytest.mark.parametrize(("name", "of", "noise"), DENSE)
def test_errors_are_those_of_the_integers(name, of, noise):
    strategy = selected(name, of, noise)
    assert_allclose(error_of(name, of, noise), dense_error(strategy, WORKLOADS[of]), rtol=1e-6)


# ---- guarantees --------------------------------------------------------------------------------


NEVER_WORSE_THAN_IDENTITY = ["hdmm", "opt0", "opt_product", "opt_marginals", "matrix_mechanism"]


@pytest.mark.parametrize(
    ("name", "of", "noise"), [case for case in SERVED if case[0] in NEVER_WORSE_THAN_IDENTITY]
)
def test_never_worse_than_identity(name, of, noise):
    # The bound is of real numbers; integers may lose the little that they say.
    loss = (1 + selected(name, of, noise).rounding_loss) ** 2
    assert error_of(name, of, noise) <= error_of("identity", of, noise) * loss * (1 + 1e-9)


@pytest.mark.parametrize(("name", "of", "noise"), [case for case in SERVED if case[0] == "hdmm"])
def test_hdmm_is_never_worse_than_noise_on_the_workload_nor_than_its_rivals(name, of, noise):
    error = error_of(name, of, noise)
    assert error <= direct_error(WORKLOADS[of], noise) * (1 + 1e-9)
    rivals = {rival.name: rival.error for rival in selected(name, of, noise).rivals}
    assert {"identity", "workload"} <= set(rivals)
    assert error <= min(rivals.values()) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "of", "noise"), [case for case in SERVED if case[0] == "workload"]
)
def test_inference_never_hurts_the_workload_itself(name, of, noise):
    assert error_of(name, of, noise) <= direct_error(WORKLOADS[of], noise) * (1 + 1e-9)


@pytest.mark.parametrize("of", ["marginals", "total", "wide"])
def test_residuals_meet_the_bound_for_marginals(of):
    assert_allclose(
        error_of("residual", of, GAUSSIAN), ps.select.svd_bound(WORKLOADS[of]), rtol=1e-5
    )


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("of", [of for of in WORKLOADS if of != "union"])  # weights do not count
def test_the_smallest_largest_error_is_no_larger_than_that_of_hdmm(of, noise):
    worst = [
        selected(name, of, noise).worst_errors(WORKLOADS[of]).max()
        for name in ("smallest_largest", "hdmm")
    ]
    assert worst[0] <= worst[1] * (1 + 1e-9)


# ---- seeds, budgets, files and names of noise ---------------------------------------------------


@pytest.mark.parametrize(("name", "of", "noise"), EXAMPLES)
def test_the_seed_decides(name, of, noise):
    """The same call gives the same strategy, whatever the state of numpy's own generator."""
    options = {"seed": 3} if name in SEEDED else {}
    np.random.seed(1)  # noqa: NPY002
    first = select(name, of, noise, **options)
    np.random.seed(2)  # noqa: NPY002
    again = select(name, of, noise, **options)
    assert first == again
    assert gate.to_bytes(first.query) == gate.to_bytes(again.query)


@pytest.mark.parametrize(("name", "of", "noise"), DENSE)
def test_variance_falls_with_the_spend_to_the_noises_power(name, of, noise):
    """2/ε² or 1/(2ρ) times the budget-free error, where the noise is so wide that it is smooth."""
    strategy, workload = selected(name, of, noise), WORKLOADS[of]
    free = strategy.product_errors(workload).sum()
    spends = [exact(amount, "spend") for amount in ("1e-6", "3e-6")]
    totals = [
        strategy.rmse(workload, Budget(noise.currency, spend), ps.add_remove_row()) ** 2
        * workload.shape[0]
        for spend in spends
    ]
    unit = {LAPLACE: 2.0, GAUSSIAN: 0.5}[noise]
    assert_allclose(totals, [unit * free / float(s) ** noise.power for s in spends], rtol=1e-6)
    assert totals[0] / totals[1] == pytest.approx(3**noise.power, rel=1e-6)


@pytest.mark.parametrize(("name", "of", "noise"), EXAMPLES)
def test_drawn_noise_errs_as_expected(name, of, noise):
    """Least squares from noise alone: the mean of 400 squared errors, within seven deviations.

    Of 300,000 means over squares of single Laplace draws one went that far; sums, as here, are far
    less skewed.
    """
    strategy, workload = selected(name, of, noise), WORKLOADS[of]
    spend, unit = Budget(noise.currency, exact("1/2", "spend")), ps.add_remove_row()
    noises, form = noise_for(strategy.query, spend, unit, 1), strategy.form(spend, unit)
    sizes = [block.matrix.shape[0] for block in strategy.query.blocks]
    draws = [
        each.draw(400 * size).reshape(400, size) for each, size in zip(noises, sizes, strict=True)
    ]
    squares = []
    for values in zip(*draws, strict=True):
        fitted = form.fit([value.copy() for value in values])
        answers = [fitted.answers(workload.factors(i)) for i in range(len(workload.products))]
        squares.append(sum(float(np.sum(answer**2)) for answer in answers))
    expected = strategy.rmse(workload, spend, unit) ** 2 * workload.shape[0]
    assert abs(np.mean(squares) - expected) <= 7 * np.std(squares) / np.sqrt(len(squares))


@pytest.mark.parametrize(("name", "of", "noise"), EXAMPLES)
def test_files_give_back_what_was_saved(name, of, noise, tmp_path):
    strategy, file = selected(name, of, noise), tmp_path / "some.strategy"
    ps.select.save(strategy, file)
    loaded = ps.select.load(file, WORKLOADS[of].domain)
    assert loaded == strategy
    assert loaded.noise is noise
    assert loaded.rivals == strategy.rivals
    assert loaded.expected_error(WORKLOADS[of]) == error_of(name, of, noise)
    content = file.read_bytes()
    ps.select.save(loaded, file)
    assert file.read_bytes() == content


@pytest.mark.parametrize(("name", "of", "noise"), EXAMPLES)
def test_noise_is_a_name_or_a_kind(name, of, noise):
    strategy = select(name, of, noise.value)
    assert strategy == selected(name, of, noise)
    assert strategy.noise is noise
    with pytest.raises(ps.WorkloadError, match='"laplace" or "gaussian", got \'cauchy\''):
        select(name, of, "cauchy")


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "of", "noise"), REFUSED)
def test_what_is_refused_is_refused_in_words(name, of, noise):
    with pytest.raises(ps.PsephosError) as caught:
        select(name, of, noise).expected_error(WORKLOADS[of])
    assert type(caught.value) is refusal(name, of, noise)
    assert len(str(caught.value).split()) > 8


@pytest.mark.parametrize("name", SELECTORS)
def test_only_a_workload_is_served(name):
    noise = ONE_NOISE.get(name, LAPLACE)
    with pytest.raises(ps.WorkloadError, match="for a workload, got str"):
        getattr(ps.select, name)("SELECT COUNT(*) FROM t", noise)
    nothing = ps.Workload(PAIRS, [ps.product(age=ps.masks([[0] * 5]))])
    with pytest.raises(ps.WorkloadError, match="counts nothing"):
        getattr(ps.select, name)(nothing, noise)


def test_trees_are_for_long_lines(monkeypatch):
    monkeypatch.setattr(operators, "LONG_AXIS", 4096)
    with pytest.raises(ps.UnsupportedError, match="tied tree does not fit"):
        select("tied", "line", LAPLACE)
