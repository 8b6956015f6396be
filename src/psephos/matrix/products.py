"""An array times the middle axis of another, integers exactly and at the speed of floats."""

from __future__ import annotations

import numpy as np

from psephos.values import Array, largest

FLOAT = 1 << 53
"""Every integer up to here is a float."""
FLOATS_AT_ONCE = 1 << 16
"""Integers turned into floats at a time, so that they stay in cache."""
FEW = 8
"""Fewer vectors than this are multiplied as integers."""
SHORT_RUN = 256
"""Rows shorter than this are multiplied by one long vector of repeated weights."""


def times(a: Array, x: Array, out: Array | None = None) -> Array:
    """A along the middle axis of x (left, n, right); `out`, if given, has the result's type.

    64-bit integers come out exact modulo 2⁶⁴, whatever a and x hold.
    """
    dtype = np.result_type(a, x)
    a = a.astype(dtype, copy=False)
    x = x.astype(dtype, copy=False)
    if dtype == np.int64 and x.shape[0] * x.shape[2] >= FEW:
        return _by_floats(a, x, out)
    return _by_layout(a, x, out)


def _by_layout(a: Array, x: Array, out: Array | None = None) -> Array:
    """A along the middle axis of x, in as few and as large products as the layout allows."""
    left, n, right = x.shape
    if right == 1:
        flat = None if out is None else out[:, :, 0]
        return np.asarray(np.matmul(x.reshape(left, n), a.T, out=flat))[:, :, None]
    if left == 1:
        return np.asarray(np.matmul(a, x[0], out=None if out is None else out[0]))[None]
    return np.asarray(np.matmul(a, x, out=out))


def _by_floats(a: Array, x: Array, out: Array | None) -> Array:
    """A x modulo 2⁶⁴, as integers give it, by products of floats, which are many times faster.

    Proof. Let R = max_i Σ_c |A[i, c]| and k > 0 with R·2^k ≤ 2⁵³. Numbers of at most mk bits are
    Σ_j 2^(jk) x_j, j < m, with all x_j in [0, 2^k) but the last, x >> (m - 1)k, which is in
    [-2^k, 2^k). Every term of A x_j, and every sum of some terms of one row in any order, is then
    an integer of at most R·2^k ≤ 2⁵³, that is a float: nothing rounds, nothing is infinite, and
    A x_j is exact. Σ_j 2^(jk) A x_j is taken in 64 bits, exact modulo 2⁶⁴. R is found in floats:
    below 2⁵³ all its entries and sums are exact, and from there on rounding cannot lead back below,
    2⁵³ being a float. Without such a k integers are multiplied as they are.
    (tests/matrix/test_products.py)
    """
    left, n, right = x.shape
    floats = a.astype(float)
    reach = float(np.abs(floats).sum(axis=1).max())
    bits = int(FLOAT // max(1.0, reach)).bit_length() - 1
    if bits < 1:
        return _by_layout(a, x, out)
    out = np.empty((left, len(a), right), dtype=np.int64) if out is None else out
    slabs, width = max(1, FLOATS_AT_ONCE // (n * right)), max(1, FLOATS_AT_ONCE // n)
    for i in range(0, left, slabs):
        for j in range(0, right, width):
            part = slice(i, i + slabs), slice(None), slice(j, j + width)
            _by_limbs(floats, x[part], bits, out[part])
    return out


def _by_limbs(a: Array, x: Array, bits: int, out: Array) -> None:
    """A x, where the numbers of x are cut into limbs of that many bits."""
    limbs = max(1, -(-largest(x).bit_length() // bits))
    if limbs == 1:
        out[...] = _by_layout(a, x.astype(float))
        return
    out[...] = 0
    for j in reversed(range(limbs)):
        limb = x >> j * bits
        if j < limbs - 1:
            limb &= (1 << bits) - 1
        out *= 1 << bits
        out += _by_layout(a, limb.astype(float)).astype(np.int64)


def weigh(weights: Array, x: Array, out: Array | None = None) -> Array:
    """diag(weights) along the middle axis of x."""
    left, _, right = x.shape
    each = weights[:, None]
    if left > 1 < right < SHORT_RUN:
        each = np.repeat(each, right, axis=1)  # one long run for each slab, not n short ones
    return np.asarray(np.multiply(x, each, out=out))
