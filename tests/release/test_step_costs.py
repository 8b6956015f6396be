"""What a step will take grows with its numbers; what finds no room in memory is refused."""

import errno
import subprocess
import sys

import pytest

import psephos as ps
from psephos.release.preflight import room
from psephos.release.preflight.checks import create_ledger, open_ledger
from psephos.release.preflight.memory import NO_BOUND, free_memory, is_out_of_memory
from psephos.release.run import rehearse, release
from psephos.release.spec.job import Job
from psephos.release.synthesize import rows_of_bundle
from psephos.release.verify.verification import verification
from tests.release.conftest import RELEASE, write_job

SIZES = (20, 80, 400)
ONE_MEGABYTE = 10**6


def forecasts(folder, change):
    """Forecasts of the same tables over more and more values of one attribute."""
    texts = [change(RELEASE, size) for size in SIZES]
    return [ps.plan(write_job(folder / str(i), text)) for i, text in enumerate(texts)]


def longer(text, size):
    return text.replace("[0, 19]", f"[0, {size - 1}]").replace('"age.broad"', '"age"')


def with_medians(text, size):
    statistic = '[[tables]]\nname = "m"\nstatistic = "median"\nof = "age"\nby = ["pet"]\n'
    return longer(text, size) + statistic


@pytest.mark.parametrize("change", [longer, with_medians])
def test_costs_grow_with_the_numbers(tmp_path, change):
    small, middle, large = (forecast.steps for forecast in forecasts(tmp_path, change))
    assert [s.name for s in small] == [s.name for s in middle] == [s.name for s in large]
    for a, b in zip(small, large, strict=True):
        assert b.seconds > a.seconds, a.name
        assert b.bytes > a.bytes, a.name
    for steps in (small, middle, large):
        assert all(step.seconds > 0 and step.bytes > 0 for step in steps)


@pytest.mark.parametrize(
    ("formats", "views"), [('["csv", "xlsx"]', None), (None, '["consistent"]')]
)
def test_each_format_and_view_counts(tmp_path, formats, views):
    def seconds(name, output):
        forecast = ps.plan(write_job(tmp_path / name, f"{RELEASE}\n[output]\n{output}\n"))
        return next(s.seconds for s in forecast.steps if s.name == "tables and report")

    plain = seconds("plain", 'formats = ["csv"]')
    if formats is not None:
        assert seconds("more", f"formats = {formats}") > plain
    if views is not None:
        assert seconds("fewer", f'formats = ["csv"]\nviews = {views}') < plain


@pytest.mark.parametrize(
    ("free", "words"),
    [
        (100, "planning .* numbers takes about"),
        (ONE_MEGABYTE, 'the step ".*" takes about .* of memory, and 1 MB is free'),
    ],
)
def test_too_little_memory_is_said_before_a_charge(tmp_path, monkeypatch, free, words):
    place = write_job(tmp_path / "job")
    create_ledger(Job.read(place))
    monkeypatch.setattr(room, "free_memory", lambda: free)
    for act in (rehearse, lambda place: release(place, unchecked=True)):
        with pytest.raises(ps.ReleaseError, match=words) as refusal:
            act(place)
        assert "leave out table 'pets', the largest with" in str(refusal.value)
        assert "This run charged nothing" in str(refusal.value)
    assert open_ledger(Job.read(place)).spent().amount == 0


def test_synthetic_rows_that_find_no_room_are_refused(tmp_path, monkeypatch):
    bundle = rehearse(write_job(tmp_path / "job"), rows=200)
    monkeypatch.setattr(room, "free_memory", lambda: ONE_MEGABYTE)
    assert rows_of_bundle(bundle, 100).table.rows == 100
    with pytest.raises(ps.ReleaseError, match="50,000,000 rows of 2 columns take about"):
        rows_of_bundle(bundle, 50_000_000)


def in_another_process(text):
    head = "import resource, numpy as np\nfrom psephos.release.preflight.memory import *\n"
    done = subprocess.run(
        [sys.executable, "-c", head + text], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(free_memory() == NO_BOUND, reason="the system says nothing of its memory")
def test_limits_of_the_process_count():
    text = "resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))\nprint(free_memory())"
    assert 0 < int(in_another_process(text)) < 2**33


@pytest.mark.skipif(free_memory() == NO_BOUND, reason="the system says nothing of its memory")
def test_a_process_takes_no_more_than_is_free():
    text = (
        "free = free_memory()\n"
        "limit_memory()\n"
        "assert free_memory() <= free\n"
        "try:\n"
        "    np.empty(free, dtype=np.int8)\n"
        "except MemoryError as error:\n"
        "    print(is_out_of_memory(error))"
    )
    assert in_another_process(text) == "True"


def test_errors_for_want_of_memory_are_known():
    wrapped = RuntimeError("a library's own words")
    wrapped.__cause__ = MemoryError()
    wanting = [MemoryError(), OSError(errno.ENOMEM, "no"), RuntimeError("can't start new thread")]
    assert all(map(is_out_of_memory, [*wanting, wrapped]))
    others = [OSError(errno.ENOENT, "no"), RuntimeError("no"), ps.TooLargeError("no", 2, 1)]
    assert not any(map(is_out_of_memory, others))


def test_a_bundle_is_not_wrong_for_want_of_memory():
    def full():
        raise MemoryError

    def wrong():
        raise ValueError

    with pytest.raises(MemoryError):
        verification("bundle", [("files", lambda: "ok"), ("raw view", full)], None)
    found = verification("bundle", [("files", wrong), ("raw view", full)], None)
    assert not found.ok
