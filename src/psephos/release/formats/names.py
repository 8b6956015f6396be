"""Names that other programs can take: of files, of sheets in Excel, of things in SDMX.

Each is what the owner wrote wherever that is allowed; where two come out alike, or a name means
something to a program, a mark keeps them apart.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

from psephos.release.bundle.files import CELLS_STEM, NAME_BYTES

DEVICES = {"con", "prn", "aux", "nul", *(f"{d}{i}" for d in ("com", "lpt") for i in range(10))}
"""What Windows takes for a device, whatever the ending."""
FOLDERS = {CELLS_STEM, "groups"}
"""Files and folders that lie beside those of tables."""
SHEET_SIGNS = 31
"""The longest name of a sheet, in units of UTF-16."""
SHEET_NAMES = {"history"}
"""Names that Excel keeps for itself."""
MARK_SIZES = (0, 8, 16)
"""Signs of a hash that keeps names apart, tried in this order."""


def table_files(names: Sequence[str]) -> dict[str, str]:
    """What the files of some tables are called, without their endings.

    >>> table_files(["Age by sex", "Region", "region", "cells"])
    {'Age by sex': 'Age-by-sex', 'Region': 'Region-d3a008ef', 'region': 'region-c697d298',
     'cells': 'cells-57104c57'}
    """
    return dict(zip(names, unique_names(names, _stem, _is_reserved), strict=True))


def unique_names(
    names: Sequence[str], clean: Callable[[str, int], str], reserved: Callable[[str], bool]
) -> list[str]:
    """Clean names, each its own also where upper and lower case are one.

    Args:
        names: what is to be named, each once
        clean: a clean name with room for so many more signs
        reserved: whether a clean name is taken
    """
    marks = {name: hashlib.sha256(name.encode()).hexdigest() for name in names}
    sizes = dict.fromkeys(names, MARK_SIZES[0])
    while True:
        drafts = {
            name: f"{clean(name, size + 1)}-{marks[name][:size]}" if size else clean(name, 0)
            for name, size in sizes.items()
        }
        times = Counter(map(collision_key, drafts.values()))
        longer = {
            name: MARK_SIZES[MARK_SIZES.index(sizes[name]) + 1]
            for name, draft in drafts.items()
            if sizes[name] < MARK_SIZES[-1] and (reserved(draft) or times[collision_key(draft)] > 1)
        }
        if not longer:
            return [drafts[name] for name in names]
        sizes |= longer


def collision_key(name: str) -> str:
    """The same for all names that some disk or program takes for one."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _stem(name: str, room: int) -> str:
    safe = re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", name)).strip("-.") or "table"
    return safe.encode()[: NAME_BYTES - room].decode(errors="ignore").rstrip("-.")


def _is_reserved(stem: str) -> bool:
    first = collision_key(stem).split(".")[0]
    return first in DEVICES or collision_key(stem) in FOLDERS


def sheet_names(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Names of sheets: at most 31 signs, none of them forbidden, each its own.

    >>> sheet_names(["Age: by sex", "'quoted'", "history"])
    ['Age by sex', 'quoted', 'history-259aa8ef']
    """
    others = SHEET_NAMES | {collision_key(name) for name in taken}
    return unique_names(names, _sheet, lambda name: collision_key(name) in others)


def _sheet(name: str, room: int) -> str:
    printable = "".join(sign if sign.isprintable() else " " for sign in name)
    words = " ".join(re.sub(r"[\[\]:*?/\\]", " ", printable).split()).strip("' ")
    words = words.replace("'", "’")  # no doubling where a formula or link names the sheet
    cut = words.encode("utf-16-le")[: 2 * (SHEET_SIGNS - room)]
    return cut.decode("utf-16-le", errors="ignore").strip("' ") or "table"


def identifiers(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Names of plain letters, digits and underscores that start with a letter, each its own.

    >>> identifiers(["Age group", "Größe", "2020"])
    ['Age_group', 'Grosse', 'x2020']
    """
    others = {collision_key(name) for name in taken}
    return [
        draft.replace("-", "_")
        for draft in unique_names(names, _identifier, lambda name: collision_key(name) in others)
    ]


def _identifier(name: str, room: int) -> str:
    letters = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    plain = re.sub(
        r"[^A-Za-z0-9]+", "_", "".join(s for s in letters if not unicodedata.combining(s))
    )
    plain = plain.strip("_") or "x"
    return (plain if plain[0].isalpha() else f"x{plain}")[: 60 - room]
