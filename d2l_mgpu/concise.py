"""Data parallelism concisely: any network, one process per device,
DistributedDataParallel.

`DistributedDataParallel` (DDP) averages gradients over processes while backward still
runs (Li et al., 2020). This module adds what makes k processes equal one device: the
same batches cut as in `scratch`, losses weighted so that unequal shards count right,
and an evaluation that counts each example once.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from d2l_mgpu.arguments import batches_of, check_data, integer, not_negative
from d2l_mgpu.collectives import all_reduce
from d2l_mgpu.data import DataIter, load_data_fashion_mnist
from d2l_mgpu.devices import describe, device_of, get_devices, synchronize
from d2l_mgpu.history import Epoch, check_epochs, summary
from d2l_mgpu.processes.joining import rank_device, this_rank
from d2l_mgpu.processes.launcher import launch
from d2l_mgpu.progress import is_watched, with_progress
from d2l_mgpu.scratch import split_batch


@contextmanager
def evaluation_mode(nets: Sequence[nn.Module]) -> Iterator[None]:
    """Inside, `nets` are in evaluation mode; afterwards each of their modules is as it
    was."""
    training = [module for net in nets for module in net.modules() if module.training]
    try:
        for net in nets:
            net.eval()
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def all_written(net: nn.Module) -> Iterator[None]:
    """Inside, every parameter of `net` has to be written, whatever it was before.

    ValueError names one that was not; after this or another error, `net` is as it was.
    """
    before = copy.deepcopy(net.state_dict())
    try:
        for p in filter(torch.is_floating_point, net.parameters()):
            p.fill_(torch.nan)  # stays, unless it is written
        yield
        for name, p in net.named_parameters():
            if p.isnan().any():
                raise ValueError(
                    f"No layer initializes the parameter {name!r}: give a module that "
                    "contains it a method reset_parameters, which writes its first "
                    "values."
                )
    except BaseException:
        net.load_state_dict(before)
        raise


@torch.no_grad()
def init_weights(net: nn.Module, X: Tensor, std: float = 0.01, seed: int = 0) -> None:
    """Initialize all of `net`: weights of dense and convolution layers from N(0,
    std^2), biases 0; other layers, BatchNorm included, by their `reset_parameters`.

    `X` is an example batch: lazy layers have no weights to draw before they have seen
    data. Raises ValueError, and leaves `net` as it was, if there is a parameter that no
    layer initializes.
    """
    std = not_negative("std", std)
    with evaluation_mode([net]):
        net(X[:1].to(device_of(net)))
    with torch.random.fork_rng(devices=[]), all_written(net):
        torch.manual_seed(integer("seed", seed, least=0))
        for module in net.modules():
            if isinstance(module, nn.Linear | nn.modules.conv._ConvNd):
                module.weight.copy_(torch.randn(module.weight.shape) * std)
                if module.bias is not None:
                    module.bias.zero_()
            elif callable(reset := getattr(module, "reset_parameters", None)):
                reset()
            elif isinstance(module, nn.MultiheadAttention):
                module._reset_parameters()  # its method has another name


def count_right(logits: Tensor, y: Tensor) -> Tensor:
    """Count the examples whose label in `y` (n,) has the largest of its `logits` (n,
    classes)."""
    if logits.dim() != 2:
        raise ValueError(
            "net must return logits of shape (n, classes), but they are "
            f"{tuple(logits.shape)}."
        )
    return (logits.argmax(dim=1) == y).sum()


@torch.no_grad()
def evaluate_accuracy_gpus(
    net: nn.Module | Sequence[nn.Module],
    data_iter: DataIter,
    split_f: Callable = split_batch,
) -> float:
    """Return the fraction of examples predicted right; each replica takes its shard.

    `net` is a module, a list with one replica per device, or (inside `launch`) a DDP
    module with its other replicas in the other processes. However a batch divides, an
    example counts once. `split_f(X, y, devices)` returns what `split_batch` does;
    labels have the shape (n,).
    """
    replicas = [net] if isinstance(net, nn.Module) else list(net)
    devices = [device_of(replica) for replica in replicas]
    first, num_shards = 0, len(replicas)
    if isinstance(net, DistributedDataParallel):
        first, num_shards = this_rank()
        devices *= num_shards
    ours = slice(first, first + len(replicas))
    counts = torch.zeros(2, dtype=torch.int64, device=devices[0])  # right, seen
    with evaluation_mode(replicas):
        for X, y in batches_of(data_iter):
            X_shards, y_shards = split_f(X, y, devices)
            shards = list(zip(replicas, X_shards[ours], y_shards[ours], strict=True))
            right = [count_right(replica(X_), y_) for replica, X_, y_ in shards]
            seen = sum(len(y_) for _, _, y_ in shards)
            counts += torch.tensor(
                [sum(int(n) for n in right), seen], device=counts.device
            )
    if num_shards > len(replicas):
        all_reduce(counts)
    right_answers, examples = counts.tolist()
    return right_answers / examples


def shard_loss(net: nn.Module, X: Tensor, y: Tensor, device: torch.device) -> Tensor:
    """Return the loss of this process's shard, scaled: its *average* over processes,
    which DDP takes of the gradients, is the mean over the whole batch.

    Labels have the shape (n,), and none is left out: ValueError for negative ones such
    as -100.
    """
    if (y < 0).any():
        raise ValueError(
            f"A label is {int(y.min())}, but each example needs a class, 0 or more."
        )
    rank, world_size = this_rank()
    X_shards, y_shards = split_batch(X, y, [X.device] * world_size)
    X_shard, y_shard = X_shards[rank].to(device), y_shards[rank].to(device)
    total = F.cross_entropy(net(X_shard), y_shard, reduction="sum")  # of no examples: 0
    return world_size / len(y) * total


def check_all_used(net: nn.Module) -> None:
    """Raise ValueError if a parameter to train has no gradient: DDP waits for all of
    them."""
    for name, p in net.named_parameters():
        if p.requires_grad and p.grad is None:
            raise ValueError(
                f"The parameter {name!r} was not used in this step, which works on one "
                "device only: use it in every forward pass, or freeze it with "
                "requires_grad_(False)."
            )


def train_replica(
    net: nn.Module,
    train_iter: DataIter,
    test_iter: DataIter,
    lr: float,
    num_epochs: int,
    seed: int,
    watched: bool = False,
) -> tuple[list[Epoch], dict[str, Tensor]]:
    """What each rank runs: train its replica on its shard of every batch.

    Returns the history, equal on all ranks, and the trained weights, on the CPU. If
    the caller is `watched`, rank 0 prints a line after each epoch.
    """
    rank, world_size = this_rank()
    device = rank_device()
    # dropout masks differ between replicas, weights do not
    torch.manual_seed(seed + rank)
    net.to(device)
    replica = DistributedDataParallel(net) if world_size > 1 else net
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    history = []
    for number in range(1, num_epochs + 1):
        replica.train()
        total, examples = torch.zeros((), device=device), 0
        synchronize([device])
        start = time.perf_counter()
        for X, y in with_progress(train_iter, number):
            optimizer.zero_grad()
            loss = shard_loss(replica, X, y, device)
            loss.backward()  # DDP averages the gradients on the way
            if world_size > 1:
                check_all_used(net)
            optimizer.step()
            total += loss.detach() * len(y)
            examples += len(y)
        synchronize([device])
        seconds = time.perf_counter() - start
        mean_loss = total / examples / world_size
        if world_size > 1:
            all_reduce(mean_loss)
        accuracy = evaluate_accuracy_gpus(replica, test_iter)
        history.append(Epoch(number, mean_loss.item(), accuracy, seconds))
        if watched and rank == 0:
            print(history[-1], flush=True)
    return history, {name: value.cpu() for name, value in net.state_dict().items()}


def train(
    net: nn.Module,
    num_gpus: int,
    batch_size: int,
    lr: float,
    *,
    num_epochs: int = 10,
    std: float = 0.01,
    load_data: Callable = load_data_fashion_mnist,
    seed: int = 0,
) -> list[Epoch]:
    """Train `net` from fresh weights on `num_gpus` devices; leave the result in `net`.

    `batch_size` is the total over all devices. Runs with the same seed start from the
    same weights and see the same batches, whatever the number of devices.
    `load_data(batch_size)` returns training and test batches, each in a list, a
    DataLoader or the like, for several loops; for `std` see `init_weights`.
    """
    check_epochs(num_epochs)
    lr, devices = not_negative("lr", lr), get_devices(num_gpus)
    train_iter, test_iter = load_data(batch_size)
    check_data(train_iter, test_iter)
    net.cpu()
    init_weights(net, next(batches_of(train_iter))[0], std, seed)
    arguments = (net, train_iter, test_iter, lr, num_epochs, seed)
    if num_gpus == 1:
        # leave the caller's random numbers alone
        with torch.random.fork_rng(devices=[]):
            history, weights = train_replica(*arguments)
    else:
        history, weights = launch(
            train_replica, *arguments, is_watched(), num_devices=num_gpus
        )[0]
    net.load_state_dict(weights)
    net.to(devices[0]).train()
    print(summary(history, describe(devices)))
    return history
