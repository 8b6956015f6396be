"""Only what is asked is measured: the same answers from fewer cells, and later questions."""

import shutil

import numpy as np
import pytest

import psephos as ps
from psephos.errors import PsephosError, ReleaseError, UnsupportedError
from psephos.infer.entropy import maximum_entropy
from psephos.infer.least_squares import least_squares
from psephos.infer.multiplicative_weights import multiplicative_weights
from psephos.infer.nonnegative import nonnegative
from psephos.matrix import Partition
from psephos.release.bundle.bundle import Bundle
from psephos.release.methods.measured import Measured
from psephos.release.preflight.checks import check_release, create_ledger, open_ledger
from psephos.release.preflight.forecast import forecast_measured
from psephos.release.run import release
from psephos.release.spec.asked_cells import ASKED_FILE, AskedCells
from psephos.release.spec.job import Job
from psephos.release.synthesize import rows_of_bundle
from psephos.release.verify.verify import verify
from psephos.release.views import published
from psephos.workload.reduction import asked_groups, coarse_products
from tests.release.conftest import RELEASE, people, write_job

MORE_COLUMNS = """
[schema.born]
dates = ["1924-01-01", "2024-12-31"]
levels = { year = "year", month = "month" }

[schema.income]
bins = { first = 0, last = 400000, width = 1000, open = false }
missing = "not stated"
"""
WIDE = RELEASE.replace("[[tables]]", MORE_COLUMNS + "\n[[tables]]", 1)
ASKED = WIDE.replace(
    "[selection]",
    """[[tables]]
name = "rich"
sql = "SELECT COUNT(*) FROM people WHERE income >= 200000 OR income IS NULL"

[[tables]]
name = "years"
rows = ["born.year"]

[selection]""",
)


def wide_people(rows=600):
    lines = people(rows).splitlines()
    more = [
        f"{line},{1930 + i % 90}-05-{1 + i % 28:02},{i * 700 % 400_000}"
        for i, line in enumerate(lines[1:])
    ]
    return "\n".join([f"{lines[0]},born,income", *more]) + "\n"


def ready(folder, text=RELEASE, data=None):
    """A release file with a ledger, whose schema was compared with the data."""
    place = write_job(folder, text, data)
    create_ledger(Job.read(place))
    assert check_release(Job.read(place)).ok
    return place


def job_of(folder, text):
    return Job.read(write_job(folder, text, data=wide_people()))


def whole_counts(job, generator):
    return generator.integers(0, 9, job.questions.domain.shape)


def over(cells, x):
    """Counts of declared cells, added up in cells."""
    for axis, name in reversed(list(enumerate(cells.declared.names))):
        if name in cells.groups:
            x = np.moveaxis(
                np.apply_along_axis(Partition(cells.groups[name]).matvec, axis, x), 0, 0
            )
        else:
            x = x.sum(axis=axis)
    return x


def test_columns_that_nobody_asks_about_cost_nothing(tmp_path):
    plain, wide = job_of(tmp_path / "a", RELEASE), job_of(tmp_path / "b", WIDE)
    assert wide.domain.size > 10**9
    assert wide.workload.domain == plain.workload.domain
    assert wide.workload.domain.shape == (3, 4)
    assert forecast_measured(wide).strategy.query == forecast_measured(plain).strategy.query


@pytest.mark.parametrize(
    "entry",
    [
        'rows = ["age.broad"]\ncolumns = ["pet"]',
        'queries = { age = "prefix", pet = "identity" }',
        'rows = ["age.*"]\ntotals = true',
        "sql = \"SELECT COUNT(*) FROM t WHERE age IN (1, 2, 17) AND pet <> 'cat'\"",
        'sql = "SELECT pet, COUNT(*) FROM t WHERE age < 3 OR age > 15 GROUP BY pet"',
        "sql = \"SELECT COUNT(*) FROM t WHERE age < 3 OR pet = 'cat'\"",
        "sql = \"SELECT SUM(age) FROM t WHERE pet = 'dog'\"",
        'sql = "SELECT pet, AVG(age) FROM t GROUP BY pet"',
        "sql = \"SELECT AVG(age) FROM t WHERE pet IN ('cat', 'dog')\"",
        'queries = { age = "width_range(15)" }',
        'sql = "SELECT COUNT(*) FROM t"',
        'builder = "marginals"\nup_to = 2',
    ],
)
def test_cells_answer_as_declared_values_do(entry, tmp_path):
    text = RELEASE[: RELEASE.index("[[tables]]")] + f'[[tables]]\nname = "t"\n{entry}\n'
    job = job_of(tmp_path / "job", text)
    x = whole_counts(job, np.random.default_rng(0))
    np.testing.assert_allclose(
        job.workload.answer(over(job.cells, x)), job.questions.answer(x), rtol=1e-12
    )
    assert [job.workload.label(i) for i in range(job.workload.shape[0])] == [
        job.questions.label(i) for i in range(job.questions.shape[0])
    ]
    possible = np.ones(job.questions.domain.shape, dtype=np.int64)
    empty = job.whole.zeros.reshape(job.questions.domain.shape)
    sizes = over(job.cells, possible).ravel()
    np.testing.assert_array_equal(over(job.cells, empty.astype(int)).ravel(), job.zeros * sizes)


