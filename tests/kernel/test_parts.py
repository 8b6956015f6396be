"""Measuring a table in parts: the same counts, noise and price as the whole query would have."""

from dataclasses import replace
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

import psephos as ps
from psephos.domain.part_tree import PartTree
from psephos.errors import LedgerError, RefusedError, ShapeError, TooLargeError
from psephos.kernel.gate import to_bytes
from psephos.kernel.measurement import noise_for
from psephos.kernel.parts import law
from psephos.kernel.parts.admission import admitted_runner
from psephos.kernel.parts.law import level_weights, part_noise
from psephos.kernel.parts.runners import InProcess, Processes
from psephos.kernel.parts.seal import manifest, receipts_of
from psephos.kernel.parts.task import PartJob
from psephos.kernel.query import Query
from psephos.kernel.replay import NoSource
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.simulate import SeededDraws, simulation
from psephos.kernel.unit import add_remove_row, person
from psephos.matrix import Dense, Identity, Kron, Partition, Prefix, total

COUNTIES = ["a1", "b1", "a2", "c1"]
STATES = {"A": ["a1", "a2"], "B": ["b1"], "C": ["c1"]}


def domain():
    county = ps.Attribute.categories(COUNTIES).with_level("state", STATES)
    return ps.Domain.of(sex=["F", "M"], county=county, age=3)


def simulated(counts, budget="1000000"):
    options = {"unit": add_remove_row(), "budget": ps.epsilon(budget), "seed": 0}
    return ps.simulate(counts, domain(), **options)


QUERY = Query.of([(Kron((Identity(2), Prefix(3))), 1), (total(6), "1/2")])
WHOLE_WEIGHTS = st.tuples(*[st.sampled_from([0, "1", "1/2", "3/4", "5"])] * 3).filter(any)


@given(
    weights=WHOLE_WEIGHTS,
    entries=st.lists(st.integers(-3, 3), min_size=12, max_size=12).filter(any),
    currency=st.sampled_from([ps.epsilon, ps.rho]),
    unit=st.sampled_from([add_remove_row(), ps.substitute_row(), person("id", max_rows=3)]),
)
def test_noise_is_that_of_the_whole_query(weights, entries, currency, unit):
    """P_l ⊗ A_j written out, with the noise that the kernel gives to it, is what parts get."""
    tree = PartTree.of(domain(), ("state", "county"))
    query = Query.of([(Dense(np.array(entries).reshape(2, 6)), "3/2"), (Identity(6), 1)])
    levels = level_weights(list(weights), tree)
    spend = currency("1/3")
    ours = part_noise(query, levels, spend, unit, 2)
    whole = Query.of(
        [
            (Kron((Partition(tree.groups(level)), block.matrix)), weight * block.weight)
            for level, weight in enumerate(levels)
            if weight
            for block in query.blocks
        ]
    )
    assert [noise for level in ours for noise in level] == list(noise_for(whole, spend, unit, 2))
    assert [bool(level) for level in ours] == [bool(weight) for weight in levels]


@given(
    counts=st.lists(st.integers(0, 5), min_size=24, max_size=24),
    run=st.sampled_from([1, 12, 1000]),
)
def test_counts_are_those_of_the_whole_vector(counts, run, tmp_path_factory):
    """With noise that is nearly always zero, each part answers as its own cells do."""
    folder = tmp_path_factory.mktemp("parts")
    size = law.TASK_NUMBERS
    law.TASK_NUMBERS = run
    try:
        parts = simulated(np.array(counts)).parts("state", "county")
        spend = ps.epsilon("100000")
        measurement = parts.measure(
            QUERY, weights=[1, 1, 1], spend=spend, folder=folder, key=str(folder)
        )
        cells = np.array(counts).reshape(2, 4, 3).transpose(1, 0, 2).reshape(4, 6)
        for level in range(3):
            sums = np.zeros((measurement.tree.sizes[level], 6), dtype=int)
            np.add.at(sums, measurement.tree.groups(level), cells)
            wanted = [[*block.matrix.matvec(row)] for row in sums for block in QUERY.blocks]
            answers = np.concatenate([rows for _, rows in measurement.answers(level)])
            assert answers.reshape(-1).tolist() == [int(x) for row in wanted for x in row]
            middle = measurement.answers_of(level, 0, 1)
            assert (middle == answers[:1]).all()
    finally:
        law.TASK_NUMBERS = size


