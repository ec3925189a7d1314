"""The generated garments: the same bytes everywhere, balanced, and worth learning."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2l_mgpu.data import garments


@pytest.fixture(scope="module")
def drawings() -> tuple[np.ndarray, np.ndarray]:
    return garments.generate(4000)


def sha256(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def test_the_bytes_are_the_same_on_every_machine() -> None:
    images, labels = garments.generate(1000)
    assert (
        sha256(images, labels.astype("<i8"))
        == "47190c7e7a4fdbbf1f0a951d66b562ed2044909dd10a8d21f909dc33858ca1f6"
    )
    images, labels = garments.generate(1000, train=False)
    assert (
        sha256(images, labels.astype("<i8"))
        == "a753d621cb11bd2d9dc620c4fdc277dcaf978ae1cd5ca9659c5c4470f34a1971"
    )


def test_images_are_grey_bytes_and_labels_whole_numbers(
    drawings: tuple[np.ndarray, np.ndarray],
) -> None:
    images, labels = drawings
    assert images.shape == (4000, 28, 28) and images.dtype == np.uint8
    assert labels.shape == (4000,) and labels.dtype == np.int64
    assert images.min() == 0 and images.max() == 255
    assert images[:, 0, 0].max() == 0  # a black background, as in Fashion-MNIST
    assert (images.reshape(4000, -1).max(axis=1) > 30).all()  # and never an empty picture


def test_there_is_a_name_and_a_drawing_for_each_of_ten_classes() -> None:
    assert len(garments.LABELS) == len(set(garments.LABELS)) == len(garments.DRAW) == 10


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 1300))
def test_a_shorter_set_is_the_balanced_beginning_of_a_longer_one(n: int) -> None:
    images, labels = garments.generate(n)
    longer_images, longer_labels = garments.generate(1300)
    assert len(images) == len(labels) == n
    assert (images == longer_images[:n]).all() and (labels == longer_labels[:n]).all()
    counts = np.bincount(labels, minlength=10)
    assert counts.max() - counts.min() <= 1


def test_seeds_and_parts_share_no_picture() -> None:
    sets = [
        garments.generate(1000, seed, train=train)[0] for seed in (0, 1) for train in (True, False)
    ]
    pictures = [image.tobytes() for images in sets for image in images]
    assert len(set(pictures)) == len(pictures) == 4000


def test_drawing_leaves_numpys_global_generator_alone() -> None:
    np.random.seed(5)
    expected = np.random.random_sample()
    np.random.seed(5)
    garments.generate(10)
    assert np.random.random_sample() == expected


def test_the_classes_overlap_too_much_for_their_mean_pictures_to_tell_them_apart(
    drawings: tuple[np.ndarray, np.ndarray],
) -> None:
    """Better than guessing (0.1), far from enough: there is something left for a network."""
    pixels, labels = drawings[0].reshape(4000, -1) / 255, drawings[1]
    means = np.stack([pixels[:3000][labels[:3000] == label].mean(axis=0) for label in range(10)])
    distance = ((pixels[3000:, None] - means) ** 2).sum(axis=2)
    accuracy = (distance.argmin(axis=1) == labels[3000:]).mean()
    assert 0.4 < accuracy < 0.75


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(ValueError, match=r"num_examples must be .* but it is 0\."):
        garments.generate(0)
