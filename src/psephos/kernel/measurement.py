"""The public record of a measurement: what was asked, the noisy integers, the noise, the cost."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from psephos.domain import Domain
from psephos.errors import RefusedError
from psephos.frozen import Array, frozen
from psephos.kernel.budget import Budget
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace
from psephos.kernel.query import Query
from psephos.matrix import Matrix

Noise = DiscreteLaplace | DiscreteGaussian


@dataclass(frozen=True, eq=False, repr=False)
class Measurement:
    """Noisy answers to a query on a vector that was made from a base vector by a linear map.

    `values` holds integers, block after block; `noise` the distribution added to each block.
    """

    dataset_id: str
    lineage: tuple[str, ...]
    domain: Domain
    transform: Matrix | None
    query: Query
    values: Array
    noise: tuple[Noise, ...]
    cost: Budget
    key: str
    simulation: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", frozen(self.values))

    @property
    def variances(self) -> Array:
        """The exact variance of the noise in each answer."""
        return np.concatenate(
            [
                np.full(block.matrix.shape[0], noise.exact_variance)
                for block, noise in zip(self.query.blocks, self.noise, strict=True)
            ]
        )

    @property
    def matrix(self) -> Matrix:
        """The answers' linear map from the base vector."""
        asked = self.query.matrix
        if self.transform is None:
            return asked
        made: Matrix = asked @ self.transform
        return made

    def require_release(self) -> None:
        """Refuse a simulation where a real measurement is needed."""
        if self.simulation:
            raise RefusedError("this is a simulation on made-up or public data; it has no release")

    def __repr__(self) -> str:
        kind = "Simulated measurement" if self.simulation else "Measurement"
        return f"{kind}({len(self.values):,} answers at {self.cost}, {self.noise[0]})"


def narrow(values: Array) -> Array:
    """Noisy integers in 64 bits where all of them fit."""
    if values.dtype != object:
        return values
    fits = all(-(1 << 63) <= value < 1 << 63 for value in values)
    return values.astype(np.int64) if fits else values


def pack(values: Array) -> bytes:
    """Integers as bytes that read back as the same integers, however large."""
    if values.dtype == object:
        return b"json" + json.dumps([int(value) for value in values]).encode()
    return b"int8" + values.astype("<i8").tobytes()


def unpack(data: bytes) -> Array:
    """The integers that `pack` wrote."""
    if data[:4] == b"json":
        return narrow(np.array([*json.loads(data[4:])], dtype=object))
    return np.frombuffer(data[4:], dtype="<i8").astype(np.int64)
