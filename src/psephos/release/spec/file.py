"""The release file: what is published, from what, for whom and how precisely, in one text.

It is TOML, YAML or JSON, checked against the models in `entries`. Numbers with a point are read as
decimals, so `epsilon = 0.1` is exactly a tenth. Mistakes are reported together, each with its place
in the file, what would do, and what is there instead.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from psephos.errors import ReleaseError
from psephos.release.bundle.files import JSON_BYTES
from psephos.release.spec.budgets import BudgetEntry, LedgerEntry, PrivacyEntry
from psephos.release.spec.columns import AttributeEntry
from psephos.release.spec.entries import (
    CsvEntry,
    DuckdbEntry,
    MethodEntry,
    OutputEntry,
    ReleaseFile,
    SelectionEntry,
    SparkEntry,
    SyntheticEntry,
    TableEntry,
    TargetEntry,
)
from psephos.release.spec.entry_types import FileEntry
from psephos.release.spec.value_lists import with_value_lists

SQLITE_MAGIC = b"SQLite format 3\0"
DATA_ENDINGS = (".csv", ".tsv", ".parquet", ".pq", ".arrow", ".feather", ".xlsx", ".xls", ".gz")
YAML_ENDINGS = (".yaml", ".yml")
FILE_NAMES = ("release.toml", "release.yaml", "release.yml", "release.json")
"""Names that a release file is looked for by in a folder, the preferred one first."""
Steps = tuple[str | int, ...]
ERROR_KINDS = {
    "bool_type bool_parsing": "true or false",
    "int_type int_parsing int_parsing_size int_from_float": "a whole number",
    "float_type float_parsing": "a number",
    "string_type": "text in quotes",
    "tuple_type": "a list",
    "dict_type model_type model_attributes_type": "keys and values",
}
EXPECTED_KINDS = {error: kind for errors, kind in ERROR_KINDS.items() for error in errors.split()}
"""The kind of value that each of pydantic's errors of type asks for."""
EXAMPLES = {
    "privacy": 'privacy = { unit = "add_remove_row" }',
    "ledger": 'ledger = { path = "people.ledger", dataset = "people", epsilon = 1 }',
    "budget": "budget = { epsilon = 0.5 }",
    "schema": '[schema.sex] with values = ["F", "M"]',
    "values": 'values = ["F", "M"]',
    "integers": "integers = [0, 99]",
    "bins": "bins = [0, 18, 65, inf]",
    "labels": 'labels = ["no", "yes"]',
    "levels": "levels = { broad = [0, 18, 65] }",
    "dates": 'dates = ["1920-01-01", "2020-12-31"]',
    "aliases": 'aliases = { employed = ["EMPLOYED", "emp"] }',
    "nulls": 'nulls = ["NULL", "n/a"]',
    "trim": "trim = true",
    "case": 'case = "lower"',
    "decimal": 'decimal = ","',
    "tables": '[[tables]] with name = "ages" and rows = ["age"]',
    "rows": 'rows = ["age"]',
    "columns": 'columns = ["sex"]',
    "breakdowns": 'breakdowns = ["region"]',
    "attributes": 'attributes = ["age", "sex"]',
    "queries": 'queries = { age = "prefix" }',
    "target": "target = { plus_minus = 50 }",
    "facts": 'facts = ["The form lists two sexes."]',
    "zeros": 'zeros = ["age < 12 AND married = 1"]',
    "total": "total = 48842",
    "published": 'published = "auto", "entropy" or "least squares"',
    "builds_on": 'builds_on = ["bundle"]',
    "edition": 'edition = "2025"',
    "source": 'source = "people.csv" or source = { duckdb = "town.db", table = "people" }',
    "selection": 'selection = { strategy = "hdmm" }',
    "method": 'method = { name = "DAWA" }',
    "options": "options = { rounds = 8 }",
    "stand_in": 'stand_in = "2015.csv"',
    "consistency": 'consistency = "l2", "l1" or "linf"',
    "prior": 'prior = "independent" or "stand_in"',
    "synthetic": 'synthetic = { method = "auto" }',
    "synthetic.rows": "rows = 10000",
    "synthetic.queries": "queries = 100000",
    "output": 'output = { bundle = "bundle" }',
    "views": 'views = ["consistent", "published"]',
    "formats": 'formats = ["csv"]',
    "epsilon": "epsilon = 0.5",
    "rho": 'rho = "1/200"',
    "delta": 'delta = "1e-6"',
}
SECTION_MODELS: dict[str, type[FileEntry]] = {
    "source": DuckdbEntry,
    "privacy": PrivacyEntry,
    "ledger": LedgerEntry,
    "budget": BudgetEntry,
    "schema": AttributeEntry,
    "tables": TableEntry,
    "target": TargetEntry,
    "method": MethodEntry,
    "selection": SelectionEntry,
    "synthetic": SyntheticEntry,
    "output": OutputEntry,
}
OTHER_WORDS = {
    "group_by": "rows",
    "groupby": "rows",
    "query": "sql",
    "where": "sql",
    "data": "source",
    "file": "source",
    "categories": "values",
    "range": "integers",
    "edges": "bins",
    "eps": "epsilon",
    "accuracy": "target",
    "description": "title",
    "label": "title",
}
"""Keys that people write for others."""
DATES_EXAMPLE = 'dates = ["1920-01-01", "2020-12-31"] and levels = { year = "year" }'
BARE_WORD = re.compile(r"[=\[,]\s*(?!true|false|inf|nan)([A-Za-z][\w.-]*)\s*[,\]}]")
"""A word without quotes where a value stands."""
CURLY_QUOTES = "“”„‟‘’‚‛«»"
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


