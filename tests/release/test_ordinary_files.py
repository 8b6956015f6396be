"""Random release files as people write them are planned, released and verified, rows and all."""

import csv
import datetime
import math

import pytest
from numpy.random import default_rng
from typer.testing import CliRunner

import psephos as ps
from psephos.cli.app import app

KINDS = ("category", "yes or no", "code", "age", "income", "day")


def listed(values):
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


def column(rng, name, kind):
    """The lines of a schema, the entries, and how tables may name it."""
    if kind in ("category", "yes or no"):
        values = [f"{name} {i}" for i in range(2 if kind == "yes or no" else rng.integers(3, 12))]
        return [f"values = {listed(values)}"], values, [name]
    if kind == "code":
        values = [f"{name}{i:04d}" for i in range(rng.choice([60, 300, 900]))]
        parts = {f"part {i}": values[i::7] for i in range(7)}
        level = ", ".join(f'"{part}" = {listed(members)}' for part, members in parts.items())
        return (
            [f"values = {listed(values)}", f"levels.part = {{ {level} }}"],
            values,
            [f"{name}.part"],
        )
    if kind == "age":
        return ["integers = [0, 99]", "levels = { broad = 20, fine = 5 }"], list(range(100)), [
            name, f"{name}.fine", f"{name}.broad",
        ]  # fmt: skip
    if kind == "income":
        bins = "bins = { first = 0, last = 40000, width = 1000, open = false }"
        return [bins, 'unknown = "clip"'], [i * 1000 + 17 for i in range(40)], [name]
    first = datetime.date(1985, 1, 1)
    days = [(first + datetime.timedelta(i)).isoformat() for i in range(14_000)]
    lines = [f'dates = ["{days[0]}", "{days[-1]}"]', 'levels = { year = "year", month = "month" }']
    return lines, days, [f"{name}.year"]


def table(rng, columns):
    """The lines of a table, over one or two columns."""
    names = list(columns)
    some = [str(name) for name in rng.permutation(names)[: rng.integers(1, 4)]]
    ordered = [name for name in some if columns[name][0] in ("age", "income")]
    kind = rng.choice(["cross", "cross", "prefix", "statistic", "sql"])
    if kind == "prefix" and ordered:
        return [f'queries = {{ {ordered[0]} = "prefix" }}']
    if kind == "statistic" and ordered:
        return [f'statistic = "{rng.choice(["mean", "median", "sum"])}"', f'of = "{ordered[0]}"']
    if kind == "sql" and ordered:
        return [f'sql = "SELECT COUNT(*) FROM people WHERE {ordered[0]} >= 20"']
    labels = [str(rng.choice(columns[name][3])) for name in some]
    lines = [f"rows = {listed(labels[:-1] or labels)}"]
    return lines + ([f"columns = {listed(labels[-1:])}"] if len(labels) > 1 else [])


def write_release(folder, seed, rows=2_000):
    """A release file and its rows; half of the columns are asked about."""
    rng = default_rng(seed)
    columns = {}
    for i in range(rng.integers(3, 9)):
        kind = str(rng.choice(KINDS))
        columns[f"c{i}"] = (kind, *column(rng, f"c{i}", kind))
    asked = {name: columns[name] for name in list(columns)[: math.ceil(len(columns) / 2) + 1]}
    currency = "rho" if rng.integers(2) else "epsilon"
    person = rng.integers(3) == 0
    lines = ['name = "people"', 'source = "people.csv"', "[privacy]"]
    lines += ['unit = "person"', 'column = "id"', "max_rows = 2"] if person else [
        'unit = "add_remove_row"'
    ]  # fmt: skip
    lines += ["[ledger]", 'path = "people.ledger"', 'dataset = "people"', f'{currency} = "10"']
    lines += ["[budget]", f'{currency} = "1"']
    for name, (_, schema, *_) in columns.items():
        lines += [f"[schema.{name}]", *schema]
    for i in range(rng.integers(1, 5)):
        lines += ["[[tables]]", f'name = "table {i}"', *table(rng, asked)]
    (folder / "release.toml").write_text("\n".join(lines) + "\n")
    with (folder / "people.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *columns])
        for row in range(rows):
            entries = (
                values[rng.integers(len(values)) // 2] for _, _, values, _ in columns.values()
            )
            writer.writerow([row // 2, *entries])


def run(folder, *words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (folder, words, result.output[-2000:], result.exception)
    return result.output


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_any_ordinary_file_is_released_and_verified(tmp_path, seed):
    write_release(tmp_path, seed)
    place = tmp_path / "release.toml"
    run(tmp_path, "plan", place)
    run(tmp_path, "check", place, "--create-ledger")
    run(tmp_path, "release", place)
    run(tmp_path, "verify", tmp_path / "bundle", "--ledger", tmp_path / "people.ledger")


@pytest.mark.parametrize("seed", [3, 4])
def test_unasked_columns_change_nothing(tmp_path, seed):
    write_release(tmp_path, seed, rows=10)
    place = tmp_path / "release.toml"
    before = ps.plan(place)
    born = "\n".join(["[schema.born]", *column(default_rng(0), "born", "day")[0], "[[tables]]"])
    place.write_text(place.read_text().replace("[[tables]]", born, 1))
    after = ps.plan(place)
    assert after.strategy.query == before.strategy.query
    assert after.rmse == before.rmse
