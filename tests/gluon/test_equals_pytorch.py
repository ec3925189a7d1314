"""The same weights and the same batch give the same step in MXNet and in PyTorch."""

import copy

import mxnet as mx
import pytest
import torch
from mxnet import gluon
from torch import nn
from torch.nn import functional as F

import d2l_mgpu
from d2l_mgpu.gluon import (
    concise,
    copy_weights,
    get_devices,
    get_params,
    init_weights,
    largest_difference,
    lenet,
    lenet_params,
    load_data_fashion_mnist,
    loss,
    resnet18,
    scratch,
    train_batch,
)
from d2l_mgpu.gluon.data import from_torch

CPU = torch.device("cpu")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def batch(n: int, side: int = 28, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(n)
    X = torch.randn(n, 1, side, side, generator=generator, dtype=dtype)
    return X, torch.randint(10, (n,), generator=generator)


def test_lenet_starts_from_the_same_numbers():
    for std in (None, 0.01):
        start, theirs = lenet_params(std, seed=3), d2l_mgpu.lenet_params(std, seed=3)
        assert largest_difference(start, theirs) == 0
        assert all(p.ctx == mx.cpu(0) and p.dtype == "float32" for p in start)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("k", [1, 2])
def test_lenet_has_the_same_losses_gradients_and_updated_parameters(k, dtype, monkeypatch):
    X, y = batch(7, dtype=dtype)
    start = [p.to(dtype) for p in d2l_mgpu.lenet_params()]
    theirs = [d2l_mgpu.get_params(start, CPU) for _ in range(k)]
    devices = get_devices(k, quiet=True)
    ours = [get_params([from_torch(p) for p in start], device) for device in devices]

    gradients: list = []  # of the replicas in PyTorch, then of those in MXNet
    for module in (d2l_mgpu.scratch, scratch):

        def sgd(params, lr, batch_size, original=module.sgd):
            gradients.append([copy.deepcopy(p.grad) for p in params])
            original(params, lr, batch_size)

        monkeypatch.setattr(module, "sgd", sgd)
    their_loss = d2l_mgpu.train_batch(X, y, theirs, [CPU] * k, lr=0.1)
    our_loss = train_batch(from_torch(X), from_torch(y), ours, devices, lr=0.1)

    assert our_loss.item() == pytest.approx(their_loss.item(), abs=TOLERANCE[dtype])
    assert len(gradients) == 2 * k
    for rank in range(k):
        assert largest_difference(theirs[rank], start) > 0.01  # the step did something
        assert largest_difference(ours[rank], theirs[rank]) <= TOLERANCE[dtype]
        largest = max(g.abs().max().item() for g in gradients[rank])
        difference = largest_difference(gradients[k + rank], gradients[rank])
        assert difference <= TOLERANCE[dtype] * largest


def step_in_pytorch(net: nn.Module, X, y, k: int, lr: float) -> float:
    """Take one step on k shards, one after the other; return the mean loss."""
    total = 0.0
    for X_shard, y_shard in zip(X.tensor_split(k), y.tensor_split(k), strict=True):
        shard_loss = F.cross_entropy(net(X_shard), y_shard, reduction="sum")
        shard_loss.backward()
        total += shard_loss.item()
    with torch.no_grad():
        for p in net.parameters():
            p -= lr / len(y) * p.grad
    return total / len(y)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("k", [1, 2])
def test_resnet18_has_the_same_loss_gradients_and_updated_parameters(k, dtype):
    torch.manual_seed(0)
    theirs, ours = d2l_mgpu.resnet18(10).to(dtype), resnet18(10)
    devices = get_devices(k, quiet=True)
    init_weights(ours, devices)
    ours.cast(str(dtype).removeprefix("torch."))
    copy_weights(theirs, ours)
    replica = copy.deepcopy(theirs)
    X, y = batch(5, side=16, dtype=dtype)
    replica(X.tensor_split(k)[0])  # BatchNorm as the first context sees it
    trainer = gluon.Trainer(ours.collect_params(), "sgd", {"learning_rate": 0.1})
    their_loss = step_in_pytorch(theirs, X, y, k, lr=0.1)
    our_loss = concise.train_batch(from_torch(X), from_torch(y), ours, devices, trainer)
    assert our_loss.item() == pytest.approx(their_loss, abs=1e-5)

    parameters = ours._collect_params_with_prefix()
    for name, theirs_p in theirs.named_parameters():
        p = parameters.get(name)
        if p is None:  # of a BatchNorm
            place = name.rpartition(".")[0]
            p = parameters[f"{place}.{'gamma' if name.endswith('weight') else 'beta'}"]
        summed = sum(g.as_in_ctx(devices[0]) for g in p.list_grad())
        largest = theirs_p.grad.abs().max().item()
        assert largest_difference([summed], [theirs_p.grad]) <= 1e-5 * max(1.0, largest), name
        for device in devices:
            assert largest_difference([p.data(device)], [theirs_p]) <= 1e-5, name
    means = [name for name in parameters if name.endswith("running_mean")]
    assert len(means) == 17  # of the stem, and two of each of eight blocks
    for name in means:
        ours_mean, theirs_mean = parameters[name].data(devices[0]), replica.get_buffer(name)
        assert largest_difference([ours_mean], [theirs_mean]) <= 1e-5, name


def test_both_frameworks_write_the_same_training_history():
    def sizes(load):
        return lambda n: load(n, num_train=600, num_test=200, source="generated")

    options = {"batch_size": 64, "lr": 0.05, "num_epochs": 2}
    for k in (1, 2):
        ours = scratch.train(k, load_data=sizes(load_data_fashion_mnist), **options)
        theirs = d2l_mgpu.scratch.train(
            k, load_data=sizes(d2l_mgpu.load_data_fashion_mnist), **options
        )
        for a, b in zip(ours, theirs, strict=True):
            assert a.loss == pytest.approx(b.loss, abs=1e-4)
            assert a.accuracy == pytest.approx(b.accuracy, abs=0.01)


def test_batches_are_those_of_pytorch_in_the_same_order():
    sizes = {"num_train": 50, "num_test": 20, "source": "generated", "seed": 5}
    ours = load_data_fashion_mnist(16, **sizes)
    theirs = d2l_mgpu.load_data_fashion_mnist(16, **sizes)
    for our_iter, their_iter in zip(ours, theirs, strict=True):
        assert len(our_iter) == len(their_iter)
        for _ in range(2):  # each epoch has an order of its own
            for pair in zip(our_iter, their_iter, strict=True):
                assert all(largest_difference([a], [b]) == 0 for a, b in zip(*pair, strict=True))
    X, y = next(iter(ours[0]))
    assert (X.shape, X.dtype, X.ctx) == ((16, 1, 28, 28), "float32", mx.cpu(0))
    assert (y.shape, y.dtype, y.ctx) == ((16,), "int64", mx.cpu(0))


def test_the_loss_is_as_exact_in_float32_as_that_of_pytorch_which_log_softmax_is_not():
    generator = torch.Generator().manual_seed(0)
    logits, y = torch.randn(2000, 10, generator=generator), torch.arange(2000) % 10
    exact = F.cross_entropy(logits.double(), y, reduction="none")
    theirs = F.cross_entropy(logits, y, reduction="none")
    error = largest_difference([loss(from_torch(logits), from_torch(y))], [exact])
    assert error <= 2 * largest_difference([theirs], [exact])
    large = from_torch(1e4 * logits)  # exp overflows; the difference to the largest does not
    assert loss(large, from_torch(y)).max() < 1e6


def test_lenet_computes_in_float64_in_its_own_context():
    X, _ = batch(3)
    params = get_params([p.astype("float64") for p in lenet_params()], mx.cpu(1))
    logits = lenet(from_torch(X).as_in_ctx(mx.cpu(1)), params)
    assert (logits.ctx, logits.dtype) == (mx.cpu(1), "float64")
    expected = d2l_mgpu.lenet(X, [p.double() for p in d2l_mgpu.lenet_params()])
    assert largest_difference([logits], [expected]) < 1e-12
