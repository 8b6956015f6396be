import math
import pickle
import re
from decimal import Decimal
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import psephos as ps
from psephos import Attribute, Domain, DomainError

AGE = Attribute.integers(0, 114).with_level("5 years", 5).with_level("broad", [0, 20, 65])
PEOPLE = Domain.of({"sex": ["F", "M"], "age": AGE, "region": 51})


@st.composite
def domains(draw):
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    return Domain.of({f"a{i}": n for i, n in enumerate(sizes)})


@given(domain=domains(), data=st.data())
def test_cells_are_numbered_row_major_and_back(domain, data):
    cell = data.draw(st.integers(0, domain.size - 1))
    labels = domain.cell(cell)
    values = {name: int(label) for name, label in labels.items()}
    assert domain.index(values) == cell
    assert np.unravel_index(cell, domain.shape) == tuple(values.values())


@given(domain=domains(), data=st.data())
def test_merging_keeps_the_cells(domain, data):
    names = data.draw(st.lists(st.sampled_from(domain.names), unique=True, max_size=4))
    if len(names) < 2:
        with pytest.raises(DomainError, match="two or more"):
            domain.merge(names)
        return
    merged = domain.merge(names)
    assert merged.size == domain.size
    joined = merged["*".join(n for n in domain.names if n in names)]
    assert [n for n, _ in joined.parts] == [n for n in domain.names if n in names]
    assert len(set(joined.values)) == joined.size


def test_what_the_schema_says():
    assert PEOPLE.names == ("sex", "age", "region")
    assert PEOPLE.shape == (2, 115, 51)
    assert PEOPLE.size == 11730
    assert PEOPLE["sex"].labels == ("F", "M")
    assert PEOPLE.project(["age", "sex"]).shape == (115, 2)
    assert Domain.of(a=3, b=["x"]).shape == (3, 1)
    assert list(PEOPLE) == ["sex", "age", "region"]
    assert "age" in PEOPLE
    assert "race" not in PEOPLE


def test_labels_come_back():
    sex = Attribute.categories({1: "Male", 2: "Female", None: "not stated"})
    assert sex.labels == ("Male", "Female", "not stated")
    assert [sex.index(v) for v in (1, 2, None, "Female")] == [0, 1, 2, 1]
    assert Attribute.categories(["a", None]).labels == ("a", "(missing)")
    assert Domain.of(sex=sex, n=3).cell(4) == {"sex": "Female", "n": "1"}


def test_bins_hold_their_lower_edge():
    income = Attribute.bins([0, 10_000, 25_000.5, math.inf])
    assert income.labels == ("[0, 10000)", "[10000, 25000.5)", "25000.5 and over")
    assert [income.index(v) for v in (0, 9_999.99, 10_000, 1e12)] == [0, 0, 1, 2]
    assert income.index("[10000, 25000.5)") == 1
    assert income.with_level("low", [0, 25_000.5]).level("low").labels == (
        "[0, 25000.5)",
        "25000.5 and over",
    )


def test_levels_group_from_fine_to_coarse():
    assert AGE.level("5 years").labels[:2] == ("0–4", "5–9")
    assert len(AGE.level("5 years").labels) == 23
    assert AGE.level("broad").groups[[0, 19, 20, 64, 65, 114]].tolist() == [0, 0, 1, 1, 2, 2]
    halves = {"first": ["a", "b"], "rest": ["c", "d"]}
    named = Attribute.categories(list("abcd")).with_level("half", halves)
    assert named.level("half").groups.tolist() == [0, 0, 1, 1]
    assert Attribute.integers(3, 12).with_level("w", 5).level("w").labels == ("3–4", "5–9", "10–12")


def test_values_are_frozen_equal_and_small():
    assert Domain.of(a=3) == Domain.of(a=range(3))
    assert hash(Domain.of(a=3)) == hash(Domain.of(a=range(3)))
    assert Domain.of(a=3) != Domain.of(b=3)
    assert Domain.of(a=[True, False]) != Domain.of(a=[1, 0])
    days = Attribute.of(np.array(["2020-01-02"], dtype="datetime64[ns]"))
    assert days.values[0].isoformat() == "2020-01-02T00:00:00"
    assert (
        Attribute.integers(0, 114).with_level("5 years", 5).with_level("broad", [0, 20, 65]) == AGE
    )
    with pytest.raises(AttributeError):
        AGE.values = ()
    assert pickle.loads(pickle.dumps(PEOPLE)) == PEOPLE
    huge = Domain.of({f"x{i}": 10**6 for i in range(5)})
    assert huge.size == 10**30
    assert huge.cell(10**30 - 1)["x0"] == "999999"


