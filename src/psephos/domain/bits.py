"""Rows packed into bits, one run of bits for each value of each attribute, and counted by AND.

Sixty-four rows share a word. How many rows a conjunction holds in is the number of bits that are
left when the runs of its values are joined by AND: exact, and some billions of rows a second. An
attribute of two values has one run only, that of its second value; the first is its complement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from psephos.domain.conjunctions import Conjunctions
from psephos.errors import ShapeError
from psephos.values import Array

ROWS_OF_A_WORD = 64
LANES = 8
"""Runs are whole groups of so many words, whose counts of bits are added up side by side."""
MOST_LANES = 511
"""So many sums of two counts, each of up to 64, fit into 16 bits."""
EVERY_OTHER_BYTE = np.uint64(0x00FF00FF00FF00FF)
BUFFER_WORDS = 1 << 17
"""What is joined at once: a megabyte, about what stays in a core's own memory."""
COPIED_WORDS = 1 << 17
"""The runs that are worked on together, if each is used often."""
REUSED = 8
"""Runs that are used more often than this are copied piece by piece."""
SHORTEST_PIECE = 128
"""Shorter pieces, of very many runs, cost more than they save."""
BLOCK_COLUMNS = 256
TURNED_ROWS = 1 << 10
BLOCK_BYTES = 1 << 28
"""The most memory that a block of rows is packed into."""


