"""What runs only where there is a GPU: each such line, and what stands in for it here.

No machine that tests this project has a GPU. A line that only one would run is run here by a test
that pretends something, or was NEVER RUN, which is good to know when it fails. On a machine
with a GPU, `python -m benchmarks.gpu` and `make test` run them.
"""

import ast
import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from d2l_mgpu import LeNet, computes_bf16, exact_dtype, launch, load_data_fashion_mnist
from d2l_mgpu import data as data_package
from d2l_mgpu.processes import joining, lost_peer
from d2l_mgpu.processes.group import process_group
from d2l_mgpu.train import Recipe, Trainer
from d2l_mgpu.train import trainer as trainer_module
from d2l_mgpu.train.checkpoint import find
from tests.support import ROOT

PACKAGE = ROOT / "d2l_mgpu"
TESTS = ROOT / "tests"
NEVER_RUN = "never run"
NO_GPU = "needs no GPU"
# Names of what only accelerators have, and questions whether a device is one.
WORDS = re.compile(
    r"torch\.(cuda|accelerator|mps|xpu)\b|\"(cuda|mps|xpu|nccl)\"|cuda_random|nccl|cudnn|CUBLAS"
    r"|pin_memory|non_blocking|default_backend|[!=]= \"cpu\"|in \(\"cpu\"|mx\.gpu|num_gpus\(\)"
)
HERE = "package/test_cuda_only.py::"
DEVICES = "package/test_devices.py::"
EXACT = "package/test_exactness.py::"
GRAPHS = f"{NEVER_RUN}: package/test_cuda_graphs.py does it where there is a GPU"

# File and piece of source -> the test that runs it with something pretended.
LINES: dict[str, dict[str, str]] = {
    "devices.py": {
        "torch.accelerator.is_available() else 0": f"{DEVICES}test_as_many_devices_as_asked",
        "torch.accelerator.current_accelerator()": f"{DEVICES}test_as_many_devices_as_asked",
        'kind.type == "mps"': f"{DEVICES}test_as_many_devices_as_asked",
        'device.type not in ("cpu", "lazy")': f"{DEVICES}test_synchronize_waits_once",
        "torch.accelerator.synchronize(device)": f"{DEVICES}test_synchronize_waits_once",
    },
    "exactness.py": {
        "torch.backends.cudnn.allow_tf32": f"{EXACT}test_inside_there_is_no_tf32",
        "torch.backends.cudnn.benchmark": f"{EXACT}test_inside_runs_repeat",
        "CUBLAS_WORKSPACE_CONFIG": f"{EXACT}test_inside_runs_repeat",
        "cudnn = modes": f"{HERE}test_ranks_compute_with_the_modes",
    },
    "proofs.py": {'d.type == "mps"': f"{HERE}test_what_apples_gpu_lacks"},
    "scratch.py": {
        'non_blocking=device.type == "cuda"': f"{NEVER_RUN}: a pretended device has no queue",
    },
    "data/images.py": {
        "pinned = torch.cuda.is_available()": f"{HERE}test_batches_for_a_gpu",
        "pin_memory=pinned": f"{HERE}test_batches_for_a_gpu",
    },
    "fast.py": {
        'if device.type == "cuda":': f"{HERE}test_bfloat16_is_used",
        "torch.cuda.is_bf16_supported(including_emulation=False)": f"{HERE}test_bfloat16_is_used",
        'return device.type == "cpu" and bool(has)': f"{HERE}test_bfloat16_is_used",
        'if graph and device.type != "cuda"': "package/test_cuda_graphs.py::test_a_graph_wants",
    },
    "cuda_graphs.py": {
        "with torch.cuda.device(X.device)": GRAPHS,
        "torch.cuda.current_stream(), torch.cuda.Stream()": GRAPHS,
        "with torch.cuda.stream(stream)": GRAPHS,
        "torch.cuda.CUDAGraph()": GRAPHS,
        "torch.cuda.graph(graph, stream=torch.cuda.Stream())": GRAPHS,
    },
    "processes/joining.py": {
        'own = device.type != "cpu"': f"{HERE}test_nccl_where_each_rank",
        "torch.accelerator.set_device_index(": f"{HERE}test_nccl_where_each_rank",
        "dist.get_default_backend_for_device(device)": f"{HERE}test_nccl_where_each_rank",
        'device_id=device if own and device.type == "cuda"': f"{HERE}test_nccl_where_each_rank",
    },
    "processes/launcher.py": {
        "torch.accelerator.device_count() if torch.accelerator.is_available() else 0": (
            f"{HERE}test_a_launch_may_have"
        ),
    },
    "processes/lost_peer.py": {'r"gloo|nccl"': f"{HERE}test_an_error_of_nccl"},
    "train/trainer.py": {
        'recipe.double and group.device.type == "mps"': f"{HERE}test_what_apples_gpu_lacks",
        'if device.type == "mps" else device': f"{HERE}test_what_apples_gpu_lacks",
        'recipe.fast and group.device.type == "cuda"': GRAPHS,
        'if self.group.device.type == "cuda"': f"{HERE}test_random_numbers_of_a_gpu",
        'own["cuda_random"] = torch.cuda.get_rng_state(': f"{HERE}test_random_numbers_of_a_gpu",
        '.cuda_random" not in found.tensors': f"{HERE}test_random_numbers_of_a_gpu",
        'own.pop("cuda_random", None)': f"{HERE}test_random_numbers_of_a_gpu",
        'if "cuda_random" in own': f"{HERE}test_random_numbers_of_a_gpu",
        "torch.cuda.set_rng_state(": f"{HERE}test_random_numbers_of_a_gpu",
    },
    "train/tensors.py": {
        'not dense or tensor.device.type != "cpu"': f"{NO_GPU}: a forged file has a meta tensor",
    },
    "gluon/devices.py": {
        "available = mx.context.num_gpus()": "gluon/test_scratch.py::test_gpus_are_taken_where",
        "device = mx.gpu if": "gluon/test_scratch.py::test_gpus_are_taken_where",
    },
}


