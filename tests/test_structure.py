"""The shape of the project: who may import whom, what is public, how long a file may be."""

import ast
import inspect
import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_args, get_type_hints

import psephos

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "psephos"

# A room may import itself and the rooms before it.
ORDER = ["errors", "numbers", "report", "variances", "values", "domain", "matrix", "inverse"]
ORDER += ["kernel", "engines", "owner", "protect", "without_ledger", "workload", "strategy"]
ORDER += ["infer", "plans", "synthesis", "version", "release", "audit", "cli"]
ROOMS = {
    "duckdb": {"workload", "engines"},
    "sqlglot": {"workload"},
    "pyarrow": {"engines", "owner", "infer", "report", "synthesis", "release", "audit", "cli"},
    "sqlite3": {"kernel"},
    "rich": {"strategy", "release", "cli"},
}


def rooms():
    for path in sorted(SRC.rglob("*.py")):
        inside = path.relative_to(SRC)
        if inside.name != "__init__.py" or len(inside.parts) > 1:
            yield inside.parts[0].removesuffix(".py"), path


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_imports_point_one_way():
    for room, path in rooms():
        for module in imports(path):
            parts = module.split(".")
            if parts[0] == "psephos":
                assert len(parts) > 1, f"{path} imports the package from inside"
                allowed = ORDER.index(parts[1]) <= ORDER.index(room)
                assert allowed, f"{path}: {module}"


KNOT = {"base", "combine", "core", "explicit", "gram", "kron", "ranges", "stack"}
"""Files of matrix/ that need each other, since A + B, A @ B and A.gram() are other matrices."""


def test_no_file_imports_itself_by_way_of_others():
    """Imports inside functions and those for types count too."""
    names = {}
    for _, path in rooms():
        parts = path.relative_to(SRC).with_suffix("").parts
        name = ".".join(("psephos", *parts)).removesuffix(".__init__")
        knotted = parts[0] == "matrix" and parts[-1] in KNOT
        names[name] = "the knot of matrix/" if knotted else name
    graph = {name: set() for name in names.values()}
    for _, path in rooms():
        name = ".".join(("psephos", *path.relative_to(SRC).with_suffix("").parts))
        node = names[name.removesuffix(".__init__")]
        for module in imported_modules(path):
            if names.get(module, node) != node:
                graph[node].add(names[module])
    list(TopologicalSorter(graph).static_order())  # or it names the cycle


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


MOST_IMPORTS = {"psephos.release.run": 210}
"""How many modules one of release/ may load; what a method needs alone, it imports by itself."""


def loaded_modules(path):
    """What the top level of a file imports; functions import theirs when they are called."""
    nodes = list(ast.parse(path.read_text()).body)
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_release_loads_what_it_needs():
    paths = {}
    for _, path in rooms():
        parts = path.relative_to(SRC).with_suffix("").parts
        paths[".".join(("psephos", *parts)).removesuffix(".__init__")] = path
    graph = {}
    for name, path in paths.items():
        parts = [part.split(".") for part in (name, *loaded_modules(path))]
        graph[name] = {".".join(each[:i]) for each in parts for i in range(2, len(each) + 1)}
    for name in graph:
        if not name.startswith("psephos.release."):
            continue
        reached, todo = set(), [name]
        while todo:
            new = graph[todo.pop()] & graph.keys() - reached
            reached |= new
            todo += new
        assert len(reached) <= MOST_IMPORTS.get(name, 305), f"{name} loads {len(reached)} modules"


def test_engines_and_parsers_stay_in_their_room():
    for room, path in rooms():
        for module in imports(path):
            allowed = ROOMS.get(module.split(".")[0])
            assert allowed is None or room in allowed, f"{path} imports {module}"


def test_every_room_is_in_the_architecture():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for room in ORDER:
        assert f"{room}" in text, room


def test_public_names_are_documented():
    text = (ROOT / "docs" / "architecture.md").read_text()
    listed = set(re.findall(r"`ps\.([A-Za-z_]+)", text))
    assert listed == set(psephos.__all__)
    assert len(psephos.__all__) == len(set(psephos.__all__))
    for name in psephos.__all__:
        assert getattr(psephos, name).__doc__, name


def test_a_name_means_one_thing():
    """No class and no constant has the name of another."""
    places = {}
    for _, path in rooms():
        for node in ast.parse(path.read_text()).body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            names += [target.id for target in targets if isinstance(target, ast.Name)]
            for name in names:
                if not name.startswith("_"):
                    places.setdefault(name, set()).add(path)
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


