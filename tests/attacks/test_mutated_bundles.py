"""A bundle that someone has changed: verified as what it was, found, or refused; never a crash.

The story: a forger, or a bad disk, changes one small honest bundle in hundreds of ways: bits and
bytes of any file, keys and values of its JSON files, the schema, rows and packing of its Parquet
files; the hashes in the manifest are brought up to date or not. Whatever happens, `verify` returns
a Verification or raises a PsephosError, and whatever else reads a bundle does so too. And where
`verify` says that all is well, every table that the bundle shows is what it was before.

What is slow and the same for many mutations is kept: the job of a release.json, and the numbers
worked out from the same integers.
"""

import json
import shutil
from contextlib import suppress
from copy import deepcopy
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.random import default_rng

import psephos as ps
from psephos.release.ask import question as question_module
from psephos.release.bundle import bundle as bundle_module
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.files import sha256_of
from psephos.release.bundle.requests import read_past
from psephos.release.preflight.checks import create_ledger
from psephos.release.run import release
from psephos.release.spec.job import Job
from psephos.release.verify.files import TOLERANCE
from psephos.release.verify.verify import verify
from tests.release.conftest import RELEASE, write_job

FAST, MANY = 100, 5_200
ODD = (
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    [],
    {},
    [[]],
    {"a": 1},
    10**30,
    2**63,
    1e300,
    "\0",
    "é" * 99,
)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    place = write_job(tmp_path_factory.mktemp("honest") / "job", RELEASE)
    create_ledger(Job.read(place))
    return release(place, unchecked=True).path


@pytest.fixture(scope="module")
def kept(honest):
    """Jobs and views that were worked out before, by all that they depend on."""
    jobs, views, questions = {}, {}, {}
    make_job, make_views, read_sql = Job.alone, bundle_module.views_of, question_module.read_sql

    def compiled(domain, sql, *, dialect):
        if id(domain) not in questions:  # one question to the domain of each job, which is kept
            questions[id(domain)] = read_sql(domain, sql, dialect=dialect)
        return questions[id(domain)]

    def job_of(file, folder):
        key = file.model_dump_json()
        if key not in jobs:
            jobs[key] = make_job(file, folder)
        return jobs[key]

    def views_of(job, requests, **given):
        past, words = tuple(past.values_hash for past in job.past), json.dumps(given["claim"])
        key = (id(job.workload), past, words)
        for step in (request.measurement for request in requests):
            key += (step.simulation, str(step.cost), repr(step.values.tolist()), repr(step.noise))
        if job.past or key not in views:
            views[key] = make_views(job, requests, **given)
        return views[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "alone", job_of)
        patch.setattr(bundle_module, "views_of", views_of)
        patch.setattr(question_module, "read_sql", compiled)
        yield


def tables(path):
    """All that a bundle shows."""
    bundle = Bundle.open(path)
    return {
        (table.name, view): bundle.table(table.name, view)
        for table in bundle.job.tables
        for view in ("consistent", "published")
    }


def same(one, other):
    """The same texts and whole numbers; others to the last digits that a float keeps."""
    scale = TOLERANCE * other["stderr"].to_numpy()
    for name in other.column_names:
        if pa.types.is_floating(other[name].type):
            if not (np.abs(one[name].to_numpy() - other[name].to_numpy()) <= scale).all():
                return False
        elif not one[name].equals(other[name]):
            return False
    return one.schema == other.schema


def read_in_all_ways(path, honest):
    """Whoever reads a bundle gets what it holds, or a PsephosError."""
    job = Bundle.open(honest).job
    ways = (
        lambda: tables(path),
        lambda: Bundle.open(path)._repr_html_(),
        lambda: ps.ask(path, "SELECT pet, COUNT(*) FROM people GROUP BY pet", draws=99),
        lambda: read_past(path, job.questions.domain, job.unit, ""),
    )
    for way in ways:
        with suppress(ps.PsephosError):
            way()


# ---- mutations: each changes one file, by a generator of random numbers --------------------------


def flipped(place, rng):
    content = bytearray(place.read_bytes())
    for at in rng.integers(0, len(content), rng.integers(1, 4)):
        content[at] ^= 1 << int(rng.integers(8))
    place.write_bytes(bytes(content))


def cut(place, rng):
    content = place.read_bytes()
    place.write_bytes(content[: int(rng.integers(len(content)))])


