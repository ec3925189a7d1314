"""The tiny book as somebody else publishes it, with a section on running it."""

from pathlib import Path

from book.config import addresses
from tests.support.tiny_book import copy_tiny_book, run_book

REPOSITORY, SITE = "https://github.com/someone/book", "https://example.org/deep/book"
RUN = """
(sec_how_to_run)=
## Run it

```console
$ make book
a line it prints
$ make test
```
"""


def readdress(config: Path) -> None:
    """Set repository and site in the one place where they are set."""
    ours = addresses(config.parent)
    text = config.read_text()
    text = text.replace(ours.repository, REPOSITORY).replace(ours.site, SITE)
    config.write_text(text)


def build_their_book(folder: Path) -> None:
    """Copy the tiny book to `folder`, change it, and build the site."""
    copy_tiny_book(folder)
    readdress(folder / "_config.yml")
    with (folder / "chapters/index.md").open("a") as index:
        index.write(RUN)
    result = run_book("html", folder, D2L_MGPU_SOURCE="generated")
    assert result.returncode == 0, result.stdout