def syntax_mistake(error: Exception, text: str) -> str:
    """Why a text is no TOML, YAML or JSON: the line, and the likeliest reason."""
    match = re.search(r"line (\d+)", str(error))
    lines = text.splitlines()
    number = int(match[1]) if match else len(lines)
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    curly = [c for c in line if c in CURLY_QUOTES]
    if curly:
        straight = "'" if curly[0] in "‘’‚‛" else '"'
        return f"line {number} has the quote {curly[0]}; use straight quotes, {straight}"
    reason = _likely_reason(str(error), line)
    shown = "" if "://" in line else f", {line.strip()[:200]!r}"  # a URL may hold a password
    return f"line {number}{shown}: {reason}" if reason else str(error)


def _likely_reason(error: str, line: str) -> str:
    """What is wrong with a line of TOML, in words; empty where nothing is likely."""
    code = line.partition("#")[0].rstrip()
    bare = re.match(r"""\s*([\w."-]+)\s*=\s*([A-Za-z][^"'\[\]{}]*)$""", code)
    if code.count('"') % 2 or (code.count("'") % 2 and '"' not in code):
        return "a quote is missing: text stands between two of them"
    if "Invalid value" in error and bare:
        return f'text stands in quotes: {bare[1]} = "{bare[2].strip()}"'
    word = BARE_WORD.search(code)
    if "Invalid value" in error and word:
        return f'text stands in quotes: "{word[1]}"'
    if re.search(r"\d\s*\.\.", code):
        return "whole numbers from one to another are written integers = [0, 99]"
    if "after a key" in error and re.match(r"\s*[\w.\"-]+\s*:", code):
        return "a key and its value are joined by = in TOML, not by :"
    if "after a key" in error:
        return "a line is key = value, or [section]; this is neither"
    if "Unclosed array" in error:
        return "a list needs a comma between its entries and a ] at its end"
    if "Unclosed inline table" in error or "inline table" in error:
        return "{ … } needs a comma between its entries, key = value, and stands on one line"
    if "Cannot overwrite" in error:
        return "this key is there twice; leave one"
    if "Cannot declare" in error:
        return "this section is there twice; put its keys together"
    return ""


def list_mistakes(errors: Sequence[Any], content: Any, yaml: bool = False) -> list[str]:
    """All mistakes, each once; `content` is what the file holds."""
    located = [(_steps(error, content), error) for error in errors]
    # Where an entry is wrong, the list that lacks it and its other readings are not mistakes too.
    genuine = [
        (steps, error)
        for steps, error in located
        if not (error["type"] in EXPECTED_KINDS or error["type"] == "too_short")
        or not any(len(other) > len(steps) and other[: len(steps)] == steps for other, _ in located)
    ]
    kinds: dict[Steps, list[str]] = {}
    for steps, error in genuine:
        if error["type"] in EXPECTED_KINDS:
            kinds.setdefault(steps, []).append(EXPECTED_KINDS[error["type"]])
    return list(
        dict.fromkeys(
            _kind_mistake(steps, kinds[steps], content, yaml)
            if error["type"] in EXPECTED_KINDS
            else _mistake(steps, error, content)
            for steps, error in genuine
        )
    )


def display(value: Any) -> str:
    """A value as a message shows it; a URL is not repeated, since it may hold a password."""
    if isinstance(value, str) and "://" in value:
        return "a URL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "keys and values"
    return (
        f"{value!r:.200}" if isinstance(value, str) else "nothing" if value is None else str(value)
    )


def _steps(error: Any, content: Any) -> Steps:
    """The place of an error in the file, without the steps that only pydantic takes."""
    steps: list[str | int] = []
    value, about_key = content, error["type"] in ("missing", "extra_forbidden")
    for i, step in enumerate(error["loc"]):
        is_key = isinstance(value, dict) and step in value
        is_position = isinstance(step, int) and isinstance(value, list | tuple)
        if is_key or is_position or (about_key and i == len(error["loc"]) - 1):
            steps.append(step)
            value = _item(value, step)
    return tuple(steps)


