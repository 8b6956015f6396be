"""Handles: what they give, what they refuse, what they cost."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import psephos as ps
from psephos import matrix as mx
from psephos.errors import BudgetError, BudgetExceededError, RefusedError, ShapeError, TooLargeError
from psephos.infer.least_squares import block_answers
from psephos.kernel import protected, vault
from psephos.kernel.budget import epsilon, rho
from psephos.kernel.query import Query
from psephos.kernel.scores.worst_approximated import WorstApproximated
from psephos.kernel.simulate import counted, simulation
from psephos.kernel.source import Conjunct
from psephos.kernel.unit import add_remove_row, person, substitute_row

DOMAIN = ps.Domain.of(sex=["F", "M"], age=6, region=3)
COUNTS = np.arange(36) * 7 + 1


class Silent:
    """No noise at all, to see what is counted."""

    simulation = True

    def noise(self, noise, size):
        return np.zeros(size, dtype=np.int64)

    def choice(self, scores, epsilon, sensitivity, mechanism):
        return int(np.argmax(scores))


def data(unit=None, budget=None, silent=True):
    table = simulation(
        counted(COUNTS, DOMAIN),
        DOMAIN,
        unit=unit or add_remove_row(),
        budget=budget or epsilon("100"),
        seed=0,
    )
    if silent:
        table._vault.draws = Silent()
    return table


def spent(handle):
    return handle._vault.ledger.spent


def test_measurements_count_what_they_ask():
    x = COUNTS.reshape(DOMAIN.shape)
    table = data()
    everyone = table.vectorise()
    one = epsilon("1")
    assert everyone.measure(mx.Identity(36), spend=one).values.tolist() == COUNTS.tolist()
    marginal = mx.Kron((mx.Identity(2), mx.total(6), mx.Prefix(3)))
    expected = np.cumsum(x.sum(axis=1), axis=1).ravel().tolist()
    assert everyone.measure(marginal, spend=one).values.tolist() == expected
    assert table.noisy_count(spend=one).values.tolist() == [COUNTS.sum()]
    adults = table.where((ps.col("age") >= 3) & (ps.col("sex") == "F"))
    assert adults.noisy_count(spend=one).values.tolist() == [x[0, 3:].sum()]
    either = table.where((ps.col("age") == 0) | (ps.col("sex") == "F"))
    assert either.noisy_count(spend=one).values.tolist() == [x[0].sum() + x[1, 0].sum()]
    narrow = adults.keep("region", "sex").vectorise()
    assert narrow.size == 6
    assert narrow.measure(mx.Identity(6), spend=one).values.tolist() == [
        *x[:, 3:].sum(axis=1)[0].reshape(-1)[:0],
        *np.stack([x[0, 3:].sum(axis=0), np.zeros(3, int)], axis=1).ravel(),
    ]
    parts = table.split("sex")
    assert {k: p.noisy_count(spend=one).values[0] for k, p in parts.items()} == {
        "F": x[0].sum(),
        "M": x[1].sum(),
    }


def test_marginals_never_need_the_whole_vector():
    wide = ps.Domain.of({f"x{i}": 10 for i in range(30)})

    asked = []

    class Few:
        row_abilities = frozenset()

        def take(self, domain, cap, folder):
            return self

        def counts(self, tables, keep):
            asked.extend(tables)
            shapes = [[wide[name].size for name in names] for names in tables]
            return [np.zeros(shape, dtype=np.int64) for shape in shapes]

    table = simulation(Few(), wide, unit=add_remove_row(), budget=epsilon("1"), seed=0)
    factors = [mx.total(10)] * 30
    factors[3], factors[17] = mx.Identity(10), mx.Prefix(10)
    y = table.vectorise().measure(mx.Kron(tuple(factors)), spend=epsilon("1/2"))
    assert y.values.size == 100
    assert asked == [("x3", "x17")]
    assert table.noisy_count(spend=epsilon("1/4")).values.size == 1
    assert asked[1:] == [()]
    with pytest.raises(TooLargeError, match="over the limit"):
        table.vectorise().measure(mx.Kron((mx.Identity(10),) * 30), spend=epsilon("1/2"))
    assert table._vault.ledger.spent == Fraction(3, 4)


@pytest.mark.parametrize("portion", [1, 40, 1 << 22])
@pytest.mark.parametrize("huge", [False, True])
def test_blocks_that_are_answered_together_keep_their_order(portion, huge, monkeypatch):
    """Marginals and residuals of equal and of unlike attributes, in portions of any size."""
    monkeypatch.setattr(protected, "PORTION", portion)
    domain = ps.Domain.of(a=3, b=3, c=4, d=3)
    counts = np.random.default_rng(0).integers(0, 9, domain.size)
    if huge:  # beyond 64 bits after the products below
        counts = counts + (1 << 55)
    table = simulation(
        counted(counts, domain), domain, unit=add_remove_row(), budget=rho("1"), seed=0
    )
    blocks = []
    for axes in [(0, 1), (2,), (1, 3), (), (0, 1, 3), (0, 2), (3,), (0, 3)]:
        for inside in (mx.Identity, lambda n: mx.Dense(n * np.eye(n, dtype=np.int64) - 1)):
            factors = [inside(n) if i in axes else mx.total(n) for i, n in enumerate(domain.shape)]
            blocks.append((mx.Kron(tuple(factors)), 1 + len(blocks) % 3))
    noisy = table.vectorise().measure(Query.of(blocks), spend=rho("1"))
    start = 0
    for (matrix, _), law in zip(blocks, noisy.noise, strict=True):
        true = matrix.matvec(counts.astype(object))
        values = noisy.values[start : start + len(true)]
        far = 9 * float(law.exact_variance) ** 0.5 + 9
        assert all(abs(int(x) - int(y)) < far for x, y in zip(values, true, strict=True))
        start += len(true)
    assert start == len(noisy.values)


def test_old_counts_are_made_anew(monkeypatch):
    monkeypatch.setattr(vault, "MOST_KEPT", 10)
    domain = ps.Domain.of(a=3, b=4)
    table = simulation(
        counted(np.arange(12), domain), domain, unit=add_remove_row(), budget=rho("4"), seed=0
    )
    vector = table.vectorise()
    for _ in range(2):
        for matrix in (mx.Identity(12), mx.Kron((mx.Identity(3), mx.total(4)))):
            noisy = vector.measure(matrix, spend=rho("1"))
            assert abs(noisy.values - matrix.matvec(np.arange(12))).max() < 9
            assert sum(t.size for kept in vector._vault.kept.values() for t in kept) <= 12


def test_what_does_not_fit_is_refused_before_it_is_charged():
    line = ps.Domain.of(x=50_000)
    table = simulation(
        counted(np.zeros(50_000, int), line), line, unit=add_remove_row(), budget=rho(1), seed=0
    )
    with pytest.raises(TooLargeError, match="over the limit"):
        table.vectorise().transform(mx.AllRange(50_000)).noisy_count(spend=rho("1/2"))
    assert spent(table) == 0


def test_vectors_are_reduced_split_and_transformed():
    v = data().vectorise()
    one = epsilon("1")
    halves = mx.Partition(np.arange(36) % 2)
    reduced = v.reduce(halves)
    assert reduced.measure(mx.Identity(2), spend=one).values.tolist() == [
        COUNTS[::2].sum(),
        COUNTS[1::2].sum(),
    ]
    even, odd = v.split(halves)
    assert even.measure(mx.Identity(18), spend=one).values.tolist() == COUNTS[::2].tolist()
    assert odd.noisy_count(spend=one).values.tolist() == [COUNTS[1::2].sum()]
    twice = v.transform(mx.Scaled(3, mx.Prefix(36))).reduce(mx.Partition([0] * 36))
    y = twice.measure(mx.Identity(1), spend=one)
    assert y.values[0] == 3 * np.cumsum(COUNTS).sum()
    (piece,) = block_answers([y])
    assert (piece.matrix @ COUNTS).tolist() == y.values.tolist()


@pytest.mark.parametrize("unit", [add_remove_row(), substitute_row(), person("id", max_rows=4)])
@pytest.mark.parametrize("currency", [epsilon, rho])
def test_the_root_pays_what_was_spent(unit, currency):
    table = data(unit, currency("100"))
    table.where(ps.col("age") > 2).vectorise().measure(mx.Identity(36), spend=currency("1/3"))
    assert spent(table) == Fraction(1, 3)
    parts = table.split("region")
    for part in parts.values():
        part.vectorise().measure(mx.Identity(12), spend=currency("1/2"))
    assert spent(table) == Fraction(1, 3) + Fraction(1, 2)


@given(
    reach=st.integers(1, 50),
    unit=st.sampled_from([add_remove_row(), substitute_row(), person("id", max_rows=3)]),
    amount=st.sampled_from(["1", "1/7", "3"]),
)
def test_noise_grows_with_distance_and_stability(reach, unit, amount):
    """Δ, D and s all enter the scale: halving any of them halves this."""
    v = data(unit).vectorise().transform(mx.Scaled(reach, mx.Identity(36)))
    y = v.measure(mx.Stack((mx.Identity(36), mx.total(36))), spend=epsilon(amount))
    exact = Fraction(2 * unit.distance * reach) / Fraction(amount)
    assert exact <= y.noise[0].scale <= exact * (1 + Fraction(1, 2**20))
    w = data(unit, rho("100")).vectorise().transform(mx.Scaled(reach, mx.Identity(36)))
    z = w.measure(mx.Stack((mx.Identity(36), mx.total(36))), spend=rho(amount))
    exact = Fraction(2 * (unit.distance * reach) ** 2) / (2 * Fraction(amount))
    assert exact <= z.noise[0].variance <= exact * (1 + Fraction(1, 2**20))


def test_filters_have_stability_one():
    table = data().where(ps.col("age") > 1).where(ps.col("sex") == "F").keep("age")
    assert table._node.stability == 1


def test_scaled_masks_cost_their_scale():
    """A mask of a million through a transform does not recover a count."""
    v = data(silent=False).vectorise().transform(mx.Scaled(10**6, mx.Identity(36)))
    y = v.measure(mx.Identity(36), spend=epsilon("1"))
    assert y.noise[0].scale >= 10**6
    assert np.abs(y.values / 10**6 - COUNTS).max() > 0.01


def test_blocks_get_noise_by_their_weight():
    query = Query.of([(mx.Identity(36), 1), (mx.total(36), 3)])
    y = data().vectorise().measure(query, spend=epsilon("1/2"))
    assert [n.scale for n in y.noise] == [8, Fraction(8, 3)]
    assert y.variances.shape == (37,)


def test_group_by():
    grouped = data().group_by("region", "sex", most=500)
    assert grouped.domain.names == ("region", "sex", "count")
    assert grouped._node.stability == 2
    table = grouped.vectorise().measure(mx.Identity(grouped.domain.size), spend=epsilon("1"))
    cells = table.values.reshape(3, 2, 501)
    x = COUNTS.reshape(DOMAIN.shape).sum(axis=1).T
    for r in range(3):
        for s in range(2):
            assert cells[r, s].sum() == 1
            assert cells[r, s, min(x[r, s], 500)] == 1
    small = grouped.where(ps.col("count") < 400).keep("count")
    assert small.noisy_count(spend=epsilon("1")).values[0] == (x < 400).sum()
    with pytest.raises(RefusedError, match="most"):
        data().group_by("region", most=0)
    with pytest.raises(RefusedError, match="group_by needs most: the largest count"):
        data().group_by("region")
    for repeated in (
        lambda: data().group_by("sex", "sex", most=3),
        lambda: data().keep("sex", "sex"),
    ):
        with pytest.raises(ps.DomainError, match="declared twice"):
            repeated()


def test_masks_follow_their_names():
    either = (ps.col("age") < 2) | (ps.col("sex") == "M")
    plain = data().where(either).noisy_count(spend=epsilon("1")).values[0]
    turned = data().keep("age", "sex").where(either).noisy_count(spend=epsilon("1")).values[0]
    assert plain == turned
    with pytest.raises(RefusedError, match="another name"):
        data().group_by("sex", most=3, count="sex")
    with pytest.raises(TooLargeError):
        data().group_by("sex", most=10**12)


def test_group_by_moves_two_rows_per_row():
    """One row more: the largest L1 distance of grouped tables is 2, and it is reached."""
    moved = []
    for cell in range(36):
        tables = []
        for extra in (0, 1):
            counts = COUNTS.copy()
            counts[cell] += extra
            table = simulation(
                counted(counts, DOMAIN), DOMAIN, unit=add_remove_row(), budget=epsilon(9), seed=0
            )
            table._vault.draws = Silent()
            grouped = table.group_by("sex", most=10**4).vectorise()
            tables.append(grouped.measure(mx.Identity(grouped.size), spend=epsilon(1)).values)
        moved.append(np.abs(tables[0] - tables[1]).sum())
    assert max(moved) == 2


def test_budgets_run_out_and_nothing_is_lost():
    table = data(budget=epsilon("0.3"))
    for _ in range(3):
        table.noisy_count(spend=epsilon("0.1"))
    with pytest.raises(BudgetExceededError) as error:
        table.noisy_count(spend=epsilon("0.1"))
    assert error.value.requested == epsilon("0.1")
    assert spent(table) == Fraction(3, 10)


def test_pure_spending_on_a_rho_budget_books_half_the_square():
    table = data(budget=rho("10"))
    y = table.noisy_count(spend=epsilon("2"))
    assert y.cost == rho("2")
    assert y.noise[0].scale == Fraction(1, 2)
    assert spent(table) == 2
    with pytest.raises(BudgetError, match="keeps epsilon"):
        data().noisy_count(spend=rho("1"))


class Forged:
    currency = "epsilon"
    amount = Fraction(1)


@pytest.mark.parametrize("spend", [0.1, "0.1", 1, None, Forged(), -1])
def test_spend_is_a_budget_and_nothing_else(spend):
    with pytest.raises(BudgetError):
        data().noisy_count(spend=spend)


def test_budgets_forged_by_hand_are_refused():
    from psephos.kernel.budget import Budget

    for amount in (Fraction(-1), Fraction(0), 0.5, float("nan")):
        with pytest.raises(BudgetError):
            data().noisy_count(spend=Budget("epsilon", amount))
        forged = epsilon("1")
        object.__setattr__(forged, "amount", amount)
        with pytest.raises(BudgetError):
            data().noisy_count(spend=forged)
    with pytest.raises(BudgetError):
        data().noisy_count(spend=Budget("euros", Fraction(1)))


@pytest.mark.parametrize(
    "look",
    [
        np.asarray,
        np.sum,
        list,
        len,
        bool,
        float,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda h: h[0],
        lambda h: 1 in h,
        lambda h: h < 3,
        lambda h: np.array([1]) @ h,
    ],
)
def test_handles_have_nothing_to_show(look):
    for handle in (data(), data().vectorise()):
        with pytest.raises((RefusedError, TypeError)):
            look(handle)


def test_reprs_show_domain_and_budget_only():
    text = repr(data(budget=epsilon("1")))
    assert "Domain(sex: 2, age: 6, region: 3; 36 cells)" in text
    assert "epsilon 1 left of epsilon 1" in text
    assert "simulation" in text
    assert "36 cells" in repr(data().vectorise())


def test_no_public_attribute_leads_to_the_counts():
    for handle in (data(), data().vectorise()):
        for name in dir(handle):
            if not name.startswith("_"):
                value = getattr(handle, name)
                assert not isinstance(value, np.ndarray)
                assert callable(value) or isinstance(value, ps.Domain | ps.Unit | int)


def test_the_unit_that_a_handle_shows_is_a_copy():
    """Whoever changes it changes nothing: noise and price go by the kernel's own."""
    handle = data()
    object.__setattr__(handle.unit, "max_rows", 10**6)
    assert handle.unit.max_rows == 1
    assert handle.vectorise().unit is not handle.vectorise().unit


