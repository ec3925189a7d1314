"""Buckets reduced during backward leave the gradients of one device, and those of DDP."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from d2l_mgpu import (
    Bucketed,
    assert_equals_one_device,
    assert_replicas_identical,
    backward_in_parts,
    buckets,
    launch,
    resnet18,
)
from d2l_mgpu.buckets import fill_buckets
from tests.support.planting import planted

pytestmark = pytest.mark.timeout(300)
WORLD_SIZES = [1, 2, 3]
STEPS = 3
SMALL = {"bucket_bytes": 10_000, "first_bucket_bytes": 1_000}
Gradients = list[Tensor | None]


class Branches(nn.Module):
    """Three equal layers that other ranks than 0 walk through in another order, so that their
    gradients become ready in another order; and all that may happen to a parameter: used twice,
    frozen, used by one rank only, used nowhere, without elements, in channels-last memory."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.on_rank_0, self.nowhere = nn.Linear(36, 36), nn.Linear(2, 2)
        self.empty = nn.ParameterList([torch.empty(0)])
        self.frozen = nn.Linear(36, 36).requires_grad_(False)
        self.first = nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)
        self.branches = nn.ModuleList(nn.Linear(36, 36) for _ in range(3))
        self.last = nn.Linear(36, 10)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, X: Tensor, rank: int) -> Tensor:
        X = self.frozen(self.first(X).flatten(1)).tanh()
        for i in (0, 1, 2, 0) if rank == 0 else (2, 0, 1, 0):
            X = X + self.branches[i](X).tanh()
        X = self.on_rank_0(X) if rank == 0 else X
        return self.last(X) * self.scale


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(10 * step + rank)
    X = torch.randn(4, 2, 5, 5, generator=generator, dtype=torch.float64)
    return X, torch.randint(10, (4,), generator=generator)


def gradients(net: nn.Module) -> Gradients:
    return [None if p.grad is None else p.grad.clone() for p in net.parameters()]


