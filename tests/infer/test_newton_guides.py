"""What guides the linear systems of entropy steps: written out, it is what its formula says."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import psephos as ps
from psephos.infer.agreeing_tables import AgreeingTables
from psephos.infer.asked_risk import AskedRisk
from psephos.infer.few_numbers import WrittenCurvature
from psephos.infer.measured_cells import MeasuredCells
from psephos.infer.prior_model import PriorModel
from psephos.infer.table_tree import TableTree
from psephos.infer.tangents import FewTangents, Tangents
from psephos.matrix import Dense, Identity, Kron, Ones, Prefix
from psephos.workload.workload import Workload

SHAPE = (3, 4, 2)
SETS = st.lists(
    st.sets(st.integers(0, 2)).map(lambda axes: tuple(sorted(axes))), min_size=2, max_size=5
)


def marginal(axes):
    return Kron(tuple(Identity(n) if i in axes else Ones(1, n) for i, n in enumerate(SHAPE)))


def dense(tree):
    return np.array([tree.transpose(row) for row in np.eye(tree.size)])


@given(SETS, st.integers(0, 99))
def test_tables_are_projected_onto_those_that_agree(sets, seed):
    tree = TableTree.of([marginal(axes) for axes in sets], SHAPE)
    rng = np.random.default_rng(seed)
    variances = np.repeat(rng.choice([0.5, 1.0, 3.0], len(sets)), tree.rows)
    a, scale = dense(tree), np.diag(1 / np.sqrt(variances))
    projection = a @ np.linalg.pinv(scale @ a) @ scale
    consistent = AgreeingTables.of(tree, variances)
    columns = [consistent.project(column) for column in np.eye(tree.size)]
    assert_allclose(np.column_stack(columns), projection, atol=1e-12)


def test_other_blocks_have_no_such_projection():
    tree = TableTree.of([marginal((0,)), Kron((Ones(1, 3), Prefix(4), Ones(1, 2)))], SHAPE)
    assert AgreeingTables.of(tree, np.ones(tree.size)) is None
    single = TableTree.of([marginal((0, 1))], SHAPE)
    assert AgreeingTables.of(single, np.ones(single.size)) is None


@given(SETS, st.booleans(), st.integers(0, 99))
def test_the_curvature_of_few_numbers_is_written_out(sets, other, seed):
    blocks = [marginal(axes) for axes in sets]
    if other:
        blocks.append(Kron((Dense([[1, -1, 0], [0, 2, 1]]), Identity(4), Ones(1, 2))))
    tree = TableTree.of(blocks, SHAPE)
    w = np.random.default_rng(seed).random(tree.cells)
    a = dense(tree)
    assert_allclose(WrittenCurvature.of(tree).at(w), (a * w) @ a.T, atol=1e-12)
    together = TableTree.of(blocks, SHAPE, whole=True)
    assert_allclose(WrittenCurvature.of(together).at(w), (dense(together) * w) @ dense(together).T)


def test_dense_factors_are_multiplied_as_dense_matrices():
    blocks = [Kron((Prefix(160), Ones(1, 2))), Kron((Prefix(160), Identity(2)))]
    tree = TableTree.of([*blocks, *blocks], (160, 2))
    curvature = WrittenCurvature.of(tree)
    assert isinstance(curvature.factors, np.ndarray)
    w, a = np.random.default_rng(0).random(tree.cells), dense(tree)
    assert_allclose(curvature.at(w), (a * w) @ a.T)


@settings(max_examples=15)
@given(st.sampled_from([None, 90]), st.sampled_from(["marginals", "ranges"]), st.integers(0, 9))
def test_derivatives_without_cells_are_those_with_cells(total, kind, seed):
    domain = ps.Domain.of(a=3, b=4, c=2)
    workload = ps.marginals(domain, up_to=2)
    if kind == "ranges":
        workload += Workload(domain, [ps.product(b=ps.prefix(), weight=2.0)])
    counts = np.random.default_rng(seed).multinomial(90, np.full(24, 1 / 24))
    unit = ps.add_remove_row()
    data = ps.simulate(counts, domain, unit=unit, budget=ps.rho(9), seed=seed)
    estimate = ps.infer.least_squares(data.vectorise().measure(workload.query, spend=ps.rho(2)))
    measured = MeasuredCells.of(estimate)
    probes = measured.probes()
    model = PriorModel.of(measured, probes, None, None, total)
    problem, risk = model.problem, measured.risk(workload, probes)
    few, many = FewTangents.of(problem, model.tangents, risk), Tangents(risk, model.tangents)
    assert few is not None
    point, strength = problem.start(), problem.first_strength()
    for _ in range(4):
        assert_allclose(few.passed(problem, point), many.passed(problem, point), rtol=0.02)
        point, _ = problem.step(point, strength, few.near)
        few, many = few.step(problem, point, strength), many.step(problem, point, strength)
        strength *= 0.5


def test_what_numbers_do_not_tell_goes_by_cells():
    domain = ps.Domain.of(a=3, b=4)
    data = ps.simulate(np.arange(12), domain, unit=ps.add_remove_row(), budget=ps.rho(9), seed=1)
    workload = ps.marginals(domain, k=1)
    estimate = ps.infer.least_squares(data.vectorise().measure(workload.query, spend=ps.rho(2)))
    measured = MeasuredCells.of(estimate)
    probes = measured.probes()
    model = PriorModel.of(measured, probes, None, None, None)
    told = measured.risk(workload, probes)
    assert FewTangents.of(model.problem, model.tangents, told) is not None
    cells = TableTree.of([Kron((Identity(3), Identity(4)))], (3, 4))
    rng = np.random.default_rng(0)
    images = tuple(rng.normal(size=12) for _ in probes)
    other = AskedRisk(cells, np.ones(12), np.ones(12), images, 1.0, 12.0)
    assert FewTangents.of(model.problem, model.tangents, other) is None
