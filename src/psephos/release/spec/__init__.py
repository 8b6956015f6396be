"""The release file: its entries, the tables it asks for, drafts of it, its mistakes."""

from psephos.release.spec.budgets import BudgetEntry, LedgerEntry, PersonsEntry, PrivacyEntry
from psephos.release.spec.columns import AttributeEntry, EqualBins
from psephos.release.spec.entries import (
    CsvEntry,
    DuckdbEntry,
    MethodEntry,
    OutputEntry,
    ReleaseFile,
    SelectionEntry,
    SparkEntry,
    SyntheticEntry,
    TableEntry,
    TargetEntry,
)
from psephos.release.spec.tables import Impossible, Layout, Table

__all__ = [
    "AttributeEntry",
    "BudgetEntry",
    "CsvEntry",
    "DuckdbEntry",
    "EqualBins",
    "Impossible",
    "Layout",
    "LedgerEntry",
    "MethodEntry",
    "OutputEntry",
    "PersonsEntry",
    "PrivacyEntry",
    "ReleaseFile",
    "SelectionEntry",
    "SparkEntry",
    "SyntheticEntry",
    "Table",
    "TableEntry",
    "TargetEntry",
]
