"""Look whether a printed book came out well: its links, its fonts, its outline, its size."""

from pathlib import Path
from typing import cast

from pypdf import PdfReader
from pypdf.generic import Destination, DictionaryObject

LIMIT = 10_000_000  # bytes


def places(reader: PdfReader) -> dict[str, Destination]:
    """Where the document's ids are in a PDF."""
    return {name.removeprefix("/"): place for name, place in reader.named_destinations.items()}


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
