"""The cell for undeclared entries: in the schema, in predicates and in SQL it equals nothing."""

import pickle

import numpy as np
import pytest

import psephos as ps
from psephos import Attribute, Domain, DomainError, col
from psephos.domain.values import OTHER

AGE = Attribute.integers(16, 19).with_level("broad", [16, 18]).with_unknown("other")
INCOME = Attribute.bins([0, 5, 10]).with_unknown("other")
SEX = Attribute.categories({"F": "Female", "M": "Male", None: "missing"}).with_unknown("other")
PEOPLE = Domain.of(age=AGE, income=INCOME, sex=SEX)


def test_other_is_the_last_cell_of_values_labels_and_levels():
    assert PEOPLE.shape == (5, 3, 4)
    assert [a.values[-1] for a in PEOPLE.attributes] == [OTHER] * 3
    assert [a.labels[-1] for a in PEOPLE.attributes] == ["(other)"] * 3
    assert AGE.level("broad").labels == ("16–17", "18–19", "(other)")
    assert AGE.level("broad").groups.tolist() == [0, 0, 1, 1, 2]
    assert AGE.declared == range(16, 20)
    assert AGE.is_numeric
    assert AGE.with_unknown("other") == AGE != Attribute.integers(16, 19)
    assert pickle.loads(pickle.dumps(AGE)).values[-1] is OTHER
    assert INCOME.index(5) == 1
    with pytest.raises(DomainError, match="no value 10"):
        INCOME.index(10)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Attribute.of(3).with_unknown("guess"), "'drop', 'clip' or 'other'"),
        (lambda: Attribute.categories(["a"]).with_unknown("clip"), "integers and bins"),
        (lambda: AGE.with_unknown("drop"), "not listed"),
        (lambda: Attribute.categories(["a", OTHER]), "not listed"),
        (lambda: Attribute.categories(["(other)"]).with_unknown("other"), "declared value"),
        (lambda: AGE.with_level("all", [16]), "with_unknown"),
        (lambda: PEOPLE.merge(["age", "sex"])["age*sex"].with_unknown("other"), "before merging"),
    ],
)
def test_policies_that_cannot_be(make, match):
    with pytest.raises(DomainError, match=match):
        make()


def test_predicates_never_hold_for_other():
    for predicate in (col("age") >= 16, col("age") < 99, col("income") < 10, col("sex").is_null()):
        assert not predicate.mask(PEOPLE)[-1]
        assert (~predicate).mask(PEOPLE)[-1]
    with pytest.raises(ps.PredicateError, match="no value"):
        (col("sex") == "(other)").mask(PEOPLE)


@pytest.mark.parametrize(
    ("condition", "cells"),
    [
        ("age >= 18", 2 * 3 * 4),
        ("NOT (age >= 18)", 2 * 3 * 4),
        ("income < 5", 5 * 1 * 4),
        ("income < 5 OR sex = 'F'", 5 * (4 + 2)),
        ("sex <> 'F'", 5 * 3 * 1),
    ],
)
def test_sql_comparisons_never_hold_for_other(condition, cells):
    workload = ps.Workload.from_sql(PEOPLE, [f"SELECT COUNT(*) FROM t WHERE {condition}"])
    assert workload.matrix.dense().sum() == cells


def test_sql_keys_keep_other_and_null_tests_are_refused():
    workload = ps.Workload.from_sql(PEOPLE, ["SELECT sex, COUNT(*) FROM t GROUP BY sex"])
    np.testing.assert_array_equal(workload.matrix.dense().sum(axis=1), [15] * 4)
    for text in ("COUNT(age) FROM t", "COUNT(*) FROM t WHERE sex IS NULL"):
        with pytest.raises(ps.SqlError, match=r"own cell \(other\)"):
            ps.Workload.from_sql(PEOPLE, [f"SELECT {text}"])


def test_ranges_name_values_as_without_other():
    workload = ps.Workload(PEOPLE, [ps.product(age=ps.ranges([(17, 18)]))])
    assert workload.matrix.dense().sum() == 2 * 3 * 4
