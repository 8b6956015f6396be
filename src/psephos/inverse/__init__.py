"""X⁺ for X = Σ c_j A_jᵀA_j by the structure of the blocks A_j: one form a file.

Strategies ask it for tr(X⁺WᵀW) before any noise is drawn, estimates for X⁺ Σ c_j A_jᵀy_j after it;
`choice` decides, once for both, which form blocks get and what that costs.
"""

from psephos.inverse.choice import Cost, form_of, method_of, predict_cost
from psephos.inverse.form import Fitted, Form, ListedProducts
from psephos.inverse.part_levels import LevelFactors, LevelNoise, PartClasses

__all__ = [
    "Cost",
    "Fitted",
    "Form",
    "LevelFactors",
    "LevelNoise",
    "ListedProducts",
    "PartClasses",
    "form_of",
    "method_of",
    "predict_cost",
]
