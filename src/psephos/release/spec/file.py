"""The release file: what is published, from what, for whom and how precisely, in one text.

It is TOML, YAML or JSON, checked against the models in `entries`; a mistake is reported with its
place in the file. Numbers with a point are read as decimals, so `epsilon = 0.1` is exactly a tenth.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from psephos.errors import ReleaseError
from psephos.release.spec.entries import ReleaseFile
from psephos.release.spec.mistakes import display, list_mistakes, syntax_mistake

YAML_ENDINGS = (".yaml", ".yml")
FILE_NAMES = ("release.toml", "release.yaml", "release.yml", "release.json")
"""Names that a release file is looked for by in a folder, the preferred one first."""


def read_release(path: str | os.PathLike[str]) -> ReleaseFile:
    """The release file at a path; all mistakes in it are reported together, with their places."""
    place = release_path(path)
    if place.is_dir():
        place = _file_in(place)
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
        content = _parse(text, name)
    except (ValueError, InvalidOperation) as error:
        raise ReleaseError(f"{name}: {syntax_mistake(error, text)}") from None
    if not isinstance(content, dict):
        raise ReleaseError(f"{name} must hold keys and values, got {display(content)}")
    return checked_release(content, name)


def checked_release(content: dict[str, Any], name: str) -> ReleaseFile:
    """The content of a file, checked; mistakes are listed, each with its place."""
    try:
        return ReleaseFile.model_validate(content)
    except ValidationError as error:
        lines = list_mistakes(error.errors(), content, yaml=name.endswith(YAML_ENDINGS))
        raise ReleaseError(f"{name}: " + f"\n{name}: ".join(lines)) from None


def json_schema() -> dict[str, Any]:
    """The file's JSON Schema, for editors that complete and check."""
    schema = ReleaseFile.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _file_in(folder: Path) -> Path:
    """The release file of a folder; if there is no release.toml, it must be the only one."""
    files = [folder / name for name in FILE_NAMES if (folder / name).is_file()]
    if len(files) > 1 and files[0].name != FILE_NAMES[0]:
        names = " and ".join(file.name for file in files)
        raise ReleaseError(f"{folder} holds {names}; name the one that is meant")
    return files[0] if files else folder / FILE_NAMES[0]


def _parse(text: str, name: str) -> Any:
    if name.endswith(YAML_ENDINGS):
        import yaml

        class ExactLoader(yaml.SafeLoader):
            """Numbers with a point stay decimals."""

        def number(loader: Any, node: Any) -> Any:
            return _decimal(loader.construct_scalar(node))

        ExactLoader.add_constructor("tag:yaml.org,2002:float", number)
        try:
            return yaml.load(text, ExactLoader)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from None
    if name.endswith(".json"):
        return json.loads(text, parse_float=_decimal)
    return tomllib.loads(text, parse_float=_decimal)


def _decimal(text: str) -> Decimal:
    return Decimal(re.sub(r"^([+-]?)\.inf$", r"\1inf", text.replace("_", "").lower()))
