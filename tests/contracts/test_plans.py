"""Laws of all plans; a new one joins by its decorator, a choosy one by a line in ONLY as well."""

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import psephos as ps
import psephos.plans.buckets
from psephos.infer.estimate import Estimate
from psephos.inverse import form as forms
from psephos.kernel.protected import ProtectedVector
from psephos.plans import PLANS, Static, step_key
from psephos.plans.session import UNSPENT

LINE = ps.Domain.of(age=12)
PLANE = ps.Domain.of(x=6, y=5)
CUBE = ps.Domain.of(age=6, sex=["F", "M"], region=3)
WORKLOADS = {
    "line": ps.Workload(LINE, [ps.product(age=ps.prefix())]),
    "plane": ps.Workload(PLANE, [ps.product(x=ps.prefix(), y=ps.prefix())]),
    "cube": ps.marginals(CUBE, up_to=2),
}
ONLY = {"UniformGrid": ["plane"], "AdaptiveGrid": ["plane"], "Quadtree": ["line", "plane"]}
ONLY |= {"DualQuery": ["cube"]}
"""The domains of plans that are not for all."""
CASES = [(name, kind) for name in PLANS for kind in ONLY.get(name, WORKLOADS)]
OPTIONS = {"HDMM": {"restarts": 1}} | {n: {"rounds": 3} for n in PLANS if n.startswith("MWEM")}
OPTIONS |= {"DualQuery": {"rows": 180, "rounds": 16, "draws": 10}}
SPEND = ps.epsilon("3/2")
SPENDS = {"DualQuery": ps.rho("3/2")}
"""What plans are given that take no epsilon."""


def spend_of(name, factor=1):
    return SPENDS.get(name, SPEND) * factor


def is_spent(left, budget):
    """Nothing is left, up to the last digits of a root."""
    return left <= budget * UNSPENT


every = pytest.mark.parametrize(("name", "kind"), CASES, ids=lambda word: word)
each_plan = pytest.mark.parametrize(
    ("name", "kind"), [next(case for case in CASES if case[0] == name) for name in PLANS], ids=str
)


def counts_of(workload, seed=0):
    return np.random.default_rng(seed).poisson(5, workload.domain.size)


def simulated(workload, budget, seed=0):
    options = {"unit": ps.add_remove_row(), "budget": budget, "seed": seed}
    return ps.simulate(counts_of(workload), workload.domain, **options)


def run(name, vector, workload, spend=None, **more):
    spend = spend_of(name) if spend is None else spend
    return ps.plans.run(name, vector, workload, spend=spend, **OPTIONS.get(name, {}), **more)


@every
def test_it_spends_its_budget_to_the_last(name, kind):
    workload = WORKLOADS[kind]
    spend = spend_of(name)
    table = simulated(workload, spend)
    done = run(name, table.vectorise(), workload)
    prices = [request.price for request in done.requests]
    total = sum(prices[1:], start=prices[0])
    assert total <= spend
    assert is_spent(spend - total, spend)
    if name not in SPENDS:
        assert total == spend
        assert "epsilon 0 left" in repr(table)


@every
def test_answers_are_finite_and_as_many_as_questions(name, kind):
    workload = WORKLOADS[kind]
    done = run(name, simulated(workload, spend_of(name)).vectorise(), workload)
    assert isinstance(done.estimate, Estimate)
    assert done.estimate.domain == workload.domain
    assert done.estimate.simulation
    answers = done.answer(workload)
    assert answers.values.shape == (workload.shape[0],)
    assert np.isfinite(answers.values).all()
    # An interval that leaves the bias out would mislead.
    assert (answers.stderr is None) == done.estimate.biased


@each_plan
def test_a_simulation_can_be_repeated(name, kind):
    workload = WORKLOADS[kind]
    first, again = (
        run(name, simulated(workload, spend_of(name), seed=3).vectorise(), workload)
        for _ in range(2)
    )
    assert_array_equal(first.answer(workload).values, again.answer(workload).values)


