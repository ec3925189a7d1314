"""At home in its ecosystem: ways to source, services and other sites, provenance, publishing."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import psutil
import pytest
import yaml
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from book.config import addresses
from book.languages import LANGUAGES, TRANSLATIONS
from book.sharing import cards
from tests.support import ROOT
from tests.support.built_site import soup
from tests.support.tiny_book import copy_tiny_book, run_book

REPOSITORY, SITE = "https://github.com/someone/book", "https://example.org/deep/book"
RUN = """
(sec_how_to_run)=
## Run it

```console
$ make book
a line it prints
$ make test
```
"""
HASH = re.compile(r"uses: (\S+)@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def readdress(config: Path) -> None:
    """Set repository and site in the one place where they are set."""
    ours = addresses(config.parent)
    text = config.read_text()
    text = text.replace(ours.repository, REPOSITORY).replace(ours.site, SITE)
    config.write_text(text)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny book as somebody else publishes it, with a section on running it."""
    folder = copy_tiny_book(tmp_path_factory.mktemp("ecosystem") / "book")
    readdress(folder / "_config.yml")
    with (folder / "chapters/index.md").open("a") as index:
        index.write(RUN)
    result = run_book("html", folder, D2L_MGPU_SOURCE="generated")
    assert result.returncode == 0, result.stdout
    return folder


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1000, "height": 600})
    yield context.new_page()
    context.close()


def traces(site: Path) -> list[str]:
    """Files of a site that name our repository or our site."""
    ours = addresses(ROOT)
    names = (ours.name, ours.site.partition("://")[2])
    found = (path for path in site.glob("**/*") if path.is_file())
    return [p.name for p in found if any(n in p.read_text(errors="ignore") for n in names)]


# Published by somebody else


def test_a_copy_with_its_own_addresses_names_none_of_ours(book: Path) -> None:
    assert traces(book / "_build/html") == []
    head = str(soup(book / "_build/html" / "pt/chapters/first.html").head)
    assert f"{SITE}/pt/chapters/first.html" in head


def test_a_trace_of_ours_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(f'<a href="{addresses(ROOT).site}/x">')
    assert traces(tmp_path) == ["page.html"]


# Buttons


@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_a_page_leads_to_its_editor_and_to_a_report_about_it(book: Path, spoken) -> None:
    page = soup(book / "_build/html" / f"{spoken.path}chapters/first.html")
    source = f"locales/{spoken.code}/LC_MESSAGES/chapters/first.po"
    edit = page.select_one(".btn-source-edit-button")["href"]
    assert edit == f"{REPOSITORY}/edit/main/" + (source if spoken.path else "chapters/first.md")
    report = urlsplit(page.select_one(".btn-source-issues-button")["href"])
    assert report.geturl().startswith(f"{REPOSITORY}/issues/new?")
    query = parse_qs(report.query)
    assert "chapters/first" in query["title"][0] and spoken.tag in query["title"][0]
    assert query["body"] == [f"{SITE}/{spoken.path}chapters/first.html"]


def test_only_pages_with_a_source_can_be_edited(book: Path) -> None:
    assert not soup(book / "_build/html" / "search.html").select(".btn-source-edit-button")


def test_every_page_is_edited_in_a_file_of_the_repository() -> None:
    for path in (ROOT / "chapters").glob("**/*.md"):
        for spoken in TRANSLATIONS:
            page = path.relative_to(ROOT).with_suffix(".po")
            assert (ROOT / f"locales/{spoken.code}/LC_MESSAGES" / page).is_file()


def test_a_chapter_says_how_to_run_it_locally(book: Path) -> None:
    for spoken in LANGUAGES:
        page = soup(book / "_build/html" / f"{spoken.path}chapters/first.html")
        links = [a["href"] for a in page.select(".dropdown-launch-buttons a")]
        address, _, section = links[-1].partition("#")
        assert address == "index.html"
        assert soup(book / "_build/html" / f"{spoken.path}chapters/index.html").find(id=section)


# Permalinks and copying


def test_everything_that_can_be_cited_has_a_permalink_that_the_keyboard_shows(
    book: Path, page: Page
) -> None:
    page.goto((book / "_build/html/chapters/first.html").as_uri())
    for parent in ("h1", "h2", "figcaption", "caption", ".eqno"):
        link = page.locator(f"{parent} a.headerlink").first
        page.mouse.move(0, 0)
        expect(link).to_have_css("opacity", "0")
        link.focus()
        expect(link).to_be_focused()
        expect(link).to_have_css("opacity", "1")
        link.evaluate("link => link.blur()")
        link.locator("..").hover()
        expect(link).to_have_css("opacity", "1")


