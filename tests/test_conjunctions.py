"""Conjunctions and rows packed into bits, against the plain reading of both."""

import itertools
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from psephos.domain import Attribute, Domain, bits
from psephos.domain import conjunctions as conjunctions_module
from psephos.domain.bits import PackedRows
from psephos.domain.conjunctions import Conjunctions, _row_keys
from psephos.errors import DomainError, ShapeError, TooLargeError, WorkloadError

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=6)
DOMAIN = Domain.of(sex=["F", "M"], age=4, region=["north", "south", "west"], smokes=2)


def domain_of(sizes):
    return Domain.of({f"a{i}": n for i, n in enumerate(sizes)})


@st.composite
def conjunctions(draw, sizes, most=12):
    rows = []
    for _ in range(draw(st.integers(1, most))):
        axes = draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1, max_size=len(sizes)))
        rows.append({f"a{a}": draw(st.integers(0, sizes[a] - 1)) for a in axes})
    return Conjunctions.of(domain_of(sizes), rows)


@st.composite
def tables(draw, most=150):
    """Sizes, codes of rows, and conjunctions."""
    sizes = draw(SIZES)
    rows = draw(st.integers(0, most))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    codes = generator.integers(sizes, size=(rows, len(sizes)))
    return sizes, codes, draw(conjunctions(sizes))


def slow_holds(some, record):
    return [
        all(a < 0 or record[a] == v for a, v in zip(attributes, values, strict=True))
        for attributes, values in zip(some.attributes, some.values, strict=True)
    ]


@given(table=tables(most=8))
def test_holds_as_it_is_written(table):
    _, codes, some = table
    truth = some.holds(codes)
    assert truth.shape == (len(some), len(codes))
    assert truth.T.tolist() == [slow_holds(some, record) for record in codes]


@given(table=tables(), pieces=st.booleans())
def test_packed_rows_count_where_conjunctions_hold(table, pieces):
    sizes, codes, some = table
    many = some.take(np.arange(100) % len(some)) if pieces else some  # each run is used often
    rows = PackedRows.of_codes(codes, sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bits, "COPIED_WORDS", 1 << 9)
        patch.setattr(bits, "SHORTEST_PIECE", 1)  # several pieces, if the runs have as many words
        assert rows.counts(many).tolist() == many.holds(codes).sum(axis=1).tolist()
    assert rows.counts(many).tolist() == many.holds(codes).sum(axis=1).tolist()
    assert rows.counts(many).dtype == np.int64
    truth = np.arange(len(codes)) % 3 > 0
    among = rows.among(truth).counts(many)
    assert among.tolist() == many.holds(codes[truth]).sum(axis=1).tolist()
    assert rows.total() == len(codes)
    assert rows.attributes == len(sizes)
    by_column = bits.column_counts(list(codes.T), sizes, many)
    assert by_column.tolist() == rows.counts(many).tolist()
    columns, valid = rows.columns(range(len(sizes)))
    np.testing.assert_array_equal(np.array(columns).T[valid], codes)


@given(data=st.data(), least=st.sampled_from([1, 1 << 28]))
def test_columns_of_many_values_are_packed_by_those_that_are_named(data, least):
    sizes = [2, 1000, 2**30, 3]
    named = [[0, 1], [0, 7, 999], [5, 2**30 - 1], [0, 1, 2]]
    axes = st.sets(st.integers(0, 3), min_size=1)
    asked = [
        {f"a{a}": data.draw(st.sampled_from(named[a])) for a in data.draw(axes)} for _ in range(6)
    ]
    some = Conjunctions.of(domain_of(sizes), asked)
    values = [st.sampled_from([*named[a], min(3, sizes[a] - 1)]) for a in range(4)]
    rows = data.draw(st.lists(st.tuples(*values), max_size=9))
    codes = np.array(rows, dtype=np.int64).reshape(-1, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bits, "BLOCK_BYTES", least)  # a byte: a row at a time
        counts = bits.column_counts(list(codes.T), sizes, some)
    assert counts.tolist() == some.holds(codes).sum(axis=1).tolist()


