"""The book on paper: the PDFs that `make pdf` prints, and pages printed by a reader's browser."""

import shutil
import sys
from io import BytesIO
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser
from pypdf import PdfReader
from pypdf.generic import Destination

from book.languages import ENGLISH, LANGUAGES
from book.pdf import chromium, defects, unicode_maps
from book.pdf.printable_book import Entry, PrintableBook, file_name
from tests.support import ROOT
from tests.support.tiny_book import run_book

PAGES = ("index", "first", "second")
CHINESE = "一个人用见过的两台机器，自己训练大网络。"  # many of these share a shape with a radical
VIETNAMESE = "Huấn luyện mạng trên nhiều thiết bị, đường truyền, ngữ nghĩa."
CODE = "".join(f"{column:10d}" for column in range(10, 101, 10))  # 100 columns


def copy_site(book: Path, folder: Path) -> Path:
    """The built pages of the tiny book and what else printing reads."""
    for name in ("_build/html", "locales"):
        if (book / name).exists():
            shutil.copytree(book / name, folder / name)
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(book / name, folder)
    return folder


def python(code: str) -> CompletedProcess[str]:
    """Run code of the book in a process of its own: pytest's browser has this one."""
    return run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def printed(
    tiny_book: Path, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, PdfReader]:
    """The PDFs of the tiny book, printed as `make pdf` does; a browser is there."""
    folder = copy_site(tiny_book, tmp_path_factory.mktemp("printed"))
    arguments = [
        sys.executable,
        "-c",
        f"from book.pdf.chromium import *; write(Path({str(folder)!r}))",
    ]
    result = run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    names = {spoken.folder: file_name(folder, spoken) for spoken in LANGUAGES}
    assert all((folder / "_build/html" / s.path / names[s.folder]).exists() for s in LANGUAGES)
    return {code: PdfReader(folder / "_build/pdf" / name) for code, name in names.items()}


def titles(outline: list) -> list[str]:
    """The titles of an outline, in order."""
    flat: list[str] = []
    for item in outline:
        flat += [str(item.title)] if isinstance(item, Destination) else titles(item)
    return flat


def pages_text(reader: PdfReader) -> str:
    return "\n".join(page.extract_text() for page in reader.pages)


@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_the_outline_has_the_titles_of_the_pages(tiny_book: Path, printed, spoken) -> None:
    expected = []
    for name in PAGES:
        page = tiny_book / f"_build/html/{spoken.path}chapters/{name}.html"
        article = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").article
        assert article is not None
        for mark in article.select(".headerlink"):
            mark.decompose()
        expected += [title.get_text().strip() for title in article.select("h1, h2, h3")]
    assert titles(printed[spoken.folder].outline) == expected
    assert len(printed[spoken.folder].pages) >= 2 + len(PAGES)
    assert printed[spoken.folder].trailer["/Root"]["/Lang"] == spoken.tag


def test_links_lead_to_the_right_chapter(printed) -> None:
    """Every page has a section "references"; a citation leads to the one of its own chapter."""
    reader = printed["en"]
    places = defects.places(reader)
    numbers = {name: reader.get_destination_page_number(place) for name, place in places.items()}
    assert numbers["first.references"] < numbers["second"] <= numbers["second.references"]
    links = [link for link in defects.links(reader) if "/Dest" in link]
    names = {str(link["/Dest"]).removeprefix("/") for link in links}
    assert {"second", "first.first", "first.numbers", "first.fig-towers"} <= names <= places.keys()


def test_the_contents_name_the_pages(printed) -> None:
    reader = printed["en"]
    second = reader.get_destination_page_number(defects.places(reader)["second"]) + 1
    lines = reader.pages[1].extract_text().split("\n")
    assert any(line.startswith("2. Second") and line.endswith(str(second)) for line in lines)


def test_what_is_folded_on_the_screen_is_open_on_paper(printed) -> None:
    text = pages_text(printed["en"])
    for folded in ("Think of means", "Hidden text", "Slow.", "Fast, in H", "print(time.time())"):
        assert folded in text
    for button in ("Show code", "Click to", "Copy to clipboard"):
        assert button not in text


def test_fonts_are_embedded(printed) -> None:
    for reader in printed.values():
        assert defects.fonts(reader) and all(map(defects.is_embedded, defects.fonts(reader)))


