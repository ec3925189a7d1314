"""Sphinx extension: how a page looks where it is shared, and its icon in tabs and on phones.

The description and the addresses in other languages come from book/translation/switch.py; the
pictures are drawn by book/sharing/cards.py.
"""

import html
import shutil
from pathlib import Path
from typing import Any

from babel.core import Locale, get_global
from docutils import nodes
from sphinx.application import Sphinx

from book.config import Addresses, addresses
from book.extensions import PARALLEL_SAFE
from book.languages import LANGUAGES, Language, language
from book.sharing.cards import CARDS, SIZE
from book.translation.switch import description

CARD = "_static/card.png"


def locale(spoken: Language) -> str:
    """A language with its country, as OpenGraph demands: vi is vi_VN."""
    found = Locale.parse(get_global("likely_subtags").get(spoken.code, spoken.code))
    return f"{found.language}_{found.territory}"


def properties(
    where: Addresses, pagename: str, spoken: Language, book: str, title: str, about: str
) -> list[tuple[str, str]]:
    """OpenGraph's properties of a page; Twitter reads them too."""
    return [
        ("og:type", "article"),
        ("og:site_name", book),
        ("og:title", title),
        ("og:description", about),
        ("og:url", where.page(pagename, spoken)),
        ("og:image", f"{where.site}/{spoken.path}{CARD}"),
        ("og:image:width", str(SIZE[0])),
        ("og:image:height", str(SIZE[1])),
        ("og:image:alt", book),
        ("og:locale", locale(spoken)),
        *(("og:locale:alternate", locale(each)) for each in LANGUAGES if each is not spoken),
    ]


def icons(context: dict[str, Any]) -> list[str]:
    """The drawing for browsers that can show it, pictures for the others."""
    static = {name: context["pathto"](f"_static/{name}", 1) for name in ("favicon.ico", "logo.svg")}
    return [
        f'<link rel="icon" href="{static["favicon.ico"]}" sizes="32x32">',
        f'<link rel="icon" href="{static["logo.svg"]}" type="image/svg+xml">',
        f'<link rel="apple-touch-icon" href="{context["pathto"]("_static/touch-icon.png", 1)}">',
    ]


def add_to_page(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Put the elements into the page's head."""
    tags = icons(context)
    if tree:
        where = addresses(app.srcdir)
        title = app.env.titles[pagename].astext()
        spoken, book = language(app.config.language), app.config.html_title
        tags += [
            f'<meta property="{name}" content="{html.escape(value)}">'
            for name, value in properties(where, pagename, spoken, book, title, description(tree))
        ]
        tags.append('<meta name="twitter:card" content="summary_large_image">')
    context["metatags"] = "\n".join([context.get("metatags", ""), *tags])


def add_card(app: Sphinx, exception: Exception | None) -> None:
    """Copy the card of the language, and only that one."""
    if not exception and app.builder.format == "html":
        card = CARDS / f"{language(app.config.language).folder}.png"
        shutil.copy(card, Path(app.outdir, CARD))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers."""
    app.connect("html-page-context", add_to_page)
    app.connect("build-finished", add_card)
    return PARALLEL_SAFE
