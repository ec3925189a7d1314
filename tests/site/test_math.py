"""Formulas: each is set when the book is built, as TeX would set it, and needs no script."""

import re
from pathlib import Path

import pytest
from math_core import LatexError
from playwright.sync_api import Browser, Page
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from book.theme import math_font
from book.theme.math import mathml
from tests.support import ROOT
from tests.support.built_site import SITE, soup

CONFIG = {
    "extensions": ["myst_parser", "book.theme.math", "book.theme.accessibility"],
    "html_static_path": [str(ROOT / "book/theme/static")],
    "myst_enable_extensions": ["amsmath", "dollarmath"],
    "numfig": True,
    "html_theme": "basic",
}
PAGE = r"""
# From $b$ to $k \cdot b$

The mean $\mathbf{g}$, see {eq}`eq-mean`.

$$g = \frac{1}{k} \sum_i g_i$$ (eq-mean)

\begin{align}
a &= b \\
c &= d
\end{align}

```{math}
:label: eq-wide
a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p + q + r + s + t + u + v + w + x + y
```
"""


def build(folder: Path, page: str) -> Path:
    """A site of one page with the renderer; a warning is an error."""
    source, out = folder / "source", folder / "out"
    source.mkdir()
    (source / "index.md").write_text(page, encoding="utf-8")
    doctrees = folder / "doctrees"
    with docutils_namespace():
        app = Sphinx(source, None, out, doctrees, "html", CONFIG, warningiserror=True, status=None)
        app.build()
    return out / "index.html"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("math"), PAGE)


def formulas(path: Path) -> list[str]:
    """The formulas of a chapter, read from its source."""
    text = path.read_text(encoding="utf-8")
    displayed = re.findall(r"^```\{math\}\n(?::[^\n]*\n)*(.*?)^```", text, re.MULTILINE | re.DOTALL)
    code = r"^ *(`{3,})(?:python|bash|\{code-cell\}|\{math\}).*?^ *\1$|^ *`{3,}|`[^`\n]+`"
    prose = re.sub(code, "", text, flags=re.MULTILINE | re.DOTALL)
    return displayed + re.findall(r"(?<![\\$])\$([^$]+)\$", prose)


FORMULAS = {
    path.relative_to(ROOT).with_suffix("").as_posix(): found
    for path in sorted(ROOT.glob("chapters/**/*.md"))
    if (found := formulas(path))
}


@pytest.mark.parametrize("chapter", FORMULAS)
def test_every_formula_of_the_chapters_can_be_set(chapter: str) -> None:
    for tex in FORMULAS[chapter]:
        assert "<merror" not in mathml(tex), tex


@pytest.mark.site
@pytest.mark.parametrize("chapter", FORMULAS)
def test_every_formula_of_the_chapters_is_in_the_built_page(chapter: str) -> None:
    built = soup(SITE / f"{chapter}.html").find("article").find_all("math")
    found = {math["alttext"] for math in built}
    # A page in MXNet includes parts of its twin.
    own, twin = (
        {" ".join(tex.split()) for tex in FORMULAS[name]}
        for name in (chapter, chapter.replace("gluon/", ""))
    )
    assert own <= found <= own | twin
    assert all(math.get_text(strip=True) for math in built)


@pytest.mark.site
def test_no_page_needs_mathjax(page: Path) -> None:
    paths = [page, *SITE.rglob("*.html")]
    assert len(paths) > 20
    assert not [path for path in paths if "mathjax" in path.read_text(encoding="utf-8").lower()]


def test_an_equation_has_a_number_a_permalink_and_links(page: Path) -> None:
    text = soup(page)
    equation = text.find(id="equation-eq-mean")
    assert equation.select_one(".eqno").get_text() == "(1)¶"
    assert equation.select_one("a.headerlink")["href"] == "#equation-eq-mean"
    assert text.select_one("p a.internal")["href"] == "#equation-eq-mean"
    assert text.select_one("p a.internal").get_text() == "(1)"


def test_titles_are_readable_wherever_they_stand(page: Path) -> None:
    text = soup(page)
    assert text.title.get_text().startswith("From b to k⋅b")
    assert [m["alttext"] for m in text.h1.find_all("math")] == ["b", r"k \cdot b"]


