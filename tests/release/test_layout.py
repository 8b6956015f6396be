"""Tables as people read them: every number once, totals last, headings as they were asked for."""

from itertools import combinations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.release.spec.entries import ReleaseFile, TableEntry
from psephos.release.spec.job import Job
from psephos.release.spec.tables import Layout, Table, compile_tables
from psephos.release.views.labels import marked, table_labels
from psephos.release.views.layout import cross_tables, lay_out
from psephos.report.cross_table import NOWHERE, HeadingAxis, laid_out
from psephos.workload.census import sf1
from psephos.workload.sql import compile_sql
from psephos.workload.workload import Workload

REGIONS = {"North": ["n1", "n2"], "South": ["s1", "s2", "s3"]}
DISTRICTS = [name for names in REGIONS.values() for name in names]
SCHEMA = {
    "district": {"values": DISTRICTS, "title": "District", "levels": {"region": REGIONS}},
    "age": {"integers": [0, 29], "title": "Age", "levels": {"ten": 10}},
    "sex": {"values": ["female", "male"]},
    "income": {"bins": [0, 10, 50, 100]},
}


def release_file(*tables):
    content = {
        "name": "trial",
        "privacy": {"unit": "add_remove_row"},
        "ledger": {"path": "-", "dataset": "trial", "epsilon": "9"},
        "budget": {"epsilon": "1"},
        "schema": SCHEMA,
        "tables": [{"name": f"t{i}", **table} for i, table in enumerate(tables)],
    }
    return ReleaseFile.model_validate(content)


def laid(*tables, folder="."):
    """The numbers of every table are 0, 1, 2 …, so that it shows where each went."""
    job = Job.alone(release_file(*tables), folder)
    return [each for table in job.tables for each in cross_tables(job, table, data_of(job, table))]


def data_of(job, table):
    rows = table.rows(job.workload)
    count = np.arange(rows.stop - rows.start)
    numbers = {"count": count, "stderr": count + 1.0, "low": count - 2.5, "high": count + 2.5}
    return marked(table_labels(job.workload, table), numbers, simulation=False)


def titles(edge):
    return [axis.title for axis in edge.axes]


@st.composite
def entries(draw):
    """A table in one of the ways that a file can ask for it."""
    way = draw(st.sampled_from(["rows", "queries", "builder", "sql"]))
    names = draw(st.lists(st.sampled_from(list(SCHEMA)), min_size=1, max_size=3, unique=True))
    if way == "builder":
        return {"builder": "marginals", "attributes": names, "up_to": min(2, len(names))}
    if way == "queries":
        sets = {
            "district": ["identity", "level(region)", "identity_total"],
            "age": ["prefix", "width_range(5)", "level(ten)", "identity_total"],
            "sex": ["identity", "total", "identity_total"],
            "income": ["prefix", "identity", "all_range"],
        }
        return {"queries": {name: draw(st.sampled_from(sets[name])) for name in names}}
    if way == "sql":
        by = ", ".join(names)
        kind = draw(st.sampled_from([by, f"CUBE ({by})", f"ROLLUP ({by})"]))
        where = draw(st.sampled_from(["", "WHERE age < 12", "WHERE sex = 'female' OR age > 20"]))
        return {"sql": f"SELECT COUNT(*) FROM t {where} GROUP BY {kind}"}
    levels = {"district": ["", ".region", ".*"], "age": ["", ".ten", ".*"]}
    texts = [name + draw(st.sampled_from(levels.get(name, [""]))) for name in names]
    cut = draw(st.integers(0, len(texts)))
    return {"rows": texts[:cut], "columns": texts[cut:], "totals": draw(st.booleans())}


@given(entry=entries())
def test_every_number_stands_at_one_place(entry):
    job = Job.alone(release_file(entry), ".")
    (table,) = job.tables
    data = data_of(job, table)
    tables = cross_tables(job, table, data)
    places = [each.places[each.places != NOWHERE] for each in tables]
    for each, some in zip(tables, places, strict=True):
        assert sorted(some) == list(range(each.numbers.num_rows))
    numbers = np.concatenate([each.values[~np.isnan(each.values)] for each in tables])
    assert sorted(numbers) == data["count"].to_pylist()
    assert len({each.name for each in tables}) == len(tables)


@given(entry=entries())
def test_labels_beside_a_number_are_its_own(entry):
    for each in laid(entry):
        for i, j in np.argwhere(each.places != NOWHERE)[:200]:
            row = each.numbers.slice(int(each.places[i, j]), 1).to_pylist()[0]
            words = [*each.rows.words(i), *each.columns.words(j)]
            assert words == [row[axis.column] for axis in each.axes]


@given(entry=entries())
def test_totals_come_last(entry):
    for each in laid(entry):
        for axis in each.axes:
            marks = list(axis.totals)
            assert marks == sorted(marks)
            assert [label.strip("()") == "total" for label in axis.labels] == marks
        for edge in (each.rows, each.columns):
            assert [tuple(c) for c in edge.codes] == sorted({tuple(c) for c in edge.codes})