@given(table=tables(), cells=st.sampled_from([1, 40, 10**6]))
def test_counts_of_tables_give_the_same(table, cells):
    sizes, codes, some = table
    domain = domain_of(sizes)
    calls = []

    def counts(tables):
        calls.append(tables)
        for names in tables:
            shape = [domain[name].size for name in names]
            columns = codes[:, [domain.axis(name) for name in names]]
            counted = np.zeros(shape, dtype=np.int64)
            np.add.at(counted, tuple(columns.T), 1)
            yield counted.reshape(-1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conjunctions_module, "MOST_CELLS", cells)
        totals = some.counted_by(domain, lambda tables: list(counts(tables)))
    assert totals.tolist() == some.holds(codes).sum(axis=1).tolist()
    asked = [names for tables in calls for names in tables]
    assert len(asked) == len(set(asked)) == len(some.tables()[0])
    assert len(calls) == len(asked) if cells == 1 else len(calls) >= 1


@given(table=tables(), data=st.data())
def test_rows_with_a_code_out_of_range_are_left_out(table, data):
    sizes, codes, some = table
    wrong = codes.copy()
    where = data.draw(st.lists(st.integers(0, max(len(codes) - 1, 0)), max_size=5))
    where = [i for i in where if i < len(codes)]
    axis = data.draw(st.integers(0, len(sizes) - 1))
    wrong[where, axis] = data.draw(st.sampled_from([-1, sizes[axis], 99]))
    rest = np.delete(codes, where, axis=0)
    counts = PackedRows.of_codes(wrong, sizes).counts(some)
    assert counts.tolist() == some.holds(rest).sum(axis=1).tolist()


@given(
    rows=st.integers(0, 140),
    columns=st.integers(1, 300),
    seed=st.integers(0, 2**32),
    other=st.sampled_from([0, 1, 2, -1, 0.5, np.nan]),
)
def test_every_way_of_packing_bits_counts_alike(rows, columns, seed, other):
    generator = np.random.default_rng(seed)
    matrix = (generator.random((rows, columns)) < 0.2).astype(float)
    if rows:
        matrix[generator.integers(rows), generator.integers(columns)] = other
    domain = Domain.binary(columns)
    ways = min(2, columns)
    some = Conjunctions.every(domain, 1)
    if columns > 1:
        number = min(40, 2 * columns * (columns - 1))
        more = Conjunctions.sampled(domain, ways=ways, number=number, seed=seed)
    else:
        more = some
    stays = ((matrix == 0) | (matrix == 1)).all(axis=1)
    blocks = [matrix[:, i : i + 7] for i in range(0, columns, 7)]
    csr = sp.csr_array(matrix)
    packings = [
        PackedRows.of_matrix(matrix),
        PackedRows.of_blocks(iter(blocks), matrix.shape),
        PackedRows.of_sparse(csr),
        PackedRows.of_sparse(sp.coo_matrix(matrix)),
        PackedRows.of_codes(np.where(stays[:, None], matrix, 9).astype(int), [2] * columns),
    ]
    if stays.all():
        packings += [PackedRows.of_matrix(matrix.astype(kind)) for kind in (bool, np.uint8)]
    for asked in (some, more):
        truth = asked.holds(matrix[stays].astype(int)).sum(axis=1)
        for packing in packings:
            assert packing.counts(asked).tolist() == truth.tolist()


def test_pieces_of_runs_add_up(monkeypatch):
    sizes = [2, 3, 2, 4]
    codes = np.random.default_rng(0).integers(sizes, size=(3000, 4))
    some = Conjunctions.every(domain_of(sizes), 3)
    some = some.take(np.arange(4 * len(some)) % len(some))
    whole = PackedRows.of_codes(codes, sizes).counts(some)
    monkeypatch.setattr(bits, "COPIED_WORDS", 16 * sum(sizes))
    monkeypatch.setattr(bits, "SHORTEST_PIECE", 8)
    pieces = []
    add = bits._add_counts
    monkeypatch.setattr(bits, "_add_counts", lambda *given: (pieces.append(1), add(*given)))
    assert PackedRows.of_codes(codes, sizes).counts(some).tolist() == whole.tolist()
    assert len(pieces) > 2
    assert whole.tolist() == some.holds(codes).sum(axis=1).tolist()


