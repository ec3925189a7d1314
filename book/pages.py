"""Sphinx extension for the HTML pages: launch buttons, downloadable notebooks, the root page.

The theme's own buttons point at the chapters' Markdown, which Colab cannot open; these point at
the executed notebooks in the repository.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from book.facts import Addresses, addresses

ROOT_PAGE = """<!DOCTYPE html>
<html lang="{language}">
<meta charset="utf-8">
<title>{title}</title>
<link rel="canonical" href="{canonical}">
<meta http-equiv="refresh" content="0; url={start}">
<a href="{start}">{title}</a>
</html>
"""


def notebook_path(docname: str) -> str:
    """The committed notebook of a chapter, relative to the repository root."""
    return f"notebooks/en/{docname.rpartition('/')[2]}.ipynb"


def launch_links(where: Addresses, docname: str) -> dict[str, str]:
    """Service to address for the services that open a notebook from GitHub."""
    blob = f"github/{where.name}/blob/{where.branch}/{notebook_path(docname)}"
    return {
        "Colab": f"https://colab.research.google.com/{blob}",
        "SageMaker Studio Lab": f"https://studiolab.sagemaker.aws/import/{blob}",
    }


def add_buttons(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Put the launch and download buttons first in the page's header."""
    if not tree or "kernelspec" not in app.env.metadata[pagename]:
        return
    links = launch_links(addresses(Path(app.srcdir, "_config.yml")), pagename)
    icons = {"Colab": "_static/images/logo_colab.png", "SageMaker Studio Lab": "fas fa-flask"}
    launch = [
        {
            "type": "link",
            "text": name,
            "url": url,
            "icon": icons[name],
            "tooltip": f"Open in {name}",
        }
        for name, url in links.items()
    ]
    context["header_buttons"][:0] = [
        {
            "type": "group",
            "label": "launch-buttons",
            "tooltip": "Run this chapter",
            "icon": "fas fa-rocket",
            "buttons": launch,
        },
        {
            "type": "link",
            "label": "download-notebook-button",
            "tooltip": "Download this chapter as a notebook",
            "icon": "fas fa-download",
            "url": context["pathto"](notebook_path(pagename), 1),
        },
    ]


def add_files(app: Sphinx, exception: Exception | None) -> None:
    """Copy the notebooks into the site; lead from its root to the first page."""
    if exception or app.builder.format != "html":
        return
    if (notebooks := Path(app.srcdir, "notebooks")).is_dir():
        shutil.copytree(notebooks, Path(app.outdir, "notebooks"), dirs_exist_ok=True)
    start = app.builder.get_target_uri(app.config.root_doc)
    page = ROOT_PAGE.format(
        language=app.config.language,
        title=app.config.html_title,
        start=start,
        canonical=f"{app.config.html_baseurl}{start}",
    )
    Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers; 502 is after the theme has filled the list of buttons."""
    app.connect("html-page-context", add_buttons, priority=502)
    app.connect("build-finished", add_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
