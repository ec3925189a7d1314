"""Shared elsewhere, found by search engines: cards, icons, the sitemap."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from book.languages import LANGUAGES
from book.sharing import cards
from tests.support.built_site import soup
from tests.support.their_book import SITE


@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_a_page_has_a_card_where_it_is_shared(their_book: Path, spoken) -> None:
    page = soup(their_book / "_build/html" / f"{spoken.path}chapters/first.html")
    tags = {tag["property"]: tag["content"] for tag in page.select("meta[property^='og:']")}
    assert tags["og:title"] == "Towers & prices"
    assert tags["og:description"] == page.select_one("meta[name=description]")["content"]
    assert tags["og:url"] == page.select_one("link[rel=canonical]")["href"]
    assert tags["og:locale"].startswith(spoken.code)
    others = {tag["content"] for tag in page.select("meta[property='og:locale:alternate']")}
    assert len(others) == len(LANGUAGES) - 1
    assert all(re.fullmatch("[a-z]{2}_[A-Z]{2}", name) for name in {*others, tags["og:locale"]})
    assert page.select_one("meta[name='twitter:card']")["content"] == "summary_large_image"
    image = tags["og:image"]
    assert image.startswith(f"{SITE}/{spoken.path}")
    card = their_book / "_build/html" / image.removeprefix(f"{SITE}/")
    assert Image.open(card).size == cards.SIZE


@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_the_cards_are_small_and_say_what_the_book_says(spoken) -> None:
    path = cards.CARDS / f"{spoken.folder}.png"
    assert path.stat().st_size <= 60_000
    assert Image.open(path).info["Source"] == cards.digest(cards.card(spoken)), "make cards"


def test_every_page_has_the_icons_of_the_book(their_book: Path) -> None:
    for name in ("pt/chapters/first.html", "search.html"):
        links = soup(their_book / "_build/html" / name).select(
            "link[rel=icon], link[rel=apple-touch-icon]"
        )
        assert len(links) == 3
        for link in links:
            assert ((their_book / "_build/html" / name).parent / link["href"]).is_file()


def test_the_sitemap_names_every_page_in_every_language(their_book: Path) -> None:
    site = their_book / "_build/html"
    root = ElementTree.parse(site / "sitemap.xml").getroot()
    named = {loc.text for loc in root.iterfind(".//{*}loc")}
    pages = {f"{SITE}/{path.relative_to(site)}" for path in site.glob("**/chapters/*.html")}
    assert named == pages and len(pages) == 3 * len(LANGUAGES)
    for url in root:
        alternates = {link.get("hreflang"): link.get("href") for link in url.iterfind("{*}link")}
        assert set(alternates) == {"x-default", *(each.tag for each in LANGUAGES)}
        assert set(alternates.values()) <= named
    assert f"Sitemap: {SITE}/sitemap.xml" in (site / "robots.txt").read_text()
