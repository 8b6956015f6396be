"""A strategy: what would be measured, in integers, and the error of every answer that follows.

A search is paid for once: a strategy on disk is used for other data and other budgets. Its file
holds canonical bytes (`kernel.codec`) and is read by the kernel's own gate: nothing in it is
executed, what does not fit is refused, and one strategy has one file. It fits one domain, by its
fingerprint.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from html import escape
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import (
    BudgetError,
    PsephosError,
    TooLargeError,
    UnsupportedError,
    WorkloadError,
    a_path,
)
from psephos.inverse.choice import (
    Cost,
    check_reconstructible,
    form_of,
    precision,
    predict_cost,
)
from psephos.inverse.form import Form
from psephos.kernel import gate
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import noise_for
from psephos.kernel.query import Query
from psephos.kernel.sensitivity import sensitivity
from psephos.kernel.unit import Unit
from psephos.strategy.factors import checked_noise
from psephos.values import Array, Value
from psephos.variances import NoiseKind
from psephos.workload.workload import Workload

STRATEGY_FORMAT = 2
LARGEST_FILE = 1 << 29
"""Bytes of a strategy's file; reading takes about three times as many."""


@dataclass(frozen=True)
class Rival:
    """Another strategy that was looked at, with its exact budget-free error."""

    name: str
    error: float


