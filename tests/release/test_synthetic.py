"""Made-up rows of a release: from what is published, retraced, compared, and nobody in them."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from numpy.random import default_rng
from typer.testing import CliRunner

import psephos as ps
from psephos.cli.app import app
from psephos.release.bundle.files import sha256_of
from psephos.release.preflight.checks import check_release, create_ledger
from psephos.release.spec.job import Job
from psephos.release.synthesize import rows_of_bundle
from tests.release.conftest import write_job

FILE = """
name = "households"
source = "people.csv"
total = 800
privacy = { unit = "add_remove_row" }
ledger = { path = "people.ledger", dataset = "people", rho = "8" }
budget = { rho = "1" }
selection = { strategy = "identity" }

[schema.sex]
values = ["F", "M"]

[schema.age]
integers = [0, 5]

[schema.income]
bins = [0, 10, 20, 50]

[schema.region]
values = ["north", "south"]

[[tables]]
name = "pairs"
builder = "marginals"
k = 2

[synthetic]
method = "METHOD"
"""


def persons(rows=800, seed=3):
    rng = default_rng(seed)
    ages = np.minimum(rng.geometric(0.35, rows) - 1, 5)
    lines = [
        f"{rng.choice(['F', 'M'])},{age},{min(49.0, rng.exponential(5 + 4 * age)):.1f},"
        f"{'north' if rng.random() < 0.2 + 0.1 * age else 'south'}"
        for age in ages
    ]
    return "sex,age,income,region\n" + "\n".join(lines) + "\n"


def ready(folder, method="sample", text=FILE):
    place = write_job(folder, text.replace("METHOD", method), persons())
    job = Job.read(place)
    create_ledger(job)
    assert check_release(job).ok
    return place


def check_text(verification, name):
    (text,) = [check.text for check in verification.checks if check.name == name]
    return text


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return ps.release(ready(tmp_path_factory.mktemp("sample") / "job"))


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    """DualQuery, in a few rounds."""
    text = FILE.replace("[synthetic]", '[method]\nname = "DualQuery"\noptions = { rounds = 12 }\n')
    text = text.replace('method = "METHOD"\n', "")
    place = ready(tmp_path_factory.mktemp("game") / "job", text=text)
    return place, ps.release(place)


def table_counts(bundle, rows):
    """The published tables, counted from rows as a reader would."""
    written = bundle.table("pairs", "published")
    names = list(bundle.job.domain.names)
    frame = rows.to_pandas().astype(str)
    for line in written.to_pylist():
        where = np.ones(len(frame), dtype=bool)
        for name in names:
            if line.get(name) not in (None, "total"):
                where &= (frame[name] == line[name]).to_numpy()
        yield line["count"], int(where.sum())


def test_published_tables_are_counts_of_the_rows(sample):
    rows = sample.synthetic
    assert rows.rows == 800
    for published, counted in table_counts(sample, rows.to_arrow()):
        assert published == counted
    on_disk = pq.read_table(sample.path / "synthetic" / "rows.parquet")
    assert on_disk.equals(rows.to_arrow())
    as_csv = pa.csv.read_csv(sample.path / "synthetic" / "rows.csv")
    assert as_csv.num_rows == 800
    assert as_csv.column_names == ["sex", "age", "income", "region"]


def test_the_bundle_says_how_far_rows_are_from_the_model_and_verifies(sample):
    facts = sample.manifest["synthetic"]
    assert facts["method"] == "sample"
    assert facts["largest"] < 3
    names = [each["tables"] for each in facts["distances"]]
    assert names == ["the release's tables", "all of one attribute", "all of two attributes"]
    for each in facts["distances"]:
        assert each["sample"] < 0.05
        assert each["sample"] < min(each["rivals"].values()) + 0.05
        assert each["rivals"]["all zeros"] == pytest.approx(1, rel=1e-6)
    verification = ps.verify(sample.path)
    assert verification.ok, verification
    assert "made up again to the letter" in check_text(verification, "made-up rows")
    page = sample.report.read_text()
    assert "Made-up rows" in page
    assert "none of them is anybody" in page


def changed(bundle, folder, change):
    """A copy of a bundle whose maker has changed something, hashes and all."""
    copy = folder / "bundle"
    shutil.copytree(bundle.path, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    change(copy, manifest)
    for name in manifest["files"]:
        manifest["files"][name] = sha256_of(copy / name)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return ps.verify(copy)


def other_rows(folder, manifest):
    for name in ("rows.parquet", "rows.csv"):
        place = folder / "synthetic" / name
        table = pq.read_table(folder / "synthetic" / "rows.parquet")
        swapped = pa.array(["M"] * 100 + table["sex"].to_pylist()[100:])
        table = table.set_column(0, "sex", swapped)
        if name.endswith("csv"):
            pa.csv.write_csv(table, place)
        else:
            other = table
    pq.write_table(other, folder / "synthetic" / "rows.parquet")


def undeclared_rows(folder, manifest):
    place = folder / "synthetic" / "rows.parquet"
    table = pq.read_table(place)
    pq.write_table(table.set_column(0, "sex", pa.array(["X"] * table.num_rows)), place)


def other_csv(folder, manifest):
    (folder / "synthetic" / "rows.csv").write_text("name,secret\nAlice,42\n")


def nicer_gap(folder, manifest):
    manifest["synthetic"]["largest"] = 0.0


def worse_rival(folder, manifest):
    manifest["synthetic"]["distances"][0]["rivals"]["uniform"] = 1.9


CHANGES = [other_rows, undeclared_rows, other_csv, nicer_gap, worse_rival]


@pytest.mark.parametrize("change", CHANGES)
def test_rows_and_figures_that_were_changed_are_found(sample, tmp_path, change):
    verification = changed(sample, tmp_path, change)
    failed = [check.name for check in verification.checks if not check.ok]
    assert failed == ["made-up rows"]


def forged(folder, manifest, bundle, records):
    """Other rows, with the gaps that they have: only what they come from can tell."""
    from psephos.release.bundle.manifest import synthetic_facts

    table = ps.SyntheticTable(bundle.job.workload.domain, records)
    pq.write_table(table.to_arrow(), folder / "synthetic" / "rows.parquet")
    pa.csv.write_csv(table.to_arrow(), folder / "synthetic" / "rows.csv")
    manifest["synthetic"] = synthetic_facts(bundle.job, bundle.views.published.quality_of(table))


def test_forged_rows_are_not_the_published_cells(sample, tmp_path):
    records = np.tile(sample.synthetic.records[:1], (800, 1))
    verification = changed(sample, tmp_path, lambda f, m: forged(f, m, sample, records))
    assert "not the published cells" in check_text(verification, "made-up rows")
    assert not verification.ok


def test_forged_rows_of_a_game_are_too_far_from_it(game, tmp_path):
    bundle = game[1]
    records = np.tile(bundle.synthetic.records[:1], (800, 1))
    verification = changed(bundle, tmp_path, lambda f, m: forged(f, m, bundle, records))
    assert not verification.ok
    assert "stay within" in check_text(verification, "made-up rows")


def test_a_game_is_released_retraced_and_paid_once(game):
    place, bundle = game
    ledger = ps.Ledger.open(place.parent / "people.ledger")
    assert bundle.method.name == "DualQuery"
    assert [request.question.kind for request in bundle.requests] == ["count"] + 11 * ["draw"]
    assert bundle.requests[0].price("rho") == ps.rho("1/10")
    assert ps.rho("0.999999") < ledger.spent() <= ps.rho("1")
    verification = ps.verify(bundle.path, ledger=ledger)
    assert verification.ok, verification
    assert "in all 12 requests, to the letter" in check_text(verification, "plan")
    assert "800 made-up rows add up to every table" in check_text(verification, "published view")
    assert "to the letter" in check_text(verification, "made-up rows")
    for published, counted in table_counts(bundle, bundle.synthetic.to_arrow()):
        assert published == counted
    spent = ledger.spent()
    shutil.rmtree(bundle.path)
    again = ps.release(place)
    assert ledger.spent() == spent
    assert again.synthetic.records.tolist() == bundle.synthetic.records.tolist()


def test_a_drawn_number_that_was_changed_is_found(game, tmp_path):
    def change(folder, manifest):
        place = folder / "requests" / "3" / "measurements.parquet"
        numbers = pq.read_table(place)["value"].to_numpy().copy()
        numbers[0] += 1
        pq.write_table(pa.table({"value": numbers}), place)

    verification = changed(game[1], tmp_path, change)
    failed = [check.name for check in verification.checks if not check.ok]
    assert "receipt" in failed


def test_a_record_that_was_changed_was_not_paid_for(game, tmp_path):
    """The draw that it decided was charged under another name."""
    from psephos.kernel import gate

    def change(folder, manifest):
        place = folder / "requests" / "3" / "question.bin"
        question = list(gate.from_bytes(place.read_bytes()))
        question[2] = (question[2] + 1) % np.array([2, 6, 3, 2], dtype=np.int32)
        place.write_bytes(gate.to_bytes(tuple(question)))

    verification = changed(game[1], tmp_path, change)
    assert not verification.ok
    texts = " ".join(check.text for check in verification.checks if not check.ok)
    assert "paid for another query" in texts


KILLED = """
import os, signal, sys
import psephos as ps
from psephos.kernel.protected import ProtectedVector
draw, left = ProtectedVector.draw_queries, [int(sys.argv[2])]
def counted(self, *args, **more):
    result = draw(self, *args, **more)
    left[0] -= "release households" in str(more.get("key"))
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
ProtectedVector.draw_queries = counted
ps.release(sys.argv[1])
"""


@pytest.mark.slow
def test_killed_between_rounds_it_goes_on_with_the_same_records(game, tmp_path):
    text = (game[0]).read_text()
    place = ready(tmp_path / "job", text=text)
    for steps in (1, 4):
        words = [sys.executable, "-c", KILLED, str(place), str(steps)]
        assert subprocess.run(words, capture_output=True).returncode == -9
    ledger = ps.Ledger.open(place.parent / "people.ledger")
    paid = ledger.history()
    # Values are counted first; the second run replays a round, and is killed after its fourth.
    assert len(paid) == 5
    bundle = ps.release(place)
    assert ledger.history()[:5] == paid
    assert len(ledger.history()) == 12
    verification = ps.verify(bundle.path, ledger=ledger)
    assert verification.ok, verification


def test_rows_are_made_up_from_any_bundle_for_free(sample, tmp_path):
    ledger = ps.Ledger.open(sample.path.parent / "people.ledger")
    spent = ledger.spent()
    few = rows_of_bundle(sample, 100)
    assert few.table.rows == 100
    assert rows_of_bundle(sample).table.rows == 800
    place = tmp_path / "few.csv"
    words = ["synthesize", str(sample.path), "--rows", "100", "--output", str(place), "--json"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.output)["rows"] == 100
    assert pa.csv.read_csv(place).num_rows == 100
    assert ledger.spent() == spent
    shown = CliRunner().invoke(app, ["synthesize", str(sample.path), "--output", str(place)])
    assert "distance from the published numbers" in shown.output
    wrong = CliRunner().invoke(app, ["synthesize", str(sample.path), "--output", "rows.txt"])
    assert wrong.exit_code != 0
    assert "neither .csv nor .parquet" in wrong.output


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            'method = "sampling"',
            "'auto', 'sample', 'adaptive', 'privbayes', 'mwem' or 'dual_query'",
        ),
        ("rows = 0", "greater than or equal to 1"),
        ("rounds = 3", "synthetic.rounds is not known"),
        ('method = "mwem"\n[method]\nname = "DAWA"', "each name a plan; leave one of them out"),
        ('[output]\nviews = ["consistent"]', "made up from the published view"),
        ('method = "mwem"\nqueries = 9', "alone plays with queries, and the method is 'mwem'"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, lines, words):
    text = FILE.replace('method = "METHOD"', lines)
    with pytest.raises(ps.ReleaseError) as error:
        Job.read(write_job(tmp_path / "job", text, persons()))
    assert words in str(error.value)


WITHOUT_TOTAL = FILE.replace("total = 800\n", "")
IN_EPSILON = FILE.replace('rho = "8"', 'epsilon = "8"').replace('rho = "1"', 'epsilon = "1"')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WITHOUT_TOTAL, "write total = 48842 at the top of the file"),
        (IN_EPSILON, "is paid in rho, and a ledger keeps its currency for life"),
    ],
)
def test_what_a_ledger_could_never_pay_is_said_before_there_is_one(tmp_path, text, words):
    with pytest.raises(ps.ReleaseError) as error:
        Job.read(write_job(tmp_path / "job", text.replace("METHOD", "dual_query"), persons()))
    assert words in str(error.value)


def test_a_game_by_its_plans_name_needs_the_same(tmp_path):
    named = '[synthetic]\nmethod = "auto"\n[method]\nname = "DualQuery"\n'
    section = '[synthetic]\nmethod = "METHOD"\n'
    place = ready(tmp_path / "one", text=WITHOUT_TOTAL.replace(section, named))
    with pytest.raises(ps.ReleaseError, match="number of rows, declared as public"):
        ps.release(place)
    place = ready(tmp_path / "two", text=IN_EPSILON.replace(section, named))
    with pytest.raises(ps.ReleaseError, match="DualQuery is paid in rho"):
        ps.release(place)
    for folder in ("one", "two"):
        assert not ps.Ledger.open(tmp_path / folder / "people.ledger").history()


def test_auto_decides_by_public_facts(tmp_path):
    few = Job.read(write_job(tmp_path / "few", FILE.replace("METHOD", "auto"), persons()))
    assert few.synthetic_choice.method == "sample"
    assert "fit in memory" in few.synthetic_choice.reason
    more = "".join(f"[schema.x{i}]\nintegers = [0, 9]\n\n" for i in range(12))
    text = FILE.replace("METHOD", "auto").replace("[[tables]]", more + "[[tables]]")
    many = Job.read(write_job(tmp_path / "many", text, persons()))
    assert many.synthetic_choice.method == "adaptive"
    assert many.method.name == "AdaptiveMarginals"


@pytest.mark.slow
def test_rows_over_cells_that_fit_in_no_memory(tmp_path):
    """Seven attributes of ten values beside the others: 7·10⁸ cells, by a model of tables."""
    rng = default_rng(0)
    more = "".join(f"[schema.x{i}]\nintegers = [0, 9]\n\n" for i in range(7))
    text = FILE.replace("METHOD", "auto").replace("[[tables]]", more + "[[tables]]")
    text = text.replace('strategy = "identity"', 'strategy = "hdmm"')
    plan = '[method]\nname = "AdaptiveMarginals"\noptions = { rounds = 3 }\n\n[synthetic]'
    text = text.replace("[synthetic]", plan)
    head, *rows = persons().splitlines()
    names = ",".join(f"x{i}" for i in range(7))
    lines = [f"{row},{','.join(map(str, np.cumsum(rng.integers(0, 2, 7)) % 10))}" for row in rows]
    place = write_job(tmp_path / "job", text, f"{head},{names}\n" + "\n".join(lines) + "\n")
    job = Job.read(place)
    create_ledger(job)
    assert check_release(job).ok
    bundle = ps.release(place)
    assert bundle.synthetic.rows == 800
    verification = ps.verify(bundle.path)
    assert verification.ok, verification
    again = ps.ask(bundle, "SELECT x1, COUNT(*) FROM people GROUP BY x1")
    assert again.table.num_rows == 10
