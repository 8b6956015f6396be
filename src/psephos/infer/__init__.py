"""From noisy measurements to estimates: unbiased by least squares, or closer and not negative."""

from psephos.infer.consistency import ConsistentTables, consistent
from psephos.infer.entropy import MaximumEntropy, maximum_entropy
from psephos.infer.estimate import Answers, CellEstimate, Estimate
from psephos.infer.expanded import expanded
from psephos.infer.graphical_model import GraphicalModel, graphical_model
from psephos.infer.group_cells import Disagreement, GroupCells
from psephos.infer.junction_tree import JunctionTree
from psephos.infer.least_squares import BlockAnswers, LeastSquares, NoisyBlock, least_squares
from psephos.infer.local_tables import Inconsistency, LocalTables, local_tables
from psephos.infer.multiplicative_weights import multiplicative_weights
from psephos.infer.nonnegative import NonNegative, nonnegative
from psephos.infer.plain_recovery import PlainRecovery, plain_recovery
from psephos.infer.table_groups import CommonTable, Grouping, SharedTable, TableGroup
from psephos.infer.thresholded import thresholded

__all__ = [
    "Answers",
    "BlockAnswers",
    "CellEstimate",
    "CommonTable",
    "ConsistentTables",
    "Disagreement",
    "Estimate",
    "GraphicalModel",
    "GroupCells",
    "Grouping",
    "Inconsistency",
    "JunctionTree",
    "LeastSquares",
    "LocalTables",
    "MaximumEntropy",
    "NoisyBlock",
    "NonNegative",
    "PlainRecovery",
    "SharedTable",
    "TableGroup",
    "consistent",
    "expanded",
    "graphical_model",
    "least_squares",
    "local_tables",
    "maximum_entropy",
    "multiplicative_weights",
    "nonnegative",
    "plain_recovery",
    "thresholded",
]