def _item(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    inside = isinstance(value, list | tuple) and isinstance(step, int) and step < len(value)
    return value[step] if inside else None


def _value(steps: Steps, content: Any) -> Any:
    """What the file holds at a place; None where there is nothing."""
    for step in steps:
        content = _item(content, step)
    return content


def _place(steps: Steps, content: Any) -> str:
    """`tables 'ages'.rows[2]`: entries of lists by their name if they have one."""
    place = ""
    for i, step in enumerate(steps):
        if isinstance(step, str):
            place += f".{step}" if place else step
            continue
        entry = _value(steps[: i + 1], content)
        name = entry.get("name") if isinstance(entry, dict) else None
        place += f" {name!r}" if name and isinstance(name, str) else f"[{step + 1}]"
    return place


def _kind_mistake(steps: Steps, kinds: list[str], content: Any, yaml: bool) -> str:
    """The message for a value of the wrong kind."""
    value, key = _value(steps, content), _example_key(steps)
    if key in ("bins", "integers") and is_date(value):
        return (
            f"{_place(steps[:-1], content)}: these are dates; write {DATES_EXAMPLE} in place of "
            f"{key}"
        )
    expected = [
        kind for kind in dict.fromkeys(kinds) if kind != "a whole number" or "a number" not in kinds
    ]
    if key in ("epsilon", "rho", "delta"):
        expected = ["a number"]
    message = f"{_place(steps, content)}: must be {_either(expected)}"
    message += f", such as {EXAMPLES[key]}" if key in EXAMPLES else ""
    message += f", got {display(value)}"
    if "text in quotes" in expected and isinstance(value, bool) and yaml:
        message += (
            "; YAML takes yes, no, on, off, true and false for truth values: put quotes around them"
        )
    elif "text in quotes" in expected and isinstance(value, bool | int | float | Decimal):
        message += f'; put quotes around it: "{display(value)}"'
    return message


def _example_key(steps: Steps) -> str:
    """Under which key examples of a value are listed."""
    key = next((step for step in reversed(steps) if isinstance(step, str)), "")
    if len(steps) == 2 and steps[0] == "schema":
        return "schema"  # an attribute may have any name
    if len(steps) > 3 and steps[2] in ("levels", "aliases"):
        return str(steps[2])
    return f"synthetic.{key}" if steps[0] == "synthetic" and len(steps) > 1 else key


def is_date(value: Any) -> bool:
    """Is this a date, or text that begins like one?"""
    text = isinstance(value, str) and re.match(r"\d{4}-\d{1,2}-\d{1,2}", value) is not None
    return text or isinstance(value, date)


def _either(words: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _mistake(steps: Steps, error: Any, content: Any) -> str:
    """The message for a key or value that is missing, unknown or out of bounds."""
    place = _place(steps, content)
    if error["type"] == "missing":
        return f"{place} is missing{_choices(error['loc'])}"
    if error["type"] == "extra_forbidden":
        return f"{place} is not known{_key_hint(error['loc'])}"
    if error["type"] == "string_too_short":
        return f"{place}: must not be empty"
    if error["type"] == "too_short":
        return f"{place}: at least one is needed, such as {EXAMPLES.get(str(steps[-1]), 'one')}"
    if error["type"] == "too_long":
        limits = error["ctx"]
        return f"{place}: at most {limits['max_length']} are taken, got {limits['actual_length']}"
    what = error["msg"].removeprefix("Value error, ").replace("Input should be ", "must be ")
    what = what[0].lower() + what[1:]
    value = _value(steps, content)
    plain = isinstance(value, str | int | float | Decimal) and display(value) not in what
    got = f", got {display(value)}" if plain else ""
    return f"{place + ': ' if place else ''}{what}{got}{_as_share(error, value)}"


def _choices(loc: tuple[Any, ...]) -> str:
    """What may be written for a missing key, where it is one of a few words."""
    field = _model(loc).model_fields.get(str(loc[-1]))
    words = get_args(field.annotation) if field else ()
    quoted = [f'"{word}"' for word in words if isinstance(word, str)]
    return f": write {loc[-1]} = {_either(quoted)}" if quoted else ""


def _key_hint(loc: tuple[Any, ...]) -> str:
    """Where an unknown key belongs, or what it may have been meant to be."""
    key, keys = str(loc[-1]), sorted(_keys(_model(loc)))
    if len(loc) > 1 and key in _keys(ReleaseFile):
        return f" here: {key} belongs at the top of the file, before the first [section]"
    matches = [word for word in (OTHER_WORDS.get(key),) if word in keys]
    matches = matches or get_close_matches(key, keys, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else f"; known here: {', '.join(keys)}"


def _as_share(error: Any, value: Any) -> str:
    """A percentage where a share belongs, written as a share."""
    percent = error["type"] == "less_than" and error["ctx"]["lt"] == 1 and 1 < value < 100
    return f"; write {float(value) / 100:g}" if percent else ""


def _model(loc: tuple[Any, ...]) -> type[FileEntry]:
    """The part of the file that a key is in."""
    if loc[0] == "source" and "table of Spark" in loc:
        return SparkEntry
    if loc[0] == "source" and "CSV file" in loc:
        return CsvEntry
    sections = [SECTION_MODELS[step] for step in loc[:-1] if step in SECTION_MODELS]
    return sections[-1] if sections else ReleaseFile


def _keys(model: type[FileEntry]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
