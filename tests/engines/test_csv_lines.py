"""A line of a CSV is a row, or none, by itself: both readings follow one rule."""

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from psephos.engines import csv_lines
from psephos.engines.duckdb.rows import connect
from psephos.engines.files import CsvFile
from psephos.errors import SourceError
from psephos.owner.broken_lines import broken_lines

ENDS = ["\n", "\r\n"]


def reference_row(line, separator, width):
    """The entries of a line, character by character; None if it is no row."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    fields, place = [], 0
    while place <= len(text):
        field, quoted = "", text[place : place + 1] == '"'
        place += quoted
        while text[place : place + 1] and (quoted or text[place] != separator):
            if quoted and text[place] == '"':
                if text[place + 1 : place + 2] != '"':
                    break
                place += 1
            field += text[place]
            place += 1
        if quoted and (place >= len(text) or text[place + 1 : place + 2] not in ("", separator)):
            return None
        fields.append(field if field or quoted else None)
        place += 1 + quoted
    return tuple(fields) if len(fields) == width else None


def reference_rows(body, separator, width):
    lines = body.split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    stripped = [line.rstrip(b"\r") for line in lines]
    rows = [reference_row(line, separator, width) for line in stripped if line or width == 1]
    return Counter(row for row in rows if row is not None)


def read_safely(file, names):
    with file.snapshot() as batches:
        rows = batches.read(names).read_all()
    return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def read_natively(file, width):
    with connect(file.files) as connection:
        relation = file.relation(connection, range(width))
        if relation is None:
            return None
        columns = ", ".join(f"c{i}" for i in range(width))
        rows = Counter(connection.sql(f"SELECT {columns} FROM {relation}").fetchall())
        (number,) = connection.sql(f"SELECT COUNT(*) FROM {relation}").fetchall()[0]
    assert number == rows.total()
    return rows


def read(folder, header, body, width):
    path = Path(folder) / "people.csv"
    path.write_bytes(header + body)
    names = [f"n{i}" for i in range(width)]
    rows = read_safely(CsvFile(path), names)
    assert read_natively(CsvFile(path), width) in (rows, None)
    for i, name in enumerate(names):
        one = read_safely(CsvFile(path), [name])
        assert one == Counter(row[i : i + 1] for row in rows.elements())
    return rows


def header_of(width, separator, end):
    return separator.join(f"n{i}" for i in range(width)).encode() + end.encode()


# Pieces of which lines are made: most are what a rule speaks of.
PIECES = [
    b'"',
    b'"',
    b'""',
    b",",
    b",",
    b";",
    b"\t",
    b"a",
    b"b c",
    b" ",
    b"\xc3\xa4",
    b"\xff",
    b"\0",
]
PIECES += [b"\xef\xbb\xbf", b"'", b"\\", b"#", b"0", b"\xed\xa0\x80", b'"x"', b'"x,"', b'"",']
lines = st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join)
bodies = st.lists(
    st.sampled_from([*PIECES, b"\n", b"\n", b"\r\n", b"\r", b'\n"', b'"\n']), max_size=40
)
regular = st.lists(
    st.sampled_from([b"a", b"", b'""', b'"a,b"', b'"x""y"', b"\xc3\xa4"]), min_size=1
)
shapes = st.tuples(st.integers(1, 3), st.sampled_from(ENDS))


@given(shape=shapes, body=bodies.map(b"".join))
@example(shape=(1, "\n"), body=b"\n\n")
@example(shape=(2, "\n"), body=b"1,2,\n1,2,,\n3,4")
@example(shape=(1, "\n"), body=b"\xef\xbb\xbfa\n")
def test_any_bytes_are_read_by_the_rule(shape, body):
    width, end = shape
    header = header_of(width, ",", end)
    with tempfile.TemporaryDirectory() as folder:
        assert read(folder, header, body, width) == reference_rows(body, ",", width)


@pytest.mark.slow
@given(
    shape=shapes,
    rows=st.lists(regular, min_size=1, max_size=30),
    last=st.booleans(),
    mark=st.sampled_from(",;\t|"),
)
def test_regular_lines_are_read_natively(shape, rows, last, mark):
    width, end = shape
    rows = [(row * width)[:width] for row in rows]
    body = end.encode().join(mark.encode().join(row) for row in rows) + end.encode() * last
    with tempfile.TemporaryDirectory() as folder:
        known = read(folder, header_of(width, mark, end), body, width)
        assert known == reference_rows(body, mark, width)
        file = CsvFile(Path(folder) / "people.csv")
        assert read_natively(file, width) is not None


@given(
    shape=shapes,
    others=st.lists(st.one_of(lines, st.just(b'a,"b",c'), st.just(b'x"')), min_size=1, max_size=9),
    hostile=lines,
    data=st.data(),
)
def test_one_line_more_is_at_most_one_row_more(shape, others, hostile, data):
    width, end = shape
    place = data.draw(st.integers(0, len(others)))
    more = [*others[:place], hostile, *others[place:]]
    with tempfile.TemporaryDirectory() as folder:
        path, contents = Path(folder) / "people.csv", []
        for each in (others, more):
            body = b"".join(line + end.encode() for line in each)
            path.write_bytes(header_of(width, ",", end) + body)
            contents.append(read_safely(CsvFile(path), [f"n{i}" for i in range(width)]))
    before, after = contents
    assert not before - after
    assert (after - before).total() <= 1


def test_blocks_make_no_difference(tmp_path, monkeypatch):
    path = tmp_path / "people.csv"
    rows = [f'{i},"a, b",{"ä" * (i % 7)}' for i in range(300)]
    rows[100:100] = ['"', '1,"2"x,3', "", "1,2", "\ufeff,1,2"]
    path.write_text("n0,n1,n2\n" + "\n".join(rows))
    whole = read_safely(CsvFile(path), ["n0", "n1", "n2"])
    broken = list(broken_lines(CsvFile(path)))
    assert whole.total() == 301
    assert [number for number, _ in broken] == [102, 103, 105]
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr(csv_lines, "CSV_BLOCK_BYTES", size)
        assert read_safely(CsvFile(path), ["n0", "n1", "n2"]) == whole
        assert list(broken_lines(CsvFile(path))) == broken


@pytest.mark.parametrize("length", [1_999_999, 2_000_000, 2_000_001, 5_000_000])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_up_to_two_million_bytes_are_rows(tmp_path, length, end):
    body = end.join(["a,b", "x" * (length - 2) + ",y", "c,d"]).encode()
    rows = read(tmp_path, header_of(2, ",", end), body, 2)
    assert rows.total() == (3 if length <= 2_000_000 else 2)


@pytest.mark.parametrize("header", [b'5" pipe,n1', b'n0,"n1"', b"n0 ,\xc3\xa4", b"n0,n1"])
def test_both_readings_agree_below_any_header(tmp_path, header):
    path = tmp_path / "people.csv"
    path.write_bytes(header + b'\na,b\n"c",""\n')
    file = CsvFile(path)
    rows = read_safely(file, file.columns().names)
    assert rows == {("a", "b"): 1, ("c", ""): 1}
    assert read_natively(file, 2) == rows


@pytest.mark.parametrize("body", [b"", b"1,2\r3,4\r", b"\n1,2\r3,4\r", b"1,2\n"])
def test_lines_that_end_in_cr_alone_are_refused(tmp_path, body):
    """Else a first row that begins with LF would decide how all others are read."""
    path = tmp_path / "people.csv"
    path.write_bytes(b"n0\r,n1\r" + body)
    with pytest.raises(SourceError, match="end in CR alone; save it with ends of LF or CRLF"):
        CsvFile(path)


@pytest.mark.parametrize("more", [0, 1, 5, 1000, 2**18 - 1])
def test_what_lies_beyond_two_million_bytes_makes_no_difference(tmp_path, more):
    """Blocks are cut by their place in the file, and so by the lines before."""
    block = csv_lines.CSV_BLOCK_BYTES
    odd = b"x,0" + b"\r" * (9 * block - 9) + b"z" + b"\r" * 4 + b"\n"
    padded = b"x,0" + b"\r" * (9 * block) + b"\n"
    path = tmp_path / "people.csv"
    path.write_bytes(b"n0,n1\n" + b"." * more + b",y\n" + odd * 2 + padded + b"a,b\n")
    rows = read_safely(CsvFile(path), ["n0", "n1"])
    assert rows == {("." * more or None, "y"): 1, ("a", "b"): 1}
    assert [number for number, _ in broken_lines(CsvFile(path))] == [3, 4, 5]
