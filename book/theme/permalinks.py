"""Sphinx extension: links to headings, figures, tables and equations; code copied as typed."""

from __future__ import annotations

from sphinx.application import Sphinx
from sphinx.config import Config

PROMPT = r">>> |\.\.\. |\$ "


def copy_what_is_typed(app: Sphinx, config: Config) -> None:
    """Let the copy buttons leave out prompts and, where there are prompts, what was printed."""
    config["copybutton_prompt_text"] = PROMPT
    config["copybutton_prompt_is_regexp"] = True


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler and add the style that shows permalinks to the keyboard too."""
    app.connect("config-inited", copy_what_is_typed)
    app.add_css_file("permalinks.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
