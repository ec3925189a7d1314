"""Tag the version that notebooks install: `python -m book.release` (`make tag`).

The first cell of a notebook installs the package from the tag of the version that it was made with,
such as v0.1.0, so that it runs the same code years later. The workflow that publishes the site sets
the tag. From then on the package changes together with its version only.

This needs nothing but Python and git: no package from elsewhere runs where a tag can be set.
"""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def project(settings: str) -> dict[str, Any]:
    """What a pyproject.toml says of the package: its version, what it needs."""
    return tomllib.loads(settings)["project"]


def tag(root: Path = ROOT) -> str:
    """The tag of the version that the package has now."""
    return f"v{project((root / 'pyproject.toml').read_text(encoding='utf-8'))['version']}"


def git(root: Path, *command: str) -> str:
    """What a git command prints. Raises CalledProcessError when it fails."""
    return subprocess.check_output(["git", *command], cwd=root, text=True)


def is_set(root: Path) -> bool:
    """Whether the clone knows the tag."""
    return bool(git(root, "tag", "--list", tag(root)))


def has_changed(root: Path) -> bool:
    """Whether the package or what it needs is another than under its tag."""
    settings = (root / "pyproject.toml").read_text(encoding="utf-8")
    then = project(git(root, "show", f"{tag(root)}:pyproject.toml"))
    return then != project(settings) or bool(git(root, "diff", tag(root), "--", "d2l_mgpu"))


def demand_same(root: Path) -> None:
    """SystemExit if notebooks would install another package than they were made with."""
    if has_changed(root):
        sys.exit(
            f"The package is not the one of {tag(root)} any more, which notebooks install. "
            "Raise the version in pyproject.toml, and type: make notebooks"
        )


def main(root: Path = ROOT) -> None:
    """Set the tag where the repository comes from, or see that the package is still the same."""
    git(root, "fetch", "--quiet", "--tags", "origin")
    if is_set(root):
        demand_same(root)
    else:
        git(root, "tag", tag(root))
        git(root, "push", "--quiet", "origin", tag(root))


if __name__ == "__main__":
    main()
