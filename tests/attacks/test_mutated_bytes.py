"""Bytes that were changed on their way: strategy files, and whatever else holds canonical bytes.

The story: a strategy's file was an archive of arrays that scipy and numpy believed. One changed
byte in an index array ended the process that read it with a segmentation fault, and a file of 389
kB grew to 400 MB when it was opened. Now every change either leaves a PsephosError or, where the
bytes are canonical for another value, exactly that value; and reading takes no more memory than
`codec` states.
"""

import random
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse as sp

import psephos as ps
from psephos import matrix as mx
from psephos.errors import PsephosError
from psephos.kernel import gate
from psephos.kernel.query import Query
from psephos.strategy import select

DOMAIN = ps.Domain.of(a=4, b=3)
GROUPS = mx.Partition([0, 1, 1, 0])
BLOCKS = [
    (mx.Kron((mx.PIdentity([3, 1, 2, 2], [[1, 0, 1, 5]]), mx.Prefix(3))), "3/2"),
    (mx.Kron((mx.Compose((mx.Diagonal([2, 7]), GROUPS)), mx.Haar(3))), 1),
    (mx.Stack((mx.Scaled(-3, mx.Identity(12)), mx.Marginals.of((4, 3), {(0,): 2, (): 1}))), 2),
    (mx.Sparse(sp.csr_array(np.tri(12, dtype=np.int64))), "1/4"),
    (mx.Permuted(mx.AllRange(12), np.arange(12)[::-1].copy()), 1),
    (mx.DirectSum((mx.Ranges.intervals(6, [0, 2], [1, 5]), mx.WidthRange(6, 2))), 1),
    (mx.Dense(np.arange(24, dtype=np.int16).reshape(2, 12)), 1),
]
QUERY = Query.of(BLOCKS)
LARGE = 64 << 20


def mutated(data, rng):
    """A few changes of the kinds that find holes: bits, lengths, repeats, cuts, large numbers."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        at = rng.randrange(len(changed) + 1)
        length = rng.choice([1, 1, 2, 4, 8, 40])
        match rng.randrange(7):
            case 0:
                changed[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                if at < len(changed):
                    changed[at] ^= 1 << rng.randrange(8)
            case 2:
                del changed[at : at + length]
            case 3:
                changed[at:at] = rng.randbytes(length)
            case 4:
                changed[at:at] = changed[at : at + length]
            case 5:
                number = rng.choice([0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1])
                size = rng.choice([2, 4, 8])
                changed[at : at + size] = (number % 2 ** (8 * size)).to_bytes(size)
            case _:
                other = rng.randrange(len(changed) + 1)
                changed[at : at + length] = changed[other : other + length]
    return bytes(changed)


def attack(data, tries, seed):
    """How many mutations were read as another value; all others are refused in words."""
    rng, read = random.Random(seed), 0
    for _ in range(tries):
        changed = mutated(data, rng)
        try:
            value = gate.from_bytes(changed)
        except PsephosError:
            continue
        assert gate.to_bytes(value) == changed
        read += 1
    return read


def test_a_few_thousand_mutations():
    assert attack(gate.to_bytes(QUERY), 3000, 0) < 1500
    assert attack(gate.to_bytes((DOMAIN, ps.epsilon("1/3"), 2.5, "text")), 1000, 1) < 500


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_thousand_mutations(seed):
    attack(gate.to_bytes(QUERY), 6000, 100 + seed)


def test_reading_takes_no_more_memory_than_it_states():
    data, rng = gate.to_bytes(QUERY), random.Random(2)
    tracemalloc.start()
    try:
        for _ in range(300):
            with suppress(PsephosError):
                gate.from_bytes(mutated(data, rng))
        for greedy in (
            data[:8] + (2**32 - 1).to_bytes(4) + data[12:],
            gate.to_bytes(tuple(range(20_000)))[:-7],
        ):
            with pytest.raises(PsephosError):
                gate.from_bytes(greedy)
        assert tracemalloc.get_traced_memory()[1] < LARGE
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def strategy_file(tmp_path_factory):
    place = tmp_path_factory.mktemp("strategies") / "a.strategy"
    rivals = (select.Rival("identity", 2.5),)
    select.save(ps.Strategy(DOMAIN, "laplace", QUERY, "mixed", 0.25, rivals), place)
    return place


def attack_file(place, tries, seed):
    data, rng, other = place.read_bytes(), random.Random(seed), place.with_suffix(".other")
    for _ in range(tries):
        changed = mutated(data, rng)
        other.write_bytes(changed)
        try:
            strategy = select.load(other, DOMAIN)
        except PsephosError:
            continue
        select.save(strategy, other)
        assert other.read_bytes() == changed


def test_mutated_strategy_files(strategy_file):
    whole = select.load(strategy_file, DOMAIN)
    assert (whole.query, whole.name, whole.rounding_loss) == (QUERY, "mixed", 0.25)
    assert whole.rivals == (select.Rival("identity", 2.5),)
    attack_file(strategy_file, 500, 3)


@pytest.mark.slow
def test_many_mutated_strategy_files(strategy_file):
    attack_file(strategy_file, 5000, 4)


def test_files_that_are_too_large_or_of_another_kind_are_refused(strategy_file, monkeypatch):
    other = strategy_file.with_suffix(".strange")
    for content in (("strategy", 1), ("strategy", 2, "x"), (1,) * 8, DOMAIN, ("s", 1, *("x",) * 6)):
        other.write_bytes(gate.to_bytes(content))
        with pytest.raises(PsephosError):
            select.load(other, DOMAIN)
    monkeypatch.setattr("psephos.strategy.strategy.LARGEST_FILE", 100)
    with pytest.raises(PsephosError, match="a strategy has fewer"):
        select.load(strategy_file, DOMAIN)
    with pytest.raises(PsephosError, match="over the limit"):
        select.save(ps.Strategy(DOMAIN, "laplace", QUERY), other)
