"""What a reader gets: images, batches of them, and their order."""

import cloudpickle
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2l_mgpu import load_data_fashion_mnist
from d2l_mgpu.data import Batches, Images


def test_a_batch_has_floats_from_0_to_1_and_whole_labels() -> None:
    for batches in load_data_fashion_mnist(256, source="generated", num_train=512):
        X, y = next(iter(batches))
        assert X.shape == (256, 1, 28, 28) and X.dtype == torch.float32
        assert X.min() == 0 and 0.9 < X.max() <= 1
        assert y.shape == (256,) and y.dtype == torch.int64
        assert set(y.tolist()) == set(range(10))


def test_resize_changes_the_side_and_keeps_the_picture() -> None:
    plain = next(iter(load_data_fashion_mnist(8, source="generated")[1]))
    large = next(iter(load_data_fashion_mnist(8, 56, source="generated")[1]))
    assert large[0].shape == (8, 1, 56, 56)
    assert torch.equal(large[1], plain[1])
    shrunk = torch.nn.functional.avg_pool2d(large[0], 2)
    assert (shrunk - plain[0]).abs().mean() < 0.05


def test_one_image_a_slice_and_a_list_can_be_indexed() -> None:
    train, _ = load_data_fashion_mnist(8, 14, source="generated")
    assert train.dataset[3][0].shape == (1, 14, 14) and train.dataset[3][1].shape == ()
    assert train.dataset[:5][0].shape == (5, 1, 14, 14)
    assert torch.equal(train.dataset[[3]][0][0], train.dataset[3][0])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50))
def test_every_epoch_visits_every_image_once(n: int, batch_size: int) -> None:
    pixels = torch.zeros(n, 28, 28, dtype=torch.uint8)
    images = Images(pixels, torch.arange(n), name="numbered", origin="counted")
    for batches in (Batches(images, batch_size, seed=0), Batches(images, batch_size)):
        labels = [y for _, y in batches]
        assert len(labels) == len(batches) == -(-n // batch_size)
        assert all(len(y) == batch_size for y in labels[:-1])
        assert sorted(torch.cat(labels).tolist()) == list(range(n))


def labels_in_order(batches: Batches) -> list[int]:
    return torch.cat([y for _, y in batches]).tolist()


def test_the_order_is_new_in_every_epoch_the_same_for_a_seed_and_fixed_for_the_test_set() -> None:
    train, test = load_data_fashion_mnist(64, source="generated", num_train=200)
    again, _ = load_data_fashion_mnist(64, source="generated", num_train=200)
    other, _ = load_data_fashion_mnist(64, source="generated", num_train=200, seed=1)
    epochs = [labels_in_order(train) for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert [labels_in_order(again) for _ in range(2)] == epochs
    assert labels_in_order(other) != epochs[0]
    assert torch.equal(other.dataset.pixels, train.dataset.pixels)
    assert labels_in_order(test) == labels_in_order(test) == test.dataset.labels.tolist()


def test_a_loop_over_the_batches_leaves_the_global_generator_alone() -> None:
    train, test = load_data_fashion_mnist(64, source="generated", num_train=200, num_test=100)
    before = torch.get_rng_state()
    for batches in (train, test):
        labels_in_order(batches)
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_travel_to_another_process_with_their_order() -> None:
    train, _ = load_data_fashion_mnist(64, source="generated", num_train=200)
    copy = cloudpickle.loads(cloudpickle.dumps(train))
    assert repr(copy) == repr(train)
    assert labels_in_order(copy) == labels_in_order(train)
