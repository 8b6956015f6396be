"""The ledger: what is granted, what is refused, and what comes back."""

import hashlib
import json
import os
import secrets
import sqlite3
import stat
import tempfile
import time
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos.errors import BudgetError, BudgetExceededError, LedgerError, PsephosError
from psephos.kernel import storage
from psephos.kernel.budget import Budget, epsilon, rho
from psephos.kernel.ledger import Charge, Ledger
from psephos.kernel.unit import add_remove_row, person
from tests.kernel.ledgers import MEN, SHM, WOMEN, WORDS, ask, charge, edit, forge, make


def test_what_is_created_is_opened(folder):
    made = make(folder)
    again = Ledger.open(str(made.path))
    for name in ("path", "dataset", "dataset_id", "unit", "budget"):
        assert getattr(again, name) == getattr(made, name)
    assert again.unit == person("id", max_rows=3)
    assert again.budget == epsilon("1")
    assert len(bytes.fromhex(again.dataset_id)) == 16
    assert again.spent() == Budget("epsilon", Fraction(0))
    assert again.remaining() == epsilon("1")
    assert again.history() == []
    again.verify()


def test_it_is_one_file_and_belongs_to_its_owner(folder):
    ledger = make(folder)
    ask(ledger, "k", b"values")
    assert os.listdir(folder) == ["people.ledger"]
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


def test_two_ledgers_have_two_identities(folder):
    assert make(folder, name="a").dataset_id != make(folder, name="b").dataset_id


@pytest.mark.parametrize(
    "taken", ["file", "ledger", "folder", "dangling", "-wal", "-shm", "-journal"]
)
def test_create_refuses_what_is_there(folder, taken):
    place = folder / "people.ledger"
    if taken == "file":
        place.write_text("notes")
    elif taken == "ledger":
        charge(make(folder))
    elif taken == "folder":
        place.mkdir()
    elif taken == "dangling":
        place.symlink_to(folder / "nowhere")
    else:  # what an older ledger left behind
        Path(f"{place}{taken}").write_text("old")
    with pytest.raises(LedgerError, match="is there already, and a budget is given once"):
        make(folder)
    if taken == "ledger":
        assert Ledger.open(place).spent() == epsilon("1/10")


def test_create_refuses_what_cannot_be(folder):
    good = {"dataset": "people", "unit": add_remove_row(), "budget": epsilon("1")}
    with pytest.raises(LedgerError, match=r"there is no folder .*missing; make it first"):
        Ledger.create(folder / "missing" / "a.ledger", **good)
    with pytest.raises(LedgerError, match="a ledger is a path"):
        Ledger.create("a\0b", **good)
    with pytest.raises(BudgetError, match="unit is written add_remove_row"):
        Ledger.create(folder / "a", **{**good, "unit": "rows"})
    for budget in ("1", 1.0, Budget("epsilon", Fraction(0)), forged("euro", Fraction(1)), None):
        with pytest.raises(BudgetError, match="a budget"):
            Ledger.create(folder / "a", **{**good, "budget": budget})
    for name in ("", "two\nlines", 7, "x" * 1001):
        with pytest.raises(BudgetError, match="name of a data set is printable text"):
            Ledger.create(folder / "a", **{**good, "dataset": name})
    assert os.listdir(folder) == []


def test_open_refuses(folder):
    place = folder / "people.ledger"
    with pytest.raises(
        LedgerError, match=r"there is no ledger at .*people\.ledger\. Check the path"
    ):
        Ledger.open(place)
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger.open(folder)
    assert os.listdir(folder) == []
    place.write_bytes(secrets.token_bytes(5000))
    with pytest.raises(LedgerError, match="no psephos ledger, or a damaged one"):
        Ledger.open(place)
    place.write_bytes(b"")
    with pytest.raises(LedgerError, match="its creation was cut short; delete it and create it"):
        Ledger.open(place)
    with closing(sqlite3.connect(place)) as db:
        db.execute("CREATE TABLE record (number)")
    with pytest.raises(LedgerError, match="an SQLite file, but no psephos ledger"):
        Ledger.open(place)


