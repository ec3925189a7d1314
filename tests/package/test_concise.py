"""Processes with DistributedDataParallel equal one device, whatever the shards."""

import copy
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from d2l_mgpu import (
    LeNet,
    RankError,
    assert_equals_one_device,
    assert_replicas_identical,
    concise,
    evaluate_accuracy_gpus,
    init_weights,
    launch,
    resnet18,
)
from d2l_mgpu.concise import count_right

BATCHES = (1, 2, 7, 16)  # smaller than the number of replicas, uneven, even


def small_net() -> nn.Sequential:
    """A network without BatchNorm, whose statistics would depend on the shards."""
    layers = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(16), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(16, 10))


def batch(n: int, seed: int = 0, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 1, 8, 8, generator=generator, dtype=dtype)
    return X, torch.randint(10, (n,), generator=generator)


def started(net: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    net(torch.zeros(1, 1, 8, 8))
    init_weights(net, torch.zeros(1, 1, 8, 8), std=0.3)
    return net.to(dtype)


def steps_with_ddp(net: nn.Module, batches, lr: float = 0.5) -> list[torch.Tensor]:
    """Run by each rank: a step on every batch through `concise.shard_loss` and DDP."""
    ddp = nn.parallel.DistributedDataParallel(net)
    for X, y in batches:
        net.zero_grad()
        concise.shard_loss(ddp, X, y, torch.device("cpu")).backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= lr * p.grad
    return [p.detach() for p in net.parameters()]


def steps_on_one_device(net: nn.Module, batches, lr: float = 0.5) -> list[torch.Tensor]:
    net = copy.deepcopy(net)
    for X, y in batches:
        net.zero_grad()
        nn.functional.cross_entropy(net(X), y).backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= lr * p.grad
    return [p.detach() for p in net.parameters()]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7])
def test_k_processes_take_the_same_steps_as_one_device(k):
    for dtype in (torch.float64, torch.float32) if k == 3 else (torch.float64,):
        net = started(small_net(), dtype)
        batches = [batch(n, seed=n, dtype=dtype) for n in BATCHES]
        ranks = launch(steps_with_ddp, net, batches, num_devices=k)
        assert_replicas_identical(ranks)
        assert_equals_one_device(ranks[0], steps_on_one_device(net, batches))


def mean_of_means(net, X, y, device):
    """Pitfall 5: the mean over the shard, which DDP then averages whatever the shards' sizes."""
    shard = slice(dist.get_rank(), None, dist.get_world_size())
    return nn.functional.cross_entropy(net(X[shard]), y[shard])


def test_the_proof_catches_a_mean_of_means():
    def faulty(net, batches):
        concise.shard_loss = mean_of_means
        return steps_with_ddp(net, batches)

    net, batches = started(small_net()), [batch(7)]
    even = [batch(8)]  # with equal shards the fault is none
    weights = launch(faulty, net, even, num_devices=2)[0]
    assert_equals_one_device(weights, steps_on_one_device(net, even))
    with pytest.raises(AssertionError, match="away from what one device computes"):
        weights = launch(faulty, net, batches, num_devices=2)[0]
        assert_equals_one_device(weights, steps_on_one_device(net, batches))