def test_reprs_are_friendly():
    assert repr(PEOPLE) == "Domain(sex: 2, age: 115, region: 51; 11,730 cells)"
    assert repr(AGE) == "Attribute(115 integers 0–114; levels: 5 years, broad)"
    html = Domain.of(**{"<b>": ["<script>", "&"]})._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<td>20–64</td>" in AGE._repr_html_()
    assert "65 more" in AGE._repr_html_()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Domain.of({}), "at least one attribute"),
        (lambda: Domain.of(a=0), "attribute 'a': an attribute needs at least one value"),
        (lambda: Domain.of(a=[]), "at least one value"),
        (lambda: Domain.of(a=["x", "y", "x"]), "'a': value 'x' is declared twice"),
        (lambda: Domain.of(a=[1, True]), "declared twice"),
        (lambda: Domain.of(a="text"), "cannot make an attribute of 'text'"),
        (lambda: Domain.of(a=2.5), "cannot make an attribute of 2.5"),
        (lambda: Domain.of(a=[math.nan]), "declare None"),
        (lambda: Domain.of(a=[[1]]), "cannot be a cell"),
        (lambda: Domain.of(a={1: "x", 2: "x"}), "label 'x' is used twice"),
        (lambda: Domain.of(["a"]), "takes a dict"),
        (lambda: Domain.of({"a": 2}, a=3), "'a' is declared twice"),
        (lambda: Domain.of(a={"F", "M"}), "cannot make an attribute"),
        (lambda: Domain.of(a=object()), "cannot make an attribute"),
        (lambda: Domain.of(a=[1, "1"]), "label '1' is used twice"),
        (lambda: Domain.of(a=[Decimal("NaN")]), "declare None"),
        (lambda: Domain({"a": 2}, ()), "write Domain.of"),
        (lambda: Domain(("a",), (2,)), "write Domain.of"),
        (lambda: Attribute.bins(5), "list of edges"),
        (lambda: Attribute.integers("0", 5), "low <= high"),
        (lambda: AGE.with_level("x", 5.0), "takes a width"),
        (lambda: AGE.with_level(5, 5), "name is text"),
        (lambda: Attribute.of([1, 5]).with_level("x", {"a": [], "b": [1, 5]}), "'a' .* is empty"),
        (lambda: PEOPLE.merge("sex"), "list of attributes"),
        (lambda: PEOPLE.cell(1.5), "not a whole number"),
        (lambda: Domain(("a", "a"), (AGE, AGE)), "'a' is declared twice"),
        (lambda: Domain(("a",), (AGE, AGE)), "1 names but 2 attributes"),
        (lambda: Domain.of({"": 3}), "non-empty text"),
        (lambda: Attribute.bins([0, 10, 5]), "edge 10 is followed by 5"),
        (lambda: Attribute.bins([0, 10, 10]), "edges must increase"),
        (lambda: Attribute.bins([0]), "at least two edges"),
        (lambda: Attribute.bins([0, math.nan]), "must be numbers"),
        (lambda: Attribute.bins([0, math.inf, math.inf]), "overlap or are empty"),
        (lambda: Attribute.bins(["a", "b"]), "must be numbers"),
        (lambda: Attribute.bins([0, 1, 2], labels=["low"]), "2 values but 1 labels"),
        (lambda: Attribute.integers(5, 4), "low <= high"),
        (lambda: AGE.with_level("broad", 10), "declared twice"),
        (lambda: AGE.with_level("odd", [0, 30]), "cuts group '20–64' of level 'broad'"),
        (lambda: AGE.with_level("w", [5, 10]), "begin with 0"),
        (lambda: Attribute.of(["a", "b"]).with_level("w", 2), "needs an integer attribute"),
        (lambda: Attribute.of(["a", "b"]).with_level("w", ["a"]), "label: values"),
        (lambda: Attribute.of(["a", "b"]).with_level("w", {"x": ["a"]}), "leaves out b"),
        (lambda: Attribute.of(["a"]).with_level("w", {"x": ["a"], "y": ["a"]}), "two groups"),
        (lambda: Attribute.of(["a"]).with_level("w", {"x": "a"}), "must list its values"),
        (lambda: AGE.level("none"), "have 5 years, broad"),
        (lambda: PEOPLE["race"], "no attribute 'race'; have sex, age, region"),
        (lambda: PEOPLE.project(["race"]), "no attribute 'race'"),
        (lambda: PEOPLE.index({"sex": "F"}), "one value for each of"),
        (
            lambda: PEOPLE.index({"sex": "X", "age": 1, "region": 1}),
            "'sex': no value 'X'; have F",
        ),
        (lambda: PEOPLE.cell(11730), "not a whole number in 0..11729"),
        (lambda: PEOPLE.merge(["sex", "sex"]), "two or more different"),
    ],
)
def test_bad_schemas_are_refused_in_words(make, words):
    with pytest.raises(DomainError) as error:
        make()
    assert words in str(error.value) or re.search(words, str(error.value))
    assert isinstance(error.value, ps.PsephosError)


def test_very_many_attributes_are_shown_in_short():
    domain = Domain.binary(100_000, prefix="movie ")
    assert len(repr(domain)) < 5000
    assert repr(domain).endswith("… (100000 in all); about 10^30103 cells)")
    html = domain._repr_html_()
    assert "about 10^30103 cells" in html
    assert "99,950 more" in html
    assert "movie 99999" in domain
    assert 7 not in domain
    with pytest.raises(DomainError, match="at least 1"):
        Domain.binary(0)


def test_levels_may_be_given_in_any_order():
    days = Attribute.dates("2020-01-01", "2021-12-31")
    levels = ("year", "month", "quarter")
    for order in permutations(levels):
        attribute = days
        for name in order:
            attribute = attribute.with_level(name, name)
        assert [level.name for level in attribute.levels] == ["month", "quarter", "year"]
    with pytest.raises(DomainError, match=r"'quarter' cuts group .* of level 'week'"):
        days.with_level("quarter", "quarter").with_level("week", "week")


def test_coarse_values_keep_what_stands_apart_and_the_levels_that_fit():
    age = Attribute.integers(0, 9).with_level("five", 5).with_missing("?").with_unknown("other")
    coarse = age.coarsen(np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 3]))
    assert coarse.labels == ("0–4", "5–9", "?", "(other)")
    assert coarse.apart == (2, 3)
    assert coarse.is_ordered
    assert coarse.level("five").groups.tolist() == [0, 1, 2, 3]
    names = Attribute.categories(list("abcd")).with_level("two", {"x": ["a", "b"], "y": ["c", "d"]})
    mixed = names.coarsen(np.array([0, 1, 0, 1]))
    assert (mixed.labels, mixed.levels, mixed.is_ordered) == (("a, c", "b, d"), (), False)
    assert names.coarsen(np.arange(4)) is names