def frame(rows=400):
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "sex": rng.choice(["F", "M", "?"], rows),
            "county": rng.choice(["a1", "b1", "a2", "elsewhere"], rows),
            "age": rng.integers(0, 4, rows),
            "id": rng.integers(0, 150, rows),
        }
    )


def protected(tmp_path, unit=None, budget="1000000"):
    path = tmp_path / "people.ledger"
    unit = unit or add_remove_row()
    ledger = ps.Ledger.create(path, dataset="people", unit=unit, budget=ps.epsilon(budget))
    return ps.protect(frame(), domain(), ledger=path), ledger


@pytest.mark.parametrize("unit", [add_remove_row(), person("id", max_rows=2)], ids=str)
@pytest.mark.parametrize("filtered", [False, True])
def test_rows_are_those_that_counts_count(tmp_path, unit, filtered):
    """Filters, caps, undeclared entries: the parts add up to the vector of the same handle."""
    table, _ = protected(tmp_path, unit)
    if filtered:
        table = table.where((ps.col("age") >= 1) & (ps.col("county") != "b1"))
    (tmp_path / "parts").mkdir()
    exact = ps.epsilon("300000")
    vector = table.vectorise().measure(Identity(24), spend=exact).values.reshape(2, 4, 3)
    parts = table.parts("state", "county")
    spent = {"spend": exact, "folder": tmp_path / "parts", "key": "parts"}
    measurement = parts.measure(Identity(6), weights=[0, 0, 1], **spent)
    places = measurement.tree.order
    assert (
        measurement.answers_of(2, 0, 4).reshape(4, 2, 3) == vector[:, places].swapaxes(0, 1)
    ).all()


def test_one_charge_for_all_parts_and_levels(tmp_path):
    table, ledger = protected(tmp_path, budget="2")
    (tmp_path / "parts").mkdir()
    asked = {"weights": [1, "1/2", 1], "folder": tmp_path / "parts", "key": "census"}
    parts = table.parts("state", "county")
    first = parts.measure(QUERY, spend=ps.epsilon("3/2"), **asked)
    again = parts.measure(QUERY, spend=ps.epsilon("3/2"), **asked)
    assert ledger.spent() == ps.epsilon("3/2")
    assert (first.manifest == again.manifest).all()
    assert (first.answers_of(2, 0, 4) == again.answers_of(2, 0, 4)).all()
    with pytest.raises(LedgerError, match="belongs to another request"):
        parts.measure(QUERY, spend=ps.epsilon("3/2"), **asked | {"weights": [1, 1, 1]})
    with pytest.raises(ps.BudgetExceededError):
        parts.measure(QUERY, spend=ps.epsilon("1"), **asked | {"key": "other"})
    assert len(list((tmp_path / "parts").iterdir())) == len(first.receipts) == 3


def test_processes_give_the_same_answers_as_one(tmp_path):
    """Up to noise, which is nearly always zero here; the worker's grammar is that of the kernel."""
    table, _ = protected(tmp_path)
    parts = table.parts("state", "county")
    spend, answers = ps.epsilon("300000"), []
    for name, runner in (("alone", None), ("two", Processes(2))):
        (tmp_path / name).mkdir()
        asked = {"weights": [1, 1, 1], "spend": spend, "folder": tmp_path / name, "key": name}
        measurement = parts.measure(QUERY, runner=runner, **asked)
        answers.append(
            [rows.tolist() for level in range(3) for _, rows in measurement.answers(level)]
        )
    assert answers[0] == answers[1]


