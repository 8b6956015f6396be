"""Numbers with the digits that they deserve.

Of the least standard error in a table two digits count: numbers of the table are rounded to as many
decimals, so rounding moves none of them by more than a twentieth of its standard error. Numbers
that are sure, such as 100 %, set no digits. Standard errors have one decimal more, and intervals
are rounded outwards, so that they cover what they covered. Parquet files keep every digit; CSV,
Excel and all other files have rounded numbers.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from psephos.numbers import ALMOST_SURE
from psephos.values import Array

UNKNOWN_DECIMALS = 2
"""Of numbers whose error nobody knows."""
MOST_DECIMALS = 12
UNIT_SLACK = 1e-6
"""Of the last decimal: what ends of intervals may be beyond it and still stand for it."""


def decimals_of(stderr: Array | None) -> int:
    """How many decimals the numbers of a table have, given their standard errors.

    >>> decimals_of(np.array([34.2, 3.4])), decimals_of(np.array([340.0]))
    (1, 0)
    """
    noisy = np.zeros(0) if stderr is None else stderr[stderr > 0]
    noisy = noisy[noisy > ALMOST_SURE * noisy.max(initial=0.0)]
    if not noisy.size:
        return UNKNOWN_DECIMALS
    return min(MOST_DECIMALS, max(0, 1 - math.floor(math.log10(float(noisy.min())))))


def decimals_in(table: pa.Table) -> int:
    """The same for a table of a view."""
    return decimals_of(table["stderr"].to_numpy() if "stderr" in table.column_names else None)


def printed(table: pa.Table, decimals: int) -> pa.Table:
    """A table with its real numbers rounded; whole numbers and labels stay.

    Rounding twice is rounding once.
    """
    dust = _dust(table, 10.0**-decimals)
    for place, field in enumerate(table.schema):
        if not pa.types.is_floating(field.type):
            continue
        values = table[field.name].to_numpy()
        table = table.set_column(
            place, field, pa.array(_rounded(field.name, values, decimals, dust))
        )
    return table


def _dust(table: pa.Table, unit: float) -> Array | float:
    """The widths of intervals of sure numbers, which arithmetic left; zero for all others.

    What half of the last decimal shows is no dust, however narrow beside others.
    """
    schema = table.schema
    ends = [name for name in ("low", "high") if name in schema.names]
    if len(ends) < 2 or not all(pa.types.is_floating(schema.field(name).type) for name in ends):
        return 0.0
    width = table["high"].to_numpy() - table["low"].to_numpy()
    widest = width[np.isfinite(width)].max(initial=0.0)
    return np.where(width <= min(ALMOST_SURE * widest, unit / 2), width, 0.0)


def _rounded(name: str, values: Array, decimals: int, dust: Array | float) -> Array:
    scale = 10.0**decimals
    # Beyond the last digits of floats, what was rounded before must stay as it is.
    slack = UNIT_SLACK + 8 * np.finfo(float).eps * np.abs(values * scale) + dust * scale
    if name == "low":
        values = np.floor(values * scale + slack) / scale
    elif name == "high":
        values = np.ceil(values * scale - slack) / scale
    else:
        values = np.asarray(np.round(values, decimals + (name == "stderr")))
    return np.asarray(values + 0.0)  # no minus zero


def rounding_of(name: str, decimals: int) -> float:
    """By how much rounding moves the numbers of a column at most."""
    if name in ("low", "high"):
        return float((1 + UNIT_SLACK) * 10.0**-decimals)
    return float(0.5 * (1 + UNIT_SLACK) * 10.0 ** -(decimals + (name == "stderr")))