def test_what_has_no_rule_is_refused():
    v = data().vectorise()
    with pytest.raises(RefusedError, match="text is never evaluated"):
        data().where("__import__('os').system('true')")
    with pytest.raises(RefusedError):
        data().where(lambda row: True)
    with pytest.raises(RefusedError):
        v.reduce(mx.Dense(np.ones((1, 36), dtype=int)))
    with pytest.raises(RefusedError):
        v.split([0] * 36)
    with pytest.raises(ShapeError):
        mx.Partition([0, 2])
    with pytest.raises(RefusedError):
        v.measure(mx.PIdentity.of(np.ones((1, 36))), spend=epsilon("1"))
    with pytest.raises(RefusedError):
        v.measure("SELECT", spend=epsilon("1"))
    with pytest.raises(ShapeError, match="36 cells"):
        v.measure(mx.Identity(35), spend=epsilon("1"))
    with pytest.raises(RefusedError, match="zero everywhere"):
        v.measure(mx.Dense(np.zeros((1, 36), dtype=int)), spend=epsilon("1"))
    assert spent(v) == 0


def test_simulations_say_so_and_repeat():
    first = data(silent=False).noisy_count(spend=epsilon("1"))
    again = data(silent=False).noisy_count(spend=epsilon("1"))
    assert first.values.tolist() == again.values.tolist()
    assert first.simulation
    assert "Simulated" in repr(first)
    with pytest.raises(RefusedError, match="simulation"):
        first.require_release()


