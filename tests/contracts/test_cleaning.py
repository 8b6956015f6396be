"""One set of laws of cleaning for all engines: every engine reads dirty entries alike."""

import datetime
import math
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import psephos as ps
from psephos.domain.attribute import Attribute
from psephos.domain.cleaning import BLANKS, Cleaning
from psephos.domain.domain import Domain
from psephos.engines import as_source, cleaned
from psephos.errors import DomainError
from psephos.kernel.unit import Cap, person
from psephos.owner.check import check
from tests.contracts.test_engines import ENGINES, SERVICES, every_engine
from tests.engines.test_duck import slow_count

CAFE, CAFE_IN_TWO = "caf\u00e9", "cafe\u0301"
STATUS = Attribute.categories(["employed", CAFE, "out of work", None]).with_unknown("other")
AMOUNT = Attribute.bins([-math.inf, 0, 10, 2000, math.inf]).with_unknown("other")
CODE = Attribute.integers(0, 9).with_unknown("other")
DOMAIN = Domain.of(status=STATUS, amount=AMOUNT, code=CODE)
RULES = {
    "status": Cleaning(
        trim=True,
        case="lower",
        nulls=["NULL", "n/a", "k. A."],
        aliases={"employed": ["EMP", "empl. "], CAFE: ["Coffee's"]},
    ),
    "amount": Cleaning(decimal=",", nulls=["-9"]),
    "code": Cleaning(trim=True, nulls=["99"], aliases={"7": ["seven"]}),
}
STATUSES = [
    *[None, "", " ", "\u00a0", "employed", "Employed", "EMPLOYED\u00a0", "\ufeff emp\t", "EMPL."],
    *[CAFE, CAFE_IN_TWO, CAFE_IN_TWO.upper(), "coffee's", "Null", "N/A ", "k. a.", "k.a."],
    *["out  of work", "out\u00a0of work", "OUT OF WORK", "'; DROP TABLE t", "(other)", "x" * 300],
]
AMOUNTS = [
    *[
        None,
        "",
        "1.234,5",
        "1.234",
        "12.34,5",
        "7,5",
        ",5",
        "7,",
        "-1.000.000",
        "-9",
        "-9.0",
        "1.5",
    ],
    *["1 234,5", "1\u00a0234,5", "1'234", "1,5e1", "abc", "nan", "inf", "-3", " 7 ", "+7", "1,2,3"],
]
CODES = [None, "7", "07", " 7\u2007", "Seven", "seven", "99", "99.0", "099", "7.5", "-1", "\u0667"]


def expected_status(entry):
    """The entry as the rules leave it, in plain Python."""
    if entry is None:
        return None
    text = unicodedata.normalize("NFC", entry).strip(BLANKS).lower()
    if text in ("", "null", "n/a", "k. a."):
        return None
    return {"emp": "employed", "empl.": "employed", "coffee's": CAFE}.get(text, text)


def expected_amount(entry):
    if entry is None or entry in ("-9", "-9.0"):
        return None
    text = entry.strip(" ")
    whole, _, rest = text.partition(",")
    digits = whole.lstrip("+-")
    for mark in ". '\u00a0":
        groups = digits.replace(mark, "|").split("|")
        if len(groups) > 1:
            good = 1 <= len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
            whole = whole.replace(mark, "") if good else "?"
    number = f"{whole}.{rest}" if rest or whole == "" else whole
    return "?" if number == "." else number


def expected_code(entry):
    text = None if entry is None else entry.strip(BLANKS)
    number = {"99": None, "99.0": None, "099": None, "seven": "7"}
    return number.get(text, "?" if text == "\u0667" else text)


@st.composite
def tables(draw):
    columns = [st.sampled_from(values) for values in (STATUSES, AMOUNTS, CODES)]
    return draw(st.lists(st.tuples(st.sampled_from("pq"), *columns), min_size=1, max_size=9))


def arrow(rows):
    names = ["who", "status", "amount", "code"]
    columns = zip(*rows, strict=True)
    return pa.table(
        {n: pa.array(list(c), pa.string()) for n, c in zip(names, columns, strict=True)}
    )


