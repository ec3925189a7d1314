"""What the Sphinx extensions of the book have in common: what `setup` returns, and their folders.

A folder of this package is an extension that sets up its modules. It brings its own templates and
static files along, which Sphinx finds wherever the book is. Nothing of Sphinx is imported here, so
that `book.execution.environment` and the like need none of it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

# What a `setup` returns to Sphinx: that it may read and write pages in several processes
PARALLEL_SAFE = {"parallel_read_safe": True, "parallel_write_safe": True}


def setup_of(package: str, folder: Path, *parts: str) -> Callable[[Any], dict[str, bool]]:
    """The `setup` of a package in `folder` whose modules `parts` are extensions, in that order."""

    def add_own_files(app: Any, config: Any) -> None:
        if (templates := folder / "templates").is_dir():
            config.templates_path.insert(0, str(templates))
        if (static := folder / "static").is_dir():
            config.html_static_path.append(str(static))

    def setup(app: Any) -> dict[str, bool]:
        """Register the parts."""
        app.connect("config-inited", add_own_files)
        for part in parts:
            app.setup_extension(f"{package}.{part}")
        return PARALLEL_SAFE

    return setup
