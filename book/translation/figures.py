"""Figures in the languages of the book: one drawing, whose words come from a catalogue."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from book.translation.catalogues import Source

FOLDER = "_build/figures"  # the drawings go into notebooks/ under the same names
SVG = "{http://www.w3.org/2000/svg}"
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
UNTRANSLATED = {"badge", "big", "code", "huge", "num", "val"}  # classes of code and of numbers
ElementTree.register_namespace("", SVG.strip("{}"))


def words(drawing: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The elements of a drawing that hold words: its title, its description, its labels."""
    for element in drawing.iter():
        is_label = element.tag == f"{SVG}text"
        classes = set(element.get("class", "").split())
        if (is_label and not classes & UNTRANSLATED) or element.tag in {
            f"{SVG}title",
            f"{SVG}desc",
        }:
            yield element


def sources(folder: Path) -> list[Source]:
    """The words of all drawings in a folder."""
    return [
        Source(element.text or "", f"{path.name}: {element.tag.removeprefix(SVG)}")
        for path in sorted(folder.glob("*.svg"))
        for element in words(ElementTree.parse(path).getroot())
    ]


def translated(path: Path, tag: str, messages: dict[str, str]) -> str:
    """A drawing with its words in another language; English where a word has no translation."""
    drawing = ElementTree.parse(path).getroot()
    for element in words(drawing):
        element.text = messages.get(element.text or "", element.text)
    drawing.set(XML_LANG, tag)
    return ElementTree.tostring(drawing, encoding="unicode") + "\n"
