"""Merging: a catalogue follows the English text, and no translator's work is lost."""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from polib import POEntry, POFile

from book.translation.catalogues import WIDTH, Source, messages, state

ALIKE = 0.4  # share of words that a paragraph and its former text have in common, at least


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


def changed_texts(
    pages: Sequence[POFile], texts: Collection[str], own: Container[str]
) -> dict[str, str]:
    """For each changed paragraph of a page, its former text in one of the catalogues.

    Texts of several catalogues take turns on the page: each is compared with its own.
    """
    found: dict[str, str] = {}
    for page in pages:
        before = [message.msgid for message in messages(page)]
        after = [text for text in texts if text in before or text not in own]
        found |= former_texts(before, after)
    return found


@dataclass(frozen=True)
class Memory:
    """The messages with a translation that a page can take up, by their English."""

    own: dict[str, POEntry]  # in the catalogues whose text the page has or had
    former: dict[str, POEntry]  # the stale ones of those, by the text that was translated
    elsewhere: dict[str, POEntry]  # on any page, translated

    def of(self, text: str, texts: Container[str]) -> POEntry | None:
        """The message whose translation is of this text, on a page with these texts.

        One that was changed, and then changed back, is translated again. A guess from another
        paragraph of the page is the last choice.
        """
        own = self.own.get(text)
        if own and own.previous_msgid not in texts:
            return own
        return self.former.get(text) or self.elsewhere.get(text) or own


def restored(
    text: str, found: POEntry | None, former: POEntry | None, texts: Container[str]
) -> POEntry:
    """A message for a text of the page with its own translation, or that of its former text.

    A draft stays one; a guess from a paragraph that is still on the page becomes one.
    """
    message = POEntry(msgid=text)
    if found is None and former:
        message.previous_msgid = former.previous_msgid or former.msgid
        message.flags = ["fuzzy"]
    elif found and found.msgid == text and found.fuzzy:
        message.previous_msgid = None if found.previous_msgid in texts else found.previous_msgid
        message.flags = ["fuzzy"]
    if source := found or former:
        message.msgstr, message.tcomment = source.msgstr, source.tcomment
    return message


def obsolete(message: POEntry) -> POEntry:
    """A message whose English is gone, as it is kept in case that it returns."""
    return POEntry(
        msgid=message.msgid,
        msgstr=message.msgstr,
        tcomment=message.tcomment,
        flags=list(message.flags),
        previous_msgid=message.previous_msgid,
        obsolete=True,
    )


def notes_on(sources: Iterable[Source]) -> dict[str, str]:
    """The texts of a page in order, each once, with what the translator is told about it."""
    found: dict[str, list[str]] = {}
    for source in sources:
        notes = found.setdefault(source.text, [])
        notes += [source.note] if source.note and source.note not in notes else []
    return {text: "; ".join(notes) for text, notes in found.items()}


def merged(
    old: POFile,
    sources: Iterable[Source],
    known: Iterable[POEntry] = (),
    shared: Sequence[POFile] = (),
) -> POFile:
    """A catalogue for the present English texts that keeps what the old one knows.

    `known` are the messages of all catalogues of the language: a paragraph that moved to another
    page takes its translation along. A translation whose English is gone becomes obsolete.
    `shared` are catalogues of other pages of whose text a part stands on this one, too.
    """
    notes, pages = notes_on(sources), [*shared, old]
    current = [message for page in pages for message in messages(page)]
    own = {message.msgid: message for message in [*old, *current] if message.msgstr}
    memory = Memory(
        own=own,
        former={m.previous_msgid: m for m in own.values() if state(m) == "stale"},
        elsewhere={message.msgid: message for message in known if state(message) == "translated"},
    )
    former = changed_texts(pages, notes, own)

    new = POFile(wrapwidth=WIDTH)
    new.header, new.metadata = old.header, old.metadata
    for text, note in notes.items():
        message = restored(text, memory.of(text, notes), own.get(former.get(text, "")), notes)
        message.comment = note
        new.append(message)
    for message in own.values():
        gone = message.msgid not in notes and message.msgid not in former.values()
        if gone and message.previous_msgid not in notes:
            new.append(obsolete(message))
    return new
