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
import re
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
TAG_BYTES = 16
NAME, HEX = re.compile(r"[0-9a-f]{48}\.sealed"), re.compile("[0-9a-f]{64}")
RECEIPT_TYPES = [int, int, int, str, str, str]


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


def opened(receipt: PartReceipt, folder: str, answers: int) -> Array:
    """So many answers of each part behind a receipt; refused if they are not those written."""
    place, parts = Path(folder, receipt.name), receipt.stop - receipt.start
    size, plain = 8 * parts * answers, None
    try:
        if place.is_file() and place.stat().st_size == size + TAG_BYTES:
            key, data = bytes.fromhex(receipt.key), place.read_bytes()
            plain = AESGCM(key).decrypt(NONCE, data, receipt.name.encode())
    except (OSError, InvalidTag):
        pass
    if plain is None or hashlib.sha256(plain).hexdigest() != receipt.sha256:
        raise LedgerError(
            f"the answers of parts {receipt.start} to {receipt.stop - 1} of level {receipt.level} "
            f"({receipt.name}) are missing, or not those that were stored. They may have been "
            "seen, so they are not drawn again: bring the folder back from a copy"
        )
    return np.frombuffer(plain, "<i8").astype(np.int64, copy=False).reshape(parts, answers)


def manifest(receipts: Iterable[PartReceipt]) -> Array:
    """Receipts in their order as numbers that the ledger stores: canonical bytes, one each."""
    data = gate.to_bytes(tuple(sorted(tuple(receipt) for receipt in receipts)))
    return np.frombuffer(data, np.uint8).astype(np.int64)


def receipts_of(numbers: Array) -> tuple[PartReceipt, ...]:
    """The receipts of a manifest; refused if it holds anything else, such as other paths."""
    given = gate.from_bytes(numbers.astype(np.uint8).tobytes())
    if type(given) is not tuple or not all(map(_is_receipt, given)):
        raise LedgerError("a manifest of parts holds what is no receipt; it was changed")
    return tuple(PartReceipt(*each) for each in given)


def _is_receipt(given: object) -> bool:
    if type(given) is not tuple or [type(each) for each in given] != RECEIPT_TYPES:
        return False
    level, start, stop, name, key, sha256 = given
    texts = NAME.fullmatch(name) and HEX.fullmatch(key) and HEX.fullmatch(sha256)
    return level >= 0 and 0 <= start < stop and texts is not None


def sweep(receipts: Iterable[PartReceipt], folder: str, prefix: str) -> None:
    """Remove every sealed file of a request that no receipt names: draws that nobody may see."""
    standing = {receipt.name for receipt in receipts}
    for path in Path(folder).glob(f"{prefix}*{SUFFIX}"):
        if path.name not in standing:
            path.unlink(missing_ok=True)


def settle(folder: str) -> None:
    """Put the names of new files on disk, so that a manifest never names one that is lost."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
