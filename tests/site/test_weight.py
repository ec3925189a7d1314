"""What a page weighs: the bytes a server sends, compressed, for its first view and for later."""

import functools
import gzip
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup, SoupStrainer, Tag
from playwright.sync_api import Browser
from playwright.sync_api import TimeoutError as BrowserTimeout

from book.languages import LANGUAGES, Language
from tests.support.built_site import SITE, chapter, pages, served

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


@functools.cache
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


@functools.cache
def loading(page: Path) -> BeautifulSoup:
    """Those elements of a page that load something."""
    only = SoupStrainer(["script", "img", "link"])
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser", parse_only=only)


def is_lazy(element: Tag) -> bool:
    return element.get("loading") == "lazy"


def needed(page: Path) -> set[Path]:
    """What is loaded to show the top of a page; the search index comes with a search."""
    found = loading(page)
    addresses = [each["src"] for each in found.select("script[src], img[src]") if not is_lazy(each)]
    addresses += [each["href"] for each in found.select("link[rel=stylesheet], link[rel=icon]")]
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
        for image in loading(SITE / name).select("img[src*=_images]"):
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


# Look at one screen after the other, wait for its images, and add up what moved.
MEASURE = """async () => {
  let paint, shift = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
    if (entry.name === "first-contentful-paint") paint = entry.startTime;
  })).observe({ type: "paint", buffered: true });
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
    if (!entry.hadRecentInput) shift += entry.value;
  })).observe({ type: "layout-shift", buffered: true });
  const frames = async (count) => {
    while (count--) await new Promise(requestAnimationFrame);
  };
  const near = (image) => {
    const { top, bottom } = image.getBoundingClientRect();
    return top < innerHeight && bottom > 0 && image.checkVisibility();
  };
  for (let y = 0; y < document.body.scrollHeight; y += innerHeight) {
    scrollTo({ top: y, behavior: "instant" });
    waitsFor = `frames at ${y}`;
    await frames(2);
    const images = [...document.images].filter(near);
    waitsFor = images.map((image) => image.src).join();
    await Promise.all(images.map((image) => image.decode()));
  }
  waitsFor = "the first contentful paint";
  while (paint === undefined) await frames(1);
  waitsFor = "the last frames";
  await frames(10);
  return [paint, shift];
}"""
PATIENCE = 60_000  # milliseconds; a chapter takes about 2000


def paint_and_shift(
    browser: Browser, site: Path, page: str, width: int, patience: float = PATIENCE
) -> list[float]:
    """When something is first seen, in milliseconds, and how much moves from top to end.

    A browser on a busy machine has been seen to stop drawing for good. What it then waits for is
    printed, and another page is measured, but only one.
    """
    try:
        return measured(browser, site, page, width, patience)
    except TimeoutError as stalled:
        print(f"{page}, {width} px: {stalled}")
        return measured(browser, site, page, width, patience)


def measured(browser: Browser, site: Path, page: str, width: int, patience: float) -> list[float]:
    """What `paint_and_shift` returns, or TimeoutError after `patience` milliseconds."""
    context = browser.new_context(viewport={"width": width, "height": 800})
    with served(site) as base:
        shown = context.new_page()
        shown.goto(base + page, wait_until="load")
        shown.evaluate("window.waitsFor = ''")
        try:
            found = shown.wait_for_function(MEASURE, polling=1000, timeout=patience)
            paint, shift = found.json_value()
        except BrowserTimeout:
            waits = shown.evaluate("`${waitsFor}; the page is ${document.visibilityState}`")
            raise TimeoutError(f"the browser waits for {waits}") from None
        finally:
            context.close()
    return [paint, shift]


def test_text_that_jumps_is_noticed(browser: Browser, tmp_path: Path) -> None:
    jump = "document.querySelector('p').style = 'position: relative; top: 300px'"
    (tmp_path / "page.html").write_text(
        f"<!DOCTYPE html><title>A page</title><script>onscroll = () => {{ {jump} }}</script>"
        f'<div style="height: 900px"></div><p>{"text " * 5000}'
    )
    assert paint_and_shift(browser, tmp_path, "page.html", 1280)[1] > GOOD_SHIFT


def test_a_page_that_never_comes_to_rest_is_named(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        "<!DOCTYPE html><title>A page</title><p>text"
        "<script>window.requestAnimationFrame = () => {}</script>"
    )
    with pytest.raises(TimeoutError, match="waits for frames at 0; the page is visible"):
        paint_and_shift(browser, tmp_path, "page.html", 1280, patience=1000)


@pytest.mark.parametrize("width", [360, 1280], ids=["phone", "desktop"])
@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_nothing_jumps_while_a_chapter_is_read(
    browser: Browser,
    spoken: Language,
    width: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All shifts from top to end count, which is stricter than Lighthouse's worst five seconds."""
    paint, shift = paint_and_shift(browser, SITE, chapter(spoken), width)
    with capsys.disabled():
        print(
            f"\n{spoken.name}, {width} px: first contentful paint {paint:.0f} ms "
            f"(good: {GOOD_PAINT}), layout shift {shift:.3f} (good: {GOOD_SHIFT})"
        )
    assert shift <= GOOD_SHIFT