def test_open_refuses_other_formats_tables_and_headers(folder):
    for name, sql, words in [
        ("format", "PRAGMA user_version = 1", "it has format 1, and this psephos reads 4"),
        ("extra", "CREATE VIEW v AS SELECT 1", "tables are not those of a ledger"),
        ("fewer", "DROP TABLE chunk", "tables are not those of a ledger"),
        ("headless", "DELETE FROM record", "record 0 .header. is missing"),
        (
            "raised",
            """UPDATE record SET body = replace(body, '"budget": "1"', '"budget": "9"')""",
            "record 0 .header. was changed",
        ),
    ]:
        ledger = make(folder, name=name)
        edit(ledger, sql)
        with pytest.raises(LedgerError, match=words):
            Ledger.open(ledger.path)
    wrong = [("currency", "euro"), ("unit", None)]
    for part, value in [*wrong, *(("budget", text) for text in ("1/0", "-1", float("inf")))]:
        ledger = make(folder, name=f"{part}{value}".replace("/", ""))
        forge(ledger, lambda rows, p=part, v=value: [["header", "", {**rows[0][2], p: v}]])
        with pytest.raises(LedgerError, match=r"record 0 .header. makes no sense"):
            Ledger.open(ledger.path)


def test_strange_paths(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in ("a b", "50%?x=1#y", "ünï", ":memory:", "file:x"):
        charge(Ledger.create(name, dataset="d", unit=add_remove_row(), budget=epsilon("1")))
        assert Ledger.open(name).spent() == epsilon("1/10")
        assert (folder / name).is_file()


def test_one_ledger_has_one_name(folder):
    """By another name SQLite would keep another log, and so show other charges."""
    ledger = make(folder)
    (folder / "soft").symlink_to(ledger.path)
    assert Ledger.open(folder / "soft").path == ledger.path
    os.link(ledger.path, folder / "hard")
    for path in (ledger.path, folder / "hard"):
        with pytest.raises(LedgerError, match=r"second name .a hard link."):
            Ledger.open(path)
    (folder / "hard").unlink()
    charge(ledger)


def test_three_tenths(folder):
    ledger = make(folder, "0.3")
    for _ in range(3):
        assert not charge(ledger, "0.1").replay
    with pytest.raises(BudgetExceededError) as refusal:
        charge(ledger, "0.1")
    assert refusal.value.requested == epsilon("0.1")
    assert refusal.value.remaining == Budget("epsilon", Fraction(0))
    assert len(ledger.history()) == 3


def test_a_refusal_says_what_is_left_and_records_nothing(ledger):
    charge(ledger, "9/10")
    before = ledger.anchor()
    with pytest.raises(BudgetExceededError) as refusal:
        charge(ledger, "1/5", key="k")
    assert str(refusal.value) == (
        "this measurement costs epsilon 1/5 (~0.2); epsilon 1/10 (~0.1) remains of epsilon 1, "
        "since epsilon 9/10 (~0.9) is spent. Nothing was charged"
    )
    assert ledger.anchor() == before
    charge(ledger, "1/10", key="k")
    assert ledger.remaining().amount == 0


def test_a_restart_does_not_refresh(ledger):
    charge(ledger, "7/10")
    for _ in range(3):
        with pytest.raises(BudgetExceededError):
            charge(Ledger.open(ledger.path), "4/10")
    assert Ledger.open(ledger.path).remaining() == epsilon("3/10")


class Generous(Budget):
    """Says it costs nothing."""


def forged(currency, amount):
    """A budget that was changed after it was checked."""
    made = epsilon("1")
    object.__setattr__(made, "currency", currency)
    object.__setattr__(made, "amount", amount)
    return made


@pytest.mark.parametrize(
    "amount",
    [
        Budget("epsilon", Fraction(0)),
        forged("epsilon", Fraction(-1)),
        forged("epsilon", 0.1),
        forged("epsilon", float("nan")),
        forged("euro", Fraction(1)),
        Generous("epsilon", Fraction(1, 10)),
        forged("epsilon", Fraction(1, 10**301)),
        "0.1",
        0.1,
        None,
    ],
)
def test_prices_that_cannot_be_are_refused(ledger, amount):
    with pytest.raises(PsephosError):
        ledger._charge(Charge(None, "f", amount, **WORDS))
    assert ledger.history() == []


def test_one_currency_per_ledger(folder):
    ledger = make(folder)
    with pytest.raises(BudgetError, match=r"rho 1/2 .* and epsilon 1 are different currencies"):
        ledger._charge(Charge(None, "f", rho("1/2"), **WORDS))
    other = Ledger.create(folder / "r", dataset="d", unit=add_remove_row(), budget=rho("1/8"))
    other._charge(Charge(None, "f", rho("1/16"), **WORDS))
    with pytest.raises(BudgetError, match=r"epsilon 1 and rho 1/8 .* are different currencies"):
        other._charge(Charge(None, "f", epsilon("1"), **WORDS))
    assert other.remaining() == rho("1/16")
    assert Ledger.open(other.path).history()[0].booked == rho("1/16")
    other.verify()


def test_nothing_is_booked_for_a_part_that_another_part_has_paid_for(ledger):
    charge(ledger, "1/10", None, "f", WOMEN)
    assert not charge(ledger, "1/10", "part", "f", MEN).replay
    part = ledger.history()[1]
    assert (part.price, part.booked) == (epsilon("1/10"), Budget("epsilon", Fraction(0)))
    assert charge(ledger, "1/10", "part", "f", MEN).replay
    assert ledger.spent() == epsilon("1/10")
    ledger.verify()


def test_what_parts_of_other_rows_have_paid_covers_nothing(ledger):
    for snapshot in ("monday", "tuesday"):
        for part in (WOMEN, MEN):
            charge(ledger, "1/10", None, "f", part, snapshot=snapshot)
    assert ledger.spent() == epsilon("2/10")
    assert [entry.snapshot for entry in ledger.history()] == ["monday"] * 2 + ["tuesday"] * 2
    ledger.verify()


def test_an_unanswered_key_over_other_rows(ledger):
    """Free without a split above it, a new charge behind one; what is stored is free anywhere."""
    charge(ledger, "1/10", "whole", snapshot="monday")
    charge(ledger, "1/10", "part", "f", WOMEN, snapshot="monday")
    assert charge(ledger, "1/10", "whole", snapshot="tuesday").replay
    assert ledger.spent() == epsilon("2/10")
    request = charge(ledger, "1/10", "part", "f", WOMEN, snapshot="tuesday")
    assert request.replay
    assert ledger.spent() == epsilon("3/10")
    charge(ledger, "1/10", "part", "f", WOMEN, snapshot="monday")  # paid for there as well
    assert ledger.spent() == epsilon("3/10")
    request._store(b"v")
    assert charge(ledger, "1/10", "part", "f", WOMEN, snapshot="friday").values == b"v"
    whole, part = Ledger.open(ledger.path).history()
    assert (whole.snapshot, part.snapshot) == ("monday", "tuesday")
    assert (whole.booked, part.booked) == (epsilon("1/10"), epsilon("2/10"))
    ledger.verify()


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM total",
        "UPDATE total SET amount = '9'",
        "INSERT INTO total VALUES ('rows by age', '1')",
    ],
)
def test_totals_of_parts_follow_from_the_charges(ledger, sql):
    charge(ledger, "1/10", None, "f", WOMEN)
    edit(ledger, sql)
    with pytest.raises(LedgerError, match="what parts of splits have asked is not what"):
        ledger.verify()


