"""Sphinx extension: a page loads what it uses, and all of it from the site's own folder.

Jupyter Book and the theme give every page the scripts and styles of all their features, twice
some of them, and 1.9 MB of Font Awesome. What no page refers to is not shipped either.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from docutils import nodes
from sphinx.application import Sphinx

from book.extensions import PARALLEL_SAFE

THEME_STYLE = "_static/styles/pydata-sphinx-theme.css"

# What thebe, which would run cells on a server, adds to every page.
THEBE = re.compile("thebe|kernelName")
# The files of a feature, and what stands in the pages that have it.
FEATURES = {
    "sphinx-design.min.css": 'class="sd-',
    "design-tabs.js": 'class="sd-tab',
}
# Chromium reports a forbidden fetch as an error; the results are there without their summaries.
NO_SUMMARIES = "DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY &&= location.protocol !== 'file:';"
# A summary shows what an article says, not the words of the buttons and links around it.
ONLY_ARTICLES = """document.addEventListener("DOMContentLoaded", () => {
  const text = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    const article = page.querySelector("article");
    if (article) page.querySelector("[role=main]").replaceChildren(article);
    return text(page.documentElement.outerHTML, anchor);
  };
});"""
# Sphinx shows the titles of sections in its results as if they were HTML.
TITLES_ARE_TEXT = """document.addEventListener("DOMContentLoaded", () => {
  const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const titles = Object.entries(Search._index.alltitles);
  Search._index.alltitles = Object.fromEntries(titles.map(([text, at]) => [escape(text), at]));
});"""

FONT_AWESOME = re.compile(
    r"@font-face\{[^{}]*fa-[^{}]*\}"
    r'|(?<=[{}])(?:\.fa-[\w-]+:before,?)+\{content:"[^"]*"\}'
)
ADDRESSES = {
    ".html": re.compile(r'(?:src|href)="([^":#?]+)["#?]'),
    ".css": re.compile(r"""(?:url\(["']?|@import ["'])([^"':)#?]+)["')#?]"""),
}


def wanted(assets: list[Any], body: str) -> list[Any]:
    """The scripts or styles that a page uses, each once."""
    found: dict[str, Any] = {}
    for asset in assets:
        source = f"{asset.filename or ''} {asset.attributes.get('body', '')}"
        marks = [mark for name, mark in FEATURES.items() if name in source]
        if not THEBE.search(source) and all(mark in body for mark in marks):
            found.setdefault(source, asset)
    return list(found.values())


def choose_assets(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Leave out what the page does not use."""
    if pagename == "search":
        for script in (NO_SUMMARIES, ONLY_ARTICLES, TITLES_ARE_TEXT):
            app.add_js_file(None, body=script)
    for kind in ("css_files", "script_files"):
        context[kind] = wanted(context[kind], context.get("body", ""))


def remove_thebe(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Take out the scripts that thebe puts into the text itself."""
    for node in list(doctree.findall(nodes.raw)):
        if THEBE.search(node.astext()):
            node.parent.remove(node)


def referred(site: Path) -> set[Path]:
    """The files of a site that its pages and their styles refer to."""
    found: set[Path] = set()
    todo = list(site.rglob("*.html"))
    while todo:
        file = todo.pop()
        for address in set(ADDRESSES[file.suffix].findall(file.read_text(encoding="utf-8"))):
            target = (file.parent / unquote(address)).resolve()
            if target not in found and target.is_file():
                found.add(target)
                todo += [target] if target.suffix == ".css" else []
    return found


def ship_what_is_used(app: Sphinx, exception: Exception | None) -> None:
    """Take the icons out of the theme's style, then delete the static files nothing refers to."""
    if exception or app.builder.format != "html":
        return
    site = Path(app.outdir).resolve()
    style = site / THEME_STYLE
    style.write_text(FONT_AWESOME.sub("", style.read_text(encoding="utf-8")), encoding="utf-8")
    used = referred(site)
    static = sorted((site / "_static").rglob("*"), reverse=True)  # what is in a folder goes first
    for path in static:
        if path.is_file() and path not in used:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers.

    900 is after the extensions have added what is left out here; 100 is before parts of the book
    write files to which no page refers, such as the pictures for other sites.
    """
    app.connect("doctree-resolved", remove_thebe, priority=900)
    app.connect("html-page-context", choose_assets, priority=900)
    app.connect("build-finished", ship_what_is_used, priority=100)
    return PARALLEL_SAFE
