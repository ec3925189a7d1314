"""How the book is made: Sphinx extensions and commands (`python -m book.site`, `book.sync`)."""
