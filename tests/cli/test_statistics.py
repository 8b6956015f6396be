"""Statistics in the terminal, whichever columns their layout has."""

import io

import pyarrow as pa
import pytest
from rich.console import Console

from psephos.cli.render_tables import rich_numbers


@pytest.mark.parametrize("unit", [[], ["share", "share"]])
def test_a_layout_may_leave_the_unit_out(unit):
    columns = {"sex": ["F", "M"], "statistic": ["share of row", "mean age"], "value": [0.25, 40.0]}
    numbers = pa.table(columns | ({"unit": unit} if unit else {}))
    text = io.StringIO()
    Console(file=text, width=100).print(rich_numbers("", numbers, 1, "in a file"))
    assert "share of row" in text.getvalue()
    assert "and 1 more rows in a file" in text.getvalue()
