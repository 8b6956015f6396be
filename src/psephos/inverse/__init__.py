"""X⁺ for X = Σ c_j A_jᵀA_j by the structure of the blocks A_j: one form a file."""
