"""Every erratum of the published chapters that code can show has its test here, by number.

Each test shows the fault, and that this package does not have it. The errata stand in
chapters/errata.md.
"""

import re
from collections.abc import Callable
from importlib.metadata import requires
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from book.config import ROOT
from d2l_mgpu import (
    Residual,
    concise,
    evaluate_accuracy_gpus,
    get_devices,
    get_params,
    init_weights,
    largest_difference,
    launch,
    lenet,
    lenet_params,
    loss,
    resnet18,
    scatter,
    scratch,
    train_batch,
)

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def d2l():
    """d2l, whose import takes seconds."""
    from d2l import torch

    return torch


def examples(n: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 1, 28, 28, generator=generator)
    return X, torch.randint(10, (n,), generator=generator)


def loader(batch_sizes: list[int]):
    """A `load_data` that records the batch sizes it is asked for."""

    def load_data(batch_size):
        batch_sizes.append(batch_size)
        X, y = examples()
        batches = list(zip(X.split(batch_size), y.split(batch_size), strict=True))
        return batches, batches

    return load_data


def drift(num_replicas: int, allreduce: Callable = scratch.allreduce) -> float:
    """The largest difference between the first and the last replica after training."""
    X, y = examples()
    replicas = [get_params(lenet_params(), CPU) for _ in range(num_replicas)]
    for _ in range(10):
        train_batch(X, y, replicas, [CPU] * num_replicas, lr=0.1, allreduce=allreduce)
    return largest_difference(replicas[0], replicas[-1])


def rebinding_allreduce(data):
    total = sum(data)
    data[0].copy_(total)
    data[1:] = [total.clone() for _ in data[1:]]


def aliasing_get_params(params, device):
    return [p.to(device).requires_grad_() for p in params]


def chunking_scatter(X, devices):
    return list(X.chunk(len(devices)))


def weight_layers(net: nn.Module) -> list[nn.Module]:
    return [m for m in net.modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)]


def found_by_exact_type(net: nn.Module) -> int:
    return sum(type(m) in (nn.Linear, nn.Conv2d) for m in net.modules())


@pytest.mark.parametrize("k", [2, 4, 8])
def test_erratum_01_rebinding_leaves_replicas_apart(k):
    assert drift(k, rebinding_allreduce) > 1e-3
    assert drift(k) == 0


@pytest.mark.parametrize("k", [2, 4])
def test_erratum_02_aliased_replicas_take_too_long_a_step(k):
    X, y = examples()

    def step_length(get_params):
        start = [p.double() for p in lenet_params()]
        before = [p.clone() for p in start]
        replicas = [get_params(start, CPU) for _ in range(k)]
        train_batch(X.double(), y, replicas, [CPU] * k, lr=1e-3)
        return largest_difference(replicas[0], before)

    # k backward passes gather the sum in one gradient, which the all-reduce doubles k - 1 times
    assert step_length(aliasing_get_params) == pytest.approx(2 ** (k - 1) * step_length(get_params))


def test_erratum_03_no_replica_is_left_out_silently():
    X, y = examples(5)
    replicas = [get_params(lenet_params(), CPU) for _ in range(4)]
    assert [len(shard) for shard in chunking_scatter(X, [CPU] * 4)] == [2, 2, 1]
    assert [len(shard) for shard in scatter(X, [CPU] * 4)] == [2, 1, 1, 1]
    with (
        patch.object(scratch, "scatter", chunking_scatter),
        pytest.raises(ValueError, match=r"zip\(\)"),
    ):
        train_batch(X, y, replicas, [CPU] * 4, lr=0.1)


def test_erratum_04_evaluation_from_scratch_looks_at_every_replica():
    X, _ = examples(12)
    replicas = [get_params(lenet_params(), CPU) for _ in range(2)]
    batches = [(X, lenet(X, replicas[0]).argmax(dim=1))]  # labels that a sound replica gets right
    for p in replicas[1]:
        p.data.zero_()
    assert scratch.evaluate_accuracy(batches, replicas[:1], [CPU]) == 1
    assert scratch.evaluate_accuracy(batches, replicas, [CPU] * 2) < 1


def test_erratum_04_so_does_the_concise_evaluation():
    X, _ = examples(12)
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(784, 10)) for _ in range(2)]
    batches = [(X, nets[0](X).argmax(dim=1))]
    assert evaluate_accuracy_gpus(nets[:1], batches) == 1
    assert evaluate_accuracy_gpus(nets, batches) < 1


def test_erratum_05_there_is_no_gradient_before_the_first_backward_pass():
    assert all(p.grad is None for p in get_params(lenet_params(), CPU))


def test_erratum_06_d2ls_residual_block_takes_other_arguments(d2l):
    with pytest.raises(TypeError):
        d2l.Residual(64, 128, use_1x1conv=True, strides=2)
    assert d2l.Residual(64, 64).conv3 is not None  # 64 counts as true
    assert isinstance(Residual(64, 64).shortcut, nn.Identity)
    assert Residual(64, 128, stride=2)(torch.zeros(1, 64, 8, 8)).shape == (1, 128, 4, 4)