@dataclass(frozen=True, eq=False, repr=False)
class Strategy(Value):
    """Integer queries with weights over a domain, for one kind of noise.

    `query` is what the kernel measures, to the bit; every error below is that of these integers.
    `rounding_loss` says what the step from real numbers to integers cost, as a share of the RMSE,
    and `rivals` what else was tried when the strategy was selected.
    """

    domain: Domain
    noise: NoiseKind
    query: Query
    name: str = "strategy"
    rounding_loss: float = 0.0
    rivals: tuple[Rival, ...] = field(default=())
    complete: bool = True
    """False if a time limit cut the search short."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", checked_noise(self.noise))
        if not isinstance(self.domain, Domain):
            raise WorkloadError(f"a strategy is over a Domain, got {type(self.domain).__name__}")
        object.__setattr__(self, "query", gate.admit(self.query, "query"))
        if self.query.shape[1] != self.domain.size:
            raise WorkloadError(
                f"the query asks about {self.query.shape[1]:,} cells, {self.domain} has "
                f"{self.domain.size_text}"
            )

    @classmethod
    def trusted(
        cls, domain: Domain, noise: NoiseKind, query: Query, name: str, rounding_loss: float = 0.0
    ) -> Strategy:
        """Of blocks that a selector wrote down: marginals by the thousand are not copied first.

        The kernel takes every query apart before it measures it, whoever made it.
        """
        strategy = object.__new__(cls)
        defaults = {f.name: f.default for f in fields(cls)}
        strategy.__dict__.update(defaults, domain=domain, noise=noise, query=query, name=name)
        strategy.__dict__["rounding_loss"] = rounding_loss
        return strategy

    def as_result(self, name: str, rivals: tuple[Rival, ...], *, complete: bool) -> Strategy:
        """The same query as the result of a search; it was checked, and its inverse is kept."""
        result = object.__new__(Strategy)
        same = {k: v for k, v in self.__dict__.items() if k not in ("_key_cache", "_hash_cache")}
        result.__dict__.update(same, name=name, rivals=rivals, complete=complete)
        return result

    def expected_error(self, workload: Workload) -> float:
        """‖A‖²‖WA⁺‖²_F, free of any budget: the L1 norm for Laplace, the L2 norm for Gaussian.

        Times 2/ε² or 1/(2ρ) it is the total variance of continuous noise. Weighted as the
        workload is; exact for these integers, unless `error_is_exact` says otherwise.
        """
        errors = self.product_errors(workload)
        return float(np.array([product.weight**2 for product in workload.products]) @ errors)

    def error_spread(self, workload: Workload) -> float:
        """The standard error of `expected_error` where that is estimated, 0 where it is exact."""
        Workload.require(workload, self.domain)
        spreads = self._form.trace_spreads(workload.listed)
        # The samples are the same for all products, so their errors may add up.
        return float(np.array([product.weight**2 for product in workload.products]) @ spreads)

    def product_errors(self, workload: Workload) -> Array:
        """The budget-free squared error of every product, summed over its queries, unweighted."""
        Workload.require(workload, self.domain)
        if not self._form.infinite_where_open:
            workload.check_covered(self._form)
        errors = self._form.traces(workload.listed)
        if not np.isfinite(errors).all():
            workload.check_covered(self._form)
        return errors

    def worst_errors(self, workload: Workload) -> Array:
        """The budget-free squared error of the worst query of every product."""
        Workload.require(workload, self.domain)
        workload.check_covered(self._form)
        return np.array([self._form.variances(f).max() for f in workload.listed])

    @property
    def error_is_exact(self) -> bool:
        """False where errors are estimated (three or more products over many cells)."""
        return self._form.exact

    @property
    def sampling_work(self) -> int:
        """About how many numbers an estimate of its error goes through."""
        return self._form.sampling_work

    def rmse(self, workload: Workload, budget: Budget, unit: Unit) -> float:
        """The root mean squared error of all answers, for the noise that would be drawn."""
        Workload.require(workload, self.domain)
        form = self.form(budget, unit)
        workload.check_covered(form)
        total = float(form.traces(workload.listed).sum())
        return math.sqrt(total / workload.shape[0])

    def query_variances(self, workload: Workload, budget: Budget, unit: Unit) -> Array:
        """The variance of every answer, for the noise that would be drawn."""
        Workload.require(workload, self.domain)
        form = self.form(budget, unit)
        workload.check_covered(form)
        return np.concatenate([form.variances(factors) for factors in workload.listed])

    def form(self, budget: Budget, unit: Unit) -> Form:
        """The measurement's inverse at a budget, as inference will use it."""
        currency = self.noise.currency
        if not isinstance(budget, Budget) or budget.currency != currency:
            raise BudgetError(
                f"a strategy for {self.noise} noise is paid in {currency}, got {budget!r}; write "
                f'ps.{currency}("1/2")'
            )
        if not isinstance(unit, Unit):
            raise BudgetError(f"a unit is written add_remove_row() or person(...), got {unit!r}")
        noises = noise_for(self.query, budget, unit, 1)
        return self._inverse([precision(noise.exact_variance) for noise in noises])

    @cached_property
    def cost(self) -> Cost:
        """Time and memory that measuring and reconstructing would take, within a factor of 3."""
        return predict_cost([b.matrix for b in self.query.blocks], self.domain.shape)

    def check_reconstructible(self) -> None:
        """Refuse, before anything is spent, what could be measured and never be estimated from.

        Errors of a product are known at any size; an estimate of its cells has to be held.
        """
        check_reconstructible([b.matrix for b in self.query.blocks], self.domain.shape)

    @cached_property
    def is_reconstructible(self) -> bool:
        """Can answers be estimated from it, by the size of what has to be held?"""
        try:
            self.check_reconstructible()
        except (TooLargeError, UnsupportedError):
            return False
        return True

    @cached_property
    def _form(self) -> Form:
        """The inverse at unit noise: precision w²/Δ₁² or w/Δ₂²."""
        # In the L2 norm `sensitivity` is the square, as weights are.
        whole = sensitivity(self.query, self.noise.norm)
        return self._inverse(
            [float((b.weight / whole) ** self.noise.power) for b in self.query.blocks]
        )

    def _inverse(self, precisions: Sequence[float]) -> Form:
        """How answers follow from the blocks, measured with these precisions."""
        return form_of([b.matrix for b in self.query.blocks], precisions, self.domain.shape)

    def __repr__(self) -> str:
        return f"Strategy({self.name}: {self.query.shape[0]:,} answers, {self.noise})"

    def _repr_html_(self) -> str:
        most = 20
        blocks = self.query.blocks
        rows = [(repr(b.matrix), f"{b.matrix.shape[0]:,}", str(b.weight)) for b in blocks[:most]]
        if len(blocks) > most:
            rows.append((f"… {len(blocks) - most:,} more", "", ""))
        loss = f"rounding to integers costs {self.rounding_loss * 100:.2g} % of the RMSE"
        rivals = [(rival.name, f"{rival.error:,.5g}") for rival in self.rivals]
        table = _html_table(f"{self!r}; {loss}", ("block", "answers", "weight"), rows)
        return table + (_html_table("rivals", ("name", "error"), rivals) if rivals else "")