RIDDLES = {"found", "made", "own", "asked"}


def test_names_say_what_a_thing_is():
    for _, path in rooms():
        for node in ast.walk(ast.parse(path.read_text())):
            names = {getattr(node, field, None) for field in ("id", "arg", "attr", "name")}
            assert not RIDDLES & {name for name in names if isinstance(name, str)}, path


def public_objects():
    """Every public name, those of public modules included."""
    for name in psephos.__all__:
        value = getattr(psephos, name)
        yield name, value
        if inspect.ismodule(value):
            yield from ((f"{name}.{n}", getattr(value, n)) for n in getattr(value, "__all__", ()))


def returned_types(value):
    """The types that a function, or the public methods and fields of a class, give out."""
    if inspect.isfunction(value):
        yield from parts_of(get_type_hints(value, localns=FOREIGN).get("return"))
    elif inspect.isclass(value):
        for name, member in vars(value).items():
            inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            inner = inner.fget if isinstance(inner, property) else getattr(inner, "func", inner)
            if not name.startswith("_") and inspect.isfunction(inner):
                yield from parts_of(get_type_hints(inner, localns=FOREIGN).get("return"))
        for name, kind in get_type_hints(value, localns=FOREIGN).items():
            if not name.startswith("_"):
                yield from parts_of(kind)


def parts_of(kind):
    if isinstance(kind, type):
        yield kind
    for part in get_args(kind):
        yield from parts_of(part)


PUBLIC = {name: getattr(psephos, name) for name in psephos.__all__}
FOREIGN = {"LinearOperator": object, **PUBLIC}  # imported for annotations only


def test_every_type_that_is_returned_is_public():
    public = {id(value) for _, value in public_objects()}
    for name, value in public_objects():
        for kind in returned_types(value):
            ours = kind.__module__.startswith("psephos") and not kind.__name__.startswith("_")
            assert not ours or id(kind) in public, f"{name} gives out {kind.__name__}"


def test_files_hold_one_idea():
    for _, path in rooms():
        assert len(path.read_text().splitlines()) <= 600, path


def test_readme_shows_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (ROOT / link).exists(), link


def test_no_registry_and_no_random_module_functions():
    for path in ROOT.glob("constraints*.txt"):
        assert "://" not in path.read_text()
    for _, path in rooms():
        if path.name != "simulate.py":
            assert "np.random" not in path.read_text(), path


def code_lines(path):
    """Lines of code: without blank lines, comments and docstrings."""
    text = path.read_text()
    skipped = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.update(range(node.lineno, node.end_lineno + 1))
    return sum(
        1
        for number, line in enumerate(text.splitlines(), 1)
        if number not in skipped and line.strip() and not line.strip().startswith("#")
    )


def test_rooms_of_the_kernel_have_short_files():
    """How much all of it may be is in tests/kernel/test_trusted_base.py."""
    for room in ("scores", "parts"):
        for path in (SRC / "kernel" / room).glob("*.py"):
            assert code_lines(path) <= 125, path


def test_every_branch_of_the_kernel_is_tested_and_no_test_runs_twice():
    """What the first command of `make test` runs, the second leaves out, and nothing else."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    text = (ROOT / "Makefile").read_text()
    (paths,) = re.findall(r"^KERNEL := (.*)$", text, re.MULTILINE)
    (both,) = re.findall(r"^define run_tests\n\t(.*)\n\t(.*)\nendef$", text, re.MULTILINE)
    common = "CI=$(1) OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(2) "
    assert both[0] == common + "--cov=psephos.kernel $(KERNEL)"
    assert both[1] == common + "$(KERNEL:%=--ignore=%)"
    assert len(re.findall(r"^\t\$\(call run_tests,", text, re.MULTILINE)) == 2  # test, test-all
    tested = settings["pytest"]["ini_options"]["testpaths"]
    for path in paths.split():
        assert (ROOT / path).exists(), path
        assert Path(path).parts[0] in tested, path
    coverage = settings["coverage"]
    assert coverage["run"]["branch"]
    assert coverage["report"]["fail_under"] == 100
    assert "omit" not in coverage["run"] | coverage["report"]
    for path in (SRC / "kernel").rglob("*.py"):
        assert "pragma: no" not in path.read_text(), path
