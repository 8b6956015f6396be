"""Bundles that are asked: refused unless what answers come from is as it was released."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psephos.errors import PsephosError, ReleaseError
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.files import require_unchanged
from psephos.release.bundle.requests import (
    QUESTION_FILE,
    RECEIPT_FILE,
    STRATEGY_FILE,
    VALUES_FILE,
    request_folders,
)
from psephos.release.parts.bundle import ANSWERS_FOLDER, PartsBundle
from psephos.release.parts.tables import TABLES_FOLDER
from psephos.release.parts.verify import SINGLE_FILES, check_parts_receipt
from psephos.release.verify.charges import check_receipts


def opened_bundle(bundle: Bundle | str | os.PathLike[str]) -> Bundle:
    """The bundle, if its files have their hashes and its receipts are for its numbers."""
    bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
    folders, files = request_folders(bundle.manifest), bundle.manifest["files"]
    question = STRATEGY_FILE if bundle.method is None else QUESTION_FILE
    names = (question, VALUES_FILE, RECEIPT_FILE)
    needed = {"release.json", *(f"{folder}/{name}" for folder in folders for name in names)}
    require_unchanged(bundle.path, files, needed | set(files))
    with _as_verified(bundle.path):
        check_receipts(bundle)
    return bundle


def opened_parts(bundle: PartsBundle | str | os.PathLike[str]) -> PartsBundle:
    """The release in parts, if the same holds for all that its answers come from."""
    bundle = bundle if isinstance(bundle, PartsBundle) else PartsBundle.open(bundle)
    marks = bundle.manifest["files"]
    others = {name for name in marks if not name.startswith((f"{TABLES_FOLDER}/", ANSWERS_FOLDER))}
    require_unchanged(bundle.path, marks, others | set(SINGLE_FILES))  # answers are sealed
    with _as_verified(bundle.path):
        check_parts_receipt(bundle)
    return bundle


@contextmanager
def _as_verified(path: Path) -> Iterator[None]:
    """Say of what is wrong with a bundle that it is not asked for this reason."""
    try:
        yield
    except PsephosError as error:
        raise ReleaseError(
            f"{path} fails verification and is not asked: {error}; get the bundle again "
            "(`psephos verify` looks through all of it)"
        ) from None
