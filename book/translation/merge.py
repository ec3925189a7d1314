"""Merging: a catalogue follows the English text, and no translator's work is lost."""

from collections.abc import Iterable, Sequence
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
    notes: dict[str, list[str]] = {}
    for source in sources:
        kinds = notes.setdefault(source.text, [])
        kinds += [source.note] if source.note and source.note not in kinds else []
    pages = [messages(catalogue) for catalogue in (*shared, old)]
    current = [message for page in pages for message in page]
    own: dict[str, POEntry] = {
        message.msgid: message for message in [*old, *current] if message.msgstr
    }
    # Changed, and then changed back: the translation is current again.
    restored = {m.previous_msgid: m for m in own.values() if state(m) == "stale"}
    elsewhere = {message.msgid: message for message in known if state(message) == "translated"}
    former: dict[str, str] = {}
    for page in pages:  # texts of several catalogues take turns: each is compared with its own
        before = [message.msgid for message in page]
        former |= former_texts(
            before, [text for text in notes if text in before or text not in own]
        )

    new = POFile(wrapwidth=WIDTH)
    new.header, new.metadata = old.header, old.metadata
    for text, kinds in notes.items():
        found = own.get(text)
        guess = found is not None and found.previous_msgid in notes
        if found is None or guess:
            found = restored.get(text) or elsewhere.get(text) or found
        message = POEntry(msgid=text, comment="; ".join(kinds))
        if found is None and (found := own.get(former.get(text, ""))):
            message.previous_msgid = found.previous_msgid or found.msgid
            message.flags = ["fuzzy"]
        elif found and found.msgid == text and found.fuzzy:
            # A draft stays one; a guess from a paragraph that is still there becomes one.
            message.previous_msgid = None if guess else found.previous_msgid
            message.flags = ["fuzzy"]
        if found:
            message.msgstr, message.tcomment = found.msgstr, found.tcomment
        new.append(message)
    used = {*notes, *former.values(), *(text for text in restored if text in notes)}
    for message in own.values():
        if message.msgid not in used and message.previous_msgid not in notes:
            kept = POEntry(msgid=message.msgid, msgstr=message.msgstr, tcomment=message.tcomment)
            kept.flags, kept.previous_msgid = list(message.flags), message.previous_msgid
            kept.obsolete = True
            new.append(kept)
    return new
