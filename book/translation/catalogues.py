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
from pathlib import Path
from typing import Literal

import polib
from polib import POEntry, POFile

from book.facts import ROOT, addresses
from book.translation.languages import Language

State = Literal["translated", "stale", "missing"]
WIDTH = 100  # columns of a catalogue
ALIKE = 0.4  # share of words that a paragraph and its former text have in common, at least


@dataclass(frozen=True)
class Source:
    """A piece of English text, and a word on what it is for the translator."""

    text: str
    note: str


def folder(root: Path, language: Language) -> Path:
    """Where the catalogues of a language are."""
    return root / "locales" / language.code / "LC_MESSAGES"


def read(path: Path, language: Language) -> POFile:
    """A catalogue; an empty one if there is no such file."""
    return polib.pofile(str(path), wrapwidth=WIDTH) if path.exists() else new_catalogue(language)


def write(path: Path, catalogue: POFile) -> None:
    """Write a catalogue, unless that would change nothing."""
    text = f"{catalogue}\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def new_catalogue(language: Language) -> POFile:
    """An empty catalogue with its header."""
    catalogue = POFile(wrapwidth=WIDTH)
    catalogue.header = f"{language.name}: CC BY-SA 4.0, like the text of the book."
    catalogue.metadata = {
        "Project-Id-Version": "d2l-mgpu",
        "Report-Msgid-Bugs-To": f"{addresses(ROOT / '_config.yml').repository}/issues",
        "PO-Revision-Date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}+0000",
        "Last-Translator": "the d2l-mgpu authors",
        "Language-Team": language.name,
        "Language": language.code,
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Transfer-Encoding": "8bit",
    }
    return catalogue


def state(message: POEntry) -> State:
    """Whether a message is translated, stale or missing."""
    if not message.msgstr:
        return "missing"
    if not message.fuzzy:
        return "translated"
    return "stale" if message.previous_msgid else "missing"


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


def merged(old: POFile, sources: Iterable[Source], known: Iterable[POEntry] = ()) -> POFile:
    """A catalogue for the present English texts that keeps what the old one knows.

    `known` are the messages of all catalogues of the language: a paragraph that moved to another
    page takes its translation along.
    """
    notes: dict[str, list[str]] = {}
    for source in sources:
        kinds = notes.setdefault(source.text, [])
        kinds += [source.note] if source.note not in kinds else []
    own = {message.msgid: message for message in old if state(message) != "missing"}
    elsewhere = {message.msgid: message for message in known if state(message) == "translated"}
    # Changed, and then changed back: the translation is current again.
    restored = {m.previous_msgid: m for m in own.values() if state(m) == "stale"}
    former = former_texts([message.msgid for message in old], [*notes])

    new = POFile(wrapwidth=WIDTH)
    new.header, new.metadata = old.header, old.metadata
    for text, kinds in notes.items():
        message = POEntry(msgid=text, comment="; ".join(kinds))
        found: POEntry | None
        if text in own and own[text].previous_msgid not in notes:
            found, stale = own[text], own[text].fuzzy
        elif found := restored.get(text) or elsewhere.get(text):
            stale = False
        else:
            found, stale = own.get(former.get(text, "")), True
        if found:
            message.msgstr = found.msgstr
        if found and stale:
            message.previous_msgid = found.previous_msgid or found.msgid
            message.flags.append("fuzzy")
        new.append(message)
    return new


def for_sphinx(catalogue: POFile) -> POFile:
    """What the pages show: also the stale translations, which originals.py marks."""
    shown = POFile(wrapwidth=WIDTH)
    shown.header, shown.metadata = catalogue.header, catalogue.metadata
    for message in catalogue:
        if state(message) != "missing":
            shown.append(POEntry(msgid=message.msgid, msgstr=message.msgstr))
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
    return {m.msgstr: m.msgid for path in paths for m in read(path, language)}
