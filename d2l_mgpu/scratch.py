"""Data parallelism from scratch: split the batch, sum the gradients, keep every replica
equal.

Everything here holds for any list of devices, also for one that names the same device k
times. After each step all replicas are bit for bit the same, and they took the step
that one device would have taken with the whole batch. (The published listings drift
apart, or share one storage; the book's errata say why.)
"""

import time
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from d2l_mgpu.arguments import batches_of, check_data, not_negative
from d2l_mgpu.data import load_data_fashion_mnist
from d2l_mgpu.devices import describe, get_devices, synchronize
from d2l_mgpu.history import Epoch, check_epochs, summary
from d2l_mgpu.models import lenet, lenet_params, loss
from d2l_mgpu.progress import with_progress


def get_params(params: Sequence[Tensor], device: torch.device | str) -> list[Tensor]:
    """Copy every parameter to `device`, as a new leaf tensor that collects gradients.

    Always a copy: where source and target device are the same, a plain `.to(device)`
    would hand out the same storage twice, and two replicas would be one.
    """
    return [p.detach().to(device, copy=True).requires_grad_() for p in params]


@torch.no_grad()
def allreduce(data: Sequence[Tensor]) -> None:
    """Overwrite each tensor of `data`, one per device, with the sum of all.

    In place, because the caller's tensors are what the next step reads.
    """
    if len({(x.shape, x.dtype) for x in data}) > 1:
        found = ", ".join(f"{tuple(x.shape)} {x.dtype}" for x in data)
        raise ValueError(
            f"allreduce needs tensors of one shape and dtype, but got {found}."
        )
    for x in data[1:]:
        data[0].add_(x.to(data[0].device))
    for x in data[1:]:
        x.copy_(data[0])


def scatter(X: Tensor, devices: Sequence[torch.device]) -> list[Tensor]:
    """Cut `X` along its first axis into one shard per device, and send the shards.

    Always one shard per device: sizes differ by at most one, and a shard may be empty.
    Copies from pinned memory to a GPU are queued, and the program goes on.
    """
    shards = X.tensor_split(len(devices))
    return [
        shard.to(device, non_blocking=device.type == "cuda")
        for shard, device in zip(shards, devices, strict=True)
    ]


def split_batch(
    X: Tensor, y: Tensor, devices: Sequence[torch.device]
) -> tuple[list[Tensor], list[Tensor]]:
    """Split examples `X` and their labels `y`, of shape (n,), into one shard per
    device; see `scatter`."""
    if len(X) != len(y):
        raise ValueError(
            f"X has {len(X)} examples but y has {len(y)} labels: each example needs "
            "one label."
        )
    if y.dim() != 1 or len(y) == 0:
        raise ValueError(
            "y must hold one label for each example, and there must be an example, "
            f"but the shape of y is {tuple(y.shape)}."
        )
    return scatter(X, devices), scatter(y, devices)


@torch.no_grad()
def sgd(params: Sequence[Tensor], lr: float, batch_size: int) -> None:
    """Take one step of minibatch SGD on gradients that are *sums* over `batch_size`
    examples, then set the gradients to zero."""
    for p in params:
        assert p.grad is not None
        p -= lr / batch_size * p.grad
        p.grad.zero_()


def train_batch(
    X: Tensor,
    y: Tensor,
    device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device],
    lr: float,
    *,
    allreduce: Callable[[Sequence[Tensor]], None] = allreduce,
) -> Tensor:
    """Take one step with one replica of LeNet per device; return the mean loss.

    The replicas have to be copies, as `get_params` makes them: where two share memory
    the step is too long, and no error says so, only the proofs. `allreduce` replaces
    the k tensors of one parameter's gradient by their sum, in place.
    """
    if len(device_params) != len(devices):
        raise ValueError(
            f"{len(device_params)} replicas cannot train on {len(devices)} devices."
        )
    X_shards, y_shards = split_batch(X, y, devices)
    # Sums, not means: the sums of unequal shards still add up to the sum over the batch
    losses = [
        loss(lenet(X_shard, params), y_shard).sum()
        for X_shard, y_shard, params in zip(
            X_shards, y_shards, device_params, strict=True
        )
    ]
    for shard_loss in losses:  # queued on each GPU: they go backward at the same time
        shard_loss.backward()
    for replicas in zip(*device_params, strict=True):  # the k copies of one parameter
        allreduce([p.grad for p in replicas])
    for params in device_params:  # every replica takes the same step
        sgd(params, lr, batch_size=len(X))
    total = torch.stack(
        [shard_loss.detach().to(devices[0]) for shard_loss in losses]
    ).sum()
    return total / len(X)


@torch.no_grad()
def evaluate_accuracy(
    data_iter: Iterable[tuple[Tensor, Tensor]],
    device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device],
) -> float:
    """Return the fraction of examples predicted right, by each replica on its shard."""
    hits = total = 0
    for X, y in batches_of(data_iter):
        shards = zip(*split_batch(X, y, devices), device_params, strict=True)
        right = [
            (lenet(X_, params).argmax(dim=1) == y_).sum() for X_, y_, params in shards
        ]
        # reading a number waits for its device: do it last
        hits += sum(int(n) for n in right)
        total += len(y)
    return hits / total


def train(
    num_gpus: int,
    batch_size: int,
    lr: float,
    *,
    num_epochs: int = 10,
    std: float | None = None,
    load_data: Callable = load_data_fashion_mnist,
    on_epoch: Callable[[Epoch], object] | None = None,
    seed: int = 0,
) -> list[Epoch]:
    """Train LeNet on `num_gpus` replicas, `batch_size` examples a step in total.

    The same seed gives the same first weights and batches on any number of devices.
    `load_data(batch_size)` returns the training and the test batches, each in a list, a
    DataLoader or the like that can be looped over again. `on_epoch` is called with each
    finished `Epoch`; all of them are returned. For `std` see `lenet_params`.
    """
    check_epochs(num_epochs)
    lr, devices = not_negative("lr", lr), get_devices(num_gpus)
    train_iter, test_iter = load_data(batch_size)
    check_data(train_iter, test_iter)
    device_params = [get_params(lenet_params(std, seed), device) for device in devices]
    history = []
    for number in range(1, num_epochs + 1):
        synchronize(devices)
        start = time.perf_counter()
        total, examples = torch.zeros((), device=devices[0]), 0
        for X, y in with_progress(train_iter, number):
            total += train_batch(X, y, device_params, devices, lr) * len(y)
            examples += len(y)
        synchronize(devices)
        seconds = time.perf_counter() - start
        epoch = Epoch(
            number,
            loss=total.item() / examples,
            accuracy=evaluate_accuracy(test_iter, device_params, devices),
            seconds=seconds,
        )
        history.append(epoch)
        if on_epoch is not None:
            on_epoch(epoch)
    print(summary(history, describe(devices)))
    return history
