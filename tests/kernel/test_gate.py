"""What is admitted is a copy with the same meaning; bytes and values are one to one."""

import datetime
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import psephos as ps
from psephos import matrix as mx
from psephos.domain.attribute import Attribute
from psephos.domain.predicate import And, Compare, In
from psephos.domain.values import Level
from psephos.errors import BudgetError, DomainError, PsephosError, RefusedError, ShapeError
from psephos.kernel import codec, gate
from psephos.kernel.budget import Budget, epsilon
from psephos.kernel.gate import FORMS, from_bytes, to_bytes
from psephos.kernel.query import Query
from psephos.kernel.sensitivity import LARGEST, RULES
from psephos.kernel.unit import person
from psephos.matrix.base import Transposed
from tests.strategies import matrices

AGE = Attribute.integers(0, 9).with_level("broad", [0, 5])
DOMAIN = ps.Domain.of(
    {
        "sex": {"F": "Female", None: "unknown", True: "yes", 2.5: "two and a half"},
        "age": AGE.with_unknown("other"),
        "pay": Attribute.bins([0, 10, float("inf")]),
        "day": [datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3, 4)],
        "n": 5,
    }
)
CONDITION = (ps.col("age") >= 3) & ~(ps.col("sex").isin(["F", None]) | (ps.col("pay") < 10.0))
CONDITION &= ps.col("age").in_level("broad", "5–9") | (ps.col("day") == datetime.date(2020, 1, 2))
VALUES = [
    DOMAIN,
    DOMAIN.merge(["sex", "n"]),
    CONDITION,
    Query.of([(mx.Identity(4), "3/2"), (mx.Kron((mx.Prefix(2), mx.total(2))), 1)]),
    epsilon("1/3"),
    person("id", max_rows=3),
    ps.add_remove_row(),
    (1, "a", (), np.arange(6, dtype=np.int16).reshape(2, 3), 1.5, None, -(2**70)),
]


@given(a=matrices())
def test_matrices_come_back_from_their_bytes(a):
    try:
        admitted = gate.admit(a, "matrix")
    except PsephosError:
        return
    assert admitted == a
    assert admitted is not a
    again = from_bytes(to_bytes(a))
    assert again == a
    assert to_bytes(again) == to_bytes(admitted) == to_bytes(a)
    assert gate.fingerprint(again) == gate.fingerprint(a)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_come_back_from_their_bytes(value):
    data = to_bytes(value)
    again = from_bytes(data)
    assert to_bytes(again) == data
    assert repr(again) == repr(value)
    assert type(again) is type(value)


def test_every_rule_has_a_form_and_every_form_is_named_once():
    names = {form.kind for form in FORMS.values() if form.family == "matrix"}
    assert names == set(RULES) == set(LARGEST)
    assert len({form.kind for form in FORMS.values()}) == len(FORMS)


def test_equal_parts_are_written_and_built_once():
    entries = np.arange(400).reshape(20, 20)
    shared = mx.Dense(entries)
    one = mx.Stack(tuple(mx.Scaled(k, mx.Kron((shared, shared))) for k in range(2, 40)))
    two = mx.Stack(
        tuple(mx.Scaled(k, mx.Kron((mx.Dense(entries), mx.Dense(entries)))) for k in range(2, 40))
    )
    assert to_bytes(one) == to_bytes(two)
    assert len(to_bytes(one)) < 2 * entries.nbytes
    factors = {id(f) for part in from_bytes(to_bytes(two)).parts for f in part.base.factors}
    assert len(factors) == 1


def test_names_depend_on_every_part():
    base = Query.of([(mx.Identity(4), 1), (mx.Prefix(4), 2)])
    others = [
        Query.of([(mx.Identity(4), 1), (mx.Prefix(4), 3)]),
        Query.of([(mx.Prefix(4), 2), (mx.Identity(4), 1)]),
        Query.of([(mx.Identity(4), 1), (mx.Prefix(4).T, 2)]),
        Query.of([(mx.Stack((mx.Identity(4), mx.Prefix(4))), 1)]),
    ]
    assert len({gate.fingerprint(query) for query in [base, *others]}) == 5
    # The name of a value is for good: ledgers and files hold it.
    known = "1630fa29d3a969f60de55f834309c31026b2eb16a7e2ccd60922a46e01572d3c"
    assert gate.fingerprint(base) == known


