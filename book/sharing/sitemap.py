"""Sphinx extension: sitemap.xml, which names every page in every language, and robots.txt.

All languages have the same pages, so the English build knows them all.
"""

import html
from collections.abc import Iterable
from pathlib import Path

from sphinx.application import Sphinx

from book.config import Addresses, addresses
from book.extensions import PARALLEL_SAFE
from book.languages import ENGLISH, LANGUAGES, language

SITEMAP = """<?xml version="1.0" encoding="utf-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
        xmlns:xhtml="http://www.w3.org/1999/xhtml">
{entries}
</urlset>
"""
ENTRY = "<url><loc>{address}</loc>{alternates}</url>"
ALTERNATE = '<xhtml:link rel="alternate" hreflang="{tag}" href="{address}"/>'


def sitemap(where: Addresses, pages: Iterable[str]) -> str:
    """The text of sitemap.xml."""
    entries = []
    for page in sorted(pages):
        found = {tag: html.escape(address) for tag, address in where.alternates(page)}
        links = "".join(ALTERNATE.format(tag=tag, address=found[tag]) for tag in found)
        entries += [ENTRY.format(address=found[e.tag], alternates=links) for e in LANGUAGES]
    return SITEMAP.format(entries="\n".join(entries))


def add_files(app: Sphinx, exception: Exception | None) -> None:
    """Write both at the root of the site, with the English pages."""
    spoken = language(app.config.language)
    if exception or app.builder.format != "html" or spoken is not ENGLISH:
        return
    where = addresses(app.srcdir)
    out = Path(app.outdir)
    (out / "sitemap.xml").write_text(sitemap(where, app.env.all_docs), encoding="utf-8")
    robots = f"User-agent: *\nAllow: /\nSitemap: {where.site}/sitemap.xml\n"
    (out / "robots.txt").write_text(robots, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler."""
    app.connect("build-finished", add_files)
    return PARALLEL_SAFE