def save(strategy: Strategy, path: str | os.PathLike[str]) -> None:
    """Write a strategy, whole or not at all."""
    if not isinstance(strategy, Strategy):
        raise WorkloadError(f"a Strategy is saved, got {type(strategy).__name__}")
    place = Path(a_path(path, "a strategy's file", WorkloadError))
    content = gate.to_bytes(
        (
            "strategy",
            STRATEGY_FORMAT,
            gate.fingerprint(strategy.domain),
            strategy.noise.value,
            strategy.name,
            float(strategy.rounding_loss),
            tuple((rival.name, float(rival.error)) for rival in strategy.rivals),
            strategy.query,
        )
    )
    if len(content) > LARGEST_FILE:
        raise WorkloadError(
            f"{strategy} takes {len(content):,} bytes, over the limit of {LARGEST_FILE:,} for "
            "a file"
        )
    try:
        with NamedTemporaryFile(dir=place.parent, prefix=f".{place.name}.", delete=False) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(file.name, 0o644)
        os.replace(file.name, place)
        folder = os.open(place.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    except OSError as error:
        raise WorkloadError(f"{place} cannot be written: {error.strerror}") from None


def load(path: str | os.PathLike[str], domain: Domain | None = None) -> Strategy:
    """The strategy in a file, for the domain that it was selected on, which must be given."""
    place = Path(a_path(path, "a strategy's file", WorkloadError))
    if not isinstance(domain, Domain):
        given = "nothing" if domain is None else type(domain).__name__
        raise WorkloadError(
            f"a strategy is loaded for its Domain, got {given}; the file holds only that domain's "
            "hash, so write load(path, workload.domain)"
        )
    try:
        if place.stat().st_size > LARGEST_FILE:
            raise WorkloadError(f"{place} has over {LARGEST_FILE:,} bytes; a strategy has fewer")
        content = gate.from_bytes(place.read_bytes())
        kind, version, schema, noise, name, loss, rivals, query = content
    except FileNotFoundError:
        raise WorkloadError(f"there is no strategy at {place}") from None
    except OSError as error:
        raise WorkloadError(f"{place} cannot be read: {error.strerror}") from None
    except WorkloadError:
        raise
    except (PsephosError, TypeError, ValueError) as error:
        raise _damaged(place, str(error)) from None
    types = [type(part) for part in (kind, version, schema, noise, name, loss)]
    if types != [str, int, str, str, str, float] or kind != "strategy":
        raise _damaged(place, "it holds something else")
    if version != STRATEGY_FORMAT:
        raise WorkloadError(
            f"{place} has format {version}, this psephos reads {STRATEGY_FORMAT}; select it again"
        )
    if schema != gate.fingerprint(domain):
        raise WorkloadError(f"{place} holds a strategy for another domain than {domain}")
    try:
        candidates = tuple(Rival(rival, error) for rival, error in rivals)
        strategy = Strategy(domain, noise, query, name, loss, candidates)
        types = [type(part) for pair in rivals for part in pair]
    except (PsephosError, TypeError, ValueError) as error:
        raise _damaged(place, str(error)) from None
    if types != [str, float] * len(candidates):
        raise _damaged(place, "names are text, and errors are numbers")
    return strategy


def _damaged(place: Path, why: str) -> WorkloadError:
    return WorkloadError(f"{place} is no strategy, or a damaged one: {why}; select it again")


def _html_table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )
