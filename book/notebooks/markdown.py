"""Turn resolved docutils nodes into plain Markdown that needs no Sphinx to be shown.

Each rule is a method named after a node class (`block_table`, `inline_math`); a node without a
rule is a warning, so that nothing a chapter uses can be lost on the way to its notebook.
"""

import re
from collections.abc import Iterable

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.locale import _, admonitionlabels
from sphinx.util import logging

from book.config import addresses
from book.languages import language
from book.translation import figures

logger = logging.getLogger(__name__)

SPECIAL = re.compile(r"([\\`*$\[\]])|(?<!\w)(_)|(_)(?!\w)")
HTML = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?\w+;)")
STARTS_A_BLOCK = re.compile(r"^(\s*)([-+#>]|\d+[.)])(?=\s|$)", re.MULTILINE)
MULTILINE = {"align": "aligned", "alignat": "aligned", "eqnarray": "aligned", "flalign": "aligned"}
MULTILINE |= {"gather": "gathered", "multline": "gathered", "equation": "aligned"}
INVISIBLE = {"comment", "index", "meta", "substitution_definition", "target", "toctree"}
TRANSPARENT = {"compound", "definition", "glossary", "topic"}


def escape(text: str) -> str:
    """Text that Markdown and HTML show as it is."""
    text = SPECIAL.sub(r"\\\g<0>", text)
    return HTML.sub(lambda match: "&lt;" if match[0] == "<" else "&amp;", text)


def indent(text: str, first: str) -> str:
    """Put `first` before the first line and as many spaces before the others."""
    return first + text.replace("\n", "\n" + " " * len(first)).replace(
        " " * len(first) + "\n", "\n"
    )


def quote(blocks: Iterable[str]) -> str:
    """A Markdown block quote."""
    lines = "\n\n".join(blocks).split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def display_math(tex: str, number: str = "") -> str:
    """A displayed equation with its number, in the TeX that MathJax and KaTeX share."""
    tex = re.sub(
        r"\\(begin|end)\{(\w+?)\*?\}",
        lambda m: f"\\{m[1]}{{{MULTILINE.get(m[2], m[2])}}}",
        tex.strip(),
    )
    if r"\\" in tex and r"\begin" not in tex:
        tex = f"\\begin{{aligned}}\n{tex}\n\\end{{aligned}}"
    tag = f" \\tag{{{number}}}" if number else ""
    return f"$$\n{tex}{tag}\n$$"


