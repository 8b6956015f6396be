"""Frozen values that may hold arrays: equal by content, hashable, read-only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


def frozen(array: ArrayLike, dtype: Any = None) -> Array:
    """A private, read-only copy.

    >>> frozen([1, 2]).flags.writeable
    False
    """
    copy = np.array(array, dtype=dtype, order="C")
    copy.setflags(write=False)
    return copy


def whole_numbers(array: Array) -> Array:
    """Numbers as integers of 64 bits, unless some have fractions."""
    if array.dtype.kind == "f" and not (array == np.rint(array)).all():
        return array
    return array.astype(np.int64)


def absolute(array: Array) -> Array:
    """Absolute values in a type that holds them: |-128| does not fit in eight bits."""
    return np.abs(_wide(array, 1))


def squared(array: Array) -> Array:
    """Squares, in whole numbers where 64 bits hold them and in floats where not."""
    wide = _wide(array, 2)
    return np.asarray(wide * wide)


def _wide(array: Array, power: int) -> Array:
    if array.dtype.kind not in "iu":
        return array
    return array.astype(np.int64 if largest(array) ** power < 1 << 62 else np.float64)


def largest(array: Array) -> int:
    """The largest absolute value of an array of whole numbers, exactly; 0 if it has none.

    >>> largest(np.array([3, -128], dtype=np.int8))
    128
    """
    return max(abs(int(array.max())), abs(int(array.min()))) if array.size else 0


def key_of(value: Any) -> Any:
    """A hashable stand-in, equal when the values are (arrays by a 256-bit digest)."""
    if isinstance(value, np.ndarray):
        content = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=32)
        return ("array", value.shape, value.dtype.str, content.digest())
    if isinstance(value, tuple):
        return value if _is_plain(value) else tuple(key_of(item) for item in value)
    if isinstance(value, bool | float):  # True == 1 == 1.0, but they are different values
        return (type(value).__name__, value)
    return value


class Value:
    """Mixin for frozen dataclasses: equal by type and fields, arrays included.

    A field whose name starts with an underscore is a cache and does not count.
    """

    def _key(self) -> Any:
        cached = self.__dict__.get("_key_cache")
        if cached is None:
            names = [f.name for f in fields(self) if not f.name.startswith("_")]  # type: ignore[arg-type]
            cached = (type(self).__qualname__, *(key_of(getattr(self, name)) for name in names))
            object.__setattr__(self, "_key_cache", cached)
        return cached

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: caches hold hashes that are true in this process only."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Built by the constructor, so that arrays are frozen again and everything is checked."""
        self.__init__(**state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and self._key() == other._key())

    def __hash__(self) -> int:
        cached: int | None = self.__dict__.get("_hash_cache")
        if cached is None:
            cached = hash(self._key())
            object.__setattr__(self, "_hash_cache", cached)
        return cached


def digest(value: Any) -> str:
    """A hash of a value as text: the same for equal values, in every process."""
    return hashlib.sha256(repr(_plain(value, {})).encode()).hexdigest()


def _plain(value: Any, known: dict[int, Any]) -> Any:
    """The value as nested tuples of plain things; `known` has those of objects met before."""
    if isinstance(value, Value):
        if id(value) not in known:
            known[id(value)] = _plain(value._key(), known)
        return known[id(value)]
    if isinstance(value, np.ndarray):
        return key_of(value)
    if isinstance(value, tuple | list):
        plain = _is_plain(value)
        return tuple(value) if plain else tuple(_plain(item, known) for item in value)
    return value


def _is_plain(values: Sequence[Any]) -> bool:
    """Is each a text, a whole number or a day, and its own key? A schema may list many."""
    return {type(value) for value in values} <= {str, int, date}
