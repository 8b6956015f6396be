"""Write people.csv: 50,000 made-up persons, entered by many hands and never cleaned.

Nobody is in it. Spellings differ, blanks and words for "nothing" stand where entries are missing,
and incomes have decimal commas.
"""

import csv
import sys
from pathlib import Path

import numpy as np

DISTRICTS = [f"{side}{number}" for side in "NESW" for number in range(1, 4)]
SPELLINGS = {
    "employed": ["employed", "EMPLOYED ", "Employed", "emp", " employed"],
    "unemployed": ["unemployed", "Unemployed", "UNEMPLOYED", "out of work"],
    "retired": ["retired", "Retired ", "pensioner"],
    "in education": ["in education", "In Education", "student", "STUDENT"],
}
NOTHING = ["", "NULL", "n/a", "-"]


def people(rows: int, seed: int = 1) -> list[list[str]]:
    """Rows of made-up persons: district, sex, age, status, income."""
    draws = np.random.default_rng(seed)
    district = draws.choice(DISTRICTS, rows, p=draws.dirichlet(np.full(len(DISTRICTS), 8.0)))
    sex = draws.choice(["f", "m", "F", "M", "f "], rows, p=[0.3, 0.3, 0.2, 0.18, 0.02])
    age = np.minimum(99, draws.gamma(4.0, 11.0, rows)).astype(int)
    status = draws.choice(list(SPELLINGS), rows, p=[0.8, 0.08, 0.05, 0.07])
    status = np.where(age < 18, "in education", np.where(age > 66, "retired", status))
    income = draws.lognormal(10.1, 0.55, rows) * np.where(status == "in education", 0.1, 1)
    missing = draws.random((3, rows)) < np.array([[0.01], [0.03], [0.04]])
    nothing = draws.choice(NOTHING, rows)
    return [
        [
            district[i] + " " * (i % 20 == 0),
            sex[i],
            nothing[i] if missing[0, i] else str(age[i]),
            nothing[i] if missing[1, i] else str(draws.choice(SPELLINGS[status[i]])),
            nothing[i] if missing[2, i] else f"{income[i]:.2f}".replace(".", ","),
        ]
        for i in range(rows)
    ]


def write(path: Path, rows: int = 50_000) -> None:
    """The file, with semicolons between entries, as spreadsheets in many countries write it."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["district", "sex", "age", "status", "income"])
        writer.writerows(people(rows))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "people.csv")
