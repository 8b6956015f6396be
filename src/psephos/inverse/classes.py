"""Any number of products, taken apart by the common classes of the factors on every axis.

On each axis the factors of all blocks have a common basis V_i in which they are small blocks in
many copies (`axis_classes`). So X = Σ_j c_j ⊗_i Y_ij is block diagonal over products of classes,

    VᵀXV = ⊕_k X_k ⊗ I,    X_k = Σ_j c_j ⊗_i B_{ij k_i},    V = ⊗V_i,

and X⁺ = V (⊕ X_k⁺ ⊗ I) Vᵀ answers for all that is determined. A mixed release (tables by levels of
a hierarchy, by every value, by one strategy of an attribute, or summed over it) has a few hundred
numbers in all X_k, however many cells. Two products have as many as cells, every X_k one number.

Errors need these numbers alone. The fit holds coordinates only where some block sees them, so its
size is that of the answers, not of the domain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from psephos.errors import ShapeError, TooLargeError
from psephos.inverse.axis import SPAN_TOLERANCE, lies_in
from psephos.inverse.axis_classes import (
    LONGEST_CLASS_AXIS,
    AxisClasses,
    Section,
    axis_classes,
    classes_seconds,
)
from psephos.inverse.class_coordinates import (
    ClassCoordinates,
    Combination,
    SeenBy,
    places,
    sections_of,
    seen_sections,
)
from psephos.inverse.form import Factors, Form, multiply
from psephos.inverse.pseudo_inverses import pseudo_inverses, unseen
from psephos.matrix import Dense, Identity, Kron, Matrix, is_total
from psephos.values import Array

CLASS_ENTRIES, SUMMED_ENTRIES = 20_000_000, 500_000_000
"""The most numbers in all X_k; and where every X_k is one number, of which errors are sums."""
SUMMED_AT_ONCE = 1 << 21
"""Numbers of such a sum that are held at a time."""
MOST_CLASS_AXES = 24
"""The most axes of several cells."""
CLASS_CUBES = 1.5e10
"""The most cubes of sizes of all X_k: about what inverting them takes."""
CLASS_COMBINATIONS = 50_000
"""The most combinations of sections that blocks may see."""
VARIANCE_ENTRIES = 100_000_000
"""The most numbers that the variances of a product of queries may need on one axis."""
CELLS_OF_VECTOR = 500_000_000
"""The most cells of which an estimate is written out."""
GATHERED_NUMBERS = 1 << 24
"""Numbers of inverse blocks that are held at a time, a block for each copy."""


@dataclass(frozen=True, eq=False)
class Classes(Form):
    """Blocks ⊗A_i with common classes on every axis."""

    blocks: tuple[Kron, ...]
    precisions: tuple[float, ...]
    axes: tuple[AxisClasses, ...]
    which: tuple[tuple[int, ...], ...]
    """For every block, which of the factors of each axis it has."""
    shape: tuple[int, ...]
    """The domain's: axes of one cell go with a neighbour."""

    @classmethod
    def of(
        cls, blocks: Sequence[Matrix], precisions: Sequence[float], shape: tuple[int, ...]
    ) -> Classes:
        """The form of blocks that have `block_classes`."""
        classes = block_classes(blocks, shape)
        if classes is None:
            raise ShapeError("these blocks have no common classes, or too many")
        axes, which = classes
        krons = tuple(block for block in blocks if isinstance(block, Kron))
        return cls(krons, tuple(precisions), axes, which, shape)

    @cached_property
    def inverse(self) -> Array:
        """All X_k⁺: on axis i the entries of its blocks, class by class."""
        return _inverse(self.axes, self.which, self.precisions)

    @property
    def entries(self) -> int:
        """The numbers in all X_k."""
        return math.prod(axis.entries for axis in self.axes)

    # ---- errors --------------------------------------------------------------------------------

    def traces(self, products: Sequence[Factors]) -> Array:
        known: dict[tuple[int, int], tuple[Matrix, Array]] = {}
        return self._sums([self._gram_blocks(factors, known) for factors in products])

    def _sums(self, several: Sequence[Sequence[Array]], *, unknown: bool = False) -> Array:
        """What all X_k⁺, or what no block sees, come to for queries by their blocks on every axis.

        More numbers than can be held are summed some classes of the first axis at a time.
        """
        if self.entries <= CLASS_ENTRIES:
            tensor = self._unknown if unknown else self.inverse
            return np.array([_contract(tensor, seen) for seen in several])
        sums = np.zeros(len(several))
        first, *rest = self.axes
        for part, place in first.parts(SUMMED_AT_ONCE // math.prod(axis.entries for axis in rest)):
            tensor = _inverse([part, *rest], self.which, self.precisions, unknown=unknown)
            sums += [_contract(tensor, [seen[0][place], *seen[1:]]) for seen in several]
        return sums

    def trace(self, factors: Factors) -> float:
        return float(self.traces([factors])[0])

    def _gram_blocks(
        self, factors: Factors, known: dict[tuple[int, int], tuple[Matrix, Array]] | None = None
    ) -> list[Array]:
        """What queries see of every axis; `known` holds them, so that no other gets their id."""
        known = {} if known is None else known
        blocks = []
        for i, (axis, w) in enumerate(zip(self.axes, self._queries(factors), strict=True)):
            if (i, id(w)) not in known:
                known[i, id(w)] = w, axis.gram_blocks(w)
            blocks.append(known[i, id(w)][1])
        return blocks

    def _queries(self, factors: Factors) -> Factors:
        """Queries on the axes of the classes."""
        return with_neighbours(factors, self.shape)

    def variances(self, factors: Factors) -> Array:
        factors = self._queries(factors)
        needs = [w.shape[0] * axis.entries for axis, w in zip(self.axes, factors, strict=True)]
        last = int(np.argmax(needs))  # the rows of this axis are squared some at a time
        others = [i for i in range(len(factors)) if i != last]
        answers = math.prod([factors[i].shape[0] for i in others])
        entries = math.prod([self.axes[i].entries for i in others])
        before = answers < entries  # the other axes come first where that leaves fewer numbers
        held = min(answers, entries) * self.axes[last].entries
        seen = factors[last].shape[0] * factors[last].shape[1]
        if (
            most := max([held, seen, self.entries, *(needs[i] for i in others)])
        ) > VARIANCE_ENTRIES:
            raise TooLargeError(
                f"the variances of {[w.shape[0] for w in factors]} queries by attribute need "
                f"{most:,} numbers, over the limit of {VARIANCE_ENTRIES:,}; ask for "
                "`expected_error`, or for fewer queries",
                most,
                VARIANCE_ENTRIES,
            )
        squares = [Dense(self.axes[i].query_blocks(factors[i])) for i in others]
        rest = Kron(tuple(squares)) if squares else Identity(1)
        flat = np.moveaxis(self.inverse, last, 0).reshape(self.axes[last].entries, -1)
        if before:
            flat = rest.matmat(flat.T).T
        parts = self.axes[last].query_blocks_in_turn(factors[last])
        variances = np.concatenate([part @ flat for part in parts])
        if not before:
            variances = rest.matmat(variances.T).T
        shape = [factors[last].shape[0], *(factors[i].shape[0] for i in others)]
        return np.moveaxis(variances.reshape(shape), 0, last).ravel()

    def covers(self, factors: Factors) -> bool:
        seen = self._gram_blocks(factors)
        units = [axis.unit_blocks() for axis in self.axes]
        everything = math.prod(float(g @ unit) for g, unit in zip(seen, units, strict=True))
        outside = float(self._sums([seen], unknown=True)[0])
        return outside <= SPAN_TOLERANCE * everything and all(
            axis.vectors.shape[0] == axis.vectors.shape[1]
            or lies_in(np.linalg.qr(axis.vectors)[0], w)
            for axis, w in zip(self.axes, self._queries(factors), strict=True)
        )

    @cached_property
    def _unknown(self) -> Array:
        """Projections onto what no block sees, laid out like the inverse."""
        return _inverse(self.axes, self.which, self.precisions, unknown=True)

    # ---- estimates -----------------------------------------------------------------------------

    def fit(self, values: Sequence[Array]) -> FittedClasses:
        fitted = FittedClasses(self, self._coordinates(values))
        if np.ndim(values[0]) > 1:
            return fitted
        # The basis is accurate to rounding times its condition: what is left is fitted once more.
        rest = [y - fitted.answers(b.factors) for b, y in zip(self.blocks, values, strict=True)]
        correction = self._coordinates(rest)
        return FittedClasses(self, {k: v + correction[k] for k, v in fitted.coordinates.items()})

    @cached_property
    def held(self) -> ClassCoordinates:
        """Where coordinates stand."""
        factors = tuple(self._queries(block.factors) for block in self.blocks)
        return ClassCoordinates(self.axes, self.which, factors)

    def _coordinates(self, values: Sequence[Array]) -> dict[Combination, Array]:
        """X⁺ Σ c_j A_jᵀy_j, where any block sees something."""
        columns, held = values[0].shape[1:], self.held
        sums: dict[Combination, Array] = {}
        for block, which, c, y in zip(
            self.blocks, self.which, self.precisions, values, strict=True
        ):
            factors = self._queries(block.factors)
            for alone, seen in held.of_block(which).items():
                axes, visible = held.axes_of(alone), sections_of(seen)
                maps = [
                    held.from_answers(i, alone[i], number, factor, visible[i])
                    for i, (number, factor) in enumerate(zip(which, factors, strict=True))
                ]
                image = c * multiply(Kron(tuple(maps)), y.astype(float))
                image = image.reshape([m.shape[0] for m in maps] + list(columns))
                for combination, place in places(axes, visible):
                    if combination in seen:
                        part = image[place]
                        sums[combination] = (
                            sums[combination] + part if combination in sums else part
                        )
        solutions = {}
        for k, image in sums.items():
            sections, inverse = self._inverse_of(k, held.seen_by[k])
            solutions[k] = _times(inverse, sections, image, columns)
        return solutions

    def _inverse_of(self, combination: Combination, alone: SeenBy) -> tuple[list[Section], Array]:
        """X_k⁺ of one combination of sections: a matrix for each, or a number."""
        sections = [axis.sections[s] for axis, s in zip(self.axes, combination, strict=True)]
        inverse = self.inverse[tuple(s.entries for s in sections)]
        for i, (factor, s) in enumerate(zip(alone, combination, strict=True)):
            narrow = self.held.narrow(i, factor)
            if narrow is not None and (turn := narrow.turns[s]) is not None:
                b = sections[i].size
                block = np.moveaxis(inverse, i, -1).reshape(*np.delete(inverse.shape, i), b, b)
                block = turn.T @ block @ turn
                inverse = np.moveaxis(block.reshape(*block.shape[:-2], -1), -1, i)
                sections[i] = narrow.axis.sections[s]
        if all(section.size == 1 for section in sections):
            return sections, inverse
        return sections, np.ascontiguousarray(_matrices(inverse, sections))

    def with_precisions(self, precisions: Sequence[float]) -> Classes:
        """The same blocks measured with other precisions; the classes stay."""
        return replace(self, precisions=tuple(precisions))

    def solve(self, v: Array) -> Array:
        """X⁻¹v, where some block tells all cells apart."""
        tensor = self._basis.rmatvec(v).reshape([axis.vectors.shape[1] for axis in self.axes])
        for combination, place in places(self.axes, [range(len(a.sections)) for a in self.axes]):
            sections, inverse = self._whole_inverses[combination]
            tensor[place] = _times(inverse, sections, tensor[place], ())
        return self._basis.matvec(tensor.reshape(-1))

    @cached_property
    def _whole_inverses(self) -> dict[Combination, tuple[list[Section], Array]]:
        """X_k⁺ as `solve` multiplies by it again and again."""
        alone = (None,) * len(self.axes)
        every = product(*(range(len(axis.sections)) for axis in self.axes))
        return {combination: self._inverse_of(combination, alone) for combination in every}

    @cached_property
    def _basis(self) -> Kron:
        """V, which solves multiply by once and once transposed."""
        return Kron(tuple(Dense(axis.vectors) for axis in self.axes))

    @property
    def work(self) -> int:
        answers = sum(block.shape[0] for block in self.blocks)
        return int(2 * self.held.size + self.entries + 2 * answers)

    @property
    def work_of_column(self) -> int:
        return int(self.work - self.entries)


def _times(
    inverse: Array, sections: Sequence[Section], image: Array, columns: tuple[int, ...]
) -> Array:
    """X_k⁺ times the coordinates of one combination of sections."""
    d = len(sections)
    b = math.prod(s.size for s in sections)
    if b == 1:
        for i, section in enumerate(sections):
            inverse = np.take(inverse, section.class_of_copy, axis=i)
        return np.asarray(image * inverse.reshape(inverse.shape + (1,) * len(columns)))
    split = [n for s in sections for n in (s.class_of_copy.size, s.size)]
    order = [*range(0, 2 * d, 2), *range(1, 2 * d, 2), *range(2 * d, 2 * d + len(columns))]
    tensor = image.reshape([*split, *columns]).transpose(order)
    copies, draws = tensor.shape[:d], math.prod(columns)
    vectors = np.ascontiguousarray(tensor).reshape(math.prod(copies), b, draws)
    places = np.zeros(1, dtype=np.int64)
    for section in sections:
        places = np.add.outer(places * section.classes, section.class_of_copy).ravel()
    _multiply_blocks(inverse, places, vectors)
    back = np.argsort(order)
    return vectors.reshape(tensor.shape).transpose(back).reshape(image.shape)


def _multiply_blocks(blocks: Array, places: Array, vectors: Array) -> None:
    """Multiplies every one of the vectors, in place, by the block that is at its place.

    Copies of one block are one matrix product; blocks of one copy each are taken many at a time.
    """
    copies, b, draws = vectors.shape
    if copies >= 2 * len(blocks):
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(len(blocks) + 1))
        for block, start, stop in zip(blocks, ends[:-1], ends[1:], strict=True):
            some = order[start:stop]
            columns = vectors[some].transpose(1, 0, 2).reshape(b, -1)
            vectors[some] = (block @ columns).reshape(b, -1, draws).transpose(1, 0, 2)
        return
    step = max(1, GATHERED_NUMBERS // (b * b))
    for first in range(0, copies, step):
        part = slice(first, first + step)
        vectors[part] = blocks[places[part]] @ vectors[part]


@dataclass(frozen=True, eq=False)
class FittedClasses:
    """Coordinates of the estimate; what no block sees counts as zero."""

    form: Classes
    coordinates: Mapping[Combination, Array]

    def answers(self, factors: Factors) -> Array:
        held, factors = self.form.held, with_neighbours(factors, self.form.shape)
        images = [held.image(i, w) for i, w in enumerate(factors)]
        groups: dict[SeenBy, list[Combination]] = {}
        for k in self.coordinates:
            if all(s in image.visible for s, image in zip(k, images, strict=True)):
                groups.setdefault(held.seen_by[k], []).append(k)
        columns = next(iter(self.coordinates.values())).shape[len(images) :]
        answers = np.zeros((math.prod(image.inner.shape[0] for image in images), *columns))
        for alone, combinations in groups.items():
            axes, sections = held.axes_of(alone), sections_of(combinations)
            maps = [
                held.to_answers(i, alone[i], image, sections[i]) for i, image in enumerate(images)
            ]
            sizes = [m.shape[1] for m in maps]
            tensor = np.zeros([*sizes, *columns])
            for k, place in places(axes, sections):
                if k in combinations:
                    tensor[place] = self.coordinates[k]
            part = multiply(Kron(tuple(maps)), tensor.reshape(math.prod(sizes), *columns))
            answers = part if len(groups) == 1 else answers + part
        if all(isinstance(image.rest, Identity) for image in images):
            return answers
        return multiply(Kron(tuple(image.rest for image in images)), answers)

    @property
    def vector(self) -> Array:
        """All cells, where they can be written out."""
        if math.prod(self.form.shape) > CELLS_OF_VECTOR:
            raise AttributeError("vector")
        return self.answers(tuple(Identity(n) for n in self.form.shape))


def block_classes(
    blocks: Sequence[Matrix], shape: tuple[int, ...]
) -> tuple[tuple[AxisClasses, ...], tuple[tuple[int, ...], ...]] | None:
    """The classes of every axis and which factor each block has there.

    None if blocks are no products over all axes, axes are too long, or classes are too large.
    """
    krons = _products(blocks, shape)
    if krons is None:
        return None
    if sum(n > 1 for n in shape) > MOST_CLASS_AXES:
        return None
    factors, which = _factors_by_axis(krons, shape)
    axes = [axis_classes(each) for each in factors]
    numbers_alone = all(section.size == 1 for axis in axes for section in axis.sections)
    most = SUMMED_ENTRIES if numbers_alone else CLASS_ENTRIES
    if math.prod(axis.entries for axis in axes) > most:
        return None
    choices = tuple(zip(*which, strict=True))
    counts = [
        math.prod(len(seen_sections(axis, f)) for axis, f in zip(axes, w, strict=True))
        for w in choices
    ]
    if sum(counts) > CLASS_COMBINATIONS or cubes_of_blocks(axes) > CLASS_CUBES:
        return None
    return tuple(axes), choices


def class_seconds(blocks: Sequence[Matrix], shape: tuple[int, ...]) -> float:
    """About how long it takes to find the classes of blocks, which are those of products."""
    krons = _products(blocks, shape)
    return (
        0.0
        if krons is None
        else sum(classes_seconds(each) for each in _factors_by_axis(krons, shape)[0])
    )


def _products(blocks: Sequence[Matrix], shape: tuple[int, ...]) -> list[Kron] | None:
    """The blocks, if they are products over all axes, and none of these is too long."""
    krons = [b for b in blocks if isinstance(b, Kron)]
    fits = all(tuple(f.shape[1] for f in b.factors) == shape for b in krons)
    return (
        krons if len(krons) == len(blocks) and fits and max(shape) <= LONGEST_CLASS_AXIS else None
    )


def _factors_by_axis(
    krons: Sequence[Kron], shape: tuple[int, ...]
) -> tuple[list[tuple[Matrix, ...]], list[list[int]]]:
    """The different factors of every axis, and which of them each block has."""
    different: list[tuple[Matrix, ...]] = []
    which: list[list[int]] = []
    joined = [with_neighbours(b.factors, shape) for b in krons]
    for factors in zip(*joined, strict=True):
        numbers: dict[Matrix, int] = {}
        by_id = {id(f): numbers.setdefault(f, len(numbers)) for f in factors}
        different.append(tuple(numbers))
        which.append([by_id[id(f)] for f in factors])
    return different, which


def with_neighbours(factors: Factors, shape: tuple[int, ...]) -> Factors:
    """One factor for each axis of several cells, with the axes of one cell that come before it.

    Those after the last go with the last, so that the order of rows stays.
    """
    if 1 not in shape or len(shape) == 1:
        return factors
    groups: list[list[Matrix]] = [[]]
    several = [i for i, n in enumerate(shape) if n > 1] or [0]
    for i, factor in enumerate(factors):
        if not (shape[i] == 1 and factor.shape[0] == 1 and _is_one(factor)):
            groups[-1].append(factor)
        if i in several[:-1]:
            groups.append([])
    return tuple(
        group[0] if len(group) == 1 else Kron(tuple(group)) if group else Identity(1)
        for group in groups
    )


def _is_one(factor: Matrix) -> bool:
    return isinstance(factor, Identity) or is_total(factor) or factor.row(0)[0] == 1


def seen_combinations(
    axes: Sequence[AxisClasses], which: Sequence[Sequence[int]]
) -> list[Combination]:
    """The combinations of sections that some block sees."""
    combinations: dict[Combination, None] = {}
    for factors in which:
        visible = [seen_sections(axis, f) for axis, f in zip(axes, factors, strict=True)]
        combinations.update(dict.fromkeys(product(*visible)))
    return list(combinations)


def _inverse(
    axes: Sequence[AxisClasses],
    which: Sequence[Sequence[int]],
    precisions: Sequence[float],
    *,
    unknown: bool = False,
) -> Array:
    """All X_k⁺, or the projections onto what no block sees."""
    shape = [axis.entries for axis in axes]
    out = np.zeros(shape)
    if unknown:
        units = [axis.unit_blocks() for axis in axes]
        out = outer(units)
    for combination in seen_combinations(axes, which):
        sections = [axis.sections[s] for axis, s in zip(axes, combination, strict=True)]
        place = tuple(s.entries for s in sections)
        x = np.zeros([s.entries.stop - s.entries.start for s in sections])
        even = np.zeros_like(x)
        sizes = []
        for factors, c in zip(which, precisions, strict=True):
            if all(s.seen_by[f] for s, f in zip(sections, factors, strict=True)):
                parts = [
                    axis.blocks[f][s.entries]
                    for axis, f, s in zip(axes, factors, sections, strict=True)
                ]
                part = outer(parts)
                largest = float(np.abs(part).max())
                x += c * part
                even += part / largest
                sizes.append(c * largest)
        if all(s.size == 1 for s in sections):
            known = even > 0
            inverse = np.divide(1, x, out=np.zeros_like(x), where=known)
            out[place] = ~known if unknown else inverse
            continue
        scale = _matrices(even, sections)
        if unknown:
            blocks = unseen(scale)
        else:
            spread = max(sizes) / min(sizes)
            blocks = pseudo_inverses(_matrices(x, sections), scale, spread)
        out[place] = _entries(blocks, sections)
    return out


def block_matrices(entries: Array, runs: Sequence[tuple[int, int]]) -> Array:
    """Entries of blocks, axis by axis, as one matrix for each combination of classes.

    Runs say, for every axis, the size of its blocks and the number of its classes.
    """
    d = len(runs)
    split = [n for size, classes in runs for n in (classes, size, size)]
    order = [3 * i + k for k in range(3) for i in range(d)]
    b = math.prod(size for size, _ in runs)
    return entries.reshape(split).transpose(order).reshape(-1, b, b)


def _matrices(entries: Array, sections: Sequence[Section]) -> Array:
    return block_matrices(entries, [(s.size, s.classes) for s in sections])


def _entries(matrices: Array, sections: Sequence[Section]) -> Array:
    """The inverse of `_matrices`."""
    d = len(sections)
    split = [s.classes for s in sections] + 2 * [s.size for s in sections]
    order = [k * d + i for i in range(d) for k in range(3)]
    shape = [s.classes * s.size**2 for s in sections]
    return matrices.reshape(split).transpose(order).reshape(shape)


def _contract(tensor: Array, vectors: Sequence[Array]) -> float:
    """The sum of a tensor's entries, each times its number on every axis."""
    for v in reversed(vectors):
        tensor = tensor.reshape(-1, v.size) @ v
    return float(tensor.item())


def outer(vectors: Sequence[Array]) -> Array:
    """v₁ ⊗ … ⊗ v_d as a tensor.

    >>> outer([np.array([1, 2]), np.array([3, 4, 5])])
    array([[ 3.,  4.,  5.],
           [ 6.,  8., 10.]])
    """
    tensor = np.ones(())
    for v in vectors:
        tensor = np.multiply.outer(tensor, v)
    return np.asarray(tensor)


def cubes_of_blocks(axes: Sequence[AxisClasses]) -> float:
    """Σ b³ over all X_k: Π over axes of Σ over classes."""
    return math.prod(sum(float(s.classes) * s.size**3 for s in axis.sections) for axis in axes)
