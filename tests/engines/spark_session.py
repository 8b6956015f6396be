"""One Spark of the tests' own, on this machine, until they end."""

import atexit
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import cache

import pyarrow as pa
import pytest


def has_java():
    java = os.path.join(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else None
    java = java or shutil.which("java")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return (
        java is not None and subprocess.run([java, "-version"], **quiet, timeout=60).returncode == 0
    )


@cache
def started():
    """A session, or why there is none."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    if not has_java():
        return "Java is not installed (make services)"
    folder = tempfile.mkdtemp(prefix="psephos-spark-tests-")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": folder,
            "spark.sql.session.timeZone": "Asia/Tokyo",
        }
        builder = SparkSession.builder.master("local[2]").appName("tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()

    def stop():
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    return session


def spark():
    """The session; the test is skipped where there can be none."""
    session = started()
    if isinstance(session, str):
        pytest.skip(session)
    return session


def spark_frame(table, folder):
    """A DataFrame of these rows, from files, as it is in a warehouse."""
    import pyarrow.parquet as pq

    place = folder / "spark" / f"{len(list((folder / 'spark').glob('*')))}.parquet"
    place.parent.mkdir(exist_ok=True)
    pq.write_table(table, place, coerce_timestamps="us", store_schema=False)
    return spark().read.parquet(str(place))


def spark_table(name, table, folder):
    """The name of a view of these rows in the session."""
    spark_frame(table, folder).createOrReplaceTempView(name)
    return name


ROWS = pa.table({"age": [1, 2, 2], "who": ["p", "secret", "q"]})
