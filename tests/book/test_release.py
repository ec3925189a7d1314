"""The tag that notebooks install: set once, and the package changes together with it only."""

from pathlib import Path

import pytest

from book import release
from tests.support import ROOT
from tests.support.repositories import git, new_repository
from tests.support.tiny_book import edit

SETTINGS = """[project]
name = "d2l_mgpu"
version = "1.2.0"
dependencies = ["torch>=2.6"]

[tool.ruff]
line-length = 100
"""
LATER = {
    "the package": ("d2l_mgpu/models.py", "width = 1", "width = 2"),
    "what it needs": ("pyproject.toml", "torch>=2.6", "torch>=2.7"),
}
UNRELATED = {
    "text": ("README.md", "A book", "The book"),
    "settings of tools": ("pyproject.toml", "line-length = 100", "line-length = 99"),
}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """Where the repository is published."""
    origin = tmp_path / "origin"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(origin))
    return origin


@pytest.fixture
def clone(tmp_path: Path, origin: Path) -> Path:
    """A repository with a package, published for the first time with its tag."""
    folder = tmp_path / "clone"
    (folder / "d2l_mgpu").mkdir(parents=True)
    (folder / "d2l_mgpu/models.py").write_text("width = 1\n")
    (folder / "pyproject.toml").write_text(SETTINGS)
    (folder / "README.md").write_text("A book\n")
    new_repository(folder)
    git(folder, "remote", "add", "origin", str(origin))
    git(folder, "push", "--quiet", "origin", "main")
    release.main(folder)
    return folder


def commit(clone: Path, file: str, old: str, new: str) -> None:
    """Change a file and publish the change."""
    edit(clone / file, old, new)
    git(clone, "commit", "--quiet", "--all", "--message", "Later")
    git(clone, "push", "--quiet", "origin", "main")


def test_the_first_publication_of_a_version_sets_its_tag(clone: Path, origin: Path) -> None:
    assert git(origin, "rev-parse", "v1.2.0") == git(clone, "rev-parse", "HEAD")


@pytest.mark.parametrize("change", UNRELATED.values(), ids=UNRELATED)
def test_other_changes_leave_the_tag_where_it_is(
    clone: Path, origin: Path, change: tuple[str, str, str]
) -> None:
    before = git(origin, "rev-parse", "v1.2.0")
    commit(clone, *change)
    release.main(clone)
    assert git(origin, "rev-parse", "v1.2.0") == before


@pytest.mark.parametrize("change", LATER.values(), ids=LATER)
def test_another_package_needs_another_version(
    clone: Path, origin: Path, change: tuple[str, str, str], tmp_path: Path
) -> None:
    commit(clone, *change)
    with pytest.raises(SystemExit, match=r"not the one of v1\.2\.0 .* Raise the version"):
        release.main(clone)
    commit(clone, "pyproject.toml", "1.2.0", "1.3.0")
    git(tmp_path, "clone", "--quiet", "--depth=1", origin.as_uri(), "shallow")
    release.main(tmp_path / "shallow")
    assert git(origin, "tag") == "v1.2.0\nv1.3.0\n"


def test_a_shallow_clone_sees_the_change(clone: Path, origin: Path, tmp_path: Path) -> None:
    commit(clone, *LATER["the package"])
    git(tmp_path, "clone", "--quiet", "--depth=1", origin.as_uri(), "shallow")
    with pytest.raises(SystemExit, match="Raise the version"):
        release.main(tmp_path / "shallow")


def test_the_package_here_is_the_one_of_its_tag() -> None:
    if not release.is_set(ROOT):
        pytest.skip(f"{release.tag()} has not been published")
    release.demand_same(ROOT)
