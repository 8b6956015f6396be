"""Parts measured by real executors of Spark: the same answers, and the same promises after faults.

Python processes of executors and drivers are killed for real; these tests started them.
"""

import os
import shutil
import signal
import subprocess
import sys
import textwrap

import pandas as pd
import pytest

import psephos as ps
from psephos.errors import LedgerError, RefusedError, SourceError
from psephos.kernel.parts import law, spark_runner
from psephos.kernel.parts.spark_runner import SparkRunner
from psephos.matrix import Identity
from tests.kernel import test_part_faults as faults
from tests.kernel.test_part_faults import PARTS, is_whole, measured, parts_of, sealed_files, spent

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the sockets open by which it hands over rows.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
place, short_runs = faults.place, faults.short_runs
MASTER = "local[2,4]"


@pytest.fixture(scope="module")
def runner():
    """Only one Spark runs in a process: that of other tests ends, and they start theirs anew."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'psephos[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed: make services")
    from pyspark.sql import SparkSession

    others = sys.modules.get("tests.engines.spark_session")
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    if others is not None:
        others.started.cache_clear()
    runner = SparkRunner.start(MASTER)
    yield runner
    runner.session.stop()


def test_spark_gives_the_same_answers_as_this_process(runner, tmp_path):
    """Up to noise, which is nearly always zero here, in waves and over two levels."""
    unit, budget = ps.add_remove_row(), ps.epsilon("1000000")
    ps.Ledger.create(tmp_path / "people.ledger", dataset="people", unit=unit, budget=budget)
    answers = []
    for name, performer in (("alone", None), ("spark", runner)):
        (tmp_path / name).mkdir()
        options = {"spend": ps.epsilon("300000"), "folder": tmp_path / name, "key": name}
        measurement = parts_of(tmp_path).measure(
            Identity(3), weights=[1, "1/2"], runner=performer, **options
        )
        answers.append(
            [rows.tolist() for level in (0, 1) for _, rows in measurement.answers(level)]
        )
    assert answers[0] == answers[1]


def test_killed_tasks_are_tried_again(runner, place, monkeypatch):
    """Some lose their Python process when their file is written and no receipt was returned."""
    marks = place / "marks"
    marks.mkdir()

    def killed(version, job, task):
        from pyspark import TaskContext

        from psephos.kernel.parts.spark_runner import _performed as performed

        context = TaskContext.get()
        receipt = performed(version, job, task)
        if context.attemptNumber() == 0 and context.partitionId() % 4 == 1:
            (marks / str(context.partitionId())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return receipt

    written = []
    run = SparkRunner.run

    def counted(self, job, tasks):
        receipts = list(run(self, job, tasks))
        written.append(len(sealed_files(place)))
        return receipts

    monkeypatch.setattr(spark_runner, "_performed", killed)
    monkeypatch.setattr(SparkRunner, "run", counted)
    measurement = measured(place, runner)
    assert {path.name for path in marks.iterdir()} == {"1", "5", "9"}
    assert written == [13]
    assert len(measurement.receipts) == 10
    is_whole(measurement, place)


def test_a_task_that_dies_always_is_told_and_costs_nothing_more(runner, place, monkeypatch):
    def killed(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(spark_runner, "_performed", killed)
    with pytest.raises(SourceError, match="not charged twice"):
        measured(place, runner)
    monkeypatch.undo()
    monkeypatch.setattr(law, "TASK_NUMBERS", 12)
    is_whole(measured(place, runner), place)


DRIVER = f"""
    import os, sys
    from pathlib import Path
    from psephos.kernel.ledger import Request
    from psephos.kernel.parts import law
    from psephos.kernel.parts.spark_runner import SparkRunner
    import tests.kernel.test_part_faults as faults
    law.TASK_NUMBERS = 12
    place, when = Path(sys.argv[1]), sys.argv[2]
    store = Request._store
    def killed(request, data):
        if when == "after the store":
            store(request, data)
        os.kill(os.getpid(), 9)
    Request._store = killed
    faults.measured(place, SparkRunner.start("{MASTER}"))
"""


@pytest.mark.parametrize("when", ["before the store", "after the store"])
def test_a_killed_driver_is_resumed(runner, place, when):
    command = [sys.executable, "-c", textwrap.dedent(DRIVER), str(place), when]
    died = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert died.returncode == -signal.SIGKILL
    assert spent(place) == ps.epsilon("1")
    left_behind = sealed_files(place)
    assert len(left_behind) == 10
    is_whole(measured(place, runner), place)
    stood = when == "after the store"
    assert (sealed_files(place) == left_behind) == stood
    assert stood or not sealed_files(place) & left_behind


@pytest.mark.parametrize("fault", ["altered", "missing"])
def test_a_part_that_is_not_what_was_stored_is_refused(runner, place, fault):
    measurement = measured(place, runner)
    first = place / "parts" / measurement.receipts[0].name
    data = bytearray(first.read_bytes())
    data[5] ^= 1
    first.unlink()
    if fault == "altered":
        first.write_bytes(data)
    for again in (measurement, measured(place, runner)):
        with pytest.raises(LedgerError, match=r"parts 0 to 3 .* not drawn again"):
            again.answers_of(1, 0, 1)
        assert again.answers_of(1, 4, PARTS).shape == (PARTS - 4, 3)


def test_empty_parts_answer_like_all_others(runner, place):
    """Declared parts without rows have noise, and files of the same length."""
    answers = measured(place, runner).answers_of(1, 30, PARTS)
    assert answers.shape == (10, 3)
    assert (answers != 0).any()
    assert {path.stat().st_size for path in (place / "parts").iterdir()} == {4 * 3 * 8 + 16}


def test_a_table_without_rows_is_measured(runner, place):
    rows = pd.DataFrame({"part": [], "x": []}).astype(int)
    domain = ps.Domain.of(part=PARTS, x=3)
    table = ps.protect(rows, domain, ledger=place / "people.ledger")
    options = {"weights": [0, 1], "spend": ps.epsilon("1"), "folder": place / "parts", "key": "a"}
    is_whole(table.parts("part").measure(Identity(3), runner=runner, **options), place)


def test_sessions_started_here_are_set_as_promised(runner):
    settings = dict(runner.session.sparkContext.getConf().getAll())
    assert settings["spark.speculation"] == settings["spark.ui.enabled"] == "false"
    assert settings["spark.eventLog.enabled"] == "false"
    assert settings["spark.io.encryption.enabled"] == "true"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert runner.session.sparkContext.uiWebUrl is None
    assert runner.session.sparkContext.pythonExec == sys.executable
    assert SparkRunner.start() == runner
    with pytest.raises(RefusedError, match="runs already; stop it first"):
        SparkRunner.start("local[1]")
