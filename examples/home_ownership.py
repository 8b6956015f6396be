"""Who owned a home in 1960? From a file and five questions to private tables with error bars.

The table is a research extract of the 1960 census: 214,144 men, from the package causaldata
(Fetter 2013), treated here as if it were secret. It is opened behind a ledger that holds
epsilon 1 for good. The best strategy for the questions is measured once with exact integer noise
and answers all of them by least squares; a second run finds the measurement in the ledger and
spends nothing.
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

SPEND = ps.epsilon("1")
FOLDER = Path("build/demo")
REPORT = FOLDER / "report.html"


def write_source() -> Path:
    """The extract as a file, the way an owner would have it."""
    path = FOLDER / "men_1960.csv"
    if not path.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from causaldata import mortgages

            people = mortgages.load_pandas().data
        people[list(DOMAIN.names)].to_csv(path, index=False)
    return path


def open_ledger() -> ps.Ledger:
    """Made once; a second run opens it."""
    path = FOLDER / "men_1960.ledger"
    if path.exists():
        return ps.Ledger.open(path)
    unit = ps.add_remove_row()
    return ps.Ledger.create(path, dataset="men of 1960", unit=unit, budget=SPEND)


def choose(workload: ps.Workload) -> ps.Strategy:
    """The best strategy found in 20 seconds; a second run takes the same."""
    path = FOLDER / "chosen.strategy"
    if not path.exists():
        ps.select.save(ps.select.hdmm(workload, restarts=3, time_limit=20), path)
    return ps.select.load(path, workload.domain)


def compare(workload: ps.Workload, chosen: ps.Strategy) -> Table:
    """The error of every table by strategy, known before anything is spent."""
    unit = ps.add_remove_row()
    table = Table(title=f"Standard error per count, before anything is spent ({SPEND})")
    table.add_column("what is measured")
    table.add_column("root mean square", justify="right")
    table.add_column("largest", justify="right")
    for name, strategy in (
        ("every cell", ps.select.identity(workload)),
        ("the questions themselves", ps.select.workload(workload)),
        (f"chosen: {chosen.name}", chosen),
    ):
        variances = strategy.query_variances(workload, SPEND, unit)
        table.add_row(name, f"{np.sqrt(variances.mean()):,.1f}", f"{np.sqrt(variances.max()):,.1f}")
    return table


def main() -> None:
    console = Console()
    FOLDER.mkdir(parents=True, exist_ok=True)
    workload = ps.Workload.from_sql(DOMAIN, QUESTIONS)
    console.print(f"\n[bold]Schema[/]    {DOMAIN}")
    console.print(f"[bold]Questions[/] {workload}, {workload.nbytes:,} bytes as matrices")
    with console.status("looking for the best strategy"):
        strategy = choose(workload)
    console.print(compare(workload, strategy))

    source = write_source()
    ledger = open_ledger()
    report = ps.check(source, DOMAIN, unit=ledger.unit)
    console.print(f"[bold]Owner's check[/] {'passed' if report.ok else report}")
    before = ledger.spent()
    data = ps.protect(source, DOMAIN, ledger=ledger)
    measured = data.vectorise().measure(strategy.query, spend=SPEND, key="home ownership")
    answers = ps.infer.least_squares(measured).answer(workload)

    sections = []
    start = 0
    for i, asked in enumerate(workload.products):
        stop = start + workload.query_counts[i]
        rows = list(
            zip(
                _words(workload, i),
                answers.values[start:stop],
                answers.stderr[start:stop],
                strict=True,
            )
        )
        sections.append((asked.title, rows))
        start = stop
    for title, rows in (sections[0], sections[1]):
        console.print(_table(title, rows))
    write_report(sections, measured, strategy, workload)
    new = ledger.spent() - before if ledger.spent() > before else None
    console.print(f"\n[bold]Ledger[/]  {ledger}")
    console.print(f"This run spent {new or 'nothing: the answers were in the ledger'}.")
    console.print(f"All {len(sections)} tables with error bars: {REPORT}")


def _words(workload: ps.Workload, i: int) -> list[str]:
    columns = workload.labels(i)
    if not columns:
        return ["everyone"]
    return [", ".join(row) for row in zip(*columns.values(), strict=True)]


def _table(title: str, rows: list[tuple[str, float, float]]) -> Table:
    table = Table(title=title)
    table.add_column("group")
    table.add_column("noisy count", justify="right")
    table.add_column("± 2 standard errors", justify="right")
    for words, count, stderr in rows:
        table.add_row(words, f"{count:,.0f}", f"{2 * stderr:,.0f}")
    return table


def write_report(
    sections: list[tuple[str, list[tuple[str, float, float]]]],
    measured: ps.Measurement,
    strategy: ps.Strategy,
    workload: ps.Workload,
) -> None:
    """One page that needs no network: every table, with a bar and its error in each row."""
    parts = []
    for title, rows in sections:
        widest = max(1.0, *(count + 2 * stderr for _, count, stderr in rows))
        lines = "".join(
            f"<tr><td>{escape(words)}</td><td class=n>{count:,.0f}</td><td class=n>± "
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
        f"<p>Estimates, unbiased and adding up, by least squares from {len(measured.values):,} "
        f"noisy counts ({escape(strategy.name)}), measured once at a cost of "
        f"{escape(str(measured.cost))} under differential privacy (add or remove one row). "
        f"Whiskers are two standard errors of the privacy noise, and of nothing else.</p>"
        f"{DOMAIN._repr_html_()}{workload._repr_html_()}{''.join(parts)}</html>"
    )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(page, encoding="utf-8")


def _bar(count: float, half: float, widest: float) -> str:
    scale = 260 / widest
    low, middle, high = (max(0.0, x) * scale for x in (count - half, count, count + half))
    return (
        f'<svg width=264 height=14><rect y=3 width="{middle:.1f}" height=8 fill="#4a7ab5"/>'
        f'<path d="M{low:.1f} 7H{high:.1f}M{low:.1f} 3V11M{high:.1f} 3V11" stroke="#222"/></svg>'
    )


if __name__ == "__main__":
    main()