@given(entry=entries())
def test_margins_cover_intervals(entry):
    for each in laid(entry):
        low, high = each.grid("low"), each.grid("high")
        filled = each.places != NOWHERE
        assert (each.values - each.margins <= low + 1e-9)[filled].all()
        assert (each.values + each.margins >= high - 1e-9)[filled].all()


def test_rows_and_columns_are_where_the_file_has_them():
    (table,) = laid({"rows": ["sex"], "columns": ["district.region", "age.ten"]})
    assert titles(table.rows) == ["sex"]
    assert titles(table.columns) == ["region", "Age (ten)"]
    assert table.columns.words(0) == ("North", "0–9")
    assert table.columns.words(11) == ("total", "total")
    assert table.rows.words(2) == ("total",)
    assert table.shape == (3, 12)
    spans = [(label, total, count) for label, total, _, count in table.columns.spans(0)]
    assert spans == [("North", False, 4), ("South", False, 4), ("total", True, 4)]


def test_breakdowns_are_the_outermost_rows():
    (table,) = laid({"rows": ["age.ten"], "columns": ["sex"], "breakdowns": ["district.region"]})
    assert titles(table.rows) == ["region", "Age (ten)"]
    assert titles(table.columns) == ["sex"]


def test_levels_stand_above_what_they_sum():
    (table,) = laid({"rows": ["district.*"]})
    words = [table.rows.words(i)[0] for i in range(len(table.rows))]
    assert words == ["North", "n1", "n2", "South", "s1", "s2", "s3", "total"]
    assert [table.rows.depth(i) for i in range(len(words))] == [0, 1, 1, 0, 1, 1, 1, 0]
    assert titles(table.rows) == ["District"]
    assert table.rows.totals.tolist() == [False] * 7 + [True]


def test_keys_stay_in_the_order_of_group_by():
    sql = "SELECT sex, age, COUNT(*) FROM t GROUP BY sex, age"
    (table,) = laid({"sql": sql})
    assert (titles(table.rows), titles(table.columns)) == (["Age"], ["sex"])
    sql = "SELECT COUNT(*) FROM t GROUP BY sex, district.region"
    (table,) = laid({"sql": sql.replace("district.region", "region")})
    assert (titles(table.rows), titles(table.columns)) == (["sex"], ["region"])


def test_an_expression_is_called_by_its_alias():
    sql = "SELECT CASE WHEN age < 10 THEN 'child' ELSE 'other' END AS who, COUNT(*) FROM t "
    (table,) = laid({"sql": f"{sql} GROUP BY who, sex"})
    assert (titles(table.rows), titles(table.columns)) == (["who"], ["sex"])


def test_a_cube_is_one_table_with_totals():
    (table,) = laid({"sql": "SELECT COUNT(*) FROM t GROUP BY CUBE (district, sex)"})
    assert table.shape == (6, 3)
    assert not (table.places == NOWHERE).any()
    assert table.totals[-1].all()
    assert table.totals[:, -1].all()
    assert not table.totals[:-1, :-1].any()


def test_what_is_the_same_for_all_numbers_is_no_heading():
    (table,) = laid({"sql": "SELECT COUNT(*) FROM t WHERE age < 12 GROUP BY sex"})
    assert titles(table.rows) == ["sex"]
    assert table.fixed == (("Age", "age < 12"),)


def test_each_part_of_a_builder_is_a_table():
    tables = laid({"builder": "marginals", "k": 2, "title": "Pairs"})
    assert len(tables) == 6
    pairs = [f"t0 {a} × {b}" for a, b in combinations(SCHEMA, 2)]
    assert [each.name for each in tables] == pairs
    assert tables[0].title == "Pairs: District × Age"
    assert tables[1].part == "District × sex"
    assert "part" not in tables[0].numbers.column_names


def test_a_distribution_function_runs_down():
    (table,) = laid({"queries": {"sex": "identity", "income": "prefix"}})
    assert (titles(table.rows), titles(table.columns)) == (["income"], ["sex"])
    assert table.rows.axes[0].cumulative
    assert table.rows.axes[0].labels == ("below 10", "below 50", "below 100")


def test_widths_of_bins_and_groups_are_known():
    (table,) = laid({"rows": ["income"]})
    assert table.rows.axes[0].widths[:3] == (10, 40, 50)
    (table,) = laid({"rows": ["age.ten"]})
    assert table.rows.axes[0].widths[:3] == (10, 10, 10)
    (table,) = laid({"rows": ["sex"]})
    assert table.rows.axes[0].widths is None


def test_the_first_lines_keep_their_totals():
    (table,) = laid({"rows": ["age"], "columns": ["sex"]})
    head = table.head(5, 1)
    assert [head.rows.words(i)[0] for i in range(6)] == ["0", "1", "2", "3", "4", "total"]
    assert [head.columns.words(j)[0] for j in range(2)] == ["female", "total"]
    assert head.values[-1, -1] == table.values[-1, -1]


