"""`psephos init`: what it writes, where, and of what it drafts nothing."""

import pytest

from psephos.release.spec.file import parse_release
from tests.cli.test_cli import run, told
from tests.release.conftest import RELEASE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "people.csv").write_text("age;pet\n3;cat\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("nowhere/r.toml", "nowhere/r.toml cannot be written: No such file or directory"),
        ("people.csv/r.toml", "cannot be written: Not a directory"),
        ("r.yaml", "a draft is TOML; give --output a name that ends in .toml, not r.yaml"),
        ("r.json", "a draft is TOML"),
        ("r", "a draft is TOML"),
    ],
)
def test_a_place_where_no_draft_can_be_is_refused(folder, output, message):
    assert message in told("init", "people.csv", "-o", output, code=2)["error"]["message"]
    assert [p.name for p in folder.iterdir()] == ["people.csv"]


def test_a_draft_speaks_of_itself(folder):
    assert run("init", "people.csv", "-o", "my pets.toml").exit_code == 0
    text = (folder / "my pets.toml").read_text()
    for command in ("check", "plan", "rehearse", "release"):
        assert f"#   psephos {command} 'my pets.toml'" in text
    assert "release.toml" not in text
    assert "[schema.pet]" in text


def test_a_spreadsheet_is_no_table(folder):
    content = b"PK\x03\x04\x14\x00\x06\x00\x08\x00rest of a zip file\n"
    (folder / "people.xlsx").write_bytes(content)
    (folder / "renamed.csv").write_bytes(content)
    message = told("init", "people.xlsx", code=2)["error"]["message"]
    assert "export the table as CSV or Parquet" in message
    message = told("init", "renamed.csv", code=5)["error"]["message"]
    assert "'renamed.csv' is not a CSV or Parquet file" in message
    assert not (folder / "release.toml").exists()


def test_what_is_drafted_is_what_is_checked(folder):
    assert run("init", "people.csv").exit_code == 0
    text = (folder / "release.toml").read_text()
    for old, new in (
        ("# unit =", "unit ="),
        ('# epsilon = "..."', 'epsilon = "1"'),
        ("confirmed = false", 'values = ["3", "cat"]\nunknown = "other"'),
    ):
        text = text.replace(old, new)
    (folder / "release.toml").write_text(text)
    assert told("check", "release.toml")["counted"] == 1


@pytest.mark.parametrize(
    ("ledger", "budget", "reason"),
    [
        (
            'epsilon = "1"',
            "epsilon = 5",
            "epsilon 5 is more than the ledger will ever hold, epsilon 1",
        ),
        ('rho = "1/8"', "epsilon = 0.6", "(booked as rho 9/50) is more than the ledger will ever"),
        ('epsilon = "1"', "rho = 0.1", "a ledger that holds epsilon cannot pay rho"),
        ('rho = "1/8"', "epsilon = 0.5", None),
        ('epsilon = "1"', "epsilon = 1", None),
    ],
)
def test_a_budget_is_within_its_ledger(folder, ledger, budget, reason):
    text = RELEASE.replace('epsilon = "2"', ledger).replace("epsilon = 0.5", budget)
    (folder / "r.toml").write_text(text)
    if reason is None:
        assert parse_release(text)
    else:
        for command in ("check", "plan", "rehearse", "release"):
            message = told(command, "r.toml", code=2)["error"]["message"]
            assert message.startswith("r.toml: budget: ")
            assert reason in message