def code_lines(source: str) -> list[str]:
    """The lines of a module without imports, comments and docstrings."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        texts = isinstance(node, documented) and ast.get_docstring(node) and node.body[:1]
        for each in texts or ([node] if isinstance(node, ast.Import | ast.ImportFrom) else []):
            left_out |= set(range(each.lineno, (each.end_lineno or 0) + 1))
    lines = enumerate(source.splitlines(), 1)
    return [re.sub(r"(^|\s)#.*", "", line) for number, line in lines if number not in left_out]


def found_lines() -> dict[str, list[str]]:
    """In each file of the package: the lines that only a GPU runs, or that ask for one."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        lines = [line.strip() for line in code_lines(path.read_text()) if WORDS.search(line)]
        if lines:
            found[path.relative_to(PACKAGE).as_posix()] = lines
    return found


def test_each_line_for_a_gpu_is_listed_with_what_stands_in_for_it() -> None:
    for name, lines in found_lines().items():
        for line in lines:
            listed = any(piece in line for piece in LINES.get(name, ()))
            assert listed, f"{name}: list {line!r} in LINES, with the test that runs it here"


def test_what_is_listed_is_still_there() -> None:
    found = found_lines()
    for name, pieces in LINES.items():
        for piece in pieces:
            here = any(piece in line for line in found.get(name, ()))
            assert here, f"{name} has no line with {piece!r}: take it out of LINES"


def test_each_stand_in_is_a_test() -> None:
    stand_ins = {each for pieces in LINES.values() for each in pieces.values()}
    for stand_in in stand_ins:
        if not stand_in.startswith((NEVER_RUN, NO_GPU)):
            file, _, name = stand_in.partition("::")
            assert f"\ndef {name}" in (TESTS / file).read_text(), stand_in


def test_a_new_line_for_a_gpu_would_be_noticed() -> None:
    source = (
        '"""torch.cuda"""\nimport torch.cuda\nx = 1  # torch.cuda\nif x.type == "cuda":\n    y()\n'
    )
    assert [line for line in code_lines(source) if WORDS.search(line)] == ['if x.type == "cuda":']


