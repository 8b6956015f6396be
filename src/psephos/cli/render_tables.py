"""Tables of numbers in the terminal: as they were asked for, or a number in each line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from psephos.cli.render import MOST_LINES, PLAN_CAUTION, number_columns, rest_words, rows_text
from psephos.cli.render_statistics import statistic_words

if TYPE_CHECKING:
    import pyarrow as pa

    from psephos.release.ask.ask import Reply
    from psephos.release.bundle.bundle import Bundle
    from psephos.report.cross_table import CrossTable

IN_FILES, BY_OUTPUT = "in the files", "with --output FILE.csv (or .parquet), or --json"
"""Where the rows are that the terminal does not show."""
REPLY_LINES = 200
"""The most rows of answers."""
MOST_PERSONS_TABLES = 3
MOST_COLUMNS = 5
"""Tables with more columns of numbers are lists in the terminal, a number in each line."""
MOST_LABELS = 8
"""Tables with more columns of labels have one column instead, which names what is told apart."""
UNLABELLED_COLUMNS = {"part", "count", "consistent", "stderr", "low", "high", "made_up"}
UNLABELLED_COLUMNS |= {"statistic", "unit", "value"}


def rich_numbers(
    title: str, numbers: pa.Table, most: int = MOST_LINES, rest_is: str = IN_FILES
) -> RenderableType:
    """A table of a release: labels, number, ± and interval; and where the rest of its rows is."""
    columns = [name for name in numbers.column_names if name not in UNLABELLED_COLUMNS]
    constant = [name for name in columns if len(numbers[name].unique()) == 1]
    labels = [name for name in columns if name not in constant] or columns
    if labels != columns:
        title += f"\n{', '.join(_equation(name, str(numbers[name][0])) for name in constant)}"
    statistics, shown = "value" in numbers.column_names, numbers.slice(0, most).to_pylist()
    heads = ["value"] if statistics else ["count", "standard error"]
    heads = [*heads, "noise interval"] if "low" in numbers.column_names else heads[:1]
    cells = statistic_words if statistics else _count_words
    wide = len(labels) > MOST_LABELS and not statistics
    table = Table(
        *(["which rows"] if wide else labels),
        *(["statistic"] * statistics),
        *number_columns(*heads),
        title=title,
        caption=rest_words(numbers.num_rows - most, rest_is),
    )
    rows = _told_apart(numbers, labels, shown) if wide else [_words(row, labels) for row in shown]
    for row, words in zip(shown, rows, strict=True):
        table.add_row(*map(escape, words), *cells(row))
    return table


def _count_words(row: dict[str, Any]) -> list[str]:
    words = [f"{row['count']:,.0f}"]
    if "low" in row:
        words += [rows_text(row["stderr"]), f"{row['low']:,.0f} to {row['high']:,.0f}"]
    return words


def _words(row: dict[str, Any], labels: Sequence[str]) -> list[str]:
    return [str(row[name]) for name in labels]


def _told_apart(
    numbers: pa.Table, labels: Sequence[str], rows: Sequence[dict[str, Any]]
) -> list[list[str]]:
    """For each row one text of the labels that are no totals."""
    totals = [_total_label(numbers[name]) for name in labels]
    texts = []
    for row in rows:
        pairs = zip(labels, _words(row, labels), totals, strict=True)
        told = [_equation(name, word) for name, word, total in pairs if word != total]
        texts.append([", ".join(told) or "all"])
    return texts


def rich_cross_table(
    cross: CrossTable, title: str, most: int = MOST_LINES, rest_is: str = IN_FILES
) -> RenderableType:
    """A table as it was asked for: rows down, columns across, each number with its ±."""
    rows, columns = cross.shape
    if columns > MOST_COLUMNS or len(cross.rows.axes) > MOST_LABELS:
        return rich_numbers(title, cross.numbers, most, rest_is)
    head = cross.head(most, columns)
    if cross.fixed:
        title += f"\n{', '.join(_equation(*pair) for pair in cross.fixed)}"
    across = " × ".join(axis.title for axis in cross.columns.axes)
    if across and cross.statistic:
        title += f"\n{cross.statistic}"
    heads = [escape(", ".join(head.columns.words(j)) or cross.heading) for j in range(columns)]
    table = Table(
        *(escape(axis.title) for axis in cross.rows.axes),
        *number_columns(*heads),
        title=f"{title}\nacross: {across}" if across else title,
        caption=rest_words(rows - len(head.rows), rest_is),
    )
    for i, total in enumerate(head.rows.totals):
        words = list(head.rows.words(i))
        words[-1:] = ["  " * head.rows.depth(i) + word for word in words[-1:]]
        cells = [" ".join(head.texts(i, j)).strip() for j in range(columns)]
        table.add_row(*map(escape, words), *cells, style="bold" if total else None)
    return table


def _total_label(column: pa.ChunkedArray) -> str:
    """The label of all values together: of "total", "(total)" and so on the last that is there."""
    words = [str(word) for word in column.unique().to_pylist()]
    return max((word for word in words if word.strip("()") == "total"), key=len, default="total")


def rich_reply(reply: Reply, tables: Sequence[CrossTable], *, simulation: bool) -> RenderableType:
    """Free answers, laid out if they are, and which view they belong to."""
    title = "made up" if simulation else "free: answered from past measurements"
    statistics = "value" in reply.table.column_names  # these are not laid out
    if reply.is_model:
        title = "made up" if simulation else "free: answered by a model"
        note = (
            "A model answers where measurements do not tell: attributes are as independent as the "
            "measurements allow. It is biased, and has no interval."
        )
    elif reply.view == "nearest":
        note = "These tables are nearest to the noisy numbers in L1 or L∞: no interval is known."
    elif reply.view == "plan":
        title = "made up" if simulation else "free: answered by the plan's estimate"
        note = PLAN_CAUTION
    elif statistics:
        note = (
            "These follow from counts and sums of the consistent view. An interval holds all "
            "numbers that agree with them, inside of the declared range."
        )
    else:
        note = (
            "These are numbers of the consistent view: unbiased, so they may be negative or "
            "fractional, and published tables differ from them by their rounding."
        )
    if statistics or not tables:
        numbers = reply.table.drop_columns(["model"]) if reply.is_model else reply.table
        return Group(rich_numbers(title, numbers, REPLY_LINES, BY_OUTPUT), Text(note))
    shown = (rich_cross_table(each, title, REPLY_LINES, BY_OUTPUT) for each in tables)
    return Group(*shown, Text(note))


def rich_persons(bundle: Bundle) -> list[RenderableType]:
    """The first tables of persons of a release."""
    return [
        rich_numbers(f"{question.title} (persons)", bundle.persons_table(question.name))
        for question in (request.question for request in bundle.persons[:MOST_PERSONS_TABLES])
    ]


def _equation(name: str, label: str) -> str:
    """`sex = F` for a column that holds one label; a label that is a condition stands alone."""
    return label if label.startswith(name) else f"{name} = {label}"
