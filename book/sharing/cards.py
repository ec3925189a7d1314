"""The pictures that browsers and other sites show: `make cards`, after a change of logo or title.

They are committed, because drawing them takes a browser and a Chinese typeface, which a build does
not need. A card holds the digest of what it was drawn from, so that a test sees when it is old.
"""

import hashlib
import html
import io
import sys
from pathlib import Path

import yaml
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from book import browser
from book.config import ROOT
from book.languages import LANGUAGES, Language
from book.translation import figures
from book.translation.catalogues import words

CARDS = Path(__file__).parent / "drawn"
STATIC = Path(__file__).parent / "static"
SIZE = (1200, 630)  # what the sites that show cards ask for
COLORS = 64  # enough for flat areas and smooth letters, a quarter of the bytes
CARD = """<!DOCTYPE html><html lang="{tag}"><meta charset="utf-8"><style>
body {{ margin: 0; width: 1200px; height: 630px; box-sizing: border-box; padding: 80px;
  display: flex; flex-direction: column; justify-content: space-between;
  background: #12263a; color: #fff; font: 34px/1.3 system-ui, sans-serif; }}
h1 {{ font-size: 76px; line-height: 1.15; margin: 0 0 16px; text-wrap: balance; }}
svg {{ width: 180px; height: 180px; margin: -20px -22px; flex: none; }}
p {{ margin: 0; color: #9fd0ee; font-size: 44px; }}
small {{ font-size: 30px; color: #c9d3dc; }}
</style>{logo}<div><h1>{title}</h1><p>{motto}</p></div><small>{languages}</small></html>
"""


def card(spoken: Language) -> str:
    """A card as HTML: the logo, what it means, and the title, in a language."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    home = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["root"]
    logo = ROOT / config["logo"]
    known = words(ROOT, spoken, home) | words(ROOT, spoken, "figures")
    drawing = figures.translated(logo, spoken.tag, known)
    return CARD.format(
        tag=spoken.tag,
        logo=drawing,
        title=html.escape(known.get(config["title"], config["title"])),
        motto=drawing.partition("<title")[2].partition(">")[2].partition("<")[0],
        languages=" · ".join(each.name for each in LANGUAGES),
    )


def digest(page: str) -> str:
    """What tells a card of today from an older one."""
    return hashlib.sha256(page.encode()).hexdigest()


def draw() -> None:
    """Draw the cards and the icons in the machine's browser."""
    program = browser.program()
    if program is None:
        sys.exit(f"The cards are drawn by a browser. Install one of {', '.join(browser.NAMES)}.")
    logo = (ROOT / "chapters/img/logo.svg").read_text(encoding="utf-8")
    with browser.running(program) as running:
        page = running.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        CARDS.mkdir(exist_ok=True)
        for spoken in LANGUAGES:
            page.set_content(card(spoken))
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(COLORS)
            source = PngInfo()
            source.add_text("Source", digest(card(spoken)))
            picture.save(CARDS / f"{spoken.folder}.png", optimize=True, pnginfo=source)
        page.set_viewport_size({"width": 180, "height": 180})
        page.set_content(f"<style>body{{margin:0}}svg{{width:180px;height:180px}}</style>{logo}")
        icon = Image.open(io.BytesIO(page.screenshot(omit_background=True)))
        icon.save(STATIC / "touch-icon.png", optimize=True)
        icon.save(STATIC / "favicon.ico", sizes=[(32, 32)])


if __name__ == "__main__":
    draw()