class Counting(nn.Module):
    """Predicts the class that the first pixel names, and counts the examples it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.seen: list[int] = []

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(X))
        return nn.functional.one_hot(X[:, 0].long(), 10) * self.weight


def labelled(*sizes: int):
    """Batches in which two predictions of three are right."""
    for size in sizes:
        y = torch.arange(size) % 10
        yield torch.where(torch.arange(size) % 3 == 0, (y + 1) % 10, y)[:, None], y


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_k_replicas_each_evaluate_their_own_shard_and_every_example_counts_once(k):
    replicas = [Counting().train(i == 0) for i in range(k)]
    result = evaluate_accuracy_gpus(replicas, labelled(12, 7, 1))
    assert [sum(r.seen) for r in replicas] == [
        sum(len(torch.arange(n).tensor_split(k)[i]) for n in (12, 7, 1)) for i in range(k)
    ]
    assert result == pytest.approx((8 + 4 + 0) / 20)
    assert [r.training for r in replicas] == [i == 0 for i in range(k)]  # as before


def test_a_single_module_is_one_replica():
    assert evaluate_accuracy_gpus(Counting(), labelled(12)) == pytest.approx(8 / 12)


def test_too_few_shards_for_the_replicas_are_refused():
    def chunks(X, y, devices):
        return X.chunk(len(devices)), y.chunk(len(devices))

    with pytest.raises(ValueError):
        evaluate_accuracy_gpus([Counting() for _ in range(4)], labelled(5), chunks)


@pytest.mark.parametrize("k", [1, 2])
def test_labels_of_shape_n_1_are_refused_where_they_would_be_compared_with_each_prediction(k):
    batches = [(X, y[:, None]) for X, y in labelled(12)]
    with pytest.raises(ValueError, match=r"one label for each example.*of y is \(12, 1\)"):
        evaluate_accuracy_gpus([Counting() for _ in range(k)], batches)


def test_there_must_be_something_to_evaluate():
    with pytest.raises(ValueError, match="The data, a list, holds no batch"):
        evaluate_accuracy_gpus(Counting(), [])


CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (torch.zeros(3, 4, 4).long(), r"of y is \(3, 4, 4\)"),  # one label for each pixel
        (torch.full((3, 10), 0.1), r"of y is \(3, 10\)"),
        (torch.zeros(0).long(), "there must be an example"),
        (torch.tensor([1, -100, 2]), "A label is -100, but each example needs a class, 0 or more"),
    ],
    ids=["per pixel", "probabilities", "empty", "left out"],
)
def test_a_loss_whose_mean_is_not_over_the_examples_is_refused(y, says):
    with pytest.raises(ValueError, match=says):
        concise.shard_loss(nn.Flatten(), torch.zeros(len(y), 10), y, CPU)


def test_processes_evaluate_their_own_shards_and_agree():
    def evaluate():
        net = Counting()
        ddp = nn.parallel.DistributedDataParallel(net)
        return evaluate_accuracy_gpus(ddp, labelled(12, 7, 1)), sum(net.seen)

    ranks = launch(evaluate, num_devices=3)
    assert [accuracy for accuracy, _ in ranks] == pytest.approx([12 / 20] * 3)
    assert [seen for _, seen in ranks] == [4 + 3 + 1, 4 + 2 + 0, 4 + 2 + 0]


def test_init_weights_starts_every_layer_afresh_also_lazy_ones():
    net = nn.Sequential(nn.LazyConv2d(3, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(10))
    X = torch.rand(4, 1, 6, 6)
    init_weights(net, X, std=0.5, seed=1)
    fresh = copy.deepcopy(net.state_dict())
    assert net[0].weight.std().item() == pytest.approx(0.5, rel=0.3)
    net.train()(X)  # statistics move
    with torch.no_grad():
        for p in net.parameters():
            p += 1
    init_weights(net, X, std=0.5, seed=1)
    for name, value in net.state_dict().items():
        assert torch.equal(value, fresh[name]), name


def toy_data(batch_size: int, n: int = 60):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 10
    X = torch.rand(n, 1, 8, 8, generator=generator) * 0.2 + y[:, None, None, None] / 10
    batches = list(zip(X.split(batch_size), y.split(batch_size), strict=True))
    return batches, batches


def test_one_and_two_devices_train_alike_and_leave_their_weights_in_the_callers_net():
    train = partial(concise.train, batch_size=11, lr=0.2, num_epochs=3, std=0.3, load_data=toy_data)
    one, two = small_net(), small_net()
    for a, b in zip(train(one, 1), train(two, 2), strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
        assert a.accuracy == b.accuracy
    weights = zip(one.parameters(), two.parameters(), strict=True)
    assert all(torch.allclose(a.cpu(), b.cpu(), atol=1e-4) for a, b in weights)
    history = train(two, 2)  # the same net once more: nothing carries over
    assert history[-1].loss == pytest.approx(b.loss, rel=1e-4)
    assert evaluate_accuracy_gpus(two, toy_data(11)[1]) == history[-1].accuracy


def test_replicas_of_resnet18_end_an_epoch_identical_with_their_batch_statistics():
    def train():
        net = resnet18(10)
        init_weights(net, torch.zeros(1, 1, 28, 28))
        batches = [(torch.rand(4, 1, 28, 28), torch.arange(4)) for _ in range(2)]
        return list(concise.train_replica(net, batches, batches, 0.1, 1, seed=0)[1].values())

    assert_replicas_identical(launch(train, num_devices=2))


def test_the_loss_of_an_epoch_is_the_mean_over_examples_on_one_and_on_two_devices():
    for k in (1, 2):
        net = small_net()
        (epoch,) = concise.train(net, k, 11, lr=0.0, num_epochs=1, std=0.3, load_data=toy_data)
        X, y = (torch.cat(parts) for parts in zip(*toy_data(11)[0], strict=True))
        expected = nn.functional.cross_entropy(net.cpu()(X), y).item()
        assert epoch.loss == pytest.approx(expected, rel=1e-5)


def test_evaluation_and_initialization_leave_every_module_in_its_mode():
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.LayerNorm(8), nn.Linear(8, 10))
    net[1].eval()  # on purpose
    X, y = torch.rand(6, 8), torch.arange(6)
    evaluate_accuracy_gpus(net, [(X, y)])
    init_weights(net, X)
    assert [module.training for module in net] == [True, False, True, True]


def test_layers_of_any_kind_start_afresh_and_the_callers_random_numbers_go_on():
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 10))
    nn.init.constant_(net[1].weight, 7.0)
    state = torch.get_rng_state()
    init_weights(net, torch.rand(2, 8, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(net[1].weight, torch.ones(8))
    assert torch.equal(state, torch.get_rng_state())


class Raw(nn.Module):
    """A network with a parameter that no layer owns."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.scale = nn.Linear(8, 10), nn.Parameter(torch.ones(10))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.hidden(X.flatten(1)[:, :8]) * self.scale


