"""CSV files as they come: separators, encodings, broken lines; told to the owner alone."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from psephos.domain.domain import Domain
from psephos.engines import CsvFile, as_source
from psephos.engines.csv_lines import csv_header
from psephos.errors import DomainError, SourceError
from psephos.kernel.source import Cap
from psephos.owner.check import check
from psephos.release.spec.draft import column_types

DOMAIN = Domain.of({"age": 9, "pet": ["cat", "dog"]})


def write(folder, content, name="people.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def findings(path, domain=DOMAIN):
    return {f.kind: f for f in check(as_source(path), domain).findings if f.column == "lines"}


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["people.csv", "people.tsv"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_the_separator_is_found_in_the_header(tmp_path, mark, name, end, start):
    lines = [f"age{mark}pet", f"3{mark}cat", f"4{mark}dog", f"4{mark}dog"]
    path = write(tmp_path, start + end.join(lines) + end, name)
    assert as_source(path).columns.names == ("age", "pet")
    assert [column for column, _ in column_types(path)] == ["age", "pet"]
    assert as_source(path).count(DOMAIN, ("pet",), (), None).tolist() == [1, 2]
    assert check(as_source(path), DOMAIN).ok


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("age;pet, if any;sex", ("age", "pet, if any", "sex")),
        ('"a;b;c;d",e', ("a;b;c;d", "e")),
        ('"say ""a;b;c""",e', ('say "a;b;c"', "e")),
        ("age , pet", ("age", "pet")),
        ("a;b,c", ("a;b", "c")),  # in a tie what the name promises
        ("age", ("age",)),
        ('5" pipe,pet', ('5" pipe', "pet")),
    ],
)
def test_headers(tmp_path, header, names):
    assert CsvFile(write(tmp_path, header + "\n1,2\n")).columns().names == names


def test_rows_do_not_decide_how_a_file_is_read(tmp_path):
    for rows in (b"3;cat\n", b"3,cat,3,cat\n", b"\xff\xfe\x00;;;;\n", b"", b'"\n' * 99):
        header = csv_header(write(tmp_path, b"age,pet\n" + rows), ",")
        assert (header.names, header.separator) == (("age", "pet"), ",")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("größe,pet\n3,cat\n".encode("latin-1"), "save the file as UTF-8"),
        ("age,pet\n3,cat\n".encode("utf-16"), "save the file as UTF-8"),
        (b"PK\x03\x04\x14\x00\x06\x00age,pet\n", "not a CSV or Parquet file"),
        (b"age\x00,pet\n", "not a CSV or Parquet file"),
        (b"", "needs a header"),
        (b"\n3,cat\n", "needs a header"),
        (b'age,"pet\n3,cat\n', "is a quote not closed there"),
        (b'"two\nlines",pet\n3,cat\n', "is a quote not closed there"),
    ],
)
def test_a_header_that_is_no_text_is_refused_alike(tmp_path, content, said):
    path = write(tmp_path, content)
    for read in (as_source, column_types):
        with pytest.raises(SourceError, match=said):
            read(path)


def test_other_kinds_of_files_are_refused_alike(tmp_path):
    path = write(tmp_path, b"PK\x03\x04", "people.xlsx")
    for read in (as_source, column_types):
        with pytest.raises(DomainError, match="export the table as CSV or Parquet"):
            read(path)


# ---- broken lines --------------------------------------------------------------------------------


LINES = [b"age,pet,name", b"1,cat,x", b"2", b"3,dog", b"4,dog,a,b", b"5,cat,a,b,c", b"6,cat,x,"]
LINES += [b"7,d\xf6g,x", b"7,\xff,x", b"7,cat,Andr\xe9", b"8," + b"9" * 2_100_000 + b",x"]
LINES += [b'8,"cat\n",x', b"", b'8,cat,5" pipe', b'8,cat,"x"y', b"8,cat,y", b"", b'8,dog,"a,b"']


def test_the_check_counts_broken_lines_of_all_columns_and_says_where(tmp_path):
    path = write(tmp_path, b"\n".join(LINES) + b"\n")
    report = check(as_source(path), DOMAIN)
    assert not report.ok
    said = [(f.level, f.text) for f in report.findings if f.column == "lines"]
    assert [level for level, _ in said] == ["error"] * 5
    texts = "\n".join(text for _, text in said)
    for words, places in (
        ("2 lines have fewer fields than the header and are left out", "(lines 3, 4)"),
        ("3 lines have more fields than the header and are left out", "(lines 5, 6, 7)"),
        ("3 lines hold bytes that are not UTF-8 and are left out", "(lines 8, 9, 10)"),
        ("1 lines are longer than 2 MB and are left out", "(line 11)"),
        ("3 lines hold a quoted entry that is not closed, or goes on", "(lines 12, 13, 16)"),
    ):
        assert any(text.startswith(words) and text.endswith(places) for _, text in said), texts
    assert report.rows == 4  # lines 2, 15, 17 and 19


def test_lines_of_a_multiline_file_are_read_as_duckdb_does(tmp_path):
    path = write(tmp_path, b"\n".join(LINES) + b"\n")
    report = check(CsvFile(path, multiline=True), DOMAIN)
    said = {f.text.split(" (line")[0]: f.level for f in report.findings if f.column == "lines"}
    assert (
        said["1 rows hold an entry of several lines; has a stray quote joined lines?"] == "warning"
    )
    assert sum(level == "error" for level in said.values()) >= 4
    more = "2 lines have more fields than the header and the last are ignored; put quotes around "
    assert more + 'entries that hold a separator ("a, b")' in said
    well_formed = write(tmp_path, 'age,pet,name\n1,cat,"two\nlines"\n2,dog,x\n')
    assert check(CsvFile(well_formed, multiline=True), DOMAIN).ok
    assert as_source(CsvFile(well_formed, multiline=True)).count(DOMAIN, (), (), None) == 2
    assert not check(well_formed, DOMAIN).ok


def test_a_csv_file_with_rules_of_its_own_is_one(tmp_path):
    pq.write_table(pa.table({"age": [1]}), tmp_path / "people.parquet")
    with pytest.raises(DomainError, match="is no CSV file"):
        CsvFile(tmp_path / "people.parquet", multiline=True)
    with pytest.raises(SourceError, match="there is no file"):
        CsvFile(str(tmp_path / "none.csv"))


def test_a_file_in_another_encoding_is_told_by_the_check_alone(tmp_path):
    path = write(tmp_path, "age,pet\n3,cat\n4,dög\n".encode("latin-1"))
    assert "save the file as UTF-8" in findings(path)["lines left out"].text
    assert as_source(path).count(DOMAIN, (), (), None) == 1
    assert as_source(path).count(DOMAIN, (), (), Cap("pet", 1)) == 1


def test_a_well_formed_file_has_no_broken_lines(tmp_path):
    text = 'age;pet\r\n3;"cat"\r\n\r\n4;dog\n5;"do""g"\n6;"cat;"\n'
    assert findings(write(tmp_path, text)) == {}
    assert findings(write(tmp_path, "age,pet\n")) == {}


def test_of_very_many_broken_lines_the_first_ten_are_listed(tmp_path):
    path = write(tmp_path, "age,pet\n" + "7\n" * 500)
    text = findings(path)["lines left out"].text
    assert text.startswith("500 lines have fewer fields")
    assert text.endswith("(lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 …)")
