"""Plain values and their canonical bytes: one format for files, fingerprints and the wire.

A plain value is an int, a str, an array of whole numbers or flags, a tuple of plain values, or a
Term: a name with plain values for its fields. In bytes (numbers big-endian, arrays little-endian):

    data  = "psephos" 1, number of terms, terms, value
    term  = length and text of its name, number of fields, fields
    value = "i" length, two's complement    | "a" kind, axes, lengths of the axes, entries
          | "s" length, UTF-8               | "t" number of an earlier term
          | "(" number of items, items

Equal terms are written once, in the order in which a walk through the value leaves them. So a
value has exactly one encoding; bytes that `encode` would not write are refused (`gate.from_bytes`).

Memory: nothing is taken before it is known to lie in the bytes; arrays are views of them. Reading
takes at most some 200 bytes for each byte of small values, and two more copies of the data.
(tests/kernel/test_gate.py, tests/attacks/test_mutated_bytes.py)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from psephos.errors import RefusedError

MAGIC = b"psephos\x01"
DTYPES = [np.dtype(kind) for kind in ("?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8")]
CODES = {kind: bytes([code]) for code, kind in enumerate(DTYPES)}
MOST_INTEGER_BYTES = 512
"""Bytes of a whole number."""
DEEPEST = 110
"""Terms inside each other, or tuples."""
MOST_PATHS = 20_000_000
"""Terms met on a walk that enters shared ones again each time; it bounds all later work."""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Term:
    """A name and its fields; `inside` are the terms among them, and in their tuples."""

    name: str
    fields: tuple[Any, ...]
    inside: tuple[Term, ...] = field(init=False)
    depth: int = field(init=False)
    paths: int = field(init=False)

    def __post_init__(self) -> None:
        inside = tuple(_terms_in(self.fields))
        object.__setattr__(self, "inside", inside)
        object.__setattr__(self, "depth", 1 + max(map(attrgetter("depth"), inside), default=0))
        object.__setattr__(self, "paths", 1 + sum(map(attrgetter("paths"), inside)))
        if self.depth > DEEPEST or self.paths > MOST_PATHS:
            limits = f"{DEEPEST} deep or has over {MOST_PATHS:,} parts"
            raise RefusedError(f"{self.name} is nested over {limits}; ask for fewer at once")


def _terms_in(fields: tuple[Any, ...]) -> Iterator[Term]:
    for value in fields:
        if type(value) is Term:
            yield value
        elif type(value) is tuple:
            yield from value if set(map(type, value)) == {Term} else _terms_in(value)


def encode(value: Any) -> bytes:
    """The canonical bytes of a plain value.

    >>> decode(encode((1, "a", (-2**70,))))
    (1, 'a', (-1180591620717411303424,))
    """
    return b"".join(_written(value))


def fingerprint(value: Any) -> str:
    """A name for a plain value: the SHA-256 of its bytes, which are not held at once."""
    mark = hashlib.sha256()
    for part in _written(value):
        mark.update(part)
    return mark.hexdigest()


def _written(value: Any) -> list[Any]:
    writer = _Writer()
    try:
        last = writer.value(value)
    except UnicodeEncodeError:
        raise RefusedError("a text holds half a character, which has no bytes") from None
    return [MAGIC, _size(len(writer.numbers)), *writer.terms, *last]


def _size(number: int) -> bytes:
    return number.to_bytes(4)


@dataclass
class _Writer:
    """Terms in the order they were left, each by the number it has got."""

    terms: list[Any] = field(default_factory=list)
    numbers: dict[bytes, int] = field(default_factory=dict)
    known: dict[int, bytes] = field(default_factory=dict)
    kept: list[Term] = field(default_factory=list)

    def value(self, value: Any) -> list[Any]:
        """The pieces of one value; only exact types have any."""
        if type(value) is Term:
            return [self.reference(value)]
        if type(value) is int:
            length = value.bit_length() // 8 + 1
            if length > MOST_INTEGER_BYTES:
                raise RefusedError(f"a whole number has over {8 * MOST_INTEGER_BYTES} bits")
            return [b"i" + length.to_bytes(2) + value.to_bytes(length, signed=True)]
        if type(value) is str:
            text = value.encode()
            return [b"s" + _size(len(text)) + text]
        if type(value) is tuple:
            known = list(map(self.known.get, map(id, value)))
            parts = known if all(known) else [part for v in value for part in self.value(v)]
            return [b"(" + _size(len(value)), *parts]
        if type(value) is np.ndarray and value.dtype in CODES:
            axes = [length.to_bytes(8) for length in value.shape]
            entries = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            return [b"a" + CODES[value.dtype] + bytes([value.ndim]), *axes, entries.data]
        raise RefusedError(f"{type(value).__name__} is no plain value")

    def reference(self, term: Term) -> bytes:
        """The place of a term among those written, where it is put if it is new."""
        if id(term) not in self.known:
            name = term.name.encode()
            body = [_size(len(name)) + name + _size(len(term.fields))]
            body += [part for v in term.fields for part in self.value(v)]
            mark = hashlib.sha256()
            for part in body:
                mark.update(part)
            if mark.digest() not in self.numbers:
                self.numbers[mark.digest()] = len(self.numbers)
                self.terms += body
            self.known[id(term)] = b"t" + _size(self.numbers[mark.digest()])
            self.kept.append(term)  # so that ids stay its own
        return self.known[id(term)]


def decode(data: bytes) -> Any:
    """The plain value in bytes; `gate.from_bytes` compares it with what `encode` makes of it."""
    if data[: len(MAGIC)] != MAGIC:
        raise RefusedError("this is no file of psephos, or one of another version")
    reader = _Reader(memoryview(data), len(MAGIC))
    try:
        return reader.whole()
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        raise RefusedError(f"no plain value can be read at byte {reader.at:,}") from None


@dataclass
class _Reader:
    data: memoryview
    at: int
    terms: list[Term] = field(default_factory=list)

    def whole(self) -> Any:
        """Terms and the value made of them."""
        for _ in range(self.size()):
            name = str(self.bytes(self.size()), "utf-8")
            self.terms.append(Term(name, self.items(0)))
        return self.value(0)

    def bytes(self, length: int) -> memoryview:
        if length > len(self.data) - self.at:
            raise ValueError("it ends too soon")
        self.at += length
        return self.data[self.at - length : self.at]

    def size(self, width: int = 4) -> int:
        return int.from_bytes(self.bytes(width))

    def items(self, depth: int) -> tuple[Any, ...]:
        return tuple(self.value(depth) for _ in range(self.size()))

    def value(self, depth: int) -> Any:
        tag = bytes(self.bytes(1))
        if tag == b"i":
            return int.from_bytes(self.bytes(min(self.size(2), MOST_INTEGER_BYTES)), signed=True)
        if tag == b"s":
            return str(self.bytes(self.size()), "utf-8")
        if tag == b"(" and depth < DEEPEST:
            return self.items(depth + 1)
        if tag == b"a":
            return self.array()
        if tag == b"t":
            return self.terms[self.size()]
        raise ValueError("no such kind of value")

    def array(self) -> Any:
        kind = DTYPES[self.size(1)]
        axes = [self.size(8) for _ in range(self.size(1))]
        entries = self.bytes(math.prod(axes) * kind.itemsize)
        if kind.kind == "b" and np.frombuffer(entries, np.uint8).max(initial=0) > 1:
            raise ValueError("a flag is 0 or 1")
        return np.frombuffer(entries, kind).reshape(axes)
