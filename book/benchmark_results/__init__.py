"""Sphinx extension: the results of the benchmarks, as a table and a picture."""

from pathlib import Path

from book.extensions import setup_of

setup = setup_of(__name__, Path(__file__).parent, "directive")
