"""What stands in one place only: addresses in `_config.yml`, the d2l pin in requirements.txt."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import yaml

from book.languages import ENGLISH, LANGUAGES, Language

ROOT = Path(__file__).resolve().parent.parent
GLUON = "gluon"  # chapters/gluon holds the MXNet edition of chapters that stand in chapters
INSTALL_D2L = re.compile(r"pip install (--no-deps d2l==\S+)")


@dataclass(frozen=True)
class Addresses:
    """Where the book lives, without trailing slashes."""

    repository: str  # https://github.com/<owner>/<name>
    branch: str
    site: str

    @property
    def name(self) -> str:
        """The repository as `owner/name`."""
        return self.repository.removeprefix("https://github.com/")

    def page(self, docname: str, language: Language = ENGLISH) -> str:
        """The address of a page on the published site."""
        return f"{self.site}/{language.path}{docname}.html"

    def alternates(self, docname: str) -> list[tuple[str, str]]:
        """The tag of each language and the address of the page in it; x-default is English."""
        pages = [(each.tag, self.page(docname, each)) for each in LANGUAGES]
        return [*pages, ("x-default", self.page(docname))]

    def image(self, path: str) -> str:
        """An address at which GitHub, Colab and Jupyter all show an image of the repository.

        None of the three resolves what suits the others: Colab knows neither relative paths nor
        attachments, GitHub blocks data URIs. `sanitize=true` serves SVG as an image, not as text.
        """
        raw = self.repository.replace("github.com", "raw.githubusercontent.com")
        return f"{raw}/{self.branch}/{path}" + ("?sanitize=true" if path.endswith(".svg") else "")


@functools.cache  # every page of a build asks
def addresses(root: Path) -> Addresses:
    """The addresses in the `_config.yml` of the book in a folder."""
    settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    repository = settings["repository"]
    return Addresses(
        repository=repository["url"].rstrip("/"),
        branch=repository["branch"],
        site=settings["html"]["baseurl"].rstrip("/"),
    )


def notebook_path(docname: str, language: Language = ENGLISH) -> str:
    """The committed notebook of a chapter, relative to the repository root."""
    return f"notebooks/{language.folder}/{docname.removeprefix('chapters/')}.ipynb"


def pytorch_twin(docname: str) -> str | None:
    """The PyTorch page of an MXNet page, be it in the book or not; None for any other page."""
    path = PurePosixPath(docname)
    return str(path.parent.parent / path.name) if path.parent.name == GLUON else None


def d2l_requirement(requirements: Path = ROOT / "requirements.txt") -> str:
    """What follows `pip install` to get d2l, as the comment in requirements.txt says it."""
    match = INSTALL_D2L.search(requirements.read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(f"{requirements} names no 'pip install --no-deps d2l==...': add it")
    return match[1]
