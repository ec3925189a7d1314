"""Each known fault, planted in the package's own functions, makes the proof fail."""

import builtins
import math
import re
from collections.abc import Callable
from functools import partial

import pytest
import torch

from d2l_mgpu import (
    assert_equals_one_device,
    assert_replicas_identical,
    get_params,
    largest_difference,
    prove_equals_one_device,
    scratch,
    train_batch,
)

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
    """Erratum 3: whoever has no partner is left out without a word."""
    return builtins.zip(*iterables, strict=False)


def step_with(allreduce: Callable) -> dict[str, Callable]:
    return {"train_batch": partial(train_batch, allreduce=allreduce)}


FAULTS = {
    "erratum 1: all-reduce rebinds the list": (
        step_with(rebinding_allreduce),
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
    "erratum 3: zip leaves a replica out": (
        {"scatter": chunk_scatter, "zip": lenient_zip},
        4,
        AttributeError,  # the replica without a shard has no gradient to add
        "NoneType",
    ),
    "pitfall 2: no all-reduce": (
        step_with(no_allreduce),
        4,
        AssertionError,
        "replicas 0 and 1 differ",
    ),
    "pitfall 2: one replica forgotten": (
        step_with(forgetful_allreduce),
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


# What the comparisons themselves must not let through.

NAN, INF, ZERO = torch.tensor([0.0, torch.nan]), torch.tensor([0.0, torch.inf]), torch.zeros(2)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_largest_difference_is_nan_wherever_one_is(place):
    tensors = [ZERO] * 3
    with_nan = [*tensors[:place], NAN, *tensors[place + 1 :]]
    assert math.isnan(largest_difference(with_nan, tensors))
    assert math.isnan(largest_difference(tensors, with_nan))
    assert math.isnan(largest_difference(with_nan, with_nan))


@pytest.mark.parametrize(
    ("ours", "theirs", "difference"),
    [
        (INF, ZERO, math.inf),
        (torch.tensor([1 + 2j]), torch.tensor([1 - 2j]), 4),
        (torch.tensor([1 + 2j]), torch.tensor([1.0]), 2),
        (torch.tensor([2**53 + 1]), torch.tensor([2**53]), 1),
        (torch.tensor([2**63 - 1]), torch.tensor([-(2**63)]), 2.0**64),
        (torch.tensor([True]), torch.tensor([False]), 1),
        (torch.zeros(0, 3), torch.zeros(0, 3), 0),
        (torch.tensor(3.0), torch.tensor(5.0, dtype=torch.float64), 2),
    ],
)
def test_the_largest_difference_misses_no_kind_of_number(ours, theirs, difference):
    assert largest_difference([ours], [theirs]) == difference
    assert largest_difference([theirs], [ours]) == difference


def test_the_largest_difference_of_infinities_is_nan():
    assert math.isnan(largest_difference([ZERO, INF], [ZERO, INF]))


@pytest.mark.parametrize(
    ("our_shape", "their_shape"), [((3, 1), (3,)), ((2, 3), (3,)), ((1,), ()), ((0,), (1,))]
)
def test_shapes_that_would_broadcast_are_not_compared(our_shape, their_shape):
    says = re.escape(f"tensor 1 has shape {our_shape}, not {their_shape}")
    with pytest.raises(AssertionError, match=says):
        largest_difference([ZERO, torch.zeros(our_shape)], [ZERO, torch.zeros(their_shape)])


@pytest.mark.parametrize("whole", [torch.tensor([2**53 + 1]), torch.tensor([True])])
def test_whole_numbers_are_not_compared_with_others(whole):
    with pytest.raises(AssertionError, match=r"tensor 1 is torch.float64, but the other one is"):
        largest_difference([ZERO, torch.tensor([2.0**53]).double()], [ZERO, whole])


def test_a_conjugate_is_compared_as_what_it_stands_for():
    x = torch.tensor([1 + 2j])
    assert largest_difference([x.conj()], [torch.tensor([1 - 2j])]) == 0
    assert_replicas_identical([[x.conj()], [torch.tensor([1 - 2j])]])


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        (torch.ones(2, 2).to_sparse(), "torch.sparse_coo"),
        (torch.ones(2, 2, device="meta"), "on meta in"),
    ],
)
def test_tensors_of_other_kinds_are_refused(odd, kind):
    for compare in (largest_difference, lambda a, b: assert_replicas_identical([a, b])):
        with pytest.raises(ValueError, match=f"Only plain tensors can be compared, .*{kind}"):
            compare([odd], [odd])


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        (NAN, ZERO, "tensor 1 is nan away"),
        (ZERO, NAN, "one device itself computes NaN or infinity in tensor 1"),
        (INF, INF, "one device itself computes NaN or infinity in tensor 1"),
        (INF, ZERO, "tensor 1 is inf away"),
        (ZERO.double(), ZERO, r"tensor 1 is torch.float64, but one device has torch.float32"),
        (torch.full((2,), 15.0), ZERO, "tensor 1 is 1.5e\\+01 away"),  # beside the 2e6
    ],
)
def test_what_does_not_equal_one_device(ours, theirs, says):
    large = torch.full((3,), 2e6)
    with pytest.raises(AssertionError, match=says):
        assert_equals_one_device([large, ours, ZERO], [large, theirs, ZERO])


