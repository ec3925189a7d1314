"""Checkers of the chapter on training on several GPUs from scratch."""

from collections.abc import Callable

import torch
from torch import Tensor

from d2l_mgpu.exercises import Wrong, exercise
from d2l_mgpu.models import LENET_SHAPES, lenet, lenet_params, loss
from d2l_mgpu.pretended import pretended_devices
from d2l_mgpu.proofs import assert_replicas_identical, largest_difference
from d2l_mgpu.scratch import get_params


class Links:
    """The links between numbered devices: what is sent is copied, and its bytes are
    counted at both ends, in `carried[device]`."""

    def __init__(self, num_devices: int) -> None:
        self.carried = [0] * num_devices

    def send(self, x: Tensor, source: int, target: int) -> Tensor:
        """Return a copy of `x`, which lives on device `source`, for device `target`."""
        if source == target:
            raise ValueError(f"device {source} need not send anything to itself.")
        self.carried[source] += x.nbytes
        self.carried[target] += x.nbytes
        return x.clone()


def example_gradients(num_devices: int) -> list[list[Tensor]]:
    """Gradients of LeNet's shapes, small integers in float32, whose sums are exact:
    `gradients[rank][i]` belongs to parameter i on device `rank`."""
    generator = torch.Generator().manual_seed(num_devices)
    return [
        [
            torch.randint(-9, 10, shape, generator=generator).float()
            for shape in LENET_SHAPES
        ]
        for _ in range(num_devices)
    ]


@exercise("sharded-allreduce")
def sharded_allreduce(attempt: Callable) -> str:
    """`attempt(gradients, send)` overwrites each gradient with its sum over all
    devices; no device may carry much more than its share of the bytes."""
    for k in (2, 3, 4):
        gradients, links = example_gradients(k), Links(k)
        sums = [sum(copies[1:], copies[0]) for copies in zip(*gradients, strict=True)]
        attempt([list(ours) for ours in gradients], links.send)
        for rank, ours in enumerate(gradients):
            for i, (g, total) in enumerate(zip(ours, sums, strict=True)):
                if not torch.equal(g, total):
                    raise Wrong(
                        f"with {k} devices, gradient {i} on device {rank} does not "
                        "hold the sum afterwards. Was it written into the very tensor "
                        "that you were given?"
                    )
        size = sum(total.nbytes for total in sums)
        naive, share = 2 * (k - 1) * size, 4 * (k - 1) * size // k
        busiest = max(links.carried)
        if sum(links.carried) < 2 * naive:  # sums on all devices take no fewer
            raise Wrong(
                f"with {k} devices, only {sum(links.carried) // 2:,} bytes were sent. "
                "Numbers get from one device to another only through send(x, source, "
                "target)."
            )
        if busiest > 1.01 * share:
            raise Wrong(
                f"the sums are right, but with {k} devices, device "
                f"{links.carried.index(busiest)} sends and receives {busiest:,} bytes, "
                f"where {share:,} would do. "
                + (
                    "It does all the adding alone."
                    if busiest >= naive
                    else "One parameter is much larger than the others: split it."
                )
            )
    return (
        "sums in place for 2, 3 and 4 devices; with 4, the busiest device carries "
        f"{busiest:,} bytes; in the naive attempt, device 0 carries {naive:,}."
    )


