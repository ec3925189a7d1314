"""The translations: what is in a catalogue, how it follows the English, what Sphinx reads of it.

A message is *translated*, *stale* (its translation is of the paragraph's own former text, kept as
the previous msgid) or *missing*. gettext's tools know the last two only as "fuzzy", and may take a
fuzzy translation from another paragraph; here such a guess counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import SequenceMatcher
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Literal

from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import read_po, write_po

from book.translation.languages import Language

State = Literal["translated", "stale", "missing"]
ALIKE = 0.4  # share of words that a paragraph and its former text have in common, at least


@dataclass(frozen=True)
class Source:
    """A piece of English text, and a word on what it is for the translator."""

    text: str
    note: str


def folder(root: Path, language: Language) -> Path:
    """Where the catalogues of a language are."""
    return root / "locales" / language.code / "LC_MESSAGES"


def read(path: Path, language: Language) -> Catalog:
    """A catalogue; an empty one if there is no such file."""
    if not path.exists():
        return new_catalogue(language)
    with path.open("rb") as file:
        return read_po(file, locale=language.code, abort_invalid=True)


def write(path: Path, catalogue: Catalog) -> None:
    """Write a catalogue, unless that would change nothing."""
    text = BytesIO()
    write_po(text, catalogue, width=100, no_location=True, include_previous=True)
    if not path.exists() or path.read_bytes() != text.getvalue():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.getvalue())


def new_catalogue(language: Language) -> Catalog:
    """An empty catalogue with its header."""
    now = datetime.now(UTC)
    return Catalog(
        locale=language.code,
        header_comment=f"# {language.name}: CC BY-SA 4.0, like the text of the book.",
        project="d2l-mgpu",
        version="1",
        msgid_bugs_address="https://github.com/d2l-mgpu/d2l-mgpu/issues",
        creation_date=now,
        revision_date=now,
        last_translator="the d2l-mgpu authors",
        language_team=language.name,
        fuzzy=False,
    )


def messages(catalogue: Catalog) -> list[Message]:
    """The messages without the header, in the order of the page."""
    return [message for message in catalogue if message.id]


def state(message: Message) -> State:
    """Whether a message is translated, stale or missing."""
    if not message.string:
        return "missing"
    if not message.fuzzy:
        return "translated"
    return "stale" if message.previous_id else "missing"


def former_texts(old: Sequence[str], new: Sequence[str]) -> dict[str, str]:
    """For each changed paragraph, its own former text: alike, and at the same place of the page.

    Both pages are given as their texts in order. What stands between two unchanged paragraphs is
    compared, in order, with what stood there before.
    """
    found: dict[str, str] = {}
    changes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for kind, i, i_end, j, j_end in changes:
        if kind != "replace":
            continue
        candidates = [text for text in old[i:i_end] if text not in new]
        for text in new[j:j_end]:
            if text in old or not candidates:
                continue
            likeness = [
                SequenceMatcher(None, former.split(), text.split(), autojunk=False).ratio()
                for former in candidates
            ]
            best = max(likeness)
            if best >= ALIKE:
                found[text] = candidates[likeness.index(best)]
                del candidates[: likeness.index(best) + 1]
    return found


def merged(
    language: Language, old: Catalog, sources: Iterable[Source], known: Iterable[Message] = ()
) -> Catalog:
    """A catalogue for the present English texts that keeps what the old one knows.

    `known` are the messages of all catalogues of the language: a paragraph that moved to another
    page takes its translation along.
    """
    notes: dict[str, list[str]] = {}
    for source in sources:
        kinds = notes.setdefault(source.text, [])
        kinds += [source.note] if source.note not in kinds else []
    own = {str(message.id): message for message in messages(old) if state(message) != "missing"}
    elsewhere = {str(m.id): m for m in known if state(m) == "translated"}
    # Changed, and then changed back: the translation is current again.
    restored = {str(m.previous_id[0]): m for m in own.values() if state(m) == "stale"}
    former = former_texts([str(m.id) for m in messages(old)], [*notes])

    new = new_catalogue(language)
    new.header_comment, new.mime_headers = old.header_comment, old.mime_headers
    for text, kinds in notes.items():
        found: Message | None
        if text in own and not from_elsewhere(own[text], notes):
            found, stale = own[text], own[text].fuzzy
        elif found := restored.get(text) or elsewhere.get(text):
            stale = False
        else:
            found, stale = own.get(former.get(text, "")), True
        message = new.add(text, found.string if found else "", auto_comments=kinds)
        if found and stale:
            message.previous_id = found.previous_id or [str(found.id)]
            message.flags.add("fuzzy")
        # Babel takes {ref} for a placeholder of Python's format().
        message.flags -= {"python-format", "python-brace-format"}
    return new


def from_elsewhere(message: Message, present: Iterable[str]) -> bool:
    """Whether a fuzzy translation is a guess from another paragraph, one that is still there."""
    return message.fuzzy and bool(set(message.previous_id) & set(present))


def for_sphinx(language: Language, catalogue: Catalog) -> Catalog:
    """What the pages show: also the stale translations, which originals.py marks."""
    shown = new_catalogue(language)
    shown.header_comment, shown.mime_headers = catalogue.header_comment, catalogue.mime_headers
    for message in messages(catalogue):
        if state(message) != "missing":
            shown.add(message.id, message.string)
    return shown


def remove_others(root: Path, present: Iterable[str]) -> None:
    """Delete the catalogues of pages that are no more."""
    for path in root.glob("**/*.po"):
        if path.relative_to(root).with_suffix("").as_posix() not in present:
            path.unlink()


@cache
def english_texts(root: Path, language: Language) -> dict[str, str]:
    """Every translation of a language, and the English that it translates."""
    paths = folder(root, language).glob("chapters/*.po")
    return {str(m.string): str(m.id) for path in paths for m in messages(read(path, language))}