def test_the_copy_button_leaves_out_prompts_and_what_was_printed(book: Path, page: Page) -> None:
    page.goto((book / "_build/html/chapters/index.html").as_uri())
    page.evaluate("document.addEventListener('copy', (e) => { window.copied = e.target.value; })")
    block = page.locator(".highlight-console")
    block.hover()
    block.locator("button.copybtn").click()
    assert page.evaluate("window.copied") == "make book\nmake test"


# Shared elsewhere, found by search engines


@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_a_page_has_a_card_where_it_is_shared(book: Path, spoken) -> None:
    page = soup(book / "_build/html" / f"{spoken.path}chapters/first.html")
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
    assert Image.open(book / "_build/html" / image.removeprefix(f"{SITE}/")).size == cards.SIZE


@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_the_cards_are_small_and_say_what_the_book_says(spoken) -> None:
    path = cards.CARDS / f"{spoken.folder}.png"
    assert path.stat().st_size <= 60_000
    assert Image.open(path).info["Source"] == cards.digest(cards.card(spoken)), "make cards"


def test_every_page_has_the_icons_of_the_book(book: Path) -> None:
    for name in ("pt/chapters/first.html", "search.html"):
        links = soup(book / "_build/html" / name).select(
            "link[rel=icon], link[rel=apple-touch-icon]"
        )
        assert len(links) == 3
        for link in links:
            assert ((book / "_build/html" / name).parent / link["href"]).is_file()


def test_the_sitemap_names_every_page_in_every_language(book: Path) -> None:
    site = book / "_build/html"
    root = ElementTree.parse(site / "sitemap.xml").getroot()
    named = {loc.text for loc in root.iterfind(".//{*}loc")}
    pages = {f"{SITE}/{path.relative_to(site)}" for path in site.glob("**/chapters/*.html")}
    assert named == pages and len(pages) == 3 * len(LANGUAGES)
    for url in root:
        alternates = {link.get("hreflang"): link.get("href") for link in url.iterfind("{*}link")}
        assert set(alternates) == {"x-default", *(each.tag for each in LANGUAGES)}
        assert set(alternates.values()) <= named
    assert f"Sitemap: {SITE}/sitemap.xml" in (site / "robots.txt").read_text()


# Provenance


def provenance(book: Path, page: str) -> str:
    found = soup(book / "_build/html" / page).select_one(".provenance")
    return found.get_text() if found else ""


def test_a_page_says_when_and_on_what_it_was_executed(book: Path) -> None:
    said = {provenance(book, f"{each.path}chapters/first.html") for each in LANGUAGES}
    (sentence,) = said  # nothing of this book is translated
    assert re.search(r"Executed on \d{4}-\d\d-\d\d ", sentence)
    assert version("torch").partition("+")[0] in sentence
    assert platform.python_version() in sentence
    assert re.search(r"Devices: (cpu|\w+:0)", sentence)
    assert "generated images" in sentence


def test_a_page_without_cells_says_nothing_of_the_kind(book: Path) -> None:
    assert provenance(book, "chapters/index.html") == ""


def test_a_notebook_is_the_same_on_every_machine(tiny_book: Path) -> None:
    notebook = (tiny_book / "_build/notebooks/en/first.ipynb").read_text()
    assert version("torch").partition("+")[0] not in notebook and "Executed on" not in notebook


def test_a_build_that_executes_nothing_keeps_the_facts(book: Path) -> None:
    for path in book.glob("_build/.jupyter_cache/*/executed/*/provenance.json"):
        facts = json.loads(path.read_text())
        facts |= {"time": "2001-02-03T04:05:06+00:00", "framework": "PyTorch 0.1", "data": "real"}
        path.write_text(json.dumps(facts))
    chapter = book / "chapters/first.md"
    chapter.write_text(chapter.read_text().replace("A second paragraph.", "Another one."))
    result = run_book("html", book, D2L_MGPU_SOURCE="generated")
    assert "0 chapters executed" in result.stdout
    sentence = provenance(book, "vi/chapters/first.html")
    assert "2001-02-03" in sentence and "PyTorch 0.1 " in sentence and "Fashion-MNIST" in sentence