def sheet(browser: Browser, folder: Path, body: str, tag: str) -> Path:
    """A small document in the style of the book, printed."""
    document, target = folder / "sheet.html", folder / "sheet.pdf"
    style = (ROOT / "book/pdf/static/print.css").as_uri()
    document.write_text(
        f'<html lang="{tag}"><meta charset="utf-8"><title>x</title>'
        f'<link rel="stylesheet" href="{style}"><main class="bd-main">{body}</main>',
        encoding="utf-8",
    )
    book = PrintableBook("", "nobody", [Entry(1, "", "Title")] * body.count("<h1"), [])
    chromium.finished(chromium.print_document(browser, document), book).write(target)
    return target


@pytest.mark.parametrize("tag, text", [("zh-CN", CHINESE), ("vi", VIETNAMESE)])
def test_text_can_be_searched(browser: Browser, tmp_path: Path, tag: str, text: str) -> None:
    path = sheet(browser, tmp_path, f"<h1>{text}</h1><p>{text}</p>", tag)
    found = "".join(pages_text(PdfReader(path)).split())
    assert found.count("".join(text.split())) == 2
    assert defects.defects(path) == []


def test_a_radical_is_not_mistaken_for_the_character_that_looks_like_it() -> None:
    before = "2 beginbfchar\n<01> <2F00>\n<02> <2EC5>\nendbfchar\n"
    assert unicode_maps.repaired(before) == before.replace("2F00", "4E00").replace("2EC5", "89C1")


def test_code_is_not_cut(browser: Browser, tmp_path: Path) -> None:
    long = "".join(f"<{number}>" for number in range(100))
    body = f'<h1>x</h1><div class="highlight"><pre>{CODE}\n{long.replace("<", "&lt;")}</pre></div>'
    text = pages_text(PdfReader(sheet(browser, tmp_path, body, "en")))
    assert any(line.split() == CODE.split() for line in text.split("\n"))
    assert long in text.replace("\n", "")


def test_defects_are_found(browser: Browser, tmp_path: Path) -> None:
    path = sheet(browser, tmp_path, '<p><a href="file:///etc/hosts">here</a></p><h1>x</h1>', "en")
    (found,) = defects.defects(path)
    assert "file:///etc/hosts" in found
    assert "more than" in defects.defects(path, limit=1000)[0]


def test_a_link_that_leads_nowhere_stops_the_command(
    tiny_book: Path, browser: Browser, tmp_path: Path
) -> None:
    folder = copy_site(tiny_book, tmp_path)
    page = folder / "_build/html/chapters/first.html"
    broken = page.read_text().replace('href="#numbers"', 'href="second.html#nowhere"')
    page.write_text(broken)
    arguments = [
        sys.executable,
        "-c",
        f"from book.pdf.chromium import *; write(Path({str(folder)!r}))",
    ]
    result = run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert "#second.nowhere, which is not there" in result.stderr


def test_without_a_browser_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    result = run_book("pdf", tmp_path, PATH=str(tmp_path))
    assert result.returncode == 1
    assert result.stdout == chromium.NEEDED + "\n"


def test_a_page_printed_in_the_dark_is_black_on_white(tiny_book: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto((tiny_book / "_build/html/chapters/first.html").as_uri())
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    colors = page.evaluate(
        """["article p", "body"].map(name => getComputedStyle(document.querySelector(name)))
            .map((style, i) => i ? style.backgroundColor : style.color)"""
    )
    assert colors == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    for selector in (".bd-sidebar-primary", ".bd-header-article", ".headerlink", ".copybtn"):
        assert not page.locator(selector).first.is_visible(), selector
    assert page.get_by_text("Hidden text.").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(media="screen")
    assert not page.get_by_text("Hidden text.").is_visible()
    page.emulate_media(media="null")
    text = pages_text(PdfReader(BytesIO(page.pdf())))
    assert "Hidden text." in text and "Think of means" in text
    page.close()


@pytest.mark.site
def test_pages_link_to_the_pdf_only_if_it_is_in_the_site(tiny_book: Path, tmp_path: Path) -> None:
    page = "_build/html/chapters/first.html"
    name = file_name(tiny_book, ENGLISH)
    assert name not in (tiny_book / page).read_text()
    folder = shutil.copytree(tiny_book, tmp_path / "book")
    (folder / "_build/html" / name).write_bytes(b"%PDF")
    result = python(f"from book.site import *; build(Path({str(folder)!r}), 'html')")
    assert result.returncode == 0, result.stderr
    assert f'href="../{name}"' in (folder / page).read_text()
