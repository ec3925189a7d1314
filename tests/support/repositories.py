"""Git repositories that tests make."""

import subprocess
from pathlib import Path

AUTHOR = ("-c", "user.name=A test", "-c", "user.email=test@example.org")


def git(folder: Path, *command: str) -> str:
    """What a git command prints in a folder; CalledProcessError when it fails."""
    return subprocess.check_output(["git", *AUTHOR, *command], cwd=folder, text=True)


def new_repository(folder: Path) -> None:
    """Make a folder a repository with one commit, of all that is in it."""
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "First")
