"""Writing files, so that what has not changed is not made again."""

from pathlib import Path


def write_if_changed(path: Path, text: str) -> None:
    """Write a file, unless it holds that text: a newer file would have its pages built again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
