"""Tables of persons: each counts once in every cell that one of their rows lies in."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import psephos as ps
import psephos.engines.duckdb.reader as reader
from psephos.domain.values import Level
from psephos.engines import as_source
from psephos.errors import BudgetExceededError, DomainError, RefusedError
from psephos.kernel.measurement import noise_for
from psephos.kernel.query import Query
from psephos.kernel.unit import person, substitute_row
from psephos.matrix import Identity

DOMAIN = ps.Domain.of(
    place=ps.Attribute.integers(0, 3).with_level("half", {"west": [0, 1], "east": [2, 3]}),
    sex=["F", "M"],
)
EVERY_PLACE = ("place", np.arange(4), 4)
HALVES = ("place", np.array([0, 0, 1, 1]), 2)
EVERY_SEX = ("sex", np.arange(2), 2)
VISITS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 4), st.sampled_from(["F", "M", None])), max_size=40
)
"""A person, a place (4 is not declared) and a sex."""


def visits_table(visits):
    who, where, sexes = zip(*visits, strict=True) if visits else ((), (), ())
    return pa.table(
        {
            "id": pa.array(who, pa.int64()),
            "place": pa.array(where, pa.int64()),
            "sex": pa.array(sexes, pa.string()),
        }
    )


def capped(visits, most):
    """The rows that stay of each person, as the rules of sources say."""
    rows = sorted((who, place, "FM".index(s)) for who, place, s in visits if place < 4 and s)
    seen = Counter()
    for row in rows:
        seen[row[0]] += 1
        if seen[row[0]] <= most:
            yield row


def expected(visits, most, axes, where=lambda _: True):
    pairs = {
        (who, tuple(int(groups[{"place": place, "sex": sex}[name]]) for name, groups, _ in axes))
        for who, place, sex in capped(visits, most)
        if where((place, sex))
    }
    counts = np.zeros([size for *_, size in axes], dtype=np.int64)
    for _, cell in pairs:
        counts[cell] += 1
    return counts


@pytest.mark.parametrize("axes", [(EVERY_PLACE,), (HALVES,), (EVERY_SEX, HALVES), ()])
@settings(max_examples=25)
@given(visits=VISITS, most=st.integers(1, 4), batch=st.sampled_from([2, 3, 2**20]))
def test_every_person_counts_once_in_a_cell(axes, visits, most, batch):
    source = as_source(visits_table(visits))
    before, reader.INDEX_BATCH_ROWS = reader.INDEX_BATCH_ROWS, batch
    try:
        counts = source.take(DOMAIN, person("id", max_rows=most).cap).persons(axes, ())
    finally:
        reader.INDEX_BATCH_ROWS = before
    assert np.array_equal(counts, expected(visits, most, axes))


@settings(max_examples=15)
@given(visits=VISITS, more=VISITS, most=st.integers(1, 4))
def test_a_person_moves_each_cell_once(visits, more, most):
    """All rows of one person, left out or replaced: what moves is what the unit says."""
    others = [row for row in visits if row[0] != 0]
    cap = person("id", max_rows=most)
    for axes in [(EVERY_PLACE,), (HALVES,), ()]:
        tables = [others, visits, others + [(0, place, sex) for _, place, sex in more]]
        counts = [
            as_source(visits_table(t)).take(DOMAIN, cap.cap).persons(axes, ()) for t in tables
        ]
        cells = max(int(np.prod(counts[0].shape)), 1)
        alone = cap.on_persons(cells)
        assert all(np.abs(c - counts[0]).sum() <= alone.distance for c in counts)
        assert all(np.abs(c - counts[0]).max() <= 1 for c in counts)
        swap = person("id", max_rows=most, change="substitute").on_persons(cells)
        assert np.abs(counts[1] - counts[2]).sum() <= swap.distance


def handle(visits=(), most=3, budget="100", **options):
    unit = person("id", max_rows=most, **options)
    source = visits_table(list(visits))
    return ps.simulate(source, DOMAIN, unit=unit, budget=ps.epsilon(budget), seed=1)


def test_everyone_counts_once_whatever_the_cap_is():
    """With one cell a person moves it by one, so noise is that of max_rows = 1."""
    visits = [(who, place, "F") for who in range(500) for place in range(4)]
    table = handle(visits, most=3).persons()
    spend = ps.epsilon("50")
    y = table.vectorise().measure(Identity(1), spend=spend)
    assert abs(int(y.values[0]) - 500) <= 1
    alone = noise_for(Query.of(Identity(1)), spend, person("id", max_rows=1), 1)
    assert y.noise == alone
    rows = handle(visits, most=3).vectorise().measure(Identity(8), spend=spend)
    assert rows.noise[0].scale == 3 * alone[0].scale


def test_persons_at_a_level_are_not_the_sum_of_its_values():
    visits = [(who, place, "F") for who in range(400) for place in (0, 1, 3)]
    by_half = handle(visits).persons(place="half")
    assert by_half.domain.names == ("place",)
    assert by_half.domain["place"].labels == ("west", "east")
    y = by_half.vectorise().measure(Identity(2), spend=ps.epsilon("50"))
    assert np.abs(y.values - [400, 400]).max() <= 2


def test_conditions_above_choose_rows_and_below_choose_cells():
    visits = [(1, 0, "F"), (1, 1, "M"), (2, 1, "M")] * 1
    table = handle(visits, most=2)
    above = table.where(ps.col("sex") == "M").persons("place")
    below = table.persons("place", "sex").where(ps.col("sex") == "M").keep("place")
    for each in (above, below):
        y = each.vectorise().measure(Identity(4), spend=ps.epsilon("49"))
        assert np.abs(y.values - [0, 2, 0, 0]).max() <= 1


def test_what_has_no_persons_is_refused_before_a_charge():
    rows = ps.simulate(
        np.zeros(8, int), DOMAIN, unit=person("id", max_rows=2), budget=ps.epsilon("1"), seed=0
    )
    no_person = ps.simulate(
        visits_table([]), DOMAIN, unit=substitute_row(), budget=ps.epsilon("1"), seed=0
    )
    below_split = handle().split("sex")["F"]
    grouped = handle().group_by("sex", most=3)
    twice = handle().persons("sex", "place")
    for table in (rows, no_person, below_split, grouped, twice):
        with pytest.raises(RefusedError, match="persons are counted"):
            table.persons()
    with pytest.raises(DomainError, match="declared twice"):
        handle().persons("sex", "sex")
    with pytest.raises(DomainError, match="no level"):
        handle().persons(place="quarter")


def test_every_grouping_is_a_request_of_its_own():
    table = handle(budget="1")
    paths = {
        table.persons().vectorise()._node.path,
        table.persons("sex").vectorise()._node.path,
        table.persons("place").vectorise()._node.path,
        table.persons(place="half").vectorise()._node.path,
        table.vectorise()._node.path,
    }
    assert len(paths) == 5
    table.persons("sex").vectorise().measure(Identity(2), spend=ps.epsilon("1/2"))
    table.persons().vectorise().measure(Identity(1), spend=ps.epsilon("1/2"))
    with pytest.raises(BudgetExceededError):
        table.persons("place").vectorise().measure(Identity(4), spend=ps.epsilon("1/100"))


@pytest.mark.parametrize("change", ["add_remove", "substitute"])
def test_parts_of_persons_cost_their_maximum(change):
    """Below persons the rows are those of the table of persons, each in one part."""
    table = handle(budget="1", change=change).persons("sex", "place")
    for part in table.split("sex").values():
        part.vectorise().measure(Identity(4), spend=ps.epsilon("1"))


def test_games_on_persons_go_by_what_a_person_moves():
    unit = person("id", max_rows=3, change="substitute").on_persons(2)
    each = unit.per_moved_row(ps.epsilon("1"), 1, rowwise=True)
    assert each == Fraction(1, 2)  # the old one's cells, at most two, out; the new one's in


def test_levels_with_the_same_groups_and_other_labels_are_told_apart():
    """A level may have a group that no value is in; what is kept of one is not shown for it."""
    groups = np.array([0, 0, 1, 1], dtype=np.uint64)
    levels = (Level("two", groups, ("a", "b")), Level("three", groups, ("a", "b", "c")))
    domain = ps.Domain.of(place=ps.Attribute(range(4), levels=levels), sex=["F", "M"])
    source = visits_table([(who, place, "F") for who in range(300) for place in (0, 3)])
    unit = person("id", max_rows=2)
    table = ps.simulate(source, domain, unit=unit, budget=ps.epsilon("200"), seed=1)
    for level, right in (("two", [300, 300]), ("three", [300, 300, 0])):
        vector = table.persons(place=level).vectorise()
        y = vector.measure(Identity(vector.size), spend=ps.epsilon("100"))
        assert np.abs(y.values - right).max() <= 1
