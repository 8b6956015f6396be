"""How the documentation site is built: `make docs`, by Sphinx from the Markdown of the project.

The source is the whole repository, so that links between its pages are those that people follow in
an editor. Nothing on the site is fetched from elsewhere.
"""

import re
from pathlib import Path
from typing import Any

from psephos.version import __version__

ROOT = Path(__file__).parent.parent
project = "psephos"
version = release = __version__
copyright = "The psephos developers"
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = [
    "*.md",
    "docs/*.md",
    "examples/README.md",
    "examples/*/README.md",
    "benchmarks/README.md",
]
exclude_patterns = ["build", ".venv*", "**/.pytest_cache"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"psephos {__version__}"
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False
templates_path = ["site"]
html_additional_pages = {"index": "start.html"}
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
python_display_short_literal_types = True
maximum_signature_line_length = 90

LINK = re.compile(r"\[([^\]]+)\]\(([^)#:]+)(#[^)]*)?\)")
SPECIAL = re.compile(r"([*|\\]|(?<=\w)_(?=\W|$))")
"""What means something else in reStructuredText than in a docstring."""
PUBLIC = "## Public names"
MODULES = ("census", "select", "matrix", "inverse", "infer", "plans", "spec")
"""Public names that are modules."""


def setup(app: Any) -> None:
    """Rewrite what a page on the site cannot show as it stands in the repository."""
    app.connect("source-read", read_source)
    app.connect("autodoc-process-docstring", escape_docstring, priority=100)


def read_source(app: Any, name: str, source: list[str]) -> None:
    """Folders lead to their page, code that is no part of the site to none; names to the API."""
    folder = (ROOT / name).parent

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        place = (folder / target).resolve()
        if place.is_dir() and (place / "README.md").exists():
            return f"[{words}]({target.rstrip('/')}/README.md{anchor})"
        on_site = place.suffix in (".md", ".html") or "src" not in place.parts
        return match[0] if on_site and place.is_file() else words

    text = LINK.sub(link, source[0])
    if name == "docs/api":
        text += api_sections()
    source[0] = text


def api_sections() -> str:
    """The public names as architecture.md lists them, each with its docstring."""
    listed = (ROOT / "docs" / "architecture.md").read_text().partition(PUBLIC)[2]
    sections = []
    for item in re.findall(r"^- (.+?):\s((?:.+\n)(?:  .+\n)*)", listed.partition("\n## ")[0], re.M):
        heading, names = item[0], re.findall(r"`ps\.(\w+)`", item[1])
        blocks = [f"\n## {heading[0].upper()}{heading[1:]}\n", "```{eval-rst}"]
        blocks += ["\n".join(directive(name)) for name in names]
        sections.append("\n".join([*blocks, "```\n"]))
    return "\n".join(sections)


def directive(name: str) -> list[str]:
    """The lines of reStructuredText that document a public name."""
    import psephos

    value = getattr(psephos, name)
    if name in MODULES:
        heading = [f"ps.{name}", "-" * len(f"ps.{name}"), f".. automodule:: {value.__name__}"]
        return ["", *heading, "   :no-index:", "   :imported-members:", ""]
    kind = "autoclass" if isinstance(value, type) else "autofunction"
    return ["", f".. {kind}:: psephos.{name}", ""]


def escape_docstring(*event: Any) -> None:
    """Docstrings are text with `code` and formulas; make reStructuredText of them."""
    lines: list[str] = event[-1]
    for i, line in enumerate(lines):
        if re.match(r"\s*(>>>|\.\.\.)", line):
            continue
        pieces = re.split(r"(`[^`]+`)", line)
        lines[i] = "".join(
            f"`{piece}`" if piece.startswith("`") else SPECIAL.sub(r"\\\1", piece)
            for piece in pieces
        )