def test_a_wide_table_has_a_column_for_each_heading():
    (table,) = laid({"rows": ["district.region"], "columns": ["sex"]})
    wide = table.wide()
    names = ["region", "female", "female ±", "male", "male ±", "total", "total ±"]
    assert wide.column_names == names
    assert wide["region"].to_pylist() == ["North", "South", "total"]
    assert wide["male"].to_pylist() == [1, 4, 7]
    assert wide["male ±"].to_pylist() == [3.0] * 3  # beside whole numbers it is whole, rounded up
    assert wide.schema.field("male").type == pa.int64()


def test_a_published_number_is_never_more_certain_than_its_interval_before_the_cut():
    """Least squares −30 ± 20 is published as 0 with the interval from 0 to 0."""
    numbers = {
        "sex": ["a", "b", "c"],
        "count": [0, 100, 3],
        "consistent": [-30.0, 95.0, 1.0],
        "stderr": [10.0, 10.0, 10.0],
        "low": [0.0, 75.0, 0.0],
        "high": [0.0, 115.0, 21.0],
    }
    domain = Domain.of({"sex": Attribute.categories(["a", "b", "c"])})
    entry = TableEntry.model_validate({"name": "t", "rows": ["sex"], "totals": False})
    workload, (table,) = compile_tables(domain, [entry])
    (laid_table,) = lay_out(workload, table, pa.table(numbers))
    assert laid_table.margins.ravel().tolist() == [20, 25, 20]


def test_sure_numbers_set_no_digits():
    numbers = {
        "sex": ["F", "M", "total"],
        "value": [37.908497, 62.091503, 100.0],
        "low": [32.9, 57.1, 99.999998],
        "high": [42.9288, 67.1, 100.0],
    }
    axis = HeadingAxis("sex", "Sex", ("F", "M", "total"), (False, False, True), (0, 0, 0))
    cross = laid_out("s", "s", pa.table(numbers), ([axis], []), value="value")
    texts = [" ".join(cross.texts(i, 0)).replace("\N{NO-BREAK SPACE}", " ") for i in range(3)]
    assert texts == ["37.9 ± 5.1", "62.1 ± 5.1", "100.0 ± 0"]
    margins = cross.wide().column(2).to_pylist()
    assert margins == [5.1, 5.1, 0.0]
    assert not np.signbit(margins[2])


def test_wide_tables_have_blanks_where_nothing_was_asked():
    (table,) = laid({"sql": "SELECT COUNT(*) FROM t GROUP BY GROUPING SETS ((district, sex), ())"})
    wide = table.wide()
    assert wide["total"].to_pylist() == [None] * 5 + [10]
    assert wide["female"].to_pylist()[-1] is None


def test_values_that_look_like_headings_are_kept_apart():
    """A value called "total", an attribute called "count", labels that repeat."""
    domain = Domain.of({"count": Attribute.categories(["total", "part"]), "sex": 2})
    content = {"name": "t", "rows": ["count"], "columns": ["sex"]}
    workload, (table,) = compile_tables(domain, [TableEntry.model_validate(content)])
    labels = table_labels(workload, table)
    data = pa.table({**labels, "count": np.arange(9)})
    (laid_table,) = lay_out(workload, table, data)
    axis = laid_table.rows.axes[0]
    assert (axis.column, axis.title) == ("count_", "count")
    assert axis.labels == ("total", "part", "(total)")
    assert axis.totals == (False, False, True)


def test_numbers_that_share_all_labels_are_told_apart():
    domain = Domain.of({"sex": 2})
    sql = ["SELECT COUNT(*) FROM t WHERE sex = 0", "SELECT COUNT(*) FROM t WHERE sex = 0"]
    merged, products = compile_sql(domain, sql)
    workload = Workload(merged, products)
    table = Table("t", "t", range(len(products)))
    data = pa.table({**table_labels(workload, table), "count": [5, 6]})
    (laid_table,) = lay_out(workload, table, data)
    assert sorted(laid_table.values.ravel()) == [5, 6]


def test_sf1_has_one_table_for_each_name():
    workload = sf1()
    table = Table("sf1", "SF1", range(len(workload.products)), layout=Layout(split=True))
    labels = table_labels(workload, table)
    data = pa.table({**labels, "count": np.arange(workload.shape[0])})
    tables = lay_out(workload, table, data)
    names = [each.name for each in tables]
    assert names[:4] == ["sf1 P1", "sf1 P3", "sf1 P4", "sf1 P5"]
    assert sum(each.numbers.num_rows for each in tables) == workload.shape[0]
    (p3,) = [each for each in tables if each.name == "sf1 P3"]
    assert p3.shape == (8, 1)
    assert p3.rows.words(7) == ("total",)