@pytest.mark.parametrize(
    ("family", "given", "error"),
    [
        ("matrix", "text", RefusedError),
        ("matrix", epsilon("1"), RefusedError),
        ("matrix", mx.Dense([[0.5]]), RefusedError),
        ("matrix", mx.Scaled(0.5, mx.Identity(2)), RefusedError),
        ("matrix", mx.Semiseparable([1.0], [1.0]), RefusedError),
        ("query", mx.Identity(3), RefusedError),
        ("predicate", mx.Identity(3), RefusedError),
        ("budget", 0.1, BudgetError),
        ("budget", mx.Identity(3), BudgetError),
        ("unit", epsilon("1"), BudgetError),
        ("domain", None, RefusedError),
    ],
)
def test_one_family_is_not_taken_for_another(family, given, error):
    with pytest.raises(error):
        gate.admit(given, family)


def terms(name, *fields):
    return codec.encode(codec.Term(name, fields))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"psephos\x01",
        codec.encode(1)[:-1],
        codec.encode(1) + b"x",
        codec.encode(1).replace(b"\x00\x01\x01", b"\x00\x02\x00\x01"),  # longer than it need be
        terms("Identity", -1),
        terms("Identity", "4"),
        terms("Identity"),
        terms("Identity", 4, 4),
        terms("Nothing", 4),
        terms("Kron", ()),
        terms("Kron", 4),
        terms("Dense", (1, 2)),
        terms("Dense", np.array([True])),
        terms("Kron", (codec.Term("Kron", ((codec.Term("Identity", (2,)),),)),)),
        terms("Stack", (codec.Term("Budget", ("epsilon", 1)),)),
        terms("Sparse", np.ones(1, np.int64), np.array([-1]), np.array([0, 1]), (1, 1)),
        terms("Sparse", np.ones(1, np.int64), np.array([0]), np.array([0, 5]), (1, 1)),
        terms("Sparse", np.ones(1, np.int64), np.array([0]), np.array([0, 1]), (1, 2**200)),
        terms("Sparse", np.ones(1, np.int64), np.array([0]), np.array([0, 1]), "ab"),
        terms("Fraction", 1, 0),
        terms("Fraction", 2, 4),
        terms("float", "nonsense"),
        terms("float", "0x2p-1"),
        terms("Budget", "epsilon", codec.Term("Fraction", (-1, 2))),
        terms("Budget", "euro", codec.Term("Fraction", (1, 2))),
        terms("Level", "l", np.array([0, 3]), ("a", "b")),
        terms("range", 0, 10, 0),
    ],
)
def test_other_bytes_are_refused(data):
    with pytest.raises(PsephosError):
        from_bytes(data)


def test_bytes_of_another_version_are_named_as_such():
    with pytest.raises(RefusedError, match="no file of psephos, or one of another version"):
        from_bytes(b"another\x01" + codec.encode(1)[8:])


def test_flags_are_bytes_of_0_or_1():
    data = to_bytes(np.array([True, False]))
    assert from_bytes(data).tolist() == [True, False]
    with pytest.raises(RefusedError, match="no plain value can be read"):
        from_bytes(data[:-2] + b"\x02\x00")


def test_a_term_that_nobody_needs_is_refused():
    one, two = to_bytes(mx.Identity(3)), to_bytes(mx.Identity(4))
    head, body = one[:8], one[12:]
    both = head + (2).to_bytes(4) + two[12:-5] + body[:-5] + b"t" + (1).to_bytes(4)
    with pytest.raises(RefusedError, match="not the canonical ones"):
        from_bytes(both)


def nested_terms(width):
    term = codec.Term("Identity", (2,))
    for _ in range(codec.DEEPEST):
        term = codec.Term("Stack", ((term,) * width,))


def test_limits_are_told_in_words():
    with pytest.raises(RefusedError, match="4096 bits"):
        to_bytes(1 << 5000)
    with pytest.raises(RefusedError, match="half a character"):
        to_bytes("\ud800")
    with pytest.raises(RefusedError, match="no plain value"):
        codec.encode(None)
    for width in (1, 2):
        with pytest.raises(RefusedError, match=r"nested over 110 deep or has over"):
            nested_terms(width)
    nested = ()
    for _ in range(200):
        nested = (nested,)
    with pytest.raises(RefusedError):
        from_bytes(codec.encode(nested))