@pytest.mark.parametrize(
    ("devices", "backend", "device_id"),
    [
        (["cuda:0", "cuda:1"], "cpu:gloo,cuda:nccl", "cuda:1"),
        (["cuda:0", "cuda:0"], "gloo", None),
        (["xpu:0", "xpu:1"], "cpu:gloo,xpu:xccl", None),
        (["cpu", "cpu"], "gloo", None),
    ],
)
def test_nccl_where_each_rank_has_a_gpu_and_gloo_where_they_share(
    devices: list[str], backend: str, device_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: dict[str, Any] = {}
    current: list[int] = []
    monkeypatch.setattr(joining, "_device", None)
    monkeypatch.setattr(torch.accelerator, "set_device_index", current.append)
    monkeypatch.setattr(
        dist, "init_process_group", lambda backend, **kw: met.update(kw, backend=backend)
    )
    monkeypatch.setattr(dist, "barrier", lambda: None)
    store = dist.HashStore()
    store.set("backend/0", backend)  # which rank 0 has said by now
    places = [torch.device(device) for device in devices]
    joining.join_process_group(places, 1, store, 1, 2)
    assert met["backend"] == backend and joining.rank_device() == places[1]
    assert met["device_id"] == (torch.device(device_id) if device_id else None)
    assert current == ([] if devices[1] == "cpu" else [places[1].index])


def test_batches_for_a_gpu_are_pinned_and_those_on_it_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = load_data_fashion_mnist(4, num_train=8, num_test=1, source="generated")[0]
    assert not batches.pin_memory
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert type(batches)(batches.dataset, 4).pin_memory
    on_gpu = data_package.on_device(batches.dataset, torch.device("meta"))
    assert not type(batches)(on_gpu, 4).pin_memory


def test_bfloat16_is_used_where_the_gpu_computes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for supported in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: supported)  # noqa: B023
        assert computes_bf16(torch.device("cuda")) == supported
    assert not computes_bf16(torch.device("mps"))


def test_what_apples_gpu_lacks_is_not_asked_of_it() -> None:
    cpu, mps = torch.device("cpu"), torch.device("mps", 0)
    assert exact_dtype([cpu, mps]) == torch.float32 and exact_dtype([cpu]) == torch.float64
    assert trainer_module.float64_device(mps) == cpu
    with pytest.raises(ValueError, match="no double precision"):
        Trainer(torch.nn.Linear(1, 1), None, Recipe(double=True), SimpleNamespace(device=mps))  # type: ignore[arg-type]


def test_a_launch_may_have_as_many_ranks_as_there_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 5000)
    with pytest.raises(ValueError, match="at most 5000"):
        launch(print, num_devices=5001)


def test_an_error_of_nccl_blames_a_peer() -> None:
    error = RuntimeError("NCCL error: remote process exited or there was a network error")
    assert lost_peer.blames_peer(error)
    assert not lost_peer.blames_peer(RuntimeError("CUDA out of memory"))


def resumed_with(folder: Path) -> list[tuple[list[int], str]]:
    """On a rank that computes on a GPU: the random numbers of a GPU that it goes on with, first
    from a checkpoint of a GPU, then from one of a CPU."""
    images = load_data_fashion_mnist(4, num_train=8, num_test=1, source="generated")[0].dataset
    given: list[tuple[list[int], str]] = []

    def state(device: torch.device) -> torch.Tensor:
        return torch.tensor([7, 8], dtype=torch.uint8)

    def go_on(state: torch.Tensor, device: torch.device) -> None:
        given.append((state.tolist(), str(device)))

    with (
        mock.patch.object(torch.cuda, "get_rng_state", state),
        mock.patch.object(torch.cuda, "set_rng_state", go_on),
        process_group(60) as group,
    ):
        on_gpu = dataclasses.replace(group, device=torch.device("cuda", 0))
        for name, saved_on in {"gpu": on_gpu, "cpu": group}.items():
            trainer = Trainer(LeNet(), images, Recipe(batch_size=4), group)
            trainer.group = saved_on
            trainer.save(folder / name, {})
            trainer.group = on_gpu
            found = find(folder / name)
            assert found
            trainer.load(found[0])
    return given


def test_random_numbers_of_a_gpu_go_on_if_the_checkpoint_is_from_one(tmp_path: Path) -> None:
    assert launch(resumed_with, tmp_path, num_devices=1) == [[([7, 8], "cuda:0")]]


def modes() -> tuple[bool, bool]:
    return torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark


def test_ranks_compute_with_the_modes_of_their_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    before = modes()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not before[0])
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not before[1])
    assert launch(modes, num_devices=1) == [(not before[0], not before[1])]
