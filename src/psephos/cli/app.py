"""The command line: a thin skin over release/ and the kernel.

Exit codes: 0 done; 1 a check, verification or audit found something wrong; 2 a mistake in what was
given (file, schema, SQL, amount); 3 the budget does not hold that much; 4 a ledger that is missing,
damaged or not the right one; 5 a source that cannot be read; 130 stopped from the keyboard.

A command imports what it runs by itself, so that no command waits for the libraries of another.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from psephos.cli import render, render_plans, render_statistics, render_tables
from psephos.cli.terminal import INTERRUPTS, complain, out, progress, report_errors, show
from psephos.errors import ReleaseError
from psephos.version import __version__

if TYPE_CHECKING:
    from psephos.kernel.budget import Budget
    from psephos.kernel.ledger import Ledger
    from psephos.release.bundle.bundle import Bundle
    from psephos.release.parts.bundle import PartsBundle
    from psephos.release.spec.entries import View
    from psephos.release.spec.job import Job

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Publish counting queries over a sensitive table under differential privacy.",
    epilog="Exit codes: 0 done, 1 something is wrong, 2 bad input, 3 budget, 4 ledger, 5 source.",
)
Json = Annotated[bool, typer.Option("--json", help="Plain JSON on standard output.")]
ReleasePath = Annotated[Path, typer.Argument(help="The release file, or its folder.")]
BundlePath = Annotated[Path, typer.Argument(help="The bundle's directory.")]
QUESTION = "SELECT home_ownership, COUNT(*) FROM men WHERE vet_wwko = 1 GROUP BY home_ownership"
NO_LEDGER = (
    "no ledger was made: its unit and budget are for life, and the check found errors; mend the "
    "release file or the data, then run this again"
)
GOES_ON = (
    "stopped; what was charged stays in the ledger: run the same command again, it goes on "
    "without a second charge"
)
SHOWN_TABLES = 3
"""The most tables of a release that the terminal shows."""
# click's own, which typer keeps in different places from version to version
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        out().print(f"psephos {__version__}")
        raise typer.Exit


@app.command()
def init(
    data: Annotated[str, typer.Argument(help="A file, a folder, or postgresql://host/db/table.")],
    output: Annotated[Path, typer.Option("--output", "-o")] = Path("release.toml"),
    as_json: Json = False,
) -> None:
    """Draft a release file from the names and types of a table's columns; no entry is read."""
    with report_errors(as_json):
        from psephos.release.spec.draft import write_draft

        write_draft(data, output)
        show(as_json, {"written": str(output)}, f"{output} is drafted; look for CONFIRM in it")


@app.command()
def check(
    release: ReleasePath = Path(),
    create: Annotated[bool, typer.Option("--create-ledger", help="Make the ledger too.")] = False,
    max_rows_total: Annotated[
        int | None, typer.Option(help="The declared public bound on rows.")
    ] = None,
    as_json: Json = False,
) -> None:
    """PRIVATE, for the owner: compare schema and data; make the data set's ledger when asked."""
    with report_errors(as_json, release=release):
        from psephos.release.preflight.checks import check_release, create_ledger, ledger_trouble
        from psephos.release.spec.job import Job

        job = Job.read(release)
        report = check_release(job, max_rows_total=max_rows_total)
        ledger = create_ledger(job) if create and report.ok else None
        plain = json.loads(report.to_json())
        plain["ledger"] = None if ledger is None else str(job.ledger)
        trouble = ledger_trouble(job)
        if trouble is not None:
            plain["error"] = {"kind": type(trouble).__name__, "message": str(trouble)}
        note = "" if ledger is None else f"ledger made: {ledger}"
        if create and not report.ok:
            note = plain["no_ledger"] = NO_LEDGER
        show(as_json, plain, str(report), note)
        if trouble is not None:
            raise typer.Exit(4) if as_json else trouble
        if not report.ok:
            raise typer.Exit(1)


