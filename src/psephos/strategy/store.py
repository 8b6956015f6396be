"""Strategies on disk: a search is paid for once, and used for other data and other budgets.

A file holds the structure of the blocks as JSON and their arrays as numpy writes them; nothing in
it is executed when it is read. It fits one domain, by its fingerprint, and is checked like any
query.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import scipy.sparse as sp

import psephos.matrix as mx
from psephos.domain import Domain
from psephos.errors import PsephosError, WorkloadError, a_path
from psephos.frozen import Array, digest
from psephos.kernel.query import Block, Query
from psephos.matrix import Matrix, Sparse
from psephos.strategy.strategy import Rival, Strategy

FORMAT = 1
KINDS = {
    kind.__name__: kind
    for kind in vars(mx).values()
    if isinstance(kind, type) and issubclass(kind, Matrix) and kind is not Matrix
}


def save(strategy: Strategy, path: str | os.PathLike[str]) -> None:
    """Write a strategy, whole or not at all."""
    if not isinstance(strategy, Strategy):
        raise WorkloadError(f"a Strategy is saved, got {type(strategy).__name__}")
    arrays: dict[str, Array] = {}
    nodes: list[dict[str, Any]] = []
    known: dict[int, int] = {}
    blocks = [
        [_written(block.matrix, nodes, arrays, known), str(block.weight)]
        for block in strategy.query.blocks
    ]
    head = {
        "format": FORMAT,
        "domain": digest(strategy.domain),
        "noise": strategy.noise,
        "name": strategy.name,
        "rounding_loss": strategy.rounding_loss,
        "rivals": [[rival.name, rival.error] for rival in strategy.rivals],
        "nodes": nodes,
        "blocks": blocks,
    }
    place = Path(a_path(path, "a strategy's file", WorkloadError))
    text = np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
    try:
        with NamedTemporaryFile(dir=place.parent, prefix=f".{place.name}.", delete=False) as file:
            np.savez_compressed(file, allow_pickle=False, head=text, **arrays)
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
    if not place.exists():
        raise WorkloadError(f"there is no strategy at {place}")
    try:
        with open(place, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            head = json.loads(file["head"].tobytes())
            arrays = {name: file[name] for name in file.files if name != "head"}
        if head["format"] != FORMAT:
            raise WorkloadError(
                f"{place} has format {head['format']}, this psephos reads {FORMAT}; select it again"
            )
        if head["domain"] != digest(domain):
            raise WorkloadError(f"{place} holds a strategy for another domain than {domain}")
        made: list[Matrix] = []
        for node in head["nodes"]:
            made.append(_read(node, arrays, made))
        blocks = tuple(Block(made[node], Fraction(weight)) for node, weight in head["blocks"])
        rivals = tuple(Rival(name, error) for name, error in head["rivals"])
        noise, name, loss = head["noise"], head["name"], head["rounding_loss"]
        return Strategy(domain, noise, Query(blocks), name, loss, rivals)
    except PsephosError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a file is said in one way
        raise WorkloadError(
            f"{place} is no strategy, or a damaged one ({type(error).__name__}); select it again"
        ) from None


def _written(
    matrix: Matrix, nodes: list[dict[str, Any]], arrays: dict[str, Array], known: dict[int, int]
) -> int:
    """The number of the node that holds a matrix; one object is written once."""
    if id(matrix) in known:
        return known[id(matrix)]

    def plain(value: Any) -> Any:
        if isinstance(value, Matrix):
            return {"node": _written(value, nodes, arrays, known)}
        if isinstance(value, np.ndarray):
            arrays[f"a{len(arrays)}"] = value
            return {"array": f"a{len(arrays) - 1}"}
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        return value

    if isinstance(matrix, Sparse):
        e = matrix.entries
        inside = [plain(part) for part in (e.data, e.indices, e.indptr)] + [list(e.shape)]
    else:
        inside = [plain(getattr(matrix, f.name)) for f in fields(matrix)]  # type: ignore[arg-type]
    nodes.append({"type": type(matrix).__name__, "fields": inside})
    known[id(matrix)] = len(nodes) - 1
    return len(nodes) - 1


def _read(node: dict[str, Any], arrays: dict[str, Array], made: list[Matrix]) -> Matrix:
    def value(plain: Any) -> Any:
        if isinstance(plain, dict):
            return made[plain["node"]] if "node" in plain else arrays[plain["array"]]
        if isinstance(plain, list):
            return tuple(value(item) for item in plain)
        return plain

    inside = [value(plain) for plain in node["fields"]]
    if node["type"] == "Sparse":
        data, indices, indptr, shape = inside
        return Sparse(sp.csr_array((data, indices, indptr), shape=shape))
    return KINDS[node["type"]](*inside)
