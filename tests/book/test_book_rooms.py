"""Each folder of book/ is an extension that sets up its parts; the commands need no Sphinx."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from book.execution import chapters
from tests.support import ROOT

NEED_NO_SPHINX = (
    *("config", "languages", "files", "browser", "extensions"),
    *("sync", "serve", "outputs", "portability"),
    *("execution.environment", "execution.dependencies", "execution.mxnet_kernel"),
)
ROOMS = sorted(path.parent for path in ROOT.glob("book/*/__init__.py"))


def test_what_the_book_stands_on_and_its_commands_need_no_sphinx() -> None:
    imports = "\n".join(f"import book.{name}" for name in NEED_NO_SPHINX)
    code = f"import sys\n{imports}\nprint(*(name for name in sys.modules if 'sphinx.' in name))"
    found = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split()
    assert [name for name in found if name.startswith("sphinx.")] == []


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_a_folder_sets_up_every_extension_in_it(room: Path) -> None:
    parts = re.findall(r'"(\w+)"', (room / "__init__.py").read_text().partition("setup_of(")[2])
    extensions = {path.stem for path in room.glob("[!_]*.py") if "def setup(" in path.read_text()}
    assert set(parts) == extensions and len(parts) == len(extensions)


def test_the_configuration_names_every_folder() -> None:
    settings = yaml.safe_load((ROOT / "_config.yml").read_text())
    assert {*settings["sphinx"]["local_extensions"]} == {f"book.{room.name}" for room in ROOMS}


def test_a_chapter_is_parsed_once_and_its_callers_cannot_spoil_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("one")
    parsed = []

    def read(text: str) -> SimpleNamespace:
        parsed.append(text)
        return SimpleNamespace(cells=[text])

    monkeypatch.setattr(chapters, "create_nb_reader", lambda *_: SimpleNamespace(read=read))
    env = SimpleNamespace(doc2path=lambda name: str(page), myst_config=None, mystnb_config=None)
    dependencies = SimpleNamespace(marked=lambda docname, text: text)
    app = SimpleNamespace(env=env, dependencies=dependencies, parsed_chapters={})
    chapters.notebook(app, "page").cells.append("output")
    assert chapters.notebook(app, "page").cells == ["one"] and parsed == ["one"]
    page.write_text("two")
    assert chapters.notebook(app, "page").cells == ["two"] and parsed == ["one", "two"]
