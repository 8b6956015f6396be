"""The progress of a search: a bar on stderr, or a function that is told."""

import io

import pytest
from rich.console import Console

import psephos as ps
from psephos.strategy.hdmm.search import watch

CDF = ps.Workload(ps.Domain.of(age=24), [ps.product(age=ps.prefix())])


def drawn(progress, time_limit=None, *, terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with watch(progress, time_limit, console) as watched:
        watched.begins(2)
        watched.enters("OPT_⊗")
        watched.tried("OPT_⊗", 1.5)
        watched.leaves()
    return console.file.getvalue()


def test_a_bar_shows_operators_ratio_and_time():
    text = drawn(True, 60.0, terminal=True)
    for part in ("OPT_⊗", "1/2", "1.5 x better than Identity", "60 s left of 60 s"):
        assert part in text
    assert "left of" not in drawn(True, terminal=True)


def test_a_bar_is_quiet_where_stderr_is_no_terminal_unless_asked_for(capfd):
    assert drawn(True, terminal=False).strip() == ""
    assert drawn("always", terminal=False).count("1.5 x better than Identity") == 1
    ps.select.hdmm(CDF, restarts=1, progress=True)
    seen = capfd.readouterr()
    assert seen.out == ""
    assert "Identity" not in seen.err


def test_a_bar_goes_to_stderr(capfd):
    ps.select.hdmm(CDF, restarts=1, progress="always")
    seen = capfd.readouterr()
    assert seen.out == ""
    assert "x better than Identity" in seen.err


def test_a_function_is_told_of_every_candidate():
    told = []
    strategy = ps.select.hdmm(
        CDF, restarts=2, progress=lambda name, ratio: told.append((name, ratio))
    )
    assert told[0] == ("identity", pytest.approx(1.0))
    assert [ratio for _, ratio in told] == sorted(ratio for _, ratio in told)
    identity = ps.select.identity(CDF).expected_error(CDF)
    assert told[-1][1] == pytest.approx((identity / strategy.expected_error(CDF)) ** 0.5)


def test_the_strategy_does_not_depend_on_who_watches():
    one = ps.select.hdmm(CDF, restarts=1, progress=False)
    assert one == ps.select.hdmm(CDF, restarts=1, progress="always")


def test_other_values_are_refused():
    with pytest.raises(ps.WorkloadError, match="progress is True"):
        ps.select.hdmm(CDF, restarts=1, progress="yes")
