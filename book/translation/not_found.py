"""Sphinx extension: the page that the server shows for a wrong address, in every language.

There is one for the whole site, and the address it is shown at may be anything. So its links are
absolute, its style is its own, and a script picks the language of the address, if it has one.
"""

import html
from pathlib import Path

from sphinx.application import Sphinx

from book.config import addresses
from book.extensions import PARALLEL_SAFE
from book.languages import ENGLISH, LANGUAGES, language
from book.translation.catalogues import words
from book.translation.interface import NOT_FOUND

PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>404</title>
<style>
body {{ max-width: 40rem; margin: 4rem auto; padding: 0 1rem; }}
body {{ font: 1.1rem/1.6 system-ui, sans-serif; }}
:root {{ color-scheme: light dark; color: CanvasText; background: Canvas; }}
</style>
<main>
{sections}
</main>
<script>
const spoken = location.pathname.split("/").find((part) => document.getElementById(part));
for (const section of document.querySelectorAll("section")) {{
  section.hidden = spoken !== undefined && section.id !== spoken;
}}
</script>
</html>
"""
SECTION = """<section id="{folder}" lang="{tag}">
<h1>{title}</h1>
<p>{text} <a href="{start}">{book}</a></p>
</section>"""


def page(root: Path, root_doc: str, book: str) -> str:
    """The page with a section for each language."""
    sections = []
    for each in LANGUAGES:
        known = words(root, each, "interface")
        title, text = (html.escape(known.get(message, message)) for message in NOT_FOUND)
        names = words(root, each, root_doc)
        sections.append(
            SECTION.format(
                folder=each.folder,
                tag=each.tag,
                title=title,
                text=text,
                start=addresses(root).page(root_doc, each),
                book=html.escape(names.get(book, book)),
            )
        )
    return PAGE.format(sections="\n".join(sections))


def add_page(app: Sphinx, exception: Exception | None) -> None:
    """Write the page at the root of the site, with the English pages."""
    spoken = language(app.config.language)
    if exception or app.builder.format != "html" or spoken is not ENGLISH:
        return
    text = page(Path(app.srcdir), app.config.root_doc, app.config.html_title)
    Path(app.outdir, "404.html").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler."""
    app.connect("build-finished", add_page)
    return PARALLEL_SAFE
