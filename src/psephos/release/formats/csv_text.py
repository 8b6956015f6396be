"""CSV that no spreadsheet takes for a formula.

Programs execute a field that starts with =, +, - or @, however it is quoted. Such a label gets an
apostrophe before it, and so does one that looks like that already, so that readers of a bundle can
take it away again; plain numbers and ranges of them stay as they are.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

FORMULA = r"^'* *[=+\-@＝＋－＠\t\r\n]"
"""What a spreadsheet may execute, or an apostrophe would be missed before."""
PLAIN_NUMBER = r"^-?[0-9]+(\.[0-9]+)?((–| to )-?[0-9]+(\.[0-9]+)?)?$"


def defused(text: str) -> str:
    """A text that no spreadsheet executes.

    >>> defused("=1+1"), defused("-5"), defused("'@x"), defused("cat")
    ("'=1+1", '-5', "''@x", 'cat')
    """
    harmless = re.match(FORMULA, text) is None or re.fullmatch(PLAIN_NUMBER, text) is not None
    return text if harmless else f"'{text}"


def write_csv(table: pa.Table, place: Path | pa.NativeFile) -> None:
    """A table as CSV: a line of names, then one for each row."""
    names = [defused(name) for name in table.column_names]
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(i, field, _defused(table[field.name]))
    pa.csv.write_csv(table.rename_columns(names), place)


def csv_bytes(table: pa.Table) -> bytes:
    """What `write_csv` writes."""
    sink = pa.BufferOutputStream()
    write_csv(table, sink)
    return bytes(sink.getvalue())


def parse_csv(place: Path, schema: pa.Schema) -> pa.Table:
    """The table of a CSV file that `write_csv` wrote; other columns are found under their names."""
    types = {defused(field.name): field.type for field in schema}
    options = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
    lines = pa.csv.ParseOptions(newlines_in_values=True)
    table = pa.csv.read_csv(place, convert_options=options, parse_options=lines)
    known = {defused(name): name for name in schema.names}
    table = table.rename_columns([known.get(name, name) for name in table.column_names])
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(i, field, _restored(table[field.name]))
    return table


def _defused(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not any(text != defused(text) for text in pc.unique(column).to_pylist()):
        return column
    formula = pc.match_substring_regex(column, FORMULA)
    plain = pc.match_substring_regex(column, PLAIN_NUMBER)
    marked = pc.binary_join_element_wise("'", column, "")
    return pc.if_else(pc.and_not(formula, plain), marked, column)


def _restored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not any(text.startswith("'") for text in pc.unique(column).to_pylist()):
        return column
    formula = pc.match_substring_regex(column, FORMULA)
    marked = pc.and_(formula, pc.starts_with(column, "'"))
    return pc.if_else(marked, pc.utf8_slice_codeunits(column, 1), column)
