"""Conjunctions: conditions that name one value of each of a few attributes, by the million.

Where no vector of cells and no marginal fits, what is asked are sampled conjunctions: "smokes and
is a woman and lives in the north". They are held as two arrays of small integers, so that a million
of them are made, checked and compared with records at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from psephos.domain.domain import Domain
from psephos.errors import DomainError, ShapeError, TooLargeError, WorkloadError, checked_whole
from psephos.values import Array, Value, frozen

MOST_HELD = 10**8
"""The most truth values that `holds` gives at once."""
MOST_CELLS = 1 << 24
"""The most cells of tables that are counted together, unless one alone has more."""
MOST_WAYS = 64
FEWEST = 1 << 10
"""At least so many are drawn at once."""


@dataclass(frozen=True, eq=False, repr=False)
class Conjunctions(Value):
    """Row i holds where attribute number attributes[i, j] has cell values[i, j], for all j.

    Attribute numbers increase along a row; a shorter conjunction ends in attributes -1 with value
    0, which always hold.

    >>> domain = Domain.of(sex=["F", "M"], age=4)
    >>> some = Conjunctions.of(domain, [{"age": 3, "sex": "F"}, {"age": 1}])
    >>> some.attributes.tolist(), some.values.tolist()
    ([[0, 1], [1, -1]], [[0, 3], [1, 0]])
    >>> some.labels(domain)
    ('sex = F and age = 3', 'age = 1')
    """

    attributes: Array
    values: Array

    def __post_init__(self) -> None:
        for name in ("attributes", "values"):
            object.__setattr__(self, name, _numbers(getattr(self, name), name))
        attributes, values = self.attributes, self.values
        if attributes.ndim != 2 or attributes.shape != values.shape:
            raise ShapeError(
                "conjunctions are two arrays of one shape, a row for each conjunction; got "
                f"{attributes.shape} and {values.shape}"
            )
        if attributes.shape[1] > MOST_WAYS:
            raise WorkloadError(
                f"a conjunction names at most {MOST_WAYS} attributes, got {attributes.shape[1]}"
            )
        padding = attributes < 0
        self._refuse((attributes < -1).any(axis=1), "has a negative attribute number below -1")
        self._refuse(padding.all(axis=1), "names no attribute; give it one, or ask for the total")
        self._refuse((values < 0).any(axis=1), "has a negative value; values are cell numbers")
        self._refuse((padding & (values != 0)).any(axis=1), "has a value without an attribute")
        before, after = attributes[:, :-1], attributes[:, 1:]
        self._refuse(
            ((before == after) & (after >= 0)).any(axis=1),
            "asks for two values of one attribute, which no row has; name each attribute once",
        )
        self._refuse(
            (((before >= after) | (before < 0)) & (after >= 0)).any(axis=1),
            "has its attributes out of order; list them in the domain's order, -1 at the end",
        )

    def _refuse(self, wrong: Any, why: str) -> None:
        if wrong.any():
            where = int(np.argmax(wrong))
            raise WorkloadError(
                f"conjunction {where}, {_pairs(self.attributes[where], self.values[where])}, {why}"
            )

    @classmethod
    def of(cls, domain: Domain, conditions: Iterable[Any]) -> Conjunctions:
        """From dicts of attribute: value (or lists of such pairs), as the domain names them."""
        _check_domain(domain)
        axes = {name: axis for axis, name in enumerate(domain.names)}
        rows: list[list[tuple[int, int]]] = []
        if isinstance(conditions, str | Mapping) or not isinstance(conditions, Iterable):
            raise WorkloadError(
                "conjunctions are made of a list of dicts, such as "
                f'[{{"sex": "F", "age": 3}}, ...]; got {type(conditions).__name__}'
            )
        for number, condition in enumerate(conditions):
            where = f"conjunction {number}"
            try:
                pairs = condition.items() if isinstance(condition, Mapping) else condition
                pairs = [(name, value) for name, value in pairs]
            except (TypeError, ValueError):
                raise WorkloadError(
                    f"{where} is a dict of attribute: value, got {condition!r:.60}"
                ) from None
            literals = (_literal(domain, axes, name, value, where) for name, value in pairs)
            rows.append(sorted(literals))
        width = max((len(row) for row in rows), default=1)
        padded = [row + [(-1, 0)] * (width - len(row)) for row in rows]
        array = np.array(padded, dtype=np.int64).reshape(len(rows), width, 2)
        return cls(array[:, :, 0], array[:, :, 1])

    @classmethod
    def every(cls, domain: Domain, ways: int, *, positive: bool = False) -> Conjunctions:
        """All conjunctions of so many attributes: each cell of each of their tables.

        >>> len(Conjunctions.every(Domain.of(a=2, b=3, c=2), 2))
        16
        """
        features = _Features.of(domain, positive)
        total = features.number(checked_whole(ways, "ways", 1))
        if total * ways > MOST_HELD:
            raise TooLargeError(
                f"there are {total:,} conjunctions of {ways} attributes; draw some: "
                "Conjunctions.sampled(...)",
                total * ways,
                MOST_HELD,
            )
        return cls(*features.attributes_and_values(features.every(ways)))

    @classmethod
    def sampled(
        cls, domain: Domain, *, ways: int, number: int, seed: int, positive: bool = False
    ) -> Conjunctions:
        """Different conjunctions of so many attributes, drawn evenly from all there are.

        Only the domain and the seed, both public, decide what is drawn. A feature is one value of
        one attribute; every set of features of different attributes is as likely as any other.

        Args:
            domain: the public schema
            ways: how many attributes each conjunction names
            number: how many conjunctions
            seed: of the draw; the same seed gives the same conjunctions
            positive: of an attribute whose values are 0 and 1, take the value 1 alone
        """
        features = _Features.of(domain, positive)
        ways = checked_whole(ways, "ways", 1)
        number = checked_whole(number, "the number of conjunctions", 1)
        generator = default_rng(checked_whole(seed, "seed", 0))
        total = features.number(ways)
        if number > total:
            raise WorkloadError(
                f"{number:,} different conjunctions of {ways} attributes were asked for; the "
                f"domain has {total:,}"
            )
        if 2 * number > total:  # to draw nearly all of them one by one takes many repetitions
            chosen = features.every(ways)[np.sort(generator.choice(total, number, replace=False))]
        else:
            chosen = features.drawn(ways, number, generator)
        return cls(*features.attributes_and_values(chosen))

    def __len__(self) -> int:
        return len(self.attributes)

    @property
    def ways(self) -> int:
        """The most attributes that a conjunction names."""
        return int(self.attributes.shape[1])

    def take(self, places: Any) -> Conjunctions:
        """The conjunctions at these places, in this order."""
        where = np.asarray(places, dtype=np.int64)
        return Conjunctions(self.attributes[where], self.values[where])

    def over(self, axes: Sequence[int]) -> Conjunctions:
        """The same in a domain of these attributes alone, which are in order.

        >>> Conjunctions([[2, 5], [5, -1]], [[1, 1], [0, 0]]).over([2, 4, 5]).attributes.tolist()
        [[0, 2], [2, -1]]
        """
        numbers = np.searchsorted(np.asarray(axes), self.attributes)
        return Conjunctions(np.where(self.attributes < 0, -1, numbers), self.values)

    def renumbered(self, axes: Sequence[int]) -> Conjunctions:
        """The same over a domain in which attribute i has the number axes[i].

        >>> one = Conjunctions(np.array([[0, 1]]), np.array([[3, 2]]))
        >>> one.renumbered([5, 4]).attributes.tolist(), one.renumbered([5, 4]).values.tolist()
        ([[4, 5]], [[2, 3]])
        """
        named = self.attributes >= 0
        numbers = np.where(named, np.asarray(axes, dtype=np.int64)[self.attributes], -1)
        last = np.iinfo(np.int64).max
        order = np.argsort(np.where(named, numbers, last), axis=1, kind="stable")
        return Conjunctions(
            np.take_along_axis(numbers, order, axis=1),
            np.take_along_axis(self.values, order, axis=1),
        )

    def check(self, domain: Domain) -> None:
        """Refuses if the domain has no such attribute, or an attribute no such value."""
        _check_domain(domain)
        strange = self.attributes >= len(domain)
        self._refuse(strange.any(axis=1), f"names an attribute beyond the {len(domain)} there are")
        outside = self.values >= np.asarray(domain.shape)[self.attributes]
        outside &= self.attributes >= 0
        if outside.any():
            where, place = (int(i) for i in np.argwhere(outside)[0])
            name = domain.names[self.attributes[where, place]]
            value, size = int(self.values[where, place]), domain[name].size
            raise DomainError(
                f"conjunction {where}: attribute {name!r} has cells 0 to {size - 1}, got {value}"
            )

    def labels(self, domain: Domain, some: slice = slice(None)) -> tuple[str, ...]:
        """What some of them say, in the domain's words."""
        self.check(domain)
        rows = zip(self.attributes[some].tolist(), self.values[some].tolist(), strict=True)
        return tuple(
            " and ".join(
                f"{domain.names[axis]} = {domain.attributes[axis].label(value)}"
                for axis, value in zip(axes, values, strict=True)
                if axis >= 0
            )
            for axes, values in rows
        )

    def holds(self, records: Any) -> Array:
        """Where each holds, as truth of shape (conjunctions, records); for few records.

        `records` has one cell number for each attribute of the domain, a record a row. Many rows
        are counted by `psephos.domain.bits.PackedRows`.
        """
        table = np.atleast_2d(np.asarray(records))
        if table.dtype.kind not in "iu" or table.ndim != 2:
            raise ShapeError("records are rows of whole cell numbers, one for each attribute")
        if self.attributes.size and int(self.attributes.max()) >= table.shape[1]:
            raise ShapeError(
                f"a record has {table.shape[1]} attributes; a conjunction names number "
                f"{int(self.attributes.max())}"
            )
        entries = len(self) * len(table)
        if entries > MOST_HELD:
            raise TooLargeError(
                f"{len(self):,} conjunctions on {len(table):,} records have {entries:,} truth "
                f"values, over the limit of {MOST_HELD:,}; count them with PackedRows.of_codes",
                entries,
                MOST_HELD,
            )
        truth = np.ones((len(self), len(table)), dtype=bool)
        for attributes, values in zip(self.attributes.T, self.values.T, strict=True):
            named = attributes >= 0
            for truths, record in zip(truth.T, table, strict=True):
                truths &= (record[attributes] == values) | ~named
        return truth

    def tables(self) -> tuple[list[tuple[int, ...]], Array]:
        """The different sets of attributes that they name, and whose set is which.

        >>> Conjunctions([[0, 2], [1, -1], [0, 2]], [[0, 3], [1, 0], [1, 1]]).tables()
        ([(0, 2), (1,)], array([0, 1, 0]))
        """
        below = int(self.attributes.max(initial=0)) + 2
        keys = _row_keys(self.attributes.astype(np.int64) + 1, below)
        _, first, whose = np.unique(keys, return_index=True, return_inverse=True)
        rows = self.attributes[first].tolist()
        return [tuple(axis for axis in row if axis >= 0) for row in rows], whose.reshape(-1)

    def counted_by(
        self, domain: Domain, counts: Callable[[list[tuple[str, ...]]], Sequence[Array]]
    ) -> Array:
        """Their counts from those of whole tables, as `counts` gives them for attributes' names.

        Tables are asked for together, as long as they have few cells.
        """
        sets, whose = self.tables()
        order = np.argsort(whose, kind="stable")
        ends = np.searchsorted(whose[order], np.arange(len(sets) + 1))
        totals = np.zeros(len(self), dtype=np.int64)
        for some in _in_batches(sets, domain.shape):
            tables = counts([tuple(domain.names[axis] for axis in sets[i]) for i in some])
            for i, table in zip(some, tables, strict=True):
                places = order[ends[i] : ends[i + 1]]
                shape = tuple(domain.shape[axis] for axis in sets[i])
                cells = tuple(self.values[places, : len(shape)].T)
                totals[places] = np.asarray(table).reshape(shape)[cells]
        return totals

    def __repr__(self) -> str:
        return f"Conjunctions({len(self):,} of up to {self.ways} attributes)"


