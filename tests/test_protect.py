"""From a file and a ledger to measurements: the attacks that must fail, on the real path."""

import datetime
import hashlib
import os
import secrets
import time
from fractions import Fraction
from threading import Barrier, Thread

import numpy as np
import pytest

import psephos as ps
from psephos import matrix as mx
from psephos.engines.duckdb.reader import Reader
from psephos.errors import BudgetExceededError, DomainError, LedgerError, PsephosError
from psephos.kernel import noise
from psephos.kernel.budget import epsilon, rho
from psephos.kernel.ledger import Ledger
from psephos.kernel.unit import add_remove_row, person, substitute_row
from psephos.protect import protect
from psephos.without_ledger import simulate

DOMAIN = ps.Domain.of(sex=["F", "M"], age=4)
ROWS = [("F", 0), ("F", 3), ("M", 1), ("M", 1), ("M", 3), ("F", 3)]


class Silent:
    simulation = False

    def noise(self, noise, size):
        return np.zeros(size, dtype=np.int64)


def write(path, rows, head="sex,age"):
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture
def people(tmp_path):
    return write(tmp_path / "people.csv", ROWS)


def ledger_at(path, budget=None, unit=None):
    made = budget or epsilon("1")
    return Ledger.create(path, dataset="people", unit=unit or add_remove_row(), budget=made)


def test_a_file_a_ledger_a_measurement(tmp_path, people):
    ledger = ledger_at(tmp_path / "people.ledger")
    data = protect(people, DOMAIN, ledger=tmp_path / "people.ledger")
    data._vault.draws = Silent()
    y = data.vectorise().measure(mx.Identity(8), spend=epsilon("1/4"))
    assert y.values.tolist() == [1, 0, 0, 2, 0, 2, 0, 1]
    assert y.noise[0].scale == 4
    assert y.cost == epsilon("1/4") == ledger.spent()
    assert not y.simulation
    y.require_release()
    assert [entry.booked for entry in ledger.history()] == [epsilon("1/4")]
    assert "epsilon 3/4 (~0.75) left of epsilon 1" in repr(data)
    ledger.verify()


def test_three_tenths_of_three_tenths_and_no_fourth(tmp_path, people):
    ledger_at(tmp_path / "l", epsilon("0.3"))
    for _ in range(3):
        protect(people, DOMAIN, ledger=tmp_path / "l").noisy_count(spend=epsilon("0.1"))
    with pytest.raises(BudgetExceededError):
        protect(people, DOMAIN, ledger=tmp_path / "l").noisy_count(spend=epsilon("0.1"))


def test_no_path_mints_a_fresh_budget(tmp_path, people):
    ledger_at(tmp_path / "l", epsilon("0.1"))
    protect(people, DOMAIN, ledger=tmp_path / "l").noisy_count(spend=epsilon("0.1"))
    with pytest.raises(LedgerError):
        protect(people, DOMAIN, ledger=tmp_path / "ledgr")
    with pytest.raises(LedgerError):
        ledger_at(tmp_path / "l")
    with pytest.raises(BudgetExceededError):
        protect(people, DOMAIN, ledger=tmp_path / "l").noisy_count(spend=epsilon("1/100"))


def test_parallel_parts_cost_their_maximum_in_the_ledger(tmp_path, people):
    ledger = ledger_at(tmp_path / "l")
    data = protect(people, DOMAIN, ledger=ledger)
    for part in data.split("sex").values():
        part.noisy_count(spend=epsilon("1/2"))
    assert ledger.spent() == epsilon("1/2")
    for part in data.split("sex").values():
        part.noisy_count(spend=epsilon("1/4"))
    assert ledger.spent() == epsilon("3/4")
    ledger.verify()


def test_forked_children_pay_for_their_parts(tmp_path, people):
    """They have the rows of their parent: the part that all three measure pays three times."""
    ledger = ledger_at(tmp_path / "l", epsilon("100"))
    parts = protect(people, DOMAIN, ledger=ledger).split("sex")
    parts["F"].noisy_count(spend=epsilon("5"))
    for _ in range(3):
        child = os.fork()
        if child == 0:
            parts["M"].noisy_count(spend=epsilon("5"))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert ledger.spent() == epsilon("15")


