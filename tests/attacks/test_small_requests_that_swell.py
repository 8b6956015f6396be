"""A few hundred bytes that take forever, or all of the memory, before anything is charged."""

import math
import tracemalloc
from fractions import Fraction
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

import psephos as ps
from psephos import matrix as mx
from psephos.engines import as_source
from psephos.errors import PsephosError
from psephos.kernel import codec, gate, sensitivity
from psephos.kernel.query import Query
from psephos.kernel.scores.worst_approximated import WorstApproximated
from psephos.matrix import ranges
from psephos.strategy import select

LARGE = 64 << 20


def peak(work):
    tracemalloc.start()
    try:
        work()
    except PsephosError:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most


@pytest.mark.parametrize("kind", ["DirectSum", "Kron of DirectSum"])
def test_a_shape_is_found_in_one_walk(kind, monkeypatch):
    """Every level asks the one below for its shape twice: 2^depth questions."""
    questions = []
    monkeypatch.setattr(
        mx.Identity, "shape", property(lambda eye: questions.append(1) or (eye.n, eye.n))
    )
    matrix = mx.Identity(2)
    for level in range(12):
        outer = mx.Kron if level % 2 and kind != "DirectSum" else mx.DirectSum
        matrix = outer((matrix,))
    questions.clear()
    assert matrix.shape == (2, 2)
    assert len(questions) < 100


def test_places_of_cells_take_no_more_than_their_bytes():
    one, none = np.array([1]), np.array([0])
    sparse = codec.Term("Sparse", (one, none, np.array([0, 1]), (1, 10**8)))
    data = codec.encode(codec.Term("Compose", ((codec.Term("Identity", (1,)), sparse),)))
    assert peak(lambda: gate.from_bytes(data)) < LARGE


def test_axes_of_one_cell_have_no_corners(monkeypatch):
    met = []

    def counted(*given, **named):
        for choice in product(*given, **named):
            met.append(choice)
            if len(met) > 1000:
                raise PsephosError("too many corners")
            yield choice

    monkeypatch.setattr(ranges, "product", counted)
    ends = np.zeros((1, 41), dtype=int)
    matrix = gate.admit(mx.Ranges((2,) + (1,) * 40, ends, ends), "matrix")
    assert sensitivity.stability(matrix) == 1


def test_the_sensitivity_of_products_does_not_list_all_cells():
    line, total = mx.Prefix(80), mx.total(80)
    block = mx.Kron((line, line, line, total))
    query = Query.of([(block, 1), (mx.Scaled(2, block), 1)])
    assert peak(lambda: sensitivity.sensitivity(query, 1)) < LARGE


def test_a_long_range_of_whole_numbers_is_not_listed():
    source, domain = as_source(pa.table({"x": [0, 1]})), ps.Domain.of(x=3_000_000)
    assert peak(lambda: source.count(domain, (), (), None)) < LARGE


def test_conditions_on_one_attribute_are_one_mask(tmp_path):
    budget, path = ps.epsilon("1"), tmp_path / "l"
    ps.Ledger.create(path, dataset="d", unit=ps.add_remove_row(), budget=budget)
    table = ps.protect(pa.table({"x": [0, 1]}), ps.Domain.of(x=10**6), ledger=path)
    condition = ps.col("x") >= 0
    for i in range(100):
        condition &= ps.col("x") >= i
    assert peak(lambda: table.where(condition)) < LARGE


def test_tuples_met_twice_are_read_once(tmp_path):
    """Terms are remembered when they are met again, tuples are not."""
    reads = []
    nested = ()
    for _ in range(14):
        nested = (nested, nested)
    condition = ps.col("x").isin([1])
    object.__setattr__(condition, "values", nested)
    real = gate._Taker.value

    def counted(self, *given):
        reads.append(1)
        return real(self, *given)

    gate._Taker.value = counted
    try:
        with pytest.raises(PsephosError):
            gate.admit(condition, "predicate").masks(ps.Domain.of(x=2))
    finally:
        gate._Taker.value = real
    assert len(reads) < 1000


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("odd", [np.arange(3), np.arange(0)], ids=["three", "none"])
def test_a_strategy_with_an_array_for_a_word(place, odd, tmp_path):
    domain = ps.Domain.of(x=2)
    content = ["strategy", 2, gate.fingerprint(domain), "laplace", "x", 0.0, ()]
    content += [Query.of(mx.Identity(2))]
    content[place] = odd
    path = tmp_path / "strategy.bin"
    path.write_bytes(gate.to_bytes(tuple(content)))
    with pytest.raises(PsephosError):
        select.load(path, domain)


def test_tiny_charges_leave_the_ledger_usable(tmp_path):
    """Denominators of 300 digits fill up the sum, until no other amount can be added to it."""
    path, budget = tmp_path / "l", ps.epsilon("10")
    ps.Ledger.create(path, dataset="d", unit=ps.add_remove_row(), budget=budget)
    vector = ps.protect(pa.table({"x": [0]}), ps.Domain.of(x=2), ledger=path).vectorise()
    bottoms = [10**299 + 3]
    while len(bottoms) < 13:
        last = bottoms[-1] + 2
        while any(math.gcd(last, each) > 1 for each in (30, *bottoms)):
            last += 2
        bottoms.append(last)
    bottoms += [10**digits + 1 for digits in range(120, 0, -1)]
    for bottom in bottoms:
        spend = ps.Budget("epsilon", Fraction(1, bottom))
        try:
            vector.choose(WorstApproximated(mx.Identity(2), [0, 0]), spend=spend)
        except PsephosError:
            continue
    vector.noisy_count(spend=ps.epsilon("1/10"))


def test_a_stray_line_end_takes_no_row_along(tmp_path):
    """In a file of lines that end in CR LF, a CR before that end swallowed the line after it."""
    lines = [b"u,1"] * 20

    def counted(name, lines):
        path = tmp_path / name
        path.write_bytes(b"\r\n".join([b"a,b", *lines, b""]))
        domain = ps.Domain.of(a=["u", "v"], b=3)
        return as_source(str(path)).count(domain, ("a",), (), None)

    before, after = (
        counted("before.csv", lines),
        counted("after.csv", [*lines[:9], b"v,1\r", *lines[9:]]),
    )
    assert abs(after - before).sum() <= 1
