"""psephos: a whole workload of counting queries, answered under differential privacy.

The names below follow the way of the data: what exists (domain), which rows (predicate), what is
asked (workload), how it is computed (matrix), what may be spent (budget, unit, ledger), the handles
that spend it (protect, simulate), and what can go wrong (errors).

What a name needs is imported when the name is first used: `import psephos` alone loads no other
library.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from psephos.version import __version__ as __version__

if TYPE_CHECKING:
    from psephos import infer, inverse, matrix, plans
    from psephos.audit.audit import AuditReport, audit
    from psephos.audit.stage import AttackResult
    from psephos.domain.attribute import Attribute
    from psephos.domain.cleaning import Cleaning
    from psephos.domain.conjunctions import Conjunctions
    from psephos.domain.domain import Domain
    from psephos.domain.part_tree import PartTree
    from psephos.domain.predicate import Column, Predicate, col
    from psephos.domain.values import Level
    from psephos.engines.cleaned import CleanedSource, cleaned
    from psephos.errors import (
        BudgetError,
        BudgetExceededError,
        DomainError,
        LedgerError,
        PredicateError,
        PsephosError,
        RefusedError,
        ReleaseError,
        ShapeError,
        SourceError,
        SqlError,
        TooLargeError,
        UnsupportedError,
        WorkloadError,
    )
    from psephos.infer.entropy import MaximumEntropy
    from psephos.infer.estimate import Answers, CellEstimate, Estimate
    from psephos.infer.graphical_model import GraphicalModel
    from psephos.infer.intervals import Widths
    from psephos.infer.least_squares import LeastSquares
    from psephos.infer.local_tables import Inconsistency, LocalTables
    from psephos.infer.nonnegative import NonNegative
    from psephos.infer.records import RecordEstimate
    from psephos.infer.statistics import StatisticAnswers, Statistics, StatisticValues
    from psephos.kernel.budget import Budget, epsilon, epsilon_delta, rho
    from psephos.kernel.ledger import Ledger
    from psephos.kernel.ledger_history import Anchor, Entry
    from psephos.kernel.measurement import Measurement
    from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace
    from psephos.kernel.parts.handle import ProtectedParts
    from psephos.kernel.parts.measurement import PartMeasurement
    from psephos.kernel.parts.runners import Processes
    from psephos.kernel.parts.seal import PartReceipt
    from psephos.kernel.protected import ProtectedTable, ProtectedVector
    from psephos.kernel.query import Block, Query
    from psephos.kernel.scores.dual_query import UndercountedQueries
    from psephos.kernel.scores.far_from_independent import FarFromIndependent
    from psephos.kernel.scores.noisy_intervals import NoisyIntervals
    from psephos.kernel.scores.priv_tree import PrivTree
    from psephos.kernel.scores.whole_partitions import WholePartitions
    from psephos.kernel.scores.worst_approximated import WorstApproximated
    from psephos.kernel.source import Conjunct
    from psephos.kernel.unit import Cap, Unit, add_remove_row, person, substitute_row
    from psephos.owner.report import CheckReport, Mismatch
    from psephos.protect import protect
    from psephos.release import spec
    from psephos.release.ask.ask import Reply, ask
    from psephos.release.ask.price import Price, price
    from psephos.release.bundle.bundle import Bundle
    from psephos.release.bundle.requests import ReleaseRequest, StrategyQuestion
    from psephos.release.change import EditionChange, change
    from psephos.release.methods.kind import ForecastRow, ReleaseMethod
    from psephos.release.methods.plan_forecast import PlanForecast, SimulatedTable
    from psephos.release.methods.plan_steps import PlanQuestion, Retraced
    from psephos.release.parts.bundle import PartsBundle
    from psephos.release.parts.plan import PartsForecast
    from psephos.release.preflight.checks import check_release
    from psephos.release.preflight.forecast import Forecast, RivalError, TableError
    from psephos.release.preflight.outlook import Outlook, PersonsError, outlook
    from psephos.release.preflight.room import StepCost
    from psephos.release.run import plan, rehearse, release
    from psephos.release.spec.asked_cells import AskedCells
    from psephos.release.spec.job import Job
    from psephos.release.spec.persons import PersonsTable
    from psephos.release.synthesize import MadeUpRows, rows_of_bundle
    from psephos.release.verify.verification import Check, Verification
    from psephos.release.verify.verify import verify
    from psephos.release.views.estimates import ReleaseEstimate
    from psephos.release.views.gaps import Distance, Shift, TotalGap
    from psephos.release.views.published import PublishedRule
    from psephos.release.views.published_groups import GroupedFit, PublishedGroups
    from psephos.release.views.published_numbers import PublishedNumbers, RoundedCells
    from psephos.release.views.views import Views
    from psephos.report.chart import Chart
    from psephos.strategy import select
    from psephos.strategy.level_plan import LevelPlan, PartTables, choose_levels
    from psephos.strategy.strategy import Strategy
    from psephos.synthesis.method import SyntheticChoice
    from psephos.synthesis.quality import SyntheticQuality, TableDistance
    from psephos.synthesis.synthesize import Synthesis, synthesize
    from psephos.synthesis.table import SyntheticTable, TableGaps
    from psephos.variances import NoiseKind
    from psephos.without_ledger import check, simulate
    from psephos.workload import census
    from psephos.workload.builders import (
        marginals,
        prefix_product,
        range_marginals,
        range_product,
        relative,
    )
    from psephos.workload.cell_numbers import CellNumbers
    from psephos.workload.product import Product, product
    from psephos.workload.queries import (
        QuerySet,
        all_range,
        groups,
        identity,
        identity_total,
        level,
        masks,
        permuted,
        predicates,
        prefix,
        ranges,
        stacked,
        sums,
        total,
        width_range,
    )
    from psephos.workload.statistics import (
        Statistic,
        StatisticQuestion,
        mean,
        median,
        quantiles,
        share,
        stddev,
        variance,
    )
    from psephos.workload.workload import Reduction, Workload

__all__ = [  # noqa: RUF022 - in the order of the data's way
    # what exists
    "Attribute",
    "Level",
    "Domain",
    # which rows
    "col",
    "Column",
    "Predicate",
    "Conjunct",
    "Conjunctions",
    # what is asked of one attribute
    "QuerySet",
    "identity",
    "total",
    "identity_total",
    "prefix",
    "all_range",
    "width_range",
    "ranges",
    "masks",
    "groups",
    "level",
    "predicates",
    "permuted",
    "stacked",
    "sums",
    # what is asked
    "product",
    "Product",
    "Workload",
    "marginals",
    "range_marginals",
    "prefix_product",
    "range_product",
    "census",
    "Reduction",
    "relative",
    # what follows from sums and counts
    "mean",
    "variance",
    "stddev",
    "median",
    "quantiles",
    "share",
    "StatisticQuestion",
    "Statistic",
    "CellNumbers",
    "Statistics",
    "StatisticAnswers",
    "StatisticValues",
    # what is measured for it
    "select",
    "Strategy",
    # how it is computed
    "matrix",
    "inverse",
    # what may be spent
    "epsilon",
    "rho",
    "epsilon_delta",
    "Budget",
    "NoiseKind",
    "add_remove_row",
    "substitute_row",
    "person",
    "Unit",
    "Cap",
    "Ledger",
    "Entry",
    "Anchor",
    # what is measured
    "check",
    "CheckReport",
    "Mismatch",
    "Cleaning",
    "cleaned",
    "CleanedSource",
    "protect",
    "simulate",
    "ProtectedTable",
    "ProtectedVector",
    "ProtectedParts",
    "PartTree",
    "PartMeasurement",
    "PartReceipt",
    "Processes",
    "WorstApproximated",
    "FarFromIndependent",
    "WholePartitions",
    "NoisyIntervals",
    "PrivTree",
    "UndercountedQueries",
    "Query",
    "Block",
    "Measurement",
    "DiscreteLaplace",
    "DiscreteGaussian",
    # what it tells
    "infer",
    "Estimate",
    "LeastSquares",
    "NonNegative",
    "CellEstimate",
    "MaximumEntropy",
    "LocalTables",
    "Inconsistency",
    "GraphicalModel",
    "RecordEstimate",
    "Answers",
    "Chart",
    "plans",
    # what is made up from it
    "synthesize",
    "Synthesis",
    "SyntheticTable",
    "TableGaps",
    "SyntheticQuality",
    "TableDistance",
    "SyntheticChoice",
    "rows_of_bundle",
    "MadeUpRows",
    # what is published
    "check_release",
    "plan",
    "Forecast",
    "TableError",
    "RivalError",
    "StepCost",
    "PlanForecast",
    "SimulatedTable",
    "outlook",
    "Outlook",
    "PersonsError",
    "ReleaseMethod",
    "Widths",
    "Job",
    "spec",
    "rehearse",
    "release",
    "Bundle",
    "PartsBundle",
    "PartsForecast",
    "ForecastRow",
    "choose_levels",
    "LevelPlan",
    "PartTables",
    "AskedCells",
    "ReleaseRequest",
    "StrategyQuestion",
    "PlanQuestion",
    "PersonsTable",
    "Retraced",
    "Views",
    "ReleaseEstimate",
    "Distance",
    "TotalGap",
    "PublishedRule",
    "PublishedGroups",
    "GroupedFit",
    "PublishedNumbers",
    "RoundedCells",
    "Shift",
    "verify",
    "Verification",
    "Check",
    "ask",
    "Reply",
    "price",
    "Price",
    "change",
    "EditionChange",
    "audit",
    "AuditReport",
    "AttackResult",
    # what can go wrong
    "PsephosError",
    "DomainError",
    "PredicateError",
    "ShapeError",
    "UnsupportedError",
    "TooLargeError",
    "WorkloadError",
    "SqlError",
    "BudgetError",
    "BudgetExceededError",
    "LedgerError",
    "SourceError",
    "RefusedError",
    "ReleaseError",
]

_MODULES = {
    "census": "psephos.workload.census",
    "infer": "psephos.infer",
    "inverse": "psephos.inverse",
    "matrix": "psephos.matrix",
    "plans": "psephos.plans",
    "select": "psephos.strategy.select",
    "spec": "psephos.release.spec",
}
_NAMES_OF = {
    "psephos.audit.audit": "AuditReport audit",
    "psephos.audit.stage": "AttackResult",
    "psephos.domain.attribute": "Attribute",
    "psephos.domain.cleaning": "Cleaning",
    "psephos.domain.conjunctions": "Conjunctions",
    "psephos.domain.domain": "Domain",
    "psephos.domain.part_tree": "PartTree",
    "psephos.domain.predicate": "Column Predicate col",
    "psephos.domain.values": "Level",
    "psephos.engines.cleaned": "CleanedSource cleaned",
    "psephos.errors": (
        "BudgetError BudgetExceededError DomainError LedgerError PredicateError PsephosError "
        "RefusedError ReleaseError ShapeError SourceError SqlError TooLargeError "
        "UnsupportedError WorkloadError"
    ),
    "psephos.infer.entropy": "MaximumEntropy",
    "psephos.infer.estimate": "Answers CellEstimate Estimate",
    "psephos.infer.graphical_model": "GraphicalModel",
    "psephos.infer.intervals": "Widths",
    "psephos.infer.least_squares": "LeastSquares",
    "psephos.infer.local_tables": "Inconsistency LocalTables",
    "psephos.infer.nonnegative": "NonNegative",
    "psephos.infer.records": "RecordEstimate",
    "psephos.infer.statistics": "StatisticAnswers StatisticValues Statistics",
    "psephos.kernel.budget": "Budget epsilon epsilon_delta rho",
    "psephos.variances": "NoiseKind",
    "psephos.kernel.ledger": "Ledger",
    "psephos.kernel.measurement": "Measurement",
    "psephos.kernel.noise": "DiscreteGaussian DiscreteLaplace",
    "psephos.kernel.parts.handle": "ProtectedParts",
    "psephos.kernel.parts.measurement": "PartMeasurement",
    "psephos.kernel.parts.runners": "Processes",
    "psephos.kernel.parts.seal": "PartReceipt",
    "psephos.kernel.protected": "ProtectedTable ProtectedVector",
    "psephos.kernel.query": "Block Query",
    "psephos.kernel.scores.dual_query": "UndercountedQueries",
    "psephos.kernel.scores.far_from_independent": "FarFromIndependent",
    "psephos.kernel.scores.noisy_intervals": "NoisyIntervals",
    "psephos.kernel.scores.priv_tree": "PrivTree",
    "psephos.kernel.scores.whole_partitions": "WholePartitions",
    "psephos.kernel.scores.worst_approximated": "WorstApproximated",
    "psephos.kernel.source": "Conjunct",
    "psephos.kernel.ledger_history": "Anchor Entry",
    "psephos.kernel.unit": "Cap Unit add_remove_row person substitute_row",
    "psephos.owner.report": "CheckReport Mismatch",
    "psephos.protect": "protect",
    "psephos.release.ask.ask": "Reply ask",
    "psephos.release.ask.price": "Price price",
    "psephos.release.bundle.bundle": "Bundle",
    "psephos.release.change": "EditionChange change",
    "psephos.release.preflight.forecast": "Forecast RivalError TableError",
    "psephos.release.methods.kind": "ForecastRow ReleaseMethod",
    "psephos.release.methods.plan_forecast": "PlanForecast SimulatedTable",
    "psephos.release.views.estimates": "ReleaseEstimate",
    "psephos.release.views.gaps": "Distance Shift TotalGap",
    "psephos.release.spec.persons": "PersonsTable",
    "psephos.release.methods.plan_steps": "PlanQuestion Retraced",
    "psephos.release.preflight.checks": "check_release",
    "psephos.release.spec.job": "Job",
    "psephos.release.spec.asked_cells": "AskedCells",
    "psephos.release.bundle.requests": "ReleaseRequest StrategyQuestion",
    "psephos.release.run": "plan rehearse release",
    "psephos.release.synthesize": "MadeUpRows rows_of_bundle",
    "psephos.release.parts.bundle": "PartsBundle",
    "psephos.release.parts.plan": "PartsForecast",
    "psephos.release.preflight.outlook": "Outlook PersonsError outlook",
    "psephos.release.preflight.room": "StepCost",
    "psephos.release.verify.verification": "Check Verification",
    "psephos.release.verify.verify": "verify",
    "psephos.release.views.published": "PublishedRule",
    "psephos.release.views.published_groups": "GroupedFit PublishedGroups",
    "psephos.release.views.published_numbers": "PublishedNumbers RoundedCells",
    "psephos.release.views.views": "Views",
    "psephos.strategy.level_plan": "LevelPlan PartTables choose_levels",
    "psephos.strategy.strategy": "Strategy",
    "psephos.report.chart": "Chart",
    "psephos.synthesis.method": "SyntheticChoice",
    "psephos.synthesis.quality": "SyntheticQuality TableDistance",
    "psephos.synthesis.synthesize": "Synthesis synthesize",
    "psephos.synthesis.table": "SyntheticTable TableGaps",
    "psephos.without_ledger": "check simulate",
    "psephos.workload.builders": "marginals prefix_product range_marginals range_product relative",
    "psephos.workload.cell_numbers": "CellNumbers",
    "psephos.workload.product": "Product product",
    "psephos.workload.queries": (
        "QuerySet all_range groups identity identity_total level masks permuted predicates "
        "prefix ranges stacked sums total width_range"
    ),
    "psephos.workload.statistics": (
        "Statistic StatisticQuestion mean median quantiles share stddev variance"
    ),
    "psephos.workload.workload": "Reduction Workload",
}
_HOMES = {name: module for module, names in _NAMES_OF.items() for name in names.split()}


class _Package(ModuleType):
    """The package: public names are looked up when they are first used."""

    if not TYPE_CHECKING:  # for type checkers a name that is not listed stays a mistake

        def __getattr__(self, name):
            if name in _MODULES:
                value = import_module(_MODULES[name])
            elif name in _HOMES:
                value = getattr(import_module(_HOMES[name]), name)
            else:
                raise AttributeError(f"module 'psephos' has no attribute {name!r}")
            self.__dict__[name] = value
            return value

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a room sets it here; psephos.audit, protect and release stay functions.
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *__all__})


sys.modules[__name__].__class__ = _Package
