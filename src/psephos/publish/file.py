"""The release file: what is published, from what, for whom and how precisely, in one text.

TOML, YAML or JSON, checked against the models in `entries`; a mistake is told by its place in the
file. Numbers with a point are read as decimals, so `epsilon = 0.1` is exactly a tenth.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from psephos.errors import ReleaseError
from psephos.publish.entries import (
    AttributeEntry,
    BudgetEntry,
    Entry,
    LedgerEntry,
    OutputEntry,
    PrivacyEntry,
    ReleaseFile,
    SelectionEntry,
    TableEntry,
    TargetEntry,
)


def read_release(path: str | os.PathLike[str]) -> ReleaseFile:
    """The release file at a path; whatever is wrong with it is told at once, with its place."""
    place = release_path(path)
    if place.is_dir():
        place = place / "release.toml"
    try:
        text = place.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ReleaseError(
            f"there is no release file at {place}; `psephos init DATA` drafts one"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ReleaseError(f"{place} cannot be read: {error}") from None
    return parse_release(text, place.name)


def release_path(path: Any) -> Path:
    """A path that the system can be asked about; anything else is refused."""
    if not isinstance(path, str | os.PathLike) or "\0" in os.fspath(path):
        raise ReleaseError(f"a release file is a path, got {path!r}")
    return Path(path)


def parse_release(text: str, name: str = "release.toml") -> ReleaseFile:
    """A release file from its text; the ending of the name tells TOML, YAML and JSON apart."""
    if not text.strip():
        raise ReleaseError(f"{name} is empty; `psephos init DATA` drafts a release file")
    try:
        content = _parsed(text, name)
    except (ValueError, InvalidOperation) as error:
        raise ReleaseError(f"{name}: {error}") from None
    if not isinstance(content, dict):
        raise ReleaseError(f"{name} must hold keys and values, got {type(content).__name__}")
    return checked_release(content, name)


def checked_release(content: dict[str, Any], name: str) -> ReleaseFile:
    """The content of a file, checked; mistakes are listed, each with its place."""
    try:
        return ReleaseFile.model_validate(content)
    except ValidationError as error:
        lines = dict.fromkeys(_mistake(e, content) for e in error.errors())
        raise ReleaseError(f"{name}: " + f"\n{name}: ".join(lines)) from None


def json_schema() -> dict[str, Any]:
    """The file's JSON Schema, for editors that complete and check."""
    made = ReleaseFile.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def _parsed(text: str, name: str) -> Any:
    if name.endswith((".yaml", ".yml")):
        import yaml

        class Exact(yaml.SafeLoader):
            """Numbers with a point stay decimals."""

        def number(loader: Any, node: Any) -> Any:
            return _decimal(loader.construct_scalar(node))

        Exact.add_constructor("tag:yaml.org,2002:float", number)
        try:
            return yaml.load(text, Exact)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from None
    if name.endswith(".json"):
        return json.loads(text, parse_float=_decimal)
    return tomllib.loads(text, parse_float=_decimal)


def _decimal(text: str) -> Decimal:
    return Decimal(re.sub(r"^([+-]?)\.inf$", r"\1inf", text.replace("_", "").lower()))


def _mistake(error: Any, content: Any) -> str:
    """One mistake in words: the place, what was given, what would do."""
    place, found = "", content
    for step in error["loc"]:
        if isinstance(step, int):
            place += f"[{step + 1}]"
            listed = isinstance(found, list | tuple) and step < len(found)
            if listed and isinstance(found[step], dict) and "name" in found[step]:
                place = place[: -len(f"[{step + 1}]")] + f" {found[step]['name']!r}"
            found = found[step] if listed else None
        elif isinstance(found, dict) and step in found:
            place += f".{step}" if place else str(step)
            found = found[step]
        elif error["type"] in ("missing", "extra_forbidden"):
            place += f".{step}" if place else str(step)
    if error["type"] == "missing":
        return f"{place} is missing"
    if error["type"] == "extra_forbidden":
        known = sorted(_known_keys(error["loc"]))
        close = get_close_matches(str(error["loc"][-1]), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"
        return f"{place} is not known; {hint}"
    what = error["msg"].removeprefix("Value error, ")
    what = what[0].lower() + what[1:]
    shown = repr(found) if isinstance(found, str | int | float | Decimal | bool) else ""
    given = f", got {shown}" if shown and shown not in what else ""
    return f"{place + ': ' if place else ''}{what}{given}"


_PARTS: dict[str, type[Entry]] = {
    "privacy": PrivacyEntry,
    "ledger": LedgerEntry,
    "budget": BudgetEntry,
    "schema": AttributeEntry,
    "tables": TableEntry,
    "target": TargetEntry,
    "selection": SelectionEntry,
    "output": OutputEntry,
}


def _known_keys(loc: tuple[Any, ...]) -> list[str]:
    parts = [_PARTS[step] for step in loc[:-1] if step in _PARTS]
    model = parts[-1] if parts else ReleaseFile
    return [field.alias or name for name, field in model.model_fields.items()]
