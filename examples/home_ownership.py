"""Who owned a home in 1960? From a schema and five questions to tables with error bars.

The table is a public research extract: 214,144 men of the 1960 census, from the package causaldata
(Fetter 2013). It is counted here in the open. Noise and budget belong to the protected kernel; what
is shown is the error that publishing these tables would cost, which needs no data at all.
"""

from __future__ import annotations

import warnings
from html import escape
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import psephos as ps

REGIONS = {
    "Northeast": "Connecticut, Maine, Massachusetts, New Hampshire, New Jersey, New York, "
    "Pennsylvania, Rhode Island, Vermont",
    "Midwest": "Illinois, Indiana, Iowa, Kansas, Michigan, Minnesota, Missouri, Nebraska, "
    "North Dakota, Ohio, South Dakota, Wisconsin",
    "South": "Alabama, Arkansas, Delaware, District of Columbia, Florida, Georgia, Kentucky, "
    "Louisiana, Maryland, Mississippi, North Carolina, Oklahoma, South Carolina, Tennessee, "
    "Texas, Virginia, West Virginia",
    "West": "Alaska, Arizona, California, Colorado, Hawaii, Idaho, Montana, Nevada, New Mexico, "
    "Oregon, Utah, Washington, Wyoming",
}
STATES = {region: names.split(", ") for region, names in REGIONS.items()}
STATES["not known"] = ["United States, ns"]

# The schema is written from the census questionnaire, not from the data.
DOMAIN = ps.Domain.of(
    bpl=ps.Attribute.categories(sorted(s for names in STATES.values() for s in names)).with_level(
        "region", STATES
    ),
    qob=ps.Attribute.categories({q: f"quarter {q}" for q in range(1, 5)}),
    nonwhite=ps.Attribute.categories({0: "white", 1: "nonwhite"}),
    vet_wwko=ps.Attribute.categories({0: "no veteran", 1: "veteran"}),
    home_ownership=ps.Attribute.categories({0: "rents", 1: "owns"}),
)

QUESTIONS = """
SELECT region, home_ownership, COUNT(*) FROM men GROUP BY region, home_ownership;
SELECT nonwhite, vet_wwko, home_ownership, COUNT(*) FROM men GROUP BY CUBE (nonwhite, vet_wwko, home_ownership);
SELECT bpl, COUNT(*) FROM men WHERE home_ownership = 1 AND vet_wwko = 1 GROUP BY bpl;
SELECT CASE WHEN qob <= 2 THEN 'first half' ELSE 'second half' END AS born, home_ownership, COUNT(*)
FROM men GROUP BY born, home_ownership;
SELECT COUNT(*) FROM men WHERE bpl IN ('Texas', 'Oklahoma') AND nonwhite = 1
"""  # noqa: E501 - a statement a line

EPSILON = 1.0
REPORT = Path("build/demo/report.html")


