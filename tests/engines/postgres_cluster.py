"""A Postgres of the tests' own: in a temporary folder, on a loopback port, until they end."""

import atexit
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

PASSWORD = "the-password-of-tests"
DEADLY = 4711
"""The lock that says whether views are deadly: it needs no row that a snapshot may not see."""


def programs():
    """The folder of initdb and pg_ctl; None where Postgres is not installed."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("pg_ctl")
    folders = [*([Path(on_path).parent] if on_path else []), *places]
    return next((f for f in folders if (f / "initdb").exists() and (f / "pg_ctl").exists()), None)


def other_user():
    """Postgres does not run as root."""
    if os.getuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    name = "postgres" if "postgres" in names else "nobody"
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


@cache
def started():
    """The port of a running cluster, or why there is none."""
    if programs() is None:
        return "Postgres is not installed (make services)"
    folder, user = Path(tempfile.mkdtemp(prefix="psephos-postgres-")), other_user()
    if user:
        shutil.chown(folder, user["user"], user["group"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(program, *words):
        command = [programs() / program, *words]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, check=True, cwd=folder, timeout=120, **quiet, **user)

    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o644)
    data = folder / "data"
    login = ["-U", "owner", "--auth=scram-sha-256", f"--pwfile={folder / 'password'}"]
    run("initdb", "-D", data, *login, "-E", "UTF8", "--locale=C")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    run("pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")

    def stop():
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    return port


def server(user="owner"):
    """The address of the cluster's database; the test is skipped where there is none."""
    pytest.importorskip("adbc_driver_postgresql", reason="the driver of Postgres is not installed")
    port = started()
    if isinstance(port, str):
        pytest.skip(port)
    os.environ["PGPASSWORD"] = PASSWORD
    return f"postgresql://{user}@127.0.0.1:{port}/postgres"


def run_sql(*statements):
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(server(), autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def mortal_view(name, relation, row):
    """The URL of a view whose reading ends its own connection at a row, while it is `deadly`."""
    run_sql(
        f"DROP VIEW IF EXISTS {name}",
        f"CREATE VIEW {name} AS SELECT * FROM {relation} WHERE CASE WHEN {row} AND NOT "
        f"pg_try_advisory_xact_lock_shared({DEADLY}) THEN pg_terminate_backend(pg_backend_pid()) "
        "ELSE TRUE END",
    )
    return f"{server()}/{name}"


@contextmanager
def deadly():
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(server()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_xact_lock({DEADLY})")
        cursor.fetchall()
        yield


def fill_table(name, table):
    """The URL of a table of these rows."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(server()) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout TO '2s'")  # an open snapshot keeps its table
            cursor.adbc_ingest(name, table, mode="replace")
        connection.commit()
    return f"{server()}/{name.replace(' ', '%20')}"
