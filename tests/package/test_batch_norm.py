"""BatchNorm over all ranks is the BatchNorm of one device, however the examples are divided."""

import copy
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from d2l_mgpu import (
    SyncBatchNorm,
    all_reduce,
    assert_equals_one_device,
    assert_replicas_identical,
    launch,
    shard_loss,
    sync_batch_norm,
    this_rank,
)
from d2l_mgpu.batch_norm import SumOverRanks

CPU = torch.device("cpu")
OPTIONS = {
    "default": {},
    "affine=False": {"affine": False},
    "momentum=None": {"momentum": None},
    "track_running_stats=False": {"track_running_stats": False},
}


class OwnShard(SyncBatchNorm):
    def statistics(self, x):
        x = x.flatten(0, -2)
        return x.mean(0), x.var(0, correction=0), torch.tensor(len(x))


class MeanOfMeans(SyncBatchNorm):
    """Every rank counts the same, however many examples it has."""

    def statistics(self, x):
        x, k = x.flatten(0, -2), this_rank()[1]
        mean = SumOverRanks.apply(x.mean(0)) / k
        var = SumOverRanks.apply(((x - mean) ** 2).mean(0)) / k
        return mean, var, super().statistics(x)[2]


class ConstantStatistics(SyncBatchNorm):
    """No gradient passes through mean and variance."""

    def statistics(self, x):
        mean, var, count = super().statistics(x)
        return mean.detach(), var.detach(), count


class BiasedRunningVariance(SyncBatchNorm):
    def statistics(self, x):
        mean, var, _ = super().statistics(x)
        return mean, var, torch.tensor(1e30)  # count / (count - 1) is 1


class SumOfSquares(SyncBatchNorm):
    def statistics(self, x):
        mean, _, count = super().statistics(x)
        return mean, SumOverRanks.apply((x.flatten(0, -2) ** 2).sum(0)) / count - mean**2, count


FAULTS = {
    OwnShard: {"losses", "parameters", "statistics", "answers"},
    MeanOfMeans: {"losses", "parameters", "statistics", "answers"},
    ConstantStatistics: {"parameters", "answers"},
    BiasedRunningVariance: {"statistics", "answers"},
}


def net_with(**options) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, **options), nn.ReLU(), nn.Flatten()]
    layers += [nn.Linear(144, 6), nn.BatchNorm1d(6, **options), nn.Tanh(), nn.Linear(6, 10)]
    return nn.Sequential(*layers).double()