def test_columns_of_a_matrix_are_packed_a_few_rows_at_a_time():
    matrix = np.random.default_rng(0).random((2500, 9)) < 0.3
    words = bits.packed(matrix.T)
    np.testing.assert_array_equal(words, bits.packed(np.ascontiguousarray(matrix.T)))
    unpacked = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    np.testing.assert_array_equal(unpacked[:, :2500].T, matrix)
    assert not unpacked[:, 2500:].any()


def test_sums_of_many_words_do_not_run_over():
    rows = 64 * 8 * 511 + 64 * 8 * 3 + 5  # more than one piece of 16-bit sums, all bits set
    packing = PackedRows.of_codes([np.ones(rows, dtype=np.int8), np.zeros(rows, int)], [2, 3])
    some = Conjunctions([[0, 1], [0, 1], [0, -1], [0, -1]], [[1, 0], [1, 2], [1, 0], [0, 0]])
    assert packing.counts(some).tolist() == [rows, 0, rows, 0]


def test_sparse_entries_that_are_listed_twice_are_added():
    matrix = sp.coo_matrix(([1, 1, 1], ([0, 0, 1], [0, 0, 0])), shape=(3, 1))
    some = Conjunctions([[0], [0]], [[0], [1]])
    assert PackedRows.of_sparse(matrix).counts(some).tolist() == [1, 1]


def test_packed_rows_show_nothing_and_refuse_what_does_not_fit():
    rows = PackedRows.of_codes(np.zeros((1234, 2), int), [2, 3])
    assert repr(rows) == "PackedRows(2 attributes)"
    with pytest.raises(ShapeError, match="attribute 2 of 2"):
        rows.counts(Conjunctions([[2]], [[0]]))
    with pytest.raises(ShapeError, match="does not have"):
        rows.counts(Conjunctions([[1]], [[3]]))
    with pytest.raises(ShapeError, match="2 columns of codes"):
        PackedRows.of_codes(np.zeros((4, 2), int), [2])
    for rows, columns in ((5, 2), (4, 1)):
        with pytest.raises(ShapeError, match=f"make up {rows} rows and {columns} columns"):
            PackedRows.of_blocks([np.zeros((4, 2), bool)], (rows, columns))
    with pytest.raises(ShapeError, match="have 2 columns in all, not 3"):
        PackedRows.of_blocks([np.zeros((4, 2), bool)], (4, 3))
    with pytest.raises(ShapeError, match="rows and columns"):
        PackedRows.of_matrix(np.zeros(4))
    with pytest.raises(ShapeError, match="runs of 64-bit words"):
        PackedRows(np.zeros((1, 8), np.uint64), [3], np.zeros(8, np.uint64))
    with pytest.raises(ShapeError, match="groups of 8"):
        PackedRows(np.zeros((1, 7), np.uint64), [2], np.zeros(7, np.uint64))


# what conjunctions are -----------------------------------------------------------------------


def test_by_labels_and_values():
    asked = [{"smokes": 1, "sex": "F"}, [("region", "west")], {"age": 3, "sex": "M", "region": 0}]
    with pytest.raises(DomainError, match=r"conjunction 2: attribute 'region': no value 0"):
        Conjunctions.of(DOMAIN, asked)
    some = Conjunctions.of(DOMAIN, [*asked[:2], {"age": 3, "sex": "M", "region": "north"}])
    assert some.attributes.tolist() == [[0, 3, -1], [2, -1, -1], [0, 1, 2]]
    assert some.values.tolist() == [[0, 1, 0], [2, 0, 0], [1, 3, 0]]
    assert some.labels(DOMAIN, slice(2)) == ("sex = F and smokes = 1", "region = west")
    assert (len(some), some.ways) == (3, 3)
    assert repr(some) == "Conjunctions(3 of up to 3 attributes)"
    assert len(Conjunctions.of(DOMAIN, [])) == 0


