"""Entropy steps for one product of queries, as many as cells: the same steps in six vectors.

With Kronecker products of ranges there are as many measured numbers as cells, and more. A step as
in psephos.infer.bregman then holds a dozen vectors of them, and is the same without most:

    y             least squares says all that y does, since Aᵀ(y - A x_LS) = 0: what lies outside of
                  A's range moves no cell. So A x_LS stands for y, and A(x_z) for a probe dy with
                  least squares x_z = A⁺dy, which is made anew from its signs.
    θ             only log q + Aᵀθ is kept, the logarithms of cells, and δ = θ - c of one step:
                  g = A(x - x_LS) + λδ.
    answers       |W(x - x_LS)|² = (x - x_LS)·G(x - x_LS) with G = WᵀW, a product as well
    derivatives   as logarithms of cells: dh = Aᵀdθ + s
    H v           not kept: dᵀHd = Σ x c² - (x·c)²/T with c = Aᵀd, which is known before A(x c) is,
                  so that residuals take it off slab by slab (psephos.infer.slab_product)
    D             only its differences: T log Z' / Z - t x_LS·Aᵀp + λ(t δ·p + ½ t² p·p)

*Towards what is asked.* The steps need not know A from the measurements: with W in its place they
go from the prior to the cells x ≥ 0 whose answers are nearest to those of least squares,

    min ½ |W(x - x_LS)|²/v + τ KL(x ‖ x_{k-1}),   v the mean variance of W x_LS,

which are never further from the truth in these answers than least squares itself
(psephos.infer.nonnegative). So wherever one product is asked, and not too long, steps go there:
ranges add up what steps towards the measurements leave in every cell, and these steps fit the long
ranges first. On prefixes over 64 × 64 × 100 cells that was 7.2 in place of 15.9 at ε = 10, where
least squares has 8.1, and over the 256 × 256 cells of a map 313 in place of 518 (least squares
426). The derivative along a probe of the measurements is that of the whole path, as before.

Directions and residuals are in single precision, derivatives in half; logarithms of cells,
gradients and all sums in double. What a step may leave of its gradient is less than elsewhere,
since asked ranges add up what many cells leave: 0.003 in place of 0.01 standard deviations took the
error of prefixes from 52.3 to 49.7 over five draws, 0.001 to 49.5 (steps towards measurements).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from psephos.infer.asked_risk import compact, compact_rows, margin_of
from psephos.infer.bregman import (
    FIRST_STRENGTH,
    LONGEST_EXPONENT_STEP,
    MOST_HALVINGS,
    MOST_NEWTON_STEPS,
    NEWTON_SHARE,
    SHRINKAGE,
    STRENGTH_RATIO,
)
from psephos.infer.measured_cells import MeasuredCells, Probe
from psephos.infer.prior_model import PriorModel
from psephos.infer.product_guides import DiagonalGuide, Guide, GuidedProduct
from psephos.infer.slab_product import SLAB_CELLS, SlabProduct, dot, pieces
from psephos.infer.tangents import TANGENT_SHARE
from psephos.inverse.form import Factors
from psephos.inverse.product import ProductForm, pseudo_inverse
from psephos.matrix import Matrix
from psephos.values import Array
from psephos.workload.workload import Workload

LEAST_GUIDE = 1e-6
"""The least share of a residual that a guide in half precision lets through."""
MOST_DIRECTIONS = 500
"""Conjugate directions before a solution is taken as it is."""
FEWEST_WALK_DIRECTIONS, WALK_CELLS = 200, 250_000_000
"""Conjugate directions of all steps, after which no further step is taken: so many, or as many as
go through so many cells."""
MOST_ASKED = 2
"""The most asked numbers for each cell that steps may go towards."""
FAR, LONG_RATIO, SHORT_RATIO = 4.0, 0.2, 0.5
"""Each step's strength towards asked answers, as a share of that of the step before: while what is
left of them is so many times the noise, and then."""
RANGE_GAP = 0.003
"""How far a step may end from its minimum, in standard deviations of the noise."""


@dataclass(frozen=True, eq=False)
class ProductProblem:
    """One measured product, the asked queries, and least squares, in the domain's order."""

    product: SlabProduct
    """A, whose numbers steps come near to: what was measured, or what is asked."""
    transposed: SlabProduct
    squares: SlabProduct | None
    """The squares of A's entries; None where guides do without."""
    variance: float
    """Of each of these numbers, or their mean."""
    inverse: SlabProduct
    """The inverse of what was measured."""
    grams: SlabProduct
    """AᵀA of what was measured."""
    measured_variance: float
    queries: tuple[tuple[float, SlabProduct], ...]
    """The square of a weight, and WᵀW, for each product of queries."""
    noise: float
    """What noise adds to the squares of all asked numbers."""
    numbers: float
    """The sum of the squared weights of all asked numbers."""
    asked_factors: Factors | None
    """The asked queries, or fewer that are as far apart; None where they are several products."""
    asked_rows: int
    cells: Array
    """x_LS."""
    outside: float
    """The square of what of y lies outside of A's range: |y|² - |A x_LS|²."""
    measured_numbers: int
    signs: Array
    """The signs of the probe, as bits."""

    @classmethod
    def of(
        cls, measured: MeasuredCells, probes: list[Probe], workload: Workload
    ) -> ProductProblem | None:
        """None where more was measured than one product, or too little for it to matter."""
        tree, form = measured.tree, measured.form
        if len(tree.blocks) > 1 or tree.cells < SLAB_CELLS or len(probes) > 1:
            return None
        if not isinstance(form, ProductForm) or len(form.inverses) != len(tree.shape):
            return None
        products = measured.determined(workload)
        if not products:
            return None
        factors = form.block.factors
        pairs = zip(form.inverses, factors, strict=True)
        squares = dict(zip(map(id, tree.blocks[0]), tree.squares.blocks[0], strict=True))
        signs = tree.restore_answers(0, probes[0].values) > 0
        noise = sum(weight**2 * form.trace(queries) for queries, weight in products)
        numbers = sum(
            weight**2 * math.prod(f.shape[0] for f in queries) for queries, weight in products
        )
        rows = sum(math.prod(compact_rows(f) for f in queries) for queries, _ in products)
        cells, grams = measured.fitted.vector, _grams(factors)  # type: ignore[attr-defined]
        values = measured.values
        outside = dot(values, values) - dot(grams.gather(cells, np.float64), cells)
        variance = float(measured.variances[0])
        return cls(
            SlabProduct(factors),
            SlabProduct(tuple(factor.T for factor in factors)),
            SlabProduct(tuple(squares[id(factor)] for factor in factors)),
            variance,
            SlabProduct(tuple(pseudo_inverse(*pair) for pair in pairs)),
            grams,
            variance,
            tuple((weight**2, _grams(queries)) for queries, weight in products),
            float(noise),
            numbers,
            tuple(map(compact, products[0][0])) if len(products) == 1 else None,
            rows,
            cells,
            max(outside, 0.0),
            signs.size,
            np.packbits(signs),
        )

    @property
    def is_towards_answers(self) -> bool:
        """Do steps go towards what is asked, not towards what was measured?"""
        return self.squares is None

    def in_answers(self) -> ProductProblem | None:
        """Steps towards the asked answers of least squares; None where these are too many."""
        if self.asked_factors is None or self.asked_rows > MOST_ASKED * self.cells.size:
            return None
        product = SlabProduct(self.asked_factors)
        guided = GuidedProduct(product, SlabProduct(tuple(f.T for f in self.asked_factors)))
        if not guided.written:
            return None
        ((square, _),) = self.queries
        variance = self.noise / (square * self.asked_rows)
        return replace(
            self,
            product=product,
            transposed=guided.transposed,
            squares=None,
            variance=variance,
            outside=0.0,
        )

    def distance(self, cells: Array, others: Array) -> float:
        """cells·WᵀW others, over all asked queries."""
        return math.fsum(
            square * dot(gram.gather(others, others.dtype.type), cells)
            for square, gram in self.queries
        )

    def probe(self) -> Array:
        """x_z, the least squares of the probe."""
        signs = np.unpackbits(self.signs, count=self.measured_numbers).astype(np.float32)
        signs -= 0.5
        signs *= 2 * math.sqrt(self.measured_variance)
        return self.inverse.gather(signs, np.float32)


