"""Sphinx extension: how the pages look and what they load. Each module here is one part of it."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

HERE = Path(__file__).parent
PARTS = (
    "accessibility",
    "assets",
    "contribute",
    "frameworks",
    "icons",
    "images",
    "licenses",
    "math",
    "permalinks",
    "pictures",
    "printing",
    "provenance",
    "sitemap",
    "social",
)


def add_own_files(app: Sphinx, config: Config) -> None:
    """Let Sphinx find the templates and the static files, wherever the book is."""
    config.templates_path.insert(0, str(HERE / "templates"))
    config.html_static_path.append(str(HERE / "static"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the parts."""
    app.connect("config-inited", add_own_files)
    for part in PARTS:
        app.setup_extension(f"{__name__}.{part}")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
