"""From noisy measurements to estimates: unbiased by least squares, or closer and not negative."""

from psephos.infer.entropy import MaximumEntropy, maximum_entropy
from psephos.infer.estimate import Answers, Estimate
from psephos.infer.group_cells import Disagreement, GroupCells
from psephos.infer.least_squares import BlockAnswers, LeastSquares, NoisyBlock, least_squares
from psephos.infer.local_tables import Inconsistency, LocalTables, local_tables
from psephos.infer.nonnegative import NonNegative, nonnegative
from psephos.infer.table_groups import CommonTable, Grouping, SharedTable, TableGroup

__all__ = [
    "Answers",
    "BlockAnswers",
    "CommonTable",
    "Disagreement",
    "Estimate",
    "GroupCells",
    "Grouping",
    "Inconsistency",
    "LeastSquares",
    "LocalTables",
    "MaximumEntropy",
    "NoisyBlock",
    "NonNegative",
    "SharedTable",
    "TableGroup",
    "least_squares",
    "local_tables",
    "maximum_entropy",
    "nonnegative",
]
