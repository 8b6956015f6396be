"""Look at every link of the built site: it leads to a page and a place that are there.

Links to other sites are for people to follow; a page itself must need nothing from elsewhere.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser loads to show a page, by element."""


class Page(HTMLParser):
    """The links, the loaded files and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down what an element refers to."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if FETCHED.get(tag) in given:
            self.loaded.append(given[FETCHED[tag]])


def broken_links(site: Path) -> list[str]:
    """What leads nowhere, and what is loaded from another place, each with its page."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for target in [*page.links, *page.loaded]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loaded and parts.scheme != "data":
                    broken.append(f"{path.relative_to(site)}: loads {target}")
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not place.exists():
                broken.append(f"{path.relative_to(site)}: no {target}")
            elif place in pages and unquote(parts.fragment) not in {"", *pages[place].anchors}:
                broken.append(f"{path.relative_to(site)}: no place {target}")
    return broken


if __name__ == "__main__":
    BROKEN = broken_links(Path(sys.argv[1]).resolve())
    sys.exit("\n".join(BROKEN) or 0)
