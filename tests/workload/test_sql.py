"""Compiled SQL answers as DuckDB does on rows; all else is refused at the right place."""

import datetime
import math
from functools import cache

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.errors import SqlError
from psephos.workload.queries import IdentityQueries, LevelQueries
from psephos.workload.sql import compile_sql
from psephos.workload.sql.columns import ColumnNames
from psephos.workload.sql.evaluator import Evaluator
from psephos.workload.workload import Workload

DOMAIN = Domain.of(
    {
        "sex": ["F", "M"],
        "age": Attribute.integers(0, 5).with_level("broad", [0, 2, 4]),
        "state": ["NY", "CA", None],
        "inc": Attribute.bins([0, 10, 20, math.inf]),
    }
)


# Counts so large and random that two different sets of cells never have the same sum.
X = np.random.default_rng(0).integers(1, 2**40, DOMAIN.shape)


def as_cells(merged):
    """The counts as the vector of a domain in which attributes were merged."""
    order = []
    for name, attribute in zip(merged.names, merged.attributes, strict=True):
        parts = [part for part, _ in attribute.parts] or [name]
        order += [DOMAIN.axis(part) for part in parts]
    return X.transpose(order).reshape(merged.shape)


def answers(statements):
    domain, products = compile_sql(DOMAIN, statements)
    return Workload(domain, products).answer(as_cells(domain)).tolist()


