"""Rules by which the entries of a column are cleaned before they are read.

A rule looks at one entry alone, so a row stays a row whatever others there are. Trimming, case and
the decimal mark are public. Spellings, in `aliases` and `nulls`, were read from data by somebody:
they stay with the owner, and no schema, key, bundle or report holds them.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Literal, get_args

from psephos.domain.attribute import Attribute
from psephos.errors import DomainError

LetterCase = Literal["lower", "upper"]
DecimalMark = Literal[",", "."]
BLANKS = (
    " \t\n\r\f\v\x1c\x1d\x1e\x1f\x85\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
)
"""What is trimmed: blanks of all widths, breaking or not, and marks of no width."""


@dataclass(frozen=True, repr=False)
class Cleaning:
    """How the entries of one column are cleaned, in this order.

    Args:
        trim: without the blanks around it; an entry of blanks alone is missing
        case: in lower or upper case
        nulls: words that stand for a missing entry
        aliases: for a declared value, other spellings of it
        decimal: the mark before decimals; the other of . and , or a blank may set off thousands

    With any of them, text is read in Unicode's composed form (NFC), and so are the words here.

    >>> Cleaning(trim=True, case="lower", aliases={"employed": ["emp", "EMPL."]})
    Cleaning(trim, case: lower, aliases)
    """

    trim: bool = False
    case: LetterCase | None = None
    nulls: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] | tuple[tuple[str, tuple[str, ...]], ...] = ()
    decimal: DecimalMark | None = None

    def __post_init__(self) -> None:
        if type(self.trim) is not bool:
            raise DomainError(f"trim is true or false, got {self.trim!r}")
        for name, kind in (("case", LetterCase), ("decimal", DecimalMark)):
            choices = get_args(kind)
            if getattr(self, name) not in (None, *choices):
                raise DomainError(f"{name} is {' or '.join(map(repr, choices))}")
        given = self.aliases
        pairs = list(given.items() if isinstance(given, Mapping) else given)
        aliases = tuple((_word(v, "aliases"), _words(w, f"aliases of {v!r}")) for v, w in pairs)
        object.__setattr__(self, "aliases", aliases)
        object.__setattr__(self, "nulls", _words(self.nulls, "nulls"))
        self._check_spellings()

    def _check_spellings(self) -> None:
        """Refuse a word that stands for two things."""
        meanings: dict[str, str] = {}
        listed = [(word, "missing") for word in self.nulls]
        listed += [(word, value) for value, words in self.spellings for word in words]
        for word, meaning in listed:
            if meanings.setdefault(self.spelled(word), meaning) != meaning:
                raise DomainError(f"{word!r} stands for two values; list it once in aliases, nulls")

    @property
    def spellings(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Other spellings of each declared value. PRIVATE: somebody read them in the data."""
        return tuple(self.aliases)  # type: ignore[arg-type]

    @property
    def public(self) -> Cleaning:
        """The rules without the owner's spellings."""
        return replace(self, nulls=(), aliases=())

    def digest(self) -> str:
        """PRIVATE: a name for all rules, spellings included."""
        content = (self.trim, self.case, self.decimal, sorted(self.nulls), sorted(self.spellings))
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def __bool__(self) -> bool:
        return self != Cleaning()

    def spelled(self, text: str) -> str:
        """A text as entries are spelled after trimming and case."""
        text = unicodedata.normalize("NFC", text)
        text = text.strip(BLANKS) if self.trim else text
        return {"lower": text.lower(), "upper": text.upper()}.get(self.case or "", text)

    def check(self, attribute: Attribute) -> None:
        """Refuse rules under which a declared value could never be met, or that do not fit it."""
        if not self:
            return
        texts = [value for value in attribute.declared if isinstance(value, str)]
        if not isinstance(attribute.declared, range):
            for text in texts:
                self._check_value(text)
        if self.decimal is not None and not attribute.is_numeric:
            raise DomainError(
                "decimal goes with numbers: integers, bins or values that are numbers"
            )
        declared = {self.spelled(text) for text in texts}
        for value, words in self.spellings:
            if not _declares(attribute, value):
                raise DomainError(
                    f"aliases: {value!r} is no declared value; have {attribute.some_values()}"
                )
            for word in words:
                if self.spelled(word) in declared - {value}:
                    raise DomainError(f"aliases: {word!r} is a declared value of its own")
        for word in self.nulls:
            if self.spelled(word) in declared:
                raise DomainError(f"nulls: {word!r} is a declared value; take it out of one list")

    def _check_value(self, text: str) -> None:
        if self.spelled(text) == text and (text or not self.trim):
            return
        why = f"case = {self.case!r}" if self.case else "trim" if self.trim else "NFC"
        if unicodedata.normalize("NFC", text) != text:
            why = "NFC, the composed form in which text is read"
        raise DomainError(
            f"no entry can be {text!r} after cleaning ({why}); declare {self.spelled(text)!r}, "
            "with a label if it is to be shown otherwise"
        )

    def __repr__(self) -> str:
        words = [
            "trim" if self.trim else "",
            f"case: {self.case}" if self.case else "",
            "nulls" if self.nulls else "",
            "aliases" if self.aliases else "",
            f"decimal: {self.decimal}" if self.decimal else "",
        ]
        return f"Cleaning({', '.join(filter(None, words))})"


def _words(words: Any, what: str) -> tuple[str, ...]:
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise DomainError(f"{what} takes a list of words")
    return tuple(_word(word, what) for word in words)


def _word(word: Any, what: str) -> str:
    """A spelling as text: -9 is "-9"."""
    if isinstance(word, bool) or not isinstance(word, str | int | float):
        raise DomainError(f"{what} takes words in quotes, got a {type(word).__name__}")
    text = str(word)
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise DomainError(f"{what}: a word holds a character that is no text")
    return text


def _declares(attribute: Attribute, text: str) -> bool:
    """Is the text a declared value, as entries are read?"""
    if any(isinstance(value, date) for value in attribute.declared[:1]):
        try:
            kind = type(attribute.declared[0])
            return (datetime if kind is datetime else date).fromisoformat(
                text
            ) in attribute.declared
        except ValueError:
            return False
    if attribute.is_numeric:
        try:
            number = float(text)
            attribute.index(int(text) if text.lstrip("+-").isdigit() else number)
        except (ValueError, DomainError):
            return False
        return math.isfinite(number)
    return any(value is not None and str(value) == text for value in attribute.declared)
