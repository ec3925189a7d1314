"""Pretended devices: numbers as on the CPU, errors as on several GPUs."""

import copy
import inspect
import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import d2l_mgpu
from d2l_mgpu import (
    DeviceBatches,
    FastNet,
    FastStep,
    LeNet,
    describe,
    evaluate_accuracy,
    evaluate_accuracy_gpus,
    exact_dtype,
    get_params,
    init_weights,
    lenet,
    lenet_params,
    load_data_fashion_mnist,
    loss,
    prove_equals_one_device,
    scratch,
    splitting,
    synchronize,
    train_batch,
)
from d2l_mgpu.fast import computes_bf16
from d2l_mgpu.pretended import pretended_devices
from d2l_mgpu.splitting import SPLITS, prove_split_equals_one_device, split_step
from d2l_mgpu.traffic import Traffic

REPLICAS = [torch.device("cpu")] * 4
MIXED = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"


def ones(place: Any, *shape: int) -> Tensor:
    return torch.ones(shape, device=place)


# Operations on tensors of devices 0 and 1 (a and b), and of the CPU (c), that CUDA refuses.
REFUSED: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "add": lambda a, b, c: a + b,
    "add in place": lambda a, b, c: a.add_(b),
    "add from the CPU": lambda a, b, c: a + c,
    "product": lambda a, b, c: a @ b,
    "layer": lambda a, b, c: F.linear(a, b),
    "join": lambda a, b, c: torch.cat([a, b]),
    "join numbers": lambda a, b, c: torch.stack([a.sum(), c.sum()]),
    "loss of labels on the CPU": lambda a, b, c: F.cross_entropy(a, torch.zeros(2).long()),
    "index on a device": lambda a, b, c: c[torch.tensor([0], device=a.device)],
    "result elsewhere": lambda a, b, c: torch.add(a, 1, out=c),
    "number on another device": lambda a, b, c: a * b.sum(),
}
# and those that it does not.
ALLOWED: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "move": lambda a, b, c: a + b.to(a.device) + c.to(a.device, non_blocking=True),
    "copy": lambda a, b, c: a.copy_(b),
    "assign": lambda a, b, c: a.__setitem__(0, c[1]),
    "number on the CPU": lambda a, b, c: a * c.sum(),
    "index on the CPU": lambda a, b, c: a[torch.tensor([1, 0])] + a[[1, 0]],
    "make": lambda a, b, c: a + torch.tensor([1.0, 2.0], device=a.device),
    "draw": lambda a, b, c: a + torch.randn(2, 2, device=a.device),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused_with_its_sentence(name):
    with pretended_devices(2) as devices, pytest.raises(RuntimeError) as caught:
        REFUSED[name](ones(devices[0], 2, 2), ones(devices[1], 2, 2), torch.ones(2, 2))
    pairs = (("lazy:0", "lazy:1"), ("cpu", "lazy:0"))
    assert str(caught.value) in [MIXED.format(*pair) for pair in pairs]


@pytest.mark.parametrize("name", ALLOWED)
def test_what_cuda_does_not_refuse_passes(name):
    with pretended_devices(2) as devices:
        ALLOWED[name](ones(devices[0], 2, 2), ones(devices[1], 2, 2), torch.ones(2, 2))


def test_numbers_are_those_of_the_cpu_also_backward():
    def step(device: Any) -> list[Tensor]:
        net = LeNet(seed=1).to(device)
        X = torch.linspace(-1, 1, 2 * 28 * 28).reshape(2, 1, 28, 28).to(device)
        F.cross_entropy(net(X), torch.tensor([3, 5], device=device)).backward()
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9).step()
        assert all(p.grad.device == torch.device(device) for p in net.parameters())
        return [p.detach().cpu() for p in copy.deepcopy(net).parameters()]

    expected = step("cpu")
    with pretended_devices(2) as devices:
        found = step(devices[1])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def test_numbers_are_read_on_the_cpu_only_and_reads_are_counted():
    with pretended_devices(1) as devices:
        x = ones("lazy:0", 2)
        ways = [lambda: x.cpu(), lambda: x.tolist(), lambda: x[0].item(), lambda: bool(x[0] > 0)]
        for count, read in enumerate(ways, start=1):
            read()
            assert devices.reads == count
        x.add_(x.sum()).to("lazy:0").clone()
        assert devices.reads == len(ways)
        for read in (x.numpy, lambda: np.asarray(x)):
            with pytest.raises(
                TypeError, match=r"can't convert lazy:0 device .* Use Tensor\.cpu\(\)"
            ):
                read()
        assert repr(x) == "tensor([3., 3.], device='lazy:0')"


