"""Where counts come from: a query in, integer counts out; engines decide nothing."""

from psephos.engines.duck import DuckSource
from psephos.engines.duck import source as as_source
from psephos.engines.owner_check import CheckReport, check

__all__ = ["CheckReport", "DuckSource", "as_source", "check"]
