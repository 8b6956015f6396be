"""Objects that are not what the kernel's checks see.

Python lets anyone subclass a number, replace the fields of a frozen value or make two types equal.
Each attack hands the kernel such an object, in the hope that it is checked as one thing and used
as another; its docstring tells which holes it once got through.
"""

from fractions import Fraction

import numpy as np
import scipy.sparse as sp

import psephos.matrix as mx
from psephos.audit.stage import (
    ONE,
    SILENCE,
    TABLE_CELLS,
    TRUE_COUNTS,
    GotThrough,
    open_table,
    require,
)
from psephos.domain.predicate import And, IsNull, Predicate
from psephos.kernel.budget import Budget, epsilon, exact
from psephos.kernel.ledger import Ledger
from psephos.kernel.query import Block, Query
from psephos.kernel.scores import (
    PARTITIONS,
    SCORES,
    NoisyIntervals,
    WholePartitions,
    WorstApproximated,
)
from psephos.kernel.unit import Unit, add_remove_row, person
from tests.attacks.forgeries import require_nothing_spent, require_refusal, tamper

CHEAP = epsilon("1/1000")


def forge_sparse(**arrays):
    """An identity whose arrays were exchanged after it was checked."""
    matrix = mx.Sparse(sp.eye_array(TABLE_CELLS, dtype=np.int64, format="csr"))
    for name, array in arrays.items():
        setattr(matrix.entries, name, np.asarray(array))
    return matrix


def test_a_sparse_matrix_with_indices_outside_of_it(place):
    """A sparse matrix whose indices lie outside of its shape.

    The story: scipy's routines trust the index arrays of a compressed matrix. A column of -1 wraps
    around where column sums are added up, so a row of a million at column -1 was booked to the
    last cell, and read from the heap before the vector when it was multiplied; rows that end before
    they begin count nothing in one routine and everything in another. Thousands of exact counts
    came back for a few hundredths of epsilon, and a file with such arrays ended the process that
    read it.
    """
    table, ledger = open_table(place)
    vector, cells = table.vectorise(), np.arange(TABLE_CELLS)
    forgeries = {
        "a column of -1": forge_sparse(indices=cells - 1),
        "a column beyond the last": forge_sparse(indices=cells + 1),
        "rows that end before they begin": forge_sparse(indptr=np.append(cells[::-1], TABLE_CELLS)),
        "rows beyond the arrays": forge_sparse(indptr=2 * np.arange(TABLE_CELLS + 1)),
        "an entry more than columns": forge_sparse(data=np.ones(TABLE_CELLS + 1, dtype=np.int64)),
        "one column twice in a row": forge_sparse(
            indptr=np.array([0] * TABLE_CELLS + [TABLE_CELLS]), indices=0 * cells
        ),
    }
    for what, matrix in forgeries.items():
        require_refusal(what, vector.measure, matrix, spend=CHEAP)
        require_refusal(what, vector.transform, mx.Stack((mx.Identity(TABLE_CELLS), matrix)))
    require_nothing_spent(ledger)


class TwoFacedText(str):
    """A text that equals every other text at every second comparison."""

    turns = 0

    def __eq__(self, other):
        self.turns += 1
        return self.turns % 2 == 0 or str.__eq__(self, other)

    def __hash__(self):
        return str.__hash__(self)


class SwellingNumber(int):
    """A number that reads as one, and multiplies by a billion."""

    @property
    def numerator(self):
        return 1

    def __mul__(self, other):
        return 10**9 * other

    __rmul__ = __mul__

    def as_integer_ratio(self):
        return 1, 1


def swelling_fraction():
    """The fraction one, with such a number as numerator."""
    fraction = Fraction(1)
    fraction._numerator = SwellingNumber(1)
    return fraction


