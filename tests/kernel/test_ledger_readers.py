"""Whoever may only read a ledger reads it, also while others write, and leaves it as it was."""

import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from contextlib import closing
from pathlib import Path

import pytest

import psephos as ps
from psephos.kernel import ledger_copy, storage
from psephos.kernel.ledger import Charge, Ledger
from psephos.kernel.ledger_copy import copy_at_rest

READER = """
import os, sys
from typer.testing import CliRunner
import psephos as ps
from psephos.cli.app import app
from psephos.kernel.ledger import Charge

path = sys.argv[1]


def budget():
    return CliRunner().invoke(app, ["budget", path, "--json"])


assert budget().exit_code == 0, budget().output  # all modules are loaded, as who may write
os.chmod(path, 0o444)
os.chmod(os.path.dirname(path), 0o555)
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)  # a privilege that overrides modes is laid down
assert not os.access(path, os.W_OK) and not os.access(os.path.dirname(path), os.W_OK)
"""


@pytest.fixture
def folder():
    """A folder that everybody may look into; those of pytest are its user's."""
    place = Path(tempfile.mkdtemp(prefix="readers-"))
    place.chmod(0o755)
    yield place
    place.chmod(0o755)
    shutil.rmtree(place)


@pytest.fixture
def ledger(folder):
    options = {"dataset": "d", "unit": ps.add_remove_row(), "budget": ps.epsilon("9")}
    ledger = Ledger.create(folder / "d.ledger", **options)
    charge(ledger, "first")
    return ledger


def charge(ledger, key, size=0):
    cost = ps.epsilon("1/1000")
    request = ledger._charge(Charge(key, key, cost, label="x", schema="s", snapshot="rows"))
    request._store(bytes(size))


def read_as_another(path, text):
    """Run statements as somebody who may read the ledger and write nothing."""
    command = [sys.executable, "-c", READER + textwrap.dedent(text), str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_ledger_that_may_only_be_read_is_read(ledger, folder):
    run = read_as_another(
        ledger.path,
        """
        shown = budget()
        assert shown.exit_code == 0, shown.output
        ledger = ps.Ledger.open(path)
        ledger.verify(anchor=ledger.anchor())
        assert ledger.spent() == ps.epsilon("1/1000")
        try:
            ledger._charge(Charge("k", "k", ps.epsilon("1"), "", "", "rows"))
        except ps.LedgerError as error:
            print(error)
        """,
    )
    assert run.returncode == 0, run.stderr
    assert "d.ledger" in run.stdout  # a charge is refused in words
    folder.chmod(0o755)
    assert [each.name for each in folder.iterdir()] == ["d.ledger"]


def test_a_log_that_was_left_is_read_with_its_file(ledger, folder):
    """As of somebody who writes at this moment, or whose process was killed."""
    copies = folder / "copies"
    copies.mkdir()
    with storage.operation(str(ledger.path), "BEGIN IMMEDIATE") as db:
        newest = storage.Record.after(storage.last(db), "charge", "second", storage_body())
        storage.append(db, newest)
        db.execute("COMMIT")
        for file in folder.glob("d.ledger*"):
            shutil.copy(file, copies / file.name)
        db.execute("BEGIN")
    assert len(list(copies.iterdir())) == 3
    run = subprocess.run(
        [sys.executable, "-c", LATER, str(copies / "d.ledger")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    copies.chmod(0o755)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["first", "second"]


LATER = """
import os, sys
import psephos as ps

path = sys.argv[1]
ps.Ledger
for name in os.listdir(os.path.dirname(path)):
    os.chmod(os.path.join(os.path.dirname(path), name), 0o444)
os.chmod(os.path.dirname(path), 0o555)
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
print(*(entry.key for entry in ps.Ledger.open(path).history()))
"""


def storage_body():
    fields = {"label": "x", "schema": "s", "fingerprint": "second", "time": storage.now()}
    return fields | {"price": "1/1000", "booked": "1/1000"}


def test_a_copy_is_never_of_two_states(ledger, monkeypatch):
    """A writer's pages go to the file between a reader's: the reader sees it, and reads again."""
    genuine, torn = Path.read_bytes, []

    def interrupted(path):
        start = genuine(path)
        if len(torn) < 3:  # the file's head before, and its tail after a charge
            charge(ledger, f"meanwhile {len(torn)}", size=10**5)
            torn.append(start[:8192] + genuine(path)[8192:])
            return torn[-1]
        return start

    monkeypatch.setattr(Path, "read_bytes", interrupted)
    copy = copy_at_rest(str(ledger.path))
    monkeypatch.undo()
    whole = ledger.path.read_bytes()
    assert len(torn) == 3
    assert copy[20:] == whole[20:]


def test_a_log_beside_the_file_leaves_it_to_sqlite(ledger, monkeypatch):
    monkeypatch.setattr(ledger_copy.os, "access", lambda *_: False)
    assert copy_at_rest(str(ledger.path)) is not None
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert copy_at_rest(str(ledger.path)) is None
        assert ledger.spent() == ps.epsilon("1/1000")
    assert copy_at_rest(str(ledger.path)) is not None


def test_readers_and_a_writer_at_once(ledger, monkeypatch):
    """Every state that is read is one that was: the chain is whole, and only grows."""
    monkeypatch.setattr(ledger_copy.os, "access", lambda *_: False)
    path, done, seen, missed = str(ledger.path), threading.Event(), [], []
    script = (
        "import sys; from tests.kernel.test_ledger_readers import charge; "
        "from psephos.kernel.ledger import Ledger; ledger = Ledger.open(sys.argv[1]); "
        "[charge(ledger, f'{i}', 10**5) for i in range(60)]"
    )
    writer = subprocess.Popen([sys.executable, "-c", script, path])
    threading.Thread(target=lambda: (writer.wait(), done.set())).start()
    while not done.is_set():
        try:
            reader = Ledger.open(path)
            reader.verify()
            seen.append(reader.spent().amount)
        except ps.LedgerError as error:  # the log went away between a look and the opening
            missed.append(str(error))
    assert writer.returncode == 0
    assert seen == sorted(seen)
    assert len(seen) > 5 + len(missed)
    assert all("and ask again" in text for text in missed)
    assert Ledger.open(path).spent() == ps.epsilon("61/1000")


def test_nothing_is_written_by_way_of_a_copy(ledger, monkeypatch):
    monkeypatch.setattr(ledger_copy.os, "access", lambda *_: False)
    before = ledger.path.read_bytes()
    with storage.operation(str(ledger.path)) as db:
        storage.append(db, storage.Record.after(storage.last(db), "charge", "k", storage_body()))
    assert ledger.path.read_bytes() == before
