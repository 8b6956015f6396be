"""A first release file from the names and types of a table's columns, never from its entries.

Of a CSV file only the header line is read, of a Parquet file only its schema. What the values can
be is public knowledge that a person has to bring: every such fact is left open and marked CONFIRM.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pyarrow as pa

from psephos.engines import as_engine
from psephos.engines.postgres import PostgresUrl, is_database_url
from psephos.errors import ReleaseError, SourceError

SUGGESTIONS = {
    "bool": "values = [false, true]",
    "int": "integers = [0, 99]                # first and last, both included",
    "float": "bins = [0, 10, 100, inf]           # edges; each bin holds its lower edge",
    "text": 'values = ["a", "b"]                # every value that can occur',
    "date": 'dates = ["1920-01-01", "2020-12-31"]   # first and last day, both included',
    "unknown": 'values = ["a", "b"]                # or integers = [0, 99], or bins = [0, 10, inf]',
}
DATES_TOO = '# or: dates = ["1920-01-01", "2020-12-31"], with levels = { year = "year" }\n'
CLEANING = {
    "trim = true": "cleaning: without blanks around entries",
    'case = "lower"': 'entries in lower case, or "upper"',
    'nulls = ["NULL", "n/a"]': "words for missing entries; they are not published",
    'aliases = { a = ["A.", "aa"] }': "other spellings of a value; they are not published",
    'decimal = ","': "where 1.234,5 is a number",
}
RULES_OF = {
    "text": ("trim", "case", "nulls", "aliases"),
    "unknown": ("trim", "case", "nulls", "aliases", "decimal"),
}
"""The rules of cleaning that a column of a kind may need; all others need words for nothing."""
COMMANDS = {
    "check {file} --create-ledger": "the owner compares schema and data, in private",
    "plan {file}": "the error of every table, before anything is spent",
    "rehearse {file}": "the whole run on made-up data",
    "release {file}": "the real one",
}
TEMPLATE_HEAD = """\
# A draft, made from the names and types of the columns alone: no entry of the data was read.
# What is marked CONFIRM is for a person who knows what may be public. Then:
{commands}

name = {name}
title = ""
publisher = ""
source = {source}
# edition = "2025"                 # which state of the data this is, if others come after it

[privacy]                          # CONFIRM: whose presence must not show?
# unit = "add_remove_row"          # or "substitute_row", or "person" with the two lines below
# column = "person_id"             # the column that names a person
# max_rows = 3                     # the most rows of one person that count

[ledger]                           # made once for this data set; unit and budget are for life
path = {ledger}
dataset = {name}
# epsilon = "..."                  # CONFIRM: all that may ever be spent on these data

[budget]                           # what this release spends; or delete it and give tables targets
# epsilon = "..."                  # CONFIRM

[[tables]]
name = "first table"
rows = [{table}]
# columns = ["..."]
# or: sql = "SELECT a, b, COUNT(*) FROM t WHERE c > 3 GROUP BY a, b"
# target = {{ plus_minus = 50 }}     # instead of [budget]: +- 50 at 95 % for every count

# ---- the columns: delete those that no table asks about -----------------------------------------

"""


def write_draft(source: str | os.PathLike[str], output: Path) -> None:
    """Write the draft of a release file; a file that exists is not overwritten."""
    if output.suffix != ".toml":
        raise ReleaseError(
            f"a draft is TOML; give --output a name that ends in .toml, not {output}"
        )
    if output.exists():
        raise ReleaseError(f"{output} is there already; choose another --output")
    text = draft(source, beside=output.parent, name=str(output))
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReleaseError(
            f"{output} cannot be written: {error.strerror}; choose another --output"
        ) from None


def draft(
    source: str | os.PathLike[str],
    *,
    beside: str | os.PathLike[str] = ".",
    name: str = "release.toml",
) -> str:
    """The text of a release file for a table, with every public fact left for a person to confirm.

    Args:
        source: a CSV or Parquet file, a folder or glob of them, or the URL of a table of Postgres
        beside: the folder in which the release file will lie
        name: the release file as its commands will name it
    """
    text = os.fspath(source)
    remote = is_database_url(text)
    place = Path(PostgresUrl.of(text).table[-1] if remote else text)
    columns = column_types(text if remote else place)
    relative = text if remote else os.path.relpath(place, beside)
    stem = re.sub(r"[*?\[\]]+", "", place.stem) or "people"
    head = TEMPLATE_HEAD.format(
        commands=_commands(shlex.quote(name)),
        name=_text(stem),
        source=_text(relative),
        ledger=_text(f"{stem}.ledger"),
        table=_text(columns[0][0]),
    )
    return head + "\n".join(_attribute(column, kind) for column, kind in columns)


def column_types(place: Path | str) -> list[tuple[str, str]]:
    """Names and kinds of a table's columns: bool, int, float, text or unknown."""
    columns = as_engine(place).columns()
    names = columns.names
    if not names:
        raise SourceError(f"{place} has no columns")
    if columns.types is not None:
        return [(field.name, _kind(field.type)) for field in columns.types]
    if any(not name or _is_number(name) for name in names) or len(set(names)) < len(names):
        # The names are not repeated here: without a header they would be a row of the data.
        raise SourceError(
            f"the first line of {place} does not look like column names (a name is empty, a number "
            "or there twice); add a header line"
        )
    return [(name, "unknown") for name in names]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _kind(arrow: pa.DataType) -> str:
    if pa.types.is_boolean(arrow):
        return "bool"
    if pa.types.is_integer(arrow):
        return "int"
    if pa.types.is_floating(arrow) or pa.types.is_decimal(arrow):
        return "float"
    if pa.types.is_date(arrow) or pa.types.is_timestamp(arrow):
        return "date"
    return "text" if pa.types.is_string(arrow) or pa.types.is_large_string(arrow) else "unknown"


def _attribute(name: str, kind: str) -> str:
    needed = RULES_OF.get(kind, ("nulls",))
    rules = [(line, why) for line, why in CLEANING.items() if line.split()[0] in needed]
    offers = "".join(f"# {line:<32} # {why}\n" for line, why in rules)
    levels = '# levels = { year = "year" }         # or week, month, quarter\n'
    return (
        f"[schema.{_key(name)}]\n"
        "confirmed = false                  # CONFIRM: write what can occur, delete this line\n"
        f"# {SUGGESTIONS[kind]}\n"
        f"{DATES_TOO if kind == 'unknown' else levels if kind == 'date' else ''}"
        '# missing = "not stated"           # a cell for missing entries; else dropped\n'
        '# unknown = "other"                # entries not declared: drop (default), clip or other\n'
        f"{offers}"
        '# fact = ""                        # why this is public knowledge, e.g. "the code book"\n'
    )


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else _text(name)


def _text(text: str) -> str:
    """A text as TOML writes it, which knows all escapes of JSON."""
    if any(ord(c) == 0x7F for c in text):
        raise ReleaseError(f"{text!r} holds a control character; rename it")
    return json.dumps(text, ensure_ascii=False)


def _commands(file: str) -> str:
    commands = [command.format(file=file) for command in COMMANDS]
    width = max(map(len, commands)) + 4
    lines = zip(commands, COMMANDS.values(), strict=True)
    return "\n".join(f"#   psephos {command:<{width}}{what}" for command, what in lines)
