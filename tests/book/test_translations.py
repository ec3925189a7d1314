"""The committed translations: complete, current, and true to what they translate."""

import re
import shutil
from pathlib import Path

import pytest
from polib import POEntry
from sphinx.errors import ExtensionError

from book.languages import TRANSLATIONS, Language, language
from book.translation import catalogues, checks, interface, settings
from book.translation.checks import problems
from tests.support import ROOT
from tests.support.snippets import IMAGE, SNIPPETS
from tests.support.tiny_book import run_book

CATALOGUES = [
    pytest.param(spoken, path, id=f"{spoken.code}-{path.stem}")
    for spoken in TRANSLATIONS
    for path in sorted(catalogues.folder(ROOT, spoken).glob("**/*.po"))
]
each_catalogue = pytest.mark.parametrize(("spoken", "path"), CATALOGUES)


@each_catalogue
def test_every_message_is_translated_and_none_is_stale(spoken: Language, path: Path) -> None:
    messages = catalogues.messages(catalogues.read(path, spoken))
    states = {message.msgid: catalogues.state(message) for message in messages}
    assert states
    assert {text: state for text, state in states.items() if state != "translated"} == {}


@each_catalogue
def test_every_translation_is_true_to_its_english(spoken: Language, path: Path) -> None:
    found = {
        message.msgid: wrong
        for message in catalogues.messages(catalogues.read(path, spoken))
        if (wrong := problems(message.msgid, message.msgstr, spoken))
    }
    assert found == {}


@each_catalogue
def test_the_header_says_who_translated_and_when(spoken: Language, path: Path) -> None:
    header = catalogues.read(path, spoken).metadata
    assert header["Language"] == spoken.code
    assert header["Last-Translator"] and header["PO-Revision-Date"] >= "2026-11-21"