@each_plan
def test_more_budget_means_less_error(name, kind):
    workload = WORKLOADS[kind]
    true = workload.answer(counts_of(workload))

    def error(amount):
        spend = spend_of(name, Fraction(2, 3)) * amount
        draws = [simulated(workload, spend, seed) for seed in range(12)]
        runs = [run(name, table.vectorise(), workload, spend) for table in draws]
        return math.sqrt(np.mean([(done.answer(workload).values - true) ** 2 for done in runs]))

    assert error("10") < 0.8 * error("1/20")


@pytest.fixture
def people(tmp_path):
    """Real rows behind a real ledger, for each kind of domain."""

    def opened(kind, budget=SPEND):
        workload = WORKLOADS[kind]
        domain = workload.domain
        cells = np.repeat(np.arange(domain.size), counts_of(workload))
        places = np.unravel_index(cells, domain.shape)
        columns = [
            [attribute.label(int(i)) for i in where]
            for attribute, where in zip(domain.attributes, places, strict=True)
        ]
        source = tmp_path / "people.csv"
        lines = [",".join(domain.names), *(",".join(row) for row in zip(*columns, strict=True))]
        source.write_text("\n".join(lines))
        place = tmp_path / "ledger"
        if place.exists():
            ledger = ps.Ledger.open(place)
        else:
            ledger = ps.Ledger.create(place, dataset="d", unit=ps.add_remove_row(), budget=budget)
        return ledger, ps.protect(source, domain, ledger=ledger)

    return opened


@every
def test_the_ledger_pays_for_it_once(name, kind, people):
    workload = WORKLOADS[kind]
    ledger, table = people(kind, spend_of(name))
    done = run(name, table.vectorise(), workload, key="k")
    assert is_spent(ledger.remaining(), spend_of(name))
    keys = [step_key("k", i) for i in range(len(done.requests))]
    assert [entry.key for entry in ledger.history()] == keys
    again = run(name, people(kind)[1].vectorise(), workload, key="k")
    assert_array_equal(done.answer(workload).values, again.answer(workload).values)
    assert len(ledger.history()) == len(keys)


class Cut(Exception):
    """Whatever may end a run."""


@each_plan
def test_cut_short_anywhere_it_is_taken_up_again(name, kind, people, monkeypatch):
    """A new process, a new handle: what was paid for stays, and the rest is asked."""
    workload = WORKLOADS[kind]
    requests = {
        method: getattr(ProtectedVector, method)
        for method in ("measure", "choose", "partition", "draw_queries", "count_values")
    }
    left = [0]

    def counted(method):
        def request(self, *args, **more):
            if left[0] == 0:
                raise Cut
            left[0] -= 1
            return requests[method](self, *args, **more)

        return request

    for method in requests:
        monkeypatch.setattr(ProtectedVector, method, counted(method))
    for steps in range(100):
        left[0] = steps
        ledger, table = people(kind, spend_of(name))
        try:
            run(name, table.vectorise(), workload, key="k")
        except Cut:
            assert len(ledger.history()) == steps
        else:
            break
    assert len(ledger.history()) == steps
    assert is_spent(ledger.remaining(), spend_of(name))


@each_plan
def test_what_the_ledger_cannot_pay_is_not_begun(name, kind, people):
    ledger, table = people(kind, spend_of(name, Fraction(2, 3)))
    with pytest.raises(ps.BudgetExceededError, match=r"this costs (epsilon|rho) 3/2"):
        run(name, table.vectorise(), WORKLOADS[kind], key="k")
    assert not ledger.history()


KILLED = """
import os, signal, sys
import psephos as ps
from psephos.kernel.protected import ProtectedVector
place, source, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
measure, choose = ProtectedVector.measure, ProtectedVector.choose
count = [0]
def counted(request):
    def ask(self, *args, **more):
        result = request(self, *args, **more)
        count[0] += 1
        if count[0] == steps:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return ask
ProtectedVector.measure, ProtectedVector.choose = counted(measure), counted(choose)
domain = ps.Domain.of(age=12)
workload = ps.Workload(domain, [ps.product(age=ps.prefix())])
table = ps.protect(source, domain, ledger=ps.Ledger.open(place))
ps.plans.run("MWEM", table.vectorise(), workload, spend=ps.epsilon("3/2"), key="k", rounds=2)
"""


