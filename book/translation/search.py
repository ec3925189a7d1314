"""Sphinx extension: search that finds compounds and does not mind accents.

Sphinx finds no Chinese words without a dictionary, and no Portuguese or Vietnamese word that is
typed without its accents. Here pages and queries are split and folded by the same rules: in Python
when the index is written, in the reader's browser by `search.js` (no server is asked). English
keeps Sphinx's own search.
"""

import json
import re
import unicodedata
from pathlib import Path
from typing import Any, ClassVar

from sphinx.application import Sphinx
from sphinx.search import SearchLanguage
from sphinx.search.pt import portuguese_stopwords

JAVASCRIPT = Path(__file__).with_suffix(".js")

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"[{HAN}]|[^\W{HAN}]+")
MARKS = re.compile("[\u0300-\u036f]")


def fold(text: str) -> str:
    """The text in lower case, without diacritics, and in ordinary instead of full-width letters."""
    bare = MARKS.sub("", unicodedata.normalize("NFKD", text).lower())
    return unicodedata.normalize("NFC", bare).replace("đ", "d")


class FoldedSearch(SearchLanguage):
    """Words without their diacritics; a Chinese character is a word.

    Chinese and Vietnamese write their compounds as several such words. What `pair` finds, two
    words side by side, is indexed too, with `joint` between them: a space says that a page which
    has both words apart is found as well, but comes after one that has the pair.
    """

    pair: ClassVar[str | None] = None  # works alike in Python (re.ASCII) and in JavaScript
    joint: ClassVar[str] = ""
    # Tables of endings and what takes their place; the first that fits counts, then the next table.
    endings: ClassVar[tuple[tuple[tuple[str, str], ...], ...]] = ()

    def init(self, options: dict[str, str]) -> None:
        """Give the browser the same settings."""
        settings = {
            "han": HAN,
            "pair": self.pair,
            "joint": self.joint,
            "endings": self.endings,
        }
        code = JAVASCRIPT.read_text(encoding="utf-8")
        self.js_stemmer_code = ""  # the code below has it
        # In a block, so that its names meet no other script's.
        self.js_splitter_code = f"{{\nconst bookSearch = {json.dumps(settings)};\n{code}}}\n"

    def split(self, input: str) -> list[str]:
        """The words, then the pairs of words."""
        folded = fold(input)
        words = WORD.findall(folded)
        if self.pair is None:
            return words
        pairs = re.findall(self.pair, folded, re.ASCII)
        return words + [self.joint.join(pair) for pair in pairs]

    def stem(self, word: str) -> str:
        """The word without its ending; keywords of a page arrive here without being split."""
        stem = fold(word)
        if stem in self.stopwords:
            return stem
        for table in self.endings:
            rule = next((rule for rule in table if stem.endswith(rule[0])), None)
            if rule and len(stem) >= len(rule[0]) + 3:
                stem = stem.removesuffix(rule[0]) + rule[1]
        return stem


class SearchChinese(FoldedSearch):
    """A query of several characters looks for its pairs, wherever they stand in a longer run."""

    lang = "zh_CN"
    language_name = "Chinese"
    pair = f"([{HAN}])(?=([{HAN}]))"


class SearchVietnamese(FoldedSearch):
    """Most words are two syllables. No stop words: folded, most are a syllable of another word."""

    lang = "vi"
    language_name = "Vietnamese"
    pair = r"\b([a-z]{1,7})(?=[ \n]+([a-z]{1,7})\b)"
    joint = " "


class SearchPortuguese(FoldedSearch):
    """Plural and gender do not matter. Sphinx's stemmer cannot be used: it needs the accents."""

    lang = "pt_BR"
    language_name = "Portuguese"
    stopwords = set(map(fold, portuguese_stopwords))  # noqa: RUF012 (Sphinx declares it so)
    endings = (
        (
            ("oes", "ao"),
            ("aes", "ao"),
            ("ais", "al"),
            ("eis", "el"),
            ("ois", "ol"),
            ("ns", "m"),
            ("ss", "ss"),
            ("s", ""),
        ),
        (("a", ""), ("e", ""), ("o", "")),
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the languages; the version tells Sphinx to index again what it indexed before."""
    for search in (SearchChinese, SearchVietnamese, SearchPortuguese):
        app.add_search_language(search)
    return {"env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
