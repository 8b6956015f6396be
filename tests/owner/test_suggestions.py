"""The lines that the owner's check proposes: they say what to write, and it mends what it saw."""

import math
import tomllib

import pyarrow as pa
import pytest

from psephos.domain.attribute import Attribute
from psephos.domain.cleaning import Cleaning
from psephos.domain.domain import Domain
from psephos.engines import cleaned
from psephos.owner.check import check
from psephos.owner.report import PRIVATE
from tests.cli.test_cli import run, told

STATUS = ["employed", "out of work"]
DATES = Attribute.dates("2000-01-01", "2000-12-31")


def proposed(attribute, entries, rule=None):
    """What is proposed for a column, as TOML reads it."""
    table = pa.table({"x": pa.array(entries, pa.string())})
    report = check(cleaned(table, {"x": rule}) if rule else table, Domain.of(x=attribute))
    lines = [f.text.partition("write: ")[2] for f in report.findings if f.kind == "mend"]
    assert all(f.level == "note" for f in report.findings if f.kind == "mend")
    assert str(report).startswith(PRIVATE)
    return tomllib.loads("\n".join(lines))


@pytest.mark.parametrize(
    ("attribute", "entries", "lines"),
    [
        (STATUS, ["employed\u00a0", " out of work"], {"trim": True}),
        (STATUS, ["EMPLOYED", "Employed"], {"case": "lower"}),
        (["A", "B"], ["a"], {"case": "upper"}),
        (["Ann", "bob"], ["ANN"], {"aliases": {"Ann": ["ANN"]}}),
        (STATUS, ["NULL", "n/a", ""], {"nulls": ["", "NULL", "n/a"]}),
        (STATUS, ["emplyed"], {"aliases": {"employed": ["emplyed"]}}),
        (STATUS, ["Out-of work"], {"aliases": {"out of work": ["Out-of work"]}}),
        (STATUS, ["clerk"], {}),
        (STATUS, ["unemployed"], {}),
        (["inactive", "other"], ["active"], {}),
        (["caf\u00e9"], ["cafe\u0301"], {"trim": True}),
        (Attribute.bins([0, 10, math.inf]), ["1.234,5", "7,5"], {"decimal": ","}),
        (Attribute.bins([0, 10, math.inf]), ["1,234.5", "1,234"], {"decimal": "."}),
        (Attribute.integers(0, 9), ["-9", "999", "NULL"], {"nulls": ["-9", "999", "NULL"]}),
        (Attribute.integers(0, 9), ["\u00a07"], {"trim": True}),
        (Attribute.integers(0, 9), ["12"], {}),
        (["a"], ["1987-05-05", "2001-01-01"], {"dates": ["1980-01-01", "2009-12-31"]}),
        (DATES, ["NULL", "\u00a02000-01-01"], {"trim": True, "nulls": ["NULL"]}),
    ],
)
def test_the_line_that_mends_is_proposed(attribute, entries, lines):
    assert proposed(attribute, entries) == lines
    if lines and "dates" not in lines:
        shape = attribute if isinstance(attribute, Attribute) else Attribute.of(attribute)
        table = pa.table({"x": pa.array(entries, pa.string())})
        domain = Domain.of(x=shape.with_missing())
        report = check(cleaned(table, {"x": Cleaning(**lines)}), domain)
        assert not [f for f in report.findings if f.kind == "undeclared"]


def test_lines_that_are_there_are_written_anew():
    rule = Cleaning(nulls=["none given"], aliases={"employed": ["emp"]})
    lines = proposed(STATUS, ["NULL", "emp", "employd", "none given"], rule)
    assert lines == {
        "nulls": ["none given", "NULL"],
        "aliases": {"employed": ["emp", "employd"]},
    }


def test_days_in_another_order_are_told():
    table = pa.table({"x": ["31.12.2000", "2000-01-01"]})
    report = check(table, Domain.of(x=DATES))
    (mend,) = [f for f in report.findings if f.kind == "mend"]
    assert "write them 1999-12-31" in mend.text


def test_numbers_beyond_open_bins_are_not_spoken_of():
    table = pa.table({"x": ["-1", "5"]})
    report = check(table, Domain.of(x=Attribute.bins([0, 10, math.inf])))
    (finding,) = [f for f in report.findings if f.kind == "range"]
    assert finding.text == "1 numbers below 0"


MESSY = """status,income,born,age
EMPLOYED,"1.234,5",2001-05-05,7
Employed ,"7,5",1999-01-01 10:00,-9
emplyed,NULL,0000-00-00,8
\u00a0out of work,12,1999-12-31,9
NULL,"0,5",2000-02-29,3
"""
VALUES = {
    "status": 'values = ["employed", "out of work"]\nmissing = "not stated"',
    "income": 'bins = [0, 10, 1000, inf]\nmissing = "not stated"',
    "born": 'dates = ["1990-01-01", "2009-12-31"]\nlevels = { year = "year" }\nmissing = "-"',
    "age": 'integers = [0, 9]\nmissing = "not stated"',
}


def test_from_a_messy_file_to_a_release(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text(MESSY, encoding="utf-8")
    assert run("init", "people.csv").exit_code == 0
    text = (tmp_path / "release.toml").read_text()
    draft = "confirmed = false                  # CONFIRM: write what can occur, delete this line"
    for name, lines in VALUES.items():
        text = text.replace(f"[schema.{name}]\n{draft}", f"[schema.{name}]\n{lines}")
    text = text.replace("# unit =", "unit =").replace('# epsilon = "..."', 'epsilon = "1"')
    (tmp_path / "release.toml").write_text(text)
    report = told("check", "release.toml", code=1)
    for finding in report["findings"]:
        if finding["kind"] == "mend":
            line = finding["text"].partition("write: ")[2]
            head = f"[schema.{finding['column']}]\n"
            text = text.replace(head, f"{head}{line}\n")
    (tmp_path / "release.toml").write_text(text)
    report = told("check", "release.toml", "--create-ledger")
    assert report["counted"] == report["rows"] == 5
    assert run("release", "release.toml").exit_code == 0
    assert "emplyed" not in (tmp_path / "bundle" / "release.json").read_text()
