"""Files whose author means harm, or slipped: no reading of them hangs, or ends in a traceback."""

import subprocess
import sys

import pytest

from psephos.errors import ReleaseError
from psephos.release.bundle.files import JSON_BYTES
from psephos.release.spec.file import MOST_LEVELS, checked_release, parse_release, read_release
from tests.release.conftest import RELEASE

ALIASES = [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, 9)]
DEEP = f"more than {MOST_LEVELS} deep"
ENDLESS = {
    "lists.toml": (f"facts = {'[' * 3000}{']' * 3000}", DEEP),
    "few-lists.toml": (f"facts = {'[' * 40}{']' * 40}", DEEP),
    "sections.toml": (f"facts = {'{a = ' * 900}1{'}' * 900}", DEEP),
    "key.toml": (f"a{'.a' * 10**6} = 1", DEEP),
    "quoted-key.toml": (" . ".join([r'"a \" b"'] * 10**6) + " = 1", DEEP),
    "heading.toml": (f"[{'a.' * 10**6}a]\nb = 1", DEEP),
    "power.toml": ("[schema.a]\nintegers = [0, 1e999999999]", "has over 300 digits"),
    "lists.json": ('{"facts": ' + "[" * 10**6, DEEP),
    "few-lists.json": ('{"facts": ' + "[" * 40 + "]" * 40 + "}", DEEP),
    "power.json": ('{"total": 1e999999999}', "has over 300 digits"),
    "digits.json": ('{"total": ' + "1" * 10**6 + "}", "digits"),
    "lists.yaml": (f"facts: {'[' * 10**6}", DEEP),
    "few-lists.yaml": (f"facts: {'[' * 40}{']' * 40}", DEEP),
    "dashes.yaml": ("- " * 10**6, DEEP),
    "aliases.yaml": ("\n".join(["x0: &x0 [a]", *ALIASES, "facts: *x8"]), "line 2: an alias"),
    "itself.yaml": ("facts: &x [*x]", "line 1: an alias"),
    "minutes.yaml": (f"total: 1{':59' * 10**6}", "total: must be a whole number"),
    "long.toml": (f"{RELEASE}\n#{'#' * JSON_BYTES}", "longer than"),
    "long.json": (" " * JSON_BYTES + "{}", "longer than"),
    "long.yaml": (f"a: {'a' * JSON_BYTES}", "longer than"),
}
READS = """
import sys
from pathlib import Path
from psephos.errors import ReleaseError
from psephos.release.spec.file import read_release
for place in map(Path, sys.argv[1:]):
    try:
        read_release(place)
    except ReleaseError as error:
        place.with_suffix(place.suffix + ".said").write_text(str(error))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What is said of each file; all of them are read within a minute, most in no time."""
    folder = tmp_path_factory.mktemp("endless")
    for name, (text, _) in ENDLESS.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-c", READS, *(str(folder / name) for name in ENDLESS)]
    subprocess.run(command, check=True, timeout=60)
    return {name: (folder / f"{name}.said").read_text() for name in ENDLESS}


@pytest.mark.parametrize("name", ENDLESS)
def test_files_without_end_are_refused_in_words(said, name):
    assert said[name].startswith(name)
    assert ENDLESS[name][1] in said[name]
    assert len(said[name]) < 1000


def test_the_command_says_it_without_a_traceback(tmp_path):
    place = tmp_path / "release.toml"
    place.write_text(ENDLESS["lists.toml"][0])
    command = [sys.executable, "-m", "psephos.cli.main", "plan", str(place)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode != 0
    assert "release.toml" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_bundle_s_release_is_no_deeper():
    content = {}
    for _ in range(900):
        content = {"a": content}
    with pytest.raises(ReleaseError, match=f"release.json.*{DEEP}"):
        checked_release(content, "release.json")


def test_a_long_list_of_values_is_refused(tmp_path):
    (tmp_path / "release.toml").write_text(
        RELEASE.replace("integers = [0, 19]", 'list = "ages.csv"')
    )
    (tmp_path / "ages.csv").write_text("age\n" + "1" * JSON_BYTES)
    with pytest.raises(ReleaseError, match=r"ages\.csv cannot be read: it has over"):
        read_release(tmp_path / "release.toml")


def test_dots_in_texts_are_no_keys():
    """Sentences and lists of decimals have many dots, and say nothing of sections."""
    text = " ".join(f"{i}.5, a. b" for i in range(100))
    assert parse_release(f'facts = ["{text}"]\n{RELEASE}').facts == (text,)