def test_is_a_value():
    some = Conjunctions.every(DOMAIN, 2)
    same = Conjunctions(some.attributes.astype(np.int64), some.values.tolist())
    assert some == same == pickle.loads(pickle.dumps(some))
    assert hash(some) == hash(same)
    assert some != some.take([0, 1])
    assert not some.attributes.flags.writeable


@pytest.mark.parametrize(
    ("attributes", "values", "words"),
    [
        ([[0, 0]], [[1, 1]], "two values of one attribute"),
        ([[1, 0]], [[1, 1]], "out of order"),
        ([[-1, 0]], [[0, 1]], "out of order"),
        ([[0, 1], [-1, -1]], [[0, 1], [0, 0]], "conjunction 1, .* names no attribute"),
        ([[0, -1]], [[1, 1]], "a value without an attribute"),
        ([[0, -2]], [[1, 0]], "negative attribute number"),
        ([[0]], [[-1]], "negative value"),
        ([[0.5]], [[1]], "whole numbers, got float64"),
        ([[2**31]], [[1]], "below 2"),
        ([range(65)], [[0] * 65], "at most 64"),
    ],
)
def test_nonsense_is_refused(attributes, values, words):
    with pytest.raises(WorkloadError, match=words):
        Conjunctions(attributes, values)


def test_what_a_domain_does_not_have_is_refused():
    with pytest.raises(WorkloadError, match=r"conjunction 1, .* beyond the 4"):
        Conjunctions([[0], [4]], [[0], [0]]).check(DOMAIN)
    with pytest.raises(DomainError, match="conjunction 0: attribute 'age' has cells 0 to 3, got 4"):
        Conjunctions([[0, 1]], [[0, 4]]).check(DOMAIN)
    with pytest.raises(DomainError, match="no attribute 'Age'"):
        Conjunctions.of(DOMAIN, [{"Age": 1}])
    with pytest.raises(DomainError, match="no attribute 7"):
        Conjunctions.of(DOMAIN, [{7: 1}])
    with pytest.raises(WorkloadError, match="two values of one attribute"):
        Conjunctions.of(DOMAIN, [[("sex", "F"), ("sex", "M")]])
    with pytest.raises(WorkloadError, match="names no attribute"):
        Conjunctions.of(DOMAIN, [{}])
    for nonsense in ({"sex": "F"}, "sex", 3):
        with pytest.raises(WorkloadError, match="a list of dicts"):
            Conjunctions.of(DOMAIN, nonsense)
    with pytest.raises(WorkloadError, match="conjunction 0 is a dict"):
        Conjunctions.of(DOMAIN, [3])
    with pytest.raises(DomainError, match="a Domain is needed"):
        Conjunctions([[0]], [[0]]).check([2, 3])
    with pytest.raises(ShapeError, match="one shape"):
        Conjunctions([[0]], [[0, 1]])
    Conjunctions.every(DOMAIN, 4).check(DOMAIN)


def test_holds_is_for_few_records():
    some = Conjunctions.every(DOMAIN, 1)
    with pytest.raises(TooLargeError, match=r"PackedRows\.of_codes"):
        some.holds(np.zeros((10**7, 4), dtype=np.int8))
    with pytest.raises(ShapeError, match="names number 3"):
        some.holds([0, 1])
    with pytest.raises(ShapeError, match="whole cell numbers"):
        some.holds([0.5, 1, 1, 1])


@given(sizes=SIZES, data=st.data(), positive=st.booleans())
def test_every_one_is_there_once(sizes, data, positive):
    ways = data.draw(st.integers(1, min(3, len(sizes))))
    some = Conjunctions.every(domain_of(sizes), ways, positive=positive)
    lows = [1 if positive and n == 2 else 0 for n in sizes]
    expected = {
        tuple(zip(axes, cell, strict=True))
        for axes in itertools.combinations(range(len(sizes)), ways)
        for cell in itertools.product(*(range(lows[a], sizes[a]) for a in axes))
    }
    rows = zip(some.attributes.tolist(), some.values.tolist(), strict=True)
    listed = [tuple(zip(*row, strict=True)) for row in rows]
    assert len(listed) == len(expected)
    assert set(listed) == expected


