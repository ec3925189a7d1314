"""Row 8: the same steps of LeNet, one after the other and as a CUDA graph."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.on_gpu.epoch import seconds
from benchmarks.on_gpu.setting import Findings, Setting, fast_step
from benchmarks.pairs import Arms, compare
from d2l_mgpu import LeNet

PLAIN = {"channels_last": False, "bf16": False}
OTHERS: dict[str, dict[str, Any]] = {
    "eager, bfloat16, channels last": {},
    "graph, bfloat16, channels last": {"graph": True},
    "graph, compiled": {"graph": True, "compiled": True, **PLAIN},
    "graph, compiled, bfloat16, channels last": {"graph": True, "compiled": True},
}


def lenet_steps(s: Setting, steps: int, **options: Any) -> tuple[nn.Module, Callable[[], None]]:
    """LeNet, and a function that takes so many steps with one batch."""
    net = LeNet()
    _, step = fast_step(s, net, 0.01, **options)
    X, y = s.batch

    def run() -> None:
        for _ in range(steps):
            step(X, y)

    return net, run


def arms(s: Setting, steps: int) -> Arms:
    """Both ways, whose weights are equal after their first steps."""
    net, eager = lenet_steps(s, steps, **PLAIN)
    replayed, graph = lenet_steps(s, steps, graph=True, **PLAIN)
    for run in (eager, graph):
        run()
    for ours, theirs in zip(replayed.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    return Arms(eager, graph, {"batch": s.batch_size, "steps": steps})


def find(s: Setting) -> Findings:
    steps = 2 if s.quick else 100
    row = compare("gpu graph", arms, s, steps, pairs=2 if s.quick else None)
    facts = {}
    for name, options in OTHERS.items():
        if s.quick and options.get("compiled"):
            continue
        _, run = lenet_steps(s, steps, **options)
        seconds(run)
        facts[name] = seconds(run) / steps
        print(f"LeNet, {name}: {1e6 * facts[name]:.0f} µs a step")
    return Findings({"seconds a step": facts}, [row], [row["why"]] if "why" in row else [])
