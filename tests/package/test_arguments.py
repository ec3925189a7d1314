"""Arguments: integers of every kind count; what cannot be right is refused by its name."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d2l_mgpu import (
    LeNet,
    backward_in_parts,
    evaluate_accuracy_gpus,
    get_devices,
    init_weights,
    lenet_params,
    load_data_fashion_mnist,
    scratch,
)
from d2l_mgpu.arguments import batches_of, check_data, integer, not_negative
from d2l_mgpu.concise import train as train_concise
from d2l_mgpu.data import Batches, Images, garments
from tests.package.test_scratch import small_data


def small_set(**options: Any) -> tuple[Batches, Batches]:
    settings = {"batch_size": 8, "num_train": 16, "num_test": 8, "source": "generated"}
    return load_data_fashion_mnist(**settings | options)


@pytest.mark.parametrize("value", [1, 7, np.int64(7), np.uint8(7), torch.tensor(7)])
def test_an_integer_is_an_integer_whoever_made_it(value):
    found = integer("count", value)
    assert found == value and type(found) is int


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", None, True, np.bool_(True), np.float64(2), [2]])
def test_anything_else_is_refused_with_its_name_and_what_was_found(value):
    with pytest.raises(
        ValueError, match=r"^count must be an integer of at least 1, but it is "
    ) as e:
        integer("count", value)
    assert str(e.value).endswith(f"{value!r}.")


def test_the_least_may_be_another_and_the_sentence_may_go_on():
    assert integer("seed", 0, least=0) == 0
    with pytest.raises(ValueError, match=r"^seed must be .* at least 0, but it is -1; no way\.$"):
        integer("seed", -1, least=0, more="; no way")


NUMPY = {
    "num_devices": lambda n: get_devices(n, quiet=True),
    "batch_size": lambda n: small_set(batch_size=n),
    "batch_size of Batches": lambda n: list(Batches(small_set()[0].dataset, n)),
    "resize": lambda n: next(iter(small_set(resize=n)[0])),
    "num_train": lambda n: small_set(num_train=n),
    "num_test": lambda n: small_set(num_test=n),
    "num_examples": garments.generate,
    "num_epochs": lambda n: scratch.train(1, 96, 0.1, num_epochs=n, load_data=small_data),
    "num_gpus": lambda n: scratch.train(n, 96, 0.1, num_epochs=1, load_data=small_data),
    "num_parts": lambda n: backward_in_parts(
        nn.Linear(2, 2), torch.ones(3, 2), torch.zeros(3).long(), n, 1.0
    ),
    "seed": lenet_params,
    "seed of batches": lambda n: small_set(seed=n),
}


@pytest.mark.parametrize("call", NUMPY.values(), ids=NUMPY)
def test_a_count_may_come_from_numpy(call: Callable):
    call(np.int64(2))


SEEDS = {
    "lenet_params": lambda seed: lenet_params(seed=seed),
    "LeNet": lambda seed: LeNet(seed=seed),
    "init_weights": lambda seed: init_weights(nn.Linear(2, 2), torch.ones(1, 2), seed=seed),
    "data": lambda seed: small_set(seed=seed),
    "Batches": lambda seed: Batches(small_set()[0].dataset, 8, seed=seed),
    "drawings": lambda seed: garments.generate(1, seed),
    "train": lambda seed: scratch.train(1, 96, 0.1, seed=seed, load_data=small_data),
}


@pytest.mark.parametrize("call", SEEDS.values(), ids=SEEDS)
@pytest.mark.parametrize("seed", [1.5, "0", -1])
def test_a_seed_that_is_none_is_refused_in_one_sentence(call: Callable, seed: object):
    with pytest.raises(ValueError, match=f"seed must be an integer of at least 0, but .* {seed!r}"):
        call(seed)


@pytest.mark.parametrize("call", SEEDS.values(), ids=SEEDS)
def test_a_seed_is_not_too_large_for_a_generator(call: Callable):
    with pytest.raises(
        ValueError, match=r"^seed must be at most 1,099,511,627,776, but it is 1180"
    ):
        call(2**70)


def test_more_replicas_than_a_machine_has_room_for_are_refused():
    with pytest.raises(ValueError, match=r"^num_devices must be at most 1,024, but .* 10\d+; this"):
        get_devices(10**12)


@pytest.mark.parametrize("value", [0, 0.5, 3, np.float32(0.5), np.float64(0.1)])
def test_a_number_may_come_from_numpy_and_be_0(value):
    assert not_negative("lr", value) == value


NUMBERS = {
    "lr of scratch": lambda lr: scratch.train(1, 96, lr, load_data=small_data),
    "lr of concise": lambda lr: train_concise(nn.Linear(2, 2), 1, 96, lr, load_data=small_data),
    "std": lambda std: lenet_params(std),
    "std of a network": lambda std: init_weights(nn.Linear(2, 2), torch.ones(1, 2), std),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, "0.1", [0.1], 10**400, 1j])
def test_what_is_no_number_is_refused_by_its_name(name: str, value: object):
    says = f"^{name.split()[0]} must be a finite number of at least 0, but it is "
    with pytest.raises(ValueError, match=says):
        NUMBERS[name](value)


def test_images_are_bytes_with_a_label_each():
    pixels, labels = torch.zeros(3, 28, 28, dtype=torch.uint8), torch.zeros(3).long()
    assert len(Images(pixels, labels, name="n", origin="o")) == 3
    for wrong in ((pixels.float(), labels), (pixels[0], labels), (pixels, labels[:2])):
        with pytest.raises(ValueError, match=r"^Images are made from pixels, uint8"):
            Images(*wrong, name="n", origin="o")


def test_a_network_without_parameters_is_judged_as_any_other():
    X, y = torch.eye(3), torch.arange(3)
    init_weights(nn.Identity(), X)
    assert evaluate_accuracy_gpus(nn.Identity(), [(X, y)]) == 1


def test_data_that_end_with_the_first_epoch_are_refused_and_others_are_not_touched():
    train, test = small_set(seed=3)
    check_data(train, test)  # asks for no iterator, which would draw random numbers
    again, _ = small_set(seed=3)
    assert all(torch.equal(y, z) for (_, y), (_, z) in zip(train, again, strict=True))
    for kind, once in (("generator", (b for b in test)), ("map", map(tuple, test))):
        with pytest.raises(ValueError, match=f"The test data is a {kind}.* only once"):
            check_data(train, once)
    with pytest.raises(ValueError, match="The training data is a zip"):
        check_data(zip(train, test, strict=False), test)


def test_batches_pass_as_they_are_and_there_must_be_one():
    pairs = [(1, 2), [3, 4]]
    assert list(batches_of(pairs)) == pairs
    for batch, kind in (((1, 2, 3), "tuple of 3"), (torch.ones(2), "Tensor"), ("ab", "str")):
        with pytest.raises(ValueError, match=f"must be a pair .* a list, holds a {kind}\\.$"):
            list(batches_of([*pairs, batch]))
    used_up = iter([])
    for empty, kind in (([], "list"), (used_up, "list_iterator")):
        with pytest.raises(ValueError, match=f"The data, a {kind}, holds no batch"):
            list(batches_of(empty))
