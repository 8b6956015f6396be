"""Edited, forged, exchanged, full and locked ledgers: each is told in words."""

import errno
import json
import os
import shutil
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from psephos.errors import LedgerError
from psephos.kernel import storage
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.records import Anchor
from tests.kernel.ledgers import WORDS, ask, charge, edit, forge, make, side_files


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
        ("DELETE FROM record WHERE number = 6", "record 6 is missing"),
        ("DELETE FROM record WHERE number > 3", "record 6 is missing: an older copy"),
        (SWAP + "WHERE number IN (1, 5)", "record 1 .charge. was changed, or moved"),
        ("UPDATE record SET number = number + 1 WHERE number = 6", "record 6 is missing"),
        ("UPDATE total SET spent = '1/10'", "the total says 1/10, the charges add up to 3/10"),
        ("UPDATE total SET number = 5", "record 6 .stored. is not the one that was written last"),
        ("UPDATE total SET head = 'ab'", "record 6 .stored. is not the one that was written last"),
        ("UPDATE total SET spent = 'lots'", "the running total is gone or makes no sense"),
        ("DELETE FROM total", "the running total is gone or makes no sense"),
        ("UPDATE total SET number = 'six'", "the running total is gone or makes no sense"),
        ("UPDATE total SET head = x'ab'", "record 6 .stored. is not the one that was written last"),
        ("UPDATE record SET body = x'7b7d' WHERE number = 5", "record 5 .charge. was changed"),
        ("UPDATE record SET body = replace(body, '1/1', '9/1') WHERE number = 0", "record 0 .head"),
        ("UPDATE record SET link = 'ab' WHERE number = 0", "record 0 .header. was changed"),
        ("DELETE FROM record WHERE number = 0", "record 0 .header."),
    ],
)
def test_verify_names_what_was_changed(folder, sql, said):
    path = filled(folder).path
    seen_before = Ledger.open(path)
    edit(seen_before, sql)
    with pytest.raises(LedgerError, match=f"people.ledger: {said}"):
        seen_before.verify()


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (3, {"cost": "-1/10"}, r"record 3 \(charge\) makes no sense"),
        (3, {"more": "1"}, r"record 3 \(charge\) makes no sense"),
        (3, {"cost": "9/10"}, r"epsilon 11/10 \(~1.1\) was spent of epsilon 1"),
        (4, {"sha256": "ab"}, r"the values of record 3 \(charge\) are not those that were stored"),
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


def test_missing_values_are_named(folder):
    ledger = filled(folder)
    Path(ledger._side("key 1", "values")).unlink()
    with pytest.raises(
        LedgerError, match=r"\.values: the values of record 3 \(charge\) are missing"
    ):
        ledger.verify()


def test_an_older_copy_put_back(folder):
    ledger = filled(folder)
    shutil.copy(ledger.path, folder / "old")
    charge(ledger, "7/10")
    anchor = Anchor.from_dict(json.loads(json.dumps(ledger.anchor().as_dict())))
    ledger.verify(anchor=anchor)
    os.replace(folder / "old", ledger.path)

    with pytest.raises(LedgerError, match="record 7 is missing: an older copy was put back"):
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
    with pytest.raises(LedgerError, match="record 7 is missing: an older copy was put back"):
        opened.remaining()


def test_a_forged_ledger_is_noticed_with_an_anchor_only(folder):
    ledger = filled(folder)
    anchor = ledger.anchor()

    def cheaper(rows):
        rows[1][2]["cost"] = "1/1000"
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
    with pytest.raises(LedgerError, match=r"record 0 .header. was changed since"):
        one.remaining()
    for fields in ({}, {"dataset_id": "a", "entries": "1", "head": "b"}, None, 7):
        with pytest.raises(LedgerError, match="an anchor has a dataset_id"):
            Anchor.from_dict(fields)


def test_the_total_is_guarded(ledger):
    stale = storage.Total(Fraction(1, 3), 0, ledger.anchor().head)
    with pytest.raises(LedgerError, match="changed by another hand"), ledger._operation() as db:
        storage.append(db, stale, "charge", "k", {"cost": "1/10"})
    assert ledger.history() == []
    ledger.verify()


def patched(monkeypatch, pragma):
    """Every connection from now on under a pragma."""
    real = storage._connect

    def connect(path):
        db = real(path)
        db.execute(pragma)
        return db

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
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for i, broken in enumerate(["fsync", "replace"]):
        with monkeypatch.context() as patch:
            patch.setattr(os, broken, full)
            with pytest.raises(LedgerError, match="the disk is full"):
                ask(ledger, f"key {i}", b"unseen")
        assert ask(ledger, f"key {i}", b"seen") == b"seen"
    with monkeypatch.context() as patch:
        real = storage.append

        def full_for_hashes(db, total, kind, *rest):
            if kind == "stored":
                db.execute("PRAGMA max_page_count = 1")
                for _ in range(1000):
                    db.execute("INSERT INTO record SELECT max(number) + 1, 'x', "
                               "max(number), '', '' FROM record")  # fmt: skip
            return real(db, total, kind, *rest)

        patch.setattr(storage, "append", full_for_hashes)
        with pytest.raises(LedgerError, match="the disk is full"):
            ask(ledger, "key 2", b"unseen")
    assert len(side_files(ledger, "values")) == 3  # written, never vouched for
    assert ask(ledger, "key 2", b"seen") == b"seen"
    assert ledger.spent() == epsilon("3/10")
    ledger.verify()


def test_a_request_that_failed_to_store_is_over(ledger, monkeypatch):
    """Whether the failed one reached the disk is unknown, so no other may take its place."""
    with ledger.request("k", "f", epsilon("1/10"), **WORDS) as request:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: os.stat("/nowhere"))
            with pytest.raises(LedgerError, match="nothing was shown"):
                request.store(b"one")
        with pytest.raises(LedgerError, match="no longer held here"):
            request.store(b"two")
    assert request.values is None


def test_a_locked_ledger(ledger, monkeypatch):
    monkeypatch.setattr(storage, "PATIENCE", 0.02)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="another process keeps it locked; nothing was shown"):
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
    shutil.rmtree(f"{ledger.path}.values")
    with pytest.raises(LedgerError, match=r"\.lock: it or its folder cannot be opened"):
        ask(ledger, "k", b"v")
    ledger.path.unlink()
    with pytest.raises(LedgerError, match="it or its folder cannot be opened"):
        charge(ledger)
    assert not ledger.path.exists()


def test_other_trouble_keeps_its_words(ledger, monkeypatch):
    def odd(*_):
        raise sqlite3.ProgrammingError("odd")

    monkeypatch.setattr(storage, "_connect", odd)
    with pytest.raises(LedgerError, match=r"people.ledger: odd"):
        charge(ledger)
