"""Rules of cleaning as DuckDB expressions, which look at one entry and cannot fail.

An entry is spelled as the rule says, then words for missing entries and other spellings of declared
values are told apart, then decimal marks are made points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from psephos.domain.attribute import Attribute
from psephos.domain.cleaning import BLANKS, Cleaning, DecimalMark
from psephos.engines.duckdb.cells import CellSql, Lookup, cell_sql, quote, text_of

ANY_BLANK = "[" + "".join(f"\\x{{{ord(blank):x}}}" for blank in BLANKS) + "]+"
AROUND = f"\\A{ANY_BLANK}|{ANY_BLANK}\\z"
"""Blanks before a text and behind it."""
SETTING_OFF = " '\u2019\u00a0\u2009\u202f"
"""What sets off thousands in every country's numbers, beside the other of point and comma."""


def cleaned_cell_sql(
    rule: Cleaning, attribute: Attribute, column: str, kind: str, alias: str
) -> CellSql:
    """The expressions of `cell_sql` for what cleaning leaves of an entry, which is text.

    Spellings of text join its lookup table; others are told apart one by one.
    """
    text, word, entry = f"{alias}_s", f"{alias}_w", f"{alias}_e"
    cell = cell_sql(attribute, entry, "VARCHAR", alias)
    lookup = cell.lookup
    aliases: Sequence[tuple[str, Sequence[str]]] = rule.spellings
    if lookup is not None and lookup.kind == "VARCHAR":
        cells = dict(zip(lookup.keys, lookup.cells, strict=True))
        for value, words in aliases:
            cells |= {word: cells[value] for word in words if word not in cells}
        lookup = Lookup("VARCHAR", tuple(cells), tuple(cells.values()), spelled(rule, "v"))
        aliases = ()
    decimal = rule.decimal if kind == "VARCHAR" else None
    cleaned = cleaned_entry(rule, aliases, text, attribute.is_numeric)
    steps = (
        f"{spelled(rule, text_of(column, kind))} AS {text}",
        f"{cleaned if decimal is None else f'trim({cleaned})'} AS {word}",
        f"{word if decimal is None else number_text(decimal, word)} AS {entry}",
    )
    return replace(cell, lookup=lookup, steps=steps)


def spelled(rule: Cleaning, text: str) -> str:
    """The text in composed form, trimmed, in the case that the rule asks for."""
    text = f"nfc_normalize({text})"
    if rule.trim:
        # An expression in place of trim, which takes eight times as long for so many blanks.
        text = f"NULLIF(regexp_replace({text}, {quote(AROUND)}, '', 'g'), '')"
    return f"{rule.case}({text})" if rule.case else text


def cleaned_entry(
    rule: Cleaning, aliases: Sequence[tuple[str, Sequence[str]]], text: str, numeric: bool
) -> str:
    """The spelled text, NULL for a missing entry, and the declared value for another spelling."""
    cases: list[tuple[Sequence[str], str]] = [(rule.nulls, "NULL")] if rule.nulls else []
    cases += [(words, quote(value)) for value, words in aliases]
    if not cases:
        return text
    whens = " ".join(
        f"WHEN {_one_of(rule, words, text, numeric)} THEN {value}" for words, value in cases
    )
    return f"CASE {whens} ELSE {text} END"


def _one_of(rule: Cleaning, words: Sequence[str], text: str, numeric: bool) -> str:
    """Is the text one of these words? Numbers are compared as such: -9.0 is -9."""
    same = f"{text} IN ({', '.join(spelled(rule, quote(word)) for word in words)})"
    numbers = [word for word in words if numeric and _is_number(word)]
    if numbers:
        listed = ", ".join(f"CAST({quote(repr(float(word)))} AS DOUBLE)" for word in numbers)
        same = f"{same} OR TRY_CAST({text} AS DOUBLE) IN ({listed})"
    return same if words else "FALSE"


def number_text(mark: DecimalMark, text: str) -> str:
    """A number with that decimal mark as one with a point; any other text is none."""
    other = "." if mark == "," else ","
    sets_off = f"[{other}{SETTING_OFF}]"
    decimals, power = f"([{mark}][0-9]*)?", "([eE][+-]?[0-9]+)?"
    grouped = f"[+-]?[0-9]{{1,3}}({sets_off}[0-9]{{3}})+{decimals}"
    plain = f"[+-]?[0-9]*{decimals}{power}"
    plain_number = f"replace({text}, {quote(mark)}, '.')"
    is_plain = f"NOT contains({text}, '{other}') AND TRY_CAST({plain_number} AS DOUBLE) IS NOT NULL"
    is_number = f"regexp_full_match({text}, {quote(f'{grouped}|{plain}')})"
    number = f"replace(regexp_replace({text}, {quote(sets_off)}, '', 'g'), {quote(mark)}, '.')"
    # Most are plain, and a cast takes a tenth of the time of an expression.
    plain_case = f"WHEN {is_plain} THEN {plain_number}"
    return f"CASE {plain_case} WHEN {is_number} THEN {number} ELSE '?' || {text} END"


def _is_number(word: str) -> bool:
    try:
        return abs(float(word)) < float("inf")
    except ValueError:
        return False
