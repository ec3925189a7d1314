"""Sphinx extension: what stands around the text of a page, and where its buttons lead."""

from pathlib import Path

from book.extensions import setup_of

setup = setup_of(
    __name__,
    Path(__file__).parent,
    "buttons",
    "contribute",
    "executed_on",
    "frameworks",
    "licenses",
    "permalinks",
    "root_page",
)
