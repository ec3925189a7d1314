"""Sphinx extension: from a page to its source, its editor and a report about it, on GitHub.

The theme has such buttons, but a translated page is edited in its catalogue, and a report should
name the page in its language.
"""

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.locale import _

from book.config import Addresses, addresses
from book.extensions import PARALLEL_SAFE
from book.languages import ENGLISH, Language, language
from book.translation import catalogues


def source(pagename: str, spoken: Language) -> str:
    """The file in which a page is edited, relative to the repository root."""
    if spoken is ENGLISH:
        return f"{pagename}.md"
    return f"{catalogues.folder(Path(), spoken).as_posix()}/{pagename}.po"


def report_address(where: Addresses, pagename: str, spoken: Language) -> str:
    """GitHub's form for an issue, with the page's name in the title and its address below."""
    query = {"title": f"{pagename} ({spoken.tag}): ", "body": where.page(pagename, spoken)}
    return f"{where.repository}/issues/new?{urlencode(query)}"


def link(text: str, address: str, icon: str, label: str) -> dict[str, str]:
    """A button as the theme's templates take it."""
    return {"type": "link", "text": text, "url": address, "icon": icon, "label": label}


def add_buttons(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Put the group of buttons into the page's header."""
    where = addresses(app.srcdir)
    spoken = language(app.config.language)
    buttons = [link(_("Repository"), where.repository, "fab fa-github", "source-repository-button")]
    if tree:
        edit = f"{where.repository}/edit/{where.branch}/{source(pagename, spoken)}"
        report = report_address(where, pagename, spoken)
        buttons += [
            link(_("Edit this page"), edit, "fas fa-pencil-alt", "source-edit-button"),
            link(_("Report an issue"), report, "fas fa-lightbulb", "source-issues-button"),
        ]
    group = {
        "type": "group",
        "label": "source-buttons",
        "tooltip": _("Source of this page"),
        "icon": "fab fa-github",
        "buttons": buttons,
    }
    context["header_buttons"].append(group)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler; 502 is after the theme has made the list of buttons."""
    app.connect("html-page-context", add_buttons, priority=502)
    return PARALLEL_SAFE
