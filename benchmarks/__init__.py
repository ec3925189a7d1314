"""Measurements of what the book claims about speed; `make bench` runs them."""