@dataclass(frozen=True, eq=False)
class _Features:
    """All pairs of an attribute and one of its values, in the domain's order."""

    attributes: Array
    values: Array
    sizes: Array
    """How many features each attribute has."""

    @classmethod
    def of(cls, domain: Domain, positive: bool) -> _Features:
        _check_domain(domain)
        sizes = np.array(domain.shape, dtype=np.int64)
        if int(sizes.sum()) >= 1 << 31:
            raise WorkloadError(
                f"the domain has {int(sizes.sum()):,} values in all, more than 2^31 - 1; leave out "
                "the longest attributes, or declare bins"
            )
        lowest = np.zeros(len(domain), dtype=np.int64)
        if positive:
            binary = {id(a): a for a in domain.attributes}  # most are one object, however many
            truth = {key: a.size == 2 and list(a.values) == [0, 1] for key, a in binary.items()}
            lowest += np.array([truth[id(a)] for a in domain.attributes])
        sizes -= lowest
        attributes = np.repeat(np.arange(len(domain)), sizes)
        firsts = np.cumsum(sizes) - sizes - lowest
        return cls(attributes, np.arange(attributes.size) - firsts[attributes], sizes)

    def number(self, ways: int) -> int:
        """How many sets of so many features of different attributes there are.

        The elementary symmetric polynomial of the sizes, by Newton's identities.
        """
        if ways > min(self.sizes.size, MOST_WAYS):
            raise WorkloadError(
                f"a conjunction of {ways} attributes was asked for; the domain has "
                f"{self.sizes.size}, and {MOST_WAYS} are the most"
            )
        sizes = Counter(self.sizes.tolist())
        powers = [sum(n * size**i for size, n in sizes.items()) for i in range(ways + 1)]
        sums = [Fraction(1)]
        for k in range(1, ways + 1):
            signed = ((-1) ** (i - 1) * sums[k - i] * powers[i] for i in range(1, k + 1))
            sums.append(sum(signed, Fraction(0)) / k)
        return int(sums[ways])

    def every(self, ways: int) -> Array:
        """All sets, one a row, in order."""
        ends = np.cumsum(self.sizes)[self.attributes]  # the first feature of the next attribute
        rows = np.arange(self.attributes.size)[:, None]
        for _ in range(ways - 1):
            further = self.attributes.size - ends[rows[:, -1]]
            places = np.repeat(np.arange(len(rows)), further)
            offsets = np.arange(places.size) - np.repeat(np.cumsum(further) - further, further)
            rows = np.column_stack([rows[places], ends[rows[places, -1]] + offsets])
        return rows

    def drawn(self, ways: int, number: int, generator: Generator) -> Array:
        """Different sets, each as likely as any other, in the order in which they came."""
        rows = np.zeros((0, ways), dtype=np.int64)
        while len(rows) < number:
            batch = max(FEWEST, (number - len(rows)) * 5 // 4)
            fresh = np.sort(generator.integers(self.attributes.size, size=(batch, ways)), axis=1)
            attributes = self.attributes[fresh]
            fresh = fresh[(attributes[:, 1:] > attributes[:, :-1]).all(axis=1)]
            rows = np.concatenate([rows, fresh])
            _, first = np.unique(_row_keys(rows, self.attributes.size), return_index=True)
            rows = rows[np.sort(first)]
        return rows[:number]

    def attributes_and_values(self, rows: Array) -> tuple[Array, Array]:
        return self.attributes[rows], self.values[rows]


def _in_batches(sets: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of sets of attributes, as many at a time as have few cells."""
    some: list[int] = []
    cells = 0
    for i, axes in enumerate(sets):
        size = math.prod(sizes[axis] for axis in axes)
        if some and cells + size > MOST_CELLS:
            yield some
            some, cells = [], 0
        some.append(i)
        cells += size
    if some:
        yield some


def _row_keys(rows: Array, below: int) -> Array:
    """One number for each row, equal where rows are; entries are less than `below`, itself < 2^31.

    >>> _row_keys(np.array([[1, 2], [0, 5], [1, 2]]), 10)
    array([12,  5, 12])
    """
    keys, most = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        if most * below >= 1 << 62:
            keys = np.unique(keys, return_inverse=True)[1].reshape(-1)
            most = len(rows) + 1
        keys, most = keys * below + column, most * below
    return keys


def _numbers(given: Any, name: str) -> Array:
    array = np.asarray(given)
    if array.dtype.kind not in "iu" and array.size:
        raise WorkloadError(f"the {name} of conjunctions are whole numbers, got {array.dtype}")
    limits = np.iinfo(np.int32)
    if array.size and (array.max() > limits.max or array.min() < limits.min):
        raise WorkloadError(f"the {name} of conjunctions are numbers below 2^31")
    return frozen(array, dtype=np.int32)


def _literal(
    domain: Domain, axes: Mapping[str, int], name: Any, value: Any, where: str
) -> tuple[int, int]:
    axis = axes.get(name, -1) if isinstance(name, str) else -1
    if axis < 0:
        domain.axis(name)  # raises, with the names there are
    try:
        return axis, domain.attributes[axis].index(value)
    except DomainError as error:
        raise DomainError(f"{where}: attribute {name!r}: {error}") from None


def _pairs(attributes: Sequence[int], values: Sequence[int]) -> str:
    shown = ", ".join(f"{a}: {v}" for a, v in zip(attributes[:8], values[:8], strict=True))
    return f"{{{shown}{', …' if len(attributes) > 8 else ''}}}"


def _check_domain(domain: Domain) -> None:
    if not isinstance(domain, Domain):
        raise DomainError(f"a Domain is needed, got {type(domain).__name__}; write Domain.of(...)")
