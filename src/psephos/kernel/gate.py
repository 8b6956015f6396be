"""The gate: whatever crosses into the kernel is rebuilt here as plain data, or refused.

Lemma. What is admitted is a tree of plain values; no code of the caller runs after admission, and
an admitted matrix has exactly the entries it shows.

Proof. `_Taker` reads what it is given into a tree of exact ints and strs, private copies of
arrays, tuples and Terms (`codec`). It goes by `type(x) is T`, which no class and no
metaclass can answer for itself, and reads every field once, so nothing can show one thing to a
check and another to its use. Code of the caller can run while fields are read (a property, a
dictionary's key), never later: the tree holds no object that the caller made. `_Builder` makes the
kernel's objects from that tree alone, by the constructors of the types listed in FORMS, which
check sizes, indices, permutations and group numbers, and by the checks of this file where a
constructor trusts its caller; a type that is not listed is not built. A built matrix holds what
its constructor was given: no cache, transpose or product of the caller's comes along. Reading a
file takes the same way from bytes (`decode`), and writing it again must give the same bytes.
(tests/kernel/test_gate.py, tests/attacks)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import psephos.domain.predicate as pr
import psephos.matrix as mx
from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.domain.values import OTHER, Level, TupleValues
from psephos.errors import INSTEAD_OF, BudgetError, PsephosError, RefusedError, ShapeError
from psephos.kernel import codec
from psephos.kernel.budget import LARGEST_TERM, Budget
from psephos.kernel.query import Block, Query
from psephos.kernel.sensitivity import RULES, require_rule
from psephos.kernel.unit import Unit
from psephos.matrix.base import Transposed

DEEPEST_TUPLE = 8


class Recipe(NamedTuple):
    """How objects of a type are taken apart and put together, and what may be inside of them."""

    kind: type
    family: str
    inside: tuple[str, ...]
    take: Callable[[Any], tuple[Any, ...]]
    build: Callable[..., Any]


def _recipe(kind: type, family: str, *inside: str) -> Recipe:
    """By the fields of a dataclass."""
    names = [f.name for f in fields(kind)]
    return Recipe(kind, family, inside, lambda given: tuple(getattr(given, n) for n in names), kind)


def _scalar(kind: type, take: Callable[[Any], Any], build: Callable[[Any], Any]) -> Recipe:
    """A value that is written as one int or str."""
    return Recipe(kind, "scalar", (), lambda given: (take(given),), build)


def _sparse_arrays(given: mx.Sparse) -> tuple[Any, ...]:
    entries = given.entries
    if type(entries) is not sp.csr_array:
        raise RefusedError("a Sparse matrix is measured if it holds a scipy csr_array")
    return entries.data, entries.indices, entries.indptr, entries.shape


def _sparse(data: Any, indices: Any, indptr: Any, shape: Any) -> mx.Sparse:
    """The matrix of three arrays, once every index is known to lie in its shape."""
    m, n = shape
    ends = indptr.astype(np.int64)
    fits = ends.shape == (m + 1,) and ends[0] == 0 and ends.min() >= 0 and ends.max() <= data.size
    steps = np.diff(ends) if fits else np.array([-1])  # of numbers that cannot wrap around
    if (steps < 0).any() or not data.shape == indices.shape == (ends[-1],):
        raise ShapeError("the rows of a Sparse matrix do not lie one after the other in its arrays")
    where = indices.astype(np.int64)
    rows = np.repeat(np.arange(m), steps)
    follows = (np.diff(rows) > 0) | (np.diff(where) > 0)
    if where.size and (where.min() < 0 or where.max() >= n or not follows.all()):
        raise ShapeError(f"a Sparse matrix has columns outside of its {n:,}, or out of order")
    return mx.Sparse(sp.csr_array((data, where, ends), shape=(m, n)))


MATRICES = [_recipe(k, "matrix", "matrix") for k in RULES if k not in (mx.Sparse, Transposed)]
MATRICES += [Recipe(mx.Sparse, "matrix", (), _sparse_arrays, _sparse)]
MATRICES += [Recipe(Transposed, "matrix", ("matrix",), lambda t: (t.base,), lambda base: base.T)]
SCALARS = [_scalar(float, float.hex, float.fromhex), _scalar(bool, int, bool)]
SCALARS += [_scalar(day, day.isoformat, day.fromisoformat) for day in (date, datetime)]
SCALARS += [Recipe(type(v), "scalar", (), lambda _: (), lambda v=v: v) for v in (None, OTHER)]
SCHEMA = [
    Recipe(range, "values", (), lambda r: (r.start, r.stop, r.step), range),
    _recipe(TupleValues, "values", "scalar", "values"),
    _recipe(Level, "level"),
    _recipe(Attribute, "attribute", "scalar", "values", "level", "attribute"),
    _recipe(Domain, "domain", "scalar", "attribute", "domain"),
]
PREDICATES = [_recipe(kind, "predicate", "predicate") for kind in (pr.And, pr.Or, pr.Not)]
PREDICATES += [
    _recipe(k, "predicate", "scalar") for k in (pr.In, pr.Compare, pr.IsNull, pr.InLevel)
]
REQUESTS = [Recipe(Fraction, "ratio", (), Fraction.as_integer_ratio, Fraction)]
REQUESTS += [_recipe(Block, "block", "matrix", "ratio"), _recipe(Query, "query", "block")]
REQUESTS += [_recipe(Budget, "budget", "ratio"), _recipe(Unit, "unit", "scalar")]
FORMS = {form.kind.__name__: form for form in MATRICES + SCALARS + SCHEMA + PREDICATES + REQUESTS}
WRITTEN = {"budget": 'epsilon("0.1") or rho("1/200")', "unit": "add_remove_row() or person(...)"}
WRITTEN |= {"predicate": 'col("age") >= 18, and text is never evaluated'}
FLAT = ("Stack", "Kron", "Compose", "Scaled")  # they take in parts of their own kind when made
BY_TYPE = {id(form.kind): (name, form) for name, form in FORMS.items()}


def admit(given: Any, family: str) -> Any:
    """The kernel's own copy of a matrix, query, predicate, domain, budget or unit."""
    try:
        term = _Taker(family).term(given)
    except (RecursionError, AttributeError):
        raise RefusedError(f"this {type(given).__name__} is endless, or a part is gone") from None
    if FORMS[term.name].family != family:
        raise _strange(term.name, family)
    return _Builder(family).built(term)