class RawWithReset(Raw):
    def reset_parameters(self) -> None:
        self.scale.data.fill_(1.0)


def weight_norm(module: nn.Module) -> nn.Module:
    return nn.utils.parametrizations.weight_norm(module)


@pytest.mark.parametrize(
    ("net", "parameter"),
    [
        (Raw(), "scale"),
        (nn.Sequential(Raw()), "0.scale"),
        (nn.Sequential(weight_norm(nn.Linear(8, 10))), "0.parametrizations.weight.original0"),
        (weight_norm(nn.Embedding(8, 10)), "parametrizations.weight.original0"),
    ],
    ids=["a parameter", "inside", "weight_norm of a layer", "weight_norm of another"],
)
def test_a_parameter_that_nothing_starts_afresh_is_named_and_nothing_is_changed(net, parameter):
    before = copy.deepcopy(net.state_dict())
    X = torch.zeros(2, 8, dtype=torch.int64 if isinstance(net, nn.Embedding) else None)
    with pytest.raises(ValueError, match=f"No layer initializes the parameter '{parameter}'"):
        init_weights(net, X)
    assert_replicas_identical([list(net.state_dict().values()), list(before.values())])


@pytest.mark.parametrize(
    "net",
    [
        RawWithReset(),
        nn.Sequential(nn.Linear(8, 8), nn.PReLU(), nn.LayerNorm(8), nn.GRUCell(8, 8)),
        nn.TransformerEncoderLayer(8, 2, 8),
        nn.Linear(8, 10).requires_grad_(False),
    ],
    ids=["with reset_parameters", "layers", "attention", "frozen"],
)
def test_whatever_a_network_has_learned_is_forgotten(net):
    X, started = torch.rand(2, 8, generator=torch.Generator().manual_seed(0)), []
    for shift in (0.0, 1.0):
        with torch.no_grad():
            for p in net.parameters():
                p += shift
        init_weights(net, X, seed=3)
        started.append([p.detach().clone() for p in net.parameters()])
    assert_replicas_identical(started)


def test_training_lenet_twice_gives_the_same_history_twice():
    def load_data(batch_size):
        X = torch.rand(24, 1, 28, 28, generator=torch.Generator().manual_seed(0))
        return [[(X, torch.arange(24) % 10)]] * 2

    net = LeNet(seed=5)
    start = [p.detach().clone() for p in net.parameters()]
    one, two = (concise.train(net, 1, 24, 0.5, num_epochs=2, load_data=load_data) for _ in range(2))
    assert [e.loss for e in one] == [e.loss for e in two]
    concise.train(net, 1, 24, 0.0, num_epochs=1, load_data=load_data)
    assert_replicas_identical([[p.detach() for p in net.parameters()], start])


class Spare(nn.Module):
    """A network with a layer that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(64, 10), nn.Linear(2, 2)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.used(X.flatten(1))


def test_a_parameter_without_gradient_is_named_where_ddp_would_wait_for_it():
    train = partial(concise.train, batch_size=60, lr=0.1, num_epochs=1, load_data=toy_data)
    train(Spare(), 1)
    with pytest.raises(RankError, match=r"The parameter 'spare\.weight' was not used in this step"):
        train(Spare(), 2)
    net = Spare()
    net.spare.requires_grad_(False)
    net(torch.ones(1, 8, 8)).sum().backward()
    concise.check_all_used(net)  # what is frozen needs none


@pytest.mark.parametrize("empty", [(True, False), (False, True)])
def test_data_without_a_batch_are_refused(empty):
    def load_data(batch_size):
        return [[] if none else batches for none, batches in zip(empty, toy_data(60), strict=True)]

    with pytest.raises(ValueError, match="The data, a list, holds no batch"):
        concise.train(small_net(), 1, 60, 0.1, num_epochs=1, load_data=load_data)


def test_data_for_one_epoch_only_are_refused_before_a_batch_of_them_is_gone():
    once = iter(toy_data(20)[0])
    with pytest.raises(ValueError, match=r"training data is a list_iterator.*only once"):
        concise.train(small_net(), 1, 20, 0.1, load_data=lambda n: (once, toy_data(20)[1]))
    assert len(list(once)) == 3


@pytest.mark.parametrize("num_gpus", [0, -2, 1.5])
def test_a_wrong_number_of_devices_is_refused_before_anything_is_loaded(num_gpus):
    with pytest.raises(ValueError, match="at least 1"):
        concise.train(small_net(), num_gpus, 8, 0.1, load_data=None)


@pytest.mark.parametrize("shape", [(8, 10, 1), (8, 10, 1, 1), (8,)])
def test_logits_that_would_broadcast_against_labels_are_refused(shape):
    with pytest.raises(
        ValueError, match=r"must return logits of shape \(n, classes\), but they are"
    ):
        count_right(torch.zeros(shape), torch.zeros(8, dtype=torch.int64))
