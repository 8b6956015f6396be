"""What attacks on the boundary share: values changed inside, and a check that nothing was spent."""

from psephos.audit.stage import require


def tamper(value, **fields):
    """The value itself, its fields exchanged although it is frozen."""
    for name, field in fields.items():
        object.__setattr__(value, name, field)
    return value


def require_nothing_spent(ledger):
    """Refused requests must not be charged."""
    require(ledger.spent().amount == 0, "a refused request changed what was spent")