def test_simulated_noise_has_the_stated_variance():
    table = simulation(
        counted(np.zeros(4000, int), ps.Domain.of(x=4000)),
        ps.Domain.of(x=4000),
        unit=add_remove_row(),
        budget=rho("100"),
        seed=1,
    )
    for spend in (epsilon("1/5"), rho("1/100"), rho("1/100000")):
        y = table.vectorise().measure(mx.Identity(4000), spend=spend)
        assert abs(y.values.var() / y.variances[0] - 1) < 0.2


def test_measurements_know_the_counts_they_are_of():
    people = data()
    v = people.vectorise()
    one = epsilon("1/100")
    whole, part = v.noisy_count(spend=one), v.transform(mx.Prefix(v.size)).noisy_count(spend=one)
    other = people.where(ps.col("sex") == "F").vectorise().noisy_count(spend=one)
    assert whole.base == part.base != other.base


@pytest.mark.parametrize("estimate", [[[1], 2], 7, None, "text", np.zeros((36, 2), int)])
def test_estimates_of_another_shape_are_refused(estimate):
    with pytest.raises(ShapeError, match="36 whole 64-bit numbers"):
        data().vectorise().choose(WorstApproximated(mx.Identity(36), estimate), spend=epsilon("1"))


def test_arrays_of_too_many_axes_are_refused_before_the_charge():
    many = ps.Domain.of({f"x{i}": 1 for i in range(70)})
    counts = counted(np.ones(1, int), many)
    table = simulation(counts, many, unit=add_remove_row(), budget=epsilon("1"), seed=0)
    with pytest.raises(RefusedError, match="over 64 attributes"):
        table.vectorise().measure(mx.Kron((mx.Identity(1),) * 70), spend=epsilon("1"))
    assert spent(table) == 0


