"""What no row can be: the conditions under `zeros` in a release file, compiled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from psephos.domain import Domain
from psephos.errors import PsephosError, ReleaseError
from psephos.frozen import Array
from psephos.kernel.source import Cells, Conjunct
from psephos.workload.product import Product
from psephos.workload.sql import compile_sql

EXAMPLE = 'a condition on columns, such as "age < 12 AND married = 1"'


@dataclass(frozen=True, eq=False)
class Impossible:
    """One condition that no row can meet, over the domain with attributes merged as it needs."""

    place: str
    condition: str
    domain: Domain
    product: Product

    @property
    def conjuncts(self) -> Cells:
        """The condition as masks: a row meets it if its cells are True in all of them."""
        one = np.ones(1)
        factors = zip(self.domain.names, self.product.matrix(self.domain).factors, strict=True)
        asked = [(name, factor) for name, factor in factors if name in self.product.factors]
        return tuple(Conjunct((name,), np.ravel(f.rmatvec(one)) > 0) for name, f in asked)

    def cells(self, declared: Domain) -> Array:
        """Which cells of the domain as declared meet it; one axis for each attribute."""
        met = np.ravel(self.product.matrix(self.domain).rmatvec(np.ones(1))) > 0
        order = self.domain._axes_of_origin() or list(range(len(declared.names)))
        shape = [declared.shape[axis] for axis in order]
        return met.reshape(shape).transpose(np.argsort(order))

    def __str__(self) -> str:
        return f"{self.place} {self.condition}"


def compile_zeros(domain: Domain, conditions: Sequence[str]) -> tuple[Impossible, ...]:
    """The conditions, each refused by its place if it is none."""
    return tuple(_compiled(domain, f"zeros[{i}]", text) for i, text in enumerate(conditions, 1))


def zero_cells(domain: Domain, impossible: Sequence[Impossible]) -> Array:
    """Which cells no row can lie in; one axis for each attribute."""
    zeros = np.zeros(domain.shape, dtype=bool)
    for each in impossible:
        zeros |= each.cells(domain)
    return zeros


def _compiled(domain: Domain, place: str, condition: str) -> Impossible:
    try:
        merged, asked = compile_sql(domain, f"SELECT COUNT(*) FROM t WHERE {condition}")
    except PsephosError as error:
        reason = re.sub(r"write: SELECT.*", f"write: {EXAMPLE}", str(error))
        raise ReleaseError(f"{place} {condition!r}: {reason}") from None
    if len(asked) != 1 or asked[0].matrix(merged).shape[0] != 1:
        raise ReleaseError(f"{place} {condition!r}: this asks for several counts; write {EXAMPLE}")
    made = Impossible(place, condition, merged, asked[0])
    if all(conjunct.mask.all() for conjunct in made.conjuncts):
        raise ReleaseError(
            f"{place} {condition!r}: every row meets it, so nothing could be published; name what "
            "no row can be"
        )
    return made