@pytest.mark.parametrize(
    ("tex", "part"),
    [
        (r"\mathbf{w}", "<mi>𝐰</mi>"),
        (r"\mathrm{d}x", '<mi mathvariant="normal">d</mi>'),
        ('a < "b"', 'alttext="a &lt; &quot;b&quot;"'),
        ("x_{k-1}", '<mo lspace="0" rspace="0">−</mo>'),
        (r"a &= b \\ &= c", "<mi>b</mi></mtd></mtr><mtr>"),
        ("a = b\n\nc = d", "<mi>b</mi></mtd></mtr><mtr>"),
        (r"\begin{equation}a\end{equation}", 'display="block"><mi>a</mi></math>'),
        (r"\begin{split}a &= b\end{split}", "<mi>a</mi></mtd><mtd"),
    ],
)
def test_a_formula_is_set_as_tex_would(tex: str, part: str) -> None:
    assert part in mathml(tex, display=True)


@pytest.mark.parametrize("name", ["align", "align*", "equation", "gather", "multline", "split"])
def test_sphinx_alone_numbers_formulas(name: str) -> None:
    found = mathml(rf"\begin{{{name}}}a \\ b\end{{{name}}}", display=True)
    assert re.sub("<.*?>", "", found) == "ab" and found.count("<mtr>") == 2


@pytest.mark.parametrize(
    ("tex", "reason"),
    [
        (r"\fraction{1}{2}", r'Unknown command "\fraction"'),
        (r"\begin{tikzcd}a\end{tikzcd}", 'Unknown environment "tikzcd"'),
        (r"\frac{1}", "Expected argument"),
        ("{x", 'Expected closing token "}"'),
        ("x}", 'Unmatched closing token: "}"'),
        (r"\left( x", r'Expected closing token "\right"'),
        ("x_1_2", "Duplicate subscript"),
        ("a & b", "only appear in a table-like environment"),
        (r"\eqref{x}", "leads nowhere"),
    ],
)
def test_a_broken_formula_is_refused(tex: str, reason: str) -> None:
    with pytest.raises(LatexError, match=re.escape(reason)):
        mathml(tex)


def test_a_broken_formula_fails_the_build_and_names_its_place(tmp_path: Path) -> None:
    place = r"index\.md:3:\s*formula \\fraction 1: .*Unknown command"
    with pytest.raises(Exception, match=place):
        build(tmp_path, "# Title\n\nAs in $\\fraction 1$.\n")


def fonts_used(page: Page) -> set[str]:
    """The fonts that Chromium drew the symbols of a page's formulas with."""
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    query = {"nodeId": root, "selector": "mi, mn, mo, mtext"}
    fonts: set[str] = set()
    for node in session.send("DOM.querySelectorAll", query)["nodeIds"]:
        used = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        fonts |= {font["familyName"] for font in used}
    return fonts


def test_the_font_is_small_and_draws_every_formula_without_a_server(
    page: Path, browser: Browser
) -> None:
    assert math_font.TARGET.stat().st_size <= 60 * 1024
    every = sorted({tex for found in FORMULAS.values() for tex in found})
    sheet = page.with_name("sheet.html")
    style = '<meta charset="utf-8"><link rel="stylesheet" href="_static/math.css">'
    sheet.write_text(style + "".join(f"<p>{mathml(tex, display=True)}" for tex in every), "utf-8")
    view = browser.new_page(java_script_enabled=False)
    for path in (page, sheet):
        view.goto(path.as_uri())
        view.evaluate("document.fonts.ready")
        for math in view.locator("math").all():
            box = math.bounding_box()
            assert box and box["width"] > 0 and box["height"] > 0
        assert fonts_used(view) == {math_font.NAME}
    assert view.locator("math").count() == len(every)
    view.close()


def test_the_font_has_the_larger_signs_of_displayed_formulas(page: Path, browser: Browser) -> None:
    sheet = page.with_name("sizes.html")
    style = '<meta charset="utf-8"><link rel="stylesheet" href="_static/math.css">'
    sheet.write_text(style + mathml(r"\sum x") + mathml(r"\sum x", display=True), "utf-8")
    view = browser.new_page()
    view.goto(sheet.as_uri())
    view.evaluate("document.fonts.ready")
    small, large = (mo.bounding_box() for mo in view.locator("mo").all())
    assert small and large and large["height"] > 1.2 * small["height"]
    view.close()


def test_only_a_formula_that_can_scroll_is_a_stop_for_the_keyboard(
    page: Path, browser: Browser
) -> None:
    view = browser.new_page(viewport={"width": 320, "height": 600})
    view.goto(page.as_uri())
    wide = view.locator("#equation-eq-wide .formula[tabindex='0']")
    wide.wait_for()
    assert view.locator(".formula[tabindex]").count() == 1
    view.set_viewport_size({"width": 1600, "height": 600})
    view.locator(".formula[tabindex]").wait_for(state="detached")
    view.close()