class PackedRows:
    """Rows as bits: `bits` has a run for each feature, `valid` says which rows count.

    No dataclass, and shown without what it holds, not even the number of rows.

    >>> rows = PackedRows.of_codes(np.array([[0, 2], [1, 2], [0, 1]]), [2, 3])
    >>> rows.counts(Conjunctions([[0, 1], [1, -1]], [[0, 2], [2, 0]]))
    array([1, 2])
    """

    __slots__ = ("__dict__", "_bits", "_sizes", "_valid")

    def __init__(self, bits: Array, sizes: Any, valid: Array) -> None:
        self._sizes = np.asarray(sizes, dtype=np.int64)
        runs = int(features_of(self._sizes).sum())
        if bits.shape != (runs, valid.size) or bits.dtype != np.uint64:
            raise ShapeError(f"these sizes need {runs:,} runs of 64-bit words, got {bits.shape}")
        if valid.size % LANES:
            raise ShapeError(f"runs of bits are made of groups of {LANES} words")
        self._bits = np.ascontiguousarray(bits)
        self._valid = valid

    @classmethod
    def of_codes(cls, codes: Any, sizes: Sequence[int] | Array) -> PackedRows:
        """From cell numbers, a row for each record; a row with a number out of range is left out.

        `codes` may also be a list of columns, one for each attribute.
        """
        columns = list(codes) if isinstance(codes, list | tuple) else list(np.asarray(codes).T)
        sizes = np.asarray(sizes, dtype=np.int64)
        if len(columns) != sizes.size:
            raise ShapeError(f"{len(columns)} columns of codes, and {sizes.size} attributes")
        rows = len(columns[0])
        bits = np.zeros((int(features_of(sizes).sum()), words_of(rows)), dtype=np.uint64)
        inside = np.ones(rows, dtype=bool)
        start = 0
        for column, size in zip(columns, sizes.tolist(), strict=True):
            inside &= (column >= 0) & (column < size)
            for value in [1] if size == 2 else range(size):
                bits[start] = packed((column == value)[None])[0]
                start += 1
        return cls(bits, sizes, packed(inside[None])[0])

    @classmethod
    def of_blocks(cls, blocks: Iterable[Any], shape: tuple[int, int]) -> PackedRows:
        """From blocks of columns of 0 and 1, one after the other; see `of_matrix`."""
        rows, columns = shape
        bits = np.zeros((columns, words_of(rows)), dtype=np.uint64)
        inside = np.ones(rows, dtype=bool)
        filled = 0
        for block in blocks:
            array = np.asarray(block)
            if array.ndim != 2 or len(array) != rows or filled + array.shape[1] > columns:
                raise ShapeError(
                    f"blocks of columns make up {rows:,} rows and {columns:,} columns; got one of "
                    f"shape {array.shape} after {filled:,} columns"
                )
            for start in range(0, array.shape[1], BLOCK_COLUMNS):
                some = array[:, start : start + BLOCK_COLUMNS]
                if some.dtype != bool:
                    inside &= ((some == 0) | (some == 1)).all(axis=1)
                    some = some == 1
                bits[filled : filled + some.shape[1]] = packed(some.T)
                filled += some.shape[1]
        if filled != columns:
            raise ShapeError(f"the blocks have {filled:,} columns in all, not {columns:,}")
        return cls(bits, np.full(columns, 2), packed(inside[None])[0])

    @classmethod
    def of_matrix(cls, matrix: Any) -> PackedRows:
        """From a matrix of 0 and 1, a column for each attribute of two values.

        A row with any other entry is left out.
        """
        array = np.asarray(matrix)
        if array.ndim != 2:
            raise ShapeError(f"a matrix has rows and columns, got shape {array.shape}")
        return cls.of_blocks([array], array.shape)

    @classmethod
    def of_sparse(cls, matrix: Any) -> PackedRows:
        """The same from a matrix of scipy.sparse; where it has no entry it is 0."""
        rows, columns = matrix.shape
        table = matrix.tocsc()
        if not table.has_canonical_format:
            table = table.copy()
            table.sum_duplicates()
        bits = np.zeros((columns, words_of(rows)), dtype=np.uint64)
        inside = np.ones(rows, dtype=bool)
        for start in range(0, columns, BLOCK_COLUMNS):
            ends = table.indptr[start : start + BLOCK_COLUMNS + 1].astype(np.int64)
            indices, data = table.indices[ends[0] : ends[-1]], table.data[ends[0] : ends[-1]]
            inside[indices[(data != 0) & (data != 1)]] = False
            where = np.repeat(np.arange(ends.size - 1), np.diff(ends))
            ones = data == 1
            places = where[ones] * (bits.shape[1] * ROWS_OF_A_WORD) + indices[ones]
            if places.size:  # in order, so that bits of a word are neighbours
                words = places // ROWS_OF_A_WORD
                firsts = np.flatnonzero(np.diff(words, prepend=-1))
                marks = np.uint64(1) << (places % ROWS_OF_A_WORD).astype(np.uint64)
                run = bits[start : start + BLOCK_COLUMNS].reshape(-1)
                run[words[firsts]] = np.bitwise_or.reduceat(marks, firsts)
        return cls(bits, np.full(columns, 2), packed(inside[None])[0])

    @cached_property
    def _starts(self) -> Array:
        runs = features_of(self._sizes)
        return np.asarray(np.cumsum(runs) - runs)

    @property
    def attributes(self) -> int:
        """How many attributes there are."""
        return int(self._sizes.size)

    def among(self, truth: Array) -> PackedRows:
        """The same rows, of which only those count where `truth` is; one truth value for each."""
        return PackedRows(self._bits, self._sizes, self._valid & packed(truth[None])[0])

    def columns(self, attributes: Sequence[int]) -> tuple[list[Array], Array]:
        """The cell numbers of some attributes, and which rows count; for few attributes."""
        columns = []
        for axis in attributes:
            size = int(self._sizes[axis])
            runs = self._bits[self._starts[axis] :][: 1 if size == 2 else size]
            if size == 2:
                columns.append(_unpacked(runs[0]))
            else:
                columns.append(np.argmax([_unpacked(run) for run in runs], axis=0))
        return columns, _unpacked(self._valid).astype(bool)

    def total(self) -> int:
        """How many rows count."""
        return int(_bit_counts(self._valid[None])[0])

    def counts(self, conjunctions: Conjunctions) -> Array:
        """In how many rows each conjunction holds, as int64."""
        attributes, values = conjunctions.attributes, conjunctions.values
        if attributes.size and int(attributes.max()) >= self._sizes.size:
            raise ShapeError(
                f"conjunctions name attribute {int(attributes.max())} of {self._sizes.size}"
            )
        sizes = self._sizes[attributes]
        if ((values >= sizes) & (attributes >= 0)).any():
            raise ShapeError("a conjunction names a value that its attribute does not have")
        # A literal is twice the number of a run, and one more where its complement is meant.
        binary = sizes == 2
        literals = 2 * (self._starts[attributes] + np.where(binary, 0, values))
        literals += binary & (values == 0)
        lengths = (attributes >= 0).sum(axis=1)
        totals = np.zeros(len(conjunctions), dtype=np.int64)
        for length in np.unique(lengths).tolist():
            where = np.flatnonzero(lengths == length)
            totals[where] = self._totals(literals[where, :length])
        return totals

    def _totals(self, literals: Array) -> Array:
        """The counts of conjunctions of one length."""
        order = np.lexsort(literals.T[::-1])
        literals = literals[order]
        sums = np.zeros(len(literals), dtype=np.int64)
        used = np.unique(literals >> 1)
        step = COPIED_WORDS // used.size // LANES * LANES
        if literals.size > REUSED * used.size and step >= SHORTEST_PIECE:
            # Each run is read often: a piece of all of them at a time, which stays near the core.
            literals = 2 * np.searchsorted(used, literals >> 1) + (literals & 1)
            for start in range(0, self._valid.size, step):
                some = slice(start, start + step)
                _add_counts(self._bits[used, some], self._valid[some], literals, sums)
        else:
            _add_counts(self._bits, self._valid, literals, sums)
        totals = np.empty_like(sums)
        totals[order] = sums
        return totals

    def __repr__(self) -> str:
        return f"PackedRows({self._sizes.size} attributes)"


