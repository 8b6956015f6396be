"""The public schema: attributes with ordered values, and the cells they span.

A domain is declared, never read from data. Its cells are numbered in row-major order: the last
attribute varies fastest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from psephos.domain.attribute import Attribute, Spec
from psephos.domain.declared import first_repeated
from psephos.domain.values import TupleValues
from psephos.errors import DomainError, ShapeError, name_list
from psephos.report.html import HtmlTable, notebook_html
from psephos.values import Array, Value

LONGEST_EDITION = 200
LONGEST_NUMBER = 300
"""Numbers of cells with more digits are shown by their order of magnitude."""
MOST_SHOWN = 200


@dataclass(frozen=True, eq=False, repr=False)
class Domain(Value):
    """Named attributes in order; their combinations are the cells of the data vector.

    >>> domain = Domain.of({"sex": ["F", "M"], "age": range(115), "region": 51})
    >>> domain.shape, domain.size
    ((2, 115, 51), 11730)
    >>> domain.index({"sex": "M", "age": 3, "region": 7})
    6025
    >>> domain.cell(6025)
    {'sex': 'M', 'age': '3', 'region': '7'}
    """

    names: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    origin: Domain | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.names, Mapping | str):
            object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "attributes", tuple(self.attributes))
        strange = [a for a in self.attributes if not isinstance(a, Attribute)]
        if isinstance(self.names, Mapping) or strange:
            raise DomainError(
                "a domain is made of attributes; write Domain.of({name: values, ...})"
            )
        if not self.names:
            raise DomainError(
                'a domain needs at least one attribute; write Domain.of({"sex": ["F", "M"], ...})'
            )
        if len(self.names) != len(self.attributes):
            raise DomainError(f"{len(self.names)} names but {len(self.attributes)} attributes")
        for name in self.names:
            if not isinstance(name, str) or not name.strip():
                raise DomainError(f"attribute names must be non-empty text, got {name!r}")
        repeated = first_repeated(self.names)
        if repeated is not None:
            raise DomainError(f"attribute {repeated!r} is declared twice")

    @classmethod
    def of(cls, attributes: Mapping[str, Spec] | None = None, /, **more: Spec) -> Domain:
        """A domain from name → attribute, number of cells, range, list, or dict value → label."""
        if attributes is not None and not isinstance(attributes, Mapping):
            raise DomainError(
                f"Domain.of takes a dict of name: values, got {type(attributes).__name__}; a "
                "domain is declared from public knowledge and never read from data: write "
                'Domain.of(age=range(100), sex=["F", "M"])'
            )
        repeated = [name for name in more if name in (attributes or {})]
        if repeated:
            raise DomainError(f"attribute {repeated[0]!r} is declared twice")
        specs = {**(attributes or {}), **more}
        parsed = []
        for name, spec in specs.items():
            try:
                parsed.append(Attribute.of(spec))
            except DomainError as error:
                raise DomainError(f"attribute {name!r}: {error}") from None
        return cls(tuple(specs), tuple(parsed))

    @classmethod
    def binary(cls, number: int, prefix: str = "x") -> Domain:
        """So many attributes of two values, 0 and 1, named x0, x1, and so on.

        >>> Domain.binary(3)
        Domain(x0: 2, x1: 2, x2: 2; 8 cells)
        """
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
            raise DomainError(f"a domain needs at least 1 attribute, got {number!r}")
        names = tuple(f"{prefix}{i}" for i in range(int(number)))
        return cls(names, (Attribute(range(2)),) * len(names))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(attribute.size for attribute in self.attributes)

    @cached_property
    def size(self) -> int:
        """The number of cells, exactly, however large."""
        # Equal sizes as a power: thousands of factors one by one take seconds.
        return math.prod(size**number for size, number in Counter(self.shape).items())

    @cached_property
    def _axes(self) -> dict[str, int]:
        return {name: axis for axis, name in enumerate(self.names)}

    def axis(self, name: str) -> int:
        """The position of an attribute."""
        if name not in self:
            raise DomainError(f"no attribute {name!r}; have {name_list(self.names)}")
        return self._axes[name]

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.axis(name)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._axes

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def project(self, names: Sequence[str]) -> Domain:
        """The domain of some attributes, in the order of `names`."""
        if isinstance(names, str):
            names = [names]
        if not isinstance(names, Iterable):
            raise DomainError(f"project takes a list of attributes, got {names!r}")
        names = list(names)
        attributes = tuple(self[name] for name in names)
        if self.origin is None or not any(attribute.parts for attribute in attributes):
            return Domain(tuple(names), attributes)
        parts = [
            part for n, a in zip(names, attributes, strict=True) for part in a.parts or [(n, a)]
        ]
        columns = {part for part, _ in parts}
        origin = self.origin.project([name for name in self.origin.names if name in columns])
        return Domain(tuple(names), attributes, origin)

    def coarsen(self, groups: Mapping[str, Array]) -> Domain:
        """The domain with some attributes by groups of their values (`Attribute.coarsen`).

        >>> Domain.of(age=range(100), sex=["F", "M"]).coarsen({"age": np.arange(100) // 50})
        Domain(age: 2, sex: 2; 4 cells)
        """
        attributes = []
        for name, attribute in zip(self.names, self.attributes, strict=True):
            if name in groups and attribute.parts:
                raise DomainError(f"{name!r} looks at columns together and stays as it is")
            attributes.append(attribute.coarsen(groups[name]) if name in groups else attribute)
        origin = self.origin and self.origin.coarsen(groups)
        return Domain(self.names, tuple(attributes), origin)

    def index(self, cell: Mapping[str, Any]) -> int:
        """The number of the cell with these values (one for each attribute)."""
        if not isinstance(cell, Mapping):
            raise DomainError(f"a cell is a dict of attribute: value, got {cell!r}")
        strange = [name for name in cell if name not in self.names]
        if strange or len(cell) != len(self.names):
            raise DomainError(
                f"a cell needs one value for each of {name_list(self.names)}; got {name_list(cell)}"
            )
        flat = 0
        for name, attribute in zip(self.names, self.attributes, strict=True):
            try:
                flat = flat * attribute.size + attribute.index(cell[name])
            except DomainError as error:
                raise DomainError(f"attribute {name!r}: {error}") from None
        return flat

    def cell(self, index: int) -> dict[str, str]:
        """The labels of a cell."""
        if isinstance(index, float | str) or not 0 <= index < self.size:
            raise DomainError(f"cell {index!r} is not a whole number in 0..{self.size - 1}")
        positions = []
        for n in reversed(self.shape):
            index, position = divmod(int(index), n)
            positions.append(position)
        return {
            name: attribute.label(position)
            for name, attribute, position in zip(
                self.names, self.attributes, reversed(positions), strict=True
            )
        }

    def merge(self, names: Sequence[str], name: str | None = None) -> Domain:
        """The same cells with some attributes joined into one.

        The new attribute stands where the first of them stood and lists their combinations in
        the domain's order, so merging attributes that are not adjacent renumbers the cells.

        >>> Domain.of(a=2, b=3, c=4).merge(["a", "c"])
        Domain(a*c: 8, b: 3; 24 cells)
        """
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise DomainError(f"merge takes a list of attributes, got {names!r}")
        names = list(names)
        axes = sorted({self.axis(part) for part in names})
        if len(axes) < 2 or len(axes) != len(names):
            raise DomainError(f"merge needs two or more different attributes, got {names}")
        joined_attributes = [(self.names[axis], self.attributes[axis]) for axis in axes]
        # A merged attribute that is merged again gives its own parts.
        parts = tuple(part for n, a in joined_attributes for part in (a.parts or ((n, a),)))
        merged = Attribute(TupleValues(tuple(p.values for _, p in parts)), parts=parts)
        joint_name = name or "*".join(part for part, _ in parts)
        pairs = list(zip(self.names, self.attributes, strict=True))
        pairs[axes[0]] = (joint_name, merged)
        pairs = [pair for axis, pair in enumerate(pairs) if axis not in axes[1:]]
        return Domain(tuple(n for n, _ in pairs), tuple(a for _, a in pairs), self.origin or self)

    def arrange(self, x: Any) -> Array:
        """Cell counts as a flat vector in this domain's order.

        `x` may have one axis for each attribute, of this domain or of the one it was merged from.
        A flat vector is taken as it is, unless merging renumbered the cells: then its order is
        not known and it is refused.
        """
        array = np.asarray(x)
        if array.shape == self.shape:
            return array.reshape(-1)
        order = self._axes_of_origin()
        if self.origin is not None and array.shape == self.origin.shape:
            return array.transpose(order).reshape(-1)
        if array.shape != (self.size,):
            raise ShapeError(
                f"the domain has {self.size:,} cells (shape {self.shape}), "
                f"got an array of shape {array.shape}"
            )
        if order != sorted(order):
            raise ShapeError(
                f"merging renumbered the cells of {self}, so a flat vector is ambiguous; give it "
                f"the shape of the original domain, {self.origin.shape if self.origin else ()}, or "
                f"of the merged one, {self.shape}"
            )
        return array

    def keeps_cells_of(self, domain: Domain) -> bool:
        """Are the cells those of that domain, in the same order? Merging may leave them so.

        >>> domain = Domain.of(sex=2, age=3, region=4)
        >>> domain.merge(["sex", "age"]).keeps_cells_of(domain)
        True
        >>> domain.merge(["sex", "region"]).keeps_cells_of(domain)
        False
        """
        order = self._axes_of_origin()
        return self == domain or (self.origin == domain and order == sorted(order))

    def _axes_of_origin(self) -> list[int]:
        """The axes of the original domain, in the order of this one."""
        if self.origin is None:
            return []
        flat = [
            part
            for name, attribute in zip(self.names, self.attributes, strict=True)
            for part in ([n for n, _ in attribute.parts] or [name])
        ]
        return [self.origin.axis(name) for name in flat]

    def __repr__(self) -> str:
        most = slice(None if len(self) <= MOST_SHOWN else MOST_SHOWN)
        sizes = [f"{name}: {n}" for name, n in zip(self.names[most], self.shape[most], strict=True)]
        rest = [f"… ({len(self)} in all)"] if len(self) > MOST_SHOWN else []
        return f"Domain({', '.join([*sizes, *rest])}; {self.size_text} cells)"

    @property
    def size_text(self) -> str:
        """The number of cells, for people.

        >>> Domain.of(a=1000, b=20).size_text, Domain.binary(512_000).size_text
        ('20,000', 'about 10^154127')
        """
        digits = sum(number * math.log10(size) for size, number in Counter(self.shape).items())
        return f"{self.size:,}" if digits < LONGEST_NUMBER else f"about 10^{digits:.0f}"

    def _repr_html_(self) -> str:
        most = 50
        rows = [
            [name, f"{a.size:,}", a.some_values(), ", ".join(level.name for level in a.levels)]
            for name, a in zip(self.names[:most], self.attributes[:most], strict=True)
        ]
        heads = ["attribute", "cells", "values", "levels"]
        table = HtmlTable.of(f"Domain of {self.size_text} cells", heads, rows)
        rest = len(self) - most
        return notebook_html(table, f"… {rest:,} more") if rest > 0 else notebook_html(table)


def checked_edition(edition: Any) -> str:
    """The name of a state of the data; empty, if it has none.

    >>> checked_edition("2025")
    '2025'
    """
    printable = type(edition) is str and edition.isprintable() and edition == edition.strip()
    if printable and len(edition) <= LONGEST_EDITION:
        return str(edition)
    raise DomainError(
        f"an edition is printable text of at most {LONGEST_EDITION} characters without blanks at "
        f'its ends, such as "2025", got {edition!r:.60}'
    )
