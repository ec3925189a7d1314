"""Data parallelism concisely: any Gluon network, one process, `gluon.Trainer`.

A Gluon parameter holds one copy per context, and `Trainer.step` adds up the copies'
gradients, updates, and leaves all copies equal. This module adds what makes k contexts
equal one: losses summed over unequal shards, a gradient from every context in every
step, and an evaluation that counts each example once.

What k contexts do not share are the running statistics of BatchNorm: each context
updates its own copy with its own shards. MXNet exchanges them only once, when the
trainer's first step copies those of the first context to all. Each replica predicts
with its own, and `save_parameters` writes their mean over the contexts.
"""

import time
from collections.abc import Callable, Iterable, Sequence

import mxnet as mx
from mxnet import autograd, gluon, init, np

from d2l_mgpu.arguments import batches_of, check_data, integer
from d2l_mgpu.gluon.data import load_data_fashion_mnist
from d2l_mgpu.gluon.devices import describe, get_devices, synchronize
from d2l_mgpu.gluon.models import loss
from d2l_mgpu.gluon.scratch import split_batch
from d2l_mgpu.history import Epoch, check_epochs, summary


def init_weights(
    net: gluon.Block, devices: Sequence[mx.Context], std: float = 0.01, seed: int = 0
) -> None:
    """Start `net` afresh, with equal copies on all `devices`: weights from N(0, std^2),
    biases 0; BatchNorm and its statistics as when they were new.

    Seeds MXNet's random numbers: weights that wait for data are drawn when it arrives.
    """
    mx.random.seed(integer("seed", seed, least=0))
    net.initialize(init.Normal(std), ctx=devices, force_reinit=True)


def evaluate_accuracy_gpus(
    net: gluon.Block,
    data_iter: Iterable[tuple[np.ndarray, np.ndarray]],
    split_f: Callable = split_batch,
) -> float:
    """Return the fraction of examples predicted right, every context of `net` doing its
    own shard.

    However a batch divides, an example counts once. `split_f(X, y, devices)` returns
    what `split_batch` does; labels have the shape (n,).
    """
    devices = next(iter(net.collect_params().values())).list_ctx()
    hits = total = 0
    for X, y in batches_of(data_iter):
        shards = zip(*split_f(X, y, devices), devices, strict=True)
        right = [
            (net(X_).argmax(axis=1).astype(y_.dtype) == y_).sum()
            for X_, y_, _ in shards
            if len(y_) > 0
        ]
        # reading a number waits for its device: do it last
        hits += sum(int(n) for n in right)
        total += len(y)
    return hits / total


def train_batch(
    X: np.ndarray,
    y: np.ndarray,
    net: gluon.Block,
    devices: Sequence[mx.Context],
    trainer: gluon.Trainer,
) -> np.ndarray:
    """Take one step on a batch with the copies of `net` on `devices`; return the mean
    loss."""
    losses = []
    with autograd.record():
        for X_shard, y_shard, device in zip(
            *split_batch(X, y, devices), devices, strict=True
        ):
            weight = 1.0
            # else `trainer` would add this device's last gradient again
            if len(y_shard) == 0:
                X_shard, y_shard = X[:1].as_in_ctx(device), y[:1].as_in_ctx(device)
                weight = 0.0
            losses.append(weight * loss(net(X_shard), y_shard).sum())
    autograd.backward(losses)
    # sums the gradients over the devices, divides by the whole batch's size
    trainer.step(len(X))
    return sum(shard_loss.as_in_ctx(devices[0]) for shard_loss in losses) / len(X)


def train(
    net: gluon.Block,
    num_gpus: int,
    batch_size: int,
    lr: float,
    *,
    num_epochs: int = 10,
    std: float = 0.01,
    load_data: Callable = load_data_fashion_mnist,
    seed: int = 0,
) -> list[Epoch]:
    """Train `net` from new weights on `num_gpus` devices; the result stays in `net`.

    `batch_size` is the total over all devices. Runs with the same seed start from the
    same weights, of spread `std`, and see the same batches on any number of devices.
    `load_data(batch_size)` returns training and test batches, each a list or the like
    that every epoch can loop over.
    """
    check_epochs(num_epochs)
    devices = get_devices(num_gpus)
    train_iter, test_iter = load_data(batch_size)
    check_data(train_iter, test_iter)
    init_weights(net, devices, std, seed)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": lr})
    history = []
    for number in range(1, num_epochs + 1):
        synchronize()
        start = time.perf_counter()
        total, examples = np.zeros((), ctx=devices[0]), 0
        for X, y in batches_of(train_iter):
            total += train_batch(X, y, net, devices, trainer) * len(y)
            examples += len(y)
        synchronize()  # the loop has only queued the steps
        seconds = time.perf_counter() - start
        accuracy = evaluate_accuracy_gpus(net, test_iter)
        history.append(Epoch(number, total.item() / examples, accuracy, seconds))
    print(summary(history, describe(devices)))
    return history