def count_public_extract() -> np.ndarray:
    """The extract as a vector of cell counts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from causaldata import mortgages

        people = mortgages.load_pandas().data
    places = [
        people[name].map({value: i for i, value in enumerate(DOMAIN[name].values)}).to_numpy()
        for name in DOMAIN.names
    ]
    cells = np.ravel_multi_index(places, DOMAIN.shape)
    return np.bincount(cells, minlength=DOMAIN.size)


def standard_errors(workload: ps.Workload) -> dict[str, np.ndarray]:
    """Of every answer at EPSILON, under two simple mechanisms with Laplace noise.

    Laplace on the workload adds variance 2 (Δ/ε)² to each answer, Δ the largest column norm;
    noise on every cell adds 2/ε² for each cell that a query counts.
    """
    answers = ps.Workload(DOMAIN, [ps.product(p.factors) for p in workload.products])
    delta = answers.matrix.sensitivity(1)
    cells = np.concatenate(
        [answers.kron(i) @ np.ones(DOMAIN.size) for i in range(len(answers.products))]
    )
    workload_noise = np.full(len(cells), np.sqrt(2) * delta / EPSILON)
    return {
        "Laplace noise on the workload": workload_noise,
        "Laplace noise on every cell": np.sqrt(2 * cells) / EPSILON,
    }


def main() -> None:
    console = Console()
    workload = ps.Workload.from_sql(DOMAIN, QUESTIONS)
    x = count_public_extract()
    counts = workload.answer(x)
    errors = standard_errors(workload)
    best = min(errors, key=lambda name: float((errors[name] ** 2).sum()))

    console.print(f"\n[bold]Schema[/]    {DOMAIN}")
    console.print(f"[bold]Questions[/] {workload}, {workload.nbytes:,} bytes as matrices,")
    full = workload.shape[0] * workload.shape[1] * 8
    console.print(f"          {full:,} if written out; merged to {workload.compact()}")
    console.print(
        f"          one man moves the answers by at most {workload.matrix.sensitivity(1):g}\n"
    )
    summary = Table(title=f"Standard error per count before any budget is spent, ε = {EPSILON:g}")
    summary.add_column("mechanism")
    summary.add_column("root mean square", justify="right")
    summary.add_column("largest", justify="right")
    for name, stderr in errors.items():
        rms = float(np.sqrt((stderr**2).mean()))
        summary.add_row(name, f"{rms:,.1f}", f"{stderr.max():,.1f}")
    console.print(summary)

    sections = []
    start = 0
    for i, asked in enumerate(workload.products):
        stop = start + workload.query_counts[i]
        rows = list(
            zip(_words(workload, i), counts[start:stop], errors[best][start:stop], strict=True)
        )
        sections.append((asked.title, rows))
        start = stop
    for title, rows in (sections[0], sections[1]):
        console.print(_table(title, rows, best))
    write_report(sections, best, workload)
    console.print(f"\nAll {len(sections)} tables with error bars: {REPORT}")
    console.print("Counts are exact and of a public extract; no privacy was spent, none was given.")


def _words(workload: ps.Workload, i: int) -> list[str]:
    columns = workload.labels(i)
    if not columns:
        return ["everyone"]
    return [", ".join(row) for row in zip(*columns.values(), strict=True)]


def _table(title: str, rows: list[tuple[str, int, float]], mechanism: str) -> Table:
    table = Table(title=f"{title} (error bars: {mechanism}, ε = {EPSILON:g})")
    table.add_column("group")
    table.add_column("count", justify="right")
    table.add_column("± 2 standard errors", justify="right")
    for words, count, stderr in rows:
        table.add_row(words, f"{count:,}", f"{2 * stderr:,.0f}")
    return table


def write_report(
    sections: list[tuple[str, list[tuple[str, int, float]]]], mechanism: str, workload: ps.Workload
) -> None:
    """One page that needs no network: every table, with a bar and its error in each row."""
    parts = []
    for title, rows in sections:
        widest = max(count + 2 * stderr for _, count, stderr in rows)
        lines = "".join(
            f"<tr><td>{escape(words)}</td><td class=n>{count:,}</td><td class=n>± "
            f"{2 * stderr:,.0f}</td><td>{_bar(count, 2 * stderr, widest)}</td></tr>"
            for words, count, stderr in rows
        )
        parts.append(f"<h2>{escape(title)}</h2><table>{lines}</table>")
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse}td,th{padding:.15rem .8rem .15rem 0;text-align:left}"
        "td.n{text-align:right;font-variant-numeric:tabular-nums}caption{text-align:left}"
    )
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Home ownership, 1960</title>"
        f"<style>{style}</style><h1>Home ownership, 1960</h1>"
        f"<p>Counts of a public research extract, exact. The bars' whiskers are two standard "
        f"errors of what {escape(mechanism)} would add at ε = {EPSILON:g}; they cover "
        f"privacy noise only. No noise was added to this page.</p>"
        f"{DOMAIN._repr_html_()}{workload._repr_html_()}{''.join(parts)}</html>"
    )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(page, encoding="utf-8")


def _bar(count: float, half: float, widest: float) -> str:
    scale = 260 / widest
    low, high = max(0.0, count - half) * scale, (count + half) * scale
    return (
        f'<svg width=264 height=14><rect y=3 width="{count * scale:.1f}" height=8 fill="#4a7ab5"/>'
        f'<path d="M{low:.1f} 7H{high:.1f}M{low:.1f} 3V11M{high:.1f} 3V11" stroke="#222"/></svg>'
    )


if __name__ == "__main__":
    main()
