"""How a catalogue follows the English: what stays translated, turns stale or is missing."""

from pathlib import Path

import pytest
from docutils.utils import new_document
from polib import POEntry, POFile
from sphinx import addnodes
from sphinx.errors import ExtensionError

from book.languages import TRANSLATIONS
from book.translation import catalogues
from book.translation.catalogue_builder import translatable
from book.translation.catalogues import Source, state
from book.translation.merge import former_texts, merged

PT = TRANSLATIONS[0]
FIRST = "Split the batch and send each shard to its device."
SECOND = "Then sum the gradients of all replicas."
EDITED = "Then sum the gradients of all replicas, once a step."
OTHER = "An entirely different sentence about nothing in particular."


def catalogue() -> POFile:
    """A Portuguese catalogue of FIRST and SECOND, translated."""
    new = merged(catalogues.new_catalogue(PT), sources(FIRST, SECOND))
    new.find(FIRST).msgstr, new.find(SECOND).msgstr = "Divida o lote.", "Some os gradientes."
    return new


def sources(*texts: str) -> list[Source]:
    return [Source(text, "text") for text in texts]


def after(old: POFile, *texts: str, known: list[POEntry] | None = None) -> dict[str, POEntry]:
    """The messages of a catalogue after the English has become `texts`."""
    new = merged(old, sources(*texts), known or [])
    return {message.msgid: message for message in catalogues.messages(new)}


def test_what_did_not_change_stays_translated_in_the_order_of_the_page() -> None:
    new = after(catalogue(), SECOND, FIRST)
    assert [*new] == [SECOND, FIRST]
    assert {state(message) for message in new.values()} == {"translated"}


def test_a_changed_paragraph_is_stale_and_keeps_its_own_former_text() -> None:
    message = after(catalogue(), FIRST, EDITED)[EDITED]
    assert state(message) == "stale"
    assert message.previous_msgid == SECOND
    assert message.msgstr == "Some os gradientes."


def test_changed_twice_it_keeps_the_text_that_was_translated() -> None:
    once = merged(catalogue(), sources(FIRST, EDITED))
    message = after(once, FIRST, EDITED + " Always.")[EDITED + " Always."]
    assert message.previous_msgid == SECOND


def test_changed_back_it_is_translated_again() -> None:
    once = merged(catalogue(), sources(FIRST, EDITED))
    assert state(after(once, FIRST, SECOND)[SECOND]) == "translated"


def test_a_new_paragraph_is_missing() -> None:
    new = after(catalogue(), FIRST, OTHER, SECOND)
    assert state(new[OTHER]) == "missing"
    assert state(new[SECOND]) == "translated"


def test_an_unlike_paragraph_in_the_same_place_is_missing_not_stale() -> None:
    assert state(after(catalogue(), FIRST, OTHER)[OTHER]) == "missing"


def test_an_alike_paragraph_elsewhere_is_no_former_text() -> None:
    assert former_texts([FIRST, SECOND], [EDITED, FIRST, SECOND]) == {}


@pytest.mark.parametrize("changed", range(6))
def test_text_of_two_catalogues_that_takes_turns_turns_stale_where_it_changed(changed: int) -> None:
    texts = [f"Paragraph {name} says something that no other one says." for name in "ABCDEF"]
    own, shared = catalogues.new_catalogue(PT), catalogues.new_catalogue(PT)
    for i, text in enumerate(texts):
        (shared if i % 2 else own).append(POEntry(msgid=text, msgstr=f"Parágrafo {i}."))
    page = [text + " Always." if i == changed else text for i, text in enumerate(texts)]
    new = merged(own, sources(*page), shared=[shared])
    found = catalogues.messages(new)
    assert [message.msgstr for message in found] == [f"Parágrafo {i}." for i in range(6)]
    assert [i for i, message in enumerate(found) if state(message) == "stale"] == [changed]
    assert found[changed].previous_msgid == texts[changed]


def test_what_is_no_longer_the_pages_own_is_read_from_the_other_catalogue() -> None:
    own, shared = catalogues.new_catalogue(PT), catalogues.new_catalogue(PT)
    own.append(POEntry(msgid=FIRST, msgstr="Antigo.", obsolete=True))
    shared.append(POEntry(msgid=FIRST, msgstr="Novo."))
    (message,) = catalogues.messages(merged(own, sources(FIRST), shared=[shared]))
    assert message.msgstr == "Novo."


def test_a_guess_from_another_paragraph_counts_as_missing() -> None:
    old = merged(catalogue(), sources(FIRST, SECOND, EDITED))
    guess = old.find(EDITED)
    guess.msgstr, guess.previous_msgid = "Some os gradientes.", SECOND
    guess.flags.append("fuzzy")
    assert state(after(old, FIRST, SECOND, EDITED)[EDITED]) == "missing"


def test_a_fuzzy_message_without_a_former_text_is_missing() -> None:
    assert state(POEntry(msgid=FIRST, msgstr="Divida o lote.", flags=["fuzzy"])) == "missing"


def test_a_paragraph_that_moves_to_another_page_takes_its_translation_along() -> None:
    empty = catalogues.new_catalogue(PT)
    assert after(empty, SECOND, known=list(catalogue()))[SECOND].msgstr == "Some os gradientes."


def test_a_guess_and_a_draft_keep_their_text_for_the_translator() -> None:
    old = catalogue()
    old.find(SECOND).flags.append("fuzzy")
    old.find(SECOND).tcomment = "Is this the right verb?"
    message = after(old, FIRST, SECOND)[SECOND]
    assert (state(message), message.msgstr) == ("missing", "Some os gradientes.")
    assert message.tcomment == "Is this the right verb?"


def test_a_paragraph_that_is_removed_and_returns_is_translated_again() -> None:
    without = merged(catalogue(), sources(FIRST))
    assert [message.msgid for message in catalogues.messages(without)] == [FIRST]
    assert [message.msgid for message in catalogues.for_sphinx(without)] == [FIRST]
    assert after(without, FIRST, SECOND)[SECOND].msgstr == "Some os gradientes."


def test_a_file_that_is_no_catalogue_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "page.po"
    path.write_text('msgid "a"\nmsgstr "it "breaks" here"\n')
    with pytest.raises(ExtensionError, match=r"page\.po.*line 2"):
        catalogues.read(path, PT)


def test_a_catalogue_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "page.po"
    stale = merged(catalogue(), sources(FIRST, EDITED, "É {ref}`x` %s"))
    catalogues.write(path, stale)
    read = catalogues.read(path, PT)
    assert [(m.msgid, m.msgstr, state(m), m.previous_msgid) for m in read] == [
        (m.msgid, m.msgstr, state(m), m.previous_msgid) for m in stale
    ]
    before = path.read_bytes()
    catalogues.write(path, merged(read, sources(FIRST, EDITED, "É {ref}`x` %s")))
    assert path.read_bytes() == before


def test_a_part_of_the_book_without_a_title_has_no_message() -> None:
    """An empty message would take the place of the catalogue's header."""
    page = new_document("")
    page += addnodes.toctree(caption="", rawcaption="", entries=[], rawentries=[])
    assert [*translatable(page)] == []


def test_sphinx_gets_stale_translations_but_no_guesses() -> None:
    stale = merged(catalogue(), sources(FIRST, EDITED, OTHER))
    guess = stale.find(OTHER)
    guess.msgstr = "Um palpite."
    guess.flags.append("fuzzy")
    shown = catalogues.for_sphinx(stale)
    assert {message.msgid for message in shown} == {FIRST, EDITED}
    assert not any(message.fuzzy for message in shown)