def longer(place, rng):
    content = place.read_bytes()
    at = int(rng.integers(len(content)))
    place.write_bytes(content[:at] + content[at // 2 : at] + content[at:])


def spots(content, path=()):
    """The places of all values in JSON."""
    yield path
    if isinstance(content, dict | list):
        inside = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in inside:
            yield from spots(value, (*path, key))


def json_changed(change):
    def mutation(place, rng):
        content = json.loads(place.read_text(encoding="utf-8"))
        known = [path for path in spots(content) if path]
        path = known[int(rng.integers(len(known)))]
        parent = content
        for key in path[:-1]:
            parent = parent[key]
        change(parent, path[-1], rng)
        place.write_text(json.dumps(content), encoding="utf-8")

    return mutation


def removed(parent, key, rng):
    del parent[key]


def renamed(parent, key, rng):
    if isinstance(parent, dict):
        parent[f"{key}_"] = parent.pop(key)
    else:
        parent.reverse()


def added(parent, key, rng):
    if isinstance(parent, dict):
        parent["note"] = ODD[int(rng.integers(len(ODD)))]
    else:
        parent.append(deepcopy(parent[key]))


def swapped(parent, key, rng):
    parent[key] = ODD[int(rng.integers(len(ODD)))]


def nudged(parent, key, rng):
    value = parent[key]
    if isinstance(value, str):
        parent[key] = value[::-1] if rng.random() < 0.5 else value + "1"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        parent[key] = value + (1 if rng.random() < 0.5 else 10 ** int(rng.integers(1, 20)))


def doubled(place, rng):
    """One line of JSON twice: a key that is there twice."""
    lines = place.read_text(encoding="utf-8").splitlines(keepends=True)
    at = int(rng.integers(1, len(lines)))
    place.write_text("".join(lines[:at] + lines[at - 1 : at] + lines[at:]), encoding="utf-8")


def deep(place, rng):
    """Lists in lists, numbers without end, and what is no number at all."""
    text = place.read_text(encoding="utf-8").rstrip().removesuffix("}")
    endless = ("[" * 100_000, "[" * 900 + "]" * 900, "9" * 5_000, "NaN", "1e999", '"\\ud800"')
    place.write_text(f'{text}, "note": {endless[int(rng.integers(len(endless)))]}}}')


def table_changed(change):
    def mutation(place, rng):
        change(place, pq.read_table(place), rng)

    return mutation


def other_schema(place, table, rng):
    name = table.column_names[int(rng.integers(table.num_columns))]
    at = table.column_names.index(name)
    kind = (pa.string(), pa.float32(), pa.large_string(), pa.binary())[int(rng.integers(4))]
    column = pa.array([str(value) for value in table[name].to_pylist()])
    if kind == pa.float32():
        column = pa.array(np.zeros(table.num_rows, dtype=np.float32))
    elif kind != pa.string():
        column = column.cast(kind)
    pq.write_table(table.set_column(at, name, column), place)


def other_columns(place, table, rng):
    if rng.random() < 0.3 and table.num_columns > 1:
        table = table.drop_columns([table.column_names[-1]])
    elif rng.random() < 0.5:
        table = table.append_column("note", pa.array(["x"] * table.num_rows))
    else:
        table = table.replace_schema_metadata({"note": "x" * 1000})
    pq.write_table(table, place)


def other_rows(place, table, rng):
    parts = ([table, table], [table.slice(1)], [table.slice(0, 0)], [table.slice(1), table[:1]])
    pq.write_table(pa.concat_tables(parts[int(rng.integers(4))]), place)


def other_numbers(place, table, rng):
    names = [f.name for f in table.schema if not pa.types.is_string(f.type)]
    name = names[int(rng.integers(len(names)))]
    values = table[name].to_pylist()
    steps = (1, -1, 1000, 2**62)
    if pa.types.is_floating(table.schema.field(name).type):
        steps = (1e-3, 5.0, float("nan"), float("inf"))
    row = int(rng.integers(len(values)))
    values[row] += steps[int(rng.integers(4))]
    if rng.random() < 0.2:
        values[row] = None
    at = table.column_names.index(name)
    column = pa.array(values, type=table.schema.field(name).type)
    pq.write_table(table.set_column(at, name, column), place)


def inflating(place, table, rng):
    """A small file that would fill the memory."""
    count = 2_000_000
    if rng.random() < 0.5:
        longer = pa.table({name: pa.array(np.zeros(count)) for name in table.column_names})
        pq.write_table(longer, place, compression="zstd")
        return
    text = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(table.num_rows, dtype=np.int32)), pa.array(["x" * 10**6])
    )
    at = int(rng.integers(table.num_columns))
    pq.write_table(table.set_column(at, table.column_names[at], text.cast(pa.string())), place)


ANY = (flipped, cut, longer)
OF_JSON = tuple(json_changed(change) for change in (removed, renamed, added, swapped, nudged))
OF_JSON += (doubled, deep)
CHANGES = (other_schema, other_columns, other_rows, other_numbers, inflating)
OF_PARQUET = tuple(table_changed(change) for change in CHANGES)


def mutated(path, rng):
    """One change to one file of a bundle; hashes follow in three cases of four."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    kinds = {".json": 6, ".parquet": 3}
    chances = np.array([kinds.get(file.suffix, 1) for file in files], dtype=float)
    place = files[int(rng.choice(len(files), p=chances / chances.sum()))]
    own = {".json": OF_JSON, ".parquet": OF_PARQUET}.get(place.suffix, ())
    changes = own if own and rng.random() < 0.7 else ANY
    change = changes[int(rng.integers(len(changes)))]
    change(place, rng)
    if rng.random() < 0.75 and place.name != "manifest.json":
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        manifest["files"][place.relative_to(path).as_posix()] = sha256_of(place)
        (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def attack(honest, folder, seed):
    """Is the mutation of a seed verified as sound? It must show the same tables then."""
    copy = folder / "copy"
    shutil.copytree(honest, copy)
    try:
        mutated(copy, default_rng(seed))
        read_in_all_ways(copy, honest)
        try:
            sound = verify(copy).ok
        except ps.PsephosError:
            return False
        if sound:
            shown, before = tables(copy), shown_by(honest)
            assert shown.keys() == before.keys(), seed
            assert all(same(shown[key], before[key]) for key in before), seed
        return sound
    finally:
        shutil.rmtree(copy)


@cache
def shown_by(honest):
    return tables(honest)


def attack_all(honest, folder, seeds):
    sound = [seed for seed in seeds if attack(honest, folder, seed)]
    assert len(sound) < 0.1 * len(seeds), sound  # a test of the test: most changes mean something


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.usefixtures("kept")
def test_mutations_are_found_or_mean_nothing(honest, tmp_path):
    attack_all(honest, tmp_path, range(FAST))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.usefixtures("kept")
def test_many_more_mutations_are_found_or_mean_nothing(honest, tmp_path):
    attack_all(honest, tmp_path, range(FAST, FAST + MANY))
