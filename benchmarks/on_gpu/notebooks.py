"""The chapters' notebooks, executed on this machine: what counts are their own assertions.

What they print is not compared: on a GPU it differs, in names, times and digits. The edition for
MXNet is left out; MXNet was retired before today's GPUs.
"""

import time
from pathlib import Path
from typing import Any

from benchmarks.on_gpu.setting import Findings, Setting

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "en"
QUICK = ("index", "errata")


def failed_cell(notebook: Any) -> int | None:
    """The number, from 0, of the cell that raised an error, among all cells."""
    for number, cell in enumerate(notebook.cells):
        if any(output.output_type == "error" for output in cell.get("outputs", ())):
            return number
    return None


def executed(path: Path, seconds: float) -> dict[str, Any]:
    """Execute a notebook from its beginning; what took how long, and what went wrong."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook, start = nbformat.read(path, as_version=4), time.monotonic()
    client = NotebookClient(
        notebook,
        resources={"metadata": {"path": str(path.parent)}},
        timeout_func=lambda cell: max(1, seconds - (time.monotonic() - start)),  # 0: no limit
        shutdown_kernel="immediate",  # it may be in a loop
    )
    found: dict[str, Any] = {}
    try:
        client.execute()
    except TimeoutError:
        found["wrong"] = f"not done after {seconds:.0f} s"
    except CellExecutionError as error:
        found |= {"wrong": f"{error.ename}: {error.evalue}", "cell": failed_cell(notebook)}
    except Exception as error:  # such as a kernel that died
        found["wrong"] = f"{type(error).__name__}: {error}"
    return {"seconds": round(time.monotonic() - start, 1)} | found


def find(s: Setting) -> Findings:
    try:
        import ipykernel  # noqa: F401
        import nbclient  # noqa: F401

        from book.execution.environment import missing_d2l, pin_environment
    except ModuleNotFoundError as error:
        raise RuntimeError(
            f"{error}, which notebooks need: install what requirements.txt names."
        ) from None
    if message := missing_d2l():
        raise RuntimeError(message)
    pin_environment("generated")
    end = time.monotonic() + s.seconds
    facts, wrong = {}, []
    for path in sorted(FOLDER.glob("*.ipynb")):
        if s.quick and path.stem not in QUICK:
            continue
        left = end - time.monotonic()
        found = executed(path, left) if left > 0 else {"wrong": "no time was left"}
        print(f"{path.stem}: {found}", flush=True)
        facts[path.stem] = found
        if "wrong" in found:
            wrong.append(f"{path.stem}: {found['wrong']}")
    return Findings(facts, wrong=wrong)
