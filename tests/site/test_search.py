"""The search of each language: its rules in Python, the same rules in the browser, small sites."""

import functools
import os
import subprocess
import sys
import tomllib
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page

from book.translation.search import (
    FoldedSearch,
    SearchChinese,
    SearchPortuguese,
    SearchVietnamese,
    fold,
)
from tests.support import ROOT

PAGES = ROOT / "tests" / "fixtures" / "search"
SEARCHES = {kind.lang: kind({}) for kind in (SearchChinese, SearchVietnamese, SearchPortuguese)}

CONFIGURATION = """
extensions = ["myst_parser", "book.translation.search"]
html_theme = "sphinx_book_theme"
language = {language!r}
"""

# What is typed, and the page that has it.
QUERIES = {
    "zh_CN": {
        "数据并行": "page-3",
        "并行训练": "page-3",
        "梯度": "page-4",
        "全归约": "page-5",
        "GPU训练": "page-6",
        "gpu训练": "page-6",
        "ＧＰＵ训练": "page-6",
        "GPU 训练": "page-6",
        "Cafe": "page-6",
        "CAFÉ": "page-6",
        "梯": "page-4",
        "全归约的梯度": "page-5",  # no page has all of it
    },
    "vi": {
        "đồng bộ": "page-3",
        "dong bo": "page-3",
        "ĐỒNG BỘ": "page-3",
        "Dong  Bo": "page-3",
        "song song": "page-4",
        "huan luyen": "page-4",
        "Đạo hàm": "page-5",
        "dao ham gpu": "page-5",
        "DO CHINH XAC": "page-6",
    },
    "pt_BR": {
        "várias": "page-3",
        "varias": "page-3",
        "VÁRIAS": "page-3",
        "várias GPUs": "page-3",
        "gpu": "page-3",
        "Comunicações": "page-4",
        "comunicacao entre os processos": "page-4",
        "ativacao": "page-6",
        "retropropaga": "page-5",
    },
    "en": {"multiple GPUs": "page-2", "Communication": "page-3", "images": "page-1"},
}
CASES = [
    pytest.param(language, query, page, id=f"{language}: {query}")
    for language, queries in QUERIES.items()
    for typed, page in queries.items()
    for query in sorted({typed, unicodedata.normalize("NFD", typed)})
]

# Characters that the rules tell apart, and any other that Python's Unicode knows.
text = st.text(
    st.sampled_from(
        "aÁãçéíõüđĐộơưƯổăìễ \u0301\u0323\u031b\n-_,.09３ＡΣσςİß数据并行梯度，。\U00020000"
    )
    | st.characters(exclude_categories=["Cs", "Cn", "Co"])
)