def test_a_discount_that_nobody_paid_for_is_named(ledger):
    charge(ledger, "1/10", None, "f", WOMEN)

    def lower(records):
        records[1][2]["booked"] = "0"
        return records

    forge(ledger, lower)
    with pytest.raises(LedgerError, match=r"record 1 .charge. says that 0 was booked, its splits"):
        Ledger.open(ledger.path).verify()


def test_ledgers_of_the_format_before_go_on(ledger):
    """Their unanswered keys are free without a split above them, and pay in full behind one."""

    def without_splits(records):
        for _, _, body in records[1:]:
            for name in ("snapshot", "branches", "asked"):
                del body[name]
        return records

    for key in ("whole", "part"):
        charge(ledger, "1/10", key)
    forge(ledger, without_splits)
    edit(ledger, "DROP TABLE total")
    edit(ledger, "PRAGMA user_version = 3")
    again = Ledger.open(ledger.path)
    again.verify()
    assert again.spent() == epsilon("2/10")
    assert [entry.snapshot for entry in again.history()] == ["", ""]
    charge(again, "1/10", "whole")
    assert again.spent() == epsilon("2/10")
    charge(again, "1/10", "part", "f", WOMEN)
    assert again.spent() == epsilon("3/10")
    charge(again, "1/10", None, "f", MEN)
    assert again.spent() == epsilon("3/10")
    Ledger.open(ledger.path).verify()


