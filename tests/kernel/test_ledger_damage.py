"""Edited, forged, exchanged, full and locked ledgers: each is told in words."""

import errno
import json
import os
import resource
import shutil
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import asdict

import pytest

from psephos.errors import LedgerError
from psephos.kernel import storage
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.ledger_history import Anchor
from psephos.kernel.storage import Record
from tests.kernel.ledgers import ask, charge, edit, forge, make


def filled(folder, name="people.ledger"):
    ledger = make(folder, name=name)
    for i in range(3):
        ask(ledger, f"key {i}", bytes([i]) * 9, "1/10", f"f{i}")
    ledger.verify()
    return ledger  # records: 0 header, then charge and stored by turns, 6 the last


SWAP = "UPDATE record SET body = (SELECT body FROM record r WHERE r.number = 6 - record.number) "


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "UPDATE record SET body = replace(body, '1/10', '1/90') WHERE number = 3",
            "record 3 .cha",
        ),
        (
            "UPDATE record SET body = replace(body, 'ages', 'Ages') WHERE number = 5",
            "record 5 .cha",
        ),
        ("UPDATE record SET body = replace(body, ':', ': ') WHERE number = 4", "record 4 .stored"),
        ("UPDATE record SET key = 'other' WHERE number = 4", "record 4 .stored. was changed"),
        ("UPDATE record SET kind = 'charge', key = 'new' WHERE number = 2", "record 2 .charge."),
        ("UPDATE record SET link = 'ab' WHERE number = 5", "record 5 .charge. was changed"),
        ("DELETE FROM record WHERE number = 1", "record 1 is missing"),
        (
            "DELETE FROM record WHERE number = 6",
            "record 6 .stored. is missing or changed: since",
        ),
        ("DELETE FROM record WHERE number > 3", "record 6 .stored. is missing .* an older copy"),
        (SWAP + "WHERE number IN (1, 5)", "record 1 .charge. was changed, or moved"),
        ("UPDATE record SET number = 7 WHERE number = 6", "record 6 .stored. is missing"),
        ("UPDATE record SET body = x'7b7d' WHERE number = 5", "record 5 .charge. was changed"),
        (
            "UPDATE record SET body = replace(body, 'people', 'P') WHERE number = 0",
            "record 0 .head",
        ),
        (
            "UPDATE record SET body = replace(body, '3/10', '1/10') WHERE number = 6",
            "record 6 .sto",
        ),
        ("UPDATE record SET body = replace(body, '1/5', '1/10') WHERE number = 4", "record 4 .sto"),
        ("DELETE FROM chunk WHERE record = 4", "the values of record 4 .stored. are missing"),
        ("UPDATE chunk SET record = record + 1", "the values of record 2 .stored. are missing"),
        (
            "UPDATE record SET link = 'ab' WHERE number = 0",
            "record 0 .header. is missing or changed",
        ),
        ("DELETE FROM record WHERE number = 0", "record 0 .header."),
    ],
)
def test_verify_names_what_was_changed(folder, sql, said):
    path = filled(folder).path
    seen_before = Ledger.open(path)
    edit(seen_before, sql)
    with pytest.raises(LedgerError, match=f"people.ledger: {said}"):
        seen_before.verify()
    if "DELETE FROM record WHERE number > 3" in sql or "number = 6" in sql[:40]:
        return  # what is left is whole, and only an anchor shows that it is less than it was
    with pytest.raises(LedgerError, match=r"people.ledger: .*record \d"):
        Ledger.open(path).verify()


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (3, {"booked": "-1/10"}, r"record 3 \(charge\) makes no sense"),
        (3, {"more": "1"}, r"record 3 \(charge\) makes no sense"),
        (3, {"booked": "9/10"}, r"epsilon 11/10 \(~1.1\) was spent of epsilon 1"),
        (
            4,
            {"sha256": "ab"},
            r"the values of record 4 \(stored\) are missing, or not those that were",
        ),
    ],
)
def test_verify_reads_what_the_chain_says(folder, number, change, said):
    ledger = filled(folder)

    def changed(rows):
        rows[number][2].update(change)
        return rows

    forge(ledger, changed)
    with pytest.raises(LedgerError, match=said):
        Ledger.open(ledger.path).verify()


