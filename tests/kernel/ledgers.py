"""Ledgers to test with: how they are made, asked, edited and forged."""

import os
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.records import Record
from psephos.kernel.unit import person

WORDS = {"label": "ages", "schema": "s"}
SHM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # tests kill processes, not machines


def make(folder, budget="1", name="people.ledger"):
    unit = person("id", max_rows=3)
    return Ledger.create(folder / name, dataset="people", unit=unit, budget=epsilon(budget))


def charge(ledger, cost="1/10", key=None, fingerprint="f"):
    return ledger.charge(key, fingerprint, epsilon(cost), **WORDS)


def ask(ledger, key, data, cost="1/10", fingerprint="f"):
    """The values shown for a key, if `data` are what would be drawn."""
    with ledger.request(key, fingerprint, epsilon(cost), **WORDS) as request:
        if request.values is None:
            request.store(data)
        return request.values


def edit(ledger, sql, *values):
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        db.execute(sql, values)


def forge(ledger, change=lambda records: records):
    """Rewrite the ledger with every hash and the total made to fit, as someone who can might."""
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        old = [Record(*row) for row in db.execute("SELECT * FROM record ORDER BY number")]
        link, spent, new = "", Fraction(0), []
        for number, (kind, key, body) in enumerate(
            change([[r.kind, r.key, r.read()] for r in old])
        ):
            new.append(Record.after(link, number, kind, key, body))
            link = new[-1].link
            spent += Fraction(body.get("cost", 0)) if isinstance(body, dict) else 0
        db.execute("DELETE FROM record")
        rows = [(r.number, r.kind, r.key, r.body, r.link) for r in new]
        db.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?)", rows)
        total = (f"{spent.numerator}/{spent.denominator}", len(new) - 1, link)
        db.execute("UPDATE total SET spent = ?, number = ?, head = ?", total)


def side_files(ledger, end):
    return sorted(Path(f"{ledger.path}.values").glob(f"*.{end}"))