def test_a_price_that_rose_is_paid(ledger):
    charge(ledger, "1/10", "k")
    assert charge(ledger, "3/10", "k").replay
    assert ledger.spent() == epsilon("3/10")
    (entry,) = ledger.history()
    assert (entry.number, entry.price, entry.booked) == (1, epsilon("3/10"), epsilon("3/10"))
    charge(ledger, "2/10", "k")
    charge(ledger, "4/10", "k")
    assert ledger.spent() == epsilon("4/10")
    with pytest.raises(BudgetExceededError, match=r"costs epsilon 1000; epsilon 3/5"):
        charge(ledger, "1000", "k")
    charge(ledger, "5/10")
    with pytest.raises(BudgetExceededError, match=r"costs epsilon 3/5 .*; epsilon 1/10 .* remains"):
        charge(ledger, "1", "k")
    assert ask(ledger, "k", b"v", "4/10") == b"v"
    assert ask(ledger, "k", b"w", "1") == b"v"  # what is stored comes back free
    assert ledger.spent() == epsilon("9/10")
    Ledger.open(ledger.path).verify()


def test_a_covered_part_whose_price_rose_pays_the_rise(ledger):
    charge(ledger, "1/10", "first", "f", WOMEN)
    charge(ledger, "1/10", "part", "f", MEN)
    charge(ledger, "2/10", "part", "f", MEN)
    assert ledger.spent() == epsilon("2/10")


def test_sums_that_grow_without_end_are_rounded_up(folder):
    ledger = make(folder)
    amounts = [Fraction(1, 10**299 + 2 * i + 1) for i in range(20)]
    for amount in amounts:
        charge(ledger, amount)
    spent = ledger.spent().amount
    assert sum(amounts) < spent < sum(amounts) + Fraction(20, 2**300)
    assert len(str(spent)) < 4000
    charge(ledger, "1/2")
    with pytest.raises(BudgetExceededError):
        charge(ledger, "1/2")
    Ledger.open(ledger.path).verify()


def test_a_key_is_good_for_one_request(ledger):
    first = charge(ledger, key="k")
    assert (first.key, first.snapshot, first.replay, first.values) == ("k", "rows", False, None)
    again = charge(ledger, key="k")
    assert (again.snapshot, again.replay, again.values) == ("rows", True, None)
    # After other parts of a split have paid, the same request may be priced differently.
    assert charge(ledger, "1/20", key="k").replay
    with pytest.raises(
        LedgerError, match=r"key 'k' belongs to another request, record 1 \(charge\)"
    ):
        charge(ledger, key="k", fingerprint="g")
    assert ledger.spent() == epsilon("1/10")
    assert ask(ledger, "k", b"v") == b"v"
    assert charge(ledger, key="k").values == b"v"


@pytest.mark.parametrize("bad", ["", "a\nb", "a\0b", "\ud800", "x" * 1001, 7, b"k"])
def test_keys_are_plain_text(ledger, bad):
    with pytest.raises(BudgetError, match="a key is printable text"):
        charge(ledger, key=bad)
    assert ledger.history() == []
    assert charge(ledger, key="Bürger 1").key == "Bürger 1"


