"""Mistakes in a release file, in words: the place of each, what would do, and what is there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, get_args

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