def test_noise_has_the_distribution_it_says(tmp_path):
    """The variance over many parts, by level; bounds are five standard deviations wide."""
    wide = ps.Domain.of(part=2000, x=4)
    table = ps.protect(
        pd.DataFrame({"part": [], "x": []}).astype(int), wide, ledger=_ledger(tmp_path)
    )
    (tmp_path / "parts").mkdir()
    measurement = table.parts("part").measure(
        Identity(4), weights=["1/2", 1], spend=ps.epsilon("1/4"), folder=tmp_path / "parts", key="a"
    )
    values = measurement.answers_of(1, 0, 2000).reshape(-1)
    variance = measurement.noise[1][0].exact_variance
    assert measurement.noise[1][0].scale == Fraction(6)
    assert measurement.noise[0][0].scale == Fraction(12)
    spread = np.sqrt(5 * variance**2 / values.size)  # a Laplace law has kurtosis 6
    assert abs(values.var() - variance) < 5 * spread
    assert abs(values.mean()) < 5 * np.sqrt(variance / values.size)


def _ledger(tmp_path):
    path = tmp_path / "wide.ledger"
    ps.Ledger.create(path, dataset="wide", unit=add_remove_row(), budget=ps.epsilon("1"))
    return path


def test_refusals_come_before_the_charge(tmp_path):
    table, ledger = protected(tmp_path, budget="2")
    parts = table.parts("state", "county")
    folder = tmp_path / "parts"
    folder.mkdir()
    asked = {"spend": ps.epsilon("1"), "folder": folder, "key": "a"}
    for weights, message in (
        ([1, 1], "3 weights"),
        ([0, 0, 0], "nothing would be measured"),
        (["1/3", 1, 1], r"m·2\^e"),
    ):
        with pytest.raises(RefusedError, match=message):
            parts.measure(QUERY, weights=weights, **asked)
    with pytest.raises(ps.BudgetError, match="more than 0"):
        parts.measure(QUERY, weights=[-1, 1, 1], **asked)
    with pytest.raises(ShapeError, match="a part has 6 cells"):
        parts.measure(Identity(24), weights=[1, 1, 1], **asked)
    with pytest.raises(RefusedError, match="pass 2"):
        parts.measure(
            QUERY, weights=[1, 1, 1], **asked | {"spend": ps.epsilon("1/10000000000000000")}
        )
    with pytest.raises(ps.SourceError, match="make it first"):
        parts.measure(QUERY, weights=[1, 1, 1], **asked | {"folder": folder / "missing"})
    with pytest.raises(RefusedError, match="no attribute to count"):
        table.keep("county").parts("county")
    with pytest.raises(RefusedError, match="before group_by"):
        table.group_by("county", most=3).parts("county")
    assert ledger.spent().amount == 0


def endless(cells, budget="1"):
    """Four parts of so many cells each, without any data."""
    unit, budget = add_remove_row(), ps.epsilon(budget)
    whole = ps.Domain.of(part=4, x=range(cells))
    return simulation(NoSource(), whole, unit=unit, budget=budget, seed=0)


def test_more_cells_than_can_be_numbered_are_refused():
    assert endless(1 << 58).parts("part").domain.size == 1 << 58
    with pytest.raises(TooLargeError, match="is too much to number; declare fewer parts") as error:
        endless((1 << 58) + 1).parts("part")
    assert (error.value.entries, error.value.limit) == ((1 << 60) + 4, 1 << 60)


def test_parts_with_more_cells_than_fit_at_once_are_refused_before_the_charge(tmp_path):
    table = endless(10**9 + 1)
    asked = {"weights": [0, 1], "spend": ps.epsilon("1"), "folder": tmp_path, "key": "a"}
    with pytest.raises(TooLargeError, match=r"1,000,000,001 cells .* cut it into smaller ones"):
        table.parts("part").measure(total(10**9 + 1), **asked)
    assert "epsilon 1 left of epsilon 1" in repr(table)


def test_a_budget_is_checked_without_a_charge(tmp_path):
    table, ledger = protected(tmp_path, budget="2")
    parts = table.parts("state", "county")
    parts.check_budget(ps.epsilon("2"))
    with pytest.raises(ps.BudgetExceededError, match="this costs epsilon 3; epsilon 2 remains"):
        parts.check_budget(ps.epsilon("3"))
    assert ledger.spent().amount == 0
    asked = {"weights": [0, 0, 1], "folder": tmp_path, "key": "census"}
    parts.measure(QUERY, spend=ps.epsilon("3/2"), **asked)
    parts.check_budget(ps.epsilon("2"), key="census")
    with pytest.raises(ps.BudgetExceededError):
        parts.check_budget(ps.epsilon("2"), key="other")


