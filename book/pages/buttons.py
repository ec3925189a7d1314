"""Sphinx extension: the buttons that run a chapter, and download it as a notebook.

The theme's own buttons point at the chapters' Markdown, which Colab cannot open; these point at
the executed notebooks in the repository.
"""

import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.locale import _

from book.config import Addresses, addresses, notebook_path
from book.execution.environment import OWN_KERNEL
from book.extensions import PARALLEL_SAFE
from book.languages import language

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
    links = launch_links(addresses(app.srcdir), notebook)
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


def copy_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Put what the download buttons lead to into the site."""
    if exception or app.builder.format != "html":
        return
    folder = f"notebooks/{language(app.config.language).folder}"
    if (notebooks := Path(app.srcdir, folder)).is_dir():
        shutil.copytree(notebooks, Path(app.outdir, folder), dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers; 502 is after the theme has filled the list of buttons."""
    app.connect("html-page-context", add_buttons, priority=502)
    app.connect("build-finished", copy_notebooks)
    return PARALLEL_SAFE
