"""Attacks on the kernel's boundary, one idea a file, each with its story at its head."""

from psephos.publish.attacks.boundary import (
    forged_ledgers,
    forged_matrices,
    forged_scalars,
    forged_types,
    logs_of_locals,
    paid_in_advance,
    sparse_indices,
)

ATTACKS = (
    *sparse_indices.ATTACKS,
    *paid_in_advance.ATTACKS,
    *forged_scalars.ATTACKS,
    *forged_types.ATTACKS,
    *forged_matrices.ATTACKS,
    *forged_ledgers.ATTACKS,
    *logs_of_locals.ATTACKS,
)
