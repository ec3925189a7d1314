"""Checkers of the chapter on the three ways to split training."""

from collections.abc import Callable

import torch

from d2l_mgpu.exercises import Wrong, exercise
from d2l_mgpu.models import lenet, lenet_params, loss
from d2l_mgpu.pretended import pretended_devices
from d2l_mgpu.proofs import largest_difference
from d2l_mgpu.splitting import SPLITS, split_step
from d2l_mgpu.traffic import Traffic

CPU = torch.device("cpu")


def batch(batch_size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images and labels, the same in every call."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn((batch_size, 1, 28, 28), dtype=dtype, generator=generator)
    return X, torch.randint(10, (batch_size,), generator=generator)


@exercise("layer-split-bytes")
def layer_split_bytes(attempt: Callable) -> str:
    """`attempt(batch_size, k)` is the number of bytes that one step of the layer split
    sends."""
    for batch_size, k in [(1, 2), (7, 2), (1, 1), (3, 5), (2, 3), (2, 4)]:
        traffic = Traffic()
        device_params = SPLITS["layers"].place(lenet_params(), [CPU] * k)
        X, y = batch(batch_size, torch.float32)
        split_step(SPLITS["layers"], X, y, device_params, [CPU] * k, 0.1, traffic)
        counted, claimed = sum(traffic.bytes.values()), attempt(batch_size, k)
        if claimed != counted:
            raise Wrong(
                f"with a batch of {batch_size} on {k} devices you say {claimed} bytes, "
                f"but {counted} were counted ({traffic.bytes['forward']} of them "
                "forward)."
            )
    return (
        "your formula gives the bytes that were counted, also where 10 units divide "
        "unevenly."
    )


@exercise("micro-batches")
def micro_batches(attempt: Callable) -> str:
    """`attempt(X, y, device_params, devices, traffic)` is `network_split` in four
    micro-batches."""
    for batch_size in (8, 7):
        X, y = batch(batch_size, torch.float64)
        params = [p.double().requires_grad_() for p in lenet_params()]
        expected = loss(lenet(X, params), y).sum()
        gradients = torch.autograd.grad(expected, params)
        traffic = Traffic()
        # a tensor on the wrong one raises an error
        with pretended_devices(2) as devices:
            device_params = SPLITS["network"].place(params, devices)
            total = float(attempt(X, y, device_params, devices, traffic))
            held = [p.detach().cpu() for stage in device_params for p in stage]
            arrived = [
                None if p.grad is None else p.grad.cpu()
                for s in device_params
                for p in s
            ]
        where = f"of a batch of {batch_size} examples"
        if traffic.transfers != {"forward": 4, "backward": 4}:
            raise Wrong(
                f"four micro-batches {where} cross the cut four times each way, but "
                f"yours crossed it {traffic.transfers['forward']} times forward and "
                f"{traffic.transfers['backward']} times backward."
            )
        for number, (p, start) in enumerate(zip(held, params, strict=True)):
            if not torch.equal(p, start):
                raise Wrong(
                    f"parameter {number} has changed: collect gradients, update later."
                )
        for number, (ours, g) in enumerate(zip(arrived, gradients, strict=True)):
            if ours is None or not largest_difference([ours], [g]) <= 1e-10:
                ratio = 0.0 if ours is None else (ours.norm() / g.norm()).item()
                raise Wrong(
                    f"the gradient {where} is not the sum over all of them: that of "
                    f"parameter {number} is {ratio:.2f} times as long as it should be."
                )
        if not torch.allclose(torch.as_tensor(total, dtype=torch.float64), expected):
            raise Wrong(
                f"the summed loss {where} is {expected:.3f}, but you return "
                f"{total:.3f}."
            )
    return (
        "the gradients of four micro-batches add up to those of the batch, even when "
        "uneven."
    )
