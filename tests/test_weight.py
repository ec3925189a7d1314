"""What a page weighs: the bytes a server sends, compressed, for its first view and for later."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup, Tag
from playwright.sync_api import Browser

from book.translation.languages import LANGUAGES, Language
from tests.built_site import SITE, chapter, pages, served

pytestmark = pytest.mark.site
KB = 1000
FIRST_VIEW, SCRIPTS, SEARCH_INDEX, IMAGE = 300 * KB, 125 * KB, 300 * KB, 100 * KB
KINDS = {".html": "html", ".css": "css", ".js": "js", ".woff2": "fonts", ".svg": "images"}
KINDS |= {".png": "images", ".ico": "images"}
COLUMNS = ("html", "css", "js", "fonts", "images")
PACKED = {".woff2", ".png"}  # servers do not compress these again
URL = re.compile(r"""(?:url\(["']?|@import ["'])([^"':)#?]+)["')#?]""")
# https://developer.chrome.com/docs/lighthouse/performance: the upper bounds of "good"
GOOD_PAINT, GOOD_SHIFT = 1800, 0.1


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """The site, built by `make book`."""
    assert (SITE / chapter(LANGUAGES[-1])).is_file(), "no pages; type: make book"


def size(file: Path) -> int:
    """The bytes that are sent of a file."""
    content = file.read_bytes()
    return len(content if file.suffix in PACKED else gzip.compress(content, 6))


def follow(file: Path, address: str) -> list[Path]:
    """A file of the site that another one names, and what it needs in its turn."""
    target = (file.parent / unquote(re.split("[?#]", address)[0])).resolve()
    if target.suffix != ".css":
        return [target]
    needs = URL.findall(target.read_text(encoding="utf-8"))
    return [target, *(each for need in needs for each in follow(target, need))]


def is_lazy(element: Tag) -> bool:
    return element.get("loading") == "lazy"


def needed(page: Path) -> set[Path]:
    """What is loaded to show the top of a page; the search index comes with a search."""
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    addresses = [each["src"] for each in soup.select("script[src], img[src]") if not is_lazy(each)]
    addresses += [each["href"] for each in soup.select("link[rel=stylesheet], link[rel=icon]")]
    local = [each for each in addresses if ":" not in each]
    files = {page, *(file for address in local for file in follow(page, address))}
    return {file for file in files if file.name != "searchindex.js"}


def weigh(page: Path) -> Counter[str]:
    """The bytes of each kind, and of all together."""
    weight: Counter[str] = Counter()
    for file in needed(page):
        weight[KINDS[file.suffix]] += size(file)
        weight["total"] += size(file)
    return weight


def test_no_page_weighs_more_than_its_budget(capsys: pytest.CaptureFixture[str]) -> None:
    weights = {name: weigh(SITE / name) for name in pages()}
    with capsys.disabled():
        print(f"\n{'KB, compressed':<40}", *(f"{kind:>8}" for kind in (*COLUMNS, "total")))
        for name, weight in weights.items():
            figures = (f"{weight[kind] / KB:8.1f}" for kind in (*COLUMNS, "total"))
            print(f"{name:<40}", *figures)
    too_heavy = {
        name: weight
        for name, weight in weights.items()
        if weight["total"] > FIRST_VIEW or weight["js"] > SCRIPTS
    }
    assert not too_heavy


def test_the_search_index_of_each_language_is_small(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {each.name: size(SITE / each.path / "searchindex.js") for each in LANGUAGES}
    with capsys.disabled():
        print("\nsearch index, KB:", {name: round(each / KB, 1) for name, each in sizes.items()})
    assert max(sizes.values()) <= SEARCH_INDEX


def test_images_are_small_and_wait_in_their_place(capsys: pytest.CaptureFixture[str]) -> None:
    largest = (0, "")
    for name in pages():
        soup = BeautifulSoup((SITE / name).read_text(encoding="utf-8"), "html.parser")
        for image in soup.select("article img[src*=_images]"):
            (file, *_) = follow(SITE / name, image["src"])
            largest = max(largest, (file.stat().st_size, file.name))
            assert is_lazy(image) and image["decoding"] == "async", f"{name}: {file.name}"
            assert int(image["width"]) > 0 < int(image["height"]), f"{name}: {file.name}"
            assert file.suffix in {".svg", ".png"}, "neither drawn nor lossless"
    with capsys.disabled():
        print(f"\nlargest image: {largest[1]}, {largest[0] / KB:.1f} KB, not compressed")
    assert 0 < largest[0] <= IMAGE


def test_a_page_that_is_too_heavy_is_noticed(tmp_path: Path) -> None:
    noise = "".join(f"{i * i:x}" for i in range(100_000))
    (tmp_path / "a.js").write_text(noise)
    (tmp_path / "font.woff2").write_bytes(bytes(1000))
    (tmp_path / "a.css").write_text("@font-face { src: url('font.woff2') }")
    (tmp_path / "page.html").write_text(
        '<link rel="stylesheet" href="a.css?v=1"><script src="a.js"></script>'
        '<img src="later.svg" loading="lazy">'
    )
    weight = weigh(tmp_path / "page.html")
    assert weight["js"] > SCRIPTS
    assert weight["fonts"] == 1000


MEASURE = """async () => {
  const seen = (type) => new Promise((done) => {
    new PerformanceObserver((list) => done(list.getEntries())).observe({ type, buffered: true });
    setTimeout(() => done([]), 500);
  });
  const pause = () => new Promise((done) => setTimeout(done, 100));
  for (let y = 0; y < document.body.scrollHeight; y += innerHeight) {
    scrollTo({ top: y, behavior: "instant" });
    await pause();
  }
  const paint = (await seen("paint")).find((entry) => entry.name === "first-contentful-paint");
  const shifts = (await seen("layout-shift")).filter((entry) => !entry.hadRecentInput);
  return [paint.startTime, shifts.reduce((sum, entry) => sum + entry.value, 0)];
}"""


@pytest.mark.parametrize("width, height", [(360, 740), (1280, 800)], ids=["phone", "desktop"])
@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_nothing_jumps_while_a_chapter_is_read(
    browser: Browser,
    spoken: Language,
    width: int,
    height: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All shifts from top to end count, which is stricter than Lighthouse's worst five seconds."""
    context = browser.new_context(viewport={"width": width, "height": height})
    with served(SITE) as base:
        page = context.new_page()
        page.goto(base + chapter(spoken), wait_until="load")
        paint, shift = page.evaluate(MEASURE)
    context.close()
    with capsys.disabled():
        print(
            f"\n{spoken.name}, {width} px: first contentful paint {paint:.0f} ms "
            f"(good: {GOOD_PAINT}), layout shift {shift:.3f} (good: {GOOD_SHIFT})"
        )
    assert shift <= GOOD_SHIFT