def build_site(folder: Path, language: str) -> Path:
    """Write and build the small site of a language."""
    pages = tomllib.loads((PAGES / f"{language}.toml").read_text(encoding="utf-8"))
    source = folder / "source"
    source.mkdir(parents=True)
    for name, (title, prose) in pages.items():
        (source / f"{name}.md").write_text(f"# {title}\n\n{prose}\n", encoding="utf-8")
    contents = "\n".join(["# Index", "```{toctree}", ":hidden:", *pages, "```"])
    (source / "index.md").write_text(contents, encoding="utf-8")
    configuration = CONFIGURATION.format(language=language)
    (source / "conf.py").write_text(configuration, encoding="utf-8")
    site = folder / "site"
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", source, site],
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return site


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The small site of a language, built when it is first asked for."""
    return functools.cache(lambda language: build_site(tmp_path_factory.mktemp(language), language))


@pytest.fixture(scope="module")
def page(browser: Browser) -> Any:
    """A page of the browser, which nothing from outside reaches."""
    context = browser.new_context(offline=True)
    context.set_default_timeout(0)  # a slow machine is no defect
    yield context.new_page()
    context.close()


def search(page: Page, site: Path, query: str) -> list[str]:
    """The pages found, best first, without those that stand further down once more."""
    page.goto(f"{(site / 'search.html').as_uri()}?q={quote(query)}")
    # The dots stand behind "Searching" until all results are there.
    page.wait_for_function("Search.title && !Search.title.contains(Search.dots)")
    links = page.locator("#search-results li > a").evaluate_all(
        "links => links.map(link => link.getAttribute('href'))"
    )
    return list(dict.fromkeys(link.split(".html")[0] for link in links))


@given(text)
@settings(deadline=None)
def test_what_is_folded_stays_as_it_is(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(text)
@settings(deadline=None)
def test_the_form_of_unicode_does_not_matter(text: str) -> None:
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert fold(unicodedata.normalize(form, text)) == fold(text)


def test_fold() -> None:
    assert fold("Đồng bộ, VÁRIAS; ação, ＧＰＵ训练") == "dong bo, varias; acao, gpu训练"


@pytest.mark.parametrize("language", SEARCHES)
@given(text)
@settings(deadline=None)
def test_words_are_folded_and_joined_again(language: str, text: str) -> None:
    words = SEARCHES[language].split(text)
    assert all(fold(word) == word for word in words)
    assert SEARCHES[language].split(fold(text)) == words


@given(st.text(st.sampled_from("数据并行梯度"), min_size=1), text, text)
@settings(deadline=None)
def test_a_compound_is_found_in_every_longer_run(compound: str, before: str, after: str) -> None:
    split = SEARCHES["zh_CN"].split
    assert {*split(compound)} <= {*split(before + compound + after)}


def test_split() -> None:
    chinese = SEARCHES["zh_CN"].split("用GPU训练，all_reduce")
    assert chinese == ["用", "gpu", "训", "练", "all_reduce", "训练"]
    vietnamese = SEARCHES["vi"].split("chạy Song\nsong, đồng  bộ")
    assert vietnamese[:5] == ["chay", "song", "song", "dong", "bo"]
    assert vietnamese[5:] == ["chay song", "song song", "dong bo"]
    assert SEARCHES["pt_BR"].split("Em várias GPUs") == ["em", "varias", "gpus"]


@pytest.mark.parametrize(
    "words",
    [
        "várias varias vários",
        "comunicação comunicações COMUNICACOES",
        "gradiente gradientes",
        "possível possíveis",
        "imagem imagens",
        "total totais",
        "GPU GPUs gpus",
        "valor valores",
    ],
)
def test_number_and_gender_do_not_matter_in_portuguese(words: str) -> None:
    assert len({SEARCHES["pt_BR"].stem(word) for word in words.split()}) == 1


def test_stop_words_are_folded_and_not_indexed() -> None:
    portuguese = SEARCHES["pt_BR"]
    assert {"nao", "sao", "para"} <= portuguese.stopwords
    assert not portuguese.word_filter(portuguese.stem("Não"))
    assert not SEARCHES["vi"].stopwords


@pytest.mark.parametrize("language", SEARCHES)
def test_python_and_the_browser_agree(
    language: str, sites: Callable[[str], Path], page: Page
) -> None:
    search(page, sites(language), "GPU")
    ours: FoldedSearch = SEARCHES[language]
    texts = [line for file in PAGES.glob("*.toml") for line in file.read_text("utf-8").splitlines()]

    @given(st.lists(text, min_size=20, max_size=60))
    @example(texts)
    @settings(deadline=None, max_examples=50)
    def agree(texts: list[str]) -> None:
        theirs = page.evaluate("texts => texts.map(text => splitQuery(text))", texts)
        assert theirs == [ours.split(text) for text in texts]
        words = [word for text in texts for word in [text, *ours.split(text)]]
        stems = page.evaluate("words => words.map(word => new Stemmer().stemWord(word))", words)
        assert stems == [ours.stem(word) for word in words]

    agree()


@pytest.mark.parametrize("language, query, wanted", CASES)
def test_a_query_finds_its_page(
    language: str, query: str, wanted: str, sites: Callable[[str], Path], page: Page
) -> None:
    assert wanted in search(page, sites(language), query)[:2]


def test_a_page_that_has_only_parts_of_a_chinese_compound_is_not_found(
    sites: Callable[[str], Path], page: Page
) -> None:
    site = sites("zh_CN")
    assert search(page, site, "数据并行") == ["page-3"]
    assert search(page, site, "全归约") == ["page-5"]
    assert search(page, site, "楼据") == []


def test_words_apart_come_after_the_compound_in_vietnamese(
    sites: Callable[[str], Path], page: Page
) -> None:
    found = search(page, sites("vi"), "dong bo")
    assert found[0] == "page-3"
    assert {"page-1", "page-6"} <= {*found}


def test_the_summary_starts_where_the_accented_word_stands(
    sites: Callable[[str], Path], page: Page
) -> None:
    search(page, sites("vi"), "dong bo")
    html = f'<div role="main">{"xa " * 300} phải đồng bộ tham số</div>'
    summary = page.evaluate(
        "html => Search.makeSearchSummary(html, Search._parseQuery('dong bo')[1], '').innerText",
        html,
    )
    assert "đồng bộ" in summary
