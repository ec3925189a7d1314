"""Data parallelism from scratch in MXNet: split the batch, sum the gradients, keep
every replica equal.

What differs from PyTorch: an array belongs to a context, autograd follows only what
happens inside `autograd.record()`, and every operation is queued, also on the CPU,
until somebody reads a number.
"""

import time
from collections.abc import Callable, Iterable, Sequence

import mxnet as mx
from mxnet import autograd, np

from d2l_mgpu.arguments import batches_of, check_data
from d2l_mgpu.gluon.data import load_data_fashion_mnist
from d2l_mgpu.gluon.devices import describe, get_devices, synchronize
from d2l_mgpu.gluon.models import lenet, lenet_params, loss
from d2l_mgpu.history import Epoch, check_epochs, summary


def get_params(params: Sequence[np.ndarray], device: mx.Context) -> list[np.ndarray]:
    """Copy every parameter to `device`, as a new array that collects gradients.

    Always a copy: where source and target context are the same, `as_in_ctx` would hand
    out the same array twice, and two replicas would be one.
    """
    copies = [p.copyto(device) for p in params]
    for p in copies:
        p.attach_grad()  # MXNet starts the gradient with zeros
    return copies


def allreduce(data: Sequence[np.ndarray]) -> None:
    """Overwrite each array of `data`, one per device and of equal shape, with the sum
    of all.

    In place, because the caller's arrays are what the next step reads.
    """
    if len({(x.shape, str(x.dtype)) for x in data}) > 1:
        found = ", ".join(f"{x.shape} {x.dtype}" for x in data)
        raise ValueError(
            f"allreduce needs arrays of one shape and dtype, but got {found}."
        )
    total = data[0]
    for x in data[1:]:
        total += x.as_in_ctx(total.ctx)
    for x in data[1:]:
        total.copyto(x)  # into the array that is there


def scatter(X: np.ndarray, devices: Sequence[mx.Context]) -> list[np.ndarray]:
    """Cut `X` along its first axis into one shard per device and send each to its
    device.

    Always one shard per device: sizes differ by at most one, and a shard may be empty.
    """
    if not devices:
        raise ValueError(
            "There must be at least one device, but the list of devices is empty."
        )
    shards = np.array_split(X, len(devices))
    return [
        shard.as_in_ctx(device) for shard, device in zip(shards, devices, strict=True)
    ]


def split_batch(
    X: np.ndarray, y: np.ndarray, devices: Sequence[mx.Context]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Split examples `X` and their labels `y`, of shape (n,), into one shard per
    device; see `scatter`."""
    if len(X) != len(y):
        raise ValueError(
            f"X has {len(X)} examples but y has {len(y)} labels: each example needs "
            "one label."
        )
    if y.ndim != 1 or len(y) == 0:
        raise ValueError(
            "y must hold one label for each example, and there must be an example, "
            f"but the shape of y is {y.shape}."
        )
    return scatter(X, devices), scatter(y, devices)


def sgd(params: Sequence[np.ndarray], lr: float, batch_size: int) -> None:
    """Take one step of minibatch SGD on gradients that are *sums* over `batch_size`
    examples, then set the gradients to zero."""
    for p in params:
        p -= lr / batch_size * p.grad
        p.grad[:] = 0


def train_batch(
    X: np.ndarray,
    y: np.ndarray,
    device_params: Sequence[Sequence[np.ndarray]],
    devices: Sequence[mx.Context],
    lr: float,
) -> np.ndarray:
    """Take one step on a batch with one replica of LeNet per device; return the mean
    loss.

    The replicas have to be copies, as `get_params` makes them: where two share memory
    the step is too long, and nothing says so but the proofs.
    """
    if len(device_params) != len(devices):
        raise ValueError(
            f"{len(device_params)} replicas cannot train on {len(devices)} devices."
        )
    X_shards, y_shards = split_batch(X, y, devices)
    # Sums, not means: the sums of unequal shards still add up to the sum over the batch
    with autograd.record():
        losses = [
            loss(lenet(X_shard, params), y_shard).sum()
            for X_shard, y_shard, params in zip(
                X_shards, y_shards, device_params, strict=True
            )
            if len(y_shard)
            > 0  # MXNet convolves no empty shard; its gradient stays zero
        ]
    for shard_loss in losses:  # nothing waits: all devices go backward at the same time
        shard_loss.backward()
    for replicas in zip(*device_params, strict=True):  # the k copies of one parameter
        allreduce([p.grad for p in replicas])
    for params in device_params:  # every replica takes the same step
        sgd(params, lr, batch_size=len(X))
    return sum(shard_loss.as_in_ctx(devices[0]) for shard_loss in losses) / len(X)


def evaluate_accuracy(
    data_iter: Iterable[tuple[np.ndarray, np.ndarray]],
    device_params: Sequence[Sequence[np.ndarray]],
    devices: Sequence[mx.Context],
) -> float:
    """Return the fraction of examples that LeNet predicts right, every replica doing
    its shard."""
    hits = total = 0
    for X, y in batches_of(data_iter):
        shards = zip(*split_batch(X, y, devices), device_params, strict=True)
        right = [
            (lenet(X_, params).argmax(axis=1).astype(y_.dtype) == y_).sum()
            for X_, y_, params in shards
            if len(y_) > 0
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
    """Train LeNet on `num_gpus` replicas with batches of `batch_size` in total.

    Returns a history; `on_epoch` gets each finished `Epoch`. Runs with the same seed
    start from the same weights (`std`: see `lenet_params`) and see the same batches on
    any number of devices. `load_data(batch_size)` returns training and test batches,
    each a list or the like that every epoch can loop over.
    """
    check_epochs(num_epochs)
    devices = get_devices(num_gpus)
    train_iter, test_iter = load_data(batch_size)
    check_data(train_iter, test_iter)
    device_params = [get_params(lenet_params(std, seed), device) for device in devices]
    history = []
    for number in range(1, num_epochs + 1):
        synchronize()
        start = time.perf_counter()
        total, examples = np.zeros((), ctx=devices[0]), 0
        for X, y in batches_of(train_iter):
            total += train_batch(X, y, device_params, devices, lr) * len(y)
            examples += len(y)
        synchronize()  # the loop has only queued the steps
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
