"""What the runner on Spark asks of a session, and what it does with what comes back.

Executors are a stand-in in this process; test_spark_parts.py runs real ones.
"""

import errno
import os
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

import psephos as ps
from psephos.errors import RefusedError, SourceError
from psephos.kernel.parts import seal, spark_runner, spark_session, task
from psephos.kernel.parts.runners import Processes, runner_by_name
from psephos.kernel.parts.spark_runner import SparkRunner
from tests.kernel import test_part_faults as faults
from tests.kernel.test_part_faults import is_whole, measured, sealed_files, spent

place, short_runs = faults.place, faults.short_runs
SAFE = {"spark.speculation": "false", "spark.io.encryption.enabled": "true"}


is_session = spark_session.is_session


@pytest.fixture(autouse=True)
def sessions():
    """Stand-ins are taken for sessions of pyspark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_session, "is_session", lambda session: session is not None)
        yield


@dataclass
class Executors:
    """A session whose tasks run here; `twice` performs each of them two times."""

    settings: dict = field(default_factory=SAFE.copy)
    twice: bool = False
    waves: list = field(default_factory=list)

    @property
    def sparkContext(self):
        return self

    def getConf(self):
        return self.settings

    def parallelize(self, items, slices):
        assert len(items) == slices
        times = 1 + (self.twice and len(items) > 1)  # the look at the session is one item
        return Spread([each for each in items for _ in range(times)], self.waves)


@dataclass
class Spread:
    items: list
    waves: list

    def map(self, function):
        self.function = function
        return self

    def collect(self):
        self.waves.append(len(self.items))
        return [self.function(each) for each in self.items]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SAFE | {"spark.speculation": "true"}, r"spark.speculation = true.*start it with false"),
        (SAFE | {"spark.speculation": "TRUE"}, r"spark.speculation = true"),
        ({}, r"spark.io.encryption.enabled = false.*start it with true"),
    ],
)
def test_sessions_that_could_show_more_are_refused(settings, message):
    with pytest.raises(RefusedError, match=message):
        SparkRunner(Executors(settings))


def test_what_is_no_session_is_refused():
    with pytest.raises(RefusedError, match="takes a SparkSession that runs"):
        SparkRunner(None)


def test_executors_have_the_same_psephos(monkeypatch, place):
    monkeypatch.setattr(spark_runner, "_version_there", lambda _: "0.1")
    with pytest.raises(RefusedError, match=r"have a psephos 0\.1, and the driver has 0\."):
        SparkRunner(Executors())
    monkeypatch.setattr(spark_runner, "_version_there", lambda _: 1 // 0)
    with pytest.raises(RefusedError, match="cannot be imported"):
        SparkRunner(Executors())
    monkeypatch.undo()
    monkeypatch.setattr(faults.law, "TASK_NUMBERS", 12)
    runner = SparkRunner(Executors())
    versions = iter(["1.0"] * 3)  # the session is looked at, then come the driver and each task
    monkeypatch.setattr(spark_runner, "_version", lambda: next(versions, "1.1"))
    with pytest.raises(SourceError, match="Spark could not perform"):
        measured(place, runner)
    assert not sealed_files(place)


def test_second_receipts_are_dropped(place):
    runner = SparkRunner(Executors())
    runner.session.twice = True
    measurement = measured(place, runner)
    assert runner.session.waves == [1, 1, 20]  # sessions are looked at again before a charge
    is_whole(measurement, place)


def test_tasks_are_handed_over_in_waves(place, monkeypatch):
    monkeypatch.setattr(spark_runner, "WAVE_BYTES", 1)
    runner = SparkRunner(Executors())
    is_whole(measured(place, runner), place)
    assert runner.session.waves == [1] * 12
    assert list(spark_runner._waves([])) == []


def resumes(place):
    """Nothing was stored; the same key gives a whole answer, for the one charge."""
    assert spent(place) == ps.epsilon("1")
    is_whole(measured(place, SparkRunner(Executors())), place)


def test_a_folder_that_is_not_shared_is_told_before_anything_is_stored(place, monkeypatch):
    performed = spark_runner._performed

    def elsewhere(*given):
        reply = performed(*given)
        for path in (place / "parts").iterdir():
            path.unlink()
        return reply

    monkeypatch.setattr(spark_runner, "_performed", elsewhere)
    with pytest.raises(SourceError, match="share under one path"):
        measured(place, SparkRunner(Executors()))
    monkeypatch.setattr(spark_runner, "_performed", performed)
    resumes(place)


@pytest.mark.parametrize(
    ("code", "message"), [(errno.ENOSPC, "the disk is full"), (errno.EIO, "Spark could not")]
)
def test_a_disk_that_fails_is_told_and_nothing_is_lost(place, monkeypatch, code, message):
    def failing(*_):
        raise OSError(code, "")

    monkeypatch.setattr(task, "sealed", failing)
    with pytest.raises(SourceError, match=message):
        measured(place, SparkRunner(Executors()))
    monkeypatch.setattr(task, "sealed", seal.sealed)
    resumes(place)


def test_what_is_missing_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SourceError, match=r'need pyspark; write pip install "psephos\[spark\]"'):
        runner_by_name("spark")
    monkeypatch.setattr(spark_session, "find_spec", lambda name: name)
    monkeypatch.setattr(spark_session.shutil, "which", lambda _: None)
    with pytest.raises(SourceError, match="need Java 17 or later"):
        runner_by_name("spark://host:7077")


def test_runners_have_names(monkeypatch):
    assert runner_by_name("processes") == Processes()
    assert runner_by_name("processes:4") == Processes(4)
    masters = []
    monkeypatch.setattr(spark_runner, "started", lambda m: masters.append(m) or Executors())
    for name in ("spark", "spark://host:7077", "yarn"):
        assert isinstance(runner_by_name(name), SparkRunner)
    assert masters == [None, "spark://host:7077", "yarn"]
    for name in ("dask", "processes:many", "processes:²", "sparkle"):
        with pytest.raises(RefusedError, match=f"no runner '{name}'; have processes"):
            runner_by_name(name)


class Builder:
    """Notes what a session is started with; starts none where `fails`."""

    def __init__(self, fails=False):
        self.settings, self.fails = {}, fails

    def appName(self, _):
        return self

    def master(self, name):
        return self.config("spark.master", name)

    def config(self, name, value):
        self.settings[name] = value
        return self

    def getOrCreate(self):
        if self.fails:
            raise OSError("words of Spark")
        return Executors(self.settings)


@pytest.fixture
def pyspark(monkeypatch):
    """A stand-in for the package."""
    session = SimpleNamespace(builder=Builder(), getActiveSession=lambda: None)
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__spec__=True))
    monkeypatch.setitem(sys.modules, "pyspark.sql", SimpleNamespace(SparkSession=session))
    monkeypatch.setattr(spark_session.shutil, "which", lambda name: name)
    monkeypatch.setenv("PYSPARK_PYTHON", "/another/python")
    return session


@pytest.mark.parametrize(("master", "here"), [(None, True), ("spark://host:7077", False)])
def test_sessions_are_started_with_what_is_asked_of_them(pyspark, master, here):
    settings = SparkRunner.start(master).session.settings
    assert settings.items() >= SAFE.items()
    assert settings["spark.ui.enabled"] == settings["spark.eventLog.enabled"] == "false"
    assert settings["spark.log.level"] == "OFF"
    assert settings["spark.master"] == (master or "local[*,4]")
    assert (settings.get("spark.driver.bindAddress") == "127.0.0.1") == here
    assert (os.environ["PYSPARK_PYTHON"] == sys.executable) == here


def test_only_sessions_of_pyspark_itself_are_given_tasks(monkeypatch):
    class SparkSession:
        pass

    class Likeness(SparkSession):
        pass

    package = SimpleNamespace(SparkSession=SparkSession)
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__spec__=True))
    monkeypatch.setitem(sys.modules, "pyspark.sql", package)
    assert is_session(SparkSession())
    for other in (Likeness(), Executors(), None):
        assert not is_session(other)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert not is_session(SparkSession())  # there is no package that it could be of


def test_an_active_session_is_taken_if_it_is_the_one_that_was_named(pyspark):
    active = Executors()
    active.master = "yarn"
    pyspark.getActiveSession = lambda: active
    assert SparkRunner.start().session is SparkRunner.start("yarn").session is active
    with pytest.raises(RefusedError, match="on yarn runs already; stop it first"):
        SparkRunner.start("spark://host:7077")
    active.settings["spark.speculation"] = "true"
    with pytest.raises(RefusedError, match=r"spark\.speculation = true"):
        SparkRunner.start()


def test_a_spark_that_does_not_start_is_told_without_its_words(pyspark):
    pyspark.builder = Builder(fails=True)
    with pytest.raises(SourceError, match=r"did not start.*with Java 17") as told:
        SparkRunner.start()
    assert "words of Spark" not in str(told.value)
