"""Texts of a release file: what no page, chart or file could show is refused at once."""

from __future__ import annotations

import re
from typing import Any

UNSHOWN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\x7f")
"""What XML has no character for."""
RESERVED = ".psephos"


def refuse_unshown(content: Any, place: str = "") -> None:
    """Refuse control characters and half characters, anywhere, by their place."""
    if isinstance(content, str) and UNSHOWN.search(content):
        raise ValueError(f"{place or 'text'}: {content!r} holds a character that cannot be shown")
    if isinstance(content, dict):
        for key, value in content.items():
            refuse_unshown(key, place)
            refuse_unshown(value, f"{place}.{key}" if place else str(key))
    elif isinstance(content, list | tuple):
        for i, value in enumerate(content, 1):
            refuse_unshown(value, f"{place}[{i}]")


def checked_bundle(path: str) -> str:
    """A place for the bundle: a name that a folder can have."""
    name = path.rstrip("/").rpartition("/")[2]
    if name in ("", ".", "..", RESERVED) or len(name.encode()) > 200:
        raise ValueError('this is no name for a new folder; write bundle = "bundle"')
    return path


def each_once(names: tuple[Any, ...]) -> tuple[Any, ...]:
    """A list that names nothing twice."""
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"{name!r} is there twice; name it once")
    return names