def steps_on_one_device(world_size: int) -> list[Gradients]:
    """The mean over the shards, one after the other."""
    net, found = Branches().double(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(world_size):
            X, y = batch(step, rank)
            (cross_entropy(net(X, rank), y) / world_size).backward()
        found.append(gradients(net))
        optimizer.step()
    return found


def steps_by_buckets(
    make: Callable = Bucketed, set_to_none: bool = True, rank_1_is_late: bool = False
) -> dict[str, Any]:
    """Run by each rank, from unequal weights: the gradients of each step, and what was sent."""
    rank, late = dist.get_rank(), dist.new_group(backend="gloo")
    net = Branches().double()
    with torch.no_grad():
        for tensor in chain(net.parameters(), net.buffers()):
            tensor.add_(rank)  # those of rank 0 have to win
    replica = make(net, **SMALL)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found, sent = [], []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        X, y = batch(step, rank)
        if rank_1_is_late and rank == 1:
            dist.barrier(late)
        with patch.object(dist, "all_reduce", wraps=dist.all_reduce) as all_reduce:
            cross_entropy(replica(X, rank), y).backward()
            replica.finish()
        found.append(gradients(net))
        if rank_1_is_late and rank == 0:
            dist.barrier(late)
        sent.append([call.args[0].numel() for call in all_reduce.call_args_list])
        optimizer.step()
    same_layout = all(p.grad is None or p.grad.stride() == p.stride() for p in net.parameters())
    return {"gradients": found, "sent": sent, "same layout": same_layout}


def with_numbers(found: Gradients) -> list[Tensor]:
    return [g for g in found if g is not None and g.numel()]


def prove(on_ranks: list[dict[str, Any]]) -> None:
    """Gradients are those of one device, the same bits on all ranks; every bucket went once."""
    for step, one_device in enumerate(steps_on_one_device(len(on_ranks))):
        ours = [rank["gradients"][step] for rank in on_ranks]
        for found in ours:
            assert [g is None for g in found] == [g is None for g in one_device]
        assert_replicas_identical([with_numbers(found) for found in ours])
        assert_equals_one_device(with_numbers(ours[0]), with_numbers(one_device))
        for rank in on_ranks:
            layer = 36 * 36 + 36
            assert rank["sent"][step] == [370, layer, layer, layer, 76 + 6 + layer]


# Faults: a line of the module replaced by another.
FAULTS = {
    "weights for gradients": ("torch.mul(param.grad,", "torch.mul(param.detach(),"),
    "wait dropped": ("self.work.wait()", "pass"),
    "one sum goes to a copy": (
        "dist.all_reduce(self.flat,",
        "dist.all_reduce(self.flat.clone() if len(self.views) == 2 else self.flat,",
    ),
    "sum for average": ("1 / dist.get_world_size()", "1.0"),
    "in order of readiness": (
        "if bucket.missing:\n                return",
        "if bucket.missing:\n                continue",
    ),
    "old gradients of unused layers": ("view.fill_(-0.0)", "pass"),
    "zeros for what nobody used": ("view.fill_(-0.0)", "view.zero_()"),
    "zeros stay though nobody used it": ("param.grad = None", "pass"),
    "start not shared": ("            broadcast(tensor)", "            pass"),
    "views not attached": ("param.grad = view", "pass"),
    "every bucket sent twice": (
        "self.bucket_of[param].put(param)\n        self.send_full_buckets()",
        "bucket = self.bucket_of[param]\n        bucket.put(param)\n"
        "        bucket.missing or dist.all_reduce(bucket.flat)",
    ),
}


def parts_and_ddp() -> dict[str, Any]:
    """Run by each rank: ResNet-18 by DDP and by buckets, two steps in three micro-batches each."""
    rank, found = dist.get_rank(), {}
    X, y = torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(rank)), torch.arange(3)
    for name, make in (("DDP", DistributedDataParallel), ("buckets", Bucketed)):
        torch.manual_seed(0)
        net = resnet18(10)
        replica = make(net.double())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        with patch.object(dist, "all_reduce", wraps=dist.all_reduce) as all_reduce:
            for _ in range(2):
                optimizer.zero_grad()
                backward_in_parts(replica, X.double(), y, num_parts=3, weight=1.0)
                if name == "buckets":
                    found["sent before finish()"] = all_reduce.call_count
                    replica.finish()
                optimizer.step()
        found[name] = [*net.parameters(), *with_numbers(gradients(net))]
        found[name] = [tensor.detach() for tensor in found[name]]
        found["sent"] = [call.args[0].numel() for call in all_reduce.call_args_list]
        found["names"] = list(replica.state_dict()), found.get("names", [None])[0]
    return found


def sent_when_gradients_came() -> list[int]:
    """Run by each rank: how many buckets had been sent when each layer's gradient was ready."""
    net = nn.Sequential(*[nn.Linear(8, 8, bias=False) for _ in range(4)])
    counts: list[int] = []
    with patch.object(dist, "all_reduce", wraps=dist.all_reduce) as all_reduce:
        for p in net.parameters():
            p.register_post_accumulate_grad_hook(lambda p: counts.append(all_reduce.call_count))
        replica = Bucketed(net, bucket_bytes=1, first_bucket_bytes=1)
        replica(torch.ones(1, 8)).sum().backward()
        replica.finish()
    return counts


