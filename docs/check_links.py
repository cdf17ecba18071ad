"""Check the built pages: every link inside them leads somewhere, and nothing is loaded from afar.

python docs/check_links.py docs/_build/html

Links to other sites are not followed: the check needs no network.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src"}


class Page(HTMLParser):
    """The links, the loaded files and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])


@cache
def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def has_place(page: Path, anchor: str) -> bool:
    return not anchor or anchor in read(page.resolve()).anchors


def pages(root: Path) -> list[Path]:
    """The built pages; the theme's own templates are none."""
    return [p for p in sorted(root.rglob("*.html")) if "_static" not in p.relative_to(root).parts]


def problems(root: Path) -> list[str]:
    """What is wrong, a line each."""
    found = []
    for path in pages(root):
        page, where = read(path.resolve()), path.relative_to(root)
        for address in page.loaded:
            if urlsplit(address).netloc:
                found.append(f"{where}: loads {address} from the network")
        for address in page.links + page.loaded:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = path.parent / unquote(parts.path) if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{where}: {address} leads to no file")
            elif target.suffix == ".html" and not has_place(target, unquote(parts.fragment)):
                found.append(f"{where}: {address} leads to no place in its page")
    return found


def main() -> None:
    root = Path(sys.argv[1])
    found, count = problems(root), len(pages(root))
    print("\n".join(found) or f"{count} pages, every link inside them leads somewhere")
    sys.exit(bool(found) or not count)


if __name__ == "__main__":
    main()