@given(sizes=SIZES, data=st.data(), positive=st.booleans())
def test_sampled_ones_are_different_and_fit(sizes, data, positive):
    domain = domain_of(sizes)
    ways = data.draw(st.integers(1, min(4, len(sizes))))
    total = len(Conjunctions.every(domain, ways, positive=positive))
    number = data.draw(st.integers(1, total))
    some, again = (
        Conjunctions.sampled(domain, ways=ways, number=number, seed=3, positive=positive)
        for _ in range(2)
    )
    assert some == again
    some.check(domain)
    assert (some.attributes >= 0).all()
    assert len(np.unique(np.hstack([some.attributes, some.values]), axis=0)) == number
    with pytest.raises(WorkloadError, match="the domain has"):
        Conjunctions.sampled(domain, ways=ways, number=total + 1, seed=3, positive=positive)


def test_samples_are_even():
    """Chi-square over the 26 sets of two features of different attributes."""
    domain = Domain.of(a=2, b=3, c=4)
    every = Conjunctions.every(domain, 2)
    places = {row.tobytes(): i for i, row in enumerate(np.hstack([every.attributes, every.values]))}
    hits = np.zeros(len(every))
    for seed in range(2000):
        some = Conjunctions.sampled(domain, ways=2, number=4, seed=seed)
        for row in np.hstack([some.attributes, some.values]):
            hits[places[row.tobytes()]] += 1
    expected = 2000 * 4 / len(every)
    assert ((hits - expected) ** 2 / expected).sum() < 77  # p = 1e-6 at 25 degrees of freedom


def test_positive_values_of_attributes_that_are_0_and_1_alone():
    domain = Domain.of(a=2, b=["no", "yes"], c=Attribute.categories([False, True]), d=3)
    some = Conjunctions.every(domain, 1, positive=True)
    assert some.labels(domain)[:3] == ("a = 1", "b = no", "b = yes")
    assert len(some) == 1 + 2 + 1 + 3


def test_too_many_ways_are_refused():
    for ways in (0, 5):
        with pytest.raises(WorkloadError, match=r"ways|attributes"):
            Conjunctions.sampled(DOMAIN, ways=ways, number=1, seed=0)
    with pytest.raises(TooLargeError, match="draw some"):
        Conjunctions.every(Domain.binary(3000), 3)
    with pytest.raises(WorkloadError, match="values in all"):
        Conjunctions.every(Domain.of(a=2**31), 1)


@given(rows=st.lists(st.tuples(*[st.integers(0, 2**31 - 2)] * 4), max_size=9))
def test_keys_of_rows_are_equal_where_rows_are(rows):
    doubled = np.array([*rows, *rows], dtype=np.int64).reshape(-1, 4)
    keys = _row_keys(doubled, 2**31 - 1).tolist()
    assert keys[: len(rows)] == keys[len(rows) :]
    assert len(set(keys)) == len(set(rows))


def test_a_domain_of_half_a_million_attributes():
    domain = Domain.binary(512_000)
    assert domain.size == 2**512_000
    assert domain.axis("x511999") == 511_999
    some = Conjunctions.sampled(domain, ways=3, number=20_000, seed=1)
    assert int(some.attributes.max()) > 500_000
    some.check(domain)
    record = np.zeros(len(domain), dtype=np.uint8)
    assert some.holds(record)[:, 0].tolist() == (some.values == 0).all(axis=1).tolist()


def test_the_laws_see_a_lost_tail(monkeypatch):
    """A test of the tests: complements that reach beyond the last row."""
    packing = PackedRows.of_codes(np.zeros((5, 1), int), [2])
    monkeypatch.setattr(packing, "_valid", ~np.zeros(8, np.uint64))
    assert packing.counts(Conjunctions([[0]], [[0]])).tolist() != [5]
    assert bits.words_of(0) == bits.words_of(512) == 8