def by_hand(rows):
    """The rows that `slow_count` counts: whose they are, and the cleaned texts."""
    return [
        (who, expected_status(status), expected_amount(amount), expected_code(code))
        for who, status, amount, code in rows
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dirty")


@every_engine
@settings(max_examples=15)
@given(rows=tables(), cap=st.none() | st.just(Cap("who", 1)))
def test_all_engines_clean_alike(kind, folder, rows, cap):
    source = as_source(cleaned((ENGINES | SERVICES)[kind](arrow(rows), folder), RULES))
    counts = slow_count(DOMAIN, by_hand(rows), DOMAIN.names, (), cap)
    for _ in range(2):
        np.testing.assert_array_equal(source.count(DOMAIN, DOMAIN.names, (), cap), counts)


EVERY_ROW = [
    ("p", status, amount, code)
    for status, amount, code in zip(
        [*STATUSES, *STATUSES[:1]],
        [*AMOUNTS, *AMOUNTS[:1]][: len(STATUSES) + 1],
        (CODES * 3)[: len(STATUSES) + 1],
        strict=False,
    )
]


@every_engine
def test_the_fast_and_the_safe_reading_clean_alike(kind, folder):
    source = as_source(cleaned((ENGINES | SERVICES)[kind](arrow(EVERY_ROW), folder), RULES))
    readings = []
    for safe in (False, True):
        with source.snapshot() as snapshot, snapshot.opened(DOMAIN.names, safe=safe) as rows:
            text = rows.indices(DOMAIN, [(name,) for name in DOMAIN.names], None)
            readings.append(sorted(rows.run(text).fetchall()))
    assert readings[0] == readings[1]
    assert len(readings[0]) == len(EVERY_ROW)


@every_engine
def test_the_check_speaks_of_cleaned_entries(kind, folder):
    rows = [("p", "EMP ", "1,5", "99"), ("q", "n/a", "2,5", "seven"), ("r", "Clerk", "x", "1")]
    domain = Domain.of(status=["employed", CAFE, None], code=10)
    report = check(cleaned((ENGINES | SERVICES)[kind](arrow(rows), folder), RULES), domain)
    (undeclared,) = [f for f in report.findings if f.kind == "undeclared"]
    assert undeclared.entries == (("Clerk", 1),)
    assert [f.column for f in report.findings if f.kind == "missing"] == ["status", "code"]
    assert report.counted == 1


@pytest.mark.parametrize("entry", [-9, -9.0, "-9", "-9.0", None])
def test_numbers_among_the_words_for_missing_are_numbers(entry):
    domain = Domain.of(code=Attribute.categories([0, 7, None]))
    kind = pa.string() if isinstance(entry, str) else None
    table = pa.table({"code": pa.array([entry], kind)})
    source = as_source(cleaned(table, {"code": Cleaning(nulls=["-9"])}))
    assert source.count(domain, ("code",), (), None).tolist() == [0, 0, 1]


def test_text_that_looks_like_a_number_is_text():
    table = pa.table({"zip": ["01", "1", "1.0"]})
    source = as_source(cleaned(table, {"zip": Cleaning(nulls=["1"])}))
    domain = Domain.of(zip=["01", "1.0"])
    assert source.count(domain, ("zip",), (), None).tolist() == [1, 1]


def test_thousands_set_off_by_commas():
    table = pa.table({"x": ["1,234.5", "1,5", "1234.5", "1,234,567"]})
    domain = Domain.of(x=Attribute.bins([0, 1000, 2000, math.inf]).with_unknown("other"))
    source = as_source(cleaned(table, {"x": Cleaning(decimal=".")}))
    assert source.count(domain, ("x",), (), None).tolist() == [0, 2, 1, 1]


def test_dates_are_cleaned_too():
    day = datetime.date(2020, 2, 29)
    table = pa.table({"day": ["\u00a02020-02-29 ", "leap day", "0000-00-00"]})
    rule = Cleaning(trim=True, aliases={"2020-02-29": ["leap day"]}, nulls=["0000-00-00"])
    source = as_source(cleaned(table, {"day": rule}))
    domain = Domain.of(day=Attribute.categories([day, None]))
    assert source.count(domain, ("day",), (), None).tolist() == [2, 1]


@settings(max_examples=60)
@given(text=st.text(max_size=6), case=st.sampled_from([None, "lower", "upper"]), trim=st.booleans())
def test_no_entry_makes_cleaning_fail(text, case, trim):
    rule = Cleaning(trim=trim, case=case, nulls=["null"], decimal=",")
    table = pa.table({"x": ["7", text]})
    domain = Domain.of(x=Attribute.integers(0, 9).with_unknown("other"))
    assert as_source(cleaned(table, {"x": rule})).count(domain, (), (), None) == 2


# refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "attribute", "words"),
    [
        (Cleaning(case="lower"), ["Employed"], "declare 'employed', with a label"),
        (Cleaning(trim=True), ["a "], "after cleaning .trim."),
        (Cleaning(trim=True), ["", "a"], "no entry can be ''"),
        (Cleaning(trim=True), [CAFE_IN_TWO], "NFC"),
        (Cleaning(aliases={"b": ["c"]}), ["a"], "'b' is no declared value"),
        (Cleaning(aliases={"a": ["b"]}), ["a", "b"], "'b' is a declared value of its own"),
        (Cleaning(nulls=["A"], case="lower"), ["a"], "nulls: 'A' is a declared value"),
        (Cleaning(decimal=","), ["a"], "decimal goes with numbers"),
        (Cleaning(aliases={"12": ["x"]}), 10, "'12' is no declared value"),
    ],
)
def test_rules_that_do_not_fit_are_refused(rule, attribute, words):
    source = as_source(cleaned(pa.table({"x": ["a"]}), {"x": rule}))
    with pytest.raises(DomainError, match=words) as caught:
        source.count(Domain.of(x=attribute), (), (), None)
    assert str(caught.value).startswith("cleaning of 'x': ")