class MarkdownWriter:
    """Writes the nodes of one document; numbers and addresses come from the application."""

    def __init__(self, app: Sphinx, docname: str) -> None:
        self.where = addresses(app.srcdir)
        self.language = language(app.config.language)
        self.docname = docname
        self.formats: dict[str, str] = app.config.numfig_format
        self.suffix: str = app.config.html_secnumber_suffix
        self.sections = app.env.toc_secnumbers.get(docname, {})
        self.numbers = app.env.toc_fignumbers.get(docname, {})

    # Blocks: a list of paragraphs, each without a final newline.

    def blocks(self, children: Iterable[nodes.Node]) -> list[str]:
        """Markdown of block nodes, one string a block; inline nodes become paragraphs."""
        found: list[str] = []
        for node in children:
            name = type(node).__name__
            if name in INVISIBLE:
                continue
            if name in TRANSPARENT:
                found += self.blocks(node.children)
            elif rule := getattr(self, f"block_{name}", None):
                found += rule(node)
            elif isinstance(node, nodes.Admonition):
                found += self.block_admonition(node)
            else:
                found += [self.inline([node])]
        return [block for block in found if block.strip()]

    def heading(self, title: nodes.Element, level: int) -> str:
        """A section's title with its number."""
        section = title.parent
        anchor = "" if level == 1 else "#" + section["ids"][0]
        number = self.sections.get(anchor) or self.sections.get("#" + section["ids"][0]) or ()
        prefix = ".".join(map(str, number)) + self.suffix if number else ""
        return "#" * level + " " + prefix + self.inline(title.children)

    def caption(self, node: nodes.Element, kind: str, text: str) -> str:
        """A caption led by its bold number: "**Fig. 1.1** Two towers."."""
        ids = [i for i in node["ids"] if i in self.numbers.get(kind, {})]
        if not ids:
            return text
        number = ".".join(map(str, self.numbers[kind][ids[0]]))
        return f"**{self.formats[kind] % number}** {text}"

    def block_paragraph(self, node: nodes.Element) -> list[str]:
        return [STARTS_A_BLOCK.sub(r"\1\\\2", self.inline(node.children))]

    block_compact_paragraph = block_caption = block_legend = block_paragraph

    def block_rubric(self, node: nodes.Element) -> list[str]:
        return [f"**{self.inline(node.children)}**"]

    def block_transition(self, node: nodes.Element) -> list[str]:
        return ["---"]

    def block_Original(self, node: nodes.Element) -> list[str]:
        # Notebooks show the English only where the translation is of an older one.
        hint = _("The English has changed since this was translated")
        return self.details(hint, [self.inline(node.children)]) if node["state"] == "stale" else []

    def inline_Original(self, node: nodes.Element) -> str:
        return ""

    def block_raw(self, node: nodes.Element) -> list[str]:
        # The only scripts are those that Jupyter Book's thebe extension adds to every page.
        return [] if node.astext().lstrip().startswith("<script") else [self.inline_raw(node)]

    def block_literal_block(self, node: nodes.Element) -> list[str]:
        language = node.get("language", "")
        fence = "```" if "```" not in node.astext() else "````"
        shown = "" if language in ("default", "none") else language
        return [f"{fence}{shown}\n{node.astext().rstrip()}\n{fence}"]

    def block_math_block(self, node: nodes.Element) -> list[str]:
        ids = [i for i in node["ids"] if i in self.numbers.get("displaymath", {})]
        if ids:
            number = ".".join(map(str, self.numbers["displaymath"][ids[0]]))
        else:
            number = str(node.get("number") or "")
        return [display_math(node.astext(), number)]

    def block_block_quote(self, node: nodes.Element) -> list[str]:
        return [quote(self.blocks(node.children))]

    def block_attribution(self, node: nodes.Element) -> list[str]:
        return ["— " + self.inline(node.children)]

    def block_bullet_list(self, node: nodes.Element) -> list[str]:
        return [self.items(node, ["- "] * len(node.children))]

    def block_enumerated_list(self, node: nodes.Element) -> list[str]:
        start = node.get("start", 1)
        return [self.items(node, [f"{start + i}. " for i in range(len(node.children))])]

    def items(self, node: nodes.Element, markers: list[str]) -> str:
        """The items of a list; a blank line between them where one has several blocks."""
        blocks = [self.blocks(item.children) for item in node.children]
        loose = any(len(item) > 1 and not item[1].startswith(("- ", "1. ")) for item in blocks)
        texts = [("\n\n" if loose else "\n").join(item) for item in blocks]
        lines = [indent(text, mark) for mark, text in zip(markers, texts, strict=True)]
        return ("\n\n" if loose else "\n").join(lines)

    def block_definition_list(self, node: nodes.Element) -> list[str]:
        blocks = []
        for item in node.children:
            terms = [child for child in item.children if isinstance(child, nodes.term)]
            rest = [child for child in item.children if not isinstance(child, nodes.term)]
            blocks += [f"**{self.inline(term.children)}**" for term in terms]
            blocks += [quote(self.blocks(rest))]
        return blocks

    def block_table(self, node: nodes.Element) -> list[str]:
        rows = []
        for row in node.findall(nodes.row):
            cells = ["<br>".join(self.blocks(entry.children)) for entry in row.children]
            rows.append([cell.replace("\n", " ").replace("|", "\\|") for cell in cells])
        entries = next(iter(node.findall(nodes.row))).children
        if not next(iter(node.findall(nodes.thead)), None):
            rows.insert(0, [""] * len(entries))
        rows.insert(1, ["---:" if "text-right" in entry["classes"] else "---" for entry in entries])
        table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        titles = [self.inline(c.children) for c in node.children if isinstance(c, nodes.title)]
        return [self.caption(node, "table", title) for title in titles] + [table]

    def block_figure(self, node: nodes.Element) -> list[str]:
        captions = [c for c in node.children if isinstance(c, nodes.caption)]
        rest = [c for c in node.children if not isinstance(c, nodes.caption)]
        texts = [self.caption(node, "figure", self.inline(c.children)) for c in captions]
        return self.blocks(rest[:1]) + texts + self.blocks(rest[1:])

    def block_admonition(self, node: nodes.Element) -> list[str]:
        children = list(node.children)
        if children and isinstance(children[0], nodes.title):
            title = self.inline(children.pop(0).children)
        else:
            title = str(admonitionlabels[type(node).__name__])
        body = self.blocks(children)
        return (
            self.details(title, body)
            if "dropdown" in node["classes"]
            else [quote([f"**{title}**", *body])]
        )

    def block_container(self, node: nodes.Element) -> list[str]:
        if node.get("design_component") == "dropdown":
            title, *rest = node.children
            return self.details(self.inline(title.children), self.blocks(rest))
        if "literal-block-wrapper" in node["classes"]:
            title, *rest = node.children
            text = self.inline(title.children)
            return [self.caption(node, "code-block", text), *self.blocks(rest)]
        blocks = self.blocks(node.children)
        if all(isinstance(child, nodes.citation) for child in node.children):
            return ["\n".join(blocks)]
        return blocks

    def details(self, title: str, body: list[str]) -> list[str]:
        """A part that opens on a click; the blank lines make its body Markdown again."""
        return [f"<details>\n<summary>{title}</summary>", *body, "</details>"]

    def block_citation(self, node: nodes.Element) -> list[str]:
        _label, *rest = node.children
        return ["- " + " ".join(self.blocks(rest))]

    # Inline nodes: one string.

    def inline(self, children: Iterable[nodes.Node]) -> str:
        """Markdown of inline nodes."""
        return "".join(self.inline_node(node) for node in children)

    def inline_node(self, node: nodes.Node) -> str:
        name = type(node).__name__
        if name in INVISIBLE:
            return ""
        if rule := getattr(self, f"inline_{name}", None):
            return rule(node)
        logger.warning(f"book/notebooks/markdown.py has no rule for a {name}", location=node)
        return escape(node.astext())

    def inline_Text(self, node: nodes.Text) -> str:
        return escape(str(node))

    def inline_inline(self, node: nodes.Element) -> str:
        return self.inline(node.children)

    inline_abbreviation = inline_generated = inline_term = inline_inline

    def inline_emphasis(self, node: nodes.Element) -> str:
        return f"*{self.inline(node.children)}*"

    inline_title_reference = inline_emphasis

    def inline_strong(self, node: nodes.Element) -> str:
        return f"**{self.inline(node.children)}**"

    def inline_literal(self, node: nodes.Element) -> str:
        text = node.astext()
        return f"`` {text} ``" if "`" in text else f"`{text}`"

    def inline_subscript(self, node: nodes.Element) -> str:
        return f"<sub>{self.inline(node.children)}</sub>"

    def inline_superscript(self, node: nodes.Element) -> str:
        return f"<sup>{self.inline(node.children)}</sup>"

    def inline_math(self, node: nodes.Element) -> str:
        return f"${node.astext().strip()}$"

    def inline_raw(self, node: nodes.Element) -> str:
        return node.astext() if "html" in node["format"].split() else ""

    def inline_image(self, node: nodes.Element) -> str:
        uri = node["uri"]
        if "://" not in uri:
            uri = self.where.image(uri.replace(figures.FOLDER, "notebooks"))
        return f"![{escape(node.get('alt', ''))}]({uri})"

    def inline_reference(self, node: nodes.Element) -> str:
        if "refid" in node:
            address = f"{self.where.page(self.docname, self.language)}#{node['refid']}"
        else:
            address = node["refuri"]
        return f"[{self.inline(node.children)}]({address})"

    inline_number_reference = inline_reference