def budget(given: Any, what: str, *, least: int = 1) -> Budget:
    """An amount above 0 (or 0, if `least` is), in at most 300 digits."""
    copy: Budget = admit(given, "budget")
    top, bottom = copy.amount.as_integer_ratio()
    if not (least <= top < LARGEST_TERM and bottom < LARGEST_TERM):
        raise BudgetError(f"{what} must be more than 0, in at most 300 digits, got {copy.amount}")
    return copy


def text(given: Any, what: str) -> str:
    """Printable text of 1 to 1000 characters."""
    if type(given) is str and given.isprintable() and 0 < len(given) <= 1000:
        return given
    raise BudgetError(f"{what} is printable text of 1 to 1000 characters, got {given!r:.60}")


def fingerprint(*given: Any) -> str:
    """A name for objects and plain values: equal ones have equal names, in every process."""
    return codec.fingerprint(_Taker().value(given))


def to_bytes(given: Any) -> bytes:
    """The canonical bytes of an object, of a plain value, or of a tuple of them."""
    return codec.encode(_Taker().value(given))


def from_bytes(data: bytes) -> Any:
    """What `to_bytes` wrote; other bytes are refused."""
    value = _Builder().value(codec.decode(data))
    if to_bytes(value) != data:
        raise RefusedError("these bytes are not the canonical ones of what they say")
    return value


@dataclass
class _Taker:
    """From the caller's objects to plain values; an object met twice is read once."""

    family: str = ""
    items: int = 0
    terms: dict[int, codec.Term] = field(default_factory=dict)
    taken: list[Any] = field(default_factory=list)

    def value(self, given: Any, depth: int = 0) -> Any:
        if id(given) in self.terms:
            return self.terms[id(given)]
        if type(given) is int or type(given) is str:
            return given
        if type(given) is tuple:
            self.items += len(given)
            if depth > DEEPEST_TUPLE or self.items > codec.MOST_PATHS:
                raise RefusedError("tuples lie in tuples too deeply, or hold too much")
            terms = tuple(map(self.terms.get, map(id, given)))  # many products share their factors
            return terms if all(terms) else tuple([self.value(v, depth + 1) for v in given])
        return _array(given) if type(given) is np.ndarray else self.term(given)

    def term(self, given: Any) -> codec.Term:
        name, form = BY_TYPE.get(id(type(given)), ("", None))
        if form is None:
            raise _strange(type(given).__name__, self.family)
        term = codec.Term(name, tuple([self.value(value) for value in form.take(given)]))
        self.terms[id(given)] = term
        self.taken.append(given)  # kept, so that no other object gets its id
        return term


def _array(given: Any) -> Any:
    """A private copy, of whole numbers or flags; another thread may change what it is made of."""
    # A view can show more than there is memory for.
    copy = np.array(given if given.nbytes < 1 << 33 else [], order="C")
    if copy.dtype.newbyteorder("<") not in codec.CODES:
        what = f"an array of {given.dtype} and shape {given.shape}"
        raise RefusedError(f"{what} is too large, or not of whole numbers; scale and round it")
    return copy.astype(copy.dtype.newbyteorder("<"), copy=False)


@dataclass
class _Builder:
    """From plain values to the kernel's objects; a term met twice is built once."""

    family: str = ""
    objects: dict[int, Any] = field(default_factory=dict)

    def value(self, value: Any) -> Any:
        if id(value) in self.objects:
            return self.objects[id(value)]
        if type(value) is tuple:
            objects = tuple(map(self.objects.get, map(id, value)))
            known = type(None) not in set(map(type, objects))
            return objects if known else tuple([self.value(item) for item in value])
        return self.built(value) if type(value) is codec.Term else value

    def built(self, term: codec.Term) -> Any:
        if term.name not in FORMS:
            raise _strange(term.name, self.family)
        form = FORMS[term.name]
        for name in {child.name for child in term.inside}:
            inside = FORMS[name].family if name in FORMS else ""
            if inside not in form.inside or (name == term.name and name in FLAT):
                raise _strange(f"{name} inside {term.name}", self.family)
        try:
            copy = form.build(*(self.value(value) for value in term.fields))
        except PsephosError:
            raise
        except Exception:  # noqa: BLE001 - whatever a constructor stumbles over is said in one way
            raise RefusedError(f"{term.name} cannot be made of these fields") from None
        if form.family == "matrix":
            require_rule(copy)
        self.objects[id(term)] = copy
        return copy


def _strange(what: str, family: str) -> PsephosError:
    if family in WRITTEN:
        kind = RefusedError if family == "predicate" else BudgetError
        return kind(f"a {family} is written {WRITTEN[family]}; got {what}")
    known = ", ".join(name for name, form in FORMS.items() if family in ("", form.family))
    rule = f"a {family or 'value'} is made of whole numbers and exactly these types: {known}"
    return RefusedError(f"the kernel has no rule for {what}; {INSTEAD_OF.get(what, rule)}")