def test_values_that_nobody_paid_for(folder):
    ledger = filled(folder)
    forge(ledger, lambda rows: [*rows, ["stored", "key 9", {"sha256": "ab"}]])
    with pytest.raises(LedgerError, match=r"record 7 \(stored\) makes no sense"):
        Ledger.open(ledger.path).verify()


@pytest.mark.parametrize("body", ["text", 7, None, []])
def test_bodies_of_another_kind(folder, body):
    ledger = filled(folder)
    forge(ledger, lambda rows: [*rows, ["charge", "key 9", body]])
    with pytest.raises(LedgerError, match=r"record 7 \(charge\) makes no sense"):
        Ledger.open(ledger.path).verify()


def test_sums_that_do_not_add_up(folder):
    ledger = filled(folder)

    def cheaper(rows):
        rows[3][2]["spent"] = "1/7"
        return rows

    forge(ledger, cheaper, fit=False)
    said = r"record 3 \(charge\) says that 1/7 is spent, the charges add up to 1/5"
    with pytest.raises(LedgerError, match=said):
        Ledger.open(ledger.path).verify()


@pytest.mark.parametrize("spent", ["lots", "1/0", None, []])
def test_a_last_record_without_a_sum_grants_nothing(folder, spent):
    ledger = filled(folder)

    def muddled(rows):
        rows[6][2]["spent"] = spent
        return rows

    forge(ledger, muddled, fit=False)
    later = Ledger.open(ledger.path)
    for attempt in (later.verify, later.remaining, lambda: charge(later)):
        with pytest.raises(LedgerError, match=r"record 6 \(stored\)"):
            attempt()


def test_an_older_copy_put_back(folder):
    ledger = filled(folder)
    shutil.copy(ledger.path, folder / "old")
    charge(ledger, "7/10")
    anchor = Anchor.from_dict(json.loads(json.dumps(asdict(ledger.anchor()))))
    ledger.verify(anchor=anchor)
    os.replace(folder / "old", ledger.path)

    with pytest.raises(
        LedgerError, match=r"record 7 .charge. is missing or changed: .* an older copy was"
    ):
        charge(ledger)  # this process remembers
    later = Ledger.open(ledger.path)
    later.verify()  # by itself the older copy is whole
    assert later.remaining() == epsilon("7/10")
    with pytest.raises(LedgerError, match="record 7 is missing: an older copy was put back"):
        later.verify(anchor=anchor)
    charge(later, "1/10")
    with pytest.raises(LedgerError, match="record 7 was rewritten since the anchor was taken"):
        later.verify(anchor=anchor)


def test_an_older_copy_is_noticed_from_the_opening_on(folder):
    ledger = filled(folder)
    shutil.copy(ledger.path, folder / "old")
    charge(ledger)
    opened = Ledger.open(ledger.path)
    os.replace(folder / "old", ledger.path)
    with pytest.raises(
        LedgerError, match=r"record 7 .charge. is missing or changed: .* an older copy was"
    ):
        opened.remaining()


def test_a_forged_ledger_is_noticed_with_an_anchor_only(folder):
    ledger = filled(folder)
    anchor = ledger.anchor()

    def cheaper(rows):
        rows[1][2]["booked"] = "1/1000"
        return rows

    forge(ledger, cheaper)
    later = Ledger.open(ledger.path)
    later.verify()
    with pytest.raises(LedgerError, match="record 6 was rewritten"):
        later.verify(anchor=anchor)


def test_anchors_of_other_data(folder):
    one, two = filled(folder, "one"), filled(folder, "two")
    with pytest.raises(LedgerError, match="the anchor is that of another data set"):
        one.verify(anchor=two.anchor())
    os.replace(two.path, one.path)
    with pytest.raises(LedgerError, match=r"record 0 .header. is missing or changed: since"):
        one.remaining()
    for fields in ({}, {"dataset_id": "a", "entries": "1", "head": "b"}, None, 7):
        with pytest.raises(LedgerError, match="an anchor has a dataset_id"):
            Anchor.from_dict(fields)


