"""The labels of tables: a column for each attribute, whatever other tables look at together."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from psephos.matrix import Compose, Dense, Identity, Kron, Partition, PIdentity
from psephos.release.run import rehearse, release
from psephos.release.spec.file import parse_release
from psephos.release.spec.job import Job
from psephos.release.verify.verify import verify
from psephos.release.views.labels import block_labels, row_multiplicity, row_words, table_labels
from psephos.release.views.layout import cross_tables
from psephos.report.table_charts import table_chart
from tests.release.conftest import RELEASE

SELECTION = RELEASE.index("[selection]")
EITHER = "pet = 'cat' OR age < 3"
SEX = '[schema.sex]\nvalues = ["F", "M"]\n'


def job_with(tables="", schema="", folder=Path()):
    """The small release with more tables, and with more attributes between age and pet."""
    text = RELEASE[:SELECTION] + tables + RELEASE[SELECTION:]
    return Job.of(parse_release(text.replace("[schema.pet]", schema + "[schema.pet]")), folder)


def sql(name, text):
    return f'[[tables]]\nname = "{name}"\nsql = "{text}"\n'


def labels(job):
    return {table.name: table_labels(job.workload, table) for table in job.tables}


def rows(columns):
    return sorted(zip(*columns.values(), strict=True))


def test_attributes_that_another_table_merges_keep_their_columns():
    more = '[[tables]]\nname = "both"\nrows = ["age"]\ncolumns = ["pet"]\ntotals = false\n'
    more += '[[tables]]\nname = "each"\nbuilder = "marginals"\nup_to = 1\n'
    alone = labels(job_with(more))
    job = job_with(more + sql("either", f"SELECT COUNT(*) FROM people WHERE {EITHER}"))
    assert job.workload.domain.names == ("age*pet",)
    merged = labels(job)
    assert merged.pop("either") == {"age*pet": [EITHER]}
    assert list(merged["pets"]) == ["age", "pet"]
    assert merged == alone
    for table in job.tables:
        count = table.rows(job.workload)
        for column in table_labels(job.workload, table).values():
            assert len(column) == count.stop - count.start


def test_columns_stand_in_the_order_of_the_schema():
    more = '[[tables]]\nname = "all"\nrows = ["pet", "sex"]\ncolumns = ["age.broad"]\n'
    alone = labels(job_with(more, SEX))
    text = f"SELECT sex, COUNT(*) FROM people WHERE {EITHER} GROUP BY sex"
    job = job_with(more + sql("either", text), SEX)
    merged = labels(job)
    assert job.workload.domain.names == ("age*pet", "sex")
    assert list(merged["all"]) == ["age", "sex", "pet"]
    assert list(merged["either"]) == ["age*pet", "sex"]
    assert rows(merged["all"]) == rows(alone["all"])


def test_labels_of_merged_attributes_belong_to_their_numbers():
    more = '[[tables]]\nname = "all"\nrows = ["pet"]\ncolumns = ["sex"]\n'
    job = job_with(more + sql("either", f"SELECT COUNT(*) FROM people WHERE {EITHER}"), SEX)
    (table,) = [table for table in job.tables if table.name == "all"]
    found = table_labels(job.workload, table)
    first = table.rows(job.workload).start
    for i, (sex, pet) in enumerate(zip(found["sex"], found["pet"], strict=True)):
        x = np.zeros(job.domain.shape)
        at_sex = slice(None) if sex == "total" else job.domain["sex"].labels.index(sex)
        at_pet = slice(None) if pet == "total" else job.domain["pet"].labels.index(pet)
        x[:, at_sex, at_pet] = 1
        assert job.workload.answer(x)[first + i] == x.sum()


def test_a_table_that_looks_at_attributes_together_has_one_column_for_them():
    text = f"SELECT pet, COUNT(*) FROM people WHERE {EITHER} GROUP BY CUBE (pet)"
    found = labels(job_with(sql("either", text)))["either"]
    assert list(found) == ["part", "age*pet"]
    assert found["age*pet"] == ["cat", "dog", "horse", "(other)", EITHER]


def test_measured_values_of_merged_attributes_have_their_columns():
    job = job_with(sql("either", f"SELECT COUNT(*) FROM people WHERE {EITHER}"))
    found = block_labels(Kron((Identity(80),)), job.workload.domain)
    assert list(found) == ["age", "pet"]
    assert (found["age"][5], found["pet"][5]) == ("1", "dog")


def test_a_release_whose_cells_were_renumbered_has_all_views(tmp_path):
    more = sql("either", f"SELECT COUNT(*) FROM people WHERE {EITHER}")
    more += '[[tables]]\nname = "sexes"\nrows = ["sex"]\n'
    job = job_with(more, SEX, tmp_path)
    assert job.workload.domain.names == ("age*pet", "sex")
    made = rehearse(job, rows=100_000)
    assert verify(made.path).ok
    views = made.views
    for table in job.tables:
        found = views.table(table, "published").to_pydict()
        assert np.abs(np.subtract(found["count"], found["consistent"])).max() < 100


def test_shifts_are_told_by_what_is_summed_over(release_path):
    bundle = release(release_path)
    views = bundle.views
    (pets, _) = bundle.job.tables
    shifts = views.shifts(pets)
    assert [s.by for s in shifts] == [("age", "pet"), ("age",), ("pet",), ()]
    cells, ages, kinds, total = shifts
    # Totals add up what they sum: the mean shift of all cells times their number is the total's.
    assert cells.mean * cells.numbers == pytest.approx(total.mean, abs=1e-6)
    assert ages.mean * ages.numbers == pytest.approx(total.mean, abs=1e-6)
    assert kinds.mean * kinds.numbers == pytest.approx(total.mean, abs=1e-6)
    said = bundle.manifest["tables"][0]["shifts"]
    assert [tuple(s["by"]) for s in said] == [s.by for s in shifts]


def test_rows_of_a_block_are_named():
    labels = ["a", "b", "c", "d"]
    p_identity = PIdentity(np.array([1, 1, 1, 5]), np.array([[1, 1, 0, 0], [1, 2, 3, 4]]))
    words = ["a", "b", "c", "5 × d", "a to b", "weighted sum 1"]
    assert row_words(p_identity, labels) == words
    halves = Partition(np.array([0, 0, 1, 1]))
    assert row_words(halves, labels) == ["a to b", "c to d"]
    assert row_words(Compose((Dense([[2, 0], [1, 1]]), halves)), labels) == ["2 × a to b", "total"]
    assert row_words(Partition(np.array([0, 1, 0, 1])), labels) == ["group 1", "group 2"]
    assert row_multiplicity(Kron((p_identity, Compose((Dense([[2, 0], [1, 1]]), halves))))) == 10


def test_a_value_called_total_is_no_total():
    """A table that sums over it, and one whose parts do not all ask about it."""
    odd = '[schema.sum]\nvalues = ["part", "total"]\n'
    more = '[[tables]]\nname = "sums"\nrows = ["sum"]\n'
    more += '[[tables]]\nname = "each"\nbuilder = "marginals"\nup_to = 1\n'
    found = labels(job_with(more, odd))
    assert found["sums"] == {"sum": ["part", "total", "(total)"]}
    assert found["each"]["sum"].count("total") == 1
    assert found["each"]["sum"].count("(total)") == len(found["each"]["sum"]) - 2
    assert "total" in found["each"]["pet"]
    chart = table_chart(pa.table({**found["sums"], "count": [1.0, 2.0, 3.0]}), "sums")
    assert re.findall("<title>(.*?)</title><rect", chart.svg) == ["part: 1", "total: 2"]


def test_published_distribution_functions_never_fall(tmp_path):
    """They are sums over ever more cells, none of which is below zero; consistent ones may fall."""
    more = '[[tables]]\nname = "cdf"\nqueries = { age = "prefix", pet = "identity" }\n'
    bundle = rehearse(job_with(more, folder=tmp_path), rows=30)
    (table,) = [each for each in bundle.job.tables if each.name == "cdf"]
    (cross,) = cross_tables(bundle.job, table, bundle.table("cdf", "published"))
    assert cross.rows.axes[0].cumulative
    assert (np.diff(cross.values, axis=0) >= 0).all()