@pytest.mark.slow
def test_a_release_over_cells_verifies_and_says_so_if_they_are_forged(tmp_path):
    folder = ready(tmp_path / "job", ASKED, wide_people())
    bundle = release(folder)
    ledger = open_ledger(Job.read(folder))
    assert verify(bundle.path, ledger=ledger).ok
    place = bundle.path / "requests" / "1" / ASKED_FILE
    assert AskedCells.read(place, bundle.job.questions.domain).domain == bundle.job.workload.domain
    years = bundle.table("years", "published").to_pandas()
    assert years["born"].tolist()[:2] == ["1924", "1925"]
    held = place.read_bytes()
    for forged in (b"", held[:-1], held.replace(b"age", b"agf")):
        place.write_bytes(forged)
        with pytest.raises(PsephosError, match="damaged"):
            Bundle.open(bundle.path).requests  # noqa: B018 - reading it is what fails
    place.unlink()
    assert not verify(bundle.path).ok


@pytest.mark.slow
def test_finer_questions_say_what_would_have_told_them(tmp_path):
    folder = ready(tmp_path / "job", ASKED, wide_people())
    bundle = release(folder)
    assert ps.ask(bundle, "SELECT COUNT(*) FROM t WHERE age < 12").table.num_rows == 1
    with pytest.raises(UnsupportedError, match="age was measured by broad and not finer") as finer:
        ps.ask(bundle, "SELECT COUNT(*) FROM t WHERE age < 3")
    assert 'ask_later = ["age"]' in str(finer.value)
    with pytest.raises(UnsupportedError, match=r'ask_later = \["age"\] in'):
        ps.ask(bundle, "SELECT COUNT(*) FROM t WHERE age < 3 OR pet = 'cat'")  # pet is measured
    model = ps.ask(bundle, "SELECT COUNT(*) FROM t WHERE age < 3", model=True)
    six = ps.ask(bundle, "SELECT COUNT(*) FROM t WHERE age < 6", model=True)
    halves = [reply.table["count"][0].as_py() for reply in (model, six)]
    assert halves[0] == pytest.approx(halves[1] / 2)
    either = ps.ask(bundle, "SELECT COUNT(*) FROM t WHERE age < 3 OR pet = 'cat'", model=True)
    assert either.table["count"][0].as_py() > halves[0]
    mean = ps.ask(bundle, "SELECT pet, AVG(age) FROM t GROUP BY pet", model=True)
    assert mean.table.num_rows == 4
    cells, rows = bundle.job.cells, rows_of_bundle(bundle).table
    assert rows.domain == cells.declared
    coarse = np.ravel_multi_index(cells.records(rows.records).T, cells.domain.shape)
    counts = np.bincount(coarse, minlength=cells.domain.size)
    np.testing.assert_array_equal(counts, bundle.views.published.cells)
    assert len(np.unique(rows.records[:, 0])) > cells.domain["age"].size


@pytest.mark.slow
def test_a_model_of_groups_shares_the_rows_of_a_cell_out(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "VECTOR_CELLS", 100)
    bundle = release(ready(tmp_path / "job", ASKED, wide_people()))
    assert bundle.views.groups is not None

    def model(condition):
        reply = ps.ask(bundle, f"SELECT COUNT(*) FROM t WHERE {condition}", model=True)
        return reply.table["count"][0].as_py()

    assert model("age < 3") == pytest.approx(model("age < 6") / 2)
    assert model("born >= DATE '2024-01-01'") > 0
    assert model("income >= 100000 AND income < 200000") == pytest.approx(
        model("income < 200000") / 2
    )


def test_attributes_under_ask_later_are_measured_value_by_value(tmp_path):
    text = ASKED.replace('source = "people.csv"', 'source = "people.csv"\nask_later = ["age"]')
    job = job_of(tmp_path / "job", text)
    assert job.workload.domain["age"].size == 20
    assert job.key != job_of(tmp_path / "other", ASKED).key
    wrong = text.replace('ask_later = ["age"]', 'ask_later = ["agee"]')
    with pytest.raises(ReleaseError, match="ask_later: no attribute 'agee'"):
        job_of(tmp_path / "wrong", wrong)