def test_numbers_and_texts_that_change_their_mind(place):
    """Numbers and texts that say one thing when they are checked and another when they are used.

    The story: a subclass of str as currency that equals "epsilon" when it is checked and "rho" when
    the noise is chosen; a subclass of int as weight, whose numerator is small and whose product is
    large; a Fraction whose inside was exchanged. Each gave exact counts for a thousandth.
    """
    table, ledger = open_table(place)
    vector, cells = table.vectorise(), mx.Identity(TABLE_CELLS)
    spends = {
        "a currency with two faces": tamper(epsilon("1/1000"), currency=TwoFacedText("epsilon")),
        "an amount with another inside": tamper(epsilon("1/1000"), amount=swelling_fraction()),
        "an amount of its own kind": tamper(epsilon("1/1000"), amount=SwellingNumber(1)),
    }
    for what, spend in spends.items():
        require_refusal(what, vector.measure, cells, spend=spend)
        require_refusal(
            what, vector.choose, WorstApproximated(cells, [0] * TABLE_CELLS), spend=spend
        )
        require_refusal(what, vector.partition, WholePartitions(), spend=spend)
    weights = {
        "a weight of its own kind": SwellingNumber(1),
        "a weight with another inside": swelling_fraction(),
    }
    for what, weight in weights.items():
        query = tamper(Query.of(cells), blocks=(tamper(Block(cells, Fraction(1)), weight=weight),))
        require_refusal(what, vector.measure, query, spend=CHEAP)
        require_refusal(what, exact, weight, "a weight")
    require_refusal(
        "a text of its own kind as key", vector.measure, cells, spend=CHEAP, key=TwoFacedText("k")
    )
    for what, matrix in {
        "a factor of its own kind": tamper(mx.Scaled(1, cells), factor=SwellingNumber(1)),
        "a size of its own kind": tamper(mx.Ones(1, TABLE_CELLS), m=SwellingNumber(1)),
        "a truth value for a sign": tamper(mx.Haar(TABLE_CELLS), sign=True),
    }.items():
        require_refusal(what, vector.measure, matrix, spend=CHEAP)
    for kind in (WholePartitions, NoisyIntervals):
        forged = tamper(kind(3), penalty=SwellingNumber(3))
        require_refusal("a penalty of its own kind", vector.partition, forged, spend=CHEAP)
        forged = tamper(kind(3), lengths=TwoFacedText("all"))
        require_refusal("a text of its own kind", vector.partition, forged, spend=CHEAP)
    require_refusal("a name of its own kind", table.keep, TwoFacedText("x"))
    require_refusal("a name of its own kind", table.split, TwoFacedText("x"))
    require_refusal("a size of its own kind", table.group_by, "x", most=SwellingNumber(3))
    require_nothing_spent(ledger)


def test_units_and_budgets_that_change_their_mind(place):
    """The same numbers and texts, as parts of a unit of privacy or of a ledger's budget."""
    units = {
        "a cap of its own kind": tamper(person("p", max_rows=2), max_rows=SwellingNumber(2)),
        "a change with two faces": tamper(add_remove_row(), change=TwoFacedText("add_remove")),
        "a unit of its own kind": type("Sly", (Unit,), {})("add_remove"),
    }
    for i, (what, unit) in enumerate(units.items()):
        path = place.folder / f"unit {i}"
        require_refusal(what, Ledger.create, path, dataset="made up", unit=unit, budget=ONE)
    budget = tamper(Budget("epsilon", Fraction(1)), currency=TwoFacedText("epsilon"))
    options = {"dataset": "made up", "unit": add_remove_row(), "budget": budget}
    require_refusal("a budget with two faces", Ledger.create, place.folder / "budget", **options)


def equal_class(original, **methods):
    """A subclass that equals the class itself, as far as == and hash can tell."""

    class Equal(type(original)):
        def __eq__(cls, other):
            return True

        def __hash__(cls):
            return hash(original)

    return Equal(original.__name__, (original,), methods)


def test_a_type_that_equals_one_of_the_kernels(place):
    """Types that equal a type of the kernel's.

    The story: rules were looked up by `type(a) in RULES`, and a dictionary compares by ==. A
    metaclass that has the hash of Dense and says yes to every question let in a subclass, whose
    `matvec` was handed the true vector. Scores were looked up in a tuple, which compares by == too.
    """
    vectors = []

    def spy_on(self, x):
        vectors.append(np.array(x))
        return np.zeros(self.shape[0], dtype=np.int64)

    table, ledger = open_table(place)
    vector, eye = table.vectorise(), np.eye(TABLE_CELLS, dtype=np.int64)
    spy = equal_class(mx.Dense, matvec=spy_on, _apply=spy_on)(eye)
    for matrix in (spy, mx.Stack((mx.Identity(TABLE_CELLS), spy)), mx.Scaled(2, spy)):
        require_refusal("a type that equals Dense", vector.measure, matrix, spend=CHEAP)
        require_refusal("a type that equals Dense", vector.transform, matrix)
        require_refusal(
            "a type that equals Dense",
            vector.choose,
            WorstApproximated(matrix, [0] * TABLE_CELLS),
            spend=CHEAP,
        )
    query = equal_class(Query)(Query.of(mx.Identity(TABLE_CELLS)).blocks)
    require_refusal("a type that equals Query", vector.measure, query, spend=CHEAP)
    partition = equal_class(mx.Partition)(np.zeros(TABLE_CELLS, dtype=np.int64))
    require_refusal("a type that equals Partition", vector.split, partition)
    methods = {
        "admitted": lambda self, cells: self,
        "tables": lambda self, cells: (mx.Identity(cells),),
        "parts": ("mine",),
        "draw": lambda self, answers, *_: vectors.append(answers[0]),
    }
    for request, kinds in ((vector.choose, SCORES), (vector.partition, PARTITIONS)):
        for kind in kinds:
            search = object.__new__(equal_class(kind, **methods))
            require_refusal(f"a type that equals {kind.__name__}", request, search, spend=CHEAP)
    if vectors:
        raise GotThrough("a matrix of the caller's was handed the true counts")
    require_nothing_spent(ledger)


