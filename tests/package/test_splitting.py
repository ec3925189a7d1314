"""Each split equals one device, and its traffic is what the formulas say."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from d2l_mgpu import (
    SPLITS,
    Exchange,
    Split,
    Traffic,
    lenet,
    lenet_params,
    prove_split_equals_one_device,
    split_step,
)
from d2l_mgpu.models import LAYERS
from d2l_mgpu.traffic import all_gather, sum_gradients

CPU = torch.device("cpu")
PARAMETERS = 129_068
OUTPUTS = [20 * 13 * 13, 50 * 4 * 4, 128, 10]  # numbers per example that each layer gives


def one_step(name: str, k: int, batch_size: int) -> tuple[Traffic, list[list[Tensor]]]:
    """What one step of split `name` over k replicas costs, and the parameters on each."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn((batch_size, 1, 28, 28), generator=generator)
    y = torch.randint(10, (batch_size,), generator=generator)
    device_params = SPLITS[name].place(lenet_params(), [CPU] * k)
    traffic = Traffic()
    split_step(SPLITS[name], X, y, device_params, [CPU] * k, 0.1, traffic)
    return traffic, device_params


def prove(name: str, k: int, **options: object) -> float:
    return prove_split_equals_one_device(SPLITS[name], [CPU] * k, **options)  # type: ignore[arg-type]


def with_gradients(name: str, **collective: object) -> Split:
    """Split `name`, with another collective in its `gradients`."""
    split = SPLITS[name]
    return replace(split, gradients=partial(split.gradients, **collective))


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("name", SPLITS)
def test_every_split_takes_the_same_steps_as_one_device(name, k):
    """Batches of 7 divide by none of the k; 50 channels do not by 3 and 4, nor 10 units by 4."""
    assert prove(name, k) < 1e-12


@pytest.mark.parametrize("name", SPLITS)
def test_every_split_takes_the_same_steps_in_single_precision(name):
    assert prove(name, 2, dtype=torch.float32) < 1e-5


@pytest.mark.parametrize("name", ["layers", "data"])
def test_seven_devices_and_a_batch_of_three_take_the_same_steps(name):
    """Four shards of the data are empty, and the ten output units become 2, 2, 2, 1, 1, 1, 1."""
    assert prove(name, 7, batch_size=3) < 1e-12


def test_the_split_step_returns_the_mean_loss_and_updates_what_each_device_holds():
    X, y = torch.randn(5, 1, 28, 28), torch.arange(5)
    one_device = [p.requires_grad_() for p in lenet_params()]
    mean_loss = torch.nn.functional.cross_entropy(lenet(X, one_device), y)
    gradients = torch.autograd.grad(mean_loss, one_device)
    for split in SPLITS.values():
        device_params = split.place(one_device, [CPU] * 2)
        step_loss = split_step(split, X, y, device_params, [CPU] * 2, 0.5, Traffic())
        assert step_loss == pytest.approx(mean_loss.item())
        for p, g, updated in zip(one_device, gradients, split.join(device_params), strict=True):
            torch.testing.assert_close(updated, p - 0.5 * g)


def test_the_layers_one_after_another_are_lenet():
    h, params = torch.randn(3, 1, 28, 28), lenet_params()
    expected = lenet(h, params)
    for layer, W, b in zip(LAYERS, params[::2], params[1::2], strict=True):
        h = layer(h, W, b)
    assert torch.equal(h, expected)


# The mutations: each plants one fault in the package, and the proof must notice.


def silent_backward(ctx, *gradients):
    """The way back is forgotten: no gradient arrives at the device that computed the input."""
    return None, None, *(torch.zeros_like(g) for g in gradients)


def last_only_backward(ctx, *gradients):
    """The gradients of all copies but the last are lost, instead of being summed."""
    *lost, last = gradients
    return None, None, *(torch.zeros_like(g) for g in lost), last


def detached_forward(traffic, devices, *tensors):
    """The copies are cut off from the graph."""
    return tuple(traffic.send([x.detach() for x in tensors], devices, "forward"))


def swapped_gather(shards, devices, traffic):
    """Everything arrives, in the wrong order."""
    return all_gather(shards[::-1], devices, traffic)


def own_shard_only(shards, devices, traffic):
    """The exchange is dropped: each device fills in zeros for what the others computed."""
    wholes = []
    for to in range(len(devices)):
        parts = [s if i == to else torch.zeros_like(s) for i, s in enumerate(shards)]
        wholes.append(torch.cat(parts, dim=1))
    return wholes


def plain_copies(shards, devices, traffic):
    """Right values, but autograd does not see what the devices copy from each other."""
    if len(devices) == 1:  # the logits
        return all_gather(shards, devices, traffic)
    return [
        torch.cat([s if i == to else s.detach() for i, s in enumerate(shards)], dim=1)
        for to in range(len(devices))
    ]


def no_sum(device_params, traffic):
    """Every replica follows its own shard."""


def gather_without_broadcast(device_params, traffic):
    """Replica 0 gets the sum, the others keep what they had."""
    for replicas in zip(*device_params, strict=True):
        for p in replicas[1:]:
            replicas[0].grad += p.grad


def mean_of_means(device_params, traffic):
    """Shards of 4 and 3 examples count the same."""
    for replicas in zip(*device_params, strict=True):
        mean = (replicas[0].grad / 4 + replicas[1].grad / 3) / 2
        for p in replicas:
            p.grad.copy_(mean * 7)


