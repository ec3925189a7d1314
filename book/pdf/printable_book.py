"""One HTML document that holds a whole language of the built site, in order, to be printed.

The pages are joined as they were built. Sphinx's own `singlehtml` would render all of them again,
and it keeps ids that several pages have: `#references` and most citations led to a wrong page.
"""

import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import yaml
from bs4 import BeautifulSoup, Tag
from docutils.nodes import make_id
from jinja2 import Environment, FileSystemLoader
from sphinx_external_toc.parsing import parse_toc_yaml

from book.config import ROOT, addresses
from book.languages import Language
from book.translation.catalogues import words

TEMPLATES = Path(__file__).parent / "templates"
FOR_THE_SCREEN = "a.headerlink, button, script, details:not(.original) > summary"
# Words of code in the color of the rest: thousands of elements that a tagged PDF would describe.
PLAIN = ".highlight :is(.n, .nn, .nx, .p, .w)"


@dataclass(frozen=True)
class Entry:
    """A line of the table of contents."""

    level: int
    target: str
    title: str


@dataclass(frozen=True)
class PrintableBook:
    """The document of a language, and what its PDF needs to know."""

    html: str
    author: str
    entries: list[Entry]
    broken: list[str]  # what is wrong with its links


@dataclass(frozen=True)
class Site:
    """The built pages of one language: where they lie and where they are published."""

    folder: str  # a file:// address, like everything that the browser loads
    published: str
    pages: dict[str, str]  # address to what its ids begin with in the document

    def redirect(self, page: str, link: str, shown: bool) -> str:
        """The address in the document of what a page links to; `shown` is an image or the like."""
        address, name = urldefrag(urljoin(page, link))
        if prefix := self.pages.get(address):
            return f"#{prefix}.{name}" if name else f"#{prefix}"
        if not shown and address.startswith(self.folder):
            address = self.published + address.removeprefix(self.folder)
        return f"{address}#{name}" if name else address


def id_prefix(docname: str) -> str:
    """What the ids of a page begin with in the document: chapters/gluon/data gives gluon.data."""
    return ".".join(docname.split("/")[1:])


def chapter(site: Site, page: str, html: str) -> Tag:
    """The article of a page with its boxes opened, and ids that no other page has."""
    prefix = site.pages[page]
    article = BeautifulSoup(html, "html.parser").select_one("article")
    if article is None:
        raise ValueError(f"{page} has no <article>")
    for tag in article.select(FOR_THE_SCREEN):
        tag.decompose()
    for details in article.select("details:not(.original)"):
        details.name = "div"
    for tag in article.select(PLAIN):
        tag.unwrap()
    for tag in article.find_all(id=True):
        if not tag.find_parent("svg"):  # a drawing refers to its ids in ways of its own
            tag["id"] = f"{prefix}.{tag['id']}"
    for attribute in ("href", "src"):
        for tag in article.select(f"[{attribute}]"):
            if not tag.find_parent("svg"):
                tag[attribute] = site.redirect(page, str(tag[attribute]), tag.name != "a")
    for image in article.select("[loading=lazy]"):
        del image["loading"]  # what is not loaded is not printed
    article["id"] = prefix
    return article


def contents(chapters: list[Tag]) -> list[Entry]:
    """The titles of the chapters, of their sections and of what these are divided into."""
    return [
        Entry(int(title.name[1]), str(title.parent["id"]), title.get_text().strip())
        for article in chapters
        for title in article.select(":is(h1, h2, h3, h4, h5, h6)")
        if title.parent
    ]


def broken_links(chapters: list[Tag]) -> list[str]:
    """Links within the document to what it does not have, which a PDF would leave out."""
    known = {
        str(tag["id"]) for article in chapters for tag in [article, *article.find_all(id=True)]
    }
    found = [str(link["href"]) for article in chapters for link in article.select("a[href^='#']")]
    return [
        f"a link leads to {name}, which is not there" for name in found if name[1:] not in known
    ]


def stylesheets(site: Site, texts: dict[str, str]) -> list[str]:
    """The addresses of the stylesheets that the pages use, each once, ours for paper last."""
    found = [
        site.redirect(page, str(link["href"]), True)
        for page, html in texts.items()
        for link in BeautifulSoup(html, "html.parser").select("head link[rel=stylesheet][href]")
    ]
    return sorted(dict.fromkeys(found), key=lambda address: "/print.css" in address)


def metadata(root: Path) -> tuple[str, str, str]:
    """The title, the authors and the version of the book."""
    settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return settings["title"], settings["author"], project["version"]


def file_name(root: Path, spoken: Language) -> str:
    """What a language's PDF is called: training-on-multiple-gpus-en.pdf."""
    return f"{make_id(metadata(root)[0])}-{spoken.folder}.pdf"


def join_pages(root: Path, spoken: Language) -> PrintableBook:
    """The document of one language, made of the site in `_build/html`."""
    folder = root / "_build" / "html" / spoken.path
    docnames = list(parse_toc_yaml(root / "_toc.yml"))
    paths = {name: (folder / f"{name}.html").resolve() for name in docnames}
    if missing := [str(path) for path in paths.values() if not path.exists()]:
        raise SystemExit(f"{missing[0]} is missing. Type: make book")
    site = Site(
        folder=folder.resolve().as_uri() + "/",
        published=f"{addresses(root).site}/{spoken.path}",
        pages={path.as_uri(): id_prefix(name) for name, path in paths.items()},
    )
    texts = {path.as_uri(): path.read_text(encoding="utf-8") for path in paths.values()}
    chapters = [chapter(site, page, html) for page, html in texts.items()]
    known = words(root, spoken, "interface") | words(root, spoken, docnames[0])
    title, author, version = metadata(root)
    entries = contents(chapters)
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True)
    html = environment.get_template("printable_book.html").render(
        _=lambda text: known.get(text, text),
        spoken=spoken,
        title=title,
        author=author,
        version=version,
        date=datetime.now(UTC).date().isoformat(),
        address=site.published,
        logo=f"{site.folder}_static/logo.svg",
        stylesheets=stylesheets(site, texts),
        entries=[entry for entry in entries if entry.level < 3],
        chapters=[str(article) for article in chapters],
    )
    return PrintableBook(html, known.get(author, author), entries, broken_links(chapters))
