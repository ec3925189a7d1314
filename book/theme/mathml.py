"""TeX to the MathML that browsers render: latex2mathml, checked and mended.

latex2mathml takes much that TeX refuses, and writes spacing and letters that only MathML 3 knows;
browsers implement MathML Core. The rules below follow TeX: "The TeXbook", chapters 17 and 18.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from xml.etree.ElementTree import Element, tostring

from latex2mathml import commands
from latex2mathml.converter import convert_to_element

# Environments of amsmath that latex2mathml lacks or numbers, by those it has.
SAME_AS = {"align": "split", "align*": "split", "aligned": "split", "flalign": "split"}
KNOWN = {name.removeprefix("\\") for name in commands.MATRICES}
ENVIRONMENT = re.compile(r"\\(begin|end)\{([^}]*)\}")
ARITY = {"mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "mroot": 2}
ARITY |= {"msubsup": 3, "munderover": 3}
SCRIPTS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
LIMITS = {*SCRIPTS, *SCRIPTS.values()}
ROWS = {"mrow", "mtd", "msqrt", "mstyle"}
WITH_LIMITS = set("∏∐∑⋀⋁⋂⋃⨀⨁⨂⨄") | {"lim", "max", "min", "sup", "inf"}
ORDINARY = set("…∀∂∃∅∇∞⊤⊥")  # letters to TeX, but operators to latex2mathml
UNSPACED = set("|‖/.")
CLOSING = set(")]}|‖⟩⌉⌋!")
OPENING = set("([{⟨⌈⌊")
THIN = "0.167em"


def environments(tex: str) -> str:
    """Rename environments, and put lines that stand in none into one, as Sphinx does."""

    def rename(match: re.Match[str]) -> str:
        name = match[2]
        if name.rstrip("*") == "equation":
            return ""
        if name not in SAME_AS and name not in KNOWN:
            raise ValueError(f"the environment {name} is not known")
        return f"\\{match[1]}{{{SAME_AS.get(name, name)}}}"

    parts = [part.strip() for part in re.split(r"\n\s*\n", ENVIRONMENT.sub(rename, tex).strip())]
    tex = r" \\ ".join(parts)
    return tex if r"\\" not in tex or r"\begin" in tex else rf"\begin{{split}}{tex}\end{{split}}"


def check(tex: str, element: Element) -> None:
    """Raise ValueError for what latex2mathml lets pass although TeX would not."""
    if len(re.findall(r"(?<!\\)\{", tex)) != len(re.findall(r"(?<!\\)\}", tex)):
        raise ValueError("its braces do not match")
    for part in element.iter():
        text = part.text or ""
        if re.match(r"\\[A-Za-z]", text) and part.tag != "mtext":
            raise ValueError(f"the command {text} is not known")
        if text == "&" or "linebreak" in part.attrib:
            raise ValueError("it has several lines or columns outside of an environment")
        if len(part) != ARITY.get(part.tag, len(part)):
            raise ValueError("an argument is missing")


def letter(text: str, variant: str) -> str:
    """A letter or digit in bold, script, ...: Core has these as characters, not as attributes."""
    kind, *name = re.sub("LATIN |GREEK |LETTER ", "", unicodedata.name(text, "")).split()
    style = variant.upper().replace("-", " ")
    return unicodedata.lookup(" ".join(["MATHEMATICAL", style, kind, *name]))


def core(element: Element) -> Element:
    """The symbol that carries the sub- and superscripts; the element itself if it has none."""
    while element.tag in LIMITS and len(element):
        element = element[0]
    return element


def neighbors(row: Element) -> Iterator[tuple[Element | None, Element, Element | None]]:
    """Each element of a row, between the one before and the one after it, without their scripts."""
    cores: list[Element | None] = [None, *map(core, row), None]
    for before, element, after in zip(cores, cores[1:], cores[2:], strict=False):
        if element is not None:
            yield before, element, after


def is_operator(element: Element | None) -> bool:
    """Whether what follows cannot be a binary operator, and needs no space before it."""
    return element is not None and element.tag == "mo" and element.text not in CLOSING


def space(row: Element) -> None:
    """Set the spaces where TeX's differ from those of the browser's operator dictionary."""
    for before, element, after in neighbors(row):
        text = element.text or ""
        if element.tag in {"mi", "mo"} and len(text) > 1 and text[0].isalpha():  # log, max
            element.tag = "mo"
            called = after is None or after.text in OPENING or is_operator(after)
            element.set("lspace", "0" if before is None or is_operator(before) else THIN)
            element.set("rspace", "0" if called else THIN)
        elif element.tag == "mo" and text in UNSPACED and "form" not in element.attrib:
            element.attrib = {"stretchy": "false", "lspace": "0", "rspace": "0"}
        elif element.tag == "mo" and text in {"+", "−", "±", "∓"} and is_operator(before):
            element.set("form", "prefix")  # a sign


def mend(element: Element) -> None:
    """Turn what latex2mathml wrote into what MathML Core understands."""
    for part in element.iter():
        part.text = html.unescape(part.text) if part.text else None
        if "mathvariant" in part.attrib and part.text and len(part.text) == 1:
            part.text = letter(part.text, part.attrib.pop("mathvariant"))
        if part.tag == "mo" and part.text in ORDINARY:
            part.tag = "mi"
        elif part.tag == "mi" and part.text == ":":
            part.tag = "mo"
    for part in element.iter():
        if part.tag in SCRIPTS and (
            part[0].text in WITH_LIMITS or "movablelimits" in part[0].attrib
        ):
            part.tag = SCRIPTS[part.tag]
            part[0].set("movablelimits", "true")  # beside it where the style is not displayed
        if part.tag in ROWS:
            space(part)
    for part in element.iter():
        if part.tag in LIMITS:
            for operator in (mo for script in part[1:] for mo in script.iter("mo")):
                operator.attrib |= {"lspace": "0", "rspace": "0"}  # scripts are set tight


def mathml(tex: str, display: bool = False) -> str:
    """A formula as a `math` element that keeps its TeX; ValueError says what is wrong with it."""
    # TeX's \mathrm of one letter would come back slanted.
    source = environments(tex).replace(r"\mathrm", r"\text")
    try:
        row = convert_to_element(source, display="block" if display else "inline")[0]
    except Exception as error:  # latex2mathml's exceptions have no base class, and no text
        words = re.findall("[A-Z][a-z]+", type(error).__name__.removesuffix("Error"))
        raise ValueError(" ".join(words).lower()) from error
    check(source, row)
    mend(row)
    math = Element("math", {"class": "notranslate", "alttext": " ".join(tex.split())})
    if display:
        math.set("display", "block")
    math.append(row)
    return tostring(math, encoding="unicode")
