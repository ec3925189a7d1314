"""Sphinx extension: pages that print like pages of a book, and the way to the book as a PDF."""

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.locale import _

from book.extensions import PARALLEL_SAFE
from book.languages import language
from book.pdf.printable_book import file_name


def prepare(app: Sphinx, config: Config) -> None:
    """Add the style and the script; note whether `make pdf` has put a PDF into the site."""
    # After the theme's and everybody's: paper has the last word.
    app.add_css_file("print.css", priority=900)
    app.add_js_file("print.js")
    name = file_name(Path(app.srcdir), language(config.language))
    config["pdf_of_the_book"] = name if Path(app.outdir, name).exists() else ""


def add_button(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Put a link to the PDF into the page's header, if there is a PDF."""
    if name := app.config.pdf_of_the_book:
        context.setdefault("header_buttons", []).append(
            {
                "type": "link",
                "label": "download-book-button",
                "tooltip": _("Download the book as a PDF"),
                "icon": "fas fa-file-pdf",
                "url": context["pathto"](name, 1),
            }
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers; as a setting of the pages, a new PDF has them written again."""
    app.add_config_value("pdf_of_the_book", "", "html", [str])
    app.connect("config-inited", prepare)
    app.connect("html-page-context", add_button, priority=503)
    return PARALLEL_SAFE
