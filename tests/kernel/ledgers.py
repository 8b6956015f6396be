"""Ledgers to test with: how they are made, asked, edited and forged."""

import json
import os
import sqlite3
from contextlib import closing

from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Charge, Ledger
from psephos.kernel.lineage import Branch
from psephos.kernel.storage import Record
from psephos.kernel.unit import person

WORDS = {"label": "ages", "schema": "s", "snapshot": "rows"}
WOMEN, MEN = (Branch("by sex", part) for part in ("women", "men"))
SHM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # tests kill processes, not machines


def make(folder, budget="1", name="people.ledger"):
    unit = person("id", max_rows=3)
    return Ledger.create(folder / name, dataset="people", unit=unit, budget=epsilon(budget))


def charge(ledger, price="1/10", key=None, fingerprint="f", *branches, snapshot="rows"):
    words = {**WORDS, "snapshot": snapshot}
    request = Charge(key, fingerprint, epsilon(price), **words, branches=branches)
    return granted(ledger._charge(request))


def granted(request):
    """A request that was charged; refusals are raised."""
    if isinstance(request, Exception):
        raise request
    return request


def ask(ledger, key, data, price="1/10", fingerprint="f"):
    """The values shown for a key, if `data` are what would be drawn."""
    request = charge(ledger, price, key, fingerprint)
    return request._store(data) if request.values is None else request.values


def edit(ledger, sql, *values):
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        db.execute(sql, values)


def forge(ledger, change=lambda records: records, fit=True):
    """Rewrite the ledger with every hash, and every sum, made to fit, as someone who can might."""
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        old = [Record(*row) for row in db.execute("SELECT * FROM record ORDER BY number")]
        changed = change([[r.kind, r.key, json.loads(r.body)] for r in old])
        db.execute("DELETE FROM record")
        before = None
        for number, (kind, key, body) in enumerate(changed):
            if fit and isinstance(body, dict):
                record = Record.after(before, kind, key, body)
            else:
                record = Record(number, kind, key, json.dumps(body), "")
                record = record._replace(link=record.link_after(before))
            db.execute("INSERT INTO record VALUES (?, ?, ?, ?, ?)", record)
            before = record
