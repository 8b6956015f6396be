"""From noisy measurements to estimates: unbiased by least squares, or closer and not negative."""

from psephos.infer.entropy import MaximumEntropy, maximum_entropy
from psephos.infer.estimate import Answers, Estimate
from psephos.infer.least_squares import BlockAnswers, LeastSquares, least_squares
from psephos.infer.nonnegative import NonNegative, nonnegative

__all__ = [
    "Answers",
    "BlockAnswers",
    "Estimate",
    "LeastSquares",
    "MaximumEntropy",
    "NonNegative",
    "least_squares",
    "maximum_entropy",
    "nonnegative",
]
