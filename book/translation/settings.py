"""Sphinx extension: what a build in another language than English reads, and its settings."""

import hashlib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError
from sphinx.locale import _, translators

from book.extensions import PARALLEL_SAFE
from book.files import write_if_changed
from book.languages import ENGLISH, Language, language
from book.translation import catalogues, figures
from book.translation.catalogues import LOCALES, words
from book.translation.interface import BUTTONS, NUMBERS, special_signs


def digest(root: Path, spoken: Language) -> str:
    """Changes with any translation: titles and words of the interface stand on every page."""
    paths = sorted(catalogues.folder(root, spoken).glob("**/*.po"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def write_figures(root: Path, spoken: Language) -> None:
    """Write the drawings with their words in a language."""
    messages = words(root, spoken, "figures")
    for path in sorted((root / "chapters" / "img").glob("*.svg")):
        target = root / figures.FOLDER / spoken.folder / "img" / path.name
        write_if_changed(target, figures.translated(path, spoken.tag, messages))


def demand_plain_text(spoken: Language, messages: dict[str, str]) -> None:
    """Raise ExtensionError if a word that pages take as it is could be more than a word."""
    for english, translation in messages.items():
        if signs := special_signs(translation):
            raise ExtensionError(
                f"{spoken.code}: the translation {translation!r} of {english!r} has "
                f"{' '.join(signs)}, which every page would take for markup: write it without"
            )


def speak(messages: dict[str, str]) -> None:
    """Let our words of the interface go before Sphinx's and the theme's own."""
    for domain in ("sphinx", "booktheme"):
        vars(translators["general", domain]).setdefault("_catalog", {}).update(messages)


def prepare(app: Sphinx, config: Config) -> None:
    """Write what Sphinx reads for this language, and set what depends on it."""
    root = Path(app.srcdir)
    spoken = language(config.language)
    if spoken is not ENGLISH:
        write_figures(root, spoken)
        interface = words(root, spoken, "interface")
        title = words(root, spoken, config.root_doc).get(config.html_title, config.html_title)
        demand_plain_text(spoken, {**interface, config.html_title: title})
        speak(interface)
        drawings = f"/{figures.FOLDER}/{spoken.folder}/img"
        settings: dict[str, Any] = {
            "translations_digest": digest(root, spoken),
            "locale_dirs": [LOCALES],
            "gettext_compact": False,
            "figure_language_filename": f"{drawings}/{{basename}}{{ext}}",
            "html_baseurl": f"{config.html_baseurl}{spoken.path}",
            "project": title,
            "html_title": title,
        }
        for name, value in settings.items():
            config[name] = value
        config.html_theme_options["logo"] = {**config.html_theme_options["logo"], "text": title}
        config.html_theme_options["search_bar_text"] = _("Search this book...")
        config["author"] = _(config.author)
    for name, text in BUTTONS.items():
        config[name] = _(text)
    config["numfig_format"] = {kind: _(text) for kind, text in NUMBERS.items()}


def translate_parts(app: Sphinx, doctree: nodes.document) -> None:
    """Translate the titles of the book's parts, which Sphinx extracts but does not apply."""
    spoken = language(app.config.language)
    for toctree in doctree.findall(addnodes.toctree):
        if caption := toctree.get("caption"):
            texts = words(Path(app.srcdir), spoken, app.env.docname)
            toctree["caption"] = texts.get(caption, caption)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers; 900 is after Sphinx and the other extensions have set theirs."""
    app.add_config_value("translations_digest", "", "html")
    app.connect("config-inited", prepare, priority=900)
    app.connect("doctree-read", translate_parts)
    return PARALLEL_SAFE
