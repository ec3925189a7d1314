"""Row 6: an epoch of LeNet on the CPU, as the published chapters do it, and ours."""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import published
from benchmarks.pairs import Arms, compare
from d2l_mgpu import LeNet, evaluate_accuracy_gpus, lenet_params, load_data_fashion_mnist
from d2l_mgpu.data import DeviceBatches, Images
from d2l_mgpu.fast import Compiled, FastNet, FastStep

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
CPU = torch.device("cpu")
BATCH_SIZE = 256
# The published rate, with which two runs of the same code differ by 0.04 in accuracy; then a low
# one, after which they differ by 0.002, so that accuracies can be compared.
RATES = (0.2, 0.02)
IMAGES = 30_000  # half an epoch: what a loader does once an epoch counts twice
NOISE = 0.02  # by which accuracies may differ
LEARNED = 0.5  # chance would be 0.1


def images(num_train: int) -> tuple[Images, Images]:
    """Real images where a folder has them, MNIST if need be; else drawings, of which there are
    fewer."""
    if not os.environ.get("D2L_MGPU_DATA") and BESIDE.is_dir():
        os.environ["D2L_MGPU_DATA"] = str(BESIDE)
    real = os.environ.get("D2L_MGPU_DATA")
    name, source = ("MNIST", "real") if real else ("FashionMNIST", "generated")
    train, test = (b.dataset for b in load_data_fashion_mnist(256, name=name, source=source))
    return part(train, slice(num_train)), test


def part(images: Images, which: slice | Tensor) -> Images:
    """Those of the images that the index selects."""
    pixels, labels = images.pixels[which], images.labels[which]
    return Images(pixels, labels, name=images.name, origin=images.origin)


def accuracy(net: nn.Module, test: Images) -> float:
    return evaluate_accuracy_gpus(net, DeviceBatches(test, 1000, CPU))


def check_steps(batches: list[tuple[Tensor, Tensor]], params: list[Tensor], step: FastStep) -> None:
    """Insist that both take the same steps, but for the rounding of bfloat16."""
    start = [p.detach().clone() for p in params]
    step.net.train()
    for X, y in batches:
        step(X, y)
    published.lenet_epoch(batches, [params], [CPU], RATES[0])
    weights = list(zip(step.net.parameters(), params, start, strict=True))
    apart = sum(float((p.detach() - q.detach()).square().sum()) for p, q, _ in weights) ** 0.5
    way = sum(float((q.detach() - s).square().sum()) for _, q, s in weights) ** 0.5
    if not apart < 0.05 * way:
        raise AssertionError(f"{len(batches)} steps differ by {apart / way:.0%}")


def check_accuracies(theirs: float, ours: float, noise: float, above: float = -1.0) -> None:
    """Insist that both have learned equally much, and more than `above`."""
    if not (abs(theirs - ours) <= noise and min(theirs, ours) > above):
        raise AssertionError(f"accuracy {theirs:.3f} as published, {ours:.3f} by ours")


def arms(num_images: int) -> Arms:
    """An epoch as published, and ours, from the same weights."""
    train, test = images(num_images)
    params = published.get_params(lenet_params(), CPU)
    batches = published.loader(train, BATCH_SIZE)
    their_net = LeNet()
    their_net.params = nn.ParameterList(params)

    net = LeNet()
    fast = FastNet(net, CPU, compiled_for=BATCH_SIZE)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATES[0])
    step = FastStep(fast, optimizer)
    our_batches = DeviceBatches(train, BATCH_SIZE, CPU, seed=0)

    def theirs(lr: float = RATES[-1]) -> None:
        published.lenet_epoch(batches, [params], [CPU], lr)

    def ours() -> None:
        fast.train()
        for X, y in our_batches:
            step(X, y)

    check_steps(list(our_batches)[:3], params, step)
    if not sum(len(y) for _, y in batches) == sum(len(y) for _, y in our_batches) == len(train):
        raise AssertionError("not all images are in both epochs")
    for lr in RATES:
        theirs(lr)
        optimizer.param_groups[0]["lr"] = lr
        ours()
    reached = accuracy(their_net, test), accuracy(fast, test)
    check_accuracies(*reached, NOISE, LEARNED)
    facts = {
        "images": len(train),
        "data": train.name,
        "threads": torch.get_num_threads(),
        "bf16": fast.bf16,
        "compiled": isinstance(fast.compiled, Compiled) and fast.compiled.failure is None,
        f"accuracy after {len(RATES)} epochs": [round(value, 4) for value in reached],
    }
    return Arms(theirs, ours, facts)


def rows(pairs: int | None = None, *, num_images: int = IMAGES) -> list[dict[str, Any]]:
    """The row of the epoch."""
    return [compare("epoch", arms, num_images, pairs=pairs)]