def test_history(ledger):
    ask(ledger, "first", b"abc", "1/4", "f1")
    words = {"label": "label\n\ud800", "schema": "s2", "snapshot": "rows"}
    ledger._charge(Charge("second", "f2", epsilon("1/5"), **words))
    one, two = Ledger.open(ledger.path).history()
    assert (one.number, one.key, one.label, one.fingerprint) == (1, "first", "ages", "f1")
    assert (one.price, one.booked, one.schema) == (epsilon("1/4"), epsilon("1/4"), "s")
    assert one.values_hash == hashlib.sha256(b"abc").hexdigest()
    assert time.strptime(one.time, "%Y-%m-%dT%H:%M:%SZ")
    assert (two.number, two.label, two.values_hash) == (3, "label\n\ud800", None)
    assert len({one.link, two.link}) == 2


def test_what_a_key_and_its_steps_have_paid_is_summed(ledger):
    prices = {"r": "1/10", "r step 1": "1/20", "r step 2": "1/40", "r stepped": "1/8", "rs": "1/16"}
    for key, price in (prices | {" step 1": "1/32"}).items():
        charge(ledger, price, key)
    charge(ledger, "1/100")  # under a name of its own
    assert ledger.paid("r") == epsilon("7/40")
    assert ledger.paid("r step 2") == epsilon("1/40")
    for key in ("", "q", "r step"):
        assert ledger.paid(key).amount == 0


def test_records_hold_only_what_was_asked(ledger):
    ask(ledger, "k", b"secret values")
    with closing(sqlite3.connect(ledger.path)) as db:
        rows = {
            kind: set(json.loads(body))
            for kind, body in db.execute("SELECT kind, body FROM record")
        }
    assert rows == {
        "header": {"dataset", "dataset_id", "unit", "currency", "budget", "created", "spent"},
        "charge": {"time", "label", "schema", "fingerprint", "price", "booked", "spent"}
        | {"snapshot", "branches", "asked"},
        "stored": {"sha256", "snapshot", "spent"},
    }


AMOUNTS = st.builds(Fraction, st.integers(1, 12), st.sampled_from([7, 8, 10, 30]))
CHARGES = st.tuples(st.sampled_from([None, "a", "b", "c"]), st.sampled_from("fg"), AMOUNTS)


@given(budget=AMOUNTS, charges=st.lists(CHARGES, max_size=12))
def test_charges_follow_the_model(budget, charges):
    with tempfile.TemporaryDirectory(dir=SHM) as folder:
        ledger = make(Path(folder), budget)
        booked: list[list[Fraction]] = []  # of each key, in order
        keys: dict[str, tuple[str, int]] = {}
        for key, fingerprint, price in charges:
            try:
                replay = charge(ledger, price, key, fingerprint).replay
                outcome = "replay" if replay else "granted"
            except BudgetExceededError:
                outcome = "exceeded"
            except LedgerError:
                outcome = "refused"
            known, number = keys.get(key, (fingerprint, len(booked)))
            before = sum(booked[number]) if key in keys else 0
            rise = max(Fraction(0), price - before)
            if known != fingerprint:
                assert outcome == "refused"
            elif price > budget or sum(map(sum, booked)) + rise > budget:
                assert outcome == "exceeded"
            else:
                assert outcome == ("replay" if key in keys else "granted")
                booked += [] if key in keys else [[]]
                booked[number].append(rise)
                if key is not None:
                    keys[key] = fingerprint, number
            assert ledger.spent().amount == sum(map(sum, booked))
        assert [entry.booked.amount for entry in ledger.history()] == [sum(b) for b in booked]
        assert [entry.price for entry in ledger.history()] == [e.booked for e in ledger.history()]
        Ledger.open(ledger.path).verify()


def test_replay_gives_the_same_values_and_charges_nothing(ledger):
    assert ask(ledger, "k", b"first") == b"first"
    assert ask(ledger, "k", b"second") == b"first"
    assert ask(Ledger.open(ledger.path), "k", b"third") == b"first"
    assert ledger.spent() == epsilon("1/10")
    request = charge(ledger, key="k")
    assert (request.key, request.snapshot, request.replay) == ("k", "rows", True)