# Serving while editing


def test_the_open_page_follows_an_edit_and_nothing_is_left(tmp_path: Path, page: Page) -> None:
    folder = copy_tiny_book(tmp_path / "book")
    log = tmp_path / "log"
    command = [sys.executable, "-m", "book.serve", str(folder), "--language", "vi"]
    with log.open("w") as out:
        server = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        wait_for(lambda: "build succeeded" in log.read_text(), server)
        (address,) = re.findall(r"http://\S+", log.read_text().partition("\n")[0])
        page.goto(f"{address}chapters/first.html")
        assert page.get_by_text("A second paragraph.").is_visible()
        chapter = folder / "chapters/first.md"
        chapter.write_text(chapter.read_text().replace("A second paragraph.", "An edited one."))
        expect(page.get_by_text("An edited one.")).to_be_visible(timeout=180_000)
        # And while it builds, the build must go too.
        chapter.write_text(chapter.read_text().replace("An edited one.", "Once more."))
        wait_for(lambda: bool(psutil.Process(server.pid).children()), server)
        children = psutil.Process(server.pid).children(recursive=True)
        os.killpg(server.pid, signal.SIGINT)
        assert server.wait(60) == 0
        _, alive = psutil.wait_procs(children, 30)
        assert not alive
    finally:
        server.kill()
    assert "Traceback" not in log.read_text() and "0 chapters executed" in log.read_text()


def wait_for(condition, server: subprocess.Popen) -> None:
    """Wait until something holds while the server lives; the test's timeout ends it."""
    while not condition():
        assert server.poll() is None
        time.sleep(0.1)


def test_serve_takes_a_language_that_was_typed_but_not_the_systems() -> None:
    for arguments, environment, expected in [
        (["LANGUAGE=vi"], {}, True),
        ([], {"LANGUAGE": "vi"}, False),
    ]:
        command = ["make", "-n", "serve", *arguments]
        result = subprocess.run(
            command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
        )
        assert ("--language vi" in result.stdout) is expected


# Publishing


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def workflow_faults(text: str, targets: set[str]) -> list[str]:
    """What is wrong with a workflow: actions that may change, commands that are not the README's,
    rights that it does not need."""
    faults = [
        line.strip() for line in text.splitlines() if "uses:" in line and not HASH.search(line)
    ]
    workflow = yaml.safe_load(text)
    if workflow.get("permissions") != {"contents": "read"}:
        faults.append("permissions")
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            for command in step.get("run", "").splitlines():
                known = re.fullmatch(r"make ([\w-]+)( \w+=\w+)*", command)
                if not (known and known[1] in targets) and not command.startswith("sudo apt-get "):
                    faults.append(command)
    return faults


def targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_pinned_and_runs_what_the_makefile_has(path: Path) -> None:
    assert workflow_faults(path.read_text(), targets()) == []


def test_the_site_is_published_when_the_checks_of_main_have_passed() -> None:
    text = (ROOT / ".github/workflows/publish.yml").read_text()
    workflow = yaml.safe_load(text)
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML reads `on` as true
    assert workflow[True]["push"]["branches"] == ["main"]
    publish = workflow["jobs"]["publish"]
    assert set(publish["needs"]) == {"test", "site"}
    assert publish["if"] == "github.event_name == 'push'"
    assert publish["permissions"] == {"pages": "write", "id-token": "write"}
    (upload,) = [s for s in workflow["jobs"]["site"]["steps"] if "upload" in s.get("uses", "")]
    assert upload["with"]["path"] == "_build/html"
    commands = [step.get("run") for step in workflow["jobs"]["site"]["steps"]]
    assert "make book DATA=FashionMNIST" in commands


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0", "@v5"),
        ("make test\n", "make everything\n"),
        ("contents: read", "contents: write"),
    ],
)
def test_a_fault_of_the_workflow_is_found(old: str, new: str) -> None:
    text = (ROOT / ".github/workflows/publish.yml").read_text()
    assert old in text
    assert workflow_faults(text.replace(old, new), {*targets(), "pdf"})


def test_the_address_stands_in_one_place() -> None:
    ours = addresses(ROOT)
    names = (ours.name, ours.site.partition("://")[2])
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.yml", "*.toml", "*.html", "*.js", "*.css", "*.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    found = [path for path in tracked if any(n in (ROOT / path).read_text() for n in names)]
    assert found == ["_config.yml"]
