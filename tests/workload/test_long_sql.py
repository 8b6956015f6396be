"""Conditions of many terms are decided as short ones are; what nests too deeply is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psephos import Domain, SqlError
from psephos.workload.sql import compile_sql, refusals
from psephos.workload.sql.compiler import CONDITIONS_AT_ONCE
from psephos.workload.sql.evaluator import Evaluator
from psephos.workload.workload import Workload

MANY = 20_000
SMALL = Domain.of(age=range(6), sex=["F", "M", None])
COUNT = "SELECT COUNT(*) FROM t WHERE "


def mask(domain, condition):
    """Which cells a statement counts, over all attributes of the domain."""
    merged, products = compile_sql(domain, COUNT + condition)
    answers = Workload(merged, products).answer
    return np.array([answers(cell)[0] for cell in np.eye(domain.size)]).astype(bool)


@pytest.mark.slow
@pytest.mark.parametrize(
    "condition",
    [
        " OR ".join(f"age = {i}" for i in range(MANY)),
        f"age IN ({', '.join(map(str, range(MANY)))})",
    ],
)
def test_twenty_thousand_terms_are_decided(condition):
    _, (product,) = compile_sql(Domain.of(age=range(MANY + 1)), COUNT + condition)
    cells = np.arange(MANY + 1.0)
    workload = Workload(Domain.of(age=range(MANY + 1)), [product])
    assert workload.answer(cells)[0] == cells[:MANY].sum()


def test_conditions_on_one_column_are_decided_together(monkeypatch):
    questions = []
    truth = Evaluator._truth

    def counted(self, text, points):
        questions.append(text)
        return truth(self, text, points)

    monkeypatch.setattr(Evaluator, "_truth", counted)
    domain, size = Domain.of(age=range(1500)), 1000
    condition = " AND ".join(f"age <> {i}" for i in range(size))
    merged, products = compile_sql(domain, COUNT + condition)
    assert len(questions) == -(-size // CONDITIONS_AT_ONCE)
    assert Workload(merged, products).answer(np.ones(1500))[0] == 500


@st.composite
def conditions(draw, depth=4):
    """SQL and what it means for one row: True, False or None."""
    kind = draw(st.sampled_from(["age", "sex", "and", "or", "not"] if depth else ["age", "sex"]))
    if kind == "age":
        sign, value = draw(st.sampled_from(["=", "<>", "<"])), draw(st.integers(0, 5))
        compare = {"=": int.__eq__, "<>": int.__ne__, "<": int.__lt__}[sign]
        return f"age {sign} {value}", lambda age, sex: compare(age, value)
    if kind == "sex":
        sign, value = draw(st.sampled_from(["=", "<>"])), draw(st.sampled_from(["F", "M"]))
        return (
            f"sex {sign} '{value}'",
            lambda age, sex: None if sex is None else (sex == value) == (sign == "="),
        )
    if kind == "not":
        text, inner = draw(conditions(depth - 1))
        return (
            f"NOT ({text})",
            lambda age, sex: None if inner(age, sex) is None else not inner(age, sex),
        )
    parts = [draw(conditions(depth - 1)) for _ in range(draw(st.integers(2, 4)))]
    decisive = kind == "or"

    def joined(age, sex):
        truths = [meaning(age, sex) for _, meaning in parts]
        if decisive in truths:
            return decisive
        return None if None in truths else not decisive

    return f" {kind.upper()} ".join(f"({text})" for text, _ in parts), joined


@pytest.mark.slow
@given(pair=conditions())
@settings(deadline=None)
def test_nested_conditions_mean_what_they_say(pair):
    condition, meaning = pair
    expected = [meaning(age, sex) is True for age in range(6) for sex in ("F", "M", None)]
    if any(expected):
        assert mask(SMALL, condition).tolist() == expected
    else:
        with pytest.raises(SqlError, match="0 whatever the data"):
            compile_sql(SMALL, COUNT + condition)


@pytest.mark.parametrize("levels", [refusals.PARENTHESES + 1, 300, 3000])
@pytest.mark.parametrize(
    "nest",
    [
        lambda n: "(" * n + "age = 1" + ")" * n,
        lambda n: "".join(f"(age = {i % 6} OR " for i in range(n)) + "age = 1" + ")" * n,
        lambda n: "ABS(" * n + "age" + ")" * n + " = 1",
        lambda n: "NOT " * 5 * n + "age = 1",
        lambda n: "age = 1" + " + 1 - 1 * 1" * 5 * n,
        lambda n: "CASE WHEN age = 1 THEN 1 ELSE " * 5 * n + "0" + " END" * 5 * n + " = 1",
    ],
)
def test_deep_nesting_is_refused_in_words(nest, levels):
    with pytest.raises(SqlError, match=f"at most {refusals.PARENTHESES} levels of parentheses"):
        compile_sql(SMALL, COUNT + nest(levels))


def test_the_deepest_parentheses_are_read():
    n = refusals.PARENTHESES
    assert mask(SMALL, "(" * n + "age = 1" + ")" * n).sum() == 3


def test_a_caller_deep_in_calls_is_told():
    def called(levels):
        if levels:
            return called(levels - 1)
        return compile_sql(SMALL, COUNT + "(" * 20 + "age = 1" + ")" * 20)

    with pytest.raises(SqlError, match="nested too deeply"):
        called(600)


def test_too_long_a_text_is_refused():
    with pytest.raises(SqlError, match=f"over the limit of {refusals.LENGTH:,}"):
        compile_sql(SMALL, COUNT + "age = 1" + " " * refusals.LENGTH)
