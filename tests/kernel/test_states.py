"""The maximum over the parts of a split covers one state of the rows, and no two."""

import pandas as pd
import pytest

import psephos as ps
from psephos.engines import in_one_state

DOMAIN = ps.Domain.of(side=["a", "b", "c"], x=2)


def opened(tmp_path, source):
    path = tmp_path / "people.ledger"
    unit, budget = ps.add_remove_row(), ps.epsilon("10")
    ledger = ps.Ledger.create(path, dataset="people", unit=unit, budget=budget)
    return ps.protect(source, DOMAIN, ledger=path), ledger


def spent_on(parts, ledger, *names):
    for name in names:
        parts[name].noisy_count(spend=ps.epsilon("1"))
    return ledger.spent()


def rows(side):
    return pd.DataFrame({"side": [side] * 3, "x": [0, 1, 1]})


def test_parts_of_one_state_cost_their_maximum(tmp_path):
    rows("a").to_csv(tmp_path / "people.csv", index=False)
    table, ledger = opened(tmp_path, tmp_path / "people.csv")
    assert spent_on(table.split("side"), ledger, "a", "b", "c") == ps.epsilon("1")


def test_parts_of_a_later_state_pay_in_full(tmp_path):
    """Somebody moves from a to b between two requests: each state is paid for by itself."""
    place = tmp_path / "people.csv"
    rows("a").to_csv(place, index=False)
    table, ledger = opened(tmp_path, place)
    parts = table.split("side")
    assert spent_on(parts, ledger, "a") == ps.epsilon("1")
    rows("bb"[:1]).assign(x=[1, 1, 1]).to_csv(place, index=False)
    place.touch()
    assert spent_on(parts, ledger, "b") == ps.epsilon("2")
    assert spent_on(parts, ledger, "c") == ps.epsilon("2")


class Live:
    """An engine that does not tell when its rows change."""

    def __init__(self, frame):
        from psephos.engines.frames import ArrowTable

        self.inner = ArrowTable(frame)

    def columns(self):
        return self.inner.columns()

    def version(self):
        return None

    def snapshot(self):
        return self.inner.snapshot()


@pytest.fixture
def live():
    import pyarrow as pa

    return Live(pa.Table.from_pandas(rows("a")))


def test_parts_of_a_live_table_pay_in_full(tmp_path, live):
    table, ledger = opened(tmp_path, live)
    assert spent_on(table.split("side"), ledger, "a", "b") == ps.epsilon("2")


def test_parts_read_in_one_state_of_a_live_table_cost_their_maximum(tmp_path, live):
    with in_one_state(live) as held:
        table, ledger = opened(tmp_path, held)
        assert spent_on(table.split("side"), ledger, "a", "b", "c") == ps.epsilon("1")


def test_groups_know_the_state_of_the_rows_behind_them(tmp_path, live):
    table, ledger = opened(tmp_path, live)
    parts = table.group_by("side", most=3).split("side")
    assert spent_on(parts, ledger, "a", "b") == ps.epsilon("2")
