"""The public schema: attributes and their values, domains, conditions on rows."""

from psephos.domain.attribute import Attribute
from psephos.domain.cleaning import Cleaning
from psephos.domain.domain import Domain
from psephos.domain.predicate import Predicate, col
from psephos.domain.values import Level

__all__ = ["Attribute", "Cleaning", "Domain", "Level", "Predicate", "col"]
