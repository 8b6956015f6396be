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
