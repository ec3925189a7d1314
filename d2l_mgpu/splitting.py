"""Three ways to split training over devices, carried out on LeNet, each equal to one
device.

Split the network (pipeline parallelism, with a single micro-batch): every device holds
some layers. Split the layers (tensor parallelism): every device holds some channels or
units of each layer. Split the data (data parallelism): every device holds all of it and
sees some examples. A `Split` says how parameters lie on the devices (`place`), how a
minibatch becomes gradients (`gradients`), and how to put the pieces together again
(`join`). `device_params[rank]` lists what device `rank` holds, always as W, b, W, b,
...
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from d2l_mgpu.exactness import without_tf32
from d2l_mgpu.models import LAYERS, lenet, lenet_params, loss
from d2l_mgpu.proofs import (
    assert_equals_one_device,
    assert_replicas_identical,
    exact_dtype,
    one_device_step,
    random_batches,
)
from d2l_mgpu.scratch import get_params, sgd, split_batch
from d2l_mgpu.traffic import Exchange, Traffic, all_gather, sum_gradients


def place_stages(
    params: Sequence[Tensor], devices: Sequence[torch.device]
) -> list[list[Tensor]]:
    """Give each device some consecutive layers; earlier devices get one more where
    needed."""
    if len(devices) > len(LAYERS):
        raise ValueError(
            f"LeNet has {len(LAYERS)} layers, too few to split the network over "
            f"{len(devices)} devices; use at most {len(LAYERS)}."
        )
    # where the W are
    stages = torch.arange(0, len(params), 2).tensor_split(len(devices))
    return [
        get_params(params[int(stage[0]) : int(stage[-1]) + 2], device)
        for stage, device in zip(stages, devices, strict=True)
    ]


def join_stages(device_params: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The parameters of `place_stages`, as one list again."""
    return [p for params in device_params for p in params]


def network_split(
    X: Tensor,
    y: Tensor,
    device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device],
    traffic: Traffic,
) -> Tensor:
    """Leave the gradients of the summed loss in `.grad`; return that sum. Each device
    holds a stage of the network; activations are sent from stage to stage."""
    layers, h = iter(LAYERS), X.to(devices[0])
    for rank, (params, device) in enumerate(zip(device_params, devices, strict=True)):
        if rank > 0:
            (h,) = Exchange.apply(traffic, [device], h)
        with traffic.on(rank):
            for W, b in zip(params[::2], params[1::2], strict=True):
                h = next(layers)(h, W, b)
    with traffic.on(rank):
        total = loss(h, y.to(device)).sum()
    total.backward()
    return total.detach()


def output_axis(p: Tensor) -> int:
    """The axis of a parameter that runs over the outputs: dense weights are (in,
    out)."""
    return 1 if p.dim() == 2 else 0


def place_slices(
    params: Sequence[Tensor], devices: Sequence[torch.device]
) -> list[list[Tensor]]:
    """Give each device a slice of the output channels or units of every layer."""
    fewest = min(len(b) for b in params[1::2])
    if len(devices) > fewest:
        raise ValueError(
            f"The smallest layer has {fewest} outputs, too few to split the layers "
            f"over {len(devices)} devices; use at most {fewest}."
        )
    slices = [p.tensor_split(len(devices), dim=output_axis(p)) for p in params]
    held = zip(*slices, strict=True)
    return [
        get_params(mine, device) for mine, device in zip(held, devices, strict=True)
    ]