def messages() -> dict[str, str]:
    """Run by each rank: what is said about mistakes. The replica works after each of them."""
    said = {}

    def note(name: str, mistake: Callable) -> None:
        try:
            mistake()
        except (RuntimeError, ValueError) as error:
            said[name] = f"{type(error).__name__}: {error}"

    note("nothing to train", lambda: Bucketed(nn.ReLU()))
    note("lazy", lambda: Bucketed(nn.LazyLinear(2)))
    note("sparse", lambda: Bucketed(nn.Sequential(nn.Embedding(3, 2, sparse=True))))
    note("sparse alone", lambda: Bucketed(nn.EmbeddingBag(3, 2, sparse=True)))
    rank = dist.get_rank()
    note("half a byte", lambda: Bucketed(nn.Linear(2, 2), bucket_bytes=1.5))  # type: ignore
    note("another limit", lambda: Bucketed(nn.Linear(2, 2), bucket_bytes=1 + rank))
    note("another shape", lambda: Bucketed(nn.Linear(2 + 2 * rank, 2)))
    note("another layer", lambda: Bucketed(nn.Linear(2, 2, bias=rank == 0)))
    half_frozen = nn.Linear(2, 2)
    half_frozen.weight.requires_grad_(rank == 0)
    note("frozen on one rank", lambda: Bucketed(half_frozen))
    note("another statistic", lambda: Bucketed(nn.BatchNorm1d(2, track_running_stats=rank == 1)))
    note("no bytes", lambda: Bucketed(nn.Linear(2, 2), bucket_bytes=0))
    note("no bytes at first", lambda: Bucketed(nn.Linear(2, 2), first_bucket_bytes=0))
    net = nn.Linear(2, 2)
    replica, X = Bucketed(net), torch.ones(1, 2)
    note("no backward", replica.finish)
    replica(X).sum().backward()
    replica.finish()
    note("twice", replica.finish)
    replica(X).sum().backward()
    note("second backward", lambda: replica(X).sum().backward())
    replica.finish()
    replica(X).sum().backward()
    with replica.no_sync():
        note("second backward inside no_sync", lambda: replica(X).sum().backward())
    replica.finish()
    with replica.no_sync():
        replica(X).sum().backward()
    note("inside no_sync", replica.finish)
    net.extra = nn.Parameter(torch.zeros(2))
    replica(X).sum().backward()
    note("added later", replica.finish)
    net.extra.requires_grad_(False)
    replica.finish()
    net.bias.requires_grad_(False).grad = None
    replica(X).sum().backward()
    replica.finish()
    said["frozen later"] = repr(net.bias.grad)
    return said


def exchanges_without_sync() -> list[int]:
    """Run by each rank: how often gradients were exchanged inside `no_sync` and after it."""
    replica, counts = Bucketed(nn.Linear(2, 2)), []
    with patch.object(dist, "all_reduce", wraps=dist.all_reduce) as all_reduce:
        with suppress(ZeroDivisionError), replica.no_sync():
            with replica.no_sync():
                replica(torch.ones(1, 2)).sum().backward()
            replica(torch.ones(1, 2)).sum().backward()
            counts.append(all_reduce.call_count)
            raise ZeroDivisionError
        replica(torch.ones(1, 2)).sum().backward()
        replica.finish()
        counts.append(all_reduce.call_count)
    return counts


def the_newest_takes_over() -> bool:
    """Run by each rank: whether a net with two replicas of itself has the gradients of one."""
    net, X = nn.Linear(2, 2), torch.ones(1, 2)
    expected = torch.autograd.grad(net(X).sum(), list(net.parameters()))  # on all ranks
    replicas = [Bucketed(net), Bucketed(net)]
    replicas[1](X).sum().backward()
    replicas[1].finish()
    return all(torch.equal(p.grad, g) for p, g in zip(net.parameters(), expected, strict=True))


USED = ["a", "ab", "a", "abc"]  # the layers that a step uses; rank 1 never uses c

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.1),
    "Adam": lambda params: torch.optim.AdamW(params, lr=0.1, weight_decay=0.1),
}


