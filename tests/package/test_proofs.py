"""Each known fault, planted in the package's own functions, makes the proof fail."""

import builtins

import pytest
import torch

from d2l_mgpu import get_params, prove_equals_one_device, scratch, train_batch

CPU = torch.device("cpu")


def prove(k: int = 4, batch_size: int = 5) -> None:
    """The proof, through names looked up now, so that it runs what was planted."""
    prove_equals_one_device(
        scratch.train_batch, scratch.get_params, [CPU] * k, batch_size=batch_size
    )


def rebinding_allreduce(data):
    """Erratum 1: the sum reaches device 0 only; the other entries of the list are rebound."""
    with torch.no_grad():
        for x in data[1:]:
            data[0][:] += x
    for i in range(1, len(data)):
        data[i] = data[0].clone()


def aliasing_get_params(params, device):
    """Erratum 2, pitfall 1: no copy where source and target device are the same."""
    return [p.to(device).requires_grad_() for p in params]


def no_allreduce(data):
    """Pitfall 2: nobody sums, so each replica follows its own shard."""


def forgetful_allreduce(data):
    """Pitfall 2 again, harder to see: the last replica is forgotten in the broadcast."""
    with torch.no_grad():
        total = sum(data)
        for x in data[:-1]:
            x.copy_(total)


def chunk_scatter(X, devices):
    """Pitfall 6: `chunk` gives fewer shards than devices for some batch sizes."""
    return [x.to(device) for x, device in zip(X.chunk(len(devices)), devices, strict=False)]


def mean_of_means_loss(logits, y):
    """Pitfall 5: every shard weighs the same (its mean, times its size, whatever that is)."""
    mean = torch.nn.functional.cross_entropy(logits, y)
    return (mean * 5 / 2).expand(1)  # two shards: half the batch of 5 each, it pretends


def lenient_zip(*iterables, strict=False):
    """Erratum 12: whoever has no partner is left out without a word."""
    return builtins.zip(*iterables, strict=False)


FAULTS = {
    "erratum 1: all-reduce rebinds the list": (
        {"allreduce": rebinding_allreduce},
        4,
        AssertionError,
        "replicas 0 and 1 differ",
    ),
    "erratum 2: replicas alias one storage": (
        {"get_params": aliasing_get_params},
        4,
        AssertionError,
        "one is an alias",
    ),
    "erratum 12: zip leaves a replica out": (
        {"scatter": chunk_scatter, "zip": lenient_zip},
        4,
        AttributeError,  # the replica without a shard has no gradient to add
        "NoneType",
    ),
    "pitfall 2: no all-reduce": (
        {"allreduce": no_allreduce},
        4,
        AssertionError,
        "replicas 0 and 1 differ",
    ),
    "pitfall 2: one replica forgotten": (
        {"allreduce": forgetful_allreduce},
        4,
        AssertionError,
        "replicas 0 and 3 differ",
    ),
    "pitfall 5: mean of means": (
        {"loss": mean_of_means_loss},
        2,
        AssertionError,
        "what one device computes",
    ),
    "pitfall 6: too few shards": ({"scatter": chunk_scatter}, 4, ValueError, "zip"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_proof_catches(fault, monkeypatch):
    planted, k, error, says = FAULTS[fault]
    prove(k)  # sound as it is
    for name, function in planted.items():
        monkeypatch.setattr(scratch, name, function, raising=name != "zip")
    with pytest.raises(error, match=says):
        prove(k)


def test_the_proof_runs_the_functions_it_is_given():
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return train_batch(*arguments)

    prove_equals_one_device(counted, get_params, [CPU] * 2, num_steps=4)
    assert len(calls) == 4