@pytest.mark.parametrize(
    "rule",
    [
        {"nulls": ["x"], "aliases": {"a": ["x"]}},
        {"aliases": {"a": ["x"], "b": ["X"]}, "case": "lower"},
        {"nulls": "NULL"},
        {"nulls": [None]},
        {"aliases": {"a": ["x\0"]}},
        {"case": "title"},
        {"trim": 1},
        {"decimal": ";"},
    ],
)
def test_rules_that_mean_nothing_are_refused(rule):
    with pytest.raises(DomainError):
        Cleaning(**rule)


def test_the_column_of_persons_is_never_cleaned():
    source = as_source(cleaned(arrow(EVERY_ROW), {"who": Cleaning(trim=True)}))
    with pytest.raises(DomainError, match="never cleaned: who is one person was fixed"):
        source.count(Domain.of(code=10), (), (), Cap("who", 1))
    assert source.count(Domain.of(who=["p"]), (), (), None) == len(EVERY_ROW)
    report = check(source, Domain.of(code=10), unit=person("who", max_rows=1))
    assert [f.kind for f in report.findings] == ["cleaning"]


def test_persons_are_told_apart_as_they_are_written():
    rows = [("P", "emp", "1", "1"), ("p", "emp", "1", "1"), ("p ", "emp", "1", "1")]
    source = as_source(cleaned(arrow(rows), RULES))
    assert source.count(DOMAIN, (), (), Cap("who", 1)) == 3


def test_sources_that_cannot_be_cleaned_are_refused():
    with pytest.raises(DomainError, match="no column 'Status'; close to it: 'status'"):
        as_source(cleaned(arrow(EVERY_ROW), {"Status": Cleaning(trim=True)}))
    with pytest.raises(DomainError, match="nothing to clean"):
        as_source(cleaned(np.eye(2), {"x0": Cleaning(trim=True)}))
    with pytest.raises(DomainError, match="cleaned once"):
        cleaned(cleaned(arrow(EVERY_ROW), RULES), RULES)
    with pytest.raises(DomainError, match="is written Cleaning"):
        cleaned(arrow(EVERY_ROW), {"status": {"trim": True}})


def test_nothing_shows_the_spellings(tmp_path):
    source = cleaned(arrow(EVERY_ROW), RULES)
    for shown in (repr(RULES["status"]), repr(source), repr(as_source(source))):
        assert "emp" not in shown
        assert "n/a" not in shown
    unit, budget = ps.add_remove_row(), ps.epsilon("1")
    ps.Ledger.create(tmp_path / "l", dataset="d", unit=unit, budget=budget)
    table = ps.protect(source, DOMAIN, ledger=tmp_path / "l")
    measured = table.noisy_count(spend=ps.epsilon("1/2"))
    plain = ps.protect(arrow(EVERY_ROW), DOMAIN, ledger=tmp_path / "l")
    assert measured.lineage == plain.noisy_count(spend=ps.epsilon("1/4")).lineage
    assert ps.check(source, DOMAIN, unit=person("who", max_rows=1)).ok
