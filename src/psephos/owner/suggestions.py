"""PRIVATE: lines of a release file that would fix what the owner's check saw in a column.

They are made of entries, so they are the owner's: spellings go into `nulls` and `aliases`, which
are not published. What values there can be is for a person to say who knows it from elsewhere.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches

from psephos.domain.attribute import Attribute
from psephos.domain.cleaning import BLANKS, Cleaning
from psephos.domain.values import is_run_of_days
from psephos.owner.report import Mismatch

# fmt: off
NULL_WORDS = frozenset({
    "", "-", "--", ".", "?", "null", "none", "nil", "nan", "na", "n/a", "n.a.", "#n/a", r"\n",
    "missing", "unknown", "not stated", "keine angabe", "k.a.", "k. a.", "0000-00-00",
})
# fmt: on
"""Words that often stand for a missing entry, in lower case."""
NULL_NUMBERS = frozenset(f"{sign}{digits}" for sign in ("", "-") for digits in (9, 99, 999, 9999))
COMMA_NUMBER = re.compile(r"[+-]?(\d{1,3}([. '\u2019\u00a0\u202f]\d{3})+|\d+)(,\d*)?|[+-]?,\d+")
POINT_NUMBER = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
DAY_FIRST = re.compile(r"\d{1,2}[./]\d{1,2}[./]\d{4}")
LIKE = 0.8
"""How alike two spellings are that may be meant for one."""
MOST_LIKE = 200
"""Of more declared values, none is looked for that a spelling is like."""


@dataclass
class Tally:
    """Rows that each line would keep, while entries are looked at one by one."""

    trim: int = 0
    case: int = 0
    decimal: dict[str, int] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)
    aliases: dict[str, dict[str, int]] = field(default_factory=dict)
    days: dict[date, int] = field(default_factory=dict)
    day_first: int = 0


def suggestions(
    name: str, attribute: Attribute, rule: Cleaning, entries: Sequence[tuple[str, int]]
) -> Iterator[Mismatch]:
    """The lines that would give undeclared entries a place, each with the rows that it is for.

    Args:
        name: the column
        attribute: its declared values
        rule: how it is cleaned now; lines that are there are written anew, with what is new
        entries: undeclared ones as they are in the data, with their numbers of rows
    """
    tally = Tally()
    texts = [value for value in attribute.declared if isinstance(value, str)]
    case = _case_of(texts)
    for entry, rows in entries:
        _look(tally, attribute, texts, case, entry, rows)
    lines = list(_lines(tally, rule, case))
    for line, rows in lines:
        yield Mismatch(name, "mend", "note", f"for {rows:,} of these rows write: {line}")
    if tally.day_first:
        text = f"{tally.day_first:,} rows hold days such as 31.12.1999; write them 1999-12-31"
        yield Mismatch(name, "mend", "note", text)


def _look(
    tally: Tally, attribute: Attribute, texts: list[str], case: str, entry: str, rows: int
) -> None:
    """What one entry seems to be."""
    composed = unicodedata.normalize("NFC", entry)
    word = composed.strip(BLANKS)
    key = word.casefold()
    number = attribute.is_numeric
    declared = {text.casefold(): text for text in texts}
    if key in NULL_WORDS or (number and word in NULL_NUMBERS):
        tally.nulls[word] = tally.nulls.get(word, 0) + rows
        return
    if key in declared:
        value = declared[key]
        if word != value and case and getattr(word, case)() == value:
            tally.case += rows
        elif word != value:
            _alias(tally, value, word, rows)
        if word != entry:
            tally.trim += rows
    elif number and _is_number(word):
        tally.trim += rows if word != entry.strip(" \t\n\v\f\r") else 0  # DuckDB strips these
    elif number and COMMA_NUMBER.fullmatch(word):
        thousands = POINT_NUMBER.fullmatch(word) is not None
        mark = "either" if thousands else ","
        tally.decimal[mark] = tally.decimal.get(mark, 0) + rows
    elif number and POINT_NUMBER.fullmatch(word):
        tally.decimal["."] = tally.decimal.get(".", 0) + rows
    elif is_run_of_days(attribute.declared[:2]) and DAY_FIRST.fullmatch(word):
        tally.day_first += rows
    elif (day := _day(word)) is not None:
        if not is_run_of_days(attribute.declared[:2]):
            tally.days[day] = tally.days.get(day, 0) + rows
        elif word != entry:
            tally.trim += rows
    elif texts and len(texts) <= MOST_LIKE:
        close = get_close_matches(key, declared, n=1, cutoff=LIKE)
        # "unemployed" looks like "employed" and means the opposite.
        if close and not (key.endswith(close[0]) or close[0].endswith(key)):
            _alias(tally, declared[close[0]], word, rows)


def _alias(tally: Tally, value: str, word: str, rows: int) -> None:
    words = tally.aliases.setdefault(value, {})
    words[word] = words.get(word, 0) + rows


def _lines(tally: Tally, rule: Cleaning, case: str) -> Iterator[tuple[str, int]]:
    """The lines, each with the number of rows that it keeps."""
    if tally.trim and not rule.trim:
        yield "trim = true", tally.trim
    if tally.case and rule.case is None:
        yield f'case = "{case}"', tally.case
    if tally.nulls:
        yield f"nulls = {_list([*rule.nulls, *tally.nulls])}", sum(tally.nulls.values())
    if tally.aliases:
        words = {value: list(each) for value, each in rule.spellings}
        for value, each in tally.aliases.items():
            words[value] = [*words.get(value, []), *each]
        pairs = ", ".join(f"{_key(value)} = {_list(each)}" for value, each in words.items())
        yield f"aliases = {{ {pairs} }}", sum(sum(w.values()) for w in tally.aliases.values())
    if tally.decimal and rule.decimal is None:
        mark = "." if tally.decimal.get(".", 0) > tally.decimal.get(",", 0) else ","
        yield f'decimal = "{mark}"', sum(tally.decimal.values())
    if tally.days:
        # Whole decades: where they end is for a person to say who knows it from elsewhere.
        first, last = min(tally.days).year // 10 * 10, max(tally.days).year // 10 * 10 + 9
        yield f'dates = ["{max(first, 1):04}-01-01", "{last:04}-12-31"]', sum(tally.days.values())


def _case_of(texts: Iterable[str]) -> str:
    """The case in which all values are declared; empty, if there is none."""
    words = [text for text in texts if text.lower() != text.upper()]
    for case in ("lower", "upper"):
        if words and all(getattr(word, case)() == word for word in words):
            return case
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text[:10]) if text[4:5] == "-" else None
    except ValueError:
        return None


def _list(words: Iterable[str]) -> str:
    return f"[{', '.join(_quoted(word) for word in dict.fromkeys(words))}]"


def _key(text: str) -> str:
    bare = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if bare else _quoted(text)


def _quoted(text: str) -> str:
    """A text as TOML writes it, which knows all escapes of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