def test_what_was_paid_over_all_cells_is_written_without_a_second_charge(tmp_path, monkeypatch):
    """An earlier version measured declared cells, and was cut short before the bundle."""
    place = ready(tmp_path / "job")
    job = Job.read(place)
    with monkeypatch.context() as patch:
        patch.setattr(Job, "read", classmethod(lambda cls, path: job.whole))
        patch.setattr(Measured, "write", lambda *_: None)
        release(place)
    paid = open_ledger(job).spent()
    assert job.whole.key == job.key
    bundle = release(place)
    assert bundle.job.cells.is_whole
    assert verify(bundle.path, ledger=open_ledger(job)).ok
    assert open_ledger(job).spent() == paid
    shutil.rmtree(bundle.path)
    shutil.rmtree(place.parent / ".psephos")
    assert release(place, unchecked=True).job.cells.is_whole  # the ledger says what was counted
    assert open_ledger(job).spent() == paid


def test_releases_build_on_coarser_cells(tmp_path):
    first = release(ready(tmp_path / "job"))
    text = RELEASE.replace('name = "pets"\ntitle', 'name = "ages"\nbuilds_on = ["bundle"]\ntitle')
    text = (
        text.replace('rows = ["age.broad"]', 'rows = ["age"]') + '\n[output]\nbundle = "second"\n'
    )
    second = release(write_job(tmp_path / "job", text), unchecked=True)
    assert not second.job.past[0].question.cells.is_whole
    assert second.job.cells.is_whole
    assert verify(second.path).ok
    assert verify(first.path).ok


MORE = (
    ASKED.replace('name = "pets"\ntitle', 'name = "more"\nbuilds_on = ["bundle"]\ntitle')
    .replace('rows = ["age.broad"]', 'rows = ["age"]')
    .replace('rows = ["born.year"]', 'rows = ["pet"]')
    + '\n[output]\nbundle = "second"\n'
)
ALONE = MORE.replace('builds_on = ["bundle"]\n', "")


@pytest.mark.slow
def test_cells_of_past_and_present_are_joined_and_nothing_is_paid_twice(tmp_path):
    def write(text):
        return write_job(tmp_path / "job", text, wide_people())

    first = release(ready(tmp_path / "job", ASKED, wide_people()))
    assert first.job.workload.domain.shape == (3, 4, 101, 3)
    second = release(write(MORE), unchecked=True)
    job = second.job
    assert job.workload.domain.shape == (20, 4, 101, 3)
    assert job.past[0].question.cells.domain == first.job.workload.domain
    ledger = open_ledger(Job.read(tmp_path / "job"))
    assert verify(second.path, ledger=ledger).ok
    assert ps.price(first, "SELECT COUNT(*) FROM t WHERE age < 3", 9).budget.amount
    paid = ledger.spent()
    shutil.rmtree(second.path)
    alone = release(write(ALONE), unchecked=True)  # over the cells that were counted
    assert alone.job.workload.domain == job.workload.domain
    assert verify(alone.path).ok
    shutil.rmtree(alone.path)
    assert release(write(MORE), unchecked=True).job.past
    assert ledger.spent() == paid
    other = [
        text.replace('"more"', '"other"').replace('"second"', '"other"') for text in (ALONE, MORE)
    ]
    shutil.rmtree(release(write(other[0]), unchecked=True).path)
    paid = ledger.spent()
    with pytest.raises(ReleaseError, match="leave builds_on out"):
        release(write(other[1]), unchecked=True)
    assert ledger.spent() == paid


def test_a_measurement_of_coarse_cells_is_one_of_finer_ones():
    declared = ps.Domain.of(a=6, b=4, c=3)
    first = AskedCells(declared, {"a": np.array([0, 0, 0, 1, 1, 1])})
    second = AskedCells(declared, {"a": np.array([0, 0, 1, 1, 2, 2]), "c": np.array([0, 1, 1])})
    joined = first.joined([second])
    assert joined.domain.shape == (4, 2)
    assert joined.refines(first)
    assert joined.refines(second)
    assert not second.refines(first)
    counts = np.arange(72)
    unit, spend = ps.add_remove_row(), ps.rho(10**9)
    data = ps.simulate(counts, declared, unit=unit, budget=spend, seed=0)
    some = first.of(data).vectorise().measure(ps.matrix.Identity(2), spend=ps.rho(10**8))
    lifted = first.lifted(some, joined)
    assert lifted.lineage == joined.lineage("")
    x = over(joined, counts.reshape(6, 4, 3)).ravel()
    np.testing.assert_array_equal(lifted.query.blocks[0].matrix @ x, some.values)


