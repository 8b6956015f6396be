"""What is loaded, and when: nobody waits for libraries that what they do has no use for."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import psephos
from psephos.cli.app import app
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.unit import add_remove_row

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
COMMAND = "from {0} import {1}; {1}()".format(*PROJECT["project"]["scripts"]["psephos"].split(":"))
WATCHED = """
import sys
known = set(sys.modules)
try:
    {}
except SystemExit as end:
    assert not end.code, end.code
print(*set(sys.modules) - known, file=sys.stderr)
"""
DATA = {"duckdb", "pyarrow", "pandas", "polars"}
PAGES = {"jinja2", "vl_convert", "matplotlib"}
SMALL_RELEASE = """
name = "small"
privacy = { unit = "add_remove_row" }
ledger = { path = "people.ledger", dataset = "people", epsilon = 2 }
budget = { epsilon = 1 }
schema = { age = { integers = [0, 9] }, sex = { values = ["F", "M"] } }
tables = [{ name = "age by sex", rows = ["age"], columns = ["sex"] }]
"""


def run(code, *args):
    """What a fresh Python prints, and the modules that it loads meanwhile."""
    command = [sys.executable, "-c", WATCHED.format(code), *map(str, args)]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout, set(result.stderr.split())


def libraries(modules):
    return {module.split(".")[0] for module in modules} - sys.stdlib_module_names


def test_importing_the_package_loads_no_library():
    _, modules = run("import psephos")
    assert libraries(modules) == {"psephos"}


def test_the_version_needs_no_library():
    shown, modules = run(COMMAND, "--version")
    assert shown == f"psephos {psephos.__version__}\n"
    assert libraries(modules) == {"psephos"}


def test_help_tells_all_commands_and_loads_what_shows_it():
    shown, modules = run(COMMAND, "--help")
    assert not libraries(modules) & {"numpy", "scipy", "sqlglot", *DATA, *PAGES}
    for command in app.registered_commands:
        assert command.callback.__name__ in shown
        assert " ".join(command.callback.__doc__.split()[:3]) in shown
    assert "--version" in shown
    assert "Exit codes: 0 done" in shown


def test_a_plan_loads_what_plans(tmp_path):
    (tmp_path / "release.toml").write_text(SMALL_RELEASE)
    for is_repeated in (False, True):
        shown, modules = run(COMMAND, "plan", tmp_path)
        assert "age by sex" in shown
        assert not libraries(modules) & {"sqlglot", "duckdb", "pandas", "polars", *PAGES}
        # The search is over, and its strategy in a file, when the plan is made again.
        assert not is_repeated or "scipy.optimize" not in modules
        assert "scipy.stats" not in modules


def test_a_ledger_is_read_without_engines(tmp_path):
    place = tmp_path / "people.ledger"
    Ledger.create(place, dataset="people", unit=add_remove_row(), budget=epsilon(2))
    shown, modules = run(COMMAND, "budget", place)
    assert "left epsilon 2" in shown
    assert not libraries(modules) & {"sqlglot", *DATA, *PAGES}


def test_functions_are_not_hidden_by_rooms_of_their_name():
    rooms = "psephos.audit, psephos.protect, psephos.release"
    shown, _ = run(f"import {rooms}; print({rooms})")
    assert shown.count("<function ") == 3


def test_names_for_type_checkers_are_those_that_are_looked_up():
    (block,) = (
        node
        for node in ast.parse(Path(psephos.__file__).read_text()).body
        if isinstance(node, ast.If)
    )
    names, modules = {}, {}
    for node in block.body:
        for alias in node.names:
            place = f"{node.module}.{alias.name}"
            if place in psephos._MODULES.values():
                modules[alias.name] = place
            else:
                names[alias.name] = node.module
    assert names == psephos._HOMES
    assert modules == psephos._MODULES
    assert names.keys() | modules.keys() == set(psephos.__all__) <= set(dir(psephos))


def test_other_names_are_missing():
    with pytest.raises(AttributeError, match="module 'psephos' has no attribute 'protekt'"):
        _ = psephos.protekt