def test_levels_that_were_not_measured_have_no_answers(tmp_path):
    parts = simulated(np.ones(24, dtype=int)).parts("state", "county")
    asked = {"weights": [1, 0, 2], "spend": ps.epsilon("1"), "folder": tmp_path, "key": "a"}
    measurement = parts.measure(QUERY, **asked)
    assert measurement.measured == (0, 2)
    assert list(measurement.answers(1)) == []
    with pytest.raises(RefusedError, match="level 'state' has no answers of these parts"):
        measurement.answers_of(1, 0, 3)


class Looking(Processes):
    """A subclass could look at tasks in its own `run`."""


def test_only_runners_of_the_kernel_perform_tasks():
    draws, seeded = Draws(), SeededDraws(np.random.default_rng(0))
    given = Processes(3)
    assert admitted_runner(given, 1, draws) == given
    assert admitted_runner(given, 1, draws) is not given
    assert type(admitted_runner(None, 1, draws)) is InProcess
    assert type(admitted_runner(None, 1 << 26, draws)) is Processes
    assert admitted_runner(given, 1, seeded) == InProcess(seeded)
    for strange in (Looking(1), object()):
        with pytest.raises(RefusedError, match=r"no rule to perform tasks by \w+; have Processes"):
            admitted_runner(strange, 1, draws)


@pytest.mark.parametrize("number", [-1, True, 2.0, "2"])
def test_a_number_of_processes_is_a_whole_number(number):
    with pytest.raises(RefusedError, match="a number of processes is a whole number"):
        Processes(number)


@pytest.mark.parametrize("spend", [ps.epsilon("1/3"), ps.rho("1/7")])
def test_jobs_come_back_from_their_bytes(spend):
    tree = PartTree.of(domain(), ("state", "county"))
    noise = part_noise(QUERY, level_weights([1, 0, "1/2"], tree), spend, add_remove_row(), 1)
    job = PartJob(QUERY, noise, "/a/folder", "prefix")
    again = PartJob.from_bytes(job.to_bytes())
    assert again[1:] == job[1:]
    assert to_bytes(again.query) == to_bytes(QUERY)


def test_a_manifest_that_misses_a_run_is_refused(tmp_path):
    parts = simulated(np.ones(24, dtype=int)).parts("state", "county")
    asked = {"weights": [1, 1, 1], "spend": ps.epsilon("1"), "folder": tmp_path, "key": "a"}
    measurement = parts.measure(QUERY, **asked)
    receipts = receipts_of(measurement.manifest)
    assert (manifest(receipts) == measurement.manifest).all()
    for wrong in (receipts[1:], (*receipts, receipts[0])):
        with pytest.raises(LedgerError, match="each once"):
            replace(measurement, manifest=manifest(wrong))


@pytest.mark.parametrize(
    "change",
    [{"name": "/dev/zero"}, {"name": "../x.sealed"}, {"key": "x"}, {"sha256": ""}, {"level": "0"}],
)
def test_a_manifest_of_something_else_than_receipts_is_refused(tmp_path, change):
    parts = simulated(np.ones(24, dtype=int)).parts("state", "county")
    asked = {"weights": [1, 0, 0], "spend": ps.epsilon("1"), "folder": tmp_path, "key": "a"}
    measurement = parts.measure(QUERY, **asked)
    (receipt,) = measurement.receipts
    with pytest.raises(LedgerError, match="what is no receipt"):
        replace(measurement, manifest=manifest([receipt._replace(**change)]))
    with pytest.raises(LedgerError, match="what is no receipt"):
        receipts_of(np.frombuffer(to_bytes((1, 2)), np.uint8))


def test_a_file_of_another_length_is_not_read(tmp_path):
    parts = simulated(np.ones(24, dtype=int)).parts("state", "county")
    asked = {"weights": [1, 0, 0], "spend": ps.epsilon("1"), "folder": tmp_path, "key": "a"}
    measurement = parts.measure(QUERY, **asked)
    with (tmp_path / measurement.receipts[0].name).open("r+b") as file:
        file.truncate(1 << 42)  # it takes no room, and would fill any memory
    with pytest.raises(LedgerError, match="not those that were stored"):
        measurement.answers_of(0, 0, 1)
