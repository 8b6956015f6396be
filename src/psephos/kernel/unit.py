"""The unit of privacy: whose presence a release must not betray.

Tables are compared by the rows added or removed to turn one into the other. The unit fixes the
distance D of neighbouring tables. A mechanism that costs ε₁ (or ρ₁) per unit of distance, behind
transformations of stability s, costs D·s·ε₁ (or D²·s²·ρ₁) at the root; `per_distance` is the
inverse: what may be spent per unit of distance so that the root pays exactly `spend`.

Privacy: for pure DP, group privacy over a path of D·s tables at distance one. For zCDP, the same
path gives (D·s)²ρ₁ (Bun and Steinke 2016, Proposition 27); for linear measurements with
Gaussian noise it is the square of the distance moved, directly.
(tests/kernel/test_unit.py)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from psephos.errors import BudgetError
from psephos.kernel.budget import Budget

Change = Literal["add_remove", "substitute"]
FINEST_SPEND = Fraction(1, 2**200)


@dataclass(frozen=True)
class Cap:
    """At most `max_rows` rows of each person, who is named by a column."""

    column: str
    max_rows: int


@dataclass(frozen=True)
class Unit:
    """Neighbouring tables differ in one row or in one person's rows, at most `max_rows`."""

    change: Change
    person: str | None = None
    max_rows: int = 1

    def __post_init__(self) -> None:
        whole = type(self.max_rows) is int and self.max_rows >= 1
        # One row without a name, or text that is not empty.
        named = type(self.person or 0) is str or (self.person is None and self.max_rows == 1)
        if self.change not in ("add_remove", "substitute") or not whole or not named:
            raise BudgetError(
                "a unit is add_remove_row(), substitute_row() or person(column, max_rows=k) with a "
                f"positive whole k; got {self.change!r}, {self.person!r}, {self.max_rows!r}"
            )

    @property
    def cap(self) -> Cap | None:
        """The cap on the rows of a person, if persons are protected."""
        return None if self.person is None else Cap(self.person, self.max_rows)

    @property
    def distance(self) -> int:
        """The most rows added or removed between neighbours."""
        return self.max_rows * (2 if self.change == "substitute" else 1)

    def per_distance(self, spend: Budget, stability: int) -> Fraction:
        """What to spend per unit of distance behind `stability`, for `spend` at the root."""
        return _spread(spend, self.distance * stability)

    def per_moved_row(self, spend: Budget, stability: int, *, rowwise: bool) -> Fraction:
        """What to spend, in epsilon, per row by which counts can move, for `spend` at the root.

        `rowwise`: each row of the table is one of the root's, and no split lies above it.

        Privacy: then a substituted row moves a count by -1, 0 or 1, as an added row does, though
        it is at distance 2; of a person's k rows each does. Elsewhere the distance bounds it:
        behind a split the row may leave one part and enter another
        (tests/kernel/test_unit.py::test_a_substituted_row_moves_a_count_once).
        """
        return _spread(spend, self.max_rows if rowwise else self.distance * stability)

    def on_persons(self, cells: int) -> Unit:
        """The unit of a table that has a row for each person and each of so many cells, once.

        Privacy: of a person's rows, of which the cap leaves at most `max_rows`, each gives one row
        there, those in the same cell together one; so a person has at most the lesser number
        (tests/kernel/test_persons.py::test_a_person_moves_each_cell_once).
        """
        return replace(self, max_rows=min(self.max_rows, cells))

    def __str__(self) -> str:
        verb = "substitute" if self.change == "substitute" else "add or remove"
        who = f"person ({self.person}, at most {self.max_rows} rows)" if self.person else "row"
        return f"{verb} one {who}"


def _spread(spend: Budget, reach: int) -> Fraction:
    """The spend per unit of distance over a reach, if noise can be drawn for it.

    Every request comes by here before its charge. The exponential mechanism takes any rate; other
    searches draw noise of scale c/each for a public c from 1 to 2⁹⁹, and `kernel.noise` takes
    scales from 2⁻³⁰⁰ to 2³⁰⁰: so none is refused after the charge
    (tests/contracts/test_scores.py::test_an_extreme_spend_is_answered_or_not_charged).
    """
    each = spend.amount / (reach if spend.currency == "epsilon" else reach**2)
    if not FINEST_SPEND <= each <= 1 / FINEST_SPEND:
        raise BudgetError(f"spend 2^-200 to 2^200 per row; {float(each):.3g} is out of range")
    return each


def add_remove_row() -> Unit:
    """Neighbours differ by one row, added or removed."""
    return Unit("add_remove")


def substitute_row() -> Unit:
    """Neighbours differ in the content of one row; their number of rows is the same."""
    return Unit("substitute")


def person(column: str, *, max_rows: int, change: Change = "add_remove") -> Unit:
    """Neighbours differ in all rows of one person, named by a column, of which k count at most."""
    return Unit(change, column, max_rows)
