"""All ways in which one unit can change a small table, and what is lost where answers move.

If answers of neighbours move by d in a block of discrete Laplace noise of scale b, the largest
log-ratio of an outcome is Σ|d|/b, and it is reached; in discrete Gaussian noise of variance v, the
zCDP parameter is Σd²/2v (Canonne, Kamath, Steinke 2020, Proposition 5). Both are exact fractions.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement

import numpy as np

from psephos.kernel.budget import Currency
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.unit import Unit, add_remove_row, person, substitute_row
from psephos.values import Array

UNITS = (
    add_remove_row(),
    substitute_row(),
    person("person", max_rows=2),
    person("person", max_rows=2, change="substitute"),
)
CURRENCIES: tuple[Currency, ...] = ("epsilon", "rho")
SMALL_CELLS = 8
ROWS_OF_OTHERS = np.array([1, 0, 2, 0, 1, 1, 0, 3])
"""How often each cell of a small table occurs in the rows of all but one unit."""


def hidden_rows(unit: Unit) -> Array:
    """All sets of rows that one unit can have, as counts of cells.

    The empty set is among them, unless a row is always substituted by another.
    """
    fewest = 1 if unit.change == "substitute" and unit.person is None else 0
    sizes = range(fewest, unit.max_rows + 1)
    row_sets = [c for k in sizes for c in combinations_with_replacement(range(SMALL_CELLS), k)]
    return np.array([np.bincount(np.array(c, int), minlength=SMALL_CELLS) for c in row_sets])


@cache
def neighbours(unit: Unit) -> tuple[Array, Array, Array]:
    """Rows of a unit, and the pairs of them that are neighbours."""
    rows = hidden_rows(unit)
    if unit.change == "substitute":
        first, second = np.triu_indices(len(rows), 1)
    else:  # with none of them
        first, second = np.zeros(len(rows) - 1, int), np.arange(1, len(rows))
    return rows, first, second


def loss_weight(noise: Noise) -> Fraction:
    """What an answer that moves by one loses, and one that moves by d as often as d or d²."""
    return 1 / (noise.scale if isinstance(noise, DiscreteLaplace) else 2 * noise.variance)
