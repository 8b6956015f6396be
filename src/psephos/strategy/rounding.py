"""Strategies in whole numbers, as exact noise needs them, at hardly any loss."""

from __future__ import annotations

import numpy as np

from psephos.frozen import Array


def round_pidentity(theta: Array, bits: int) -> tuple[Array, Array]:
    """The p-Identity strategy of Θ in whole numbers: columns of [diag(d); B] that sum to 2^bits.

    Each column is scaled and rounded by largest remainder, so that all sums stay equal; plain
    rounding would lose more to the one column that comes out largest than to all the rest.

    >>> round_pidentity(np.array([[1.0, 0.5]]), 4)
    (array([ 8, 11]), array([[8, 5]]))
    """
    p, n = theta.shape
    whole = 1 << bits
    exact = np.vstack([np.ones(n), theta])
    exact *= whole / exact.sum(axis=0)
    made = np.floor(exact).astype(np.int64)
    left = whole - made.sum(axis=0)
    order = np.argsort(-(exact - made), axis=0, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(p + 1)[:, None], axis=0)
    made += rank < left
    # The identity's entry must stay, or the cell could not be told from its neighbours.
    for j in np.flatnonzero(made[0] == 0):
        made[1 + made[1:, j].argmax(), j] -= 1
        made[0, j] = 1
    return made[0], made[1:]


def round_columns(a: Array, bits: int) -> Array:
    """A strategy of unit columns in whole numbers, no column longer than 2^bits.

    Entries are rounded to the nearest whole number and then repaired column by column: a common
    factor instead would shrink all columns by what the worst of them needs.

    >>> round_columns(np.array([[1.0, 0.6], [0.0, 0.8]]), 3)
    array([[8, 5],
           [0, 6]])
    """
    exact = np.asarray(a, dtype=float)
    exact = exact * ((1 << bits) / np.sqrt((exact**2).sum(axis=0)))
    made = np.rint(exact).astype(np.int64)
    for j in range(made.shape[1]):
        _repair(made[:, j], exact[:, j], 1 << (2 * bits))
    return np.asarray(made)


def _repair(column: Array, exact: Array, limit: int) -> None:
    """Takes back the largest steps outward while the column is too long; then the other way."""
    room = limit - int((column**2).sum())
    while room < 0:
        outward = np.where(column != 0, np.abs(column) - np.abs(exact), -np.inf)
        worst = int(outward.argmax())
        room += 2 * abs(int(column[worst])) - 1
        column[worst] -= np.sign(column[worst])
    inward = np.abs(exact) - np.abs(column)
    for i in np.argsort(-inward, kind="stable"):
        longer = 2 * abs(int(column[i])) + 1
        if inward[i] <= 0:
            break
        if longer <= room:
            room -= longer
            column[i] += 1 if exact[i] > 0 else -1
