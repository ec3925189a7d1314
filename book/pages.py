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
from sphinx.locale import _

from book.execution import OWN_KERNEL
from book.facts import Addresses, addresses, notebook_path
from book.translation.languages import language

ROOT_PAGE = """<!DOCTYPE html>
<html lang="{language}">
<meta charset="utf-8">
<title>{title}</title>
<link rel="canonical" href="{canonical}">
<meta http-equiv="refresh" content="0; url={start}">
<a href="{start}">{title}</a>
</html>
"""
RUN_LOCALLY = "sec_how_to_run"


def launch_links(where: Addresses, notebook: str) -> dict[str, str]:
    """Service to address for the services that open a notebook from GitHub."""
    blob = f"github/{where.name}/blob/{where.branch}/{notebook}"
    return {
        "Colab": f"https://colab.research.google.com/{blob}",
        "SageMaker Studio Lab": f"https://studiolab.sagemaker.aws/import/{blob}",
    }


def local_link(app: Sphinx, pagename: str) -> list[dict[str, str]]:
    """The button that leads to the section on running the book, if the book has one."""
    labels = app.env.get_domain("std").anonlabels  # type: ignore[attr-defined]
    docname, section = labels.get(RUN_LOCALLY, ("", ""))
    if not docname:
        return []
    page = app.builder.get_relative_uri(pagename, docname)
    return [
        {
            "type": "link",
            "text": _("Run locally"),
            "url": f"{page}#{section}",
            "icon": "fas fa-laptop",
            "tooltip": _("How to run the book on your machine"),
        }
    ]


def add_buttons(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Put the launch and download buttons first in the page's header."""
    spec = app.env.metadata[pagename].get("kernelspec") if tree else None
    if not spec:
        return
    notebook = notebook_path(pagename, language(app.config.language))
    links = launch_links(addresses(Path(app.srcdir, "_config.yml")), notebook)
    if spec["name"] != OWN_KERNEL:  # which nobody else has
        links = {}
    icons = {"Colab": "_static/images/logo_colab.png", "SageMaker Studio Lab": "fas fa-flask"}
    launch = [
        {
            "type": "link",
            "text": name,
            "url": url,
            "icon": icons[name],
            "tooltip": _("Open in {service}").format(service=name),
        }
        for name, url in links.items()
    ]
    context["header_buttons"][:0] = [
        {
            "type": "group",
            "label": "launch-buttons",
            "tooltip": _("Run this chapter"),
            "icon": "fas fa-rocket",
            "buttons": launch + local_link(app, pagename),
        },
        {
            "type": "link",
            "label": "download-notebook-button",
            "tooltip": _("Download this chapter as a notebook"),
            "icon": "fas fa-download",
            "url": context["pathto"](notebook, 1),
        },
    ]


def add_files(app: Sphinx, exception: Exception | None) -> None:
    """Copy the notebooks into the site; lead from its root to the first page."""
    if exception or app.builder.format != "html":
        return
    folder = f"notebooks/{language(app.config.language).folder}"
    if (notebooks := Path(app.srcdir, folder)).is_dir():
        shutil.copytree(notebooks, Path(app.outdir, folder), dirs_exist_ok=True)
    start = app.builder.get_target_uri(app.config.root_doc)
    page = ROOT_PAGE.format(
        language=language(app.config.language).tag,
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