def batch(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    X = torch.randn(n, 1, 8, 8, generator=generator, dtype=torch.float64)
    return X, torch.randint(10, (n,), generator=generator)


def trained(net: nn.Module, sizes: tuple[int, ...]) -> dict[str, list[Tensor]]:
    """A step on a batch of each of `sizes`: on one device, or on the ranks that all call this."""
    rank, k = this_rank()
    replica = DistributedDataParallel(net) if k > 1 else net
    losses = []
    for X, y in map(batch, sizes):
        net.zero_grad()
        loss = shard_loss(replica, X, y, CPU)
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.5 * p.grad
        losses.append(loss.detach() / k)
        if k > 1:
            all_reduce(losses[-1])
    left = {"losses": losses, "parameters": [p.detach() for p in net.parameters()]}
    left["statistics"] = [b.double() for b in net.buffers()]
    if rank == 0:  # in evaluation mode nobody waits for the others
        left["answers"] = [net.eval()(batch(5)[0]).detach()]
    return left


SIZES = (7, 2, 4)  # for three ranks: uneven, an empty shard, single examples


def uneven(layer: nn.Module, X: Tensor) -> list[Tensor]:
    """Outputs, gradients and statistics of `layer` where the last rank has most rows of `X`, and
    the one before none; the rows of all ranks, filled up with zeros, are added."""
    rank, k = this_rank()
    ends = [0] + [2] * (k - 1) + [len(X)]
    mine = slice(ends[rank], ends[rank + 1])
    shard = X[mine].clone().requires_grad_()
    Y = layer(shard)
    (gradient,) = torch.autograd.grad((Y.sin() * Y).sum(), shard)
    outputs = torch.zeros(2, *X.shape, dtype=X.dtype)
    outputs[0, mine], outputs[1, mine] = Y.detach(), gradient
    if k > 1:
        all_reduce(outputs)
    return [*outputs, *(b.to(X.dtype) for b in layer.buffers())]


FAR = 1000 + torch.randn(9, 3, 4, generator=torch.Generator().manual_seed(1)).double()
HALF = (torch.arange(6 * 2 * 200).view(6, 2, 200) % 7).bfloat16()


def too_few(layer: nn.Module) -> str:
    with pytest.raises(ValueError) as error:
        layer(torch.ones(1 if this_rank()[0] == 0 else 0, 3))
    return str(error.value)


def everything() -> dict:
    """What each rank runs."""
    found = {name: trained(sync_batch_norm(net_with(**o)), SIZES) for name, o in OPTIONS.items()}
    found["uneven"] = uneven(SyncBatchNorm(3).double(), FAR)
    found["half"] = uneven(SyncBatchNorm(2), HALF)
    if this_rank()[1] == 2:
        found["too few"] = too_few(SyncBatchNorm(3))
        found[SumOfSquares] = uneven(SumOfSquares(3).double(), FAR)
        for fault in FAULTS:
            net = net_with()
            net[1].__class__ = net[5].__class__ = fault
            found[fault] = trained(net, (7,))
    return found


@cache
def ranks(k: int) -> list[dict]:
    return launch(everything, num_devices=k) if k > 1 else [everything()]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_k_ranks_train_as_one_device_with_batchnorm(k, option):
    one_device = trained(net_with(**OPTIONS[option]), SIZES)
    ours = [rank[option] for rank in ranks(k)]
    for what, tensors in one_device.items():
        assert_equals_one_device(ours[0][what], tensors)
    for what in ("losses", "parameters", "statistics"):
        assert_replicas_identical([rank[what] for rank in ours])


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_caught_where_they_do_harm(fault):
    one_device, ours = trained(net_with(), (7,)), ranks(2)[0][fault]
    wrong = set()
    for what, tensors in one_device.items():
        try:
            assert_equals_one_device(ours[what], tensors)
        except AssertionError:
            wrong.add(what)
    assert wrong == FAULTS[fault]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_shards_of_any_size_and_means_far_from_zero_are_exact(k):
    assert_equals_one_device(ranks(k)[0]["uneven"], uneven(nn.BatchNorm1d(3).double(), FAR))


def test_a_variance_from_the_sum_of_squares_would_lose_digits():
    with pytest.raises(AssertionError, match="away from what one device computes"):
        faulty = ranks(2)[0][SumOfSquares]
        assert_equals_one_device(faulty, uneven(nn.BatchNorm1d(3).double(), FAR))


def test_half_precision_comes_and_goes_but_is_not_summed_in():
    Y, _, *statistics = uneven(nn.BatchNorm1d(2), HALF.float())
    ours, _, *our_statistics = ranks(3)[0]["half"]
    assert ours.dtype == torch.bfloat16
    assert torch.equal(ours, Y.bfloat16())
    for our, their in zip(our_statistics, statistics, strict=True):
        assert torch.equal(our, their.bfloat16())


def test_a_single_value_has_no_variance():
    says = "BatchNorm needs two values a channel to train, but all ranks have 1."
    assert [rank["too few"] for rank in ranks(2)] == [says, says]


def test_without_other_processes_it_is_batchnorm_to_the_bit():
    plain, net = net_with(), sync_batch_norm(net_with())
    one, other = trained(plain, SIZES), trained(net, SIZES)
    for what in one:
        assert_replicas_identical([one[what], other[what]])


def test_a_conversion_keeps_all_but_the_forward():
    net = net_with()
    net[1].eval()
    before, state = dict(net.named_parameters()), copy.deepcopy(net.state_dict())
    assert sync_batch_norm(net) is net
    assert [type(net[i]) for i in (0, 1, 5)] == [nn.Conv2d, SyncBatchNorm, SyncBatchNorm]
    assert all(p is before[name] for name, p in net.named_parameters())
    assert [net[1].training, net[5].training] == [False, True]
    net_with().load_state_dict(net.state_dict())
    net.load_state_dict(state)
    assert type(sync_batch_norm(nn.BatchNorm3d(2))) is SyncBatchNorm
    assert type(sync_batch_norm(nn.SyncBatchNorm(2))) is nn.SyncBatchNorm


def test_a_lazy_layer_is_refused():
    net = nn.Sequential(nn.LazyConv2d(3, 3), nn.LazyBatchNorm2d())
    with pytest.raises(ValueError, match="The layer '1' is lazy: let the network see an example"):
        sync_batch_norm(net)
    net(torch.zeros(2, 1, 4, 4))
    assert type(sync_batch_norm(net)[1]) is SyncBatchNorm


@pytest.mark.parametrize("shape", [(6,), (6, 2), (3, 6)])
def test_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"BatchNorm of 3 channels needs an input of shape \(n, 3"):
        SyncBatchNorm(3)(torch.zeros(shape))
