"""Verify a bundle without the data: hashes, receipt, arithmetic.

What it cannot show is said with the result: that the noisy integers came from the data, or that
the noise in them was drawn honestly, no file can prove.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from psephos.errors import PsephosError
from psephos.frozen import Array, digest
from psephos.kernel.ledger import Ledger
from psephos.kernel.measurement import pack
from psephos.kernel.storage import Anchor
from psephos.publish.bundle import (
    CELLS_FILE,
    Bundle,
    read_integers,
    read_table,
    sha256_of,
)

TOLERANCE = 1e-9
"""Of a standard error: how far a consistent number may be from its recomputation."""
CANNOT = (
    "that the noisy integers came from the data, and that their noise was drawn as it should be",
    "that the source itself is right: sampling, coverage and reporting errors are not in any "
    "interval here",
)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    text: str


@dataclass(frozen=True)
class Verification:
    """What was checked of a bundle, what holds, and what no file can show."""

    bundle: str
    checks: tuple[Check, ...]
    cannot: tuple[str, ...] = CANNOT

    @property
    def ok(self) -> bool:
        """Everything that was checked holds."""
        return all(check.ok for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        lines = [f"{'ok    ' if c.ok else 'FAILED'}  {c.name}: {c.text}" for c in self.checks]
        lines += [f"cannot be shown: {text}" for text in self.cannot]
        return "\n".join(lines)


def verify(
    path: str | os.PathLike[str], *, ledger: Ledger | str | os.PathLike[str] | None = None
) -> Verification:
    """Look a bundle through: every hash, the receipt, and every number that can be recomputed.

    Args:
        path: the bundle's directory
        ledger: the data set's ledger, if the owner verifies: then the charge is looked up in it
    """
    bundle = Bundle.open(path)
    steps: list[tuple[str, Callable[[Bundle], str]]] = [
        ("files", _files),
        ("receipt", _receipt),
        ("raw view", _raw),
        ("consistent view", _consistent),
        ("published view", _published),
    ]
    if ledger is not None:
        held = ledger
        steps.insert(2, ("ledger", lambda found: _ledger(found, held)))
    checks = []
    for name, step in steps:
        try:
            checks.append(Check(name, True, step(bundle)))
        except _WrongError as wrong:
            checks.append(Check(name, False, str(wrong)))
        except PsephosError as error:
            checks.append(Check(name, False, str(error)))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a file is a finding
            checks.append(Check(name, False, f"cannot be read ({type(error).__name__})"))
    return Verification(str(Path(path)), tuple(checks))


class _WrongError(Exception):
    """A check that does not hold."""


def _files(bundle: Bundle) -> str:
    listed = bundle.manifest["files"]
    there = {
        str(file.relative_to(bundle.path))
        for file in bundle.path.rglob("*")
        if file.is_file() and file.name != "manifest.json"
    }
    missing, extra = sorted(set(listed) - there), sorted(there - set(listed))
    if missing or extra:
        raise _WrongError(
            "; ".join(
                [f"{name} is missing" for name in missing]
                + [f"{name} is not in the manifest" for name in extra]
            )
        )
    changed = [name for name, mark in listed.items() if sha256_of(bundle.path / name) != mark]
    if changed:
        raise _WrongError(f"changed since the release: {', '.join(changed)}")
    return f"{len(listed)} files, every hash as the manifest has it"


def _receipt(bundle: Bundle) -> str:
    """Does the charge pay for this query, on this schema, at this spend, with these values?"""
    if bundle.simulation:
        return "a rehearsal on made-up data: nothing was charged"
    charge, spend = bundle.receipt["charge"], bundle.spend
    domain, query = bundle.job.workload.domain, bundle.strategy.query
    lineage = (f"root {digest(domain)}", "vectorise")
    asked = digest((lineage, f"measure {digest(query)} {spend}"))
    if tuple(bundle.manifest["lineage"]) != lineage or charge["schema"] != digest(domain):
        raise _WrongError("the charge was made for another schema")
    if charge["fingerprint"] != asked:
        raise _WrongError("the charge was made for another query, or at another spend")
    cost = Fraction(charge["cost"][1])
    same = charge["cost"][0] == spend.currency
    if cost > (spend.amount if same else spend.amount**2 / 2):
        raise _WrongError(f"the charge is {cost}, the noise is that of {spend}")
    values = hashlib.sha256(bytes(pack(bundle.measurement.values))).hexdigest()
    if charge["values_hash"] != values:
        raise _WrongError("the noisy integers are not those that the ledger stored")
    if bundle.receipt["unit"] != str(bundle.job.unit):
        raise _WrongError(f"the ledger protects by {bundle.receipt['unit']}")
    return f"{spend} was charged for these very queries, and these integers were stored for it"


def _ledger(bundle: Bundle, ledger: Ledger | str | os.PathLike[str]) -> str:
    held = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    held.verify(anchor=Anchor.from_dict(bundle.receipt["anchor"]))
    charge = bundle.receipt["charge"]
    for entry in held.history():
        if entry.key == charge["key"] and entry.link == charge["link"]:
            return f"record {entry.number} of {held.dataset!r} is this charge; the chain holds"
    raise _WrongError("the ledger has no such charge")


def _raw(bundle: Bundle) -> str:
    if "raw" not in bundle.manifest["views"]:
        return "not part of this release"
    start = 0
    for i, block in enumerate(bundle.strategy.query.blocks):
        rows = block.matrix.shape[0]
        held = read_table(bundle.path / "raw", f"block-{i + 1}")
        written = [int(value) for value in held["count"].to_pylist()]
        expected = bundle.measurement.values[start : start + rows].tolist()
        if written != expected:
            raise _WrongError(f"raw/block-{i + 1} differs from the noisy integers")
        start += rows
    return f"{start:,} integers, exactly those that were measured"


def _consistent(bundle: Bundle) -> str:
    if "consistent" not in bundle.manifest["views"]:
        return "not part of this release"
    worst = 0.0
    for table in bundle.job.tables:
        written = bundle.table(table.name, "consistent")
        again = bundle.views.table(table, "consistent")
        scale = np.maximum(_column(again, "stderr"), 1e-9)
        for name in ("count", "stderr", "low", "high"):
            gap = np.abs(_column(written, name) - _column(again, name)) / scale
            worst = max(worst, float(gap.max()))
        if worst > TOLERANCE:
            raise _WrongError(
                f"{table.name!r} is up to {worst:.2g} standard errors from its recomputation"
            )
    return f"within {worst:.1g} standard errors of least squares on the noisy integers"


def _published(bundle: Bundle) -> str:
    if "published" not in bundle.manifest["views"]:
        return "not part of this release"
    job = bundle.job
    cells = read_integers(bundle.path / "published" / CELLS_FILE, "count")
    if len(cells) != job.workload.domain.size or (cells < 0).any():
        raise _WrongError("the cells are not non-negative whole numbers, one for each")
    if job.zeros is not None and cells[job.zeros].any():
        raise _WrongError("a cell that no row can lie in is not zero")
    sums = job.workload.answer(cells)
    gaps = []
    for table in job.tables:
        written = _column(bundle.table(table.name, "published"), "count")
        if not np.array_equal(written, sums[table.rows(job.workload)]):
            raise _WrongError(f"{table.name!r} is not the sum of the published cells")
        gaps.append(written - bundle.views.consistent[table.rows(job.workload)])
    largest = float(np.abs(np.concatenate(gaps)).max())
    recorded = bundle.manifest["distance"]["largest"]
    if abs(largest - recorded) > 1e-6 * max(1.0, recorded):
        raise _WrongError(f"up to {largest:.6g} from the consistent view, {recorded:.6g} recorded")
    return (
        f"{cells.size:,} non-negative whole cells add up to every table; at most {largest:,.1f} "
        "from the consistent view, as recorded"
    )


def _column(table: Any, name: str) -> Array:
    return np.asarray(table[name].to_numpy())
