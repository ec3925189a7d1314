"""Sphinx extension: how the site looks and works. Each module here is one part of it."""

from __future__ import annotations

from sphinx.application import Sphinx

PARTS = ("printing",)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the parts."""
    for part in PARTS:
        app.setup_extension(f"{__name__}.{part}")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