def test_tuples_that_lie_in_tuples_too_deeply_are_refused():
    nested = 1
    for _ in range(gate.DEEPEST_TUPLE + 1):
        nested = (nested,)
    assert from_bytes(to_bytes(nested)) == nested
    with pytest.raises(RefusedError, match="too deeply"):
        to_bytes((nested,))


def test_matrices_without_a_part_or_without_an_end_are_refused():
    """Frozen values can be forged by hand."""
    hollow, endless = mx.Scaled(2, mx.Prefix(3)), mx.Scaled(2, mx.Prefix(3))
    object.__delattr__(hollow, "base")
    object.__setattr__(endless, "base", endless)
    for forged in (hollow, endless):
        with pytest.raises(RefusedError, match="this Scaled is endless, or a part is gone"):
            gate.admit(forged, "matrix")


def test_arrays_of_another_byte_order_are_the_same_numbers():
    big = mx.Dense(np.array([[1, 2], [3, 4]], dtype=">i4"))
    assert gate.admit(big, "matrix").array.tolist() == [[1, 2], [3, 4]]
    assert gate.fingerprint(big) == gate.fingerprint(mx.Dense(np.array([[1, 2], [3, 4]], "<i4")))


def test_sparse_matrices_of_scipys_other_kinds_are_not_measured():
    matrix = mx.Sparse(sp.eye_array(3, format="csr"))
    object.__setattr__(matrix, "entries", sp.eye_array(3, dtype=int, format="csc"))
    with pytest.raises(RefusedError, match="csr_array"):
        gate.admit(matrix, "matrix")


def test_scipy_arrays_with_indices_outside_are_no_matrix():
    entries = sp.csr_array(np.eye(3, dtype=int))
    entries.indices = np.array([0, 1, 7], dtype=np.int32)
    with pytest.raises(ShapeError, match="indices outside of it"):
        mx.Sparse(entries)


def test_schemas_that_contradict_themselves_are_refused():
    with pytest.raises(DomainError, match="a group from 0 to 1"):
        Level("l", np.array([0, 2]), ("a", "b"))
    with pytest.raises(DomainError, match="groups 2 cells, and the attribute has 3"):
        Attribute(range(3), levels=(Level("l", np.array([0, 1]), ("a", "b")),))
    with pytest.raises(DomainError, match="numbers that increase"):
        Attribute(((0, 1), (1, 3)), ("a", "b"), edges=(0, 1, 2))
    with pytest.raises(DomainError, match="combinations of the merged"):
        Attribute(range(3), parts=(("a", Attribute(range(2))), ("b", Attribute(range(2)))))


def test_a_transpose_without_a_rule_is_built_as_what_it_is():
    turned = mx.Prefix(3).T
    assert type(gate.admit(turned, "matrix")) is Transposed
    object.__setattr__(turned, "base", mx.Identity(3))
    assert gate.admit(turned, "matrix") == mx.Identity(3)


@pytest.mark.parametrize("condition", [And(("text",)), Compare("age", "<>", 3), In("age", 7)])
def test_conditions_that_no_comparison_makes_are_refused(condition):
    table = ps.simulate(
        np.zeros(DOMAIN.size, int), DOMAIN, unit=ps.add_remove_row(), budget=epsilon("1"), seed=0
    )
    with pytest.raises(PsephosError):
        table.where(condition)


@given(
    st.recursive(
        st.integers(-(2**80), 2**80) | st.text(max_size=5) | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=4).map(tuple),
        max_leaves=20,
    )
)
def test_plain_values_are_one_to_one_with_their_bytes(value):
    try:
        data = to_bytes(value)
    except RefusedError:
        assert any(0xD800 <= ord(c) < 0xE000 for c in repr(value)) or "\\ud" in repr(value)
        return
    assert from_bytes(data) == value
    assert repr(from_bytes(data)) == repr(value)


def test_budgets_of_many_digits_are_refused():
    for amount in (Fraction(10**300), Fraction(1, 10**300), Fraction(0)):
        with pytest.raises(BudgetError, match="at most 300 digits"):
            gate.budget(Budget("epsilon", amount), "spend")
    assert gate.budget(Budget("rho", Fraction(0)), "a charge", least=0).amount == 0
