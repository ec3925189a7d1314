"""What tests of several rooms share. Importing this needs neither the book nor MXNet."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
