"""What attacks on the boundary share: values changed inside, and refusals that cost nothing."""

from psephos.audit.stage import GotThrough, require
from psephos.errors import PsephosError


def tamper(value, **fields):
    """The value itself, its fields exchanged although it is frozen."""
    for name, field in fields.items():
        object.__setattr__(value, name, field)
    return value


def require_refusal(what, attempt, *args, **options):
    """The attempt must end in a refusal."""
    try:
        attempt(*args, **options)
    except (PsephosError, TypeError):
        return
    raise GotThrough(f"{what} was not refused")


def require_nothing_spent(ledger):
    """Refused requests must not be charged."""
    require(ledger.spent().amount == 0, "a refused request changed what was spent")
