"""Made-up rows in one call: methods, refusals before a charge, runs that go on."""

import numpy as np
import pytest

import psephos as ps
from psephos.synthesis.method import chosen_method

DOMAIN = ps.Domain.of(sex=["F", "M"], age=4, region=3)
TABLES = ps.marginals(DOMAIN, k=2)
COUNTS = np.random.default_rng(2).poisson(20, DOMAIN.size)
METHODS = ["auto", "sample", "adaptive", "privbayes", "mwem", "dual_query"]


@pytest.fixture
def people(tmp_path):
    """Real rows behind a real ledger in rho."""
    places = np.unravel_index(np.repeat(np.arange(DOMAIN.size), COUNTS), DOMAIN.shape)
    lines = [
        ",".join(a.label(int(i)) for a, i in zip(DOMAIN.attributes, row, strict=True))
        for row in zip(*places, strict=True)
    ]
    file = tmp_path / "people.csv"
    file.write_text("sex,age,region\n" + "\n".join(lines))
    unit, budget = ps.add_remove_row(), ps.rho("10")
    ledger = ps.Ledger.create(tmp_path / "ledger", dataset="p", unit=unit, budget=budget)
    return ledger, lambda: ps.protect(file, DOMAIN, ledger=ledger)


def spend_of(method):
    return ps.epsilon("1") if method in ("privbayes", "mwem") else ps.rho("1")


@pytest.mark.parametrize("method", METHODS)
def test_rows_answer_like_their_model_and_are_paid_once(people, method):
    ledger, opened = people
    total = int(COUNTS.sum())
    options = {"spend": spend_of(method), "method": method, "key": "rows", "total": total}
    options |= {"rounds": 6} if method in ("mwem", "dual_query", "adaptive") else {}
    first = ps.synthesize(opened(), TABLES, **options)
    assert first.table.rows == total
    assert first.quality.largest < 12
    spent = ledger.spent()
    again = ps.synthesize(opened(), TABLES, **options)
    assert ledger.spent() == spent
    assert np.array_equal(first.table.records, again.table.records)
    few = ps.synthesize(opened(), TABLES, **options, rows=7)
    assert few.table.rows == 7
    assert set(first.to_pandas()["sex"]) <= {"F", "M"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 0}, "rows is a whole number of at least 1"),
        ({"rows": -1}, "rows is a whole number of at least 1"),
        ({"rows": 10.0}, "rows is a whole number"),
        ({"rows": 10**9}, "rows is at most 100,000,000"),
        ({"total": "3000"}, "total is a whole number"),
        ({"total": 0}, "total is a whole number of at least 1"),
        ({"total": 10**12}, "too many to make up; give rows"),
        ({"spend": 1}, "got Workload and int"),
        ({"workload": "SELECT"}, "got str and Budget"),
        ({"method": "magic"}, "method is one of auto, sample"),
        ({"rounds": 3}, "no option 'rounds'"),
        ({"method": "dual_query"}, r"total = \.\.\. in a release file or in ps.synthesize"),
        ({"method": "dual_query", "spend": ps.epsilon("1"), "total": 9}, "paid in rho"),
        (
            {"method": "dual_query", "total": 240, "queries": ps.Conjunctions([[5]], [[0]])},
            "beyond the 3",
        ),
    ],
)
def test_mistakes_cost_nothing(people, change, words):
    ledger, opened = people
    options = {"workload": TABLES, "spend": ps.rho("1"), "method": "sample", **change}
    workload = options.pop("workload")
    with pytest.raises(ps.PsephosError, match=words):
        ps.synthesize(opened(), workload, **options)
    assert not ledger.history()


def test_only_protected_tables_are_taken():
    with pytest.raises(ps.RefusedError, match="protected table, got list"):
        ps.synthesize([1, 2], TABLES, spend=ps.rho("1"))


def test_methods_follow_from_public_facts():
    wide, many = ps.Domain.of({f"x{i}": 10 for i in range(12)}), ps.Domain.binary(3000)
    assert chosen_method("auto", DOMAIN, "epsilon").method == "sample"
    assert chosen_method("auto", wide, "rho").method == "adaptive"
    in_epsilon = chosen_method("auto", wide, "epsilon")
    assert in_epsilon.method == "sample"
    assert "epsilon and delta" in in_epsilon.reason
    assert chosen_method("auto", many, "rho").method == "dual_query"
    for method in ("sample", "adaptive", "mwem"):
        with pytest.raises(ps.WorkloadError, match="3,000 are too many"):
            chosen_method(method, many, "rho")
