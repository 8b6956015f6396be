"""Files of noisy answers, each sealed with a key of its own, and the receipts that open them.

Privacy: a file is encrypted and signed by AES-256-GCM under a key that is drawn for it alone, so
that a nonce of zeros is used once. Whoever has the file and not its receipt learns its length,
which is public: numbers are 64 bits each, whatever they are. A task that is tried again makes
another file with another key; the receipt of the first is dropped, and with it the only key to a
second draw on the same counts (tests/kernel/test_part_faults.py).
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from psephos.errors import LedgerError
from psephos.kernel import gate
from psephos.values import Array

SUFFIX = ".sealed"
NONCE = bytes(12)


class PartReceipt(NamedTuple):
    """A run of parts of a level that was measured: its file, the key to it, and its contents' hash.

    The contents are the answers of the parts in turn, as little-endian integers of 64 bits.
    """

    level: int
    start: int
    stop: int
    name: str
    key: str
    sha256: str


def file_prefix(dataset_id: str, key: str | None) -> str:
    """What the names of a request's files begin with: requests may share a folder."""
    if key is None:
        return secrets.token_hex(8)
    return gate.fingerprint(dataset_id, gate.text(key, "a key"))[:16]


def sealed(
    answers: Array, level: int, start: int, stop: int, folder: str, prefix: str
) -> PartReceipt:
    """Write answers to a new file in a folder; they are on disk when this returns."""
    data = answers.astype("<i8", copy=False).tobytes()
    key, name = AESGCM.generate_key(256), prefix + secrets.token_hex(16) + SUFFIX
    descriptor = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(AESGCM(key).encrypt(NONCE, data, name.encode()))
        file.flush()
        os.fsync(file.fileno())
    return PartReceipt(level, start, stop, name, key.hex(), hashlib.sha256(data).hexdigest())


def opened(receipt: PartReceipt, folder: str) -> Array:
    """The answers behind a receipt; refused if they are gone, or not those that were written."""
    try:
        data = Path(folder, receipt.name).read_bytes()
        plain = AESGCM(bytes.fromhex(receipt.key)).decrypt(NONCE, data, receipt.name.encode())
    except (OSError, InvalidTag):
        plain = b""
    if hashlib.sha256(plain).hexdigest() != receipt.sha256:
        raise LedgerError(
            f"the answers of parts {receipt.start} to {receipt.stop - 1} of level {receipt.level} "
            f"({receipt.name}) are missing, or not those that were stored. They may have been "
            "seen, so they are not drawn again: bring the folder back from a copy"
        )
    parts = receipt.stop - receipt.start
    return np.frombuffer(plain, "<i8").astype(np.int64, copy=False).reshape(parts, -1)


def manifest(receipts: Iterable[PartReceipt]) -> Array:
    """Receipts in their order as numbers that the ledger stores: canonical bytes, one each."""
    data = gate.to_bytes(tuple(sorted(tuple(receipt) for receipt in receipts)))
    return np.frombuffer(data, np.uint8).astype(np.int64)


def receipts_of(numbers: Array) -> tuple[PartReceipt, ...]:
    """The receipts of a manifest."""
    return tuple(PartReceipt(*each) for each in gate.from_bytes(numbers.astype(np.uint8).tobytes()))


def sweep(receipts: Iterable[PartReceipt], folder: str, prefix: str) -> None:
    """Remove every sealed file of a request that no receipt names: draws that nobody may see."""
    standing = {receipt.name for receipt in receipts}
    for path in Path(folder).glob(f"{prefix}*{SUFFIX}"):
        if path.name not in standing:
            path.unlink(missing_ok=True)


def settle(folder: str) -> None:
    """Put the names of new files on disk, so that a manifest never names one that is lost."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
