"""The pages: each is on the site, each link leads somewhere, and the site builds as it should."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
    *DOCS.glob("*.md"),
    *ROOT.glob("*.md"),
    *ROOT.glob("examples/**/README.md"),
    ROOT / "benchmarks" / "README.md",
]


def anchors(page):
    """The places of a page, as GitHub and the site call them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        place = page.parent / name if name else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


def test_every_page_is_on_the_site():
    index = (DOCS / "index.md").read_text()
    listed = {(DOCS / f"{line}.md").resolve() for line in re.findall(r"^[\w./]+$", index, re.M)}
    assert {page for page in PAGES if page.name != "index.md"} <= listed


def test_every_shell_command_is_one(tmp_path):
    from typer.main import get_command

    from psephos.cli.app import app

    commands = set(get_command(app).commands)
    for page in PAGES:
        used = set(re.findall(r"^(?:    |\$ )psephos (\w+)", page.read_text(), re.M))
        assert used <= commands, page


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_all_its_links_work(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    pytest.importorskip("furo")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    place = [*("-c", str(DOCS), "-d", str(tmp_path / "trees")), str(ROOT), str(tmp_path / "site")]
    build = subprocess.run([*command, *place], capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stderr
    broken_links = runpy.run_path(str(DOCS / "site" / "links.py"))["broken_links"]
    assert broken_links(tmp_path / "site") == []


def steps(page):
    """The files that a page shows, by the name in their first line, and its commands, in order."""
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.M | re.S):
        name = re.match(r"# ([\w.]+)\n", text)
        if language == "sh" or name:
            yield (None if language == "sh" else name[1]), text


@pytest.mark.slow
def test_the_first_release_runs_as_it_is_written(tmp_path):
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    for name, text in steps(DOCS / "first_release.md"):
        if name is not None:
            (tmp_path / name).write_text(text)
            continue
        code = re.search(r"exit code (\d)", text)
        run = subprocess.run(
            ["bash", "-e", "-c", text],
            cwd=tmp_path,
            env={"PATH": path, "OPENBLAS_NUM_THREADS": "1", "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == (int(code[1]) if code else 0), f"{text}\n{run.stdout}{run.stderr}"
    assert (tmp_path / "bundle" / "tables.xlsx").exists()
    assert (tmp_path / "second" / "report.html").exists()
