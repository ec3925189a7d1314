"""The committed notebooks: made from the chapters, readable anywhere, executable alone."""

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from book import outputs, release
from book.config import addresses
from book.execution import mxnet_kernel
from book.languages import LANGUAGES, TRANSLATIONS, Language
from tests.support import ROOT
from tests.support.repositories import git, new_repository
from tests.support.tiny_book import run_book

NOTEBOOKS = sorted((ROOT / "notebooks").glob("**/*.ipynb"))
WHERE = addresses(ROOT)
INSTALLS = re.compile(r"%pip install -q 'd2l_mgpu(?:\[gluon\])? @ (.*)'")
TAGGED = f"git+{WHERE.repository}@{release.tag()}"
EXECUTE = """
import nbclient, nbformat
nbclient.NotebookClient(nbformat.read({name!r}, as_version=4), timeout=1800).execute()
"""
ENGLISH_NOTEBOOKS = [path for path in NOTEBOOKS if (ROOT / "notebooks/en") in path.parents]
each_notebook = pytest.mark.parametrize(
    "path", NOTEBOOKS, ids=lambda path: name(path).replace("/", "-")
)


def markdown(path: Path) -> str:
    """All Markdown of a notebook, without what stands between backticks or dollars."""
    cells = nbformat.read(path, as_version=4).cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return re.sub(r"```.*?```|`[^`]*`|\$\$.*?\$\$|(?<!\\)\$[^$]*\$", "", text, flags=re.DOTALL)


def name(path: Path) -> str:
    """A committed notebook as `en/gluon/multiple-gpus`."""
    return path.relative_to(ROOT / "notebooks").with_suffix("").as_posix()


def of_gluon(path: Path) -> bool:
    return path.parent.name == "gluon"


def code_cells(path: Path) -> list[Any]:
    """The code cells of a notebook with their tags, their outputs and their ids."""
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def without_outputs(path: Path) -> str:
    """A notebook as if it had not been executed; a drawing as it is."""
    if path.suffix == ".svg":
        return path.read_text(encoding="utf-8")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["metadata"]["d2l_mgpu"].pop("executed", None)
    for cell in notebook["cells"]:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
    return json.dumps(notebook, indent=1)