def test_a_request_in_the_middle_of_another_is_refused():
    table = data()

    class Nested(Silent):
        def noise(self, noise, size):
            table.noisy_count(spend=epsilon("1"))

    table._vault.draws = Nested()
    with pytest.raises(RefusedError, match="a request is being made"):
        table.noisy_count(spend=epsilon("1"))
    table._vault.draws = Silent()
    assert table.noisy_count(spend=epsilon("1")).values.tolist() == [COUNTS.sum()]


def test_what_a_fork_took_along_is_not_answered(monkeypatch):
    table, numbers = data(), iter([(1, 0), (1, 1)])
    monkeypatch.setattr("psephos.kernel.vault.process", lambda: next(numbers))
    with pytest.raises(RefusedError, match="forked in the middle"):
        table.noisy_count(spend=epsilon("1"))


@pytest.mark.parametrize(
    "name",
    [lambda table: table.keep(1), lambda table: table.split(None), lambda t: t.parts(b"sex")],
)
def test_attributes_are_named_by_text(name):
    with pytest.raises(RefusedError, match="attributes are named by text, got"):
        name(data())


def test_a_budget_is_checked_without_a_charge():
    vector = data(budget=epsilon("1")).vectorise()
    vector.check_budget(epsilon("1"))
    vector.noisy_count(spend=epsilon("3/4"), key="a")
    vector.check_budget(epsilon("1/4"))
    for key in (None, "a"):  # a simulation stores nothing, so nothing is free under a key
        with pytest.raises(BudgetExceededError, match=r"1/4 \(~0.25\) remains"):
            vector.check_budget(epsilon("1/2"), key=key)
    assert spent(vector) == Fraction(3, 4)