def test_the_catalogues_are_up_to_date_with_the_english(tmp_path: Path) -> None:
    for name in ("chapters", "clusters", "examples", "locales", "d2l_mgpu"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("_config.yml", "_toc.yml", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path)
    result = run_book("locales", tmp_path)
    assert result.returncode == 0, result.stdout
    for new in tmp_path.glob("locales/**/*.po"):
        old = ROOT / new.relative_to(tmp_path)
        assert new.read_text() == old.read_text(), f"{old.name} is out of date: make locales"


def test_each_page_figure_and_word_of_the_interface_has_its_catalogue() -> None:
    paths = [path.relative_to(ROOT) for path in (ROOT / "chapters").glob("**/*.md")]
    chapters = {path.with_suffix(".po").as_posix() for path in paths}
    for spoken in TRANSLATIONS:
        folder = catalogues.folder(ROOT, spoken)
        found = {path.relative_to(folder).as_posix() for path in folder.glob("**/*.po")}
        assert found == chapters | {"figures.po", "interface.po"}


def test_the_glossary_has_each_term_once_in_every_language() -> None:
    rows = checks.rows("glossary.csv")
    terms = [row["en"] for row in rows]
    assert len(terms) >= 120
    assert len(set(terms)) == len(terms)
    assert all(row[spoken.code] for row in rows for spoken in TRANSLATIONS)
    assert all(row["strict"] in ("", "strict") for row in rows)


# A right translation of one message, and what may happen to it.
ENGLISH = (
    "Call `train(2)`: each replica holds $k/2$ of the 60,000 examples and 0.95 of the loss, see "
    "{ref}`sec_data` and [the sampler](https://d2l.ai). **It must stay in step with the others.**"
)
RIGHT = {
    "pt_BR": "Chame `train(2)`: cada réplica guarda $k/2$ dos 60.000 exemplos e 0,95 da perda, "
    "veja {ref}`sec_data` e [o amostrador](https://pt.d2l.ai). "
    "**Ela deve acompanhar as outras.**",
    "vi": "Hãy gọi `train(2)`: mỗi bản sao giữ $k/2$ trong 60.000 mẫu và 0,95 giá trị mất mát, "
    "xem {ref}`sec_data` và [bộ lấy mẫu](https://d2l.aivivn.com). "
    "**Nó phải đi cùng nhịp với các bản sao khác.**",
    "zh_CN": "调用`train(2)`：每个副本保存60,000个样本中的$k/2$以及0.95的损失，参见{ref}`sec_data`"
    "和[采样器](https://zh.d2l.ai)。**它必须与其他副本保持一致**。",
}
PLANTED = [
    pytest.param("pt_BR", "`train(2)`", "`train(4)`", "lacks `train(2)`", id="code"),
    pytest.param("pt_BR", "$k/2$", "$k/4$", "lacks $k/2$", id="formula"),
    pytest.param("vi", "sec_data", "sec_dados", "lacks {ref}`sec_data`", id="target of a role"),
    pytest.param("vi", "{ref}", "{numref}", "lacks {ref}`sec_data`", id="role"),
    pytest.param("vi", "d2l.aivivn.com", "d2l.vn", "lacks ](https://d2l.ai)", id="link"),
    pytest.param("vi", "d2l.aivivn.com", "zh.d2l.ai", "lacks ](https://d2l.ai)", id="their page"),
    pytest.param("pt_BR", "cada", "\n\ncada", "is not one paragraph", id="two paragraphs"),
    pytest.param("zh_CN", "60,000", "6,000", "lacks 60,000", id="number"),
    pytest.param("pt_BR", "60.000", "60,000", "lacks 60,000", id="English thousands"),
    pytest.param("pt_BR", "0,95", "0.95", "lacks 0.95", id="English decimal point"),
    pytest.param("zh_CN", "一致**。", "一致。**后", "shows *", id="markup that shows"),
    pytest.param("zh_CN", "副本", "复制品", "calls 'replica'", id="another term"),
    pytest.param("pt_BR", "réplica", "cópia", "calls 'replica'", id="another term in Portuguese"),
    pytest.param(
        "vi", "Nó phải đi cùng", "It must stay in step with", "leaves English", id="English"
    ),
    pytest.param("pt_BR", "dos ", "muitas vezes mais dos ", "has 'muitas", id="reads as often"),
    pytest.param("vi", "0,95", "số không", "has 'số không'", id="zero in words"),
    pytest.param("vi", "phải đi", "bằng một thiết bị", "has 'bằng một", id="by means of"),
    pytest.param("zh_CN", "样本中的", "东西中的", "has '东西'", id="thing"),
    pytest.param("zh_CN", "损失，", "损失,", "has '失,'", id="half-width punctuation"),
    pytest.param("zh_CN", "副本保存", "副本在笔记本里保存", "has '笔记本'", id="laptop"),
]


@pytest.mark.parametrize("code", RIGHT)
def test_a_right_translation_has_no_problem(code: str) -> None:
    assert problems(ENGLISH, RIGHT[code], language(code)) == []


@pytest.mark.parametrize(("code", "old", "new", "said"), PLANTED)
def test_a_planted_defect_is_found(code: str, old: str, new: str, said: str) -> None:
    assert old in RIGHT[code]
    found = problems(ENGLISH, RIGHT[code].replace(old, new), language(code))
    assert any(line.startswith(said) for line in found), found


@pytest.mark.parametrize("snippet", SNIPPETS.values(), ids=SNIPPETS)
@pytest.mark.parametrize("code", RIGHT)
def test_html_scripts_and_addresses_that_the_english_has_not_are_found(
    code: str, snippet: str
) -> None:
    spoken, planted = language(code), f"{RIGHT[code]} {snippet}"
    assert problems(ENGLISH, planted, spoken)
    assert not [*checks.changed_content(f"{ENGLISH} {snippet}", planted, spoken)]
    assert not [*checks.broken_markup(f"{ENGLISH} {snippet}", planted)]


@pytest.mark.parametrize("spoken", TRANSLATIONS, ids=lambda spoken: spoken.code)
def test_words_of_the_interface_are_plain_text(spoken: Language) -> None:
    words = catalogues.words(ROOT, spoken, "interface").values()
    assert [word for word in words if interface.special_signs(word)] == []


@pytest.mark.parametrize("word", ["<b>", "&lt;b&gt;", '"', "'", "`", "\\x3cb", "a>b"])
def test_no_page_is_built_with_a_word_of_the_interface_that_is_more(word: str) -> None:
    with pytest.raises(ExtensionError, match=r"zh_CN: the translation .* of 'Search' has .*write"):
        settings.demand_plain_text(language("zh_CN"), {"Search": f"搜索{word}"})
    settings.demand_plain_text(language("zh_CN"), {"Search": "搜索 %s {x} (a)…"})


def test_words_of_the_interface_cannot_end_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    word = f"</script>{IMAGE}"
    monkeypatch.setattr(interface, "_", lambda text: word)
    assert "</" not in interface.script().replace("<.title>", "")
    assert interface.literal(word).count("script") == 1


def test_the_templates_escape_the_words_of_the_interface() -> None:
    """Those of the PDF are escaped by Jinja, which cannot do it where the theme has templates."""
    templates = [*ROOT.glob("book/translation/templates/*"), *ROOT.glob("book/pages/templates/*")]
    texts = [path.read_text(encoding="utf-8") for path in templates]
    words = [word for text in texts for word in re.findall(r"\{\{[^}]*\b_\([^}]*\}\}", text)]
    assert len(words) > 5
    assert [word for word in words if not re.search(r"\)\|e \}\}$", word)] == []


@pytest.mark.parametrize("begin", ["14. ", "- ", "# ", "> ", "* ", "1) "])
def test_a_text_may_begin_like_a_list(begin: str) -> None:
    spoken = language("vi")
    message = POEntry(msgid=begin + ENGLISH, msgstr=begin + RIGHT["vi"])
    assert problems(message.msgid, message.msgstr, spoken) == []
    catalogue = catalogues.new_catalogue(spoken)
    catalogue.append(message)
    (shown,) = catalogues.for_sphinx(catalogue)
    assert checks.parser().parse(shown.msgstr)[0].type == "paragraph_open"


def test_a_placeholder_that_is_lost_is_found() -> None:
    assert problems("Translation: {translator}", "Tradução", language("pt_BR"))
    assert problems("Table %s", "Tabela", language("pt_BR"))


@pytest.mark.parametrize("code", RIGHT)
def test_a_paragraph_in_the_wrong_language_is_found(code: str) -> None:
    texts = RIGHT | {"en": ENGLISH}
    wrong = {
        other
        for other, text in texts.items()
        if [*checks.wrong_language(ENGLISH, text, language(code))]
    }
    assert wrong == texts.keys() - {code}


@pytest.mark.parametrize(("text", "said"), [("", "missing"), ("Antigo.", "stale")])
def test_an_untranslated_or_stale_message_is_found(tmp_path: Path, text: str, said: str) -> None:
    spoken = TRANSLATIONS[0]
    path = tmp_path / "page.po"
    source = catalogues.folder(ROOT, spoken) / "interface.po"
    catalogue = catalogues.read(source, spoken)
    catalogue[0].msgstr = text
    if text:
        catalogue[0].previous_msgid = "What it was"
        catalogue[0].flags.append("fuzzy")
    catalogues.write(path, catalogue)
    with pytest.raises(AssertionError, match=said):
        test_every_message_is_translated_and_none_is_stale(spoken, path)
