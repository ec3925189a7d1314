"""What a translation must keep of its English, and what it must not: checks of one message.

Code, formulas, roles, links, images, HTML, placeholders and numbers are compared as the Markdown
parser of the book sees them. So a translation brings no HTML and no address that the English has
not.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import py3langid
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.myst_role import myst_role_plugin

from book.config import ROOT
from book.languages import LANGUAGES, Language
from book.translation.catalogues import LIST

NUMBER = re.compile(r"(?<![A-Za-z0-9_])\d+(?:[.,]\d+)*(?![A-Za-z_\d])")
# Versions keep their points: of packages, of Python, of Slurm and Kubernetes, of the license.
VERSION = re.compile(
    r"\d+\.\d+\.\d+|3\.1\d|22\.05|1\.37|(?<=PyTorch )\d+\.\d+|(?<=BY-SA )4\.0|(?<=ShareAlike )4\.0"
)
URL = re.compile(r"https?://[^\s)\]>，。]+[^\s)\]>.,;:，。；：]")
PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[sd]|\{\w*\}")
MARKUP = re.compile(r"[*`$\[\]<]|\{\w+\}`|\{\{")
ENGLISH_WORD = re.compile(r"(?<!\w)[A-Za-z][A-Za-z'-]*(?!\w)")
PARAGRAPH = 60  # characters of English: in shorter texts a language cannot be told for sure
COPIED = 4  # words: a longer run of the English must not be left in a translation
WORKS = re.compile("Dive into Deep Learning")  # titles that may stand in English
DECIMAL_COMMA = {"pt_BR", "vi"}


@cache
def parser() -> MarkdownIt:
    """The inline Markdown of the chapters."""
    return MarkdownIt("commonmark").use(dollarmath_plugin).use(myst_role_plugin)


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a table in locales/."""
    with (ROOT / "locales" / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@cache
def english_pages(language: Language) -> dict[str, str]:
    """Pages of other sites in a language of the book: their address -> the English one."""
    return {row[language.code]: row["en"] for row in rows("links.csv")}


@dataclass
class Content:
    """What the parser finds in a message."""

    kept: Counter[str]  # must be the same in a translation
    words: str  # must be translated


def content(text: str) -> Content:
    """Split a message into what a translation keeps and what it translates."""
    kept: Counter[str] = Counter()
    words: list[str] = []
    for token in parser().parseInline(text)[0].children or []:
        match token.type:
            case "code_inline":
                kept[f"`{token.content}`"] += 1
            case "math_inline" | "math_inline_double":
                kept[f"${token.content}$"] += 1
            case "myst_role":
                title, _, target = token.content.rpartition("<")
                target = target.removesuffix(">")
                kept[f"{{{token.meta['name']}}}`{target}`"] += 1
                words.append(title)
            case "link_open":
                kept[f"]({token.attrs['href']})"] += 1
                if "title" in token.attrs:
                    words.append(f" {token.attrs['title']} ")
            case "image":
                kept[f"![]({token.attrs['src']})"] += 1
                words.append(token.content)
            case "html_inline":
                kept[token.content] += 1
            case "text":
                words.append(token.content)
            case "softbreak" | "hardbreak":
                words.append(" ")
    plain = "".join(words)
    for url in URL.findall(plain):
        kept[url] += 1
    plain = URL.sub(" ", plain)
    for placeholder in PLACEHOLDER.findall(plain):
        kept[placeholder] += 1
    for version in VERSION.findall(plain):
        kept[f"version {version}"] += 1
    for number in NUMBER.findall(VERSION.sub(" ", plain)):
        kept[number] += 1
    return Content(kept, plain)


def changed_content(english: str, translation: str, language: Language) -> Iterator[str]:
    """Code, formulas, roles, links, images, HTML, placeholders and numbers that differ.

    A number may be written as the language writes it; a link may lead to the page in the language.
    """
    want = content(english).kept
    have: Counter[str] = Counter()
    for item, count in content(translation).kept.items():
        if item.startswith("]("):
            item = f"]({english_pages(language).get(item[2:-1], item[2:-1])})"
        elif NUMBER.fullmatch(item) and language.code in DECIMAL_COMMA:
            item = item.translate(str.maketrans(".,", ",."))
        have[item] += count
    for item in (want - have).elements():
        yield f"lacks {item}"
    if re.search(r"\bzeros?\b", english):
        want["0"] += have["0"]  # some languages have no other word for it
    for item in (have - want).elements():
        yield f"has {item}, which the English has not"


def broken_markup(english: str, translation: str) -> Iterator[str]:
    """Markup that the parser leaves as text, such as `**` between a full stop and a letter.

    A text that makes more than one paragraph would be ignored by Sphinx.
    """
    blocks = [token.type for token in parser().parse(LIST.sub(r"\1\\", translation))]
    if blocks and blocks != ["paragraph_open", "inline", "paragraph_close"]:
        yield f"is not one paragraph: {translation[:PARAGRAPH]!r}"
    before = Counter(MARKUP.findall(content(english).words))
    after = Counter(MARKUP.findall(content(translation).words))
    for mark in (after - before).elements():
        yield f"shows {mark} instead of using it as markup"


def copied_english(english: str, translation: str) -> Iterator[str]:
    """Runs of English words that were left standing; lists of names are none."""
    source = " ".join(ENGLISH_WORD.findall(content(english).words)).lower()
    words = ENGLISH_WORD.findall(WORKS.sub(" ", content(translation).words))
    for i in range(len(words) - COPIED):
        run = " ".join(words[i : i + COPIED + 1])
        if f" {run.lower()} " in f" {source} " and not run.istitle():
            yield f"leaves English: {run!r}"


@dataclass(frozen=True)
class Term:
    """A row of the glossary."""

    english: str
    translations: dict[str, str]
    strict: bool


@cache
def glossary() -> tuple[Term, ...]:
    """The terms of locales/glossary.csv."""
    return tuple(
        Term(
            english=re.sub(r" \(.*\)$", "", row["en"]),
            translations={code: row[code] for code in row if code not in ("en", "note")},
            strict=row.get("strict") == "strict",
        )
        for row in rows("glossary.csv")
    )


def pattern(term: str, language: Language) -> re.Pattern[str]:
    """Where a term stands; Portuguese inflects, so its words need only begin alike."""
    if language.code != "pt_BR":
        return re.compile(re.escape(term), re.IGNORECASE)
    stems = [re.escape(word[: max(3, len(word) - 2)]) + r"\w*" for word in re.split(r"[\s-]", term)]
    return re.compile(r"\b" + r"[\s-]".join(stems), re.IGNORECASE)


def other_terms(english: str, translation: str, language: Language) -> Iterator[str]:
    """Strict terms of the glossary that a translation calls something else.

    A longer term hides the shorter ones within it, as "gradient descent" does "gradient".
    """
    source = WORKS.sub(" ", content(english).words)
    target = content(translation).words
    for term in sorted(glossary(), key=lambda t: -len(t.english)):
        found = re.compile(rf"(?<![\w-]){re.escape(term.english)}s?(?![\w-])", re.IGNORECASE)
        if not found.search(source):
            continue
        source = found.sub(" ", source)
        if not term.strict:
            continue
        accepted = term.translations[language.code].split("|")
        if not any(pattern(word.strip(), language).search(target) for word in accepted):
            yield f"calls {term.english!r} something other than {' or '.join(accepted)}"


@cache
def avoided() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """The rows of locales/avoided.csv: a language, what reads wrong in it, what to write."""
    return tuple(
        (row["language"], re.compile(row["pattern"]), row["instead"]) for row in rows("avoided.csv")
    )


def words_to_avoid(translation: str, language: Language) -> Iterator[str]:
    """Words that native readers took for something else."""
    words = content(translation).words
    for code, pattern, instead in avoided():
        for found in pattern.finditer(words) if code == language.code else ():
            yield f"has {found[0]!r}: write {instead}"


@cache
def languages_told_apart() -> None:
    """Let py3langid choose between the languages of the book only."""
    py3langid.set_languages([each.folder for each in LANGUAGES])


def wrong_language(english: str, translation: str, language: Language) -> Iterator[str]:
    """A paragraph that is in another language of the book than it should be."""
    words = content(translation).words
    if len(content(english).words) > PARAGRAPH:
        languages_told_apart()
        found, _ = py3langid.classify(words)
        if found != language.folder:
            yield f"reads as {found}: {words[:PARAGRAPH]}..."


def problems(english: str, translation: str, language: Language) -> list[str]:
    """Everything that is wrong with a translation, a line each."""
    return [
        *changed_content(english, translation, language),
        *broken_markup(english, translation),
        *copied_english(english, translation),
        *other_terms(english, translation, language),
        *words_to_avoid(translation, language),
        *wrong_language(english, translation, language),
    ]
