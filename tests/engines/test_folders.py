"""Folders and globs of Parquet files: what is one table, what is refused, and in which words."""

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.engines import as_engine, as_source
from psephos.engines.duckdb.reader import StateError
from psephos.errors import DomainError, SourceError
from psephos.kernel.unit import Cap
from psephos.owner.check import check

AGE = Domain.of(age=Attribute.integers(0, 3))


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_folder_names_are_columns_of_text_whatever_they_are(tmp_path):
    write(tmp_path / "year=07" / "sex=F" / "a.parquet", age=[1, 2])
    write(tmp_path / "year=8" / "sex=__HIVE_DEFAULT_PARTITION__" / "b.parquet", age=[3])
    write(tmp_path / "year=8" / "sex=a%2Fb" / "c.parquet", age=[3])
    source = as_source(tmp_path)
    assert source.columns.names == ("age", "year", "sex")
    assert source.columns.types.field("year").type == pa.large_string()
    domain = Domain.of(
        year=Attribute.integers(7, 8), sex=Attribute.categories(["F", "a/b", None]), age=AGE["age"]
    )
    assert source.count(domain, ("year", "sex"), (), None).tolist() == [[2, 0, 0], [0, 1, 1]]
    assert source.count(domain, (), (), Cap("sex", 1)) == 2


def test_a_folder_name_that_is_no_text_is_only_undeclared(tmp_path):
    write(tmp_path / "sex=F" / "a.parquet", age=[1])
    write(tmp_path / "sex=%FF" / "a.parquet", age=[1])
    domain = Domain.of(sex=Attribute.categories(["F"]).with_unknown("other"))
    assert as_source(tmp_path).count(domain, ("sex",), (), None).tolist() == [1, 1]


def test_a_glob_takes_what_it_matches(tmp_path):
    for year in (2023, 2024):
        write(tmp_path / f"year={year}" / "a.parquet", age=[1])
        write(tmp_path / f"year={year}" / "_draft.parquet", age=[2])
        write(tmp_path / f"year={year}" / "deep" / "b.parquet", age=[3])
    counts = {
        pattern: int(as_source(str(tmp_path / pattern)).count(AGE, (), (), None))
        for pattern in ("year=*/*.parquet", "*/a.parquet", "**/*.parquet", "year=2024/*.parquet")
    }
    assert list(counts.values()) == [2, 2, 4, 1]


@pytest.mark.parametrize("pattern", ["*.parquet", "", "*/*.pq"])
def test_nothing_to_read_says_so(tmp_path, pattern):
    with pytest.raises(SourceError, match=r"stands for no Parquet file in .*; correct the path"):
        as_engine(f"{tmp_path}/{pattern}")


def test_a_glob_of_other_files_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("age\n1\n")
    for pattern in ("*", "*.csv"):
        with pytest.raises(DomainError, match=r"Parquet.*folder/\*/\*.parquet"):
            as_engine(str(tmp_path / pattern))


MIXED = {
    "column 'age' is of type int64 in one and of type string in another": {"age": ["1"]},
    "column 'age' is of type int64 in one and missing in another": {"sex": ["secret"]},
    "column 'sex' is missing in one and of type string in another": {"age": [1], "sex": ["secret"]},
}


@pytest.mark.parametrize("words", MIXED)
def test_files_of_different_columns_are_refused_without_an_entry(tmp_path, words):
    write(tmp_path / "who=secret" / "a.parquet", age=[1])
    write(tmp_path / "who=secret2" / "a.parquet", **MIXED[words])
    with pytest.raises(SourceError, match=words) as caught:
        as_engine(tmp_path)
    assert "secret" not in str(caught.value)


def test_columns_in_another_order_and_other_keys_are_refused(tmp_path):
    write(tmp_path / "a" / "a.parquet", age=[1], sex=["F"])
    write(tmp_path / "a" / "b.parquet", sex=["F"], age=[1])
    with pytest.raises(SourceError, match="different orders"):
        as_engine(tmp_path / "a")
    write(tmp_path / "b" / "who=secret" / "a.parquet", age=[1])
    write(tmp_path / "b" / "a.parquet", age=[1])
    with pytest.raises(SourceError, match="folders of different keys") as caught:
        as_engine(tmp_path / "b")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_torn_is_refused_without_an_entry(tmp_path):
    write(tmp_path / "who=secret" / "a.parquet", age=[1])
    (tmp_path / "who=secret" / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match="has no columns that can be read") as caught:
        as_engine(tmp_path)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_column_in_the_files_and_in_the_folders_is_there_twice(tmp_path):
    write(tmp_path / "age=1" / "a.parquet", age=[1], sex=["F"])
    source = as_source(tmp_path)
    with pytest.raises(DomainError, match="'age' is there 2 times"):
        source.count(AGE, (), (), None)
    assert source.count(Domain.of(sex=["F"]), ("sex",), (), None).tolist() == [1]


def test_new_files_are_counted_and_files_of_other_columns_refused(tmp_path):
    write(tmp_path / "a.parquet", age=[1])
    source = as_source(tmp_path)
    for rows in (1, 1, 1):
        assert source.count(AGE, (), (), None) == rows
    write(tmp_path / "b.parquet", age=[1, 2])
    assert source.count(AGE, (), (), None) == 3
    write(tmp_path / "c.parquet", sex=["F"])
    with pytest.raises(SourceError, match="could not be counted"):
        source.count(AGE, (), (), None)


def test_files_written_while_they_are_read_are_not_counted(tmp_path):
    write(tmp_path / "a.parquet", age=[1])
    source = as_source(tmp_path)
    with pytest.raises(StateError, match="written to while it was read"), source.snapshot():
        write(tmp_path / "b.parquet", age=[1])
    assert source.count(AGE, (), (), None) == 2


def test_a_dataset_says_what_its_partitions_are(tmp_path):
    write(tmp_path / "year=2024" / "a.parquet", age=[1])
    dataset = ds.dataset(tmp_path, partitioning="hive")
    domain = Domain.of(year=Attribute.integers(2023, 2024))
    assert as_source(dataset).count(domain, ("year",), (), None).tolist() == [0, 1]
    assert check(dataset, AGE).ok
