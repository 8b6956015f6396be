"""Matrices of 0 and 1 count as a table of the same rows does."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import psephos as ps
from psephos.domain.attribute import Attribute
from psephos.domain.bits import PackedRows
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.engines import BitMatrix, as_engine, as_source, bit_matrix
from psephos.errors import BudgetError, DomainError, PsephosError, ShapeError, SourceError
from psephos.kernel.cell_counts import CellCounts
from psephos.kernel.grouped_tables import group_sizes
from psephos.kernel.simulate import counted
from psephos.kernel.source import Conjunct
from psephos.kernel.unit import Cap
from psephos.owner.check import check

COLUMNS = 10
DOMAIN = Domain.binary(COLUMNS)
ENTRIES = [0, 1, 0, 1, 1, 2, -1, 0.5, np.nan]


@st.composite
def matrices(draw):
    """Mostly 0 and 1; a row in eight has something else."""
    rows = draw(st.integers(0, 80))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    matrix = generator.integers(2, size=(rows, COLUMNS)).astype(float)
    for row in range(0, rows, 8):
        matrix[row, generator.integers(COLUMNS)] = draw(st.sampled_from(ENTRIES))
    return matrix


@st.composite
def keeps(draw):
    names = draw(st.lists(st.sampled_from(DOMAIN.names), unique=True, max_size=2))
    bits = draw(st.lists(st.booleans(), min_size=4, max_size=4))
    mask = np.array(bits)[: 2 ** len(names)].reshape((2,) * len(names))
    return (Conjunct(tuple(names), mask),) if names else ()


def as_table(matrix):
    return as_source(pa.table({name: matrix[:, i] for i, name in enumerate(DOMAIN.names)}))


def sources(matrix):
    blocks = (matrix[:, i : i + 3] for i in range(0, COLUMNS, 3))
    yield as_source(matrix)
    yield as_source(sp.csr_array(matrix))
    yield as_source(sp.csc_matrix(matrix))
    yield BitMatrix.of_blocks(blocks, matrix.shape)


@settings(max_examples=25)
@given(
    matrix=matrices(),
    tables=st.lists(
        st.permutations(DOMAIN.names).flatmap(
            lambda names: st.integers(0, COLUMNS).map(lambda k: tuple(names[:k]))
        ),
        max_size=4,
    ),
    keep=keeps(),
    few=st.booleans(),
)
def test_a_matrix_counts_as_a_table(matrix, tables, keep, few):
    expected = as_table(matrix).take(DOMAIN, None).counts(tables, keep)
    with pytest.MonkeyPatch.context() as patch:
        if few:
            patch.setattr(bit_matrix, "CELLS_AT_ONCE", 2)
        for source in sources(matrix):
            counts = source.take(DOMAIN, None).counts(tables, keep)
            assert [c.shape for c in counts] == [c.shape for c in expected]
            for ours, theirs in zip(counts, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)
                assert ours.dtype == np.int64


@settings(max_examples=25)
@given(matrix=matrices(), keep=keeps(), seed=st.integers(0, 99))
def test_conjunctions_of_a_matrix_are_those_of_a_table(matrix, keep, seed):
    some = Conjunctions.sampled(DOMAIN, ways=3, number=30, seed=seed)
    expected = as_table(matrix).take(DOMAIN, None).conjunctions(some, keep).tolist()
    for source in sources(matrix):
        assert source.take(DOMAIN, None).conjunctions(some, keep).tolist() == expected


def test_truth_values_and_small_numbers():
    bits = np.array([[True, False], [True, True]])
    domain = Domain.of(a={0: "no", 1: "yes"}, b=Attribute.categories([False, True]))
    for matrix in (bits, bits.astype(np.uint8), sp.csr_array(bits), bits.astype(np.float32)):
        assert as_source(matrix).count(domain, ("b", "a"), (), None).tolist() == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.zeros((3, 2), dtype=object), "truth values or numbers, got object"),
        (np.zeros((3, 2), dtype="U1"), "truth values or numbers"),
        (np.zeros((3, 0)), "no column"),
        (np.zeros(3), "cannot count a numpy.ndarray"),
    ],
)
def test_other_arrays_are_refused(data, words):
    with pytest.raises(DomainError, match=words):
        as_source(data)


def test_a_matrix_is_no_engine():
    with pytest.raises(DomainError, match="hands over no rows"):
        as_engine(np.zeros((3, 2)))


def test_a_schema_that_does_not_fit_is_refused_before_a_charge(tmp_path):
    matrix = np.zeros((3, 2), dtype=bool)
    unit, budget = ps.add_remove_row(), ps.epsilon("1")
    ps.Ledger.create(tmp_path / "rows", dataset="d", unit=unit, budget=budget)
    ps.Ledger.create(
        tmp_path / "persons", dataset="d", unit=ps.person("who", max_rows=2), budget=budget
    )
    for domain, words in [
        (Domain.binary(3), "has 2 columns and the domain 3 attributes"),
        (Domain.of(a=2, b=3), "attribute 'b' has the values 0, 1, 2; a column"),
        (Domain.of(a=2, b=[1, 0]), "attribute 'b' has the values 1, 0"),
        (Domain.of(a=2, b=["no", "yes"]), "attribute 'b' has the values no, yes"),
        (Domain.of(a=2, b=Attribute.of(2).with_unknown("other")), r"0, 1, \(other\)"),
    ]:
        with pytest.raises(DomainError, match=words):
            ps.protect(matrix, domain, ledger=tmp_path / "rows")
        assert not check(matrix, domain).ok
    with pytest.raises(DomainError, match="no column 'who' that names the person"):
        ps.protect(matrix, Domain.binary(2), ledger=tmp_path / "persons")
    source = as_source(matrix)
    some = Conjunctions([[0]], [[1]])
    for call in (
        lambda: source.count(Domain.binary(2), (), (), Cap("who", 1)),
        lambda: source.take(Domain.binary(2), Cap("who", 1)).conjunctions(some, ()),
    ):
        with pytest.raises(DomainError, match="no column 'who'"):
            call()
    with pytest.raises(ShapeError, match="a mask over"):
        source.count(Domain.binary(2), (), (Conjunct(("x0",), [True]),), None)


def test_a_matrix_behind_a_ledger(tmp_path):
    matrix = sp.random_array((400, 6), density=0.3, rng=np.random.default_rng(0)) != 0
    domain = Domain.binary(6)
    unit, budget = ps.add_remove_row(), ps.epsilon("1000")
    ps.Ledger.create(tmp_path / "l", dataset="d", unit=unit, budget=budget)
    table = ps.protect(matrix, domain, ledger=tmp_path / "l")
    total = table.noisy_count(spend=ps.epsilon("500"))
    assert not total.simulation
    assert total.values == 400
    simulated = ps.simulate(matrix, domain, unit=unit, budget=budget, seed=0)
    assert simulated.noisy_count(spend=ps.epsilon("500")).values == 400
    with pytest.raises(DomainError, match="needs 64 whole counts"):
        ps.simulate(matrix.toarray(), domain, unit=unit, budget=budget, seed=0)
    with pytest.raises(DomainError, match=r"about 10\^301 whole counts"):
        ps.simulate(np.zeros((2, 1000)), Domain.binary(1000), unit=unit, budget=budget, seed=0)


def test_nothing_of_the_rows_is_shown():
    matrix = np.zeros((1234, 2))
    matrix[7, 1] = 98765
    source = as_source(matrix)
    source.count(Domain.binary(2), (), (), None)
    assert repr(source) == "BitMatrix(2 columns)"
    for domain in (Domain.binary(3), Domain.of(a=2, b=3)):
        with pytest.raises(PsephosError) as caught:
            source.count(domain, (), (), None)
        assert "1234" not in str(caught.value)
        assert "1,234" not in str(caught.value)


def test_what_fails_is_told_without_its_words(tmp_path, monkeypatch):
    domain = Domain.binary(2)
    ps.Ledger.create(tmp_path / "l", dataset="d", unit=ps.add_remove_row(), budget=ps.epsilon(9))
    table = ps.protect(np.zeros((1234, 2)), domain, ledger=tmp_path / "l")

    def fails(*_):
        raise ValueError("no room for 1234 rows")

    monkeypatch.setattr(PackedRows, "counts", fails)
    for call in (
        lambda: table.keep("x0").vectorise().measure(ps.matrix.Identity(2), spend=ps.epsilon(1)),
        lambda: table.vectorise().count_values([0], spend=ps.epsilon(1)),
    ):
        with pytest.raises(SourceError, match="nothing was shown") as caught:
            call()
        assert "1234" not in str(caught.value)
        assert caught.value.__cause__ is caught.value.__context__ is None
    source = as_source(np.zeros((1234, 2)))
    assert not [name for name in dir(source) if not name.startswith("_") and "rows" in name]


def test_the_owner_hears_of_rows_that_are_dropped():
    matrix = np.zeros((10, 2))
    assert check(matrix, Domain.binary(2)).ok
    matrix[3, 1] = 5
    report = check(matrix, Domain.binary(2), max_rows_total=9)
    assert (report.rows, report.counted, report.ok) == (10, 9, False)
    assert {(f.column, f.kind) for f in report.findings} == {
        ("rows", "bound"),
        ("matrix", "undeclared"),
    }
    none = check(np.full((2, 2), 7), Domain.binary(2))
    assert ("rows", "none") in {(f.column, f.kind) for f in none.findings}
    unit = ps.person("who", max_rows=2)
    assert "no column 'who'" in str(check(matrix, Domain.binary(2), unit=unit))
    ones = Conjunct(("x0",), [True, False])
    impossible = [("x0 is 1", Domain.binary(2), (ones,))]
    assert ("x0 is 1", "zeros") in {
        (f.column, f.kind) for f in check(matrix, Domain.binary(2), impossible=impossible).findings
    }
    with pytest.raises(BudgetError):
        ps.check(matrix, Domain.binary(2), unit="row")


def test_counts_that_are_given_have_conjunctions_too():
    domain = Domain.of(a=2, b=3, n=3)
    cells = np.arange(18)
    some = Conjunctions.of(domain, [{"a": 1, "n": 2}, {"b": 0}, {"a": 0, "b": 1, "n": 0}])
    keep = (Conjunct(("b",), [True, False, True]),)
    counts = counted(cells, domain).take(domain, None).conjunctions(some, keep)
    array = cells.reshape(domain.shape)
    assert counts.tolist() == [array[1, ::2, 2].sum(), array[:, 0].sum(), 0]
    sizes = np.array([0, 1, 1, 5, 2, 0])  # of the six groups of a and b, cut at 2
    grouped = CellCounts(domain, group_sizes(sizes, 2))
    assert grouped.conjunctions(some, ()).tolist() == [2, 2, 0]
