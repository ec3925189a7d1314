"""The checkers of the chapter on splitting tell right attempts from wrong ones."""

import pytest
import torch

from d2l_mgpu import network_split
from d2l_mgpu.scratch import sgd


def right_bytes(batch_size, k):
    logits_of_others = 10 - -(-10 // k)
    return 2 * 4 * batch_size * ((k - 1) * (20 * 13 * 13 + 50 * 4 * 4 + 128) + logits_of_others)


def forward_only(batch_size, k):
    return right_bytes(batch_size, k) // 2


def logits_to_everyone(batch_size, k):
    return 2 * 4 * batch_size * (k - 1) * (20 * 13 * 13 + 50 * 4 * 4 + 128 + 10)


def even_units_only(batch_size, k):
    return right_bytes(batch_size, k) if 10 % k == 0 else 0


def accumulated(X, y, device_params, devices, traffic):
    micro = zip(X.tensor_split(4), y.tensor_split(4), strict=True)
    return sum(network_split(X_, y_, device_params, devices, traffic) for X_, y_ in micro)


def whole_batch(X, y, device_params, devices, traffic):
    return network_split(X, y, device_params, devices, traffic)


def averaged(X, y, device_params, devices, traffic):
    total = accumulated(X, y, device_params, devices, traffic)
    for params in device_params:
        for p in params:
            p.grad /= 4
    return total / 4


def updated_in_between(X, y, device_params, devices, traffic):
    total = torch.zeros(())
    for X_, y_ in zip(X.tensor_split(4), y.tensor_split(4), strict=True):
        total = total + network_split(X_, y_, device_params, devices, traffic)
        for params in device_params:
            sgd(params, 0.1, len(X_))
    return total


def last_loss_only(X, y, device_params, devices, traffic):
    for X_, y_ in zip(X.tensor_split(4), y.tensor_split(4), strict=True):
        total = network_split(X_, y_, device_params, devices, traffic)
    return total


@pytest.mark.parametrize(
    ("exercise", "attempt"),
    [("layer-split-bytes", right_bytes), ("micro-batches", accumulated)],
)
def test_a_right_attempt_is_called_right(exercise, attempt, verdict):
    assert verdict(exercise, attempt).startswith("Right: ")


@pytest.mark.parametrize(
    ("exercise", "attempt", "what_went_wrong"),
    [
        ("layer-split-bytes", forward_only, "you say 17252 bytes, but 34504 were counted"),
        ("layer-split-bytes", logits_to_everyone, "with a batch of 1 on 2 devices you say 34544"),
        ("layer-split-bytes", even_units_only, "on 3 devices you say 0 bytes"),
        ("micro-batches", whole_batch, "yours crossed it 1 times forward"),
        ("micro-batches", averaged, "0.25 times as long"),
        ("micro-batches", updated_in_between, "parameter 0 has changed"),
        ("micro-batches", last_loss_only, "the summed loss of a batch of 8"),
    ],
)
def test_a_wrong_attempt_is_told_what_went_wrong(exercise, attempt, what_went_wrong, verdict):
    answer = verdict(exercise, attempt)
    assert answer.startswith("Not yet: ")
    assert what_went_wrong in answer
