"""The public record of a measurement: what was asked, the noisy integers, the noise, the cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import RefusedError
from psephos.kernel import gate
from psephos.kernel.budget import Budget, Currency, NoiseKind
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace, Noise
from psephos.kernel.query import Query
from psephos.kernel.sensitivity import sensitivity
from psephos.kernel.unit import Unit
from psephos.matrix import Matrix
from psephos.values import Array, frozen, largest


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
        rows = [block.matrix.shape[0] for block in self.query.blocks]
        return np.repeat([noise.exact_variance for noise in self.noise], rows)

    @property
    def base(self) -> tuple[str, ...]:
        """The way to the vector of cell counts that `transform` starts from."""
        return self.lineage[: self.lineage.index("vectorise") + 1]

    def require_release(self) -> None:
        """Refuse a simulation where a real measurement is needed."""
        if self.simulation:
            raise RefusedError("this is a simulation on made-up or public data; it has no release")

    def __repr__(self) -> str:
        kind = "Simulated measurement" if self.simulation else "Measurement"
        return f"{kind}({len(self.values):,} answers at {self.cost}, {self.noise[0]})"


def noise_for(query: Query, spend: Budget, unit: Unit, stability: int) -> tuple[Noise, ...]:
    """The distribution for each block; scales come from the one amount that is charged.

    Privacy: see `ProtectedVector.measure`; the query is one that was admitted
    (tests/kernel/test_protected.py::test_noise_grows_with_distance_and_stability).
    """
    each = unit.per_distance(spend, stability)
    delta = sensitivity(query, NoiseKind.paid_in(spend.currency).norm)  # for norm 2, its square
    laws = {w: noise_law(delta / w, each, spend.currency) for w in {b.weight for b in query.blocks}}
    return tuple([laws[block.weight] for block in query.blocks])


def noise_law(delta: Fraction, each: Fraction, currency: Currency) -> Noise:
    """The noise for numbers of this sensitivity, for rho its square, at a spend per distance."""
    if currency == "epsilon":
        return DiscreteLaplace(delta / each)
    return DiscreteGaussian(delta / (2 * each))


def request_fingerprint(lineage: tuple[str, ...], query: Query, spend: Budget) -> str:
    """The ledger's name for a measurement: of what, which queries, at what spend."""
    return gate.fingerprint("measure", lineage, query, spend)


def pack(values: Array) -> bytes | memoryview:
    """Integers as bytes that read back as the same integers, however large.

    A word of 0 and then the integers, 64 bits each; or a JSON list, should one need more.

    Privacy: the form depends on the noisy values alone, not on how they were computed
    (tests/kernel/test_records.py::test_integers_of_any_size_are_kept).
    """
    if largest(values) < 1 << 63:
        return np.insert(values.astype("<i8", copy=False), 0, 0).data
    return json.dumps(values.tolist()).encode()


def unpack(data: bytes | bytearray | memoryview) -> Array:
    """The integers that `pack` wrote."""
    raw = memoryview(data).cast("B")
    if raw[0] == 0:
        return np.frombuffer(raw, dtype="<i8")[1:].astype(np.int64, copy=False)
    return np.array(json.loads(bytes(raw)), dtype=object)
