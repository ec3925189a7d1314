"""Give the Chinese text of a PDF its characters back.

Some characters, such as 一 and 见, share their shape with a radical (U+2F00, U+2EC5). Chromium says
of the shape that it is the radical, so a reader who looks for 一 would not find it.
"""

import re
import unicodedata

from pypdf import PdfWriter
from pypdf.generic import DictionaryObject, StreamObject

# The second block of radicals has no decomposition in Unicode's data. This is Noto's own choice.
RADICALS = "⺏⺒⺟⺠⻁⻅⻆⻉⻋⻑⻒⻓⻔⻘⻙⻚⻛⻜⻝⻢⻣⻤⻥⻦⻧⻨⻩⻪⻬⻮⻰⻳"
CHARACTERS = "尣巳母民虎见角贝车長镸长门青韦页风飞食马骨鬼鱼鸟卤麦黄黾齐齿龙龟"
SUPPLEMENT = str.maketrans(RADICALS, CHARACTERS)
ENTRY = re.compile(r"<(2[EF][0-9A-F]{2})>$", re.MULTILINE | re.IGNORECASE)


def character(radical: str) -> str:
    """The character that looks like a radical."""
    return unicodedata.normalize("NFKC", radical).translate(SUPPLEMENT)


def repaired(text: str) -> str:
    """A map from codes to characters without radicals."""
    return ENTRY.sub(lambda entry: f"<{ord(character(chr(int(entry[1], 16)))):04X}>", text)


def repair(writer: PdfWriter) -> None:
    """Repair the map of every font."""
    for found in writer._objects:
        if isinstance(found, DictionaryObject) and "/ToUnicode" in found:
            stream = found["/ToUnicode"].get_object()
            assert isinstance(stream, StreamObject)
            stream.set_data(repaired(stream.get_data().decode()).encode())
