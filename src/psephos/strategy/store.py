"""Strategies on disk: a search is paid for once, and used for other data and other budgets.

A file holds canonical bytes (`kernel.codec`) and is read by the kernel's own gate: nothing in it is
executed, what does not fit is refused, and one strategy has one file. It fits one domain, by its
fingerprint.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from psephos.domain.domain import Domain
from psephos.errors import PsephosError, WorkloadError, a_path
from psephos.kernel import gate
from psephos.strategy.strategy import Rival, Strategy

FORMAT = 2
LARGEST = 1 << 29
"""Bytes of a strategy's file; reading takes about three times as many."""


def save(strategy: Strategy, path: str | os.PathLike[str]) -> None:
    """Write a strategy, whole or not at all."""
    if not isinstance(strategy, Strategy):
        raise WorkloadError(f"a Strategy is saved, got {type(strategy).__name__}")
    place = Path(a_path(path, "a strategy's file", WorkloadError))
    content = gate.to_bytes(
        (
            "strategy",
            FORMAT,
            gate.fingerprint(strategy.domain),
            strategy.noise.value,
            strategy.name,
            float(strategy.rounding_loss),
            tuple((rival.name, float(rival.error)) for rival in strategy.rivals),
            strategy.query,
        )
    )
    if len(content) > LARGEST:
        raise WorkloadError(
            f"{strategy} takes {len(content):,} bytes, over the limit of {LARGEST:,} for a file"
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


def load(path: str | os.PathLike[str], domain: Domain) -> Strategy:
    """The strategy in a file, for the domain that it was selected on."""
    place = Path(a_path(path, "a strategy's file", WorkloadError))
    if not isinstance(domain, Domain):
        raise WorkloadError(f"a strategy is loaded for its Domain, got {type(domain).__name__}")
    try:
        if place.stat().st_size > LARGEST:
            raise WorkloadError(f"{place} has over {LARGEST:,} bytes; a strategy has fewer")
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
    words = [type(part) for part in (kind, version, schema, noise, name, loss)]
    if words != [str, int, str, str, str, float] or kind != "strategy":
        raise _damaged(place, "it holds something else")
    if version != FORMAT:
        raise WorkloadError(
            f"{place} has format {version}, this psephos reads {FORMAT}; select it again"
        )
    if schema != gate.fingerprint(domain):
        raise WorkloadError(f"{place} holds a strategy for another domain than {domain}")
    try:
        listed = tuple(Rival(rival, error) for rival, error in rivals)
        whole = Strategy(domain, noise, query, name, loss, listed)
        plain = [type(part) for pair in rivals for part in pair]
    except (PsephosError, TypeError, ValueError) as error:
        raise _damaged(place, str(error)) from None
    if plain != [str, float] * len(listed):
        raise _damaged(place, "names are text, and errors are numbers")
    return whole


def _damaged(place: Path, why: str) -> WorkloadError:
    return WorkloadError(f"{place} is no strategy, or a damaged one: {why}; select it again")
