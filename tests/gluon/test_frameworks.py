"""The same weights and the same batch give the same step in MXNet and in PyTorch."""

import mxnet as mx
import pytest
import torch
from mxnet import autograd, gluon
from torch.nn import functional as F

import d2l_mgpu
from d2l_mgpu.gluon import (
    assert_replicas_identical,
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
    split_batch,
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

    gradients: list = []  # what each framework is about to step with
    for module in (d2l_mgpu.scratch, scratch):
        original = module.sgd

        def sgd(params, lr, batch_size, original=original):
            gradients.append([p.grad.clone() if k_torch(p) else p.grad.copy() for p in params])
            original(params, lr, batch_size)

        monkeypatch.setattr(module, "sgd", sgd)
    their_loss = d2l_mgpu.train_batch(X, y, theirs, [CPU] * k, lr=0.1)
    our_loss = train_batch(from_torch(X), from_torch(y), ours, devices, lr=0.1)

    assert our_loss.item() == pytest.approx(their_loss.item(), abs=TOLERANCE[dtype])
    assert len(gradients) == 2 * k
    for rank in range(k):
        size = max(1.0, *(g.abs().max().item() for g in gradients[rank]))
        difference = largest_difference(gradients[k + rank], gradients[rank])
        assert difference <= TOLERANCE[dtype] * size
        assert 0 < largest_difference(theirs[rank], start)  # it did move
        assert largest_difference(ours[rank], theirs[rank]) <= TOLERANCE[dtype]


def k_torch(p) -> bool:
    return isinstance(p, torch.Tensor)


def step_in_pytorch(net: torch.nn.Module, X, y, k: int, lr: float):
    """One step on k shards, one after the other; the mean loss and the gradients."""
    total = torch.zeros(())
    for X_shard, y_shard in zip(X.tensor_split(k), y.tensor_split(k), strict=True):
        shard_loss = F.cross_entropy(net(X_shard), y_shard, reduction="sum")
        shard_loss.backward()
        total = total + shard_loss.detach()
    with torch.no_grad():
        for p in net.parameters():
            p -= lr / len(y) * p.grad
    return total / len(y)


@pytest.mark.parametrize("k", [1, 2])
def test_resnet18_has_the_same_losses_gradients_parameters_and_running_means(k):
    torch.manual_seed(0)
    theirs, ours = d2l_mgpu.resnet18(10).double(), resnet18(10)
    devices = get_devices(k, quiet=True)
    init_weights(ours, devices)
    ours.cast("float64")
    copy_weights(theirs, ours)
    X, y = batch(5, side=8)
    trainer = gluon.Trainer(ours.collect_params(), "sgd", {"learning_rate": 0.1})
    their_loss = step_in_pytorch(theirs, X, y, k, lr=0.1)
    our_loss = concise.train_batch(from_torch(X), from_torch(y), ours, devices, trainer)
    assert our_loss.item() == pytest.approx(their_loss.item(), abs=1e-10)

    parameters = ours._collect_params_with_prefix()
    rename = {"gamma": "weight", "beta": "bias"}
    for name, p in parameters.items():
        *place, last = name.split(".")
        their = theirs.get_parameter if p.grad_req != "null" else theirs.get_buffer
        q = their(".".join([*place, rename.get(last, last)]))
        if p.grad_req != "null":
            summed = sum(g.as_in_ctx(devices[0]) for g in p.list_grad())
            assert largest_difference([summed], [q.grad]) < 1e-5 * max(1.0, q.grad.abs().max())
            assert_replicas_identical([[copy] for copy in p.list_data()])
            assert largest_difference(p.list_data()[:1], [q]) < 1e-5, name
        elif k == 1 and last == "running_mean":
            assert largest_difference(p.list_data(), [q]) < 1e-5, name
    assert len(parameters) == len(list(theirs.parameters())) + 40  # of 20 BatchNorms


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


def test_lenet_computes_in_float64_on_every_context():
    X, y = batch(3)
    params = [p.astype("float64") for p in lenet_params()]
    with autograd.record():
        (logits,) = (
            lenet(X_, get_params(params, device))
            for X_, device in zip(
                split_batch(from_torch(X), from_torch(y), [mx.cpu(1)])[0], [mx.cpu(1)], strict=True
            )
        )
    assert (logits.ctx, logits.dtype) == (mx.cpu(1), "float64")
    expected = d2l_mgpu.lenet(X, [p.double() for p in d2l_mgpu.lenet_params()])
    assert largest_difference([logits], [expected]) < 1e-12
