"""A small release that runs in a moment: 600 made-up persons, two tables."""

from pathlib import Path

import pytest
from numpy.random import default_rng

from psephos.release.preflight.checks import check_release, create_ledger
from psephos.release.spec.job import Job

RELEASE = """
name = "pets"
title = "Pets by age"
publisher = "The town"
source = "people.csv"
zeros = ["age < 6 AND pet = 'horse'"]

[privacy]
unit = "add_remove_row"

[ledger]
path = "people.ledger"
dataset = "people"
epsilon = "2"

[budget]
epsilon = 0.5

[schema.age]
title = "Age"
integers = [0, 19]
levels = { broad = [0, 6, 12] }

[schema.pet]
values = ["cat", "dog", "horse"]
unknown = "other"
fact = "the form lists them"

[[tables]]
name = "pets"
rows = ["age.broad"]
columns = ["pet"]

[[tables]]
name = "young"
sql = "SELECT pet, COUNT(*) FROM people WHERE age < 12 GROUP BY pet"
weight = 2

[selection]
strategy = "opt_product"
restarts = 1
"""


def people(rows=600, extra="", seed=0):
    rng = default_rng(seed)
    ages, pets = rng.integers(0, 20, rows), rng.choice(["cat", "dog", "horse", "newt"], rows)
    pets[(ages < 6) & (pets == "horse")] = "cat"
    lines = [f"{age},{pet}" for age, pet in zip(ages, pets, strict=True)]
    return "age,pet\n" + "\n".join(lines) + "\n" + extra


def write_job(folder: Path, text: str = RELEASE, data: str | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "release.toml").write_text(text, encoding="utf-8")
    (folder / "people.csv").write_text(people() if data is None else data, encoding="utf-8")
    return folder / "release.toml"


@pytest.fixture
def release_path(tmp_path):
    """A release file whose ledger exists, and whose schema was compared with the data."""
    place = write_job(tmp_path / "job")
    job = Job.read(place)
    create_ledger(job)
    assert check_release(job).ok
    return place
