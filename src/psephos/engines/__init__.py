"""Where counts come from: engines hand over rows, one reader counts their cells."""

from psephos.engines.bit_matrix import BitMatrix
from psephos.engines.cleaned import CleanedSource, cleaned
from psephos.engines.databases import ConnectedTable, DuckdbTable
from psephos.engines.files import CsvFile
from psephos.engines.postgres import PostgresTable
from psephos.engines.protocol import Batches, Columns, Engine
from psephos.engines.registry import as_engine, as_source, in_one_state, register
from psephos.engines.spark import SparkTable

__all__ = [
    "Batches",
    "BitMatrix",
    "CleanedSource",
    "Columns",
    "ConnectedTable",
    "CsvFile",
    "DuckdbTable",
    "Engine",
    "PostgresTable",
    "SparkTable",
    "as_engine",
    "as_source",
    "cleaned",
    "in_one_state",
    "register",
]