def test_killed_between_two_requests_it_pays_nothing_twice(people):
    ledger, _ = people("line")
    source = ledger.path.parent / "people.csv"
    for steps in (1, 2, 4, 99):
        words = [sys.executable, "-c", KILLED, str(ledger.path), str(source), str(steps)]
        ended = subprocess.run(words, capture_output=True, text=True)
        assert ended.returncode == (0 if steps == 99 else -9), ended.stderr
        assert len(ledger.history()) == min(steps, 5)
    assert ledger.remaining().amount == 0
    ledger.verify()


@pytest.mark.parametrize("name", [name for name, plan in PLANS.items() if not plan.adaptive])
def test_plans_that_do_not_adapt_take_gaussian_noise(name):
    kind = ONLY.get(name, ["line"])[0]
    workload = WORKLOADS[kind]
    done = run(name, simulated(workload, ps.rho("1")).vectorise(), workload, ps.rho("1"))
    assert np.isfinite(done.answer(workload).values).all()


# ---- the list ------------------------------------------------------------------------------------


def test_the_papers_plans_are_here():
    papers = """Identity, Privelet, H2, HB, Greedy-H, Uniform, MWEM, AHP, DAWA, Quadtree,
    UniformGrid, AdaptiveGrid, HDMM, DAWA-Striped, HB-Striped, HB-Striped_kron, PrivBayesLS,
    MWEM variant b, MWEM variant c, MWEM variant d, PrivBayes, Workload, WorkloadLS, SelectLS,
    CDF"""
    further = {"AdaptiveMarginals", "DualQuery"}
    assert {name.strip() for name in papers.split(",")} | further == set(ps.plans.names())


def test_every_plan_says_whose_it_is_and_when_to_use_it():
    for plan in PLANS.values():
        assert plan.reference
        assert plan.signature
        assert len(plan.when) > 20


def test_unknown_plans_and_options_are_named():
    workload = WORKLOADS["line"]
    vector = simulated(workload, SPEND).vectorise()
    with pytest.raises(ps.WorkloadError, match=r"no plan called 'DAVA'; did you mean 'DAWA'\?"):
        run("DAVA", vector, workload)
    with pytest.raises(ps.WorkloadError, match="no plan called 'best'; there are Identity"):
        run("best", vector, workload)
    with pytest.raises(ps.WorkloadError, match="'DAWA' has no option 'ratio'; it has share"):
        run("DAWA", vector, workload, ratio="1/4")
    with pytest.raises(ps.WorkloadError, match="for two attributes"):
        run("UniformGrid", vector, workload)