@pytest.mark.parametrize(
    ("name", "attribute", "fault"),
    [
        ("network", "backward", staticmethod(silent_backward)),
        ("network", "apply", detached_forward),
        ("layers", "backward", staticmethod(silent_backward)),
        ("layers", "backward", staticmethod(last_only_backward)),
        ("layers", "apply", detached_forward),
    ],
)
def test_the_proof_notices_a_fault_in_the_exchange(name, attribute, fault, monkeypatch):
    assert prove(name, 2, num_steps=1) < 1e-12
    monkeypatch.setattr(Exchange, attribute, fault)
    with pytest.raises(AssertionError):
        prove(name, 2, num_steps=1)


@pytest.mark.parametrize(
    ("name", "collective", "fault"),
    [
        ("layers", "gather", swapped_gather),
        ("layers", "gather", own_shard_only),
        ("layers", "gather", plain_copies),
        ("data", "all_reduce", no_sum),
        ("data", "all_reduce", gather_without_broadcast),
        ("data", "all_reduce", mean_of_means),
    ],
)
def test_the_proof_notices_a_fault_in_a_collective(name, collective, fault):
    split = with_gradients(name, **{collective: fault})
    with pytest.raises(AssertionError):
        prove_split_equals_one_device(split, [CPU] * 2, num_steps=1)


def test_copies_that_autograd_does_not_see_leave_the_first_loss_right():
    X, y = torch.randn(4, 1, 28, 28), torch.arange(4)
    device_params = SPLITS["layers"].place(lenet_params(), [CPU] * 2)
    split = with_gradients("layers", gather=plain_copies)
    total = split.gradients(X, y, device_params, [CPU] * 2, Traffic())
    expected = torch.nn.functional.cross_entropy(lenet(X, lenet_params()), y, reduction="sum")
    torch.testing.assert_close(total, expected)


@pytest.mark.parametrize("parameter", range(8))
def test_the_proof_notices_nan_in_the_gradient_of_any_parameter(parameter):
    def nan_in_one(device_params, traffic):
        sum_gradients(device_params, traffic)
        for params in device_params:
            params[parameter].grad.flatten()[-1] = torch.nan

    split = with_gradients("data", all_reduce=nan_in_one)
    with pytest.raises(AssertionError, match=r"nan away|NaN in parameter"):
        prove_split_equals_one_device(split, [CPU] * 2, num_steps=1)


@pytest.mark.parametrize("name", SPLITS)
def test_a_proof_without_a_step_is_refused(name):
    with pytest.raises(ValueError, match="num_steps must be an integer of at least 1"):
        prove(name, 2, num_steps=0)


# The counts: float32 has 4 bytes.


@pytest.mark.parametrize("name", SPLITS)
def test_one_device_sends_nothing_and_never_waits(name):
    traffic, _ = one_step(name, k=1, batch_size=4)
    assert (traffic.synchronizations, traffic.transfers, traffic.bytes) == ({}, {}, {})


@pytest.mark.parametrize(("k", "cuts"), [(2, [1]), (3, [1, 2]), (4, [0, 1, 2])])
def test_the_network_split_sends_activations_and_their_gradients_over_each_cut(k, cuts):
    traffic, _ = one_step("network", k, batch_size=5)
    each_way = 4 * 5 * sum(OUTPUTS[layer] for layer in cuts)
    assert traffic.bytes == {"forward": each_way, "backward": each_way}
    assert traffic.transfers == {"forward": k - 1, "backward": k - 1}
    assert traffic.synchronizations == {"forward": k - 1, "backward": k - 1}


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_layer_split_sends_every_activation_to_all_other_devices(k):
    traffic, _ = one_step("layers", k, batch_size=5)
    to_the_loss = 10 - -(-10 // k)  # logits that device 0 has not computed itself
    each_way = 4 * 5 * ((k - 1) * sum(OUTPUTS[:-1]) + to_the_loss)
    transfers = 3 * k * (k - 1) + k - 1
    assert traffic.bytes == {"forward": each_way, "backward": each_way}
    assert traffic.transfers == {"forward": transfers, "backward": transfers}
    assert traffic.synchronizations == {"forward": 4, "backward": 4}


@pytest.mark.parametrize("batch_size", [2, 5, 32])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_data_split_sends_all_gradients_there_and_back_whatever_the_batch(k, batch_size):
    traffic, _ = one_step("data", k, batch_size)
    assert traffic.bytes == {"update": 2 * (k - 1) * 4 * PARAMETERS}
    assert traffic.transfers == {"update": 2 * (k - 1) * 8}
    assert traffic.synchronizations == {"update": 1}


@pytest.mark.parametrize(("name", "copies"), [("network", 1), ("layers", 1), ("data", 3)])
def test_only_the_data_split_holds_the_parameters_more_than_once(name, copies):
    _, device_params = one_step(name, k=3, batch_size=3)
    held = sum(p.numel() for params in device_params for p in params)
    assert held == copies * PARAMETERS


def test_splitting_the_data_splits_the_activations():
    whole = one_step("data", k=1, batch_size=8)[0].kept[0]
    halves = one_step("data", k=2, batch_size=8)[0].kept
    assert halves[0] == halves[1]
    assert halves[0] == pytest.approx(whole / 2, abs=4)  # the loss keeps one number besides


# Bad input.


def test_more_stages_than_layers_are_refused():
    with pytest.raises(ValueError, match=r"4 layers, too few .* over 5 devices; use at most 4"):
        SPLITS["network"].place(lenet_params(), [CPU] * 5)


def test_more_slices_than_units_are_refused():
    with pytest.raises(ValueError, match=r"10 outputs, too few .* over 11 devices; use at most 10"):
        SPLITS["layers"].place(lenet_params(), [CPU] * 11)