def test_a_stand_in_is_summed(tmp_path):
    text = RELEASE.replace('source = "people.csv"', 'source = "people.csv"\nstand_in = "old.csv"')
    place = write_job(tmp_path / "job", text + '\n[output]\nprior = "stand_in"\n')
    (place.parent / "old.csv").write_text(people(900, seed=5))
    job = Job.read(place)
    assert job.prior.shape == (12,)
    x = job.whole.prior.reshape(job.questions.domain.shape)
    np.testing.assert_array_equal(job.prior, over(job.cells, x).ravel())


def random_questions(generator):
    """Questions over declared values, the same over asked cells, these, and where no row can be."""
    shape = generator.integers(3, 9, 3)
    names = [tuple(f"v{i}" for i in range(n)) for n in shape]
    declared = ps.Domain(tuple("abc"), tuple(ps.Attribute(each) for each in names))
    products = []
    for _ in range(generator.integers(1, 4)):
        items = {}
        for name, n in zip("abc", shape, strict=True):
            masks = ps.masks(generator.integers(0, 2, (2, n)))
            _, groups = np.unique(generator.integers(0, 3, n), return_inverse=True)
            choices = [
                ps.total(),
                masks,
                ps.stacked(ps.total(), masks),
                ps.groups(groups, [f"g{g}" for g in range(groups.max() + 1)]),
            ]
            items[name] = choices[generator.integers(len(choices))]
        products.append(ps.product(**items))
    questions = ps.Workload(declared, products)
    empty = [generator.integers(0, 2, n) for n in shape[:2]]
    zeros = np.broadcast_to((empty[0][:, None] * empty[1] > 0)[:, :, None], shape)
    conditions = {"a": [empty[0]], "b": [empty[1]]}
    groups = asked_groups(declared, questions.products, questions.factor, conditions, ())
    cells = AskedCells(declared, groups)
    products = coarse_products(declared, questions.products, groups, questions.factor)
    return questions, ps.Workload(cells.domain, products), cells, zeros


@pytest.mark.parametrize("seed", range(5))
def test_estimates_of_asked_cells_are_those_of_declared_cells_added_up(seed):
    """Every asked cell stands for as many declared cells as rows can lie in."""
    generator = np.random.default_rng(seed)
    questions, asked, cells, zeros = random_questions(generator)
    x = np.where(zeros, 0, generator.integers(0, 30, zeros.shape))
    y, total = over(cells, x).ravel(), float(x.sum())
    data = ps.simulate(y, cells.domain, unit=ps.add_remove_row(), budget=ps.rho(1), seed=seed)
    coarse = data.vectorise().measure(asked.query, spend=ps.rho("0.05"))
    estimates = [
        least_squares(m) for m in (coarse, cells.lifted(coarse, AskedCells.whole(cells.declared)))
    ]
    empty = over(cells, zeros.astype(int)).ravel() > 0
    sizes = cells.sizes_of(cells.domain)

    def agree(made, made_declared):
        wide = over(cells, made_declared.vector.reshape(zeros.shape)).ravel()
        np.testing.assert_allclose(made.vector, wide, atol=1e-6)

    known = (
        {"zeros": empty, "total": total, "sizes": sizes},
        {"zeros": zeros.ravel(), "total": total},
    )
    for extra in ({}, {"steps": 3}):
        pairs = zip(estimates, (asked, questions), known, strict=True)
        agree(*(maximum_entropy(e, w, **limits, **extra) for e, w, limits in pairs))
    priors = [{**limits, "prior": p} for limits, p in zip(known, (y, x.ravel()), strict=True)]
    pairs = zip(estimates, (asked, questions), priors, strict=True)
    agree(*(maximum_entropy(e, w, **limits) for e, w, limits in pairs))
    agree(*(nonnegative(e, **limits) for e, limits in zip(estimates, known, strict=True)))
    start, wide = np.where(empty, 0, counts_of(sizes)), np.where(zeros, 0.0, 1.0).ravel()
    agree(
        multiplicative_weights(coarse, total=total, passes=3, start=start),
        multiplicative_weights(
            cells.lifted(coarse, AskedCells.whole(cells.declared)),
            total=total,
            passes=3,
            start=wide,
        ),
    )


def counts_of(sizes):
    cells = np.ones(1)
    for each in sizes:
        cells = np.multiply.outer(cells, each).ravel()
    return cells


def test_sizes_are_one_number_for_each_value():
    domain = ps.Domain.of(a=2, b=2)
    data = ps.simulate(np.ones(4, int), domain, unit=ps.add_remove_row(), budget=ps.rho(1), seed=0)
    W = ps.marginals(domain, k=1)
    estimate = least_squares(data.vectorise().measure(W.query, spend=ps.rho(1)))
    for wrong in ([np.ones(2)], [np.ones(2), np.ones(3)], [np.ones(2), np.zeros(2)]):
        with pytest.raises(ps.ShapeError, match="sizes are numbers from 1"):
            maximum_entropy(estimate, W, sizes=wrong)