def _grams(factors: Factors) -> SlabProduct:
    known: dict[int, Matrix] = {}
    for factor in factors:
        known.setdefault(id(factor), factor.gram())
    return SlabProduct(tuple(known[id(factor)] for factor in factors))


class ProductWalk:
    """The way from a prior: where it is, its derivative, and the best place so far."""

    logarithmic = True

    def __init__(self, problem: ProductProblem, model: PriorModel, *, told: bool) -> None:
        tree = model.measured.tree
        self.problem, self.total = problem, model.total
        self.logarithms = tree.restore(model.logarithms)
        if np.shares_memory(self.logarithms, model.logarithms):
            self.logarithms = self.logarithms.copy()
        self.best: Array | None = None
        self.tangent: Array | None = None
        self.total_move, self.directions, self.apart = 0.0, 0, math.inf
        self.guided = GuidedProduct(problem.product, problem.transposed)
        if told:
            (tangent,) = model.tangents
            self.tangent = _half(tree.restore(tangent.prior.cells().astype(np.float32)))
            self.total_move = tangent.total
        self.x, self.log_mass = self._cells(self.logarithms)

    @property
    def exhausted(self) -> bool:
        """Have so many directions been taken that no further step pays?"""
        return self.directions >= max(FEWEST_WALK_DIRECTIONS, WALK_CELLS // self.x.size)

    # ---- steps ---------------------------------------------------------------------------------

    def first_strength(self) -> float:
        """As for other problems (psephos.infer.bregman).

        Asked ranges tell nearly the same, so that a step is as long as the largest eigenvalue of H
        says, not its diagonal. The further away the prior is, the longer it is.
        """
        if self.problem.is_towards_answers:
            largest = self.guided.largest_curvature(self.x, self.total) or 1.0
            gap = self._gap(self._gradient(None, 0.0))
            strength = FIRST_STRENGTH * largest / (self.problem.variance * max(1.0, gap))
            return 2.0 ** math.ceil(math.log2(strength))
        largest = least = 0.0
        for _, diagonal, answers in self._diagonal():
            largest = max(largest, float(diagonal.max()))
            least = max(least, float(np.abs(answers).max()))
        variance = self.problem.variance
        gap = self._gap(self._gradient(None, 0.0))
        gap = math.sqrt(gap**2 + self.problem.outside / (variance * self.problem.product.size))
        largest /= variance * math.sqrt(max(1.0, gap))
        strength = max(FIRST_STRENGTH * largest, 1e-9 * least / variance, 1e-300)
        return 2.0 ** math.ceil(math.log2(strength))

    def ratio(self) -> float:
        """The next step's strength, as a share of this one's."""
        if not self.problem.is_towards_answers:
            return STRENGTH_RATIO
        return LONG_RATIO if self._distance() > FAR * self.problem.noise else SHORT_RATIO

    def advance(self, strength: float) -> float:
        """One step, and its certificate."""
        self.apart = math.inf
        ridge, problem = strength * self.problem.variance, self.problem
        delta = np.zeros(problem.product.size, dtype=np.float32)
        g = self._gradient(delta, ridge)
        gap = self._gap(g)
        for _ in range(MOST_NEWTON_STEPS):
            if gap <= RANGE_GAP:
                break
            np.negative(g, out=g)
            p, promise = self._solve(g, ridge, NEWTON_SHARE)
            g = np.zeros(0)
            if not self._descend(delta, p, ridge, promise):
                break
            del p
            g = self._gradient(delta, ridge)
            gap = self._gap(g)
        del delta, g
        if gap <= RANGE_GAP and self.tangent is not None:
            self._follow(ridge)
        return gap

    def _descend(self, delta: Array, p: Array, ridge: float, promise: float) -> bool:
        """Go along p as far as the dual falls as promised (Armijo 1966); δ and x go with it."""
        problem = self.problem
        move = problem.transposed.gather(p, np.float32)
        most = float(move.max()) - dot(self.x, move) / self.total
        length = 1.0 if most <= LONGEST_EXPONENT_STEP else LONGEST_EXPONENT_STEP / most
        gain, along, across = dot(problem.cells, move), dot(delta, p), dot(p, p)
        dust = 1e-13 * abs(self.total * self.log_mass)
        for _ in range(MOST_HALVINGS):
            log_mass = _log_mass(self.logarithms, move, length)
            change = self.total * (log_mass - self.log_mass) - length * gain
            change += ridge * length * (along + 0.5 * length * across)
            if change <= -1e-4 * length * promise + dust:
                break
            length *= SHRINKAGE
        else:
            return False
        _add(self.logarithms, move, length)
        _add(delta, p, length)
        del move
        del self.x
        self.x, self.log_mass = self._cells(self.logarithms)
        return True

    def _follow(self, ridge: float) -> None:
        """The derivative after a step: (H + λ)(dθ_k - dθ_{k-1}) = A(x_z - dx)."""
        problem, tangent = self.problem, self.tangent
        if tangent is None:
            return
        rest = problem.probe()
        rest -= self._moved()
        r = np.empty(problem.product.size, dtype=np.float32)
        buffer = problem.product.buffer(rest, np.float32)
        del rest
        for some, slab in problem.product.slabs(buffer):
            r[some] = slab
        del buffer
        p, _ = self._solve(r, ridge, TANGENT_SHARE)
        del r
        change = problem.transposed.gather(p, np.float32)
        change += tangent
        self.tangent = _half(change)

    def _moved(self) -> Array:
        """The move dx = x (dh - its x-weighted mean) + x dT/T."""
        tangent = self.tangent
        if tangent is None:
            return np.zeros_like(self.x)
        mean = (dot(self.x, tangent) - self.total_move) / self.total
        moved = tangent.astype(np.float32)
        moved -= np.float32(mean)
        moved *= self.x
        return moved

    def _gradient(self, delta: Array | None, ridge: float) -> Array:
        """The gradient g = A(x - x_LS) + λδ."""
        problem = self.problem
        buffer = problem.product.empty(np.float64)
        cells = problem.product.cells_of(buffer)
        self._write_cells(cells)
        for some in pieces(cells.size):
            cells[some] -= problem.cells[some]
        g = np.empty(problem.product.size, dtype=np.float32)
        for some, slab in problem.product.slabs(buffer):
            if delta is not None:
                slab += ridge * delta[some]
            g[some] = slab
        return g

    def _gap(self, g: Array) -> float:
        return math.sqrt(dot(g, g) / (self.problem.variance * g.size))

    def _solve(self, r: Array, ridge: float, share: float) -> tuple[Array, float]:
        """A p with (H + λ)p ≈ r, by guided conjugate gradients, and p·r. Writes over r."""
        problem, x, total = self.problem, self.x, self.total
        guide = self._guide(ridge)
        p, direction = np.zeros_like(r), guide.apply(r)
        size, promise = dot(r, direction), 0.0
        enough = share**2 * size
        for _ in range(min(MOST_DIRECTIONS, 3 * r.size + 20)):
            if size <= enough:
                break
            self.directions += 1
            buffer = problem.transposed.gathered(direction, np.float32)
            cells = problem.product.cells_of(buffer)
            cells -= np.float32(dot(x, cells) / total)
            curvature = dot(x, cells, cells) + ridge * dot(direction, direction)
            if curvature <= 0:
                break
            length = size / curvature
            promise += length * size
            _add(p, direction, length)
            _add(r, direction, -length * ridge)
            cells *= x
            for some, slab in problem.product.slabs(buffer):
                slab *= np.float32(length)
                r[some] -= slab
            del buffer, cells
            guided = guide.apply(r)
            before, size = size, dot(r, guided)
            direction *= np.float32(size / before)
            direction += guided
            del guided
        return p, promise

    def _guide(self, ridge: float) -> Guide:
        guide = self.guided.guide(self.x, self.total, ridge)
        if guide is not None:
            return guide
        shares = np.empty(self.problem.product.size, dtype=np.float16)
        for some, diagonal, _ in self._diagonal():
            shares[some] = np.maximum(ridge / (diagonal + ridge), LEAST_GUIDE)
        return DiagonalGuide(shares)

    def _diagonal(self) -> Iterator[tuple[slice, Array, Array]]:
        """The diagonal of H and the answers A x, part by part."""
        problem = self.problem
        squares, answers = (
            each.slabs(each.buffer(self.x, np.float32))
            for each in (problem.squares, problem.product)
            if each is not None
        )
        for (some, first), (_, second) in zip(squares, answers, strict=True):
            first -= second * (second / np.float32(self.total))
            yield some, np.maximum(first, 0, out=first), second

    # ---- cells ---------------------------------------------------------------------------------

    def _cells(self, logarithms: Array) -> tuple[Array, float]:
        """The cells in single precision, and log Z."""
        log_mass = _log_mass(logarithms)
        x = np.empty(logarithms.size, dtype=np.float32)
        write_cells(logarithms, log_mass, self.total, x)
        return x, log_mass

    def _write_cells(self, out: Array) -> None:
        write_cells(self.logarithms, self.log_mass, self.total, out)

    def keep(self) -> Array:
        """This is the best place so far."""
        self.best = None
        # In single precision: of shares, since logarithms that all lie far from zero lose digits.
        self.best = np.empty(self.logarithms.size, dtype=np.float32)
        for some in pieces(self.best.size):
            self.best[some] = self.logarithms[some] - self.log_mass
        return self.best

    @property
    def noise(self) -> float:
        """What noise adds to the squares of all asked numbers."""
        return self.problem.noise

    @property
    def numbers(self) -> float:
        """The sum of the squared weights of all asked numbers."""
        return self.problem.numbers

    # ---- risk ----------------------------------------------------------------------------------

    def risk(self) -> tuple[float, float]:
        """Stein's estimate of the squared error of all asked numbers; degrees of freedom."""
        problem, distance = self.problem, self._distance()
        probe, moved = problem.probe(), self._moved()
        passed = problem.distance(moved, probe) / max(problem.distance(probe, probe), 1e-300)
        freedom = dot(problem.grams.gather(probe, np.float32), moved) / problem.measured_variance
        return distance + problem.noise * (2 * passed - 1), freedom

    def _distance(self) -> float:
        """The square of how far the asked answers are from those of least squares."""
        if math.isinf(self.apart):
            apart = np.empty(self.x.size)
            self._write_cells(apart)
            apart -= self.problem.cells
            self.apart = self.problem.distance(apart, apart)
        return self.apart

    def margin(self) -> float:
        """By how much the risks of this place and of the best have to differ to be told apart."""
        if self.best is None:
            return 0.0
        others, _ = self._cells(self.best)
        others -= self.x
        distance = math.sqrt(max(self.problem.distance(others, others), 0.0))
        return margin_of(distance, self.problem.noise, self.problem.asked_rows)


def write_cells(logarithms: Array, log_mass: float, total: float, out: Array) -> None:
    """T exp(logarithms)/Z, part by part."""
    shift = log_mass - math.log(total)
    for some in pieces(out.size):
        out[some] = np.exp(logarithms[some] - shift, dtype=float)


def cells_of_logarithms(logarithms: Array, total: float) -> Array:
    """All cells in double precision."""
    out = np.empty(logarithms.size)
    write_cells(logarithms, _log_mass(logarithms), total, out)
    return out


def _log_mass(logarithms: Array, move: Array | None = None, length: float = 0.0) -> float:
    """The logarithm of Σ exp(logarithms + length · move)."""
    top, mass = -math.inf, 0.0
    for some in pieces(logarithms.size):
        part = logarithms[some].astype(float)
        if move is not None:
            part += length * move[some].astype(float)
        highest = max(top, float(part.max()))
        if highest == -math.inf:
            continue
        part -= highest
        mass = mass * math.exp(top - highest) + float(np.exp(part, out=part).sum())
        top = highest
    return top + math.log(mass)


def _half(cells: Array) -> Array:
    """Cells in half precision, which is enough for a derivative; what it cannot hold is cut."""
    most = float(np.finfo(np.float16).max)
    return np.clip(cells, -most, most, out=cells).astype(np.float16)


def _add(target: Array, move: Array, length: float) -> None:
    for some in pieces(target.size):
        target[some] += length * move[some]
