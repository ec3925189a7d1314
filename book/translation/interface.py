"""The words of the interface: ours, and those of Sphinx and the theme that our pages show.

Sphinx and the theme write them into elements, attributes and scripts as they are, so a word of the
interface is plain text, or no page is built.
"""

import json
import re
from typing import Any

from babel.messages.extract import extract_from_dir
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.locale import _

from benchmarks.goals import GOALS
from book.config import ROOT
from book.extensions import PARALLEL_SAFE
from book.translation.catalogues import Source

SPECIAL = re.compile(r"""[<>&"'`\\]""")
CODE = [("**.py", "python"), ("**.html", "jinja2")]
THEME = (
    # Around the page
    *("By", "the d2l-mgpu authors", "© Copyright %(copyright)s.", "Contents", "Back to top"),
    *("previous", "next", "previous page", "next page", "Skip to main content"),
    *("Toggle primary sidebar", "Toggle secondary sidebar", "Fullscreen mode"),
    *("Color mode", "Light", "Dark", "System Settings", "Version warning"),
    # Numbers, links, boxes
    *("Link to this heading", "Link to this image", "Link to this table", "Link to this equation"),
    *("Link to this definition", "Link to this code", "Permalink to this equation"),
    *("Note", "Tip", "Warning", "Important", "Hint", "Error", "References"),
    *("Parameters", "Returns", "Return type", "Raises", "Type", "Index", "Python Module Index"),
    # Search
    *("Search", "Search...", "Search this book...", "Go", "search"),
    "Please activate JavaScript to enable the search functionality.",
)
SEARCH = (
    *("Search Results", "Searching", "Preparing search...", "Hide Search Matches", ", in "),
    "Your search did not match any documents. Please make sure that all words are spelled "
    "correctly and that you've selected enough categories.",
    "Search finished, found ${resultCount} page(s) matching the search query.",
)
COPY = {
    "copy": "Copy",
    "copy_to_clipboard": "Copy to clipboard",
    "copy_success": "Copied!",
    "copy_failure": "Failed to copy",
}
NOT_FOUND = ("Page not found", "There is no page at this address. The book begins here:")
NUMBERS = {
    "figure": "Fig. %s",
    "table": "Table %s",
    "code-block": "Listing %s",
    "section": "Section %s",
}
BUTTONS = {
    "togglebutton_hint": "Click to show",
    "togglebutton_hint_hide": "Click to hide",
    "nb_code_prompt_show": "Show code",
    "nb_code_prompt_hide": "Hide code",
}
HINTS = {
    "toggleHintShow": "togglebutton_hint",
    "toggleHintHide": "togglebutton_hint_hide",
}


def sources() -> list[Source]:
    """The words of the interface, in English."""
    found = extract_from_dir(ROOT / "book", CODE, keywords={"_": None})
    ours = [Source(text, name) for name, _, text, *_ in found if isinstance(text, str)]
    theirs = (*THEME, *SEARCH, *NOT_FOUND, *COPY.values(), *NUMBERS.values(), *BUTTONS.values())
    titles = (Source(goal.title, "benchmarks/goals.py") for goal in GOALS.values())
    return [*ours, *titles, *(Source(text, "theme") for text in theirs)]


def special_signs(text: str) -> list[str]:
    """The signs of a text that mean something to HTML or to a string of JavaScript."""
    return sorted(set(SPECIAL.findall(text)))


def literal(value: Any) -> str:
    """A value as JavaScript that cannot end the script in which it stands."""
    return json.dumps(value, ensure_ascii=False).replace("</", r"<\/")


def script() -> str:
    """JavaScript that gives the search and the copy buttons their words."""
    search = {"messages": {text: _(text) for text in SEARCH}, "locale": "", "plural_expr": "0"}
    copy = {name: _(text) for name, text in COPY.items()}
    return "\n".join(
        [
            f"Documentation.addTranslations({literal(search)});",
            f"messages[locale] = {literal(copy)};",
            *(
                # The extension reads its settings before settings.py has translated them.
                f"{name} = {literal(_(BUTTONS[setting]))};"
                for name, setting in HINTS.items()
            ),
            "iconCopy = iconCopy.replace(/<title>.*?<.title>/, '');",
            "iconCheck = iconCheck.replace(/<title>.*?<.title>/, '');",
        ]
    )


def add_script(app: Sphinx, config: Config) -> None:
    """Put the words after the scripts that use them."""
    app.add_js_file(None, body=script(), priority=900)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler; 950 is after settings.py has set the language's words."""
    app.connect("config-inited", add_script, priority=950)
    return PARALLEL_SAFE
