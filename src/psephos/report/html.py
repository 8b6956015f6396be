"""Tables as HTML, for notebooks and for the page of a release, with numbers as people read them.

One template sets all tables. Numbers have as many digits as mean something, and are exact where
they end soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from psephos.errors import ShapeError

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
STYLE_SHEET = Path(__file__).parent / "page.css"
Pairs = tuple[tuple[str, str], ...]
"""Names and what they are, as a list of facts shows them."""


@dataclass(frozen=True)
class Cell:
    """A cell that is more than text: text in a look, or text with a name in code."""

    text: str = ""
    look: Literal["plain", "strong", "code"] = "plain"
    name: str = ""


@dataclass(frozen=True)
class HtmlTable:
    """A table for people; every text in it is escaped when it is set.

    Attributes:
        caption: what the table is called
        heads: the columns' headings; a table may have none
        rows: the cells
        text_columns: on a page, the first columns that are text; the others are numbers
        under_heading: a heading says the same as the caption, which is then only read aloud
    """

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    text_columns: int = 1
    under_heading: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if self.heads and len(row) != len(self.heads):
                raise ShapeError(
                    f"the table {self.caption!r} has {len(self.heads)} headings, got a row of "
                    f"{len(row)} cells"
                )

    @classmethod
    def of(
        cls,
        caption: str,
        heads: Iterable[str],
        rows: Iterable[Sequence[str | Cell]],
        *,
        text_columns: int = 1,
        under_heading: bool = False,
    ) -> HtmlTable:
        """The table of any sequences."""
        cells = tuple(tuple(row) for row in rows)
        return cls(caption, tuple(heads), cells, text_columns, under_heading)


def notebook_html(*pieces: str | Cell | HtmlTable) -> str:
    """Paragraphs and tables for a notebook, which brings its own style.

    >>> print(notebook_html("1 < 2", HtmlTable.of("sizes", ["name"], [["<b>"]])))
    <p>1 &lt; 2</p>
    <table><caption>sizes</caption>
    <thead><tr><th scope="col">name</th></tr></thead>
    <tbody>
    <tr><td>&lt;b&gt;</td></tr>
    </tbody></table>
    """
    return render("notebook.html", pieces=pieces).strip()


def render(template: str, **context: Any) -> str:
    """A template of this room, filled in; what it does not know is an error, never a blank."""
    return environment().get_template(template).render(context)


@cache
def environment() -> Environment:
    """How templates are read: everything is escaped, nothing may be undefined."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # only when there is a page

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
