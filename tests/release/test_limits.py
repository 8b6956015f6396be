"""A plan says how much less anybody could err, or what Gaussian noise would buy."""

import json

import pytest
from typer.testing import CliRunner

import psephos as ps
from psephos.cli.app import app
from tests.release.conftest import RELEASE

IN_RHO = RELEASE.replace('epsilon = "2"', 'rho = "2"').replace("epsilon = 0.5", 'rho = "1/50"')
MANY = "\n".join(
    f'[schema.a{i}]\nvalues = ["x", "y", "z"]\n[[tables]]\nname = "t{i}"\nrows = ["a{i}", "pet"]\n'
    for i in range(12)
)


def written(tmp_path, text):
    (tmp_path / "release.toml").write_text(text)
    return tmp_path / "release.toml"


def test_a_gaussian_plan_has_a_certificate(tmp_path):
    place = written(tmp_path, IN_RHO.replace("opt_product", "hdmm"))
    forecast = ps.plan(place)
    error = forecast.strategy.expected_error(forecast.job.workload)
    ratio = (error / ps.select.gaussian_limit(forecast.job.workload)) ** 0.5
    assert forecast.above_limit == pytest.approx(ratio - 1, abs=2e-3)
    assert 0 <= forecast.above_limit < 0.05
    assert forecast.gaussian_rmse is None
    shown = CliRunner().invoke(app, ["plan", str(place)])
    assert "above the least that" in shown.stdout
    plain = CliRunner().invoke(app, ["plan", str(place), "--json"])
    assert json.loads(plain.stdout)["above_limit"] == pytest.approx(forecast.above_limit)


def test_a_laplace_plan_says_what_a_delta_buys(tmp_path):
    place = written(tmp_path, RELEASE.replace("opt_product", "hdmm") + MANY)
    forecast = ps.plan(place)
    assert forecast.above_limit is None
    assert forecast.gaussian_rmse < forecast.rmse
    in_delta = RELEASE.replace("epsilon = 0.5", 'epsilon = 0.5\ndelta = "1e-6"')
    in_delta = in_delta.replace('epsilon = "2"', 'rho = "2"').replace("opt_product", "hdmm")
    other = ps.plan(written(tmp_path, in_delta + MANY))
    assert other.rmse == pytest.approx(forecast.gaussian_rmse, rel=0.02)
    shown = CliRunner().invoke(
        app, ["plan", str(written(tmp_path, RELEASE.replace("opt_product", "hdmm") + MANY))]
    )
    assert "Gaussian noise at delta 1e-6 would err by" in shown.stdout


def test_no_certificate_where_none_is_known(tmp_path):
    relative = IN_RHO.replace("restarts = 1", 'restarts = 1\nerror = "relative"')
    assert ps.plan(written(tmp_path, relative)).above_limit is None