def column_counts(
    columns: Sequence[Array], sizes: Sequence[int], conjunctions: Conjunctions
) -> Array:
    """In how many rows each conjunction holds, of rows given as columns of cell numbers.

    Only the attributes that are named are packed, and of long ones only the values; a block of rows
    at a time, so that a few hundred megabytes are enough for any number of rows.
    """
    axes, places = np.unique(conjunctions.attributes, return_inverse=True)
    places = places.reshape(conjunctions.attributes.shape) - int(axes[:1].sum() < 0)
    axes = axes[axes >= 0]
    values = conjunctions.values.copy()
    needed: list[Array | None] = []
    for place, axis in enumerate(axes.tolist()):
        named = np.unique(values[places == place])
        few = 2 * (named.size + 1) < sizes[axis]
        needed.append(named if few else None)
        if few:  # the others become cell 0, which nobody asks for
            values[places == place] = 1 + np.searchsorted(named, values[places == place])
    few_sizes = [
        sizes[axis] if named is None else named.size + 1
        for axis, named in zip(axes.tolist(), needed, strict=True)
    ]
    renumbered = Conjunctions(places, values)
    features = int(features_of(np.array(few_sizes)).sum())
    step = max(BLOCK_BYTES * 8 // features, 1)
    totals = np.zeros(len(conjunctions), dtype=np.int64)
    for start in range(0, len(columns[0]), step):
        block = [
            _place_among(named, columns[axis][start : start + step])
            for axis, named in zip(axes.tolist(), needed, strict=True)
        ]
        totals += PackedRows.of_codes(block, few_sizes).counts(renumbered)
    return totals


def _place_among(named: Array | None, column: Array) -> Array:
    """1 and more for the cells that are named, in order, and 0 for others."""
    if named is None:
        return column
    place = np.minimum(np.searchsorted(named, column), named.size - 1)
    return np.where(named[place] == column, place + 1, 0)


def features_of(sizes: Array) -> Array:
    """How many runs of bits each attribute has: one for two values, else one for each."""
    return np.where(sizes == 2, 1, sizes)


def words_of(rows: int) -> int:
    """How many words a run of so many rows has."""
    return max(-(-rows // (ROWS_OF_A_WORD * LANES)), 1) * LANES


def packed(truth: Array) -> Array:
    """Truth of shape (runs, rows) as words of shape (runs, words)."""
    runs, rows = truth.shape
    words = np.zeros((runs, words_of(rows)), dtype=np.uint64)
    octets = words.view(np.uint8)
    # Columns of a matrix lie far apart: turned a few rows at a time they stay near the core.
    step = max(rows, 1) if truth.flags.c_contiguous else TURNED_ROWS
    for start in range(0, rows, step):
        some = np.ascontiguousarray(truth[:, start : start + step])
        eighths = np.packbits(some, axis=1, bitorder="little")
        octets[:, start // 8 : start // 8 + eighths.shape[1]] = eighths
    return words


def _unpacked(run: Array) -> Array:
    return np.unpackbits(run.view(np.uint8), bitorder="little")


def _add_counts(runs: Array, valid: Array, literals: Array, sums: Array) -> None:
    """Adds to `sums` in how many of the valid rows each row of sorted literals holds.

    All but the last literal are joined once for the conjunctions that share them. The complement
    of the last has what these have in common without the last itself.
    """
    words = valid.size
    batch = max(BUFFER_WORDS // words, 1)
    joined, others = (np.empty((batch, words), dtype=np.uint64) for _ in range(2))
    new = np.ones(len(literals), dtype=bool)
    new[1:] = (literals[1:, :-1] != literals[:-1, :-1]).any(axis=1)
    group = np.cumsum(new) - 1
    beginnings = literals[new, :-1]
    lasts, complement = literals[:, -1] >> 1, (literals[:, -1] & 1).astype(bool)
    for start in range(0, len(literals), batch):
        some = slice(start, min(start + batch, len(literals)))
        first, final = int(group[start]), int(group[some.stop - 1]) + 1
        common = _joined(runs, valid, beginnings[first:final])
        number = some.stop - start
        rows = joined[:number]
        np.take(runs, lasts[some], axis=0, out=rows, mode="clip")
        if len(common) == 1:
            rows &= common[0]
        else:
            np.take(common, group[some] - first, axis=0, out=others[:number], mode="clip")
            rows &= others[:number]
        counts = _bit_counts(rows)
        flip = complement[some]
        if flip.any():
            counts[flip] = _bit_counts(common)[group[some][flip] - first] - counts[flip]
        sums[some] += counts


def _joined(runs: Array, valid: Array, literals: Array) -> Array:
    """The valid rows in which all literals of a row hold, a run for each row."""
    common = np.repeat(valid[None], len(literals), axis=0)
    for column in literals.T:
        rows = runs[column >> 1]
        rows[(column & 1).astype(bool)] ^= ~np.uint64(0)
        common &= rows
    return common


def _bit_counts(rows: Array) -> Array:
    """How many bits are set in each row of words; whole groups of 8 words.

    Counts of single words fit in a byte each. Eight bytes are added at a time, as two lanes of
    four 16-bit sums, which is several times quicker than adding bytes.
    """
    octets = np.bitwise_count(rows).view(np.uint64)
    total = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, octets.shape[1], MOST_LANES):
        some = octets[:, start : start + MOST_LANES]
        pairs = ((some & EVERY_OTHER_BYTE) + ((some >> np.uint64(8)) & EVERY_OTHER_BYTE)).sum(
            axis=1
        )
        total += pairs.view(np.uint16).reshape(-1, 4).sum(axis=1, dtype=np.int64)
    return total


class RecordTally(NamedTuple):
    """In how many of a few valid records each conjunction holds, while records are added.

    One bit for each record, in words of features, so that nothing has to be sorted: for hundreds
    of records and millions of conjunctions.

    >>> some = Conjunctions(np.array([[0, 1], [1, -1]]), np.array([[0, 2], [2, 0]]))
    >>> tally = RecordTally.of(some, (2, 3)).over(np.array([[0, 2], [1, 2]]))
    >>> tally.counts.tolist(), tally.over(np.array([[0, 2], [1, 2], [0, 0]])).counts.tolist()
    ([1, 2], [1, 2])
    """

    conjunctions: Conjunctions
    sizes: tuple[int, ...]
    starts: Array
    """The first feature of each attribute, and after the last one that of all records."""
    literals: Array
    """The features of each conjunction, a column for each."""
    records: Array
    counts: Array

    @classmethod
    def of(cls, conjunctions: Conjunctions, sizes: Sequence[int]) -> RecordTally:
        """Of no record so far."""
        starts = np.cumsum([0, *sizes])
        named = conjunctions.attributes >= 0
        literals = np.where(
            named, starts[conjunctions.attributes] + conjunctions.values, starts[-1]
        )
        kind = np.int32 if starts[-1] < 1 << 31 else np.int64
        return cls(
            conjunctions,
            tuple(sizes),
            starts,
            np.ascontiguousarray(literals.T, dtype=kind),
            np.zeros((0, len(sizes)), dtype=np.int32),
            np.zeros(len(conjunctions), dtype=np.int64),
        )

    def over(self, records: Array) -> RecordTally:
        """Of all these records; those that were counted before, in front, are not counted anew."""
        known = len(self.records)
        counts = self.counts
        if not np.array_equal(self.records, records[:known]):
            known, counts = 0, np.zeros_like(counts)
        for first in range(known, len(records), ROWS_OF_A_WORD):
            words = np.zeros(int(self.starts[-1]) + 1, dtype=np.uint64)
            words[-1] = ~np.uint64(0)  # what names no attribute holds in all
            for bit, record in enumerate(records[first : first + ROWS_OF_A_WORD]):
                words[self.starts[:-1] + record] |= np.uint64(1 << bit)
            common = words[self.literals[0]]
            for column in self.literals[1:]:
                common &= words[column]
            counts = counts + np.bitwise_count(common)
        return self._replace(records=records, counts=counts)


def record_counts(conjunctions: Conjunctions, records: Array, sizes: Sequence[int]) -> Array:
    """In how many of a few valid records each conjunction holds, as int64.

    >>> some = Conjunctions(np.array([[0, 1], [1, -1]]), np.array([[0, 2], [2, 0]]))
    >>> record_counts(some, np.array([[0, 2], [1, 2], [0, 0]]), (2, 3)).tolist()
    [1, 2]
    """
    return RecordTally.of(conjunctions, sizes).over(records).counts
