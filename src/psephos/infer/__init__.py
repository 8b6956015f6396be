"""From noisy measurements to estimates: least squares by structure, and its exact variances."""

from psephos.infer.estimate import Answers, Estimate
from psephos.infer.least_squares import BlockAnswers, LeastSquares, least_squares

__all__ = ["Answers", "BlockAnswers", "Estimate", "LeastSquares", "least_squares"]