@exercise("accuracy-by-class")
def accuracy_by_class(attempt: Callable) -> str:
    """`attempt(data_iter, device_params, devices)` returns ten fractions: of the
    examples of each class, how many are predicted right, each example by the replica
    that gets its shard."""
    replicas = [lenet_params(seed=rank) for rank in range(3)]
    generator = torch.Generator().manual_seed(0)
    batches, hits, seen = [], torch.zeros(10), torch.zeros(10)
    for size in (32, 7, 2):  # uneven shards, and at last fewer examples than devices
        X = 5 * torch.randn(size, 1, 28, 28, generator=generator)
        with torch.no_grad():
            shards = zip(X.tensor_split(3), replicas, strict=True)
            answers = torch.cat(
                [lenet(shard, params).argmax(dim=1) for shard, params in shards]
            )
        lucky = torch.rand(size, generator=generator) < 0.6
        y = torch.where(lucky, answers, torch.arange(size) % 10)
        batches.append((X, y))
        seen += y.bincount(minlength=10)
        hits += y[answers == y].bincount(minlength=10)
    with pretended_devices(3) as devices:  # a tensor on the wrong one raises an error
        device_params = [
            get_params(p, device) for p, device in zip(replicas, devices, strict=True)
        ]
        result = (
            torch.as_tensor(attempt(batches, device_params, devices))
            .detach()
            .cpu()
            .double()
        )
    expected = (hits / seen).double()
    if result.shape != (10,):
        raise Wrong(
            f"ten fractions are needed, but the result has shape {tuple(result.shape)}."
        )
    if result.isnan().any():
        raise Wrong(
            f"class {int(result.isnan().nonzero()[0])} gets nan: in some shards it "
            "does not occur. Add up counts first and divide once at the end."
        )
    if not largest_difference([result], [expected]) <= 1e-6:  # NaN is wrong, too
        worst = int((result - expected).abs().argmax())
        raise Wrong(
            f"of the examples of class {worst}, {expected[worst]:.3f} are predicted "
            f"right, but you find {result[worst]:.3f}. Is every example judged once, "
            "by the replica that gets its shard, and counted as much as any other?"
        )
    return (
        "41 examples on 3 devices, shards uneven and empty: each counted once, by "
        "its replica."
    )


def clipped_step(
    params: list[Tensor], X: Tensor, y: Tensor, lr: float, max_norm: float
) -> list[Tensor]:
    """What one device does: a step of SGD on the mean loss of the batch, with the
    gradient shortened to the Euclidean norm `max_norm` where it is longer."""
    leaves = [p.clone().requires_grad_() for p in params]
    gradients = torch.autograd.grad(loss(lenet(X, leaves), y).mean(), leaves)
    norm = torch.stack([g.norm() for g in gradients]).norm()
    scale = min(1.0, max_norm / norm.item())
    return [p - lr * scale * g for p, g in zip(params, gradients, strict=True)]


def distance(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The Euclidean distance of two lists of parameters."""
    return (
        torch.stack([(a - b).norm() for a, b in zip(ours, theirs, strict=True)])
        .norm()
        .item()
    )


def compare_clipped_steps(
    attempt: Callable, devices: list[torch.device], lr: float, max_norm: float
) -> None:
    """Take two clipped steps, and two by `attempt` on `devices`; raise Wrong if they
    differ."""
    generator = torch.Generator().manual_seed(0)
    one_device = [p.double() for p in lenet_params()]
    device_params = [get_params(one_device, device) for device in devices]
    for step in (1, 2):
        X = torch.randn(7, 1, 28, 28, generator=generator, dtype=torch.float64)
        y = torch.randint(10, (7,), generator=generator)
        before = one_device
        one_device = clipped_step(before, X, y, lr, max_norm)
        attempt(X, y, device_params, devices, lr, max_norm)
        where = f"{len(devices)} device(s), max_norm={max_norm:g}, step {step}"
        try:
            assert_replicas_identical(device_params)
        except AssertionError as error:
            raise Wrong(f"{where}: {error}.") from None
        ours = [p.detach().cpu() for p in device_params[0]]
        if not largest_difference(ours, one_device) <= 1e-10:
            raise Wrong(
                f"{where}: your step follows a gradient of norm "
                f"{distance(before, ours) / lr:.3f}, that of one device has norm "
                f"{distance(before, one_device) / lr:.3f}. The steps are "
                f"{distance(ours, one_device) / lr:.3f} apart."
            )


@exercise("clipping")
def clipping(attempt: Callable) -> str:
    """`attempt(X, y, device_params, devices, lr, max_norm)` takes a data-parallel step
    whose gradient, the mean over the whole batch, is clipped to the norm `max_norm`."""
    lr = 0.1
    for k in (1, 3):
        for max_norm in (1e6, 0.5):  # the first never clips, the second does
            with pretended_devices(k) as devices:
                compare_clipped_steps(attempt, devices, lr, max_norm)
    return (
        "1 and 3 devices take the clipped steps of one, and leave short gradients "
        "alone."
    )
