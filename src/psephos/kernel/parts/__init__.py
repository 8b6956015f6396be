"""Measuring a table in parts, one task after another: no vector of all cells is ever held.

    query ──▶ charge ──▶ tasks: count, draw, seal ──▶ receipts ──▶ ledger ──▶ readable answers

The question is P_l ⊗ A_j for each level l of a tree of parts and each block j of a query A: every
part of a level is asked the same. One charge pays for all of it (`law`). Tasks count their own
parts, add exact noise and write files of their own, each sealed with a key that only its receipt
holds (`task`, `seal`). One receipt for each run of parts makes a manifest, and the manifest is what
the ledger stores under the request's key; the first one stored stands (`handle`). What is not in
it is swept, and cannot be read where it survives, since its key was never stored.
"""
