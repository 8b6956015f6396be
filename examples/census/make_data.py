"""Write persons.parquet: 300,000 made-up persons with the columns of the Census person file."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.random import default_rng

COUNT = 300_000

rng = default_rng(2010)
age = np.minimum(114, rng.gamma(4.0, 9.5, COUNT)).astype(int)
one_race = 2 ** rng.choice(6, COUNT, p=[0.74, 0.13, 0.01, 0.06, 0.005, 0.055])
second = 2 ** rng.choice(6, COUNT, p=[0.3, 0.25, 0.15, 0.15, 0.05, 0.1])
race = np.where(rng.random(COUNT) < 0.03, one_race | second, one_race)
relationship = np.where(age < 18, rng.choice([2, 3, 4, 6], COUNT), rng.choice(17, COUNT))
persons = pa.table(
    {
        "sex": np.where(rng.random(COUNT) < 0.508, "female", "male"),
        "hispanic": np.where(rng.random(COUNT) < 0.163, "hispanic", "not hispanic"),
        "race": race,
        "relationship": relationship,
        "age": age,
    }
)
pq.write_table(persons, Path(__file__).with_name("persons.parquet"))
