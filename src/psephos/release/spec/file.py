"""The release file: what is published, from what, for whom and how precisely, in one text.

It is TOML, YAML or JSON, checked against the models in `entries`. Numbers with a point are read as
decimals, so `epsilon = 0.1` is exactly a tenth. Mistakes are reported together (`mistakes`).
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
from psephos.release.bundle.files import JSON_BYTES
from psephos.release.spec.entries import ReleaseFile
from psephos.release.spec.mistakes import display, list_mistakes, syntax_mistake
from psephos.release.spec.value_lists import with_value_lists

SQLITE_MAGIC = b"SQLite format 3\0"
DATA_ENDINGS = (".csv", ".tsv", ".parquet", ".pq", ".arrow", ".feather", ".xlsx", ".xls", ".gz")
YAML_ENDINGS = (".yaml", ".yml")
FILE_NAMES = ("release.toml", "release.yaml", "release.yml", "release.json")
"""Names that a release file is looked for by in a folder, the preferred one first."""
MOST_DIGITS = 300
MOST_LEVELS = 32
"""How deep lists and sections may lie in each other; those of a release are six deep."""
TOO_DEEP = (
    f"lists or sections lie in each other more than {MOST_LEVELS} deep, which no part of a release "
    "does; take the brackets, dots or indents away that nest them"
)
_KEY = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
LONG_KEY = re.compile(rf"""(?<![\w"'-]){_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{{MOST_LEVELS}}}""")
"""A dotted key that makes more sections in sections, each of which tomllib looks up anew."""


def read_release(path: str | os.PathLike[str]) -> ReleaseFile:
    """The release file at a path; all mistakes in it are reported together, with their places."""
    place = release_path(path)
    if place.is_dir():
        place = _file_in(place)
    _refuse_other_kinds(place)
    try:
        with place.open(encoding="utf-8") as file:
            text = file.read(JSON_BYTES + 1)
    except FileNotFoundError:
        raise ReleaseError(
            f"there is no release file at {place}; `psephos init DATA` drafts one"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ReleaseError(f"{place} cannot be read: {error}") from None
    return parse_release(text, place.name, place.parent)


def release_path(path: Any) -> Path:
    """A path that the system can be asked about; anything else is refused."""
    if not isinstance(path, str | os.PathLike) or "\0" in os.fspath(path):
        given = repr(path) if isinstance(path, str) else type(path).__name__
        raise ReleaseError(f"a release file is a path, got {given}")
    return Path(path)


def parse_release(text: str, name: str = "release.toml", folder: Path | None = None) -> ReleaseFile:
    """A release file from its text; the ending of the name tells TOML, YAML and JSON apart.

    Lists of values are read from the folder, if one is given.
    """
    if not text.strip():
        raise ReleaseError(f"{name} is empty; `psephos init DATA` drafts a release file")
    if len(text) > JSON_BYTES:
        raise ReleaseError(
            f"{name} is longer than {JSON_BYTES:,} characters, which no release file is; declare "
            'fewer values, or bins, or put values into a file of their own: list = "counties.csv"'
        )
    try:
        content = _parse(text, name)
    except RecursionError:
        raise ReleaseError(f"{name}: {TOO_DEEP}") from None
    except ReleaseError as error:
        raise ReleaseError(f"{name}: {error}") from None
    except (ValueError, InvalidOperation) as error:
        raise ReleaseError(f"{name}: {syntax_mistake(error, text)}") from None
    if not isinstance(content, dict):
        raise ReleaseError(f"{name} must hold keys and values, got {display(content)}")
    if folder is not None:
        content = with_value_lists(content, folder)
    return checked_release(content, name)


def checked_release(content: dict[str, Any], name: str) -> ReleaseFile:
    """The content of a file, checked; mistakes are listed, each with its place."""
    nested: list[Any] = [content]
    for _ in range(MOST_LEVELS):
        entries = (each.values() if isinstance(each, dict) else each for each in nested)
        nested = [inner for each in entries for inner in each if isinstance(inner, dict | list)]
    if nested:
        raise ReleaseError(f"{name}: {TOO_DEEP}")
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


def _refuse_other_kinds(place: Path) -> None:
    """Refuse data and ledgers, which are given by mistake where a release file is wanted."""
    ending = place.suffix.lower()
    if ending in DATA_ENDINGS:
        raise ReleaseError(
            f"{place} is data, not a release file; `psephos init {place}` drafts one, which names "
            "it as its source"
        )
    if place.is_file():
        with place.open("rb") as file:
            start = file.read(len(SQLITE_MAGIC))
        if start == SQLITE_MAGIC:
            raise ReleaseError(
                f"{place} is a ledger, not a release file; `psephos budget {place}` shows it"
            )
        if start[:4] == b"PAR1":
            raise ReleaseError(f"{place} is a Parquet file, not a release file")


def _parse(text: str, name: str) -> Any:
    if name.endswith(YAML_ENDINGS):
        import yaml

        class ExactLoader(yaml.SafeLoader):
            """Numbers with a point stay decimals; what is written once is read once."""

            def compose_node(self: Any, parent: Any, index: Any) -> Any:
                if self.check_event(yaml.AliasEvent):
                    line = self.peek_event().start_mark.line + 1
                    raise ReleaseError(
                        f"line {line}: an alias (*) repeats what stands elsewhere; write it out, "
                        "since aliases of aliases could repeat it without end"
                    )
                return yaml.SafeLoader.compose_node(self, parent, index)

        def number(loader: Any, node: Any) -> Any:
            return _decimal(loader.construct_scalar(node))

        def whole(loader: Any, node: Any) -> Any:
            # 1:30 would be 90, and a long one take hours.
            return node.value if ":" in node.value else loader.construct_yaml_int(node)

        ExactLoader.add_constructor("tag:yaml.org,2002:float", number)
        ExactLoader.add_constructor("tag:yaml.org,2002:int", whole)
        try:
            return yaml.load(text, ExactLoader)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from None
    if name.endswith(".json"):
        return json.loads(text, parse_float=_decimal)
    if LONG_KEY.search(text):
        raise ReleaseError(TOO_DEEP)
    return tomllib.loads(text, parse_float=_decimal)


def _decimal(text: str) -> Decimal:
    number = Decimal(re.sub(r"^([+-]?)\.inf$", r"\1inf", text.replace("_", "").lower()))
    if abs(number.adjusted()) > MOST_DIGITS:  # written out as a whole number, it would have no end
        raise ReleaseError(f"{text:.60} is no number for a release; it has over 300 digits")
    return number
