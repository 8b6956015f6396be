"""The source in another format is no stand-in: its exact counts would be published unpaid."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos.release.preflight.checks import create_ledger, is_checked
from psephos.release.spec.job import Job

RELEASE = """
name = "r"
source = "people.parquet"
stand_in = "earlier.csv"
[privacy]
unit = "add_remove_row"
[ledger]
path = "l.ledger"
dataset = "people"
epsilon = "1"
[budget]
epsilon = "1/100"
[schema.sex]
values = ["f", "m"]
[schema.age]
integers = [0, 9]
[output]
prior = "stand_in"
bundle = "bundle"
[[tables]]
name = "t"
rows = ["sex"]
columns = ["age"]
"""


def people(seed, rows=500):
    rng = np.random.default_rng(seed)
    return pa.table({"sex": rng.choice(["f", "m"], rows), "age": rng.integers(0, 10, rows)})


def write(folder, stand_in, text=RELEASE):
    pq.write_table(people(1), folder / "people.parquet")
    pyarrow.csv.write_csv(stand_in, folder / "earlier.csv")
    (folder / "release.toml").write_text(text)
    return folder / "release.toml"


COPIES = {
    "the same rows": people(1),
    "in another order": people(1).sort_by("age"),
    "with a line more": pa.concat_tables([people(1), people(2, 1)]),
    "with a line less": people(1).slice(1),
}


@pytest.mark.parametrize("stand_in", COPIES.values(), ids=COPIES)
def test_a_copy_in_another_format_is_refused(tmp_path, stand_in):
    place = write(tmp_path, stand_in)
    create_ledger(Job.read(place))
    with pytest.raises(ps.ReleaseError, match=r"stand_in: earlier\.csv has the source's own"):
        ps.check_release(place)
    assert not is_checked(Job.read(place))
    with pytest.raises(ps.ReleaseError, match="stand_in_is_public = true"):
        ps.release(place, unchecked=True)
    assert not ps.Ledger.open(tmp_path / "l.ledger").history()


def test_a_stand_in_that_is_exchanged_after_the_check_is_refused(tmp_path):
    place = write(tmp_path, people(2))
    create_ledger(Job.read(place))
    assert ps.check_release(place).ok
    pyarrow.csv.write_csv(people(1), tmp_path / "earlier.csv")
    with pytest.raises(ps.ReleaseError, match="stand_in: "):
        ps.release(place)


def test_other_people_and_published_counts_pass(tmp_path):
    assert ps.check_release(write(tmp_path, people(2))).ok
    public = f"stand_in_is_public = true\n{RELEASE}"
    assert ps.check_release(write(tmp_path, people(1), public)).ok