def test_a_number_is_given_once(ledger):
    def write_behind_the_header(begin, meanwhile):
        with ledger._operation(begin) as db:
            meanwhile()
            header = storage.fetch(db, "number = 0")[0]
            storage.append(db, Record.after(header, "charge", "k", {"booked": "1/10"}))

    with pytest.raises(LedgerError, match="or wrote to it meanwhile"):
        write_behind_the_header("BEGIN", lambda: charge(ledger, key="first"))
    with pytest.raises(LedgerError, match="or wrote to it meanwhile"):
        write_behind_the_header("BEGIN IMMEDIATE", lambda: None)
    assert [entry.key for entry in ledger.history()] == ["first"]
    ledger.verify()


def patched(monkeypatch, pragma):
    """Every connection from now on under a pragma."""
    real = storage._connect

    @contextmanager
    def connect(path, **options):
        with real(path, **options) as db:
            db.execute(pragma)
            yield db

    monkeypatch.setattr(storage, "_connect", connect)


def test_trouble_is_told_in_words(ledger, monkeypatch):
    for pragma, said in [
        ("PRAGMA max_page_count = 1", "the disk is full or failing; nothing was shown. Make room"),
        ("PRAGMA query_only = ON", "cannot be opened for writing; nothing was shown"),
    ]:
        with monkeypatch.context() as patch:
            patched(patch, pragma)
            with pytest.raises(LedgerError, match=said):
                [charge(ledger, "1/100") for _ in range(90)]
        ledger.verify()
        assert ledger.spent() == epsilon("1/100") * len(ledger.history())
        charge(ledger, "1/100")


def test_a_full_disk_in_the_middle_of_storing(ledger, monkeypatch):
    request = charge(ledger, key="k")
    with monkeypatch.context() as patch:
        patched(patch, "PRAGMA max_page_count = 1")
        with pytest.raises(LedgerError, match="the disk is full or failing; nothing was shown"):
            request._store(bytes(10**6))
    assert ask(ledger, "k", b"seen") == b"seen"
    assert ledger.spent() == epsilon("1/10")
    ledger.verify()


def test_a_file_that_may_not_grow(ledger):
    """As on a disk that fills up: some of the values were written by then."""
    request = charge(ledger, key="k")
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))
        try:
            request._store(bytes(10**7))
        except LedgerError as error:
            os._exit(0 if "the disk is full or failing; nothing was shown" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    ledger.verify()
    assert ask(ledger, "k", b"seen") == b"seen"
    assert os.path.getsize(ledger.path) < 10**6


def test_after_an_error_what_reached_the_disk_stands(ledger, monkeypatch):
    """Whether failed values were stored is unknown, so no others may take their place."""

    class Failing(sqlite3.Connection):
        def execute(self, sql, *values):
            done = super().execute(sql, *values)
            if sql == "COMMIT":
                raise OSError(errno.EIO, "Input/output error")
            return done

    request, real = charge(ledger, key="k"), sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, factory=Failing, **k))
        with pytest.raises(LedgerError, match="nothing was shown"):
            request._store(b"one")
    assert request._store(b"two") == b"one"


def test_a_locked_ledger(ledger, monkeypatch):
    monkeypatch.setattr(storage, "PATIENCE", 0.02)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="another process keeps it locked, or wrote"):
            charge(ledger)
        assert ledger.remaining() == epsilon("1")  # reading goes on
    charge(ledger)


def test_unwritable_folders(folder, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(LedgerError, match="cannot be opened for writing"):
            make(folder)
    ledger = make(folder)
    ledger.path.unlink()
    with pytest.raises(LedgerError, match="it or its folder cannot be opened"):
        charge(ledger)
    assert not ledger.path.exists()


def test_other_trouble_keeps_its_words(ledger, monkeypatch):
    def odd(*_, **__):
        raise sqlite3.ProgrammingError("odd")

    monkeypatch.setattr(storage, "_connect", odd)
    with pytest.raises(LedgerError, match=r"people.ledger: odd"):
        charge(ledger)