@app.command()
def plan(
    release: ReleasePath = Path(),
    epsilons: Annotated[
        str | None, typer.Option("--epsilon", help="Compare budgets, e.g. 0.5,1,2.")
    ] = None,
    rhos: Annotated[str | None, typer.Option("--rho", help="Compare budgets in rho.")] = None,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Search for minutes; Ctrl-C takes the best so far.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The error of every table and of rival strategies, before anything is spent; no data."""
    with report_errors(as_json, release=release):
        from psephos.release.methods.plan_forecast import PlanForecast
        from psephos.release.preflight import forecast as forecasting
        from psephos.release.preflight.outlook import outlook
        from psephos.release.preflight.simulated import is_quick, simulated_error
        from psephos.release.preflight.statistic_forecast import statistic_forecasts
        from psephos.release.run import plan as plan_job
        from psephos.release.spec.job import Job

        job = Job.read(release)
        budgets = _amounts(epsilons, rhos)
        if job.tree is not None:
            _show_parts_plan(as_json, job, budgets)
            return
        if budgets:
            _show_budgets(as_json, job, budgets)
            return
        with progress(as_json) as say:
            cells = forecasting.cell_rmse(job)
            forecast = plan_job(
                job,
                progress=lambda name, gain: say(render.search_words(name, gain, cells)),
                thorough=thorough,
            )
            simulated = None
            if isinstance(forecast, forecasting.Forecast) and is_quick(forecast):
                say("the published view on made-up rows")
                simulated = simulated_error(forecast)
        beside = outlook(forecast)
        note = "\n".join(beside.lines)
        if isinstance(forecast, PlanForecast):
            plain = render_plans.plain_plan_forecast(forecast) | render.plain_outlook(beside)
            show(as_json, plain, render_plans.rich_plan_forecast(forecast), note)
        if isinstance(forecast, forecasting.Forecast):
            plain = render.plain_plan(forecast, simulated) | render.plain_outlook(beside)
            plain["method"] = {"name": beside.method.name, "reason": beside.method.reason}
            stand_in, statistics = statistic_forecasts(forecast)
            plain["statistics"] = {"stand_in": stand_in, "tables": statistics}
            table = render_statistics.rich_forecasts(stand_in, statistics)
            show(as_json, plain, render.rich_plan(forecast, simulated), table, note)


@app.command()
def rehearse(
    release: ReleasePath = Path(),
    rows: Annotated[int, typer.Option(help="How many rows to make up.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Of the made-up data and noise.")] = 0,
    as_json: Json = False,
) -> None:
    """The whole run on made-up data from the public schema: safe to show to anyone."""
    with report_errors(as_json, release=release):
        from psephos.release.run import rehearse as rehearse_job

        with progress(as_json) as say:
            bundle = rehearse_job(release, rows=rows, seed=seed, progress=say)
        _show_release(as_json, bundle, "REHEARSAL on made-up data")


@app.command()
def release(
    release: ReleasePath = Path(),
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Spend without a check that passed.")
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(help="Where parts (`by`) are measured: processes, processes:4 or spark."),
    ] = None,
    rows_folder: Annotated[
        Path | None,
        typer.Option(help="A private folder to hold the rows in while they are counted."),
    ] = None,
    as_json: Json = False,
) -> None:
    """The real run: charge the ledger, measure, write the bundle. Run again, it charges nothing."""
    with report_errors(as_json, GOES_ON, release):
        from fractions import Fraction

        from psephos.kernel.budget import Budget
        from psephos.kernel.ledger import CHARGED
        from psephos.kernel.parts.runners import runner_by_name
        from psephos.release.preflight.checks import open_ledger
        from psephos.release.run import release as release_job
        from psephos.release.spec.job import Job

        job = Job.read(release)
        ledger = open_ledger(job)
        before = len(CHARGED)
        with progress(as_json) as say:
            runner = None if on is None else runner_by_name(on)
            bundle = release_job(
                job,
                unchecked=unchecked,
                ledger=ledger,
                progress=say,
                runner=runner,
                rows_folder=rows_folder,
            )
        # By this run, whatever others did meanwhile.
        charges = [amount for dataset, amount in CHARGED[before:] if dataset == ledger.dataset_id]
        text = "this run spent nothing: it was paid for"
        if any(charges):
            text = f"this run spent {Budget(ledger.budget.currency, sum(charges, Fraction(0)))}"
        _show_release(as_json, bundle, text, ledger)


@app.command()
def verify(
    bundle: BundlePath = Path("bundle"),
    ledger: Annotated[
        Path | None, typer.Option(help="The owner's ledger, to look the charge up in.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a bundle without the data: hashes, receipt, every number from the noisy integers."""
    with report_errors(as_json):
        from psephos.release.verify.verify import verify as verify_bundle

        verification = verify_bundle(bundle, ledger=ledger)
        show(as_json, verification.as_dict(), str(verification))
        if not verification.ok:
            raise typer.Exit(1)


@app.command()
def ask(
    bundle: BundlePath,
    sql: Annotated[str, typer.Argument(help="SELECT … COUNT(*), AVG(…) … GROUP BY …")],
    plus_minus: Annotated[
        float | None, typer.Option(help="Price the question at this half-width.")
    ] = None,
    dialect: Annotated[str | None, typer.Option(help="SQL dialect; DuckDB's if left out.")] = None,
    model: Annotated[
        bool,
        typer.Option("--model", help="Answer by a model what the measurements do not tell."),
    ] = False,
    part: Annotated[
        str, typer.Option(help='Of a release in parts: one part, e.g. "Bavaria / Munich".')
    ] = "",
    level: Annotated[str, typer.Option(help="Of a release in parts: all parts of a level.")] = "",
    output: Annotated[
        Path | None, typer.Option(help="A .csv or .parquet file for all answers.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer further questions from past measurements, free; or say what they would cost."""
    with report_errors(as_json):
        from psephos.release.ask.ask import ask as ask_bundle
        from psephos.release.ask.ask import laid_out_reply
        from psephos.release.ask.price import price
        from psephos.release.bundle.bundle import Bundle
        from psephos.release.bundle.files import write_rows
        from psephos.release.parts.bundle import PartsBundle, is_in_parts

        in_parts = is_in_parts(bundle)
        if in_parts and plus_minus is not None:
            raise ReleaseError("a release in parts sells no further questions: no --plus-minus")
        past = PartsBundle.open(bundle) if in_parts else Bundle.open(bundle)
        if plus_minus is not None and isinstance(past, Bundle):
            cost = price(past, sql, plus_minus, dialect=dialect)
            show(as_json, render.plain_price(past, cost), render.price_words(past, sql, cost))
            return
        reply = ask_bundle(past, sql, dialect=dialect, model=model, level=level, part=part)
        if output is not None:
            write_rows(reply.table, output)
        written = "" if output is None else f"written: {output}"
        looked = f"looked at: {reply.checked}"
        caution = render.PLAN_CAUTION if reply.view == "plan" else None
        plain = {"cost": 0, "view": reply.view, "caution": caution}
        plain["checked"] = reply.checked
        plain["rows"] = reply.table.to_pylist()
        tables = laid_out_reply(past, reply, sql, dialect) if isinstance(past, Bundle) else ()
        answers = render_tables.rich_reply(reply, tables, simulation=past.simulation)
        show(as_json, plain, answers, looked, written)


@app.command()
def change(
    old: Annotated[Path, typer.Argument(help="The bundle of the earlier edition.")],
    new: Annotated[Path, typer.Argument(help="The bundle of the later edition.")],
    table: Annotated[str | None, typer.Option(help="One table; all of them if left out.")] = None,
    output: Annotated[Path | None, typer.Option(help="A .csv or .parquet file for it.")] = None,
    as_json: Json = False,
) -> None:
    """What changed between two editions of the data: differences with their noise, free."""
    with report_errors(as_json):
        from psephos.release.bundle.files import write_rows
        from psephos.release.change import change as change_of

        changes = change_of(old, new)
        names = [table] if table is not None else list(changes.tables)
        tables = {name: changes.table(name) for name in names}
        if output is not None:
            if len(names) != 1:
                raise ReleaseError(f"--output takes one table; add --table, of {', '.join(names)}")
            write_rows(tables[names[0]], output)
        plain = {
            "editions": changes.editions,
            "confidence": changes.confidence,
            "tables": {name: numbers.to_pylist() for name, numbers in tables.items()},
            "left_out": changes.left_out,
        }
        written = "" if output is None else f"written: {output}"
        show(as_json, plain, *render_statistics.rich_changes(changes, names), written)


@app.command()
def synthesize(
    bundle: BundlePath,
    rows: Annotated[
        int | None, typer.Option(help="How many rows; as many as are published if left out.")
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Where the rows go: a .csv or a .parquet file.")
    ] = Path("rows.csv"),
    as_json: Json = False,
) -> None:
    """Make up rows that answer like a release's published tables, free; nobody is in them."""
    with report_errors(as_json), progress(as_json) as say:
        from psephos.release.bundle.bundle import Bundle
        from psephos.release.bundle.files import write_rows
        from psephos.release.synthesize import rows_of_bundle

        say("rows")
        past = Bundle.open(bundle)
        made_up = rows_of_bundle(past, rows)
        write_rows(made_up.table.to_arrow(), output)
        plain = {"cost": 0, "output": str(output), "simulation": past.simulation}
        plain |= made_up.quality.facts()
        show(as_json, plain, render.rich_quality(made_up.quality, str(output)))


@app.command()
def budget(
    ledger: Annotated[Path, typer.Argument(help="A ledger, or a release file.")],
    as_json: Json = False,
) -> None:
    """What was spent on a data set, on what, and what is left."""
    with report_errors(as_json):
        if ledger.suffix in (".toml", ".yaml", ".yml", ".json") or ledger.is_dir():
            from psephos.release.preflight.checks import open_ledger
            from psephos.release.spec.job import Job

            account = open_ledger(Job.read(ledger))
        else:
            from psephos.kernel.ledger import Ledger

            account = Ledger.open(ledger)
        account.verify()
        plain = render.plain_ledger(account)
        show(as_json, plain, render.rich_ledger(account, plain))


@app.command()
def audit(
    seconds: Annotated[float, typer.Option(help="About how long to try.")] = 20.0,
    as_json: Json = False,
) -> None:
    """Attack this installation with made-up neighbours; prints lower bounds, opens no data."""
    with report_errors(as_json):
        from psephos.audit.audit import audit as audit_here

        with progress(as_json) as say:
            report = audit_here(seconds=seconds, progress=lambda name, share: say(name))
        show(as_json, json.loads(report.to_json()), str(report))
        if not report.ok:
            raise typer.Exit(1)


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="Where to put it.")] = Path("build/demo"),
    as_json: Json = False,
) -> None:
    """The main job on real data: 214,144 men of the 1960 census, from file to report."""
    with report_errors(as_json):
        from threadpoolctl import threadpool_limits

        from psephos.cli.demo import prepare
        from psephos.release.preflight.checks import check_release, create_ledger, is_checked
        from psephos.release.preflight.forecast import forecast_measured as plan_job
        from psephos.release.spec.job import Job

        with threadpool_limits(1):  # of small tables: more threads wait for each other
            place = prepare(folder)
            job = Job.read(place)
            if not is_checked(job):
                report = check_release(job)
                if not as_json:
                    show(as_json, [], f"owner's check: {'passed' if report.ok else report}")
            if not job.ledger.exists():
                create_ledger(job)
            if not job.bundle.exists():
                with progress(as_json) as say:
                    forecast = plan_job(
                        job, progress=lambda name, gain: say(f"{name}: {gain:.2f}×")
                    )
                if not as_json:
                    show(as_json, [], render.rich_plan(forecast))
            release(place, as_json=as_json)
            if not as_json:
                show(as_json, [], f"try: psephos ask {job.bundle} {QUESTION!r}")
                show(as_json, [], f"     psephos verify {job.bundle}")


@app.command()
def plans(as_json: Json = False) -> None:
    """List the plans: their operators, whose they are, and when to use them."""
    with report_errors(as_json):
        from psephos.plans import PLANS

        show(
            as_json,
            render_plans.plain_plans(PLANS.values()),
            render_plans.rich_plans(PLANS.values()),
        )


@app.command()
def compare(
    release: ReleasePath = Path(),
    names: Annotated[
        str | None, typer.Option("--plans", help="Names of plans, e.g. HDMM,DAWA; else all.")
    ] = None,
    stand_in: Annotated[
        Path | None,
        typer.Option(help="A public table; else the file's `stand_in`, or made-up rows."),
    ] = None,
    rows: Annotated[int, typer.Option(help="Made-up rows, where there is no stand-in.")] = 10_000,
    trials: Annotated[int, typer.Option(help="Runs of each plan.")] = 5,
    as_json: Json = False,
) -> None:
    """Try plans on public or made-up rows, side by side; no data is read and nothing is spent."""
    with report_errors(as_json, release=release), progress(as_json) as say:
        from psephos.release.preflight.comparison import compare_plans

        chosen = None if names is None else [name.strip() for name in names.split(",")]
        table = compare_plans(
            release, plans=chosen, stand_in=stand_in, rows=rows, trials=trials, progress=say
        )
        show(as_json, render_plans.plain_plan_errors(table), render_plans.rich_plan_errors(table))


@app.command()
def schema(as_json: Json = True) -> None:
    """The JSON Schema of a release file, for editors."""
    from psephos.release.spec.file import json_schema

    show(True, json_schema(), "")


def _show_budgets(as_json: bool, job: Job, budgets: list[Budget]) -> None:
    """The errors of every table at several budgets."""
    from psephos.release.methods.method import method_of
    from psephos.release.preflight.checks import remaining_budget
    from psephos.release.preflight.forecast import budget_shortage, compare
    from psephos.release.run import plan as plan_job

    if method_of(job).adaptive:
        plan_job(job, budget=budgets[0])  # which says why not
    forecasts, rest = compare(job, budgets), remaining_budget(job)
    shortages = [budget_shortage(forecast, rest) for forecast in forecasts]
    plain = [
        {**render.plain_plan(forecast), "shortage": shortage}
        for forecast, shortage in zip(forecasts, shortages, strict=True)
    ]
    show(as_json, plain, render.rich_comparison(forecasts), "\n".join(filter(None, shortages)))


def _show_parts_plan(as_json: bool, job: Job, budgets: list[Budget]) -> None:
    """The plan of a release in parts, at its budget or at others."""
    from psephos.cli.render_parts import rich_parts_plan
    from psephos.release.parts.plan import forecast_parts
    from psephos.release.preflight.outlook import outlook

    with progress(as_json) as say:
        plans = [
            forecast_parts(
                job,
                budget=budget,
                progress=lambda name, gain: say(f"{name}: {gain:.2f}× better than cells"),
            )
            for budget in budgets or (None,)
        ]
    plain = [{**plan.as_dict(), "bytes": plan.disk_bytes} for plan in plans]
    shortages = [shortage for plan in plans if (shortage := outlook(plan).shortage)]
    note = shortages[-1] if shortages else ""
    show(
        as_json,
        plain if budgets else {**plain[0], "shortage": note or None},
        *(rich_parts_plan(plan) for plan in plans),
        note,
    )


def _show_release(
    as_json: bool, bundle: Bundle | PartsBundle, text: str, ledger: Ledger | None = None
) -> None:
    from psephos.cli.render_parts import plain_parts, rich_parts
    from psephos.release.parts.bundle import PartsBundle

    try:
        if ledger is not None:
            text = f"{text}\n{render.ledger_words(ledger)}"
        if isinstance(bundle, PartsBundle):
            show(as_json, plain_parts(bundle, ledger), *rich_parts(bundle), text)
        else:
            _show_bundle(as_json, bundle, text, ledger)
    except Exception:  # noqa: BLE001 - it was paid for and written; this is only for show
        words = f"its tables are in the bundle and cannot be shown here\nbundle: {bundle.path}"
        show(as_json, {"bundle": str(bundle.path)}, text, words)


def _show_bundle(as_json: bool, bundle: Bundle, text: str, ledger: Ledger | None = None) -> None:
    from psephos.release.views.layout import cross_tables

    shown: tuple[View, ...] = ("published", "consistent")
    views = [view for view in shown if view in bundle.manifest["views"]]
    plain = {
        "bundle": str(bundle.path),
        "report": str(bundle.report),
        "simulation": bundle.simulation,
        "spend": bundle.spend,
        "tables": [entry["name"] for entry in bundle.manifest["tables"]],
        "published": bundle.manifest["published"],
        "synthetic": bundle.manifest.get("synthetic"),
        "persons": [request.question.name for request in bundle.persons],
        "ledger": None if ledger is None else render.plain_ledger(ledger),
    }
    left_out = (bundle.manifest["published"] or {}).get("left_out", {})
    tables: list[RenderableType] = []
    more = len(bundle.persons) + (len(bundle.job.tables) if views else 0)
    for table in bundle.job.tables[:SHOWN_TABLES] if views else ():
        view = "consistent" if table.name in left_out and len(views) > 1 else views[0]
        parts = cross_tables(bundle.job, table, bundle.table(table.name, view))
        more += len(parts) - 1
        for cross in parts[:SHOWN_TABLES]:
            tables.append(render_tables.rich_cross_table(cross, f"{cross.title} ({view})"))
    tables = tables[:SHOWN_TABLES] + render_tables.rich_persons(bundle)
    more -= len(tables)
    plural = "s" if more > 1 else ""
    text = f"and {more:,} more table{plural} in the files and the report\n{text}" if more else text
    lines = [render.disagreement_words(bundle), render.made_up_words(bundle)]
    lines.append(f"bundle: {bundle.path}\nreport: {bundle.report}")
    show(as_json, plain, *tables, text, *lines)


def _amounts(epsilons: str | None, rhos: str | None) -> list[Budget]:
    from psephos.kernel.budget import epsilon, rho

    amounts = [epsilon(text.strip()) for text in (epsilons or "").split(",") if text.strip()]
    return amounts + [rho(text.strip()) for text in (rhos or "").split(",") if text.strip()]


def _interrupted(number: int, _: object) -> None:
    INTERRUPTS.append(number)
    raise KeyboardInterrupt


def main() -> None:
    """The `psephos` command; with --json mistakes in its arguments are JSON too."""
    signal.signal(signal.SIGINT, _interrupted)
    if "--json" not in sys.argv:
        app()
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        complain(True, "UsageError", getattr(error, "format_message", error.__str__)())
        code = 2
    sys.exit(code or 0)