def test_there_are_as_many_devices_as_asked_for_and_only_inside():
    with pretended_devices(2) as devices:
        assert describe(devices) == "lazy:0, lazy:1"
        x = ones(devices[1], 2)
        with pytest.raises(RuntimeError, match="no device lazy:2 among the 2 pretended ones"):
            ones("lazy:2", 2)
    with pytest.raises(RuntimeError, match=r"used after .* had ended .*\.cpu\(\) inside"):
        x + 1
    for count in (0, 65, "2"):
        with pytest.raises(ValueError, match="num_devices must be"), pretended_devices(count):
            pass


# Every function that takes devices, on four of them.


def small_data() -> Any:
    return load_data_fashion_mnist(6, num_train=13, num_test=7, source="generated")


def evaluated(devices: list[torch.device]) -> None:
    test_iter = small_data()[1]
    replicas = [get_params(lenet_params(), device) for device in devices]
    expected = evaluate_accuracy(test_iter, replicas[:1], devices[:1])
    assert evaluate_accuracy(test_iter, replicas, devices) == expected
    nets = [LeNet().to(device) for device in devices]
    init_weights(nets[1], torch.ones(1, 1, 28, 28))
    assert 0 <= evaluate_accuracy_gpus(nets, test_iter) <= 1


def fast(devices: list[torch.device]) -> None:
    net = FastNet(LeNet(), devices[2])
    step = FastStep(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for X, y in DeviceBatches(small_data()[0].dataset, 6, devices[2], seed=0):
        assert step(X, y).device == devices[2]


def split(name: str, devices: list[torch.device]) -> None:
    assert prove_split_equals_one_device(SPLITS[name], devices) < 1e-12
    X, y = torch.ones(5, 1, 28, 28), torch.arange(5)
    device_params = SPLITS[name].place(lenet_params(), devices)
    assert math.isfinite(split_step(SPLITS[name], X, y, device_params, devices, 0.1, Traffic()))


def smaller(devices: list[torch.device]) -> None:
    synchronize(devices)
    assert exact_dtype(devices) == torch.float64
    assert not computes_bf16(devices[0])


RUN: dict[str, tuple[Callable[[list[torch.device]], Any], list[str]]] = {
    "proof": (
        lambda devices: prove_equals_one_device(train_batch, get_params, devices),
        ["prove_equals_one_device", "train_batch", "get_params", "scatter", "split_batch"],
    ),
    "evaluation": (evaluated, ["evaluate_accuracy"]),
    "fast": (fast, ["FastNet", "in_bf16", "DeviceBatches", "on_device"]),
    "network": (
        lambda devices: split("network", devices),
        ["prove_split_equals_one_device", "split_step", "place_stages", "network_split"],
    ),
    "layers": (
        lambda devices: split("layers", devices),
        ["place_slices", "layer_split", "all_gather"],
    ),
    "data": (lambda devices: split("data", devices), ["place_replicas", "data_split"]),
    "smaller": (smaller, ["describe", "synchronize", "exact_dtype", "computes_bf16"]),
}
ELSEWHERE = {"shard_loss", "SyncBatchNorm"}  # need a process group: test_concise and so on
NOT_OURS = (".gluon", ".processes", ".train", ".pretended", ".exercises")  # other devices, or none


@pytest.mark.parametrize("name", RUN)
def test_it_runs_on_four_pretended_devices(name):
    with pretended_devices(4) as devices:
        RUN[name][0](devices)


def test_every_function_that_takes_devices_is_run():
    found = set()
    for info in walk_packages(d2l_mgpu.__path__, "d2l_mgpu."):
        if not any(part in info.name for part in NOT_OURS):
            for name, value in vars(import_module(info.name)).items():
                ours = callable(value) and value.__module__ == info.name
                if ours and not (inspect.isclass(value) and issubclass(value, Exception)):
                    parameters = inspect.signature(value).parameters
                    found |= {name} if {"device", "devices"} & parameters.keys() else set()
    assert found == {name for _, names in RUN.values() for name in names} | ELSEWHERE


# Faults of placement: with replicas on one device nothing is wrong, on several nothing works.


def shards_left_behind(X, devices):
    return list(X.tensor_split(len(devices)))


def labels_left_behind(X, y, devices):
    return scratch.scatter(X, devices), shards_left_behind(y, devices)


@torch.no_grad()
def adds_without_moving(data):
    for x in data[1:]:
        data[0].add_(x)
    for x in data[1:]:
        x.copy_(data[0])


without_moving = partial(scratch.train_batch, allreduce=adds_without_moving)


def always_to_the_first(X, devices):
    return [shard.to(devices[0]) for shard in X.tensor_split(len(devices))]


def keeps_the_activations(self, tensors, devices, phase):
    return [x.clone() for x in tensors]


def prove_scratch(devices: list[torch.device]) -> None:
    prove_equals_one_device(scratch.train_batch, scratch.get_params, devices)


def prove_split(name: str) -> Callable[[list[torch.device]], Any]:
    return lambda devices: prove_split_equals_one_device(SPLITS[name], devices)


def evaluate(devices: list[torch.device]) -> None:
    replicas = [get_params(lenet_params(), device) for device in devices]
    scratch.evaluate_accuracy(small_data()[1], replicas, devices)


FAULTS = {
    "shards left behind": (scratch, "scatter", shards_left_behind, prove_scratch),
    "labels left behind": (scratch, "split_batch", labels_left_behind, prove_scratch),
    "all-reduce adds without moving": (scratch, "train_batch", without_moving, prove_scratch),
    "copies to the wrong device": (scratch, "scatter", always_to_the_first, prove_scratch),
    "data: labels left behind": (
        splitting, "split_batch", labels_left_behind, prove_split("data")
    ),
    "network: activations left behind": (
        Traffic, "send", keeps_the_activations, prove_split("network")
    ),
    "layers: activations left behind": (
        Traffic, "send", keeps_the_activations, prove_split("layers")
    ),
    "evaluation: labels left behind": (scratch, "split_batch", labels_left_behind, evaluate),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_misplaced_tensor_passes_on_replicas_and_is_caught_here(fault, monkeypatch):
    owner, name, planted, run = FAULTS[fault]
    monkeypatch.setattr(owner, name, planted)
    run(REPLICAS)
    with pretended_devices(4) as devices, pytest.raises(RuntimeError, match="on the same device"):
        run(devices)


def reads_each_loss(X, y, device_params, devices, lr):
    """`train_batch`, but it looks at the loss of a device before the next one may begin."""
    X_shards, y_shards = scratch.split_batch(X, y, devices)
    total = 0.0
    for X_, y_, params in zip(X_shards, y_shards, device_params, strict=True):
        shard_loss = loss(lenet(X_, params), y_).sum()
        shard_loss.backward()
        total += shard_loss.item()
    for replicas in zip(*device_params, strict=True):
        scratch.allreduce([p.grad for p in replicas])
    for params in device_params:
        scratch.sgd(params, lr, batch_size=len(X))
    return total / len(X)


@pytest.mark.parametrize(("step", "reads"), [(train_batch, 0), (reads_each_loss, 4)])
def test_a_loss_that_is_read_inside_the_loop_is_counted(step, reads):
    prove_equals_one_device(step, get_params, REPLICAS)
    with pretended_devices(4) as devices:
        device_params = [get_params(lenet_params(), device) for device in devices]
        step(torch.ones(9, 1, 28, 28), torch.arange(9), device_params, devices, 0.1)
        assert devices.reads == reads


def test_a_module_may_be_moved_to_a_pretended_device():
    with pretended_devices(2) as devices:
        net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(devices[1])
        assert {x.device for x in net.state_dict().values()} == {devices[1]}
        assert net(ones(devices[1], 4, 3)).device == devices[1]
        with pytest.raises(RuntimeError, match="on the same device"):
            net(ones(devices[0], 4, 3))
