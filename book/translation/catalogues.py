"""The translations: what is in a catalogue, how it follows the English, what Sphinx reads of it.

A message is *translated*, *stale* (its translation is of the paragraph's own former text, kept as
the previous msgid) or *missing*. gettext's tools know the last two only as "fuzzy", and may take a
fuzzy translation from another paragraph; here such a guess counts as missing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import polib
from polib import POEntry, POFile
from sphinx.errors import ExtensionError

from book.files import write_if_changed
from book.languages import Language

State = Literal["translated", "stale", "missing"]
LOCALES = "_build/locales"  # the catalogues as Sphinx reads them
WIDTH = 100  # columns of a catalogue
# How a list, a heading or a quotation begins.
LIST = re.compile(r"^(\d*)(?=[.)]\s|(?<!\d)[-+#>*]\s)")


@dataclass(frozen=True)
class Source:
    """A piece of English text, and a word on what it is for the translator."""

    text: str
    note: str


def folder(root: Path, language: Language) -> Path:
    """Where the catalogues of a language are."""
    return root / "locales" / language.code / "LC_MESSAGES"


def read(path: Path, language: Language) -> POFile:
    """A catalogue; an empty one if there is no such file.

    Raises ExtensionError, with the line, when it is no catalogue.
    """
    if not path.exists():
        return new_catalogue(language)
    try:
        return polib.pofile(str(path), wrapwidth=WIDTH)
    except (OSError, UnicodeDecodeError) as error:
        raise ExtensionError(f"{path} is no readable catalogue: {error}") from error


def write(path: Path, catalogue: POFile) -> None:
    """Write a catalogue, unless that would change nothing."""
    write_if_changed(path, f"{catalogue}\n")


def new_catalogue(language: Language) -> POFile:
    """An empty catalogue with its header."""
    catalogue = POFile(wrapwidth=WIDTH)
    catalogue.header = f"{language.name}: CC BY-SA 4.0, like the text of the book."
    catalogue.metadata = {
        "Project-Id-Version": "d2l-mgpu",
        "PO-Revision-Date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}+0000",
        "Last-Translator": "the d2l-mgpu authors",
        "Language-Team": language.name,
        "Language": language.code,
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Transfer-Encoding": "8bit",
    }
    return catalogue


def messages(catalogue: POFile) -> list[POEntry]:
    """What the page says now: not the obsolete messages, which wait for their text to return."""
    return [message for message in catalogue if not message.obsolete]


def state(message: POEntry) -> State:
    """Whether a message is translated, stale or missing."""
    if not message.msgstr:
        return "missing"
    if not message.fuzzy:
        return "translated"
    return "stale" if message.previous_msgid else "missing"


def for_sphinx(catalogue: POFile) -> POFile:
    """What the pages show: also the stale translations, which originals.py marks.

    A title such as "14. A package" must not be taken for a list, which Sphinx would ignore.
    """
    shown = POFile(wrapwidth=WIDTH)
    shown.header, shown.metadata = catalogue.header, catalogue.metadata
    for message in messages(catalogue):
        if state(message) != "missing":
            text = LIST.sub(r"\1\\", message.msgstr)
            shown.append(POEntry(msgid=message.msgid, msgstr=text))
    return shown


def words(root: Path, spoken: Language, name: str) -> dict[str, str]:
    """The translations in one catalogue that may be shown, by their English; none for English."""
    catalogue = read(folder(root, spoken) / f"{name}.po", spoken)
    return {message.msgid: message.msgstr for message in for_sphinx(catalogue)}


def remove_others(root: Path, present: Iterable[str]) -> None:
    """Delete the catalogues of pages that are no more."""
    for path in root.glob("**/*.po"):
        if path.relative_to(root).with_suffix("").as_posix() not in present:
            path.unlink()