@pytest.mark.parametrize(
    ("name", "option", "value", "words"),
    [
        ("MWEM", "rows", -5, "rows is a finite number above 0, got -5"),
        ("MWEM", "rows", "many", "rows is a number, got 'many'"),
        ("MWEM", "rounds", 0, "rounds is a whole number from 1"),
        ("AHP", "threshold", -1, "threshold is a finite number above 0"),
        ("AHP", "share", "1", "shares leave something for the last step"),
        ("DAWA", "share", "2", "shares leave something for the last step"),
        ("DAWA", "search", "odd", "search is one of tree"),
        ("DAWA", "selector", "odd", "selector is one of greedy_h"),
        ("PrivBayes", "usefulness", 0, "usefulness is a finite number above 0"),
        ("PrivBayesLS", "selector", "odd", "selector is one of tables"),
        ("HB-Striped", "attribute", "z", "no attribute 'z'"),
        ("AdaptiveMarginals", "rounds", 0, "rounds is a whole number from 1"),
        ("AdaptiveMarginals", "cells", 1.5, "cells is a whole number from 1"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_charged(people, name, option, value, words):
    ledger, table = people("line")
    options = OPTIONS.get(name, {}) | {option: value}
    with pytest.raises(ps.PsephosError, match=words):
        ps.plans.run(name, table.vectorise(), WORKLOADS["line"], spend=SPEND, **options)
    assert not ledger.history()


def test_plans_of_too_many_cells_are_refused_before_anything_is_charged(people):
    @ps.plans.plan("Narrow", signature="SI LM", adaptive=True, most_cells=11)
    def narrow(vector, workload, budget):
        """Never."""
        return ps.infer.expanded(vector.measure(ps.select.identity(workload), spend=budget))

    ledger, table = people("line")
    try:
        with pytest.raises(ps.TooLargeError, match=r"at most 11, .* Nothing was charged"):
            run("Narrow", table.vectorise(), WORKLOADS["line"])
    finally:
        ps.plans.forget("Narrow")
    assert not ledger.history()


def test_many_buckets_are_measured_by_a_tree(monkeypatch):
    """The partition is paid for by then."""
    monkeypatch.setattr(psephos.plans.buckets, "BUCKET_ENTRIES", 1)
    workload = WORKLOADS["line"]
    done = run("DAWA", simulated(workload, SPEND).vectorise(), workload)
    assert np.isfinite(done.answer(workload).values).all()


def test_only_protected_vectors_are_run_on():
    with pytest.raises(ps.RefusedError, match="runs on a protected vector, got list"):
        run("HB", [1, 2], WORKLOADS["line"])


def test_a_plan_that_leaves_some_of_its_budget_is_refused():
    @ps.plans.plan("Thrifty", signature="SI LM")
    def thrifty(vector, workload, budget):
        """Never."""
        return ps.infer.least_squares(
            vector.measure(ps.select.identity(workload), spend=budget / 2)
        )

    @ps.plans.plan("Lavish", signature="SI LM SI LM")
    def lavish(vector, workload, budget):
        """Never."""
        vector.measure(ps.select.identity(workload), spend=budget)
        return ps.infer.least_squares(vector.measure(ps.select.identity(workload), spend=budget))

    workload = WORKLOADS["line"]
    try:
        with pytest.raises(ps.BudgetError, match=r"spent epsilon 3/4 .* of its epsilon 3/2"):
            run("Thrifty", simulated(workload, SPEND).vectorise(), workload)
        with pytest.raises(ps.BudgetError, match="must add up to its budget"):
            run("Lavish", simulated(workload, 3 * SPEND).vectorise(), workload)
    finally:
        ps.plans.forget("Thrifty")
        ps.plans.forget("Lavish")


def test_two_plans_cannot_have_one_name():
    with pytest.raises(ps.WorkloadError, match="there is a plan called 'HB' already"):
        ps.plans.plan("HB", signature="SI LM")(lambda vector, workload, budget: None)


def test_the_name_of_a_plan_that_is_not_read_yet_is_taken():
    """In a process of its own, where nothing has asked for the list of plans."""
    code = """if True:
        import psephos as ps
        try:
            ps.plans.plan("DAWA", signature="SI LM")(lambda vector, workload, budget: None)
        except ps.WorkloadError as error:
            print(error, len(ps.plans.names()))
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("there is a plan called 'DAWA' already"), run.stdout


# ---- the plan of releases ------------------------------------------------------------------------


def test_the_static_plan_refuses_before_anything_is_charged(people, monkeypatch):
    workload = WORKLOADS["cube"]
    ledger, table = people("cube")
    static = Static(ps.select.hdmm(workload, restarts=1, cores=1))
    with pytest.raises(ps.BudgetExceededError):
        static.steps(table.vectorise(), spend=9 * SPEND)
    monkeypatch.setattr(forms, "VECTOR_LIMIT", 1)
    with pytest.raises(ps.TooLargeError, match="over the limit of 1"):
        static.steps(table.vectorise(), spend=SPEND)
    assert not ledger.history()


def test_the_static_plan_measures_its_strategy_once(people):
    workload = WORKLOADS["cube"]
    ledger, table = people("cube")
    static = Static(ps.select.hdmm(workload, restarts=1, cores=1))
    (step,) = static.steps(table.vectorise(), spend=SPEND, key="k")
    (again,) = static.steps(table.vectorise(), spend=SPEND, key="k")
    assert_array_equal(step.measurement.values, again.measurement.values)
    assert step.measurement.query == static.strategy.query
    assert len(ledger.history()) == 1
    assert len(static.estimate([step.measurement]).answer(workload)) == workload.shape[0]
