"""Sphinx extension: who asks for the site, or for a language of it, is led to its first page."""

import html
from pathlib import Path

from sphinx.application import Sphinx

from book.extensions import PARALLEL_SAFE
from book.languages import language

ROOT_PAGE = """<!DOCTYPE html>
<html lang="{language}">
<meta charset="utf-8">
<title>{title}</title>
<link rel="canonical" href="{canonical}">
<meta http-equiv="refresh" content="0; url={start}">
<a href="{start}">{title}</a>
</html>
"""


def add_page(app: Sphinx, exception: Exception | None) -> None:
    """Write the page at the root of the site, or of the language."""
    if exception or app.builder.format != "html":
        return
    start = app.builder.get_target_uri(app.config.root_doc)
    page = ROOT_PAGE.format(
        language=language(app.config.language).tag,
        title=html.escape(app.config.html_title),
        start=start,
        canonical=f"{app.config.html_baseurl}{start}",
    )
    Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler."""
    app.connect("build-finished", add_page)
    return PARALLEL_SAFE
