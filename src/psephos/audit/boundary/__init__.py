"""Attacks on the kernel's boundary; each attack tells the story of the hole that it looks for."""

from psephos.audit.boundary.forged_ledgers import LEDGER_ATTACKS
from psephos.audit.boundary.forged_objects import OBJECT_ATTACKS
from psephos.audit.boundary.logs_of_locals import LOG_ATTACKS

BOUNDARY_ATTACKS = (*OBJECT_ATTACKS, *LEDGER_ATTACKS, *LOG_ATTACKS)