def test_conditions_of_the_callers_own_making(place):
    """Conditions of a type that equals one of the kernel's, or that is not known to it."""
    table, ledger = open_table(place)
    impostor = equal_class(IsNull)("x")
    for condition in (impostor, And((impostor,)), type("Mine", (Predicate,), dict(vars(IsNull)))):
        require_refusal("a condition of the caller's own", table.where, condition)
    require_nothing_spent(ledger)


def test_matrices_changed_inside(place):
    """Matrices that are changed after their constructor has checked them.

    The story: frozen values can be changed all the same, by `object.__setattr__`. Groups that count
    beyond their number, orders that name a cell twice, a stack of itself: whatever is inside, the
    kernel measures the copy that its own constructors have checked, or refuses.
    """
    table, ledger = open_table(place)
    vector, cells = table.vectorise(), np.arange(TABLE_CELLS)
    eye = mx.Identity(TABLE_CELLS)
    loop = mx.Stack((eye, mx.Prefix(TABLE_CELLS)))
    tamper(loop, parts=(eye, loop))
    tree = eye
    for _ in range(64):  # 2^64 parts, were they all taken in
        tree = tamper(mx.Stack((eye, mx.Prefix(TABLE_CELLS))), parts=(tree, tree))
    chain = eye
    for _ in range(500):
        chain = mx.Permuted(chain, cells)
    forgeries = {
        "groups below 0": tamper(mx.Partition(cells), groups=cells - 1),
        "groups with gaps": tamper(mx.Partition(cells), groups=2 * cells),
        "an order that names a cell twice": tamper(mx.Permuted(eye, cells), order=0 * cells),
        "a range beyond the grid": tamper(
            mx.Ranges.intervals(TABLE_CELLS, [0], [3]), high=np.array([[TABLE_CELLS + 5]])
        ),
        "a marginal of an axis that is not there": tamper(
            mx.Marginals.of((TABLE_CELLS,), {(0,): 1}), sets=((7,),)
        ),
        "fractions": tamper(
            mx.Dense(np.eye(TABLE_CELLS, dtype=int)), array=np.eye(TABLE_CELLS) / 2
        ),
        "objects": tamper(
            mx.Dense(np.eye(TABLE_CELLS, dtype=int)), array=np.full((1, TABLE_CELLS), None)
        ),
        "more than memory": tamper(
            mx.Dense(np.eye(TABLE_CELLS, dtype=int)), array=np.broadcast_to(1, (10**9, TABLE_CELLS))
        ),
        "a stack of itself": loop,
        "a stack of stacks of stacks": tree,
        "orders of orders of orders": chain,
        "nothing inside": object.__new__(mx.Dense),
    }
    for what, matrix in forgeries.items():
        require_refusal(what, vector.measure, matrix, spend=CHEAP)
        require_refusal(what, vector.transform, matrix)
    require_nothing_spent(ledger)


def test_matrices_with_caches_of_the_callers(place):
    """Matrices whose cached results were exchanged: the kernel must compute its own."""
    ranges = mx.Ranges.intervals(TABLE_CELLS, np.arange(TABLE_CELLS), np.arange(TABLE_CELLS))
    ranges.__dict__["_corners"] = 10**6 * ranges._corners.astype(np.int64)
    partition = mx.Partition(np.arange(TABLE_CELLS))
    partition.__dict__["_twin"] = mx.Dense(10**6 * np.eye(TABLE_CELLS, dtype=int))
    vector = open_table(place)[0].vectorise()
    for matrix in (ranges, partition):
        try:
            values = vector.measure(matrix, spend=SILENCE).values
        except ValueError:  # refused, which is well
            continue
        require(
            np.array_equal(values, TRUE_COUNTS),
            f"a cache of {matrix} was believed: {values[:5]}, {TRUE_COUNTS[:5]}",
        )
