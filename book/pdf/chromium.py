"""Print the built site: one PDF a language, through Chromium."""

import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, cast

from playwright.sync_api import Browser
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, TextStringObject

from book import browser
from book.languages import LANGUAGES
from book.pdf import unicode_maps
from book.pdf.defects import defects, places
from book.pdf.printable_book import PrintableBook, file_name, join_pages

SETTINGS: dict[str, Any] = {
    "outline": True,
    "tagged": True,
    "prefer_css_page_size": True,
    "print_background": True,
}
NUMBER_PAGES = """pages => {
    for (const place of document.querySelectorAll(".book-contents .page"))
        place.textContent = pages[place.dataset.target] ?? "";
}"""
NEEDED = "make pdf needs Chromium or Chrome, for example: apt install chromium fonts-noto-cjk"


def find_browser() -> str:
    """The browser that prints; SystemExit says what to install where there is none."""
    if program := browser.program():
        return program
    raise SystemExit(NEEDED)


def print_document(running: Browser, document: Path) -> bytes:
    """Print an HTML file, twice: the first time says on which pages the sections are."""
    page = running.new_page()
    page.goto(document.as_uri(), wait_until="load")
    page.evaluate("document.fonts.ready")
    first = PdfReader(BytesIO(page.pdf(**SETTINGS)))
    numbers = {
        name: (first.get_destination_page_number(place) or 0) + 1
        for name, place in places(first).items()
    }
    page.evaluate(NUMBER_PAGES, numbers)
    printed = page.pdf(**SETTINGS)
    page.close()
    return printed


def bookmarks(item: DictionaryObject) -> Iterator[DictionaryObject]:
    """The entries of an outline below one, in the order of the text."""
    below = item.get("/First")
    while below is not None:
        entry = below.get_object()
        yield entry
        yield from bookmarks(entry)
        below = entry.get("/Next")


def name_bookmarks(writer: PdfWriter, titles: list[str]) -> None:
    """Give the bookmarks their titles; Chromium doubles one that is pushed to a new page."""
    outline = cast(DictionaryObject, writer.root_object["/Outlines"])
    for entry, title in zip(bookmarks(outline), titles, strict=True):
        entry[NameObject("/Title")] = TextStringObject(title)
    writer.page_mode = "/UseOutlines"


def finished(printed: bytes, book: PrintableBook) -> PdfWriter:
    """What Chromium printed, with an outline, the authors, and text that can be searched."""
    writer = PdfWriter(clone_from=BytesIO(printed))
    name_bookmarks(writer, [entry.title for entry in book.entries])
    unicode_maps.repair(writer)
    writer.add_metadata({"/Author": book.author})
    return writer


def write(root: Path) -> bool:
    """Print every language into `_build/pdf` and the site; say whether the site had none before.

    Raises SystemExit when something is wrong with a PDF.
    """
    program = find_browser()
    folder = root / "_build" / "pdf"
    folder.mkdir(parents=True, exist_ok=True)
    new = False
    with browser.running(program) as running:
        for spoken in LANGUAGES:
            book = join_pages(root, spoken)
            target = folder / file_name(root, spoken)
            document = target.with_suffix(".html")
            document.write_text(book.html, encoding="utf-8")
            finished(print_document(running, document), book).write(target)
            if found := [*book.broken, *defects(target)]:
                raise SystemExit("\n".join(f"{target.name}: {defect}" for defect in found))
            pages, size = len(PdfReader(target).pages), target.stat().st_size / 1e6
            print(f"{target.name}: {pages} pages, {size:.1f} MB", flush=True)
            published = root / "_build" / "html" / spoken.path / target.name
            new |= not published.exists()
            shutil.copy(target, published)
    return new