def run_nbval(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--nbval", "-p", "conftest", str(path)]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def unexecuted() -> Path:
    """The notebooks that the chapters make today, without outputs."""
    result = run_book("unexecuted", ROOT, D2L_MGPU_SOURCE="generated")
    assert result.returncode == 0, result.stdout
    return ROOT / "_build" / "unexecuted"


def test_the_notebooks_are_what_the_chapters_make(unexecuted: Path) -> None:
    made, committed = (
        {
            path.relative_to(folder).as_posix(): without_outputs(path)
            for spoken in LANGUAGES
            for path in (folder / spoken.folder).glob("**/*")
            if path.suffix in (".ipynb", ".svg")
        }
        for folder in (unexecuted, ROOT / "notebooks")
    )
    assert made.keys() == committed.keys(), "type: make notebooks"
    for name, text in made.items():
        assert text == committed[name], f"{name} is stale, type: make notebooks"


def codes(folder: Path) -> dict[str, str]:
    """The chapters whose notebooks are in a folder, and what their outputs depend on."""
    facts = json.loads((folder / outputs.EXECUTIONS).read_text(encoding="utf-8"))
    return {chapter: fact["code"] for chapter, fact in facts.items()}


def test_the_outputs_of_the_last_build_are_the_committed_ones(unexecuted: Path) -> None:
    built = ROOT / outputs.BUILT
    if not (built / outputs.EXECUTIONS).exists():
        pytest.skip("make book has not been run here")
    now, then = codes(unexecuted / "en"), codes(built)
    if changed := [name for name in now.keys() | then.keys() if now.get(name) != then.get(name)]:
        pytest.skip(f"since the last make book, {', '.join(sorted(changed))} changed")
    assert not outputs.compare(ROOT).differences


@pytest.mark.parametrize("spoken", TRANSLATIONS, ids=lambda spoken: spoken.code)
def test_code_and_outputs_are_the_same_in_every_language(spoken: Language) -> None:
    folder = ROOT / "notebooks" / "en"
    for english in folder.glob("**/*.ipynb"):
        path = ROOT / "notebooks" / spoken.folder / english.relative_to(folder)
        assert code_cells(path) == code_cells(english), path.name


def test_a_changed_output_in_one_language_is_noticed(tmp_path: Path) -> None:
    source = ROOT / "notebooks" / "vi" / "index.ipynb"
    copy = tmp_path / "index.ipynb"
    text = source.read_text(encoding="utf-8")
    copy.write_text(text.replace("replicas 0 and 1 differ", "replicas 0 and 2 differ"))
    assert code_cells(copy) != code_cells(source)


@each_notebook
def test_a_notebook_opens_with_a_gpu_in_colab_and_installs_first(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    if of_gluon(path):
        assert notebook.metadata.kernelspec.name == mxnet_kernel.KERNEL
        assert notebook.metadata.d2l_mgpu.executed["framework"] == "MXNet 1.9.1"
    else:
        assert notebook.metadata.accelerator == "GPU"
        assert notebook.metadata.colab == {"gpuType": "T4", "provenance": []}
        assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.metadata.d2l_mgpu.data == "generated"
    assert INSTALLS.findall(notebook.cells[0].source) == [TAGGED]
    assert "glob" not in notebook.cells[0].source  # nothing beside the notebook is installed
    assert f"v{notebook.metadata.d2l_mgpu.version}" == release.tag()


@pytest.mark.parametrize("spoken", TRANSLATIONS, ids=lambda spoken: spoken.code)
def test_links_to_pages_and_figures_stay_in_the_language(spoken: Language) -> None:
    for path in (ROOT / "notebooks" / spoken.folder).glob("**/*.ipynb"):
        for target in re.findall(r"\]\(([^)\s]+)\)", markdown(path)):
            if target.startswith(WHERE.site):
                assert target.startswith(f"{WHERE.site}/{spoken.path}"), target
            if target.startswith(WHERE.image("")):
                assert target.startswith(WHERE.image(f"notebooks/{spoken.folder}/img/")), target


@each_notebook
def test_a_notebook_needs_no_sphinx_to_be_read(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    for text in [cell.source for cell in cells if cell.cell_type == "markdown"]:
        assert not re.search(r"\{[a-z:-]+\}`|^:::|```\{|^\([\w-]+\)=$|<script", text, re.MULTILINE)


@each_notebook
def test_links_and_images_are_files_of_the_repository(path: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", markdown(path))
    raw = WHERE.image("")
    for target in targets:
        if target.startswith(raw):
            assert (ROOT / target.removeprefix(raw).partition("?")[0]).is_file(), target
        elif target.startswith(WHERE.site + "/"):
            page = target.removeprefix(WHERE.site + "/").partition("#")[0]
            for spoken in TRANSLATIONS:
                page = page.removeprefix(spoken.path)
            assert (ROOT / page).with_suffix(".md").is_file(), target
        else:
            assert target.startswith("https://"), target


@pytest.mark.parametrize(
    ("planted", "test"),
    [
        ("{ref}`sec_data`", test_a_notebook_needs_no_sphinx_to_be_read),
        ("```{note}", test_a_notebook_needs_no_sphinx_to_be_read),
        ("[there](nowhere.md)", test_links_and_images_are_files_of_the_repository),
        (
            f"[there]({WHERE.site}/vi/nowhere.html)",
            test_links_and_images_are_files_of_the_repository,
        ),
        (f"![a]({WHERE.image('no.svg')})", test_links_and_images_are_files_of_the_repository),
    ],
)
def test_what_a_notebook_must_not_hold_is_found(
    planted: str, test: Callable[[Path], None], tmp_path: Path
) -> None:
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
    notebook.cells.append(nbformat.v4.new_markdown_cell(planted))
    nbformat.write(notebook, tmp_path / "planted.ipynb")
    with pytest.raises(AssertionError):
        test(tmp_path / "planted.ipynb")


@each_notebook
def test_no_byte_depends_on_the_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for fact in (str(ROOT), str(Path.home()), sys.prefix, "/tmp/", "iopub", socket.gethostname()):
        assert len(fact) < 4 or fact == "root" or fact not in text, fact


def test_few_outputs_are_ignored_and_each_with_a_reason() -> None:
    """That there are reasons, test_outputs.py sees; those of other cells are not ignored."""
    rows = [row for row in outputs.rows(ROOT) if "depends_on" not in row]
    reasons = {(row["chapter"], row["starts"]) for row in rows}
    for spoken in LANGUAGES:
        cells: list[tuple[str, Any]] = []
        for path in [path for path in NOTEBOOKS if name(path).startswith(spoken.folder)]:
            chapter = name(path).partition("/")[2]
            cells += [(chapter, cell) for cell in code_cells(path)]
        ignored = {
            (chapter, outputs.first_line(cell))
            for chapter, cell in cells
            if "nbval-ignore-output" in cell.metadata.get("tags", [])
        }
        assert ignored == reasons
        assert len(ignored) <= 0.15 * len(cells)


def test_nbval_pins_the_recorded_data_and_accepts_what_was_stored(tiny_book: Path) -> None:
    for chapter in ("first", "second"):
        path = tiny_book / f"_build/notebooks/en/{chapter}.ipynb"
        result = run_nbval(path, D2L_MGPU_SOURCE="real")
        assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("stored", "other", "passes"),
    [
        ("accuracy 0.912, 1.25 s", "accuracy 0.905, 3.5 s", True),
        ("exactly 0.5", "exactly 0.25", False),
    ],
    ids=["a trained figure may differ", "an exact result may not"],
)
def test_nbval_compares_strictly_what_is_exact(
    tiny_book: Path, tmp_path: Path, stored: str, other: str, passes: bool
) -> None:
    notebook = nbformat.read(tiny_book / "_build/notebooks/en/second.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    (broken,) = [output for output in outputs if stored in output.text]
    broken.text = broken.text.replace(stored, other)
    nbformat.write(notebook, tmp_path / "copy.ipynb")
    result = run_nbval(tmp_path / "copy.ipynb")
    assert result.returncode == (0 if passes else 1), result.stdout
    assert passes or "Cell outputs differ" in result.stdout


def uninstall(python: Path, package: str) -> None:
    command = [python, "-m", "pip", "uninstall", "--yes", "--quiet", package]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def lone_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with everything that is installed here except d2l_mgpu."""
    folder = tmp_path_factory.mktemp("environment")
    packages = folder / "packages"
    packages.mkdir()
    for package in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if package.suffix != ".pth" and "d2l_mgpu" not in package.name:
            (packages / package.name).symlink_to(package)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    uninstall(python, "setuptools")  # an old one may come with venv and hide the newer one
    print_purelib = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = subprocess.check_output([python, "-c", print_purelib], text=True).strip()
    Path(site, "others.pth").write_text(f"{packages}\n")
    return python


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package under its tag; what came later cannot be imported."""
    folder = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "d2l_mgpu", folder / "d2l_mgpu")
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, folder)
    new_repository(folder)
    git(folder, "tag", release.tag())
    (folder / "d2l_mgpu/__init__.py").write_text("raise ImportError('not this version')\n")
    git(folder, "commit", "--quiet", "--all", "--message", "Later")
    return folder


@pytest.mark.parametrize("path", ENGLISH_NOTEBOOKS, ids=name)
def test_a_notebook_imports_only_what_the_package_brings(path: Path) -> None:
    """After its first cell, which installs that."""
    imported = set()
    for cell in code_cells(path)[1:]:
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Import):
                imported |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [*project["dependencies"]]
    if of_gluon(path):
        needs += project["optional-dependencies"]["gluon"]
    brought = {re.split(r"\W", package)[0] for package in needs}
    installed = {"d2l_mgpu", "d2l"}  # by the first cell
    assert imported <= brought | installed | {"__main__"} | sys.stdlib_module_names


# Two of them: every build executes all, and the test above sees what each imports.
@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [ROOT / f"notebooks/en/{stem}.ipynb" for stem in ("splitting", "overlap")], ids=name
)
def test_a_notebook_runs_alone_with_the_version_it_was_made_with(
    path: Path, repository: Path, lone_python: Path, tmp_path: Path
) -> None:
    shutil.copy(path, tmp_path)
    (tmp_path / "d2l_mgpu-99.0-py3-none-any.whl").write_text("planted: this is no wheel")
    uninstall(lone_python, "d2l_mgpu")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {
        "D2L_MGPU_SOURCE": "generated",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # that is how pip reads it: do not isolate
        # The repository on GitHub is this one.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{repository.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": WHERE.repository,
    }
    result = subprocess.run(
        [lone_python, "-c", EXECUTE.format(name=path.name)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    where = [lone_python, "-c", "import d2l_mgpu; print(d2l_mgpu.__file__)"]
    imported = subprocess.check_output(where, cwd=tmp_path, env=environment, text=True)
    assert Path(imported).is_relative_to(lone_python.parent.parent)
