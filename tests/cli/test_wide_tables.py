"""Tables of many attributes in a terminal: one column says which rows are counted."""

from io import StringIO

import pyarrow as pa
from rich.console import Console

from psephos.cli.render_tables import MOST_LABELS, rich_numbers


def shown(columns):
    console = Console(width=100, record=True, file=StringIO())
    console.print(rich_numbers("pairs", pa.table(columns | {"count": [7, 8, 9]})))
    return console.export_text()


def columns(several):
    labels = {f"q{i}": ["total"] * 3 for i in range(several)}
    for i in range(several):
        labels[f"q{i}"][i % 3] = "x"
    return labels


def test_many_labels_are_one_column():
    labels = columns(MOST_LABELS + 1) | {"kind": ["(total)", "total", "(total)"]}
    text = shown(labels)
    assert "which rows" in text
    assert "q0 = x, q3 = x, q6 = x" in text
    assert "q1 = x, q4 = x, q7 = x, kind = total" in text  # a value that is called so


def test_few_labels_have_columns_of_their_own():
    text = shown(columns(3))
    assert "which rows" not in text
    assert all(name in text for name in ("q0", "q1", "q2"))