def test_products_on_another_grid_are_measured_like_any_matrix():
    """36 cells are 6 times 6 as well, and that is not the grid of the attributes."""
    matrix = mx.Kron((mx.Prefix(6), mx.total(6)))
    noisy = data().vectorise().measure(matrix, spend=epsilon("1"))
    assert noisy.values.tolist() == np.cumsum(COUNTS.reshape(6, 6).sum(axis=1)).tolist()


@pytest.mark.parametrize(
    "counts", [np.ones(35, int), np.ones(36), np.full(36, -1), np.ones(36, bool)]
)
def test_simulated_counts_are_whole_numbers_for_each_cell(counts):
    with pytest.raises(ps.DomainError, match="simulate needs 36 whole counts, none negative"):
        counted(counts, DOMAIN)


def test_masks_of_another_shape_count_nothing():
    """numpy would repeat them over the cells that they do not speak of."""
    with pytest.raises(ShapeError, match="needs 2 axes, got 1"):
        Conjunct(("sex", "age"), [True, False])
    cells = counted(COUNTS, DOMAIN).take(DOMAIN, None)
    assert cells.counts([()], (Conjunct(("sex",), [True, False]),))[0] == COUNTS[:18].sum()
    with pytest.raises(ShapeError, match=r"a mask over \('sex',\) has shape \(1,\)"):
        cells.counts([()], (Conjunct(("sex",), [True]),))


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt, SystemExit])
def test_an_interruption_says_nothing_of_the_data(kind):
    table = data()

    class Interrupted(Silent):
        def noise(self, noise, size):
            raise kind("words with an entry")

    table._vault.draws = Interrupted()
    with pytest.raises(kind) as error:
        table.noisy_count(spend=epsilon("1"))
    assert error.value.args == ()
    assert error.value.__context__ is None
    assert spent(table) == 1


def test_a_handle_says_so_when_its_ledger_is_gone(tmp_path):
    place, rows = tmp_path / "people.ledger", tmp_path / "people.csv"
    rows.write_text("sex\nF\n")
    ps.Ledger.create(place, dataset="people", unit=add_remove_row(), budget=epsilon("1"))
    table = ps.protect(rows, ps.Domain.of(sex=["F", "M"]), ledger=place)
    assert "epsilon 1 left of epsilon 1" in repr(table)
    noisy = table.noisy_count(spend=epsilon("1/2"))
    assert not noisy.simulation
    noisy.require_release()
    place.unlink()
    assert "cannot be opened" in repr(table)
    assert str(tmp_path) not in repr(table)
