"""Rows 7 and 8, and what else only a GPU can tell, in one call of less than ten minutes.

    python -m benchmarks.gpu

It prints what it finds on the way and writes `results/gpu.json`. With `--device cpu --quick` the
same code runs on a few images, without graphs: to see that it works, and not how fast.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.benchmark import Timer
from torch.utils.benchmark.utils.timer import timer

from benchmarks import published, results
from benchmarks.epoch import NOISE, check_accuracies, images, part
from benchmarks.pairs import WARM_UPS, Arms, compare
from benchmarks.ranks import largest_differences
from d2l_mgpu import LeNet, evaluate_accuracy_gpus, init_weights, resnet18
from d2l_mgpu.data import DeviceBatches, Images
from d2l_mgpu.fast import FastNet, FastStep, computes_bf16

FLOP = 2.734e9  # of one image through ResNet-18, forward and backward
LR = 0.1
WAYS: dict[str, dict[str, Any]] = {  # one change at a time
    "images on the device": {"channels_last": False, "bf16": False},
    "channels last": {"bf16": False},
    "bfloat16": {},
    "CUDA graph": {"graph": True},
    "compiled": {"graph": True, "compiled": True},
}


@dataclass
class Setting:
    """Where, on what and for how long."""

    device: torch.device
    train: Images
    test: Images
    batch_size: int = 256
    epochs: int = 10  # after which accuracies are compared
    noise: float = NOISE
    product: int = 8192  # rows and columns of the matrices that tell the peak
    steps: int = 100  # of LeNet, in a run of row 8
    compiled: bool = True
    minutes: float = 9.0

    @property
    def gpu(self) -> bool:
        return self.device.type == "cuda"


def setting(device: torch.device, quick: bool) -> Setting:
    """60,000 training images, repeated where there are fewer; with `quick` no more than 8."""
    train, test = images(60_000)
    n = 8 if quick else 60_000
    train = part(train, torch.arange(n) % len(train))
    if not quick:
        return Setting(device, train, test)
    return Setting(device, train, part(test, slice(n)), 4, 1, 1.0, 256, 2, False)


def network() -> nn.Sequential:
    """ResNet-18 with the first weights of the published chapter."""
    net = resnet18(10)
    init_weights(net, torch.zeros(1, 1, 28, 28))
    return net


def as_published(s: Setting) -> tuple[nn.Module, Callable[[], None]]:
    net = published.concise(network(), [s.device])
    batches = published.loader(s.train, s.batch_size)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    return net, lambda: published.resnet18_epoch(net, batches, optimizer, s.device)


def ours(
    s: Setting, *, graph: bool = False, compiled: bool = False, **options: Any
) -> tuple[FastNet, Callable[[], None]]:
    net = network()
    fast = FastNet(net, s.device, compiled_for=s.batch_size if compiled else None, **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, fused=s.gpu)
    step = FastStep(fast, optimizer, graph=graph and s.gpu)
    batches = DeviceBatches(s.train, s.batch_size, s.device, seed=0)

    def epoch() -> None:
        fast.train()
        for X, y in batches:
            step(X, y)

    return fast, epoch


def seconds(run: Callable[[], object]) -> float:
    start = timer()
    run()
    return timer() - start


def peak(s: Setting) -> float:
    """FLOP/s of a large product of bfloat16 matrices."""
    A, B = (torch.randn(s.product, s.product, device=s.device).bfloat16() for _ in range(2))
    measured = Timer("A @ B", globals={"A": A, "B": B}).blocked_autorange(min_run_time=1)
    return 2 * s.product**3 / measured.median


def ways(s: Setting) -> dict[str, float]:
    """Seconds of the second epoch of each way; the first pays for compiling and recording."""
    found = {}
    makers: dict[str, Callable[[], tuple[nn.Module, Callable[[], None]]]] = {
        "as published": lambda: as_published(s)
    }
    for name, options in WAYS.items():
        if s.compiled or not options.get("compiled"):
            makers[name] = lambda options=options: ours(s, **options)
    for name, make in makers.items():
        _, epoch = make()
        first, second = seconds(epoch), seconds(epoch)
        found[name] = second
        rate = FLOP * len(s.train) / second / 1e12
        print(f"{name:22} {second:8.3f} s an epoch (first {first:.1f} s), {rate:.1f} TFLOP/s")
    return found


def epoch_arms(s: Setting, found: dict[str, float], facts: dict[str, Any]) -> Arms:
    """Row 7: an epoch as published, and the quickest of ours."""
    quickest = min(WAYS.keys() & found, key=lambda name: found[name])
    (their_net, theirs), (our_net, our_epoch) = as_published(s), ours(s, **WAYS[quickest])
    for _ in range(s.epochs):
        theirs()
        our_epoch()
    test = DeviceBatches(s.test, s.batch_size, s.device)
    reached = [evaluate_accuracy_gpus(net, test) for net in (their_net, our_net)]
    print("accuracy after {} epochs: {:.4f} as published, {:.4f} ours".format(s.epochs, *reached))
    check_accuracies(*reached, s.noise)
    facts = facts | {"way": quickest, "seconds of each way": found}
    return Arms(theirs, our_epoch, facts | {f"accuracy after {s.epochs} epochs": reached})


def lenet_steps(
    s: Setting, *, graph: bool, compiled: bool = False, **options: Any
) -> tuple[nn.Module, Callable[[], None]]:
    """LeNet, and a function that takes `s.steps` steps with one batch."""
    net = LeNet()
    fast = FastNet(net, s.device, compiled_for=s.batch_size if compiled else None, **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, fused=s.gpu)
    step = FastStep(fast, optimizer, graph=graph and s.gpu)
    X, y = next(iter(DeviceBatches(s.train, s.batch_size, s.device)))

    def run() -> None:
        for _ in range(s.steps):
            step(X, y)

    return net, run


def graph_arms(s: Setting) -> Arms:
    """Row 8: the same steps of LeNet, one after the other and as a graph."""
    plain = {"channels_last": False, "bf16": False}
    (net, eager), (replayed, graph) = (lenet_steps(s, graph=g, **plain) for g in (False, True))
    for run in (eager, graph):
        run()
    for ours, theirs in zip(replayed.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    others: dict[str, dict[str, Any]] = {
        "eager, bfloat16, channels last": {"graph": False},
        "graph, bfloat16, channels last": {"graph": True},
        "graph, compiled": {"graph": True, "compiled": True, **plain},
        "graph, compiled, bfloat16, channels last": {"graph": True, "compiled": True},
    }
    facts: dict[str, Any] = {"batch": s.batch_size, "steps": s.steps}
    for name, options in others.items():
        if options.get("compiled") and not s.compiled:
            continue
        _, run = lenet_steps(s, **options)
        seconds(run)
        facts[name] = seconds(run) / s.steps
        print(f"LeNet, {name}: {1e6 * facts[name]:.0f} µs a step")
    return Arms(eager, graph, facts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="a few images, to try the code")
    parser.add_argument("--folder", type=Path, default=results.FOLDER, help="for gpu.json")
    options = parser.parse_args()
    start, device = time.monotonic(), torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("there is no NVIDIA GPU here; --device cpu --quick only tries the code.")
    s = setting(device, options.quick)
    facts: dict[str, Any] = {"ranks": {k: largest_differences(k) for k in (1, 2)}}
    print("largest differences from one device:", json.dumps(facts["ranks"], indent=1))
    facts |= {"images": len(s.train), "data": s.train.name, "batch": s.batch_size, "lr": LR}
    facts |= {"bf16": computes_bf16(device), "peak FLOP/s": peak(s)}
    rate = facts["peak FLOP/s"] / 1e12
    print(f"a product of {s.product} x {s.product} matrices: {rate:.1f} TFLOP/s")
    graph_row = compare("gpu graph", graph_arms, s, pairs=2 if options.quick else None)
    found = ways(s)
    a_round = found["as published"] + 2 * min(found.values())
    left = 60 * s.minutes - (time.monotonic() - start) - s.epochs * a_round
    pairs = 2 if options.quick else max(3, min(15, math.floor(left / a_round) - WARM_UPS))
    epoch_row = compare("gpu epoch", epoch_arms, s, found, facts, pairs=pairs)
    if "seconds" in epoch_row:
        reached = FLOP * len(s.train) / epoch_row["seconds"][1]
        epoch_row["facts"] |= {"FLOP/s": reached, "share of peak": reached / facts["peak FLOP/s"]}
    path = results.write("gpu", [epoch_row, graph_row], options.folder)
    print(results.table([epoch_row, graph_row]))
    print(json.dumps({"gpu epoch": epoch_row.get("facts"), "gpu graph": graph_row.get("facts")}))
    print(f"{path}: {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
