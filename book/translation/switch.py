"""Sphinx extension: on every page the way to the other languages, for readers and for browsers."""

import html
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.locale import _

from book.config import Addresses, addresses
from book.extensions import PARALLEL_SAFE
from book.languages import ENGLISH, LANGUAGES, Language, language
from book.translation import catalogues
from book.translation.originals import Original

DESCRIPTION = 160  # characters that search engines show


def links(pagename: str, spoken: Language) -> list[tuple[Language, str]]:
    """The same page in every language, relative to this one, so that it needs no server."""
    up = "../" * (f"{spoken.path}{pagename}".count("/"))
    return [(each, f"{up}{each.path}{pagename}.html") for each in LANGUAGES]


def description(tree: nodes.document) -> str:
    """The beginning of a page's first paragraph."""
    text = " ".join(next(iter(tree.findall(nodes.paragraph))).astext().split())
    return text if len(text) <= DESCRIPTION else text[: DESCRIPTION - 1].rstrip() + "…"


def head(where: Addresses, pagename: str, tree: nodes.document | None) -> str:
    """Elements for the page's head: what it is about, and its address in each language."""
    tags = [
        f'<link rel="alternate" hreflang="{tag}" href="{address}">'
        for tag, address in where.alternates(pagename)
    ]
    if tree:
        tags.append(f'<meta name="description" content="{html.escape(description(tree))}">')
    return "\n".join(tags)


def credit(root: Path, spoken: Language, pagename: str) -> str:
    """Who translated a page, and when, as its catalogue says."""
    path = catalogues.folder(root, spoken) / f"{pagename}.po"
    if spoken is ENGLISH or not path.exists():
        return ""
    catalogue = catalogues.read(path, spoken)
    translator = catalogue.metadata["Last-Translator"].partition("<")[0].strip()
    date = catalogue.metadata["PO-Revision-Date"][:10]
    return _("Translation: {translator}, {date}").format(translator=_(translator), date=date)


def add_to_page(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Fill in what the templates of the switch and of the credit need."""
    root = Path(app.srcdir)
    spoken = language(app.config.language)
    context |= {
        "spoken": spoken,
        "language_links": links(pagename, spoken),
        "has_originals": tree is not None and any(tree.findall(Original)),
        "credit": credit(root, spoken, pagename),
    }
    where = addresses(root)
    context["metatags"] = f"{context.get('metatags', '')}\n{head(where, pagename, tree)}"


def add_assets(app: Sphinx, config: Config) -> None:
    """Add the style and the script."""
    app.add_css_file("languages.css")
    app.add_js_file("languages.js")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers."""
    app.connect("config-inited", add_assets)
    app.connect("html-page-context", add_to_page)
    return PARALLEL_SAFE
