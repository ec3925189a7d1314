"""Row 7: an epoch of ResNet-18 as published, and the quickest of ours."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks import published
from benchmarks.epoch import NOISE, check_accuracies
from benchmarks.on_gpu.setting import Findings, Setting, fast_step, network
from benchmarks.pairs import WARM_UPS, Arms, compare, timer
from d2l_mgpu import FastNet, computes_bf16, evaluate_accuracy_gpus
from d2l_mgpu.data import DeviceBatches

FLOP = 2.734e9  # of one image through ResNet-18, forward and backward
LR = 0.1
WAYS: dict[str, dict[str, Any]] = {  # one change at a time
    "images on the device": {"channels_last": False, "bf16": False},
    "channels last": {"bf16": False},
    "bfloat16": {},
    "CUDA graph": {"graph": True},
    "compiled": {"graph": True, "compiled": True},
}


def as_published(s: Setting) -> tuple[nn.Module, Callable[[], None]]:
    net = published.concise(network(), [s.device])
    batches = published.loader(s.images[0], s.batch_size)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    return net, lambda: published.resnet18_epoch(net, batches, optimizer, s.device)


def ours(s: Setting, **options: Any) -> tuple[FastNet, Callable[[], None]]:
    fast, step = fast_step(s, network(), LR, **options)
    batches = DeviceBatches(s.images[0], s.batch_size, s.device, seed=0)

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
    from torch.utils.benchmark import Timer

    n = 256 if s.quick else 8192
    A, B = (torch.randn(n, n, device=s.device).bfloat16() for _ in range(2))
    measured = Timer("A @ B", globals={"A": A, "B": B}).blocked_autorange(min_run_time=1)
    reached = 2 * n**3 / measured.median
    print(f"a product of {n} x {n} matrices: {reached / 1e12:.1f} TFLOP/s")
    return reached


def ways(s: Setting) -> dict[str, float]:
    """Seconds of the second epoch of each way; the first pays for compiling and recording."""
    found = {}
    makers: dict[str, Callable[[], tuple[nn.Module, Callable[[], None]]]] = {
        "as published": lambda: as_published(s)
    }
    for name, options in WAYS.items():
        if not (s.quick and options.get("compiled")):
            makers[name] = lambda options=options: ours(s, **options)
    for name, make in makers.items():
        _, epoch = make()
        first, second = seconds(epoch), seconds(epoch)
        found[name] = second
        rate = FLOP * len(s.images[0]) / second / 1e12
        print(f"{name:22} {second:8.3f} s an epoch (first {first:.1f} s), {rate:.1f} TFLOP/s")
    return found


def arms(s: Setting, found: dict[str, float], epochs: int) -> Arms:
    """Both ways, after so many epochs that their accuracies can be compared."""
    quickest = min(WAYS.keys() & found, key=lambda name: found[name])
    (their_net, theirs), (our_net, our_epoch) = as_published(s), ours(s, **WAYS[quickest])
    for _ in range(epochs):
        theirs()
        our_epoch()
    test = DeviceBatches(s.images[1], s.batch_size, s.device)
    reached = [evaluate_accuracy_gpus(net, test) for net in (their_net, our_net)]
    print("accuracy after {} epochs: {:.4f} as published, {:.4f} ours".format(epochs, *reached))
    check_accuracies(*reached, 1.0 if s.quick else NOISE)
    facts = {"way": quickest, "seconds of each way": found}
    return Arms(theirs, our_epoch, facts | {f"accuracy after {epochs} epochs": reached})


def find(s: Setting) -> Findings:
    start, epochs = time.monotonic(), 1 if s.quick else 10
    train = s.images[0]
    facts = {"images": len(train), "data": train.name, "batch": s.batch_size, "lr": LR}
    facts |= {"bf16": computes_bf16(s.device), "peak FLOP/s": peak(s)}
    found = ways(s)
    a_round = found["as published"] + 2 * min(found.values())
    left = s.seconds - (time.monotonic() - start) - epochs * a_round
    pairs = 2 if s.quick else max(3, min(15, math.floor(left / a_round) - WARM_UPS))
    row = compare("gpu epoch", arms, s, found, epochs, pairs=pairs)
    if "seconds" in row:
        reached = FLOP * len(train) / row["seconds"][1]
        share = reached / facts["peak FLOP/s"]
        row["facts"] |= facts | {"FLOP/s": reached, "share of peak": share}
    return Findings(facts, [row], [row["why"]] if "why" in row else [])
