"""Attacks on the kernel's boundary, one kind of forgery a file, each with its story at its head."""

from psephos.audit.boundary import forged_ledgers, forged_objects, logs_of_locals

ATTACKS = (*forged_objects.ATTACKS, *forged_ledgers.ATTACKS, *logs_of_locals.ATTACKS)
