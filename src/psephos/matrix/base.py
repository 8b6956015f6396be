"""The base class of implicit matrices: what each must define, and the defaults for the rest."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from psephos.errors import ShapeError, TooLargeError, UnsupportedError
from psephos.values import Array, Value

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

DENSE_LIMIT = 50_000_000
"""The most entries that `dense()` writes out unless its caller raises the limit."""

Norm = Literal[1, 2]


class Matrix(Value, ABC):
    """A frozen linear map, known by what it does to vectors.

    A subclass defines three things: its `shape`, and how it and its transpose act on the middle
    axis of an array. Everything else has a default or a closed form, and where there is neither,
    UnsupportedError is raised: nothing is written out in full unless the caller says `dense()`.
    """

    entry_type: np.dtype[Any] = np.dtype(np.int8)
    """The narrowest type that holds the entries; int8 keeps integers integer."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows (queries) and columns (cells)."""

    @abstractmethod
    def _apply(self, x: Array, /) -> Array:
        """A along the middle axis: (left, n, right) → (left, m, right); x is left as it was."""

    @abstractmethod
    def _apply_t(self, y: Array, /) -> Array:
        """The transpose along the middle axis: (left, m, right) → (left, n, right)."""

    _streams = False
    """True where `_apply_into` writes its result directly, without a temporary array."""

    def _apply_into(self, x: Array, out: Array) -> None:
        """`_apply`, written to memory that x does not share."""
        out[...] = self._apply(x)

    # ---- products ------------------------------------------------------------------------------

    def matmat(self, x: Array) -> Array:
        """A @ X for a matrix X of n rows."""
        x = self._operand(x, self.shape[1], 2)
        if x.shape[1] == 0:
            return np.empty((self.shape[0], 0), dtype=x.dtype)
        return _unshared(self._apply(x[None])[0], x)

    def rmatmat(self, y: Array) -> Array:
        """A.T @ Y for a matrix Y of m rows."""
        y = self._operand(y, self.shape[0], 2)
        if y.shape[1] == 0:
            return np.empty((self.shape[1], 0), dtype=y.dtype)
        return _unshared(self._apply_t(y[None])[0], y)

    def matvec(self, x: Array) -> Array:
        """A @ x, as a new vector."""
        x = self._operand(x, self.shape[1], 1)
        return _unshared(self._apply(x[None, :, None])[0, :, 0], x)

    def rmatvec(self, y: Array) -> Array:
        """A.T @ y, as a new vector."""
        y = self._operand(y, self.shape[0], 1)
        return _unshared(self._apply_t(y[None, :, None])[0, :, 0], y)

    def _operand(self, x: Any, rows: int, ndim: int) -> Array:
        array = np.asarray(x)
        if array.ndim != ndim or array.shape[0] != rows:
            kind = f"a vector of {rows}" if ndim == 1 else f"a matrix of {rows} rows"
            raise ShapeError(
                f"{self} of shape {self.shape} needs {kind}, got an array of shape {array.shape}"
            )
        if array.dtype == np.uint64 and array.size and array.max() >= 1 << 63:
            return array.astype(object)
        if array.dtype.kind in "bui":
            return array.astype(np.int64, copy=False)
        if array.dtype.kind == "f":
            return array.astype(np.float64, copy=False)
        if array.dtype != object:
            raise ShapeError(f"{self} acts on numbers, got an array of {array.dtype}")
        return array

    def __matmul__(self, other: Any) -> Any:
        from psephos.matrix.combine import compose

        if isinstance(other, Matrix):
            return compose(self, other)
        array = np.asarray(other)
        return self.matvec(array) if array.ndim == 1 else self.matmat(array)

    def __rmatmul__(self, other: Any) -> Array:
        array = np.asarray(other)
        return self.rmatvec(array) if array.ndim == 1 else self.rmatmat(array.T).T

    def __mul__(self, factor: float) -> Matrix:
        from psephos.matrix.combine import Scaled

        return Scaled(factor, self)

    __rmul__ = __mul__

    def __neg__(self) -> Matrix:
        return self * -1

    def __add__(self, other: Matrix) -> Matrix:
        from psephos.matrix.combine import Sum

        return Sum((self, other))

    def __sub__(self, other: Matrix) -> Matrix:
        return self + -other

    __array_ufunc__ = None  # so that `array @ matrix` comes to __rmatmul__

    # ---- the questionnaire ---------------------------------------------------------------------

    @property
    def T(self) -> Matrix:
        """The transpose; `A.T.T is A`."""
        twin: Matrix | None = self.__dict__.get("_twin")
        if twin is None:
            twin = self._transpose()
            twin.__dict__["_twin"] = self
            twin = self.__dict__.setdefault("_twin", twin)  # the first of two threads wins
        return twin

    def _transpose(self) -> Matrix:
        """A new matrix (or self, if symmetric)."""
        return Transposed(self)

    def gram(self) -> Matrix:
        """AᵀA: what selection needs to know of a workload."""
        from psephos.matrix.gram import Gram

        return Gram(self)

    @property
    def is_nonnegative(self) -> bool:
        """Known to have no negative entry (False may mean: not known)."""
        return False

    def abs(self) -> Matrix:
        """The matrix of absolute values."""
        if self.is_nonnegative:
            return self
        raise self._unsupported("abs()")

    def sqr(self) -> Matrix:
        """The matrix of squared entries."""
        raise self._unsupported("sqr()")

    def pinv(self) -> Matrix:
        """The Moore–Penrose inverse."""
        raise self._unsupported("pinv()")

    def column_norms(self, p: Norm) -> Array:
        """The L1 or L2 norm of each column."""
        if p == 1:
            return self.abs()._column_sums()
        if p == 2:
            return np.asarray(np.sqrt(self.sqr()._column_sums()))
        raise ShapeError(f"column norms are known for p = 1 and p = 2, got {p!r}")

    def _column_sums(self) -> Array:
        """The sum of each column, as floats."""
        return self._apply_t(np.ones((1, self.shape[0], 1)))[0, :, 0]

    def _largest_column_sum(self) -> float:
        return float(self._column_sums().max())

    def sensitivity(self, p: Norm) -> float:
        """The largest column norm: how far one row of data can move the answers."""
        if p == 1:
            return self.abs()._largest_column_sum()
        if p == 2:
            return math.sqrt(self.sqr()._largest_column_sum())
        raise ShapeError(f"column norms are known for p = 1 and p = 2, got {p!r}")

    def sum(self) -> float:
        """The sum of all entries."""
        return float(self._column_sums().sum())

    def trace(self) -> float:
        """The sum of the diagonal of a square matrix."""
        raise self._unsupported("trace()")

    def column_groups(self) -> Array:
        """Equal columns share a number; numbers follow first appearance. Exact, never by hashing.

        Where a closed form cannot see that two columns are equal they keep apart, which is still
        a valid (finer) grouping.
        """
        raise self._unsupported("column_groups()")

    def row(self, i: int) -> Array:
        """One row, written out, as floats."""
        unit = np.zeros((1, self.shape[0], 1), dtype=np.int64)
        unit[0, self._row_index(i), 0] = 1
        return self._apply_t(unit)[0, :, 0].astype(float)

    def _row_index(self, i: int) -> int:
        m = self.shape[0]
        if not -m <= i < m:
            raise ShapeError(f"row {i} of {self}, which has rows 0 to {m - 1}")
        return int(i) % m

    def dense(self, limit: int = DENSE_LIMIT) -> Array:
        """The whole matrix as an array of floats, unless it has more than `limit` entries."""
        m, n = self.shape
        if m * n > limit:
            raise TooLargeError(
                f"{self} has {m} x {n} = {float(m * n):.0e} entries, over the limit of "
                f"{float(limit):.0e}; use `A @ x` or `A.gram()`, or pass dense(limit=...)",
                m * n,
                limit,
            )
        if m < n:
            return np.ascontiguousarray(self._apply_t(np.eye(m)[None])[0].T, dtype=float)
        return np.array(self._apply(np.eye(n)[None])[0], dtype=float)

    def as_linear_operator(self) -> LinearOperator:
        """The same map for scipy's solvers."""
        from scipy.sparse.linalg import LinearOperator

        return LinearOperator(
            self.shape,
            matvec=lambda x: self.matvec(np.ravel(x)),
            rmatvec=lambda y: self.rmatvec(np.ravel(y)),
            matmat=self.matmat,
            rmatmat=self.rmatmat,
            dtype=np.result_type(self.entry_type, np.float64),
        )

    # ---- as a value ----------------------------------------------------------------------------

    @property
    def children(self) -> tuple[Matrix, ...]:
        """The matrices this one is made of."""
        parts: list[Matrix] = []
        for value in self._field_values():
            if isinstance(value, Matrix):
                parts.append(value)
            elif isinstance(value, tuple):
                parts.extend(item for item in value if isinstance(item, Matrix))
        return tuple(parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays held, each counted once."""
        sizes: dict[int, int] = {}
        for matrix in self.walk():
            for value in matrix._field_values():
                for array in value if isinstance(value, tuple) else (value,):
                    if isinstance(array, np.ndarray):
                        sizes[id(array)] = array.nbytes
            sizes[id(matrix)] = matrix._hidden_bytes
        return sum(sizes.values())

    @property
    def _hidden_bytes(self) -> int:
        """Bytes held outside of array fields, e.g. in a scipy matrix."""
        return 0

    def walk(self) -> Iterator[Matrix]:
        """This matrix and all matrices inside it, each object once."""
        stack: list[Matrix] = [self]
        visited: set[int] = set()
        while stack:
            matrix = stack.pop()
            if id(matrix) not in visited:
                visited.add(id(matrix))
                yield matrix
                stack.extend(matrix.children)

    def _field_values(self) -> Iterator[Any]:
        return (getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]

    def _unsupported(self, question: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self} has no closed form for {question}; "
            f"if {self.shape} is small, write Dense(A.dense()).{question}"
        )

    def __repr__(self) -> str:
        texts = []
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if isinstance(value, np.ndarray):
                texts.append(f"{f.name}: {' x '.join(map(str, value.shape))}")
            elif isinstance(value, Matrix):
                texts.append(repr(value))
            elif isinstance(value, tuple) and value and isinstance(value[0], Matrix):
                first = ", ".join(map(repr, value[:3]))
                texts.append(first if len(value) <= 3 else f"{first}, … {len(value)} in all")
            else:
                texts.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(texts)})"


@dataclass(frozen=True, eq=False, repr=False)
class Transposed(Matrix):
    """The transpose of a matrix that has no structured one; made by `A.T` alone."""

    base: Matrix

    def __post_init__(self) -> None:
        object.__setattr__(self, "entry_type", self.base.entry_type)

    def __reduce__(self) -> Any:
        return _transpose_of, (self.base,)

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.base.shape
        return n, m

    def _apply(self, x: Array) -> Array:
        return self.base._apply_t(x)

    def _apply_t(self, y: Array) -> Array:
        return self.base._apply(y)

    @property
    def is_nonnegative(self) -> bool:
        return self.base.is_nonnegative

    def abs(self) -> Matrix:
        return self.base.abs().T

    def sqr(self) -> Matrix:
        return self.base.sqr().T

    def pinv(self) -> Matrix:
        return self.base.pinv().T

    def trace(self) -> float:
        return self.base.trace()

    def sum(self) -> float:
        return self.base.sum()

    def __repr__(self) -> str:
        return f"{self.base!r}.T"


def _transpose_of(base: Matrix) -> Matrix:
    return base.T


def _unshared(result: Array, operand: Array) -> Array:
    """The result, copied if it is read-only or shares memory with the caller's operand."""
    shared = np.may_share_memory(result, operand)
    return result if result.flags.writeable and not shared else result.copy()


def square_size(matrix: Matrix) -> int:
    """The n of an n x n matrix; one that is not square is refused, for it has no trace."""
    m, n = matrix.shape
    if m != n:
        raise ShapeError(f"{matrix} of shape {matrix.shape} is not square; it has no trace")
    return n


def positive(value: Any, what: str) -> int:
    """A size: a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ShapeError(f"{what} must be a positive whole number, got {value!r}")
    if value >= 1 << 10_000:
        raise ShapeError(f"{what} must be below 2^10000")
    return int(value)


def first_appearance(labels: Array) -> Array:
    """Renumber groups by where they first appear.

    >>> first_appearance(np.array([7, 3, 7, 5]))
    array([0, 1, 0, 2])
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    return np.asarray(order[inverse.reshape(-1)])