def test_each_tensor_is_allowed_the_rounding_of_its_own_scale():
    large = torch.full((3,), 2e6)
    assert assert_equals_one_device([large + 4, ZERO], [large, ZERO]) == 4
    assert assert_equals_one_device([torch.zeros(0)], [torch.zeros(0)]) == 0


def test_a_dtype_without_tolerance_is_refused():
    half = [ZERO.bfloat16()]
    with pytest.raises(ValueError, match=r"float32 and float64 round, not torch\.bfloat16"):
        assert_equals_one_device(half, half)


BUFFER = torch.zeros(6)


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ([ZERO], [-ZERO], r"replicas 0 and 1 differ by 0.0e\+00 in parameter 0"),
        ([ZERO], [ZERO.double()], "torch.float32 of shape .2,., torch.float64"),
        ([ZERO], [torch.zeros(2, 1)], r"of shape \(2,\), torch.float32 of shape \(2, 1\)"),
        ([ZERO], [NAN], "replica 1 holds NaN in parameter 0"),
        ([NAN], [NAN.clone()], "replica 0 holds NaN in parameter 0"),
        ([ZERO, ZERO], [ZERO.clone()], "replica 1 has 1 parameters, replica 0 has 2"),
        ([BUFFER[:4]], [BUFFER[2:]], "share the storage of parameter 0: one is an alias"),
        ([BUFFER[0::2]], [BUFFER[1::2]], "share the storage of parameter 0"),
        ([BUFFER[:3], ZERO[:1]], [BUFFER[3:], BUFFER[2:3]], "parameter 0: .* of parameter 1"),
        ([BUFFER[3:], BUFFER[:3]], [BUFFER[3:], BUFFER[:3]], "storage of parameter 0: one is an"),
    ],
)
def test_what_replicas_must_not_be(first, second, says):
    with pytest.raises(AssertionError, match=says):
        assert_replicas_identical([first, second])


def test_what_replicas_may_be():
    tied = torch.ones(3)
    assert_replicas_identical([[tied, tied], [tied.clone(), tied.clone()]])
    assert_replicas_identical([[torch.zeros(0)], [torch.zeros(0)]])
    assert_replicas_identical([[BUFFER[:3]], [BUFFER[3:]]])  # no byte in common
    assert_replicas_identical([[INF], [INF.clone()]])
    assert_replicas_identical([])


@pytest.mark.parametrize("name", ["num_steps", "batch_size"])
@pytest.mark.parametrize("value", [0, 2.5, "7"])
def test_a_proof_that_computes_nothing_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, but it is"):
        prove_equals_one_device(train_batch, get_params, [CPU], **{name: value})


@pytest.mark.parametrize(
    ("devices", "dtype"), [([], None), ([CPU], torch.int64), ([CPU], torch.complex64)]
)
def test_a_proof_needs_a_device_and_a_dtype_that_rounds(devices, dtype):
    with pytest.raises(ValueError, match="A proof needs a device and float32 or float64"):
        prove_equals_one_device(train_batch, get_params, devices, dtype=dtype)


def zeroes(X, y):
    X.zero_()


def relabels(X, y):
    y.fill_(3)


def normalizes_shards(X, y):
    for shard in X.tensor_split(2):
        shard.sub_(shard.mean()).div_(shard.std())


def keeps_two_examples(X, y):
    X.data, y.data = X[:2].clone(), y[:2].clone()


@pytest.mark.parametrize("change", [zeroes, relabels, normalizes_shards, keeps_two_examples])
def test_the_proof_catches_a_change_of_the_batch(change):
    def changing(X, y, *how):
        change(X, y)
        train_batch(X, y, *how)

    with pytest.raises(AssertionError, match="what one device computes"):
        prove_equals_one_device(changing, get_params, [CPU] * 2, num_steps=1)


def test_the_proof_catches_a_batch_size_that_is_written_into_the_code():
    def divides_by_7(X, y, device_params, devices, lr):
        train_batch(X, y, device_params, devices, lr * len(X) / 7)

    with pytest.raises(AssertionError, match="away from what one device computes"):
        prove_equals_one_device(divides_by_7, get_params, [CPU] * 2, batch_size=7)


def test_the_proof_catches_a_change_of_the_first_parameters():
    def zeroing(params, device):
        return get_params([p.zero_() for p in params], device)

    with pytest.raises(AssertionError, match="what one device computes"):
        prove_equals_one_device(train_batch, zeroing, [CPU] * 2, num_steps=1)


def test_the_proof_catches_a_learning_rate_that_is_ignored():
    def with_lr_of_its_own(X, y, device_params, devices, lr):
        train_batch(X, y, device_params, devices, 0.1)

    with pytest.raises(AssertionError, match="what one device computes"):
        prove_equals_one_device(with_lr_of_its_own, get_params, [CPU] * 2)


@pytest.mark.parametrize("parameter", range(8))
def test_the_proof_catches_nan_in_any_parameter(parameter):
    def with_nan(X, y, device_params, *how):
        train_batch(X, y, device_params, *how)
        for params in device_params:
            params[parameter].data.flatten()[-1] = torch.nan

    with pytest.raises(AssertionError, match=f"NaN in parameter {parameter}"):
        prove_equals_one_device(with_nan, get_params, [CPU] * 2, num_steps=1)
