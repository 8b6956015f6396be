"""What the files for other programs cost, for each number of a table.

OPENBLAS_NUM_THREADS=1 python -m benchmarks.formats
"""

import tempfile
import time
from pathlib import Path

import xlsxwriter

import psephos as ps
from psephos.release.formats.registry import FILE_FORMATS, write_format
from psephos.release.verify.files import publication_of

RELEASE = """
name = "large"
privacy = { unit = "add_remove_row" }
ledger = { path = "large.ledger", dataset = "large", epsilon = "10" }
budget = { epsilon = "1" }

[schema.income]
integers = [0, 999]

[schema.age]
integers = [0, 49]

[schema.group]
values = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]

[[tables]]
name = "all"
rows = ["income", "age"]
columns = ["group"]

[selection]
strategy = "identity"

[output]
formats = ["csv", "parquet", "xlsx", "datapackage", "csvw", "jsonstat", "sdmx"]
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "release.toml"
        place.write_text(RELEASE)
        publication = publication_of(ps.rehearse(place))
        numbers = sum(table.numbers for table in publication.tables)
        print(f"{numbers:,} numbers")
        print("| format | CPU s | µs a number | MB |")
        print("|---|---|---|---|")
        for name in FILE_FORMATS:
            target = Path(folder) / name
            target.mkdir()
            start = time.process_time()
            write_format(publication, name, target)
            seconds = time.process_time() - start
            size = sum(file.stat().st_size for file in target.rglob("*.*"))
            print(f"| {name} | {seconds:.2f} | {seconds / numbers * 1e6:.1f} | {size / 1e6:.1f} |")
        print(f"| as many cells by xlsxwriter alone | {alone(numbers, folder):.2f} | | |")


def alone(numbers: int, folder: str) -> float:
    """Two cells for each number, written one after the other."""
    start = time.process_time()
    book = xlsxwriter.Workbook(f"{folder}/alone.xlsx", {"constant_memory": True})
    sheet, style = book.add_worksheet(), book.add_format({"num_format": "#,##0"})
    for row in range(numbers // 11):
        for column in range(22):
            sheet.write_number(row, column, row + column, style)
    book.close()
    return time.process_time() - start


if __name__ == "__main__":
    main()
