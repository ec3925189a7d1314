"""Execute notebooks as other machines would: `make portability CHAPTERS="index errata"`.

PyTorch, oneDNN and MKL choose their kernels by the instructions of the CPU. Environment variables
take instructions away from them, so one machine can play older ones; the number of threads and a
loaded machine do the rest. Every setting runs `pytest --nbval`, which compares with the committed
outputs: none may depend on the machine.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from book.config import ROOT

NOTEBOOKS = ROOT / "notebooks" / "en"
# What ATen, oneDNN and MKL call the instructions that they may use
INSTRUCTIONS = {
    "SSE 4.1": ("default", "SSE41", "SSE4_2"),
    "AVX2": ("avx2", "AVX2", "AVX2"),
    "AVX-512": ("avx512", "AVX512_CORE", "AVX512"),
}
VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
LOAD = 4  # processes that compute beside the notebooks in the last setting


def settings() -> dict[str, dict[str, str]]:
    """The environment of each setting; those that this CPU cannot play are left out."""
    import torch

    flags = torch.cpu.get_capabilities()
    playable = {"SSE 4.1": True, "AVX2": flags.get("avx2"), "AVX-512": flags.get("avx512_f")}
    return {
        f"{name}, {threads} thread{'s' * (threads > 1)}": {
            "OMP_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "PASSIVE",  # threads of two settings share the cores
            **dict(zip(VARIABLES, values, strict=True)),
        }
        for name, values in INSTRUCTIONS.items()
        if playable[name]
        for threads in (1, 2)
    }


def paths(chapters: list[str]) -> list[Path]:
    """The notebooks of `chapters`, all of them if none is named; SystemExit for unknown names."""
    known = {
        path.relative_to(NOTEBOOKS).with_suffix("").as_posix(): path
        for path in sorted(NOTEBOOKS.rglob("*.ipynb"))
    }
    if unknown := sorted(set(chapters) - set(known)):
        sys.exit(f"There is no notebook {', '.join(unknown)}, but there are {', '.join(known)}.")
    return [known[name] for name in chapters or known]


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep the machine busy with so many processes that compute without end."""
    busy = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(busy) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def failure(notebooks: list[Path], environment: dict[str, str]) -> str:
    """What pytest says if the notebooks, executed again in `environment`, do not print what is
    committed; else nothing."""
    # Programs that Inductor has compiled for other instructions crash here, so none are kept.
    with TemporaryDirectory(prefix="portability-") as compiled:
        variables = os.environ | {"TORCHINDUCTOR_CACHE_DIR": compiled} | environment
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--nbval",
            "--no-header",
            *map(str, notebooks),
        ]
        result = subprocess.run(command, cwd=ROOT, env=variables, text=True, stdout=subprocess.PIPE)
        return result.stdout if result.returncode else ""


def main(chapters: list[str]) -> None:
    """Run every setting, two at a time, then one beside a load; SystemExit(1) if one failed."""
    notebooks, environments = paths(chapters), settings()
    failed = []

    def run(name: str, environment: dict[str, str]) -> None:
        start = time.monotonic()
        said = failure(notebooks, environment)
        failed.extend([name] if said else [])
        verdict = f"{said}FAILED" if said else "passed"
        print(f"{verdict}  {name}: {time.monotonic() - start:.0f} s", flush=True)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, environments, environments.values()))
    with load(LOAD):
        run(f"as it is, beside a load of {LOAD}", {})
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
