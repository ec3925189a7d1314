"""Print the built site: one PDF a language, through Chromium, and look whether it came out well."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, cast

from playwright.sync_api import Browser
from pypdf import PdfReader, PdfWriter
from pypdf.generic import Destination, DictionaryObject, NameObject, TextStringObject

from book.theme import browser, unicode_maps
from book.theme.volume import Volume, file_name, volume
from book.translation.languages import LANGUAGES

LIMIT = 10_000_000  # bytes
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


def places(reader: PdfReader) -> dict[str, Destination]:
    """Where the document's ids are in a PDF."""
    return {name.removeprefix("/"): place for name, place in reader.named_destinations.items()}


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


def finished(printed: bytes, book: Volume) -> PdfWriter:
    """What Chromium printed, with an outline, the authors, and text that can be searched."""
    writer = PdfWriter(clone_from=BytesIO(printed))
    name_bookmarks(writer, [entry.title for entry in book.entries])
    unicode_maps.mend(writer)
    writer.add_metadata({"/Author": book.author})
    return writer


def links(reader: PdfReader) -> list[DictionaryObject]:
    """Every link of a PDF."""
    notes = [note.get_object() for page in reader.pages for note in page.annotations or []]
    return [note for note in notes if note["/Subtype"] == "/Link"]


def fonts(reader: PdfReader) -> list[DictionaryObject]:
    """Every font of a PDF; a composite one as the font that it is made of."""
    found = {}
    for page in reader.pages:
        for entry in cast(DictionaryObject, page["/Resources"]).get("/Font", {}).values():
            font = entry.get_object()
            found[entry.idnum] = font.get("/DescendantFonts", [font])[0].get_object()
    return list(found.values())


def is_embedded(font: DictionaryObject) -> bool:
    """Whether the font's shapes are in the file: in a Type 3 font they are drawings."""
    description = cast(DictionaryObject, font.get("/FontDescriptor", DictionaryObject()))
    return font["/Subtype"] == "/Type3" or any("/FontFile" in key for key in description)


def defects(path: Path, limit: int = LIMIT) -> list[str]:
    """What is wrong with a printed book; each line says one thing."""
    found = []
    if (size := path.stat().st_size) > limit:
        found.append(f"it has {size / 1e6:.1f} MB, more than {limit / 1e6:.1f}")
    reader = PdfReader(path)
    known = places(reader)
    for link in links(reader):
        name = str(link.get("/Dest", "")).removeprefix("/")
        address = str(link.get("/A", {}).get("/URI", ""))
        if name and name not in known:
            found.append(f"a link leads to #{name}, which is not there")
        if address.startswith("file:"):
            found.append(f"a link leads to {address}, a file of this machine")
    found += [
        f"{font.get('/BaseFont')} is not embedded"
        for font in fonts(reader)
        if not is_embedded(font)
    ]
    if not reader.outline:
        found.append("it has no outline")
    return found


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
            book = volume(root, spoken)
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
