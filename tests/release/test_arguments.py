"""Public calls with arguments that cannot be: refused by name, with what would do."""

import pytest

import psephos as ps
from psephos.release.preflight.checks import create_ledger
from psephos.release.spec.job import Job
from tests.release.conftest import write_job

DOMAIN = ps.Domain.of(a=3, b=4)
WORKLOAD = ps.marginals(DOMAIN, k=1)
SQL = "SELECT COUNT(*) FROM people"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    job = Job.read(write_job(tmp_path_factory.mktemp("arguments") / "job"))
    create_ledger(job)
    return ps.release(job, unchecked=True)


def job_of(bundle):
    return bundle.path.parent


def simulate(bundle, **options):
    defaults = {"unit": ps.add_remove_row(), "budget": ps.epsilon("1"), "seed": 0}
    source = bundle.path.parent / "people.csv"
    return ps.simulate(source, bundle.job.domain, **{**defaults, **options})


def check(bundle, **options):
    return ps.check(bundle.path.parent / "people.csv", bundle.job.domain, **options)


WHOLE_DRAWS = "draws is a whole number of at least 19, got"
CALLS = [
    *[
        (lambda b, budget=budget: ps.plan(job_of(b), budget=budget), "budget is an exact amount")
        for budget in ("0.5", 0.5)
    ],
    *[
        (call, WHOLE_DRAWS)
        for draws in ("a", 0, 18, True, 2.5, None)
        for call in (
            lambda b, draws=draws: ps.plan(job_of(b), draws=draws),
            lambda b, draws=draws: ps.ask(b, SQL, draws=draws),
            lambda b, draws=draws: ps.price(b, SQL, 5, draws=draws),
        )
    ],
    (lambda b: ps.plan(job_of(b), budget=ps.rho("1")), r"give --epsilon, in Python ps.epsilon\("),
    (lambda b: ps.rehearse(job_of(b), rows=10**20), "rows is at most 1,000,000,000"),
    (lambda b: ps.ask(5, SQL), "a bundle is a path, got 5"),
    (lambda b: ps.ask(None, SQL), "a bundle is a path, got None"),
    (lambda b: ps.ask(b, 5), "statements must be text"),
    (lambda b: ps.price(b, SQL, "a"), "half-width wanted is a number"),
    (lambda b: ps.price(b, SQL, True), "half-width wanted is a number"),
    (lambda b: ps.price(b, WORKLOAD, 5), "the question is about Domain"),
    (lambda b: ps.Bundle.open(5), "a bundle is a path, got 5"),
    (lambda b: ps.Bundle.open(None), "a bundle is a path, got None"),
    (lambda b: ps.Bundle("x", {}), r"write Bundle.open\('x'\)"),
    (lambda b: ps.Bundle(b.path, {}), "manifest.json is damaged"),
    (lambda b: ps.Ledger.open(5), "a ledger is a path, got 5"),
    (lambda b: ps.protect("x.csv", DOMAIN, ledger=5), "a ledger is a path, got 5"),
    (lambda b: ps.select.load(5, DOMAIN), "a strategy's file is a path, got 5"),
    (lambda b: ps.select.load("x", 5), "loaded for its Domain, got int"),
    (lambda b: ps.select.save(ps.select.identity(WORKLOAD), 5), "file is a path, got 5"),
    (lambda b: ps.select.cached(5, WORKLOAD), "folder of kept strategies is a path, got 5"),
    (lambda b: ps.select.cached(b.report, WORKLOAD), "cannot be made"),
    (lambda b: ps.select.low_rank(WORKLOAD, share="a"), "share is a number above 0"),
    (lambda b: ps.select.low_rank(WORKLOAD, steps=1.5), "steps is a whole number"),
    (lambda b: ps.select.matrix_mechanism(WORKLOAD, restarts=-1), "restarts is a whole number"),
    (lambda b: simulate(b, seed="a"), "seed is a whole number from 0, got 'a'"),
    (lambda b: simulate(b, seed=-1), "seed is a whole number from 0, got -1"),
    (lambda b: check(b, unit=5), r"unit is written add_remove_row\(\)"),
    (lambda b: check(b, max_rows_total="a"), "max_rows_total is a whole number from 0, got 'a'"),
    (lambda b: DOMAIN.index(5), "a cell is a dict of attribute: value, got 5"),
    (lambda b: DOMAIN.merge(5), "merge takes a list of attributes, got 5"),
    (lambda b: DOMAIN.project(5), "project takes a list of attributes, got 5"),
    *[
        (lambda b, blocks=blocks: ps.Query.of(blocks), "a block is a matrix and its weight")
        for blocks in (5, None, [5], [(1, 2, 3)], [("text", 1)])
    ],
    (lambda b: ps.ranges([(3, 1)]), r"range \(3, 1\) is empty; write \(1, 3\)"),
]


@pytest.mark.parametrize(("call", "words"), CALLS)
def test_wrong_arguments_are_told_by_name(bundle, call, words):
    with pytest.raises(ps.PsephosError, match=words):
        call(bundle)


def test_results_are_shown_in_one_line(bundle):
    plan = ps.plan(job_of(bundle), draws=19)
    assert repr(plan).startswith("Forecast('pets': 2 tables at epsilon 1/2 (~0.5), OPT_⊗, error ")
    reply = ps.ask(bundle, "SELECT pet, COUNT(*) FROM people GROUP BY pet", draws=19)
    assert repr(reply).startswith("Reply(4 answers, free, at most ± ")
    assert "<td>horse</td>" in reply._repr_html_()
    verification = ps.verify(bundle.path)
    assert repr(verification) == f"Verification({str(bundle.path)!r}: ok, 7 checks)"
    assert "<td>receipt</td>" in verification._repr_html_()
    for result in (plan, reply, verification):
        assert len(repr(result).splitlines()) == 1


def test_a_price_is_the_same_for_sql_and_for_its_workload(bundle):
    from psephos.release.ask.question import question_workload

    by_sql = ps.price(bundle.path, SQL, 5, draws=99)
    assert by_sql == ps.price(bundle, question_workload(bundle, SQL), 5, draws=99)
    assert by_sql.budget <= by_sql.alone