@cache
def people(inside):
    """A table with one row per cell, its count w in place of that many rows."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE people (sex VARCHAR, age BIGINT, broad VARCHAR, state VARCHAR, "
        "inc DOUBLE, w BIGINT)"
    )
    broad = DOMAIN["age"].level("broad")
    rows = []
    for cell in np.ndindex(DOMAIN.shape):
        sex, age, state, (low, _) = (
            a.values[i] for a, i in zip(DOMAIN.attributes, cell, strict=True)
        )
        label = broad.labels[broad.groups[cell[1]]]
        rows.append((sex, age, label, state, low + inside, int(X[cell])))
    connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?, ?, ?)", rows)
    return connection


# ---- laws: the same answers as DuckDB on rows ---------------------------------------------------

ATOMS = st.sampled_from(
    [
        "sex = 'F'",
        "sex <> 'F'",
        "'M' = sex",
        "sex IN ('F', 'M')",
        "age < 3",
        "age >= 2",
        "age <> 4",
        "age BETWEEN 1 AND 4",
        "age NOT IN (0, 5)",
        "age % 2 = 1",
        "age // 2 = 1",
        "2 * age - 1 >= 5",
        "age / 2 > 0.75",
        "state IS NULL",
        "state IS NOT NULL",
        "state = 'NY'",
        "state <> 'CA'",
        "state NOT IN ('NY')",
        "state LIKE 'N%'",
        "LOWER(state) = 'ca'",
        "COALESCE(state, 'none') <> 'NY'",
        "broad = '2–3'",
        "broad <> '4–5'",
        "inc < 10",
        "inc >= 20",
        "NOT inc < 20",
        "p.inc BETWEEN 0 AND 1e9 AND inc < 10 OR inc >= 10",
        "CASE WHEN inc < 10 THEN sex = 'F' ELSE age > 2 END",
        "1 = 1",
    ]
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        inner.map("NOT ({})".format),
        st.tuples(inner, inner).map(lambda ab: f"({ab[0]}) AND ({ab[1]})"),
        st.tuples(inner, inner).map(lambda ab: f"({ab[0]}) OR ({ab[1]})"),
    ),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        "sex",
        "p.age",
        "state",
        "broad",
        "inc",
        "age // 2",
        "UPPER(state)",
        "COALESCE(state, sex)",
        "CASE WHEN age < 2 THEN 'child' WHEN age < 4 THEN 'adult' END",
        "CASE WHEN inc < 10 THEN 'low' ELSE 'high' END",
        "CASE WHEN sex = 'F' AND age < 3 THEN 1 ELSE 0 END",
    ]
)


@st.composite
def statements(draw):
    """A statement with {} where the aggregate stands."""
    keys = draw(st.lists(KEYS, max_size=3, unique=True))
    where = draw(st.lists(CONDITIONS, max_size=3))
    text = "SELECT " + "".join(f"{key}, " for key in keys) + "{} FROM people p"
    if where:
        text += " WHERE " + " AND ".join(f"({part})" for part in where)
    if not keys:
        return text
    listed = ", ".join(keys)
    forms = [listed, f"CUBE ({listed})", f"ROLLUP ({listed})", f"GROUPING SETS (({listed}), ())"]
    forms.append(", ".join(str(i + 1) for i in range(len(keys))))
    if len(keys) > 1:
        forms.append(f"{keys[0]}, CUBE ({', '.join(keys[1:])})")
        forms.append(f"GROUPING SETS (({keys[0]}), ROLLUP ({', '.join(keys[1:])}))")
    return f"{text} GROUP BY {draw(st.sampled_from(forms))}"


@given(
    templates=st.lists(statements(), min_size=1, max_size=3),
    inside=st.sampled_from([0, 0.5, 9.5]),
)
def test_answers_are_those_of_the_rows(templates, inside):
    runs = [people(inside).execute(text.format("SUM(w)::BIGINT")).fetchall() for text in templates]
    counts = [row[-1] for rows in runs for row in rows]
    if any(not rows or rows[0][-1] is None for rows in runs):
        with pytest.raises(SqlError, match="0 whatever the data"):
            answers([text.format("COUNT(*)") for text in templates])
    else:
        ours = answers([text.format("COUNT(*)") for text in templates])
        assert sorted(ours) == sorted(counts)


@given(
    condition=st.one_of(ATOMS, CONDITIONS),
    form=st.sampled_from(
        [
            "SELECT COUNT(*) FILTER (WHERE {}) FROM people p",
            "SELECT SUM(CASE WHEN {} THEN 1 ELSE 0 END) FROM people p",
            "SELECT COUNT(CASE WHEN {} THEN 'x' END) FROM people p",
            "SELECT COUNT_IF({}) FROM people p",
            "SELECT COUNT(1) FROM people p WHERE {}",
        ]
    ),
)
def test_all_ways_to_count_agree(condition, form):
    text = f"SELECT SUM(w)::BIGINT FROM people p WHERE {condition}"
    expected = people(0.5).execute(text).fetchone()[0]
    if expected is None:
        with pytest.raises(SqlError, match="0 whatever the data"):
            answers(form.format(condition))
    else:
        assert answers(form.format(condition)) == [expected]


@given(
    edges=st.lists(st.integers(-4, 4), min_size=2, max_size=5, unique=True).map(sorted),
    open_ends=st.tuples(st.booleans(), st.booleans()),
    order=st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]),
    number=st.integers(-10, 10).map(lambda k: k / 2),
)
def test_a_condition_on_bins_is_exact_or_refused(edges, open_ends, order, number):
    low, high = open_ends
    edges = [-math.inf] * low + edges + [math.inf] * high
    domain = Domain.of(v=Attribute.bins(edges))
    grid = np.arange(-6, 6, 0.25)  # finer than edges and numbers, wider than both
    test = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
    test |= {"=": np.equal, "<>": np.not_equal}
    truths = [
        set(test[order](grid[(grid >= lo) & (grid < hi)], number).tolist())
        for lo, hi in domain["v"].values
    ]
    text = f"SELECT COUNT(*) FROM t WHERE v {order} {number}"
    if any(len(truth) > 1 for truth in truths):
        with pytest.raises(SqlError, match="cuts the bin"):
            compile_sql(domain, text)
    elif not any(True in truth for truth in truths):
        with pytest.raises(SqlError, match="0 whatever the data"):
            compile_sql(domain, text)
    else:
        _, products = compile_sql(domain, text)
        row = Workload(domain, products).matrix.dense()
        np.testing.assert_array_equal(row, [[True in truth for truth in truths]])


# ---- worked cases -------------------------------------------------------------------------------

SURVEY = Domain.of(
    {
        "sex": {"F": "Female", "M": "Male"},
        "age": Attribute.integers(0, 99).with_level("broad", [0, 18, 65]),
        "Home state": ["NY", "CA", None],
        "income": Attribute.bins([0, 10_000, 50_000, math.inf]),
        "born": [datetime.date(1990, 5, 1), datetime.date(2001, 1, 31)],
        "member": [True, False],
        "score": [0.5, 1.5, 2.5],
        "code": Attribute.categories([1, "a"]),
        "vet": {0: "no", 1: "yes", None: "unknown"},
        "size": Attribute.bins([0, 10, math.inf], ["small", "tall"]),
    }
)


def tables(text, **options):
    """The title of every table, and the labels of each of its factors."""
    domain, products = compile_sql(SURVEY, text, **options)
    return [
        (table.title, {name: queries.labels(domain[name]) for name, queries in table.items})
        for table in products
    ]


def test_labels_of_groups_and_conditions():
    text = "SELECT sex, COUNT(*) AS n FROM people p WHERE p.age >= 18 GROUP BY sex ORDER BY n"
    assert tables(text) == [("sex", {"sex": ["Female", "Male"], "age": ["age >= 18"]})]


def test_case_by_alias_position_and_text_is_one_key():
    case = "CASE WHEN age < 18 THEN 'child' ELSE 'adult' END"
    forms = [
        f"SELECT {case} AS band, COUNT(*) FROM t GROUP BY band",
        f"SELECT {case} AS band, COUNT(*) FROM t GROUP BY 1",
        f"SELECT {case} AS band, COUNT(*) FROM t GROUP BY {case}",
        f"SELECT {case} AS band, COUNT(*) FROM t GROUP BY ALL",
    ]
    for form in forms:
        assert tables(form) == [("band", {"age": ["child", "adult"]})]


def test_keys_on_one_attribute_intersect():
    text = "SELECT broad, age < 40, COUNT(*) FROM t WHERE age > 17 GROUP BY broad, age < 40"
    expected = ["18–64, True", "18–64, False", "65–99, False"]
    assert tables(text)[0][1] == {"age": expected}


def test_null_is_a_group():
    text = 'SELECT UPPER("Home state") AS s, COUNT(*) FROM t GROUP BY s'
    assert tables(text) == [("s", {"Home state": ["NY", "CA", "(null)"]})]


def test_plain_columns_and_levels_are_not_written_out():
    domain = Domain.of(big=10**6, age=SURVEY["age"])
    _, (big, broad) = compile_sql(
        domain,
        "SELECT big, COUNT(*) FROM t GROUP BY big; SELECT broad, COUNT(*) FROM t GROUP BY broad",
    )
    assert isinstance(big.factors["big"], IdentityQueries)
    assert isinstance(broad.factors["age"], LevelQueries)


def test_grouping_sets_multiply():
    text = "SELECT COUNT(*) FROM t GROUP BY sex, CUBE (member, broad)"
    titles = [title for title, _ in tables(text)]
    assert titles == ["sex × member × broad", "sex × member", "sex × broad", "sex"]
    text = "SELECT COUNT(*) FROM t GROUP BY ROLLUP ((sex, member), broad), ()"
    assert [title for title, _ in tables(text)] == ["sex × member × broad", "sex × member", "total"]


def test_a_column_named_twice_is_one_key():
    text = "SELECT p.sex AS sex, COUNT(*) FROM t p GROUP BY sex, SEX, p.sex"
    assert tables(text)[0][1] == {"sex": ["Female", "Male"]}


def test_several_counts_are_several_tables():
    text = 'SELECT COUNT(*) AS n, COUNT("Home state"), COUNT(*) FILTER (WHERE member) AS m FROM t'
    assert tables(text) == [
        ("total: n", {}),
        ('total: COUNT("Home state")', {"Home state": ['"Home state" IS NOT NULL']}),
        ("total: m", {"member": ["member"]}),
    ]


def test_conditions_that_factorise_merge_nothing():
    domain, products = compile_sql(
        SURVEY, "SELECT COUNT(*) FROM t WHERE NOT (age < 18 OR sex = 'F')"
    )
    assert domain == SURVEY
    assert Workload(domain, products).labels(0) == {"sex": ["Male"], "age": ["18–99"]}


def test_conditions_that_do_not_factorise_merge_for_all_statements():
    domain, products = compile_sql(
        SURVEY,
        [
            "SELECT COUNT(*) FROM t WHERE sex = 'F' OR age < 18",
            "SELECT COUNT(*) FROM t WHERE member OR age < 18",
            "SELECT sex, COUNT(*) FROM t GROUP BY sex",
        ],
    )
    assert domain.names[0] == "sex*age*member"
    assert domain.attributes[0].size == 400
    labels = Workload(domain, products).labels(2)
    assert labels == {"sex*age*member": ["Female, total, total", "Male, total, total"]}


def test_true_conditions_are_dropped():
    assert tables("SELECT COUNT(*) FROM t WHERE 1 = 1 AND age >= 0 AND sex IS NOT NULL") == [
        ("total", {})
    ]


def test_dates_booleans_and_fractions():
    text = "SELECT COUNT(*) FROM t WHERE born >= '2000-01-01' AND NOT member AND score = 1.5"
    _, products = compile_sql(SURVEY, text)
    rows = {name: queries.rows.tolist() for name, queries in products[0].factors.items()}
    assert rows == {"born": [[0, 1]], "member": [[0, 1]], "score": [[0, 1, 0]]}


def test_names_are_found_as_sql_finds_them():
    assert tables("SELECT COUNT(*) FROM t WHERE AGE > 17")[0][1] == {"age": ["AGE > 17"]}
    twins = Domain.of({"Sex": ["F"], "sex": ["F", "M"]})
    _, products = compile_sql(twins, "SELECT COUNT(*) FROM t GROUP BY sex")
    assert list(products[0].factors) == ["sex"]
    with pytest.raises(SqlError, match="may stand for 2 columns"):
        compile_sql(twins, "SELECT COUNT(*) FROM t GROUP BY SEX")
    with pytest.raises(SqlError, match="no column 'SEX'"):
        compile_sql(twins, 'SELECT COUNT(*) FROM t GROUP BY "SEX"')


def test_columns_named_as_keywords_need_no_quotes_where_nothing_else_can_stand():
    domain = Domain.of({"union": ["a", "b"], "order": ["x", "y"], "age": Attribute.integers(0, 5)})
    where = 'WHERE "union" = \'a\' OR age > 3 GROUP BY "order" ORDER BY "order"'
    quoted = f'SELECT "order", COUNT(*) FROM t {where}'
    plain = quoted.replace('"', "")
    labels = [Workload(*compile_sql(domain, sql)).label(1)[1] for sql in (quoted, plain)]
    assert labels[0] == labels[1]
    matrices = [Workload(*compile_sql(domain, sql)).matrix.dense() for sql in (quoted, plain)]
    np.testing.assert_array_equal(*matrices)
    with pytest.raises(SqlError, match="UNION of queries"):
        compile_sql(domain, "SELECT COUNT(*) FROM t UNION SELECT COUNT(*) FROM t")


def test_levels_that_tie_are_told_apart_by_their_attribute():
    coarse = Attribute.integers(0, 9).with_level("half", [0, 5])
    domain = Domain.of(a=coarse, b=coarse)
    with pytest.raises(SqlError, match=r'write: "a"\."half" or "b"\."half"'):
        compile_sql(domain, "SELECT COUNT(*) FROM t GROUP BY half")
    _, products = compile_sql(domain, "SELECT b.half, COUNT(*) FROM t GROUP BY b.half")
    assert list(products[0].factors) == ["b"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/psephos.csv'",
        "ATTACH '/tmp/psephos.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET threads = 2",
        "SELECT * FROM frame",
    ],
)
def test_the_deciding_connection_reaches_nothing(text):
    frame = {"v": np.arange(3)}  # DuckDB would find it by its name, were it allowed to
    with Evaluator(ColumnNames(DOMAIN), 100) as evaluator, pytest.raises(duckdb.Error):
        evaluator._connection.execute(text)
    assert len(frame["v"]) == 3


def test_hostile_names_never_reach_sql():
    name = 'x"); DROP TABLE s0; --'
    domain = Domain.of({name: ["a'); --", "b"]})
    quoted = name.replace('"', '""')
    text = f"SELECT COUNT(*) FROM t WHERE \"{quoted}\" = 'a''); --'"
    _, products = compile_sql(domain, text)
    assert products[0].factors[name].rows.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("tsql", "SELECT [sex], COUNT(*) FROM [dbo].[t] WHERE [age] / 10 = 3 GROUP BY [sex]"),
        ("mysql", "SELECT `sex`, COUNT(*) FROM `t` WHERE `age` DIV 10 = 3 GROUP BY `sex`"),
        ("bigquery", "SELECT `sex`, COUNT(*) FROM `p.d.t` WHERE DIV(age, 10) = 3 GROUP BY 1"),
        ("spark", "SELECT `sex`, COUNT(*) FROM t WHERE age DIV 10 = 3 GROUP BY `sex`"),
        ("postgres", 'SELECT "sex", COUNT(*) FROM t WHERE age::int / 10 = 3 GROUP BY "sex"'),
        ("snowflake", "SELECT SEX, COUNT(*) FROM T WHERE FLOOR(AGE / 10) = 3 GROUP BY SEX"),
        ("sqlite", "SELECT sex, COUNT(*) FROM t WHERE age / 10 = 3 GROUP BY sex;"),
        ("duckdb", "FROM t SELECT sex, COUNT(*) WHERE age // 10 = 3 GROUP BY sex"),
        (None, "SELECT sex, COUNT(*) FROM t WHERE FLOOR(age / 10) = 3 GROUP BY sex"),
    ],
)
def test_dialects(dialect, text):
    _, products = compile_sql(SURVEY, text, dialect=dialect)
    assert isinstance(products[0].factors["sex"], IdentityQueries)
    thirties = np.arange(100) // 10 == 3
    np.testing.assert_array_equal(products[0].factors["age"].rows, [thirties])


def test_mysql_rollup():
    text = "SELECT sex, member, COUNT(*) FROM t GROUP BY sex, member WITH ROLLUP"
    titles = [title for title, _ in tables(text, dialect="mysql")]
    assert titles == ["sex × member", "sex", "total"]


def test_integer_division_cuts_towards_zero_where_the_dialect_says_so():
    domain = Domain.of(v=range(-3, 4))
    text = "SELECT v / 2, COUNT(*) FROM t GROUP BY v / 2"
    _, products = compile_sql(domain, text, dialect="postgres")
    assert products[0].factors["v"].labels(domain["v"]) == ["-1", "0", "1"]
    nested = "SELECT COUNT(*) FROM t WHERE (v + 5) / 2 * 3 / (4 / 3 + 1) = 4"
    _, products = compile_sql(domain, nested, dialect="postgres")
    expected = [(v + 5) // 2 * 3 // 2 == 4 for v in range(-3, 4)]
    np.testing.assert_array_equal(products[0].factors["v"].rows, [expected])
    _, products = compile_sql(domain, "SELECT COUNT(*) FROM t WHERE 6 / v = 3", dialect="sqlite")
    np.testing.assert_array_equal(products[0].factors["v"].rows, [[0, 0, 0, 0, 0, 1, 0]])
    _, products = compile_sql(domain, text, dialect="mysql")
    assert len(products[0].factors["v"].labels(domain["v"])) == 7


def test_text_differing_in_case_only_is_different():
    domain = Domain.of(v=["a", "A"])
    text = "SELECT COUNT(*) FROM t GROUP BY CASE WHEN v = N'a' THEN 1 END, "
    text += "CASE WHEN v = N'A' THEN 1 END"
    _, products = compile_sql(domain, text, dialect="tsql")
    rows = products[0].factors["v"].matrix(domain["v"]).dense()
    assert rows.tolist() == [[1, 0], [0, 1]]


def test_comments_and_semicolons():
    text = """
        -- the first; it counts all
        SELECT COUNT(*) FROM t; /* DROP TABLE t; */
        SELECT COUNT(*) FROM t WHERE sex = 'F' -- AND nonsense
        ;
    """
    assert [labels for _, labels in tables(text)] == [{}, {"sex": ["sex = Female"]}]


def test_a_condition_that_leaves_one_value_has_its_label():
    for condition, column, label in [
        ("vet = 1", "vet", "vet = yes"),
        ("vet IS NULL", "vet", "vet = unknown"),
        ("NOT vet <> 0", "vet", "vet = no"),
        ("vet >= 0", "vet", "vet >= 0"),
        ("member", "member", "member"),
        ("size < 10", "size", "size < 10"),
    ]:
        (table,) = tables(f"SELECT sex, COUNT(*) FROM t WHERE {condition} GROUP BY sex")
        assert table[1] == {"sex": ["Female", "Male"], column: [label]}


# ---- refusals -----------------------------------------------------------------------------------

COUNT = "SELECT COUNT(*) FROM t "
REFUSALS = [
    # names
    (COUNT + "WHERE agee > 3", "no column 'agee'; have sex, age", "agee", "age"),
    (COUNT + "GROUP BY boad", "no column 'boad'", "boad", "broad"),
    (COUNT + 'WHERE sex = "F"', "no column 'F'", '"F"', "'F' in single quotes"),
    (COUNT + "WHERE q.age > 3", "no table 'q' in FROM; have t", "q", "age"),
    ("SELECT COUNT(*) FROM t p WHERE t.age > 3", "no table 't'", "t", "age"),
    # values
    (COUNT + "WHERE sex = 'X'", "'X' is not a declared value of 'sex'; have 'F' (Fem", "'X'", ""),
    (
        COUNT + "WHERE sex <> 'Male'",
        "'Male' is a label, and sex has the values 'F' (Female), 'M' (Male)",
        "'Male'",
        "sex = 'M'",
    ),
    (
        COUNT + "WHERE vet IN (0, 'yes')",
        "'yes' is a label, and vet has the values 0 (no), 1 (yes), NULL (unknown)",
        "'yes'",
        "vet = 1",
    ),
    (COUNT + "WHERE vet = 'unknown'", "is a label", "'unknown'", "vet IS NULL"),
    (COUNT + "WHERE vet = 'perhaps'", "value of 'vet'; have 0 (no), 1 (yes)", "'perhaps'", ""),
    (COUNT + "WHERE vet < 'yes'", "cannot be worked out", "vet < 'yes'", "vet has 0 (no), 1 (yes)"),
    (COUNT + "WHERE size = 'tall'", "'tall' is a label", "'tall'", "size >= 10"),
    (COUNT + "WHERE size = 'small'", "'small' is a label", "'small'", "size >= 0 AND size < 10"),
    (COUNT + "WHERE sex IN ('F', 'X')", "is not a declared value", "'X'", ""),
    (COUNT + "WHERE age = 100", "have 0 to 99", "100", ""),
    (COUNT + "WHERE broad = '65+'", "have '0–17', '18–64', '65–99'", "'65+'", ""),
    (
        "SELECT CASE sex WHEN 'W' THEN 1 END, COUNT(*) FROM t GROUP BY 1",
        "'W' is not a declared value",
        "'W'",
        "",
    ),
    (COUNT + "WHERE age = NULL", "nothing is ever equal to NULL", "NULL", "age IS NULL"),
    (COUNT + "WHERE age = 'old'", "'old' is not a declared value of 'age'", "'old'", "declared"),
    (COUNT + "WHERE age < 'old'", "cannot be worked out", "age < 'old'", "own type"),
    (COUNT + "WHERE code = 1", "no single SQL type (they are int, str)", "code", "GROUP BY code"),
    # nothing to count
    (COUNT + "WHERE age < 0", "0 whatever the data", "age < 0", "leave the query out"),
    (COUNT + "WHERE 1 = 0", "0 whatever the data", "1 = 0", ""),
    (COUNT + "WHERE age < 3 AND age > 5", "all conditions taken together", "WHERE", ""),
    (COUNT + "WHERE sex IS NULL", "0 whatever the data", "sex", ""),
    # bins
    (COUNT + "WHERE income < 500", "cuts the bin [0, 10000)", "income < 500", "0 or 10000"),
    (COUNT + "WHERE income <= 10000", "its lower edge 10000", "income <= 10000", "income < edge"),
    (COUNT + "WHERE income > 1e5", "cuts the bin 50000 and over", "income > 1e5", "being 50000"),
    (COUNT + "WHERE age = 3 OR income < 5", "cuts the bin", "age = 3 OR income < 5", ""),
    (COUNT + "WHERE income + 1 < 500", "only be compared with numbers", "income", "number"),
    (COUNT + "WHERE income < '500'", "only be compared with numbers", "income", "number"),
    (COUNT + "GROUP BY FLOOR(income)", "only be compared with numbers", "income", "number"),
    # clauses
    (COUNT + "HAVING COUNT(*) > 9", "true counts, which are private", "HAVING", "without HAVING"),
    (COUNT + "LIMIT 3", "true counts, which are private", "LIMIT", "every group"),
    ("SELECT DISTINCT COUNT(*) FROM t", "DISTINCT does nothing", "DISTINCT", "SELECT"),
    ("SELECT COUNT(*) FROM t JOIN u USING (id)", "rows of one table", "u USING (id", "beforehand"),
    ("SELECT COUNT(*) FROM t, u", "rows of one table", "u", "beforehand"),
    ("WITH x AS (SELECT 1) SELECT COUNT(*) FROM x", "WITH is not supported", "WITH", "SELECT"),
    ("SELECT COUNT(*) FROM (SELECT 1) AS x", "FROM takes the name", "1) AS x", "FROM the_table"),
    (COUNT + "UNION ALL SELECT COUNT(*) FROM t", "UNION of queries", "UNION", "each SELECT"),
    ("SELECT COUNT(*)", "FROM is missing", "SELECT", "FROM the_table"),
    (COUNT + "QUALIFY 1 = 1", "looks at other rows", "QUALIFY", "WHERE"),
    # aggregates
    ("SELECT sex FROM t GROUP BY sex", "counts nothing", "SELECT", "COUNT(*)"),
    ("SELECT * FROM t", "rows are private", "*", "COUNT(*)"),
    ("SELECT COUNT(DISTINCT age) FROM t", "not a count of rows", "COUNT", "COUNT(*)"),
    ("SELECT AVG(age) FROM t", "AVG(age) is no count or sum of rows", "AVG", "Statistics.from_sql"),
    ("SELECT MAX(age) FROM t", "MAX(age) is no count, sum, mean", "age", "GROUP BY age"),
    ("SELECT COUNT(*) / 2 FROM t", "calculating with them comes afterwards", "COUNT(*) / 2", ""),
    ("SELECT COUNT(*) OVER () FROM t", "looks at other rows", "COUNT(*", "GROUP BY"),
    (COUNT + "WHERE COUNT(*) > 3", "COUNT is an aggregate", "COUNT", "one row"),
    # keys
    ("SELECT sex, COUNT(*) FROM t", "sex is selected but not grouped by", "sex", "GROUP BY sex"),
    ("SELECT sex, COUNT(*) FROM t GROUP BY 2", "not the position of a column", "2", ""),
    (COUNT + "GROUP BY 'x'", "names no column", "'x'", "GROUP BY a column"),
    (
        "SELECT age < 9 AS age, COUNT(*) FROM t GROUP BY age",
        "both a column and an alias",
        "age",
        "another alias",
    ),
    (
        "SELECT age < 9 AS young, COUNT(*) FROM t WHERE young GROUP BY young",
        "'young' is an alias",
        "young",
        "age < 9",
    ),
    (
        COUNT + f"GROUP BY CUBE ({', '.join(f'age + {i}' for i in range(20))})",
        "1,048,576 tables",
        None,
        "GROUPING SETS",
    ),
    # expressions
    (COUNT + "WHERE age IN (SELECT 1)", "sub-query looks at other rows", "1", "IN ('a', 'b')"),
    (COUNT + "WHERE EXISTS (SELECT 1)", "sub-query looks at other rows", "1", ""),
    (COUNT + "WHERE age = ?", "a parameter has no value", "?", "the value"),
    (COUNT + "WHERE CAST(age AS BLOB) = 3", "is not supported", "age", "VARCHAR"),
    (COUNT + "WHERE frobnicate(age) = 3", "function FROBNICATE is not allowed", None, "COALESCE"),
    (COUNT + "WHERE random() < 0.5", "is not allowed", "random", ""),
    (COUNT + "WHERE born < now()", "is not allowed", "now", ""),
    (COUNT + "WHERE born < current_date", "is not allowed", "current_date", ""),
    (COUNT + "WHERE sex ~ 'F'", "is not allowed", "sex ~ 'F'", ""),
    (COUNT + "WHERE [1, 2][1] = age", "is not part of a counting query", None, "BETWEEN"),
    (COUNT + "WHERE age = 9 OR born > '?'", "cannot be worked out", None, "born has '1990-05-01'"),
    # syntax
    (COUNT + "WHERE", "something is missing after 'WHERE'", "WHERE", "SELECT"),
    ("SELECT COUNT(*) FRM t", "'t' cannot stand here", "t", "dialect="),
    (COUNT + "WHERE sex = 'F", "never closed", "'", ""),
    (COUNT + "WHERE " + "(" * 2000 + "age = 3" + ")" * 2000, "nested too deeply", None, ""),
    # what is no query
    ("INSERT INTO t VALUES (1)", "only SELECT is read", "INSERT", "COUNT(*)"),
    ("DELETE FROM t", "only SELECT is read", "DELETE", "COUNT(*)"),
    ("UPDATE t SET age = 3", "only SELECT is read", "UPDATE", "COUNT(*)"),
    ("SELECT COUNT(*) FROM t; DROP TABLE t", "only SELECT is read", "DROP", "COUNT(*)"),
    ("EXPLAIN SELECT COUNT(*) FROM t", "only SELECT is read", "EXPLAIN", "COUNT(*)"),
    ("COPY t TO 'out.csv'", "only SELECT is read", "COPY", "COUNT(*)"),
    ("ATTACH 'x.db'", "only SELECT is read", "ATTACH", "COUNT(*)"),
    ("PRAGMA database_list", "only SELECT is read", "PRAGMA", "COUNT(*)"),
    ("INSTALL httpfs", "only SELECT is read", "INSTALL", "COUNT(*)"),
    ("SET threads = 9", "only SELECT is read", "SET", "COUNT(*)"),
    # files, settings and the world outside
    ("SELECT COUNT(*) FROM '/etc/passwd'", "FROM takes the name", "'/etc/passwd'", ""),
    ("SELECT COUNT(*) FROM read_csv('/etc/passwd')", "FROM takes the name", None, ""),
    ("SELECT getenv('HOME'), COUNT(*) FROM t", "GETENV is not allowed", None, ""),
    (COUNT + "WHERE getenv('HOME') = sex", "GETENV is not allowed", None, ""),
    (COUNT + "WHERE read_text('/etc/passwd') = 'x'", "READ_TEXT is not allowed", None, ""),
    (COUNT + "GROUP BY current_setting('threads')", "CURRENT_SETTING is not allowed", None, ""),
    (COUNT + "WHERE (SELECT COUNT(*) FROM read_csv('x')) > 0", "sub-query", None, ""),
]


@pytest.mark.parametrize(("text", "words", "token", "remedy"), REFUSALS)
def test_refusals_say_why_where_and_what_to_write(text, words, token, remedy):
    with pytest.raises(SqlError) as caught:
        compile_sql(SURVEY, text)
    error = caught.value
    message = str(error)
    assert words in message.splitlines()[0]
    assert error.__cause__ is None
    if "nested too deeply" in words:
        return
    assert error.sql in text
    _, line, marks, last = message.split("\n")
    assert last.startswith("write: ")
    assert remedy in last
    underlined = line[marks.index("^") : marks.rindex("^") + 1]
    assert underlined == error.sql[error.start : error.end]
    if token is not None:
        assert underlined == token


def test_the_line_of_a_long_statement_is_shown():
    text = "SELECT COUNT(*)\nFROM t\nWHERE sex = 'F'\n\tAND agee > 3"
    with pytest.raises(SqlError) as caught:
        compile_sql(SURVEY, text)
    assert str(caught.value).split("\n")[1:3] == ["  \tAND agee > 3", "  \t    ^^^^"]


@pytest.mark.parametrize(
    ("dialect", "text", "words"),
    [
        ("tsql", "SELECT TOP 5 sex, COUNT(*) FROM t GROUP BY sex", "true counts"),
        ("postgres", "SELECT COUNT(*) FROM t WHERE CAST(score AS INT) = 2", "rounds or cuts"),
        ("postgres", "SELECT COUNT(*) FROM t WHERE 10 / age > 3", "cannot be worked out"),
        ("postgres", "SELECT COUNT(*) FROM t WHERE CAST(sex AS VARCHAR(1)) = 'F'", "SUBSTRING"),
        ("clickhouse", "SELECT COUNT(*) FROM t GROUP BY sex WITH TOTALS", "WITH TOTALS"),
        ("klingon", "SELECT COUNT(*) FROM t", "Unknown dialect 'klingon'"),
    ],
)
def test_refusals_of_other_dialects(dialect, text, words):
    with pytest.raises(SqlError, match=words):
        compile_sql(SURVEY, text, dialect=dialect)


def test_no_statement_at_all():
    for nothing in ("", " ; ", [], "-- nothing"):
        with pytest.raises(SqlError, match="no statement was given"):
            compile_sql(SURVEY, nothing)
    with pytest.raises(SqlError, match="statements must be text, got int"):
        compile_sql(SURVEY, [3])


def test_one_workload_counts_one_table():
    with pytest.raises(SqlError, match="rows of one table, here 't' and 'u'"):
        compile_sql(SURVEY, ["SELECT COUNT(*) FROM t", "SELECT COUNT(*) FROM u"])


def test_merging_is_limited_for_one_condition_and_for_all():
    apart = ["SELECT COUNT(*) FROM t WHERE sex = 'F' OR age < 9"]
    apart.append("SELECT COUNT(*) FROM t WHERE member OR age < 9")
    with pytest.raises(SqlError, match=r"sex and age together, 200 .* merge_limit=150"):
        compile_sql(SURVEY, apart[:1], merge_limit=150)
    compile_sql(SURVEY, apart[:1], merge_limit=200)
    with pytest.raises(SqlError, match=r"sex, age, member together, 400 .* merge_limit=200"):
        compile_sql(SURVEY, apart, merge_limit=200)


def test_merged_attributes_are_grouped_by_but_not_compared():
    domain = Domain.of(a=2, b=3, c=4).merge(["a", "c"])
    _, products = compile_sql(domain, 'SELECT COUNT(*) FROM t GROUP BY "a*c"')
    assert isinstance(products[0].factors["a*c"], IdentityQueries)
    with pytest.raises(SqlError, match="merged of a, c"):
        compile_sql(domain, 'SELECT COUNT(*) FROM t WHERE "a*c" = 3')
    with pytest.raises(SqlError, match=r"'a' is merged into 'a\*c'"):
        compile_sql(domain, "SELECT COUNT(*) FROM t WHERE a = 1")


def test_groups_of_a_large_column_stay_small():
    domain = Domain.of(big=10**5)
    _, products = compile_sql(domain, "SELECT COUNT(*) FROM t WHERE big > 9 GROUP BY big")
    rows = products[0].factors["big"].matrix(domain["big"])
    assert rows.shape == (99_990, 100_000)
    assert rows.nbytes < 2_000_000
    assert products[0].factors["big"].label(domain["big"], 0) == "10"


@pytest.mark.parametrize("condition", ["sex = F", 'sex = "F"', "sex IN (F)", "sex <> F"])
def test_text_without_single_quotes(condition):
    domain = Domain.of(sex=["F", "M"])
    with pytest.raises(SqlError, match="'F' in single quotes if it is text"):
        Workload.from_sql(domain, f"SELECT COUNT(*) FROM t WHERE {condition}")
