"""What was asked: the public schema, the facts it rests on, and the tables."""

from __future__ import annotations

from psephos.domain.attribute import Attribute
from psephos.release.pages.facts import Facts
from psephos.release.spec.entries import TableEntry
from psephos.report.html import Html, joined, listed, section, table, tag

UNKNOWN = {
    "drop": "their rows are left out",
    "clip": "numbers beyond the ends count in the first or last cell, all else is left out",
    "other": "they count in a cell of their own, “(other)”",
}


def asked(of: Facts) -> Html:
    """Schema, facts, impossible cells and tables."""
    return section(
        "asked",
        "What was asked",
        tag(
            "p",
            "The values below were declared from public knowledge; none was read from the "
            f"data. They span {of.job.domain.size:,} cells.",
        ),
        _schema(of),
        _facts(of),
        _tables(of),
    )


def _schema(of: Facts) -> Html:
    rows = []
    for name, entry in of.file.attributes.items():
        attribute = of.job.domain[name]
        title = joined([of.titles[name], *_own_name(name, of.titles[name])])
        rows.append(
            [
                title,
                attribute.some_values(),
                _levels(attribute),
                UNKNOWN[entry.unknown],
                entry.fact or "–",
                f"{attribute.size:,}",
            ]
        )
    heads = [
        "Attribute",
        "Values",
        "Groupings",
        "Entries that are not declared",
        "Why this is public",
        "Cells",
    ]
    return table("Public schema", heads, rows, texts=5)


def _own_name(name: str, title: str) -> list[str]:
    return [] if name == title else [" (", tag("code", name), ")"]


def _levels(attribute: Attribute) -> str:
    levels = [f"{level.name} ({len(level.labels):,})" for level in attribute.levels]
    return ", ".join(levels) or "–"


def _facts(of: Facts) -> Html:
    pieces: list[str] = []
    if of.file.facts:
        pieces += [tag("h3", "Public facts the release rests on"), listed(of.file.facts)]
    if of.file.zeros:
        lines = [tag("code", condition) for condition in of.file.zeros]
        pieces += [tag("h3", "Rows that cannot exist"), listed(lines)]
    return joined(pieces)


def _tables(of: Facts) -> Html:
    rows = []
    for entry, own in zip(of.file.tables, of.plan.tables, strict=True):
        called = entry.title or entry.name
        title = joined([called, *_own_name(entry.name, called)])
        target = "–" if own.target is None else f"± {own.target.half_width:g} at {_target(entry)}"
        rows.append([title, question(entry), target, f"{entry.weight:g}", f"{own.queries:,}"])
    heads = ["Table", "Question", "Target", "Weight", "Numbers"]
    return table("Tables", heads, rows, texts=3)


def _target(entry: TableEntry) -> str:
    if entry.target is None:
        return ""
    together = ", all at once" if entry.target.simultaneous else ""
    return f"{float(entry.target.confidence) * 100:g} %{together}"


def question(entry: TableEntry) -> Html:
    """What a table asks, as it was written."""
    if entry.sql is not None:
        return tag("pre", tag("code", entry.sql.strip()))
    if entry.queries is not None:
        words = [f"{name}: {text}" for name, text in entry.queries.items()]
        return joined(["queries: ", ", ".join(words)])
    if entry.builder is not None:
        size = f"of {entry.k}" if entry.k is not None else f"of up to {entry.up_to}"
        size = "" if entry.builder == "sf1" else f" {size} attributes"
        among = f" among {', '.join(entry.attributes)}" if entry.attributes else ""
        return joined([entry.builder.replace("_", " "), size, among])
    parts = {"rows": entry.rows, "columns": entry.columns, "broken down by": entry.breakdowns}
    said = "; ".join(f"{name}: {', '.join(names)}" for name, names in parts.items() if names)
    return joined([said, "; with totals" if entry.totals else "; without totals"])