def test_erratum_07_initialisation_by_exact_type_misses_lazy_layers(d2l):
    X, _ = examples(2)
    net = d2l.resnet18(10, 1)
    assert found_by_exact_type(net) == 2
    init_weights(net, X, std=1.0)
    assert found_by_exact_type(net) == len(weight_layers(net)) == 21
    assert all(0.9 < layer.weight.std() < 1.1 for layer in weight_layers(net))


def test_erratum_08_our_network_needs_no_data_before_it_can_be_made_parallel(d2l):
    assert any(is_lazy(p) for p in d2l.resnet18(10, 1).parameters())
    assert not any(is_lazy(p) for p in resnet18(10).parameters())


def test_erratum_09_a_second_run_remembers_nothing_of_the_first():
    X, y = examples(8)

    def state(net):
        return [value.clone() for value in net.state_dict().values()]

    net = resnet18(10)
    init_weights(net, X)
    fresh = state(net)
    net.train()
    loss(net(X), y).mean().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    for layer in weight_layers(net):
        nn.init.normal_(layer.weight, std=0.01)  # new weights alone are not a new start
    assert net[1].running_mean.any()
    assert net[-1].bias.any()
    init_weights(net, X)
    assert largest_difference(state(net), fresh) == 0


def test_erratum_10_batch_size_and_learning_rate_stay_when_devices_are_added():
    batch_sizes: list[int] = []
    load_data = loader(batch_sizes)
    one, two = (scratch.train(k, 6, 0.1, num_epochs=2, load_data=load_data) for k in (1, 2))
    assert batch_sizes == [6, 6]
    assert [e.loss for e in one] == pytest.approx([e.loss for e in two], abs=1e-5)


def test_erratum_10_nor_do_they_change_in_the_concise_way():
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    batch_sizes: list[int] = []
    load_data = loader(batch_sizes)
    one, two = (concise.train(net, k, 6, 0.1, num_epochs=2, load_data=load_data) for k in (1, 2))
    assert batch_sizes == [6, 6]
    assert [e.loss for e in one] == pytest.approx([e.loss for e in two], abs=1e-5)


class Clock:
    """Stands in for `time` and for `synchronize`; remembers in which order they are called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def perf_counter(self) -> float:
        self.calls.append("clock")
        return float(len(self.calls))

    def synchronize(self, devices) -> None:
        self.calls.append(f"wait for {len(devices)}")


def test_erratum_11_the_timer_from_scratch_waits_for_all_devices_before_each_reading():
    clock = Clock()
    with (
        patch.object(scratch, "time", clock),
        patch.object(scratch, "synchronize", clock.synchronize),
    ):
        scratch.train(2, 6, 0.1, num_epochs=3, load_data=loader([]))
    assert clock.calls == ["wait for 2", "clock"] * 6


def test_erratum_11_so_does_the_concise_timer():
    clock = Clock()
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    with (
        patch.object(concise, "time", clock),
        patch.object(concise, "synchronize", clock.synchronize),
    ):
        concise.train(net, 1, 6, 0.1, num_epochs=3, load_data=loader([]))
    assert clock.calls == ["wait for 1", "clock"] * 6


def test_erratum_12_no_device_is_named_in_the_package():
    for path in (ROOT / "d2l_mgpu").glob("**/*.py"):
        code = re.sub(r'""".*?"""|#.*', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not re.search(r"cuda:\d", code), f"{path.name} names a device"


def test_erratum_13_batches_are_scattered_on_a_machine_without_gpus_too():
    batch = torch.arange(20).reshape(4, 5)
    with pytest.raises(ValueError, match="non cpu device"):
        nn.parallel.scatter(batch, [CPU, CPU])
    assert torch.equal(torch.cat(scatter(batch, [CPU, CPU])), batch)


def test_erratum_14_there_is_always_a_device(d2l):
    with patch.object(torch.cuda, "device_count", lambda: 0):
        assert d2l.try_all_gpus() == []
    with patch.object(torch.accelerator, "is_available", lambda: False):
        assert get_devices(2) == [CPU, CPU]


def kind_of_replica() -> str:
    """Run by each rank: the type of what `concise.train_replica` evaluates, and so trains."""
    with patch.object(concise, "evaluate_accuracy_gpus", return_value=0.0) as evaluate:
        net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
        concise.train_replica(net, [examples()], [examples()], 0.1, 1, 0)
    return type(evaluate.call_args.args[0]).__name__


def test_erratum_15_dataparallel_is_a_pass_through_here_and_we_use_ddp():
    with patch.object(torch.cuda, "is_available", lambda: False):
        assert nn.DataParallel(nn.Linear(2, 2)).device_ids == []
    assert launch(kind_of_replica, num_devices=2) == ["DistributedDataParallel"] * 2


def test_erratum_16_our_pins_are_exact_and_not_those_of_d2l():
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    pins = dict(line.split("==") for line in lines if line)
    assert "d2l" not in pins
    theirs = dict(re.fullmatch(r"(\S+) \(==(\S+)\)", r).groups() for r in requires("d2l"))
    assert theirs["numpy"] == "1.23.5"
    assert not set(pins.items()) & set(theirs.items())
