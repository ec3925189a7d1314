"""Publishing: a copy names its own addresses, workflows are pinned, the address stands once."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from book.config import addresses
from tests.support import ROOT
from tests.support.built_site import soup
from tests.support.their_book import SITE

HASH = re.compile(r"uses: (\S+)@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def traces(site: Path) -> list[str]:
    """Files of a site that name our repository or our site."""
    ours = addresses(ROOT)
    names = (ours.name, ours.site.partition("://")[2])
    found = (path for path in site.glob("**/*") if path.is_file())
    return [p.name for p in found if any(n in p.read_text(errors="ignore") for n in names)]


def test_a_copy_with_its_own_addresses_names_none_of_ours(their_book: Path) -> None:
    assert traces(their_book / "_build/html") == []
    head = str(soup(their_book / "_build/html" / "pt/chapters/first.html").head)
    assert f"{SITE}/pt/chapters/first.html" in head


def test_a_trace_of_ours_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(f'<a href="{addresses(ROOT).site}/x">')
    assert traces(tmp_path) == ["page.html"]


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def workflow_faults(text: str, targets: set[str]) -> list[str]:
    """What is wrong with a workflow: actions that may change, commands that are not the README's,
    rights that it does not need."""
    faults = [
        line.strip() for line in text.splitlines() if "uses:" in line and not HASH.search(line)
    ]
    workflow = yaml.safe_load(text)
    if workflow.get("permissions") != {"contents": "read"}:
        faults.append("permissions")
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            for command in step.get("run", "").splitlines():
                known = re.fullmatch(r"make ([\w-]+)( \w+=\w+)*", command)
                if not (known and known[1] in targets) and not command.startswith("sudo apt-get "):
                    faults.append(command)
    return faults


def targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_pinned_and_runs_what_the_makefile_has(path: Path) -> None:
    assert workflow_faults(path.read_text(), targets()) == []


def test_the_site_is_published_when_the_checks_of_main_have_passed() -> None:
    text = (ROOT / ".github/workflows/publish.yml").read_text()
    workflow = yaml.safe_load(text)
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML reads `on` as true
    assert workflow[True]["push"]["branches"] == ["main"]
    tag, publish = workflow["jobs"]["tag"], workflow["jobs"]["publish"]
    assert set(tag["needs"]) == {"test", "site"} and publish["needs"] == ["tag"]
    assert tag["if"] == publish["if"] == "github.event_name == 'push'"
    assert publish["permissions"] == {"pages": "write", "id-token": "write"}
    (upload,) = [s for s in workflow["jobs"]["site"]["steps"] if "upload" in s.get("uses", "")]
    assert upload["with"]["path"] == "_build/html"
    commands = [step.get("run") for step in workflow["jobs"]["site"]["steps"]]
    assert "make book DATA=FashionMNIST" in commands


def test_nothing_is_installed_where_the_repository_can_be_written() -> None:
    jobs = [job for path in WORKFLOWS for job in yaml.safe_load(path.read_text())["jobs"].values()]
    writing = [job for job in jobs if job.get("permissions", {}).get("contents") == "write"]
    (steps,) = [job["steps"] for job in writing]
    assert [step.get("run", step.get("uses", "").partition("@")[0]) for step in steps] == [
        "actions/checkout",
        "make tag",
    ]
    commands = would_run("tag")
    assert any(" -m book.release" in command for command in commands)
    assert not [command for command in commands if "install" in command]


def would_run(target: str) -> list[str]:
    """The commands of a target of the Makefile, as if nothing had been made."""
    command = ["make", "--always-make", "--dry-run", target]
    output = subprocess.check_output(command, cwd=ROOT, text=True)
    return output.replace("\\\n", " ").splitlines()


def test_make_installs_what_is_locked_and_the_book() -> None:
    installs = [command for command in would_run(".venv/.ready") if "pip install" in command]
    locked, book = installs
    assert locked.endswith("--no-deps --require-hashes -r requirements.lock")
    assert book.endswith("--no-deps --no-build-isolation -e .")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0", "@v5"),
        ("make test\n", "make everything\n"),
        ("contents: read", "contents: write"),
    ],
)
def test_a_fault_of_the_workflow_is_found(old: str, new: str) -> None:
    text = (ROOT / ".github/workflows/publish.yml").read_text()
    assert old in text
    assert workflow_faults(text.replace(old, new), {*targets(), "pdf"})


def test_the_address_stands_in_one_place() -> None:
    ours = addresses(ROOT)
    names = (ours.name, ours.site.partition("://")[2])
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.yml", "*.toml", "*.html", "*.js", "*.css", "*.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    found = [path for path in tracked if any(n in (ROOT / path).read_text() for n in names)]
    assert found == ["_config.yml"]