def test_forked_children_without_rows_have_parts_of_their_own(tmp_path, people):
    ledger = ledger_at(tmp_path / "l", epsilon("100"))
    parts = protect(people, DOMAIN, ledger=ledger).split("sex")
    for name in "FMF":
        child = os.fork()
        if child == 0:
            parts[name].noisy_count(spend=epsilon("5"))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert ledger.spent() == epsilon("15")


def test_threads_on_one_part_pay_each(tmp_path, people):
    ledger = ledger_at(tmp_path / "l", epsilon("100"))
    parts = protect(people, DOMAIN, ledger=ledger).split("sex")
    parts["F"].noisy_count(spend=epsilon("5"))
    ready = Barrier(4)

    def spend():
        ready.wait()
        parts["M"].noisy_count(spend=epsilon("5"))

    threads = [Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.spent() == epsilon("20")


def test_an_interrupted_request_is_not_free_afterwards(tmp_path, people, monkeypatch):
    ledger = ledger_at(tmp_path / "l", epsilon("100"))
    parts = protect(people, DOMAIN, ledger=ledger).split("sex")
    parts["F"].noisy_count(spend=epsilon("5"))

    def broken(size):
        raise KeyboardInterrupt

    true = noise._entropy
    for i in range(3):
        monkeypatch.setattr(noise, "_entropy", broken)
        with pytest.raises(KeyboardInterrupt):
            parts["M"].noisy_count(spend=epsilon("5"), key=f"k{i}")
        monkeypatch.setattr(noise, "_entropy", true)
        parts["M"].noisy_count(spend=epsilon("5"), key=f"k{i}")
    assert ledger.spent() >= epsilon("15")


def test_a_refused_request_leaves_no_trace(tmp_path, people):
    ledger = ledger_at(tmp_path / "l", epsilon("10"))
    parts = protect(people, DOMAIN, ledger=ledger).split("sex")
    with pytest.raises(BudgetExceededError):
        parts["M"].noisy_count(spend=epsilon("11"))
    parts["M"].noisy_count(spend=epsilon("10"), key="a")
    parts["M"].noisy_count(spend=epsilon("10"), key="a")
    parts["F"].noisy_count(spend=epsilon("10"))
    assert ledger.spent() == epsilon("10")


def test_a_key_belongs_to_a_schema(tmp_path, people):
    ledger = ledger_at(tmp_path / "l")
    protect(people, DOMAIN, ledger=ledger).noisy_count(spend=epsilon("1/10"), key="k")
    other = ps.Domain.of(sex=["M", "F"], age=4)
    with pytest.raises(LedgerError):
        protect(people, other, ledger=ledger).noisy_count(spend=epsilon("1/10"), key="k")


def test_what_a_measurement_shows_is_not_what_the_handle_uses(tmp_path, people):
    ledger_at(tmp_path / "l", epsilon("100"))
    data = protect(people, DOMAIN, ledger=tmp_path / "l")
    v = data.vectorise().transform(mx.Dense(np.eye(8, dtype=int)))
    data._vault.draws = Silent()
    y = v.measure(mx.Identity(8), spend=epsilon("1"))
    y.transform.array.setflags(write=True)
    y.transform.array[...] *= 10**6
    assert v.measure(mx.Identity(8), spend=epsilon("1")).values.max() == 2


def test_one_instant_is_one_value(tmp_path):
    zone = datetime.UTC
    with pytest.raises(DomainError, match="time zone"):
        ps.Domain.of(ts=[datetime.datetime(2021, 11, 7, 6, 30, tzinfo=zone)])


def test_a_key_is_charged_once_and_shows_one_answer(tmp_path, people):
    ledger = ledger_at(tmp_path / "l")
    first = protect(people, DOMAIN, ledger=ledger).noisy_count(spend=epsilon("1/10"), key="total")
    again = protect(people, DOMAIN, ledger=tmp_path / "l").noisy_count(
        spend=epsilon("1/10"), key="total"
    )
    assert again.values.tolist() == first.values.tolist()
    assert ledger.spent() == epsilon("1/10")
    with pytest.raises(LedgerError):
        protect(people, DOMAIN, ledger=ledger).noisy_count(spend=epsilon("1/5"), key="total")
    with pytest.raises(LedgerError):
        protect(people, DOMAIN, ledger=ledger).where(ps.col("age") > 1).noisy_count(
            spend=epsilon("1/10"), key="total"
        )


def test_a_failed_count_wastes_the_charge_and_shows_nothing(tmp_path, people, monkeypatch):
    ledger = ledger_at(tmp_path / "l")
    data = protect(people, DOMAIN, ledger=ledger)
    people.unlink()
    with pytest.raises(PsephosError) as error:
        data.noisy_count(spend=epsilon("1/10"), key="k")
    assert error.value.__cause__ is None
    assert str(people) not in str(error.value)
    assert ledger.spent() == epsilon("1/10")
    write(people, ROWS)
    protect(people, DOMAIN, ledger=ledger).noisy_count(spend=epsilon("1/10"), key="k")
    assert ledger.spent() == epsilon("1/10")


def test_two_kernels_never_draw_equal_noise(tmp_path, people):
    drawn = []
    for name in ("a", "b"):
        ledger_at(tmp_path / name)
        data = protect(people, DOMAIN, ledger=tmp_path / name)
        drawn.append(data.vectorise().measure(mx.Identity(8), spend=epsilon("1/1000")).values)
    assert drawn[0].tolist() != drawn[1].tolist()


def test_a_fork_does_not_share_noise(tmp_path, people):
    ledger = ledger_at(tmp_path / "l")
    data = protect(people, DOMAIN, ledger=ledger)
    data.noisy_count(spend=epsilon("1/1000"))  # both have the same rows
    read, end = os.pipe()
    child = os.fork()
    if child == 0:
        values = data.vectorise().measure(mx.Identity(8), spend=epsilon("1/1000")).values
        os.write(end, values.tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    own = data.vectorise().measure(mx.Identity(8), spend=epsilon("1/1000")).values
    assert os.read(read, 64) != own.tobytes()
    assert ledger.spent() == epsilon("3/1000")


def test_threads_of_a_forked_child_take_turns(tmp_path, people):
    """Also where one of them looks at a table made by group_by: both are priced on one tree."""
    ledger_at(tmp_path / "l")
    data = protect(people, DOMAIN, ledger=tmp_path / "l")
    inside, most = [], []

    class Watched(Silent):
        def noise(self, noise, size):
            inside.append(size)
            most.append(len(inside))
            time.sleep(0.3)
            inside.pop()
            return super().noise(noise, size)

    data._vault.draws = Watched()
    handles = [data, data.group_by("age", most=3), data.group_by("sex", most=3)]
    child = os.fork()
    if child == 0:
        ask = lambda handle: handle.noisy_count(spend=epsilon("1/10"))  # noqa: E731
        threads = [Thread(target=ask, args=(handle,)) for handle in handles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(0 if most == [1, 1, 1] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_person_counts_at_most_max_rows_over_all_parts(tmp_path):
    """Rows in ten children of a split: the cap is at the root, before any split."""
    ten = ps.Domain.of(part=10)
    rows = [("ann", i) for i in range(10)] + [("bob", 3), ("", 5)]
    path = write(tmp_path / "p.csv", rows, "id,part")
    ledger_at(tmp_path / "l", epsilon("100"), person("id", max_rows=2))
    data = protect(path, ten, ledger=tmp_path / "l")
    data._vault.draws = Silent()
    parts = data.split("part")
    counts = [part.noisy_count(spend=epsilon("1")).values[0] for part in parts.values()]
    assert sum(counts) == 3
    y = data.where(ps.col("part") >= 5).noisy_count(spend=epsilon("1"))
    assert y.values[0] == 0
    assert y.noise[0].scale == 2


def test_currencies_and_units(tmp_path, people):
    ledger = ledger_at(tmp_path / "r", rho("1"), substitute_row())
    data = protect(people, DOMAIN, ledger=ledger)
    y = data.vectorise().measure(mx.Identity(8), spend=rho("1/8"))
    assert y.noise[0].variance == 16
    data.noisy_count(spend=epsilon("1/2"))
    assert ledger.spent() == rho(Fraction(1, 8) + Fraction(1, 8))


def test_columns_are_checked_by_the_owner_before_anything_is_charged(tmp_path, people):
    ledger = ledger_at(tmp_path / "l")
    with pytest.raises(PsephosError, match="race"):
        protect(people, ps.Domain.of(race=2), ledger=ledger)
    with pytest.raises(DomainError, match=r"Domain\.of"):
        protect(people, {"sex": 2}, ledger=ledger)
    capped = ledger_at(tmp_path / "c", unit=person("id", max_rows=1))
    with pytest.raises(PsephosError, match="id"):
        protect(people, DOMAIN, ledger=capped)
    assert ledger.spent().amount == 0


def transcript(folder, rows, monkeypatch):
    """Everything that an analyst can see of a session, with the entropy replaced."""
    stream = iter(range(10**9))
    block = lambda i: hashlib.sha256(str(i).encode()).digest()  # noqa: E731

    def entropy(size):
        return b"".join(block(next(stream)) for _ in range(size // 32 + 1))[:size]

    names = iter(range(10**6))
    monkeypatch.setattr(noise, "_entropy", entropy)
    monkeypatch.setattr(secrets, "token_hex", lambda size=16: f"{next(names):0{2 * size}x}")
    folder.mkdir()
    path = write(folder / "people.csv", rows)
    ledger_at(folder / "l")
    data = protect(path, DOMAIN, ledger=folder / "l")
    seen = [repr(data)]
    requests = [
        lambda: data.vectorise().measure(mx.Identity(8), spend=epsilon("1/10"), key="a"),
        lambda: data.where(ps.col("age") == 9).noisy_count(spend=epsilon("1/10")),
        lambda: data.where(ps.col("age") > 1).noisy_count(spend=epsilon("1/10"), key="b"),
        lambda: data.split("sex")["F"].noisy_count(spend=epsilon("1/10"), key="c"),
        lambda: data.group_by("age", most=3).noisy_count(spend=epsilon("1/10"), key="d"),
        lambda: data.vectorise().measure(mx.Identity(9), spend=epsilon("1/10")),
        lambda: data.noisy_count(spend=epsilon("5")),
        lambda: (
            data.vectorise().transform(mx.Prefix(8)).noisy_count(spend=epsilon("1/10"), key="e")
        ),
    ]
    for request in requests:
        try:
            made = request()
            seen.append((repr(made), made.lineage, made.values.shape, str(made.values.dtype)))
        except PsephosError as error:
            seen.append((type(error).__name__, str(error)))
    seen.append(repr(data))
    ledger = Ledger.open(folder / "l")
    seen.extend((e.key, e.label, e.fingerprint, e.booked, e.schema) for e in ledger.history())
    seen.append(sorted(os.path.relpath(p, folder) for p in folder.rglob("*") if p.is_file()))
    return seen


def test_neighbours_differ_in_the_values_alone(tmp_path, monkeypatch):
    ours = transcript(tmp_path / "ours", ROWS, monkeypatch)
    theirs = transcript(tmp_path / "theirs", [*ROWS, ("F", 2)], monkeypatch)
    assert ours == theirs
    assert any(isinstance(line, tuple) and "age == 9" in line[1] for line in ours)


def test_nothing_published_names_the_source(tmp_path, people):
    ledger_at(tmp_path / "l")
    data = protect(people, DOMAIN, ledger=tmp_path / "l")
    y = data.noisy_count(spend=epsilon("1/10"))
    for text in (repr(y), repr(data), str(y.lineage), repr(data.vectorise())):
        assert "people.csv" not in text
        assert str(tmp_path) not in text


def test_simulations_take_counts_or_frames(people):
    counts = np.array([1, 0, 0, 2, 0, 2, 0, 1])
    spec = {"unit": add_remove_row(), "budget": epsilon("10"), "seed": 0}
    from_counts = simulate(counts, DOMAIN, **spec).noisy_count(spend=epsilon("1"))
    from_file = simulate(people, DOMAIN, **spec).noisy_count(spend=epsilon("1"))
    assert from_counts.values.tolist() == from_file.values.tolist()
    assert from_file.simulation
    for bad in (counts[:5], counts * 0.5, -counts):
        with pytest.raises(DomainError, match="whole counts"):
            simulate(bad, DOMAIN, **spec)


def test_the_source_is_the_engine_default(people):
    from psephos.engines import as_source

    assert isinstance(as_source(people), Reader)
