"""Row 1: what it costs our step from scratch to have k replicas, with equally many images."""

from typing import Any

import torch

from benchmarks.pairs import Arms, compare
from d2l_mgpu import get_params, lenet_params, train_batch
from d2l_mgpu.devices import get_devices, synchronize
from d2l_mgpu.proofs import assert_equals_one_device, assert_replicas_identical

LR = 0.01


def arms(k: int, batch_size: int, steps: int) -> Arms:
    """`steps` steps of `train_batch` with k replicas, and with one."""
    devices = get_devices(k, quiet=True)
    generator = torch.Generator().manual_seed(0)
    X = torch.randn((batch_size, 1, 28, 28), generator=generator)
    y = torch.randint(10, (batch_size,), generator=generator)
    replicas, one = (
        [get_params(lenet_params(), d) for d in where] for where in (devices, devices[:1])
    )

    def train(device_params: list[list[torch.Tensor]]) -> None:
        where = devices[: len(device_params)]
        for _ in range(steps):
            train_batch(X, y, device_params, where, LR)
        synchronize(where)

    train(replicas)
    train(one)
    assert_replicas_identical(replicas)
    assert_equals_one_device(replicas[0], one[0])
    facts = {"images a step": batch_size, "steps a run": steps, "threads": torch.get_num_threads()}
    return Arms(lambda: train(replicas), lambda: train(one), facts)


def rows(
    pairs: int | None = None, *, batch_size: int = 256, steps: int = 5
) -> list[dict[str, Any]]:
    """The rows of 2 and of 4 replicas."""
    return [compare(f"scratch, k={k}", arms, k, batch_size, steps, pairs=pairs) for k in (2, 4)]
