"""How the book is made.

Commands: `python -m book.site` builds it, `book.serve` shows it while you write, `book.sync` keeps
the code in the chapters equal to the package, `book.outputs` and `book.portability` compare what
cells print with what is committed. `book.lock` writes down what `make` installs, `book.release`
sets the tag that notebooks install.

What all of it stands on: `config` (addresses, where the book is), `languages`, `files`, `browser`.
Neither these nor the commands, but for `site`, need Sphinx.

Each folder is a Sphinx extension, and its modules are the parts (`extensions`):

- `execution`: chapters are executed once, on what, and again when what they depend on changes
- `notebooks`: what was executed, as Jupyter notebooks
- `benchmark_results`: the table and the picture of the page Benchmarks
- `theme`: how pages look; `pages`: what stands around their text; `sharing`: how others show them
- `pdf`: the book on paper
- `translation`: the book in several languages
"""
