"""Runners that come from a caller: tasks hold counts, and a runner says who draws the noise."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from secrets import token_hex

import numpy as np
import pyarrow as pa
import pytest

import psephos as ps
from psephos.errors import RefusedError, SourceError, a_path
from psephos.kernel.parts.runners import InProcess, Processes
from psephos.kernel.parts.spark_runner import SparkRunner
from psephos.kernel.parts.worker import start_worker
from psephos.kernel.scores.mechanisms import Draws
from psephos.matrix import Identity

SEEN = []


class Looking:
    def run(self, job, tasks):
        SEEN.extend(tasks)
        yield from InProcess(Draws()).run(job, SEEN)


class LookingProcesses(Processes):
    run = Looking.run


class LookingSession:
    """Answers whatever is asked of a session, and sees what its executors are given."""

    def __getattr__(self, name):
        return lambda *items: SEEN.extend(items) or self

    @property
    def sparkContext(self):
        return self

    def getConf(self):
        return {"spark.io.encryption.enabled": "true"}

    def collect(self):
        return [ps.__version__]


class Silent(Draws):
    def noise(self, noise, size):
        return np.zeros(size, dtype=np.int64)


@pytest.fixture
def asked(tmp_path):
    path = tmp_path / "people.ledger"
    ledger = ps.Ledger.create(
        path, dataset="people", unit=ps.add_remove_row(), budget=ps.epsilon("1")
    )
    table = ps.protect(pa.table({"a": [0, 1], "x": [0, 1]}), ps.Domain.of(a=2, x=500), ledger=path)
    SEEN.clear()

    def measure(runner):
        spent = {"spend": ps.epsilon("1/10"), "folder": tmp_path, "key": token_hex(8)}
        return table.parts("a").measure(Identity(500), weights=[0, 1], runner=runner, **spent)

    return measure, ledger


def changed():
    runner = Processes(1)
    object.__setattr__(runner, "run", Looking().run)
    return runner


@pytest.mark.parametrize("runner", [Looking(), LookingProcesses(1)])
def test_strange_runners_are_refused_before_the_charge(asked, runner):
    measure, ledger = asked
    with pytest.raises(RefusedError, match="have Processes and SparkRunner"):
        measure(runner)
    assert not SEEN
    assert ledger.spent().amount == 0


def test_strange_sessions_are_refused():
    with pytest.raises(RefusedError, match="takes a SparkSession"):
        SparkRunner(LookingSession())


def test_what_a_runner_holds_is_not_what_performs(asked):
    measure, _ = asked
    measure(changed())
    assert not SEEN
    answers = measure(InProcess(Silent())).answers_of(1, 0, 2)
    assert (answers != 0).sum() > 10, "noise of scale 10 on 1,000 cells, two of which have a row"


LOOKS = """
import os, sys
open(os.path.join(os.path.dirname(__file__), "seen"), "w").close()
"""


def test_workers_take_no_code_from_the_environment(asked, tmp_path, monkeypatch):
    """Modules of the caller's, in every place where an environment or a folder names some."""
    measure, _ = asked
    names = ("sitecustomize", "usercustomize", "psephos", "numpy", "errno", "site")
    for name in names:
        (tmp_path / f"{name}.py").write_text(LOOKS)
    user = tmp_path / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    shutil.copytree(tmp_path, user / "site-packages", ignore=shutil.ignore_patterns("lib"))
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    measure(Processes(1))
    assert not list(tmp_path.rglob("seen"))
    looks = subprocess.run([sys.executable, "-c", ""], capture_output=True, check=False)
    assert list(tmp_path.rglob("seen")) or looks.returncode, "the environment is one that acts"


def test_workers_have_an_environment_of_their_own(monkeypatch):
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME", "PATH"):
        monkeypatch.setenv(name, "here")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    given = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: given.append(env))
    start_worker()
    assert {*given[0]} <= {"LANG", "LC_ALL", "LC_CTYPE", "OPENBLAS_NUM_THREADS"}
    assert given[0]["LC_ALL"] == "C.UTF-8"


RUNS_ELSEWHERE = """
import os, pyarrow as pa, psephos as ps
from psephos.kernel.parts.runners import Processes
ps.Ledger.create("l", dataset="d", unit=ps.add_remove_row(), budget=ps.epsilon("1"))
table = ps.protect(pa.table({"a": [0, 1], "x": [0, 1]}), ps.Domain.of(a=2, x=3), ledger="l")
given = {"spend": ps.epsilon("1/10"), "folder": ".", "key": "k", "runner": Processes(1)}
table.parts("a").measure(ps.matrix.Identity(3), weights=[0, 1], **given)
"""


def test_workers_run_the_psephos_that_started_them(tmp_path):
    """Also one that lies in a folder of its own, and not where the installation has one."""
    package = tmp_path / "elsewhere" / "psephos"
    shutil.copytree(Path(ps.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    worker = package / "kernel" / "parts" / "worker.py"
    note = "open(os.path.join(os.path.dirname(__file__), f'ran-{os.getpid()}'), 'w').close()"
    worker.write_text(f"{worker.read_text()}\n{note}\n")
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    command = [sys.executable, "-c", RUNS_ELSEWHERE]
    subprocess.run(command, cwd=tmp_path, env=environment, timeout=120, check=True)
    assert len(list(worker.parent.glob("ran-*"))) == 2, "the driver and its worker"


class LookingPath(str):
    """Runs whenever it is joined, and so in the midst of tasks."""

    def __fspath__(self):
        return self

    def split(self, *_):
        return [LookingPath(each) for each in str.split(self, *_)]

    def __radd__(self, other):
        return LookingPath(str.__add__(other, self))

    def startswith(self, *given):
        SEEN.append(given)
        return str.startswith(self, *given)


def test_paths_are_read_as_plain_text(tmp_path):
    SEEN.clear()
    assert type(a_path(LookingPath(tmp_path), "a folder", SourceError)) is str
    assert not SEEN