def join_slices(device_params: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The parameters of `place_slices`, whole again, on the first device."""
    return [
        torch.cat([p.to(slices[0].device) for p in slices], dim=output_axis(slices[0]))
        for slices in zip(*device_params, strict=True)
    ]


def layer_split(
    X: Tensor,
    y: Tensor,
    device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device],
    traffic: Traffic,
    gather: Callable[..., list[Tensor]] = all_gather,
) -> Tensor:
    """Leave the gradients of the summed loss in `.grad`; return that sum. Each device
    computes its slice of every layer; `gather` hands it the whole output."""
    inputs = [X.to(device) for device in devices]
    for i, layer in enumerate(LAYERS):
        shards = []
        for rank, (h, params) in enumerate(zip(inputs, device_params, strict=True)):
            with traffic.on(rank):
                shards.append(layer(h, *params[2 * i : 2 * i + 2]))
        readers = devices if layer is not LAYERS[-1] else devices[:1]  # for the loss
        inputs = gather(shards, readers, traffic)
    with traffic.on(0):
        total = loss(inputs[0], y.to(devices[0])).sum()
    total.backward()
    return total.detach()


def place_replicas(
    params: Sequence[Tensor], devices: Sequence[torch.device]
) -> list[list[Tensor]]:
    """Give each device all of the parameters."""
    return [get_params(params, device) for device in devices]


def join_replicas(device_params: Sequence[Sequence[Tensor]]) -> Sequence[Tensor]:
    """The parameters of the first replica, after a check that all replicas hold the
    same."""
    assert_replicas_identical(device_params)
    return device_params[0]


def data_split(
    X: Tensor,
    y: Tensor,
    device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device],
    traffic: Traffic,
    all_reduce: Callable[..., None] = sum_gradients,
) -> Tensor:
    """Leave the gradients of the summed loss in `.grad`; return that sum. Each device
    runs the whole network on its shard of the minibatch; then `all_reduce` sums the
    gradients."""
    losses = []
    shards = zip(*split_batch(X, y, devices), device_params, strict=True)
    for rank, (X_shard, y_shard, params) in enumerate(shards):
        with traffic.on(rank):
            losses.append(loss(lenet(X_shard, params), y_shard).sum())
    for shard_loss in losses:
        shard_loss.backward()
    all_reduce(device_params, traffic)
    detached = [shard_loss.detach().to(devices[0]) for shard_loss in losses]
    return torch.stack(detached).sum()


@dataclass(frozen=True)
class Split:
    """One way to split training; the functions above have these signatures."""

    place: Callable[[Sequence[Tensor], Sequence[torch.device]], list[list[Tensor]]]
    gradients: Callable[..., Tensor]
    join: Callable[[Sequence[Sequence[Tensor]]], Sequence[Tensor]]


SPLITS = {
    "network": Split(place_stages, network_split, join_stages),
    "layers": Split(place_slices, layer_split, join_slices),
    "data": Split(place_replicas, data_split, join_replicas),
}


def split_step(
    split: Split,
    X: Tensor,
    y: Tensor,
    device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device],
    lr: float,
    traffic: Traffic,
) -> float:
    """Take one step of minibatch SGD, each device on what it holds; return the mean
    loss."""
    total = split.gradients(X, y, device_params, devices, traffic)
    for params in device_params:
        sgd(params, lr, batch_size=len(X))
    return total.item() / len(X)


@without_tf32()
def prove_split_equals_one_device(
    split: Split,
    devices: Sequence[torch.device],
    *,
    batch_size: int = 7,
    num_steps: int = 3,
    dtype: torch.dtype | None = None,
) -> float:
    """Train LeNet split over `devices` and on one device, on the same batches; compare
    the loss, all gradients and all updated parameters of every step.

    Returns the largest difference; raises AssertionError where the two differ.
    """
    dtype = dtype or exact_dtype(devices)
    one_device = [p.to(dtype).requires_grad_() for p in lenet_params()]
    device_params = split.place(one_device, devices)
    difference = 0.0
    batches = random_batches(num_steps, batch_size, dtype)
    for number, (X, y) in enumerate(batches, start=1):
        lr = 0.1 / number
        theirs = one_device_step(X, y, one_device, lr)
        total = split.gradients(X, y, device_params, devices, Traffic())
        if any(p.grad is None for params in device_params for p in params):
            raise AssertionError("no gradient arrived at some of the parameters")
        held = [
            [p.grad for p in params if p.grad is not None] for params in device_params
        ]
        ours = [total / len(X), *(g / len(X) for g in split.join(held))]
        difference = max(difference, assert_equals_one_device(ours, theirs))
        for params in device_params:
            sgd(params, lr, len(X))
        updated = split.join(device_params)
        difference = max(difference, assert_equals_one_device(updated, one_device))
    return difference
