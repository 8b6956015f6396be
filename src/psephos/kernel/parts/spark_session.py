"""Spark sessions that may perform tasks: what is asked of those given, and how new ones are set.

Privacy: speculation is refused, since it keeps the faster of two draws, and how long a draw takes
depends on the noise. Tasks hold rows, so what Spark puts on disk has to be encrypted. Sessions that
are started here have no UI, no event log and no log of their own, and listen on this machine alone
where the master is this machine (tests/kernel/test_spark_runner.py).
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from importlib.util import find_spec
from typing import Any

from psephos.errors import RefusedError, SourceError
from psephos.kernel.parts.worker import ATTEMPTS

REQUIRED = {"spark.speculation": "false", "spark.io.encryption.enabled": "true"}
SESSION_SETTINGS = REQUIRED | {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.log.level": "OFF",
    "spark.task.maxFailures": str(ATTEMPTS),
    "spark.driver.memory": "4g",
    "spark.rpc.message.maxSize": "1024",
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
THIS_MACHINE = f"local[*,{ATTEMPTS}]"
NO_PYSPARK = 'tasks on Spark need pyspark; write pip install "psephos[spark]"'
NO_JAVA = (
    "tasks on Spark need Java 17 or later, and there is none; install it (on Debian: apt-get "
    "install openjdk-17-jre-headless), or say with JAVA_HOME where it is"
)
NO_SESSION = (
    "Spark did not start; see that the command `pyspark` does by itself, with Java 17 or later, "
    "and ask again"
)


def context_of(session: Any) -> Any:
    """The SparkContext of a session that may perform tasks; refused if it may not."""
    try:
        if not is_session(session):
            raise TypeError
        context = session.sparkContext
        settings = context.getConf()
        values = {name: str(settings.get(name, "false")).lower() for name in REQUIRED}
    except Exception:  # noqa: BLE001 - a stopped one, Spark Connect, or no session at all
        raise RefusedError(
            "a runner on Spark takes a SparkSession that runs and has a SparkContext, which those "
            "of Spark Connect have not"
        ) from None
    for name, value in values.items():
        if value != REQUIRED[name]:
            raise RefusedError(
                f"this Spark session has {name} = {value}, with which tasks are not performed; "
                f"start it with {REQUIRED[name]}, or take SparkRunner.start()"
            )
    return context


def is_session(session: Any) -> bool:
    """Is it one of pyspark's own? Tasks, which hold rows, are given to nobody else."""
    if find_spec("pyspark") is None:
        return False
    from pyspark.sql import SparkSession

    return type(session) is SparkSession


def started(master: str | None) -> Any:
    """A session on a master; if that is None, the active one, or else one on this machine."""
    if find_spec("pyspark") is None:
        raise SourceError(NO_PYSPARK)
    if not any(map(shutil.which, (f"{os.environ.get('JAVA_HOME')}/bin/java", "java"))):
        raise SourceError(NO_JAVA)
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        there = active.sparkContext.master
        if master not in (None, there):
            raise RefusedError(f"a Spark session on {there} runs already; stop it first")
        return active
    master = master or THIS_MACHINE
    local = master.startswith("local")
    builder = SparkSession.builder.appName("psephos").master(master)
    for name, value in (SESSION_SETTINGS | (LOOPBACK if local else {})).items():
        builder = builder.config(name, value)
    if local:
        os.environ["PYSPARK_PYTHON"] = sys.executable  # where psephos is installed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pyspark's, of versions that nothing here uses
            return builder.getOrCreate()
    except Exception:  # noqa: BLE001 - Spark's words
        raise SourceError(NO_SESSION) from None
