"""Make the font of the formulas: `python -m book.theme.math_font latinmodern-math.otf`.

The source is version 1.959 of Latin Modern Math, as in Debian's package fonts-lmodern and at
https://www.gust.org.pl/projects/e-foundry/lm-math. Kept are the characters that the formulas of
such a book need, with their larger sizes and the MATH table; the result has a name of its own, as
the GUST Font License asks of what was changed. Needs the Python package brotli.
"""

import sys
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

NAME = "Book Math"
TARGET = Path(__file__).parent / "static" / "fonts" / "book-math.woff2"
RANGES = [
    (0x20, 0x7E),  # ASCII
    (0xA0, 0xA0),
    (0xAC, 0xB7),  # negation, plus-minus, middle dot
    (0xD7, 0xD7),
    (0xF7, 0xF7),
    (0x391, 0x3F5),  # Greek
    (0x2016, 0x2016),
    (0x2026, 0x2026),
    (0x2032, 0x2034),
    (0x2061, 0x2064),
    (0x2102, 0x2133),  # letters with a long history, such as the script B
    (0x2190, 0x2195),  # arrows
    (0x21A6, 0x21A6),
    (0x21D0, 0x21D4),
    (0x2200, 0x222B),  # operators and relations
    (0x2236, 0x223C),
    (0x2245, 0x224D),
    (0x2260, 0x226B),
    (0x2282, 0x2287),
    (0x2295, 0x2299),
    (0x22A4, 0x22A5),
    (0x22C0, 0x22C6),
    (0x22EE, 0x22F1),
    (0x2308, 0x230B),
    (0x23DE, 0x23DF),  # braces above and below
    (0x27E8, 0x27E9),
    (0x1D400, 0x1D467),  # bold, italic
    (0x1D49C, 0x1D4B5),  # script capitals
    (0x1D538, 0x1D550),  # double-struck capitals
    (0x1D6E2, 0x1D71B),  # Greek italic
    (0x1D7CE, 0x1D7D7),  # bold digits
]


def make(source: Path) -> None:
    """Write the font."""
    font = TTFont(source)
    # No features: browsers find sizes through the MATH table, and the optical sizes are heavy.
    options = Options(layout_features=[], hinting=False, name_IDs=[0, 1, 2, 3, 4, 5, 6, 13, 14])
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=[code for first, last in RANGES for code in range(first, last + 1)])
    subsetter.subset(font)
    names = {1: NAME, 3: NAME, 4: NAME, 6: NAME.replace(" ", "")}
    for record in font["name"].names:
        record.string = names.get(record.nameID, record.toUnicode())
    if "CFF " in font:
        font["CFF "].cff.fontNames = [NAME.replace(" ", "")]
    font.flavor = "woff2"
    font.save(TARGET)
    print(
        f"{TARGET.name}: {TARGET.stat().st_size / 1024:.1f} KB, {len(font.getGlyphOrder())} glyphs"
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
