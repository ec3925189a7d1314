"""The languages of the book. To add one, add a line here and run `make locales`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    """A language as gettext, the site's addresses, HTML and its readers name it."""

    code: str  # of its catalogues: locales/<code>
    folder: str  # of its notebooks, notebooks/<folder>, and of its pages, /<folder>/
    tag: str  # for HTML's lang and hreflang
    name: str  # in the language itself

    @property
    def path(self) -> str:
        """What stands before a page's address: "" for English, "pt/" for Portuguese."""
        return "" if self is ENGLISH else f"{self.folder}/"


ENGLISH = Language("en", "en", "en", "English")
TRANSLATIONS = (
    Language("pt_BR", "pt", "pt-BR", "Português"),
    Language("vi", "vi", "vi", "Tiếng Việt"),
    Language("zh_CN", "zh", "zh-CN", "简体中文"),
)
LANGUAGES = (ENGLISH, *TRANSLATIONS)


def language(code: str | None) -> Language:
    """The language that Sphinx calls `code`; English for a code that is not ours."""
    return next((known for known in LANGUAGES if known.code == code), ENGLISH)
