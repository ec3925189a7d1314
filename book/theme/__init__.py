"""Sphinx extension: how the pages look and behave. Each module here is one part of it."""

from __future__ import annotations

from sphinx.application import Sphinx

PARTS = (
    "accessibility",
    "pictures",
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the parts."""
    for part in PARTS:
        app.setup_extension(f"{__name__}.{part}")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
