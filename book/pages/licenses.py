"""Sphinx extension: the licenses of what the site is shipped with, in one file of the site."""

from importlib.metadata import distribution
from pathlib import Path

from sphinx.application import Sphinx

from book.config import ROOT
from book.extensions import PARALLEL_SAFE

FILE = "_static/licenses.txt"
# The packages whose styles and scripts are copied into the site.
PACKAGES = (
    "sphinx",
    "sphinx-book-theme",
    "pydata-sphinx-theme",
    "myst-nb",
    "pygments",
    "sphinx-copybutton",
    "sphinx-design",
    "sphinx-togglebutton",
)


def texts(package: str) -> list[str]:
    """What an installed package says about its license, and about those of what it holds itself."""
    installed = distribution(package)
    files = [
        file
        for file in installed.files or ()
        if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING"))
        or file.name == "bootstrap.js.LICENSE.txt"
    ]
    name = f"{installed.name} {installed.version}"
    return [f"{name}: {file.name}\n\n{file.read_text().strip()}" for file in files]


def own() -> list[str]:
    """The licenses that lie beside files of the site that are not ours."""
    files = sorted((ROOT / "book").rglob("*LICENSE*"))
    return [f"{file.name}\n\n{file.read_text(encoding='utf-8').strip()}" for file in files]


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the file."""
    if exception or app.builder.format != "html":
        return
    found = [text for package in PACKAGES for text in texts(package)] + own()
    rule = f"\n\n{'=' * 79}\n\n"
    Path(app.outdir, FILE).write_text(rule.join(found) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler."""
    app.connect("build-finished", write)
    return PARALLEL_SAFE