def test_values_may_be_empty(ledger):
    assert ask(ledger, "k", b"") == b""
    assert ask(ledger, "k", b"more") == b""


def test_charged_but_not_stored_is_drawn_again_at_no_cost(ledger):
    assert charge(ledger, key="k").values is None
    assert charge(ledger, key="k").values is None
    assert ask(ledger, "k", b"drawn again") == b"drawn again"
    assert ledger.spent() == epsilon("1/10")


def test_every_call_without_a_key_is_a_new_request(ledger):
    assert [ask(ledger, None, bytes([i])) for i in range(3)] == [b"\0", b"\1", b"\2"]
    assert ledger.spent() == epsilon("3/10")


def test_a_key_keeps_its_first_values(ledger):
    request, other = charge(ledger, key="k"), charge(ledger, key="k")
    for bad in (bytearray(b"v"), "v", None):
        with pytest.raises(
            BudgetError, match=f"values are stored as bytes, got {type(bad).__name__}"
        ):
            request._store(bad)
    assert request._store(b"v") == b"v"
    assert request._store(b"w") == other._store(b"x") == b"v"
    assert charge(ledger, key="k").values == b"v"
    assert len(ledger.history()) == 1
    ledger.verify()


def test_large_values_are_kept_in_chunks(ledger, monkeypatch):
    monkeypatch.setattr(storage, "CHUNK", 16)
    numbers = np.arange(1000)
    for size in (0, 1, 2, 3, 4, 1000):
        ask(ledger, f"{size}", memoryview(numbers[:size].tobytes()), "1/100")
    monkeypatch.undo()
    for size in (0, 1, 2, 3, 4, 1000):
        assert ask(ledger, f"{size}", b"", "1/100") == numbers[:size].tobytes()
    assert ask(ledger, "words", numbers.data, "1/100") is not None
    assert ask(ledger, "words", b"", "1/100") == numbers.tobytes()
    with closing(sqlite3.connect(ledger.path)) as db:
        assert db.execute("SELECT count(*), max(length(data)) FROM chunk").fetchone() == (507, 8000)
    ledger.verify()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM chunk",
        "DELETE FROM chunk WHERE start = 4",
        "UPDATE chunk SET start = 9 WHERE start = 0",
        "UPDATE chunk SET data = x'76' WHERE start = 4",
        "UPDATE chunk SET data = 'ues' WHERE start = 4",
    ],
)
def test_lost_values_are_refused(ledger, monkeypatch, damage):
    """Never drawn again: someone may have seen them."""
    monkeypatch.setattr(storage, "CHUNK", 4)
    ask(ledger, "k", b"values")
    request = charge(ledger, key="k")
    edit(ledger, damage)
    said = r"record 2 \(stored\) (are missing, or not those that were stored|makes no sense)"
    for attempt in (
        lambda: ask(ledger, "k", b"again"),
        lambda: request._store(b"again"),
        lambda: Ledger.open(ledger.path).verify(),
    ):
        with pytest.raises(LedgerError, match=said):
            attempt()
    assert len(ledger.history()) == 1


def test_order_of_writing(ledger, monkeypatch):
    """Charge on disk; then, in one transaction, the hash of the values and they themselves."""
    steps = []

    class Traced(sqlite3.Connection):
        def execute(self, sql, *values):
            if sql.startswith(("BEGIN", "INSERT", "COMMIT")):
                steps.append(f"{sql.split('VALUES')[0]}{values[0][1] if values else ''}")
            return super().execute(sql, *values)

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, factory=Traced, **k))
    request = charge(ledger, key="k")
    assert steps == ["BEGIN IMMEDIATE", "INSERT INTO record charge", "COMMIT"]
    request._store(b"v")
    assert steps[3:] == [
        "BEGIN IMMEDIATE",
        "INSERT INTO record stored",
        "INSERT INTO chunk 0",
        "COMMIT",
    ]
    with storage._connect(str(ledger.path)) as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