class Choosing(nn.Module):
    """Layers of which a step uses some."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleDict({name: nn.Linear(3, 3) for name in "abc"}).double()

    def forward(self, X: Tensor, used: str) -> Tensor:
        for name in used:
            X = self.layers[name](X).tanh()
        return X


def finding_unused(net: nn.Module) -> nn.Module:
    return DistributedDataParallel(net, find_unused_parameters=True)


def steps_of(optimizer: str, set_to_none: bool, make: Callable | None = None) -> list[Tensor]:
    """Run by each rank, or without `make` on one device: the weights after each step."""
    net = Choosing()
    replica = make(net) if make else net
    shards = (dist.get_rank(),) if make else (0, 1)
    stepping, found = OPTIMIZERS[optimizer](net.parameters()), []
    for used in USED:
        stepping.zero_grad(set_to_none=set_to_none)
        for shard in shards:
            X = torch.full((1, 3), 1.0 + shard, dtype=torch.float64)
            loss = replica(X, used if shard == 0 else used.strip("c")).sum()
            (loss / len(shards)).backward()
        if hasattr(replica, "finish"):
            replica.finish()
        stepping.step()
        found += [p.detach().clone() for p in net.parameters()]
    return found


UNUSED = [(name, none) for name in OPTIMIZERS for none in (True, False)]


def gradients_of_minus_zero(make: Callable = Bucketed) -> list[bool]:
    """Run by each rank: whether a gradient of -0.0 that rank 0 alone has is one on all ranks."""
    net = nn.ParameterDict({name: nn.Parameter(torch.ones(())) for name in "ab"})
    replica = make(net)
    loss = net["a"] if dist.get_rank() else net["a"] + net["b"] * torch.tensor(-0.0)
    loss.backward()
    replica.finish()
    return [p.grad is not None for p in net.values()]


def everything() -> dict[str, Any]:
    found = {
        "sound": steps_by_buckets(),
        "zeros kept": steps_by_buckets(set_to_none=False),
        "resnet": parts_and_ddp(),
        "counts": sent_when_gradients_came(),
    }
    if dist.get_world_size() == 2:
        found["messages"] = messages()
        zeros = planted(buckets, *FAULTS["zeros for what nobody used"])["Bucketed"]
        for way, make in (("buckets", Bucketed), ("DDP", finding_unused), ("zeros", zeros)):
            found[way] = {case: steps_of(*case, make) for case in UNUSED}
        found["minus zero"] = gradients_of_minus_zero()
        blurred = planted(buckets, "first_number(view).add_(0.0)", "pass")["Bucketed"]
        found["minus zero, planted"] = gradients_of_minus_zero(blurred)
        found["without sync"] = exchanges_without_sync()
        found["the newest takes over"] = the_newest_takes_over()
        for fault in FAULTS:
            late = fault == "wait dropped"
            found[fault] = steps_by_buckets(
                planted(buckets, *FAULTS[fault])["Bucketed"], rank_1_is_late=late
            )
    return found


@cache
def ranks(world_size: int) -> list[dict[str, Any]]:
    return launch(everything, num_devices=world_size, timeout=200)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("way", ["sound", "zeros kept"])
def test_buckets_leave_the_gradients_of_one_device_on_every_rank(world_size, way):
    prove([rank[way] for rank in ranks(world_size)])


@pytest.mark.parametrize("fault", FAULTS)
def test_the_proof_catches(fault):
    with pytest.raises(AssertionError):
        prove([rank[fault] for rank in ranks(2)])


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_micro_batches_leave_what_ddp_leaves_after_one_exchange(world_size):
    for rank in ranks(world_size):
        found = rank["resnet"]
        assert_equals_one_device(found["buckets"], found["DDP"])
        assert found["sent before finish()"] == len(found["sent"])  # backward has sent all
        assert sum(found["sent"]) == 2 * 11_175_818


def test_a_bucket_is_sent_while_backward_goes_on():
    for rank in ranks(2):
        assert rank["counts"] == [0, 1, 2, 3]


def test_gradients_lie_in_memory_as_their_parameters_do():
    assert all(rank["sound"]["same layout"] for rank in ranks(2))


def test_a_state_dict_has_the_names_of_ddp():
    for rank in ranks(2):
        ours, ddp = rank["resnet"]["names"]
        assert ours == ddp


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ("nothing to train", "ValueError: net has no parameters that require gradients"),
        ("lazy", "ValueError: net has lazy layers: show it one example first"),
        ("sparse", "ValueError: The parameter '0.weight' has sparse gradients, which fit into no"),
        ("sparse alone", "ValueError: The parameter 'weight' has sparse gradients"),
        ("no bytes", "ValueError: bucket_bytes must be an integer of at least 1, but it is 0."),
        ("half a byte", "ValueError: bucket_bytes must be an integer of at least 1, but it is 1.5"),
        (
            "another limit",
            "ValueError: rank 1 makes Bucketed of ('limits', 2, 1048576), but rank 0",
        ),
        ("another shape", "rank 1 makes Bucketed of ('weight', (2, 4), 'torch.float32', True), "),
        ("another layer", "rank 1 makes Bucketed of None, but rank 0 of ('bias', (2,), 'torch.fl"),
        ("frozen on one rank", "Bucketed of ('weight', (2, 2), 'torch.float32', False), but rank"),
        ("another statistic", "rank 1 makes Bucketed of ('running_mean', (2,), 'torch.float32', "),
        ("no backward", "RuntimeError: finish() found no new gradients"),
        ("twice", "RuntimeError: finish() found no new gradients"),
        ("inside no_sync", "RuntimeError: finish() found no new gradients"),
        ("second backward", "RuntimeError: a gradient came twice before finish()"),
        ("second backward inside no_sync", "RuntimeError: a gradient came twice before finish()"),
        ("no bytes at first", "ValueError: first_bucket_bytes must be an integer of at"),
        ("added later", "parameter 'extra' requires gradients but belongs to no bucket"),
        ("frozen later", "None"),
    ],
)
def test_mistakes_get_a_sentence(mistake, says):
    for rank in ranks(2):
        assert says in rank["messages"][mistake]


@pytest.mark.parametrize("case", UNUSED, ids=str)
def test_the_optimizer_passes_by_what_no_rank_used_as_with_ddp_and_on_one_device(case):
    """Momentum, weight decay and Adam would make a change of a gradient of zeros."""
    one_device = steps_of(*case)
    for rank in ranks(2):
        assert_equals_one_device(rank["buckets"][case], rank["DDP"][case])
        assert_equals_one_device(rank["buckets"][case], one_device)
        with pytest.raises(AssertionError):
            assert_equals_one_device(rank["zeros"][case], one_device)


def test_a_gradient_of_minus_zero_is_a_gradient():
    assert [rank["minus zero"] for rank in ranks(2)] == [[True, True]] * 2
    assert [rank["minus zero, planted"] for rank in ranks(2)] == [[True, True], [True, False]]


def test_nothing_is_exchanged_inside_no_sync_nested_or_left_by_an_exception():
    assert [found["without sync"] for found in ranks(2)] == [[0, 1], [0, 1]]


def test_the_newest_replica_of_a_net_takes_it_over():
    assert all(found["the newest takes over"] for found in ranks(2))


def test_a_process_group_is_needed():
    with pytest.raises(RuntimeError, match="make it in a function that launch runs"):
        Bucketed(nn.Linear(2, 2))


@pytest.mark.parametrize("limits", [(100, 10), (1, 1), (1_000, 10_000), (10**9, 10**9)])
def test_buckets_are_filled_as_torch_fills_them(limits):
    sizes = torch.randint(1, 99, (40,), generator=torch.Generator().manual_seed(0)).tolist()
    kinds = [torch.float32, torch.float64, torch.float32, torch.bfloat16] * 10
    params = [nn.Parameter(torch.zeros(n, dtype=t)) for n, t in zip(sizes, kinds, strict=True)]
    bucket_bytes, first = limits
    theirs, _ = dist._compute_bucket_assignment_by_size(params, [first, bucket_bytes])
    ours = [list(bucket.views) for bucket in fill_buckets(params, bucket_bytes, first)]
    position = {p: i for i, p in enumerate(params)}
    assert [[position[p] for p in bucket] for bucket in ours] == theirs
